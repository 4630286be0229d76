package main

import (
	"context"
	"errors"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"holocast/internal/connect"
	"holocast/internal/moqt"
	"holocast/internal/origin"
	"holocast/relay/auth/authtest"
)

// target is the session at the relay, as programs connect to it.
func (p *process) target() connect.Target {
	return connect.Target{URL: "moqt://" + p.udp + "/test", CertificateHash: p.hash}
}

// keeps uses a session at the relay in the background, moving to other relays as programs do.
func (p *process) keeps(t *testing.T, h moqt.Handler, use func(context.Context, *moqt.Session) error) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = p.target().KeepMoving(ctx, h, quiet, use) })
	t.Cleanup(func() { cancel(); wg.Wait() })
}

// publisher publishes points in a session that moves.
type publisher struct {
	tr *origin.Track

	mu    sync.Mutex
	at    string // the relay
	moved time.Time
}

func (p *process) publisher(t *testing.T) *publisher {
	pub := &publisher{tr: origin.NewTrack(points, nil, origin.Limits{MaxAge: time.Minute})}
	var set origin.Set
	set.Add(pub.tr)
	p.keeps(t, set.Handler(), func(ctx context.Context, s *moqt.Session) error {
		ns, err := s.PublishNamespace(ctx, session)
		if err != nil {
			return err
		}
		pub.mu.Lock()
		pub.at, pub.moved = s.RemoteAddr().String(), time.Now()
		pub.mu.Unlock()
		connect.Settled(ctx)
		select {
		case <-ns.Done():
			return ns.Err()
		case <-ctx.Done():
		}
		if errors.Is(context.Cause(ctx), connect.ErrMoved) {
			ns.Withdraw()
			for s.Publishing() > 0 && s.Err() == nil {
				time.Sleep(10 * time.Millisecond)
			}
		}
		return ctx.Err()
	})
	return pub
}

func (p *publisher) relay() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.at
}

// follower is a viewer of points that moves.
type follower struct {
	watcher
	newest uint64    // group
	at     string    // its relay
	moved  time.Time // when the first frame of that relay arrived
}

func (p *process) follower(t *testing.T) *follower {
	f := &follower{watcher: watcher{got: map[uint64]int{}}}
	p.keeps(t, moqt.Handler{}, func(ctx context.Context, s *moqt.Session) error {
		sub, err := connect.Subscribe(ctx, s, points, 0, true)
		if err != nil {
			return err
		}
		defer sub.Cancel()
		for {
			frame, err := next(ctx, sub)
			if errors.As(err, new(*moqt.StreamError)) {
				continue // cut by the end of the relay that sent it
			}
			if err != nil {
				return err
			}
			f.add(frame.group, s.RemoteAddr().String())
			connect.Settled(ctx)
		}
	})
	return f
}

func (f *follower) add(group uint64, at string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.got[group]++; f.got[group] > 1 {
		return
	}
	if f.first == 0 {
		f.first = group
	}
	f.newest = max(f.newest, group)
	if f.at != at {
		f.at, f.moved = at, time.Now()
	}
}

// missing lists the frames up to last that have not arrived.
func (f *follower) missing(last uint64) (list []uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for g := f.first; g <= last; g++ {
		if f.got[g] == 0 {
			list = append(list, g)
		}
	}
	return list
}

func (f *follower) relay() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.at
}

// watches waits until the follower has received frames written from now on.
func (f *follower) watches(t *testing.T, c *camera) {
	t.Helper()
	from := c.written()
	eventually(t, "new frames", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.newest > from+2
	})
}

// TestFailover kills the relay of a viewer and then that of the publisher. Both continue at other relays,
// the publisher with the next group number, and neither viewer sees an old frame again.
func TestFailover(t *testing.T) {
	t.Parallel()
	relays := startCluster(t, 3)
	byAddress := map[string]*process{}
	for _, p := range relays {
		byAddress[p.udp] = p
	}
	a, b := relays[0], relays[1]
	pub := a.publisher(t)
	c := newCamera(t, pub.tr, 1000)
	b.awaitMetric("holocast_relay_cluster_routes", 1)
	moves, stays := b.follower(t), a.follower(t)
	moves.watches(t, c)
	stays.watches(t, c)

	killed := time.Now()
	b.Kill()
	eventually(t, "the viewer is at another relay", func() bool { return moves.relay() != b.udp })
	moves.watches(t, c)
	stays.watches(t, c)
	t.Logf("viewer: frame of another relay %v after the kill, %d frames lost",
		moves.moved.Sub(killed).Round(time.Millisecond), len(moves.missing(c.written()-1)))
	delete(byAddress, b.udp)

	first := pub.relay()
	killed = time.Now()
	byAddress[first].Kill()
	eventually(t, "the publisher is at another relay", func() bool { return pub.relay() != first })
	moves.watches(t, c)
	stays.watches(t, c)
	t.Logf("publisher: at another relay %v after the kill", pub.moved.Sub(killed).Round(time.Millisecond))
}

// TestGateway checks that one relay of a region receives a session from another region for both, and that
// viewers at the other one continue when it is killed.
func TestGateway(t *testing.T) {
	t.Parallel()
	secret := authtest.SecretFile(t)
	a, seed := startMember(t, secret, "--cluster-region", "east")
	var west []*process
	for range 2 {
		p, _ := startMember(t, secret, "--cluster-region", "west", "--cluster-join", seed)
		west = append(west, p)
	}
	pub := a.publisher(t)
	c := newCamera(t, pub.tr, 1000)
	viewers := map[*process]*follower{}
	for _, p := range west {
		p.awaitMetric("holocast_relay_cluster_routes", 1)
		viewers[p] = p.follower(t)
		viewers[p].watches(t, c)
	}
	a.awaitMetric(viewersOf, 1)
	gateway, other := west[0], west[1]
	if gateway.metric(viewersOf) != 2 {
		gateway, other = other, gateway
	}
	gateway.awaitMetric(viewersOf, 2)

	gateway.Kill()
	viewers[other].watches(t, c)
	t.Logf("%d frames lost", len(viewers[other].missing(c.written()-1)))
	if at := viewers[other].relay(); at != other.udp {
		t.Errorf("the viewer moved to %s", at)
	}
}

// TestFrozenRelay stops a relay without killing it: its viewer and its publisher continue at another one.
// When the relay continues, it has neither.
func TestFrozenRelay(t *testing.T) {
	t.Parallel()
	relays := startCluster(t, 2)
	a, b := relays[0], relays[1]
	pub := a.publisher(t)
	c := newCamera(t, pub.tr, 1000)
	f := a.follower(t)
	f.watches(t, c)
	a.Signal(syscall.SIGSTOP)
	eventually(t, "both are at the other relay", func() bool { return pub.relay() == b.udp && f.relay() == b.udp })
	f.watches(t, c)
	a.Signal(syscall.SIGCONT)
	b.awaitMetric("holocast_relay_cluster_relays", 1)
	a.awaitMetric("holocast_relay_cluster_routes", 1)
	b.awaitMetric("holocast_relay_cluster_published_namespaces", 1)
	f.watches(t, c)
	if pub.relay() != b.udp || f.relay() != b.udp {
		t.Errorf("the publisher is at %s and the viewer at %s, not at %s", pub.relay(), f.relay(), b.udp)
	}
}

// TestDrainInCluster drains the publisher's relay, with viewers at it and at another one. No viewer loses a frame.
func TestDrainInCluster(t *testing.T) {
	t.Parallel()
	relays := startCluster(t, 3)
	a, b := relays[0], relays[1]
	pub := a.publisher(t)
	c := newCamera(t, pub.tr, 1000)
	b.awaitMetric("holocast_relay_cluster_routes", 1)
	moves, stays := a.follower(t), b.follower(t)
	moves.watches(t, c)
	stays.watches(t, c)
	from := c.written()
	out, err := exec.Command(binary, "drain", "--listen", a.udp).CombinedOutput()
	if err != nil || string(out) != "2 sessions moved\n" {
		t.Errorf("%v: %s", err, out)
	}
	<-a.Done()
	if err := a.Err(); err != nil {
		t.Errorf("the drained relay ended with %v", err)
	}
	moves.watches(t, c)
	stays.watches(t, c)
	c.stop()
	last := c.written()
	for name, f := range map[string]*follower{"that moved": moves, "of another relay": stays} {
		eventually(t, "all frames at the viewer "+name, func() bool { return f.has(last) })
		if list := f.missing(last); len(list) > 0 {
			t.Errorf("the viewer %s lost the frames %v of %d to %d", name, list, from, last)
		}
		if f.relay() == a.udp {
			t.Errorf("the viewer %s is at the drained relay", name)
		}
	}
	if pub.relay() == a.udp {
		t.Error("the publisher is at the drained relay")
	}
	alone := start(t)
	out, err = exec.Command(binary, "drain", "--listen", alone.udp).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "the relay is in no cluster") {
		t.Errorf("alone: %v: %s", err, out)
	}
}

// TestFullRelay checks that a full relay sends clients to another one.
func TestFullRelay(t *testing.T) {
	t.Parallel()
	secret := authtest.SecretFile(t)
	a, seed := startMember(t, secret, "--max-sessions", "2")
	b, _ := startMember(t, secret, "--cluster-join", seed)
	a.awaitMetric("holocast_relay_cluster_relays", 1)
	pub := a.publisher(t)
	c := newCamera(t, pub.tr, 1000)
	b.awaitMetric("holocast_relay_cluster_routes", 1)
	first := a.follower(t)
	first.watches(t, c)
	second := a.follower(t)
	second.watches(t, c)
	if at := []string{first.relay(), second.relay()}; !slices.Equal(at, []string{a.udp, b.udp}) {
		t.Errorf("the viewers are at %q, want %q and %q", at, a.udp, b.udp)
	}
}

// TestUpgradeMovesSessions checks that no viewer loses a frame when the old process of an upgraded relay asks
// its sessions to move: those of the publisher, of a viewer and of another relay.
func TestUpgradeMovesSessions(t *testing.T) {
	secret := authtest.SecretFile(t)
	listen := freePort(t)
	a, _ := upgradable(t, "--cluster", "test", "--cluster-secret", secret, "--cluster-listen", listen,
		"--drain-timeout", "500ms")
	b, _ := startMember(t, secret, "--cluster-join", listen)
	pub := a.publisher(t)
	c := newCamera(t, pub.tr, 10_000)
	b.awaitMetric("holocast_relay_cluster_routes", 1)
	viewers := map[string]*follower{"here": a.follower(t), "at another relay": b.follower(t)}
	for _, f := range viewers {
		f.watches(t, c)
	}
	a.upgrade()
	eventually(t, "the old process ends", func() bool { return !running(a.Cmd.Process) })
	for where, f := range viewers {
		last := c.written()
		f.watches(t, c)
		if list := f.missing(last); len(list) > 0 {
			t.Errorf("the viewer %s lost frames %v of %d", where, list, last)
		}
	}
}
