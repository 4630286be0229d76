package elimination

import (
	"math/rand/v2"
	"testing"
	"time"

	"holocast/netfunc/pathset"
)

// weather generates arrivals on two paths. The delay of the first varies between 20 and 70 ms and is
// drawn every 50 to 200 ms. The second has a delay of 30 to 35 ms and loses one packet in 2000. In a
// bad spell, no delay below 45 ms is drawn for the first path, so it is rewarded only for losses on
// the second. Otherwise every fourth draw is the minimum.
type weather struct {
	r            *rand.Rand
	until        [2]time.Duration
	delay, last  [2]time.Duration
	draws        int
	number, rate int
}

// blow feeds f the arrivals of packets sent between two times, until it decides.
func (w *weather) blow(f *Flow, from, to time.Duration, bad bool) (Decision, bool) {
	var underway []arrival
	least, most := [2]time.Duration{20 * ms, 30 * ms}, [2]time.Duration{70 * ms, 35 * ms}
	if bad {
		least[0] = 45 * ms
	}
	for sent := from; sent < to; sent += time.Second / time.Duration(w.rate) {
		w.number++
		for i := range 2 {
			if sent >= w.until[i] {
				w.delay[i] = least[i] + time.Duration(w.r.Int64N(int64(most[i]-least[i])))
				if w.draws++; w.draws%8 == 0 && !bad {
					w.delay[0] = least[0]
				}
				w.until[i] = sent + 50*ms + time.Duration(w.r.Int64N(int64(150*ms)))
			}
			if i == 1 && w.r.IntN(2000) == 0 {
				continue
			}
			w.last[i] = max(sent+w.delay[i], w.last[i]) // in order of arrival
			underway = append(underway, arrival{uint64(w.number), i + 1, w.last[i]})
		}
	}
	sortArrivals(underway)
	for _, a := range underway {
		if d, ok := f.Observe(a.key, a.path, a.at); ok {
			return d, true
		}
	}
	return Decision{}, false
}

// TestLastPathButOne checks that a path that is useless for a moment is kept if it is the only
// protection of the other one. If it is useless for longer, it is removed. If that turns out to be a
// mistake, the next removal takes longer.
func TestLastPathButOne(t *testing.T) {
	both := pathset.Of(1, 2)
	for seed := range uint64(10) {
		w := &weather{r: rand.New(rand.NewPCG(seed, 3)), rate: 2000}
		f := newFlow(t, Default(), 1, 2)
		now := time.Duration(0)
		blow := func(what string, length time.Duration, bad bool, least, most time.Duration) {
			t.Helper()
			d, decided := w.blow(f, now, now+length, bad)
			switch after := d.At - now; {
			case decided != (most > 0):
				t.Fatalf("seed %d: %s: decided %v: %+v", seed, what, decided, d)
			case !decided:
				if p, _ := f.Paths(); p != both {
					t.Fatalf("seed %d: %s: paths %v", seed, what, p)
				}
			case d.Remaining != pathset.Of(2) || !d.Single || after < least || after > most:
				t.Fatalf("seed %d: %s: after %v %+v", seed, what, after, d)
			case d.Complete == 0 && d.Window < uint32(w.rate)*uint32(least/time.Second):
				t.Fatalf("seed %d: %s: in a window of %d packets", seed, what, d.Window)
			}
			now += length + 100*ms // so that the next packet does not overtake it
		}
		blow("fair", 10*time.Second, false, 0, 0)
		blow("bad for one window and a half", 3*time.Second, true, 0, 0)
		blow("fair again", 5*time.Second, false, 0, 0)
		blow("bad for longer", 6*time.Second, true, 2500*ms, 5500*ms)
		f.SetPaths(2, both, now) // the trigger fired
		blow("bad for as long once more", 6*time.Second, true, 0, 0)
		blow("fair then", 3*time.Second, false, 0, 0)
		blow("bad for very long", 14*time.Second, true, 8*time.Second, 12*time.Second)
		now += time.Minute
		f.SetPaths(3, both, now) // long after: stopping was right
		blow("fair the next day", 5*time.Second, false, 0, 0)
		blow("bad for longer the next day", 6*time.Second, true, 2500*ms, 5500*ms)
	}
}

// TestSpare checks that if all paths but one are useless, the best of them stays until LastSpan has
// passed.
func TestSpare(t *testing.T) {
	c := Default()
	c.Guard = 0
	f := newFlow(t, c, 1, 2, 3, 4)
	var decisions []Decision
	for n := range 12_000 {
		sent := time.Duration(n) * ms
		second := 90 * ms
		if n < 10 { // below Slack, but more rewards than the others
			second = 21 * ms
		}
		for i, delay := range []time.Duration{80 * ms, 20 * ms, second, 70 * ms} {
			if d, ok := f.Observe(uint64(n), i+1, sent+delay); ok {
				decisions = append(decisions, d)
			}
		}
	}
	if len(decisions) != 2 || decisions[0].Remaining != pathset.Of(2, 3) || decisions[0].At > 2200*ms ||
		decisions[1].Remaining != pathset.Of(2) || decisions[1].At < 3900*ms || decisions[1].At > 4300*ms {
		t.Errorf("%+v", decisions)
	}
}

// TestSlowFlow checks that with fewer than W packets in Span, the decision comes exactly at W packets.
func TestSlowFlow(t *testing.T) {
	for _, rate := range []int{1, 5, 20, 40, 49, 51, 100} {
		c := Default()
		f := newFlow(t, c, 1, 2, 3, 4)
		period := time.Second / time.Duration(rate)
		var arrivals []arrival
		for n := range 1000 {
			sent := time.Duration(n) * period
			// Two paths are late in turn, one is always late, and one is dead.
			delays := []time.Duration{20 * ms, 40 * ms, 60 * ms}
			if n%4 == 0 {
				delays[0], delays[1] = 40*ms, 20*ms
			}
			for i, delay := range delays {
				arrivals = append(arrivals, arrival{uint64(n), i + 1, sent + delay})
			}
		}
		sortArrivals(arrivals)
		var decisions []Decision
		for _, a := range arrivals {
			if d, ok := f.Observe(a.key, a.path, a.at); ok {
				decisions = append(decisions, d)
			}
		}
		window := max(2*time.Second, 100*period)
		if len(decisions) != 1 {
			t.Fatalf("%d packets a second: %+v", rate, decisions)
		}
		if d := decisions[0]; d.Remaining != pathset.Of(1, 2) || d.Silent != pathset.Of(4) || d.Window < 100 ||
			d.At < window || d.At > window+c.Guard+3*period+100*ms {
			t.Errorf("%d packets a second: %+v, want it about %v after the start", rate, d, window)
		}
	}
}
