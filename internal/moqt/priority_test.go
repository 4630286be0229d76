package moqt

import (
	"cmp"
	"slices"
	"testing"

	"holocast/internal/moqt/wire"
)

// orderedStream records its priority; it is not written to.
type orderedStream struct {
	uniStream
	priority
}

func (s *orderedStream) setPriority(p priority) { s.priority = p }
func (s *orderedStream) sourced() sourceStream  { return nil }

type orderedConn struct{ conn }

func (orderedConn) openUni() (uniStream, error) { return &orderedStream{}, nil }

// TestObjectOrder checks that streams are sent by subscriber priority, publisher priority and,
// within a track, group order, and that tracks of equal priorities take turns.
func TestObjectOrder(t *testing.T) {
	s := &Session{conn: orderedConn{}}
	var all []*SubgroupWriter
	names := map[*SubgroupWriter]string{}
	track := func(name string, params Parameters) func(group uint64, priority uint8) {
		p := s.newPublicationForTest(t, name, params)
		return func(group uint64, priority uint8) {
			w, err := p.OpenSubgroup(
				wire.SubgroupHeader{Group: group, Mode: wire.SubgroupIDExplicit, Priority: priority},
			)
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
	background, urgent := track(
		"b",
		Parameters{SubscriberPriority: &low},
	), track(
		"u",
		Parameters{SubscriberPriority: &high},
	)

	background(1, 0)
	plain(2, 128)
	other(7, 128)
	newest(1, 128)
	plain(3, 128)
	newest(2, 128) // takes the slot of its first group
	other(8, 128)
	newest(3, 128)
	plain(1, 128) // late, but precedes the other groups of its track
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

// TestGroupOrder checks that groups are sent in the subscriber's order, or else in the publisher's,
// or else in ascending order (§10.2.8, §12.5).
func TestGroupOrder(t *testing.T) {
	for name, c := range map[string]struct {
		publisher, subscriber GroupOrder // 0 = unset
		want                  []uint64
	}{
		"nobody says":                   {0, 0, []uint64{1, 2, 3}},
		"the publisher":                 {wire.Descending, 0, []uint64{3, 2, 1}},
		"the subscriber":                {0, wire.Descending, []uint64{3, 2, 1}},
		"the subscriber, other than it": {wire.Descending, wire.Ascending, []uint64{1, 2, 3}},
	} {
		t.Run(name, func(t *testing.T) {
			s := &Session{conn: orderedConn{}, ctx: t.Context()}
			var info TrackInfo
			if c.publisher != 0 {
				info.Properties = wire.AppendKeyValues(
					nil,
					wire.KeyValue{Type: wire.PropertyPublisherGroupOrder, Int: uint64(c.publisher)},
				)
			}
			var params Parameters
			if c.subscriber != 0 {
				params.GroupOrder = &c.subscriber
			}
			p := s.newPublication(TrackName{Name: "points"}, nil, info)
			if err := p.begin(params, nil); err != nil {
				t.Fatal(err)
			}
			groups := map[*orderedStream]uint64{}
			var streams []*orderedStream
			for _, group := range []uint64{2, 1, 3} {
				w, err := p.OpenSubgroup(wire.SubgroupHeader{Group: group})
				if err != nil {
					t.Fatal(err)
				}
				str := w.str.(*orderedStream)
				streams = append(streams, str)
				groups[str] = group
			}
			slices.SortFunc(streams, func(a, b *orderedStream) int {
				return cmp.Or(cmp.Compare(a.urgency, b.urgency), cmp.Compare(a.order, b.order))
			})
			var got []uint64
			for _, str := range streams {
				got = append(got, groups[str])
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("sent in the order %v, want %v", got, c.want)
			}
		})
	}
}
