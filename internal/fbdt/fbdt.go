// Package fbdt decides which bytes each of several paths sends next: forward and backward data transmission (FBDT,
// §3; see docs/adr/0010-several-paths.md). It does no I/O and reads no clock.
//
// The bytes to send have an order: by priority, then by stream and offset. Two paths work on a window of them from
// both ends, forward and backward, and meet wherever their rates bring them. No prediction of rates is needed to split
// the window, and a path that slows down leaves more of it to the other (§3.1). Each path has its own connection and
// congestion control and repeats its lost packets; the peer acknowledges segments over any path.
//
// NewPaper is the printed protocol (§3.2). One window of 1 MB is under way. The path with the least RTT is the forward
// one. When the pointers have met, the path whose segments are acknowledged first waits one RTT of the other, sends
// the other's unacknowledged segments again, and loads the next window without waiting for them.
//
// New keeps the pointers but never stops at the end of a window:
//
//   - A path predicts the arrival of its next segment: half its RTT, its queue, the segment's transmission time, and
//     the mean error of earlier predictions. Within that time the other paths deliver x bytes.
//   - The path with the earliest arrival sends the first ready bytes.
//   - Any other path places a backward pointer one window behind byte x and sends what precedes the pointer until it
//     meets byte x. The next window follows. Thus a path with a long delay works many windows ahead. If fewer than x
//     bytes are ready, it would only delay them and stays idle. From 4 MiB on, it expects more and takes the last.
//   - A segment whose acknowledgement is overdue, or that another path would deliver sooner, is sent again there.
//     Useless copies take at most 1 % of the bytes. The first arrival makes the other one stale.
//   - Segments of a silent path (Estimate.Down) are ready again for the other paths.
//   - A path with an unknown rate explores it with small segments from the end.
//
// A path is idle only if its segment would complete nothing sooner.
package fbdt

import "time"

// Priority orders streams: lower urgency first (RFC 9218), then lower order, then the older stream.
type Priority struct {
	Urgency int8
	Order   uint64
}

// Estimate is the current knowledge of a path.
type Estimate struct {
	Rate float64       // bytes/s; 0 = unknown: small segments explore it. Report 0 again once an estimate is stale
	RTT  time.Duration // round trip without queues; 0 = unknown
	Var  time.Duration // mean deviation of RTT
	// Limited means that Rate is a lower bound, because the data sent so far did not fill the path; Guess, that nothing
	// has measured it.
	Limited, Guess bool
	Down           bool // silent despite outstanding data: the path gets no segment, and its segments go to other paths
}

// Segment is a byte range of one stream to be sent over one path.
type Segment struct {
	Number         uint64 // unique per scheduler, from 0
	Stream         uint64
	Offset, Length int64 // bytes
	Copy           bool  // its bytes are still under way on another path, too
	Window         uint64
}

// Scheduler assigns bytes of streams to paths. Times are durations since any fixed moment; a scheduler reads no clock.
// It is not safe for concurrent use. Returned slices are valid until the next call.
type Scheduler interface {
	// Add appends n bytes to a stream, which the first call creates. A transport may count the end of a stream as one
	// more byte.
	Add(stream uint64, p Priority, n int64)
	// Reprioritize changes the priority of a stream's bytes that no path has yet.
	Reprioritize(stream uint64, p Priority)
	// Truncate ends a stream at offset: it forgets the bytes from there on, ignores later ones, and forgets the stream
	// once the bytes before offset are acknowledged. Call it for every stream in the end: with its length when it is
	// complete, with less after a reset. It returns segments under way that serve nothing any more.
	Truncate(stream uint64, offset int64) (stale []uint64)
	// SetPath adds a path or updates its estimate.
	SetPath(path int, e Estimate)
	// RemovePath removes a path. Its unacknowledged segments are forgotten, and their bytes are sent elsewhere.
	RemovePath(path int)
	// Next returns the next segment of a path that can send now, or false if the path would not help.
	Next(path int, now time.Duration) (Segment, bool)
	// Sent reports that the network took the last byte of a segment. Optional: it sharpens predictions.
	Sent(segment uint64, now time.Duration)
	// Acked reports that the peer has a segment. It returns segments under way that serve nothing any more.
	// It ignores unknown numbers, such as a stale segment's.
	Acked(segment uint64, now time.Duration) (stale []uint64)
	// Lost returns a segment that its path gave up; its bytes are sent again.
	Lost(segment uint64)
	// Wake returns when Next may help although nothing else happens; false means never.
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
