//go:build cgo

package pointcloud

/*
#cgo pkg-config: libzstd
#cgo CFLAGS: -O3 -std=gnu11 -Wall
#include "kernels.h"
*/
import "C"

import (
	"errors"
	"slices"
	"unsafe"
)

var errMemory = errors.New("point-cloud frame: out of memory")

type encoderEngine struct{ c *C.struct_hcpf_encoder }

func (e *encoderEngine) open(level int) error {
	if e.c = C.hcpf_encoder_new(C.int(level)); e.c == nil {
		return errMemory
	}
	return nil
}

func (e *encoderEngine) close() {
	C.hcpf_encoder_free(e.c)
	e.c = nil
}

// frameOf returns ph's share of f for the kernels.
func frameOf(f *Frame, ph phase) C.struct_hcpf_frame {
	g, p := &f.Grid, &f.Points
	return C.struct_hcpf_frame{
		layout: C.int(f.Layout),
		depth:  (*C.uint16_t)(unsafe.SliceData(g.Depth)), color: (*C.uint8_t)(unsafe.SliceData(g.Color)),
		width: C.int(g.Width), height: C.int(g.Height), dx: C.int(ph.dx), dy: C.int(ph.dy), step: C.int(ph.step),
		xyz: (*C.int16_t)(unsafe.SliceData(p.XYZ)), rgb: (*C.uint8_t)(unsafe.SliceData(p.RGB)),
		points: C.size_t(len(p.XYZ) / 3), index: C.size_t(ph.index), stride: C.size_t(ph.count),
	}
}

func (e *encoderEngine) encode(dst []byte, f *Frame, ph phase) (body, error) {
	return encoded(dst, C.hcpf_encode(e.c, frameOf(f, ph)))
}

func encoded(dst []byte, r C.struct_hcpf_result) (body, error) {
	switch {
	case r.error == C.HCPF_OK:
		compressed := unsafe.Slice((*byte)(r.data), int(r.length))
		start := len(dst)
		dst = slices.Grow(dst, HeaderLen+len(compressed))[:start+HeaderLen]
		clear(dst[start:])
		return body{append(dst, compressed...), int(r.points), int(r.raw_length)}, nil
	case r.zstd != nil:
		return body{}, errors.New("point-cloud frame: zstd: " + C.GoString(r.zstd))
	}
	return body{}, errMemory
}

type decoderEngine struct{ c *C.struct_hcpf_decoder }

func (d *decoderEngine) open() error {
	if d.c = C.hcpf_decoder_new(); d.c == nil {
		return errMemory
	}
	return nil
}

func (d *decoderEngine) close() {
	C.hcpf_decoder_free(d.c)
	d.c = nil
}

func (d *decoderEngine) decode(f *Frame, h *Header, src []byte) error {
	return decoded(h, C.hcpf_decode(d.c, frameOf(f, h.target()), C.uint32_t(h.Points), C.uint32_t(h.RawLength),
		(*C.uint8_t)(unsafe.SliceData(src)), C.size_t(len(src))))
}

func decoded(h *Header, r C.struct_hcpf_result) error {
	switch r.error {
	case C.HCPF_OK:
		return nil
	case C.HCPF_BAD_ZSTD:
		return zstdError(C.GoString(r.zstd))
	case C.HCPF_BAD_RAW_LENGTH:
		return rawLengthError(h)
	case C.HCPF_BAD_PLANES:
		return planesError(h)
	}
	return errMemory
}
