package export

import (
	"image"

	"holocast/internal/catalog"
)

// canvas is a 4:2:0 image of the sphere; in stereo the right eye is below the left.
type canvas struct {
	b      []byte
	sphere *catalog.Sphere
}

func newCanvas(s *catalog.Sphere) *canvas {
	n := s.Width * s.Height * s.Eyes()
	c := &canvas{b: make([]byte, n*3/2), sphere: s}
	for i := n; i < len(c.b); i++ {
		c.b[i] = 128
	}
	return c
}

// planes calls do for each plane and eye. The arguments of do are the offsets of the eye's first
// sample in the canvas and in another image of width×height, the strides of both, and the pixels
// per sample in each direction.
func (c *canvas) planes(width, height int, do func(to, from, toStride, fromStride, scale int)) {
	s := c.sphere
	eyes := s.Eyes()
	to, from := 0, 0
	for plane := range 3 {
		scale := 1
		if plane > 0 {
			scale = 2
		}
		tw, fw := s.Width/scale, width/scale
		th, fh := s.Height*eyes/scale, height/scale
		for eye := range eyes {
			do(to+eye*th/eyes*tw, from+eye*fh/eyes*fw, tw, fw, scale)
		}
		to, from = to+tw*th, from+fw*fh
	}
}

// put copies a tile's image into the canvas.
func (c *canvas) put(r image.Rectangle, frame []byte) {
	c.planes(r.Dx(), r.Dy()*c.sphere.Eyes(), func(to, from, toStride, fromStride, scale int) {
		for y := range r.Dy() / scale {
			at := to + (r.Min.Y/scale+y)*toStride + r.Min.X/scale
			copy(c.b[at:at+r.Dx()/scale], frame[from+y*fromStride:])
		}
	})
}

// enlarge fills a tile's area from the low-resolution sphere.
func (c *canvas) enlarge(r image.Rectangle, d *decoder) {
	s := c.sphere
	c.planes(d.width, d.height, func(to, from, toStride, fromStride, scale int) {
		w, h := d.width/scale, d.height/scale/s.Eyes()
		fullW, fullH := s.Width/scale, s.Height/scale
		for y := r.Min.Y / scale; y < r.Max.Y/scale; y++ {
			y0, y1, fy := between(y, fullH, h)
			y0, y1 = max(y0, 0), min(y1, h-1)
			for x := r.Min.X / scale; x < r.Max.X/scale; x++ {
				x0, x1, fx := between(x, fullW, w)
				x0, x1 = (x0+w)%w, x1%w
				a := mix(d.frame[from+y0*fromStride+x0], d.frame[from+y0*fromStride+x1], fx)
				b := mix(d.frame[from+y1*fromStride+x0], d.frame[from+y1*fromStride+x1], fx)
				c.b[to+y*toStride+x] = byte(((256-fy)*a + fy*b + 1<<15) >> 16)
			}
		}
	})
}

// whole fills the canvas with the low-resolution sphere.
func (c *canvas) whole(d *decoder) {
	c.enlarge(image.Rect(0, 0, c.sphere.Width, c.sphere.Height), d)
}

// between maps sample i of a line of full samples to a line of n samples. The center of sample i
// lies between samples a and b, f/256 of the way from a to b.
func between(i, full, n int) (a, b, f int) {
	at := (2*i+1)*n*128/full - 128 // in units of 1/256 sample
	a = at >> 8
	return a, a + 1, at - a<<8
}

func mix(a, b byte, f int) int { return (256-f)*int(a) + f*int(b) }
