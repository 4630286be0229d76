//go:build linux

package probe

import (
	"context"
	"log/slog"
	"net/netip"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"holocast/internal/leaktest"
	"holocast/internal/netlab/namespace"
	"holocast/internal/netlab/namespace/namespacetest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// pair is a path between two namespaces.
type pair struct {
	t         *testing.T
	near, far namespace.End
}

func newPair(t *testing.T) *pair {
	if err := namespace.Supported(); err != nil {
		t.Skip("probes over a path need namespaces:", err)
	}
	g := namespacetest.NewGroup(t)
	p := &pair{t: t}
	for name, end := range map[string]*namespace.End{"near": &p.near, "far": &p.far} {
		ns, err := g.Add(name)
		if err != nil {
			t.Fatal(err)
		}
		*end = namespace.End{Namespace: ns, Device: "wan1"}
	}
	if err := namespace.Connect(p.near, p.far); err != nil {
		t.Fatal(err)
	}
	for end, address := range map[namespace.End]string{p.near: "10.1.0.1/24", p.far: "10.1.0.2/24"} {
		a, err := netlink.ParseAddr(address)
		if err != nil {
			t.Fatal(err)
		}
		link, err := end.Link()
		if err != nil {
			t.Fatal(err)
		}
		if err := end.Namespace.Handle.AddrAdd(link, a); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// run starts a prober with its sockets in the namespace of end. stop ends it.
func (p *pair) run(end namespace.End, peer string, key []byte) (prober *Prober, stop func()) {
	prober = &Prober{
		Path: 1, Interface: "wan1", Peer: netip.MustParseAddrPort(peer), Every: 10 * time.Millisecond,
		Timeout: 100 * time.Millisecond,
		Key:     key, Log: slog.New(slog.DiscardHandler),
	}
	ctx, cancel := context.WithCancel(p.t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		runtime.LockOSThread() // never unlocked, so the thread and its namespace end with the goroutine
		if err := netns.Set(netns.NsHandle(end.Namespace.FD())); err != nil {
			p.t.Error(err)
			return
		}
		prober.Run(ctx)
	})
	stop = func() { cancel(); wg.Wait() }
	p.t.Cleanup(stop)
	return prober, stop
}

func until(t *testing.T, what string, p *Prober, ok func(Stats) bool) {
	t.Helper()
	for limit := time.Now().Add(2 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
		s := p.Stats()
		if ok(s) {
			return
		}
		if time.Now().After(limit) {
			t.Fatalf("%s: not reached: %+v", what, s)
		}
	}
}

func TestProber(t *testing.T) {
	key := []byte("0123456789abcdef")
	p := newPair(t)
	near, _ := p.run(p.near, "10.1.0.2:4791", key)
	until(t, "nobody there", near,
		func(s Stats) bool { return s.Loss == 1 && s.Answered == 0 && s.Silent > 100*time.Millisecond })

	far, stop := p.run(p.far, "10.1.0.1:4791", key)
	for _, prober := range []*Prober{near, far} {
		until(t, "answers", prober, func(s Stats) bool {
			return s.Answered >= 20 && s.RTT > 0 && s.RTT < 50*time.Millisecond && s.MinRTT <= s.RTT
		})
	}
	stop()
	until(t, "the peer stopped", near, func(s Stats) bool { return s.Silent > 200*time.Millisecond && s.Loss > 0 })
	_, stop = p.run(p.far, "10.1.0.1:4791", []byte("fedcba9876543210"))
	until(t, "another key", near, func(s Stats) bool { return s.Refused > 5 && s.Silent > 200*time.Millisecond })
	stop()
	_, stop = p.run(p.far, "10.1.0.77:4791", key)
	time.Sleep(200 * time.Millisecond)
	if s := near.Stats(); s.Silent < 300*time.Millisecond {
		t.Errorf("an edge with another peer answered: %+v", s)
	}
	stop()

	// The device goes down and up.
	link, err := p.near.Link()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.near.Namespace.Handle.LinkSetDown(link); err != nil {
		t.Fatal(err)
	}
	if err := p.near.Namespace.Handle.LinkSetUp(link); err != nil {
		t.Fatal(err)
	}
	before := near.Stats().Answered
	p.run(p.far, "10.1.0.1:4791", key)
	until(t, "answers after the path came back", near,
		func(s Stats) bool { return s.Answered > before+10 && s.Silent < 100*time.Millisecond })
}
