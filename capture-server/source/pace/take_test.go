package pace

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

const (
	ms   = time.Millisecond
	step = 100 * ms
)

// played is a frame, by its index in the recording, and the time at which it played.
type played struct {
	frame  int
	at     time.Duration // since the test began
	device time.Duration
}

// play plays recordings with the given frame times for a number of passes. It returns the played
// frames and the log.
func play(t *testing.T, loop bool, passes int, recordings ...[]time.Duration) (frames [][]played, log string) {
	t.Helper()
	var text bytes.Buffer
	take := NewTake(loop, slog.New(slog.NewTextHandler(&text, nil)))
	parts := make([]*Part, len(recordings))
	for i, r := range recordings {
		parts[i] = take.Join(string(rune('a'+i)), r[0], step)
	}
	frames = make([][]played, len(recordings))
	began := time.Now()
	var all sync.WaitGroup
	for i, r := range recordings {
		all.Go(func() {
			defer parts[i].Leave()
			for range passes {
				for k, recorded := range r {
					m, err := parts[i].Wait(t.Context(), recorded)
					if err != nil || m.Late || !time.Now().Equal(m.Due) {
						t.Errorf("%s: frame %d: late %v, error %v", parts[i].name, k, m.Late, err)
						return
					}
					frames[i] = append(frames[i], played{k, m.Due.Sub(began), m.Device})
				}
				if err := parts[i].Again(t.Context()); loop == errors.Is(err, io.EOF) || loop && err != nil {
					t.Errorf("%s: end of a pass: %v", parts[i].name, err)
				}
			}
		})
	}
	all.Wait()
	return frames, text.String()
}

// times returns n times, step apart, beginning with first.
func times(first time.Duration, n int) (list []time.Duration) {
	for i := range n {
		list = append(list, first+time.Duration(i)*step)
	}
	return list
}

// TestTakeInStep plays recordings that share a clock but start and end at different times.
func TestTakeInStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, log := play(t, true, 3, times(50*step, 20), times(54*step+2*ms, 7), times(52*step, 30))
		for i, frames := range all {
			for _, f := range frames {
				moment := f.device % (32 * step) // the period, from the first start to the last end
				want := [][]time.Duration{times(50*step, 20), times(54*step+2*ms, 7), times(52*step, 30)}[i][f.frame]
				if moment != want%(32*step) || f.at != f.device-50*step {
					t.Errorf("recording %d: frame %d plays at %v as %v", i, f.frame, f.at, f.device)
				}
			}
		}
		if !strings.Contains(log, "playing recordings synchronized by their clock") {
			t.Errorf("log %s", log)
		}
	})
}

func TestTakeOfTwoClocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, log := play(t, true, 2, times(0, 3), times(time.Hour, 4))
		for i, want := range [][]time.Duration{{0, 1, 2, 4, 5, 6}, {0, 1, 2, 3, 4, 5, 6, 7}} {
			var got []time.Duration
			for _, f := range all[i] {
				got = append(got, f.at/step)
			}
			if !slices.Equal(got, want) {
				t.Errorf("recording %d plays at %v, want %v", i, got, want)
			}
		}
		if !strings.Contains(log, "recordings have different clocks") {
			t.Errorf("log %s", log)
		}
	})
}

// TestTakeClocks checks that clock jumps and long pauses cost no frames and little time.
func TestTakeClocks(t *testing.T) {
	const jump, cut = "the recording's clock jumped", "cut a pause in the recording"
	joined := func(a, b []time.Duration) []time.Duration { return append(slices.Clone(a), b...) }
	for _, tt := range []struct {
		name     string
		recorded []time.Duration
		want     []time.Duration // nil: step apart
		log      string
	}{
		{"back a minute", joined(times(time.Minute, 5), times(0, 5)), nil, jump},
		{"back half a second", joined(times(time.Minute, 5), times(time.Minute-step, 5)), nil, jump},
		{"to the epoch", joined(times(0, 5), times(20000*24*time.Hour, 5)), nil, jump},
		{"stands still", make([]time.Duration, 10), nil, jump},
		{"an hour's pause", joined(times(0, 5), times(time.Hour, 5)), nil, cut},
		{"a second's pause", joined(times(0, 2), times(11*step, 1)), []time.Duration{0, step, 11 * step}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all, log := play(t, false, 1, tt.recorded)
				var got []time.Duration
				for _, f := range all[0] {
					got = append(got, f.at)
				}
				want := tt.want
				if want == nil {
					want = times(0, len(tt.recorded))
				}
				if !slices.Equal(got, want) || !strings.Contains(log, tt.log) || strings.Count(log, "\n") > 1 {
					t.Errorf("frames play at %v, want %v; log %s", got, want, log)
				}
			})
		})
	}
}

// TestTakePauseOfOne checks that a pause of one recording is not cut while another plays.
func TestTakePauseOfOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		paused := []time.Duration{0, step, 100 * time.Second}
		all, log := play(t, false, 1, paused, []time.Duration{0, 40 * time.Second, 80 * time.Second})
		if got := all[0][2].at; got != 100*time.Second || log == "" || strings.Contains(log, "cut") {
			t.Errorf("the frame after the pause plays at %v, log %s", got, log)
		}
	})
}

// TestTakeGoesOn checks that neither a failed nor a slow recording stops the others.
func TestTakeGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		take := NewTake(true, nil)
		a, b := take.Join("a", 0, step), take.Join("b", 0, step)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := a.Again(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the next pass begins without b: %v", err)
		}
		time.AfterFunc(time.Second, b.Leave)
		if err := a.Again(t.Context()); err != nil {
			t.Error(err)
		}
		if m, err := a.Wait(t.Context(), 0); err != nil || m.Late {
			t.Errorf("late %v, error %v", m.Late, err)
		}
		time.Sleep(10 * step) // reading takes ten times as long as playing
		if m, err := a.Wait(t.Context(), step); err != nil || !m.Late {
			t.Errorf("late %v, error %v", m.Late, err)
		}
		if err := a.Again(t.Context()); err != nil {
			t.Error(err)
		}
		if m, err := a.Wait(t.Context(), 0); err != nil || m.Late {
			t.Errorf("the next pass is late: %v, error %v", m.Late, err)
		}
	})
}

// TestSchedule checks that recordings with known times play as in a take.
func TestSchedule(t *testing.T) {
	for _, tt := range []struct {
		name     string
		recorded [][]time.Duration
		want     [][]time.Duration
		period   time.Duration
	}{
		{
			"one clock",
			[][]time.Duration{times(50*step, 3), times(51*step+ms, 4)},
			[][]time.Duration{times(0, 3), times(step+ms, 4)},
			5*step + ms,
		},
		{
			"two clocks",
			[][]time.Duration{times(0, 3), times(time.Hour, 2)},
			[][]time.Duration{times(0, 3), times(0, 2)},
			3 * step,
		},
		{
			"two pairs",
			[][]time.Duration{times(time.Hour+step, 1), times(0, 1), times(time.Hour, 1), times(4*step, 1)},
			[][]time.Duration{times(step, 1), times(0, 1), times(0, 1), times(4*step, 1)},
			5 * step,
		},
		{
			"back a minute",
			[][]time.Duration{append(times(time.Minute, 2), times(0, 2)...), times(time.Minute, 4)},
			[][]time.Duration{times(0, 4), times(0, 4)},
			4 * step,
		},
		{
			"a common pause",
			[][]time.Duration{{0, step, time.Hour}, {ms, step + ms, time.Hour + ms, 2 * time.Hour}},
			[][]time.Duration{{0, step, 2*step + ms}, {ms, step + ms, 2*step + 2*ms, 3*step + 2*ms}},
			4*step + 2*ms,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var recordings []Times
			for _, r := range tt.recorded {
				recordings = append(recordings, Times{Frames: r, Step: step})
			}
			for i, r := range Schedule(recordings, slog.New(slog.DiscardHandler)) {
				if !slices.Equal(r.Frames, tt.want[i]) || r.Period != tt.period {
					t.Errorf("recording %d plays at %v in %v, want %v in %v", i, r.Frames, r.Period, tt.want[i], tt.period)
				}
			}
		})
	}
}
