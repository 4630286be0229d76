// Package x264 encodes H.264 with libx264 (https://www.videolan.org/developers/x264.html) without
// delay: each picture yields a frame. It suits many small, single-threaded encoders running
// concurrently, and exposes the decoded frame so that measuring distortion needs no decoder.
package x264

// #cgo CFLAGS: -O3
// #cgo pkg-config: x264
// #cgo LDFLAGS: -lm
// #include <stdlib.h>
// #include "binding.h"
import "C"

import (
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"holocast/internal/loc"
)

// MaxSize bounds a picture's width and height in pixels.
const MaxSize = 16384

// MaxQP is the largest quantiser.
const MaxQP = 51

// Presets lists libx264's presets, the fastest first.
var Presets = []string{"ultrafast", "superfast", "veryfast", "faster", "fast", "medium", "slow", "slower", "veryslow"}

// Config configures an Encoder.
type Config struct {
	Width, Height  int // pixels, even
	FPSNum, FPSDen int // frames per second
	QP             int // quantiser, 1 to 51; IDR frames use 3 less
	Preset         string
	Color          Color
	// ByteStream makes frames access units in the byte stream format (Annex B), IDR frames with
	// their parameter sets, instead of NAL units with lengths.
	ByteStream bool
	// Refine adds to preset ultrafast quarter-pixel motion, 4×4 intra blocks and deblocking, which
	// lowers error and bit rate for a fifth more time.
	Refine bool
	// Offsets makes Encode take quantiser offsets. Every frame then needs its quantiser.
	Offsets bool
}

// Color describes the samples with the names of WebCodecs and FFmpeg. An empty name is not
// signaled.
type Color struct {
	Primaries, Transfer, Matrix string
	FullRange                   bool
}

// codes are the code points of ITU-T H.273.
var codes = map[string]C.int{"": 2, "bt709": 1, "bt470bg": 5, "smpte170m": 6, "iec61966-2-1": 13}

// Picture is a picture in 4:2:0: chroma planes have half the width and height.
type Picture struct {
	Y, Cb, Cr        []byte
	YStride, CStride int // bytes per row
	// Offsets are added to the quantiser, one per macroblock of 16×16 pixels in raster order. They
	// need Config.Offsets; nil means none.
	Offsets []float32
}

// Encoder encodes a sequence. It is not safe for concurrent use; Close frees it.
type Encoder struct {
	e      *C.struct_encoder
	cfg    Config
	avcC   []byte
	frames int64
}

var errClosed = errors.New("x264: use after Close")

// New starts an encoder.
func New(cfg Config) (*Encoder, error) {
	switch {
	case cfg.Width < 2 || cfg.Height < 2 || cfg.Width > MaxSize || cfg.Height > MaxSize || cfg.Width%2 != 0 ||
		cfg.Height%2 != 0:
		return nil, fmt.Errorf("x264: pictures of %d×%d, want even sizes from 2 to %d", cfg.Width, cfg.Height, MaxSize)
	case cfg.QP < 1 || cfg.QP > MaxQP:
		return nil, fmt.Errorf("x264: quantiser %d, want 1 to %d", cfg.QP, MaxQP)
	case cfg.FPSNum < 1 || cfg.FPSDen < 1:
		return nil, fmt.Errorf("x264: invalid rate of %d/%d frames per second", cfg.FPSNum, cfg.FPSDen)
	case !slices.Contains(Presets, cfg.Preset):
		return nil, fmt.Errorf("x264: preset %q, want one of %q", cfg.Preset, Presets)
	}
	for _, name := range []string{cfg.Color.Primaries, cfg.Color.Transfer, cfg.Color.Matrix} {
		if _, ok := codes[name]; !ok {
			return nil, fmt.Errorf("x264: unknown colour primaries, transfer or matrix %q", name)
		}
	}
	preset := C.CString(cfg.Preset)
	defer C.free(unsafe.Pointer(preset))
	e := &Encoder{cfg: cfg, e: (*C.struct_encoder)(C.calloc(1, C.sizeof_struct_encoder))}
	if C.encoder_open(e.e, preset, C.int(cfg.Width), C.int(cfg.Height), C.uint32_t(cfg.FPSNum), C.uint32_t(cfg.FPSDen),
		C.int(cfg.QP), codes[cfg.Color.Primaries], codes[cfg.Color.Transfer], codes[cfg.Color.Matrix],
		boolInt(cfg.Color.FullRange), boolInt(cfg.ByteStream), boolInt(cfg.Refine),
		boolInt(cfg.Offsets)) < 0 {
		e.Close()
		return nil, fmt.Errorf("x264: libx264 cannot encode %d×%d at preset %s", cfg.Width, cfg.Height, cfg.Preset)
	}
	if cfg.ByteStream {
		return e, nil
	}
	var nals *C.x264_nal_t
	var count C.int
	if C.encoder_headers(e.e, &nals, &count) < 0 {
		e.Close()
		return nil, errors.New("x264: no parameter sets")
	}
	var sps, pps []byte
	for _, n := range unsafe.Slice(nals, int(count)) {
		nal := C.GoBytes(unsafe.Pointer(n.p_payload), n.i_payload)[4:] // without its length
		switch n.i_type {
		case C.NAL_SPS:
			sps = nal
		case C.NAL_PPS:
			pps = nal
		}
	}
	var err error
	if e.avcC, err = loc.AVCConfig(sps, pps); err != nil {
		e.Close()
		return nil, err
	}
	return e, nil
}

// Config returns the avcC, which a decoder needs before the first frame, or nil with ByteStream.
func (e *Encoder) Config() []byte { return e.avcC }

// Encode appends the next frame to dst, as NAL units with four-byte lengths or as a byte stream. The
// first frame must be IDR; other frames depend only on frames since the last IDR frame. qp is the
// frame's quantiser, at least the encoder's; 0 means the encoder's own, which is lower for IDR
// frames.
func (e *Encoder) Encode(dst []byte, p Picture, idr bool, qp int) ([]byte, error) {
	if e.e == nil {
		return dst, errClosed
	}
	if err := p.check(e.cfg.Width, e.cfg.Height); err != nil {
		return dst, err
	}
	if n := (e.cfg.Width + 15) / 16 * ((e.cfg.Height + 15) / 16); len(p.Offsets) > 0 && len(p.Offsets) != n {
		return dst, fmt.Errorf("x264: %d quantiser offsets, want %d", len(p.Offsets), n)
	}
	if e.cfg.Offsets && qp < 1 {
		return dst, errors.New("x264: offsets need a quantiser")
	}
	var data *C.uint8_t
	var offsets *C.float
	if len(p.Offsets) > 0 {
		offsets = (*C.float)(&p.Offsets[0])
	}
	n := C.encoder_encode(e.e, (*C.uint8_t)(&p.Y[0]), C.int(p.YStride), (*C.uint8_t)(&p.Cb[0]), (*C.uint8_t)(&p.Cr[0]),
		C.int(p.CStride), offsets, C.int64_t(e.frames), boolInt(idr || e.frames == 0), C.int(min(max(qp, 0), MaxQP)), &data)
	if n < 0 {
		return dst, errors.New("x264: libx264 returned no frame")
	}
	e.frames++
	return append(dst, unsafe.Slice((*byte)(data), int(n))...), nil
}

func (p *Picture) check(width, height int) error {
	plane := func(b []byte, stride, w, h int) bool { return stride >= w && len(b) >= stride*(h-1)+w }
	if !plane(p.Y, p.YStride, width, height) || !plane(p.Cb, p.CStride, width/2, height/2) ||
		!plane(p.Cr, p.CStride, width/2, height/2) {
		return fmt.Errorf("x264: planes too small for %d×%d", width, height)
	}
	return nil
}

// LumaError returns Σ weight·(a−b)² between the newest decoded frame and its source picture p, over
// len(weights) rows starting at first.
func (e *Encoder) LumaError(p Picture, first int, weights []float32) float64 {
	if e.e == nil || e.e.luma == nil || len(weights) == 0 || first < 0 || first+len(weights) > e.cfg.Height ||
		p.check(e.cfg.Width, e.cfg.Height) != nil {
		return 0
	}
	return float64(C.luma_error(e.e, (*C.uint8_t)(&p.Y[0]), C.int(p.YStride), C.int(e.cfg.Width),
		(*C.float)(&weights[0]), C.int(len(weights)), C.int(first)))
}

// Luma copies the luma of the newest decoded frame to dst, width × height bytes.
func (e *Encoder) Luma(dst []byte) {
	if e.e == nil || e.e.luma == nil || len(dst) < e.cfg.Width*e.cfg.Height {
		return
	}
	C.luma_copy(e.e, (*C.uint8_t)(&dst[0]), C.int(e.cfg.Width), C.int(e.cfg.Height))
}

// Close frees the encoder.
func (e *Encoder) Close() {
	if e.e == nil {
		return
	}
	C.encoder_close(e.e)
	C.free(unsafe.Pointer(e.e))
	e.e = nil
}

func boolInt(b bool) C.int {
	if b {
		return 1
	}
	return 0
}
