// Package ratecontrol keeps several H.264 streams within one bit rate. All streams share a
// quantizer, so the marginal error per bit is equal everywhere and content decides each stream's
// share of the rate. The package is pure: no I/O, clock or goroutine.
package ratecontrol

import (
	"math"
	"time"
)

// Limits of the quantizer. Below MinQP the pictures are as good as their source.
const (
	MinQP = 12
	MaxQP = 44
)

const (
	// slope is the assumed change of log2(bits) per quantizer step: bits halve every 6 steps. The
	// error of this assumption is corrected within a few frames by each frame's size.
	slope = 1.0 / 6
	// horizon is the time in which a deviation from the rate is compensated.
	horizon = 400 * time.Millisecond
	// credit bounds the unused rate that later frames may use, as a time at the full rate.
	credit = 50 * time.Millisecond
	// follow is the weight of a frame's size in the mean of its kind.
	follow = 0.25
	// burst is the time that sending one stream's key frame may take, and coarsest bounds the quantizer
	// steps that this costs. Later frames of the group refine the picture.
	burst    = 30 * time.Millisecond
	coarsest = 8
	// up and down bound the quantizer's change per frame of one stream. It rises at once, because a
	// queue that grows delays frames, and falls slowly.
	up, down = 12, 0.5
)

// Controller divides a bit rate among streams. It is not safe for concurrent use.
type Controller struct {
	target   float64 // bit/s
	interval float64 // seconds between frames of a stream
	keys     float64 // key frames per second of a stream
	streams  []*Stream

	debt float64       // bits sent beyond the target, key frames spread over their groups
	at   time.Duration // of debt
	qp   float64       // shared quantizer, fractional
	set  bool          // qp is valid
}

// New returns a Controller with a target in bit/s for streams of fps frames and keys key frames per
// second each.
func New(target, fps, keys float64) *Controller {
	return &Controller{target: target, interval: 1 / fps, keys: keys}
}

// SetTarget changes the target from the next frame on.
func (c *Controller) SetTarget(target float64) { c.target = target }

// Stream is one H.264 stream. Its methods change the Controller, and must not run concurrently with
// it.
type Stream struct {
	c      *Controller
	offset float64 // added to the shared quantizer
	size   [2]size // of delta and key frames
	extra  size    // bits sent with each frame that do not depend on the quantizer
	carry  float64 // the part of the quantizer that rounding dropped
	owed   float64 // bits of the newest key frames that are not yet part of the debt
	repay  float64 // bit/s
}

// size is a running mean of log2(bits) at quantizer 0.
type size struct {
	mean  float64
	known bool
}

func (s *size) add(v float64) {
	if !s.known {
		s.mean, s.known = v, true
		return
	}
	s.mean += follow * (v - s.mean)
}

// Guesses of log2(bits) at quantizer 0, used until a stream's first frames.
const (
	guessDelta = 19 // 50 kbit at quantizer 20
	guessKey   = 22 // 400 kbit
)

// Add adds a stream whose quantizer differs from the shared one by offset: negative for streams
// whose errors count more.
func (c *Controller) Add(offset float64) *Stream {
	s := &Stream{c: c, offset: offset}
	c.streams = append(c.streams, s)
	return s
}

// Remove removes a stream. Its share goes to the others.
func (c *Controller) Remove(s *Stream) {
	for i, o := range c.streams {
		if o == s {
			c.debt += s.owed
			c.streams = append(c.streams[:i], c.streams[i+1:]...)
			return
		}
	}
}

// QP returns the quantizer of the stream's next frame, sent at time now. A key frame that would take
// long to send gets a coarser one.
func (s *Stream) QP(now time.Duration, key bool) int {
	c := s.c
	c.pay(now)
	want := c.solve()
	if !c.set {
		c.qp, c.set = want, true
	} else {
		n := float64(len(c.streams))
		c.qp += min(max(want-c.qp, -down/n), up)
	}
	q := min(max(c.qp+s.offset, MinQP), MaxQP) + s.carry
	if key {
		return int(min(math.Round(q+s.excess(q)), MaxQP))
	}
	r := math.Round(q)
	s.carry = q - r
	return int(min(max(r, MinQP), MaxQP))
}

// excess returns the quantizer steps by which a key frame exceeds burst, within bounds.
func (s *Stream) excess(qp float64) float64 {
	size := s.size[1].or(guessKey) - slope*qp
	return min(max((size-math.Log2(s.c.target*burst.Seconds()))/slope, 0), coarsest)
}

// Sent adds a frame of the stream: bits of the picture at quantizer qp, and extra bits of other
// data in the same frame.
func (s *Stream) Sent(now time.Duration, key bool, qp int, bits, extra int) {
	s.c.pay(now)
	if key { // part of the expected rate, so its size alone must not change the quantizer
		s.owed += float64(bits + extra)
		s.repay = s.owed * s.c.keys
	} else {
		s.c.debt += float64(bits + extra)
	}
	s.size[kind(key)].add(math.Log2(float64(max(bits, 1))) + slope*float64(qp))
	s.extra.add(float64(extra))
}

func kind(key bool) int {
	if key {
		return 1
	}
	return 0
}

// pay lets time pass.
func (c *Controller) pay(now time.Duration) {
	if now <= c.at {
		return
	}
	elapsed := (now - c.at).Seconds()
	c.at = now
	for _, s := range c.streams {
		paid := min(s.owed, s.repay*elapsed)
		s.owed -= paid
		c.debt += paid
	}
	c.debt = max(c.debt-c.target*elapsed, -c.target*credit.Seconds())
}

// solve returns the quantizer at which the streams' expected rate makes up for the debt within the
// horizon.
func (c *Controller) solve() float64 {
	rate := max(c.target-c.debt/horizon.Seconds(), c.target/4)
	low, high := float64(MinQP)-8, float64(MaxQP)+8
	for range 20 {
		q := (low + high) / 2
		if c.rate(q) > rate {
			low = q
		} else {
			high = q
		}
	}
	return (low + high) / 2
}

// rate returns the streams' expected bit/s at a shared quantizer.
func (c *Controller) rate(qp float64) float64 {
	sum := 0.0
	for _, s := range c.streams {
		q := min(max(qp+s.offset, MinQP), MaxQP)
		delta, key := s.size[0].or(guessDelta), s.size[1].or(guessKey)
		if s.size[1].known && !s.size[0].known {
			delta = key - (guessKey - guessDelta)
		}
		frames := 1/c.interval - c.keys
		sum += frames*math.Exp2(delta-slope*q) + c.keys*math.Exp2(key-slope*q) + s.extra.or(0)/c.interval
	}
	return sum
}

func (s *size) or(guess float64) float64 {
	if s.known {
		return s.mean
	}
	return guess
}
