//go:build linux

package probe

import (
	"testing"
	"time"
)

func TestWindow(t *testing.T) {
	start := time.Unix(1_700_000_000, 0)
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	for name, c := range map[string]struct {
		do   func(*window)
		now  int // ms
		want Stats
	}{
		"nothing sent": {do: func(*window) {}, want: Stats{}},
		"one under way": {
			do:  func(w *window) { w.sending(at(0)) },
			now: 100, want: Stats{Sent: 1, Silent: ms(100)},
		},
		"one answered": {
			do:  func(w *window) { w.answered(w.sending(at(0)), at(30), 0) },
			now: 100, want: Stats{
				Sent: 1, Answered: 1, RTT: ms(30), MinRTT: ms(30), RecentRTT: ms(30),
				LastAnswer: at(30),
			},
		},
		"the peer's time is not the path's": {
			do:  func(w *window) { w.answered(w.sending(at(0)), at(30), ms(10)) },
			now: 100, want: Stats{
				Sent: 1, Answered: 1, RTT: ms(20), MinRTT: ms(20), RecentRTT: ms(20),
				LastAnswer: at(30),
			},
		},
		"one of two lost": {
			do: func(w *window) {
				w.sending(at(0))
				w.answered(w.sending(at(100)), at(120), 0)
			},
			now: 1100, want: Stats{
				Sent: 2, Answered: 1, RTT: ms(20), MinRTT: ms(20),
				RecentRTT: ms(20), Lost: 1, Loss: 0.5, RecentLoss: 0.5, LastAnswer: at(120),
			},
		},
		"silent since the first of three": {
			do: func(w *window) {
				w.answered(w.sending(at(0)), at(20), 0)
				w.sending(at(100))
				w.sending(at(200))
				w.sending(at(300))
			},
			now: 1150, want: Stats{
				Sent: 4, Answered: 1, RTT: ms(20), MinRTT: ms(20),
				RecentRTT: ms(20), Lost: 1, Loss: 0.5, RecentLoss: 0.5, LastAnswer: at(20), Silent: ms(1050),
			},
		},
		"better recently": {
			do: func(w *window) {
				w.sending(at(0))
				w.answered(w.sending(at(100)), at(150), 0)
				w.answered(w.sending(at(3000)), at(3030), 0)
			},
			now: 3100, want: Stats{
				Sent: 3, Answered: 2, RTT: ms(30), MinRTT: ms(30), Lost: 1, Loss: 1. / 3,
				RecentRTT: ms(30), LastAnswer: at(3030),
			},
		},
		"answered twice": {
			do: func(w *window) {
				n := w.sending(at(0))
				w.answered(n, at(30), 0)
				if w.answered(n, at(40), 0) {
					t.Error("a second answer counted")
				}
			},
			now: 100, want: Stats{
				Sent: 1, Answered: 1, RTT: ms(30), MinRTT: ms(30), RecentRTT: ms(30),
				LastAnswer: at(30),
			},
		},
		"never sent": {
			do: func(w *window) {
				if w.answered(0, at(10), 0) || w.answered(1<<31, at(10), 0) {
					t.Error("an answer without a probe counted")
				}
			},
			want: Stats{},
		},
		"a clock set back": {
			do:  func(w *window) { w.answered(w.sending(at(100)), at(50), 0) },
			now: 200, want: Stats{
				Sent: 1, Answered: 1, RTT: time.Microsecond, MinRTT: time.Microsecond,
				RecentRTT: time.Microsecond, LastAnswer: at(50),
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := &window{timeout: time.Second}
			c.do(w)
			if got := w.at(at(c.now)); got != c.want {
				t.Errorf("got  %+v\nwant %+v", got, c.want)
			}
		})
	}
}

// TestDeadPath checks that a path that stops answering has a loss of 1 once all probes have timed out,
// and that its silence is measured, at every permitted interval and timeout.
func TestDeadPath(t *testing.T) {
	const silence = time.Hour
	for _, every := range []time.Duration{MinEvery, 100 * time.Millisecond, MaxEvery} {
		for _, timeout := range []time.Duration{every, MaxTimeout} {
			w := &window{timeout: timeout}
			now := time.Unix(1_700_000_000, 0)
			w.answered(w.sending(now), now, 0)
			now = now.Add(every)
			for began := now; now.Sub(began) <= silence; now = now.Add(every) {
				w.sending(now)
			}
			now = now.Add(-time.Nanosecond) // just before the next probe
			s := w.at(now)
			if s.RecentLoss != 1 || s.Loss != 1 || s.Lost != counted || s.Silent < silence {
				t.Errorf("probes every %v, lost after %v: %+v, want a loss of 1 and a silence of %v", every, timeout, s, silence)
			}
		}
	}
}

// TestLateAnswer checks that the answer to an old probe does not end the silence after it.
func TestLateAnswer(t *testing.T) {
	w := &window{timeout: time.Second}
	now := time.Unix(1_700_000_000, 0)
	first := w.sending(now)
	second := w.sending(now.Add(100 * time.Millisecond))
	w.sending(now.Add(200 * time.Millisecond))
	for _, n := range []uint32{second, first} {
		w.answered(n, now.Add(300*time.Millisecond), 0)
		if s := w.at(now.Add(300 * time.Millisecond)); s.Silent != 100*time.Millisecond {
			t.Errorf("after the answer to probe %d: %v of silence, want 100ms", n, s.Silent)
		}
	}
}

// TestForgotten checks that old probes do not count, and that sequence numbers wrap around.
func TestForgotten(t *testing.T) {
	w := &window{timeout: time.Second, next: 1<<32 - 200}
	now := time.Unix(1_700_000_000, 0)
	first := w.sending(now)
	for range remembered {
		now = now.Add(100 * time.Millisecond)
		w.answered(w.sending(now), now.Add(20*time.Millisecond), 0)
	}
	if w.answered(first, now, 0) {
		t.Error("a forgotten probe was answered")
	}
	for range 300 { // past the wrap-around
		now = now.Add(100 * time.Millisecond)
		if !w.answered(w.sending(now), now.Add(40*time.Millisecond), 0) {
			t.Fatal("an answer was not accepted")
		}
	}
	if s := w.at(now); s.Loss != 0 || s.MinRTT != 40*time.Millisecond {
		t.Errorf("%+v, want no loss and 40 ms", s)
	}
}
