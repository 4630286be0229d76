package clock

import (
	"math"
	"sync"
	"time"
)

const (
	// window is how long a stamp counts: long enough to meet an empty queue
	// now and then, short enough for drift to stay small.
	window = 10 * time.Second
	// maxDrift is how fast two clocks may part: 50 ppm is a poor quartz.
	maxDrift = 50e-6
	// stepMargin is how far beyond known queueing a stamp has to be off to be
	// suspected of coming from a clock that was set.
	stepMargin = 20 * time.Millisecond
	// stepStamps is how many suspects in a row it takes to believe it.
	stepStamps = 5
	// maxSamples bounds the memory should stamps come faster than Interval.
	maxSamples = 1024
)

// RTT is what QUIC knows of the path (RFC 9002 §5), as in quic-go's connection
// statistics.
type RTT struct {
	Min      time.Duration
	Smoothed time.Duration
}

// Estimator estimates the relay's clock from its stamps. Local times must come
// from time.Now (or be all without a monotonic reading, as in tests): the
// estimator uses their monotonic reading, so setting the local clock does not
// disturb it. The zero value is ready for use, by any number of goroutines.
type Estimator struct {
	mu       sync.Mutex
	origin   time.Time // the local time that samples count from
	samples  []sample  // of the window, oldest first
	suspects []sample
	best     sample
	rttMin   time.Duration
	latest   time.Duration // local time of the newest stamp, since origin
	steps    int
}

// sample is one stamp: it arrived at local time at, since origin, and relay is
// the time in it less at, in ns since 1970. Propagation delay is not in it: what is
// known of the minimum round trip gets better while samples wait in the window.
type sample struct {
	at    time.Duration
	relay int64
}

// Observe takes one stamp that arrived at the given local time.
func (e *Estimator) Observe(s Stamp, arrived time.Time, rtt RTT) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.origin.IsZero() {
		e.origin = arrived
	}
	at := arrived.Sub(e.origin)
	e.rttMin = max(rtt.Min, 0)
	e.latest = max(e.latest, at)
	n := sample{at: at, relay: s.Time.UnixNano() - int64(at)}

	if len(e.samples) > 0 && e.suspect(n, rtt) {
		e.suspects = append(e.suspects, n)
		if len(e.suspects) < stepStamps {
			return
		}
		// Not queueing, not one stray packet: one of the clocks was set, or the
		// path is another one. Begin again with what it says now.
		e.samples = append(e.samples[:0], e.suspects...)
		e.suspects = e.suspects[:0]
		e.steps++
	} else {
		e.samples = append(e.samples, n)
		e.suspects = e.suspects[:0]
	}
	e.choose()
}

// suspect says whether queueing and drift cannot explain how far n is from the
// estimate.
func (e *Estimator) suspect(n sample, rtt RTT) bool {
	off := time.Duration(n.relay - e.best.relay)
	drift := time.Duration(maxDrift * float64((n.at - e.best.at).Abs()))
	queue := max(rtt.Smoothed-rtt.Min, 0)
	return off.Abs() > stepMargin+drift+queue
}

// choose drops samples that have left the window and takes the best of the
// rest: least delay, plus what the clocks may have drifted since.
func (e *Estimator) choose() {
	drop := 0
	for drop < len(e.samples)-1 && (e.latest-e.samples[drop].at > window || len(e.samples)-drop > maxSamples) {
		drop++
	}
	e.samples = append(e.samples[:0], e.samples[drop:]...)
	best := math.Inf(-1)
	for _, s := range e.samples {
		// Relative to the first, so that ns since 1970 fit a float64.
		score := float64(s.relay-e.samples[0].relay) - maxDrift*float64(e.latest-s.at)
		if score >= best {
			best, e.best = score, s
		}
	}
}

// At returns the relay's time at a local time. Before the first stamp it is the
// local time itself.
func (e *Estimator) At(local time.Time) time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.samples) == 0 {
		return local.Round(0)
	}
	return time.Unix(0, e.best.relay+int64(e.rttMin/2+local.Sub(e.origin)))
}

// Now returns the relay's time.
func (e *Estimator) Now() time.Time { return e.At(time.Now()) }

// Estimate is what an Estimator knows at one moment.
type Estimate struct {
	Offset time.Duration // relay's clock − local clock
	// Error bounds the offset's error, on the assumption that some stamp of the
	// window met no queue: half the minimum round trip, all of which may be in
	// one direction, and the drift since that stamp.
	Error   time.Duration
	Samples int // stamps in the window; 0 means Offset is not known
	Steps   int // times one of the clocks was found to have been set
}

// Estimate returns the estimate at a local time.
func (e *Estimator) Estimate(local time.Time) Estimate {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.samples) == 0 {
		return Estimate{Steps: e.steps}
	}
	at := local.Sub(e.origin)
	return Estimate{
		Offset:  time.Duration(e.best.relay + int64(e.rttMin/2+at) - local.UnixNano()),
		Error:   e.rttMin/2 + time.Duration(maxDrift*float64((at-e.best.at).Abs())),
		Samples: len(e.samples),
		Steps:   e.steps,
	}
}
