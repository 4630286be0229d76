package synthetic

import (
	"bytes"
	"image"
	"image/color"
	"image/jpeg"
	"image/png"
	"os"
	"path/filepath"
	"testing"
)

// TestPictures writes what the sensors see as PNG files, for people to look at:
// go test -run Pictures -artifacts -outputdir DIR.
func TestPictures(t *testing.T) {
	dir := t.ArtifactDir()
	studio, err := Open(t.Context(), Options{Cameras: 4, Frames: 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range studio.Cameras {
		s := c.(*sensor)
		f := s.frames[0]
		img, err := jpeg.Decode(bytes.NewReader(f.color))
		if err != nil {
			t.Fatal(err)
		}
		writePNG(t, filepath.Join(dir, s.name+"-color.png"), img)
		gray := image.NewGray(image.Rect(0, 0, s.cal.Depth.Width, s.cal.Depth.Height))
		for p, z := range f.depth {
			if z > 0 {
				gray.SetGray(p%s.cal.Depth.Width, p/s.cal.Depth.Width, color.Gray{Y: uint8(max(20, 255-int(z-1000)/10))})
			}
		}
		writePNG(t, filepath.Join(dir, s.name+"-depth.png"), gray)
	}
}

func writePNG(t *testing.T, path string, img image.Image) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := (&png.Encoder{CompressionLevel: png.BestSpeed}).Encode(f, img); err != nil {
		t.Fatal(err)
	}
}
