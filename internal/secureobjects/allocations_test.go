//go:build !race

package secureobjects

import (
	"testing"

	"holocast/internal/moqt/wire"
)

// TestAllocations checks that sealing and opening allocate nothing in steady state. The race
// detector empties pools at random.
func TestAllocations(t *testing.T) {
	s := sealerWith(t, testKeys, 1<<runBits, points)
	keys, _ := ParseKeys(testKeys)
	track := NewViewer(points.Namespace, FixedKeys(keys)).OpenTrack(points, nil)
	payload := make([]byte, 1000)
	buf := make([]byte, 0, 2000)
	group := uint64(0)
	round := func() {
		group++
		p, b, err := s.Seal(buf, Location{group, 0, 96}, nil, payload)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, ok := track.Open(wire.Location{Group: group}, 96, p, b); !ok {
			t.Fatal("refused")
		}
	}
	for range 2 * windowGroups {
		round()
	}
	if n := testing.AllocsPerRun(100, round); n > 0 {
		t.Errorf("%.1f allocations per object", n)
	}
}
