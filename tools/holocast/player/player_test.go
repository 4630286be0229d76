package player

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"holocast/internal/camera"
	"holocast/internal/catalog"
	"holocast/internal/clock"
	"holocast/internal/connect"
	"holocast/internal/leaktest"
	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/origin"
	"holocast/internal/parts"
	"holocast/internal/pointcloud"
	"holocast/internal/qoe"
	"holocast/internal/sessiontest"
	"holocast/internal/trace"
	"holocast/internal/trace/collector"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

var namespace = moqt.Namespace{"holocast", "test"}

const width, height = 16, 8

// stage is a publisher under the test's control.
type stage struct {
	t            *testing.T
	set          origin.Set
	clock        *origin.Track
	catalog      *origin.Track
	poses        *origin.Track
	cameras      []*origin.Track
	enc          *pointcloud.Encoder
	descriptions int
	layout       string
	delivery     string
	captured     time.Time // capture time of all frames
	next         uint64    // next group of the catalog
	receipts     chan *moqt.Datagram
}

func newStage(t *testing.T, cameras, descriptions int, layout string, props moqt.Properties) *stage {
	t.Helper()
	enc, err := pointcloud.NewEncoder(pointcloud.EncoderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(enc.Close)
	st := &stage{
		t:            t,
		enc:          enc,
		descriptions: descriptions,
		layout:       layout,
		captured:     time.Now().Add(-time.Second),
		receipts:     make(chan *moqt.Datagram, 100),
	}
	track := func(name moqt.TrackName, props moqt.Properties) *origin.Track {
		x := origin.NewTrack(name, props, origin.Limits{})
		st.set.Add(x)
		return x
	}
	st.clock = track(clock.TrackName(), nil)
	st.catalog = track(moqt.TrackName{Namespace: namespace, Name: catalog.TrackName}, nil)
	st.poses = track(moqt.TrackName{Namespace: namespace, Name: catalog.PoseTrack}, nil)
	for n := range cameras {
		st.cameras = append(
			st.cameras, track(moqt.TrackName{Namespace: namespace, Name: catalog.PointsTrack(n, "full")}, props),
		)
	}
	st.announce(cameras)
	return st
}

// announce publishes a catalog that lists the first cameras.
func (st *stage) announce(cameras int) {
	st.t.Helper()
	c := st.describe(cameras)
	doc, err := c.Marshal()
	if err != nil {
		st.t.Fatal(err)
	}
	st.next++
	st.write(st.catalog, st.next, 0, doc)
}

// describe returns a catalog that lists the first cameras.
func (st *stage) describe(cameras int) catalog.Catalog {
	st.t.Helper()
	c := catalog.Catalog{Version: catalog.Version}
	for n := range cameras {
		id, err := c.AddInit(fmt.Sprint(n), catalog.CameraInit{
			Grid: camera.Intrinsics{Width: width, Height: height, Fx: 20, Fy: 20, Cx: 8, Cy: 4},
			Pose: camera.Transform{R: [9]float64{1, 0, 0, 0, -1, 0, 0, 0, -1}, T: [3]float64{0, float64(n), 0}},
		})
		if err != nil {
			st.t.Fatal(err)
		}
		x := catalog.Track{
			Name: catalog.PointsTrack(n, "full"), Packaging: catalog.PackagingPoints, IsLive: true, InitRef: id,
			Points: &catalog.Points{
				Camera:       n,
				Quality:      "full",
				Layout:       st.layout,
				Descriptions: st.descriptions,
				MaxPoints:    width * height,
				Delivery:     st.delivery,
			},
		}
		if st.layout == "A" || st.layout == "W" {
			x.Width, x.Height = width, height
		}
		c.Tracks = append(c.Tracks, x)
	}
	c.Tracks = append(c.Tracks, catalog.NewPoseTrack())
	return c
}

func (st *stage) write(track *origin.Track, group, subgroup uint64, payload []byte) {
	st.t.Helper()
	h := wire.SubgroupHeader{
		Group:       group,
		Subgroup:    subgroup,
		Mode:        wire.SubgroupIDExplicit,
		Priority:    100,
		FirstObject: true,
	}
	if err := track.WriteObject(h, moqt.Object{ID: subgroup}, payload); err != nil {
		st.t.Fatal(err)
	}
}

// object returns one encoded description of a frame.
func (st *stage) object(camera int, sequence uint32, description int) []byte {
	st.t.Helper()
	h := pointcloud.Header{
		Sequence:     sequence,
		CaptureTime:  uint64(st.captured.UnixMicro()),
		Camera:       uint16(camera),
		Descriptions: uint8(st.descriptions),
	}
	f := pointcloud.Frame{
		Grid: pointcloud.Grid{
			Width:  width,
			Height: height,
			Depth:  slices.Repeat([]uint16{1000}, width*height),
			Color:  make([]byte, 3*width*height),
		},
		Points: pointcloud.Points{XYZ: make([]int16, 3*width*height), RGB: make([]byte, 3*width*height)},
	}
	f.Layout, _ = pointcloud.ParseLayout(st.layout)
	b, err := st.enc.Encode(nil, h, &f, description)
	if err != nil {
		st.t.Fatal(err)
	}
	return b
}

// frame publishes the given descriptions of a frame, or all of them.
func (st *stage) frame(camera int, sequence uint32, descriptions ...int) {
	st.t.Helper()
	if len(descriptions) == 0 {
		for d := range st.descriptions {
			descriptions = append(descriptions, d)
		}
	}
	for _, d := range descriptions {
		st.write(st.cameras[camera], uint64(1000+sequence), uint64(d), st.object(camera, sequence, d))
	}
}

func (st *stage) stamp(offset time.Duration) {
	st.clock.SendDatagram(
		moqt.Datagram{Group: uint64(time.Now().UnixMilli()), Payload: clock.Stamp{Time: time.Now().Add(offset)}.Append(nil)},
	)
}

// play starts a player of the stage's session. The returned function waits for Play to return.
func (st *stage) play(cfg Config) (*Player, func() error) {
	st.t.Helper()
	h := st.set.Handler()
	h.Publish = func(r *moqt.PublishRequest) {
		sub, err := r.Accept(moqt.SubscribeOptions{})
		if err != nil {
			return
		}
		for {
			d, err := sub.AcceptDatagram(context.Background())
			if err != nil {
				return
			}
			st.receipts <- d
		}
	}
	c, s := sessiontest.Connect(st.t, moqt.Handler{}, h)
	_ = s
	cfg.Namespace = namespace
	cfg.Log = slog.New(slog.DiscardHandler)
	p := New(cfg)
	ended := make(chan error, 1)
	ctx, stop := context.WithCancel(st.t.Context())
	done := make(chan struct{})
	go func() {
		ended <- p.Play(ctx, c)
		close(done)
	}()
	st.t.Cleanup(func() {
		stop()
		<-done
		p.Close()
	})
	return p, func() error { return <-ended }
}

func (st *stage) until(p *Player, what string, f func(Report) bool) Report {
	st.t.Helper()
	var r Report
	sessiontest.Until(st.t, what, func() bool {
		r = p.Snapshot(time.Now())
		return f(r)
	})
	return r
}

// TestPosesAreFollowed checks that the pose track moves a camera and that a later catalog with an
// unchanged pose does not move it back.
func TestPosesAreFollowed(t *testing.T) {
	st := newStage(t, 2, 1, "B", nil)
	p, ended := st.play(Config{})
	<-p.Joined()
	at := func(x float64) camera.Transform {
		return camera.Transform{R: [9]float64{1, 0, 0, 0, 1, 0, 0, 0, 1}, T: [3]float64{x}}
	}
	moved := func(x float64) {
		t.Helper()
		doc, err := catalog.MarshalPoses([]catalog.PoseEvent{{Data: catalog.Pose{Camera: 1, Pose: at(x)}}})
		if err != nil {
			t.Fatal(err)
		}
		st.next++
		st.write(st.poses, st.next, 0, doc)
	}
	where := func(n int) (x float64) {
		p.mu.Lock()
		f := p.feeds[n]
		p.mu.Unlock()
		return f.pose().T[0]
	}
	moved(7000)
	sessiontest.Until(t, "the move", func() bool { return where(1) == 7000 })
	st.frame(1, 1)
	sessiontest.Until(t, "the frame at the new pose", func() bool {
		clouds, sensors := p.Clouds()
		return len(clouds) == 1 && clouds[0].XYZ[0] == 7000 && sensors[0][0] == 7000
	})
	if x := where(0); x != 0 || p.Shot().YUp() {
		t.Errorf("camera 0 is at %g, y up %v", x, p.Shot().YUp())
	}
	st.announce(1)
	st.announce(2)
	moved(8000)
	sessiontest.Until(t, "the second pose", func() bool { return where(1) == 8000 })
	st.announce(2)
	st.announce(1)
	sessiontest.Until(t, "the unsubscription from camera 1", func() bool { return st.cameras[1].Viewers() == 0 })
	if x := where(1); x != 8000 {
		t.Errorf("camera 1 is at %g after another catalog, want 8000", x)
	}
	st.set.End(wire.DoneTrackEnded, "over")
	if err := ended(); err != nil {
		t.Error(err)
	}
}

func TestFramesAreShown(t *testing.T) {
	for _, layout := range []string{"A", "B"} {
		t.Run(layout, func(t *testing.T) {
			st := newStage(t, 2, 4, layout, nil)
			p, ended := st.play(Config{})
			<-p.Joined()
			sessiontest.Until(
				t, "the subscriptions", func() bool { return st.cameras[0].Viewers() > 0 && st.cameras[1].Viewers() > 0 },
			)
			st.stamp(time.Hour)
			st.frame(0, 1)
			st.frame(1, 1)
			r := st.until(p, "two frames", func(r Report) bool { return r.Frames == 2 })
			if r.Cameras != 2 || r.FramesLost != 0 || r.FramesPartial != 0 || r.Density != 1 || r.Clock != "relay" ||
				r.DelayFrom != "arrival" {
				t.Errorf("%+v", r) // one hour old: recorded
			}
			clouds, _ := p.Clouds()
			if len(clouds) != 2 || len(clouds[0].XYZ) != 3*width*height || !p.Shot().YUp() {
				t.Errorf("%d clouds, y up %v", len(clouds), p.Shot().YUp())
			}
			st.set.End(wire.DoneTrackEnded, "over")
			if err := ended(); err != nil {
				t.Errorf("ended with %v", err)
			}
		})
	}
}

func TestPartialFrames(t *testing.T) {
	st := newStage(t, 1, 4, "A", nil)
	p, _ := st.play(Config{})
	sessiontest.Until(t, "the subscription", func() bool { return st.cameras[0].Viewers() > 0 })
	st.stamp(0)
	st.frame(0, 1, 0, 1, 2) // the last description arrives after the next frame has started
	sessiontest.Until(t, "three descriptions", func() bool {
		f, err := p.feed(0)
		if err != nil {
			t.Fatal(err)
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.current != nil && len(f.current.objects) == 3
	})
	st.frame(0, 2)
	r := st.until(p, "both frames", func(r Report) bool { return r.Frames == 2 })
	if r.FramesPartial != 1 || r.Density != 7./8 || r.FramesLost != 0 {
		t.Errorf("%+v", r)
	}
	st.frame(0, 1, 3)
	st.until(p, "the late description", func(r Report) bool { return r.DescriptionsLate == 1 && r.Frames == 2 })

	// A frame whose first object arrives after an object of a newer frame is displayed late.
	st.frame(0, 5)
	st.until(p, "the gap", func(r Report) bool { return r.FramesLost == 2 })
	st.frame(0, 4, 0)
	st.until(p, "the late frame", func(r Report) bool {
		return r.Frames == 4 && r.FramesLate == 1 && r.FramesLost == 1 && r.FramesPartial == 2
	})
}

func TestDamagedObjects(t *testing.T) {
	st := newStage(t, 1, 1, "A", nil)
	p, _ := st.play(Config{})
	sessiontest.Until(t, "the subscription", func() bool { return st.cameras[0].Viewers() > 0 })
	st.stamp(0)
	good := st.object(0, 3, 0)
	cut := good[:len(good)-3]
	other := st.object(7, 3, 0)
	st.write(st.cameras[0], 1, 0, []byte("not a frame"))
	st.write(st.cameras[0], 2, 0, cut)
	st.write(st.cameras[0], 3, 0, other)
	st.write(st.cameras[0], 4, 0, make([]byte, 1<<20)) // exceeds the track's limit
	st.write(st.cameras[0], 5, 0, good)
	r := st.until(
		p, "the good frame and four bad ones", func(r Report) bool { return r.Frames == 1 && r.FramesDamaged == 4 },
	)
	if r.Cameras != 1 {
		t.Errorf("%+v", r)
	}
}

func TestLateJoinAndCatalogUpdate(t *testing.T) {
	st := newStage(t, 2, 4, "A", nil)
	st.announce(1)
	st.frame(0, 1)
	p, _ := st.play(Config{})
	st.stamp(0)
	st.until(p, "the frame published before the join", func(r Report) bool { return r.Frames == 1 && r.Density == 1 })
	st.announce(2)
	sessiontest.Until(t, "the second camera's subscription", func() bool { return st.cameras[1].Viewers() > 0 })
	st.frame(1, 1)
	st.until(p, "the second camera", func(r Report) bool { return r.Cameras == 2 })
	st.announce(1)
	sessiontest.Until(t, "the unsubscription from the second camera", func() bool { return st.cameras[1].Viewers() == 0 })
	st.frame(0, 2)
	st.until(p, "another frame of the first camera", func(r Report) bool { return r.Frames == 3 })
}

// TestCompressedCatalog publishes a gzip-compressed catalog and two compressed delta updates in the
// same group. The last update ends the broadcast.
func TestCompressedCatalog(t *testing.T) {
	st := newStage(t, 2, 1, "A", nil)
	c := st.describe(2)
	second := c.Tracks[1]
	c.Tracks = c.Tracks[:1]
	whole, err := c.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	delta := func(fields map[string]any) []byte {
		fields["generatedAt"] = 1
		b, err := json.Marshal(fields)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	add := delta(map[string]any{"deltaUpdate": []any{map[string]any{"op": "add", "tracks": []catalog.Track{second}}}})
	end := delta(
		map[string]any{
			"isComplete": true,
			"deltaUpdate": []any{
				map[string]any{"op": "update", "tracks": []any{map[string]any{"name": second.Name, "label": "x"}}},
			},
		},
	)
	st.next++
	objects, err := st.catalog.OpenSubgroup(
		wire.SubgroupHeader{Group: st.next, Mode: wire.SubgroupIDExplicit, FirstObject: true, HasProperties: true},
	)
	if err != nil {
		t.Fatal(err)
	}
	id := uint64(0)
	publish := func(doc []byte) {
		t.Helper()
		var z bytes.Buffer
		w := gzip.NewWriter(&z)
		if _, err := w.Write(doc); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		props := wire.AppendKeyValues(nil, wire.KeyValue{Type: catalog.CompressionProperty, Int: 1})
		if err := objects.WriteObject(moqt.Object{ID: id, Properties: props}, z.Bytes()); err != nil {
			t.Fatal(err)
		}
		id++
	}
	publish(whole)
	st.frame(0, 1)
	p, _ := st.play(Config{})
	st.stamp(0)
	st.until(p, "a frame of the first camera", func(r Report) bool { return r.Frames == 1 })
	publish(add)
	sessiontest.Until(t, "the second camera's subscription", func() bool { return st.cameras[1].Viewers() > 0 })
	publish(end)
	sessiontest.Until(
		t, "the end of all subscriptions",
		func() bool { return st.cameras[0].Viewers()+st.cameras[1].Viewers() == 0 },
	)
}

func TestReceipts(t *testing.T) {
	st := newStage(t, 1, 1, "A", nil)
	p, _ := st.play(Config{Viewer: "v"})
	sessiontest.Until(t, "the subscription", func() bool { return st.cameras[0].Viewers() > 0 })
	st.stamp(0)
	sequence := uint32(0)
	var d *moqt.Datagram
	sessiontest.Until(t, "a receipt", func() bool {
		sequence++
		st.frame(0, sequence)
		select {
		case d = <-st.receipts:
			return true
		case <-time.After(50 * time.Millisecond):
			return false
		}
	})
	r, err := qoe.ParseReceipt(d.Payload)
	if err != nil || r.Camera != 0 || r.Sequence == 0 || r.Sequence > sequence {
		t.Errorf("%+v, %v", r, err)
	}
	whole, err := d.Append(nil)
	if err != nil || len(whole) < 200 || len(whole) > 240 {
		t.Errorf("datagram of %d bytes, %v; want 200 to 240 bytes", len(whole), err)
	}
	if p.Snapshot(time.Now()).DelayFrom != "capture" {
		t.Error("live frame counted as recorded")
	}
}

func TestReplayProperty(t *testing.T) {
	st := newStage(t, 1, 1, "A", wire.AppendKeyValues(nil, wire.KeyValue{Type: connect.ReplayProperty, Int: 1}))
	p, _ := st.play(Config{})
	sessiontest.Until(t, "the subscription", func() bool { return st.cameras[0].Viewers() > 0 })
	st.stamp(0)
	st.frame(0, 1)
	r := st.until(p, "a frame", func(r Report) bool { return r.Frames == 1 })
	if r.DelayFrom != "arrival" || !strings.Contains(r.String(), "since arrival") {
		t.Errorf("%+v", r)
	}
}

// TestBadCatalog checks that the player ignores invalid catalog objects, both before and after a
// valid catalog.
func TestBadCatalog(t *testing.T) {
	st := newStage(t, 2, 1, "A", nil)
	bad := func() {
		long := strings.Repeat(" ", catalog.MaxSize+1)
		for _, doc := range []string{"", "{", `{"version":99}`, `{"deltaUpdate":true,"addTracks":3}`, long} {
			st.next++
			st.write(st.catalog, st.next, 0, []byte(doc))
		}
	}
	bad()
	p, _ := st.play(Config{})
	sessiontest.Until(t, "the subscription to the catalog", func() bool { return st.catalog.Viewers() > 0 })
	st.announce(1)
	sessiontest.Until(t, "the subscription to the first camera", func() bool { return st.cameras[0].Viewers() > 0 })
	bad()
	st.announce(2)
	sessiontest.Until(t, "the subscription to the second camera", func() bool { return st.cameras[1].Viewers() > 0 })
	st.stamp(0)
	st.frame(0, 1)
	st.frame(1, 1)
	st.until(p, "a frame of each camera", func(r Report) bool { return r.Frames == 2 })
}

func TestNoClock(t *testing.T) {
	st := newStage(t, 1, 1, "A", nil)
	p, _ := st.play(Config{})
	sessiontest.Until(t, "the subscription", func() bool { return st.cameras[0].Viewers() > 0 })
	st.frame(0, 1) // measured only after the wait for a stamp times out
	r := st.until(p, "the frame", func(r Report) bool { return r.Frames == 1 })
	if r.Clock != "local" {
		t.Errorf("%+v", r)
	}
}

func TestNoSession(t *testing.T) {
	var set origin.Set
	c, _ := sessiontest.Connect(t, moqt.Handler{}, set.Handler())
	p := New(Config{Namespace: namespace, Log: slog.New(slog.DiscardHandler)})
	defer p.Close()
	var none *connect.NoSessionError
	if err := p.Play(t.Context(), c); !errors.As(err, &none) || !strings.Contains(err.Error(), `no session "test"`) {
		t.Errorf("error %v", err)
	}
}

// newIdleFeed returns a feed without a decoder.
func newIdleFeed(t *testing.T, descriptions int) (*feed, *stage) {
	t.Helper()
	p := New(Config{Namespace: namespace, Log: slog.New(slog.DiscardHandler)})
	f := &feed{p: p, queue: make(chan *frame, backlog), past: map[uint64][256]bool{}}
	st := &stage{t: t, descriptions: descriptions, layout: "A", captured: time.Now()}
	var err error
	if st.enc, err = pointcloud.NewEncoder(pointcloud.EncoderOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(st.enc.Close)
	return f, st
}

// TestReset checks that a feed does not wait for reset subgroups.
func TestReset(t *testing.T) {
	f, st := newIdleFeed(t, 4)
	for d := range 3 {
		f.add(7, st.object(0, 7, d), time.Now(), time.Now(), false, false)
	}
	if len(f.queue) != 0 {
		t.Fatal("incomplete frame queued before the reset")
	}
	f.subgroupReset(7)
	if len(f.queue) != 1 || f.counters.reset != 1 {
		t.Fatalf("%d frames, %d resets", len(f.queue), f.counters.reset)
	}
	if fr := <-f.queue; len(fr.objects) != 3 {
		t.Errorf("%d descriptions", len(fr.objects))
	}
}

// TestVeryLateFrame checks that a frame is queued once even if its descriptions arrive long after
// newer frames.
func TestVeryLateFrame(t *testing.T) {
	f, st := newIdleFeed(t, 4)
	add := func(n uint32, description int) {
		f.add(uint64(n), st.object(0, n, description), time.Now(), time.Now(), false, false)
	}
	for d := range 4 {
		add(1000, d)
	}
	for d := range 4 {
		add(7, d)
	}
	if len(f.queue) != 2 || f.counters.late != 3 {
		t.Errorf("%d frames queued, want 2; %d descriptions late, want 3", len(f.queue), f.counters.late)
	}
}

// TestDecoderBehind checks that a feed keeps the newest frames for a slow decoder and counts the
// frames it drops.
func TestDecoderBehind(t *testing.T) {
	f, st := newIdleFeed(t, 1)
	const frames = 10
	for n := range uint32(frames) {
		f.add(uint64(n), st.object(0, n, 0), time.Now(), time.Now(), false, false)
	}
	if f.counters.skipped != frames-backlog || len(f.queue) != backlog {
		t.Errorf("%d skipped, %d queued", f.counters.skipped, len(f.queue))
	}
	if fr := <-f.queue; fr.group != frames-backlog {
		t.Errorf("oldest queued frame is %d, want %d", fr.group, frames-backlog)
	}
}

// datagrams publishes a frame of camera 0 in 40-byte datagrams. Objects for which lost returns true
// are available by FETCH only.
func (st *stage) datagrams(sequence uint32, lost func(object uint64) bool) (objects uint64) {
	st.t.Helper()
	for d := range st.descriptions {
		b := st.object(0, sequence, d)
		props := wire.AppendKeyValues(nil, wire.KeyValue{Type: parts.LengthProperty, Int: uint64(len(b))})
		for len(b) > 0 {
			n := min(len(b), 40)
			dg := moqt.Datagram{
				Group: uint64(1000 + sequence), Object: objects, Priority: 96, Properties: props,
				EndOfGroup: d == st.descriptions-1 && n == len(b), Payload: b[:n],
			}
			if lost(objects) {
				st.cameras[0].BackfillDatagram(dg)
			} else {
				st.cameras[0].SendDatagram(dg)
			}
			b, props = b[n:], nil
			objects++
		}
	}
	return objects
}

// TestFramesInDatagrams checks that frames sent as datagrams are displayed, including one published
// before the player joined, and that lost datagrams are repaired.
func TestFramesInDatagrams(t *testing.T) {
	st := newStage(t, 1, 4, "B", nil)
	st.delivery = catalog.DeliveryDatagram
	st.announce(1)
	none := func(uint64) bool { return false }
	count := st.datagrams(1, none)
	p, ended := st.play(Config{})
	<-p.Joined()
	r := st.until(p, "the frame published before the join", func(r Report) bool { return r.Frames == 1 })
	for i, lost := range []func(uint64) bool{
		none,
		func(id uint64) bool { return id == 0 },
		func(id uint64) bool { return id == count-1 },
		func(id uint64) bool { return id%3 == 1 },
	} {
		st.datagrams(uint32(2+i), lost)
		r = st.until(p, "the next frame", func(r Report) bool { return r.Frames == uint64(i+2) })
	}
	if r.FramesLost != 0 || r.FramesPartial != 0 || r.Density != 1 || r.Parts == nil || r.Parts.PartsLost != 0 ||
		r.Parts.Repaired < 3 ||
		r.Parts.Requests == 0 {
		t.Errorf("%+v, parts %+v", r, r.Parts)
	}
	// A datagram that cannot be repaired costs its description, but not the frame.
	st.datagrams(10, none)
	for d := range uint64(4) {
		if d != 2 {
			b := st.object(0, 11, int(d))
			st.cameras[0].SendDatagram(moqt.Datagram{
				Group: 1011, Object: d, Priority: 96, Payload: b, EndOfGroup: d == 3,
				Properties: wire.AppendKeyValues(nil, wire.KeyValue{Type: parts.LengthProperty, Int: uint64(len(b))}),
			})
		}
	}
	st.datagrams(12, none)
	r = st.until(
		p, "the frame of three descriptions", func(r Report) bool { return r.FramesPartial == 1 && r.Frames == 8 },
	)
	doc, err := json.Marshal(r)
	if err != nil || !bytes.Contains(doc, []byte(`"parts":{"frames":`)) || !strings.Contains(r.String(), "repaired") {
		t.Errorf("%v: %s, %s", err, doc, r)
	}
	st.set.End(wire.DoneTrackEnded, "over")
	if err := ended(); err != nil {
		t.Error(err)
	}
}

// TestTrace checks that a frame's spans use the relay's clock, however wrong the viewer's clock is,
// and that the frame's delay runs from capture to the end of the last span.
func TestTrace(t *testing.T) {
	into := collector.New()
	server := httptest.NewServer(into)
	defer server.Close()
	log := slog.New(slog.DiscardHandler)
	tracer, err := trace.New(t.Context(), trace.Config{Endpoint: server.URL, Every: 2}, trace.Program{Name: "test"}, log)
	if err != nil {
		t.Fatal(err)
	}
	const ahead = time.Hour // offset of the relay's clock
	begun := time.Now().Add(ahead)
	st := newStage(t, 1, 4, "A", nil)
	p, _ := st.play(Config{Tracer: tracer, Viewer: "alice"})
	sessiontest.Until(t, "the subscription", func() bool { return st.cameras[0].Viewers() > 0 })
	stamped := time.Now()
	st.stamp(ahead)
	st.captured = time.Now().Add(ahead)
	st.frame(0, 1) // group 1001
	st.frame(0, 2)
	st.until(p, "two frames", func(r Report) bool { return r.Frames == 2 })
	tracer.Close()
	ended := time.Now().Add(ahead)
	frames := into.Frames()
	if len(frames) != 1 || len(frames[0].Spans) != 3 {
		t.Fatalf("%+v", frames)
	}
	id, root := trace.IDs(st.cameras[0].Name(), 1002)
	// The stamp may have been delayed on its way to the player.
	slack := p.clock.Estimate(time.Now()).Error + time.Since(stamped)
	for i, name := range []string{"receive", "wait", "decode"} {
		s := frames[0].Spans[i]
		if frames[0].Trace != id.String() || s.Parent != root.String() || s.Name != name ||
			s.Attributes["holocast.viewer"] != "alice" ||
			s.Attributes["holocast.sequence"] != "2" {
			t.Errorf("%+v in %s", s, frames[0].Trace)
		}
		if s.Begin.Add(slack).Before(begun) || s.End.Add(-slack).After(ended) {
			t.Errorf("%s from %v to %v, want within %v to %v", name, s.Begin, s.End, begun, ended)
		}
	}
	decode := frames[0].Spans[2]
	delay, err := time.ParseDuration(decode.Attributes["holocast.delay_ms"] + "ms")
	if off := decode.End.Sub(st.captured) - delay; err != nil || off.Abs() > 2*time.Microsecond {
		t.Errorf("delay %v, but %v from capture to the end of the last span (%v)", delay, delay+off, err)
	}
}
