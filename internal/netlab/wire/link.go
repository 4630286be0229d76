//go:build linux

package wire

// #cgo CFLAGS: -O2 -Wall -Wextra
// #cgo LDFLAGS: -lm
// #include "forward.h"
import "C"

import (
	"errors"
	"math"
	"time"
)

// A Link models one direction of a path, on the caller's clock. It is not safe for concurrent use.
type Link struct{ link *C.struct_link }

// A Verdict is the fate of an arriving packet.
type Verdict int

// Verdicts of Push.
const (
	Queued    Verdict = C.LINK_QUEUED
	Lost      Verdict = C.LINK_LOST
	LostBurst Verdict = C.LINK_LOST_BURST // lost in the bad state of BurstLoss
	QueueFull Verdict = C.LINK_QUEUE_FULL
	NoMemory  Verdict = C.LINK_NO_MEMORY
)

// A Packet leaves a Link.
type Packet struct {
	ID           uint32
	Length       int // bytes of the Ethernet frame, without frame check sequence
	Arrival, Due time.Duration
	Lost         bool // over Wi-Fi, after its last retransmission
}

// NewLink returns a link with the conditions of timeline, which is ordered by time and holds at
// least one change; the first applies from the beginning. Equal seeds, timelines and packets give
// equal results.
func NewLink(timeline []Change, seed uint64) (*Link, error) {
	if len(timeline) == 0 {
		return nil, errors.New("link has no conditions")
	}
	conditions := cConditions(timeline, 0)
	conditions[0].at = math.MinInt64
	link := C.link_new(&conditions[0], C.size_t(len(conditions)), C.uint64_t(seed))
	if link == nil {
		return nil, errors.New("out of memory for a link")
	}
	return &Link{link}, nil
}

// Close frees the link.
func (l *Link) Close() {
	C.link_free(l.link)
	l.link = nil
}

// Push adds a packet at its arrival time, which must not be earlier than the previous packet's.
func (l *Link) Push(arrival time.Duration, length int, id uint32) Verdict {
	return Verdict(C.link_push(l.link, C.int64_t(arrival), C.uint32_t(length), C.uint32_t(id)))
}

// Pop removes and returns the first packet due by now, if any.
func (l *Link) Pop(now time.Duration) (Packet, bool) {
	var p C.struct_link_packet
	if !C.link_pop(l.link, C.int64_t(now), &p) {
		return Packet{}, false
	}
	return Packet{
		ID: uint32(p.slot), Length: int(p.length), Arrival: time.Duration(p.arrival), Due: time.Duration(p.due),
		Lost: bool(p.lost),
	}, true
}

// Next returns the time at which to call Pop again: no packet is due earlier under the current
// conditions. It returns false if the link is empty.
func (l *Link) Next() (time.Duration, bool) {
	next := time.Duration(C.link_next(l.link))
	return next, next != C.LINK_NEVER
}

// QueuedBytes returns the length of the queue in bytes, including the packet in transmission.
func (l *Link) QueuedBytes() int { return int(C.link_queued_bytes(l.link)) }

// cConditions converts a timeline for C. The times in timeline count from start.
func cConditions(timeline []Change, start time.Duration) []C.struct_link_conditions {
	conditions := make([]C.struct_link_conditions, len(timeline))
	for i, c := range timeline {
		into := &conditions[i]
		into.at = C.int64_t(start + c.At)
		into.rate = C.double(c.Rate)
		into.overhead = C.int64_t(c.Overhead)
		into.delay = C.int64_t(c.Delay)
		if v := c.Variation; v != nil {
			into.varied = true
			into.delay_min, into.delay_max = C.int64_t(v.Min), C.int64_t(v.Max)
			into.every_min, into.every_max = C.int64_t(v.EveryMin), C.int64_t(v.EveryMax)
		}
		into.reorder = C.bool(c.Reorder)
		into.stray_share, into.stray_delay = C.double(c.StrayShare), C.int64_t(c.StrayDelay)
		into.loss, into.loss_good = C.double(c.LossRate()), C.double(c.Loss)
		if b := c.Burst; b != nil {
			toBad, toGood := b.transitions()
			into.to_bad, into.to_good = C.double(toBad), C.double(toGood)
			into.loss_bad = C.double(b.InBad)
		}
		into.queue_bytes, into.queue_packets = C.int64_t(c.QueueBytes), C.int64_t(c.QueuePackets)
	}
	return conditions
}

// Quantiles summarize a distribution.
type Quantiles struct {
	Count uint64  `json:"count"`
	P50   float64 `json:"p50"`
	P99   float64 `json:"p99"`
	Max   float64 `json:"max"`
}

// quantiles summarizes h, dividing its values by unit.
func quantiles(h *C.struct_histogram, unit float64) Quantiles {
	q := Quantiles{Count: uint64(h.count), Max: float64(h.max) / unit}
	at := func(share float64) float64 {
		target, seen := uint64(math.Ceil(share*float64(h.count))), uint64(0)
		for i, n := range h.buckets {
			seen += uint64(n)
			if n > 0 && seen >= target {
				return math.Min(bucketMiddle(i), float64(h.max)) / unit
			}
		}
		return 0
	}
	q.P50, q.P99 = at(0.50), at(0.99)
	return q
}

// above counts the values of h above limit, to the precision of its buckets.
func above(h *C.struct_histogram, limit time.Duration) (n uint64) {
	for i, count := range h.buckets {
		if bucketMiddle(i) > float64(limit) {
			n += uint64(count)
		}
	}
	return n
}

// bucketMiddle inverts histogram_bucket.
func bucketMiddle(bucket int) float64 {
	if bucket < 2<<C.HISTOGRAM_BITS {
		return float64(bucket)
	}
	shift := bucket>>C.HISTOGRAM_BITS - 1
	low := (bucket - shift<<C.HISTOGRAM_BITS) << shift
	return float64(low) + float64(int(1)<<shift-1)/2
}
