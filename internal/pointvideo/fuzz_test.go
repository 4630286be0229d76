package pointvideo

import (
	"slices"
	"testing"

	"holocast/internal/pointcloud"
)

// fuzzPixels bounds the decoder's allocation.
const fuzzPixels = 1 << 14

// FuzzDecode decodes a key frame and its successor.
func FuzzDecode(f *testing.F) {
	for _, s := range scenes() {
		objects := s.encode(f)
		f.Add(objects[0], objects[1])
	}
	f.Fuzz(func(t *testing.T, first, second []byte) {
		d := newDecoder(t)
		d.MaxPoints = fuzzPixels
		for _, b := range [][]byte{first, second} {
			var g pointcloud.Grid
			h, err := d.Decode(&g, b)
			if err != nil {
				continue
			}
			points := 0
			for _, z := range g.Depth {
				points += min(int(z), 1)
			}
			if len(g.Depth) > fuzzPixels || points != int(h.Points) {
				t.Fatalf("%d pixels with %d points, want %d", len(g.Depth), points, h.Points)
			}
		}
	})
}

// FuzzMap compares the kernels with the reference, without zstd and pictures.
func FuzzMap(f *testing.F) {
	f.Add(uint8(3), []byte{0, 9, 9, 0, 1, 1}, []byte{1, 3, 0, 9})
	f.Add(uint8(3), []byte{}, []byte{0, 0, 4, 10, 9})
	f.Add(uint8(20), slices.Repeat([]byte{4, 4, 5}, 100), []byte{255, 45, 0, 8, 1})
	f.Fuzz(func(t *testing.T, width uint8, previous, raw []byte) {
		w := int(width)%64 + 1
		h := len(previous) / w
		if h == 0 {
			previous, h = nil, 7
		} else {
			previous = previous[:w*h]
		}
		got := make([]byte, w*h)
		points := unmap(raw, got, previous, w, h)
		want, ok := referenceMap(raw, previous, w, h)
		if ok != (points >= 0) || ok && !slices.Equal(got, want) {
			t.Fatalf("kernels: %d points, map %d; reference: %v, map %d", points, got, ok, want)
		}
		if !ok || slices.Max(got) > 247 || previous != nil && slices.Max(previous) > 247 {
			return
		}
		again := make([]byte, w*h)
		if unmap(planes(nil, got, previous, w, h), again, previous, w, h) != points || !slices.Equal(again, got) {
			t.Fatalf("map %d becomes %d", got, again)
		}
	})
}
