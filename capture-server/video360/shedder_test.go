package video360

import (
	"fmt"
	"testing"
	"time"
)

func TestSkipOrder(t *testing.T) {
	s := newShedder(4, time.Second, time.Second/30)
	for left, want := range map[int]string{
		4: "[false false false false]", 3: "[false false true false]", 2: "[false true true false]",
		1: "[false true true true]",
	} {
		s.active = left
		if got := fmt.Sprint(s.skip()); got != want {
			t.Errorf("%d left: skips %s, want %s", left, got, want)
		}
	}
}

// machine simulates GoPs of 30 frames in which encoding a quality takes the given share of the
// GoP's duration. It returns the number of dropped frames.
func machine(s *shedder, gops int, share float64) (dropped int) {
	const frame = time.Second / 30
	var late time.Duration
	group := -1
	for n := range 30 * gops {
		late = max(0, late-frame)
		if s.dropFrame(late) {
			dropped++
			continue
		}
		if n/30 > group { // the GoP's first frame that is not dropped
			group = n / 30
			s.gop(late)
		}
		took := time.Duration(share * float64(s.active) * float64(frame))
		s.encoded(took)
		late += took
	}
	return dropped
}

func TestQualitiesDroppedBeforeFrames(t *testing.T) {
	s := newShedder(3, time.Second, time.Second/30)
	if dropped := machine(s, 20, 0.25); dropped != 0 || s.active != 3 {
		t.Errorf("on a fast machine: %d qualities left, %d frames dropped", s.active, dropped)
	}
	if dropped := machine(s, 20, 0.45); dropped != 0 || s.active != 2 {
		t.Errorf("on a slower one: %d qualities left, %d frames dropped", s.active, dropped)
	}
	if dropped := machine(s, 40, 0.2); dropped != 0 || s.active != 3 {
		t.Errorf("fast again: %d qualities left, %d frames dropped", s.active, dropped)
	}
	if dropped := machine(s, 20, 1.5); dropped == 0 || s.active != 1 {
		t.Errorf("far too slow: %d qualities left, %d frames dropped", s.active, dropped)
	}
}

// TestOverload checks that machines too slow for several qualities publish almost as many frames as
// with a single quality.
func TestOverload(t *testing.T) {
	const gops = 60
	for _, qualities := range []int{2, 3, 5, 8} {
		for _, share := range []float64{0.6, 0.9, 1.5, 3, 10} { // fraction of a frame's time, per quality
			all := 30 * gops
			one := all - machine(newShedder(1, time.Second, time.Second/30), gops, share)
			got := all - machine(newShedder(qualities, time.Second, time.Second/30), gops, share)
			if float64(got) < 0.8*float64(one) {
				t.Errorf("%d qualities of %v: %d frames published, %d with one quality", qualities, share, got, one)
			}
		}
	}
}

// TestWaitGrows checks that a quality that fails repeatedly is retried less often.
func TestWaitGrows(t *testing.T) {
	s := newShedder(2, time.Second, time.Second/30)
	s.active = 1
	tries := 0
	for range 200 {
		s.encoded(300 * time.Millisecond)
		if s.gop(0) {
			tries++
			s.encoded(900 * time.Millisecond)
			s.gop(lateQuality + 1)
		}
	}
	if tries < 3 || tries > 7 {
		t.Errorf("tried %d times in 200 GoPs", tries)
	}
}

// TestDropReport checks that every dropped frame is reported, the first immediately.
func TestDropReport(t *testing.T) {
	var d dropReport
	begin := time.Unix(1, 0)
	for i, want := range []struct {
		after time.Duration
		told  int
	}{{0, 1}, {time.Second, 0}, {9 * time.Second, 0}, {reportEvery, 3}, {reportEvery + 1, 0}, {time.Minute, 2}} {
		if got := d.dropped(begin.Add(want.after)); got != want.told {
			t.Errorf("frame %d: reported %d, want %d", i, got, want.told)
		}
	}
}
