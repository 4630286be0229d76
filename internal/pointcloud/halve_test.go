package pointcloud

import (
	"slices"
	"testing"
)

func TestHalve(t *testing.T) {
	near, far := uint16(1000), uint16(1000+1000/surfaceStep+1) // on different surfaces
	// The pixels' blue is 16 times their index.
	g := Grid{Width: 5, Height: 3, Depth: []uint16{
		near, near, near, far, 0,
		near, near, near, far, 0,
		near, near, 0, far, near,
	}}
	for i := range g.Depth {
		g.Color = append(g.Color, 255, 0, byte(16*i))
	}
	var h Grid
	g.Halve(&h)
	if h.Width != 3 || h.Height != 2 || !slices.Equal(h.Depth, []uint16{near, near, 0, near, 0, near}) {
		t.Errorf("%d×%d pixels, depth %d", h.Width, h.Height, h.Depth)
	}
	blue := []byte{
		(4*0 + 2*16*1 + 2*16*5 + 16*6 + 4) / 9,
		(4*16*2 + 2*16*1 + 2*16*7 + 16*6 + 4) / 9,
		(4*16*4 + 2*16*9 + 3) / 6,
		(4*16*10 + 2*16*5 + 2*16*11 + 16*6 + 4) / 9,
		16 * 12,
		16 * 14,
	}
	for i, b := range blue {
		if c := h.Color[3*i : 3*i+3]; c[0] != 255 || c[1] != 0 || c[2] != b {
			t.Errorf("pixel %d is %d, want blue %d", i, c, b)
		}
	}
}
