package pointvideo

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/klauspost/compress/zstd"

	"holocast/internal/pointcloud"
)

var update = flag.Bool("update", false, "rewrite the vectors in testdata")

// manifest is testdata/manifest.json: the expected results of the vectors.
type manifest struct {
	Comment string          `json:"comment"`
	Valid   []validVector   `json:"valid"`
	Invalid []invalidVector `json:"invalid"`
}

type validVector struct {
	Name   string        `json:"name"`
	Width  int           `json:"width"`
	Height int           `json:"height"`
	Frames []frameVector `json:"frames"` // decoded in order
}

type frameVector struct {
	Object   string `json:"object"`
	Index    int    `json:"index"`
	Sequence uint32 `json:"sequence"`
	Points   uint32 `json:"points"`
	Depth    string `json:"depth"`
	Color    string `json:"color"`
}

type invalidVector struct {
	Name    string   `json:"name"`
	Objects []string `json:"objects"`
	Error   string   `json:"error"` // FormatError.Field
}

const manifestComment = "Little-endian. depth and color are the SHA-256 of the decoded frame: width*height uint16, " +
	"row-major; R G B for each pixel, 0 without a point. Invalid: all objects but the last decode, in order."

func TestVectors(t *testing.T) {
	if *update {
		writeVectors(t)
	}
	var m manifest
	if err := json.Unmarshal(readVector(t, "manifest.json"), &m); err != nil {
		t.Fatal(err)
	}
	for _, v := range m.Valid {
		t.Run(v.Name, func(t *testing.T) {
			d := newDecoder(t)
			for _, f := range v.Frames {
				if got := decodeVector(t, d, f.Object, readVector(t, f.Object)); got != f {
					t.Errorf("%+v, want %+v", got, f)
				}
			}
		})
	}
	for _, v := range m.Invalid {
		t.Run(v.Name, func(t *testing.T) {
			d := newDecoder(t)
			var g pointcloud.Grid
			for i, name := range v.Objects {
				_, err := d.Decode(&g, readVector(t, name))
				var damage *pointcloud.FormatError
				switch {
				case i < len(v.Objects)-1 && err != nil:
					t.Fatalf("%s: %v", name, err)
				case i == len(v.Objects)-1 && (!errors.As(err, &damage) || damage.Field != v.Error):
					t.Errorf("error %v, want one about %q", err, v.Error)
				}
			}
		})
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

func decodeVector(t testing.TB, d *Decoder, name string, object []byte) frameVector {
	t.Helper()
	var g pointcloud.Grid
	h, err := d.Decode(&g, object)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	index, err := Index(object)
	if err != nil {
		t.Fatal(err)
	}
	depth := binary.LittleEndian.AppendUint16(nil, 0)[:0]
	for _, z := range g.Depth {
		depth = binary.LittleEndian.AppendUint16(depth, z)
	}
	return frameVector{name, index, h.Sequence, h.Points, digest(depth), digest(g.Color)}
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// writeVectors writes testdata from the scenes.
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
	for _, s := range scenes() {
		w.valid(s)
	}
	w.invalid()
	b, err := json.MarshalIndent(w.m, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	w.file("manifest.json", append(b, '\n'))
}

type vectorWriter struct {
	t testing.TB
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

func (w *vectorWriter) valid(s scene) {
	v := validVector{Name: s.name, Width: s.width, Height: s.height}
	d := newDecoder(w.t)
	for i, object := range s.encode(w.t) {
		v.Frames = append(v.Frames, decodeVector(w.t, d, w.file(fmt.Sprintf("%s-%d.hcpf", s.name, i), object), object))
	}
	w.m.Valid = append(w.m.Valid, v)
}

// invalid writes one vector per violation: objects of the first scene, the last of them damaged.
func (w *vectorWriter) invalid() {
	all := scenes()[0].encode(w.t)
	key, second := all[0], all[1]
	add := func(name, field string, last []byte, before ...string) {
		file := w.file("bad-"+name+".hcpf", last)
		w.m.Invalid = append(w.m.Invalid, invalidVector{name, append(before, file), field})
	}
	patched := func(b []byte, offset int, v ...byte) []byte {
		b = slices.Clone(b)
		copy(b[offset:], v)
		return b
	}
	patch := func(name, field string, offset int, v ...byte) { add(name, field, patched(key, offset, v...)) }

	add("empty", "length", nil)
	add("header-cut", "length", key[:43])
	add("parameters-cut", "length", key[:59])
	patch("map-length", "length", 52, 0xff, 0xff, 0xff, 0xff)
	patch("depth-length", "length", 56, 0xff, 0xff, 0xff, 0xff)
	patch("magic", "magic", 0, 'h')
	patch("version", "version", 4, 2)
	patch("layout", "layout", 5, 5)
	patch("codec", "codec", 6, 1)
	patch("flags", "flags", 7, 1)
	patch("description", "description", 30, 1)
	patch("descriptions", "descriptions", 31, 4)
	patch("width-zero", "width", 32, 0, 0)
	patch("width-large", "width", 32, 0x01, 0x10)
	patch("height-zero", "height", 34, 0, 0)
	patch("height-large", "height", 34, 0xff, 0xff)
	patch("points", "points", 36, 0x01, 0x0c, 0, 0) // 64·48 + 1
	patch("raw-length-zero", "raw length", 40, 0, 0, 0, 0)
	patch("raw-length-long", "raw length", 40, 0x02, 0x24, 0, 0) // 3·64·48 + 2
	patch("sigma0", "parameters", 44, 0, 0)
	patch("step-zero", "parameters", 48, 0)
	patch("step-large", "parameters", 48, 129)
	patch("reserved", "parameters", 49, 1)
	add("no-key", "index", second)
	add("gap", "index", all[2], "room-0.hcpf")
	add("repeated", "index", all[1], "room-0.hcpf", "room-1.hcpf")
	add("other-camera", "parameters", patched(second, 28, 9), "room-0.hcpf")
	add("other-sigma", "parameters", patched(second, 46, 9), "room-0.hcpf")
	add("other-step", "parameters", patched(second, 48, 9), "room-0.hcpf")
	patch("raw-length", "zstd", 40, key[40]+1)
	patch("zstd-magic", "zstd", headerLen, 0)

	o, err := parse(key)
	if err != nil {
		w.t.Fatal(err)
	}
	raw := inflate(w.t, o.planes)
	planes := func(name string, points uint32, raw []byte) {
		o := o
		o.header.Points, o.header.RawLength, o.planes = points, uint32(len(raw)), deflate(w.t, raw)
		add(name, "planes", o.assemble())
	}
	more := o
	more.planes = append(slices.Clone(o.planes), 1, 2, 3)
	add("zstd-more", "zstd", more.assemble())
	none := o
	none.planes = nil
	add("zstd-none", "zstd", none.assemble())
	planes("points-few", o.header.Points-1, raw)
	planes("symbol-missing", o.header.Points, raw[:len(raw)-1])
	planes("symbol-left", o.header.Points, append(slices.Clone(raw), 0))
	planes("symbol-invalid", o.header.Points, append(slices.Clone(raw[:len(raw)-1]), 7))
	planes("runs-open", o.header.Points, []byte{1, 1, 1})
	planes("runs-long", o.header.Points, slices.Repeat([]byte{255}, 14))
	planes("symbol-predicted", 0, []byte{0, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 11, 8}) // 0 again

	picture := func(name string, change func(o *object), before ...string) {
		b := key
		if len(before) > 0 {
			b = second
		}
		o, err := parse(b)
		if err != nil {
			w.t.Fatal(err)
		}
		change(&o)
		add(name, "picture", o.assemble(), before...)
	}
	next, err := parse(second)
	if err != nil {
		w.t.Fatal(err)
	}
	other, err := parse(scenes()[1].encode(w.t)[0])
	if err != nil {
		w.t.Fatal(err)
	}
	picture("depth-none", func(o *object) { o.depth = nil })
	picture("color-none", func(o *object) { o.color = nil })
	picture("depth-not-idr", func(o *object) { o.depth = next.depth })
	picture("color-not-idr", func(o *object) { o.color = next.color })
	picture("depth-size", func(o *object) { o.depth = other.depth })
	picture("color-size", func(o *object) { o.color = other.color })
	picture("depth-no-slice", func(o *object) { o.depth = bytes.Clone(o.depth[:12]) })
	picture("next-none", func(o *object) { o.color = nil }, "room-0.hcpf")
}

// assemble returns the object.
func (o *object) assemble() []byte {
	return slices.Concat(o.append(nil), o.planes, o.depth, o.color)
}

func deflate(t testing.TB, raw []byte) []byte {
	t.Helper()
	z, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	return z.EncodeAll(raw, nil)
}

func inflate(t testing.TB, b []byte) []byte {
	t.Helper()
	z, err := zstd.NewReader(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	raw, err := z.DecodeAll(b, nil)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}
