package player

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"holocast/internal/catalog"
	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/origin"
	"holocast/internal/pointcloud"
	"holocast/internal/pointvideo"
	"holocast/internal/sessiontest"
)

// TestVideoOrder checks that frames are decoded in order, whatever the order of arrival.
func TestVideoOrder(t *testing.T) {
	type object struct {
		group uint64
		index int
	}
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 1))
		var arriving []object
		for g := range uint64(3) {
			for i := range 4 {
				arriving = append(arriving, object{g, i}, object{g, i}) // from two subscriptions
			}
		}
		r.Shuffle(len(arriving), func(i, j int) { arriving[i], arriving[j] = arriving[j], arriving[i] })
		v := newVideoOrder()
		var got []object
		for _, o := range arriving {
			ready, _ := v.add(o.group, o.index, &frame{group: o.group})
			for _, fr := range ready {
				if fr.group != v.group {
					t.Fatal("a frame of another group")
				}
				n := 0
				for _, x := range got {
					if x.group == fr.group {
						n++
					}
				}
				got = append(got, object{fr.group, n})
			}
		}
		if !slices.IsSortedFunc(got, func(a, b object) int { return int(a.group) - int(b.group) }) || len(got) < 4 {
			t.Fatalf("seed %d: %v", seed, got)
		}
	}
}

// TestVideoIsShown checks that a late joiner displays video, and that after a reset subgroup the
// player requests a new group and displays it.
func TestVideoIsShown(t *testing.T) {
	st := newStage(t, 1, 1, "W", dynamic)
	e, err := pointvideo.NewEncoder(pointvideo.Config{Width: width, Height: height})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	asked := make(chan uint64, 10)
	st.cameras[0].NewGroup = func(group uint64) { asked <- group }
	sequence := uint32(0)
	encode := func(key bool) []byte {
		g := pointcloud.Grid{Width: width, Height: height, Depth: slices.Repeat([]uint16{1000}, width*height)}
		g.Color = make([]byte, 3*width*height)
		h := pointcloud.Header{Sequence: sequence, CaptureTime: uint64(st.captured.UnixMicro()) + uint64(sequence)}
		sequence++
		b, err := e.Encode(nil, h, &g, key)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	open := func(group uint64) *origin.Feed {
		f, err := st.cameras[0].OpenSubgroup(wire.SubgroupHeader{
			Group: group, Mode: wire.SubgroupIDExplicit, Priority: 100, FirstObject: true, EndOfGroup: true,
		})
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	write := func(f *origin.Feed, id uint64, key bool) {
		if err := f.WriteObject(moqt.Object{ID: id}, encode(key)); err != nil {
			t.Fatal(err)
		}
	}
	first := open(10)
	for i := range uint64(3) {
		write(first, i, i == 0)
	}
	p, _ := st.play(Config{})
	st.until(p, "the newest of the fetched frames", func(r Report) bool { return r.Frames == 1 })
	write(first, 3, false)
	st.until(p, "the next frame", func(r Report) bool { return r.Frames == 2 })
	first.Reset(wire.StreamDeliveryTimeout)
	if group := <-asked; group != 11 {
		t.Errorf("group %d requested, want 11", group)
	}
	second := open(11)
	write(second, 0, true)
	write(second, 1, false)
	r := st.until(p, "the new group", func(r Report) bool { return r.Frames == 4 })
	if r.FramesDamaged != 0 || r.FramesSkipped != 0 || r.FramesLost != 0 {
		t.Errorf("%+v", r)
	}
	clouds, _ := p.Clouds()
	sessiontest.Until(t, "the points", func() bool {
		clouds, _ = p.Clouds()
		return len(clouds) == 1 && len(clouds[0].XYZ) == 3*width*height
	})
}

// dynamic holds the properties of a track that accepts requests for new groups.
var dynamic = moqt.Properties(wire.AppendKeyValues(nil, wire.KeyValue{Type: wire.PropertyDynamicGroups, Int: 1}))

// TestRecordedVideo checks that frames of a recording are due at their capture times, and that a
// seek decodes its group from the key frame.
func TestRecordedVideo(t *testing.T) {
	e, err := pointvideo.NewEncoder(pointvideo.Config{Width: width, Height: height})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	f := &feed{
		p: New(Config{}), queue: make(chan *frame, videoBacklog), past: map[uint64][256]bool{}, order: newVideoOrder(),
		track: catalog.Track{Points: &catalog.Points{Layout: catalog.LayoutVideo}},
	}
	r := &trackBuffer{f: f, length: time.Minute}
	x := assembly{buffer: r}
	for i := range 20 {
		g := pointcloud.Grid{Width: width, Height: height, Depth: make([]uint16, width*height)}
		g.Color = make([]byte, 3*width*height)
		h := pointcloud.Header{Sequence: uint32(i), CaptureTime: uint64(1e15 + 100_000*i)}
		object, err := e.Encode(nil, h, &g, i%10 == 0)
		if err != nil {
			t.Fatal(err)
		}
		x.add(wire.FetchObject{Group: uint64(2000 + i/10*1000), Object: uint64(i % 10)}, object)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	x.finish()
	r.buffered = 4 * time.Second
	r.show(3250 * time.Millisecond)
	for i := 10; i <= 12; i++ {
		fr := <-f.queue
		if fr.header.Sequence != uint32(i) || fr.hidden != (i < 12) {
			t.Errorf("frame %d, hidden %v; want %d", fr.header.Sequence, fr.hidden, i)
		}
	}
	r.show(3320 * time.Millisecond)
	if fr := <-f.queue; fr.header.Sequence != 13 || fr.hidden {
		t.Errorf("frame %d, hidden %v; want 13", fr.header.Sequence, fr.hidden)
	}
	if len(f.queue) > 0 {
		t.Error("frames are shown before they are due")
	}
}
