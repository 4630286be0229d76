// Package pointvideo implements layout W of docs/spec/video-frame.md: the grids of a depth camera as
// two H.264 streams, one for depth and one for color, and a lossless map of each pixel's validity and
// coarse depth. Frames of a group depend on each other.
//
// Encoding averages over time what stays within the sensor's noise, which removes most of the bits
// and lowers the error.
package pointvideo

/*
#cgo pkg-config: libzstd
#cgo CFLAGS: -O3 -std=gnu11 -Wall
#cgo LDFLAGS: -lm
#include "kernels.h"
*/
import "C"

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"holocast/internal/openh264"
	"holocast/internal/pointcloud"
)

// headerLen is the number of bytes before the map.
const headerLen = pointcloud.HeaderLen + 16

// MaxPixels bounds a grid's pixels, in macroblocks of 16×16: H.264 decoders support level 5.2.
const maxMacroblocks = openh264.MaxMacroblocks

var errMemory = errors.New("point-cloud video: out of memory")

// object is a parsed object.
type object struct {
	header       pointcloud.Header
	noise        noise
	index        int
	planes       []byte // compressed map
	depth, color []byte // pictures
}

func formatError(field string, offset int, format string, args ...any) error {
	return &pointcloud.FormatError{Field: field, Offset: offset, Detail: fmt.Sprintf(format, args...)}
}

// Index returns an object's index in its group, 0 for a key frame. Errors have type
// *pointcloud.FormatError.
func Index(b []byte) (int, error) {
	o, err := parse(b)
	return o.index, err
}

// parse checks an object's header, parameters and lengths.
func parse(b []byte) (object, error) {
	h, err := pointcloud.ParseHeader(b)
	switch {
	case err != nil:
		return object{}, err
	case h.Layout != pointcloud.LayoutVideo:
		return object{}, formatError("layout", 5, "%s, want %s", h.Layout, pointcloud.LayoutVideo)
	case len(b) < headerLen:
		return object{}, formatError("length", len(b), "%d bytes, header and parameters have %d", len(b), headerLen)
	}
	le, p := binary.LittleEndian, b[pointcloud.HeaderLen:headerLen]
	o := object{
		header: h, noise: noise{le.Uint16(p), le.Uint16(p[2:]), p[4]}, index: int(le.Uint16(p[6:])),
	}
	switch {
	case o.noise.sigma0 == 0:
		return object{}, formatError("parameters", 44, "sigma0 is 0")
	case o.noise.step < 1 || o.noise.step > 128:
		return object{}, formatError("parameters", 48, "step is %d, want 1 to 128", o.noise.step)
	case p[5] != 0:
		return object{}, formatError("parameters", 49, "%#x, want 0", p[5])
	}
	planes, depth, rest := uint64(le.Uint32(p[8:])), uint64(le.Uint32(p[12:])), b[headerLen:]
	if planes+depth > uint64(len(rest)) {
		return object{}, formatError("length", len(b), "%d bytes, but map and depth have %d", len(rest), planes+depth)
	}
	o.planes, o.depth, o.color = rest[:planes], rest[planes:planes+depth], rest[planes+depth:]
	return o, nil
}

// append writes the header and parameters of an object; its parts follow.
func (o *object) append(dst []byte) []byte {
	le := binary.LittleEndian
	dst = o.header.Append(dst)
	dst = le.AppendUint16(dst, o.noise.sigma0)
	dst = le.AppendUint16(dst, o.noise.sigma2)
	dst = append(dst, o.noise.step, 0)
	dst = le.AppendUint16(dst, uint16(o.index))
	dst = le.AppendUint32(dst, uint32(len(o.planes)))
	return le.AppendUint32(dst, uint32(len(o.depth)))
}

// even rounds a side up to H.264's multiple of two.
func even(n int) int { return (n + 1) &^ 1 }

func octets(b []byte) *C.uint8_t   { return (*C.uint8_t)(unsafe.SliceData(b)) }
func words(w []uint16) *C.uint16_t { return (*C.uint16_t)(unsafe.SliceData(w)) }
func floats(f []float32) *C.float  { return (*C.float)(unsafe.SliceData(f)) }

// planesBound returns the largest length of the planes of n pixels, with room for their symbols.
func planesBound(n int) int { return 3*n + 1 }

// planes writes the planes of a map to dst's memory. previous is nil in a key frame.
func planes(dst, m, previous []byte, width, height int) []byte {
	dst = slices.Grow(dst[:0], planesBound(len(m)))[:planesBound(len(m))]
	return dst[:C.wv_map(octets(m), octets(previous), C.int(width), C.int(height), octets(dst))]
}

// unmap reverses planes into m and returns the points, or -1 if raw is invalid.
func unmap(raw, m, previous []byte, width, height int) int {
	return int(C.wv_unmap(octets(raw), C.size_t(len(raw)), octets(m), octets(previous), C.int(width), C.int(height)))
}
