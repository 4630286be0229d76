package pointvideo

// #include "kernels.h"
import "C"

import (
	"cmp"
	"errors"
	"fmt"
	"math"

	"holocast/internal/pointcloud"
	"holocast/internal/x264"
)

// Config configures an Encoder. Zero fields mean the defaults.
type Config struct {
	Width, Height int // pixels
	// Sigma0 and Sigma2 are the sensor's depth noise: its standard deviation at 0 m in µm, and the
	// growth in µm per m². The defaults describe an Azure Kinect.
	Sigma0, Sigma2 uint16
	Step           uint8 // quantizer step in 1/16 standard deviation, 1 to 128
	DepthQP        int   // quantizers of the pictures, 1 to 51
	ColorQP        int
}

// DefaultQP is the quantizer of both pictures.
const DefaultQP = 23

const (
	defaultSigma0, defaultSigma2 = 1800, 150
	defaultStep                  = 8
	gate                         = 44   // largest deviation from the mean in 1/16 standard deviation
	mostAverage, mostMoving      = 8, 2 // captures in a pixel's mean, and near motion
	trend                        = 1.6  // mean deviation of a moving block, in standard deviations
	drift                        = 0.8  // mean deviation of a block that its means follow at once
	finer                        = -3   // added to the quantizer of moving macroblocks
	keyFiner                     = 3    // subtracted from the default quantizers of key frames
	holdFrames                   = 15   // an invalid pixel keeps its depth
	maxIndex                     = 1<<16 - 1
)

// Encoder encodes one camera. It is not safe for concurrent use; Close frees it.
type Encoder struct {
	cfg   Config
	noise noise
	index int // of the next frame; 0 starts a group

	levels          []float32
	mean            []float32
	count, held     []byte
	valid, previous []byte    // maps
	moving, near    []byte    // blocks
	shifts          []float32 // of blocks
	offsets         []float32 // of macroblocks' quantizers
	means           []uint16
	luma, y, cb, cr []byte
	gray            []byte // chroma of the depth picture
	raw, body       []byte
	zstd            *C.struct_wv_zstd
	depth, color    *x264.Encoder
	units           [2][]byte
	qp              [2]int // quantizers of depth and color; 0 = those of cfg
	sizes           [3]int // bytes of the newest object's map, depth and color
}

// NewEncoder creates an encoder, which the caller must close.
func NewEncoder(cfg Config) (*Encoder, error) {
	cfg.Sigma0, cfg.Step = cmp.Or(cfg.Sigma0, defaultSigma0), cmp.Or(cfg.Step, defaultStep)
	cfg.Sigma2 = cmp.Or(cfg.Sigma2, defaultSigma2)
	cfg.DepthQP, cfg.ColorQP = cmp.Or(cfg.DepthQP, DefaultQP), cmp.Or(cfg.ColorQP, DefaultQP)
	w, h := cfg.Width, cfg.Height
	if w < 1 || h < 1 || w > pointcloud.MaxSide || h > pointcloud.MaxSide ||
		(w+15)/16*((h+15)/16) > maxMacroblocks {
		return nil, fmt.Errorf("point-cloud video: grid of %d×%d pixels: H.264 decoders support up to 4096×2304", w, h)
	}
	if cfg.Step > 128 {
		return nil, fmt.Errorf("point-cloud video: step %d, want 1 to 128", cfg.Step)
	}
	n := w * h
	e := &Encoder{cfg: cfg, noise: noise{cfg.Sigma0, cfg.Sigma2, cfg.Step}}
	if e.levels = e.noise.levels(); e.levels[maxDepth] > maxLevel {
		return nil, fmt.Errorf("point-cloud video: sigma0 %d µm and step %d/16 need more than %d levels",
			cfg.Sigma0, cfg.Step, maxLevel)
	}
	e.mean = make([]float32, n)
	e.count, e.held = make([]byte, n), make([]byte, n)
	e.valid, e.previous = make([]byte, n), make([]byte, n)
	blocks := (w + 7) / 8 * ((h + 7) / 8)
	e.moving, e.near = make([]byte, blocks), make([]byte, blocks)
	e.shifts = make([]float32, blocks)
	e.offsets = make([]float32, (w+15)/16*((h+15)/16))
	pixels := even(w) * even(h)
	e.means = make([]uint16, pixels+pixels/2)
	e.luma, e.y = make([]byte, pixels), make([]byte, pixels)
	e.gray, e.cb, e.cr = neutral(pixels/4), neutral(pixels/4), neutral(pixels/4)
	e.raw = make([]byte, 0, planesBound(n))
	e.body = make([]byte, C.wv_compress_bound(C.size_t(cap(e.raw)))+64)
	if err := e.open(); err != nil {
		e.Close()
		return nil, err
	}
	return e, nil
}

func neutral(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = 128
	}
	return b
}

func (e *Encoder) open() (err error) {
	if e.zstd = C.wv_zstd_new(); e.zstd == nil {
		return errMemory
	}
	cfg := x264.Config{
		Width: even(e.cfg.Width), Height: even(e.cfg.Height), FPSNum: 30, FPSDen: 1, QP: e.cfg.DepthQP,
		Preset: "ultrafast", ByteStream: true, Refine: true, Color: x264.Color{FullRange: true}, Offsets: true,
	}
	if e.depth, err = x264.New(cfg); err != nil {
		return err
	}
	cfg.QP, cfg.Offsets = e.cfg.ColorQP, false
	cfg.Color = x264.Color{Primaries: "bt709", Transfer: "bt709", Matrix: "bt709", FullRange: true}
	e.color, err = x264.New(cfg)
	return err
}

// Close frees the encoder's memory.
func (e *Encoder) Close() {
	C.wv_zstd_free(e.zstd)
	e.zstd = nil
	for _, x := range []*x264.Encoder{e.depth, e.color} {
		if x != nil {
			x.Close()
		}
	}
}

// Encode appends the next frame to dst as an object and returns the extended slice. The first frame
// is a key frame, as is every frame with key. h provides Sequence, DeviceTime, CaptureTime and
// Camera. After an error the next frame is a key frame.
func (e *Encoder) Encode(dst []byte, h pointcloud.Header, g *pointcloud.Grid, key bool) ([]byte, error) {
	if e.zstd == nil {
		return dst, errors.New("point-cloud video: use after Close")
	}
	if err := g.Check(); err != nil {
		return dst, err
	}
	if g.Width != e.cfg.Width || g.Height != e.cfg.Height {
		return dst, fmt.Errorf("point-cloud video: grid of %d×%d pixels, want %d×%d", g.Width, g.Height, e.cfg.Width,
			e.cfg.Height)
	}
	index := e.index
	if key || index > maxIndex {
		index = 0
	}
	e.index = 0
	e.valid, e.previous = e.previous, e.valid
	o := object{header: h, noise: e.noise, index: index}
	o.header.Points = uint32(C.wv_smooth(e.state(), words(g.Depth)))
	if err := e.encodeMap(&o); err != nil {
		return dst, err
	}
	if err := e.encodePictures(&o, g); err != nil {
		return dst, err
	}
	o.header.Layout, o.header.Codec, o.header.Flags = pointcloud.LayoutVideo, pointcloud.CodecVideo, 0
	o.header.Description, o.header.Descriptions = 0, 1
	o.header.Width, o.header.Height = uint16(g.Width), uint16(g.Height)
	e.index = index + 1
	start := len(dst)
	dst = o.append(dst)
	dst = append(dst, o.planes...)
	e.sizes = [3]int{len(dst) - start, len(o.depth), len(o.color)}
	dst = append(dst, o.depth...)
	return append(dst, o.color...), nil
}

func (e *Encoder) state() C.struct_wv_state {
	return C.struct_wv_state{
		width: C.int(e.cfg.Width), height: C.int(e.cfg.Height),
		sigma0: C.float(e.cfg.Sigma0) / 1e3, sigma2: C.float(e.cfg.Sigma2) / 1e9,
		level: floats(e.levels), mean: floats(e.mean), count: octets(e.count), held: octets(e.held),
		_map: octets(e.valid), previous: octets(e.previous), moving: octets(e.moving), near: octets(e.near),
		y: octets(e.y), cb: octets(e.cb), cr: octets(e.cr), means: words(e.means),
		shift: floats(e.shifts), drift: drift, offset: floats(e.offsets), finer: finer,
		luma: octets(e.luma), stride: C.int(even(e.cfg.Width)),
		gate: gate, most: mostAverage, most_moving: mostMoving, hold: holdFrames, trend: trend,
	}
}

// encodeMap compresses the map.
func (e *Encoder) encodeMap(o *object) error {
	previous := e.previous
	if o.index == 0 {
		previous = nil
	}
	raw := planes(e.raw[:0], e.valid, previous, e.cfg.Width, e.cfg.Height)
	o.header.RawLength = uint32(len(raw))
	length, runs := C.size_t(len(raw)), C.wv_runs(octets(raw), C.size_t(len(raw)), C.int(e.cfg.Width), C.int(e.cfg.Height))
	n := C.wv_compress(e.zstd, octets(raw), length, runs, octets(e.body), C.size_t(len(e.body)))
	if n == 0 {
		return errors.New("point-cloud video: zstd failed")
	}
	o.planes = e.body[:n]
	return nil
}

// SetQP sets the quantizers of the next pictures, 1 to 51.
func (e *Encoder) SetQP(depth, color int) { e.qp = [2]int{depth, color} }

// Sizes returns the bytes of the newest object's map, with its header, and of its depth and color.
func (e *Encoder) Sizes() [3]int { return e.sizes }

// DepthError returns the root mean square error in mm that quantizing the newest depth picture adds
// to the averaged depth; 0 if there is none.
func (e *Encoder) DepthError() float64 {
	if e.zstd == nil {
		return 0
	}
	stride, rows := even(e.cfg.Width), even(e.cfg.Height)
	ones := make([]float32, rows)
	for i := range ones {
		ones[i] = 1
	}
	p := x264.Picture{Y: e.luma, Cb: e.gray, Cr: e.gray, YStride: stride, CStride: stride / 2}
	levels := math.Sqrt(e.depth.LumaError(p, 0, ones) / float64(stride*rows))
	var z, points float64
	for i, m := range e.valid {
		if m != 0 {
			z, points = z+float64(e.mean[i]), points+1
		}
	}
	if points == 0 {
		return 0
	}
	z /= points
	sigma := float64(e.noise.sigma0)/1e3 + float64(e.noise.sigma2)/1e9*z*z
	return levels * float64(e.noise.step) / 16 * sigma
}

// encodePictures encodes the smoothed depth and g's color.
func (e *Encoder) encodePictures(o *object, g *pointcloud.Grid) (err error) {
	stride := even(g.Width)
	C.wv_color(e.state(), octets(g.Color), words(g.Depth))
	depth := x264.Picture{Y: e.luma, Cb: e.gray, Cr: e.gray, YStride: stride, CStride: stride / 2, Offsets: e.offsets}
	qp := e.qp[0]
	if qp == 0 {
		qp = e.cfg.DepthQP
		if o.index == 0 {
			qp = max(qp-keyFiner, 1)
		}
	}
	if e.units[0], err = e.depth.Encode(e.units[0][:0], depth, o.index == 0, qp); err != nil {
		return err
	}
	color := x264.Picture{Y: e.y, Cb: e.cb, Cr: e.cr, YStride: stride, CStride: stride / 2}
	if e.units[1], err = e.color.Encode(e.units[1][:0], color, o.index == 0, e.qp[1]); err != nil {
		return err
	}
	o.depth, o.color = e.units[0], e.units[1]
	return nil
}
