package cluster

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"holocast/internal/moqt"
	"holocast/internal/sessiontest"
	"holocast/relay/auth/authtest"
)

// regions starts a cluster of tables with n relays in each of two regions: e0… and w0….
func regions(t *testing.T, n int) *world {
	w := newWorld(t)
	for i := range n {
		w.startIn("e", i)
		w.startIn("w", i)
	}
	w.pass(gatewayAfter + time.Second)
	return w
}

func (w *world) startIn(region string, i int) {
	id := fmt.Sprint(region, i)
	w.start(id, Info{Name: id, Region: region, URL: "moqt://" + id})
}

// gateways returns the gateway of each of n sessions at e0, according to all relays of region w.
func (w *world) gateways(n int) map[string]string {
	w.t.Helper()
	all := map[string]string{}
	for id, table := range w.tables {
		table.Changes()
		for i := range n {
			name := fmt.Sprint(i)
			route := table.routes[moqt.Namespace{"holocast", name}.String()]
			if id[0] == 'e' {
				if route.Via != "" || route.Onward {
					w.t.Errorf("%s, in the region of the publisher, has route %+v", id, route)
				}
				continue
			}
			gateway := route.Via
			if route.Onward {
				gateway = id
			}
			if route.ID != "e0" || gateway == "" || all[name] != "" && all[name] != gateway {
				w.t.Errorf("%s has route %+v, others have gateway %q", id, route, all[name])
			}
			all[name] = gateway
		}
	}
	return all
}

// TestGateways checks that a region receives each session once, through the same gateway, and that few
// sessions move when relays come and go.
func TestGateways(t *testing.T) {
	const sessions = 60
	w := regions(t, 3)
	var names []string
	for i := range sessions {
		names = append(names, fmt.Sprint(i))
	}
	w.publish("e0", names...)
	before := w.gateways(sessions)
	share := map[string]int{}
	for _, id := range before {
		share[id]++
	}
	if len(share) != 3 || slices.Min(slices.Collect(maps.Values(share))) < sessions/6 {
		t.Errorf("sessions by gateway: %v", share)
	}
	moved := func(what, from, to string) {
		t.Helper()
		after := w.gateways(sessions)
		n := 0
		for name, id := range after {
			if id == before[name] {
				continue
			}
			if n++; from != "" && before[name] != from || to != "" && id != to {
				t.Errorf("%s: session %s moves from %s to %s", what, name, before[name], id)
			}
		}
		if n == 0 {
			t.Errorf("%s: no session moves", what)
		}
		before = after
	}
	w.tables["w0"].Suspect("w1", true)
	w.tables["w0"].Changes()
	for _, route := range w.tables["w0"].routes {
		if route.Via == "w1" || route.Onward && before[route.Namespace[1]] != "w0" {
			t.Errorf("while w1 does not answer: %+v", route)
		}
	}
	w.tables["w0"].Suspect("w1", false)
	w.gateways(sessions)
	delete(w.tables, "w1")
	w.pass(Silence + Heartbeat)
	moved("a relay was killed", "w1", "")
	w.startIn("w", 1)
	w.pass(time.Second)
	for id, table := range w.tables { // the new relay is not yet a gateway for others
		table.Changes()
		for _, route := range table.routes {
			if route.Via == "w1" {
				t.Errorf("%s: %+v", id, route)
			}
		}
	}
	w.pass(gatewayAfter)
	moved("a relay joined", "", "w1")
	w.send("w1", w.tables["w1"].SetLoad(Load{Leaving: true}))
	delete(w.tables, "w1") // its own view does not matter anymore
	moved("a relay leaves", "w1", "")
}

// TestRequestsEnd checks that with any routes, a viewer's request passes two relays at most
// beyond the viewer's own, and none twice.
func TestRequestsEnd(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 1))
		w := regions(t, 3)
		w.loss = func() bool { return r.IntN(3) == 0 }
		ids := slices.Sorted(maps.Keys(w.tables))
		for range 100 {
			id := ids[r.IntN(len(ids))]
			switch r.IntN(4) {
			case 0:
				w.cut[id] = !w.cut[id]
			case 1:
				w.pass(time.Duration(r.IntN(2000)) * time.Millisecond)
			default:
				w.publish(id, [][]string{{"one"}, {}}[r.IntN(2)]...)
			}
			for _, at := range ids {
				if path := w.request(at, "one"); len(path) > 3 {
					t.Fatalf("seed %d: a request takes the path %v", seed, path)
				}
			}
		}
	}
}

// request returns the relays that a request for a session reaches, as the router serves them.
func (w *world) request(at, name string) (path []string) {
	key := moqt.Namespace{"holocast", name}.String()
	for from := ""; ; {
		table := w.tables[at]
		table.Changes()
		path = append(path, at)
		route := table.routes[key]
		_, own := table.local[key]
		if own || route.ID == "" || from != "" && (!route.Onward || !table.Near(from)) || len(path) > 9 {
			return path
		}
		from, at = at, route.next()
	}
}

// TestOneCopyPerRegion checks that the viewers of a region share one subscription at the publisher's relay,
// and continue when the gateway leaves.
func TestOneCopyPerRegion(t *testing.T) {
	cfg := Config{Secret: authtest.SecretFile(t), Listen: "127.0.0.1:0", Region: "east"}
	a := startNode(t, cfg)
	cfg.Join, cfg.Region = []string{a.Stats().Listen}, "west"
	west := map[string]*node{}
	for range 3 {
		n := startNode(t, cfg)
		west[n.name] = n
	}
	tr := a.publish("one")
	settled := func() (gateway string) {
		sessiontest.Until(t, "a common gateway", func() bool {
			count := map[string]int{}
			for _, n := range west {
				for _, route := range n.routes() {
					switch {
					case route.Onward:
						count[n.id]++
					case route.Via != "":
						count[route.Via]++
					}
				}
			}
			for _, n := range west {
				if count[n.id] == len(west) {
					gateway = n.name
					return true
				}
			}
			return false
		})
		return gateway
	}
	group := uint64(time.Now().UnixMilli())
	watch := func() {
		t.Helper()
		for _, n := range west {
			group++
			n.receives(tr, group)
		}
	}
	gateway := settled()
	for _, n := range west {
		sub, err := n.dial(moqt.Handler{}).Subscribe(t.Context(), tr.Name(), moqt.SubscribeOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer sub.Cancel()
	}
	watch()
	if n := a.viewers(tr.Name()); n != 1 {
		t.Errorf("%d subscriptions at the publisher's relay, want the gateway's", n)
	}
	west[gateway].Leave(false)
	delete(west, gateway)
	if next := settled(); next == gateway {
		t.Errorf("%s is still the gateway", gateway)
	}
	watch()
}

// routes lists the relay's routes.
func (n *node) routes() []Route {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Collect(maps.Values(n.table.routes))
}

// viewers returns the number of a track's subscriptions at the relay.
func (n *node) viewers(name moqt.TrackName) int {
	tracks, _ := n.r.Stats()
	for _, t := range tracks {
		if t.Name.String() == name.String() {
			return t.Viewers
		}
	}
	return 0
}
