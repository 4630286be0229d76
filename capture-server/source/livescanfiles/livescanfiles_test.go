package livescanfiles

import (
	"bytes"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/jpeg"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/image/tiff"

	"holocast/capture-server/source"
	"holocast/capture-server/source/synthetic"
	"holocast/internal/camera"
)

// writeStudio creates a studio of small images: NFOV 2×2 binned with 720p colour.
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
			write(t, filepath.Join(cam, "depth_NFOV_2X2BINNED", "Depth_"+number+".tiff"),
				depthTIFF(t, 320, 288, uint16(1000*c+k)))
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

// jpegs caches colorJPEG's results, since encoding is slow under the race detector.
var jpegs = map[image.Point][]byte{}

func colorJPEG(t testing.TB, w, h int) []byte {
	t.Helper()
	if b, ok := jpegs[image.Pt(w, h)]; ok {
		return b
	}
	var buf bytes.Buffer
	if err := jpeg.Encode(&buf, image.NewRGBA(image.Rect(0, 0, w, h)), nil); err != nil {
		t.Fatal(err)
	}
	jpegs[image.Pt(w, h)] = buf.Bytes()
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
				t.Errorf("camera %d frame %d is due %d ns after the first camera's first, want %d", c, number, got,
					want)
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
	if len(cameras) != 1 || cameras[0].Name() != "kinectA" || len(cameras[0].(*player).files) != 1 {
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
		{
			"no such directory",
			func(t *testing.T, dir string) { remove(t, dir, "") },
			binned,
			"no such file or directory",
		},
		{
			"empty directory",
			func(t *testing.T, dir string) { remove(t, dir, "kinectA") },
			binned,
			"has neither an Intrinsics.json nor camera directories",
		},
		{
			"no calibration",
			func(t *testing.T, dir string) { remove(t, dir, "kinectA/Intrinsics.json") },
			binned,
			"kinectA has no Intrinsics.json",
		},
		{
			"damaged calibration",
			func(t *testing.T, dir string) { write(t, filepath.Join(dir, "kinectA/Intrinsics.json"), []byte("{")) },
			binned,
			"kinectA/Intrinsics.json: ",
		},
		{"mode not recorded", func(*testing.T, string) {}, Options{Depth: camera.WFOVUnbinned}, "depth_WFOV_UNBINNED"},
		{
			"colour image missing",
			func(t *testing.T, dir string) { remove(t, dir, "kinectA/color_720p/Color_2.jpg") },
			binned,
			"depth_NFOV_2X2BINNED has 2 depth images, ",
		},
		{"numbers differ", func(t *testing.T, dir string) {
			old := filepath.Join(dir, "kinectA/color_720p/Color_2.jpg")
			if err := os.Rename(old, filepath.Join(dir, "kinectA/color_720p/Color_3.jpg")); err != nil {
				t.Fatal(err)
			}
		}, binned, "has no image for "},
		{"no images", func(t *testing.T, dir string) {
			for _, f := range []string{
				"depth_NFOV_2X2BINNED/Depth_1.tiff", "depth_NFOV_2X2BINNED/Depth_2.tiff",
				"color_720p/Color_1.jpg", "color_720p/Color_2.jpg",
			} {
				remove(t, dir, "kinectA/"+f)
			}
		}, binned, "has no Depth_*.tiff"},
		{"depth of another mode", func(t *testing.T, dir string) {
			removeSecond(t, dir)
			write(t, filepath.Join(dir, "kinectA/depth_NFOV_2X2BINNED/Depth_1.tiff"), depthTIFF(t, 640, 576, 1))
		}, binned, "Depth_1.tiff: depth image is 640×576, the depth mode has 320×288"},
		{"depth of 8 bits", func(t *testing.T, dir string) {
			removeSecond(t, dir)
			var buf bytes.Buffer
			if err := tiff.Encode(&buf, image.NewGray(image.Rect(0, 0, 320, 288)), nil); err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(dir, "kinectA/depth_NFOV_2X2BINNED/Depth_1.tiff"), buf.Bytes())
		}, binned, "Depth_1.tiff: depth image is *image.Gray, want 16-bit grey"},
		{"hostile size", func(t *testing.T, dir string) {
			removeSecond(t, dir)
			b := depthTIFF(t, 320, 288, 1)
			// The width's TIFF entry: tag 256, type 3 or 4, count 1, value.
			at := bytes.Index(b, []byte{0x00, 0x01, 0x03, 0x00, 0x01, 0x00, 0x00, 0x00, 0x40, 0x01})
			if at < 0 {
				at = bytes.Index(b, []byte{0x00, 0x01, 0x04, 0x00, 0x01, 0x00, 0x00, 0x00, 0x40, 0x01})
			}
			copy(b[at+8:], []byte{0xff, 0xff})
			write(t, filepath.Join(dir, "kinectA/depth_NFOV_2X2BINNED/Depth_1.tiff"), b)
		}, binned, "depth image is 65535×288, the depth mode has 320×288"},
		{"cut off depth", func(t *testing.T, dir string) {
			removeSecond(t, dir)
			path := filepath.Join(dir, "kinectA/depth_NFOV_2X2BINNED/Depth_1.tiff")
			write(t, path, depthTIFF(t, 320, 288, 1)[:60])
		}, binned, "Depth_1.tiff: "},
		{"colour without a header", func(t *testing.T, dir string) {
			removeSecond(t, dir)
			write(t, filepath.Join(dir, "kinectA/color_720p/Color_1.jpg"), colorJPEG(t, 1280, 720)[:20])
		}, binned, "Color_1.jpg: mjpeg: corrupt JPEG image of 20 bytes"},
		{"all frames damaged", func(t *testing.T, dir string) {
			for _, n := range []string{"1", "2"} {
				write(t, filepath.Join(dir, "kinectA/depth_NFOV_2X2BINNED/Depth_"+n+".tiff"), nil)
			}
		}, binned, "Depth_1.tiff: "},
		{"colour of another mode", func(t *testing.T, dir string) {
			removeSecond(t, dir)
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

// removeSecond removes the second of a studio's two frames.
func removeSecond(t *testing.T, dir string) {
	t.Helper()
	remove(t, dir, "kinectA/depth_NFOV_2X2BINNED/Depth_2.tiff")
	remove(t, dir, "kinectA/color_720p/Color_2.jpg")
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

// TestPublishedTestSet uses the test set's own directory names.
func TestPublishedTestSet(t *testing.T) {
	dir := writeStudio(t, 2, 2)
	for _, c := range []string{"kinectA", "kinectB"} {
		rename(t, dir, c+"/depth_NFOV_2X2BINNED", c+"/depthImages/NFOV_2X2BINNED")
		rename(t, dir, c+"/color_720p", c+"/colorImages/720p")
	}
	cameras, err := Open(dir, binned)
	if err != nil {
		t.Fatal(err)
	}
	if len(cameras) != 2 || len(cameras[1].(*player).files) != 2 {
		t.Errorf("cameras %v", cameras)
	}
	if _, err := Open(dir, Options{}); !errors.Is(err, ErrMode) {
		t.Errorf("error %v, want %v", err, ErrMode)
	}
}

func rename(t *testing.T, dir, from, to string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, to)), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(dir, from), filepath.Join(dir, to)); err != nil {
		t.Fatal(err)
	}
}

// writeTake creates a take in LiveScan3D's layout. numbers[c] maps client c's frame numbers to
// capture times in µs. Depth is the frame number plus 1000·c.
func writeTake(t *testing.T, numbers ...map[int]uint64) string {
	t.Helper()
	dir := t.TempDir()
	for c, frames := range numbers {
		cal, err := synthetic.Calibration(c%4, camera.NFOV2x2Binned, camera.Color720P)
		if err != nil {
			t.Fatal(err)
		}
		client := filepath.Join(dir, fmt.Sprintf("client_%d", c))
		write(t, filepath.Join(client, fmt.Sprintf("Intrinsics_Calib_%d.json", c)), append(cal.Raw, 0))
		var stamps []byte
		for _, n := range slices.Sorted(maps.Keys(frames)) {
			write(t, filepath.Join(client, fmt.Sprintf("Depth_%d.tiff", n)), depthTIFF(t, 320, 288, uint16(1000*c+n)))
			write(t, filepath.Join(client, fmt.Sprintf("Color_%d.jpg", n)), colorJPEG(t, 1280, 720))
			stamps = fmt.Appendf(stamps, "%d\t%d\n", n, frames[n])
		}
		write(t, filepath.Join(client, fmt.Sprintf("Timestamps_Client%d.txt", c)), stamps)
	}
	return dir
}

// played returns the depths and device times of the next n frames.
func played(t *testing.T, s source.Source, n int) (depths []uint16, times []time.Duration) {
	t.Helper()
	for range n {
		var f source.Frame
		if err := s.Next(t.Context(), &f); err != nil {
			t.Fatal(err)
		}
		depths, times = append(depths, f.Depth[0]), append(times, f.DeviceTime)
	}
	return depths, times
}

func TestTake(t *testing.T) {
	const ms = time.Millisecond
	tests := []struct {
		name   string
		take   []map[int]uint64
		change func(t *testing.T, dir string)
		keep   bool
		client int
		depths []uint16
		times  []time.Duration
	}{
		{
			"by timestamps",
			[]map[int]uint64{{0: 5_000_000, 1: 5_010_000, 2: 5_030_000}},
			nil, true, 0,
			[]uint16{0, 1, 2, 0},
			[]time.Duration{0, 10 * ms, 30 * ms, 40 * ms},
		},
		{
			"one frame ahead",
			[]map[int]uint64{{0: 5_000_000, 1: 5_010_000, 2: 5_030_000}},
			nil, false, 0,
			[]uint16{0, 1, 2, 0},
			[]time.Duration{0, 10 * ms, 30 * ms, 40 * ms},
		},
		{
			"a frame missing at one",
			[]map[int]uint64{{0: 0, 1: 10_000, 2: 20_000}, {0: 1_000, 2: 21_000}},
			nil, true, 1,
			[]uint16{1000, 1002, 1000},
			[]time.Duration{1 * ms, 21 * ms, 42 * ms},
		},
		{
			"devices without a common clock",
			[]map[int]uint64{{0: 0, 1: 10_000}, {0: 900_000_000, 1: 900_010_000}},
			nil, true, 1,
			[]uint16{1000, 1001, 1000},
			[]time.Duration{0, 10 * ms, 20 * ms},
		},
		{
			"a clock that stepped back",
			[]map[int]uint64{{0: 90_000_000, 1: 90_010_000, 2: 10_000, 3: 20_000}},
			nil, true, 0,
			[]uint16{0, 1, 2, 3, 0},
			[]time.Duration{0, 10 * ms, 20 * ms, 30 * ms, 40 * ms},
		},
		{"no time stamps, a frame missing", []map[int]uint64{{0: 0, 1: 0, 3: 0}}, func(t *testing.T, dir string) {
			remove(t, dir, "client_0/Timestamps_Client0.txt")
		}, true, 0, []uint16{0, 1, 3, 0}, []time.Duration{0, 10 * ms, 30 * ms, 40 * ms}},
		{
			"synchronised, with a placeholder",
			[]map[int]uint64{{0: 0, 1: 10_000, 2: 20_000}},
			func(t *testing.T, dir string) {
				for n := range 3 {
					for _, name := range []string{fmt.Sprintf("Depth_%d.tiff", n), fmt.Sprintf("Color_%d.jpg", n)} {
						rename(t, dir, "client_0/"+name, "client_0/synced_"+name)
					}
				}
				write(t, filepath.Join(dir, "client_0/synced_Depth_1.tiff"), depthTIFF(t, 1, 1, 0))
				write(t, filepath.Join(dir, "client_0/Depth_7.tiff"), depthTIFF(t, 320, 288, 7))
			},
			true,
			0,
			[]uint16{0, 2, 0},
			[]time.Duration{0, 20 * ms, 30 * ms},
		},
		{"a colour image missing", []map[int]uint64{{0: 0, 1: 10_000}}, func(t *testing.T, dir string) {
			remove(t, dir, "client_0/Color_0.jpg")
		}, true, 0, []uint16{0, 1}, []time.Duration{0, 10 * ms}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := writeTake(t, tt.take...)
			if tt.change != nil {
				tt.change(t, dir)
			}
			synctest.Test(t, func(t *testing.T) { // reading takes no time on the fake clock
				cameras, err := Open(dir, Options{FPS: 100})
				if err != nil {
					t.Fatal(err)
				}
				p := cameras[tt.client].(*player)
				if !tt.keep {
					p.kept = nil
				}
				depths, times := played(t, p, len(tt.depths))
				if !slices.Equal(depths, tt.depths) || !slices.Equal(times, tt.times) {
					t.Errorf("frames %v at %v, want %v at %v", depths, times, tt.depths, tt.times)
				}
				for _, c := range cameras {
					if err := c.Close(); err != nil {
						t.Error(err)
					}
				}
			})
		})
	}
}

// TestSoundOfTake checks that the sound begins with the first frame and has the period of the frames.
func TestSoundOfTake(t *testing.T) {
	stamped := writeTake(t, map[int]uint64{0: 5_000_000, 1: 5_010_000, 2: 5_030_000},
		map[int]uint64{0: 5_000_000, 1: 5_010_000, 2: 5_030_000})
	for _, c := range []struct {
		name, dir string
		want      time.Duration
	}{
		{"stamped", stamped, 40 * time.Millisecond},
		{"by rate", writeStudio(t, 2, 3), 3 * time.Millisecond},
		{"still", writeStudio(t, 1, 1), 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			write(t, filepath.Join(c.dir, "audio.wav"), []byte("RIFF"))
			cameras, err := Open(c.dir, binned)
			if err != nil {
				t.Fatal(err)
			}
			sound := SoundOf(cameras[0])
			if sound == nil || sound.Path != filepath.Join(c.dir, "audio.wav") || sound.Period != c.want {
				t.Fatalf("%+v", sound)
			}
			for _, s := range cameras {
				var f source.Frame
				if err := s.Next(t.Context(), &f); err != nil {
					t.Fatal(err)
				}
				if SoundOf(s) != sound || !f.CaptureTime.Equal(sound.Start().Add(f.DeviceTime)) {
					t.Errorf("%s: %+v, frame captured at %v", s.Name(), SoundOf(s), f.CaptureTime)
				}
			}
		})
	}
	cameras, err := Open(writeStudio(t, 1, 1), binned)
	if err != nil || SoundOf(cameras[0]) != nil {
		t.Errorf("sound without a file: %v", err)
	}
}

func TestTakeOrder(t *testing.T) {
	take := make([]map[int]uint64, 11)
	for i := range take {
		take[i] = map[int]uint64{0: 1}
	}
	cameras, err := Open(writeTake(t, take...), Options{})
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range cameras {
		if want := fmt.Sprintf("client_%d", i); c.Name() != want {
			t.Errorf("camera %d is %s, want %s", i, c.Name(), want)
		}
	}
}

func TestTakeRefused(t *testing.T) {
	tests := []struct {
		name  string
		spoil func(t *testing.T, dir string)
		want  string
	}{
		{
			"no image",
			func(t *testing.T, dir string) { remove(t, dir, "client_0/Depth_0.tiff") },
			"client_0 has no Depth_*.tiff with an image",
		},
		{"placeholders only", func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, "client_0/Depth_0.tiff"), depthTIFF(t, 1, 1, 0))
		}, "client_0 has no Depth_*.tiff with an image"},
		{
			"no colour",
			func(t *testing.T, dir string) { remove(t, dir, "client_0/Color_0.jpg") },
			"client_0: no Color_*.jpg has the same number as a Depth_*.tiff",
		},
		{"no mode of that size", func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, "client_0/Depth_0.tiff"), depthTIFF(t, 100, 100, 0))
		}, "Depth_0.tiff: depth image is 100×100, which is not the size of any Azure Kinect mode"},
		{"no colour mode of that size", func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, "client_0/Color_0.jpg"), colorJPEG(t, 64, 64))
		}, "Color_0.jpg: colour image is 64×64, which is not the size of any Azure Kinect mode"},
		{"cut off depth", func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, "client_0/Depth_0.tiff"), depthTIFF(t, 320, 288, 1)[:60])
		}, "Depth_0.tiff: "},
		{"time stamps of another kind", func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, "client_0/Timestamps_Client0.txt"), []byte("0\t12\n1\tlate\n"))
		}, `Timestamps_Client0.txt: line 2: "late" is not a time in microseconds`},
		{"too many columns", func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, "client_0/Timestamps_Client0.txt"), []byte("0\t12\t13\n"))
		}, "line 1: 3 fields"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := writeTake(t, map[int]uint64{0: 0})
			tt.spoil(t, dir)
			if _, err := Open(dir, Options{}); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one with %q", err, tt.want)
			}
		})
	}
}

// TestTakeDamaged checks that an unreadable frame is reported once and that no other frame is lost.
func TestTakeDamaged(t *testing.T) {
	for name, damage := range map[string]struct {
		file string // of frame N
		data []byte
	}{
		"empty depth":            {"Depth_N.tiff", nil},
		"cut off depth":          {"Depth_N.tiff", depthTIFF(t, 320, 288, 1)[:60]},
		"depth of another mode":  {"Depth_N.tiff", depthTIFF(t, 640, 576, 1)},
		"depth of no mode":       {"Depth_N.tiff", depthTIFF(t, 100, 100, 1)},
		"empty colour":           {"Color_N.jpg", nil},
		"cut off colour":         {"Color_N.jpg", colorJPEG(t, 1280, 720)[:20]},
		"colour of another mode": {"Color_N.jpg", colorJPEG(t, 64, 64)},
	} {
		for n := range 3 {
			if n == 0 && name == "depth of another mode" {
				continue // the first image determines the mode
			}
			for _, keep := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s %d keep %v", name, n, keep), func(t *testing.T) {
					dir := writeTake(t, map[int]uint64{0: 0, 1: 10_000, 2: 20_000})
					write(t, filepath.Join(dir, "client_0", strings.Replace(damage.file, "N", fmt.Sprint(n), 1)), damage.data)
					synctest.Test(t, func(t *testing.T) { testDamaged(t, dir, n, keep) })
				})
			}
		}
	}
}

// testDamaged plays three passes of a take whose frame n of 3 is damaged.
func testDamaged(t *testing.T, dir string, n int, keep bool) {
	cameras, err := Open(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	p := cameras[0].(*player)
	if !keep {
		p.kept = nil
		if err := p.load(false); err != nil {
			t.Fatal(err)
		}
	}
	var got, want []int
	for i := range 9 {
		if i%3 != n {
			want = append(want, i%3)
		}
	}
	reports := 0
	for len(got) < len(want) {
		var f source.Frame
		var damage *source.DamageError
		if err := p.Next(t.Context(), &f); errors.As(err, &damage) {
			reports++
		} else if err != nil {
			t.Fatal(err)
		} else {
			got = append(got, int(f.Depth[0]))
		}
	}
	if !slices.Equal(got, want) || reports != 1 {
		t.Errorf("frames %v, damage reported %d times, want %v and once", got, reports, want)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

// TestForeignFiles checks that a take plays despite files from other programs.
func TestForeignFiles(t *testing.T) {
	const bom = "\xef\xbb\xbf"
	for name, tt := range map[string]struct {
		change func(t *testing.T, dir string)
		log    string
	}{
		"a folder of a Mac's zip": {func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, "__MACOSX/client_0/._Depth_0.tiff"), []byte("x"))
			write(t, filepath.Join(dir, "client_0/._Depth_0.tiff"), []byte("x"))
			write(t, filepath.Join(dir, ".DS_Store"), []byte("x"))
		}, "__MACOSX"},
		"sound":         {func(t *testing.T, dir string) { write(t, filepath.Join(dir, "audio/take.wav"), nil) }, "audio"},
		"a point cloud": {func(t *testing.T, dir string) { write(t, filepath.Join(dir, "merged_0.ply"), nil) }, ""},
		"byte order mark": {func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, "client_0/Timestamps_Client0.txt"), []byte(bom+"0\t0\r\n1\t10000\r\n"))
		}, ""},
		"a calibration with a byte order mark": {func(t *testing.T, dir string) {
			path := filepath.Join(dir, "client_0/Intrinsics_Calib_0.json")
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			write(t, path, append([]byte(bom), b...))
		}, ""},
		"time stamps cut off": {func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, "client_0/Timestamps_Client0.txt"), []byte("0\t0\n1\t10000\n2"))
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := writeTake(t, map[int]uint64{0: 0, 1: 10_000})
			tt.change(t, dir)
			var log bytes.Buffer
			cameras, err := Open(dir, Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
			if err != nil {
				t.Fatal(err)
			}
			if len(cameras) != 1 || !strings.Contains(log.String(), tt.log) || (tt.log == "") != (log.Len() == 0) {
				t.Errorf("%d cameras, log %q, want 1 and %q", len(cameras), log.String(), tt.log)
			}
			if fps := cameras[0].FPS(); fps != 100 {
				t.Errorf("%v frames per second, want 100", fps)
			}
		})
	}
}

func FuzzParseStamps(f *testing.F) {
	f.Add([]byte("0\t5000\n1\t5033\n"))
	f.Add([]byte("0 5000\r\n\r\n"))
	f.Add([]byte("\xef\xbb\xbf0\t5000\n1"))
	f.Add([]byte("-1\t99999999999999999999\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		stamps, err := parseStamps(b)
		if err != nil && stamps != nil || len(stamps) > len(b) {
			t.Errorf("%d stamps of %d bytes, error %v", len(stamps), len(b), err)
		}
	})
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
