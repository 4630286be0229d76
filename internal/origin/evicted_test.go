package origin

import (
	"bytes"
	"testing"
	"time"

	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
)

// TestEvicted checks which groups Evicted receives: complete ones that are not the newest, in full.
func TestEvicted(t *testing.T) {
	name := moqt.TrackName{Namespace: moqt.Namespace{"n"}, Name: "t"}
	subgroup := func(t *testing.T, tr *Track, group, id uint64) *Feed {
		t.Helper()
		f, err := tr.OpenSubgroup(wire.SubgroupHeader{
			Group: group, Subgroup: id, Mode: wire.SubgroupIDExplicit, FirstObject: true, Priority: 9,
		})
		if err != nil {
			t.Fatal(err)
		}
		for i := range uint64(2) {
			if err := f.WriteObject(moqt.Object{ID: 2*id + i}, bytes.Repeat([]byte{byte(group)}, 300_000)); err != nil {
				t.Fatal(err)
			}
		}
		return f
	}
	for what, tt := range map[string]struct {
		write func(t *testing.T, tr *Track)
		want  int // objects
	}{
		"complete": {func(t *testing.T, tr *Track) {
			_ = subgroup(t, tr, 1, 0).Close()
			_ = subgroup(t, tr, 1, 1).Close()
		}, 4},
		"open": {func(t *testing.T, tr *Track) {
			_ = subgroup(t, tr, 1, 0).Close()
			subgroup(t, tr, 1, 1)
		}, 0},
		"reset": {func(t *testing.T, tr *Track) {
			subgroup(t, tr, 1, 0).Reset(wire.StreamCancelled)
		}, 0},
		"reset, then complete": {func(t *testing.T, tr *Track) {
			subgroup(t, tr, 1, 0).Reset(wire.StreamCancelled)
			_ = subgroup(t, tr, 1, 0).Close()
		}, 2},
		"missed": {func(t *testing.T, tr *Track) {
			tr.Missed(&moqt.Location{Group: 1, Object: 5})
			_ = subgroup(t, tr, 1, 3).Close()
		}, 0},
		"datagrams with a gap": {func(_ *testing.T, tr *Track) {
			tr.SendDatagram(moqt.Datagram{Group: 1, Payload: []byte("a")})
			tr.SendDatagram(moqt.Datagram{Group: 1, Object: 2, Payload: []byte("c"), EndOfGroup: true})
		}, 0},
		"datagrams": {func(_ *testing.T, tr *Track) {
			tr.SendDatagram(moqt.Datagram{Group: 1, Object: 1, Payload: []byte("b"), EndOfGroup: true})
			tr.SendDatagram(moqt.Datagram{Group: 1, Payload: []byte("a")})
		}, 2},
		"the newest": {func(t *testing.T, tr *Track) { _ = subgroup(t, tr, 5, 0).Close() }, 0},
	} {
		t.Run(what, func(t *testing.T) {
			tr := NewTrack(name, nil, Limits{})
			tr.Relayed = true
			var got []Group
			tr.Evicted = func(g Group) { got = append(got, g) }
			tt.write(t, tr)
			if err := tr.WriteObject(wire.SubgroupHeader{Group: 4, FirstObject: true}, moqt.Object{}, []byte("n")); err != nil {
				t.Fatal(err)
			}
			age(tr, 2*settled)
			tr.Flush()
			got = deleteGroup(got, 4)
			switch {
			case tt.want == 0 && len(got) > 0:
				t.Errorf("%d groups, want none", len(got))
			case tt.want > 0 && (len(got) != 1 || got[0].ID != 1 || len(got[0].Objects) != tt.want):
				t.Errorf("%d groups, want one of %d objects", len(got), tt.want)
			}
			for _, g := range got {
				for i, o := range g.Objects {
					if i > 0 && o.ID <= g.Objects[i-1].ID {
						t.Errorf("object %d follows object %d", o.ID, g.Objects[i-1].ID)
					}
					if !o.Datagram && (o.Size() != 300_000 || o.Priority != 9) {
						t.Errorf("object %d has %d bytes", o.ID, o.Size())
					}
				}
			}
		})
	}
}

// age makes a track's groups older.
func age(t *Track, by time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, g := range t.groups {
		g.started = g.started.Add(-by)
	}
}

func deleteGroup(list []Group, id uint64) (rest []Group) {
	for _, g := range list {
		if g.ID != id {
			rest = append(rest, g)
		}
	}
	return rest
}

// BenchmarkEvicted receives and evicts groups of four subgroups of 50 kB, as of a camera, with and without Evicted.
func BenchmarkEvicted(b *testing.B) {
	payload := make([]byte, 50_000)
	for name, evicted := range map[string]func(Group){"off": nil, "on": func(Group) {}} {
		b.Run(name, func(b *testing.B) {
			tr := NewTrack(moqt.TrackName{Namespace: moqt.Namespace{"n"}, Name: "t"}, nil, Limits{})
			tr.Relayed, tr.Evicted = true, evicted
			b.SetBytes(4 * int64(len(payload)))
			for n := uint64(0); b.Loop(); n++ {
				for id := range uint64(4) {
					f, err := tr.OpenSubgroup(wire.SubgroupHeader{
						Group: n, Subgroup: id, Mode: wire.SubgroupIDExplicit, FirstObject: true,
					})
					if err != nil {
						b.Fatal(err)
					}
					if err := f.WriteObject(moqt.Object{ID: id}, payload); err != nil {
						b.Fatal(err)
					}
					if err := f.Close(); err != nil {
						b.Fatal(err)
					}
				}
				if len(tr.groups) > 60 {
					tr.mu.Lock()
					tr.groups[0].started = time.Time{}
					tr.evictOldest()
					tr.mu.Unlock()
				}
			}
		})
	}
}
