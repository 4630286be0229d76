package moqt

import (
	"cmp"
	"slices"
	"testing"

	"holocast/internal/moqt/wire"
)

// orderedStream notes the priority of a stream that is never written to.
type orderedStream struct {
	uniStream
	priority
}

func (s *orderedStream) setPriority(p priority) { s.priority = p }

type orderedConn struct{ conn }

func (orderedConn) openUni() (uniStream, error) { return &orderedStream{}, nil }

// TestObjectOrder: the streams of a session are sent by subscriber priority, publisher
// priority and, within a track, group order; tracks of equal priorities take turns.
func TestObjectOrder(t *testing.T) {
	s := &Session{conn: orderedConn{}}
	var all []*SubgroupWriter
	names := map[*SubgroupWriter]string{}
	track := func(name string, params Parameters) func(group uint64, priority uint8) {
		p := s.newPublicationForTest(t, name, params)
		return func(group uint64, priority uint8) {
			w, err := p.OpenSubgroup(wire.SubgroupHeader{Group: group, Mode: wire.SubgroupIDExplicit, Priority: priority})
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, w)
			names[w] = name + string(rune('0'+group))
		}
	}
	low, high, descending := uint8(200), uint8(10), wire.Descending
	plain, other := track("p", Parameters{}), track("o", Parameters{})
	newest := track("n", Parameters{GroupOrder: &descending})
	background, urgent := track("b", Parameters{SubscriberPriority: &low}), track("u", Parameters{SubscriberPriority: &high})

	background(1, 0)
	plain(2, 128)
	other(7, 128)
	newest(1, 128)
	plain(3, 128)
	newest(2, 128) // takes the place of its first group
	other(8, 128)
	newest(3, 128)
	plain(1, 128) // was late, and goes before the others of its track
	plain(4, 127)
	urgent(1, 255)
	slices.SortFunc(all, func(a, b *SubgroupWriter) int {
		x, y := a.str.(*orderedStream), b.str.(*orderedStream)
		return cmp.Or(cmp.Compare(x.urgency, y.urgency), cmp.Compare(x.order, y.order))
	})
	var got []string
	for _, w := range all {
		got = append(got, names[w])
	}
	want := []string{"u1", "p4", "p1", "o7", "n3", "p2", "n2", "o8", "n1", "p3", "b1"}
	if !slices.Equal(got, want) {
		t.Errorf("sent in the order %v, want %v", got, want)
	}
}

func (s *Session) newPublicationForTest(t *testing.T, name string, params Parameters) *Publication {
	t.Helper()
	s.ctx = t.Context()
	p := s.newPublication(TrackName{Name: name}, nil, TrackInfo{})
	if err := p.begin(params, nil); err != nil {
		t.Fatal(err)
	}
	return p
}
