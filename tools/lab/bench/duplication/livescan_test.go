//go:build linux

package duplication

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"holocast/internal/camera"
	"holocast/internal/catalog"
	"holocast/internal/moqt"
	"holocast/internal/pointcloud"
	"holocast/internal/recording"
)

func TestReadSent(t *testing.T) {
	begun := time.UnixMicro(1_790_000_000_000_000)
	at := func(ms int) time.Time { return begun.Add(time.Duration(ms) * time.Millisecond) }
	const head = "viewer,frame,captured_us,asked_us,taken_us,points,bytes\n"
	const list = head +
		"10.0.0.2:4000,0,0,0,0,0,4\n" + // before the first frame
		"10.0.0.2:4000,7,1790000000000000,0,0,10,94\n" +
		"10.0.0.2:4000,7,1790000000000000,0,0,10,94\n" + // repeated
		"10.0.0.2:4000,9,1790000000066000,0,0,12,112\n" +
		"10.0.0.2:4000,10,1790000000100000,0,0,12,112\n" // in flight at the end
	arrivals := []arrival{{at(-10), 0}, {at(40), 10}, {at(60), 10}, {at(110), 12}}
	frames, err := readSent(strings.NewReader(list), arrivals, begun)
	if err != nil {
		t.Fatal(err)
	}
	want := []frame{
		{7, 0, 40 * time.Millisecond, 10, 94},
		{9, 66 * time.Millisecond, 110 * time.Millisecond, 12, 112},
	}
	if len(frames) != 2 || frames[0] != want[0] || frames[1] != want[1] {
		t.Errorf("%+v, want %+v", frames, want)
	}
	for _, c := range []struct{ name, list, want string }{
		{"empty", "", "unexpected EOF"},
		{"garbage", head + "x\n", `list of sent frames: "x"`},
		{"other points", head + "10.0.0.2:4000,7,1,0,0,11,94\n", "viewer received 0 points, but the bridge sent 11"},
	} {
		if _, err := readSent(strings.NewReader(c.list), arrivals, begun); err == nil || !strings.Contains(err.Error(),
			c.want) {
			t.Errorf("%s: error %v, want one with %q", c.name, err, c.want)
		}
	}
}

func TestThin(t *testing.T) {
	encoder, err := pointcloud.NewEncoder(pointcloud.EncoderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer encoder.Close()
	const w, h = 64, 48
	g := pointcloud.Grid{Width: w, Height: h, Depth: make([]uint16, w*h), Color: make([]byte, 3*w*h)}
	for i := range g.Depth {
		if i%3 != 0 { // two thirds of the pixels have a point
			g.Depth[i] = uint16(1000 + rand.IntN(100))
		}
	}
	c := catalog.Catalog{Version: catalog.Version}
	ref, err := c.AddInit("camera", catalog.CameraInit{Grid: camera.Intrinsics{
		Width: w, Height: h, Fx: 60, Fy: 60,
		Cx: 31.5, Cy: 23.5,
	}, Pose: camera.Identity})
	if err != nil {
		t.Fatal(err)
	}
	c.Tracks = []catalog.Track{{
		Name: catalog.PointsTrack(0, "full"), Packaging: catalog.PackagingPoints, IsLive: true, InitRef: ref, Width: w,
		Height: h,
		Points: &catalog.Points{Quality: "full", Layout: "A", Descriptions: 1, MaxPoints: w * h},
	}}
	text, err := c.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	for _, points := range []int{1, 100, w * h} {
		b, err := encoder.Encode(nil, pointcloud.Header{Sequence: 5, Descriptions: 1},
			&pointcloud.Frame{Layout: pointcloud.LayoutGrid, Grid: g}, 0)
		if err != nil {
			t.Fatal(err)
		}
		frames := []recording.Object{{Payload: b}}
		others := []recording.Object{{Track: moqt.TrackName{Name: catalog.TrackName}, Payload: text}}
		if err := thin(frames, others, points); err != nil {
			t.Fatal(err)
		}
		if c, err := catalog.Parse(others[0].Payload); err != nil || c.Tracks[0].Points.Layout != "B" ||
			c.Tracks[0].Points.MaxPoints != points {
			t.Errorf("catalog %s, %v", others[0].Payload, err)
		}
		header, err := pointcloud.ParseHeader(frames[0].Payload)
		want := min(w*h*2/3, points)
		if err != nil || int(header.Points) != want || header.Sequence != 5 ||
			header.Layout != pointcloud.LayoutPoints {
			t.Errorf("%d points: %+v, %v", points, header, err)
		}
	}
}
