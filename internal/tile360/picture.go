package tile360

import (
	"image"
	"image/color"
	"math"
)

// Sampler renders viewports of an equirectangular picture. It precomputes which of the picture's
// pixels each viewport pixel blends.
type Sampler struct {
	Width, Height int // viewport size, pixels
	picture       image.Point
	points        []samplePoint // row-major
}

// samplePoint is a position between pixel centres of the picture.
type samplePoint struct {
	x0, x1, y0, y1 int32
	fx, fy         float32
	weight         float32 // solid angle; all sum to 1
}

// NewSampler prepares viewports of width×height pixels for one eye (0 = left) along gaze, from
// pictures of a given size. Pixels blend across the seam behind the viewer, but never across the
// border between the eyes.
func NewSampler(l Layout, eye int, picture image.Point, p Viewport, gaze Vec, width, height int) *Sampler {
	s := &Sampler{Width: width, Height: height, picture: picture}
	e := l.Eye(eye)
	left, top := int(math.Round(e.X0*float64(picture.X))), int(math.Round(e.Y0*float64(picture.Y)))
	w, h := int(math.Round(e.X1*float64(picture.X)))-left, int(math.Round(e.Y1*float64(picture.Y)))-top
	right, up := gaze.frame()
	var sum float64
	for _, r := range p.rays(width, height) {
		x, y := Vec{
			gaze.X + r.x*right.X + r.y*up.X,
			gaze.Y + r.x*right.Y + r.y*up.Y,
			gaze.Z + r.x*right.Z + r.y*up.Z,
		}.Unit().Equirect()
		x, y = x*float64(w)-0.5, y*float64(h)-0.5
		fx, fy := math.Floor(x), math.Floor(y)
		xi, yi := int(fx), int(fy)
		s.points = append(s.points, samplePoint{
			x0: int32(left + (xi+w)%w), x1: int32(left + (xi+1)%w),
			y0: int32(top + max(0, min(h-1, yi))), y1: int32(top + max(0, min(h-1, yi+1))),
			fx: float32(x - fx), fy: float32(y - fy), weight: float32(r.weight),
		})
		sum += r.weight
	}
	for i := range s.points {
		s.points[i].weight /= float32(sum)
	}
	return s
}

// at returns a plane's value at a point. The plane may be smaller than the picture by a power of
// two, like chroma.
func (p samplePoint) at(pix []byte, stride int, shiftX, shiftY uint) float32 {
	r0, r1 := int(p.y0>>shiftY)*stride, int(p.y1>>shiftY)*stride
	c0, c1 := int(p.x0>>shiftX), int(p.x1>>shiftX)
	a, b := float32(pix[r0+c0]), float32(pix[r0+c1])
	c, d := float32(pix[r1+c0]), float32(pix[r1+c1])
	a += p.fx * (b - a)
	c += p.fx * (d - c)
	return a + p.fy*(c-a)
}

// MSE returns the luma's mean squared error between two pictures in the viewport, weighted by solid
// angle. Both must have the sampler's picture size.
func (s *Sampler) MSE(a, b *image.YCbCr) float64 {
	var sum float64
	for _, p := range s.points {
		d := p.at(a.Y, a.YStride, 0, 0) - p.at(b.Y, b.YStride, 0, 0)
		sum += float64(p.weight * d * d)
	}
	return sum
}

// Colors describes the conversion of luma and chroma. The zero value means BT.601 with limited
// range.
type Colors struct {
	BT709     bool
	FullRange bool
}

// Draw renders the viewport in colour. The picture must have the sampler's size and be 4:2:0 or
// 4:4:4.
func (s *Sampler) Draw(picture *image.YCbCr, c Colors) *image.RGBA {
	const luma, chroma = 255. / 219, 255. / 224
	black, yScale, cScale := float32(16), float32(luma), float32(chroma)
	if c.FullRange {
		black, yScale, cScale = 0, 1, 1
	}
	red, blue := float32(0.299), float32(0.114) // weights in luma
	if c.BT709 {
		red, blue = 0.2126, 0.0722
	}
	crRed, cbBlue := 2*(1-red)*cScale, 2*(1-blue)*cScale
	crGreen, cbGreen := -crRed*red/(1-red-blue), -cbBlue*blue/(1-red-blue)
	var shiftX, shiftY uint
	if picture.SubsampleRatio == image.YCbCrSubsampleRatio420 {
		shiftX, shiftY = 1, 1
	}
	dst := image.NewRGBA(image.Rect(0, 0, s.Width, s.Height))
	for i, p := range s.points {
		y := yScale * (p.at(picture.Y, picture.YStride, 0, 0) - black)
		cb := p.at(picture.Cb, picture.CStride, shiftX, shiftY) - 128
		cr := p.at(picture.Cr, picture.CStride, shiftX, shiftY) - 128
		dst.SetRGBA(i%s.Width, i/s.Width, color.RGBA{
			byteOf(y + crRed*cr), byteOf(y + cbGreen*cb + crGreen*cr), byteOf(y + cbBlue*cb), 255,
		})
	}
	return dst
}

func byteOf(v float32) uint8 { return uint8(max(0, min(255, v+0.5))) }

// MaxPSNR is the PSNR of equal pictures in dB. It corresponds to a mean squared error of 0.01,
// which keeps means finite.
const MaxPSNR = 68.13

// PSNR returns the peak signal-to-noise ratio, in dB, of a mean squared error of 8-bit values.
func PSNR(mse float64) float64 {
	return min(MaxPSNR, 10*math.Log10(255*255/max(mse, 1e-9)))
}
