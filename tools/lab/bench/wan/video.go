package wan

import (
	"encoding/binary"
	"math"

	"holocast/internal/openh264"
	"holocast/internal/pointcloud"
	"holocast/internal/pointvideo"
	"holocast/internal/x264"
)

// group is the number of frames from one key frame to the next.
const group = fps

// videoCoder codes frames in layout W.
type videoCoder struct {
	encoder *pointvideo.Encoder
	decoder *pointvideo.Decoder
	frames  int
}

// newVideoCoder returns a coder with the quantizers of depth and colour; 0 is the encoder's own.
func newVideoCoder(width, height, depthQP, colorQP int) (coder, error) {
	e, err := pointvideo.NewEncoder(pointvideo.Config{Width: width, Height: height, DepthQP: depthQP, ColorQP: colorQP})
	if err != nil {
		return nil, err
	}
	d, err := pointvideo.NewDecoder()
	if err != nil {
		e.Close()
		return nil, err
	}
	return &videoCoder{encoder: e, decoder: d}, nil
}

func (c *videoCoder) encode(dst []byte, g *pointcloud.Grid) ([]byte, error) {
	key := c.frames%group == 0
	c.frames++
	return c.encoder.Encode(dst, pointcloud.Header{}, g, key)
}

func (c *videoCoder) decode(g *pointcloud.Grid, object []byte) error {
	_, err := c.decoder.Decode(g, object)
	return err
}

func (c *videoCoder) close() {
	c.encoder.Close()
	c.decoder.Close()
}

// foldedCoder codes depth as three planes of 8 bits in H.264 (Pece, Kautz and Weyrich, "Adapting
// Standard Video Codecs for Depth Streaming", EGVE 2011): a coarse one and two triangle waves, one
// above the other. Colour is a second stream. Every reading is coded as it is; no reading is depth 0.
type foldedCoder struct {
	width, height int
	depth, color  *h264
	frames        int
}

// Quantizers of the folded depth, and of its colour as in layout W.
const (
	foldedQP = 20
	colorQP  = 22
)

func newFoldedCoder(width, height int) (coder, error) {
	c := &foldedCoder{width: width, height: height}
	var err error
	if c.depth, err = newH264(width, 3*height, foldedQP); err != nil {
		return nil, err
	}
	if c.color, err = newH264(width, height, colorQP); err != nil {
		c.depth.close()
		return nil, err
	}
	return c, nil
}

func (c *foldedCoder) encode(dst []byte, g *pointcloud.Grid) ([]byte, error) {
	n := c.width * c.height
	for i, d := range g.Depth {
		c.depth.y[i], c.depth.y[n+i], c.depth.y[2*n+i] = fold(d)
	}
	c.color.setColor(g.Color)
	start := len(dst)
	key := c.frames%group == 0
	c.frames++
	dst, err := c.depth.encode(append(dst, 0, 0, 0, 0), key)
	if err != nil {
		return dst, err
	}
	binary.LittleEndian.PutUint32(dst[start:], uint32(len(dst)-start-4))
	return c.color.encode(dst, key)
}

func (c *foldedCoder) decode(g *pointcloud.Grid, object []byte) error {
	end := 4 + binary.LittleEndian.Uint32(object)
	depth, err := c.depth.decoder.Decode(object[4:end])
	if err != nil {
		return err
	}
	blank(g, c.width, c.height)
	for i := range g.Depth {
		at := i/c.width*depth.YStride + i%c.width
		third := c.height * depth.YStride
		g.Depth[i] = unfold(depth.Y[at], depth.Y[at+third], depth.Y[at+2*third])
	}
	color, err := c.color.decoder.Decode(object[end:])
	if err != nil {
		return err
	}
	getColor(g, color)
	return nil
}

func (c *foldedCoder) close() {
	c.depth.close()
	c.color.close()
}

const (
	foldRange  = 8192 // mm
	foldPeriod = 512  // mm of the triangle waves
	foldLeast  = 250  // mm; less is no reading
)

// triangle is a wave of the given period with values from 0 to 1.
func triangle(d, period float64) float64 {
	t := math.Mod(d/(period/2)+2, 2)
	return min(t, 2-t)
}

// fold returns the samples of a depth in mm.
func fold(d uint16) (coarse, a, b uint8) {
	z := min(float64(d), foldRange-1)
	sample := func(v float64) uint8 { return uint8(math.Round(255 * v)) }
	return sample(z / foldRange), sample(triangle(z, foldPeriod)), sample(triangle(z-foldPeriod/4, foldPeriod))
}

// unfold reverses fold. The coarse sample may be off by 64 mm: of the two waves, the one farther from
// its turning points gives the depth within its half period.
func unfold(coarse, a, b uint8) uint16 {
	const half = foldPeriod / 2
	near := float64(coarse) / 255 * foldRange
	wave, from := float64(a)/255, 0.
	if t := math.Mod(near, half); t < half/4 || t > half*3/4 {
		wave, from = float64(b)/255, half/2
	}
	k := math.Floor((near - from) / half)
	if int(k)%2 != 0 { // falling
		wave = 1 - wave
	}
	z := from + (k+wave)*half
	if z < foldLeast || z >= foldRange {
		return 0
	}
	return uint16(math.Round(z))
}

// h264 is an encoder and a decoder of one stream.
type h264 struct {
	width     int
	encoder   *x264.Encoder
	decoder   *openh264.Decoder
	y, cb, cr []byte
}

func newH264(width, height, qp int) (*h264, error) {
	e, err := x264.New(x264.Config{
		Width: width, Height: height, FPSNum: fps, FPSDen: 1, QP: qp, Preset: "ultrafast", ByteStream: true,
		Color: x264.Color{FullRange: true},
	})
	if err != nil {
		return nil, err
	}
	d, err := openh264.New()
	if err != nil {
		e.Close()
		return nil, err
	}
	n := width * height
	h := &h264{width: width, encoder: e, decoder: d, y: make([]byte, n), cb: make([]byte, n/4), cr: make([]byte, n/4)}
	for i := range h.cb {
		h.cb[i], h.cr[i] = 128, 128
	}
	return h, nil
}

func (h *h264) encode(dst []byte, key bool) ([]byte, error) {
	return h.encoder.Encode(dst, x264.Picture{
		Y: h.y, Cb: h.cb, Cr: h.cr, YStride: h.width, CStride: h.width / 2,
	}, key, 0)
}

func (h *h264) close() {
	h.encoder.Close()
	h.decoder.Close()
}

// setColor converts R G B to full-range BT.709 in 4:2:0.
func (h *h264) setColor(rgb []byte) {
	w := h.width
	for i := range h.y {
		r, g, b := float32(rgb[3*i]), float32(rgb[3*i+1]), float32(rgb[3*i+2])
		h.y[i] = uint8(0.2126*r + 0.7152*g + 0.0722*b + 0.5)
	}
	for i := range h.cb {
		at := i/(w/2)*2*w + i%(w/2)*2
		var r, g, b float32
		for _, k := range [4]int{at, at + 1, at + w, at + w + 1} {
			r, g, b = r+float32(rgb[3*k])/4, g+float32(rgb[3*k+1])/4, b+float32(rgb[3*k+2])/4
		}
		y := 0.2126*r + 0.7152*g + 0.0722*b
		h.cb[i], h.cr[i] = uint8((b-y)/1.8556+128.5), uint8((r-y)/1.5748+128.5)
	}
}

// getColor reverses setColor.
func getColor(g *pointcloud.Grid, p openh264.Picture) {
	sample := func(v float32) uint8 { return uint8(min(max(v+0.5, 0), 255)) }
	for i := range g.Depth {
		x, row := i%g.Width, i/g.Width
		y := float32(p.Y[row*p.YStride+x])
		at := row/2*p.CStride + x/2
		cb, cr := float32(p.Cb[at])-128, float32(p.Cr[at])-128
		g.Color[3*i], g.Color[3*i+2] = sample(y+1.5748*cr), sample(y+1.8556*cb)
		g.Color[3*i+1] = sample(y - 0.1873*cb - 0.4681*cr)
	}
}
