// Package spherical reads and writes the 360° metadata of MP4 files: Google's Spherical Video V2
// (boxes st3d and sv3d of the sample entry) and V1 (XML in a uuid box of the track), see
// https://github.com/google/spatial-media/tree/master/docs. V2 takes precedence. Of Apple's
// Projected Media Profile (box vexu), it reads the projection.
package spherical

import (
	"bytes"
	"encoding/binary"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// Stereo layouts of a frame.
const (
	Mono       = "mono"
	TopBottom  = "top-bottom"   // the left eye above
	SideBySide = "side-by-side" // left eye on the left
	Custom     = "custom"       // described elsewhere
)

// Projections.
const (
	Equirectangular = "equirectangular"
	Cubemap         = "cubemap"
	Mesh            = "mesh"
)

// Metadata is the spherical metadata of a file's first video track.
type Metadata struct {
	Projection string // "" if unspecified
	Stereo     string // "" if unspecified
	RightFirst bool   // the right eye is above or on the left
	// Yaw, Pitch and Roll rotate the sphere, in degrees. Positive values turn its front to the
	// right, upwards, and counter-clockwise, in the order of [Pose].
	Yaw, Pitch, Roll float64
	// Part reports that the picture shows only part of the sphere.
	Part bool
	// Ambisonics describes the first sound track, unless its channels are for loudspeakers.
	Ambisonics Ambisonics
}

// ErrNotMP4 is returned for a file that does not start like an MP4 or QuickTime file.
var ErrNotMP4 = errors.New("not an MP4 file")

// TruncatedError reports a file that ends within a box.
type TruncatedError struct {
	Box   string
	Bytes int64 // missing
	// Index reports whether a moov box, required for playback, precedes the end.
	Index bool
}

func (e *TruncatedError) Error() string {
	if !e.Index {
		return fmt.Sprintf("truncated MP4: box %s lacks %d bytes, and there is no moov box before it", e.Box, e.Bytes)
	}
	return fmt.Sprintf("truncated MP4: box %s lacks %d bytes", e.Box, e.Bytes)
}

// Limits of Parse.
const (
	maxBoxes = 1 << 22 // 64 MiB of headers
	maxDepth = 12
	maxLeaf  = 1 << 20 // bytes of a box read into memory
)

// Parse reads the metadata of an MP4 file of size bytes.
func Parse(r io.ReaderAt, size int64) (Metadata, error) {
	p := parser{r: r}
	moov := false
	var kind [8]byte
	if n, err := r.ReadAt(kind[:], 0); n < 8 || !topLevel[string(kind[4:])] {
		if err != nil && err != io.EOF {
			return Metadata{}, err
		}
		return Metadata{}, ErrNotMP4
	}
	err := p.boxes(0, size, 0, func(b box) error {
		switch {
		case moov && !topLevel[b.kind]:
			return errEnough // a camera's own data follow the last box
		case b.missing > 0:
			return &TruncatedError{Box: b.kind, Bytes: b.missing, Index: moov}
		case b.kind != "moov" || moov:
			return nil
		}
		err := p.movie(b)
		if moov = err == nil; moov && p.fragmented {
			return errEnough // any part of its fragments plays
		}
		return err
	})
	var cut *TruncatedError
	switch {
	case errors.Is(err, errEnough) || moov && !errors.As(err, &cut):
		err = nil
	case err == nil:
		err = &TruncatedError{Box: "moov", Bytes: 8}
	case !errors.As(err, &cut):
		return Metadata{}, err
	}
	return p.metadata(), err
}

// errEnough ends a search because the rest of the file does not matter or has too many boxes.
var errEnough = errors.New("enough boxes")

// topLevel lists the known top-level boxes. A file must start with one of them.
var topLevel = map[string]bool{
	"ftyp": true, "moov": true, "mdat": true, "free": true, "skip": true, "wide": true, "pnot": true,
	"styp": true, "uuid": true, "moof": true, "sidx": true, "mfra": true, "meta": true, "emsg": true, "prft": true,
}

type parser struct {
	r      io.ReaderAt
	count  int
	found  bool // parsed the first video track
	v1, v2 Metadata

	fragmented bool
	sound      bool // parsed the first sound track
	ambisonics Ambisonics
}

func (p *parser) metadata() Metadata {
	m := p.v2
	if m.Projection == "" {
		m.Projection, m.Yaw, m.Pitch, m.Roll, m.Part = p.v1.Projection, p.v1.Yaw, p.v1.Pitch, p.v1.Roll, p.v1.Part
	}
	if m.Stereo == "" {
		m.Stereo = p.v1.Stereo
	}
	m.Ambisonics = p.ambisonics
	return m
}

// box locates a box's content in the file.
type box struct {
	kind       string
	start, end int64
	missing    int64 // bytes beyond the end of the parent
}

// boxes calls do for each box between start and end.
func (p *parser) boxes(start, end int64, depth int, do func(box) error) error {
	if depth > maxDepth {
		return fmt.Errorf("boxes nested deeper than %d", maxDepth)
	}
	for at := start; at < end; {
		if p.count++; p.count > maxBoxes {
			return errEnough
		}
		var h [16]byte
		if end-at < 8 {
			if depth == 0 {
				return nil // ignore bytes after the last box
			}
			return fmt.Errorf("%d bytes at %d are not a box", end-at, at)
		}
		n, err := p.r.ReadAt(h[:min(16, end-at)], at)
		if n < 8 {
			return fmt.Errorf("read at %d: %w", at, err)
		}
		b := box{kind: string(h[4:8]), start: at + 8}
		length := int64(binary.BigEndian.Uint32(h[:]))
		switch {
		case length == 1 && n == 16:
			b.start += 8
			big := binary.BigEndian.Uint64(h[8:])
			if big < 16 || big > math.MaxInt64/2 {
				return fmt.Errorf("box %q at %d has invalid size %d", b.kind, at, big)
			}
			length = int64(big)
		case length == 0:
			length = end - at
		case length < 8:
			return fmt.Errorf("box %q at %d has invalid size %d", b.kind, at, length)
		}
		b.end = at + length
		if b.end > end {
			b.missing, b.end = b.end-end, end
			if depth > 0 {
				return fmt.Errorf("box %q at %d is longer than its parent", b.kind, at)
			}
		}
		if err := do(b); err != nil {
			return err
		}
		at = b.end
	}
	return nil
}

// read reads a box of at most limit bytes.
func (p *parser) read(b box, limit int64) ([]byte, error) {
	if b.end-b.start > limit {
		return nil, fmt.Errorf("box %q at %d has %d bytes, more than %d", b.kind, b.start, b.end-b.start, limit)
	}
	out := make([]byte, b.end-b.start)
	if _, err := p.r.ReadAt(out, b.start); err != nil && err != io.EOF {
		return nil, err
	}
	return out, nil
}

func (p *parser) movie(moov box) error {
	return p.boxes(moov.start, moov.end, 1, func(b box) error {
		p.fragmented = p.fragmented || b.kind == "mvex"
		if b.kind != "trak" || p.found && p.sound {
			return nil
		}
		if err := p.track(b); !p.found {
			return err
		}
		return nil // sound plays without metadata
	})
}

// track parses a track and keeps its metadata if it is the first video or the first sound track.
func (p *parser) track(trak box) error {
	var kind string
	var v1, v2 Metadata
	var ambisonics Ambisonics
	var walk func(b box, depth int) error
	walk = func(parent box, depth int) error {
		return p.boxes(parent.start, parent.end, depth, func(b box) error {
			switch b.kind {
			case "mdia", "minf", "stbl":
				return walk(b, depth+1)
			case "hdlr":
				h, err := p.read(b, maxLeaf)
				if err == nil && len(h) >= 12 && parent.kind == "mdia" {
					kind = string(h[8:12])
				}
				return err
			case "stsd":
				if kind == "soun" {
					ambisonics = p.soundEntry(b, depth+1)
					return nil
				}
				return p.sampleEntries(b, depth+1, &v2)
			case "uuid":
				if parent.kind != "trak" || b.end-b.start > maxLeaf {
					return nil
				}
				u, err := p.read(b, maxLeaf)
				if err == nil && len(u) > 16 && bytes.Equal(u[:16], v1ID[:]) {
					v1 = ParseV1(u[16:])
				}
				return err
			}
			return nil
		})
	}
	if err := walk(trak, 2); err != nil {
		return err
	}
	switch {
	case kind == "vide" && !p.found:
		p.found, p.v1, p.v2 = true, v1, v2
	case kind == "soun" && !p.sound:
		p.sound, p.ambisonics = true, ambisonics
	}
	return nil
}

// Bytes before the child boxes of an stsd box and of a visual sample entry.
const (
	stsdHeader   = 8
	visualHeader = 78
)

func (p *parser) sampleEntries(stsd box, depth int, m *Metadata) error {
	first := true
	return p.boxes(min(stsd.start+stsdHeader, stsd.end), stsd.end, depth, func(entry box) error {
		if !first || entry.end-entry.start < visualHeader {
			return nil
		}
		first = false
		// Some files pad the entry with zeros. That error is ignored unless metadata precedes the
		// padding.
		err := p.boxes(entry.start+visualHeader, entry.end, depth+1, func(b box) error {
			switch b.kind {
			case "st3d":
				d, err := p.read(b, maxLeaf)
				if err == nil && len(d) >= 5 && d[4] < 5 {
					m.Stereo = []string{Mono, TopBottom, SideBySide, Custom, SideBySide}[d[4]]
					m.RightFirst = d[4] == 4
				}
				return err
			case "vexu":
				return p.vexu(b, depth+2, m)
			case "sv3d":
				return p.sv3d(b, depth+2, m)
			}
			return nil
		})
		if m.Projection == "" && m.Stereo == "" {
			return nil // not a picture, or only padding
		}
		return err
	})
}

func (p *parser) sv3d(sv3d box, depth int, m *Metadata) error {
	return p.boxes(sv3d.start, sv3d.end, depth, func(b box) error {
		if b.kind != "proj" {
			return nil
		}
		return p.boxes(b.start, b.end, depth+1, func(b box) error {
			switch b.kind {
			case "prhd":
				d, err := p.read(b, maxLeaf)
				if err == nil && len(d) >= 16 {
					m.Yaw, m.Pitch, m.Roll = Pose(fixed(d[4:]), fixed(d[8:]), fixed(d[12:]))
				}
				return err
			case "equi":
				m.Projection = Equirectangular
				d, err := p.read(b, maxLeaf)
				if err == nil && len(d) >= 20 {
					m.Part = !bytes.Equal(d[4:20], make([]byte, 16)) // bounds
				}
				return err
			case "hequ":
				m.Projection, m.Part = Equirectangular, true
			case "cbmp":
				m.Projection = Cubemap
			case "mshp":
				m.Projection = Mesh
			}
			return nil
		})
	})
}

// vexu parses the video extended usage of Apple's Projected Media Profile.
func (p *parser) vexu(vexu box, depth int, m *Metadata) error {
	return p.boxes(vexu.start, vexu.end, depth, func(b box) error {
		if b.kind != "proj" || m.Projection != "" {
			return nil
		}
		return p.boxes(b.start, b.end, depth+1, func(b box) error {
			if b.kind != "prji" {
				return nil
			}
			d, err := p.read(b, maxLeaf)
			if err != nil || len(d) < 8 {
				return err
			}
			switch kind := string(d[4:8]); kind {
			case "equi", "hequ":
				m.Projection, m.Part = Equirectangular, kind == "hequ"
			case "fish", "prim":
				m.Projection = "fisheye"
			}
			return nil
		})
	})
}

// fixed parses a signed 16.16 number.
func fixed(b []byte) float64 { return float64(int32(binary.BigEndian.Uint32(b))) / (1 << 16) }

// v1ID is the extended type of V1's uuid box.
var v1ID = [16]byte{0xff, 0xcc, 0x82, 0x63, 0xf8, 0x55, 0x4a, 0x93, 0x88, 0x14, 0x58, 0x7a, 0x02, 0x52, 0x1f, 0xdd}

// ParseV1 parses V1's XML up to the first error.
func ParseV1(b []byte) Metadata {
	values := map[string]string{}
	d := xml.NewDecoder(bytes.NewReader(b))
	d.Strict = false
	d.CharsetReader = func(_ string, r io.Reader) (io.Reader, error) { return r, nil }
	name := ""
	for {
		t, err := d.Token()
		if err != nil {
			break
		}
		switch t := t.(type) {
		case xml.StartElement:
			name = t.Name.Local
		case xml.EndElement:
			name = ""
		case xml.CharData:
			if name != "" {
				values[name] = strings.TrimSpace(string(t))
			}
		}
	}
	var m Metadata
	if values["Spherical"] != "true" {
		return m
	}
	m.Projection = values["ProjectionType"]
	if m.Projection == "" {
		m.Projection = Equirectangular
	}
	switch values["StereoMode"] {
	case "mono":
		m.Stereo = Mono
	case "top-bottom":
		m.Stereo = TopBottom
	case "left-right":
		m.Stereo = SideBySide
	}
	number := func(name string) float64 {
		v, err := strconv.ParseFloat(values[name], 64)
		if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
			return 0
		}
		return v
	}
	cropped := func(area, whole string) bool { // both default to the picture's size
		return values[area] != "" && values[whole] != "" && values[area] != values[whole]
	}
	m.Part = cropped("CroppedAreaImageWidthPixels", "FullPanoWidthPixels") ||
		cropped("CroppedAreaImageHeightPixels", "FullPanoHeightPixels")
	m.Yaw, m.Pitch, m.Roll = initialView(number("InitialViewHeadingDegrees"), number("InitialViewPitchDegrees"),
		number("InitialViewRollDegrees"))
	return m
}
