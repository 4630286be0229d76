package pointvideo

// #include "kernels.h"
import "C"

import (
	"slices"

	"holocast/internal/openh264"
	"holocast/internal/pointcloud"
)

// Decoder decodes one camera's objects in order. It is not safe for concurrent use; Close frees it.
type Decoder struct {
	// MaxPoints bounds the decoder's allocation, in pixels. 0 means the format's limit.
	MaxPoints int

	zstd            *C.struct_wv_zstd
	depth, color    *openh264.Decoder // nil before the first key frame and after damage
	key             object            // of the group, if next is not 0
	next            int               // index of the group's next object; 0 without a group
	valid, previous []byte            // maps
	raw             []byte
	noise           noise // of depthOf
	depthOf         []uint16
}

// NewDecoder creates a decoder, which the caller must close. It returns openh264.ErrNoLibrary if
// libopenh264 is missing.
func NewDecoder() (*Decoder, error) {
	d := &Decoder{zstd: C.wv_zstd_new()}
	if d.zstd == nil {
		return nil, errMemory
	}
	if err := d.open(); err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

// Close frees the decoder's memory.
func (d *Decoder) Close() {
	C.wv_zstd_free(d.zstd)
	d.zstd = nil
	d.closePictures()
}

func (d *Decoder) open() (err error) {
	if d.depth, err = openh264.New(); err != nil {
		return err
	}
	d.color, err = openh264.New()
	return err
}

func (d *Decoder) closePictures() {
	for _, x := range []*openh264.Decoder{d.depth, d.color} {
		if x != nil {
			x.Close()
		}
	}
	d.depth, d.color = nil, nil
}

// Decode decodes the next object into g, resized as needed, and returns its header. After an error g
// is undefined, and all objects before the next key frame fail. Errors in objects have type
// *pointcloud.FormatError.
func (d *Decoder) Decode(g *pointcloud.Grid, b []byte) (pointcloud.Header, error) {
	o, err := d.start(b)
	if err != nil {
		d.next = 0
		return pointcloud.Header{}, err
	}
	d.next = 0 // until the object is decoded
	if err := d.decodeMap(&o); err != nil {
		return pointcloud.Header{}, err
	}
	if err := d.decodePictures(&o, g); err != nil {
		d.closePictures()
		return pointcloud.Header{}, err
	}
	d.next = o.index + 1
	return o.header, nil
}

// start parses an object and checks that it continues the group or starts one.
func (d *Decoder) start(b []byte) (object, error) {
	o, err := parse(b)
	if err != nil {
		return object{}, err
	}
	h, k := &o.header, &d.key.header
	pixels := int(h.Width) * int(h.Height)
	switch limit := d.MaxPoints; {
	case limit > 0 && pixels > limit:
		return object{}, formatError("width", 32, "%d×%d pixels exceed this decoder's limit of %d", h.Width, h.Height, limit)
	case o.index == 0:
		d.key = object{header: o.header, noise: o.noise}
	case d.next == 0:
		return object{}, formatError("index", 50, "%d without a key frame", o.index)
	case o.noise != d.key.noise || h.Camera != k.Camera || h.Width != k.Width || h.Height != k.Height:
		return object{}, formatError("parameters", 44, "they change within the group")
	case o.index != d.next:
		return object{}, formatError("index", 50, "%d, want %d", o.index, d.next)
	}
	return o, nil
}

func (d *Decoder) decodeMap(o *object) error {
	width, height := int(o.header.Width), int(o.header.Height)
	d.raw = slices.Grow(d.raw[:0], int(o.header.RawLength))[:o.header.RawLength]
	if why := C.wv_decompress(d.zstd, octets(o.planes), C.size_t(len(o.planes)), octets(d.raw),
		C.size_t(len(d.raw))); why != nil {
		return formatError("zstd", headerLen, "%s", C.GoString(why))
	}
	d.valid, d.previous = d.previous, d.valid
	d.valid = slices.Grow(d.valid[:0], width*height)[:width*height]
	previous := d.previous
	if o.index == 0 {
		previous = nil
	}
	points := unmap(d.raw, d.valid, previous, width, height)
	switch {
	case points < 0:
		return formatError("planes", headerLen, "they do not hold a map of %d×%d pixels", width, height)
	case uint32(points) != o.header.Points:
		return formatError("planes", headerLen, "%d points, want %d", points, o.header.Points)
	}
	return nil
}

func (d *Decoder) decodePictures(o *object, g *pointcloud.Grid) error {
	if d.depth == nil || d.color == nil {
		d.closePictures()
		if err := d.open(); err != nil {
			return err
		}
	}
	at := headerLen + len(o.planes)
	depth, err := decodePicture(d.depth, o, o.depth, at)
	if err != nil {
		return err
	}
	color, err := decodePicture(d.color, o, o.color, at+len(o.depth))
	if err != nil {
		return err
	}
	if o.noise != d.noise {
		d.noise, d.depthOf = o.noise, o.noise.depths()
	}
	g.Resize(int(o.header.Width), int(o.header.Height))
	planes := C.struct_wv_planes{
		y: octets(color.Y), cb: octets(color.Cb), cr: octets(color.Cr),
		stride: C.int(color.YStride), chroma_stride: C.int(color.CStride),
	}
	C.wv_restore(octets(d.valid), C.int(g.Width), C.int(g.Height), octets(depth.Y), C.int(depth.YStride), planes,
		words(d.depthOf), words(g.Depth), octets(g.Color))
	return nil
}

// decodePicture decodes the access unit at the given offset of the object.
func decodePicture(d *openh264.Decoder, o *object, unit []byte, at int) (openh264.Picture, error) {
	if o.index == 0 && !startsIDR(unit) {
		return openh264.Picture{}, formatError("picture", at, "a key frame without an IDR picture")
	}
	p, err := d.Decode(unit)
	if err != nil {
		return p, formatError("picture", at, "%s", err)
	}
	if w, h := even(int(o.header.Width)), even(int(o.header.Height)); p.Width != w || p.Height != h {
		return p, formatError("picture", at, "%d×%d pixels, want %d×%d", p.Width, p.Height, w, h)
	}
	return p, nil
}

// NAL unit types of H.264, table 7-1.
const (
	nalSlice, nalIDR = 1, 5
)

// startsIDR reports whether the first slice of an access unit is of an IDR picture.
func startsIDR(unit []byte) bool {
	for i := 0; i+3 < len(unit); i++ {
		if unit[i] != 0 || unit[i+1] != 0 || unit[i+2] != 1 {
			continue
		}
		if t := unit[i+3] & 0x1f; t >= nalSlice && t <= nalIDR {
			return t == nalIDR
		}
	}
	return false
}
