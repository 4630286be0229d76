package policy

import (
	"encoding/json"
	"net/netip"
	"testing"
	"time"

	"holocast/netfunc/api"
	"holocast/netfunc/pathset"
	"holocast/netfunc/signal"
)

var (
	viewer  = netip.MustParseAddr("10.9.0.7")
	request = netip.MustParseAddrPort("10.9.0.7:40000")
	server  = netip.MustParseAddrPort("10.1.0.2:4443")
)

// world is an engine with a manual clock, and edges that report the path sets signalled to them.
type world struct {
	t      testing.TB
	e      *Engine
	now    time.Time
	paths  map[string][]api.Path            // for the edges' next reports
	told   map[string]map[netip.Addr]uint8  // policy maps of the senders
	nonce  uint64                           // of the last signalling packet
	deaf   map[string]bool                  // edges that signalling packets do not reach
	slow   map[string]bool                  // receivers that do not confirm
	plain  map[string]api.Route             // plain route of the viewer's flow, by edge
	sent   []Signal                         // since the last look
	log    []api.Decision                   // since the last look
	clock  map[string]time.Duration         // lead of the edges' clocks
	nonces map[string]map[netip.Addr]uint64 // of the entries in the policy maps
}

func newWorld(t testing.TB, conf Config) *world {
	t.Helper()
	if err := conf.Validate(); err != nil {
		t.Fatal(err)
	}
	return &world{
		t: t, e: New(conf), now: time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC),
		paths: map[string][]api.Path{}, told: map[string]map[netip.Addr]uint8{}, deaf: map[string]bool{},
		slow: map[string]bool{}, plain: map[string]api.Route{},
		clock: map[string]time.Duration{"a": time.Hour, "b": 5 * time.Hour}, nonces: map[string]map[netip.Addr]uint64{},
	}
}

// pair returns a world with sender a and receiver b over five paths as in Table I of the paper, and
// no flow.
func pair(t testing.TB, change func(*Config)) *world {
	t.Helper()
	conf := DefaultConfig()
	if change != nil {
		change(&conf)
	}
	w := newWorld(t, conf)
	w.join()
	return w
}

func (w *world) join() {
	w.t.Helper()
	w.hello("a")
	w.hello("b")
	w.report("a")
	w.report("b")
	w.look()
}

func (w *world) hello(name string) {
	w.t.Helper()
	if w.paths[name] == nil {
		for i, rtt := range []float64{20, 30, 100, 105, 35} {
			w.paths[name] = append(w.paths[name], api.Path{Index: i + 1, Interface: "p", Up: true, RTT: rtt})
		}
	}
	h := api.Edge{Name: name, Paths: w.paths[name]}
	if name[0] == 'a' {
		h.Role, h.Signal, h.SignalVersion = api.Sender, netip.MustParseAddrPort("10.1.0.1:4790"), signal.Version
		h.Towards = []netip.Prefix{netip.MustParsePrefix("10.9.0.0/16"), netip.MustParsePrefix("2001:db8:9::/48")}
	} else {
		h.Role = api.Receiver
		h.Behind = []netip.Prefix{netip.MustParsePrefix("10.9.0.0/16"), netip.MustParsePrefix("2001:db8:9::/48")}
	}
	if err := w.e.Hello(w.now, h); err != nil {
		w.t.Fatal(err)
	}
	w.deliver()
}

// set changes a path in an edge's next reports.
func (w *world) set(name string, index int, change func(*api.Path)) {
	paths := append([]api.Path(nil), w.paths[name]...)
	change(&paths[index-1])
	w.paths[name] = paths
}

func (w *world) report(name string) {
	w.t.Helper()
	r := api.Report{Paths: w.paths[name], Nonce: w.nonce}
	r.Ready = w.ready(name)
	for dst, paths := range w.told[name] {
		r.Policies = append(r.Policies, api.Policy{
			Destination: dst, Paths: pathset.Set(paths),
			Nonce: w.nonces[name][dst],
		})
	}
	if route, ok := w.plain[name]; ok {
		route.Destination = viewer
		r.Routes = []api.Route{route}
	}
	if err := w.e.Report(w.now, name, r); err != nil {
		w.t.Fatal(err)
	}
	w.deliver()
}

// ready returns the flows whose replicas a receiver eliminates.
func (w *world) ready(name string) (out []netip.Addr) {
	for _, f := range w.e.Flows() {
		if f.Receiver == name && !w.slow[name] {
			out = append(out, f.Destination)
		}
	}
	return out
}

// deliver delivers signalling packets to the edges.
func (w *world) deliver() {
	for _, name := range w.e.names() {
		if c := w.e.edges[name]; c.Role.Receives() && !c.Lost { // receivers learn of the flow and confirm immediately
			c.ready = map[netip.Addr]bool{}
			for _, dst := range w.ready(name) {
				c.ready[dst] = true
			}
			w.e.confirmed(w.now, c)
		}
	}
	fx := w.e.Take()
	w.log = append(w.log, fx.Decisions...)
	for _, s := range fx.Signals {
		w.nonce++
		w.e.Sent(w.now, s, w.nonce)
		w.sent = append(w.sent, s)
		if w.deaf[s.Edge] {
			continue
		}
		if w.told[s.Edge] == nil {
			w.told[s.Edge], w.nonces[s.Edge] = map[netip.Addr]uint8{}, map[netip.Addr]uint64{}
		}
		w.told[s.Edge][s.Destination], w.nonces[s.Edge][s.Destination] = uint8(s.Paths), w.nonce
	}
}

// pass advances the clock, ticking when the engine asks.
func (w *world) pass(d time.Duration) {
	w.t.Helper()
	end := w.now.Add(d)
	for n := 0; ; n++ {
		next := w.e.Next()
		if next.IsZero() || next.After(end) {
			break
		}
		if next.After(w.now) {
			w.now, n = next, 0
		}
		w.e.Tick(w.now)
		w.deliver()
		if n > 3 {
			w.t.Fatalf("the engine repeatedly asks for a tick at %s", next)
		}
	}
	w.now = end
}

// live advances the clock while both edges report and edge b sees viewer packets at the given
// interval.
func (w *world) live(d, interval time.Duration) {
	w.t.Helper()
	reports := w.now.Add(500 * time.Millisecond)
	for end := w.now.Add(d); w.now.Before(end); {
		w.pass(interval)
		w.see("b")
		if !w.now.Before(reports) {
			reports = w.now.Add(500 * time.Millisecond)
			w.report("a")
			w.report("b")
		}
	}
}

// restart moves the state to a new engine via JSON.
func (w *world) restart() {
	b, err := json.Marshal(w.e.State(100))
	if err != nil {
		w.t.Fatal(err)
	}
	var s State
	if err := json.Unmarshal(b, &s); err != nil {
		w.t.Fatal(err)
	}
	before := w.e.Flows()
	w.e = New(w.e.conf)
	if err := w.e.Restore(w.now, s); err != nil {
		w.t.Fatalf("%v\n%s", err, b)
	}
	w.deliver()
	for i, f := range w.e.Flows() {
		if f.Paths != before[i].Paths || f.Generation != before[i].Generation {
			w.t.Fatalf("restart made %+v of %+v", f, before[i])
		}
	}
}

// see makes an edge's uplink monitor see a packet.
func (w *world) see(name string) {
	w.t.Helper()
	o := api.Observation{Time: w.now.Add(w.clock[name]).UnixNano(), Source: request, Destination: server, Length: 240}
	if err := w.e.Uplink(w.now, name, []api.Observation{o}); err != nil {
		w.t.Fatal(err)
	}
	w.deliver()
}

// trouble fires the trigger. Edge b must have seen a packet before.
func (w *world) trouble() {
	w.t.Helper()
	for range 3 {
		w.pass(160 * time.Millisecond)
		w.see("b")
	}
}

func (w *world) flow() api.Flow {
	f, _ := w.e.Flow(viewer)
	return f
}

// eliminate makes edge b remove paths of the current generation.
func (w *world) eliminate(removed ...int) error { return w.eliminateLossy(0, removed...) }

// eliminateLossy is like eliminate, but reports that the paths in lossy did not deliver the flow.
func (w *world) eliminateLossy(lossy pathset.Set, removed ...int) error {
	f := w.flow()
	r := pathset.Of(removed...)
	_, err := w.e.Eliminate(w.now, "b", api.Elimination{
		Destination: viewer, Generation: f.Generation, Removed: r,
		Remaining: f.Paths &^ r, Lossy: lossy,
	})
	w.deliver()
	return err
}

// look returns the kinds of decisions and the path sets signalled since the last call.
func (w *world) look() (kinds []string, signalled []pathset.Set) {
	for _, d := range w.log {
		kinds = append(kinds, d.Kind)
	}
	for _, s := range w.sent {
		signalled = append(signalled, s.Paths)
	}
	w.log, w.sent = nil, nil
	return
}
