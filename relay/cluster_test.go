package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4/jwt"

	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/origin"
	"holocast/relay/auth"
	"holocast/relay/auth/authtest"
)

// startMember starts a relay of a cluster. It returns the address of its cluster port.
func startMember(t *testing.T, secret string, args ...string) (p *process, address string) {
	t.Helper()
	p = start(t, append([]string{
		"--cluster", "test", "--cluster-secret", secret, "--cluster-listen", "127.0.0.1:0", "--publisher-linger", "500ms",
	}, args...)...)
	var line struct{ Listen string }
	if err := json.Unmarshal([]byte(p.Line(`"cluster: joined"`)), &line); err != nil {
		t.Fatal(err)
	}
	return p, line.Listen
}

// startCluster starts n relays, all of which join the first.
func startCluster(t *testing.T, n int) (relays []*process) {
	t.Helper()
	secret := authtest.SecretFile(t)
	first, seed := startMember(t, secret)
	relays = []*process{first}
	for range n - 1 {
		p, _ := startMember(t, secret, "--cluster-join", seed)
		relays = append(relays, p)
	}
	for _, p := range relays {
		p.awaitMetric("holocast_relay_cluster_relays", float64(n-1))
	}
	return relays
}

func (p *process) awaitMetric(series string, want float64) {
	p.t.Helper()
	eventually(p.t, series+" "+strconv.FormatFloat(want, 'g', -1, 64), func() bool { return p.metric(series) == want })
}

// viewersOf is the series of the subscriptions to points.
const viewersOf = `holocast_relay_viewers{track="holocast-test--points"}`

// TestCluster checks that viewers at two relays receive a track published at a third: one copy per relay,
// after discovery, and again after the publisher was killed and returned. A killed relay does not
// disturb the others.
func TestCluster(t *testing.T) {
	t.Parallel()
	relays := startCluster(t, 3)
	a, b, c := relays[0], relays[1], relays[2]
	found, err := b.dial(moqt.Handler{}).SubscribeNamespace(t.Context(), session[:1])
	if err != nil {
		t.Fatal(err)
	}
	publisher := a.helper(envPublish)
	if e := <-found; !e.Added || !e.Namespace.Equal(session) {
		t.Errorf("discovered %+v", e)
	}
	from := func(publisher *exec.Cmd, subs ...*moqt.Subscription) {
		t.Helper()
		want := strconv.Itoa(publisher.Process.Pid)
		for _, sub := range subs {
			for {
				f, err := next(t.Context(), sub)
				if err != nil {
					t.Fatalf("waiting for publisher %s: %v", want, err)
				}
				if string(f.payload) == want {
					break
				}
			}
		}
	}
	var subs []*moqt.Subscription
	for _, p := range []*process{b, b, b, c, c} {
		p.awaitMetric("holocast_relay_cluster_routes", 1)
		subs = append(subs, subscribe(t, p.dial(moqt.Handler{}), points))
	}
	from(publisher, subs...)
	if n := a.metric(viewersOf); n != 2 {
		t.Errorf("the publisher's relay serves %v copies, want one per relay", n)
	}
	if n := b.metric(viewersOf); n != 3 {
		t.Errorf("the viewers' relay serves %v viewers, want 3", n)
	}
	if n := b.metric("holocast_relay_cluster_upstream_sessions"); n != 1 {
		t.Errorf("the viewers' relay has %v sessions with other relays, want 1", n)
	}

	_ = publisher.Process.Kill()
	_ = publisher.Wait()
	if e := <-found; e.Added {
		t.Errorf("discovered %+v, want the end of the namespace", e)
	}
	again := a.helper(envPublish)
	from(again, subs...)

	b.Kill()
	from(again, subs[3:]...)
	c.awaitMetric("holocast_relay_cluster_relays", 1)
	from(again, subs[3:]...)
	a.awaitMetric(viewersOf, 1)
}

// TestClusterOwner checks that a namespace belongs to one publisher of the cluster, and that viewers
// receive a publisher that returns at another relay.
func TestClusterOwner(t *testing.T) {
	t.Parallel()
	relays := startCluster(t, 2)
	a, b := relays[0], relays[1]
	first, second := origin.NewTrack(points, nil, origin.Limits{}), origin.NewTrack(points, nil, origin.Limits{})
	var one, two origin.Set
	one.Add(first)
	two.Add(second)
	s := a.dial(one.Handler())
	if _, err := s.PublishNamespace(t.Context(), session); err != nil {
		t.Fatal(err)
	}
	b.awaitMetric("holocast_relay_cluster_routes", 1)
	other := b.dial(two.Handler())
	if _, err := other.PublishNamespace(within(t), session); err == nil ||
		!strings.Contains(err.Error(), "another publisher has the namespace") {
		t.Errorf("the second publisher: %v", err)
	}
	here, there := subscribe(t, a.dial(moqt.Handler{}), points), subscribe(t, b.dial(moqt.Handler{}), points)
	write(t, first, 1, []byte("at A"))
	expect(t, here, 1, []byte("at A"))
	expect(t, there, 1, []byte("at A"))
	s.Close(wire.NoError, "")
	eventually(t, "the namespace is free", func() bool {
		_, err := other.PublishNamespace(within(t), session)
		return err == nil
	})
	eventually(t, "the second is subscribed to", func() bool { return second.Viewers() == 1 })
	a.awaitMetric("holocast_relay_cluster_routes", 1)
	b.awaitMetric(viewersOf, 2)
	write(t, second, 2, []byte("at B"))
	expect(t, here, 2, []byte("at B"))
	expect(t, there, 2, []byte("at B"))
	a.awaitMetric(viewersOf, 1) // B no longer subscribes at A
}

// TestClusterSecret checks that strangers are refused and named: relays with another secret at the
// cluster port, and sessions with a token of another secret.
func TestClusterSecret(t *testing.T) {
	t.Parallel()
	a, seed := startMember(t, authtest.SecretFile(t))
	b, _ := startMember(t, authtest.SecretFile(t), "--cluster-join", seed)
	a.Line("refused a peer that does not prove to have this cluster's name and secret")
	if a.metric(`holocast_relay_cluster_refused_total{reason="secret"}`) == 0 {
		t.Error("the refusal is not counted")
	}
	for _, p := range []*process{a, b} {
		if n := p.metric("holocast_relay_cluster_relays"); n != 0 {
			t.Errorf("%v relays joined", n)
		}
	}
	c, err := net.Dial("tcp", seed)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte("CONNECT {}\r\nSUB holocast.relay.test 1\r\nPING\r\n")); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 4096)
	for {
		n, err := c.Read(buf)
		if strings.Contains(string(buf[:n]), "PONG") || strings.Contains(string(buf[:n]), "MSG") {
			t.Fatalf("a stranger is served: %q", buf[:n])
		}
		if err != nil {
			break
		}
	}
}

// TestClusterUpgrade checks that no viewer loses a frame while a relay is replaced, neither of its
// publisher at another relay nor of another relay's publisher at this one, and that later viewers are
// served.
func TestClusterUpgrade(t *testing.T) {
	secret := authtest.SecretFile(t)
	listen := freePort(t)
	a, _ := upgradable(t, "--cluster", "test", "--cluster-secret", secret, "--cluster-listen", listen)
	b, _ := startMember(t, secret, "--cluster-join", listen)
	elsewhere := moqt.TrackName{Namespace: moqt.Namespace{"holocast", "elsewhere"}, Name: "points"}
	type stream struct {
		name        moqt.TrackName
		at, watched *process
		camera      *camera
		viewers     []*watcher
	}
	streams := []*stream{{name: points, at: a, watched: b}, {name: elsewhere, at: b, watched: a}}
	join := func() {
		t.Helper()
		for _, s := range streams {
			w := watch(t, s.watched, s.name)
			s.camera.wait(w)
			s.viewers = append(s.viewers, w)
		}
		for _, s := range streams {
			seen := s.camera.written()
			eventually(t, "frames", func() bool { return s.camera.written() >= seen+30 })
		}
	}
	for _, s := range streams {
		tr := origin.NewTrack(s.name, nil, origin.Limits{})
		var set origin.Set
		set.Add(tr)
		if _, err := s.at.dial(set.Handler()).PublishNamespace(t.Context(), s.name.Namespace); err != nil {
			t.Fatal(err)
		}
		s.watched.awaitMetric("holocast_relay_cluster_routes", 1)
		s.camera = newCamera(t, tr, 10_000)
	}
	join()
	a.upgrade()
	for _, series := range []string{"relays", "published_namespaces", "routes"} {
		a.awaitMetric("holocast_relay_cluster_"+series, 1)
	}
	join()
	for _, s := range streams {
		s.camera.stop()
		for i, w := range s.viewers {
			w.whole(t, fmt.Sprint("viewer ", i, " of ", s.name), s.camera.written())
		}
	}
	if strings.Contains(b.output(), "cluster: relay gone") {
		t.Error("the upgraded relay counts as gone meanwhile")
	}
}

// freePort returns a loopback address that was free.
func freePort(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	return ln.Addr().String()
}

// TestClusterRevocation checks that a token revoked at one relay ends its sessions at another one, and opens none
// there. Other tokens do not notice.
func TestClusterRevocation(t *testing.T) {
	t.Parallel()
	x := newIssuer(t, "ES256")
	secret := authtest.SecretFile(t)
	revoked := filepath.Join(t.TempDir(), "revoked")
	config := filepath.Join(t.TempDir(), "relay.yaml")
	if err := errors.Join(os.WriteFile(revoked, nil, 0o600),
		os.WriteFile(config, fmt.Appendf(nil, "auth: {keys: [%s], revoked: %s}\n", x.file, revoked), 0o600)); err != nil {
		t.Fatal(err)
	}
	a, seed := startMember(t, secret, "--config", config)
	b, _ := startMember(t, secret, "--auth-keys", x.file, "--cluster-join", seed)
	a.awaitMetric("holocast_relay_cluster_relays", 1)
	b.awaitMetric("holocast_relay_cluster_relays", 1)
	token := x.mint(auth.Claims{Claims: jwt.Claims{ID: "stolen"}, Subscribe: auth.Prefixes{points.Namespace}})
	ending, lasting := b.with(moqt.Handler{}, token), b.with(moqt.Handler{}, x.viewer())
	if err := os.WriteFile(revoked, []byte("stolen # the headset\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	written := time.Now()
	<-ending.Context().Done()
	t.Logf("ended at the other relay after %v", time.Since(written).Round(time.Millisecond))
	var closed *moqt.SessionError
	if !errors.As(ending.Err(), &closed) || closed.Code != wire.Unauthorized {
		t.Errorf("the session ended with %v", ending.Err())
	}
	if s, err := b.attempt(moqt.Handler{}, token); err == nil {
		<-s.Context().Done() // refused after the handshake
	}
	if err := lasting.Err(); err != nil {
		t.Errorf("another token's session ended: %v", err)
	}
	if err := os.WriteFile(revoked, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the token is valid again", func() bool {
		s, err := b.attempt(moqt.Handler{}, token)
		return err == nil && s.Alive(within(t), time.Second)
	})
}

// TestClusterSessionsPerToken checks that a token's sessions at all relays count against its limit, until they end.
// Other tokens do not notice.
func TestClusterSessionsPerToken(t *testing.T) {
	t.Parallel()
	x := newIssuer(t, "ES256")
	secret := authtest.SecretFile(t)
	a, seed := startMember(t, secret, "--auth-keys", x.file, "--auth-sessions-per-token", "1")
	b, _ := startMember(t, secret, "--auth-keys", x.file, "--auth-sessions-per-token", "1", "--cluster-join", seed)
	a.awaitMetric("holocast_relay_cluster_relays", 1)
	b.awaitMetric("holocast_relay_cluster_relays", 1)
	token := x.mint(auth.Claims{Claims: jwt.Claims{ID: "shared"}, Subscribe: auth.Prefixes{points.Namespace}})
	here := a.with(moqt.Handler{}, token)
	eventually(t, "the token is refused at the other relay", func() bool {
		s, err := b.attempt(moqt.Handler{}, token)
		if err == nil {
			if s.Alive(within(t), time.Second) { // not known there yet
				s.Close(wire.NoError, "")
				return false
			}
			err = s.Err()
		}
		var refused *moqt.SessionError
		if !errors.As(err, &refused) || refused.Code != wire.InternalError ||
			!strings.Contains(refused.Reason, "auth.sessionsPerToken") {
			t.Errorf("refused with %v", err)
		}
		return true
	})
	other := b.with(moqt.Handler{}, x.viewer())
	here.Close(wire.NoError, "")
	eventually(t, "the token is accepted at the other relay", func() bool {
		s, err := b.attempt(moqt.Handler{}, token)
		return err == nil && s.Alive(within(t), time.Second)
	})
	if err := other.Err(); err != nil {
		t.Errorf("another token's session ended: %v", err)
	}
}
