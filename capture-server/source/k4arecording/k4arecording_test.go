package k4arecording

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"holocast/capture-server/source"
	"holocast/capture-server/source/pace"
	"holocast/internal/camera"
	"holocast/internal/k4amkv"
)

var _ source.Source = (*Player)(nil)

// calibration is a factory calibration with an ideal depth lens.
const calibration = `{"CalibrationInformation":{"Cameras":[{"Intrinsics":{"ModelParameterCount":14,
"ModelParameters":[0.5,0.5,0.5,0.5,0,0,0,0,0,0,0,0,0,0],"ModelType":"CALIBRATION_LensDistortionModelBrownConrady"},
"Location":"CALIBRATION_CameraLocationD0","Rt":{"Rotation":[1,0,0,0,1,0,0,0,1],"Translation":[0,0,0]},
"SensorHeight":1024,"SensorWidth":1024}],"Metadata":{"SerialId":"42"}}}`

const device = 3 * time.Second // device time of a recording's first capture

// record writes a depth recording at 5 fps. Capture i has depth i+1 everywhere; captures in absent
// have only IR.
func record(t *testing.T, config k4amkv.Config, n int, absent ...int) string {
	t.Helper()
	return recordFrom(t, device, config, n, absent...)
}

// recordFrom is like record, but also sets the device time of the first capture.
func recordFrom(t *testing.T, first time.Duration, config k4amkv.Config, n int, absent ...int) string {
	t.Helper()
	config.FPS = 5
	path := filepath.Join(t.TempDir(), "studio.mkv")
	w, err := k4amkv.Create(path, config)
	if err != nil {
		t.Fatal(err)
	}
	width, height := config.DepthMode.Size()
	for i := range n {
		at := first + time.Duration(i)*200*time.Millisecond
		image := make([]uint16, width*height)
		for p := range image {
			image[p] = uint16(i + 1)
		}
		c := k4amkv.Capture{Depth: image, DepthTime: at}
		for _, a := range absent {
			if a == i {
				c = k4amkv.Capture{IR: image, IRTime: at}
			}
		}
		if err := w.WriteCapture(&c); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

var depthOnly = k4amkv.Config{DepthMode: camera.NFOV2x2Binned, Depth: true, Calibration: []byte(calibration)}

func open(t *testing.T, path string, options Options) *Player {
	t.Helper()
	p, err := Open(path, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func TestPace(t *testing.T) {
	path := record(t, depthOnly, 4)
	synctest.Test(t, func(t *testing.T) {
		p := open(t, path, Options{})
		if p.Name() != "studio" || p.Calibration().Serial != "42" || p.FPS() != 5 {
			t.Errorf("name %q, serial %q", p.Name(), p.Calibration().Serial)
		}
		start := time.Now()
		var f source.Frame
		for i := range 4 {
			if err := p.Next(t.Context(), &f); err != nil {
				t.Fatal(err)
			}
			offset := time.Duration(i) * 200 * time.Millisecond
			if f.DeviceTime != device+offset || !f.CaptureTime.Equal(start.Add(offset)) ||
				!time.Now().Equal(f.CaptureTime) {
				t.Errorf("frame %d: device time %v, captured %v, returned %v after the start", i, f.DeviceTime,
					f.CaptureTime.Sub(start), time.Since(start))
			}
			if f.Depth[0] != uint16(i+1) || f.Color != nil {
				t.Errorf("frame %d has depth %d", i, f.Depth[0])
			}
		}
		if err := p.Next(t.Context(), &f); !errors.Is(err, io.EOF) {
			t.Errorf("error %v, want EOF", err)
		}
	})
}

func TestLoop(t *testing.T) {
	path := record(t, depthOnly, 3)
	synctest.Test(t, func(t *testing.T) {
		p := open(t, path, Options{Take: pace.NewTake(true, nil), Name: "left"})
		start := time.Now()
		var last source.Frame
		for i := range 10 {
			var f source.Frame
			if err := p.Next(t.Context(), &f); err != nil {
				t.Fatal(err)
			}
			offset := time.Duration(i) * 200 * time.Millisecond
			if f.DeviceTime != device+offset || !f.CaptureTime.Equal(start.Add(offset)) || f.Depth[0] != uint16(i%3+1) {
				t.Errorf("frame %d: device time %v, captured %v after the start, depth %d", i, f.DeviceTime,
					f.CaptureTime.Sub(start), f.Depth[0])
			}
			if i > 0 && last.Depth[0] != uint16((i-1)%3+1) { // a frame stays valid until released
				t.Errorf("frame %d changed depth to %d when the next was read", i-1, last.Depth[0])
			}
			last.Release()
			last = f
		}
		if p.Name() != "left" || p.Dropped() != 0 {
			t.Errorf("name %q, %d dropped", p.Name(), p.Dropped())
		}
	})
}

// TestInStep plays two recordings of one take, which start and end at different times, for three
// passes.
func TestInStep(t *testing.T) {
	const interval = 200 * time.Millisecond
	paths := []string{recordFrom(t, device, depthOnly, 6), recordFrom(t, device+2*interval+interval/4, depthOnly, 5)}
	synctest.Test(t, func(t *testing.T) {
		take := pace.NewTake(true, nil)
		start := time.Now()
		players := make([]*Player, len(paths))
		for i, path := range paths {
			players[i] = open(t, path, Options{Take: take})
		}
		var all sync.WaitGroup
		for i, p := range players {
			n := 6 - i
			all.Go(func() {
				for k := range 3 * n {
					var f source.Frame
					if err := p.Next(t.Context(), &f); err != nil {
						t.Error(err)
						return
					}
					// Depth is the index of the capture, and the period ends one frame after the
					// end of the second recording.
					at := time.Duration(f.Depth[0]-1)*interval + time.Duration(i)*(2*interval+interval/4) +
						time.Duration(k/n)*(7*interval+interval/4)
					if f.CaptureTime.Sub(start) != at || f.DeviceTime != device+at || int(f.Depth[0]) != k%n+1 {
						t.Errorf("recording %d: capture %d plays at %v as %v, want %v", i, f.Depth[0],
							f.CaptureTime.Sub(start), f.DeviceTime, at)
					}
					f.Release()
				}
			})
		}
		all.Wait()
	})
}

func TestDropped(t *testing.T) {
	config := depthOnly
	config.IR = true
	path := record(t, config, 8, 2)
	synctest.Test(t, func(t *testing.T) {
		p := open(t, path, Options{})
		var seen []uint16
		for {
			var f source.Frame
			if err := p.Next(t.Context(), &f); err != nil {
				break
			}
			seen = append(seen, f.Depth[0])
			if f.Depth[0] == 4 {
				time.Sleep(450 * time.Millisecond) // then frame 5 is 250 ms late and frame 6 is 50 ms late
			}
		}
		want := []uint16{1, 2, 4, 6, 7, 8} // 3 has no depth
		if len(seen) != len(want) || seen[2] != 4 || seen[3] != 6 || p.Dropped() != 2 {
			t.Errorf("frames %v, %d dropped, want %v and 2", seen, p.Dropped(), want)
		}
	})
}

func TestNextEndsWithContext(t *testing.T) {
	path := record(t, depthOnly, 2)
	synctest.Test(t, func(t *testing.T) {
		p := open(t, path, Options{})
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		var f source.Frame
		if err := p.Next(ctx, &f); err != nil {
			t.Fatal(err)
		}
		if err := p.Next(ctx, &f); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
	})
}

func TestOpenRefuses(t *testing.T) {
	ir := k4amkv.Config{DepthMode: camera.NFOV2x2Binned, IR: true, Calibration: []byte(calibration)}
	bare, wrong := depthOnly, depthOnly
	bare.Calibration = nil
	wrong.Calibration = []byte(`{"CalibrationInformation":{"Cameras":[]}}`)
	text := filepath.Join(t.TempDir(), "text.mkv")
	if err := os.WriteFile(text, []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct{ path, want string }{
		"missing file":      {filepath.Join(t.TempDir(), "none.mkv"), "none.mkv: no such file or directory"},
		"not Matroska":      {text, "text.mkv: not a Matroska file"},
		"no depth":          {record(t, ir, 1, 0), "studio.mkv: the recording has no depth track"},
		"no calibration":    {record(t, bare, 1), "studio.mkv: the recording has no calibration.json"},
		"wrong calibration": {record(t, wrong, 1), "studio.mkv: calibration: no camera CALIBRATION_CameraLocationD0"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Open(tc.path, Options{})
			if err == nil || !strings.HasPrefix(err.Error(), "k4amkv: ") || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q", err, tc.want)
			}
		})
	}
}

func TestDamagedRecording(t *testing.T) {
	path := record(t, depthOnly, 5)
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	file[len(file)*7/10] ^= 1 // the fourth of five captures
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		p := open(t, path, Options{})
		var f source.Frame
		for i := range 3 {
			if err := p.Next(t.Context(), &f); err != nil || f.Depth[0] != uint16(i+1) {
				t.Fatalf("frame %d: depth %d, error %v", i, f.Depth[0], err)
			}
		}
		var damage *source.DamageError
		var where *k4amkv.DamageError
		if err := p.Next(t.Context(), &f); !errors.As(err, &damage) || !errors.As(err, &where) ||
			!strings.Contains(err.Error(), "studio.mkv: recording is damaged at byte") {
			t.Errorf("error %v", err)
		}
		if err := p.Next(t.Context(), &f); err != nil || f.Depth[0] != 5 {
			t.Errorf("behind the damage: depth %d, error %v", f.Depth[0], err)
		}
	})
}

func TestRealRecording(t *testing.T) {
	dir := os.Getenv("HOLOCAST_DATA")
	if dir == "" {
		dir = filepath.Join("..", "..", "..", "..", "shared", "data")
	}
	if _, err := os.Stat(dir); err != nil {
		t.Skipf("HOLOCAST_DATA not found: %v", err)
	}
	synctest.Test(t, func(t *testing.T) {
		p := open(t, filepath.Join(dir, "k4a_recording", "pyk4a_recording.mkv"), Options{Take: pace.NewTake(true, nil)})
		if p.Name() != "001514394512" {
			t.Errorf("name %q", p.Name())
		}
		var last time.Duration
		for i := range 3 {
			var f source.Frame
			if err := p.Next(t.Context(), &f); err != nil {
				t.Fatal(err)
			}
			if f.Format != camera.MJPG || len(f.Color) == 0 || len(f.Depth) != 640*576 || f.DeviceTime <= last {
				t.Errorf("frame %d: %d bytes of %s, %d depth values, device time %v", i, len(f.Color), f.Format,
					len(f.Depth), f.DeviceTime)
			}
			last = f.DeviceTime
		}
	})
}
