package origin

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
)

// quietSink is a subscription with a priority and no output.
type quietSink struct {
	Sink
	priority uint8
}

func (s quietSink) Priority() uint8 { return s.priority }

// testViewer returns a viewer of a new track in q.
func (q *Queue) testViewer(priority uint8) *Viewer {
	return &Viewer{t: NewTrack(testName, nil, Limits{}), q: q, sink: quietSink{priority: priority}}
}

// testDeliveries adds a delivery for each group. The age of each delivery's oldest unsent object is
// waits; if waits is 0, everything has been sent.
func (v *Viewer) testDeliveries(publisher uint8, waits time.Duration, groups ...uint64) {
	for _, group := range groups {
		h := header(group, 0)
		h.Priority = publisher
		sg := &subgroup{header: h}
		if waits > 0 {
			sg.size, sg.objects = 10, []object{{arrived: time.Now().Add(-waits)}}
		}
		v.q.deliveries[&delivery{
			v: v, sg: sg, started: time.Unix(int64(group), 0),
			dropped: make(chan struct{}),
		}] = struct{}{}
	}
}

func (v *Viewer) testGroups() []string {
	var got []string
	for _, f := range v.q.deliveriesTo(v) {
		got = append(got, fmt.Sprintf("%d:%d", f.sg.header.Priority, f.sg.header.Group))
	}
	slices.Sort(got)
	return got
}

// TestLowPriorityGivesWay checks that the lowest class is dropped first, across tracks, and within
// it the oldest delivery.
func TestLowPriorityGivesWay(t *testing.T) {
	q := NewQueue(0)
	base, tiles, preview := q.testViewer(128), q.testViewer(128), q.testViewer(200)
	base.testDeliveries(64, 0, 1)
	tiles.testDeliveries(200, 0, 2, 3)
	preview.testDeliveries(0, 0, 4)
	var got []uint64
	for len(q.deliveries) > 0 {
		var victim *delivery
		for f := range q.deliveries {
			if victim == nil || f.lessImportant(victim) {
				victim = f
			}
		}
		delete(q.deliveries, victim)
		got = append(got, victim.sg.header.Group)
	}
	if want := []uint64{4, 2, 3, 1}; !slices.Equal(got, want) {
		t.Errorf("groups were dropped in the order %v, want %v", got, want)
	}
}

// TestDropStale checks that on a congested path only the newest group waits behind the one being
// sent, in the class that was late and in all lower ones.
func TestDropStale(t *testing.T) { synctest.Test(t, testDropStale) }

func testDropStale(t *testing.T) {
	const long = time.Hour
	q := NewQueue(0)
	first, second, third := q.testViewer(128), q.testViewer(128), q.testViewer(129)
	want := func(what string, v *Viewer, want ...string) {
		t.Helper()
		if got := v.testGroups(); !slices.Equal(got, want) {
			t.Errorf("%s: in flight are %v, want %v", what, got, want)
		}
	}
	first.testDeliveries(1, long, 2, 3, 4)
	first.testDeliveries(2, long, 2, 3, 4, 5)
	second.testDeliveries(2, long, 7, 8, 9)
	third.testDeliveries(0, long, 7, 8, 9)
	q.dropStale(nil)
	want("none was late", first, "1:2", "1:3", "1:4", "2:2", "2:3", "2:4", "2:5")

	late := &delivery{v: first, sg: &subgroup{header: wire.SubgroupHeader{Priority: 2}}}
	q.dropStale(late)
	want("one was late", first, "1:2", "1:3", "1:4", "2:5")
	want("other track, same class", second, "2:7", "2:9")
	want("lower class", third, "0:7", "0:9")

	first.testDeliveries(2, long, 6)
	q.dropStale(nil)
	want("one waits", first, "1:2", "1:3", "1:4", "2:5", "2:6")
	first.testDeliveries(2, long, 7)
	q.dropStale(nil)
	want("a newer one waits", first, "1:2", "1:3", "1:4", "2:5", "2:7")
	first.testDeliveries(2, time.Nanosecond, 8, 9)
	for f := range q.deliveries {
		if f.sg.header.Group == 7 {
			f.sent.Store(10)
		}
	}
	q.dropStale(nil)
	want("none waits long", first, "1:2", "1:3", "1:4", "2:5", "2:7", "2:8", "2:9")
	time.Sleep(congestedFor + time.Millisecond)
	first.testDeliveries(2, long, 10)
	q.dropStale(nil)
	want("no longer congested", first, "1:2", "1:3", "1:4", "2:10", "2:5", "2:7", "2:8", "2:9")
}

// TestIncompleteGroupsAreNotStale checks that a long group whose next objects have not arrived is
// kept on a congested path.
func TestIncompleteGroupsAreNotStale(t *testing.T) {
	q := NewQueue(0)
	v := q.testViewer(128)
	v.testDeliveries(128, 0, 1, 2, 3)
	q.congestedUntil[0] = time.Now().Add(time.Hour)
	q.dropStale(nil)
	if got := v.testGroups(); len(got) != 3 {
		t.Errorf("in flight are %v, want all three", got)
	}
}

// TestUnsent checks that unsent returns the arrival of the first object that is not completely
// sent.
func TestUnsent(t *testing.T) {
	at := func(n int) time.Time { return time.Unix(int64(n), 0) }
	s := &subgroup{
		size:    25,
		objects: []object{{offset: 0, arrived: at(1)}, {offset: 10, arrived: at(2)}, {offset: 20, arrived: at(3)}},
	}
	for sent, want := range map[int64]time.Time{0: at(1), 9: at(1), 10: at(2), 19: at(2), 20: at(3), 24: at(3)} {
		if got, ok := s.unsent(sent); !ok || !got.Equal(want) {
			t.Errorf("after %d bytes: %v, %v, want %v", sent, got, ok, want)
		}
	}
	if _, ok := s.unsent(25); ok {
		t.Error("unsent reports an object after the last byte")
	}
}

// TestSubgroupDeadline checks that a subgroup delivery timeout counts from the end of the subgroup,
// however little was sent by then.
func TestSubgroupDeadline(t *testing.T) {
	props := moqt.Properties(
		wire.AppendKeyValues(nil, wire.KeyValue{Type: wire.PropertySubgroupDeliveryTimeout, Int: 50}),
	)
	tr := NewTrack(testName, props, Limits{MaxAge: time.Hour})
	r := newTestServer(t, tr)
	sub := r.subscribe(r.dial(), moqt.SubscribeOptions{})
	f, err := tr.OpenSubgroup(header(1, 0))
	if err != nil {
		t.Fatal(err)
	}
	// Exceed the flow-control windows of the viewer, which reads nothing.
	for i := range uint64(40) {
		if err := f.WriteObject(moqt.Object{ID: i}, make([]byte, 1<<20)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := sub.AcceptSubgroup(r.ctx); err != nil {
		t.Fatal(err)
	}
	if n := tr.Stats().Late; n != 0 {
		t.Fatalf("%d subgroups were late before any ended", n)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	for tr.Stats().Late == 0 {
		select {
		case <-time.After(5 * time.Millisecond):
		case <-r.ctx.Done():
			t.Fatal("the subgroup was not dropped")
		}
	}
}
