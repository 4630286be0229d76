// Package quicext lets something outside this process, such as an eBPF program, send
// packets on a QUIC connection that quic-go owns, and open those that its peer sends.
//
// Packets sent outside are short-header packets with DATAGRAM frames. They take their
// numbers from blocks that quic-go reserves, are sealed with its keys, and are registered
// with it afterwards: they count as bytes in flight for the connection's congestion
// control, its loss detection finds those that are lost, and their acknowledgements are
// RTT samples like those of quic-go's own packets.
//
// The hooks are in the quic-go that tools/quicpatch makes (docs/adr/0005-quic-go-hooks.md).
// With the published quic-go this package builds too, and [Attach] returns
// [ErrUnsupported]. The types are aliases of unnamed ones, spelled out on both sides, so
// that neither side imports the other.
package quicext

import (
	"errors"
	"net/netip"
	"time"

	"github.com/quic-go/quic-go"
)

// Sender is the outside sender of one connection. All calls come from the connection's
// goroutine, which waits for them: they should take microseconds, and must not call
// methods of the connection that wait.
type Sender = interface {
	// Drain registers with p what was sent since the last call. It is called before every
	// ACK of 1-RTT packets is processed, before the connection decides what it may send,
	// after it sent packets of its own ([Port].Overtaken), and after [Handle].Wake. p is
	// valid until Drain returns.
	Drain(p Port)
	// Report tells what became of registered packets, and the new budget. It is called at
	// most once per turn of the connection's event loop, and only with news.
	Report(r Report)
	// Changed tells the connection's state: first of all calls, and whenever it changed. A
	// new KeyPhase comes at once, also in the middle of receiving or sending a packet; the
	// rest before the next call of Drain, and at the end of the event loop's turn.
	Changed(s State)
}

// Port is what a [Sender] may do while Drain runs.
type Port = interface {
	// Reserve takes n successive packet numbers, at most [MaxBlock], out of the 1-RTT packet
	// number space; quic-go goes on above them. Each may be used for one packet, sealed
	// with the keys and sent on the path of the returned generation, the one that Changed
	// told last. It fails where more than [MaxOpen] numbers would be neither registered
	// nor released.
	Reserve(n int) (first int64, generation uint64, err error)
	// Sent registers packets that were sent, in the order of sending. A packet of an
	// earlier path is reported lost at once and counts for nothing. It fails for numbers
	// that are not reserved, were registered before or were released, having registered
	// all others.
	//
	// Every packet must be registered: an ACK of a number that is still open waits for that,
	// and after a probe timeout, 100 ms at least, it is a protocol violation of the peer. Time in
	// which the connection was held up does not count.
	// Where it is unknown whether a packet was sent, register it; if it was not, it will be
	// lost.
	Sent(packets []Packet) error
	// Release returns numbers that were not used and will not be. They are not used again,
	// nor lost; the connection closes when the peer acknowledges one. It fails for
	// numbers that are not reserved, or were registered, having released all others.
	Release(first int64, n int) error
	// Overtaken tells whether the connection sent a packet with a number above the newest
	// block. What is sent from that block now arrives out of order, which receivers answer
	// with an ACK for each packet, and a round trip later they may drop it as a potential
	// duplicate (RFC 9000, Section 13.2.3). Reserve a new block, then release the old one's
	// rest.
	Overtaken() bool
	// DatagramsWait tells whether DATAGRAM frames of the connection's own wait to be sent.
	// A block that is reserved now is overtaken by them.
	DatagramsWait() bool
	// HoldKeyUpdates keeps the connection from starting key updates (RFC 9001, Section 6),
	// for which blocks have to be given up. A key update that is due is told by State, and
	// starts with the next packet of the connection's own after the hold ends. The hold
	// ends by itself at half the number of packets that the cipher may seal with one key.
	// The peer updates keys when it likes.
	HoldKeyUpdates(hold bool)
	// Detach ends it: there are no further calls, key updates are not held any more, and
	// acknowledgements of numbers that are still reserved have no effect.
	Detach()
}

// Limits of [Port].Reserve.
const (
	MaxBlock = 1024
	MaxOpen  = 4096
)

// Packet is a packet that was sent outside.
type Packet = struct {
	Number int64
	Size   int       // bytes of UDP payload
	Sent   time.Time // with Go's monotonic clock reading, which is CLOCK_MONOTONIC on Linux
	ECN    uint8     // the IP header's ECN field: 0 = not ECN-capable, 2 = ECN-capable
}

// Report tells what became of packets that were registered. A number that was reported
// lost may be reported acknowledged later. The slices are valid until Report returns.
type Report = struct {
	Acked, Lost []int64
	Budget      Budget
}

// Budget is what may be sent on a connection.
type Budget = struct {
	Bytes       int64   // that may be sent now, 0 = none: Window less InFlight, and less where other limits are reached
	Window      int64   // congestion window, bytes
	InFlight    int64   // bytes sent and neither acknowledged nor lost, registered packets included
	Rate        float64 // of the pacer, bytes/s; 0 = not known yet
	SmoothedRTT time.Duration
	MinRTT      time.Duration // 0 = not known yet
}

// State is what packets of a connection are made with. Byte slices are shared and must
// not be changed.
type State = struct {
	// Generation counts key updates and changes of the path. With a new one, send nothing
	// more from blocks of the one before, register what was sent, and release their rest.
	Generation uint64

	Suite        uint16 // TLS cipher suite, as crypto/tls names them
	KeyPhase     uint64 // key updates so far; its lowest bit goes into the header
	KeyUpdateDue bool   // a key update waits for the end of HoldKeyUpdates
	Tx           Keys
	// The peer's, of KeyPhase and of the next. For as long as packets with the previous
	// ones arrive, after a key update, keep those of the state before.
	Rx, RxNext Keys

	DestConnID []byte   // to put into packets; may be empty
	ConnIDs    [][]byte // ours: all that the peer may put into packets, retired ones included while they are accepted
	Local      netip.AddrPort
	Remote     netip.AddrPort

	MaxPacketSize    int   // UDP payload that the path is known to carry, bytes
	MaxDatagramFrame int   // the peer's limit of a DATAGRAM frame with its type and length, bytes; 0 = it takes none
	ECN              uint8 // the IP header's field, as in Packet
	SpinBit          bool  // quic-go has none: always false

	// RxLargest is the largest 1-RTT packet number received when this state was told, -1 =
	// none: to begin with where truncated numbers are expanded (RFC 9000, Appendix A.3).
	// A new one alone is no change.
	RxLargest int64
}

// Keys protect packets of one direction and key phase (RFC 9001, Section 5).
type Keys = struct {
	Secret []byte // traffic secret
	Key    []byte // of the AEAD: 16 or 32 bytes
	IV     []byte // 12 bytes
	HP     []byte // header protection, the same in all key phases: 16 or 32 bytes
}

// Handle is the attached connection. Its methods may be called from any goroutine.
type Handle = interface {
	// Wake has the connection call Drain soon.
	Wake()
	// Budget and State tell what Report and Changed were last called with, once they
	// returned, and are zero before.
	Budget() Budget
	State() State
}

// ErrUnsupported is returned by [Attach] in a program with the published quic-go.
var ErrUnsupported = errors.New("quic-go has no hooks for packets sent outside; build with make")

// extensible is what the patched quic-go's connections have.
type extensible = interface {
	AttachExternal(s Sender) (Handle, error)
}

// Supported tells whether this program was built with the patched quic-go.
func Supported() bool {
	_, ok := any((*quic.Conn)(nil)).(extensible)
	return ok
}

// Attach makes s the outside sender of a connection, which may have one at a time. The
// calls begin once the handshake is confirmed (RFC 9001, Section 4.1.2) and end with the
// connection, whose context tells.
func Attach(conn *quic.Conn, s Sender) (Handle, error) {
	c, ok := any(conn).(extensible)
	if !ok {
		return nil, ErrUnsupported
	}
	return c.AttachExternal(s)
}
