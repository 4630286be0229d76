// Package openh264 decodes H.264 with Cisco's libopenh264 (https://www.openh264.org), loaded at run
// time: programs start without it and link no codec.
package openh264

// #cgo LDFLAGS: -ldl
// #include "binding.h"
import "C"

import (
	"errors"
	"fmt"
	"sync"
	"unsafe"
)

// names lists the library's versions with this interface, newest first. Debian's packages are
// libopenh264-8 and libopenh264-7.
var names = []string{"libopenh264.so.8", "libopenh264.so.7", "libopenh264.so.6", "libopenh264.so.5"}

// ErrNoLibrary is wrapped by the error of New if the library is missing.
var ErrNoLibrary = errors.New("no libopenh264 found; install the package libopenh264-7 or libopenh264-8 " +
	"(Fedora: openh264)")

var load = sync.OnceValue(func() error {
	var why *C.char
	for _, name := range names {
		if C.openh264_load(C.CString(name), &why) != nil { // once per process
			return nil
		}
	}
	return fmt.Errorf("%w: %s", ErrNoLibrary, C.GoString(why))
})

// MaxMacroblocks bounds a picture: the library decodes up to level 5.2.
const MaxMacroblocks = 36864

// Picture is a decoded picture in 4:2:0: chroma planes have half the width and height.
type Picture struct {
	Width, Height    int // pixels
	Y, Cb, Cr        []byte
	YStride, CStride int // bytes per row
}

// Decoder decodes one stream without delay. It is not safe for concurrent use; Close frees it.
type Decoder struct{ d *C.openh264_decoder }

// New starts a decoder. Its error wraps ErrNoLibrary if the library is missing.
func New() (*Decoder, error) {
	if err := load(); err != nil {
		return nil, err
	}
	d := C.openh264_new()
	if d == nil {
		return nil, errors.New("libopenh264 cannot start a decoder")
	}
	return &Decoder{d}, nil
}

// Close frees the decoder.
func (d *Decoder) Close() {
	C.openh264_free(d.d)
	d.d = nil
}

// Decode decodes one access unit in the byte stream format (Annex B), which must yield a picture.
// The picture's planes are valid until the next call.
func (d *Decoder) Decode(unit []byte) (Picture, error) {
	if d.d == nil {
		return Picture{}, errors.New("libopenh264: use after Close")
	}
	if len(unit) == 0 {
		return Picture{}, errors.New("libopenh264: no data")
	}
	var p C.struct_openh264_picture
	state := C.openh264_decode(d.d, (*C.uint8_t)(unsafe.SliceData(unit)), C.int(len(unit)), &p)
	switch {
	case state != 0:
		return Picture{}, fmt.Errorf("libopenh264: decoding error %#x", uint(state))
	case p.ready != 1:
		return Picture{}, errors.New("libopenh264: the access unit yields no picture")
	case p.width < 1 || p.height < 1 || p.stride[0] < p.width || p.stride[1] < p.width/2:
		return Picture{}, fmt.Errorf("libopenh264: picture of %d×%d has an invalid size or stride", p.width, p.height)
	}
	width, height := int(p.width), int(p.height)
	plane := func(i int, stride C.int, w, h int) []byte {
		return unsafe.Slice((*byte)(p.plane[i]), int(stride)*(h-1)+w)
	}
	return Picture{
		Width: width, Height: height,
		Y:       plane(0, p.stride[0], width, height),
		Cb:      plane(1, p.stride[1], width/2, height/2),
		Cr:      plane(2, p.stride[1], width/2, height/2),
		YStride: int(p.stride[0]), CStride: int(p.stride[1]),
	}, nil
}
