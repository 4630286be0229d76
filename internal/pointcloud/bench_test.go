package pointcloud_test

import (
	"fmt"
	"os"
	"testing"

	"holocast/internal/pointcloud"
	"holocast/internal/pointcloud/frametest"
)

// benchFrame returns a real frame, or the synthetic scene if the data is missing.
func benchFrame(b *testing.B) frametest.Frame {
	b.Helper()
	dir := os.Getenv("HOLOCAST_DATA")
	if dir == "" {
		dir = "../../../shared/data"
	}
	frames, err := frametest.Load(dir, 1)
	if err != nil {
		b.Logf("HOLOCAST_DATA not found: %v; the scene is synthetic", err)
		return frametest.Synthetic(1)
	}
	return frames[0]
}

// BenchmarkCodec measures one frame in every layout. Level 0, the default, uses only zstd's entropy
// coder.
func BenchmarkCodec(b *testing.B) {
	frame := benchFrame(b)
	for _, geometry := range []struct {
		name  string
		cloud *frametest.Cloud
	}{{"nfov", &frame.NFOV}, {"fhd", &frame.FHD}} {
		for _, level := range []int{0, 1, 2, 3} {
			for _, layout := range pointcloud.Layouts() {
				name := fmt.Sprintf("%s/%s/level=%d", geometry.name, layout, level)
				b.Run(name, func(b *testing.B) { benchLayout(b, geometry.cloud, layout, level) })
			}
		}
	}
}

func benchLayout(b *testing.B, c *frametest.Cloud, layout pointcloud.Layout, level int) {
	e, err := pointcloud.NewEncoder(pointcloud.EncoderOptions{Level: level})
	if err != nil {
		b.Fatal(err)
	}
	defer e.Close()
	d, err := pointcloud.NewDecoder()
	if err != nil {
		b.Fatal(err)
	}
	defer d.Close()
	from, into := c.Frame(layout), new(pointcloud.Frame)
	encode := func(dst []byte) ([]byte, error) { return e.Encode(dst, pointcloud.Header{}, from, 0) }
	var object []byte
	b.Run("encode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if object, err = encode(object[:0]); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(len(object))/float64(len(c.Points.XYZ)/3), "B/point")
	})
	if object, err = encode(object[:0]); err != nil {
		b.Fatal(err)
	}
	b.Run("decode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := d.Decode(into, object); err != nil {
				b.Fatal(err)
			}
		}
	})
}
