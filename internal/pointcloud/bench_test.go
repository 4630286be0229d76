package pointcloud_test

import (
	"os"
	"testing"

	"holocast/internal/pointcloud"
	"holocast/internal/pointcloud/frametest"
)

func frames(b *testing.B) []frametest.Frame {
	dir := os.Getenv("HOLOCAST_DATA")
	if dir == "" {
		dir = "../../../shared/data"
	}
	f, err := frametest.Load(dir, 1)
	if err != nil {
		b.Skipf("HOLOCAST_DATA not found: %v", err)
	}
	return f
}

func BenchmarkGrid(b *testing.B) {
	fs := frames(b)
	e, _ := pointcloud.NewEncoder(pointcloud.EncoderOptions{})
	d, _ := pointcloud.NewDecoder()
	for _, fhd := range []bool{false, true} {
		name := "nfov"
		g := &fs[0].NFOV.Grid
		if fhd {
			name = "fhd"
			g = &fs[0].FHD.Grid
		}
		var obj []byte
		b.Run(name+"/encode", func(b *testing.B) {
			for b.Loop() {
				obj, _ = e.EncodeGrid(obj[:0], pointcloud.Header{}, g, 0)
			}
			h, _ := pointcloud.ParseHeader(obj)
			b.ReportMetric(float64(len(obj))/float64(h.Points), "B/point")
		})
		b.Run(name+"/decode", func(b *testing.B) {
			var out pointcloud.Grid
			for b.Loop() {
				if _, err := d.DecodeGrid(&out, obj); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
