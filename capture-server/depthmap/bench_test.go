package depthmap

import (
	"os"
	"path/filepath"
	"testing"

	"holocast/capture-server/source"
	"holocast/capture-server/source/livescanfiles"
	"holocast/internal/camera"
	"holocast/internal/pointcloud"
)

// studio returns the directory of the recorded four-camera studio.
func studio(t testing.TB) string {
	t.Helper()
	data := os.Getenv("HOLOCAST_DATA")
	if data == "" {
		data = "../../../shared/data"
	}
	dir := filepath.Join(data, "livescan_testdata")
	if _, err := os.Stat(dir); err != nil {
		t.Skipf("HOLOCAST_DATA not found: %v", err)
	}
	return dir
}

// realFrame returns the first frame of the studio's first camera.
func realFrame(t testing.TB, depth camera.DepthMode, color camera.ColorMode) (camera.Calibration, *source.Frame) {
	t.Helper()
	cameras, err := livescanfiles.Open(studio(t),
		livescanfiles.Options{Depth: depth, Color: color, Frames: 1, FPS: 1000})
	if err != nil {
		t.Fatal(err)
	}
	var f source.Frame
	if err := cameras[0].Next(t.Context(), &f); err != nil {
		t.Fatal(err)
	}
	return cameras[0].Calibration(), &f
}

func count(depth []uint16) int {
	n := 0
	for _, d := range depth {
		if d > 0 {
			n++
		}
	}
	return n
}

func BenchmarkMap(b *testing.B) {
	wide := &Box{Min: [3]float64{-1000, -1000, 0}, Max: [3]float64{1000, 1000, 2500}}
	for _, bb := range []struct {
		name  string
		depth camera.DepthMode
		color camera.ColorMode
		cfg   Config
	}{
		{"nfov_720p", camera.NFOVUnbinned, camera.Color720P, Config{}},
		{"nfov_720p_gain", camera.NFOVUnbinned, camera.Color720P, Config{Gain: Gain{1.1, 1, 0.9}}},
		{"nfov_720p_range", camera.NFOVUnbinned, camera.Color720P, Config{DepthMin: 500, DepthMax: 3000}},
		{"nfov_720p_crop", camera.NFOVUnbinned, camera.Color720P, Config{Crop: wide}},
		{"nfov_720p_grazing", camera.NFOVUnbinned, camera.Color720P, Config{Grazing: 10}},
		{"nfov_720p_inset", camera.NFOVUnbinned, camera.Color720P, Config{ColorInset: 1}},
		{"nfov_720p_erode1", camera.NFOVUnbinned, camera.Color720P, Config{Erode: Erode{Radius: 1}}},
		{"nfov_720p_erode3", camera.NFOVUnbinned, camera.Color720P, Config{Erode: Erode{Radius: 3}}},
		{"nfov_720p_isolated3x3", camera.NFOVUnbinned, camera.Color720P, Config{Isolated: Isolated{Neighbors: 3}}},
		{
			"nfov_720p_isolated5x5", camera.NFOVUnbinned, camera.Color720P,
			Config{Isolated: Isolated{Neighbors: 6, Radius: 2}},
		},
		{"nfov_1080p", camera.NFOVUnbinned, camera.Color1080P, Config{}},
		{"wfov_720p", camera.WFOV2x2Binned, camera.Color720P, Config{}},
		{"color_720p", camera.NFOVUnbinned, camera.Color720P, Config{Geometry: ColorGeometry}},
		{"color_1080p", camera.NFOVUnbinned, camera.Color1080P, Config{Geometry: ColorGeometry}},
	} {
		b.Run(bb.name, func(b *testing.B) {
			cal, f := realFrame(b, bb.depth, bb.color)
			m, err := New(cal, bb.cfg)
			if err != nil {
				b.Fatal(err)
			}
			defer m.Close()
			var g pointcloud.Grid
			b.ReportAllocs()
			for b.Loop() {
				if err := m.Map(f, &g); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(count(g.Depth)), "points")
		})
	}
}

// BenchmarkStage measures the parts of BenchmarkMap/nfov_720p.
func BenchmarkStage(b *testing.B) {
	cal, f := realFrame(b, camera.NFOVUnbinned, camera.Color720P)
	m, err := New(cal, Config{})
	if err != nil {
		b.Fatal(err)
	}
	defer m.Close()
	var g pointcloud.Grid
	if err := m.Map(f, &g); err != nil {
		b.Fatal(err)
	}
	filtering := func(cfg Config) *Mapper {
		f, err := New(cal, cfg)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(f.Close)
		return f
	}
	flying := filtering(Config{Grazing: 10})
	lone := filtering(Config{Isolated: Isolated{Neighbors: 3}})
	eroded := filtering(Config{Erode: Erode{Radius: 1}})
	inner := filtering(Config{ColorInset: 1})
	tints := Gain{1.1, 1, 0.9}.levels()
	for _, st := range []struct {
		name string
		run  func()
	}{
		{"decode", func() { _ = m.image.load(m.decoder, f, cal.Color, m.reduce) }},
		{"project", func() { m.project(f.Depth) }},
		{"splat", func() { m.splat(f.Depth) }},
		{"sample", func() { m.sample(&g) }},
		{"grazing", func() { flying.filter(f.Depth) }},
		{"isolated", func() { lone.filter(f.Depth) }},
		{"erode", func() { eroded.filter(f.Depth) }},
		{"inset", func() { inner.inset(&g) }},
		{"gain", func() { tints.apply(g.Depth, g.Color) }},
	} {
		b.Run(st.name, func(b *testing.B) {
			for b.Loop() {
				st.run()
			}
		})
	}
	hd, err := New(cal, Config{Geometry: ColorGeometry})
	if err != nil {
		b.Fatal(err)
	}
	defer hd.Close()
	depth := make([]uint16, cal.Color.Width*cal.Color.Height)
	b.Run("warp", func(b *testing.B) {
		for b.Loop() {
			copy(hd.clean, f.Depth)
			hd.warp(depth)
		}
	})
}
