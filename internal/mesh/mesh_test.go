package mesh

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"testing"
)

// triangle is one triangle, 1 m wide.
func triangle(name string) *Mesh {
	return &Mesh{
		Name: name, XYZ: []float32{0, 0, 0, 1000, 0, 0, 0, 500, -250},
		Normals: []float32{0, 0, 1, 0, 0, 1, 0, 0, 1}, RGB: []byte{0, 128, 255, 10, 20, 30, 1, 2, 3},
		Triangles: []uint32{0, 1, 2},
	}
}

func TestGLB(t *testing.T) {
	var out bytes.Buffer
	if err := WriteGLB(&out, triangle("a"), &Mesh{Name: "empty"}, triangle("b")); err != nil {
		t.Fatal(err)
	}
	b := out.Bytes()
	le := binary.LittleEndian
	if string(b[:4]) != "glTF" || le.Uint32(b[4:]) != 2 || int(le.Uint32(b[8:])) != len(b) {
		t.Fatalf("header %x of %d bytes", b[:12], len(b))
	}
	n := int(le.Uint32(b[12:]))
	var doc struct {
		Nodes       []struct{ Name string }
		BufferViews []struct{ ByteOffset, ByteLength int }
		Accessors   []struct {
			Count    int
			Min, Max []float32
		}
		Buffers []struct{ ByteLength int }
	}
	if err := json.Unmarshal(b[20:20+n], &doc); err != nil {
		t.Fatal(err)
	}
	body := b[20+n+8:]
	if len(doc.Nodes) != 2 || doc.Nodes[1].Name != "b" || len(doc.Accessors) != 8 ||
		len(body) != doc.Buffers[0].ByteLength || int(le.Uint32(b[20+n:])) != len(body) || n%4 != 0 {
		t.Errorf("%+v, %d bytes of data", doc, len(body))
	}
	for i, v := range []float32{0, 0, -0.25, 1, 0.5, 0} {
		if got := append(doc.Accessors[4].Min, doc.Accessors[4].Max...)[i]; got != v {
			t.Errorf("bound %d is %g, want %g m", i, got, v)
		}
	}
	at := func(view int) []byte { return body[doc.BufferViews[view].ByteOffset:] }
	if got := math.Float32frombits(le.Uint32(at(4)[12:])); got != 1 {
		t.Errorf("x = %g, want 1 m", got)
	}
	// sRGB 128 is linear 0.2159.
	c := at(6)
	if le.Uint16(c) != 0 || le.Uint16(c[2:]) != 14146 || le.Uint16(c[4:]) != 65535 || le.Uint16(c[6:]) != 65535 {
		t.Errorf("color %x", c[:8])
	}
	if i := at(7); le.Uint32(i) != 0 || le.Uint32(i[4:]) != 1 || le.Uint32(i[8:]) != 2 {
		t.Errorf("indices %x", i[:12])
	}
}

// A mesh that exceeds the write buffer arrives completely.
func TestGLBLarge(t *testing.T) {
	var m Mesh
	for range 30000 {
		m.Append(triangle(""))
	}
	var out bytes.Buffer
	if err := WriteGLB(&out, &m); err != nil {
		t.Fatal(err)
	}
	if got, want := out.Len()-20-int(binary.LittleEndian.Uint32(out.Bytes()[12:]))-8, 30000*(3*32+12); got != want {
		t.Errorf("%d bytes, want %d", got, want)
	}
	last := out.Bytes()[out.Len()-4:]
	if got := binary.LittleEndian.Uint32(last); got != 89999 {
		t.Errorf("last index %d", got)
	}
}

func TestGLBRefuses(t *testing.T) {
	broken := func(f func(m *Mesh)) *Mesh {
		m := triangle("")
		f(m)
		return m
	}
	for _, tt := range []struct {
		name string
		mesh *Mesh
	}{
		{"two corners", broken(func(m *Mesh) { m.Triangles = m.Triangles[:2] })},
		{"unknown vertex", broken(func(m *Mesh) { m.Triangles[1] = 3 })},
		{"no normals", broken(func(m *Mesh) { m.Normals = nil })},
		{"no colors", broken(func(m *Mesh) { m.RGB = m.RGB[3:] })},
		{"not finite", broken(func(m *Mesh) { m.XYZ[4] = float32(math.Inf(1)) })},
		{"not a number", broken(func(m *Mesh) { m.Normals[4] = float32(math.NaN()) })},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if err := WriteGLB(&bytes.Buffer{}, tt.mesh); err == nil || errors.Is(err, ErrEmpty) {
				t.Errorf("error %v", err)
			}
		})
	}
	if err := WriteGLB(&bytes.Buffer{}, &Mesh{}); !errors.Is(err, ErrEmpty) {
		t.Errorf("no triangle: %v", err)
	}
	full := errors.New("disk full")
	if err := WriteGLB(writer{full}, triangle("")); !errors.Is(err, full) {
		t.Errorf("full disk: %v", err)
	}
}

type writer struct{ err error }

func (w writer) Write([]byte) (int, error) { return 0, w.err }

func TestFlipYZ(t *testing.T) {
	m := triangle("")
	m.FlipYZ()
	if m.XYZ[7] != -500 || m.XYZ[8] != 250 || m.XYZ[3] != 1000 || m.Normals[2] != -1 {
		t.Errorf("%+v", m)
	}
}
