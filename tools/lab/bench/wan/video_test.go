package wan

import (
	"math"
	"testing"

	"holocast/internal/openh264"
	"holocast/internal/pointcloud"
)

func TestFold(t *testing.T) {
	for z := uint16(foldLeast + 1); z < 8000; z++ {
		c, a, b := fold(z)
		for off := -1; off <= 1; off++ { // of the coarse sample, 32 mm
			got := unfold(uint8(min(max(int(c)+off, 0), 255)), a, b)
			if math.Abs(float64(got)-float64(z)) > 1 {
				t.Fatalf("depth %d with a coarse sample off by %d gives %d", z, off, got)
			}
		}
	}
	if got := unfold(fold(0)); got != 0 {
		t.Errorf("no reading gives depth %d", got)
	}
}

func TestColorConversion(t *testing.T) {
	h := &h264{width: 2, y: make([]byte, 4), cb: make([]byte, 1), cr: make([]byte, 1)}
	rgb := []byte{200, 30, 90, 200, 30, 90, 200, 30, 90, 200, 30, 90}
	h.setColor(rgb)
	g := pointcloud.Grid{Width: 2, Height: 2, Depth: make([]uint16, 4), Color: make([]byte, 12)}
	getColor(&g, openh264.Picture{Width: 2, Height: 2, Y: h.y, Cb: h.cb, Cr: h.cr, YStride: 2, CStride: 1})
	for i, v := range g.Color {
		if math.Abs(float64(v)-float64(rgb[i])) > 2 {
			t.Fatalf("%v gives %v", rgb, g.Color)
		}
	}
}
