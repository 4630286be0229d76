// Package fastpath forwards objects that publishers send as datagrams to viewers in the
// kernel, before this process has seen them (Pfeifer, "eBPF-Assisted Relays for
// Multimedia Streaming", chapter 3). A viewer cannot tell: its packets are sealed with
// its connection's keys, under numbers that quic-go set aside, and within the window that
// its congestion controller leaves.
//
// The process catches up afterwards. A ring tells what the kernel sent; each connection
// registers that with quic-go before it handles ACKs (internal/quicext), and the
// [origin.Sink] that Viewer returns leaves out what was forwarded already. Whatever is
// unclear about a packet, whatever a viewer has no numbers or window for, goes through
// user space as if there were no fast path: the packet itself goes up in any case.
//
// The kernel seals with ChaCha20-Poly1305 alone, so a relay with the fast path on has its
// TLS agree on it with every peer that offers it (RFC 8446 makes it optional; what
// matters of the others are peers that offer AES alone). Connections with another cipher
// go through user space.
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
	Auto     Mode = "auto"     // where it is possible
	ChaCha20 Mode = "chacha20" // or not start
)

// Check tells what is wrong with a configured mode.
func (m Mode) Check() error {
	switch m {
	case Off, Auto, ChaCha20:
		return nil
	}
	return fmt.Errorf("fastpath %q is none of off, auto, chacha20", string(m))
}

// Stats are what the fast path did so far.
type Stats struct {
	kernel.Counts
	Interfaces int // that the programs are attached to
	Sources    int // publishers' connections in the kernel
	Viewers    int // viewers' connections in the kernel
	// Refused are connections that go through user space, by reason.
	Refused map[string]uint64
	// Registered are packets that were registered with their connections, Lag the time
	// from sending to registering, all together.
	Registered uint64
	Lag        time.Duration
	Lost       uint64 // of those, lost on the way
	// Handovers are how often a viewer was handed to user space for a while, which had not
	// caught up with what the kernel left to it; HandedOver is how many are.
	Handovers  uint64
	HandedOver int
	// Unregistered is bytes that the kernel sent and that are not registered yet: what
	// congestion control does not know of.
	Unregistered int64
	Budget       int64 // bytes that the kernel may send now, of all viewers
}
