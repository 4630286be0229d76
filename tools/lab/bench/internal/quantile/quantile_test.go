package quantile

import (
	"slices"
	"testing"
	"time"
)

func TestOf(t *testing.T) {
	v := []time.Duration{4, 1, 3, 2}
	for q, want := range map[float64]time.Duration{0: 1, 0.25: 2, 0.5: 3, 0.95: 4} {
		if got := Of(v, q); got != want {
			t.Errorf("%.2f-quantile is %d, want %d", q, got, want)
		}
	}
	if got := Of([]float64(nil), 0.5); got != 0 {
		t.Errorf("median of no values is %f", got)
	}
	if !slices.Equal(v, []time.Duration{4, 1, 3, 2}) {
		t.Errorf("the input was sorted: %v", v)
	}
}
