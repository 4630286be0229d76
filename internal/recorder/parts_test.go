package recorder

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"holocast/internal/catalog"
	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/origin"
	"holocast/internal/parts"
	"holocast/internal/pointcloud"
	"holocast/internal/pointcloud/frametest"
	"holocast/internal/recording"
	"holocast/internal/sessiontest"
)

// TestFramesInDatagrams checks that frames in datagrams are recorded like frames on streams,
// including lost parts and frames published before the recorder joined.
func TestFramesInDatagrams(t *testing.T) {
	const width, height, descriptions, frames = 160, 120, 4, 5
	enc, err := pointcloud.NewEncoder(pointcloud.EncoderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer enc.Close()
	scene := frametest.SyntheticCloud(width, height, 1)
	var set origin.Set
	track := func(name string) *origin.Track {
		x := origin.NewTrack(moqt.TrackName{Namespace: session, Name: name}, nil, origin.Limits{})
		set.Add(x)
		return x
	}
	points := track("points/0/full")
	c := catalog.Catalog{Version: catalog.Version, Tracks: []catalog.Track{{
		Name: "points/0/full", Packaging: catalog.PackagingPoints, IsLive: true,
		Points: &catalog.Points{
			Quality:      "full",
			Layout:       "B",
			Descriptions: descriptions,
			MaxPoints:    width * height,
			Delivery:     catalog.DeliveryDatagram,
		},
	}}}
	doc, err := c.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if err := track(catalog.TrackName).WriteObject(wire.SubgroupHeader{Group: 1, FirstObject: true}, moqt.Object{}, doc); err != nil {
		t.Fatal(err)
	}
	send := func(group uint64, lost func(object uint64) bool) {
		next := uint64(0)
		for i := range descriptions {
			b, err := enc.Encode(
				nil, pointcloud.Header{Sequence: uint32(group), Descriptions: descriptions},
				scene.Frame(pointcloud.LayoutPoints), i,
			)
			if err != nil {
				t.Fatal(err)
			}
			first := moqt.Datagram{Group: group, Object: next, Priority: 96, EndOfGroup: i == descriptions-1}
			for d := range parts.Cut(first, b) {
				if lost(d.Object) {
					points.BackfillDatagram(d)
				} else {
					points.SendDatagram(d)
				}
				next = d.Object + 1
			}
		}
	}
	none := func(uint64) bool { return false }
	send(100, none)
	path := filepath.Join(t.TempDir(), "frames.mcap")
	w, err := recording.Create(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	client, _ := sessiontest.Connect(t, moqt.Handler{}, set.Handler())
	r := New(w, Config{Namespace: session, Log: quiet})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Record(ctx, client) }()
	recorded := func(n uint64) {
		t.Helper()
		sessiontest.Until(
			t, "the next frame", func() bool { _, _, records := r.Counts(); return records == 1+n*descriptions },
		)
	}
	recorded(1)
	for i := range uint64(frames - 1) {
		lost := none
		if i > 0 {
			lost = func(id uint64) bool { return id%9 == i }
		}
		send(101+i, lost)
		recorded(2 + i)
	}
	stop()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	dec, err := pointcloud.NewDecoder()
	if err != nil {
		t.Fatal(err)
	}
	defer dec.Close()
	whole := map[uint64][][]byte{}
	objects, _ := read(t, path)
	for _, o := range objects {
		if o.Track.Name != "points/0/full" {
			continue
		}
		h, err := pointcloud.ParseHeader(o.Payload)
		if err != nil || o.Forwarding != recording.Subgroup || o.Subgroup != uint64(h.Description) ||
			o.ObjectID != o.Subgroup ||
			o.End != recording.EndFIN {
			t.Errorf("%v: %s", err, describe(o))
		}
		whole[o.Group] = append(whole[o.Group], o.Payload)
	}
	for group := uint64(100); group < 100+frames; group++ {
		var f pointcloud.Frame
		if h, err := dec.Decode(&f, whole[group]...); err != nil || len(whole[group]) != descriptions ||
			h.Sequence != uint32(group) {
			t.Errorf("frame %d: %d descriptions, %v", group, len(whole[group]), err)
		}
	}
}
