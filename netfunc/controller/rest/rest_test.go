package rest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"holocast/internal/leaktest"
	"holocast/netfunc/api"
	"holocast/netfunc/controller/control"
	"holocast/netfunc/controller/policy"
	"holocast/netfunc/pathset"
	"holocast/netfunc/signal"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

const (
	token     = "operator-token-of-the-tests"
	edgeToken = "edge-token-of-the-tests"
	ownToken  = "own-token-of-edge-london"
)

var key = bytes.Repeat([]byte{7}, signal.KeySize)

// controller is a server under test, with a UDP socket in place of the sender.
type controller struct {
	*httptest.Server
	plane *control.Plane
	udp   *net.UDPConn
	t     testing.TB
}

func start(t testing.TB, change func(*Config)) *controller {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	conduct := policy.DefaultConfig()
	conduct.ReportInterval = time.Hour // no edge is lost on a slow machine
	plane, err := control.New(control.Config{Policy: conduct, Key: key, Version: "test", Log: log})
	if err != nil {
		t.Fatal(err)
	}
	conf := Config{
		Auth: Auth{Token: token, EdgeToken: edgeToken, Edges: map[string]string{
			"london": ownToken,
			"paris":  "own-token-of-edge-paris",
		}}, MaxBody: 64 << 10, KeepAlive: 50 * time.Millisecond, Log: log,
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "metrics") }),
	}
	if change != nil {
		change(&conf)
	}
	udp, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	srv := httptest.NewUnstartedServer(New(conf, plane))
	srv.Config.BaseContext = func(net.Listener) context.Context { return ctx }
	srv.Start()
	var wg sync.WaitGroup
	wg.Go(func() { _ = plane.Run(ctx) })
	t.Cleanup(func() {
		stop()
		srv.Close()
		wg.Wait()
		plane.Close()
		_ = udp.Close()
	})
	return &controller{srv, plane, udp, t}
}

// client returns a client with a token.
func (c *controller) client(token string) *api.Client {
	c.t.Helper()
	client, err := api.NewClient(api.Options{URL: c.URL, Token: token, Timeout: 2 * time.Minute})
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(client.Close)
	return client
}

// edges returns sender a, signalled at the UDP socket, and receiver b.
func (c *controller) edges() (a, b api.Edge) {
	paths := []api.Path{
		{Index: 1, Interface: "p1", Up: true, RTT: 20},
		{Index: 2, Interface: "p2", Up: true, RTT: 30},
		{Index: 3, Interface: "p3", Up: true, RTT: 100},
	}
	prefix := []netip.Prefix{netip.MustParsePrefix("10.9.0.0/16")}
	return api.Edge{
			Name: "a", Role: api.Sender, Signal: c.udp.LocalAddr().(*net.UDPAddr).AddrPort(),
			SignalVersion: signal.Version, Paths: paths, Towards: prefix,
		},
		api.Edge{Name: "b", Role: api.Receiver, Paths: paths, Behind: prefix}
}

func (c *controller) hello() *api.Client {
	c.t.Helper()
	client := c.client(edgeToken)
	a, b := c.edges()
	for _, e := range []api.Edge{a, b} {
		if _, err := client.Hello(c.t.Context(), e); err != nil {
			c.t.Fatal(err)
		}
	}
	if err := client.Report(c.t.Context(), "b", api.Report{Paths: b.Paths, Ready: []netip.Addr{viewer}}); err != nil {
		c.t.Fatal(err)
	}
	return client
}

// signalled returns the next signalling message.
func (c *controller) signalled() (signal.Message, error) {
	b := make([]byte, 100)
	_ = c.udp.SetReadDeadline(time.Now().Add(2 * time.Minute))
	n, err := c.udp.Read(b)
	if err != nil {
		return signal.Message{}, err
	}
	return signal.Parse(b[:n], signal.EdgeKey(key, "a"))
}

var (
	viewer  = netip.MustParseAddr("10.9.0.7")
	request = netip.MustParseAddrPort("10.9.0.7:40000")
)

// trouble returns the uplink observations of a flow in trouble.
func trouble() (seen []api.Observation) {
	for i := range 4 {
		seen = append(seen, api.Observation{
			Time: int64(i) * int64(200*time.Millisecond), Source: request,
			Destination: netip.MustParseAddrPort("10.1.0.2:4443"), Length: 240,
		})
	}
	return seen
}

// A flow's whole life, seen through the client.
func TestCourse(t *testing.T) {
	c := start(t, nil)
	edge, op, ctx := c.hello(), c.client(token), t.Context()

	if err := edge.Uplink(ctx, "b", trouble()); err != nil {
		t.Fatal(err)
	}
	m, err := c.signalled()
	if err != nil || m.Destination != viewer || m.Paths != 0b111 {
		t.Fatalf("%+v, %v", m, err)
	}
	report := func(paths pathset.Set, nonce uint64) {
		t.Helper()
		a, _ := c.edges()
		if err := edge.Report(ctx, "a", api.Report{
			Paths: a.Paths, Nonce: nonce,
			Policies: []api.Policy{{Destination: viewer, Paths: paths, Nonce: nonce}},
		}); err != nil {
			t.Fatal(err)
		}
	}
	report(0b111, m.Nonce)
	flows, err := op.Flows(ctx)
	if err != nil || len(flows) != 1 {
		t.Fatalf("%+v, %v", flows, err)
	}
	f := flows[0]
	if f.State != api.Duplicating || f.Paths != 0b111 || !f.Applied || !f.Live || f.Sender != "a" ||
		f.Receiver != "b" || f.Interval != 200 {
		t.Errorf("%+v", f)
	}

	outcomes, err := edge.Eliminate(ctx, "b", api.Elimination{
		Destination: viewer, Generation: f.Generation - 1,
		Removed: 0b100,
	},
		api.Elimination{
			Destination: viewer, Generation: f.Generation, Removed: 0b101, Remaining: 0b010,
			Rewards: []api.Reward{{Path: 2, Reward: 99, Window: 100}},
		})
	if err != nil || !errors.Is(outcomes[0].Err(), api.ErrStale) {
		t.Errorf("stale: %v, %v", outcomes, err)
	}
	if f := outcomes[1].Flow; f == nil || f.State != api.Single || f.Paths != 0b010 {
		t.Errorf("%+v", outcomes[1])
	}
	for m.Paths != 0b010 { // after repetitions of the first
		if m, err = c.signalled(); err != nil {
			t.Fatal(err)
		}
	}
	report(0b010, m.Nonce)

	if f, err = op.SetFlow(ctx, viewer, api.Setting{Mode: api.Off}); err != nil || f.State != api.Disabled {
		t.Errorf("%+v, %v", f, err)
	}
	for m.Paths != 0 {
		if m, err = c.signalled(); err != nil {
			t.Fatal(err)
		}
	}
	if err := op.UnsetFlow(ctx, viewer); err != nil {
		t.Error(err)
	}
	if err := op.UnsetFlow(ctx, netip.MustParseAddr("10.9.0.8")); !errors.Is(err, api.ErrUnknownFlow) {
		t.Error(err)
	}

	decisions, err := op.Decisions(ctx, 0)
	var kinds []string
	for i, d := range decisions {
		kinds = append(kinds, d.Kind)
		if d.Sequence != uint64(i+1) || d.Reason == "" || d.Time.IsZero() {
			t.Errorf("%+v", d)
		}
	}
	if want := []string{"edge", "edge", "start", "stale", "single", "operator", "operator"}; err != nil ||
		!slices.Equal(kinds, want) {
		t.Errorf("%v, %v, want %v", kinds, err, want)
	}
	if later, err := op.Decisions(ctx, 5); err != nil || len(later) != 2 {
		t.Errorf("%+v, %v", later, err)
	}
	s, err := op.Status(ctx)
	if err != nil || s.Edges != 2 || s.Flows != 1 || s.Sequence != 7 || s.Trigger.Interval != 150 || s.Signals < 3 {
		t.Errorf("%+v, %v", s, err)
	}
	edges, err := op.Edges(ctx)
	if err != nil || len(edges) != 2 || edges[0].Policies[0].Nonce == 0 {
		t.Errorf("%+v, %v", edges, err)
	}
	if err := edge.Leave(ctx, "b"); !errors.Is(err, api.ErrUnconfirmed) {
		t.Error(err)
	}
	_, b := c.edges()
	if _, err := edge.Hello(ctx, b); err != nil {
		t.Error(err)
	}
	report(0, uint64(time.Now().UnixNano()))
	if err := edge.Leave(ctx, "b"); err != nil {
		t.Error(err)
	}
	if err := edge.Report(ctx, "b", api.Report{}); !errors.Is(err, api.ErrUnknownEdge) {
		t.Error(err)
	}
}

func TestWatch(t *testing.T) {
	c := start(t, nil)
	edge, op := c.hello(), c.client(token)
	ctx, stop := context.WithCancel(t.Context())
	updates := make(chan api.Update, 100)
	done := make(chan error, 1)
	go func() {
		done <- edge.Watch(ctx, "b", func(u api.Update) error { updates <- u; return nil }, nil)
	}()
	next := func(want func(api.Update) bool) api.Update {
		t.Helper()
		for {
			select {
			case u := <-updates:
				if want(u) {
					return u
				}
			case <-time.After(2 * time.Minute):
				t.Fatal("no such update")
			}
		}
	}
	next(func(u api.Update) bool { return u.Snapshot && len(u.Flows) == 0 })
	next(func(u api.Update) bool { return !u.Snapshot && len(u.Flows) == 0 }) // keep-alive
	if err := edge.Uplink(ctx, "b", trouble()); err != nil {
		t.Fatal(err)
	}
	u := next(func(u api.Update) bool { return len(u.Flows) == 1 && u.Flows[0].State == api.Duplicating })
	if u.Flows[0].Paths != 0b111 || u.Flows[0].Generation == 0 {
		t.Errorf("%+v", u)
	}
	// b loses the flow to an edge with a longer prefix.
	_, b := c.edges()
	b.Name, b.Behind = "b2", []netip.Prefix{netip.MustParsePrefix("10.9.0.7/32")}
	if _, err := edge.Hello(ctx, b); err != nil {
		t.Fatal(err)
	}
	next(func(u api.Update) bool { return len(u.Removed) == 1 && u.Removed[0] == viewer })
	if _, err := op.SetFlow(ctx, viewer, api.Setting{Mode: api.Off}); err != nil {
		t.Fatal(err)
	}
	// The stream ends when the edge leaves. A new stream is then refused.
	if err := edge.Leave(ctx, "b"); err != nil {
		t.Fatal(err)
	}
	if err := <-done; !errors.Is(err, api.ErrUnknownEdge) {
		t.Errorf("%v", err)
	}
	// A stream ends when its caller disconnects.
	go func() { done <- edge.Watch(ctx, "a", func(api.Update) error { return nil }, nil) }()
	stop()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// Every call except the page and the health check requires credentials.
func TestAuthentication(t *testing.T) {
	c := start(t, nil)
	c.hello()
	call := func(method, path, authorization string) int {
		req, _ := http.NewRequestWithContext(t.Context(), method, c.URL+path, strings.NewReader("{}"))
		req.Header.Set("Content-Type", "application/json")
		if authorization != "" {
			req.Header.Set("Authorization", authorization)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode == http.StatusUnauthorized && !strings.HasPrefix(resp.Header.Get("WWW-Authenticate"),
			"Bearer ") {
			t.Errorf("%s %s: no WWW-Authenticate", method, path)
		}
		return resp.StatusCode
	}
	defer http.DefaultClient.CloseIdleConnections()
	for _, r := range routes() {
		path := strings.NewReplacer("{name}", "nobody", "{destination}", "10.9.0.99").Replace(r.path)
		for authorization, want := range map[string]int{
			"":                    http.StatusUnauthorized,
			"Bearer ":             http.StatusUnauthorized,
			"Bearer wrong":        http.StatusUnauthorized,
			"Basic " + token:      http.StatusUnauthorized,
			token:                 http.StatusUnauthorized,
			"Bearer " + edgeToken: map[access]int{operator: http.StatusForbidden}[r.who],
			"Bearer " + ownToken: map[bool]int{true: http.StatusForbidden}[r.who == operator ||
				strings.Contains(path, "nobody")],
			"Bearer " + token: 0,
			"bearer " + token: 0,
		} {
			got := call(r.method, path, authorization)
			switch {
			case got == http.StatusTooManyRequests && want == http.StatusUnauthorized: // throttled
			case r.who == open:
				if got != http.StatusOK {
					t.Errorf("%s %s with %q: %d", r.method, path, authorization, got)
				}
			case want == 0 && (got == http.StatusUnauthorized || got == http.StatusForbidden ||
				got == http.StatusTooManyRequests):
				t.Errorf("%s %s with %q: %d", r.method, path, authorization, got)
			case want != 0 && got != want:
				t.Errorf("%s %s with %q: %d, want %d", r.method, path, authorization, got, want)
			}
		}
	}
	if got := call("GET", "/", ""); got != http.StatusOK {
		t.Errorf("the page: %d", got)
	}
	if _, err := c.client("wrong-token-entirely").Status(t.Context()); !errors.Is(err, api.ErrUnauthorized) &&
		!strings.Contains(err.Error(), "too many attempts") {
		t.Error(err)
	}
}

// TestWhoseToken checks that an edge's token is valid only for its own name, and the common token
// only for names without a token of their own.
func TestWhoseToken(t *testing.T) {
	c := start(t, nil)
	a, b := c.edges()
	named := func(e api.Edge, name string) api.Edge { e.Name = name; return e }
	ctx := t.Context()
	all := c.client(token)
	for _, name := range []string{"london", "paris", "rome"} {
		if _, err := all.Hello(ctx, named(a, name)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := all.SetFlow(ctx, netip.MustParseAddr("10.9.0.7"), api.Setting{Mode: api.Duplicate}); err != nil {
		t.Fatal(err)
	}
	calls := map[string]func(*api.Client, string) error{
		"hello":  func(c *api.Client, name string) error { _, err := c.Hello(ctx, named(b, name)); return err },
		"report": func(c *api.Client, name string) error { return c.Report(ctx, name, api.Report{}) },
		"uplink": func(c *api.Client, name string) error { return c.Uplink(ctx, name, nil) },
		"elimination": func(c *api.Client, name string) error {
			outcomes, err := c.Eliminate(ctx, name, api.Elimination{Destination: netip.MustParseAddr("10.9.0.8")})
			if err == nil && !errors.Is(outcomes[0].Err(), api.ErrUnknownFlow) {
				return outcomes[0].Err()
			}
			return err
		},
		"watch": func(c *api.Client, name string) error {
			seen := errors.New("seen")
			var refused error
			limit, stop := context.WithCancel(ctx)
			defer stop()
			err := c.Watch(limit, name, func(api.Update) error { return seen },
				func(err error) { refused = err; stop() })
			if errors.Is(err, seen) {
				return nil
			}
			return refused
		},
		"leave": func(c *api.Client, name string) error {
			err := c.Leave(ctx, name)
			if err == nil || errors.Is(err, api.ErrUnconfirmed) {
				_, err = all.Hello(ctx, named(a, name))
			}
			return err
		},
	}
	for who, credentials := range map[string]struct {
		token string
		may   []string
	}{
		"london":     {ownToken, []string{"london"}},
		"paris":      {"own-token-of-edge-paris", []string{"paris"}},
		"the shared": {edgeToken, []string{"rome"}},
		"operators":  {token, []string{"london", "paris", "rome"}},
	} {
		client := c.client(credentials.token)
		for _, name := range []string{"london", "paris", "rome"} {
			for what, call := range calls {
				err := call(client, name)
				var p *api.Problem
				switch ok := slices.Contains(credentials.may, name); {
				case ok && err != nil:
					t.Errorf("%s as %s by %s's token: %v", what, name, who, err)
				case !ok && (!errors.As(err, &p) || p.Status != http.StatusForbidden):
					t.Errorf("%s as %s by %s's token: %v, want 403", what, name, who, err)
				}
			}
		}
	}
	edges, err := all.Edges(ctx)
	if err != nil || len(edges) != 3 {
		t.Errorf("%d edges, %v", len(edges), err)
	}
}

func TestTokensDiffer(t *testing.T) {
	for want, a := range map[string]Auth{
		"": {Token: "a", EdgeToken: "b", Edges: map[string]string{
			"london": "c",
			"paris":  "d",
		}},
		"auth.edgeToken is":             {Token: "a", EdgeToken: "a"},
		"auth.edges.london is":          {Token: "a", Edges: map[string]string{"london": "a"}},
		"same token as auth.edgeToken":  {EdgeToken: "b", Edges: map[string]string{"london": "b"}},
		"same token as auth.edges.lond": {Token: "a", Edges: map[string]string{"london": "c", "paris": "c"}},
	} {
		err := a.Validate()
		if (err == nil) != (want == "") || (err != nil && !strings.Contains(err.Error(), want)) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// Without configured credentials, only requests to this machine's host names are answered.
func TestWithoutCredentials(t *testing.T) {
	c := start(t, func(c *Config) { c.Auth = Auth{} })
	for host, want := range map[string]int{
		"localhost:4793": 200, "127.0.0.1": 200, "[::1]:4793": 200, "evil.example": 403, "10.0.0.1:4793": 403,
		"localhost.evil.example": 403,
	} {
		r := httptest.NewRequest("GET", "/v1/status", nil)
		r.Host = host
		w := httptest.NewRecorder()
		c.Config.Handler.ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("Host %s: %d, want %d", host, w.Code, want)
		}
	}
}

func TestCrossSite(t *testing.T) {
	c := start(t, nil)
	r := httptest.NewRequest("PUT", "/v1/flows/10.9.0.7", strings.NewReader(`{"mode":"off"}`))
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Sec-Fetch-Site", "cross-site")
	w := httptest.NewRecorder()
	c.Config.Handler.ServeHTTP(w, r)
	if w.Code != http.StatusForbidden || w.Header().Get("Content-Type") != api.ProblemType {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// Errors are problem details.
func TestRefuses(t *testing.T) {
	c := start(t, nil)
	c.hello()
	const js = "application/json"
	for name, r := range map[string]struct {
		method, path, kind, body string
		want                     int
		detail                   string
	}{
		"no such call":      {"GET", "/v1/nothing", "", "", 404, "openapi.json"},
		"wrong method":      {"PATCH", "/v1/flows", js, "{}", 405, "GET"},
		"page is only read": {"POST", "/", js, "{}", 405, ""},
		"no such file":      {"GET", "/etc/passwd", "", "", 404, ""},
		"not JSON by name":  {"POST", "/v1/edges", "text/plain", "{}", 415, "application/json"},
		"no name":           {"POST", "/v1/edges", "", "{}", 415, "application/json"},
		"empty":             {"POST", "/v1/edges", js, "", 400, "empty body"},
		"not JSON":          {"POST", "/v1/edges", js, "{", 400, "JSON"},
		"two":               {"POST", "/v1/edges", js, "{}{}", 400, "more than one"},
		"wrong type":        {"POST", "/v1/edges", js, `{"name":5}`, 400, "name"},
		"array":             {"POST", "/v1/edges", js, `[]`, 400, "JSON"},
		"deep":              {"POST", "/v1/edges", js, strings.Repeat("[", 20_000), 400, "JSON"},
		"path 9 in a set":   {"PUT", "/v1/flows/10.9.0.7", js, `{"mode":"auto","paths":[9]}`, 400, "path 9"},
		"path 9":            {"POST", "/v1/edges/a/report", js, `{"paths":[{"index":9}]}`, 422, "path 9"},
		"bad edge":          {"POST", "/v1/edges", js, `{"name":"x","role":"boss"}`, 422, "role"},
		"source is no peer": {"POST", "/v1/edges/b/uplink", js, `{"observations":[{"time_ns":1}]}`, 422, "source"},
		"oversize": {
			"POST", "/v1/edges", js, `{"name":"` + strings.Repeat("x", 70_000) + `"}`, 413,
			"65536",
		},
		"oversize after it":   {"POST", "/v1/edges", js, `{}` + strings.Repeat(" ", 70_000), 413, "65536"},
		"unknown edge":        {"POST", "/v1/edges/x/report", js, `{"paths":[]}`, 404, "hello"},
		"unknown edge, watch": {"GET", "/v1/edges/x/watch", "", "", 404, "hello"},
		"unknown edge, leave": {"DELETE", "/v1/edges/x", "", "", 404, "hello"},
		"unknown flow":        {"DELETE", "/v1/flows/10.9.0.9", "", "", 404, "flow"},
		"destination":         {"PUT", "/v1/flows/nowhere", js, `{"mode":"off"}`, 422, "nowhere"},
		"zone":                {"PUT", "/v1/flows/fe80::1%25eth0", js, `{"mode":"off"}`, 422, "zone"},
		"mode":                {"PUT", "/v1/flows/10.9.0.7", js, `{"mode":"best"}`, 422, "mode"},
		"slip of the pen":     {"PUT", "/v1/flows/10.9.0.7", js, `{"mode":"off","path":[1]}`, 400, "path"},
		"since":               {"GET", "/v1/decisions?since=-1", "", "", 422, "since"},
		"limit":               {"GET", "/v1/decisions?limit=1001", "", "", 422, "limit"},
		"no elimination": {
			"POST", "/v1/edges/b/eliminations", js,
			`{"destination":"10.9.0.7","generation":1,"removed":[1],"remaining":[2]}`, 422, "0 eliminations",
		},
		"of an unknown edge": {
			"POST", "/v1/edges/x/eliminations", js,
			`{"eliminations":[{"destination":"10.9.0.7","generation":1,"removed":[1],"remaining":[2]}]}`, 404, "hello",
		},
		"many eliminations": {
			"POST", "/v1/edges/b/eliminations", js,
			`{"eliminations":[{}` + strings.Repeat(`,{}`, 256) + `]}`, 422, "257 eliminations",
		},
	} {
		t.Run(name, func(t *testing.T) {
			req, err := http.NewRequestWithContext(t.Context(), r.method, c.URL+r.path, strings.NewReader(r.body))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Authorization", "Bearer "+token)
			if r.kind != "" {
				req.Header.Set("Content-Type", r.kind)
			}
			resp, err := c.Client().Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			b, _ := io.ReadAll(resp.Body)
			if resp.StatusCode != r.want {
				t.Fatalf("%d, want %d: %s", resp.StatusCode, r.want, b)
			}
			if !strings.HasPrefix(r.path, "/v1") {
				return
			}
			var p api.Problem
			if err := json.Unmarshal(b, &p); err != nil || resp.Header.Get("Content-Type") != api.ProblemType ||
				p.Status != r.want || p.Title == "" || p.Type == "" || !strings.Contains(p.Detail, r.detail) {
				t.Errorf("%s %s, want %q", resp.Header.Get("Content-Type"), b, r.detail)
			}
		})
	}
}

func TestRateLimit(t *testing.T) {
	c := start(t, func(c *Config) { c.Rate = Rate{PerSecond: 1, Burst: 5} })
	op := c.client(token)
	for i := range 6 {
		_, err := op.Status(t.Context())
		var p *api.Problem
		if limited := errors.As(err, &p) && p.Status == http.StatusTooManyRequests &&
			p.Temporary(); limited != (i == 5) {
			t.Errorf("request %d: %v", i, err)
		}
	}
}

// An edge that exceeds its rate does not affect another edge behind the same address.
func TestRateOfOneEdge(t *testing.T) {
	tokens := map[string]string{"x": "token-of-the-edge-x", "y": "token-of-the-edge-y"}
	c := start(t, func(c *Config) { c.Auth.Edges, c.Rate = tokens, Rate{PerSecond: 0.001, Burst: 5} })
	limited := func(edge string) bool {
		err := c.client(tokens[edge]).Report(t.Context(), edge, api.Report{})
		var p *api.Problem
		return errors.As(err, &p) && p.Status == http.StatusTooManyRequests
	}
	for i := range 6 {
		if got := limited("x"); got != (i == 5) {
			t.Errorf("request %d of x: limited %t", i, got)
		}
	}
	for i := range 5 {
		if limited("y") {
			t.Errorf("request %d of y is limited by x's rate", i)
		}
	}
}

func TestLimiter(t *testing.T) {
	l := newLimiter(Rate{PerSecond: 10, Burst: 3})
	now := time.Unix(0, 0)
	a, b := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	allowed := func(x netip.Addr, n int) (yes int) {
		for range n {
			if l.allow(bucketKey{from: x}, now) {
				yes++
			}
		}
		return yes
	}
	if n := allowed(a, 10); n != 3 {
		t.Errorf("%d at once, want 3", n)
	}
	if n := allowed(b, 10); n != 3 {
		t.Errorf("%d of another address, want 3", n)
	}
	if !l.allow(bucketKey{a, Caller{Class: Operator}}, now) {
		t.Error("strangers use up the quota of operators at their address")
	}
	now = now.Add(250 * time.Millisecond)
	if n := allowed(a, 10); n != 2 {
		t.Errorf("%d after 250 ms, want 2", n)
	}
	for i := range 3 * maxBuckets {
		l.allow(bucketKey{from: netip.AddrFrom4([4]byte{11, byte(i >> 16), byte(i >> 8), byte(i)})}, now)
	}
	if len(l.buckets) > maxBuckets {
		t.Errorf("%d buckets", len(l.buckets))
	}
}

func TestPage(t *testing.T) {
	c := start(t, nil)
	for path, kind := range map[string]string{
		"/": "text/html", "/app.js": "text/javascript",
		"/style.css": "text/css",
	} {
		resp, err := c.Client().Get(c.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		h := resp.Header
		if resp.StatusCode != 200 || !strings.HasPrefix(h.Get("Content-Type"), kind) ||
			!strings.Contains(h.Get("Content-Security-Policy"), "default-src 'none'") {
			t.Errorf("%s: %d %v", path, resp.StatusCode, h)
		}
		for _, outside := range []string{"http://", "https://", "//cdn", "style=\"", "onclick"} {
			text := strings.ReplaceAll(string(b), "http://www.w3.org/2000/svg", "")
			if strings.Contains(text, outside) {
				t.Errorf("%s contains %s, which the policy of the page forbids", path, outside)
			}
		}
	}
}

// FuzzCalls checks that the controller answers any JSON and keeps its invariants.
func FuzzCalls(f *testing.F) {
	f.Add(uint8(0), []byte(`{"name":"c","role":"both","signal":"127.0.0.1:9","paths":[{"index":1,"up":true}],"towards":["0.0.0.0/0"],"behind":["::/0"]}`))
	f.Add(uint8(1), []byte(`{"paths":[{"index":1,"up":true,"rtt_ms":3,"loss":0.5}],"nonce":"5","policies":[{"destination":"10.9.0.7","paths":[1],"nonce":"4"}]}`))
	f.Add(uint8(2), []byte(`{"observations":[{"time_ns":-9223372036854775808,"source":"10.9.0.7:1","destination":"10.9.0.7:1","length":1},{"time_ns":9223372036854775807,"source":"10.9.0.7:1","destination":"10.9.0.7:1","length":1}]}`))
	f.Add(uint8(3), []byte(`{"destination":"10.9.0.7","generation":1,"removed":[1,2],"remaining":[3],"single":true}`))
	f.Add(uint8(4), []byte(`{"mode":"duplicate","paths":[1,2,3,4,5,6,7,8]}`))
	c := start(f, nil)
	c.hello()
	calls := []struct{ method, path string }{
		{"POST", "/v1/edges"}, {"POST", "/v1/edges/a/report"}, {"POST", "/v1/edges/b/uplink"}, {
			"POST",
			"/v1/edges/b/eliminations",
		}, {"PUT", "/v1/flows/10.9.0.7"},
	}
	f.Fuzz(func(t *testing.T, which uint8, body []byte) {
		call := calls[int(which)%len(calls)]
		r := httptest.NewRequest(call.method, call.path, bytes.NewReader(body))
		r.Header.Set("Authorization", "Bearer "+token)
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		c.Config.Handler.ServeHTTP(w, r)
		if w.Code >= 500 && w.Code != http.StatusServiceUnavailable {
			t.Fatalf("%s %s: %d %s", call.method, call.path, w.Code, w.Body)
		}
		for _, flow := range c.plane.Flows() {
			if flow.State != api.Armed && flow.State != api.Disabled && flow.Paths == 0 {
				t.Fatalf("%+v", flow)
			}
		}
	})
}
