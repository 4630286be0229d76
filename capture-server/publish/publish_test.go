package publish_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"holocast/capture-server/publish"
	"holocast/capture-server/publish/publishtest"
	"holocast/internal/catalog"
	"holocast/internal/clock"
	"holocast/internal/leaktest"
	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/origin"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// ticker is a medium with a single track, named after it, that gets an object every few
// milliseconds.
type ticker struct {
	name   string
	track  *origin.Track
	end    chan error // sends Run's result
	closed atomic.Bool
}

func newTicker(p *publish.Publisher, name string) *ticker {
	return &ticker{name: name, track: p.NewTrack(publish.Track{Name: name, Priority: 96}), end: make(chan error, 1)}
}

func (k *ticker) Name() string { return k.name }
func (k *ticker) Close()       { k.closed.Store(true) }

func (k *ticker) Describe(c *catalog.Catalog) error {
	c.Tracks = append(c.Tracks, catalog.Track{Name: k.name, Packaging: catalog.PackagingLOC, IsLive: true})
	return nil
}

func (k *ticker) Run(ctx context.Context) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for group := publish.FirstGroup(); ; group++ {
		select {
		case <-tick.C:
			h := wire.SubgroupHeader{Group: group, EndOfGroup: true, FirstObject: true}
			if err := k.track.WriteObject(h, moqt.Object{}, []byte("tick")); err != nil {
				return err
			}
		case err := <-k.end:
			k.track.End(wire.DoneTrackEnded, "the ticker has stopped")
			return err
		case <-ctx.Done():
			return nil
		}
	}
}

func newSession(t *testing.T, metrics prometheus.Registerer) *publish.Publisher {
	t.Helper()
	p := publish.New(publish.Config{
		Namespace: publishtest.Namespace, Log: slog.New(slog.DiscardHandler),
		Metrics: metrics,
	})
	t.Cleanup(p.Close)
	return p
}

func add(t *testing.T, p *publish.Publisher, media ...publish.Medium) {
	t.Helper()
	for _, m := range media {
		if err := p.Add(m); err != nil {
			t.Fatal(err)
		}
	}
}

func TestReconnect(t *testing.T) {
	r := publishtest.NewRelay(t)
	p := newSession(t, prometheus.NewRegistry())
	add(t, p, newTicker(p, "clock"))
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- p.Run(ctx, r.Target) }()
	var before uint64 // newest group of the previous session, since streams of a session can overtake each other
	for range 2 {
		s := <-r.Sessions
		sub, err := s.Subscribe(t.Context(), moqt.TrackName{Namespace: publishtest.Namespace, Name: "clock"},
			moqt.SubscribeOptions{})
		if err != nil {
			t.Fatal(err)
		}
		newest := before
		for range 3 {
			g, err := sub.AcceptSubgroup(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if g.Group <= before {
				t.Errorf("group %d, after %d in the session before", g.Group, before)
			}
			newest = max(newest, g.Group)
			g.Cancel(wire.StreamCancelled)
		}
		before = newest
		s.Close(wire.NoError, "") // as a restarting relay does
	}
	<-r.Sessions
	cancel()
	if err := <-ran; err != nil {
		t.Errorf("Run: %v", err)
	}
}

// names returns the track names in a session's newest catalog.
func names(t *testing.T, p *publish.Publisher) []string {
	t.Helper()
	objects := publishtest.Objects(t, p, catalog.TrackName)
	c, err := catalog.Parse(objects[len(objects)-1])
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, track := range c.Tracks {
		names = append(names, track.Name)
	}
	return names
}

// TestMediaEndSeparately checks that a medium that ends or fails leaves the catalog while the
// others continue, and that the session ends with the last one and returns all errors.
func TestMediaEndSeparately(t *testing.T) {
	for _, tt := range []struct {
		name        string
		first, last error
		want        string
	}{
		{"both come to their ends", nil, nil, "<nil>"},
		{"one fails", errors.New("unplugged"), nil, "unplugged"},
		{"both fail", errors.New("unplugged"), errors.New("disk full"), "unplugged\ndisk full"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := publishtest.NewRelay(t)
			p := newSession(t, nil)
			points, tiles := newTicker(p, "points/0/full"), newTicker(p, "tiles/0/high")
			add(t, p, points, tiles)
			if got := names(t, p); !slices.Equal(got, []string{points.name, tiles.name, clock.Track}) {
				t.Fatalf("catalog has %q", got)
			}
			ran := make(chan error, 1)
			go func() { ran <- p.Run(t.Context(), r.Target) }()
			s := <-r.Sessions
			sub, err := s.Subscribe(t.Context(), moqt.TrackName{Namespace: publishtest.Namespace, Name: tiles.name},
				moqt.SubscribeOptions{})
			if err != nil {
				t.Fatal(err)
			}
			points.end <- tt.first
			for got := names(t, p); slices.Contains(got, points.name); got = names(t, p) {
				time.Sleep(time.Millisecond)
			}
			if got := names(t, p); !slices.Contains(got, tiles.name) {
				t.Errorf("catalog has %q after the first medium ended", got)
			}
			since := tiles.track.Stats().Objects
			for newest := uint64(0); newest < 3; { // objects written since then are still received
				g, err := sub.AcceptSubgroup(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				g.Cancel(wire.StreamCancelled)
				newest = tiles.track.Stats().Objects - since
			}
			tiles.end <- tt.last
			if err := <-ran; fmt.Sprint(err) != tt.want {
				t.Errorf("Run: %v, want %v", err, tt.want)
			}
			if got := names(t, p); len(got) != 0 {
				t.Errorf("the last catalog has %q", got)
			}
			p.Close()
			if !points.closed.Load() || !tiles.closed.Load() {
				t.Error("a medium was not closed")
			}
		})
	}
}

// undescribed is a medium whose Describe fails.
type undescribed struct{ *ticker }

func (undescribed) Describe(*catalog.Catalog) error { return errors.New("no codec") }

func TestAddDescribeError(t *testing.T) {
	p := newSession(t, nil)
	k := newTicker(p, "tiles")
	if err := p.Add(undescribed{k}); err == nil || err.Error() != "catalog of tiles: no codec" {
		t.Errorf("Add: %v", err)
	}
	if !k.closed.Load() {
		t.Error("the medium was not closed")
	}
}
