package pointcloud

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the vectors in testdata")

// manifest is testdata/manifest.json: the expected results of the vectors.
type manifest struct {
	Comment string          `json:"comment"`
	Valid   []validVector   `json:"valid"`
	Invalid []invalidVector `json:"invalid"`
}

type validVector struct {
	Name     string   `json:"name"`
	Objects  []string `json:"objects"`  // decoded together
	Expected string   `json:"expected"` // decoded frame, see manifest.Comment
	Header   struct {
		Layout       string `json:"layout"`
		Sequence     uint32 `json:"sequence"`
		DeviceTime   string `json:"deviceTime"` // decimal; past 2⁵³ in one vector
		CaptureTime  string `json:"captureTime"`
		Camera       uint16 `json:"camera"`
		Description  uint8  `json:"description"`
		Descriptions uint8  `json:"descriptions"`
		Width        uint16 `json:"width"`
		Height       uint16 `json:"height"`
		Points       uint32 `json:"points"` // of all objects
	} `json:"header"` // of the first object
}

type invalidVector struct {
	Objects []string `json:"objects"`
	Error   string   `json:"error"` // FormatError.Field
}

const manifestComment = "Little-endian. Expected frame of layout A: depth, width*height uint16, row-major; " +
	"then colour, R G B for each pixel, 0 without a point. Of layouts B and C: X Y Z for each point, int16; " +
	"then R G B for each point."

func TestVectors(t *testing.T) {
	if *update {
		writeVectors(t)
	}
	var m manifest
	if err := json.Unmarshal(readVector(t, "manifest.json"), &m); err != nil {
		t.Fatal(err)
	}
	for _, v := range m.Valid {
		t.Run(v.Name, func(t *testing.T) { checkValid(t, v) })
	}
	for _, v := range m.Invalid {
		t.Run(strings.TrimSuffix(v.Objects[0], ".hcpf"), func(t *testing.T) {
			_, _, err := decodeVector(t, v.Objects)
			var broken *FormatError
			if !errors.As(err, &broken) || broken.Field != v.Error {
				t.Errorf("error %v, want one about %q", err, v.Error)
			}
		})
	}
}

func checkValid(t *testing.T, v validVector) {
	h, frame, err := decodeVector(t, v.Objects)
	if err != nil {
		t.Fatal(err)
	}
	if got := describeVector(v.Name, v.Objects, v.Expected, h); got.Header != v.Header {
		t.Errorf("header %+v, want %+v", got.Header, v.Header)
	}
	if !slices.Equal(frame, readVector(t, v.Expected)) {
		t.Errorf("the frame is not %s", v.Expected)
	}
}

func readVector(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// decodeVector decodes objects together and returns the frame in the format of the expected files.
func decodeVector(t testing.TB, names []string) (Header, []byte, error) {
	t.Helper()
	_, d := newCodec(t, EncoderOptions{})
	objects := make([][]byte, 0, len(names))
	for _, name := range names {
		objects = append(objects, readVector(t, name))
	}
	var f Frame
	h, err := d.Decode(&f, objects...)
	return h, frameBytes(&f), err
}

func frameBytes(f *Frame) []byte {
	if f.Layout.OnGrid() {
		return gridBytes(&f.Grid)
	}
	return pointsBytes(&f.Points)
}

func gridBytes(g *Grid) []byte {
	var b []byte
	for _, d := range g.Depth {
		b = binary.LittleEndian.AppendUint16(b, d)
	}
	return append(b, g.Color...)
}

func pointsBytes(p *Points) []byte {
	var b []byte
	for _, v := range p.XYZ {
		b = binary.LittleEndian.AppendUint16(b, uint16(v))
	}
	return append(b, p.RGB...)
}

func describeVector(name string, objects []string, expected string, h Header) validVector {
	v := validVector{Name: name, Objects: objects, Expected: expected}
	v.Header.Layout = h.Layout.String()
	v.Header.Sequence, v.Header.Camera = h.Sequence, h.Camera
	v.Header.DeviceTime, v.Header.CaptureTime = decimal(h.DeviceTime), decimal(h.CaptureTime)
	v.Header.Description, v.Header.Descriptions = h.Description, h.Descriptions
	v.Header.Width, v.Header.Height, v.Header.Points = h.Width, h.Height, h.Points
	return v
}

func decimal(v uint64) string { b, _ := json.Marshal(v); return string(b) }

// writeVectors writes testdata from the test patterns.
func writeVectors(t *testing.T) {
	old, err := filepath.Glob("testdata/*.*")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range old {
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
	w := vectorWriter{t: t, m: manifest{Comment: manifestComment}}
	w.e, w.d = newCodec(t, EncoderOptions{})
	for _, p := range patterns() {
		size := [2]int{17, 9}
		switch p.name {
		case "holes":
			size = [2]int{67, 50}
		case "empty":
			size = [2]int{300, 2}
		case "full":
			size = [2]int{1, 1}
		}
		w.pattern(p.name, p.grid(size[0], size[1], 11))
	}
	w.drift()
	w.invalid()
	b, err := json.MarshalIndent(w.m, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	w.file("manifest.json", append(b, '\n'))
}

type vectorWriter struct {
	t testing.TB
	e *Encoder
	d *Decoder
	m manifest
}

func (w *vectorWriter) file(name string, b []byte) string {
	w.t.Helper()
	if err := os.MkdirAll("testdata", 0o755); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join("testdata", name), b, 0o644); err != nil {
		w.t.Fatal(err)
	}
	return name
}

func vectorHeader(descriptions uint8) Header {
	return Header{
		Sequence:     4000000000,
		DeviceTime:   1<<63 + 1,
		CaptureTime:  1763665200123456,
		Camera:       513,
		Descriptions: descriptions,
	}
}

// pattern writes g in every layout, in one description and in four.
func (w *vectorWriter) pattern(name string, g *Grid) {
	w.t.Helper()
	one := w.grid(name+"-a1", g, 1)
	w.valid(name+"-a1", one, w.file(name+"-a.bin", gridBytes(g)))
	four := w.grid(name+"-a4", g, 4)
	w.valid(name+"-a4", []string{four[2], four[0], four[3], four[1]}, name+"-a.bin")
	var first, middle Grid
	w.must(decodeGrid(w.d, &first, readVector(w.t, four[0])))
	w.valid(name+"-a4-0", four[:1], w.file(name+"-a4-0.bin", gridBytes(&first)))
	w.must(decodeGrid(w.d, &middle, readVector(w.t, four[1]), readVector(w.t, four[2])))
	w.valid(name+"-a4-12", four[1:3], w.file(name+"-a4-12.bin", gridBytes(&middle)))

	c := cloud(g)
	for _, layout := range cloudLayouts() {
		letter := strings.ToLower(layout.String())
		h := vectorHeader(1)
		h.Layout = layout
		object, err := encodePoints(w.e, h, c, 0)
		w.must(h, err)
		w.valid(name+"-"+letter+"1", []string{w.file(name+"-"+letter+"1.hcpf", object)},
			w.file(name+"-points.bin", pointsBytes(c)))
		h.Descriptions = 4
		if object, err = encodePoints(w.e, h, c, 3); err != nil {
			w.t.Fatal(err)
		}
		var last Points
		w.must(decodePoints(w.d, &last, object))
		w.valid(name+"-"+letter+"4-3", []string{w.file(name+"-"+letter+"4-3.hcpf", object)},
			w.file(name+"-points4-3.bin", pointsBytes(&last)))
	}
}

func (w *vectorWriter) must(_ Header, err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *vectorWriter) grid(name string, g *Grid, descriptions uint8) []string {
	w.t.Helper()
	names := make([]string, 0, descriptions)
	for i := range int(descriptions) {
		object, err := encodeGrid(w.e, nil, vectorHeader(descriptions), g, i)
		w.must(Header{}, err)
		file := name + ".hcpf"
		if descriptions > 1 {
			file = name + "-" + string(rune('0'+i)) + ".hcpf"
		}
		names = append(names, w.file(file, object))
	}
	return names
}

func (w *vectorWriter) valid(name string, objects []string, expected string) {
	w.t.Helper()
	h, _, err := decodeVector(w.t, objects)
	w.must(h, err)
	w.m.Valid = append(w.m.Valid, describeVector(name, objects, expected, h))
}

// drift writes a row whose R−G grows by 510 per pixel, beyond valid colours and 2¹⁵. Decoders must
// still agree.
func (w *vectorWriter) drift() {
	const n = 200
	raw := slices.Concat([]byte{0, n - 1}, []byte{0x20}, make([]byte, n/2-1), make([]byte, n/2),
		slices.Repeat([]byte{0xf0}, n), slices.Repeat([]byte{0xed, 0x07}, n))
	h := vectorHeader(1)
	h.Layout, h.Codec, h.Width, h.Height, h.Points, h.RawLength = LayoutGrid, CodecZstd, n/2, 2, n, uint32(len(raw))
	g := Grid{Width: n / 2, Height: 2, Depth: make([]uint16, n), Color: make([]byte, 3*n)}
	if !planesToGrid(raw, n, &g, phaseOf(0, 1)) {
		w.t.Fatal("the drifting planes are broken")
	}
	object := w.file("drift-a1.hcpf", assemble(w.t, h, raw))
	w.valid("drift-a1", []string{object}, w.file("drift-a.bin", gridBytes(&g)))
}

// invalid writes one object per format violation.
func (w *vectorWriter) invalid() {
	w.t.Helper()
	g := patterns()[3].grid(20, 10, 5)
	object, err := encodeGrid(w.e, nil, vectorHeader(1), g, 0)
	w.must(Header{}, err)
	head, err := ParseHeader(object)
	w.must(head, err)
	raw := inflate(w.t, object)
	add := func(name, field string, objects ...[]byte) {
		v := invalidVector{Error: field}
		for i, b := range objects {
			file := "bad-" + name
			if i > 0 {
				file += "-" + string(rune('0'+i))
			}
			v.Objects = append(v.Objects, w.file(file+".hcpf", b))
		}
		w.m.Invalid = append(w.m.Invalid, v)
	}
	patch := func(name, field string, change func([]byte)) {
		b := slices.Clone(object)
		change(b)
		add(name, field, b)
	}
	set := func(offset int, v ...byte) func([]byte) { return func(b []byte) { copy(b[offset:], v) } }

	add("empty", "length", nil)
	add("header-cut", "length", object[:HeaderLen-1])
	patch("magic", "magic", set(0, 'h'))
	patch("version", "version", set(4, 2))
	patch("layout", "layout", set(5, 5))
	patch("codec", "codec", set(6, 0))
	patch("flags", "flags", set(7, 128))
	patch("description", "description", set(30, 1))
	patch("descriptions", "descriptions", set(31, 2))
	patch("width-zero", "width", set(32, 0, 0))
	patch("width-large", "width", set(32, 0x01, 0x10))
	patch("height-zero", "height", set(34, 0, 0))
	patch("height-large", "height", set(34, 0xff, 0xff))
	patch("points-many", "points", set(36, 201, 0, 0, 0))
	patch("raw-length-long", "raw length", set(40, 0, 0, 0, 128))
	patch("raw-length-short", "raw length", set(40, 1, 0, 0, 0))
	patch("raw-length-off", "raw length", func(b []byte) { b[40]++ })
	patch("grid-of-layout-b", "width", set(5, byte(LayoutPoints)))
	patch("zstd-magic", "zstd", func(b []byte) { b[HeaderLen] ^= 1 })
	add("zstd-cut", "zstd", object[:len(object)-3])
	add("zstd-none", "zstd", object[:HeaderLen])
	add("zstd-more", "zstd", append(slices.Clone(object), 1, 2, 3, 4, 5))

	planes := func(name string, points int, raw []byte) {
		h := head
		h.Points, h.RawLength = uint32(points), uint32(len(raw))
		add("planes-"+name, "planes", assemble(w.t, h, raw))
	}
	n := int(head.Points)
	planes("points-few", n-1, raw)
	planes("mask-open", n, slices.Repeat([]byte{0}, len(raw)))
	planes("mask-long", n, slices.Concat([]byte{201}, raw[1:]))
	planes("no-escapes", n, slices.Concat(raw[:len(raw)-n], slices.Repeat([]byte{0xff}, n)))
	planes("escapes-left", n, append(slices.Clone(raw), 0))
	// A 1×1 grid with a single residual.
	pixel := func(name string, nibbles [3]byte, escapes ...byte) {
		h := head
		h.Width, h.Height, h.Points = 1, 1, 1
		b := slices.Concat([]byte{0, 0}, nibbles[:], escapes)
		h.RawLength = uint32(len(b))
		add("planes-"+name, "planes", assemble(w.t, h, b))
	}
	pixel("depth-escape-large", [3]byte{0xf0, 0, 0}, 0xf1, 0xff, 0x03)  // 65521 and 15
	pixel("green-escape-large", [3]byte{0x20, 0xf0, 0}, 0xf1, 0x01)     // 241 and 15
	pixel("chroma-escape-large", [3]byte{0x20, 0, 0xf0}, 0xee, 0x07)    // 1006 and 15
	pixel("escape-endless", [3]byte{0xf0, 0, 0}, 0x80, 0x80, 0x80, 0x0) // four bytes

	four := func(sequence uint32, i int) []byte {
		h := vectorHeader(4)
		h.Sequence = sequence
		b, err := encodeGrid(w.e, nil, h, g, i)
		w.must(h, err)
		return b
	}
	add("mismatch", "mismatch", four(1, 0), four(2, 1))
	add("description-twice", "description", four(1, 2), four(1, 2))

	c := cloud(g)
	points, err := encodePoints(w.e, vectorHeader(1), c, 0)
	w.must(Header{}, err)
	h, err := ParseHeader(points)
	w.must(h, err)
	pointsRaw := append(inflate(w.t, points), 0)
	h.RawLength++
	add("planes-b-escapes-left", "planes", assemble(w.t, h, pointsRaw))
	h.RawLength -= 2
	add("planes-b-cut", "planes", assemble(w.t, h, pointsRaw[:len(pointsRaw)-2]))
	h.Layout = LayoutInterleaved
	add("raw-length-c", "raw length", assemble(w.t, h, pointsRaw[:len(pointsRaw)-2]))
}
