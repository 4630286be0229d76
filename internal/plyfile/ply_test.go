package plyfile

import (
	"bytes"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"holocast/internal/mesh"
	"holocast/internal/pointcloud"
)

// dataDir returns the directory of recorded clouds.
func dataDir(t testing.TB) string {
	t.Helper()
	dir := os.Getenv("HOLOCAST_DATA")
	if dir == "" {
		dir = filepath.Join("..", "..", "..", "shared", "data")
	}
	if _, err := os.Stat(dir); err != nil {
		t.Skipf("HOLOCAST_DATA not found: %v", err)
	}
	return dir
}

func TestRoundTrip(t *testing.T) {
	want := pointcloud.Points{
		XYZ: []int16{0, -1, 1, math.MinInt16, math.MaxInt16, 1234},
		RGB: []byte{1, 2, 3, 253, 254, 255},
	}
	var b bytes.Buffer
	if err := Write(&b, want); err != nil {
		t.Fatal(err)
	}
	c, err := Read(&b)
	if err != nil {
		t.Fatal(err)
	}
	got, err := c.Points(1000)
	if err != nil || !slices.Equal(got.XYZ, want.XYZ) || !slices.Equal(got.RGB, want.RGB) {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
}

func TestMesh(t *testing.T) {
	m := &mesh.Mesh{
		XYZ: []float32{0, 0, 0, 1000, 0, 0, 0, 500, -250}, Normals: []float32{0, 0, 1, 0, 0, 1, 0, 0, 1},
		RGB: []byte{1, 2, 3, 4, 5, 6, 7, 8, 9}, Triangles: []uint32{0, 1, 2},
	}
	var b bytes.Buffer
	if err := WriteMesh(&b, m); err != nil {
		t.Fatal(err)
	}
	if tail := b.Bytes()[b.Len()-13:]; !bytes.Equal(tail, []byte{3, 0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0}) {
		t.Errorf("face %v", tail)
	}
	c, err := Read(&b)
	if want := []float32{0, 0, 0, 1, 0, 0, 0, 0.5, -0.25}; err != nil || !slices.Equal(c.XYZ, want) ||
		!slices.Equal(c.RGB, m.RGB) {
		t.Errorf("got %+v, %v", c, err)
	}
	m.Triangles[0] = 3
	if err := WriteMesh(&b, m); err == nil {
		t.Error("an unknown vertex is accepted")
	}
}

func TestEmpty(t *testing.T) {
	var b bytes.Buffer
	if err := Write(&b, pointcloud.Points{}); err != nil {
		t.Fatal(err)
	}
	if c, err := Read(&b); err != nil || len(c.XYZ) != 0 {
		t.Errorf("got %+v, %v", c, err)
	}
}

// TestPointSequence reads files that declare "float x" instead of "property float x", and normals
// that they do not contain.
func TestPointSequence(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(dataDir(t), "point_sequence", "*.ply"))
	if err != nil || len(files) == 0 {
		t.Skipf("HOLOCAST_DATA not found: no point_sequence/*.ply (%v)", err)
	}
	for _, file := range files {
		f, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		c, err := Read(f)
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if len(c.XYZ) < 3*13000 || len(c.RGB) != len(c.XYZ) {
			t.Errorf("%s: %d coordinates, %d colours", file, len(c.XYZ), len(c.RGB))
		}
		for i, v := range c.XYZ {
			if !(v > -3 && v < 3) {
				t.Fatalf("%s: coordinate %d is %g m", file, i, v)
			}
		}
	}
}

func TestASCII(t *testing.T) {
	c,
		err := Read(strings.NewReader("ply\r\nformat ascii 1.0\r\nelement vertex 2\r\nproperty double x\r\nproperty " +
		"float y\r\nproperty int z\r\nelement face 0\r\nproperty list uchar int vertex_indices\r\nend_header\r\n1 " +
		"2.5 3\r\n-1e2 0 7"))
	if err != nil || !slices.Equal(c.XYZ, []float32{1, 2.5, 3, -100, 0, 7}) || c.RGB != nil {
		t.Errorf("got %+v, %v", c, err)
	}
	p, err := c.Points(1)
	if err != nil || !slices.Equal(p.XYZ, []int16{1, 3, 3, -100, 0, 7}) ||
		!slices.Equal(p.RGB, bytes.Repeat([]byte{255}, 6)) {
		t.Errorf("got %+v, %v", p, err)
	}
}

func TestBadFiles(t *testing.T) {
	const head = "ply\nformat binary_little_endian 1.0\nelement vertex 2\n"
	const xyz = "property float x\nproperty float y\nproperty float z\n"
	tests := []struct{ name, file, wantErr string }{
		{"empty", "", "header ends in line 1"},
		{"other file", "{}\n", `header line 1, "{}": not a PLY file`},
		{"no end", head, "header ends in line 4 without end_header"},
		{"big-endian", "ply\nformat binary_big_endian 1.0\n", "header line 2"},
		{"huge count", "ply\nformat ascii 1.0\nelement vertex 99999999999\n", "header line 3"},
		{"negative count", "ply\nformat ascii 1.0\nelement vertex -1\n", "header line 3"},
		{"two vertex elements", head + "element vertex 1\n", "a second vertex element"},
		{"faces first", "ply\nformat ascii 1.0\nelement face 3\n", "before the vertices"},
		{"list in a vertex", head + "property list uchar int x\n", "header line 4"},
		{"unknown type", head + "property quad x\n", "a vertex property needs"},
		{"unknown keyword", head + "quad x\n", "unknown keyword"},
		{
			"no z",
			head + "property float x\nproperty float y\nend_header\n" + strings.Repeat("\x00", 16),
			"lack x, y or z",
		},
		{"no properties", head + "end_header\n", "lack x, y or z"},
		{
			"float colours",
			head + xyz + "property float red\nproperty float green\nproperty float blue\nend_header\n" +
				strings.Repeat("\x00", 48),
			"property red is float",
		},
		{"cut off", head + xyz + "end_header\n" + strings.Repeat("\x00", 23), "cut off in vertex 1 of 2"},
		{"no format", "ply\nelement vertex 0\nend_header\n", "the format or"},
		{"too many properties", head + strings.Repeat("property float a\n", 65), "more than 64 properties"},
		{"too many lines", "ply\n" + strings.Repeat("comment\n", 300), "more than 200 lines"},
		{"long line", "ply\n" + strings.Repeat("x", 2000), "header line 2: more than 1000 characters"},
		{
			"ASCII cut off",
			"ply\nformat ascii 1.0\nelement vertex 2\n" + xyz + "end_header\n1 2 3\n",
			"cut off in vertex 1 of 2",
		},
		{
			"ASCII values",
			"ply\nformat ascii 1.0\nelement vertex 1\n" + xyz + "end_header\n1 2\n",
			"vertex 0 has 2 values, not 3",
		},
		{"ASCII word", "ply\nformat ascii 1.0\nelement vertex 1\n" + xyz + "end_header\n1 b 2\n", "vertex 0, y"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := Read(strings.NewReader(tt.file)); err == nil || !strings.Contains(err.Error(), tt.wantErr) {
				t.Errorf("error %v, want %q", err, tt.wantErr)
			}
		})
	}
	for _, v := range []float32{33, float32(math.NaN()), float32(math.Inf(1))} {
		if _, err := (Cloud{XYZ: []float32{0, v, 0}}).Points(1000); err == nil ||
			!strings.Contains(err.Error(), "point 0: y") {
			t.Errorf("%g m: %v", v, err)
		}
	}
	if err := Write(&bytes.Buffer{}, pointcloud.Points{XYZ: make([]int16, 3)}); err == nil {
		t.Error("points without colours written")
	}
}

func FuzzRead(f *testing.F) {
	var b bytes.Buffer
	if err := Write(&b, pointcloud.Points{XYZ: []int16{1, 2, 3}, RGB: []byte{4, 5, 6}}); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Add([]byte("ply\nformat ascii 1.0\nelement vertex 1\nfloat x\nfloat y\nfloat z\nend_header\n1 2 3\n"))
	f.Fuzz(func(t *testing.T, file []byte) {
		c, err := Read(bytes.NewReader(file))
		if err != nil {
			return
		}
		if len(c.XYZ)%3 != 0 || c.RGB != nil && len(c.RGB) != len(c.XYZ) || len(c.XYZ) > 3*len(file) {
			t.Fatalf("%d coordinates and %d colours from %d bytes", len(c.XYZ), len(c.RGB), len(file))
		}
		_, _ = c.Points(1000) // must not panic
	})
}
