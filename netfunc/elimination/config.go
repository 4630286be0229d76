package elimination

import (
	"fmt"
	"time"

	"holocast/netfunc/pathset"
)

// Config sets the algorithm. Start from Default or Printed: no field but those that say
// so may be zero.
type Config struct {
	// W is the sliding window's size in packets; with Span its least size.
	W int
	// Alpha is α, by how much a replica may come after the first and still be rewarded.
	Alpha time.Duration
	// Span makes the window for removing paths as long as this, whatever the rate;
	// 0 keeps it to W packets.
	Span time.Duration
	// LastSpan is the same for removing the last path but one, from Span to CompleteSpan;
	// 0 stands for twice Span, as far as CompleteSpan allows.
	LastSpan time.Duration
	// CompleteSpan is the same for finding a path that suffices alone, from Span to
	// 20 times Span. It must be 0 where Span is.
	CompleteSpan time.Duration
	// Regret is how soon after the algorithm stopped a generation with more paths shows that
	// it should not have; 0 never does. The next time CompleteSpan stands in for LastSpan.
	Regret time.Duration
	// Slack is the part of the window, 0 to below 1/8, by which N_i may miss none and all:
	// a path is removed with that few rewards, and suffices alone missing that few. 0 is as
	// printed.
	Slack float64

	// Timeout is how long after the first replica a packet is settled though some are
	// missing. It must be at least Alpha; what it is beyond that does not
	// change decisions but delays them, and allows for arrivals out of order.
	Timeout time.Duration
	// Memory is how long a packet is remembered after its first replica. It must be
	// above the difference of delay between any two paths.
	Memory time.Duration
	// Capacity is how many packets are remembered at most: rate × Memory, rounded up to
	// a power of two. A packet takes 72 bytes, from when it is needed.
	Capacity int
	// Guard is how long after a start packets are not counted; 0 counts them all.
	Guard time.Duration
	// Silence without any arrival starts the windows over; 0 never does.
	Silence time.Duration

	// LatentPeriod is how often paths are tested for latent errors; 0 never does.
	LatentPeriod time.Duration
	// LatentLoss is the part of the replicas, 0 to 1, that a path must have lost in a
	// period to be reported.
	LatentLoss float64
}

// Printed returns the algorithm as the paper prints it, with the window and the tolerance
// of its evaluation. Packets that lose a replica are settled nevertheless.
func Printed() Config {
	return Config{
		W: 100, Alpha: 5 * time.Millisecond,
		Timeout: 10 * time.Millisecond, Memory: time.Second, Capacity: 1 << 17,
		LatentPeriod: 2 * time.Second, LatentLoss: 0.05,
	}
}

// Default returns the configuration for delays that hold for a while, such as those of
// Table I: of its paths it keeps the ones the paper does.
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

// Limits of what may be configured.
const (
	maxW        = 1 << 20
	maxCapacity = 1 << 24
	maxGap      = 2 * time.Second // what the times of a packet's replicas can differ by
)

// check returns an error that names the field that is wrong.
func (c Config) check() error {
	switch {
	case c.W < 1 || c.W > maxW:
		return fmt.Errorf("elimination: W = %d is not from 1 to %d packets", c.W, maxW)
	case c.Alpha <= 0 || c.Alpha > maxGap:
		return fmt.Errorf("elimination: Alpha %v is not above 0 and at most %v", c.Alpha, maxGap)
	case c.Span < 0 || c.Span > 0 && c.Span < spanSlots:
		return fmt.Errorf("elimination: Span %v is too short", c.Span)
	case c.Span == 0 && c.CompleteSpan != 0:
		return fmt.Errorf("elimination: CompleteSpan %v is set, but Span is not", c.CompleteSpan)
	case c.Span > 0 && (c.CompleteSpan < c.Span || c.CompleteSpan/maxSpans > c.Span):
		return fmt.Errorf("elimination: CompleteSpan %v is not from Span, %v, to %d times that", c.CompleteSpan, c.Span, maxSpans)
	case c.Span == 0 && c.LastSpan != 0:
		return fmt.Errorf("elimination: LastSpan %v is set, but Span is not", c.LastSpan)
	case c.LastSpan != 0 && (c.LastSpan < c.Span || c.LastSpan > c.CompleteSpan):
		return fmt.Errorf("elimination: LastSpan %v is not from Span, %v, to CompleteSpan, %v", c.LastSpan, c.Span, c.CompleteSpan)
	case c.Regret < 0:
		return fmt.Errorf("elimination: Regret %v is negative", c.Regret)
	case !(c.Slack >= 0 && c.Slack < 1./pathset.Max):
		return fmt.Errorf("elimination: Slack = %v is not from 0 to below 1/8", c.Slack)
	case c.Timeout < c.Alpha:
		return fmt.Errorf("elimination: Timeout %v is below Alpha, %v", c.Timeout, c.Alpha)
	case c.Memory < c.Timeout:
		return fmt.Errorf("elimination: Memory %v is below Timeout, %v", c.Memory, c.Timeout)
	case c.Capacity < 1 || c.Capacity > maxCapacity:
		return fmt.Errorf("elimination: Capacity = %d is not from 1 to %d packets", c.Capacity, maxCapacity)
	case c.Guard < 0:
		return fmt.Errorf("elimination: Guard %v is negative", c.Guard)
	case c.Silence < 0:
		return fmt.Errorf("elimination: Silence %v is negative", c.Silence)
	case c.LatentPeriod < 0:
		return fmt.Errorf("elimination: LatentPeriod %v is negative", c.LatentPeriod)
	case !(c.LatentLoss >= 0 && c.LatentLoss <= 1):
		return fmt.Errorf("elimination: LatentLoss = %v is not from 0 to 1", c.LatentLoss)
	}
	return nil
}
