// Package tileencoder encodes 360° video as tiles (docs/spec/tiles.md). From each frame it makes a
// frame of every tile at every quality and one of the entire sphere at low resolution, and measures
// their distortion. It does no I/O.
//
// Each quality of each tile has its own single-threaded encoder; tiles are encoded in parallel. A
// quality is a fixed quantiser, so it looks alike in all tiles and frames. Only a tile that would
// exceed its bit rate gets a coarser quantiser.
package tileencoder

import (
	"fmt"
	"image"
	"math"
	"runtime"
	"sync"
	"sync/atomic"

	"holocast/internal/catalog"
	"holocast/internal/x264"
)

// #cgo CFLAGS: -O3
// #include "kernels.h"
import "C"

// Config configures an Encoder.
type Config struct {
	Sphere         catalog.Sphere
	FPSNum, FPSDen int
	GOP            int    // frames; 0 is a second
	Quantisers     []int  // per quality of the sphere; nil means Quantisers(n)
	Preset         string // libx264's preset for tiles; "" means ultrafast
	// MaxBitrate bounds the sphere at the best quality, in bits per second. 0 means DefaultBitrate.
	// Lower qualities get proportionally less.
	MaxBitrate   int64
	Workers      int // tiles encoded concurrently; 0 means one per processor
	RatesEvery   int // frames per measurement of the distortion of missing tiles; 0 means 15
	DistortEvery int // frames per measurement of the tiles' distortion; 0 means 1
}

// Quantisers returns the quantisers of n qualities, the worst first.
func Quantisers(n int) []int {
	const worst, best = 38, 22
	if n == 1 {
		return []int{(worst + best) / 2}
	}
	qps := make([]int, n)
	for i := range qps {
		qps[i] = worst - int(math.Round(float64(i*(worst-best))/float64(n-1)))
	}
	return qps
}

// DefaultBitrate returns the default bound of a sphere's best quality, in bits per second.
func DefaultBitrate(s *catalog.Sphere, fps float64) int64 {
	const bitsPerPixel = 0.4
	return int64(bitsPerPixel * fps * float64(s.Width*s.Height*s.Eyes()))
}

// GOP returns the default number of frames in a GoP, which is the rounded frame rate.
func GOP(fpsNum, fpsDen int) int { return max(1, (2*fpsNum+fpsDen)/(2*fpsDen)) }

// videoQP is the quantiser of the low-resolution sphere.
const videoQP = 30

// VideoSize returns the size of one eye's picture in the low-resolution sphere: a quarter of the
// sphere's width and height, but at most 960 pixels wide.
func VideoSize(s *catalog.Sphere) (width, height int) {
	div := max(4, (s.Width+959)/960)
	even := func(v int) int { return max(16, v/div&^1) }
	return even(s.Width), even(s.Height)
}

// Frame is a picture of the sphere: one eye, or left and right eye.
type Frame struct {
	Eyes [2]x264.Picture // with the sphere's width and height
}

// Video stands for the low-resolution sphere in place of a tile's index.
const Video = -1

// Encoder encodes 360° video. It is not safe for concurrent use; Close frees it.
type Encoder struct {
	cfg     Config
	tiles   []tile
	video   video
	workers int
	frames  int // frames in this GoP
}

// tile is one tile, used by one worker at a time.
type tile struct {
	rect     image.Rectangle
	weights  []float32 // per row of one eye
	total    float64   // sum of weights over all pixels of both eyes
	picture  x264.Picture
	buffer   []byte // stereo: rectangles of both eyes
	versions []version
	missing  float64 // weighted squared error
	sampled  int     // frames in missing
}

// version is a tile at one quality.
type version struct {
	enc        *x264.Encoder
	qp, raised int
	perFrame   float64 // average bytes per frame allowed
	payload    []byte

	encoded    bool // in this GoP
	bytes      int64
	distortion float64
	sampled    int
}

type video struct {
	enc           *x264.Encoder
	width, height int // of one eye
	picture       x264.Picture
	luma          []byte // decoded
	columns       []uint16
	payload       []byte
}

// New starts the encoders. Errors name the invalid setting.
func New(cfg Config) (*Encoder, error) {
	s := &cfg.Sphere
	if err := s.Validate(); err != nil {
		return nil, err
	}
	if len(cfg.Quantisers) == 0 {
		cfg.Quantisers = Quantisers(max(1, s.Qualities))[:s.Qualities]
	}
	if len(cfg.Quantisers) != s.Qualities {
		return nil, fmt.Errorf("%d quantisers for %d qualities, want one each", len(cfg.Quantisers), s.Qualities)
	}
	for i := 1; i < len(cfg.Quantisers); i++ {
		if cfg.Quantisers[i] >= cfg.Quantisers[i-1] {
			return nil, fmt.Errorf("quantisers %v do not descend from the worst quality to the best", cfg.Quantisers)
		}
	}
	if cfg.FPSNum < 1 || cfg.FPSDen < 1 {
		return nil, fmt.Errorf("invalid rate of %d/%d frames per second", cfg.FPSNum, cfg.FPSDen)
	}
	fps := float64(cfg.FPSNum) / float64(cfg.FPSDen)
	if cfg.GOP == 0 {
		cfg.GOP = GOP(cfg.FPSNum, cfg.FPSDen)
	}
	if cfg.MaxBitrate == 0 {
		cfg.MaxBitrate = DefaultBitrate(s, fps)
	}
	if cfg.Preset == "" {
		cfg.Preset = "ultrafast"
	}
	if cfg.RatesEvery == 0 {
		cfg.RatesEvery = 15
	}
	if cfg.DistortEvery == 0 {
		cfg.DistortEvery = 1
	}
	e := &Encoder{cfg: cfg, workers: cfg.Workers}
	if e.workers == 0 {
		e.workers = runtime.GOMAXPROCS(0)
	}
	if err := e.open(fps); err != nil {
		e.Close()
		return nil, err
	}
	return e, nil
}

func (e *Encoder) open(fps float64) error {
	s := &e.cfg.Sphere
	encoder := func(width, height, qp int, preset string) (*x264.Encoder, error) {
		return x264.New(x264.Config{
			Width: width, Height: height * s.Eyes(), FPSNum: e.cfg.FPSNum, FPSDen: e.cfg.FPSDen,
			QP: qp, Preset: preset, Color: x264.Color(s.Color),
		})
	}
	v := &e.video
	v.width, v.height = VideoSize(s)
	v.picture = newPicture(v.width, v.height*s.Eyes())
	v.columns = make([]uint16, s.Width)
	v.luma = make([]byte, v.width*v.height*s.Eyes())
	var err error
	if v.enc, err = encoder(v.width, v.height, videoQP, e.cfg.Preset); err != nil {
		return err
	}
	e.tiles = make([]tile, s.Tiles())
	for i := range e.tiles {
		t := &e.tiles[i]
		t.rect = s.Rect(i)
		t.weights = make([]float32, t.rect.Dy())
		for r := range t.weights {
			t.weights[r] = float32(math.Cos(math.Pi * (0.5 - (float64(t.rect.Min.Y+r)+0.5)/float64(s.Height))))
			t.total += float64(t.weights[r]) * float64(t.rect.Dx()*s.Eyes())
		}
		if s.Eyes() == 2 {
			t.picture = newPicture(t.rect.Dx(), 2*t.rect.Dy())
		}
		t.versions = make([]version, s.Qualities)
		for q := range t.versions {
			x := &t.versions[q]
			x.qp, x.perFrame = e.cfg.Quantisers[q], float64(e.bitrate(i, q))/8/fps
			if x.enc, err = encoder(t.rect.Dx(), t.rect.Dy(), x.qp, e.cfg.Preset); err != nil {
				return err
			}
		}
	}
	return nil
}

// newPicture returns a black picture.
func newPicture(width, height int) x264.Picture {
	n, c := width*height, width/2*(height/2)
	b := make([]byte, n+2*c)
	return x264.Picture{Y: b[:n], Cb: b[n : n+c], Cr: b[n+c:], YStride: width, CStride: width / 2}
}

// Close frees the encoders.
func (e *Encoder) Close() {
	for i := range e.tiles {
		for q := range e.tiles[i].versions {
			if x := e.tiles[i].versions[q].enc; x != nil {
				x.Close()
			}
		}
	}
	if e.video.enc != nil {
		e.video.enc.Close()
	}
}

// Config returns the avcC of a tile at a quality, or of [Video].
func (e *Encoder) Config(tile, quality int) []byte {
	if tile == Video {
		return e.video.enc.Config()
	}
	return e.tiles[tile].versions[quality].enc.Config()
}

// Bitrate returns the bound of a tile at a quality, or of [Video], in bits per second.
func (e *Encoder) Bitrate(tile, quality int) int64 {
	if tile == Video {
		fps := float64(e.cfg.FPSNum) / float64(e.cfg.FPSDen)
		return int64(fps * float64(e.video.width*e.video.height*e.cfg.Sphere.Eyes()))
	}
	return e.bitrate(tile, quality)
}

// crowd is the factor by which a tile may exceed its share of the sphere's bit rate, because motion
// is rarely spread evenly.
const crowd = 4

// bitrate returns a tile's bound. Six quantiser steps halve the rate.
func (e *Encoder) bitrate(i, q int) int64 {
	s := &e.cfg.Sphere
	r := s.Rect(i)
	share := math.Min(1, crowd*float64(r.Dx()*r.Dy())/float64(s.Width*s.Height))
	best := e.cfg.Quantisers[len(e.cfg.Quantisers)-1]
	return int64(float64(e.cfg.MaxBitrate) * share * math.Exp2(float64(best-e.cfg.Quantisers[q])/6))
}

// Encode encodes a frame. idr starts a GoP, as the first frame must. skip[q] leaves out quality q;
// it may change only at the start of a GoP. emit is called for every encoded frame, from several
// goroutines, in order of quality within a tile. payload is valid until emit returns.
func (e *Encoder) Encode(f *Frame, idr bool, skip []bool, emit func(tile, quality int, payload []byte) error) error {
	if idr {
		e.frames = 0
	}
	err := e.each(len(e.tiles)+1, func(i int) error {
		if i == 0 {
			return e.encodeVideo(f, idr, emit)
		}
		return e.encodeTile(i-1, f, idr, skip, emit)
	})
	if err == nil && e.frames%e.cfg.RatesEvery == 0 {
		err = e.each(len(e.tiles), func(i int) error {
			e.measureMissing(&e.tiles[i], f)
			return nil
		})
	}
	e.frames++
	return err
}

// each calls do for 0 to n−1 on the workers and returns the first error.
func (e *Encoder) each(n int, do func(i int) error) error {
	var next atomic.Int64
	var once sync.Once
	var failed error
	var all sync.WaitGroup
	for range min(n, e.workers) {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				if err := do(i); err != nil {
					once.Do(func() { failed = err })
					return
				}
			}
		})
	}
	all.Wait()
	return failed
}

func (e *Encoder) encodeVideo(f *Frame, idr bool, emit func(int, int, []byte) error) error {
	s, v := &e.cfg.Sphere, &e.video
	for eye := range s.Eyes() {
		p := &f.Eyes[eye]
		at, half := eye*v.width*v.height, eye*(v.width/2)*(v.height/2)
		v.shrink(v.picture.Y[at:], v.width, v.width, v.height, p.Y, p.YStride, s.Width, s.Height)
		v.shrink(v.picture.Cb[half:], v.width/2, v.width/2, v.height/2, p.Cb, p.CStride, s.Width/2, s.Height/2)
		v.shrink(v.picture.Cr[half:], v.width/2, v.width/2, v.height/2, p.Cr, p.CStride, s.Width/2, s.Height/2)
	}
	var err error
	if v.payload, err = v.enc.Encode(v.payload[:0], v.picture, idr, 0); err != nil {
		return err
	}
	if e.frames%e.cfg.RatesEvery == 0 {
		v.enc.Luma(v.luma)
	}
	return emit(Video, 0, v.payload)
}

func (v *video) shrink(dst []byte, dstStride, dstWidth, dstHeight int, src []byte, srcStride, srcWidth, srcHeight int) {
	C.tiles_shrink((*C.uint8_t)(&dst[0]), C.int(dstStride), C.int(dstWidth), C.int(dstHeight),
		(*C.uint8_t)(&src[0]), C.int(srcStride), C.int(srcWidth), C.int(srcHeight), (*C.uint16_t)(&v.columns[0]))
}

func (e *Encoder) encodeTile(i int, f *Frame, idr bool, skip []bool, emit func(int, int, []byte) error) error {
	t := &e.tiles[i]
	if idr {
		t.missing, t.sampled = 0, 0
	}
	p := e.cut(t, f)
	for q := range t.versions {
		v := &t.versions[q]
		if idr {
			v.encoded, v.bytes, v.distortion, v.sampled = len(skip) <= q || !skip[q], 0, 0, 0
			v.raised /= 2
		}
		if !v.encoded {
			continue
		}
		var err error
		qp := 0
		if v.raised > 0 {
			qp = v.qp + v.raised
		}
		if v.payload, err = v.enc.Encode(v.payload[:0], p, idr, qp); err != nil {
			return err
		}
		v.bytes += int64(len(v.payload))
		v.limit(e.frames, e.cfg.GOP)
		if e.frames%e.cfg.DistortEvery == 0 {
			for eye := range e.cfg.Sphere.Eyes() {
				v.distortion += v.enc.LumaError(p, eye*t.rect.Dy(), t.weights)
			}
			v.sampled++
		}
		if err := emit(i, q, v.payload); err != nil {
			return err
		}
	}
	return nil
}

// limit raises a tile's quantiser while the tile exceeds its bit rate, and lowers it again below
// 80% of the rate. The allowance includes a third of the GoP's bytes for the IDR frame.
func (v *version) limit(frame, gop int) {
	allowed := v.perFrame * (float64(frame+1) + float64(gop)/3)
	switch {
	case float64(v.bytes) > allowed:
		v.raised = min(v.raised+2, x264.MaxQP-v.qp)
	case v.raised > 0 && float64(v.bytes) < 0.8*allowed:
		v.raised--
	}
}

// cut returns a tile's picture: a part of the frame, or a copy for both eyes.
func (e *Encoder) cut(t *tile, f *Frame) x264.Picture {
	r := t.rect
	part := func(p *x264.Picture) x264.Picture {
		c := r.Min.Y/2*p.CStride + r.Min.X/2
		return x264.Picture{
			Y:       p.Y[r.Min.Y*p.YStride+r.Min.X:],
			Cb:      p.Cb[c:],
			Cr:      p.Cr[c:],
			YStride: p.YStride,
			CStride: p.CStride,
		}
	}
	if e.cfg.Sphere.Eyes() == 1 {
		return part(&f.Eyes[0])
	}
	for eye := range 2 {
		p := part(&f.Eyes[eye])
		y, c := eye*r.Dy()*r.Dx(), eye*(r.Dy()/2)*(r.Dx()/2)
		copyPlane(t.picture.Y[y:], r.Dx(), p.Y, p.YStride, r.Dx(), r.Dy())
		copyPlane(t.picture.Cb[c:], r.Dx()/2, p.Cb, p.CStride, r.Dx()/2, r.Dy()/2)
		copyPlane(t.picture.Cr[c:], r.Dx()/2, p.Cr, p.CStride, r.Dx()/2, r.Dy()/2)
	}
	return t.picture
}

func copyPlane(dst []byte, dstStride int, src []byte, srcStride, width, height int) {
	for y := range height {
		copy(dst[y*dstStride:y*dstStride+width], src[y*srcStride:])
	}
}

// measureMissing measures the distortion of the low-resolution sphere in place of a tile.
func (e *Encoder) measureMissing(t *tile, f *Frame) {
	s, v := &e.cfg.Sphere, &e.video
	for eye := range s.Eyes() {
		p := &f.Eyes[eye]
		t.missing += float64(C.tiles_enlarged_error((*C.uint8_t)(&p.Y[0]), C.int(p.YStride), C.int(t.rect.Min.X),
			C.int(t.rect.Min.Y), C.int(t.rect.Dx()), C.int(t.rect.Dy()), C.int(s.Width), C.int(s.Height),
			(*C.uint8_t)(&v.luma[eye*v.width*v.height]), C.int(v.width), C.int(v.height), (*C.float)(&t.weights[0])))
	}
	t.sampled++
}

// Rates returns the bytes and the mean distortion of the current GoP so far.
func (e *Encoder) Rates() catalog.RatesData {
	n := len(e.tiles)
	d := catalog.RatesData{Bytes: make([][]*int64, n), MSE: make([][]*float64, n), Missing: make([]float64, n)}
	for i := range e.tiles {
		t := &e.tiles[i]
		d.Bytes[i], d.MSE[i] = make([]*int64, len(t.versions)), make([]*float64, len(t.versions))
		for q := range t.versions {
			if v := &t.versions[q]; v.encoded && v.sampled > 0 {
				bytes, mse := v.bytes, hundredths(v.distortion/t.total/float64(v.sampled))
				d.Bytes[i][q], d.MSE[i][q] = &bytes, &mse
			}
		}
		if t.sampled > 0 {
			d.Missing[i] = hundredths(t.missing / t.total / float64(t.sampled))
		}
	}
	return d
}

func hundredths(v float64) float64 { return math.Round(100*v) / 100 }
