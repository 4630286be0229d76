package policy

import (
	"slices"
	"testing"
	"time"

	"holocast/netfunc/api"
	"holocast/netfunc/pathset"
)

// TestStranded lets the path on which plain routing carries a flow die just before the controller
// restarts, so the controller sees no uplink packet of the flow.
func TestStranded(t *testing.T) {
	byPath1 := func(w *world) { w.plain["a"] = api.Route{Path: 1} }
	down := func(w *world) { w.set("a", 1, func(p *api.Path) { p.Up = false }) }
	others := pathset.Of(2, 3, 4, 5)
	for _, c := range []struct {
		name  string
		conf  func(*Config)
		plain func(*world)
		dies  func(*world)
		state api.State
		paths pathset.Set
		last  string // last decision
	}{
		{"down at the sender", nil, byPath1, down, api.Duplicating, others, "start"},
		{
			"down at the receiver", nil, byPath1, func(w *world) { w.set("b", 1, func(p *api.Path) { p.Up = false }) },
			api.Duplicating, others, "start",
		},
		{
			"no probe is answered", nil, byPath1, func(w *world) { w.set("a", 1, func(p *api.Path) { p.Loss = 1 }) },
			api.Duplicating, others, "start",
		},
		{
			"the route went with it", nil, byPath1,
			func(w *world) { down(w); w.plain["a"] = api.Route{Unreachable: true} }, api.Duplicating, others, "start",
		},
		{
			"redirection", func(c *Config) { c.Mode = api.Redirect }, byPath1, down, api.Redirected, pathset.Of(2),
			"redirect",
		},
		{"one path is left", nil, byPath1, func(w *world) {
			for i := 1; i <= 4; i++ {
				w.set("a", i, func(p *api.Path) { p.Up = false })
			}
		}, api.Armed, pathset.Of(5), "rearm"},
		{"nothing is left", nil, byPath1, func(w *world) {
			for i := 1; i <= 5; i++ {
				w.set("a", i, func(p *api.Path) { p.Up = false })
			}
		}, api.Armed, 0, "path"},
		{
			"another path dies", nil, byPath1, func(w *world) { w.set("a", 2, func(p *api.Path) { p.Up = false }) },
			api.Armed, 0, "path",
		},
		{"plain routing takes no path", nil, func(w *world) { w.plain["a"] = api.Route{} }, down, api.Armed, 0, "path"},
		{"an edge that tells nothing", nil, func(*world) {}, down, api.Armed, 0, "path"},
		{
			"a path that the operator forbids", nil, func(w *world) { byPath1(w); w.mode(api.Auto, 2, 3) },
			func(*world) {}, api.Armed, 0, "restart",
		},
		{"switched off", func(c *Config) { c.Mode = api.Off }, byPath1, down, api.Disabled, 0, "path"},
		{"the viewer is long gone", nil, func(w *world) {
			byPath1(w)
			for range 11 {
				w.pass(time.Second)
				w.report("a")
				w.report("b")
			}
		}, func(w *world) {
			for range 11 {
				w.pass(time.Second)
				w.report("a")
				w.report("b")
			}
			down(w)
		}, api.Armed, 0, "path"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := pair(t, c.conf)
			w.live(time.Second, 33*time.Millisecond)
			c.plain(w)
			w.report("a")
			w.pass(100 * time.Millisecond)
			w.restart()
			c.dies(w)
			for range 4 {
				w.report("a")
				w.report("b")
				w.pass(500 * time.Millisecond)
			}
			if f := w.flow(); f.State != c.state || f.Paths != c.paths {
				t.Errorf("%s with paths %s, want %s with %s\n%s", f.State, f.Paths, c.state, c.paths, w.reasons())
			}
			kinds, _ := w.look()
			if i := slices.Index(kinds, "restart"); i < 0 || kinds[len(kinds)-1] != c.last {
				t.Errorf("decisions %v, want %s last", kinds, c.last)
			}
		})
	}
}

// TestStrandedBeforeItEnds checks that a flow stuck on a dead path is not moved repeatedly after it
// has ended.
func TestStrandedBeforeItEnds(t *testing.T) {
	w := pair(t, nil)
	w.live(time.Second, 33*time.Millisecond)
	w.plain["a"] = api.Route{Path: 1}
	w.set("a", 1, func(p *api.Path) { p.Up = false })
	w.look()
	for range 60 {
		w.report("a")
		w.report("b")
		w.pass(500 * time.Millisecond)
	}
	if kinds, _ := w.look(); !slices.Equal(kinds, []string{"path", "start", "stop"}) {
		t.Errorf("decisions %v", kinds)
	}
}

// TestHelloBeforeTheSender lets a controller without state learn of a viewer before the viewer's
// sender registers.
func TestHelloBeforeTheSender(t *testing.T) {
	w := newWorld(t, DefaultConfig())
	w.hello("b")
	w.report("b")
	for range 8 {
		w.see("b")
		w.now = w.now.Add(33 * time.Millisecond)
	}
	w.pass(600 * time.Millisecond)
	w.hello("a")
	w.plain["a"] = api.Route{Path: 1}
	w.set("a", 1, func(p *api.Path) { p.Loss = 1 })
	for range 4 {
		w.report("a")
		w.report("b")
		w.pass(500 * time.Millisecond)
	}
	if f := w.flow(); f.Paths != pathset.Of(2, 3, 4, 5) {
		t.Errorf("%+v\n%s", f, w.reasons())
	}
}
