package pointcloud

import (
	"errors"
	"fmt"
)

// EncoderOptions configure an Encoder; the zero value is the best for each
// layout.
type EncoderOptions struct {
	// Level is zstd's compression level, 1 to 19. 0 codes the planes of layouts A
	// and B with zstd's entropy coder alone, smaller and faster than any level on
	// real sensors' noise, and layout C at LiveScan3D's level 2.
	Level int
}

// Encoder writes objects. It keeps its buffers from frame to frame and is not
// safe for concurrent use: one per camera lets cameras encode in parallel.
type Encoder struct {
	engine encoderEngine
}

// NewEncoder makes an encoder, which the caller must Close.
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

// EncodeGrid appends one description of g to dst as an object of layout A and
// returns the extended slice. h gives Sequence, DeviceTime, CaptureTime, Camera
// and Descriptions (0 means 1); the rest is filled in.
func (e *Encoder) EncodeGrid(dst []byte, h Header, g *Grid, description int) ([]byte, error) {
	if g.Width < 1 || g.Width > MaxSide || g.Height < 1 || g.Height > MaxSide {
		return dst, fmt.Errorf("grid of %d×%d pixels, each side must be 1 to %d", g.Width, g.Height, MaxSide)
	}
	if n := g.Width * g.Height; len(g.Depth) != n || len(g.Color) != 3*n {
		return dst, fmt.Errorf("grid of %d×%d pixels has %d depths and %d colour bytes", g.Width, g.Height, len(g.Depth), len(g.Color))
	}
	h.Layout = LayoutGrid
	h.Width, h.Height = uint16(g.Width), uint16(g.Height)
	ph, err := h.describe(description)
	if err != nil {
		return dst, err
	}
	return finish(dst, &h, func(dst []byte) (body, error) { return e.engine.grid(dst, g, ph) })
}

// EncodePoints appends one description of p to dst as an object of layout B, or
// of layout C where h.Layout is LayoutInterleaved, and returns the extended
// slice. h is as in EncodeGrid.
func (e *Encoder) EncodePoints(dst []byte, h Header, p *Points, description int) ([]byte, error) {
	if len(p.XYZ) != len(p.RGB) || len(p.XYZ)%3 != 0 {
		return dst, fmt.Errorf("cloud of %d coordinates and %d colour bytes, want three of each a point", len(p.XYZ), len(p.RGB))
	}
	if n := len(p.XYZ) / 3; n > MaxPoints {
		return dst, fmt.Errorf("cloud of %d points, at most %d", n, MaxPoints)
	}
	switch h.Layout {
	case 0:
		h.Layout = LayoutPoints
	case LayoutPoints, LayoutInterleaved:
	default:
		return dst, fmt.Errorf("layout %s does not hold unorganised points", h.Layout)
	}
	h.Width, h.Height = 0, 0
	ph, err := h.describe(description)
	if err != nil {
		return dst, err
	}
	return finish(dst, &h, func(dst []byte) (body, error) {
		return e.engine.points(dst, p, h.Layout == LayoutInterleaved, ph)
	})
}

// describe fills in what every object has and gives the description's share.
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

// body is the compressed planes as an engine appended them.
type body struct {
	object            []byte
	points, rawLength int
}

// finish appends the header and the body that encode makes of what follows it.
func finish(dst []byte, h *Header, encode func([]byte) (body, error)) ([]byte, error) {
	start := len(dst)
	b, err := encode(append(dst, make([]byte, HeaderLen)...))
	if err != nil {
		return dst, err
	}
	h.Points, h.RawLength = uint32(b.points), uint32(b.rawLength)
	h.append(b.object[:start])
	return b.object, nil
}

// Decoder reads objects. It keeps its buffers from frame to frame and is not
// safe for concurrent use.
type Decoder struct {
	// MaxPoints bounds what a frame may make the decoder allocate: the pixels of a
	// grid or the points of a cloud. 0 means the format's limit, MaxPoints.
	MaxPoints int

	engine decoderEngine
}

// NewDecoder makes a decoder, which the caller must Close.
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

// DecodeGrid fills g, resized as needed, from objects of layout A: any of the
// descriptions of one frame, in any order. Pixels of descriptions that are not
// given have depth 0. It returns the first object's header with the points of all
// of them; after an error g holds nothing of use. Errors about the objects are of
// type *FormatError.
func (d *Decoder) DecodeGrid(g *Grid, objects ...[]byte) (Header, error) {
	if len(objects) == 0 {
		return Header{}, errors.New("point-cloud frame: no objects to decode")
	}
	var headers [4]Header
	var seen [4]bool
	var points uint32
	if len(objects) > len(headers) {
		return Header{}, formatError("description", 30, "%d objects, at most %d", len(objects), len(headers))
	}
	for i, object := range objects {
		h, err := ParseHeader(object)
		switch {
		case err != nil:
			return Header{}, err
		case h.Layout != LayoutGrid:
			return Header{}, formatError("layout", 5, "%s, want A", h.Layout)
		case int(h.Width)*int(h.Height) > d.limit():
			return Header{}, formatError("width", 32, "%d×%d pixels, this decoder takes %d", h.Width, h.Height, d.limit())
		case i > 0 && !h.sameFrame(&headers[0]):
			return Header{}, formatError("mismatch", 8, "object %d is of another frame than object 0", i)
		case seen[h.Description]:
			return Header{}, formatError("description", 30, "%d given twice", h.Description)
		}
		seen[h.Description] = true
		headers[i] = h
		points += h.Points
	}
	g.reset(int(headers[0].Width), int(headers[0].Height))
	for i, object := range objects {
		if err := d.engine.grid(g, &headers[i], object[HeaderLen:]); err != nil {
			return Header{}, err
		}
	}
	headers[0].Points = points
	return headers[0], nil
}

// sameFrame tells whether h and o describe the same frame.
func (h *Header) sameFrame(o *Header) bool {
	a, b := *h, *o
	a.Description, a.Points, a.RawLength = b.Description, b.Points, b.RawLength
	return a == b
}

// DecodePoints fills p, resized as needed, from one object of layout B or C. The
// points of several descriptions are the decoded clouds together. Errors about
// the object are of type *FormatError; after one p holds nothing of use.
func (d *Decoder) DecodePoints(p *Points, object []byte) (Header, error) {
	h, err := ParseHeader(object)
	switch {
	case err != nil:
		return Header{}, err
	case h.Layout == LayoutGrid:
		return Header{}, formatError("layout", 5, "A, want B or C")
	case int(h.Points) > d.limit():
		return Header{}, formatError("points", 36, "%d, this decoder takes %d", h.Points, d.limit())
	}
	p.resize(int(h.Points))
	if err := d.engine.points(p, &h, object[HeaderLen:]); err != nil {
		return Header{}, err
	}
	return h, nil
}

// The errors of a body, the same from both engines.
func zstdError(detail string) error { return formatError("zstd", HeaderLen, "%s", detail) }
func rawLengthError(h *Header) error {
	return formatError("raw length", 40, "%d is not what the zstd frame holds", h.RawLength)
}
func planesError(h *Header) error {
	return formatError("planes", HeaderLen, "the planes are not those of %d points in layout %s", h.Points, h.Layout)
}
