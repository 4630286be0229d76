package sphere

import (
	"context"
	"image"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"holocast/internal/catalog"
	"holocast/internal/ffmpeg"
	"holocast/internal/tile360"
	"holocast/internal/tileencoder"
	"holocast/internal/x264"
)

const testWidth, testHeight, testFrames = 512, 256, 30

// testPicture returns frame n of a sphere with moving stripes.
func testPicture(n int) *image.YCbCr {
	p := image.NewYCbCr(image.Rect(0, 0, testWidth, testHeight), image.YCbCrSubsampleRatio420)
	for y := range testHeight {
		for x := range testWidth {
			p.Y[p.YOffset(x, y)] = byte(128 + 60*math.Sin(float64(x+8*n)/2) + 40*math.Cos(float64(y+x)/15))
		}
	}
	for i := range p.Cb {
		p.Cb[i], p.Cr[i] = byte(100+i%50), 140
	}
	return p
}

// encoded encodes a GoP of tiles like a publisher. It writes the source to a file.
func encoded(t *testing.T, sphere catalog.Sphere) (tracks map[key]*received, file string) {
	t.Helper()
	enc, err := tileencoder.New(tileencoder.Config{Sphere: sphere, FPSNum: 30, FPSDen: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer enc.Close()
	tracks = map[key]*received{}
	var mu sync.Mutex
	raw := filepath.Join(t.TempDir(), "raw")
	var all []byte
	for n := range testFrames {
		p := testPicture(n)
		all = append(append(append(all, p.Y...), p.Cb...), p.Cr...)
		var f tileencoder.Frame
		f.Eyes[0] = x264.Picture{Y: p.Y, Cb: p.Cb, Cr: p.Cr, YStride: p.YStride, CStride: p.CStride}
		err := enc.Encode(&f, n == 0, nil, func(tile, quality int, payload []byte) error {
			mu.Lock()
			defer mu.Unlock()
			k := key{tile, quality}
			if tile == tileencoder.Video {
				k = key{-1, 0}
			}
			if tracks[k] == nil {
				tracks[k] = &received{config: enc.Config(tile, quality)}
			}
			tracks[k].frames = append(tracks[k].frames, frame{payload: append([]byte{}, payload...)})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(raw, all, 0o600); err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(t.TempDir(), "source.mp4")
	err = ffmpeg.Run(t.Context(), "-f", "rawvideo", "-pix_fmt", "yuv420p", "-s", "512x256", "-r", "30", "-i", raw,
		"-c:v", "libx264", "-qp", "1", file)
	if err != nil {
		t.Fatal(err)
	}
	return tracks, file
}

func TestDecodedPSNR(t *testing.T) {
	sphere := catalog.Sphere{
		Projection: catalog.ProjectionEquirectangular,
		Stereo:     catalog.StereoMono,
		Width:      testWidth,
		Height:     testHeight,
		Columns:    4,
		Rows:       2,
		Qualities:  2,
	}
	tracks, file := encoded(t, sphere)
	d, err := newDecoder(Config{Viewport: tile360.Degrees(90, 90), Reference: file}, slog.Default())
	if err != nil {
		t.Fatal(err)
	}
	defer d.close()
	w, h := tileencoder.VideoSize(&sphere)
	all := func(quality int) map[int]int {
		q := map[int]int{}
		for tile := range sphere.Tiles() {
			q[tile] = quality
		}
		return q
	}
	job := &job{
		sphere: sphere, video: image.Pt(w, h), tracks: tracks,
		grid:  tile360.Grid{Columns: 4, Rows: 2, Width: testWidth, Height: testHeight},
		slots: []slotShown{{frame: 1}, {frame: 14, quality: all(0)}, {frame: 29, quality: all(1)}},
	}
	for i := range job.slots {
		job.slots[i].gaze = tile360.Direction(float64(i), 0.2)
	}
	d.offer(job)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		psnr, decoded, missed := d.results()
		if missed > 0 || time.Now().After(deadline) {
			t.Fatalf("%d GoPs decoded, %d missed", decoded, missed)
		}
		if decoded == 0 {
			continue
		}
		// The slots show, in order: low-resolution sphere, lowest quality, highest quality.
		if len(psnr) != 3 || !(psnr[0] > 15) || !(psnr[1] > psnr[0]) || !(psnr[2] > psnr[1]) || !(psnr[2] > 33) {
			t.Errorf("viewport PSNR %.1f dB, want three increasing values, the first > 15 and the last > 33", psnr)
		}
		break
	}
	v := &Viewer{decoder: d}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	v.Finish(ctx)
	if p := v.Picture(64); p == nil || p.Bounds().Dx() != 64 || p.Bounds().Dy() != 64 {
		t.Errorf("picture %v", p)
	}
}

func TestReferenceMissing(t *testing.T) {
	file := filepath.Join(t.TempDir(), "none.mp4")
	if _, err := openReference(t.Context(), file, &catalog.Sphere{Width: 512, Height: 256}); err == nil {
		t.Error("opened a missing file")
	}
}
