// Package picture compares pictures.
package picture

import (
	"image"
	"slices"

	"holocast/internal/qoe"
)

// Luma returns a picture's BT.709 luma.
func Luma(img *image.RGBA) []float64 {
	out := make([]float64, len(img.Pix)/4)
	for i := range out {
		p := img.Pix[4*i:]
		out[i] = 0.2126*float64(p[0]) + 0.7152*float64(p[1]) + 0.0722*float64(p[2])
	}
	return out
}

// SSIM returns the mean structural similarity (Wang et al., 2004) of two pictures' luma, over windows
// of 8×8 pixels every 4 pixels. A mask excludes windows with a pixel that is false.
func SSIM(a, b []float64, width, height int, mask []bool) float64 {
	const (
		side, step = 8, 4
		c1, c2     = 0.01 * 255 * 0.01 * 255, 0.03 * 255 * 0.03 * 255
	)
	sum, windows := 0.0, 0
	for y := 0; y+side <= height; y += step {
		for x := 0; x+side <= width; x += step {
			if mask != nil && !covers(mask[y*width+x:], side, width) {
				continue
			}
			var ma, mb, aa, bb, ab float64
			for r := range side {
				for i := (y+r)*width + x; i < (y+r)*width+x+side; i++ {
					ma, mb = ma+a[i], mb+b[i]
					aa, bb, ab = aa+a[i]*a[i], bb+b[i]*b[i], ab+a[i]*b[i]
				}
			}
			const n = side * side
			ma, mb = ma/n, mb/n
			va, vb, cov := aa/n-ma*ma, bb/n-mb*mb, ab/n-ma*mb
			sum += (2*ma*mb + c1) * (2*cov + c2) / ((ma*ma + mb*mb + c1) * (va + vb + c2))
			windows++
		}
	}
	return qoe.Round(sum/float64(max(1, windows)), 4)
}

// covers reports whether a square at the mask's start is all true.
func covers(mask []bool, side, width int) bool {
	for r := range side {
		if slices.Contains(mask[r*width:r*width+side], false) {
			return false
		}
	}
	return true
}
