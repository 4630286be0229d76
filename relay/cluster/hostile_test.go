package cluster

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"holocast/internal/devcert"
	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/sessiontest"
	"holocast/relay/auth/authtest"
)

// record is a log for tests.
type record struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (r *record) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.b.Write(b)
}

func (r *record) reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.b.Reset()
}

func (r *record) contains(text string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Contains(r.b.String(), text)
}

// claims returns the messages of a member "rogue" that announces sessions.
func claims(info Info, names ...string) []*Message {
	state := &Message{Kind: State, From: "rogue", Version: 1, Parts: 1}
	var d Digest
	for _, name := range names {
		claim := Claim{Namespace: moqt.Namespace{"holocast", name}}
		state.Added = append(state.Added, claim)
		d.add(claim, 1)
	}
	info.Name = "rogue relay"
	return []*Message{{Kind: Hello, From: "rogue", Version: 1, Info: info, Digest: d}, state}
}

// keep sends messages every 100 ms until the function that it returns is called: relays forget a silent
// member after a second, however busy the machine.
func keep(t testing.TB, send func(...*Message), list []*Message) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var sending sync.WaitGroup
	sending.Go(func() {
		for tick := time.NewTicker(100 * time.Millisecond); ctx.Err() == nil; {
			send(list...)
			select {
			case <-tick.C:
			case <-ctx.Done():
				tick.Stop()
			}
		}
	})
	stop = func() { cancel(); sending.Wait() }
	t.Cleanup(stop)
	return stop
}

// refuses checks that a viewer at the node is refused soon.
func (n *node) refuses(name string) {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(n.t.Context(), 20*time.Second)
	defer cancel()
	track := moqt.TrackName{Namespace: moqt.Namespace{"holocast", name}, Name: "points"}
	_, err := n.dial(moqt.Handler{}).Subscribe(ctx, track, moqt.SubscribeOptions{})
	if err == nil || ctx.Err() != nil {
		n.t.Errorf("a viewer of %s: %v, want a refusal", name, err)
	}
}

// TestWrongRelay checks that a relay with another certificate than announced, and addresses that lead
// back into the cluster, are refused and named, and cause no loop.
func TestWrongRelay(t *testing.T) {
	var log record
	cfg := Config{Secret: authtest.SecretFile(t), Listen: "127.0.0.1:0"}
	a := startLogging(t, cfg, slog.New(slog.NewTextHandler(&log, nil)))
	cfg.Join = []string{a.Stats().Listen}
	b := startNode(t, cfg)
	fine := b.publish("fine")
	sessiontest.Until(t, "the route is known", func() bool { return a.offers("fine") })
	send := rogue(t, cfg)
	for _, c := range []struct {
		name, why string // why: in the log
		info      Info
	}{
		{"impostor", "certificate", Info{URL: b.url, Hash: [32]byte{1}}},
		{"itself", "check cluster.advertise", Info{URL: a.url, Hash: a.hash}},
		{"another", "check cluster.advertise", Info{URL: b.url, Hash: b.hash}},
	} {
		stop := keep(t, send, claims(c.info, c.name))
		sessiontest.Until(t, "the claim is known", func() bool { return a.offers(c.name) })
		log.reset()
		before := len(a.r.Sessions()) + len(b.r.Sessions())
		a.refuses(c.name)
		sessiontest.Until(t, "the log names the relay and "+c.why, func() bool {
			return log.contains("rogue relay") && log.contains(c.why)
		})
		stop()
		if more := len(a.r.Sessions()) + len(b.r.Sessions()) - before; more > 3 {
			t.Errorf("%s: %d more sessions", c.name, more)
		}
		send(&Message{Kind: Bye, From: "rogue"})
		sessiontest.Until(t, "the claim is forgotten", func() bool { return !a.offers(c.name) })
	}
	a.receives(fine, 1)
}

// TestClaimedNamespace checks that viewers keep their publisher while a member claims its namespace.
func TestClaimedNamespace(t *testing.T) {
	cfg := Config{Secret: authtest.SecretFile(t), Listen: "127.0.0.1:0"}
	a := startNode(t, cfg)
	cfg.Join = []string{a.Stats().Listen}
	b := startNode(t, cfg)
	fine := a.publish("fine")
	sessiontest.Until(t, "the route is known", func() bool { return b.offers("fine") })
	b.receives(fine, 1)
	send := rogue(t, cfg)
	for _, n := range []*node{a, b} {
		sessiontest.Until(t, "the claim is known", func() bool {
			send(claims(Info{URL: "moqt://127.0.0.1:1"}, "fine", "other")...)
			return n.offers("other")
		})
	}
	a.receives(fine, 2)
	b.receives(fine, 3)
}

// TestMemberSession checks that a member's session neither reaches namespaces of third relays nor
// publishes.
func TestMemberSession(t *testing.T) {
	cfg := Config{Secret: authtest.SecretFile(t), Listen: "127.0.0.1:0"}
	a := startNode(t, cfg)
	cfg.Join = []string{a.Stats().Listen}
	b := startNode(t, cfg)
	fine, own := a.publish("fine"), b.publish("own")
	sessiontest.Until(t, "the route is known", func() bool { return b.offers("fine") })
	token, err := b.secret.mint("rogue", "rogue relay", b.ID(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	member := quiet
	member.Tokens = []wire.Token{token}
	s, err := moqt.Dial(t.Context(), b.url, devcert.Pinned(b.hash), moqt.Handler{}, member)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(wire.NoError, "")
	if _, err := s.Subscribe(t.Context(), fine.Name(), moqt.SubscribeOptions{}); err == nil {
		t.Error("a relay serves another one from a third")
	}
	if _, err := s.PublishNamespace(t.Context(), moqt.Namespace{"holocast", "new"}); err == nil {
		t.Error("a relay publishes at another one")
	}
	if _, err := s.Subscribe(t.Context(), own.Name(), moqt.SubscribeOptions{}); err != nil {
		t.Errorf("a relay's own client: %v", err)
	}
}

// TestStrangerAtNATS checks that strangers at a NATS server neither join nor harm the cluster, and that
// the embedded server refuses them even with its password.
func TestStrangerAtNATS(t *testing.T) {
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	defer func() { s.Shutdown(); s.WaitForShutdown() }()
	if !s.ReadyForConnections(10 * time.Second) {
		t.Fatal("the NATS server does not start")
	}
	cfg := Config{Secret: authtest.SecretFile(t), NATS: s.ClientURL()}
	a, b := startNode(t, cfg), startNode(t, cfg)
	a.publish("fine")
	sessiontest.Until(t, "the route is known", func() bool { return b.offers("fine") })
	stranger, err := nats.Connect(s.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	other := testSecret(t, "test", 9)
	const each = 1000
	for i := range each {
		for _, forged := range [][]byte{
			nil, bytes.Repeat([]byte{byte(i)}, 100), other.seal((&Message{Kind: Bye, From: a.ID()}).Append(nil)),
			other.seal(claims(Info{URL: a.url, Hash: a.hash}, fmt.Sprint("forged ", i))[0].Append(nil)),
		} {
			if err := stranger.Publish(subject("test"), forged); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := stranger.Flush(); err != nil {
		t.Fatal(err)
	}
	sessiontest.Until(t, "the forgeries are counted", func() bool { return b.Stats().Strangers == 4*each })
	if st := b.Stats(); len(st.Members) != 1 || st.Routes != 1 || !b.offers("fine") {
		t.Errorf("%d members, %d routes", len(st.Members), st.Routes)
	}

	own := Config{Name: "test", Listen: "127.0.0.1:0"}
	embedded, err := openBus(t.Context(), own, "id", 0, a.secret, func() {}, quiet.Log)
	if err != nil {
		t.Fatal(err)
	}
	defer embedded.close()
	for name, option := range map[string]nats.Option{
		"nothing":      nats.Name("stranger"),
		"the password": nats.UserInfo(embedded.user.Username, embedded.user.Password),
	} {
		if c, err := nats.Connect(embedded.server.ClientURL(), option); err == nil {
			c.Close()
			t.Errorf("a stranger with %s is served", name)
		}
	}
}
