package pace

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestCamerasStayInStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock, err := NewClock(30)
		if err != nil {
			t.Fatal(err)
		}
		a, b := Camera{Clock: clock}, Camera{Clock: clock}
		start := time.Now()
		for k := range int64(90) {
			fa, da, err := a.Wait(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Millisecond) // work that takes a fraction of a frame
			fb, db, err := b.Wait(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if fa != k || fb != k || !da.Equal(db) {
				t.Fatalf("frame %d: camera a has %d due %v, camera b %d due %v", k, fa, da, fb, db)
			}
		}
		if got, want := time.Since(start).Round(time.Millisecond),
			clock.Offset(89).Round(time.Millisecond)+10*time.Millisecond; got != want {
			t.Errorf("90 frames took %v, want %v", got, want)
		}
	})
}

func TestLateCameraDropsFrames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock, err := NewClock(10)
		if err != nil {
			t.Fatal(err)
		}
		c := Camera{Clock: clock}
		if _, _, err := c.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(250 * time.Millisecond) // frames 1 and 2 are due, 3 is not
		for _, want := range []int64{2, 3, 4} {
			got, due, err := c.Wait(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if got != want {
				t.Errorf("frame %d, want %d", got, want)
			}
			if time.Now().Before(due) {
				t.Errorf("frame %d returned %v early", got, time.Until(due))
			}
		}
		if got := c.Dropped(); got != 1 {
			t.Errorf("%d frames dropped, want 1", got)
		}
	})
}

// TestOffsetsAreExact checks that each loop repeats device times to the nanosecond.
func TestOffsetsAreExact(t *testing.T) {
	for _, fps := range []float64{5, 10, 25, 50, 100} {
		clock, err := NewClock(fps)
		if err != nil {
			t.Fatal(err)
		}
		for k := range int64(100_000) {
			if got, want := clock.Offset(k), time.Duration(k)*time.Second/time.Duration(fps); got != want {
				t.Fatalf("frame %d at %g fps is due after %d ns, want %d", k, fps, got, want)
			}
		}
	}
}

// TestRecording checks that recorded frames are due at their recorded times, missing frames leave
// gaps and the loop repeats after its period.
func TestRecording(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock, err := NewClock(30)
		if err != nil {
			t.Fatal(err)
		}
		ms := time.Millisecond
		c := Camera{Clock: clock, Recorded: &Recording{Frames: []time.Duration{0, 33 * ms, 100 * ms}, Period: 133 * ms}}
		start := time.Now()
		for k, want := range []time.Duration{0, 33 * ms, 100 * ms, 133 * ms, 166 * ms, 233 * ms, 266 * ms} {
			frame, due, err := c.Wait(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if frame != int64(k) || due.Sub(start) != want || time.Now().Before(due) {
				t.Fatalf("frame %d is due after %v, want frame %d after %v", frame, due.Sub(start), k, want)
			}
		}
		time.Sleep(10*133*ms + 40*ms) // ten loops later, frame 2×3+1 is the newest
		frame, due, err := c.Wait(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if want := int64(12*3 + 1); frame != want || due.Sub(start) != 12*133*ms+33*ms {
			t.Errorf("frame %d due after %v, want %d", frame, due.Sub(start), want)
		}
	})
}

func TestWaitEndsWithContext(t *testing.T) {
	clock, err := NewClock(0.1)
	if err != nil {
		t.Fatal(err)
	}
	c := Camera{Clock: clock}
	if _, _, err := c.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, _, err := c.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
}

func TestNewClockRefuses(t *testing.T) {
	for _, fps := range []float64{0, -1, 1e9} {
		if _, err := NewClock(fps); err == nil || !strings.Contains(err.Error(), "want 0.1 to 1000") {
			t.Errorf("%g: error %v", fps, err)
		}
	}
}
