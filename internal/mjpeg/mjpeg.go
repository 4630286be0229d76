// Package mjpeg decodes and encodes JPEG images, such as those of cameras' MJPG streams, with
// libjpeg-turbo (TurboJPEG API 2.x, https://libjpeg-turbo.org). It is several times faster than
// image/jpeg and reuses buffers and library handles.
package mjpeg

// #cgo pkg-config: libturbojpeg
// #include "binding.h"
import "C"

import (
	"errors"
	"fmt"
	"image"
	"unsafe"
)

// MaxPixels is the maximum number of pixels in an image, a third more than an Azure Kinect's
// largest image has (4096×3072). Larger images are rejected before any allocation.
const MaxPixels = 1 << 24

// Slack is each plane's spare capacity in bytes, for vector loads at the last sample.
const Slack = 16

var (
	// ErrCorrupt is wrapped by errors for images that libjpeg-turbo cannot decode completely.
	ErrCorrupt = errors.New("corrupt JPEG image")
	// ErrIncomplete wraps ErrCorrupt for partly decoded images, which are correct up to the damage
	// and grey or distorted after it. It is also returned if only the end marker is missing or
	// stray bytes lie between segments; all pixels are then correct.
	ErrIncomplete = fmt.Errorf("%w", ErrCorrupt)
)

var errClosed = errors.New("mjpeg: use after Close")

// Header describes a JPEG image.
type Header struct {
	Width, Height int // pixels
	Ratio         image.YCbCrSubsampleRatio
	YCbCr         bool // three components in YCbCr, as from cameras; false for grey, RGB and CMYK
}

// subsamplings maps package image's chroma layouts to the library's.
func subsamplings(yield func(image.YCbCrSubsampleRatio, C.int) bool) {
	_ = yield(image.YCbCrSubsampleRatio422, C.TJSAMP_422) &&
		yield(image.YCbCrSubsampleRatio420, C.TJSAMP_420) &&
		yield(image.YCbCrSubsampleRatio444, C.TJSAMP_444) &&
		yield(image.YCbCrSubsampleRatio440, C.TJSAMP_440) &&
		yield(image.YCbCrSubsampleRatio411, C.TJSAMP_411)
}

func ratioOf(samp C.int) (image.YCbCrSubsampleRatio, bool) {
	for ratio, s := range subsamplings {
		if s == samp {
			return ratio, true
		}
	}
	return 0, false
}

func subsamplingOf(ratio image.YCbCrSubsampleRatio) (C.int, error) {
	for r, s := range subsamplings {
		if r == ratio {
			return s, nil
		}
	}
	return 0, fmt.Errorf("mjpeg: chroma subsampling %v cannot be written", ratio)
}

// Decoder decodes JPEG images. It is not safe for concurrent use; Close frees it.
type Decoder struct {
	handle C.tjhandle
	err    [C.ERROR_LEN]C.char
}

// NewDecoder returns a decoder. It fails if the library is out of memory.
func NewDecoder() (*Decoder, error) {
	h := C.tjInitDecompress()
	if h == nil {
		return nil, fmt.Errorf("mjpeg: start decoder: %s", C.GoString(C.tjGetErrorStr2(nil)))
	}
	return &Decoder{handle: h}, nil
}

// Close frees the library's handle. It may be called twice.
func (d *Decoder) Close() {
	if d.handle != nil {
		C.tjDestroy(d.handle)
		d.handle = nil
	}
}

// Header reads the header of a JPEG image without decoding it.
func (d *Decoder) Header(jpeg []byte) (Header, error) {
	if d.handle == nil {
		return Header{}, errClosed
	}
	if len(jpeg) == 0 {
		return Header{}, fmt.Errorf("mjpeg: %w: empty", ErrCorrupt)
	}
	var w, h, samp, space C.int
	if C.decode_header(d.handle, ptr(jpeg), C.ulong(len(jpeg)), &w, &h, &samp, &space, &d.err[0]) < 0 || w < 1 ||
		h < 1 {
		return Header{}, d.failure(ErrCorrupt, jpeg)
	}
	if int64(w)*int64(h) > MaxPixels {
		return Header{}, fmt.Errorf("mjpeg: image of %d×%d pixels exceeds the limit of %d pixels", w, h, MaxPixels)
	}
	ratio, ok := ratioOf(samp)
	return Header{
		Width: int(w), Height: int(h), Ratio: ratio,
		YCbCr: ok && space == C.TJCS_YCbCr,
	}, nil
}

// DecodeYCbCr decodes an image to its stored planes, without colour conversion. reduce is 1, 2, 4
// or 8; the image is decoded at 1/reduce of its size, rounded up, by averaging pixels. dst is
// overwritten, even on ErrIncomplete; its buffers are reused if large enough.
func (d *Decoder) DecodeYCbCr(dst *image.YCbCr, jpeg []byte, reduce int) error {
	if reduce != 1 && reduce != 2 && reduce != 4 && reduce != 8 {
		return fmt.Errorf("mjpeg: reduce is %d, want 1, 2, 4 or 8", reduce)
	}
	hdr, err := d.Header(jpeg)
	if err != nil {
		return err
	}
	if !hdr.YCbCr {
		return fmt.Errorf("mjpeg: image of %d×%d pixels is not YCbCr", hdr.Width, hdr.Height)
	}
	w := (hdr.Width + reduce - 1) / reduce
	h := (hdr.Height + reduce - 1) / reduce
	if err := resize(dst, w, h, hdr.Ratio); err != nil {
		return err
	}
	return d.result(C.decode_planes(d.handle, ptr(jpeg), C.ulong(len(jpeg)),
		ptr(dst.Y), ptr(dst.Cb), ptr(dst.Cr), C.int(dst.YStride), C.int(dst.CStride),
		C.int(w), C.int(h), C.TJFLAG_LIMITSCANS, &d.err[0]), jpeg)
}

// DecodeRGB decodes an image to R G B bytes, row-major, appended to dst[:0]. It also returns width
// and height in pixels. The image is valid with ErrIncomplete too.
func (d *Decoder) DecodeRGB(dst, jpeg []byte) (rgb []byte, width, height int, err error) {
	hdr, err := d.Header(jpeg)
	if err != nil {
		return nil, 0, 0, err
	}
	rgb = grow(dst, 3*hdr.Width*hdr.Height)
	err = d.result(C.decode_rgb(d.handle, ptr(jpeg), C.ulong(len(jpeg)), ptr(rgb),
		C.int(hdr.Width), C.int(hdr.Height), C.TJFLAG_LIMITSCANS, &d.err[0]), jpeg)
	if err != nil && !errors.Is(err, ErrIncomplete) {
		return nil, 0, 0, err
	}
	return rgb, hdr.Width, hdr.Height, err
}

// result returns the error of a decoding call. The calls limit the number of scans, because a
// hostile progressive image could otherwise take minutes.
func (d *Decoder) result(code C.int, jpeg []byte) error {
	switch code {
	case 0:
		return nil
	case C.INCOMPLETE:
		return d.failure(ErrIncomplete, jpeg)
	}
	return d.failure(ErrCorrupt, jpeg)
}

func (d *Decoder) failure(kind error, jpeg []byte) error {
	return fmt.Errorf("mjpeg: %w of %d bytes: %s", kind, len(jpeg), C.GoString(&d.err[0]))
}

// Encoder encodes JPEG images. It is not safe for concurrent use; Close frees it.
type Encoder struct {
	handle C.tjhandle
	err    [C.ERROR_LEN]C.char
}

// NewEncoder returns an encoder. It fails if the library is out of memory.
func NewEncoder() (*Encoder, error) {
	h := C.tjInitCompress()
	if h == nil {
		return nil, fmt.Errorf("mjpeg: start encoder: %s", C.GoString(C.tjGetErrorStr2(nil)))
	}
	return &Encoder{handle: h}, nil
}

// Close frees the library's handle. It may be called twice.
func (e *Encoder) Close() {
	if e.handle != nil {
		C.tjDestroy(e.handle)
		e.handle = nil
	}
}

// EncodeYCbCr encodes planes at quality 1 to 100. It appends the image to dst[:0].
func (e *Encoder) EncodeYCbCr(dst []byte, img *image.YCbCr, quality int) ([]byte, error) {
	samp, err := subsamplingOf(img.SubsampleRatio)
	if err != nil {
		return nil, err
	}
	w, h := img.Rect.Dx(), img.Rect.Dy()
	if err := e.check(w, h, quality); err != nil {
		return nil, err
	}
	cw, ch := chromaSize(w, h, samp)
	yw, yh := lumaSize(w, h, samp)
	if img.YStride < yw || img.CStride < cw ||
		len(img.Y) < img.YStride*(yh-1)+yw ||
		len(img.Cb) < img.CStride*(ch-1)+cw || len(img.Cr) < img.CStride*(ch-1)+cw {
		return nil,
			fmt.Errorf("mjpeg: planes of %d, %d and %d bytes are too short for %d×%d pixels %v padded to whole "+
				"chroma samples", len(img.Y), len(img.Cb), len(img.Cr), w, h, img.SubsampleRatio)
	}
	n := C.tjBufSize(C.int(w), C.int(h), samp)
	jpeg := grow(dst, int(n))
	if C.encode_planes(e.handle, ptr(img.Y), ptr(img.Cb), ptr(img.Cr),
		C.int(img.YStride), C.int(img.CStride), C.int(w), C.int(h), samp,
		ptr(jpeg), &n, C.int(quality), &e.err[0]) != 0 {
		return nil, fmt.Errorf("mjpeg: encode %d×%d pixels: %s", w, h, C.GoString(&e.err[0]))
	}
	return jpeg[:n], nil
}

// EncodeRGB encodes width×height R G B bytes, row-major, as 4:2:2 (like an Azure Kinect) at quality
// 1 to 100. It appends the image to dst[:0].
func (e *Encoder) EncodeRGB(dst, rgb []byte, width, height, quality int) ([]byte, error) {
	if err := e.check(width, height, quality); err != nil {
		return nil, err
	}
	if len(rgb) != 3*width*height {
		return nil, fmt.Errorf("mjpeg: %d bytes of RGB, want %d for %d×%d pixels", len(rgb), 3*width*height, width,
			height)
	}
	n := C.tjBufSize(C.int(width), C.int(height), C.TJSAMP_422)
	jpeg := grow(dst, int(n))
	if C.encode_rgb(e.handle, ptr(rgb), C.int(width), C.int(height), C.TJSAMP_422,
		ptr(jpeg), &n, C.int(quality), &e.err[0]) != 0 {
		return nil, fmt.Errorf("mjpeg: encode %d×%d pixels: %s", width, height, C.GoString(&e.err[0]))
	}
	return jpeg[:n], nil
}

func (e *Encoder) check(w, h, quality int) error {
	switch {
	case e.handle == nil:
		return errClosed
	case w <= 0 || h <= 0 || int64(w)*int64(h) > MaxPixels:
		return fmt.Errorf("mjpeg: cannot encode an image of %d×%d pixels", w, h)
	case quality < 1 || quality > 100:
		return fmt.Errorf("mjpeg: quality is %d, want 1 to 100", quality)
	}
	return nil
}

func lumaSize(w, h int, samp C.int) (int, int) {
	return int(C.tjPlaneWidth(0, C.int(w), samp)), int(C.tjPlaneHeight(0, C.int(h), samp))
}

func chromaSize(w, h int, samp C.int) (int, int) {
	return int(C.tjPlaneWidth(1, C.int(w), samp)), int(C.tjPlaneHeight(1, C.int(h), samp))
}

// resize sets img's size to w×h pixels, with planes padded to whole chroma samples.
func resize(img *image.YCbCr, w, h int, ratio image.YCbCrSubsampleRatio) error {
	if img.Rect == image.Rect(0, 0, w, h) && img.SubsampleRatio == ratio && img.YStride > 0 {
		return nil
	}
	samp, err := subsamplingOf(ratio)
	if err != nil {
		return err
	}
	yw, yh := lumaSize(w, h, samp)
	cw, ch := chromaSize(w, h, samp)
	img.Y = grow(img.Y, yw*yh+Slack)[:yw*yh]
	img.Cb = grow(img.Cb, cw*ch+Slack)[:cw*ch]
	img.Cr = grow(img.Cr, cw*ch+Slack)[:cw*ch]
	img.YStride, img.CStride = yw, cw
	img.SubsampleRatio = ratio
	img.Rect = image.Rect(0, 0, w, h)
	return nil
}

// grow returns b with length n, reallocated if its capacity is too small.
func grow(b []byte, n int) []byte {
	if cap(b) < n {
		return make([]byte, n)
	}
	return b[:n]
}

func ptr(b []byte) *C.uchar {
	return (*C.uchar)(unsafe.SliceData(b))
}
