package synthetic

import (
	"math/rand/v2"
	"testing"

	"holocast/internal/camera"
	"holocast/internal/mjpeg"
)

func BenchmarkRender(b *testing.B) {
	opts := Options{Cameras: 1, Depth: camera.NFOVUnbinned, Color: camera.Color720P, Frames: 1}
	cal, err := Calibration(0, opts.Depth, opts.Color)
	if err != nil {
		b.Fatal(err)
	}
	rays := [2]camera.RayTable{cal.Depth.RayTable(), cal.Color.RayTable()}
	s, err := newSensor(0, opts, rays)
	if err != nil {
		b.Fatal(err)
	}
	encoder, err := mjpeg.NewEncoder()
	if err != nil {
		b.Fatal(err)
	}
	defer encoder.Close()
	rest, m, c := body(), newMesher(), new(canvas)
	depth := make([]uint16, s.cal.Depth.Width*s.cal.Depth.Height)
	b.Run("mesh", func(b *testing.B) {
		for b.Loop() {
			m.mesh(newFigure(rest, 0.3))
		}
		b.ReportMetric(float64(2*len(m.quads)), "triangles")
	})
	b.Run("depth", func(b *testing.B) {
		for b.Loop() {
			s.views[0].draw(c, m)
		}
	})
	b.Run("sense", func(b *testing.B) {
		for b.Loop() {
			s.views[0].sense(c, rand.NewPCG(1, 2), depth)
		}
	})
	b.Run("color", func(b *testing.B) {
		for b.Loop() {
			s.views[1].draw(c, m)
		}
	})
	b.Run("jpeg", func(b *testing.B) {
		var jpeg []byte
		for b.Loop() {
			if jpeg, err = encoder.EncodeRGB(jpeg, c.rgb, s.cal.Color.Width, s.cal.Color.Height, quality); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(len(jpeg)), "bytes")
	})
	b.Run("background", func(b *testing.B) {
		for b.Loop() {
			newView(s.cal.Color, rays[1], s.pose, false, true)
		}
	})
}
