package origin

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
)

// fill has a track keep n groups of 10 kB. Of a track that keeps too much the newest group may
// be evicted as it is written.
func fill(t *testing.T, m *Memory, name string, n int) *Track {
	t.Helper()
	tr := NewTrack(moqt.TrackName{Namespace: moqt.Namespace{"m"}, Name: name}, nil, Limits{MaxAge: time.Hour})
	tr.memory.Store(m)
	m.add(tr)
	for i := range n {
		if err := tr.WriteObject(wire.SubgroupHeader{Group: uint64(i), FirstObject: true}, moqt.Object{}, make([]byte, 10_000)); err != nil && (tr.Stats().CachedGroups > 0 || !errors.Is(err, ErrEvicted)) {
			t.Fatal(err)
		}
	}
	return tr
}

// TestGreedyPublisherEvictsItsOwn: however many small tracks it spreads its bytes over, who
// keeps little keeps it.
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
		t.Errorf("honest publishers keep %d and %d groups of 20 and 10", n, m)
	}
	if used := whole.Used(); used > 1_000_000 {
		t.Errorf("%d bytes are kept", used)
	}
	for _, tr := range append(flood, mine, theirs) {
		tr.Discard()
	}
	if used := whole.Used(); used != 0 {
		t.Errorf("%d bytes are counted of nothing", used)
	}
}

// TestPartOfMemory: a part's bound holds beside that of the whole, can be changed, and
// follows a track to another part.
func TestPartOfMemory(t *testing.T) {
	whole := NewMemory(0)
	a, b := whole.Part(100_000), whole.Part(0)
	tr := fill(t, a, "t", 30)
	if used := a.Used(); used > 100_000 || used < 50_000 {
		t.Errorf("the part keeps %d bytes", used)
	}
	used := a.Used()
	tr.SetMemory(b)
	if a.Used() != 0 || b.Used() != used || whole.Used() != used {
		t.Errorf("after the move %d, %d and %d bytes, want 0, %d, %d", a.Used(), b.Used(), whole.Used(), used, used)
	}
	b.SetLimit(40_000)
	tr.SendDatagram(moqt.Datagram{Group: 99})
	if b.Used() > 40_000 {
		t.Errorf("%d bytes above the new limit", b.Used())
	}
	a.Close()
	b.Close()
	if len(whole.parts) != 1 {
		t.Errorf("%d parts, want the one that has a track", len(whole.parts))
	}
	tr.Discard()
	tr.SetMemory(a)
	if len(whole.parts) != 0 || whole.Used() != 0 {
		t.Errorf("%d parts, %d bytes of a discarded track", len(whole.parts), whole.Used())
	}
}
