package soundcard

import (
	"math/rand/v2"
	"testing"
	"time"
)

// TestPacer follows a device whose clock is 200 ppm fast and whose requests jitter.
func TestPacer(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var p pacer
	began := time.Unix(1_800_000_000, 0)
	var last time.Time
	for i := range 10_000 {
		due := began.Add(time.Duration(float64(i) * 10e6 * (1 - 200e-6)))
		at := p.next(due.Add(time.Duration(r.IntN(8_000_000)-4_000_000)), 480)
		if off := at.Sub(due).Abs(); off > 4*time.Millisecond {
			t.Fatalf("block %d: off by %v", i, off)
		}
		if step := at.Sub(last); i > 0 && (step < 9*time.Millisecond || step > 11*time.Millisecond) {
			t.Fatalf("block %d: step of %v", i, step)
		}
		last = at
	}
	if at := p.next(last.Add(5*time.Second), 480); at.Sub(last) != 5*time.Second {
		t.Errorf("after a pause of the device: %v", at.Sub(last))
	}
}
