package points

import (
	"math"
	"testing"

	"holocast/capture-server/depthmap"
	"holocast/capture-server/publish/publishtest"
	"holocast/internal/catalog"
	"holocast/internal/pointcloud"
)

// TestMatch checks that a gain changes the next frame's colours if colours are matched.
func TestMatch(t *testing.T) {
	for name, on := range map[string]bool{"on": true, "off": false} {
		t.Run(name, func(t *testing.T) {
			s := newStill(t)
			m := newMedium(t, Config{AlwaysEncode: true, MatchColors: on}, s)
			c := &capture{Frame: s.frame}
			m.pipelines[0].publish(c)
			for _, bad := range []map[int]depthmap.Gain{{1: {1, 1, 1}}, {-1: {1, 1, 1}}, {0: {1, 1, math.NaN()}}} {
				if err := m.Match(bad); err == nil {
					t.Errorf("%v is taken", bad)
				}
			}
			if err := m.Match(map[int]depthmap.Gain{0: {0.5, 1, 1}}); err != nil {
				t.Fatal(err)
			}
			m.pipelines[0].publish(c)
			var mean [][3]float64
			for _, object := range publishtest.Objects(t, m.session, catalog.PointsTrack(0, qualityFull)) {
				mean = append(mean, meanColor(t, object))
			}
			if len(mean) != 2 {
				t.Fatalf("%d frames, want 2", len(mean))
			}
			before, after := mean[0], mean[1]
			darker := after[0] < 0.8*before[0]
			if darker != on || after[1] != before[1] || after[2] != before[2] {
				t.Errorf("mean colour %.1f before, %.1f after halving red", before, after)
			}
		})
	}
}

func meanColor(t *testing.T, object []byte) (mean [3]float64) {
	t.Helper()
	d, err := pointcloud.NewDecoder()
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	var f pointcloud.Frame
	if _, err := d.Decode(&f, object); err != nil {
		t.Fatal(err)
	}
	n := 0.0
	for i, z := range f.Grid.Depth {
		if z > 0 {
			for c := range mean {
				mean[c] += float64(f.Grid.Color[3*i+c])
			}
			n++
		}
	}
	for c := range mean {
		mean[c] /= n
	}
	return mean
}
