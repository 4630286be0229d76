package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holocast/internal/connect"
	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/origin"
)

// maxAge is the age at which groups leave the memory of relay and publisher. It is long enough for them to be complete
// even if the machine pauses for a second.
const maxAge = 3 * time.Second

// newRun returns the track points of a new run of a publisher.
func newRun() *origin.Track {
	return origin.NewTrack(points, wire.AppendKeyValues(nil, connect.NewInstance()), origin.Limits{MaxAge: maxAge})
}

// past fetches groups from 1 on and returns the payloads, by group. Groups that are unknown are missing.
func past(t *testing.T, s *moqt.Session, last uint64) map[uint64]string {
	t.Helper()
	f, err := s.Fetch(within(t), points, moqt.Location{Group: 1}, moqt.Location{Group: last}, moqt.FetchOptions{})
	if err != nil {
		return nil
	}
	defer f.Cancel()
	got := map[uint64]string{}
	for {
		o, err := f.Next()
		if err != nil {
			return got
		}
		if o.Range != wire.RangeNone {
			continue
		}
		b, err := f.ReadPayload(nil, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		got[o.Group] = string(b)
	}
}

// TestDiskCache fetches groups that have left the memory of relay and publisher: from a running relay, from the one
// that follows after a stop or a kill, and not from another run of the publisher with the same group numbers.
func TestDiskCache(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*process){"stopped": (*process).stop, "killed": (*process).kill} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "cache")
			args := []string{"--cache-disk-dir", dir, "--cache-max-age", maxAge.String()}
			p := start(t, args...)
			tr := newRun()
			p.publish(tr)
			viewer := p.dial(moqt.Handler{})
			sub := subscribe(t, viewer, points)
			eventually(t, "the relay subscribes", func() bool { return tr.Viewers() == 1 })
			group := uint64(0)
			play := func(tr *origin.Track, until func() bool) {
				t.Helper()
				for !until() {
					group++
					write(t, tr, group, []byte(fmt.Sprint("frame ", group)))
					time.Sleep(30 * time.Millisecond)
				}
			}
			whole := func(s *moqt.Session, last uint64) bool {
				got := past(t, s, last)
				for g := uint64(1); g <= last; g++ {
					if got[g] != fmt.Sprint("frame ", g) {
						return false
					}
				}
				return true
			}
			const kept = "holocast_relay_disk_cache_groups"
			play(tr, func() bool { return p.metric(kept) >= 30 })
			expect(t, sub, group, []byte(fmt.Sprint("frame ", group)))
			if !whole(viewer, 30) {
				t.Errorf("fetched %v, want 30 frames", past(t, viewer, 30))
			}
			if p.metric("holocast_relay_disk_cache_read_bytes_total") == 0 {
				t.Error("nothing was read from the disk")
			}
			end(p)

			again := start(t, args...)
			again.publish(tr)
			later := again.dial(moqt.Handler{})
			subscribe(t, later, points)
			eventually(t, "the relay subscribes", func() bool { return tr.Viewers() >= 1 })
			if !whole(later, 30) {
				t.Errorf("after a restart: fetched %v, want 30 frames", past(t, later, 30))
			}
			again.Stop()

			last := start(t, args...)
			other := newRun()
			write(t, other, 25, []byte("another run"))
			last.publish(other)
			stranger := last.dial(moqt.Handler{})
			subscribe(t, stranger, points)
			for g, text := range past(t, stranger, 25) {
				if g != 25 || text != "another run" {
					t.Errorf("group %d is %q", g, text)
				}
			}
		})
	}
}

func (p *process) stop() { p.Stop() }
func (p *process) kill() { p.Kill() }

// TestDiskCacheDamaged damages the files between two relays: the damage is logged, and only original frames are
// served.
func TestDiskCacheDamaged(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	args := []string{"--cache-disk-dir", dir, "--cache-max-age", maxAge.String()}
	p := start(t, args...)
	tr := newRun()
	p.publish(tr)
	subscribe(t, p.dial(moqt.Handler{}), points)
	eventually(t, "the relay subscribes", func() bool { return tr.Viewers() == 1 })
	group := uint64(0)
	for p.metric("holocast_relay_disk_cache_groups") < 20 {
		group++
		write(t, tr, group, []byte(strings.Repeat(fmt.Sprint(group), 1000)))
		time.Sleep(30 * time.Millisecond)
	}
	p.Kill()
	list, err := filepath.Glob(filepath.Join(dir, "*", "*.segment"))
	if err != nil || len(list) == 0 {
		t.Fatalf("files %q, %v", list, err)
	}
	b, err := os.ReadFile(list[0])
	if err != nil {
		t.Fatal(err)
	}
	for i := len(b) / 2; i < len(b); i += 500 {
		b[i] ^= 1
	}
	if err := os.WriteFile(list[0], b, 0o600); err != nil {
		t.Fatal(err)
	}
	again := start(t, args...)
	again.publish(tr)
	s := again.dial(moqt.Handler{})
	subscribe(t, s, points)
	got := past(t, s, group)
	if len(got) == 0 {
		t.Error("nothing is left")
	}
	for g, text := range got {
		if text != strings.Repeat(fmt.Sprint(g), 1000) {
			t.Errorf("group %d differs", g)
		}
	}
	if !strings.Contains(again.output(), "cache on disk: dropped") {
		t.Error("the damage is not logged")
	}
}
