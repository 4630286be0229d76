package pointcloud

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// pattern fills a grid with content that is difficult for a codec.
type pattern struct {
	name  string
	depth func(r *rand.Rand, x, y int) uint16
	color func(r *rand.Rand, x, y int) [3]byte
}

func patterns() []pattern {
	extreme := func(r *rand.Rand) byte { return byte(-r.IntN(2)) }
	smooth := func(_ *rand.Rand, x, y int) [3]byte { return [3]byte{byte(x * 3), byte(x + y), byte(y * 2)} }
	return []pattern{
		{"empty", func(*rand.Rand, int, int) uint16 { return 0 }, smooth},
		{"full", func(*rand.Rand, int, int) uint16 { return 1500 }, smooth},
		{"slope", func(_ *rand.Rand, x, y int) uint16 { return uint16(500 + 3*x + 2*y) }, smooth},
		{
			"holes",
			func(r *rand.Rand, x, y int) uint16 { return uint16(min(1, r.IntN(5)) * (900 + x + r.IntN(5))) },
			smooth,
		},
		{
			"extremes", func(r *rand.Rand, _, _ int) uint16 { return uint16(-r.IntN(2)) },
			func(r *rand.Rand, _, _ int) [3]byte { return [3]byte{extreme(r), extreme(r), extreme(r)} },
		},
		{
			"checkerboard", func(_ *rand.Rand, x, y int) uint16 { return uint16((x + y) % 2 * 65535) },
			func(_ *rand.Rand, x, y int) [3]byte {
				b := byte(-(x & 1))
				return [3]byte{b, ^b, b}
			},
		},
		{
			"noise", func(r *rand.Rand, _, _ int) uint16 { return uint16(r.Uint32()) },
			func(r *rand.Rand, _, _ int) [3]byte {
				return [3]byte{byte(r.Uint32()), byte(r.Uint32()), byte(r.Uint32())}
			},
		},
	}
}

var sizes = [][2]int{{1, 1}, {2, 1}, {1, 2}, {3, 3}, {7, 5}, {63, 2}, {64, 3}, {65, 4}, {129, 31}, {640, 11}}

// grid returns a grid with colour 0 where it has no points, so that it compares equal after
// decoding.
func (p pattern) grid(width, height int, seed uint64) *Grid {
	r := rand.New(rand.NewPCG(seed, 1))
	g := &Grid{Width: width, Height: height, Depth: make([]uint16, width*height), Color: make([]byte, 3*width*height)}
	for i := range g.Depth {
		g.Depth[i] = p.depth(r, i%width, i/width)
		if c := p.color(r, i%width, i/width); g.Depth[i] != 0 {
			copy(g.Color[3*i:], c[:])
		}
	}
	return g
}

// cloud returns the grid's points. x and y combine position and depth, so they are as difficult to
// encode as the depths.
func cloud(g *Grid) *Points {
	p := &Points{XYZ: []int16{}, RGB: []byte{}}
	for i, d := range g.Depth {
		if d != 0 {
			p.XYZ = append(p.XYZ, int16(d)-int16(i%g.Width), int16(i/g.Width)^int16(d), int16(d))
			p.RGB = append(p.RGB, g.Color[3*i:3*i+3]...)
		}
	}
	return p
}

func newCodec(t testing.TB, o EncoderOptions) (*Encoder, *Decoder) {
	t.Helper()
	e, err := NewEncoder(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	d, err := NewDecoder()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return e, d
}

// cloudLayouts returns the layouts without a grid.
func cloudLayouts() []Layout {
	return slices.DeleteFunc(Layouts(), Layout.OnGrid)
}

func encodeGrid(e *Encoder, dst []byte, h Header, g *Grid, description int) ([]byte, error) {
	return e.Encode(dst, h, &Frame{Layout: LayoutGrid, Grid: *g}, description)
}

// encodePoints encodes in h's layout, by default layout B.
func encodePoints(e *Encoder, h Header, p *Points, description int) ([]byte, error) {
	return e.Encode(nil, h, &Frame{Layout: cmp.Or(h.Layout, LayoutPoints), Points: *p}, description)
}

func decodeGrid(d *Decoder, g *Grid, objects ...[]byte) (Header, error) {
	f := Frame{Grid: *g}
	h, err := d.Decode(&f, objects...)
	*g = f.Grid
	return h, err
}

func decodePoints(d *Decoder, p *Points, object []byte) (Header, error) {
	f := Frame{Points: *p}
	h, err := d.Decode(&f, object)
	*p = f.Points
	return h, err
}

func TestGridRoundTrip(t *testing.T) {
	for _, p := range patterns() {
		for _, size := range sizes {
			for _, o := range []EncoderOptions{{}, {Level: 3}} {
				t.Run(fmt.Sprintf("%s %d×%d level %d", p.name, size[0], size[1], o.Level), func(t *testing.T) {
					e, d := newCodec(t, o)
					g := p.grid(size[0], size[1], 7)
					for _, n := range []uint8{1, 4} {
						checkGrid(t, e, d, g, n)
					}
				})
			}
		}
	}
}

// checkGrid encodes g in n descriptions and decodes each separately and all together.
func checkGrid(t testing.TB, e *Encoder, d *Decoder, g *Grid, n uint8) {
	t.Helper()
	head := Header{Sequence: 0xfedcba98, DeviceTime: 1 << 60, CaptureTime: 1763665200123456, Camera: 3, Descriptions: n}
	prefix := []byte("prefix")
	objects := make([][]byte, 0, n)
	var got Grid
	points := 0
	for i := range int(n) {
		object, err := encodeGrid(e, slices.Clone(prefix), head, g, i)
		if err != nil {
			t.Fatal(err)
		}
		if string(object[:len(prefix)]) != string(prefix) {
			t.Fatalf("the bytes before the object became %q", object[:len(prefix)])
		}
		object = object[len(prefix):]
		h, err := decodeGrid(d, &got, object)
		if err != nil {
			t.Fatalf("description %d of %d: %v", i, n, err)
		}
		want := head
		want.Layout, want.Codec, want.Width, want.Height = LayoutGrid, CodecZstd, uint16(g.Width), uint16(g.Height)
		want.Description, want.Points, want.RawLength = uint8(i), h.Points, h.RawLength
		if h != want {
			t.Fatalf("header %+v, want %+v", h, want)
		}
		ph := phaseOf(uint8(i), n)
		for j, depth := range g.Depth {
			mine := j%g.Width%ph.step == ph.dx && j/g.Width%ph.step == ph.dy
			if !mine {
				depth = 0
			}
			if got.Depth[j] != depth {
				t.Fatalf("description %d of %d, pixel (%d, %d): depth %d, want %d", i, n, j%g.Width, j/g.Width,
					got.Depth[j], depth)
			}
		}
		points += int(h.Points)
		objects = append(objects, object)
	}
	slices.Reverse(objects)
	h, err := decodeGrid(d, &got, objects...)
	if err != nil {
		t.Fatal(err)
	}
	if int(h.Points) != points {
		t.Errorf("%d points of all descriptions, want %d", h.Points, points)
	}
	if !slices.Equal(got.Depth, g.Depth) || !slices.Equal(got.Color, g.Color) {
		t.Fatal("the decoded grid is not the encoded one")
	}
}

func TestPointsRoundTrip(t *testing.T) {
	for _, p := range patterns() {
		for _, size := range sizes {
			for _, layout := range cloudLayouts() {
				t.Run(fmt.Sprintf("%s %d×%d layout %s", p.name, size[0], size[1], layout), func(t *testing.T) {
					e, d := newCodec(t, EncoderOptions{})
					c := cloud(p.grid(size[0], size[1], 7))
					for _, n := range []uint8{1, 4} {
						checkPoints(t, e, d, c, layout, n)
					}
				})
			}
		}
	}
}

func checkPoints(t testing.TB, e *Encoder, d *Decoder, c *Points, layout Layout, n uint8) {
	t.Helper()
	var objects [][]byte
	var all Points // of the objects, in order
	for i := range int(n) {
		object, err := encodePoints(e, Header{Layout: layout, Descriptions: n}, c, i)
		if err != nil {
			t.Fatal(err)
		}
		var got Points
		h, err := decodePoints(d, &got, object)
		if err != nil {
			t.Fatalf("description %d of %d: %v", i, n, err)
		}
		want := Points{XYZ: []int16{}, RGB: []byte{}}
		for j := i; j < len(c.XYZ)/3; j += int(n) {
			want.XYZ = append(want.XYZ, c.XYZ[3*j:3*j+3]...)
			want.RGB = append(want.RGB, c.RGB[3*j:3*j+3]...)
		}
		if int(h.Points) != len(want.XYZ)/3 || !slices.Equal(got.XYZ, want.XYZ) || !slices.Equal(got.RGB, want.RGB) {
			t.Fatalf("description %d of %d: the decoded cloud is not the encoded one", i, n)
		}
		objects = append(objects, object)
		all.XYZ, all.RGB = append(all.XYZ, want.XYZ...), append(all.RGB, want.RGB...)
	}
	var f Frame
	h, err := d.Decode(&f, objects...)
	if err != nil {
		t.Fatal(err)
	}
	if int(h.Points) != len(c.XYZ)/3 || !slices.Equal(f.Points.XYZ, all.XYZ) || !slices.Equal(f.Points.RGB, all.RGB) {
		t.Fatalf("%d descriptions together: the decoded cloud is not the encoded one", n)
	}
}

func TestDescriptionsOfOneFrame(t *testing.T) {
	e, d := newCodec(t, EncoderOptions{})
	g := patterns()[1].grid(8, 6, 1)
	object := func(l Layout, sequence uint32, description int) []byte {
		b, err := e.Encode(nil, Header{Sequence: sequence, Descriptions: 4},
			&Frame{Layout: l, Grid: *g, Points: *cloud(g)}, description)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for _, l := range Layouts() {
		other := Layouts()[0]
		if l == other {
			other = Layouts()[1]
		}
		for name, tt := range map[string]struct {
			limit   int
			objects [][]byte
			want    string
		}{
			"frames":            {0, [][]byte{object(l, 1, 0), object(l, 2, 1)}, "mismatch"},
			"layouts":           {0, [][]byte{object(l, 1, 0), object(other, 1, 1)}, "mismatch"},
			"description twice": {0, [][]byte{object(l, 1, 2), object(l, 1, 2)}, "description"},
			"more than its size": {
				20,
				[][]byte{object(l, 1, 0), object(l, 1, 1)},
				map[bool]string{true: "width", false: "points"}[l.OnGrid()],
			},
		} {
			t.Run(l.String()+" "+name, func(t *testing.T) {
				var f Frame
				d.MaxPoints = tt.limit
				_, err := d.Decode(&f, tt.objects...)
				var broken *FormatError
				if !errors.As(err, &broken) || broken.Field != tt.want {
					t.Errorf("error %v, want one about %q", err, tt.want)
				}
			})
		}
	}
}

func TestParseLayout(t *testing.T) {
	for _, l := range Layouts() {
		for _, name := range []string{l.String(), strings.ToLower(l.String())} {
			if got, ok := ParseLayout(name); !ok || got != l {
				t.Errorf("%q: layout %s, %v", name, got, ok)
			}
		}
	}
	for _, name := range []string{"", "D", "AB", "layout 1"} {
		if got, ok := ParseLayout(name); ok {
			t.Errorf("%q: layout %s", name, got)
		}
	}
}
