package livescan

import (
	"bytes"
	"image"
	"image/color"
	"image/jpeg"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/image/tiff"

	"holocast/capture-server/source"
	"holocast/capture-server/source/synthetic"
	"holocast/internal/camera"
)

// writeStudio makes a studio of small images: NFOV 2×2 binned with 720p colour.
func writeStudio(t *testing.T, cameras, frames int) string {
	t.Helper()
	dir := t.TempDir()
	for c := range cameras {
		cal, err := synthetic.Calibration(c, camera.NFOV2x2Binned, camera.Color720P)
		if err != nil {
			t.Fatal(err)
		}
		cam := filepath.Join(dir, "kinect"+string(rune('A'+c)))
		write(t, filepath.Join(cam, "Intrinsics.json"), append(cal.Raw, 0))
		for k := 1; k <= frames; k++ {
			number := string(rune('0' + k))
			write(t, filepath.Join(cam, "depth_NFOV_2X2BINNED", "Depth_"+number+".tiff"), depthTIFF(t, 320, 288, uint16(1000*c+k)))
			write(t, filepath.Join(cam, "color_720p", "Color_"+number+".jpg"), colorJPEG(t, 1280, 720))
		}
	}
	return dir
}

func write(t *testing.T, path string, b []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
}

func depthTIFF(t testing.TB, w, h int, value uint16) []byte {
	t.Helper()
	img := image.NewGray16(image.Rect(0, 0, w, h))
	for i := range w * h {
		img.SetGray16(i%w, i/w, color.Gray16{Y: value})
	}
	var buf bytes.Buffer
	if err := tiff.Encode(&buf, img, &tiff.Options{Compression: tiff.Deflate}); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func colorJPEG(t testing.TB, w, h int) []byte {
	t.Helper()
	var buf bytes.Buffer
	if err := jpeg.Encode(&buf, image.NewRGBA(image.Rect(0, 0, w, h)), nil); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

var binned = Options{Depth: camera.NFOV2x2Binned, FPS: 1000}

func TestPlaysInStepAndLoops(t *testing.T) {
	cameras, err := Open(writeStudio(t, 2, 3), binned)
	if err != nil {
		t.Fatal(err)
	}
	if len(cameras) != 2 || cameras[0].Name() != "kinectA" || cameras[1].Name() != "kinectB" {
		t.Fatalf("cameras %v", cameras)
	}
	type moment struct {
		number int64
		due    int64
	}
	var first []moment
	for c, s := range cameras {
		for i := range 5 {
			var f source.Frame
			if err := s.Next(t.Context(), &f); err != nil {
				t.Fatal(err)
			}
			number := f.DeviceTime.Milliseconds() // 1000 frames per second
			if want := uint16(1000*c) + uint16(number%3) + 1; f.Depth[0] != want || len(f.Depth) != 320*288 {
				t.Errorf("camera %d frame %d has depth %d, want %d", c, number, f.Depth[0], want)
			}
			if f.Format != camera.MJPG || len(f.Color) == 0 {
				t.Errorf("camera %d: colour %s of %d bytes", c, f.Format, len(f.Color))
			}
			if c == 0 && i == 0 {
				first = append(first, moment{number, f.CaptureTime.UnixNano()})
			}
			if got, want := f.CaptureTime.UnixNano()-first[0].due, (number-first[0].number)*1e6; got != want {
				t.Errorf("camera %d frame %d is due %d ns after the first camera's first, want %d", c, number, got, want)
			}
		}
	}
}

func TestOpensOneCamera(t *testing.T) {
	dir := writeStudio(t, 1, 2)
	opts := binned
	opts.Frames = 1
	cameras, err := Open(filepath.Join(dir, "kinectA"), opts)
	if err != nil {
		t.Fatal(err)
	}
	if len(cameras) != 1 || cameras[0].Name() != "kinectA" || len(cameras[0].(*player).depth) != 1 {
		t.Errorf("cameras %v", cameras)
	}
}

func TestOpenRefuses(t *testing.T) {
	tests := []struct {
		name  string
		spoil func(t *testing.T, dir string)
		opts  Options
		want  string
	}{
		{"no such directory", func(t *testing.T, dir string) { remove(t, dir, "") }, binned, "no such file or directory"},
		{"empty directory", func(t *testing.T, dir string) { remove(t, dir, "kinectA") }, binned, "has neither an Intrinsics.json nor directories of cameras"},
		{"no calibration", func(t *testing.T, dir string) { remove(t, dir, "kinectA/Intrinsics.json") }, binned, "kinectA has no Intrinsics.json"},
		{"damaged calibration", func(t *testing.T, dir string) { write(t, filepath.Join(dir, "kinectA/Intrinsics.json"), []byte("{")) }, binned, "kinectA/Intrinsics.json: "},
		{"mode not recorded", func(*testing.T, string) {}, Options{Depth: camera.WFOVUnbinned}, "depth_WFOV_UNBINNED"},
		{"colour image missing", func(t *testing.T, dir string) { remove(t, dir, "kinectA/color_720p/Color_2.jpg") }, binned, "depth_NFOV_2X2BINNED has 2 depth images, "},
		{"numbers differ", func(t *testing.T, dir string) {
			old := filepath.Join(dir, "kinectA/color_720p/Color_2.jpg")
			if err := os.Rename(old, filepath.Join(dir, "kinectA/color_720p/Color_3.jpg")); err != nil {
				t.Fatal(err)
			}
		}, binned, "Depth_2.tiff and "},
		{"no images", func(t *testing.T, dir string) {
			for _, f := range []string{"depth_NFOV_2X2BINNED/Depth_1.tiff", "depth_NFOV_2X2BINNED/Depth_2.tiff", "color_720p/Color_1.jpg", "color_720p/Color_2.jpg"} {
				remove(t, dir, "kinectA/"+f)
			}
		}, binned, "has no Depth_*.tiff"},
		{"depth of another mode", func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, "kinectA/depth_NFOV_2X2BINNED/Depth_1.tiff"), depthTIFF(t, 640, 576, 1))
		}, binned, "Depth_1.tiff: depth image is 640×576, the depth mode has 320×288"},
		{"depth of 8 bits", func(t *testing.T, dir string) {
			var buf bytes.Buffer
			if err := tiff.Encode(&buf, image.NewGray(image.Rect(0, 0, 320, 288)), nil); err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(dir, "kinectA/depth_NFOV_2X2BINNED/Depth_1.tiff"), buf.Bytes())
		}, binned, "Depth_1.tiff: depth image is *image.Gray, want 16 bits of grey"},
		{"hostile size", func(t *testing.T, dir string) {
			b := depthTIFF(t, 320, 288, 1)
			// The width's entry: tag 256, type 3 or 4, count 1, value.
			at := bytes.Index(b, []byte{0x00, 0x01, 0x03, 0x00, 0x01, 0x00, 0x00, 0x00, 0x40, 0x01})
			if at < 0 {
				at = bytes.Index(b, []byte{0x00, 0x01, 0x04, 0x00, 0x01, 0x00, 0x00, 0x00, 0x40, 0x01})
			}
			copy(b[at+8:], []byte{0xff, 0xff})
			write(t, filepath.Join(dir, "kinectA/depth_NFOV_2X2BINNED/Depth_1.tiff"), b)
		}, binned, "depth image is 65535×288, the depth mode has 320×288"},
		{"cut off depth", func(t *testing.T, dir string) {
			path := filepath.Join(dir, "kinectA/depth_NFOV_2X2BINNED/Depth_2.tiff")
			write(t, path, depthTIFF(t, 320, 288, 1)[:60])
		}, binned, "Depth_2.tiff: "},
		{"cut off colour", func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, "kinectA/color_720p/Color_2.jpg"), colorJPEG(t, 1280, 720)[:1000])
		}, binned, "Color_2.jpg: mjpeg: corrupt JPEG image of 1000 bytes"},
		{"colour of another mode", func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, "kinectA/color_720p/Color_1.jpg"), colorJPEG(t, 640, 480))
		}, binned, "Color_1.jpg: colour image is 640×480, the colour mode has 1280×720"},
		{"frame rate", func(*testing.T, string) {}, Options{FPS: -30}, "frame rate is -30"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := writeStudio(t, 1, 2)
			tt.spoil(t, dir)
			if _, err := Open(dir, tt.opts); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one with %q", err, tt.want)
			}
		})
	}
}

func remove(t *testing.T, dir, name string) {
	t.Helper()
	if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
		t.Fatal(err)
	}
}

func TestRealStudio(t *testing.T) {
	data := os.Getenv("HOLOCAST_DATA")
	if data == "" {
		data = "../../../../shared/data"
	}
	dir := filepath.Join(data, "livescan_testdata")
	if _, err := os.Stat(dir); err != nil {
		t.Skipf("HOLOCAST_DATA not found: %v", err)
	}
	for _, depth := range []camera.DepthMode{camera.NFOVUnbinned, camera.WFOV2x2Binned} {
		for _, color := range []camera.ColorMode{camera.Color720P, camera.Color1080P} {
			cameras, err := Open(dir, Options{Depth: depth, Color: color, Frames: 1})
			if err != nil {
				t.Fatal(err)
			}
			if len(cameras) != 4 {
				t.Errorf("%d cameras, want 4", len(cameras))
			}
		}
	}
}

func FuzzDecodeDepth(f *testing.F) {
	good := depthTIFF(f, 16, 8, 1234)
	f.Add(good)
	f.Add(good[:40])
	f.Add([]byte("II*\x00\x08\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		depth, err := decodeDepth(b, 16, 8)
		if err == nil && len(depth) != 16*8 {
			t.Errorf("%d pixels", len(depth))
		}
	})
}
