// Package quicext lets a sender outside the process, such as an eBPF program, send packets on a
// QUIC connection of quic-go and decrypt the packets of its peer.
//
// External packets are short-header packets with DATAGRAM frames. Their packet numbers come from
// blocks reserved by quic-go, and they are sealed with its keys. The sender registers them
// afterwards. quic-go then counts them as bytes in flight, detects their losses, and takes RTT
// samples from their acknowledgements, as for its own packets.
//
// The hooks are part of the quic-go patched by tools/quicpatch (docs/adr/0005-quic-go-hooks.md).
// With the published quic-go this package builds too, and [Attach] returns [ErrUnsupported]. The
// types are aliases of unnamed types repeated in quic-go, so neither side imports the other.
package quicext

import (
	"errors"
	"net/netip"
	"time"

	"github.com/quic-go/quic-go"
)

// Sender is the external sender of one connection. Its methods are called on the connection's
// goroutine, so they should take only microseconds and must not call blocking methods of the
// connection.
type Sender = interface {
	// Drain registers with p the packets sent since the last call. It is called before a 1-RTT ACK
	// is processed, before the connection decides what to send, after it sent packets of its own
	// ([Port].Overtaken), and after [Handle].Wake. p is valid until Drain returns.
	Drain(p Port)
	// Report delivers acknowledgements and losses of registered packets, and the new budget. It is
	// called at most once per turn of the connection's event loop, and only if something changed.
	Report(r Report)
	// Changed delivers the connection's state. It is the first call, and follows every change:
	// immediately for a new KeyPhase, even while a packet is received or sent; otherwise before the
	// next Drain and at the end of the event loop's turn.
	Changed(s State)
}

// Port is the interface of a connection for its [Sender] during Drain.
type Port = interface {
	// Reserve takes n consecutive packet numbers, at most [MaxBlock], from the 1-RTT packet number
	// space; quic-go continues above them. Use each for one packet, with the keys and on the path
	// of the returned generation, which is that of the last State. Reserve fails if more than
	// [MaxOpen] numbers would be open, neither registered nor released.
	Reserve(n int) (first int64, generation uint64, err error)
	// Sent registers packets in the order they were sent. Packets of an earlier path are reported
	// lost immediately and otherwise ignored. Sent returns an error for numbers that are not
	// reserved, already registered or released, after registering all others.
	//
	// Register every packet. An ACK of an open number waits for its registration. After a probe
	// timeout, at least 100 ms, the ACK counts as a protocol violation of the peer; time in which
	// the connection was not scheduled does not count. If it is unknown whether a packet was sent,
	// register it: an unsent packet will be declared lost.
	Sent(packets []Packet) error
	// Release returns numbers that will not be used. They are neither reused nor lost; the
	// connection closes if the peer acknowledges one. Release returns an error for numbers that are
	// not reserved or already registered, after releasing all others.
	Release(first int64, n int) error
	// Overtaken reports whether the connection sent a packet numbered above the newest block.
	// Packets from that block now arrive out of order. Receivers answer each with an ACK, and a
	// round trip later may drop them as potential duplicates (RFC 9000, Section 13.2.3). Reserve a
	// new block, then release the rest of the old one.
	Overtaken() bool
	// DatagramsWait reports whether the connection has DATAGRAM frames of its own to send, which
	// would overtake a block reserved now.
	DatagramsWait() bool
	// HoldKeyUpdates delays key updates by the connection (RFC 9001, Section 6), because they
	// invalidate blocks. State reports a delayed update; it takes place with the connection's next
	// packet after the hold. The hold ends by itself at half the number of packets that the cipher
	// may seal with one key. Key updates by the peer are not delayed.
	HoldKeyUpdates(hold bool)
	// Detach removes the sender. There are no further calls, key updates are no longer held, and
	// acknowledgements of open numbers are ignored.
	Detach()
}

// Limits of [Port].Reserve.
const (
	MaxBlock = 1024
	MaxOpen  = 4096
)

// Packet is an external packet.
type Packet = struct {
	Number int64
	Size   int       // UDP payload in bytes
	Sent   time.Time // with a monotonic clock reading, CLOCK_MONOTONIC on Linux
	ECN    uint8     // ECN field of the IP header: 0 = not ECN-capable, 2 = ECN-capable
}

// Report lists registered packets that were acknowledged or lost. A lost packet may be acknowledged
// later. The slices are valid until Report returns.
type Report = struct {
	Acked, Lost []int64
	Budget      Budget
}

// Budget bounds the data that may be sent on a connection.
type Budget = struct {
	Bytes       int64   // may be sent now: Window - InFlight, or less at other limits
	Window      int64   // congestion window, bytes
	InFlight    int64   // bytes sent and neither acknowledged nor lost, including registered packets
	Rate        float64 // pacing rate, bytes/s; 0 = unknown
	SmoothedRTT time.Duration
	MinRTT      time.Duration // 0 = unknown
}

// State holds the parameters for building packets. Byte slices are shared and must not be modified.
type State = struct {
	// Generation counts key updates and path changes. After a change, stop using blocks of the old
	// generation, register the packets already sent from them, and release the rest.
	Generation uint64

	Suite        uint16 // TLS cipher suite as in crypto/tls
	KeyPhase     uint64 // number of key updates; the lowest bit is the header's key phase
	KeyUpdateDue bool   // a key update waits for the end of HoldKeyUpdates
	Tx           Keys
	// The peer's keys of KeyPhase and of the next phase. After a key update keep the old keys until
	// no packets sealed with them arrive.
	Rx, RxNext Keys

	DestConnID []byte   // for outgoing packets; may be empty
	ConnIDs    [][]byte // of incoming packets; includes retired IDs that are still accepted
	Local      netip.AddrPort
	Remote     netip.AddrPort

	MaxPacketSize    int   // verified UDP payload size of the path, bytes
	MaxDatagramFrame int   // peer's limit on a DATAGRAM frame including type and length, in bytes; 0 = unsupported
	ECN              uint8 // ECN field of the IP header, as in Packet
	SpinBit          bool  // always false: quic-go has no spin bit

	// RxLargest is the largest 1-RTT packet number received so far, or -1 if none. Truncated packet
	// numbers are expanded from it (RFC 9000, Appendix A.3). A change of RxLargest alone does not
	// trigger Changed.
	RxLargest int64
}

// Keys protect packets of one direction and key phase (RFC 9001, Section 5).
type Keys = struct {
	Secret []byte // traffic secret
	Key    []byte // AEAD key, 16 or 32 bytes
	IV     []byte // 12 bytes
	HP     []byte // header protection key, the same in all key phases: 16 or 32 bytes
}

// Handle is an attached connection. Its methods may be called from any goroutine.
type Handle = interface {
	// Wake makes the connection call Drain soon.
	Wake()
	// Budget and State return the values last passed to Report and Changed, after those calls
	// returned. Before that they return zero values.
	Budget() Budget
	State() State
}

// ErrUnsupported is returned by [Attach] in programs built with the published quic-go.
var ErrUnsupported = errors.New("quic-go has no hooks for external packets; build with make")

// extensible is implemented by connections of the patched quic-go.
type extensible = interface {
	AttachExternal(s Sender) (Handle, error)
}

// Supported reports whether the program was built with the patched quic-go.
func Supported() bool {
	_, ok := any((*quic.Conn)(nil)).(extensible)
	return ok
}

// Attach makes s the external sender of a connection, which can have one at a time. The calls begin
// once the handshake is confirmed (RFC 9001, Section 4.1.2) and end when the connection's context
// is done.
func Attach(conn *quic.Conn, s Sender) (Handle, error) {
	c, ok := any(conn).(extensible)
	if !ok {
		return nil, ErrUnsupported
	}
	return c.AttachExternal(s)
}
