package elimination

import (
	"fmt"
	"time"

	"holocast/netfunc/pathset"
)

// Config configures the algorithm. Start from Default or Printed, since fields must not be zero unless
// documented.
type Config struct {
	// W is the sliding window's size in packets, or its minimum if Span is set.
	W int
	// Alpha is α. A replica is rewarded if it arrives less than this after the first one.
	Alpha time.Duration
	// Span is the duration of the window for removing paths; 0 means W packets.
	Span time.Duration
	// LastSpan is the duration of the window that decides whether to go from two paths to one: at
	// least Span, at most CompleteSpan. 0 means twice Span, but at most CompleteSpan.
	LastSpan time.Duration
	// CompleteSpan is the duration of the window for finding a path that suffices alone: at least
	// Span, at most 20 times Span. It must be 0 if Span is.
	CompleteSpan time.Duration
	// Regret is the time after a stop within which a new generation with more paths shows that
	// stopping was wrong. The next decision to go from two paths to one then uses CompleteSpan
	// instead of LastSpan. 0 disables this.
	Regret time.Duration
	// Slack is a fraction of the window, from 0 to below 1/8. A path is removed if it was rewarded
	// for at most this fraction, and suffices alone if it missed rewards for at most this fraction.
	// 0 follows the paper.
	Slack float64

	// Timeout is the time after the first replica, at least Alpha, at which a packet is settled
	// even if replicas are missing. A longer Timeout allows for arrivals out of order; it delays
	// decisions but does not change them.
	Timeout time.Duration
	// Memory is the time that a packet is remembered after its first replica. It must exceed the
	// delay difference between any two paths.
	Memory time.Duration
	// Capacity is the maximum number of packets remembered, rounded up to a power of two. Set it to
	// at least the packet rate times Memory. Each packet takes 72 bytes, allocated on demand.
	Capacity int
	// Guard is the time after a start during which packets do not count. It may be 0.
	Guard time.Duration
	// Silence is the time without arrivals after which the windows restart; 0 means never.
	Silence time.Duration

	// LatentPeriod is the interval of tests for latent errors; 0 disables them.
	LatentPeriod time.Duration
	// LatentLoss is the fraction (0 to 1) of a path's replicas whose loss in one period is a latent
	// error.
	LatentLoss float64
}

// Printed returns the algorithm as printed in the paper, with the window and tolerance of its
// evaluation. Unlike in the paper, packets that lose a replica are settled too.
func Printed() Config {
	return Config{
		W: 100, Alpha: 5 * time.Millisecond,
		Timeout: 10 * time.Millisecond, Memory: time.Second, Capacity: 1 << 17,
		LatentPeriod: 2 * time.Second, LatentLoss: 0.05,
	}
}

// Default returns a configuration for delays that persist for a while, as in Table I. It
// keeps the same paths of Table I as the paper.
func Default() Config {
	c := Printed()
	c.Span = 2 * time.Second
	c.CompleteSpan = 10 * time.Second
	c.Regret = 30 * time.Second
	c.Slack = 0.01
	c.Guard = 250 * time.Millisecond
	c.Silence = 2 * time.Second
	return c
}

// Limits of the configuration.
const (
	maxW        = 1 << 20
	maxCapacity = 1 << 24
	maxGap      = 2 * time.Second // maximum time between a packet's first and last replica
)

// check validates a configuration. The error names the field.
func (c Config) check() error {
	switch {
	case c.W < 1 || c.W > maxW:
		return fmt.Errorf("elimination: W = %d: want 1 to %d packets", c.W, maxW)
	case c.Alpha <= 0 || c.Alpha > maxGap:
		return fmt.Errorf("elimination: Alpha %v is not above 0 and at most %v", c.Alpha, maxGap)
	case c.Span < 0 || c.Span > 0 && c.Span < spanSlots:
		return fmt.Errorf("elimination: Span %v is too short", c.Span)
	case c.Span == 0 && c.CompleteSpan != 0:
		return fmt.Errorf("elimination: CompleteSpan %v is set, but Span is not", c.CompleteSpan)
	case c.Span > 0 && (c.CompleteSpan < c.Span || c.CompleteSpan/maxSpans > c.Span):
		return fmt.Errorf(
			"elimination: CompleteSpan %v is not between Span (%v) and %d times Span",
			c.CompleteSpan,
			c.Span,
			maxSpans,
		)
	case c.Span == 0 && c.LastSpan != 0:
		return fmt.Errorf("elimination: LastSpan %v is set, but Span is not", c.LastSpan)
	case c.LastSpan != 0 && (c.LastSpan < c.Span || c.LastSpan > c.CompleteSpan):
		return fmt.Errorf(
			"elimination: LastSpan %v is not between Span (%v) and CompleteSpan (%v)",
			c.LastSpan,
			c.Span,
			c.CompleteSpan,
		)
	case c.Regret < 0:
		return fmt.Errorf("elimination: Regret %v is negative", c.Regret)
	case !(c.Slack >= 0 && c.Slack < 1./pathset.Max):
		return fmt.Errorf("elimination: Slack = %v: want at least 0 and below 1/8", c.Slack)
	case c.Timeout < c.Alpha:
		return fmt.Errorf("elimination: Timeout %v is below Alpha, %v", c.Timeout, c.Alpha)
	case c.Memory < c.Timeout:
		return fmt.Errorf("elimination: Memory %v is below Timeout, %v", c.Memory, c.Timeout)
	case c.Capacity < 1 || c.Capacity > maxCapacity:
		return fmt.Errorf("elimination: Capacity = %d: want 1 to %d packets", c.Capacity, maxCapacity)
	case c.Guard < 0:
		return fmt.Errorf("elimination: Guard %v is negative", c.Guard)
	case c.Silence < 0:
		return fmt.Errorf("elimination: Silence %v is negative", c.Silence)
	case c.LatentPeriod < 0:
		return fmt.Errorf("elimination: LatentPeriod %v is negative", c.LatentPeriod)
	case !(c.LatentLoss >= 0 && c.LatentLoss <= 1):
		return fmt.Errorf("elimination: LatentLoss = %v: want 0 to 1", c.LatentLoss)
	}
	return nil
}
