package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"holocast/internal/devcert"
	"holocast/internal/leaktest"
	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/origin"
	"holocast/internal/sessiontest"
	"holocast/relay/auth/authtest"
	"holocast/relay/router"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Code(m.Run())) }

// node is a relay in this process.
type node struct {
	*Cluster
	t    testing.TB
	r    *router.Router
	url  string
	hash [32]byte
}

func startNode(t testing.TB, cfg Config) *node {
	t.Helper()
	return startLogging(t, cfg, quiet.Log)
}

func startLogging(t testing.TB, cfg Config, log *slog.Logger) *node {
	t.Helper()
	cfg.Name = "test"
	c, err := New(t.Context(), cfg, "", log)
	if err != nil {
		t.Fatal(err)
	}
	ln, url, hash := sessiontest.Listen(t, quiet)
	r := router.New(router.Config{Relay: c.Relay, Near: c.Near, Log: quiet.Log})
	n := &node{c, t, r, url, hash}
	var wg sync.WaitGroup
	ctx, stop := context.WithCancel(context.Background())
	wg.Go(func() { n.r.ServeAll(ctx, ln) })
	wg.Go(func() { n.r.RunClock(ctx) })
	t.Cleanup(func() {
		c.Leave(false)
		stop()
		_ = ln.Close()
		wg.Wait()
	})
	h := Host{Router: n.r, Address: ln.Addr(), Hash: func() [32]byte { return n.hash }}
	if err := c.Start(t.Context(), h, false); err != nil {
		t.Fatal(err)
	}
	return n
}

var quiet = moqt.Config{Log: slog.New(slog.DiscardHandler)}

func (n *node) dial(h moqt.Handler) *moqt.Session {
	n.t.Helper()
	s, err := moqt.Dial(n.t.Context(), n.url, devcert.Pinned(n.hash), h, quiet)
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { s.Close(wire.NoError, "") })
	return s
}

// publish publishes a session with a track "points".
func (n *node) publish(name string) (tr *origin.Track) {
	n.t.Helper()
	ns := moqt.Namespace{"holocast", name}
	tr = origin.NewTrack(moqt.TrackName{Namespace: ns, Name: "points"}, nil, origin.Limits{})
	var set origin.Set
	set.Add(tr)
	if _, err := n.dial(set.Handler()).PublishNamespace(n.t.Context(), ns); err != nil {
		n.t.Fatal(err)
	}
	return tr
}

// receives checks that a new viewer at the node receives an object of a group written to a track. It writes one
// every 200 ms, since an object may be lost while its path changes.
func (n *node) receives(tr *origin.Track, group uint64) {
	n.t.Helper()
	sub, err := n.dial(moqt.Handler{}).Subscribe(n.t.Context(), tr.Name(), moqt.SubscribeOptions{})
	if err != nil {
		n.t.Fatal(err)
	}
	defer sub.Cancel()
	received := make(chan error, 1)
	go func() {
		for {
			r, err := sub.AcceptSubgroup(n.t.Context())
			if err != nil || r.Group == group {
				received <- err
				return
			}
		}
	}()
	for k := uint64(0); ; k++ {
		header := wire.SubgroupHeader{Group: group, Subgroup: k, Mode: wire.SubgroupIDExplicit, FirstObject: true}
		if err := tr.WriteObject(header, moqt.Object{ID: k}, []byte("x")); err != nil {
			n.t.Fatal(err)
		}
		select {
		case err := <-received:
			if err != nil {
				n.t.Fatal(err)
			}
			return
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// offers reports whether the router offers a session.
func (n *node) offers(name string) bool {
	for _, ns := range n.r.Namespaces() {
		if ns.Equal(moqt.Namespace{"holocast", name}) {
			return true
		}
	}
	return false
}

// rogue joins the bus of a cluster as a member and returns a function that sends messages.
func rogue(t testing.TB, cfg Config) (send func(...*Message)) {
	t.Helper()
	cfg.Name = "test"
	s, err := readSecret(t.Context(), cfg.Name, cfg.Secret)
	if err != nil {
		t.Fatal(err)
	}
	b, err := openBus(t.Context(), cfg, "rogue", 0, s, func() {}, quiet.Log)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-b.in:
			case <-ctx.Done():
				return
			}
		}
	}()
	t.Cleanup(func() { stop(); <-done; b.close() })
	return func(list ...*Message) {
		for _, m := range list {
			if err := b.conn.Publish(subject(cfg.Name), s.seal(m.Append(nil))); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestRogueMember checks that a member that announces a million namespaces takes bounded memory, that
// malformed messages are counted, and that the routes of others are unharmed.
func TestRogueMember(t *testing.T) {
	cfg := Config{Secret: authtest.SecretFile(t), Listen: "127.0.0.1:0"}
	a := startNode(t, cfg)
	join := Config{Secret: cfg.Secret, Listen: "127.0.0.1:0", Join: []string{a.Stats().Listen}}
	b := startNode(t, join)
	send := rogue(t, join)
	b.publish("fine")
	sessiontest.Until(t, "the route is known", func() bool { return a.offers("fine") })

	sessiontest.Until(t, "the rogue is known", func() bool {
		send(&Message{Kind: Hello, From: "rogue", Version: 1, Digest: Digest{1_000_000, 1}})
		return len(a.Stats().Members) == 2
	})
	const each = 1 << 13
	const parts = 1_000_000 / each
	for part := range uint64(parts) {
		m := &Message{Kind: State, From: "rogue", Version: 1, Part: part, Parts: parts}
		for i := range each {
			m.Added = append(m.Added, Claim{Namespace: moqt.Namespace{"rogue", fmt.Sprint(part), fmt.Sprint(i)}})
		}
		send(m)
	}
	send(&Message{Kind: 99, From: "rogue"})
	sessiontest.Until(t, "the messages have arrived", func() bool { return a.Stats().Malformed == 1 })
	s := a.Stats()
	if s.Routes > MaxNamespaces+1 || !a.offers("fine") {
		t.Errorf("%d routes, the honest one is there: %v", s.Routes, a.offers("fine"))
	}
	send(&Message{Kind: Bye, From: "rogue"})
	sessiontest.Until(t, "the rogue is forgotten", func() bool { return a.Stats().Routes == 1 })
}

// TestWithoutNATS checks that relays with an external NATS server keep their routes while it is down,
// and learn new ones once it is back.
func TestWithoutNATS(t *testing.T) {
	startServer := func(port int) (s *server.Server, stop func()) {
		s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: port, NoSigs: true, NoLog: true})
		if err != nil {
			t.Fatal(err)
		}
		s.Start()
		if !s.ReadyForConnections(10 * time.Second) {
			t.Fatal("the NATS server does not start")
		}
		return s, sync.OnceFunc(func() { s.Shutdown(); s.WaitForShutdown() })
	}
	s, stop := startServer(server.RANDOM_PORT)
	defer func() { stop() }()
	port := s.Addr().(*net.TCPAddr).Port
	cfg := Config{Secret: authtest.SecretFile(t), NATS: "nats://" + s.Addr().String()}
	a, b, c := startNode(t, cfg), startNode(t, cfg), startNode(t, cfg)
	one := a.publish("one")
	sessiontest.Until(t, "the route is known", func() bool { return b.offers("one") && c.offers("one") })
	b.receives(one, 1)

	stop()
	two := a.publish("two")
	time.Sleep(2 * Silence) // relays would count as gone by now
	if !b.offers("one") || !c.offers("one") {
		t.Error("routes were lost with NATS")
	}
	b.receives(one, 2)
	c.receives(one, 3)
	_, stop = startServer(port)
	sessiontest.Until(t, "the new route is known", func() bool { return b.offers("two") })
	b.receives(two, 1)
	if !b.offers("one") || !c.offers("one") {
		t.Error("routes were lost with NATS's return")
	}
}

// TestMisadvertised checks that viewers are not served by another relay than the one with the publisher
// if that one's URL leads there.
func TestMisadvertised(t *testing.T) {
	cfg := Config{Secret: authtest.SecretFile(t), Listen: "127.0.0.1:0"}
	a := startNode(t, cfg)
	cfg.Join = []string{a.Stats().Listen}
	b := startNode(t, cfg)
	cfg.Advertise = a.url // of c
	c := startNode(t, cfg)
	tr := c.publish("lost")
	sessiontest.Until(t, "the route is known", func() bool { return b.offers("lost") })
	_, err := b.dial(moqt.Handler{}).Subscribe(t.Context(), tr.Name(), moqt.SubscribeOptions{})
	if err == nil {
		t.Error("a viewer is served by the wrong relay")
	}
}

// TestPublishedTracks checks that a client that asks for all tracks of a session receives those that
// clients publish at each relay, such as viewers' receipts, once each, and only while it asks.
func TestPublishedTracks(t *testing.T) {
	cfg := Config{Secret: authtest.SecretFile(t), Listen: "127.0.0.1:0"}
	a := startNode(t, cfg)
	cfg.Join = []string{a.Stats().Listen}
	nodes := []*node{a, startNode(t, cfg), startNode(t, cfg)}
	a.publish("one")
	for _, n := range nodes {
		sessiontest.Until(t, "all relays are known", func() bool { return len(n.Stats().Members) == 2 })
	}
	ns := moqt.Namespace{"holocast", "one"}
	type received struct{ name, payload string }
	monitor := func(n *node) chan received {
		all := make(chan received, 100)
		s := n.dial(moqt.Handler{Publish: func(req *moqt.PublishRequest) {
			sub, err := req.Accept(moqt.SubscribeOptions{})
			if err != nil {
				t.Error(err)
				return
			}
			go func() {
				for {
					d, err := sub.AcceptDatagram(context.Background())
					if err != nil {
						return
					}
					select {
					case all <- received{req.Track.Name, string(d.Payload)}:
					default:
					}
				}
			}()
		}})
		if err := s.SubscribeTracks(t.Context(), ns); err != nil {
			t.Fatal(err)
		}
		return all
	}
	at, far := monitor(a), monitor(nodes[2])
	for i, n := range nodes {
		name := fmt.Sprint("receipts/", i)
		tr := origin.NewTrack(moqt.TrackName{Namespace: ns, Name: name}, nil, origin.Limits{})
		s := n.dial(moqt.Handler{})
		pub, err := s.Publish(t.Context(), tr.Name(), tr.Info())
		if err != nil {
			t.Fatal(err)
		}
		go func() { _ = origin.NewQueue(0).Attach(tr).Serve(origin.Publication{Publication: pub}) }()
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go func() {
			for group := uint64(1); ctx.Err() == nil; group++ {
				tr.SendDatagram(moqt.Datagram{Group: group, Payload: fmt.Append(nil, group)})
				time.Sleep(10 * time.Millisecond)
			}
		}()
	}
	for name, all := range map[string]chan received{"at the publisher's relay": at, "at another relay": far} {
		seen := map[received]int{}
		tracks := map[string]int{}
		for tracks["receipts/0"] < 5 || tracks["receipts/1"] < 5 || tracks["receipts/2"] < 5 {
			r := <-all
			if seen[r]++; seen[r] > 1 {
				t.Fatalf("the monitor %s received %+v twice", name, r)
			}
			tracks[r.name]++
		}
	}
	// The second relay has no monitor, so it receives no tracks of the others.
	if tracks, _ := nodes[1].r.Stats(); len(tracks) != 1 {
		t.Errorf("a relay without a monitor has %d tracks, want its own", len(tracks))
	}
}

// TestClock checks that relays whose machines' clocks differ agree on the time of the one that joined
// first, and that the next one takes its place without a step.
func TestClock(t *testing.T) {
	cfg := Config{Secret: authtest.SecretFile(t), Listen: "127.0.0.1:0"}
	a := startNode(t, cfg)
	a.r.AdjustClock(time.Hour)
	cfg.Join = []string{a.Stats().Listen}
	b := startNode(t, cfg)
	b.r.AdjustClock(-80 * time.Millisecond)
	c := startNode(t, cfg)
	apart := func(x, y *node) time.Duration { return (x.r.ClockOffset() - y.r.ClockOffset()).Abs() }
	within := 20 * time.Millisecond
	sessiontest.Until(t, "the clocks agree", func() bool { return apart(a, b) < within && apart(a, c) < within })
	sessiontest.Until(t, "the error is known", func() bool { return b.Stats().ClockError > 0 })
	if e := b.Stats().ClockError; e < apart(a, b) {
		t.Errorf("the clocks differ by %v, the error is said to be %v at most", apart(a, b), e)
	}
	if e := a.Stats().ClockError; e != 0 {
		t.Errorf("the reference has an error of %v", e)
	}
	before := b.r.ClockOffset()
	a.Leave(false)
	sessiontest.Until(t, "the second relay is the reference", func() bool {
		return len(b.Stats().Members) == 1 && b.Stats().ClockError == 0
	})
	time.Sleep(3 * time.Second)
	if moved := (b.r.ClockOffset() - before).Abs(); moved > within || apart(b, c) > within {
		t.Errorf("the new reference's clock moved by %v; the clocks are %v apart", moved, apart(b, c))
	}
}
