// Package plyfile reads and writes point clouds as PLY files (Turk, "The PLY Polygon File Format",
// 1994).
//
// It writes binary little-endian files: float x y z in metres and uchar red green blue, and for
// meshes also float nx ny nz and triangles. It reads the vertices of binary little-endian and ASCII
// files, and tolerates known faults in the headers of volumetric capture tools: scalar types without
// the word "property", and normals declared in that way but missing from the data.
package plyfile

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"holocast/internal/mesh"
	"holocast/internal/pointcloud"
)

// Cloud is a point cloud in its file's units.
type Cloud struct {
	XYZ []float32 // 3×n
	RGB []byte    // 3×n, or nil without colour
}

// Points converts c to millimetres. scale is the number of millimetres per unit. A point beyond
// ±32.767 m is an error. Without colour, points are white.
func (c Cloud) Points(scale float64) (pointcloud.Points, error) {
	p := pointcloud.Points{XYZ: make([]int16, len(c.XYZ)), RGB: c.RGB}
	for i, v := range c.XYZ {
		mm := math.Round(float64(v) * scale)
		if !(mm >= math.MinInt16 && mm <= math.MaxInt16) {
			return pointcloud.Points{}, fmt.Errorf("point %d: %c = %g mm is beyond ±32.767 m", i/3, "xyz"[i%3], mm)
		}
		p.XYZ[i] = int16(mm)
	}
	if p.RGB == nil {
		p.RGB = bytes.Repeat([]byte{255}, len(c.XYZ))
	}
	return p, nil
}

// Write writes points as a binary PLY file.
func Write(w io.Writer, p pointcloud.Points) error {
	if len(p.XYZ)%3 != 0 || len(p.RGB) != len(p.XYZ) {
		return fmt.Errorf("ply: %d coordinates and %d colour values do not form points", len(p.XYZ), len(p.RGB))
	}
	out := newWriter(w, len(p.XYZ)/3, "", 0)
	vertex := make([]byte, 0, 15)
	for i := 0; i < len(p.XYZ); i += 3 {
		vertex = vertex[:0]
		for _, v := range p.XYZ[i : i+3] {
			vertex = appendFloat(vertex, float32(v)/1000)
		}
		out.write(append(vertex, p.RGB[i:i+3]...))
	}
	return out.end()
}

// WriteMesh writes a mesh as a binary PLY file with normals and faces.
func WriteMesh(w io.Writer, m *mesh.Mesh) error {
	if err := m.Check(); err != nil {
		return fmt.Errorf("ply: %w", err)
	}
	out := newWriter(w, len(m.XYZ)/3, "property float nx\nproperty float ny\nproperty float nz\n", len(m.Triangles)/3)
	b := make([]byte, 0, 27)
	for i := 0; i < len(m.XYZ); i += 3 {
		b = b[:0]
		for _, v := range m.XYZ[i : i+3] {
			b = appendFloat(b, v/1000)
		}
		for _, v := range m.Normals[i : i+3] {
			b = appendFloat(b, v)
		}
		out.write(append(b, m.RGB[i:i+3]...))
	}
	for i := 0; i < len(m.Triangles); i += 3 {
		b = append(b[:0], 3)
		for _, v := range m.Triangles[i : i+3] {
			b = binary.LittleEndian.AppendUint32(b, v)
		}
		out.write(b)
	}
	return out.end()
}

// writer keeps its first error.
type writer struct {
	*bufio.Writer
	err error
}

// newWriter writes a header. normals declares further properties before the colors.
func newWriter(w io.Writer, vertices int, normals string, faces int) *writer {
	out := &writer{Writer: bufio.NewWriterSize(w, 1<<16)}
	head := fmt.Appendf(nil, "ply\nformat binary_little_endian 1.0\ncomment Holocast, metres\nelement vertex %d\n"+
		"property float x\nproperty float y\nproperty float z\n%s"+
		"property uchar red\nproperty uchar green\nproperty uchar blue\n", vertices, normals)
	if faces > 0 {
		head = fmt.Appendf(head, "element face %d\nproperty list uchar int vertex_indices\n", faces)
	}
	out.write(append(head, "end_header\n"...))
	return out
}

func (w *writer) write(b []byte) {
	if w.err == nil {
		_, w.err = w.Write(b)
	}
}

func (w *writer) end() error {
	if w.err == nil {
		w.err = w.Flush()
	}
	if w.err != nil {
		return fmt.Errorf("ply: %w", w.err)
	}
	return nil
}

func appendFloat(b []byte, v float32) []byte {
	return binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
}

// Limits of Read.
const (
	MaxPoints      = 64 << 20
	maxHeaderLines = 200
	maxLine        = 1000
	maxProperties  = 64
)

type property struct {
	name  string
	kind  string
	bare  bool // declared without the word "property"
	at    int  // byte offset in a binary vertex
	field int  // index in an ASCII vertex
}

type header struct {
	ascii      bool
	points     int
	properties []property
	seen       bool // found a vertex element
}

// Read reads the vertices of a PLY file. Errors name the header line or vertex.
func Read(r io.Reader) (Cloud, error) {
	in := bufio.NewReaderSize(r, 1<<16)
	h, err := readHeader(in)
	if err != nil {
		return Cloud{}, fmt.Errorf("ply: %w", err)
	}
	if h.ascii {
		return h.readASCII(in)
	}
	return h.readBinary(in)
}

func kindSize(kind string) int {
	switch kind {
	case "char", "int8", "uchar", "uint8":
		return 1
	case "short", "int16", "ushort", "uint16":
		return 2
	case "int", "int32", "uint", "uint32", "float", "float32":
		return 4
	case "double", "float64":
		return 8
	}
	return 0
}

func readLine(in *bufio.Reader) (string, error) {
	var line []byte
	for {
		c, err := in.ReadByte()
		if err != nil {
			if len(line) > 0 && errors.Is(err, io.EOF) {
				return string(line), nil
			}
			return "", err
		}
		if c == '\n' {
			return strings.TrimSuffix(string(line), "\r"), nil
		}
		if len(line) == maxLine {
			return "", fmt.Errorf("more than %d characters", maxLine)
		}
		line = append(line, c)
	}
}

func readHeader(in *bufio.Reader) (header, error) {
	var h header
	var inVertex, format bool
	for n := 1; n <= maxHeaderLines; n++ {
		line, err := readLine(in)
		if errors.Is(err, io.EOF) {
			return h, fmt.Errorf("header ends in line %d without end_header", n)
		}
		if err != nil {
			return h, fmt.Errorf("header line %d: %w", n, err)
		}
		words := strings.Fields(line)
		bad := func(format string, args ...any) (header, error) {
			return h, fmt.Errorf("header line %d, %.60q: "+format, append([]any{n, line}, args...)...)
		}
		if n == 1 {
			if line != "ply" {
				return bad("not a PLY file")
			}
			continue
		}
		if len(words) == 0 {
			continue
		}
		bare := false
		switch words[0] {
		case "comment", "obj_info":
			continue
		case "format":
			if len(words) != 3 || words[1] != "ascii" && words[1] != "binary_little_endian" {
				return bad("only ascii and binary_little_endian are supported")
			}
			h.ascii, format = words[1] == "ascii", true
			continue
		case "element":
			if len(words) != 3 {
				return bad("an element needs a name and a count")
			}
			if inVertex = words[1] == "vertex"; !inVertex {
				if !h.seen {
					return bad("elements before the vertices are not supported")
				}
				continue // not a vertex
			}
			if h.seen {
				return bad("a second vertex element")
			}
			count, err := strconv.Atoi(words[2])
			if err != nil || count < 0 || count > MaxPoints {
				return bad("the count is not in 0…%d", MaxPoints)
			}
			h.points, h.seen = count, true
			continue
		case "end_header":
			if !format || !h.seen {
				return bad("the format or the vertex element is missing before it")
			}
			return h, nil
		case "property":
			words = words[1:]
		default:
			if bare = kindSize(words[0]) > 0; !bare {
				return bad("unknown keyword")
			}
		}
		if !inVertex {
			continue
		}
		if len(words) != 2 || kindSize(words[0]) == 0 {
			return bad("a vertex property needs a scalar type and a name")
		}
		if len(h.properties) == maxProperties {
			return bad("more than %d properties", maxProperties)
		}
		h.properties = append(h.properties, property{name: words[1], kind: words[0], bare: bare})
	}
	return h, fmt.Errorf("header has more than %d lines", maxHeaderLines)
}

// layOut sets the properties' positions and returns the size of a binary vertex.
func (h *header) layOut() int {
	size := 0
	for i := range h.properties {
		h.properties[i].at, h.properties[i].field = size, i
		size += kindSize(h.properties[i].kind)
	}
	return size
}

// columns returns the properties x y z, and red green blue if all exist.
func (h *header) columns() (xyz, rgb []property, err error) {
	find := func(names ...string) (found []property) {
		for _, name := range names {
			if i := slices.IndexFunc(h.properties, func(p property) bool { return p.name == name }); i >= 0 {
				found = append(found, h.properties[i])
			}
		}
		return found
	}
	if xyz = find("x", "y", "z"); len(xyz) != 3 {
		return nil, nil, errors.New("ply: the vertices lack x, y or z")
	}
	rgb = find("red", "green", "blue")
	if len(rgb) != 3 {
		return xyz, nil, nil
	}
	for _, p := range rgb {
		if kindSize(p.kind) != 1 {
			return nil, nil, fmt.Errorf("ply: property %s is %s; only uchar colours are supported", p.name, p.kind)
		}
	}
	return xyz, rgb, nil
}

func (h header) readBinary(in *bufio.Reader) (Cloud, error) {
	size := h.layOut()
	if size == 0 && h.points > 0 {
		return Cloud{}, errors.New("ply: the vertices lack x, y or z")
	}
	// Allocate for the data read, not for the size in the header.
	var data bytes.Buffer
	if _, err := io.Copy(&data, io.LimitReader(in, int64(h.points)*int64(size))); err != nil {
		return Cloud{}, fmt.Errorf("ply: %w", err)
	}
	if have := data.Len(); have < h.points*size {
		// Normals declared without "property" may be missing.
		real := h
		real.properties = slices.DeleteFunc(slices.Clone(h.properties), func(p property) bool {
			return p.bare && (p.name == "nx" || p.name == "ny" || p.name == "nz")
		})
		realSize := real.layOut()
		if realSize == size || have != h.points*realSize {
			return Cloud{}, fmt.Errorf("ply: cut off in vertex %d of %d", have/size, h.points)
		}
		h, size = real, realSize
	}
	xyz, rgb, err := h.columns()
	if err != nil {
		return Cloud{}, err
	}
	c := Cloud{XYZ: make([]float32, 0, 3*h.points)}
	if rgb != nil {
		c.RGB = make([]byte, 0, 3*h.points)
	}
	for vertex := range slices.Chunk(data.Bytes(), max(size, 1)) {
		for _, p := range xyz {
			c.XYZ = append(c.XYZ, number(p.kind, vertex[p.at:]))
		}
		for _, p := range rgb {
			c.RGB = append(c.RGB, vertex[p.at])
		}
	}
	return c, nil
}

func number(kind string, b []byte) float32 {
	le := binary.LittleEndian
	switch kind {
	case "char", "int8":
		return float32(int8(b[0]))
	case "uchar", "uint8":
		return float32(b[0])
	case "short", "int16":
		return float32(int16(le.Uint16(b)))
	case "ushort", "uint16":
		return float32(le.Uint16(b))
	case "int", "int32":
		return float32(int32(le.Uint32(b)))
	case "uint", "uint32":
		return float32(le.Uint32(b))
	case "float", "float32":
		return math.Float32frombits(le.Uint32(b))
	default: // double, float64
		return float32(math.Float64frombits(le.Uint64(b)))
	}
}

func (h header) readASCII(in *bufio.Reader) (Cloud, error) {
	h.layOut()
	xyz, rgb, err := h.columns()
	if err != nil {
		return Cloud{}, err
	}
	var c Cloud
	for i := range h.points {
		line, err := readLine(in)
		if err != nil {
			return Cloud{}, fmt.Errorf("ply: cut off in vertex %d of %d: %w", i, h.points, err)
		}
		words := strings.Fields(line)
		if len(words) != len(h.properties) {
			return Cloud{}, fmt.Errorf("ply: vertex %d has %d values, not %d", i, len(words), len(h.properties))
		}
		for _, p := range xyz {
			v, err := strconv.ParseFloat(words[p.field], 32)
			if err != nil {
				return Cloud{}, fmt.Errorf("ply: vertex %d, %s: %w", i, p.name, err)
			}
			c.XYZ = append(c.XYZ, float32(v))
		}
		for _, p := range rgb {
			v, err := strconv.ParseUint(words[p.field], 10, 8)
			if err != nil {
				return Cloud{}, fmt.Errorf("ply: vertex %d, %s: %w", i, p.name, err)
			}
			c.RGB = append(c.RGB, byte(v))
		}
	}
	return c, nil
}
