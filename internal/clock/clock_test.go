package clock

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"holocast/internal/clock/clocktest"
)

// world is a relay and an endpoint with different clocks, joined by a path with a varying queue.
// Times without a monotonic reading represent the endpoint's monotonic clock.
type world struct {
	est      Estimator
	rng      *rand.Rand
	local    time.Time     // the endpoint's clock
	relay    time.Time     // the relay's clock, the reference
	drift    float64       // rate difference of the endpoint's clock
	oneWay   time.Duration // propagation delay each way
	queue    func(*rand.Rand) time.Duration
	smoothed time.Duration // SmoothedRTT − MinRTT
	sequence uint32
}

func newWorld(offset time.Duration) *world {
	local := time.Unix(1790000000, 0)
	return &world{
		rng: rand.New(rand.NewPCG(3, 4)), local: local, relay: local.Add(offset), oneWay: 10 * time.Millisecond,
		queue: func(r *rand.Rand) time.Duration { return time.Duration(r.ExpFloat64() * float64(3*time.Millisecond)) },
	}
}

// run delivers n stamps, then returns the error of the estimate.
func (w *world) run(n int) time.Duration {
	for range n {
		w.relay = w.relay.Add(Interval)
		w.local = w.local.Add(time.Duration(float64(Interval) * (1 + w.drift)))
		w.sequence++
		arrived := w.local.Add(w.oneWay + w.queue(w.rng))
		rtt := RTT{Min: 2 * w.oneWay, Smoothed: 2*w.oneWay + w.smoothed}
		w.est.Observe(Stamp{Sequence: w.sequence, Time: w.relay.Truncate(time.Microsecond)}, arrived, rtt)
	}
	return w.est.At(w.local).Sub(w.relay)
}

func checkWithin(t *testing.T, got, bound time.Duration) {
	t.Helper()
	if got.Abs() > bound {
		t.Errorf("estimate is off by %v, want at most %v", got, bound)
	}
}

func TestOffset(t *testing.T) {
	tests := []struct {
		name   string
		change func(*world)
		stamps int
		within time.Duration
	}{
		{
			"first stamp, empty queue",
			func(w *world) { w.queue = func(*rand.Rand) time.Duration { return 0 } },
			1,
			time.Microsecond,
		},
		{"queueing jitter", func(*world) {}, 100, 200 * time.Microsecond},
		{"heavy queueing", func(w *world) {
			w.smoothed = 80 * time.Millisecond
			w.queue = func(r *rand.Rand) time.Duration { return time.Duration(r.ExpFloat64() * float64(40*time.Millisecond)) }
		}, 200, 2 * time.Millisecond},
		{"endpoint runs 40 ppm fast", func(w *world) { w.drift = 40e-6 }, 3000, 600 * time.Microsecond},
		{"endpoint runs 40 ppm slow", func(w *world) { w.drift = -40e-6 }, 3000, 600 * time.Microsecond},
		{"one packet ten seconds late", func(w *world) {
			w.queue = func(*rand.Rand) time.Duration {
				if w.sequence%50 == 0 {
					return 10 * time.Second
				}
				return 0
			}
		}, 300, time.Millisecond},
	}
	for _, tt := range tests {
		for _, offset := range []time.Duration{0, -3 * time.Hour, 42*time.Millisecond + 7*time.Microsecond} {
			t.Run(tt.name+" "+offset.String(), func(t *testing.T) {
				w := newWorld(offset)
				tt.change(w)
				got := w.run(tt.stamps)
				checkWithin(t, got, tt.within)
				e := w.est.Estimate(w.local)
				if e.Samples == 0 || e.Steps != 0 {
					t.Errorf("estimate %+v", e)
				}
				checkWithin(t, e.Offset-w.relay.Sub(w.local), tt.within)
			})
		}
	}
}

func TestErrorBoundHolds(t *testing.T) {
	w := newWorld(time.Second)
	w.drift = 30e-6
	for range 500 {
		got := w.run(1)
		if e := w.est.Estimate(w.local); got.Abs() > e.Error {
			t.Fatalf("off by %v, outside the bound %v", got, e.Error)
		}
	}
}

func TestRelayClockIsSet(t *testing.T) {
	for _, step := range []time.Duration{time.Hour, -time.Hour, 100 * time.Millisecond, -100 * time.Millisecond} {
		t.Run(step.String(), func(t *testing.T) {
			w := newWorld(0)
			w.run(100)
			w.relay = w.relay.Add(step)
			w.run(stepStamps - 1)
			if e := w.est.Estimate(w.local); e.Steps != 0 {
				t.Errorf("believed after %d stamps", stepStamps-1)
			}
			w.run(30)
			checkWithin(t, w.run(1), time.Millisecond)
			if e := w.est.Estimate(w.local); e.Steps != 1 {
				t.Errorf("%d steps, want 1", e.Steps)
			}
		})
	}
}

// TestLocalClockIsSet checks that a step of the endpoint's wall clock does not matter, because the
// estimate uses its monotonic clock.
func TestLocalClockIsSet(t *testing.T) {
	for _, step := range []time.Duration{time.Hour, -time.Hour} {
		began := time.Now()
		relay := began.Round(0).Add(time.Minute)
		var est Estimator
		at := func(i int) time.Time { // the endpoint's clock, stepped after one second
			local := began
			if i > 10 {
				local = clocktest.Step(began, step)
			}
			return local.Add(time.Duration(i) * Interval)
		}
		for i := range 100 {
			now := relay.Add(time.Duration(i) * Interval)
			est.Observe(Stamp{Sequence: uint32(i), Time: now}, at(i), RTT{})
			if got := est.At(at(i)).Sub(now); got.Abs() > time.Millisecond {
				t.Fatalf("set by %v, stamp %d: the estimate is off by %v", step, i, got)
			}
		}
		if e := est.Estimate(at(100)); e.Steps != 0 {
			t.Errorf("set by %v: %d steps of the relay's clock", step, e.Steps)
		}
	}
}

// TestStandingQueue checks that a queue that lasts five seconds does not count as a clock step.
func TestStandingQueue(t *testing.T) {
	w := newWorld(0)
	w.run(100)
	w.smoothed = 150 * time.Millisecond
	w.queue = func(*rand.Rand) time.Duration { return 140 * time.Millisecond }
	checkWithin(t, w.run(50), time.Millisecond)
	if e := w.est.Estimate(w.local); e.Steps != 0 {
		t.Errorf("%d steps, want 0", e.Steps)
	}
}

// TestQueueDrains checks that stamps delayed by an initial queue do not keep biasing the estimate.
func TestQueueDrains(t *testing.T) {
	w := newWorld(0)
	w.queue = func(*rand.Rand) time.Duration { return 300 * time.Millisecond }
	w.run(5)
	w.queue = func(*rand.Rand) time.Duration { return 0 }
	checkWithin(t, w.run(stepStamps), time.Millisecond)
}

// TestMinimumRTTImproves checks that a lower minimum RTT corrects the offsets of earlier stamps.
func TestMinimumRTTImproves(t *testing.T) {
	var e Estimator
	local := time.Unix(1790000000, 0)
	for i, rtt := range []time.Duration{60 * time.Millisecond, 20 * time.Millisecond} {
		at := local.Add(time.Duration(i) * Interval)
		e.Observe(Stamp{Time: at}, at.Add(10*time.Millisecond), RTT{Min: rtt, Smoothed: rtt})
	}
	checkWithin(t, e.Estimate(local).Offset, time.Microsecond)
}

func TestNoStampYet(t *testing.T) {
	var e Estimator
	local := time.Unix(1790000000, 5)
	if got := e.At(local); !got.Equal(local) {
		t.Errorf("got %v, want the local time", got)
	}
	if got := e.Estimate(local); got.Samples != 0 {
		t.Errorf("got %+v", got)
	}
}

// TestMonotonic checks that the relay's time advances with the monotonic readings of local times.
func TestMonotonic(t *testing.T) {
	var e Estimator
	now := time.Now()
	e.Observe(Stamp{Time: time.UnixMicro(1700000000000000)}, now, RTT{})
	if got, want := e.At(now.Add(time.Second)), time.Unix(1700000001, 0); !got.Equal(want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestMemoryIsBounded(t *testing.T) {
	var e Estimator
	at := time.Unix(1790000000, 0)
	for range 5 * maxSamples {
		at = at.Add(time.Microsecond)
		e.Observe(Stamp{Time: at}, at, RTT{})
	}
	if got := e.Estimate(at).Samples; got > maxSamples {
		t.Errorf("%d samples, want at most %d", got, maxSamples)
	}
}

func TestStampWire(t *testing.T) {
	want := Stamp{Sequence: 0x01020304, Time: time.UnixMicro(0x0006_0000_0000_0009)}
	b := want.Append(nil)
	if !bytes.Equal(b, []byte{1, 0, 0, 0, 4, 3, 2, 1, 9, 0, 0, 0, 0, 0, 6, 0}) {
		t.Errorf("wire form % x", b)
	}
	got, err := ParseStamp(append(b, 1, 2, 3))
	if err != nil || got.Sequence != want.Sequence || !got.Time.Equal(want.Time) {
		t.Errorf("got %+v, %v", got, err)
	}
	tests := []struct {
		name    string
		wire    []byte
		wantErr string
	}{
		{"short", b[:15], "15 bytes, needs 16"},
		{"version", append([]byte{9}, b[1:]...), "version 9"},
		{"far future", append(bytes.Clone(b[:8]), bytes.Repeat([]byte{255}, 8)...), "after the year 2200"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := ParseStamp(tt.wire); err == nil || !strings.Contains(err.Error(), tt.wantErr) {
				t.Errorf("error %v, want %q", err, tt.wantErr)
			}
		})
	}
}

func FuzzParseStamp(f *testing.F) {
	f.Add(Stamp{Sequence: 1, Time: time.Unix(1790000000, 0)}.Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := ParseStamp(b)
		if err != nil {
			return
		}
		again, err := ParseStamp(s.Append(nil))
		if err != nil || again != s {
			t.Fatalf("%+v became %+v, %v", s, again, err)
		}
		var e Estimator
		e.Observe(s, time.Unix(0, 0), RTT{})
		e.At(time.Unix(1, 0))
	})
}
