package clock

import (
	"math"
	"sync"
	"time"
)

const (
	// window bounds the age of the stamps in use. It is long enough to include one that was not
	// delayed by a queue, and short enough to keep drift small.
	window = 10 * time.Second
	// maxDrift bounds the drift between two clocks. A poor quartz drifts by 50 ppm.
	maxDrift = 50e-6
	// stepMargin is the deviation, beyond queueing and drift, above which a stamp is suspected to
	// follow a clock step.
	stepMargin = 20 * time.Millisecond
	// stepStamps is the number of consecutive suspects that confirm a step.
	stepStamps = 5
	// maxSamples bounds the memory if stamps arrive faster than Interval.
	maxSamples = 1024
)

// RTT holds QUIC's estimates of the path (RFC 9002 §5), as in quic-go's connection statistics.
type RTT struct {
	Min      time.Duration
	Smoothed time.Duration
}

// Estimator estimates the relay's clock from its stamps. Local times must come from time.Now,
// because the estimator uses their monotonic reading, so that setting the local clock does not
// disturb it. (In tests, all local times may lack the monotonic reading.) The zero value is ready
// for concurrent use.
type Estimator struct {
	mu       sync.Mutex
	origin   time.Time // local time that samples refer to
	samples  []sample  // in the window, oldest first
	suspects []sample
	best     sample
	rttMin   time.Duration
	latest   time.Duration // local time of the newest stamp, since origin
	steps    int
}

// sample is one stamp. at is its local arrival time since origin; relay is the relay's time minus
// at, in ns since 1970. relay is not corrected for propagation delay, because the minimum RTT may
// improve while the sample is in the window.
type sample struct {
	at    time.Duration
	relay int64
}

// Observe adds a stamp that arrived at the given local time.
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
		// Queueing and stray packets cannot explain so many suspects: a clock was set or the path
		// changed. Restart from the suspects.
		e.samples = append(e.samples[:0], e.suspects...)
		e.suspects = e.suspects[:0]
		e.steps++
	} else {
		e.samples = append(e.samples, n)
		e.suspects = e.suspects[:0]
	}
	e.choose()
}

// suspect reports whether n deviates from the estimate by more than queueing and drift explain.
func (e *Estimator) suspect(n sample, rtt RTT) bool {
	off := time.Duration(n.relay - e.best.relay)
	drift := time.Duration(maxDrift * float64((n.at - e.best.at).Abs()))
	queue := max(rtt.Smoothed-rtt.Min, 0)
	return off.Abs() > stepMargin+drift+queue
}

// choose drops samples outside the window and selects the one with the lowest sum of delay and
// possible drift since.
func (e *Estimator) choose() {
	drop := 0
	for drop < len(e.samples)-1 && (e.latest-e.samples[drop].at > window || len(e.samples)-drop > maxSamples) {
		drop++
	}
	e.samples = append(e.samples[:0], e.samples[drop:]...)
	best := math.Inf(-1)
	for _, s := range e.samples {
		// Subtract the first sample's relay, because ns since 1970 exceed the precision of a
		// float64.
		score := float64(s.relay-e.samples[0].relay) - maxDrift*float64(e.latest-s.at)
		if score >= best {
			best, e.best = score, s
		}
	}
}

// At converts a local time to the relay's time. Before the first stamp it returns the local time.
func (e *Estimator) At(local time.Time) time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.samples) == 0 {
		return local.Round(0)
	}
	return time.Unix(0, e.best.relay+int64(e.rttMin/2+local.Sub(e.origin)))
}

// Now returns the relay's current time.
func (e *Estimator) Now() time.Time { return e.At(time.Now()) }

// Estimate is an estimator's state at one point in time.
type Estimate struct {
	Offset time.Duration // relay clock − local clock
	// Error bounds the error of Offset, provided that some stamp in the window was not delayed by a
	// queue. It is half the minimum RTT, because the whole delay may be in one direction, plus the
	// drift since that stamp.
	Error   time.Duration
	Samples int // stamps in the window; 0 if Offset is unknown
	Steps   int // number of detected clock steps
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
