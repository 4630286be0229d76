// Package fbdt decides which bytes each of several paths sends next: forward and backward data transmission (FBDT,
// §3; see docs/adr/0010-several-paths.md). It does no I/O and reads no clock.
//
// The bytes to send have an order: by priority, then by stream and offset. Two paths work on a window of them from
// both ends, forward and backward, and meet wherever their rates bring them. No prediction of rates is needed to split
// the window, and a path that slows down leaves more of it to the other (§3.1). Each path has its own connection and
// congestion control and retransmits its lost packets; the peer acknowledges segments over any path.
//
// NewPaper returns the published protocol (§3.2), which sends one window of 1 MB at a time. The path with the least RTT
// is the forward one. When the pointers have met, the path whose segments are acknowledged first waits one RTT of the
// other, sends the other's unacknowledged segments again, and loads the next window without waiting for them.
//
// New returns a scheduler that keeps the pointers but never stops at the end of a window:
//
//   - A path predicts the arrival of its next segment: half its RTT, its queue, the segment's transmission time, and
//     the mean lateness of earlier segments. Within that time the other paths deliver x bytes.
//   - The path with the earliest arrival sends the first ready bytes.
//   - Any other path places a backward pointer one window behind byte x and sends the bytes before the pointer until it
//     reaches byte x. Then it starts on the next window. Thus a path with a long delay works many windows ahead. If
//     fewer than x bytes are ready, it would only delay them and stays idle. If at least 4 MiB are ready, it expects
//     more to follow and takes the last of them.
//   - A segment whose acknowledgement is overdue, or that another path would deliver sooner, is sent again over that
//     path. Useless copies take at most 1 % of the bytes. Whichever arrives first makes the other stale.
//   - Segments of a silent path (Estimate.Down) become ready again for the other paths.
//   - A path with an unknown rate is probed with small segments from the end.
//
// A path stays idle only if sending over it would complete nothing sooner.
package fbdt

import "time"

// Priority orders streams: lower urgency first (RFC 9218), then lower order, then the older stream.
type Priority struct {
	Urgency int8
	Order   uint64
}

// Estimate is the current knowledge of a path.
type Estimate struct {
	Rate float64       // bytes/s; 0 = unknown: small segments probe it. Report 0 again once the estimate is stale
	RTT  time.Duration // round trip without queues; 0 = unknown
	Var  time.Duration // mean deviation of RTT
	// Limited means that Rate is a lower bound, because the data sent so far did not fill the path. Guess means that
	// Rate has not been measured.
	Limited, Guess bool
	Down           bool // silent despite outstanding data: the path gets no segment, and its segments go to other paths
}

// Segment is a byte range of one stream to be sent over one path.
type Segment struct {
	Number         uint64 // unique per scheduler, from 0
	Stream         uint64
	Offset, Length int64 // bytes
	Copy           bool  // its bytes are also under way on another path
	Window         uint64
}

// Scheduler assigns bytes of streams to paths. Times are durations since any fixed moment; a scheduler reads no clock.
// It is not safe for concurrent use. Returned slices are valid until the next call.
type Scheduler interface {
	// Add appends n bytes to a stream, which the first call creates. A transport may count the end of a stream as one
	// more byte.
	Add(stream uint64, p Priority, n int64)
	// Reprioritize changes the priority of a stream's ready bytes; segments under way are not
	// affected.
	Reprioritize(stream uint64, p Priority)
	// Truncate ends a stream at offset: it forgets the bytes from there on, ignores later ones, and forgets the stream
	// once the bytes before offset are acknowledged. Call it for every stream: with the stream's length when it is
	// complete, or with less after a reset. It returns the segments under way that are no longer needed.
	Truncate(stream uint64, offset int64) (stale []uint64)
	// SetPath adds a path or updates its estimate.
	SetPath(path int, e Estimate)
	// RemovePath removes a path. Its unacknowledged segments are forgotten, and their bytes are sent over other
	// paths.
	RemovePath(path int)
	// Next returns the next segment to send over a path that can send now. It returns false if
	// sending over this path would not help.
	Next(path int, now time.Duration) (Segment, bool)
	// Sent reports that the network took the last byte of a segment. Calling it is optional and
	// improves predictions.
	Sent(segment uint64, now time.Duration)
	// Acked reports that the peer has a segment. It returns the segments under way that are no longer
	// needed. It ignores unknown numbers, such as those of stale segments.
	Acked(segment uint64, now time.Duration) (stale []uint64)
	// Lost reports that a path gave up a segment, whose bytes are then sent again.
	Lost(segment uint64)
	// Wake returns the time at which Next may return a segment even if nothing else happens until
	// then, or false if there is no such time.
	Wake(path int, now time.Duration) (time.Duration, bool)
}

// Options configure a scheduler. Zero values take the defaults.
type Options struct {
	Window     int64 // bytes of a window; default: 25 ms of all paths' rates, up to 1 MiB (New), or 1 MB (NewPaper)
	MinSegment int64 // bytes; default 4 KiB
	MaxSegment int64 // bytes; default 64 KiB
	Unacked    int64 // most bytes under way; default 32 MiB
}

func (o Options) withDefaults() Options {
	set := func(v *int64, d int64) {
		if *v <= 0 {
			*v = d
		}
	}
	set(&o.MinSegment, 4<<10)
	set(&o.MaxSegment, 64<<10)
	set(&o.Unacked, 32<<20)
	o.MaxSegment = max(o.MaxSegment, o.MinSegment)
	return o
}
