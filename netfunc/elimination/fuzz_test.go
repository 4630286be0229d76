package elimination

import (
	"encoding/binary"
	"testing"
	"time"

	"holocast/netfunc/pathset"
)

// FuzzModel compares Flow with the literal algorithm. Three bytes of input make an arrival.
func FuzzModel(f *testing.F) {
	f.Add(uint8(4), uint8(7), []byte{1, 1, 0, 1, 2, 2, 2, 1, 1, 2, 2, 1, 3, 1, 1, 4, 1, 1, 5, 1, 1, 6, 1, 1})
	f.Fuzz(func(t *testing.T, w, paths uint8, data []byte) {
		c := Printed()
		c.W = 1 + int(w%16)
		c.Memory = 100 * ms
		var arrivals []arrival
		var at time.Duration
		for ; len(data) >= 3; data = data[3:] {
			at += time.Duration(data[2]) * ms / 4
			arrivals = append(arrivals, arrival{uint64(data[0] % 32), 1 + int(data[1]%8), at})
		}
		compare(t, c, pathset.Set(paths), arrivals)
	})
}

// FuzzFlow makes arbitrary calls. Eleven bytes of input make a call.
func FuzzFlow(f *testing.F) {
	f.Add(true, []byte("\x00\x1f\x00\x00\x00\x00\x00\x00\x00\x00\x01\x09\x01\x00\x00\x00\x00\x00\x00\x00\x00\x01"))
	f.Fuzz(func(t *testing.T, span bool, data []byte) {
		c := Printed()
		if span {
			c = Default()
			c.Span, c.CompleteSpan = 500*ms, 600*ms
		}
		c.W, c.Capacity = 3, 16
		flow, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		for ; len(data) >= 11; data = data[11:] {
			before, generation := flow.Paths()
			at := time.Duration(binary.LittleEndian.Uint64(data[2:])) // any time, including negative ones
			if data[10]%4 != 0 {
				at = time.Duration(flow.now) + at%time.Second
			}
			var d Decision
			var ok bool
			switch data[0] % 8 {
			case 0:
				flow.SetPaths(uint64(data[10]), pathset.Set(data[1]), at)
				if paths, g := flow.Paths(); g < generation || g == generation && paths&^before != 0 {
					t.Fatalf("P = %v of generation %d after %v of %d", paths, g, before, generation)
				}
				continue
			case 1:
				flow.Reset(at)
			case 2:
				d, ok = flow.Advance(at)
			default:
				d, ok = flow.Observe(uint64(data[10]%32), int(data[1]%10), at)
			}
			after, _ := flow.Paths()
			if after&^before != 0 || (after == 0) != (before == 0) ||
				ok && (d.Remaining != after || d.Removed&after != 0 || d.Removed == 0) {
				t.Fatalf("P = %v after %v, decision %v %+v", after, before, ok, d)
			}
			if s := flow.Stats(); s.Remembered > 16 {
				t.Fatalf("%d packets are remembered", s.Remembered)
			}
		}
	})
}
