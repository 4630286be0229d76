// Package fastpath forwards publishers' datagram objects to viewers in the kernel, before this
// process sees them (Pfeifer, "eBPF-Assisted Relays for Multimedia Streaming", chapter 3). It is
// transparent to viewers: packets are sealed with their connection's keys, use packet numbers
// reserved from quic-go, and stay within the congestion window.
//
// The process catches up afterwards. The kernel reports the packets it sent through a ring. Each
// connection registers them with quic-go before it handles ACKs (internal/quicext), and the
// [origin.Sink] that Viewer returns skips the forwarded objects. User space also receives every
// publisher's packet, so it handles packets that the programs cannot parse, and viewers without
// packet numbers or window, as if there were no fast path.
//
// In modes auto and single, the kernel forwards tracks whose objects arrive one by one, and leaves
// connections that carry frames of several datagrams to user space. Sealing without the processor's
// cipher instructions, packet by packet, makes the kernel the slower way for frames.
//
// The kernel implements only ChaCha20-Poly1305; connections with other ciphers use user space. In
// modes single and chacha20, the relay's TLS prefers it with every peer that offers it (RFC 8446
// makes it optional). Mode auto follows the order of the client's offer instead, so frames keep the
// cipher that their client prefers, and attaches the programs only while a track uses them.
package fastpath

import (
	"fmt"
	"time"

	"holocast/relay/fastpath/kernel"
)

// Mode says whether to use the fast path.
type Mode string

// Modes.
const (
	Off      Mode = "off"
	Auto     Mode = "auto"     // if available, for single objects, of clients that prefer ChaCha20
	Single   Mode = "single"   // for single objects; fail to start if unavailable
	ChaCha20 Mode = "chacha20" // for all datagrams; fail to start if unavailable
)

// Check validates a configured mode.
func (m Mode) Check() error {
	switch m {
	case Off, Auto, Single, ChaCha20:
		return nil
	}
	return fmt.Errorf("fastpath: %q is not a mode; use off, auto, single or chacha20", string(m))
}

// Stats holds the fast path's counters and gauges.
type Stats struct {
	kernel.Counts
	Interfaces int // with the programs attached
	Sources    int // publisher connections handled by the kernel
	Viewers    int // viewer connections handled by the kernel
	Tracks     int // forwarded by the kernel
	// FrameTracks is the number of tracks whose frames are several datagrams long. In modes auto and
	// single, user space serves the connections that carry them.
	FrameTracks int
	// Refused counts the current connections that the kernel cannot handle, by reason.
	Refused map[string]uint64
	// Registered counts packets registered with their connections. Lag is the time between sending
	// and registration, summed over packets.
	Registered uint64
	Lag        time.Duration
	Lost       uint64 // registered packets declared lost
	// Handovers counts the times that a viewer was handed to user space for a while because user
	// space sent its fallbacks too slowly. HandedOver is the number of viewers currently handed over.
	Handovers  uint64
	HandedOver int
	// Unregistered is the number of bytes sent by the kernel but not registered yet, and thus
	// unknown to congestion control.
	Unregistered int64
	Budget       int64 // bytes the kernel may currently send, summed over viewers
}
