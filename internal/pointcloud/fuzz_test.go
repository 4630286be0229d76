package pointcloud

import (
	"errors"
	"testing"
)

// fuzzPixels bounds the decoder's allocation.
const fuzzPixels = 1 << 16

func FuzzDecode(f *testing.F) {
	e, err := NewEncoder(EncoderOptions{})
	if err != nil {
		f.Fatal(err)
	}
	defer e.Close()
	for _, p := range patterns() {
		g := p.grid(19, 7, 1)
		c := cloud(g)
		for _, n := range []uint8{1, 4} {
			object, err := encodeGrid(e, nil, Header{Descriptions: n}, g, int(n)-1)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(object[:HeaderLen], inflate(f, object), object)
			for _, layout := range cloudLayouts() {
				if object, err = encodePoints(e, Header{Layout: layout, Descriptions: n}, c, int(n)-1); err != nil {
					f.Fatal(err)
				}
				f.Add(object[:HeaderLen], inflate(f, object), object)
			}
		}
	}
	// Fuzz the planes before compression, as fuzzing behind zstd is ineffective. object is fuzzed
	// unchanged.
	f.Fuzz(func(t *testing.T, header, raw, object []byte) {
		_, d := newCodec(t, EncoderOptions{})
		d.MaxPoints = fuzzPixels
		decodeAny(t, d, object)
		h, err := ParseHeader(header)
		if err != nil {
			return
		}
		h.RawLength = uint32(len(raw))
		decodeAny(t, d, assemble(t, h, raw))
	})
}

// decodeAny decodes an object of any layout and compares the result with the reference's.
func decodeAny(t *testing.T, d *Decoder, object []byte) {
	h, err := ParseHeader(object)
	if err != nil || h.Layout == LayoutVideo {
		return
	}
	var f Frame
	_, err = d.Decode(&f, object)
	got := frameBytes(&f)
	if len(got) > 9*fuzzPixels {
		t.Fatalf("a frame of %d bytes is above the decoder's limit", len(got))
	}
	var broken *FormatError
	if errors.As(err, &broken) && broken.Field != "planes" {
		return
	}
	// The two zstd decoders may treat a damaged frame without checksum differently.
	raw, inflateErr := tryInflate(object)
	if inflateErr != nil {
		return
	}
	taken := err == nil
	want := Frame{
		Layout: f.Layout,
		Grid: Grid{
			Width:  f.Grid.Width,
			Height: f.Grid.Height,
			Depth:  make([]uint16, len(f.Grid.Depth)),
			Color:  make([]byte, len(f.Grid.Color)),
		},
		Points: Points{XYZ: make([]int16, len(f.Points.XYZ)), RGB: make([]byte, len(f.Points.RGB))},
	}
	if ok := layouts[h.Layout].undo(raw, int(h.Points), &want, h.target()); ok != taken {
		t.Fatalf("the reference's verdict on the planes is %v, the decoder's error %v", ok, err)
	}
	if taken && string(got) != string(frameBytes(&want)) {
		t.Fatal("the reference decodes another frame")
	}
}

func FuzzRoundTrip(f *testing.F) {
	f.Add(uint16(3), []byte{0, 0, 1, 2, 3, 255, 255, 9, 8, 7}, false)
	f.Add(uint16(1), []byte("depth and colour of pixels"), true)
	f.Add(uint16(200), make([]byte, 5000), true)
	f.Fuzz(func(t *testing.T, width uint16, content []byte, four bool) {
		n := len(content) / 5
		w := int(width)%MaxSide + 1
		h := n / w
		if h == 0 || h > MaxSide || n > fuzzPixels {
			return
		}
		g := &Grid{Width: w, Height: h, Depth: make([]uint16, w*h), Color: make([]byte, 3*w*h)}
		for i := range g.Depth {
			b := content[5*i : 5*i+5]
			if g.Depth[i] = uint16(b[0]) | uint16(b[1])<<8; g.Depth[i] != 0 {
				copy(g.Color[3*i:], b[2:])
			}
		}
		descriptions := uint8(1)
		if four {
			descriptions = 4
		}
		e, d := newCodec(t, EncoderOptions{})
		checkGrid(t, e, d, g, descriptions)
		c := cloud(g)
		for _, layout := range cloudLayouts() {
			checkPoints(t, e, d, c, layout, descriptions)
		}
	})
}
