package control

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"holocast/internal/leaktest"
	"holocast/internal/testlog"
	"holocast/netfunc/api"
	"holocast/netfunc/controller/policy"
	"holocast/netfunc/signal"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func start(t *testing.T, change func(*Config)) (*Plane, *testlog.Buffer) {
	t.Helper()
	l := &testlog.Buffer{}
	c := Config{
		Policy: policy.DefaultConfig(), Key: bytes.Repeat([]byte{1}, signal.KeySize),
		Log: slog.New(slog.NewTextHandler(l, nil)),
	}
	if change != nil {
		change(&c)
	}
	p, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = p.Run(ctx) })
	t.Cleanup(func() { stop(); wg.Wait(); p.Close() })
	return p, l
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if is() {
			return
		}
	}
	t.Fatal("not in time: " + what)
}

var (
	viewer = netip.MustParseAddr("10.9.0.7")
	prefix = []netip.Prefix{netip.MustParsePrefix("10.9.0.0/16")}
	paths  = []api.Path{{Index: 1, Up: true}, {Index: 2, Up: true}}
)

// hello registers a sender with signalling address to, and a receiver.
func hello(t *testing.T, p *Plane, to netip.AddrPort) {
	t.Helper()
	for _, e := range []api.Edge{
		{Name: "a", Role: api.Sender, Signal: to, SignalVersion: signal.Version, Paths: paths, Towards: prefix},
		{Name: "b", Role: api.Receiver, Paths: paths, Behind: prefix},
	} {
		if _, err := p.Hello(e); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Report("b", api.Report{Paths: paths, Ready: []netip.Addr{viewer}}); err != nil {
		t.Fatal(err)
	}
}

// If the state cannot be saved, the controller keeps working and reports it.
func TestStateNotSaved(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	file := filepath.Join(dir, "controller.json")
	p, l := start(t, func(c *Config) { c.StateFile = file })
	if err := os.Rename(dir, dir+".away"); err != nil {
		t.Fatal(err)
	}
	hello(t, p, netip.MustParseAddrPort("127.0.0.1:9"))
	eventually(t, "the failure shows",
		func() bool { return p.Status().StateErr != "" && l.Has("cannot save the state") })
	if _, err := p.Set(viewer, api.Setting{Mode: api.Duplicate}); err != nil {
		t.Error(err)
	}
	if err := os.Rename(dir+".away", dir); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the state is saved again", func() bool { return p.Status().StateErr == "" && l.Has("saved again") })
	b, err := os.ReadFile(file)
	if err != nil || !bytes.Contains(b, []byte(`"mode":"duplicate"`)) || p.Counts().SavesFailed == 0 {
		t.Errorf("%v, %s", err, b)
	}
}

// A slow watcher receives only the latest state, once.
func TestWatcherKeepsNoHistory(t *testing.T) {
	p, _ := start(t, nil)
	hello(t, p, netip.MustParseAddrPort("127.0.0.1:9"))
	w, err := p.Watch("b")
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	<-w.C
	if u, err := w.Next(); err != nil || !u.Snapshot || len(u.Flows) != 0 {
		t.Errorf("%+v, %v", u, err)
	}
	for range 50 {
		for _, m := range []api.Mode{api.Duplicate, api.Off} {
			if _, err := p.Set(viewer, api.Setting{Mode: m}); err != nil {
				t.Fatal(err)
			}
		}
	}
	<-w.C
	u, err := w.Next()
	if err != nil || u.Snapshot || len(u.Flows) != 1 || u.Flows[0].State != api.Disabled {
		t.Errorf("%+v, %v", u, err)
	}
	if err := p.Leave(t.Context(), "b"); !errors.Is(err, policy.ErrUnconfirmed) { // a never reports
		t.Fatal(err)
	}
	<-w.C
	if _, err := w.Next(); !errors.Is(err, policy.ErrUnknownEdge) {
		t.Error(err)
	}
	if _, err := p.Watch("b"); !errors.Is(err, policy.ErrUnknownEdge) {
		t.Error(err)
	}
	for range maxWatchers - 1 {
		w, err := p.Watch("a")
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
	}
	if _, err := p.Watch("a"); !errors.Is(err, policy.ErrFull) {
		t.Errorf("%v", err)
	}
}

// Ticks of the clock detect silence and repeat signals.
func TestTicks(t *testing.T) {
	udp, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = udp.Close() }()
	var mu sync.Mutex
	var reactions []time.Duration
	p, _ := start(t, func(c *Config) {
		c.Policy.Trigger = policy.Trigger{
			Rule: policy.Paper, Sensitivity: 1,
			Interval: 20 * time.Millisecond, Count: 3, Silence: 40 * time.Millisecond,
			Live: 2,
		}
		c.Policy.ReportInterval = time.Hour // the edges do not report again
		c.Policy.Signal = policy.Resend{First: 5 * time.Millisecond, Slow: 50 * time.Millisecond}
		c.Reaction = func(d time.Duration) { mu.Lock(); reactions = append(reactions, d); mu.Unlock() }
	})
	hello(t, p, udp.LocalAddr().(*net.UDPAddr).AddrPort())
	began := time.Now()
	for i := range 3 {
		o := api.Observation{Time: int64(i), Source: netip.AddrPortFrom(viewer, 1)}
		if err := p.Uplink("b", []api.Observation{o}); err != nil {
			t.Fatal(err)
		}
	}
	b := make([]byte, 100)
	_ = udp.SetReadDeadline(time.Now().Add(2 * time.Minute))
	for i := range 5 {
		n, err := udp.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		m, err := signal.Parse(b[:n], signal.EdgeKey(p.conf.Key, "a"))
		if err != nil || m.Paths != 0b11 {
			t.Fatalf("%+v, %v", m, err)
		}
		if d := time.Since(began); i == 0 && d < 40*time.Millisecond {
			t.Errorf("after %s", d)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if since := time.Since(began); len(reactions) < 4 || reactions[0] > since {
		t.Errorf("reactions took %v in the %v since the first observation", reactions, since)
	}
}

// Failures to reach an edge are counted and do not flood the log.
func TestUnreachable(t *testing.T) {
	p, l := start(t, func(c *Config) { c.From = netip.MustParseAddr("127.0.0.1") })
	hello(t, p, netip.MustParseAddrPort("192.0.2.1:4790")) // unreachable from a loopback address
	if _, err := p.Set(viewer, api.Setting{Mode: api.Duplicate}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "failures are counted", func() bool { return p.Counts().SignalsFailed > 3 })
	if n := strings.Count(l.String(), `msg="signalling packet not sent"`); n != 1 {
		t.Errorf("%d lines about it", n)
	}
}
