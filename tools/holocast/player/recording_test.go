package player

import (
	"log/slog"
	"slices"
	"testing"
	"time"
)

// TestPauseEndsInTime checks that a scripted pause has its configured duration, and that playback
// resumes from the scheduled end of the pause even if the tick is late.
func TestPauseEndsInTime(t *testing.T) {
	for _, late := range []time.Duration{0, playbackTick, 500 * time.Millisecond} {
		p := New(
			Config{
				Namespace: namespace,
				Log:       slog.New(slog.DiscardHandler),
				Script:    []Cue{{At: 800 * time.Millisecond, Pause: true, For: 300 * time.Millisecond}},
			},
		)
		t.Cleanup(p.Close)
		r := p.recorded
		r.own, r.length = true, 2*time.Second
		began := time.Now()
		b := playback{p: p, at: began}
		for at := playbackTick; at <= 1050*time.Millisecond; at += playbackTick {
			b.tick(began.Add(at))
		}
		if r.playing || r.position != 800*time.Millisecond {
			t.Fatalf("tick %v late: at %v, playing: %v", late, r.position, r.playing)
		}
		b.tick(began.Add(1100*time.Millisecond + late))
		if want := 800*time.Millisecond + late; !r.playing || r.position != want || r.stats.paused != 300*time.Millisecond {
			t.Errorf("tick %v late: at %v after a pause of %v, want %v after 300ms", late, r.position, r.stats.paused, want)
		}
	}
}

// TestDueFramesShown checks that every frame is displayed while the position advances evenly, and
// only the newest if several are due at the same time.
func TestDueFramesShown(t *testing.T) {
	f, _ := newIdleFeed(t, 1)
	r := &trackBuffer{f: f}
	for group := uint64(0); group < 1000; group += 33 {
		r.frames = append(r.frames, &frame{group: group})
	}
	var shown []uint64
	show := func(position time.Duration) {
		r.show(position)
		for len(f.queue) > 0 {
			shown = append(shown, (<-f.queue).group)
		}
	}
	for at := time.Duration(0); at <= 200*time.Millisecond; at += playbackTick {
		show(at)
	}
	if want := []uint64{0, 33, 66, 99, 132, 165, 198}; !slices.Equal(shown, want) || f.counters.skipped != 0 {
		t.Errorf("groups %v shown and %d skipped, want %v and 0", shown, f.counters.skipped, want)
	}
	show(300 * time.Millisecond)
	if last := shown[len(shown)-1]; last != 297 || f.counters.skipped != 2 {
		t.Errorf("group %d shown and %d skipped after 100 ms, want 297 and 2", last, f.counters.skipped)
	}
}
