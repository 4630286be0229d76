package elimination

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"holocast/netfunc/pathset"
)

const ms = time.Millisecond

func sortArrivals(a []arrival) {
	slices.SortStableFunc(a, func(a, b arrival) int { return cmp.Compare(a.at, b.at) })
}

// trace returns the arrivals of packets sent 100 ms apart. Each line is a packet, or n equal packets
// if it ends with "× n". Column i is the delay on path i in ms, or "-" if the replica is lost.
func trace(from time.Duration, lines string) []arrival {
	var out []arrival
	key := uint64(from)
	for line := range strings.Lines(strings.TrimSpace(lines)) {
		columns, times, many := strings.Cut(line, "×")
		n := 1
		if many {
			n, _ = strconv.Atoi(strings.TrimSpace(times))
		}
		for range n {
			for i, column := range strings.Fields(columns) {
				var delay float64
				if _, err := fmt.Sscan(column, &delay); err == nil {
					out = append(out, arrival{key, i + 1, from + time.Duration(delay*float64(ms))})
				}
			}
			from += 100 * ms
			key++
		}
	}
	sortArrivals(out)
	return out
}

// small returns the algorithm as printed with W = 4, α = 5 ms.
func small() Config {
	c := Printed()
	c.W = 4
	return c
}

func newFlow(t *testing.T, c Config, paths ...int) *Flow {
	t.Helper()
	f, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	f.SetPaths(1, pathset.Of(paths...), 0)
	return f
}

// feed returns the decisions after the arrivals.
func feed(f *Flow, arrivals []arrival) []Decision {
	var out []Decision
	for _, a := range arrivals {
		if d, ok := f.Observe(a.key, a.path, a.at); ok {
			out = append(out, d)
		}
	}
	return out
}

func TestTraces(t *testing.T) {
	for _, test := range []struct {
		name  string
		trace string
		want  []string // packet: removed → remaining
	}{
		{"nothing before packet W+1", "20 30 ×4", nil},
		{"the fastest path suffices alone", "20 30 ×5", []string{"5: 2 → 1, complete 1"}},
		{"equal paths: the lowest suffices", "20 20 24.9 ×5", []string{"5: 2+3 → 1, complete 1"}},
		{"a gap of α earns nothing", "20 25 ×5", []string{"5: 2 → 1, complete 1"}},
		{"zero reward removes", `
			20 30 90
			30 20 90
			20 30 90
			30 20 90
			20 30 90`, []string{"5: 3 → 1+2"}},
		{"a reward in the window keeps", `
			20 30 30
			20 30 30
			30 20 20
			30 20 30
			20 30 30 ×3`, []string{"7: 3 → 1+2"}},
		{"a dead path delays nothing", `
			20 30 -
			30 20 -
			20 30 -
			30 20 -
			20 30 -
			30 20 -`, []string{"5: 3 → 1+2"}},
		{"a loss prevents completeness for W packets", `
			20 30
			20 30
			- 30
			20 30 ×3
			20 30
			20 30`, []string{"7: 2 → 1, complete 1"}},
		{"settled in the order of first arrivals", `
			20 - 90
			- 20 90
			20 - 90
			- 20 90
			20 - 90`, []string{"5: 3 → 1+2"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			arrivals := trace(0, test.trace)
			paths := 0
			for _, a := range arrivals {
				paths = max(paths, a.path)
			}
			if strings.Contains(test.trace, "-") {
				paths = len(strings.Fields(strings.Split(strings.TrimSpace(test.trace), "\n")[0]))
			}
			P := pathset.Set(1<<paths - 1)
			f := newFlow(t, small())
			f.SetPaths(2, P, 0)
			var got []string
			note := func(d Decision, ok bool) {
				if !ok {
					return
				}
				s := fmt.Sprintf("%d: %v → %v", d.Packet, d.Removed, d.Remaining)
				if d.Complete > 0 {
					s += fmt.Sprintf(", complete %d", d.Complete)
				}
				if d.Single != (d.Remaining.Len() == 1) {
					t.Errorf("%s: single = %v", s, d.Single)
				}
				got = append(got, s)
			}
			for _, a := range arrivals {
				note(f.Observe(a.key, a.path, a.at))
			}
			note(f.Advance(10 * time.Second))
			if !slices.Equal(got, test.want) {
				t.Errorf("decisions %q, want %q", got, test.want)
			}
			compare(t, small(), P, arrivals)
		})
	}
}

func TestDecision(t *testing.T) {
	f := newFlow(t, small(), 1, 2, 3, 4)
	var got []Decision
	for _, a := range trace(time.Second, `
		20 30 90 -
		30 20 90 -
		20 21 90 -
		30 20 90 -
		20 30 90 -`) {
		if d, ok := f.Observe(a.key, a.path, a.at); ok {
			got = append(got, d)
		}
	}
	want := Decision{
		Generation: 1, Removed: pathset.Of(3, 4), Remaining: pathset.Of(1, 2), Silent: pathset.Of(4),
		Packet: 5, At: 1420 * ms, Rewards: [pathset.Max]uint32{2, 3}, Window: 4,
	}
	if len(got) != 1 || got[0] != want {
		t.Errorf("decisions %+v, want %+v", got, want)
	}
}

func TestSetPaths(t *testing.T) {
	good := pathset.Of(1, 2, 3)
	for _, test := range []struct {
		name  string
		news  func(f *Flow, now time.Duration)
		paths pathset.Set
		n     uint64 // packets in the window
	}{
		{"an older generation is ignored", func(f *Flow, now time.Duration) {
			f.SetPaths(4, good, now)
		}, pathset.Of(1, 2), 5},
		{"a crossing snapshot restores nothing", func(f *Flow, now time.Duration) {
			f.SetPaths(5, good, now)
		}, pathset.Of(1, 2), 5},
		{"its own decision returns", func(f *Flow, now time.Duration) {
			f.SetPaths(5, pathset.Of(1, 2), now)
		}, pathset.Of(1, 2), 5},
		{"its own decision in a newer generation", func(f *Flow, now time.Duration) {
			f.SetPaths(6, pathset.Of(1, 2), now)
		}, pathset.Of(1, 2), 5},
		{"an operator removes a path", func(f *Flow, now time.Duration) {
			f.SetPaths(5, pathset.Of(2, 3), now)
		}, pathset.Of(2), 0},
		{"triggered again", func(f *Flow, now time.Duration) { f.SetPaths(6, good, now) }, good, 0},
		{"switched off", func(f *Flow, now time.Duration) { f.SetPaths(6, 0, now) }, 0, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFlow(t, small())
			f.SetPaths(5, good, 0)
			got := feed(f, trace(0, "20 30 90 ×2\n30 20 90 ×3"))
			if len(got) != 1 || got[0].Remaining != pathset.Of(1, 2) {
				t.Fatalf("decisions %+v", got)
			}
			test.news(f, time.Second)
			if paths, _ := f.Paths(); paths != test.paths || f.n != test.n {
				t.Errorf("P = %v after %d packets, want %v after %d", paths, f.n, test.paths, test.n)
			}
		})
	}
}

// TestPathsInFlight changes the path set while packets are in flight.
func TestPathsInFlight(t *testing.T) {
	t.Run("packets sent before do not count", func(t *testing.T) {
		c := small()
		c.Guard = 50 * ms
		f := newFlow(t, c)
		f.SetPaths(1, pathset.Of(1, 2), 0)
		for key := range uint64(20) { // packets are 10 ms apart; path 2 is good but has no arrivals yet
			f.Observe(key, 1, time.Duration(key+1)*10*ms)
		}
		f.SetPaths(2, pathset.Of(1, 2, 3), 201*ms)
		if d := feed(f, trace(210*ms, "10 11 12")); len(d) != 0 || f.n != 0 {
			t.Errorf("decisions %+v, %d packets counted in the guard time", d, f.n)
		}
		if feed(f, trace(260*ms, "10 11 12")); f.n != 1 {
			t.Errorf("%d packets counted after the guard time, want 1", f.n)
		}
	})
	t.Run("late replicas do not count as first ones", func(t *testing.T) {
		f := newFlow(t, small(), 1, 2)
		for key := range uint64(3) {
			f.Observe(key, 1, time.Duration(key)*ms)
		}
		f.SetPaths(2, pathset.Of(1, 2, 3), 4*ms)
		for key := range uint64(3) {
			f.Observe(key, 3, time.Duration(80+key)*ms)
		}
		f.Advance(time.Second)
		if s := f.Stats(); s.Packets != 3 || s.PerPath[2].First != 0 || s.PerPath[2].Late != 3 || s.Window != 0 {
			t.Errorf("stats %+v", s)
		}
	})
	t.Run("strays of a removed path", func(t *testing.T) {
		f := newFlow(t, small(), 1, 2, 3)
		feed(f, trace(0, "20 30 90 ×2\n30 20 90 ×3"))
		before := f.Stats()
		if d := feed(f, trace(time.Second, "30 20 1 ×9\n30 90 1")); len(d) != 1 || d[0].Complete != 2 {
			t.Errorf("decisions %+v", d) // the gap between 1 and 3 is ignored
		}
		if s := f.Stats(); s.PerPath[2].Stray != before.PerPath[2].Stray+10 || s.PerPath[2].First != 0 {
			t.Errorf("stats %+v", s.PerPath[2])
		}
	})
	t.Run("a new generation discards a pending decision", func(t *testing.T) {
		f := newFlow(t, small(), 1, 2)
		for _, a := range trace(0, "20 30 ×4\n20 -") {
			f.Observe(a.key, a.path, a.at)
		}
		f.SetPaths(2, pathset.Of(1, 2, 3), time.Second)
		if d, ok := f.Advance(time.Second); ok {
			t.Errorf("decision %+v", d)
		}
	})
}

// TestRestart starts a receiver mid-stream, where it sees late replicas first.
func TestRestart(t *testing.T) {
	var arrivals []arrival
	for key := range uint64(400) {
		sent := time.Duration(key) * ms
		arrivals = append(arrivals, arrival{key, 1, sent + 20*ms + time.Duration(key%2)*10*ms},
			arrival{key, 2, sent + 30*ms - time.Duration(key%2)*10*ms}, arrival{key, 3, sent + 100*ms})
	}
	sortArrivals(arrivals)
	arrivals = slices.DeleteFunc(arrivals, func(a arrival) bool { return a.at < 100*ms })
	run := func(guard time.Duration) Stats {
		c := Printed()
		c.Guard = guard
		f := newFlow(t, c)
		f.SetPaths(7, pathset.Of(1, 2, 3), 100*ms)
		feed(f, arrivals)
		f.Reset(500 * ms)
		if paths, generation := f.Paths(); paths != pathset.Of(1, 2) || generation != 7 {
			t.Errorf("P = %v, generation %d after Reset", paths, generation)
		}
		return f.Stats()
	}
	if s := run(0); s.PerPath[2].First == 0 {
		t.Error("no late replica counted as a first one: the test is void")
	}
	if s := run(100 * ms); s.Window != 0 || s.Remembered != 0 {
		t.Errorf("stats after Reset %+v", s)
	}
}

func TestSilence(t *testing.T) {
	c := small()
	c.Silence = time.Second
	f := newFlow(t, c, 1, 2)
	feed(f, trace(0, "20 30 ×4"))
	if d := feed(f, trace(3*time.Second, "20 30 ×4")); len(d) != 0 {
		t.Errorf("decisions %+v from packets before and after a silence", d)
	}
	if d := feed(f, trace(3400*ms, "20 30")); len(d) != 1 {
		t.Errorf("decisions %+v", d)
	}
}

// TestDisorder delivers the arrivals of a packet in the wrong order.
func TestDisorder(t *testing.T) {
	f := newFlow(t, small(), 1, 2)
	for key := range uint64(5) {
		at := time.Duration(key) * 100 * ms
		f.Observe(key, 2, at+6*ms)
		f.Observe(key, 1, at)
	}
	if s := f.Stats(); s.PerPath[0].First != 5 || s.PerPath[1].Rewarded != 0 || s.Paths != pathset.Of(1) {
		t.Errorf("stats %+v", s)
	}
}

func TestStats(t *testing.T) {
	f := newFlow(t, small(), 1, 2, 3)
	feed(f, trace(0, `
		20 22 90
		- 22 -
		30 22 29`))
	f.Observe(1, 2, 250*ms) // packet 2 again
	f.Observe(9, 4, 300*ms)
	f.Observe(9, 0, 300*ms)
	f.Observe(9, 9, 300*ms)
	f.Advance(2 * time.Second)
	s := f.Stats()
	want := [pathset.Max]PathStats{
		{Arrived: 2, First: 1, Rewarded: 1, Late: 1, Lost: 1, Reward: 1},
		{Arrived: 4, First: 2, Rewarded: 3, Repeated: 1, Reward: 3},
		{Arrived: 2, Late: 2, Lost: 1},
		{Arrived: 1, Stray: 1},
	}
	if s.PerPath != want {
		t.Errorf("paths %+v, want %+v", s.PerPath, want)
	}
	if s.Packets != 3 || s.Unknown != 2 || s.Remembered != 0 || s.Evicted != 0 || s.Window != 3 {
		t.Errorf("stats %+v", s)
	}
}

// TestHostileKeys lets invented packets arrive faster than they are forgotten.
func TestHostileKeys(t *testing.T) {
	c := small()
	c.W, c.Capacity = maxW, 100 // 128
	f := newFlow(t, c, 1, 2)
	for key := range uint64(100_000) {
		f.Observe(key, 1, time.Duration(key)*time.Microsecond)
	}
	s := f.Stats()
	if s.Remembered != 128 || s.Evicted != 100_000-128 || len(f.packets.ring) != 128 || len(f.packets.table) != 256 {
		t.Errorf(
			"%d remembered, %d evicted, ring %d, table %d",
			s.Remembered,
			s.Evicted,
			len(f.packets.ring),
			len(f.packets.table),
		)
	}
}

func TestLatentError(t *testing.T) {
	c := Default()
	f := newFlow(t, c, 1, 2, 3)
	for key := range uint64(4000) { // one packet per millisecond; path 2 loses 10 %, path 3 loses 1 %
		at := time.Second + time.Duration(key)*ms
		f.Observe(key, 1, at)
		if key%10 != 0 {
			f.Observe(key, 2, at+time.Microsecond)
		}
		if key%100 != 0 {
			f.Observe(key, 3, at+2*time.Microsecond)
		}
	}
	if s := f.Stats(); s.Latent != pathset.Of(2) || s.Paths != pathset.Of(1, 2, 3) {
		t.Errorf("latent errors on %v, want 2; P = %v", s.Latent, s.Paths)
	}
}

// TestLossy checks that a decision reports which of the useless paths also lose replicas.
func TestLossy(t *testing.T) {
	c := Default()
	c.Span, c.CompleteSpan = 2*time.Second, 10*time.Second
	f := newFlow(t, c, 1, 2, 3, 4)
	var arrivals []arrival
	// one packet per millisecond; paths 1 and 2 are in time, 3 and 4 are late, and 4 loses every second packet
	for key := range uint64(4000) {
		at := time.Second + time.Duration(key)*ms
		arrivals = append(
			arrivals,
			arrival{key, 1, at},
			arrival{key, 2, at + time.Microsecond},
			arrival{key, 3, at + 20*ms},
		)
		if key%2 == 0 {
			arrivals = append(arrivals, arrival{key, 4, at + 20*ms})
		}
	}
	sortArrivals(arrivals)
	d := feed(f, arrivals)
	if len(d) != 1 || d[0].Removed != pathset.Of(3, 4) || d[0].Lossy != pathset.Of(4) {
		t.Errorf("%+v", d)
	}
}

func TestNoAllocations(t *testing.T) {
	for name, c := range map[string]Config{"printed": Printed(), "default": Default()} {
		f := newFlow(t, c, 1, 2, 3)
		key := uint64(0)
		packet := func() {
			key++
			for path := range 3 {
				f.Observe(key, path+1, time.Duration(key)*ms+time.Duration(path)*time.Microsecond)
			}
		}
		for range 2000 {
			packet()
		}
		if n := testing.AllocsPerRun(10_000, packet); n != 0 {
			t.Errorf("%s: %v allocations a packet", name, n)
		}
	}
}

func TestConfig(t *testing.T) {
	for _, c := range []Config{Printed(), Default()} {
		if _, err := New(c); err != nil {
			t.Error(err)
		}
	}
	for field, spoil := range map[string]func(c *Config){
		"W":            func(c *Config) { c.W = 0 },
		"Alpha":        func(c *Config) { c.Alpha = 0 },
		"Span":         func(c *Config) { c.Span = 1 },
		"LastSpan":     func(c *Config) { c.LastSpan = time.Second },
		"LastSpan 11s": func(c *Config) { c.LastSpan = 11 * time.Second },
		"LastSpan 5s":  func(c *Config) { c.Span, c.CompleteSpan, c.LastSpan = 0, 0, 5*time.Second },
		"Regret":       func(c *Config) { c.Regret = -1 },
		"CompleteSpan": func(c *Config) { c.CompleteSpan = time.Second },
		"Slack":        func(c *Config) { c.Slack = 0.125 },
		"Timeout":      func(c *Config) { c.Timeout = ms },
		"Memory":       func(c *Config) { c.Memory = ms },
		"Capacity":     func(c *Config) { c.Capacity = 0 },
		"Guard":        func(c *Config) { c.Guard = -1 },
		"Silence":      func(c *Config) { c.Silence = -1 },
		"LatentPeriod": func(c *Config) { c.LatentPeriod = -1 },
		"LatentLoss":   func(c *Config) { c.LatentLoss = 2 },
	} {
		c := Default()
		spoil(&c)
		if _, err := New(c); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: error %v", field, err)
		}
	}
}
