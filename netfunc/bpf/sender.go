package bpf

import (
	"context"
	"errors"
	"net/netip"
	"time"
)

// Direction is where a sender's program sits on an interface and what it does there.
// Signalling packets are taken out everywhere.
type Direction uint8

const (
	// Ingress duplicates what comes in by the interface: the LAN side of an edge
	// that is a router. Packets leave with their TTL or hop limit decremented.
	Ingress Direction = iota
	// Egress duplicates what leaves by the interface: the interfaces of the paths,
	// when the edge runs on the host whose packets it duplicates.
	Egress
	// Monitor only watches what comes in: the interfaces that packets of the viewers
	// come in by. It is the uplink monitor; it duplicates nothing.
	Monitor
)

// Attach is one interface of a sender.
type Attach struct {
	Interface string
	Direction Direction
}

// SenderOptions configure a sender.
type SenderOptions struct {
	// Pin is the directory for maps and links; it is made, below a bpf file system,
	// which is mounted if Pin is below /sys/fs/bpf and nothing is mounted there.
	Pin string
	// Attach lists where the programs sit. Interfaces that a former run attached to
	// and that are not listed are detached.
	Attach []Attach
	// SignalKey is the HMAC key of signalling packets; without one they are all
	// refused as spoofed.
	SignalKey []byte
	// SignalPort is the UDP port of signalling packets; 0 = 4790.
	SignalPort uint16
	// SignalNonce is a nonce that signalling packets must exceed, of an earlier
	// run. Never less than what is pinned. 0 = five seconds before now, UNIX time
	// in nanoseconds, where nothing is pinned: a packet recorded before that cannot
	// be replayed after a reboot.
	SignalNonce uint64
	// UplinkMin and UplinkMax are the window of the uplink monitor: the length of
	// the IP packet, bytes, both included; 0, 0 = 200 to 300.
	UplinkMin, UplinkMax uint16
	// MaxPolicies is the number of destinations that fit into the policy map;
	// 0 = 4096. What is pinned keeps its size.
	MaxPolicies uint32
	// FlowLabel makes the sender number IPv6 packets in their flow label. IPv6 has
	// no packet ID: without it, datagrams of one flow that are equal in length and
	// in their first and last bytes, and are sent within Stale of each other, are
	// taken for replicas. QUIC and TCP with time stamps never send such. Do not set
	// it where a path spreads packets over several links by flow label.
	FlowLabel bool
	// Clsact attaches by a clsact filter also where the kernel has TCX (Linux 6.6).
	Clsact bool
}

// Sender is the attached sender. Its methods may be called from several goroutines.
type Sender struct{}

// OpenSender loads the programs and attaches them, or takes over what is pinned in
// o.Pin without a packet being lost or passing unduplicated. The error is one
// sentence; errors.Is tells ErrPrivilege, ErrKernel.
func OpenSender(o SenderOptions) (*Sender, error) { return nil, errors.ErrUnsupported }

// PinnedSender opens what a sender left pinned in pin, to look at or to detach: it
// loads and attaches nothing. The error is fs.ErrNotExist if nothing is pinned.
func PinnedSender(pin string) (*Sender, error) { return nil, errors.ErrUnsupported }

// SetPath sets a path's interface, addresses and state. Replicas under way see the
// path as it was or as it is, never a mixture.
func (s *Sender) SetPath(p Path) error { return errors.ErrUnsupported }

// Paths are the paths that were set, by index.
func (s *Sender) Paths() ([]Path, error) { return nil, errors.ErrUnsupported }

// Policy is the path set of a destination.
type Policy struct {
	Destination netip.Addr
	Bits        uint8 // bit i = path i+1; 0 = off
	// Nonce of the signalling packet that set it; 0 = SetPolicy did.
	Nonce uint64
}

// SetPolicy sets the path set of destination dst: bit i = path i+1; 0 = off, packets
// take the route they would take anyway. One bit sends packets over that path alone.
// The error is ErrMapFull when the policy map holds no more destinations.
func (s *Sender) SetPolicy(dst netip.Addr, bits uint8) error { return errors.ErrUnsupported }

// RemovePolicy forgets destination dst, which may be unknown.
func (s *Sender) RemovePolicy(dst netip.Addr) error { return errors.ErrUnsupported }

// Policies lists the policy map, off included, ordered by destination.
func (s *Sender) Policies() ([]Policy, error) { return nil, errors.ErrUnsupported }

// Nonce is the highest nonce of a signalling packet that was accepted.
func (s *Sender) Nonce() (uint64, error) { return 0, errors.ErrUnsupported }

// Uplink is a packet from the viewers' side whose length is in the window.
type Uplink struct {
	Time                time.Duration // CLOCK_MONOTONIC, when the packet came in
	Source, Destination netip.AddrPort
	Length              int // of the IP packet, bytes
	// Segments is how many packets of that length came in as one, by GRO; mostly 1.
	Segments int
}

// ReadUplink waits for the next packet that the uplink monitor saw. The error is
// ctx's, or os.ErrClosed after Close.
func (s *Sender) ReadUplink(ctx context.Context) (Uplink, error) {
	return Uplink{}, errors.ErrUnsupported
}

// Signal is a signalling packet with a good HMAC and a new nonce.
type Signal struct {
	Time        time.Duration // CLOCK_MONOTONIC, when it was applied
	Destination netip.Addr
	Bits        uint8 // as stored: 0xff became 0
	Nonce       uint64
	Source      netip.Addr // who sent it
	// Full says that it had no effect: the policy map holds no more destinations.
	Full bool
}

// ReadSignal waits for the next signalling packet that was accepted. The error is
// ctx's, or os.ErrClosed after Close.
func (s *Sender) ReadSignal(ctx context.Context) (Signal, error) {
	return Signal{}, errors.ErrUnsupported
}

// SenderPath counts what was sent on a path.
type SenderPath struct {
	Packets uint64 // segments, when the stack handed over several in one
	Bytes   uint64 // of the IP packets
	Errors  uint64 // replicas that the kernel refused to send
	TooBig  uint64 // packets longer than the interface's MTU; the path was left out
}

// SenderStats are counters since the maps were made.
type SenderStats struct {
	Paths      [MaxPaths]SenderPath // of path i+1
	Duplicated uint64               // packets that left by at least one path of their policy
	Unusable   uint64               // passed: no path of the policy is up and wide enough
	Expiring   uint64               // passed: TTL or hop limit of 1 or 0, the stack answers
	Tagged     uint64               // passed: VLAN tag that could not be taken off
	Short      uint64               // passed: truncated header
	Failed     uint64               // passed: the kernel refused to change the packet
	Foreign    uint64               // passed: signalling packets that are for another host

	Applied    uint64 // signalling packets accepted
	Malformed  uint64 // refused: length, magic, version, reserved bits, destination
	Spoofed    uint64 // refused: HMAC
	Replayed   uint64 // refused: nonce
	PolicyFull uint64 // accepted, but the policy map was full

	Uplink     uint64 // packets that the uplink monitor saw in its window
	RingFull   uint64 // of those, and of the signals, how many no reader was told of
	RogueMarks uint64 // packets that came in to be duplicated and had a path's codepoint already
}

// Stats reads the counters.
func (s *Sender) Stats() (SenderStats, error) { return SenderStats{}, errors.ErrUnsupported }

// Close ends the readers and leaves programs and maps at work, pinned.
func (s *Sender) Close() error { return errors.ErrUnsupported }

// Detach closes, takes the programs off all interfaces and removes all that is
// pinned. Packets go their plain way again.
func (s *Sender) Detach() error { return errors.ErrUnsupported }
