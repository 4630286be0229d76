package clocktest

import (
	"testing"
	"time"
)

// TestStep checks that Step changes the wall clock reading but not the monotonic reading.
func TestStep(t *testing.T) {
	now := time.Now()
	for _, d := range []time.Duration{time.Hour, -time.Hour, -time.Second, 0} {
		stepped := Step(now, d)
		if got := stepped.Round(0).Sub(now.Round(0)); got != d {
			t.Errorf("%v: the wall clock's reading is %v later", d, got)
		}
		if got := stepped.Sub(now); got != 0 {
			t.Errorf("%v: the monotonic reading is %v later", d, got)
		}
	}
}
