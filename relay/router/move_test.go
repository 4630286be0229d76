package router

import (
	"context"
	"encoding/hex"
	"io"
	"slices"
	"sync"
	"testing"
	"time"

	"holocast/internal/connect"
	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/origin"
)

// target is the address of the tests' session at the relay.
func (r *relay) target() connect.Target {
	return connect.Target{URL: r.url + "/test", CertificateHash: hex.EncodeToString(r.hash[:])}
}

// goaway sends GOAWAY with a URI to all sessions.
func (r *relay) goaway(uri string) {
	for _, s := range r.Sessions() {
		go func() { _ = s.Goaway(r.ctx, uri, 10*time.Second) }()
	}
}

// TestMoveBetweenRelays checks that after a GOAWAY to another relay, publisher and viewers reconnect
// there, and that no frame is lost.
func TestMoveBetweenRelays(t *testing.T) {
	cert := newCertificate(t)
	one, other := startWith(t, short(), cert), startWith(t, short(), cert)
	ctx, stop := context.WithCancel(one.ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()

	tr := origin.NewTrack(points, nil, origin.Limits{MaxAge: time.Minute})
	var set origin.Set
	set.Add(tr)
	wg.Go(func() {
		_ = one.target().KeepMoving(ctx, set.Handler(), quiet, func(ctx context.Context, s *moqt.Session) error {
			if _, err := s.PublishNamespace(ctx, session); err != nil {
				return err
			}
			connect.Settled(ctx)
			<-ctx.Done()
			for s.Publishing() > 0 && s.Err() == nil && one.ctx.Err() == nil {
				time.Sleep(10 * time.Millisecond)
			}
			return ctx.Err()
		})
	})

	var mu sync.Mutex
	seen := map[uint64]bool{}
	sessions := map[string]bool{}
	note := func(s *moqt.Session, group uint64) {
		mu.Lock()
		defer mu.Unlock()
		seen[group], sessions[s.RemoteAddr().String()] = true, true
	}
	count := func() int { mu.Lock(); defer mu.Unlock(); return len(seen) }
	wg.Go(func() {
		_ = one.target().KeepMoving(ctx, moqt.Handler{}, quiet, func(ctx context.Context, s *moqt.Session) error {
			sub, err := connect.Subscribe(ctx, s, points, 0, true)
			if err != nil {
				return err
			}
			defer sub.Cancel()
			if sub.Largest != nil { // the current group
				f, err := sub.Joined(ctx)
				if err != nil {
					return err
				}
				_ = f.Each(ctx, 100, func(o wire.FetchObject, _ []byte) error {
					note(s, o.Group)
					return nil
				})
			}
			for {
				sg, err := sub.AcceptSubgroup(ctx)
				if err != nil {
					return err
				}
				if _, err := sg.NextObject(); err != nil {
					continue
				}
				if _, err := sg.NextObject(); err == io.EOF {
					note(s, sg.Group)
					connect.Settled(ctx)
				}
			}
		})
	})

	const frames = 300
	moved := false
	for i := range uint64(frames) {
		one.write(tr, i+1, "frame")
		if i == 0 {
			one.eventually("the viewer has a frame", func() bool { return count() > 0 })
		}
		if i == frames/3 && !moved {
			moved = true
			one.goaway(other.url)
		}
		time.Sleep(10 * time.Millisecond)
	}
	one.eventually("all frames are here", func() bool { return count() == frames })
	one.eventually("the first relay has no sessions", func() bool { return len(one.Sessions()) == 0 })
	mu.Lock()
	defer mu.Unlock()
	if len(sessions) != 2 {
		t.Errorf("frames came from %d relays, want both", len(sessions))
	}
	var missing []uint64
	for g := range uint64(frames) {
		if !seen[g+1] {
			missing = append(missing, g+1)
		}
	}
	if missing != nil {
		t.Errorf("missing: %v", slices.Clip(missing))
	}
}
