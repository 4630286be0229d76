package origin

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
)

// fill creates a track with n 10 kB groups. Above the limit, the newest group may be evicted while
// it is written.
func fill(t *testing.T, m *Memory, name string, n int) *Track {
	t.Helper()
	tr := NewTrack(moqt.TrackName{Namespace: moqt.Namespace{"m"}, Name: name}, nil, Limits{MaxAge: time.Hour})
	tr.memory.Store(m)
	m.add(tr)
	for i := range n {
		if err := tr.WriteObject(wire.SubgroupHeader{Group: uint64(i), FirstObject: true}, moqt.Object{},
			make([]byte, 10_000)); err != nil &&
			(tr.Stats().CachedGroups > 0 || !errors.Is(err, ErrEvicted)) {
			t.Fatal(err)
		}
	}
	return tr
}

// TestGreedyPublisherEvictsItsOwn checks that a publisher above its share evicts its own groups,
// however many tracks it uses.
func TestGreedyPublisherEvictsItsOwn(t *testing.T) {
	whole := NewMemory(1_000_000)
	near, far := whole.Part(0), whole.Part(0)
	honest, greedy := near.Part(0), near.Part(0)
	mine := fill(t, honest, "mine", 20)
	theirs := fill(t, far.Part(0), "theirs", 10)
	var flood []*Track
	for i := range 100 {
		flood = append(flood, fill(t, greedy, fmt.Sprint("flood ", i), 5))
	}
	if n, m := mine.Stats().CachedGroups, theirs.Stats().CachedGroups; n != 20 || m != 10 {
		t.Errorf("honest publishers keep %d and %d groups, want 20 and 10", n, m)
	}
	if used := whole.Used(); used > 1_000_000 {
		t.Errorf("%d bytes used, want at most 1000000", used)
	}
	for _, tr := range append(flood, mine, theirs) {
		tr.Discard()
	}
	if used := whole.Used(); used != 0 {
		t.Errorf("%d bytes counted after all tracks were discarded", used)
	}
}

// TestPartOfMemory checks that a part has its own limit, that the limit can change, and that a
// track can move to another part.
func TestPartOfMemory(t *testing.T) {
	whole := NewMemory(0)
	a, b := whole.Part(100_000), whole.Part(0)
	tr := fill(t, a, "t", 30)
	if used := a.Used(); used > 100_000 || used < 50_000 {
		t.Errorf("the part uses %d bytes, want 50000 to 100000", used)
	}
	used := a.Used()
	tr.SetMemory(b)
	if a.Used() != 0 || b.Used() != used || whole.Used() != used {
		t.Errorf("after SetMemory: %d, %d and %d bytes, want 0, %d, %d", a.Used(), b.Used(), whole.Used(), used, used)
	}
	b.SetLimit(40_000)
	tr.SendDatagram(moqt.Datagram{Group: 99})
	if b.Used() > 40_000 {
		t.Errorf("%d bytes used, above the new limit", b.Used())
	}
	a.Close()
	b.Close()
	if len(whole.parts) != 1 {
		t.Errorf("%d parts left, want only the one with a track", len(whole.parts))
	}
	tr.Discard()
	tr.SetMemory(a)
	if len(whole.parts) != 0 || whole.Used() != 0 {
		t.Errorf("%d parts and %d bytes left after the track was discarded", len(whole.parts), whole.Used())
	}
}
