package admin

import (
	"context"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"testing"
	"time"

	"holocast/internal/devcert"
	"holocast/internal/leaktest"
	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/origin"
	"holocast/internal/sessiontest"
	"holocast/relay/auth/authtest"
	"holocast/relay/cluster"
	"holocast/relay/router"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Code(m.Run())) }

// node is a relay of a cluster in this process.
type node struct {
	*API
	url  string
	hash [32]byte
}

func startNode(t *testing.T, cfg cluster.Config) *node {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	cfg.Name, cfg.Listen = "test", "127.0.0.1:0"
	c, err := cluster.New(t.Context(), cfg, "", log)
	if err != nil {
		t.Fatal(err)
	}
	ln, url, hash := sessiontest.Listen(t, moqt.Config{Log: log})
	n := &node{url: url, hash: hash}
	r := router.New(router.Config{Relay: c.Relay, Near: c.Near, Log: log})
	n.API, err = New(Config{Router: r, Cluster: c, MoveTimeout: time.Minute, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	ctx, stop := context.WithCancel(context.Background())
	for _, run := range []func(){
		func() { r.ServeAll(ctx, ln) }, func() { r.RunClock(ctx) }, func() { n.Run(ctx) },
	} {
		wg.Go(run)
	}
	t.Cleanup(func() {
		c.Leave(false)
		stop()
		_ = ln.Close()
		wg.Wait()
	})
	h := cluster.Host{Router: r, Address: ln.Addr(), Hash: func() [32]byte { return n.hash }, Board: n.Board()}
	if err := c.Start(t.Context(), h, false); err != nil {
		t.Fatal(err)
	}
	return n
}

func (n *node) dial(t *testing.T, h moqt.Handler) *moqt.Session {
	t.Helper()
	s, err := moqt.Dial(t.Context(), n.url, devcert.Pinned(n.hash), h, moqt.Config{Log: n.Log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(wire.NoError, "") })
	return s
}

// TestTwoRelays checks that two relays know each other's links and blocks, and kick each other's clients,
// while others read their lists.
func TestTwoRelays(t *testing.T) {
	file := authtest.SecretFile(t)
	a := startNode(t, cluster.Config{Secret: file})
	b := startNode(t, cluster.Config{Secret: file, Join: []string{a.Cluster.Stats().Listen}})

	ctx, stop := context.WithCancel(t.Context())
	var readers sync.WaitGroup
	defer readers.Wait()
	defer stop()
	for _, n := range []*node{a, b} {
		readers.Go(func() {
			for ctx.Err() == nil {
				for _, path := range []string{"relays", "sessions", "tracks", "viewers", "recordings"} {
					if answer := (request{method: "GET", path: Base + path}).do(n); answer.Code != http.StatusOK {
						t.Errorf("%s: %d", path, answer.Code)
					}
				}
				time.Sleep(10 * time.Millisecond)
			}
		})
	}
	name := moqt.TrackName{Namespace: moqt.Namespace{"holocast", "test"}, Name: "points"}
	var set origin.Set
	set.Add(origin.NewTrack(name, nil, origin.Limits{}))
	publisher := a.dial(t, set.Handler())
	ns, err := publisher.PublishNamespace(t.Context(), name.Namespace)
	if err != nil {
		t.Fatal(err)
	}
	sessiontest.Until(t, "the route is known", func() bool { return len(b.Cluster.Routes()) == 1 })
	viewer := b.dial(t, moqt.Handler{})
	if _, err := viewer.Subscribe(t.Context(), name, moqt.SubscribeOptions{}); err != nil {
		t.Fatal(err)
	}
	sessiontest.Until(t, "the other relay's link is known", func() bool {
		for _, r := range a.relays(time.Now()) {
			if !r.Self && len(r.Links) == 1 && r.Links[0].From == a.id && r.Links[0].TrackCount == 1 {
				return true
			}
		}
		return false
	})
	kick := request{"POST", Base + "viewers/" + b.viewers("")[0].ID + "/kick", "{}", 204, ""}
	if answer := kick.do(a); answer.Code != kick.status {
		t.Errorf("%d %s", answer.Code, answer.Body)
	}
	<-viewer.Context().Done()
	if answer := kick.do(a); answer.Code != http.StatusNotFound {
		t.Errorf("a second time: %d %s", answer.Code, answer.Body)
	}
	block := request{"POST", Base + "sessions/holocast-test/block", "", 200, ""}
	if answer := block.do(b); answer.Code != block.status {
		t.Errorf("%d %s", answer.Code, answer.Body)
	}
	<-ns.Done()
	if len(a.Blocks()) != 1 {
		t.Errorf("%v", a.Blocks())
	}
	c := startNode(t, cluster.Config{Secret: file, Join: []string{a.Cluster.Stats().Listen}})
	sessiontest.Until(t, "a new relay knows the block", func() bool { return len(c.Blocks()) == 1 })
}
