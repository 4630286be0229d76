package policy

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"testing"
	"time"

	"holocast/netfunc/api"
	"holocast/netfunc/pathset"
)

// play drives a world with events chosen by bytes, and checks the invariants after each.
type play struct {
	*world
	script []byte
	begun  map[netip.Addr]api.Flow // as last seen
}

func (p *play) next() int {
	if len(p.script) == 0 {
		return 0
	}
	b := p.script[0]
	p.script = p.script[1:]
	return int(b)
}

func (p *play) step() {
	t := p.t
	name := []string{"a", "b", "a2"}[p.next()%3]
	dst := []netip.Addr{viewer, netip.MustParseAddr("2001:db8:9::1"), netip.MustParseAddr("172.16.0.1")}[p.next()%3]
	switch p.next() % 12 {
	case 0, 1:
		p.pass(time.Duration(p.next()) * 2 * time.Millisecond)
	case 2, 3, 4:
		for range p.next()%8 + 1 {
			p.pass(time.Duration(p.next()) * time.Millisecond)
			if p.e.Known(name) {
				o := api.Observation{
					Time: p.now.Add(p.clock[name]).UnixNano(), Source: netip.AddrPortFrom(dst, 9),
					Destination: server,
				}
				if err := p.e.Uplink(p.now, name, []api.Observation{o}); err != nil {
					t.Fatal(err)
				}
				p.deliver()
			}
		}
	case 5, 6:
		f, ok := p.e.Flow(dst)
		o := api.Elimination{
			Destination: dst, Generation: f.Generation + uint64(p.next()%4/3),
			Removed: pathset.Set(p.next()), Remaining: pathset.Set(p.next()), Single: p.next()%4 == 0,
		}
		g, err := p.e.Eliminate(p.now, "b", o)
		p.deliver()
		after, _ := p.e.Flow(dst)
		switch {
		case ok && o.Generation != f.Generation && err == nil:
			t.Fatalf("elimination of generation %d was accepted in %d", o.Generation, f.Generation)
		case err != nil && after.Paths != f.Paths:
			t.Fatalf("refused (%v), but paths went from %s to %s", err, f.Paths, after.Paths)
		case err == nil && g.Paths != after.Paths:
			t.Fatalf("answered %s, but paths are %s", g.Paths, after.Paths)
		case err == nil && after.Paths&^f.Paths != 0:
			t.Fatalf("an elimination added paths: %s to %s", f.Paths, after.Paths)
		}
	case 7:
		if p.e.Known(name) {
			p.report(name)
		}
	case 8:
		p.hello(name)
		i, down, dead := p.next()%5+1, p.next()%3 == 0, p.next()%3 == 0
		rtt := float64(p.next())
		p.set(name, i, func(q *api.Path) { q.Up, q.RTT, q.Loss = !down, rtt, 0 })
		if dead {
			p.set(name, i, func(q *api.Path) { q.Loss = 1 })
		}
		p.report(name)
	case 9:
		mode := []api.Mode{api.Auto, api.Duplicate, api.Redirect, api.Off}[p.next()%4]
		paths := p.next()
		if _, err := p.e.Set(p.now, dst, api.Setting{Mode: mode, Paths: pathset.Set(paths & p.next())}); err != nil &&
			!errors.Is(err, ErrInvalid) {
			t.Fatal(err)
		}
		p.deliver()
	case 10:
		switch p.next() % 8 {
		case 0:
			if err := p.e.Leave(p.now, name); err != nil && !errors.Is(err, ErrUnknownEdge) {
				t.Fatal(err)
			}
		case 1:
			_ = p.e.Unset(p.now, dst)
		case 2:
			p.told[name], p.nonces[name] = nil, nil // the edge restarts empty
		case 3:
			p.deaf[name] = !p.deaf[name]
		case 4:
			p.pass(time.Duration(p.next()) * 100 * time.Millisecond)
		case 5:
			p.restart()
		case 6:
			p.e.Watching(name, p.next()%2)
		case 7:
			p.plain[name] = api.Route{Path: p.next() % 7, Unreachable: p.next()%3 == 0}
		}
		p.deliver()
	case 11:
		for _, n := range []string{"a", "b"} {
			if p.e.Known(n) {
				p.report(n)
			}
		}
	}
	p.check()
}

func (p *play) check() {
	p.t.Helper()
	for dst := range p.begun {
		if _, ok := p.e.Flow(dst); !ok {
			delete(p.begun, dst) // forgotten
		}
	}
	for _, f := range p.e.Flows() {
		if !possible(f.State, f.Paths) {
			p.t.Fatalf("state %s with paths %s\n%s", f.State, f.Paths, p.reasons())
		}
		if f.Sender == "" && f.Paths != 0 {
			p.t.Fatalf("paths %s without a sender", f.Paths)
		}
		if f.Mode == api.Off && f.Paths != 0 {
			p.t.Fatalf("mode off with paths %s", f.Paths)
		}
		if f.Allowed != 0 && f.Paths&^f.Allowed != 0 {
			p.t.Fatalf("paths %s, allowed %s", f.Paths, f.Allowed)
		}
		was, there := p.begun[f.Destination]
		switch {
		case !there || f.Generation == 0: // the flow is new, or was forgotten and created again
		case f.Generation < was.Generation:
			p.t.Fatalf("generation %d after %d", f.Generation, was.Generation)
		case f.Generation == was.Generation && f.Paths&^was.Paths != 0:
			p.t.Fatalf("paths %s after %s within a generation\n%s", f.Paths, was.Paths, p.reasons())
		}
		p.begun[f.Destination] = f
	}
	seq := uint64(0)
	for i, d := range p.e.Decisions(0, 1<<20) {
		if i > 0 && d.Sequence != seq+1 {
			p.t.Fatalf("decision %d after %d", d.Sequence, seq)
		}
		seq = d.Sequence
		if d.Reason == "" {
			p.t.Fatalf("decision %+v", d)
		}
	}
	if n := p.e.Next(); !n.IsZero() && n.Before(p.now.Add(-time.Millisecond)) {
		p.e.Tick(p.now)
		p.deliver()
		if n := p.e.Next(); !n.IsZero() && n.Before(p.now) {
			p.t.Fatalf("the engine asks for a tick in the past, %s", p.now.Sub(n))
		}
	}
}

func run(t *testing.T, script []byte) {
	p := &play{
		world: pair(t, func(c *Config) { c.Forget = 20 * time.Second }), script: script,
		begun: map[netip.Addr]api.Flow{},
	}
	p.clock["a2"] = 0
	for len(p.script) > 0 {
		p.step()
	}
	// Once all faults are repaired, the senders have the desired sets.
	clear(p.deaf)
	for _, name := range []string{"a", "b"} {
		p.hello(name)
	}
	for i := range 4 {
		if i > 0 {
			p.pass(time.Second)
		}
		for _, name := range []string{"a", "a2", "b"} {
			if p.e.Known(name) {
				p.report(name)
			}
		}
	}
	p.check()
	for _, f := range p.e.Flows() {
		if f.Sender == "" {
			continue
		}
		if !f.Applied || pathset.Set(p.told[f.Sender][f.Destination]) != f.Paths {
			t.Fatalf("%+v is not in force: %#x\n%s", f, p.told[f.Sender][f.Destination], p.reasons())
		}
	}
}

// Random sequences of events never leave a duplicating flow without paths, never act on another
// generation, and end with the desired path sets at the senders.
func TestProperties(t *testing.T) {
	for seed := range 400 {
		r := rand.New(rand.NewPCG(uint64(seed), 1))
		script := make([]byte, 50+r.IntN(800))
		for i := range script {
			script[i] = byte(r.Uint32())
		}
		if !t.Run("", func(t *testing.T) { run(t, script) }) {
			t.Fatalf("seed %d", seed)
		}
	}
}

func FuzzEngine(f *testing.F) {
	f.Add([]byte("start, trim, stop"))
	f.Fuzz(func(t *testing.T, script []byte) {
		if len(script) > 4096 {
			return
		}
		run(t, script)
	})
}

// FuzzRestore checks that arbitrary bytes as state never break the engine.
func FuzzRestore(f *testing.F) {
	w := pair(f, nil)
	w.live(time.Second, 33*time.Millisecond)
	w.trouble()
	b, err := json.Marshal(w.e.State(10))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(`{"flows":[{"destination":"::1","mode":"auto","state":"single","paths":[1],"generation":18446744073709551615}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var s State
		if json.Unmarshal(b, &s) != nil {
			return
		}
		e := New(DefaultConfig())
		now := time.Unix(1_700_000_000, 0)
		if e.Restore(now, s) != nil {
			return
		}
		for range 20 {
			e.Tick(now)
			e.Take()
			now = now.Add(time.Second)
		}
		if n := e.Next(); !n.IsZero() && n.Before(now.Add(-time.Second)) {
			t.Errorf("the engine asks for a tick in the past")
		}
	})
}

func TestRestore(t *testing.T) {
	w := pair(t, nil)
	w.live(time.Second, 33*time.Millisecond)
	w.trouble()
	w.report("a")
	_ = w.eliminate(3, 4)
	w.report("a")
	w.mode(api.Auto, 1, 2, 5)
	want := w.flow()
	w.restart()
	got := w.flow()
	want.Live, want.Interval, want.Since, got.Since = false, 0, time.Time{}, time.Time{} // start over
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v\nwant %+v", got, want)
	}
	if err := w.eliminate(1); err != nil || w.flow().Paths != pathset.Of(2, 5) {
		t.Errorf("%v, paths %s", err, w.flow().Paths)
	}
	t.Run("another mode is configured", func(t *testing.T) {
		w := pair(t, nil)
		w.live(time.Second, 33*time.Millisecond)
		w.trouble()
		conf := DefaultConfig()
		conf.Mode = api.Off
		e := New(conf)
		if err := e.Restore(w.now, w.e.State(0)); err != nil {
			t.Fatal(err)
		}
		if f, _ := e.Flow(viewer); f.Mode != api.Off || f.Paths != 0 {
			t.Errorf("%+v", f)
		}
	})
}

func TestRestoreRefuses(t *testing.T) {
	flow := func(mode api.Mode, state api.State, paths pathset.Set) State {
		return State{Flows: []KeptFlow{{Flow: api.Flow{Destination: viewer, Mode: mode, State: state, Paths: paths}}}}
	}
	for name, s := range map[string]State{
		"edge":                 {Edges: []api.EdgeStatus{{}}},
		"flow to nowhere":      {Flows: []KeptFlow{{Flow: api.Flow{Mode: api.Auto, State: api.Armed}}}},
		"mode":                 flow("x", api.Armed, 0),
		"state":                flow(api.Auto, "x", 0),
		"duplicating nowhere":  flow(api.Auto, api.Duplicating, 0),
		"single of two":        flow(api.Auto, api.Single, 3),
		"decisions out of row": {Sequence: 5, Decisions: []api.Decision{{Sequence: 2}, {Sequence: 2}}},
		"decisions to come":    {Sequence: 5, Decisions: []api.Decision{{Sequence: 6}}},
	} {
		if err := New(DefaultConfig()).Restore(time.Now(), s); err == nil {
			t.Errorf("%s: restored", name)
		}
	}
}

func BenchmarkUplink(b *testing.B) {
	w := pair(b, nil)
	for i := range 500 {
		o := api.Observation{Time: 1, Source: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 9, byte(i >> 8), byte(i)}),
			1)}
		_ = w.e.Uplink(w.now, "b", []api.Observation{o})
	}
	o := []api.Observation{{Source: request}}
	for b.Loop() {
		w.now = w.now.Add(33 * time.Millisecond)
		o[0].Time = w.now.UnixNano()
		_ = w.e.Uplink(w.now, "b", o)
	}
}

func BenchmarkReport(b *testing.B) {
	w := pair(b, nil)
	for i := range 500 {
		o := api.Observation{Time: 1, Source: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 9, byte(i >> 8), byte(i)}),
			1)}
		_ = w.e.Uplink(w.now, "b", []api.Observation{o})
	}
	for b.Loop() {
		w.now = w.now.Add(time.Second)
		w.report("a")
	}
}
