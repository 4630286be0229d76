package pointvideo

import (
	"testing"

	"holocast/internal/pointcloud"
)

// nfov is the room in the size of an Azure Kinect's grid.
func nfov() scene { return scene{name: "nfov", width: 640, height: 576, frames: 6, draw: room} }

func BenchmarkEncode(b *testing.B) {
	s := nfov()
	grids := s.grids()
	e := newEncoder(b, Config{Width: s.width, Height: s.height})
	var dst []byte
	for n := 0; b.Loop(); n++ {
		var err error
		if dst, err = e.Encode(dst[:0], pointcloud.Header{}, &grids[n%len(grids)], n%30 == 0); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	objects := nfov().encode(b)
	d := newDecoder(b)
	var g pointcloud.Grid
	for n := 0; b.Loop(); n++ {
		if _, err := d.Decode(&g, objects[n%len(objects)]); err != nil {
			b.Fatal(err)
		}
	}
}
