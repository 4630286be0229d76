package policy

import (
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"holocast/netfunc/api"
	"holocast/netfunc/pathset"
	"holocast/netfunc/signal"
)

// A step is one step in the life of a flow. The flow starts live and armed unless before changes that.
type step struct {
	name   string
	conf   func(*Config)
	before func(*world)
	step   func(*world)
	want   want
}

// want is the state of a flow after a step.
type want struct {
	state api.State
	paths pathset.Set
	kinds []string // of the step's decisions
	again bool     // expects a new generation
}

// all is the set of the world's paths.
var all = pathset.Of(1, 2, 3, 4, 5)

func duplicating(w *world) { w.trouble(); w.report("a") }

// single reduces a flow to path 2 some time after a start that helped. more is the additional time
// before the last elimination.
func single(w *world, more time.Duration) {
	duplicating(w)
	_ = w.eliminate(3, 4, 5)
	w.live(time.Second, 33*time.Millisecond)
	w.pass(more)
	_ = w.eliminate(1)
}

func redirecting(c *Config) { c.Mode = api.Redirect }

var steps = []step{
	{
		"good intervals", nil, nil, func(w *world) { w.live(2*time.Second, 33*time.Millisecond) },
		want{api.Armed, 0, nil, false},
	},
	{
		"three long intervals", nil, nil, (*world).trouble,
		want{api.Duplicating, all, []string{"start"}, true},
	},
	{
		"silence", nil, nil, func(w *world) { w.pass(451 * time.Millisecond) },
		want{api.Duplicating, all, []string{"start"}, true},
	},
	{
		"a path is down at the start", nil, func(w *world) { w.set("a", 4, func(p *api.Path) { p.Up = false }); w.report("a") },
		(*world).trouble,
		want{api.Duplicating, pathset.Of(1, 2, 3, 5), []string{"start"}, true},
	},
	{
		"a path is down at the receiver", nil, func(w *world) { w.set("b", 1, func(p *api.Path) { p.Up = false }); w.report("b") },
		(*world).trouble,
		want{api.Duplicating, pathset.Of(2, 3, 4, 5), []string{"start"}, true},
	},
	{
		"a path answers no probe", nil, func(w *world) { w.set("a", 2, func(p *api.Path) { p.Loss = 1 }); w.report("a") },
		(*world).trouble,
		want{api.Duplicating, pathset.Of(1, 3, 4, 5), []string{"start"}, true},
	},
	{"no path answers a probe", nil, func(w *world) {
		for i := 1; i <= 5; i++ {
			w.set("a", i, func(p *api.Path) { p.Loss = 1 })
		}
		w.report("a")
	}, (*world).trouble, want{api.Duplicating, all, []string{"start"}, true}},
	{"only one path is up", nil, func(w *world) {
		for i := 2; i <= 5; i++ {
			w.set("a", i, func(p *api.Path) { p.Up = false })
		}
		w.report("a")
	}, (*world).trouble, want{api.Single, pathset.Of(1), []string{"start"}, true}},
	{"no path is up", nil, func(w *world) {
		for i := 1; i <= 5; i++ {
			w.set("a", i, func(p *api.Path) { p.Up = false })
		}
		w.report("a")
	}, (*world).trouble, want{api.Armed, 0, []string{"trigger"}, false}},
	{
		"trouble despite all paths", nil, duplicating, func(w *world) { w.live(2*time.Second, 160*time.Millisecond) },
		want{api.Duplicating, all, []string{"trigger"}, false},
	},
	{
		"eliminations", nil, duplicating, func(w *world) { _ = w.eliminate(4); _ = w.eliminate(3); _ = w.eliminate(3) },
		want{api.Trimmed, pathset.Of(1, 2, 5), []string{"trim", "trim"}, false},
	},
	{
		"down to one", nil, duplicating, func(w *world) { _ = w.eliminate(4, 3, 5); _ = w.eliminate(1) },
		want{api.Single, pathset.Of(2), []string{"trim", "single"}, false},
	},
	{"one delivers all", nil, duplicating, func(w *world) {
		_, _ = w.e.Eliminate(w.now, "b", api.Elimination{
			Destination: viewer, Generation: w.flow().Generation,
			Removed: pathset.Of(1, 3, 4, 5), Remaining: pathset.Of(2), Single: true,
		})
		w.deliver()
	}, want{api.Single, pathset.Of(2), []string{"single"}, false}},
	{
		"armed again", nil, func(w *world) { duplicating(w); _ = w.eliminate(4, 3, 5, 1); w.report("a") },
		func(w *world) { w.live(1100*time.Millisecond, 33*time.Millisecond) },
		want{api.Armed, pathset.Of(2), []string{"rearm"}, false},
	},
	{"and again in trouble", nil, func(w *world) {
		duplicating(w)
		_ = w.eliminate(4, 3, 5, 1)
		w.live(1100*time.Millisecond, 33*time.Millisecond)
	}, (*world).trouble, want{api.Duplicating, all, []string{"start"}, true}},
	{
		"trouble right after the single path", nil,
		func(w *world) { duplicating(w); _ = w.eliminate(4, 3, 5, 1); w.report("a") },
		func(w *world) { w.trouble() },
		want{api.Single, pathset.Of(2), nil, false},
	},
	{"one path turns out to be too little", nil, func(w *world) {
		single(w, 0)
		w.report("a")
	}, (*world).trouble, want{api.Trimmed, pathset.Of(1, 2), []string{"start"}, true}},
	{"the trouble is from before", func(c *Config) { c.Trigger.Count = 1 }, func(w *world) {
		single(w, 100*time.Millisecond)
		w.report("a")
	}, func(w *world) { w.pass(60 * time.Millisecond); w.see("b") }, want{api.Single, pathset.Of(2), nil, false}},
	{"and so are the two", nil, func(w *world) {
		single(w, 0)
		w.report("a")
		w.trouble()
		w.live(1100*time.Millisecond, 33*time.Millisecond)
	}, (*world).trouble, want{api.Duplicating, all, []string{"start"}, true}},
	{"one path is too little, and the other is dead", nil, func(w *world) {
		single(w, 0)
		w.set("a", 1, func(p *api.Path) { p.Up = false })
		w.report("a")
	}, (*world).trouble, want{api.Single, pathset.Of(2), nil, false}},
	{"a trimmed set is too small", nil, func(w *world) {
		duplicating(w)
		_ = w.eliminate(3, 4)
		w.live(1100*time.Millisecond, 33*time.Millisecond)
	}, (*world).trouble, want{api.Duplicating, all, []string{"start"}, true}},
	{"the flow ends", nil, duplicating, func(w *world) {
		for range 11 {
			w.pass(time.Second)
			w.report("a")
			w.report("b")
		}
	}, want{api.Armed, 0, []string{"stop"}, false}},
	{
		"a path of several is lost", nil, duplicating,
		func(w *world) { w.set("a", 1, func(p *api.Path) { p.Up = false }); w.report("a") },
		want{api.Trimmed, pathset.Of(2, 3, 4, 5), []string{"path", "trim"}, false},
	},
	{
		"it comes back", nil, func(w *world) {
			duplicating(w)
			w.set("a", 1, func(p *api.Path) { p.Up = false })
			w.report("a")
		}, func(w *world) { w.set("a", 1, func(p *api.Path) { p.Up = true }); w.report("a") },
		want{api.Trimmed, pathset.Of(2, 3, 4, 5), []string{"path"}, false},
	},
	{
		"a path of two is lost", nil, func(w *world) { duplicating(w); _ = w.eliminate(3, 4, 5); w.report("a") },
		func(w *world) { w.set("a", 1, func(p *api.Path) { p.Loss = 1 }); w.report("a") },
		want{api.Single, pathset.Of(2), []string{"single"}, false},
	},
	{
		"the single path is lost", nil, func(w *world) { duplicating(w); _ = w.eliminate(1, 3, 4, 5); w.report("a") },
		func(w *world) { w.set("b", 2, func(p *api.Path) { p.Up = false }); w.report("b") },
		want{api.Duplicating, pathset.Of(1, 3, 4, 5), []string{"path", "start"}, true},
	},
	{"all paths are lost", nil, duplicating, func(w *world) {
		for i := 1; i <= 5; i++ {
			w.set("a", i, func(p *api.Path) { p.Up = false })
		}
		w.report("a")
	}, want{api.Duplicating, all, []string{"path"}, false}},
	{"the receiver is lost", nil, duplicating, func(w *world) {
		for range 3 {
			w.pass(700 * time.Millisecond)
			w.see("a")
			w.report("a")
		}
	}, want{api.Single, pathset.Of(1), []string{"edge", "single"}, false}},
	{
		"the receiver does not listen any more", nil, func(w *world) { w.e.Watching("b", 1); w.e.Watching("b", 0) },
		(*world).trouble,
		want{api.Single, pathset.Of(1), []string{"single"}, true},
	},
	{
		"it stops listening in the middle", nil, func(w *world) { w.e.Watching("b", 1); duplicating(w) },
		func(w *world) { w.e.Watching("b", 0); w.live(time.Second, 33*time.Millisecond) },
		want{api.Duplicating, all, nil, false},
	},
	{
		"it listens again", nil, func(w *world) { w.e.Watching("b", 1); w.e.Watching("b", 0); w.e.Watching("b", 1) },
		(*world).trouble,
		want{api.Duplicating, all, []string{"start"}, true},
	},
	{"an edge restarts, path by path", nil, duplicating, func(w *world) {
		up := w.paths["b"]
		for n := range 6 {
			w.paths["b"] = nil
			for i, p := range up {
				p.Up = i < n
				w.paths["b"] = append(w.paths["b"], p)
			}
			if n == 0 {
				w.hello("b")
			}
			w.report("b")
		}
	}, want{api.Duplicating, all, []string{"edge", "path", "path", "path", "path", "path"}, false}},
	{"an edge restarts without a path", nil, duplicating, func(w *world) {
		w.set("b", 4, func(p *api.Path) { p.Up = false })
		w.hello("b")
		w.report("b")
		w.live(1100*time.Millisecond, 33*time.Millisecond)
	}, want{api.Trimmed, pathset.Of(1, 2, 3, 5), []string{"edge", "trim"}, false}},
	{
		"the receiver leaves", nil, duplicating, func(w *world) { _ = w.e.Leave(w.now, "b"); w.deliver() },
		want{api.Single, pathset.Of(1), []string{"edge", "single"}, false},
	},
	{"trouble without a receiver", nil, func(w *world) { _ = w.e.Leave(w.now, "b"); w.deliver() }, func(w *world) {
		for range 4 {
			w.pass(160 * time.Millisecond)
			w.see("a")
		}
	}, want{api.Single, pathset.Of(1), []string{"single"}, true}},
	{
		"the sender leaves", nil, duplicating, func(w *world) { _ = w.e.Leave(w.now, "a"); w.deliver() },
		want{api.Armed, 0, []string{"edge", "stop"}, false},
	},
	{"the sender is lost", nil, duplicating, func(w *world) {
		for range 8 {
			w.pass(400 * time.Millisecond)
			w.see("b")
			w.report("b")
		}
	}, want{api.Duplicating, all, []string{"trigger", "edge"}, false}},
	{"off", nil, duplicating, func(w *world) { w.mode(api.Off) }, want{
		api.Disabled, 0,
		[]string{"operator"},
		false,
	}},
	{
		"off is not triggered", nil, func(w *world) { w.mode(api.Off) }, (*world).trouble,
		want{api.Disabled, 0, nil, false},
	},
	{
		"on again", nil, func(w *world) { w.mode(api.Off) }, func(w *world) { w.mode(api.Auto) },
		want{api.Armed, 0, []string{"operator"}, false},
	},
	{
		"duplicate", nil, nil, func(w *world) { w.mode(api.Duplicate) },
		want{api.Duplicating, all, []string{"operator", "start"}, true},
	},
	{
		"duplicate over some", nil, nil, func(w *world) { w.mode(api.Duplicate, 2, 5) },
		want{api.Duplicating, pathset.Of(2, 5), []string{"operator", "start"}, true},
	},
	{
		"duplicate loses one", nil, func(w *world) { w.mode(api.Duplicate, 2, 5) },
		func(w *world) { w.set("a", 5, func(p *api.Path) { p.Up = false }); w.report("a") },
		want{api.Duplicating, pathset.Of(2), []string{"path", "start"}, false},
	},
	{
		"duplicate gets it back", nil, func(w *world) {
			w.mode(api.Duplicate, 2, 5)
			w.set("a", 5, func(p *api.Path) { p.Up = false })
			w.report("a")
		}, func(w *world) { w.set("a", 5, func(p *api.Path) { p.Up = true }); w.report("a") },
		want{api.Duplicating, pathset.Of(2, 5), []string{"path", "start"}, true},
	},
	{
		"duplicate stays without a viewer", nil, func(w *world) { w.mode(api.Duplicate); w.report("a") },
		func(w *world) {
			for range 20 {
				w.pass(time.Second)
				w.report("a")
				w.report("b")
			}
		},
		want{api.Duplicating, all, nil, false},
	},
	{
		"auto within some paths", nil, func(w *world) { w.mode(api.Auto, 1, 2) }, (*world).trouble,
		want{api.Duplicating, pathset.Of(1, 2), []string{"start"}, true},
	},
	{
		"auto out of duplicate", nil, func(w *world) { w.mode(api.Duplicate) },
		func(w *world) { w.mode(api.Auto); _ = w.eliminate(3) },
		want{api.Trimmed, pathset.Of(1, 2, 4, 5), []string{"operator", "trim"}, false},
	},
	{"redirect on trouble", redirecting, func(w *world) {
		w.set("a", 1, func(p *api.Path) { p.RTT = 60 })
		w.report("a")
	}, (*world).trouble, want{api.Redirected, pathset.Of(2), []string{"redirect"}, true}},
	{"redirect without trouble", redirecting, nil, func(w *world) {
		w.set("a", 1, func(p *api.Path) { p.RTT = 60 })
		w.live(2*time.Second, 33*time.Millisecond)
	}, want{api.Armed, 0, nil, false}},
	{
		"redirect does not swap equals", redirecting,
		func(w *world) { w.trouble(); w.live(1100*time.Millisecond, 33*time.Millisecond) }, func(w *world) {
			w.set("a", 2, func(p *api.Path) { p.RTT = 19 })
			w.report("a")
			w.trouble()
		},
		want{api.Redirected, pathset.Of(1), []string{"trigger"}, false},
	},
	{
		"redirect moves on", redirecting,
		func(w *world) { w.trouble(); w.live(1100*time.Millisecond, 33*time.Millisecond) }, func(w *world) {
			w.set("a", 2, func(p *api.Path) { p.RTT = 15 })
			w.report("a")
			w.trouble()
		},
		want{api.Redirected, pathset.Of(2), []string{"redirect"}, true},
	},
	{
		"redirect follows at any time", func(c *Config) { c.Mode, c.Redirect.Follow = api.Redirect, true },
		func(w *world) { w.trouble(); w.live(1100*time.Millisecond, 33*time.Millisecond) }, func(w *world) {
			w.set("a", 2, func(p *api.Path) { p.RTT = 15 })
			w.report("a")
		},
		want{api.Redirected, pathset.Of(2), []string{"redirect"}, true},
	},
	{
		"redirect holds", func(c *Config) { c.Mode, c.Redirect.Follow = api.Redirect, true }, (*world).trouble,
		func(w *world) {
			w.set("a", 2, func(p *api.Path) { p.RTT = 15 })
			w.report("a")
		},
		want{api.Redirected, pathset.Of(1), nil, false},
	},
	{
		"redirect off a lost path", redirecting, (*world).trouble,
		func(w *world) { w.set("a", 1, func(p *api.Path) { p.Up = false }); w.report("a") },
		want{api.Redirected, pathset.Of(2), []string{"path", "redirect"}, true},
	},
	{
		"redirect to one path", nil, nil, func(w *world) { w.mode(api.Redirect, 5) },
		want{api.Redirected, pathset.Of(5), []string{"operator", "redirect"}, true},
	},
	{"eliminations under redirect", redirecting, (*world).trouble, func(w *world) {
		if err := w.eliminate(2); !errors.Is(err, ErrPinned) {
			w.t.Error(err)
		}
	}, want{api.Redirected, pathset.Of(1), nil, false}},
}

func TestCourse(t *testing.T) {
	for _, c := range steps {
		t.Run(c.name, func(t *testing.T) {
			w := pair(t, c.conf)
			w.live(time.Second, 33*time.Millisecond)
			if c.before != nil {
				c.before(w)
			}
			generation := w.flow().Generation
			w.look()
			c.step(w)
			kinds, _ := w.look()
			f := w.flow()
			got := want{f.State, f.Paths, kinds, f.Generation != generation}
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("%+v\nwant %+v\n%s", got, c.want, w.reasons())
			}
		})
	}
}

func (w *world) mode(m api.Mode, paths ...int) {
	w.t.Helper()
	if _, err := w.e.Set(w.now, viewer, api.Setting{Mode: m, Paths: pathset.Of(paths...)}); err != nil {
		w.t.Fatal(err)
	}
	w.deliver()
}

func (w *world) reasons() string {
	var b strings.Builder
	for _, d := range w.e.Decisions(0, 100) {
		fmt.Fprintf(&b, "%s %-8s %s → %s: %s\n", d.Time.Format("05.000"), d.Kind, d.From, d.To, d.Reason)
	}
	return b.String()
}

// TestAddedInVain checks that whenever paths added to a trimmed set are removed again, the wait before
// the next addition doubles, until the network changes.
func TestAddedInVain(t *testing.T) {
	w := pair(t, nil)
	w.live(time.Second, 33*time.Millisecond)
	w.trouble()
	trim := func() {
		t.Helper()
		if err := w.eliminate(3, 4, 5); err != nil || w.flow().Paths != pathset.Of(1, 2) {
			t.Fatalf("%v, paths %s", err, w.flow().Paths)
		}
		w.report("a")
		w.report("b")
	}
	trim()
	for _, rest := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second} {
		w.live(rest-600*time.Millisecond, 33*time.Millisecond)
		w.trouble() // takes 480 ms
		if w.flow().State != api.Trimmed {
			t.Fatalf("paths were added before %v\n%s", rest, w.reasons())
		}
		w.report("a")
		w.report("b")
		w.live(200*time.Millisecond, 33*time.Millisecond)
		w.trouble()
		if w.flow().State != api.Duplicating {
			t.Fatalf("no paths were added after %v\n%s", rest, w.reasons())
		}
		trim()
	}
	if err := w.eliminate(1); err != nil {
		t.Fatal(err)
	}
	w.live(1100*time.Millisecond, 33*time.Millisecond)
	w.trouble()
	trim()
	w.live(1100*time.Millisecond, 33*time.Millisecond)
	w.trouble()
	if w.flow().State != api.Duplicating {
		t.Errorf("the single path did not end the rest\n%s", w.reasons())
	}
	if err := w.eliminate(4, 5); err != nil { // path 3 is useful now
		t.Fatal(err)
	}
	w.live(1100*time.Millisecond, 33*time.Millisecond)
	w.trouble()
	if w.flow().State != api.Duplicating {
		t.Errorf("a path that was of use was followed by a rest\n%s", w.reasons())
	}
}

// TestLossyPathsRest checks that paths that did not carry the flow are excluded from starts for sixteen
// times the re-arm time, with or without a single path in between, unless fewer than two others are up.
// Paths removed for other reasons are not excluded.
func TestLossyPathsRest(t *testing.T) {
	w := pair(t, nil)
	again := func(want ...int) {
		t.Helper()
		w.report("a")
		w.report("b")
		w.live(1100*time.Millisecond, 33*time.Millisecond)
		w.trouble()
		if got := w.flow().Paths; got != pathset.Of(want...) {
			t.Fatalf("paths %s, want %s\n%s", got, pathset.Of(want...), w.reasons())
		}
	}
	trim := func(lossy pathset.Set, removed ...int) {
		t.Helper()
		if err := w.eliminateLossy(lossy, removed...); err != nil {
			t.Fatal(err)
		}
	}
	w.live(time.Second, 33*time.Millisecond)
	w.trouble()
	trim(pathset.Of(3, 4), 3, 4, 5)
	again(1, 2, 5)
	trim(pathset.Of(2), 5) // path 2 was not removed, so its report is ignored
	trim(0, 2)
	again(1, 2, 5) // from one path
	trim(0, 5)
	w.live(16*time.Second, 33*time.Millisecond)
	again(1, 2, 3, 4, 5)
	trim(pathset.Of(3, 4, 5), 3, 4, 5)
	w.live(4*time.Second, 33*time.Millisecond)
	again(1, 2)
	if !strings.Contains(w.reasons(),
		"though all other paths that are up are in use; path 3+4+5 did not carry the flow lately") {
		t.Error(w.reasons())
	}
	w.set("a", 2, func(p *api.Path) { p.Up = false })
	again(1, 3, 4, 5) // rather than one path alone
}

// Duplication backs off for a viewer that is itself slow, but not for a viewer that it helps.
func TestDuplicationDoesNotHelp(t *testing.T) {
	rest := func(w *world) time.Duration {
		t.Helper()
		w.trouble()
		w.report("a")
		if f := w.flow(); f.State != api.Duplicating {
			t.Fatalf("%+v\n%s", f, w.reasons())
		}
		w.live(2*time.Second, 160*time.Millisecond)
		_ = w.eliminate(2, 3, 4, 5)
		w.report("a")
		began := w.now
		for w.flow().State == api.Single {
			w.pass(200 * time.Millisecond)
			w.see("b")
			w.report("a")
			w.report("b")
		}
		return w.now.Sub(began).Truncate(time.Second)
	}
	w := pair(t, nil)
	w.live(time.Second, 33*time.Millisecond)
	for i, want := range []float64{2, 4, 8, 16, 32, 64, 64} {
		if got := rest(w).Seconds(); got != want {
			t.Errorf("start %d: the trigger rests for %g s, want %g s", i+1, got, want)
		}
	}
	w.trouble()
	w.live(2*time.Second, 33*time.Millisecond)
	_ = w.eliminate(2, 3, 4, 5)
	w.report("a")
	w.live(1100*time.Millisecond, 33*time.Millisecond)
	if f := w.flow(); f.State != api.Armed {
		t.Errorf("%+v\n%s", f, w.reasons())
	}
	t.Run("well on the single path", func(t *testing.T) {
		w := pair(t, nil)
		w.live(time.Second, 33*time.Millisecond)
		rest(w)
		w.trouble()
		w.live(2*time.Second, 160*time.Millisecond)
		_ = w.eliminate(2, 3, 4, 5)
		w.report("a")
		w.live(1100*time.Millisecond, 33*time.Millisecond)
		if f := w.flow(); f.State != api.Armed {
			t.Errorf("%+v\n%s", f, w.reasons())
		}
	})
}

// Signals repeat until the sender reports the set in force.
func TestSignalling(t *testing.T) {
	w := pair(t, nil)
	w.live(time.Second, 33*time.Millisecond)
	w.deaf["a"] = true
	w.look()
	w.trouble()
	if _, sent := w.look(); !slices.Equal(sent, []pathset.Set{0x1f}) {
		t.Fatalf("at once: %v", sent)
	}
	w.pass(100 * time.Millisecond)
	if _, sent := w.look(); len(sent) != 5 {
		t.Errorf("%d packets in 100 ms, want 5", len(sent))
	}
	w.report("a") // of the previous set
	if w.flow().Applied {
		t.Error("applied, though the edge heard nothing")
	}
	w.pass(2 * time.Second)
	kinds, sent := w.look()
	if len(sent) < 50 || len(sent) > 56 || !slices.Contains(kinds, "signal") {
		t.Errorf("%d packets in 2 s, decisions %v", len(sent), kinds)
	}
	w.deaf["a"] = false
	w.pass(210 * time.Millisecond)
	w.report("a")
	if !w.flow().Applied {
		t.Error("not applied")
	}
	w.look()
	w.pass(time.Second)
	if _, sent := w.look(); len(sent) > 0 {
		t.Errorf("%d packets after it was applied", len(sent))
	}
}

// A report that crossed a change on the way does not acknowledge it, even if the sets look the same.
func TestAcknowledgementOfTheRightChange(t *testing.T) {
	w := pair(t, nil)
	w.live(time.Second, 33*time.Millisecond)
	w.mode(api.Redirect, 1)
	w.report("a")
	old := w.nonces["a"][viewer]
	w.deaf["a"] = true
	w.mode(api.Redirect, 2)
	w.mode(api.Redirect, 1)
	if w.nonces["a"][viewer] = old; w.flow().Applied {
		t.Fatal("applied already")
	}
	w.report("a")
	if w.flow().Applied {
		t.Error("a report of an earlier packet acknowledged this one")
	}
	w.deaf["a"] = false
	w.pass(20 * time.Millisecond)
	w.report("a")
	if !w.flow().Applied {
		t.Error("not applied")
	}
}

// A sender that lost its policy map, or has an unwanted entry, is corrected after its next report.
func TestReconcile(t *testing.T) {
	w := pair(t, nil)
	w.live(time.Second, 33*time.Millisecond)
	w.trouble()
	w.report("a")
	t.Run("lost", func(t *testing.T) {
		w.told["a"], w.nonces["a"] = nil, nil
		w.report("a")
		w.report("a")
		if !w.flow().Applied || w.told["a"][viewer] != 0x1f {
			t.Errorf("policy %#x", w.told["a"][viewer])
		}
	})
	t.Run("restarted", func(t *testing.T) {
		w.told["a"], w.nonces["a"] = nil, nil
		w.hello("a")
		if w.told["a"][viewer] != 0x1f {
			t.Errorf("policy %#x", w.told["a"][viewer])
		}
	})
	t.Run("not towards it", func(t *testing.T) {
		stray := netip.MustParseAddr("172.16.0.1")
		w.told["a"][stray], w.nonces["a"][stray] = 3, 1
		w.report("a")
		if w.told["a"][stray] != 0 {
			t.Errorf("policy %#x", w.told["a"][stray])
		}
	})
}

// Path sets of an earlier controller are kept.
func TestAdopt(t *testing.T) {
	for paths, state := range map[uint8]api.State{0x13: api.Trimmed, 0x02: api.Armed} {
		w := newWorld(t, DefaultConfig())
		w.told["a"] = map[netip.Addr]uint8{viewer: paths}
		w.nonces["a"] = map[netip.Addr]uint64{viewer: 77}
		w.join()
		f := w.flow()
		if uint8(f.Paths) != paths || f.State != state || !f.Applied || f.Generation == 0 || f.Receiver != "b" {
			t.Errorf("%#x: %+v", paths, f)
		}
		if w.told["a"][viewer] != paths {
			t.Errorf("%#x was changed to %#x", paths, w.told["a"][viewer])
		}
	}
	t.Run("unless it shall be off", func(t *testing.T) {
		conf := DefaultConfig()
		conf.Mode = api.Off
		w := newWorld(t, conf)
		w.told["a"] = map[netip.Addr]uint8{viewer: 3}
		w.nonces["a"] = map[netip.Addr]uint64{viewer: 77}
		w.join()
		if f := w.flow(); f.Paths != 0 || w.told["a"][viewer] != 0 {
			t.Errorf("%+v", f)
		}
	})
}

func TestEliminateRefuses(t *testing.T) {
	w := pair(t, nil)
	w.live(time.Second, 33*time.Millisecond)
	w.trouble()
	generation := w.flow().Generation
	for name, c := range map[string]struct {
		edge string
		o    api.Elimination
		want error
	}{
		"unknown edge": {
			"x",
			api.Elimination{Destination: viewer, Generation: generation, Removed: 1},
			ErrUnknownEdge,
		},
		"another edge": {
			"a",
			api.Elimination{Destination: viewer, Generation: generation, Removed: 1},
			ErrNotReceiver,
		},
		"unknown flow": {"b", api.Elimination{
			Destination: netip.MustParseAddr("10.9.9.9"), Generation: generation,
			Removed: 1,
		}, ErrUnknownFlow},
		"older": {
			"b",
			api.Elimination{Destination: viewer, Generation: generation - 1, Removed: 1},
			ErrStale,
		},
		"newer": {
			"b",
			api.Elimination{Destination: viewer, Generation: generation + 1, Removed: 1},
			ErrStale,
		},
		"all": {
			"b",
			api.Elimination{Destination: viewer, Generation: generation, Removed: 0x1f},
			ErrNoPathLeft,
		},
		"single of two": {"b", api.Elimination{
			Destination: viewer, Generation: generation, Remaining: 3,
			Single: true,
		}, ErrInvalid},
		"single of others": {"b", api.Elimination{
			Destination: viewer, Generation: generation, Remaining: 0x80,
			Single: true,
		}, ErrNoPathLeft},
		"too many rewards": {"b", api.Elimination{
			Destination: viewer, Generation: generation, Removed: 1,
			Rewards: make([]api.Reward, 9),
		}, ErrInvalid},
		"nothing":           {"b", api.Elimination{Destination: viewer, Generation: generation}, nil},
		"a path it has not": {"b", api.Elimination{Destination: viewer, Generation: generation, Removed: 0x80}, nil},
		"mapped address": {"b", api.Elimination{
			Destination: netip.AddrFrom16(viewer.As16()),
			Generation:  generation,
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := w.e.Eliminate(w.now, c.edge, c.o); !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
			if f := w.flow(); f.Paths != 0x1f || f.Generation != generation {
				t.Errorf("the flow became %+v", f)
			}
		})
	}
}

// An edge's reason cannot forge log lines or flood the log.
func TestReasonOfAnEdge(t *testing.T) {
	w := pair(t, nil)
	w.live(time.Second, 33*time.Millisecond)
	w.trouble()
	_, err := w.e.Eliminate(w.now, "b", api.Elimination{
		Destination: viewer, Generation: w.flow().Generation,
		Removed: 8, Reason: "late\n\x1b[2J" + strings.Repeat("é", 1000),
	})
	if err != nil {
		t.Fatal(err)
	}
	d := w.e.Decisions(0, 1000)
	got := d[len(d)-1].Reason
	if !strings.HasPrefix(got, "late  [2Jéé") || len(got) > maxReason {
		t.Errorf("%q", got)
	}
}

// Pairing selects the edge with the longest prefix and the named peer, and never a lost edge.
func TestPairing(t *testing.T) {
	prefix := netip.MustParsePrefix
	sender := func(name, peer, towards string) api.Edge {
		return api.Edge{
			Name: name, Role: api.Both, Peer: peer, Signal: netip.MustParseAddrPort("10.1.0.1:4790"),
			SignalVersion: signal.Version,
			Towards:       []netip.Prefix{prefix(towards)}, Paths: []api.Path{{Index: 1, Up: true}, {Index: 2, Up: true}},
		}
	}
	receiver := func(name, peer, behind string) api.Edge {
		return api.Edge{
			Name: name, Role: api.Receiver, Peer: peer, Behind: []netip.Prefix{prefix(behind)},
			Paths: []api.Path{{Index: 1, Up: true}, {Index: 2, Up: true}},
		}
	}
	for name, c := range map[string]struct {
		edges            []api.Edge
		lost             string
		sender, receiver string
	}{
		"two": {
			[]api.Edge{sender("a", "", "10.9.0.0/16"), receiver("b", "", "10.9.0.0/16")},
			"", "a",
			"b",
		},
		"longest prefix": {[]api.Edge{
			sender("a", "", "0.0.0.0/0"), sender("c", "", "10.9.0.0/24"),
			receiver("b", "", "10.0.0.0/8"),
		}, "", "c", "b"},
		"mapped prefix": {
			[]api.Edge{sender("a", "", "::ffff:10.9.0.0/112"), receiver("b", "", "10.9.0.0/16")},
			"",
			"a", "b",
		},
		"named peers": {[]api.Edge{
			sender("a", "d", "10.9.0.0/16"), receiver("b", "", "10.9.0.7/32"),
			receiver("d", "a", "10.9.0.0/16"),
		}, "", "a", "d"},
		"lost": {[]api.Edge{
			sender("a", "", "10.9.0.7/32"), sender("c", "", "10.9.0.0/24"),
			receiver("b", "", "10.0.0.0/8"),
		}, "a", "c", "b"},
		"lost, no other": {
			[]api.Edge{sender("a", "", "10.9.0.7/32"), receiver("b", "", "10.0.0.0/8")},
			"a", "a",
			"b",
		},
		"not behind it":   {[]api.Edge{sender("a", "", "10.9.0.0/16"), receiver("b", "", "10.8.0.0/16")}, "", "a", ""},
		"none towards it": {[]api.Edge{sender("a", "", "10.8.0.0/16"), receiver("b", "", "10.9.0.0/16")}, "", "", ""},
		"itself is no end": {[]api.Edge{func() api.Edge {
			e := sender("a", "", "10.9.0.0/16")
			e.Behind = e.Towards
			return e
		}()}, "", "a", ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, DefaultConfig())
			for _, h := range c.edges {
				if err := w.e.Hello(w.now, h); err != nil {
					t.Fatal(err)
				}
			}
			if c.lost != "" {
				w.pass(2 * time.Second)
				for _, h := range c.edges {
					if h.Name != c.lost {
						_ = w.e.Report(w.now, h.Name, api.Report{Paths: h.Paths})
					}
				}
				w.pass(2 * time.Second)
			}
			f, err := w.e.Set(w.now, viewer, api.Setting{Mode: api.Auto})
			if c.sender == "" && errors.Is(err, ErrInvalid) {
				return // no edge sends to it
			}
			if err != nil || f.Sender != c.sender || f.Receiver != c.receiver {
				t.Errorf("%q → %q, %v; want %q → %q", f.Sender, f.Receiver, err, c.sender, c.receiver)
			}
		})
	}
}

// A flow moves to another sender when its own is lost. When the lost one returns, it is signalled to
// stop.
func TestSenderTakesOver(t *testing.T) {
	w := pair(t, nil)
	w.hello("a2")
	w.live(time.Second, 33*time.Millisecond)
	w.report("a2")
	w.trouble()
	w.report("a")
	if w.flow().Sender != "a" {
		t.Fatal(w.flow())
	}
	for range 8 {
		w.pass(400 * time.Millisecond)
		w.see("b")
		w.report("b")
		w.report("a2")
	}
	if f := w.flow(); f.Sender != "a2" || w.told["a2"][viewer] != 0x1f {
		t.Errorf("%+v, told %#x\n%s", f, w.told["a2"][viewer], w.reasons())
	}
	w.report("a")
	if w.flow().Sender != "a2" || w.told["a"][viewer] != 0 {
		t.Errorf("sender %q, a told %#x", w.flow().Sender, w.told["a"][viewer])
	}
}

// A flow uses all eight paths, is trimmed, and uses them again.
func TestEightPaths(t *testing.T) {
	conf := DefaultConfig()
	w := newWorld(t, conf)
	for _, name := range []string{"a", "b"} {
		for i, rtt := range []float64{20, 30, 100, 105, 35, 10, 12, 14} {
			w.paths[name] = append(w.paths[name], api.Path{Index: i + 1, Interface: "p", Up: true, RTT: rtt})
		}
	}
	w.join()
	w.live(time.Second, 33*time.Millisecond)
	w.trouble()
	if f := w.flow(); f.Paths != 0xff || w.told["a"][viewer] != 0xff {
		t.Fatalf("paths %s, told %#x; want all eight", f.Paths, w.told["a"][viewer])
	}
	_ = w.eliminate(1, 2, 3)
	if f := w.flow(); f.Paths != pathset.Of(4, 5, 6, 7, 8) {
		t.Errorf("paths %s", f.Paths)
	}
	w.mode(api.Duplicate)
	generation := w.flow().Generation
	w.set("a", 1, func(p *api.Path) { p.RTT = 500 })
	w.report("a")
	if f := w.flow(); f.Paths != 0xff || f.Generation != generation {
		t.Errorf("paths %s of generation %d, want generation %d: only an RTT changed", f.Paths, f.Generation,
			generation)
	}
}

// A sender with another signalling version is refused, even if an earlier controller accepted it.
func TestSignalVersions(t *testing.T) {
	w := pair(t, nil)
	old := w.e.edges["a"].Edge
	for version, want := range map[int]string{
		0: "edge a supports signalling version 1, this controller sends version 2: upgrade the " +
			"controller and all edges together",
		1:                  "edge a supports signalling version 1, this controller sends version 2: ",
		3:                  "edge a supports signalling version 3, this controller sends version 2: ",
		signal.Version:     "",
		signal.Version - 3: "version 1, ",
	} {
		old.SignalVersion = version
		err := New(DefaultConfig()).Hello(w.now, old)
		if want == "" && err != nil || want != "" && (!errors.Is(err, ErrInvalid) ||
			!strings.Contains(err.Error(), want)) {
			t.Errorf("version %d: %v, want %q", version, err, want)
		}
		state := w.e.State(10)
		for i := range state.Edges {
			if state.Edges[i].Name == "a" {
				state.Edges[i].SignalVersion = version
			}
		}
		e := New(DefaultConfig())
		if err := e.Restore(w.now, state); err != nil {
			t.Fatal(err)
		}
		if known := e.edges["a"] != nil; known != (want == "") {
			t.Errorf("version %d: known after a restart: %t", version, known)
		}
	}
	if err := New(DefaultConfig()).Hello(w.now, w.e.edges["b"].Edge); err != nil {
		t.Errorf("a receiver takes no signalling messages: %v", err)
	}
}

// A lost edge's silence does not count as a viewer's.
func TestLostEdgeIsNotSilence(t *testing.T) {
	w := pair(t, nil)
	for range 30 {
		w.pass(33 * time.Millisecond)
		w.see("b")
		w.see("a")
	}
	_ = w.e.Leave(w.now, "b")
	w.look()
	for range 30 {
		w.pass(33 * time.Millisecond)
		w.see("a")
	}
	if kinds, _ := w.look(); len(kinds) > 1 {
		t.Errorf("decisions %v", kinds)
	}
}

func TestForget(t *testing.T) {
	w := pair(t, nil)
	w.live(time.Second, 33*time.Millisecond)
	w.trouble()
	steady := func(d time.Duration) {
		for range d / time.Second {
			w.pass(time.Second)
			w.report("a")
			w.report("b")
		}
	}
	steady(time.Minute)
	if f := w.flow(); f.Live || f.Paths != 0 || w.told["a"][viewer] != 0 {
		t.Errorf("%+v", f)
	}
	steady(5 * time.Minute)
	if n := len(w.e.Flows()); n != 0 {
		t.Errorf("%d flows are kept", n)
	}
	w.mode(api.Off)
	steady(6 * time.Minute)
	if n := len(w.e.Flows()); n != 1 {
		t.Error("a flow that an operator set is forgotten")
	}
	if err := w.e.Unset(w.now, viewer); err != nil {
		t.Error(err)
	}
	steady(6 * time.Minute)
	if n := len(w.e.Flows()); n != 0 {
		t.Error("a flow that an operator gave back is kept")
	}
	if next := w.e.Next(); next.IsZero() {
		t.Error("lost edges would not be noticed")
	}
}

// A viewer that keeps sending is served despite any number of forged sources.
func TestSpoofedViewers(t *testing.T) {
	w := pair(t, func(c *Config) { c.MaxFlows = 100 })
	for n := range 5000 {
		if n%50 == 0 {
			w.pass(33 * time.Millisecond)
			w.see("b")
			w.report("a")
			w.report("b")
		}
		o := api.Observation{Time: 1, Source: netip.AddrPortFrom(netip.AddrFrom4([4]byte{
			10, 9, byte(1 + n>>8),
			byte(n),
		}), 1)}
		if err := w.e.Uplink(w.now, "b", []api.Observation{o}); err != nil {
			t.Fatal(err)
		}
	}
	if f := w.flow(); !f.Live || len(w.e.Flows()) != 100 {
		t.Errorf("%+v of %d flows", f, len(w.e.Flows()))
	}
	w.trouble()
	if f := w.flow(); f.State != api.Duplicating {
		t.Errorf("%+v\n%s", f, w.reasons())
	}
}

func TestLimits(t *testing.T) {
	w := pair(t, func(c *Config) { c.MaxFlows, c.MaxEdges = 2, 2 })
	if err := w.e.Hello(w.now, api.Edge{Name: "c", Role: api.Receiver}); !errors.Is(err, ErrFull) {
		t.Error(err)
	}
	for i := range 5 {
		o := api.Observation{Time: 1, Source: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 9, 0, byte(i)}), 1)}
		if err := w.e.Uplink(w.now, "b", []api.Observation{o}); err != nil {
			t.Error(err)
		}
	}
	if f := w.e.Flows(); len(f) != 2 || f[1].Destination != netip.AddrFrom4([4]byte{10, 9, 0, 4}) {
		t.Errorf("%+v", f)
	}
	for _, f := range w.e.Flows() { // they become proven and are no longer displaced
		for i := range w.e.conf.Trigger.Live {
			o := api.Observation{
				Time:   int64(i) * int64(33*time.Millisecond),
				Source: netip.AddrPortFrom(f.Destination, 1),
			}
			if err := w.e.Uplink(w.now, "b", []api.Observation{o}); err != nil {
				t.Error(err)
			}
		}
	}
	kept := w.e.Flows()
	o := api.Observation{Time: 1, Source: netip.MustParseAddrPort("10.9.0.9:1")}
	if err := w.e.Uplink(w.now, "b", []api.Observation{o}); err != nil || !w.e.Take().Full ||
		!reflect.DeepEqual(w.e.Flows(), kept) {
		t.Errorf("%v, %+v", err, w.e.Flows())
	}
	if _, err := w.e.Set(w.now, netip.MustParseAddr("10.9.1.1"), api.Setting{Mode: api.Auto}); !errors.Is(err,
		ErrFull) {
		t.Error(err)
	}
	for i := range 2 * maxSources {
		o := api.Observation{Time: 1, Source: netip.AddrPortFrom(kept[0].Destination, uint16(i+1))}
		_ = w.e.Uplink(w.now, "b", []api.Observation{o})
	}
	if n := len(w.e.flows[kept[0].Destination].meters); n != maxSources {
		t.Errorf("%d viewers of one address are watched", n)
	}
}

func TestDecisions(t *testing.T) {
	w := pair(t, func(c *Config) { c.KeepDecisions = 10 })
	for range 40 {
		w.hello("b")
	}
	all := w.e.Decisions(0, 1000)
	if len(all) != 10 || all[9].Sequence != w.e.Sequence() || all[0].Sequence != w.e.Sequence()-9 {
		t.Fatalf("%d decisions up to %d", len(all), w.e.Sequence())
	}
	if d := w.e.Decisions(w.e.Sequence()-3, 2); len(d) != 2 || d[0].Sequence != w.e.Sequence()-2 {
		t.Errorf("%+v", d)
	}
	if d := w.e.Decisions(w.e.Sequence()+5, 2); len(d) != 0 {
		t.Errorf("%+v", d)
	}
}

func TestCheckEdge(t *testing.T) {
	good := func() api.Edge {
		return api.Edge{
			Name: "edge-a.1", Role: api.Sender, Signal: netip.MustParseAddrPort("10.0.0.1:4790"),
			SignalVersion: signal.Version,
			Paths:         []api.Path{{Index: 1, Interface: "eth1"}},
			Towards:       []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")},
		}
	}
	for name, c := range map[string]struct {
		change func(*api.Edge)
		want   string // expected in the error
	}{
		"good":            {func(*api.Edge) {}, ""},
		"no name":         {func(e *api.Edge) { e.Name = "" }, "name"},
		"path in name":    {func(e *api.Edge) { e.Name = "../x" }, "name"},
		"long name":       {func(e *api.Edge) { e.Name = strings.Repeat("x", 65) }, "name"},
		"own peer":        {func(e *api.Edge) { e.Peer = e.Name }, "peer"},
		"role":            {func(e *api.Edge) { e.Role = "boss" }, "role"},
		"no signal":       {func(e *api.Edge) { e.Signal = netip.AddrPort{} }, "signal"},
		"IPv6 signal":     {func(e *api.Edge) { e.Signal = netip.MustParseAddrPort("[::1]:4790") }, "signal"},
		"path 0":          {func(e *api.Edge) { e.Paths[0].Index = 0 }, "path 0"},
		"path 9":          {func(e *api.Edge) { e.Paths[0].Index = 9 }, "path 9"},
		"path twice":      {func(e *api.Edge) { e.Paths = append(e.Paths, e.Paths[0]) }, "twice"},
		"negative RTT":    {func(e *api.Edge) { e.Paths[0].RTT = -1 }, "rtt_ms"},
		"loss above 1":    {func(e *api.Edge) { e.Paths[0].Loss = 1.1 }, "loss"},
		"invalid prefix":  {func(e *api.Edge) { e.Behind = []netip.Prefix{{}} }, "prefix"},
		"many prefixes":   {func(e *api.Edge) { e.Behind = make([]netip.Prefix, maxPrefixes+1) }, "prefixes"},
		"long version":    {func(e *api.Edge) { e.Version = strings.Repeat("x", 65) }, "version"},
		"receiver only":   {func(e *api.Edge) { e.Role, e.Signal = api.Receiver, netip.AddrPort{} }, ""},
		"long interface":  {func(e *api.Edge) { e.Paths[0].Interface = strings.Repeat("x", 65) }, "interface"},
		"unspecified":     {func(e *api.Edge) { e.Signal = netip.MustParseAddrPort("0.0.0.0:4790") }, "signal"},
		"no port":         {func(e *api.Edge) { e.Signal = netip.MustParseAddrPort("10.0.0.1:0") }, "signal"},
		"mapped v4 is ok": {func(e *api.Edge) { e.Signal = netip.MustParseAddrPort("[::ffff:10.0.0.1]:4790") }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			e := good()
			c.change(&e)
			err := CheckEdge(e)
			if (err == nil) != (c.want == "") || (err != nil && !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

func TestValidate(t *testing.T) {
	for want, change := range map[string]func(*Config){
		"":                 func(*Config) {},
		"mode":             func(c *Config) { c.Mode = "best" },
		"trigger.interval": func(c *Config) { c.Trigger.Interval = 0 },
		"trigger.count":    func(c *Config) { c.Trigger.Count = 0 },
		"trigger.silence":  func(c *Config) { c.Trigger.Silence = time.Millisecond },
		"trigger.merge":    func(c *Config) { c.Trigger.Merge = time.Second },
		"trigger.live":     func(c *Config) { c.Trigger.Live = 0 },
		"redirect.margin":  func(c *Config) { c.Redirect.Margin = 1 },
		"redirect.hold":    func(c *Config) { c.Redirect.Hold = -1 },
		"signal.resend":    func(c *Config) { c.Signal.First = 0 },
		"reportInterval":   func(c *Config) { c.ReportInterval = 0 },
		"rearm":            func(c *Config) { c.Rearm = -1 },
		"end":              func(c *Config) { c.End = time.Millisecond },
		"forget":           func(c *Config) { c.Forget = time.Second },
		"maxFlows":         func(c *Config) { c.MaxFlows = 0 },
	} {
		c := DefaultConfig()
		change(&c)
		err := c.Validate()
		if (err == nil) != (want == "") || (err != nil && !strings.Contains(err.Error(), want)) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
