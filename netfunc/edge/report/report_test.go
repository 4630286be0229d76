package report

import (
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"holocast/internal/leaktest"
	"holocast/netfunc/api"
	"holocast/netfunc/pathset"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// controller is a fake controller that records the calls.
type controller struct {
	t       *testing.T
	address string
	server  *http.Server
	every   int // report interval, ms

	mu           sync.Mutex
	known        bool
	hellos       int
	reports      int
	last         api.Report
	uplink       []api.Observation
	eliminations []api.Elimination
	calls        int // about eliminations
	left         bool
	refuse       map[string]*api.Problem     // by the last element of the path
	refuseOne    map[netip.Addr]*api.Problem // eliminations by destination
	updates      chan api.Update
}

func newController(t *testing.T) *controller {
	c := &controller{
		t: t, address: "127.0.0.1:0", every: 20, refuse: map[string]*api.Problem{},
		updates: make(chan api.Update, 16),
	}
	c.start()
	t.Cleanup(c.stop)
	return c
}

// start listens (on the same port as before stop) and forgets the edges.
func (c *controller) start() {
	c.t.Helper()
	ln, err := net.Listen("tcp", c.address)
	if err != nil {
		c.t.Fatal(err)
	}
	c.address = ln.Addr().String()
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/edges", func(w http.ResponseWriter, r *http.Request) {
		c.told(w, r, "edges", &api.Edge{}, func(any) { c.known = true; c.hellos++ })
		_ = json.NewEncoder(w).Encode(api.Welcome{ReportInterval: c.every})
	})
	mux.HandleFunc("POST /v1/edges/london/report", func(w http.ResponseWriter, r *http.Request) {
		c.told(w, r, "report", &api.Report{}, func(v any) { c.reports++; c.last = *v.(*api.Report) })
	})
	mux.HandleFunc("POST /v1/edges/london/uplink", func(w http.ResponseWriter, r *http.Request) {
		c.told(w, r, "uplink", &api.Uplink{},
			func(v any) { c.uplink = append(c.uplink, v.(*api.Uplink).Observations...) })
	})
	mux.HandleFunc("POST /v1/edges/london/eliminations", func(w http.ResponseWriter, r *http.Request) {
		var told api.Eliminations
		if c.told(w, r, "eliminations", &told, func(any) {
			c.eliminations = append(c.eliminations, told.Eliminations...)
			c.calls++
		}) {
			out := make([]api.Outcome, len(told.Eliminations))
			for i, e := range told.Eliminations {
				out[i] = api.Outcome{Destination: e.Destination, Problem: c.refuseOne[e.Destination]}
			}
			_ = json.NewEncoder(w).Encode(api.OutcomeList{Outcomes: out})
		}
	})
	mux.HandleFunc("DELETE /v1/edges/london", func(w http.ResponseWriter, r *http.Request) {
		c.told(w, r, "london", nil, func(any) { c.left = true })
	})
	mux.HandleFunc("GET /v1/edges/london/watch", func(w http.ResponseWriter, r *http.Request) {
		if !c.told(w, r, "watch", nil, func(any) {}) {
			return
		}
		for {
			select {
			case <-r.Context().Done():
				return
			case u := <-c.updates:
				_ = json.NewEncoder(w).Encode(u)
				w.(http.Flusher).Flush()
			}
		}
	})
	c.server = &http.Server{Handler: mux}
	go c.server.Serve(ln) //nolint:errcheck // ends with stop
}

func (c *controller) stop() {
	_ = c.server.Close()
	c.mu.Lock()
	c.known = false
	c.mu.Unlock()
}

// told decodes a request into v and calls take, unless it must refuse the request.
func (c *controller) told(w http.ResponseWriter, r *http.Request, call string, v any, take func(any)) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.refuse[call]
	if p == nil && !c.known && call != "edges" {
		p = &api.Problem{Type: api.TypeUnknownEdge, Title: "unknown edge", Status: 404}
	}
	if p != nil {
		w.WriteHeader(p.Status)
		_ = json.NewEncoder(w).Encode(p)
		return false
	}
	if v != nil {
		if err := json.NewDecoder(r.Body).Decode(v); err != nil {
			c.t.Error(err)
		}
	}
	take(v)
	return true
}

func (c *controller) until(what string, ok func() bool) {
	c.t.Helper()
	for limit := time.Now().Add(2 * time.Minute); ; time.Sleep(2 * time.Millisecond) {
		c.mu.Lock()
		done := ok()
		c.mu.Unlock()
		if done {
			return
		}
		if time.Now().After(limit) {
			c.t.Fatalf("%s: not reached", what)
		}
	}
}

// start runs a reporter, whose updates go to updates.
func start(t *testing.T, c *controller) (r *Reporter, updates chan api.Update) {
	return startWith(t, c, func(*Reporter) {})
}

// startWith calls do with the reporter before it runs.
func startWith(t *testing.T, c *controller, do func(*Reporter)) (r *Reporter, updates chan api.Update) {
	client, err := api.NewClient(api.Options{URL: "http://" + c.address, Timeout: 2 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	updates = make(chan api.Update, 64)
	r = &Reporter{
		Client: client, Name: "london", Log: slog.New(slog.DiscardHandler),
		Hello:  func(context.Context) api.Edge { return api.Edge{Name: "london", Role: api.Both} },
		Report: func() api.Report { return api.Report{Nonce: 7} },
		Update: func(u api.Update) { updates <- u },
	}
	do(r)
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { r.Run(ctx) })
	t.Cleanup(func() { stop(); wg.Wait(); client.Close() })
	return r, updates
}

var (
	viewer  = netip.MustParseAddr("10.9.0.2")
	request = netip.AddrPortFrom(viewer, 40000)
)

func TestConversation(t *testing.T) {
	c := newController(t)
	r, updates := start(t, c)
	if u := <-updates; !u.Snapshot {
		t.Errorf("%+v came before a snapshot", u)
	}
	c.until("reports", func() bool { return c.hellos == 1 && c.reports >= 3 && c.last.Nonce == 7 })

	for i := range 1000 {
		r.Uplink(api.Observation{Time: int64(i)})
	}
	c.until("uplink", func() bool { return len(c.uplink) == 1000 })
	if !slices.IsSortedFunc(c.uplink, func(a, b api.Observation) int { return int(a.Time - b.Time) }) {
		t.Error("observations arrived out of order")
	}

	r.Eliminate(api.Elimination{
		Destination: viewer, Generation: 3, Removed: pathset.Of(2),
		Remaining: pathset.Of(1, 3),
	})
	c.until("elimination", func() bool { return len(c.eliminations) == 1 && c.eliminations[0].Generation == 3 })

	c.updates <- api.Update{Flows: []api.Flow{{Destination: viewer, Paths: pathset.Of(1, 3), Generation: 3}}}
	c.updates <- api.Update{} // a keep-alive
	c.updates <- api.Update{Removed: []netip.Addr{viewer}}
	if u := <-updates; len(u.Flows) != 1 || u.Flows[0].Paths != pathset.Of(1, 3) {
		t.Errorf("update %+v", u)
	}
	if u := <-updates; len(u.Removed) != 1 {
		t.Errorf("update %+v, want the removal", u)
	}
	if err := r.Leave(t.Context()); err != nil || !c.left {
		t.Errorf("leave: %v", err)
	}
}

// TestSoon checks that an immediate report does not wait for the interval.
func TestSoon(t *testing.T) {
	c := newController(t)
	c.every = 3_600_000
	r, _ := start(t, c)
	for n := 1; n < 20; n++ {
		c.until("report", func() bool { return c.reports >= n })
		r.Soon()
	}
}

// TestControllerRestarts checks that the edge registers again and delivers its pending messages.
func TestControllerRestarts(t *testing.T) {
	c := newController(t)
	r, updates := start(t, c)
	<-updates
	c.until("reports", func() bool { return c.reports > 0 })
	c.stop()
	for limit := time.Now().Add(2 * time.Minute); r.Status().Connected; time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatal("the loss was not noticed")
		}
	}
	if s := r.Status(); s.Error == "" || s.Failures == 0 {
		t.Errorf("%+v, want an error", s)
	}
	for i := range 20 {
		r.Uplink(api.Observation{Time: int64(i), Source: request})
	}
	r.Eliminate(api.Elimination{
		Destination: viewer, Generation: 3, Removed: pathset.Of(2),
		Remaining: pathset.Of(1, 3),
	})
	r.Eliminate(api.Elimination{
		Destination: viewer, Generation: 3, Removed: pathset.Of(3), Remaining: pathset.Of(1),
		Single: true,
	})
	c.start()
	if u := <-updates; !u.Snapshot {
		t.Errorf("%+v came before a snapshot", u)
	}
	c.until("the elimination", func() bool { return len(c.eliminations) == 1 })
	if e := c.eliminations[0]; e.Removed != pathset.Of(2, 3) || e.Remaining != pathset.Of(1) || !e.Single {
		t.Errorf("%+v, want both eliminations in one", e)
	}
	// The controller learns of the viewer even if it has fallen silent.
	c.until("the newest observations", func() bool { return len(c.uplink) == recalled })
	if c.uplink[0].Time != 20-recalled || c.uplink[recalled-1].Time != 19 {
		t.Errorf("observations %+v", c.uplink)
	}
	if s := r.Status(); s.UplinkLost != 20 {
		t.Errorf("%+v", s)
	}
	c.until("a second hello", func() bool { return c.hellos == 2 })
}

// TestForgotten checks that an edge unknown to the controller registers again.
func TestForgotten(t *testing.T) {
	c := newController(t)
	_, updates := start(t, c)
	<-updates
	c.until("reports", func() bool { return c.reports > 0 })
	c.mu.Lock()
	c.known = false
	c.mu.Unlock()
	<-updates
	c.until("a second hello", func() bool { return c.hellos == 2 && c.known })
}

func TestRefused(t *testing.T) {
	for name, p := range map[string]struct {
		problem *api.Problem
		status  func(Status) bool
	}{
		"stale": {
			&api.Problem{Type: api.TypeStale, Title: "stale", Status: 409},
			func(s Status) bool { return s.Stale == 1 && s.Connected },
		},
		"no flow": {
			&api.Problem{Type: api.TypeUnknownFlow, Title: "unknown flow", Status: 404},
			func(s Status) bool { return s.Stale == 0 && s.Connected },
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newController(t)
			c.refuse["eliminations"] = p.problem
			r, updates := start(t, c)
			<-updates
			r.Eliminate(api.Elimination{Destination: viewer, Generation: 1, Removed: pathset.Of(2)})
			c.until("told and refused", func() bool {
				r.mu.Lock()
				defer r.mu.Unlock()
				return len(r.eliminations) == 0
			})
			c.until("status", func() bool { return p.status(r.Status()) })
			c.until("further reports", func() bool { return c.reports > 3 && c.hellos == 1 })
		})
	}
}

// TestTogether checks that pending outcomes are sent in one call, and that a refused one does not delay
// the others.
func TestTogether(t *testing.T) {
	c := newController(t)
	gone := netip.MustParseAddr("10.9.1.7")
	c.refuseOne = map[netip.Addr]*api.Problem{gone: {Type: api.TypeUnknownFlow, Title: "unknown flow", Status: 404}}
	r, _ := startWith(t, c, func(r *Reporter) {
		for i := range 300 {
			r.Eliminate(api.Elimination{
				Destination: netip.AddrFrom4([4]byte{10, 9, byte(i >> 8), byte(i)}),
				Generation:  1, Removed: pathset.Of(2),
			})
		}
	})
	c.until("all delivered", func() bool { return len(c.eliminations) == 300 })
	c.until("status", func() bool { s := r.Status(); return s.Eliminations == 299 && s.Connected })
	if c.calls != 2 {
		t.Errorf("%d calls", c.calls)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.eliminations); n != 0 {
		t.Errorf("%d wait still", n)
	}
}

// TestToken checks that a wrong token is reported and retried.
func TestToken(t *testing.T) {
	c := newController(t)
	c.refuse["edges"] = &api.Problem{Title: "Unauthorized", Status: 401, Detail: "the token is wrong"}
	r, updates := start(t, c)
	for limit := time.Now().Add(2 * time.Minute); r.Status().Error == ""; time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatal("no error")
		}
	}
	c.mu.Lock()
	delete(c.refuse, "edges")
	c.mu.Unlock()
	<-updates
}
