package pointcloud

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// inflate returns the planes of an object.
func inflate(t testing.TB, object []byte) []byte {
	t.Helper()
	raw, err := tryInflate(object)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func tryInflate(object []byte) ([]byte, error) {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1))
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return d.DecodeAll(object[HeaderLen:], nil)
}

// assemble builds an object from a header and planes that may not match.
func assemble(t testing.TB, h Header, raw []byte) []byte {
	t.Helper()
	e, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		t.Fatal(err)
	}
	object := e.EncodeAll(raw, h.Append(nil))
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	return object
}

// TestPlanes compares the encoder's planes with the reference's.
func TestPlanes(t *testing.T) {
	e, _ := newCodec(t, EncoderOptions{})
	for _, p := range patterns() {
		for _, size := range sizes {
			t.Run(fmt.Sprintf("%s %d×%d", p.name, size[0], size[1]), func(t *testing.T) {
				g := p.grid(size[0], size[1], 3)
				c := cloud(g)
				for i := range 5 {
					h := Header{Descriptions: 4}
					if i == 4 {
						h.Descriptions, i = 1, 0
					}
					ph := phaseOf(uint8(i), h.Descriptions)
					object, err := encodeGrid(e, nil, h, g, i)
					if err != nil {
						t.Fatal(err)
					}
					raw, points := gridPlanes(nil, g, ph)
					comparePlanes(t, object, raw, points)
					got := Grid{
						Width:  g.Width,
						Height: g.Height,
						Depth:  make([]uint16, len(g.Depth)),
						Color:  make([]byte, len(g.Color)),
					}
					if !planesToGrid(raw, points, &got, ph) {
						t.Fatal("the reference refuses its own planes")
					}
					if h.Descriptions == 1 && (!slices.Equal(got.Depth, g.Depth) || !slices.Equal(got.Color, g.Color)) {
						t.Fatal("the reference does not undo its own planes")
					}

					for _, layout := range cloudLayouts() {
						h.Layout = layout
						if object, err = encodePoints(e, h, c, i); err != nil {
							t.Fatal(err)
						}
						raw, points = layouts[layout].planes(nil, &Frame{Layout: layout, Points: *c}, ph)
						comparePlanes(t, object, raw, points)
					}
				}
			})
		}
	}
}

func comparePlanes(t *testing.T, object, raw []byte, points int) {
	t.Helper()
	h, err := ParseHeader(object)
	if err != nil {
		t.Fatal(err)
	}
	if int(h.Points) != points || int(h.RawLength) != len(raw) {
		t.Fatalf("header says %d points in %d bytes, want %d in %d", h.Points, h.RawLength, points, len(raw))
	}
	if !bytes.Equal(inflate(t, object), raw) {
		t.Fatal("the planes are not the reference's")
	}
}
