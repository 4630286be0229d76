package pointcloud

import (
	"errors"
	"fmt"
)

// EncoderOptions configures an Encoder. The zero value is best for every layout.
type EncoderOptions struct {
	// Level is zstd's compression level, 1 to 19. 0 means LiveScan3D's level 2 for layout C, and
	// only zstd's entropy coder for layouts A and B, which compresses sensor noise better and
	// faster than any level.
	Level int
}

// Encoder writes objects. It reuses its buffers and is not safe for concurrent use; use one per
// camera.
type Encoder struct {
	engine encoderEngine
}

// NewEncoder creates an encoder, which the caller must close.
func NewEncoder(o EncoderOptions) (*Encoder, error) {
	if o.Level < 0 || o.Level > 19 {
		return nil, fmt.Errorf("zstd level %d, want 0 to 19", o.Level)
	}
	e := &Encoder{}
	if err := e.engine.open(o.Level); err != nil {
		return nil, err
	}
	return e, nil
}

// Close frees the encoder's memory.
func (e *Encoder) Close() { e.engine.close() }

// Encode appends one description of f to dst as an object and returns the extended slice. h
// provides Sequence, DeviceTime, CaptureTime, Camera and Descriptions (0 means 1); Encode sets the
// rest.
func (e *Encoder) Encode(dst []byte, h Header, f *Frame, description int) ([]byte, error) {
	if err := f.check(); err != nil {
		return dst, err
	}
	h.Layout, h.Width, h.Height = f.Layout, 0, 0
	if f.Layout.OnGrid() {
		h.Width, h.Height = uint16(f.Grid.Width), uint16(f.Grid.Height)
	}
	ph, err := h.describe(description)
	if err != nil {
		return dst, err
	}
	start := len(dst)
	b, err := e.engine.encode(dst, f, ph)
	if err != nil {
		return dst, err
	}
	h.Points, h.RawLength = uint32(b.points), uint32(b.rawLength)
	h.Append(b.object[:start])
	return b.object, nil
}

// check returns an error if f cannot be encoded.
func (f *Frame) check() error {
	switch p := &f.Points; {
	case !f.Layout.known():
		return fmt.Errorf("frame of unknown %s", f.Layout)
	case f.Layout == LayoutVideo:
		return fmt.Errorf("frame of layout %s: package pointvideo encodes it", f.Layout)
	case f.Layout.OnGrid():
		return f.Grid.Check()
	case len(p.XYZ) != len(p.RGB) || len(p.XYZ)%3 != 0:
		return fmt.Errorf("cloud of %d coordinates and %d colour bytes: want three of each per point", len(p.XYZ),
			len(p.RGB))
	case len(p.XYZ)/3 > MaxPoints:
		return fmt.Errorf("cloud of %d points exceeds the limit of %d", len(p.XYZ)/3, MaxPoints)
	}
	return nil
}

// Check returns an error if g's size exceeds the format's limits or does not match the lengths of
// its slices.
func (g *Grid) Check() error {
	if g.Width < 1 || g.Width > MaxSide || g.Height < 1 || g.Height > MaxSide {
		return fmt.Errorf("grid of %d×%d pixels: each side must be 1 to %d", g.Width, g.Height, MaxSide)
	}
	if n := g.Width * g.Height; len(g.Depth) != n || len(g.Color) != 3*n {
		return fmt.Errorf("grid of %d×%d pixels has %d depths and %d colour bytes", g.Width, g.Height, len(g.Depth),
			len(g.Color))
	}
	return nil
}

// describe sets the fields common to all objects and returns the description's share.
func (h *Header) describe(description int) (phase, error) {
	h.Codec, h.Flags = CodecZstd, 0
	if h.Descriptions == 0 {
		h.Descriptions = 1
	}
	if (h.Descriptions != 1 && h.Descriptions != 4) || description < 0 || description >= int(h.Descriptions) {
		return phase{}, fmt.Errorf("description %d of %d, want 1 or 4 descriptions", description, h.Descriptions)
	}
	h.Description = uint8(description)
	return phaseOf(h.Description, h.Descriptions), nil
}

// body is an encoded description.
type body struct {
	object            []byte // dst, a blank header and the compressed planes
	points, rawLength int
}

// Decoder reads objects. It reuses its buffers and is not safe for concurrent use.
type Decoder struct {
	// MaxPoints bounds the decoder's allocation: pixels of a grid or points of a cloud. 0 means the
	// format's limit, the constant MaxPoints.
	MaxPoints int

	engine decoderEngine
}

// NewDecoder creates a decoder, which the caller must close.
func NewDecoder() (*Decoder, error) {
	d := &Decoder{}
	if err := d.engine.open(); err != nil {
		return nil, err
	}
	return d, nil
}

// Close frees the decoder's memory.
func (d *Decoder) Close() { d.engine.close() }

func (d *Decoder) limit() int {
	if d.MaxPoints > 0 {
		return d.MaxPoints
	}
	return MaxPoints
}

// Decode decodes any of the descriptions of one frame, in any order, into f, resized as needed.
// Pixels of missing descriptions have depth 0; points are in the order of the objects. It returns
// the first object's header with the total number of points. After an error f is undefined. Errors
// in objects have type *FormatError.
func (d *Decoder) Decode(f *Frame, objects ...[]byte) (Header, error) {
	if len(objects) == 0 {
		return Header{}, errors.New("point-cloud frame: no objects to decode")
	}
	var headers [4]Header
	if len(objects) > len(headers) {
		return Header{}, formatError("description", 30, "%d objects, at most %d", len(objects), len(headers))
	}
	points, err := d.parse(&headers, objects)
	if err != nil {
		return Header{}, err
	}
	f.Layout = headers[0].Layout
	if f.Layout.OnGrid() {
		f.Grid.reset(int(headers[0].Width), int(headers[0].Height))
	} else {
		f.Points.resize(points)
	}
	at := 0 // index of the object's first point
	for i, object := range objects {
		h := &headers[i]
		share := *f
		if !f.Layout.OnGrid() {
			end := at + 3*int(h.Points)
			share.Points = Points{XYZ: f.Points.XYZ[at:end], RGB: f.Points.RGB[at:end]}
			at = end
		}
		if err := d.engine.decode(&share, h, object[HeaderLen:]); err != nil {
			return Header{}, err
		}
	}
	headers[0].Points = uint32(points)
	return headers[0], nil
}

// parse parses the objects' headers, which must be of one frame and within the decoder's limit, and
// returns the total number of points.
func (d *Decoder) parse(headers *[4]Header, objects [][]byte) (points int, err error) {
	var seen [4]bool
	for i, object := range objects {
		h, err := ParseHeader(object)
		switch {
		case err != nil:
			return 0, err
		case h.Layout == LayoutVideo:
			return 0, formatError("layout", 5, "%s depends on earlier frames", h.Layout)
		case int(h.Width)*int(h.Height) > d.limit():
			return 0, formatError("width", 32, "%d×%d pixels exceed this decoder's limit of %d", h.Width, h.Height, d.limit())
		case i > 0 && !h.sameFrame(&headers[0]):
			return 0, formatError("mismatch", 8, "object %d belongs to a different frame from object 0", i)
		case seen[h.Description]:
			return 0, formatError("description", 30, "%d given twice", h.Description)
		}
		seen[h.Description] = true
		headers[i] = h
		if points += int(h.Points); points > d.limit() {
			return 0, formatError("points", 36, "%d points exceed this decoder's limit of %d", points, d.limit())
		}
	}
	return points, nil
}

// sameFrame reports whether h and o describe the same frame.
func (h *Header) sameFrame(o *Header) bool {
	a, b := *h, *o
	a.Description, a.Points, a.RawLength = b.Description, b.Points, b.RawLength
	return a == b
}

// Errors in a body are the same in both engines.
func zstdError(detail string) error { return formatError("zstd", HeaderLen, "%s", detail) }

func rawLengthError(h *Header) error {
	return formatError("raw length", 40, "%d differs from the zstd frame's length", h.RawLength)
}

func planesError(h *Header) error {
	return formatError("planes", HeaderLen, "the planes do not hold %d points in layout %s", h.Points, h.Layout)
}
