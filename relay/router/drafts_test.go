package router

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"strconv"
	"sync"
	"testing"
	"time"

	"holocast/internal/devcert"
	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/origin"
	"holocast/internal/sessiontest/fakepath"
)

// TestDrafts connects publishers and viewers of different drafts through one relay, in fake time. Late
// viewers have the current group after one round trip to the relay, plus those to the publisher if
// they are the first, and lose and repeat no frame.
func TestDrafts(t *testing.T) {
	drafts := []wire.Version{wire.Draft18, wire.Draft20, wire.Draft22}
	for _, publisher := range drafts {
		for _, viewer := range drafts {
			t.Run(fmt.Sprintf("publisher %v, viewer %v", publisher, viewer), func(t *testing.T) {
				fakepath.Test(t, func(t *testing.T) { joinLate(t, publisher, viewer) })
			})
		}
	}
}

func joinLate(t *testing.T, publisher, viewer wire.Version) {
	const (
		toPublisher = 20 * time.Millisecond // round trip
		toViewer    = 100 * time.Millisecond
		frame       = time.Second / 30
		slack       = 5 * time.Millisecond
	)
	ctx, cancel := context.WithCancel(t.Context())
	r := New(Config{Log: quiet.Log, Linger: time.Second, Grace: time.Second})
	cert, err := devcert.Generate(time.Now(), "localhost", "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	dial := func(rtt time.Duration, v wire.Version, h moqt.Handler) *moqt.Session {
		d := fakepath.Direction{Delay: rtt / 2}
		path := fakepath.New(d, d)
		t.Cleanup(path.Close)
		cfg := quiet
		cfg.Packets = path.A
		ln, err := moqt.Listen("127.0.0.1:0", moqt.ListenConfig{
			Config: cfg, TLS: &tls.Config{Certificates: []tls.Certificate{cert}},
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = ln.Close() })
		go r.ServeAll(ctx, ln)
		cfg.Packets, cfg.Versions = path.B, []wire.Version{v}
		s, err := moqt.Dial(ctx, "moqt://"+ln.Addr().String(), devcert.Pinned(devcert.Hash(cert)), h, cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close(wire.NoError, "") })
		return s
	}

	tr := newPoints()
	var set origin.Set
	set.Add(tr)
	p := dial(toPublisher, publisher, set.Handler())
	if _, err := p.PublishNamespace(ctx, session); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	var publishing sync.WaitGroup
	defer publishing.Wait()
	defer cancel()
	publishing.Go(func() {
		for group := uint64(0); ctx.Err() == nil; group++ {
			time.Sleep(time.Until(began.Add(time.Duration(group) * frame)))
			h := wire.SubgroupHeader{Group: group, FirstObject: true}
			if tr.WriteObject(h, moqt.Object{}, []byte(strconv.FormatUint(group, 10))) != nil {
				return
			}
		}
	})
	v1, v2 := dial(toViewer, viewer, moqt.Handler{}), dial(toViewer, viewer, moqt.Handler{})
	time.Sleep(10 * frame)
	watch(t, ctx, "first viewer", v1, toViewer+2*toPublisher+slack, 15)
	watch(t, ctx, "second viewer", v2, toViewer+slack, 15)
}

// watch joins the track and expects its frames without a gap: the first within limit, then n more.
func watch(t *testing.T, ctx context.Context, name string, v *moqt.Session, limit time.Duration, n uint64) {
	t.Helper()
	began := time.Now()
	sub, err := v.Subscribe(ctx, points, moqt.SubscribeOptions{
		Filter: &moqt.Filter{Type: wire.FilterLargestObject}, Join: true,
	})
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	f, err := sub.Joined(ctx)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	var next uint64
	for first := true; ; first = false {
		o, err := f.Next()
		if err == io.EOF && !first {
			break
		}
		if err != nil || o.Range != wire.RangeNone {
			t.Fatalf("%s: %+v, %v", name, o, err)
		}
		b, err := f.ReadPayload(nil, 100)
		if err != nil || string(b) != strconv.FormatUint(o.Group, 10) {
			t.Fatalf("%s: group %d is %q, %v", name, o.Group, b, err)
		}
		if took := time.Since(began); first && took > limit {
			t.Errorf("%s: first frame after %v, want %v", name, took, limit)
		}
		next = o.Group + 1
	}
	if sub.Largest == nil || next != sub.Largest.Group+1 {
		t.Errorf("%s: joined up to group %d, largest is %v", name, next-1, sub.Largest)
	}
	seen := map[uint64]bool{}
	for range n {
		sg, err := sub.AcceptSubgroup(ctx)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if _, err := sg.NextObject(); err != nil {
			t.Fatalf("%s: group %d: %v", name, sg.Group, err)
		}
		b, err := sg.ReadPayload(nil, 100)
		if err != nil || string(b) != strconv.FormatUint(sg.Group, 10) || seen[sg.Group] {
			t.Fatalf("%s: group %d is %q, %v", name, sg.Group, b, err)
		}
		seen[sg.Group] = true
	}
	for group := next; group < next+n; group++ {
		if !seen[group] {
			t.Errorf("%s: group %d is lost", name, group)
		}
	}
}
