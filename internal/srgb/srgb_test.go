package srgb

import (
	"math"
	"testing"
)

func TestInverse(t *testing.T) {
	for level := range 256 {
		v := float64(level) / 255
		if got := Encode(Linear(v)); math.Abs(got-v) > 1e-6 {
			t.Errorf("level %d becomes %g", level, 255*got)
		}
	}
	if Encode(4) != 1 || Linear(1) != 1 || Linear(0) != 0 {
		t.Errorf("ends %g, %g, %g", Encode(4), Linear(1), Linear(0))
	}
}
