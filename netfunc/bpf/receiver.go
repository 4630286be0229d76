package bpf

import (
	"context"
	"errors"
	"net/netip"
	"time"
)

// ReceiverOptions configure a receiver.
type ReceiverOptions struct {
	// Pin is as in SenderOptions; both may use the same directory.
	Pin string
	// Interfaces are those that replicas come in by. Their driver must have native
	// XDP: the kernel skips generic XDP for redirected packets, and replicas would
	// leak. An interface on VLAN tags has none; name the one below it.
	Interfaces []string
	// Stale is the age from which an equal packet is a new one; 0 = 1 s. At least
	// 10 ms, at most 30 s, in steps of 4.2 ms.
	Stale time.Duration
	// TableSize is the number of packets that the replica table remembers, rounded
	// up to a power of two; 0 = 1<<20 (8 MiB), good for 100 000 packets/s and 1 s.
	// What is pinned keeps its size.
	TableSize uint32
	// ArrivalRing is the size of the ring of arrivals, bytes, rounded up to a power
	// of two; 0 = 4 MiB, 0.3 s of 300 000 arrivals/s. What is pinned keeps its size.
	ArrivalRing uint32
}

// Receiver is the attached receiver. Its methods may be called from several
// goroutines.
type Receiver struct{}

// OpenReceiver loads the program and attaches it, or takes over what is pinned in
// o.Pin without a packet being lost or doubled. The error is one sentence; errors.Is
// tells ErrPrivilege, ErrKernel, ErrNoNativeXDP.
func OpenReceiver(o ReceiverOptions) (*Receiver, error) { return nil, errors.ErrUnsupported }

// PinnedReceiver opens what a receiver left pinned in pin, to look at or to detach:
// it loads and attaches nothing. The error is fs.ErrNotExist if nothing is pinned.
func PinnedReceiver(pin string) (*Receiver, error) { return nil, errors.ErrUnsupported }

// Flow is the traffic to one destination.
type Flow struct {
	DSCP  uint8 // what packets get back in place of the path's codepoint, 0 to 63
	Paths uint8 // bit i = path i+1: the paths that replicas are expected on
}

// SetFlow makes the receiver eliminate replicas to dst, or changes how. Replicas on
// paths outside f.Paths are eliminated all the same, and counted as rogue. The error
// is ErrMapFull when there are MaxFlows of them.
func (r *Receiver) SetFlow(dst netip.Addr, f Flow) error { return errors.ErrUnsupported }

// RemoveFlow lets packets to dst pass untouched again; dst may be unknown.
func (r *Receiver) RemoveFlow(dst netip.Addr) error { return errors.ErrUnsupported }

// Flows are the flows that were set.
func (r *Receiver) Flows() (map[netip.Addr]Flow, error) { return nil, errors.ErrUnsupported }

// MaxFlows is the number of destinations of a receiver.
const MaxFlows = 1024

// Verdict is what became of a replica.
type Verdict uint8

const (
	First Verdict = iota // passed
	Late                 // dropped: another replica of the packet was there before
	Rogue                // dropped as Late, or passed as First, see Arrival.Passed; on a path outside the flow's set, or a second time on one path
)

// Arrival is the arrival of one replica.
type Arrival struct {
	Key     uint64        // the same for all replicas of a packet
	Time    time.Duration // CLOCK_MONOTONIC
	Flow    netip.Addr    // its destination; the zero Addr if it was removed meanwhile
	Path    int           // 1 to MaxPaths
	ID      uint16        // IPv4 identification; 0 for IPv6
	Length  int           // of the IP packet, bytes
	Verdict Verdict
	Passed  bool // First, and Rogue where it was the first
}

// ReadArrivals waits for arrivals, fills buf with them in order of arrival and
// returns their number, at least 1. They come up to 10 ms late, many at a time. The
// error is ctx's, or os.ErrClosed after Close.
func (r *Receiver) ReadArrivals(ctx context.Context, buf []Arrival) (int, error) {
	return 0, errors.ErrUnsupported
}

// ReceiverPath counts arrivals on a path.
type ReceiverPath struct {
	First uint64 // passed
	Late  uint64 // dropped
	Rogue uint64 // of both: on a path outside the flow's set, or a second time on the path
	Bytes uint64 // of the IP packets, both
	// Missing are packets that came on another path of their flow's set but did not
	// come on this one since it is in the set; those under way are among them.
	Missing uint64
}

// ReceiverStats are counters since the maps were made.
type ReceiverStats struct {
	Paths [MaxPaths]ReceiverPath // of path i+1, all flows
	// Flows are the same by destination, since the flow was set.
	Flows map[netip.Addr][MaxPaths]ReceiverPath

	Unknown  uint64 // passed: a path's codepoint but no flow
	Short    uint64 // passed: truncated or malformed header
	Races    uint64 // passed: the place in the replica table was lost to another processor four times
	Evicted  uint64 // packets forgotten before they were stale: the table is too small
	RingFull uint64 // arrivals that no reader was told of
}

// Stats reads the counters.
func (r *Receiver) Stats() (ReceiverStats, error) { return ReceiverStats{}, errors.ErrUnsupported }

// Close ends the readers and leaves program and maps at work, pinned.
func (r *Receiver) Close() error { return errors.ErrUnsupported }

// Detach closes, takes the program off all interfaces and removes all that is
// pinned.
func (r *Receiver) Detach() error { return errors.ErrUnsupported }
