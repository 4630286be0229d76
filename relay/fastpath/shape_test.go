//go:build linux && (amd64 || arm64)

package fastpath

import (
	"testing"
	"time"

	"holocast/internal/moqt"
)

// TestShape checks the shapes derived from the arrival of objects.
func TestShape(t *testing.T) {
	const ms = time.Millisecond
	// send adds groups of objects, the groups every interval and their objects gap apart.
	send := func(o *objects, first, groups, length uint64, interval, gap time.Duration) (s shape) {
		for g := first; g < first+groups; g++ {
			for i := range length {
				s = o.add(moqt.Location{Group: g, Object: i}, time.Duration(g)*interval+time.Duration(i)*gap)
			}
		}
		return s
	}
	for name, c := range map[string]struct {
		groups, length uint64
		interval, gap  time.Duration
		want           shape
	}{
		"receipts":                          {30, 1, 33 * ms, 0, single},
		"groups of one object, in bursts":   {30, 1, ms / 10, 0, single},
		"too few":                           {15, 1, 33 * ms, 0, unknown},
		"camera, 74 Mbit/s":                 {30, 250, 33 * ms, ms / 10, frames},
		"camera, 2 objects a frame":         {30, 2, 33 * ms, ms / 10, frames},
		"an object every 10 ms in a group":  {2, 100, time.Second, 10 * ms, single},
		"the first two objects of a camera": {1, 2, 33 * ms, ms / 10, frames},
	} {
		t.Run(name, func(t *testing.T) {
			if got := send(&objects{}, 1, c.groups, c.length, c.interval, c.gap); got != c.want {
				t.Errorf("shape %d, want %d", got, c.want)
			}
		})
	}
	t.Run("a second viewer and reordering", func(t *testing.T) {
		var o objects
		for g := uint64(1); g <= 20; g++ {
			for range 3 { // the same object for three viewers
				o.add(moqt.Location{Group: g}, time.Duration(g)*10*ms)
			}
			o.add(moqt.Location{Group: g - 1, Object: 1}, time.Duration(g)*10*ms)
		}
		if o.shape != single {
			t.Errorf("shape %d", o.shape)
		}
	})
	t.Run("frames end", func(t *testing.T) {
		var o objects
		if send(&o, 1, 5, 250, 33*ms, ms/10) != frames || send(&o, 6, 15, 1, 33*ms, 0) != frames {
			t.Error("single too early")
		}
		if send(&o, 21, 1, 1, 33*ms, 0) != single {
			t.Error("not single")
		}
	})
}
