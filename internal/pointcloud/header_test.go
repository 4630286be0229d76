package pointcloud

import (
	"strings"
	"testing"
)

func TestEncoderRefuses(t *testing.T) {
	if _, err := NewEncoder(EncoderOptions{Level: 20}); err == nil {
		t.Error("level 20 is taken")
	}
	e, _ := newCodec(t, EncoderOptions{})
	grid := func(w, h int) *Grid {
		return &Grid{Width: w, Height: h, Depth: make([]uint16, w*h), Color: make([]byte, 3*w*h)}
	}
	short := grid(4, 4)
	short.Color = short.Color[:40]
	cloud := &Points{XYZ: make([]int16, 6), RGB: make([]byte, 6)}
	tests := []struct {
		name   string
		encode func() ([]byte, error)
		want   string
	}{
		{"no pixels", func() ([]byte, error) { return encodeGrid(e, nil, Header{}, &Grid{}, 0) }, "grid of 0×0"},
		{"too wide", func() ([]byte, error) { return encodeGrid(e, nil, Header{}, grid(4097, 1), 0) }, "1 to 4096"},
		{
			"colour too short",
			func() ([]byte, error) { return encodeGrid(e, nil, Header{}, short, 0) },
			"40 colour bytes",
		},
		{
			"two descriptions",
			func() ([]byte, error) { return encodeGrid(e, nil, Header{Descriptions: 2}, grid(2, 2), 0) },
			"1 or 4",
		},
		{
			"description 4",
			func() ([]byte, error) { return encodeGrid(e, nil, Header{Descriptions: 4}, grid(2, 2), 4) },
			"description 4 of 4",
		},
		{"description -1", func() ([]byte, error) { return encodePoints(e, Header{}, cloud, -1) }, "description -1"},
		{"half a point", func() ([]byte, error) {
			return encodePoints(e, Header{}, &Points{XYZ: make([]int16, 4), RGB: make([]byte, 4)}, 0)
		}, "three of each"},
		{
			"points in a grid",
			func() ([]byte, error) { return encodePoints(e, Header{Layout: LayoutGrid}, cloud, 0) },
			"grid of 0×0",
		},
		{
			"no layout",
			func() ([]byte, error) { return e.Encode(nil, Header{}, &Frame{Points: *cloud}, 0) },
			"unknown layout 0",
		},
		{
			"unknown layout",
			func() ([]byte, error) { return e.Encode(nil, Header{}, &Frame{Layout: 200}, 0) },
			"unknown layout 200",
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			object, err := test.encode()
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one with %q", err, test.want)
			}
			if len(object) != 0 {
				t.Errorf("%d bytes of an object that cannot be", len(object))
			}
		})
	}
}

func TestDecoderRefuses(t *testing.T) {
	e, d := newCodec(t, EncoderOptions{})
	g := patterns()[1].grid(8, 8, 1)
	object, err := encodeGrid(e, nil, Header{}, g, 0)
	if err != nil {
		t.Fatal(err)
	}
	points, err := encodePoints(e, Header{}, cloud(g), 0)
	if err != nil {
		t.Fatal(err)
	}
	decodeGrid := func(limit int, objects ...[]byte) error {
		d.MaxPoints = limit
		_, err := decodeGrid(d, &Grid{}, objects...)
		return err
	}
	decodePoints := func(limit int, object []byte) error {
		d.MaxPoints = limit
		_, err := decodePoints(d, &Points{}, object)
		return err
	}
	tests := []struct {
		name string
		err  error
		want string
	}{
		{"nothing", decodeGrid(0), "no objects"},
		{"five objects", decodeGrid(0, object, object, object, object, object), "5 objects, at most 4"},
		{
			"grid and cloud",
			decodeGrid(0, object, points),
			"mismatch at byte 8: object 1 belongs to a different frame from object 0",
		},
		{
			"cloud and grid",
			decodeGrid(0, points, object),
			"mismatch at byte 8: object 1 belongs to a different frame from object 0",
		},
		{"grid above the limit", decodeGrid(63, object), "width at byte 32: 8×8 pixels exceed this decoder's limit of 63"},
		{"cloud above the limit", decodePoints(63, points), "points at byte 36: 64 points exceed this decoder's limit of 63"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if test.err == nil || !strings.Contains(test.err.Error(), test.want) {
				t.Errorf("error %v, want one with %q", test.err, test.want)
			}
		})
	}
	if err := decodeGrid(64, object); err != nil {
		t.Errorf("a grid at the limit: %v", err)
	}
}
