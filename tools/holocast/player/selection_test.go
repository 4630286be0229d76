package player

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"holocast/internal/camera"
	"holocast/internal/catalog"
	"holocast/internal/moqt"
	"holocast/internal/origin"
	"holocast/internal/sessiontest"
	"holocast/internal/viewselect"
)

// gallery is a stage of two cameras 100 m apart, each in the qualities full and low. Their frames are
// walls 1 m before them.
type gallery struct {
	*stage
	low  []*origin.Track
	next []uint32 // sequence numbers by camera
}

func newGallery(t *testing.T) *gallery {
	g := &gallery{stage: newStage(t, 2, 1, "A", nil), next: make([]uint32, 2)}
	for n := range 2 {
		g.low = append(g.low, origin.NewTrack(
			moqt.TrackName{Namespace: namespace, Name: catalog.PointsTrack(n, "low")}, nil, origin.Limits{},
		))
		g.set.Add(g.low[n])
	}
	g.announce()
	return g
}

// announce publishes the catalog.
func (g *gallery) announce() {
	g.t.Helper()
	c := g.describe(2)
	c.InitDataList = nil
	for i, t := range c.Tracks {
		if t.Points == nil {
			continue
		}
		n := t.Points.Camera
		id, err := c.AddInit(t.Name, catalog.CameraInit{
			Grid: camera.Intrinsics{Width: width, Height: height, Fx: 20, Fy: 20, Cx: 8, Cy: 4},
			Pose: camera.Transform{R: camera.Identity.R, T: [3]float64{1e5 * float64(n), 0, 0}},
		})
		if err != nil {
			g.t.Fatal(err)
		}
		t.InitRef, t.Bitrate = id, 4e6
		c.Tracks[i] = t
		low := *t.Points
		low.Quality = "low"
		t.Points.MaxPoints *= 4 // low also helps a busy machine
		t.Name, t.Bitrate, t.Points = catalog.PointsTrack(n, "low"), 1e6, &low
		c.Tracks = append(c.Tracks, t)
	}
	doc, err := c.Marshal()
	if err != nil {
		g.t.Fatal(err)
	}
	g.stage.next++
	g.write(g.catalog, g.stage.next, 0, doc)
}

// show publishes a camera's next frame on tracks.
func (g *gallery) show(n int, tracks ...*origin.Track) {
	g.t.Helper()
	g.next[n]++
	for _, t := range tracks {
		g.write(t, uint64(1000+g.next[n]), 0, g.object(n, g.next[n], 0))
	}
}

// TestQualitiesFollowTheView checks that the camera in view gets the better quality, and that the
// previous quality is displayed until the first frame of the next one.
func TestQualitiesFollowTheView(t *testing.T) {
	g := newGallery(t)
	var x atomic.Int64          // the eye's position in mm
	var newest [2]atomic.Uint32 // displayed sequence numbers
	p, _ := g.play(Config{Shown: func(f ShownFrame) { newest[f.Camera].Store(f.Sequence) }, View: &View{
		At: func(float64) viewselect.View {
			eye := camera.Transform{R: camera.Identity.R, T: [3]float64{-float64(x.Load()), 0, 0}}
			return viewselect.View{Eye: eye, TanX: 0.4, TanY: 0.2}
		},
		Budget: 5e6,
	}})
	full := g.cameras
	qualities := func() (list []string) {
		for _, c := range p.Snapshot(time.Now()).Selection.Cameras {
			list = append(list, c.Quality)
		}
		return list
	}
	shows := func(want ...string) {
		t.Helper()
		sessiontest.Until(t, "other qualities", func() bool {
			for n := range 2 {
				g.show(n, full[n], g.low[n])
			}
			return slices.Equal(qualities(), want)
		})
	}
	alone := func(what string, watched, left *origin.Track) {
		t.Helper()
		sessiontest.Until(t, what, func() bool { return watched.Viewers() == 1 && left.Viewers() == 0 })
	}
	shows("full", "low")
	alone("camera 0 in full", full[0], g.low[0])
	alone("camera 1 in low", g.low[1], full[1])
	x.Store(1e5)
	sessiontest.Until(t, "subscriptions to both qualities", func() bool {
		return full[0].Viewers()+g.low[0].Viewers()+full[1].Viewers()+g.low[1].Viewers() == 4
	})
	// The new tracks have no frame yet, so the player displays the old ones.
	g.show(0, full[0])
	g.show(1, g.low[1])
	sessiontest.Until(t, "frames of the old qualities", func() bool {
		return newest[0].Load() == g.next[0] && newest[1].Load() == g.next[1]
	})
	if q := qualities(); !slices.Equal(q, []string{"full", "low"}) {
		t.Errorf("qualities %v before a frame of others", q)
	}
	shows("low", "full")
	alone("camera 0 in low", g.low[0], full[0])
	alone("camera 1 in full", full[1], g.low[1])
	r := p.Snapshot(time.Now())
	// The decoder may skip frames on a busy machine, and overtake one of the other quality.
	if r.FramesLost > r.FramesSkipped+2 || r.FramesDamaged != 0 {
		t.Errorf("%+v", r)
	}
	if c := r.Selection.Cameras[1]; c.Worth < 0.2 || c.Switches < 1 || c.Frames["full"] == 0 || c.Frames["low"] == 0 {
		t.Errorf("%+v", c)
	}
	x.Store(0)
	shows("full", "low")
}

// TestQualitiesFallAfterLosses checks that without a budget, the best qualities stay until frames are
// lost.
func TestQualitiesFallAfterLosses(t *testing.T) {
	g := newGallery(t)
	p, _ := g.play(Config{View: &View{At: func(float64) viewselect.View {
		return viewselect.View{Eye: camera.Identity, TanX: 0.4, TanY: 0.2}
	}}})
	sessiontest.Until(t, "the subscriptions", func() bool {
		return g.cameras[0].Viewers() == 1 && g.cameras[1].Viewers() == 1
	})
	for n := range 2 {
		g.show(n, g.cameras[n])
	}
	g.until(p, "two frames", func(r Report) bool { return r.Frames == 2 })
	p.selectOnce(time.Now())
	if s := p.Snapshot(time.Now()).Selection; s.Cameras[0].Worth < 0.2 || s.Cameras[1].Worth > 0.01 || s.Gap != 0 {
		t.Errorf("%+v", s)
	}
	if g.low[0].Viewers() > 0 || g.low[1].Viewers() > 0 {
		t.Error("a low quality is received")
	}
	// Half of the frames are lost.
	for range 40 {
		for n := range 2 {
			g.next[n]++
			g.show(n, g.cameras[n])
		}
	}
	g.until(p, "lost frames", func(r Report) bool { return r.FramesLost >= 60 })
	if p.selectOnce(time.Now().Add(time.Minute)) {
		p.selection.notify()
	}
	sessiontest.Until(t, "low qualities", func() bool { return g.low[0].Viewers() == 1 && g.low[1].Viewers() == 1 })
}
