//go:build linux

package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holocast/netfunc/api"
	"holocast/netfunc/pathset"
	"holocast/netfunc/signal"
)

// controller is a scripted controller on the relay's host.
type controller struct {
	s      *site
	server *http.Server
	key    []byte
	sender *signal.Sender

	mu           sync.Mutex
	edges        map[string]api.Edge
	reports      map[string]api.Report
	left         []string
	uplink       []api.Observation
	eliminations []api.Elimination
	flow         api.Flow
	watchers     map[chan api.Update]bool
}

const (
	controllerPort = "4780"
	token          = "secret-of-the-edges"
)

func (s *site) controller(key []byte) *controller {
	s.t.Helper()
	c := &controller{
		s: s, key: key, edges: map[string]api.Edge{}, reports: map[string]api.Report{},
		watchers: map[chan api.Update]bool{},
	}
	c.start()
	if err := s.relay.Do(func() (err error) {
		c.sender, err = signal.NewSender(key, netip.Addr{})
		return err
	}); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = c.sender.Close(); c.stop() })
	return c
}

func (c *controller) start() {
	c.s.t.Helper()
	var ln net.Listener
	err := c.s.relay.Do(func() (err error) { ln, err = net.Listen("tcp", relayAddress+":"+controllerPort); return err })
	if err != nil {
		c.s.t.Fatal(err)
	}
	mux := http.NewServeMux()
	handle := func(pattern string, do func(*http.Request) (any, error)) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "Bearer "+token {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			answer, err := do(r)
			if err != nil {
				c.s.t.Errorf("%s: %v", pattern, err)
			}
			if answer != nil {
				_ = json.NewEncoder(w).Encode(answer)
			}
		})
	}
	handle("POST /v1/edges", func(r *http.Request) (any, error) {
		var e api.Edge
		err := json.NewDecoder(r.Body).Decode(&e)
		c.edges[e.Name] = e
		return api.Welcome{ReportInterval: 50, Flows: c.flows()}, err
	})
	handle("POST /v1/edges/{name}/report", func(r *http.Request) (any, error) {
		var v api.Report
		err := json.NewDecoder(r.Body).Decode(&v)
		c.reports[r.PathValue("name")] = v
		return nil, err
	})
	handle("POST /v1/edges/{name}/uplink", func(r *http.Request) (any, error) {
		var v api.Uplink
		err := json.NewDecoder(r.Body).Decode(&v)
		c.uplink = append(c.uplink, v.Observations...)
		return nil, err
	})
	handle("POST /v1/edges/{name}/eliminations", func(r *http.Request) (any, error) {
		var v api.Eliminations
		err := json.NewDecoder(r.Body).Decode(&v)
		c.eliminations = append(c.eliminations, v.Eliminations...)
		out := make([]api.Outcome, len(v.Eliminations))
		for i, e := range v.Eliminations {
			out[i] = api.Outcome{Destination: e.Destination, Flow: &c.flow}
		}
		return api.OutcomeList{Outcomes: out}, err
	})
	handle("DELETE /v1/edges/{name}", func(r *http.Request) (any, error) {
		c.left = append(c.left, r.PathValue("name"))
		return nil, nil
	})
	mux.HandleFunc("GET /v1/edges/{name}/watch", func(w http.ResponseWriter, r *http.Request) {
		updates := make(chan api.Update, 64)
		c.mu.Lock()
		updates <- api.Update{Snapshot: true, Flows: c.flows()}
		c.watchers[updates] = true
		c.mu.Unlock()
		defer func() {
			c.mu.Lock()
			delete(c.watchers, updates)
			c.mu.Unlock()
		}()
		for {
			select {
			case <-r.Context().Done():
				return
			case u := <-updates:
				_ = json.NewEncoder(w).Encode(u)
				w.(http.Flusher).Flush()
			}
		}
	})
	c.server = &http.Server{Handler: mux}
	go func(srv *http.Server) { _ = srv.Serve(ln) }(c.server)
}

func (c *controller) stop() { _ = c.server.Close() }

// flows returns the flows to announce.
func (c *controller) flows() []api.Flow {
	if !c.flow.Destination.IsValid() {
		return nil
	}
	return []api.Flow{c.flow}
}

// set changes the path set of the viewer's flow. It announces the set to the receiver before the
// sender.
func (c *controller) set(paths pathset.Set, state api.State, generation uint64) (nonce uint64) {
	c.s.t.Helper()
	c.mu.Lock()
	c.flow = api.Flow{
		Destination: viewerAddr, Paths: paths, State: state, Generation: generation, Sender: "near",
		Receiver: "far",
	}
	for w := range c.watchers {
		w <- api.Update{Flows: c.flows()}
	}
	to := c.edges["near"].Signal
	c.mu.Unlock()
	nonce, err := c.sender.Send("near", to, viewerAddr, paths)
	if err != nil {
		c.s.t.Fatal(err)
	}
	return nonce
}

// told returns the edges' latest messages.
func (c *controller) told() (edges map[string]api.Edge, reports map[string]api.Report, left []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.edges), maps.Clone(c.reports), slices.Clone(c.left)
}

func (c *controller) until(what string, ok func() bool) {
	c.s.t.Helper()
	for limit := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		c.mu.Lock()
		done := ok()
		c.mu.Unlock()
		if done {
			return
		}
		if time.Now().After(limit) {
			c.s.t.Fatalf("%s: not reached", what)
		}
	}
}

// applied waits until the sender has reported a signalling packet as applied.
func (c *controller) applied(nonce uint64) {
	c.s.t.Helper()
	c.until("policy applied", func() bool { return c.reports["near"].Nonce >= nonce })
}

// controlled starts a controller and two connected edges. elimination is the section of that name in
// the receiver's configuration.
func controlled(t *testing.T, elimination string) (s *site, c *controller, near, far *edge) {
	s = newSite(t)
	dir := t.TempDir()
	key := signal.GenerateKey()
	keyFile, tokenFile := filepath.Join(dir, "signal.key"), filepath.Join(dir, "token")
	if err := os.WriteFile(keyFile, fmt.Appendf(nil, "%x\n", key), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(tokenFile, []byte(token+"\n"), 0o640); err != nil {
		t.Fatal(err)
	}
	c = s.controller(key)
	common := fmt.Sprintf("controller: {url: \"http://%s:%s\", token: %s}\nsignal: {key: %s}\n", relayAddress,
		controllerPort, tokenFile, keyFile)
	near = s.edge(s.near, "near", common+"role: sender\nsender: {towards: [10.9.0.0/24], attach: [{interface: lan0}]}")
	far = s.edge(s.far, "far", common+"role: receiver\nreceiver: {behind: [10.9.0.0/24]}\nuplink: {interfaces: "+
		"[lan0]}\nelimination: "+elimination)
	far.start()
	near.start()
	near.until("paths", allUp)
	far.until("paths", allUp)
	c.until("hellos", func() bool { return len(c.edges) == 2 && len(c.reports) == 2 })
	return s, c, near, far
}

// quickly configures the algorithm to decide after 0.2 s.
const quickly = "{span: 200ms, completeSpan: 1s, guard: 50ms, threshold: 50ms, timeout: 60ms}"

func TestController(t *testing.T) {
	s, c, near, far := controlled(t, quickly)
	edges, _, _ := c.told()
	e := edges["near"]
	if e.Role != api.Sender || e.Signal.String() != "10.8.0.1:4790" || len(e.Towards) != 1 || len(e.Paths) != paths ||
		e.Paths[0].Interface != "wan1" {
		t.Errorf("hello %+v", e)
	}
	if e := edges["far"]; e.Role != api.Receiver || len(e.Behind) != 1 {
		t.Errorf("hello %+v", e)
	}

	// The uplink monitor sees only the viewer's packets of 200 to 300 bytes.
	var up *net.UDPConn
	err := s.viewer.Do(func() (err error) {
		up, err = net.DialUDP("udp4", nil, &net.UDPAddr{IP: net.ParseIP(relayAddress), Port: 9})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = up.Close() }()
	for _, size := range []int{40, 199 - 28, 200 - 28, 220, 300 - 28, 301 - 28, 1000} {
		write(t, up, make([]byte, size))
	}
	c.until("uplink", func() bool { return len(c.uplink) >= 3 })
	c.mu.Lock()
	uplink := slices.Clone(c.uplink)
	c.mu.Unlock()
	for i, length := range []int{200, 248, 300} {
		if o := uplink[i]; o.Length != length || o.Source.Addr() != viewerAddr || o.Destination.Port() != 9 ||
			o.Time <= 0 {
			t.Errorf("observation %+v, want %d bytes", o, length)
		}
	}

	// Duplication starts and ends during traffic without losing or duplicating a packet.
	f := s.traffic(2000)
	f.pass(100)
	c.applied(c.set(pathset.Of(1, 2, 3), api.Duplicating, 1))
	st := near.status()
	if p := st.Sender.Policies; len(p) != 1 || p[0].Paths != pathset.Of(1, 2, 3) || !p[0].Signalled ||
		st.Sender.Signals.Applied != 1 {
		t.Errorf("policies %+v, signals %+v", p, st.Sender.Signals)
	}
	far.until("flow known", func(st *Status) bool {
		return len(st.Receiver.Flows) == 1 && st.Receiver.Flows[0].Elimination.Generation == 1 &&
			st.Receiver.Flows[0].Elimination.Packets > 100
	})
	// All three paths deliver in time, so one suffices in the end.
	c.until("elimination", func() bool { return len(c.eliminations) > 0 })
	c.mu.Lock()
	el := c.eliminations[0]
	c.mu.Unlock()
	if el.Destination != viewerAddr || el.Generation != 1 || !el.Single || el.Remaining.Len() != 1 ||
		el.Removed.Len() != 2 || len(el.Rewards) != 3 {
		t.Errorf("elimination %+v", el)
	}
	c.applied(c.set(el.Remaining, api.Single, 1))
	f.pass(100)
	c.applied(c.set(0, api.Armed, 1))
	f.pass(100)
	f.exact()
	st = far.status()
	for _, p := range st.Paths {
		if p.Rogue != 0 {
			t.Errorf("path %d: %d rogue", p.Index, p.Rogue)
		}
	}
	_, reports, _ := c.told()
	if r := reports["far"]; r.Paths[1].First+r.Paths[1].Late == 0 || r.Paths[0].RTT <= 0 {
		t.Errorf("report %+v", r)
	}

	// Both edges leave; the receiver deregisters before it detaches.
	far.process.Stop()
	near.process.Stop()
	near.clean()
	far.clean()
	if _, _, left := c.told(); len(left) != 2 {
		t.Errorf("%v left", left)
	}
}

// TestOffLeaves checks that a destination that is off occupies no entry of the policy map.
func TestOffLeaves(t *testing.T) {
	_, c, near, _ := controlled(t, quickly)
	c.applied(c.set(pathset.Of(1, 2), api.Duplicating, 1))
	near.until("on", func(st *Status) bool { return len(st.Sender.Policies) == 1 })
	c.applied(c.set(0, api.Armed, 1))
	near.until("off", func(st *Status) bool { return len(st.Sender.Policies) == 0 && st.Sender.Signals.Applied == 2 })
}

// TestRoutes checks that the controller learns the plain routes of flows without a path set.
func TestRoutes(t *testing.T) {
	s, c, _, _ := controlled(t, quickly)
	routes := func(want ...api.Route) {
		t.Helper()
		c.until(fmt.Sprintf("routes %+v", want), func() bool { return slices.Equal(c.reports["near"].Routes, want) })
	}
	routes() // no flow yet
	c.applied(c.set(0, api.Armed, 1))
	routes(api.Route{Destination: viewerAddr, Path: 1})
	s.route(s.near, "10.9.0.0/24", "10.1.2.2")
	routes(api.Route{Destination: viewerAddr, Path: 2})
	s.route(s.near, "10.9.0.0/24", relayAddress)
	routes(api.Route{Destination: viewerAddr})
	if err := s.near.Handle.LinkSetDown(s.link(s.near, "lan0")); err != nil {
		t.Fatal(err)
	}
	if err := s.near.Handle.LinkSetUp(s.link(s.near, "lan0")); err != nil { // the interface's routes are gone
		t.Fatal(err)
	}
	routes(api.Route{Destination: viewerAddr, Unreachable: true})
	c.applied(c.set(pathset.Of(1, 2), api.Duplicating, 2))
	routes() // the flow has a path set, so its plain route does not matter
}

// write sends a packet to a port without a listener, where sending may fail with the ICMP error for an
// earlier packet.
func write(t *testing.T, conn *net.UDPConn, b []byte) {
	t.Helper()
	for {
		_, err := conn.Write(b)
		if err == nil {
			return
		}
		if !errors.Is(err, unix.ECONNREFUSED) {
			t.Fatal(err)
		}
	}
}

// TestControllerDies checks that duplication continues without a controller, and that edges register
// with the next one. A killed edge keeps its signalled path sets.
func TestControllerDies(t *testing.T) {
	s, c, near, far := controlled(t, "{latentPeriod: 300ms}")
	c.applied(c.set(pathset.Of(1, 2, 3), api.Duplicating, 7))
	far.until("flow known", func(st *Status) bool { return len(st.Receiver.Flows) == 1 })
	f := s.traffic(2000)
	c.stop()
	near.until("loss noticed", func(st *Status) bool { return !st.Controller.Connected && st.Controller.Error != "" })
	near.process.Kill()
	far.process.Kill()
	near.start()
	far.start()
	st := near.until("paths", allUp)
	if p := st.Sender.Policies; len(p) != 1 || p[0].Paths != pathset.Of(1, 2, 3) {
		t.Errorf("policies %+v", p)
	}
	c.mu.Lock()
	clear(c.edges)
	c.mu.Unlock()
	c.start()
	c.until("hellos", func() bool { return len(c.edges) == 2 })
	far.until("generation", func(st *Status) bool {
		return st.Controller.Connected && st.Receiver.Flows[0].Elimination != nil &&
			st.Receiver.Flows[0].Elimination.Generation == 7
	})
	f.exact()
}

// TestSignalsRefused checks that spoofed, replayed and malformed signalling packets have no effect, and
// neither does one of another version, which is logged with both versions.
func TestSignalsRefused(t *testing.T) {
	s, c, near, _ := controlled(t, quickly)
	c.applied(c.set(pathset.Of(1, 2), api.Duplicating, 1))
	var conn *net.UDPConn
	edges, _, _ := c.told()
	err := s.relay.Do(func() (err error) {
		conn, err = net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(edges["near"].Signal))
		if err != nil {
			return err
		}
		raw, err := conn.SyscallConn()
		if err != nil {
			return err
		}
		return raw.Control(func(fd uintptr) { err = setTOS(int(fd), signal.ToS) })
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	now := uint64(time.Now().UnixNano())
	message := func(nonce uint64, key []byte) []byte {
		b, err := signal.Message{Destination: viewerAddr, Paths: 7, Nonce: nonce}.Append(nil, key)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	good := message(now, signal.EdgeKey(c.key, "near"))
	binary.BigEndian.PutUint16(good[6:], 1) // reserved
	version1 := message(now+2, signal.EdgeKey(c.key, "near"))[:32]
	version1[4] = 1
	mac := hmac.New(sha256.New, signal.EdgeKey(c.key, "near"))
	mac.Write(version1)
	version1 = mac.Sum(version1)
	for _, b := range [][]byte{
		message(now+1, []byte("another key of 32 bytes in all..")),
		message(now+1, signal.EdgeKey(c.key, "far")),
		message(1, signal.EdgeKey(c.key, "near")),
		good,
		version1,
		version1,
		[]byte("HCSG"),
	} {
		write(t, conn, b)
	}
	st := near.until("refused", func(st *Status) bool {
		g := st.Sender.Signals
		return g.Spoofed == 2 && g.Replayed == 1 && g.Malformed == 2 && g.OtherVersion == 2
	})
	if p := st.Sender.Policies; len(p) != 1 || p[0].Paths != pathset.Of(1, 2) || st.Sender.Signals.Applied != 1 {
		t.Errorf("policies %+v, signals %+v", p, st.Sender.Signals)
	}
	says := "signalling message of version 1, want version 2: upgrade the controller and all edges together"
	eventually(t, says, func() bool { return strings.Contains(near.process.Stderr.String(), says) })
}

// TestLatentError checks that a path that delivers nothing while others deliver raises the alarm.
func TestLatentError(t *testing.T) {
	s, c, near, far := controlled(t, "{span: 1h, completeSpan: 2h, latentPeriod: 300ms, memory: 200ms, guard: 20ms}")
	c.applied(c.set(pathset.Of(1, 2, 3), api.Duplicating, 1))
	far.until("flow known", func(st *Status) bool { return len(st.Receiver.Flows) == 1 })
	f := s.traffic(2000)
	// Path 3 leads nowhere, which goes unnoticed because it has no probes and a permanent neighbour
	// entry.
	s.cable(s.near, "hole", "10.7.0.1", s.relay, "hole", "10.7.0.2")
	near.process.Kill()
	text, err := os.ReadFile(near.config)
	if err != nil {
		t.Fatal(err)
	}
	near.config += ".wrong"
	wrong := strings.Replace(string(text), "interface: wan3, peer: 10.1.3.2", "interface: hole, gateway: 10.7.0.77", 1)
	if err := os.WriteFile(near.config, []byte(wrong), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.near.Handle.NeighSet(stranger(s, "hole", "10.7.0.77")); err != nil {
		t.Fatal(err)
	}
	near.start()
	// If the machine stalls, packets on a good path may also be lost for a while.
	far.until("alarm on path 3 alone", func(st *Status) bool {
		a := st.Receiver.Flows[0].Elimination
		return a.Alarms > 0 && a.Latent == pathset.Of(3)
	})
	c.until("alarm reported", func() bool { return c.reports["far"].Counters["latent_alarms"] > 0 })
	f.exact()
}
