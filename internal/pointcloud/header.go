package pointcloud

import (
	"encoding/binary"
	"fmt"
)

// Codec is the compression of a frame's planes.
type Codec uint8

// Codecs of the layouts.
const (
	CodecZstd  Codec = 1 // one zstd frame (RFC 8878)
	CodecVideo Codec = 2 // of LayoutVideo: zstd and H.264
)

// Limits of the format.
const (
	HeaderLen = 44          // bytes before the compressed planes
	MaxSide   = 4096        // pixels, width and height of a grid
	MaxPoints = 4096 * 4096 // points of one object
)

const (
	magic   = "HCPF"
	version = 1
)

// Header is the fixed part of an object. Encoders fill in Layout, Codec, Flags, Description,
// Descriptions (0 becomes 1), Width, Height, Points and RawLength.
type Header struct {
	Layout       Layout
	Codec        Codec
	Flags        uint8 // reserved, 0
	Sequence     uint32
	DeviceTime   uint64 // device clock, µs
	CaptureTime  uint64 // relay clock, UNIX µs, middle of the exposure
	Camera       uint16
	Description  uint8 // index of this description
	Descriptions uint8 // 1 or 4
	Width        uint16
	Height       uint16 // pixels of the entire grid; 0×0 in layouts without one
	Points       uint32 // points in this object
	RawLength    uint32 // bytes of the planes before compression
}

// FormatError reports an invalid object. Field is the error's name in the specification.
type FormatError struct {
	Field  string
	Offset int // bytes from the start of the object
	Detail string
}

func (e *FormatError) Error() string {
	return fmt.Sprintf("point-cloud frame: %s at byte %d: %s", e.Field, e.Offset, e.Detail)
}

func formatError(field string, offset int, format string, args ...any) error {
	return &FormatError{Field: field, Offset: offset, Detail: fmt.Sprintf(format, args...)}
}

// ParseHeader parses and checks the header of an object. A returned header is within the format's
// limits; the planes are not checked. Errors have type *FormatError.
func ParseHeader(b []byte) (Header, error) {
	if len(b) < HeaderLen {
		return Header{}, formatError("length", len(b), "%d bytes, the header has %d", len(b), HeaderLen)
	}
	le := binary.LittleEndian
	h := Header{
		Layout:       Layout(b[5]),
		Codec:        Codec(b[6]),
		Flags:        b[7],
		Sequence:     le.Uint32(b[8:]),
		DeviceTime:   le.Uint64(b[12:]),
		CaptureTime:  le.Uint64(b[20:]),
		Camera:       le.Uint16(b[28:]),
		Description:  b[30],
		Descriptions: b[31],
		Width:        le.Uint16(b[32:]),
		Height:       le.Uint16(b[34:]),
		Points:       le.Uint32(b[36:]),
		RawLength:    le.Uint32(b[40:]),
	}
	if string(b[:4]) != magic {
		return Header{}, formatError("magic", 0, "%q, want %q", b[:4], magic)
	}
	if b[4] != version {
		return Header{}, formatError("version", 4, "%d, want %d", b[4], version)
	}
	if err := h.check(); err != nil {
		return Header{}, err
	}
	return h, nil
}

// Restamp replaces an object's sequence number and capture time (UNIX µs) in place. Errors have
// type *FormatError and leave the object unchanged.
func Restamp(object []byte, sequence uint32, captureTime uint64) error {
	if _, err := ParseHeader(object); err != nil {
		return err
	}
	binary.LittleEndian.PutUint32(object[8:], sequence)
	binary.LittleEndian.PutUint64(object[20:], captureTime)
	return nil
}

func (h *Header) check() error {
	switch {
	case !h.Layout.known():
		return formatError("layout", 5, "%d is unknown", h.Layout)
	case h.Codec != h.Layout.codec():
		return formatError("codec", 6, "%d in layout %s, want %d", h.Codec, h.Layout, h.Layout.codec())
	case h.Flags != 0:
		return formatError("flags", 7, "%#x, want 0", h.Flags)
	case h.Descriptions != 1 && h.Descriptions != 4:
		return formatError("descriptions", 31, "%d, want 1 or 4", h.Descriptions)
	case h.Descriptions != 1 && h.Layout == LayoutVideo:
		return formatError("descriptions", 31, "%d in layout %s, want 1", h.Descriptions, h.Layout)
	case h.Description >= h.Descriptions:
		return formatError("description", 30, "index %d, but there are %d descriptions", h.Description, h.Descriptions)
	}
	most := uint32(MaxPoints)
	if h.Layout.OnGrid() {
		if h.Width == 0 || h.Width > MaxSide {
			return formatError("width", 32, "%d, want 1 to %d", h.Width, MaxSide)
		}
		if h.Height == 0 || h.Height > MaxSide {
			return formatError("height", 34, "%d, want 1 to %d", h.Height, MaxSide)
		}
		width, height := h.subgrid()
		most = uint32(width * height)
	} else if h.Width != 0 || h.Height != 0 {
		return formatError("width", 32, "%d×%d in layout %s, want 0×0", h.Width, h.Height, h.Layout)
	}
	if h.Points > most {
		return formatError("points", 36, "%d, want at most %d", h.Points, most)
	}
	if least, most := layouts[h.Layout].rawBounds(*h); uint64(h.RawLength) < least || uint64(h.RawLength) > most {
		return formatError("raw length", 40, "%d, want %d to %d", h.RawLength, least, most)
	}
	return nil
}

// subgrid returns the size of the description's share of the grid.
func (h *Header) subgrid() (width, height int) {
	p := phaseOf(h.Description, h.Descriptions)
	return p.size(int(h.Width), int(h.Height))
}

// Append appends the header to dst.
func (h *Header) Append(dst []byte) []byte {
	le := binary.LittleEndian
	dst = append(dst, magic...)
	dst = append(dst, version, byte(h.Layout), byte(h.Codec), h.Flags)
	dst = le.AppendUint32(dst, h.Sequence)
	dst = le.AppendUint64(dst, h.DeviceTime)
	dst = le.AppendUint64(dst, h.CaptureTime)
	dst = le.AppendUint16(dst, h.Camera)
	dst = append(dst, h.Description, h.Descriptions)
	dst = le.AppendUint16(dst, h.Width)
	dst = le.AppendUint16(dst, h.Height)
	dst = le.AppendUint32(dst, h.Points)
	return le.AppendUint32(dst, h.RawLength)
}

// phase is a description's share of a frame: in layout A the pixels (x, y) with x ≡ dx and y ≡ dy
// (mod step), in B and C every count-th point from index on.
type phase struct {
	dx, dy, step int
	index, count int
}

func phaseOf(description, descriptions uint8) phase {
	if descriptions == 4 {
		i := int(description)
		return phase{dx: i & 1, dy: i >> 1, step: 2, index: i, count: 4}
	}
	return phase{step: 1, count: 1}
}

// target returns the share of a decoded frame for h's points: the description's pixels of a grid,
// or all points of its slice of a cloud.
func (h *Header) target() phase {
	if h.Layout.OnGrid() {
		return phaseOf(h.Description, h.Descriptions)
	}
	return phase{step: 1, count: 1}
}

// size returns the size of the share in a width×height grid; a side may be 0.
func (p phase) size(width, height int) (w, h int) {
	return (width - p.dx + p.step - 1) / p.step, (height - p.dy + p.step - 1) / p.step
}
