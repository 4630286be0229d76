package wan

import (
	"errors"
	"math"
	"slices"
	"testing"
)

func TestRVL(t *testing.T) {
	for name, depth := range map[string][]uint16{
		"empty":  make([]uint16, 100),
		"full":   {1, 65535, 1, 3000, 3001, 3001, 2999},
		"holes":  {0, 0, 5, 6, 0, 0, 0, 1000, 0},
		"single": {7},
	} {
		t.Run(name, func(t *testing.T) {
			got := make([]uint16, len(depth))
			data := appendRVL(nil, depth)
			if err := decodeRVL(got, data); err != nil || !slices.Equal(got, depth) {
				t.Errorf("%v, %v; want %v", got, err, depth)
			}
			if err := decodeRVL(make([]uint16, len(depth)), data[:len(data)-4]); !errors.Is(err, errRVL) {
				t.Errorf("truncated data: error %v", err)
			}
		})
	}
	// Zeros, values and differences 0, 2, −2 as in the paper: one nibble each.
	if n := len(appendRVL(nil, []uint16{3, 4, 3})); n != 4 {
		t.Errorf("five small values take %d bytes, want one word", n)
	}
}

func FuzzRVL(f *testing.F) {
	f.Add(appendRVL(nil, []uint16{0, 5, 6, 0, 900}))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		depth := make([]uint16, 1000)
		if decodeRVL(depth, data) != nil {
			return
		}
		again := make([]uint16, len(depth))
		if err := decodeRVL(again, appendRVL(nil, depth)); err != nil || !slices.Equal(again, depth) {
			t.Errorf("decoded again: %v", err)
		}
	})
}

func TestPSNR(t *testing.T) {
	for _, c := range []struct{ peak, mse, want float64 }{
		{255 * 255, 255 * 255, 0}, {100, 1, 20}, {1, 0, lossless},
	} {
		if got := psnr(c.peak, c.mse); math.Abs(got-c.want) > 0.01 {
			t.Errorf("psnr(%g, %g) = %g, want %g", c.peak, c.mse, got, c.want)
		}
	}
}
