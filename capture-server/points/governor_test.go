package points

import (
	"errors"
	"io"
	"log/slog"
	"math"
	"testing"
	"time"

	"holocast/capture-server/publish/publishtest"
	"holocast/internal/catalog"
	"holocast/internal/pointcloud"
)

// TestGovernor applies several seconds of load per phase and checks the thinning at its end.
func TestGovernor(t *testing.T) {
	type phase struct {
		seconds float64
		share   [2]float64 // of each camera, without thinning
		every   int32      // at the end
	}
	for _, tt := range []struct {
		name    string
		phases  []phase
		changes int // total
	}{
		{"enough time", []phase{{60, [2]float64{0.7, 0.5}, 1}}, 0},
		{"one slow frame", []phase{
			{1, [2]float64{0.4, 0.4}, 1},
			{0.03, [2]float64{3, 0.4}, 1},
			{2, [2]float64{0.4, 0.4}, 1},
		}, 0},
		{"overload before frames are lost", []phase{{1, [2]float64{0.5, 0.5}, 1}, {1, [2]float64{0.5, 0.95}, 2}}, 1},
		{"severe overload", []phase{{5, [2]float64{4, 4}, 4}}, 2},
		{"temporary overload", []phase{{5, [2]float64{1.5, 1.5}, 2}, {10, [2]float64{0.4, 0.4}, 1}}, 2},
		// Trials after 2, 4, 8, 16 and 32 s.
		{"permanent overload", []phase{{75, [2]float64{0.9, 0.9}, 2}}, 11},
		{"slow camera ends", []phase{{5, [2]float64{0.4, 1.2}, 2}, {10, [2]float64{0.4, math.NaN()}, 1}}, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := newGovernor(slog.New(slog.DiscardHandler), 2)
			now, changes, last := time.Unix(0, 0), 0, int32(1)
			for i, p := range tt.phases {
				end := now.Add(time.Duration(p.seconds * float64(time.Second)))
				for ; now.Before(end); now = now.Add(time.Second / 30) {
					for camera, share := range p.share {
						if !math.IsNaN(share) {
							g.observe(camera, share/(1+math.Log2(float64(g.every.Load()))), now)
						}
					}
					if every := g.every.Load(); every != last {
						changes, last = changes+1, every
					}
				}
				if last != p.every {
					t.Errorf("1 of %d rows kept after phase %d, want 1 of %d", last, i, p.every)
				}
			}
			if changes != tt.changes {
				t.Errorf("%d changes, want %d", changes, tt.changes)
			}
		})
	}
}

// TestOverloadThinsAllCameras checks that an overloaded machine thins the frames of all cameras,
// and that thinned frames keep the grid's size and all points of the kept rows.
func TestOverloadThinsAllCameras(t *testing.T) {
	r := publishtest.NewRelay(t)
	var cameras []*still
	for range 2 {
		s := newStill(t)
		s.fps, s.period, s.end, s.frames = 2000, time.Millisecond/2, io.EOF, 600
		cameras = append(cameras, s)
	}
	m := newMedium(t, Config{AlwaysEncode: true, Thin: true}, cameras[0], cameras[1])
	whole := newMedium(t, Config{AlwaysEncode: true}, cameras[0])
	whole.pipelines[0].publish(&capture{Frame: cameras[0].frame})
	var want pointcloud.Frame
	d, err := pointcloud.NewDecoder()
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	decode := func(object []byte, f *pointcloud.Frame) pointcloud.Header {
		t.Helper()
		h, err := d.Decode(f, object)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	all := decode(publishtest.Objects(t, whole.session, catalog.PointsTrack(0, qualityFull))[0], &want).Points

	if err := m.session.Run(t.Context(), r.Target); err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	for n := range cameras {
		objects := publishtest.Objects(t, m.session, catalog.PointsTrack(n, qualityFull))
		var got pointcloud.Frame
		h := decode(objects[len(objects)-1], &got)
		if h.Points > all*6/10 || h.Points < all/6 {
			t.Errorf("camera %d: the last frame has %d points of %d", n, h.Points, all)
		}
		for i, z := range got.Grid.Depth {
			if z != 0 && z != want.Grid.Depth[i] {
				t.Fatalf("camera %d: pixel %d is at %d mm, want %d", n, i, z, want.Grid.Depth[i])
			}
		}
	}
	if every := m.every(); every < 2 {
		t.Errorf("1 of %d rows kept", every)
	}
}
