package k4a

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"holocast/capture-server/source"
	"holocast/internal/camera"
)

var _ source.Source = (*Device)(nil)

// calibration is a factory calibration with ideal lenses.
const calibration = `{"CalibrationInformation":{"Cameras":[
{"Intrinsics":{"ModelParameterCount":14,"ModelParameters":[0.5,0.5,0.5,0.5,0,0,0,0,0,0,0,0,0,0],"ModelType":"CALIBRATION_LensDistortionModelBrownConrady"},
"Location":"CALIBRATION_CameraLocationD0","Rt":{"Rotation":[1,0,0,0,1,0,0,0,1],"Translation":[0,0,0]},"SensorHeight":1024,"SensorWidth":1024},
{"Intrinsics":{"ModelParameterCount":14,"ModelParameters":[0.5,0.5,0.5,0.5,0,0,0,0,0,0,0,0,0,0],"ModelType":"CALIBRATION_LensDistortionModelBrownConrady"},
"Location":"CALIBRATION_CameraLocationPV0","Rt":{"Rotation":[1,0,0,0,1,0,0,0,1],"Translation":[-0.03,0,0]},"SensorHeight":3072,"SensorWidth":4096}],
"Metadata":{"SerialId":"FAKE"}}}`

var fakeDir string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "fakek4a")
	if err != nil {
		panic(err)
	}
	fakeDir = dir
	out, err := exec.Command("cc", "-shared", "-fPIC", "-O1", "-Wall", "-o", filepath.Join(dir, "libk4a.so"),
		"testdata/fakek4a.c").
		CombinedOutput()
	if err != nil {
		panic(err.Error() + "\n" + string(out))
	}
	code := m.Run()
	if err := os.RemoveAll(dir); err != nil {
		panic(err)
	}
	os.Exit(code)
}

// fake configures the fake libk4a; two cameras are attached.
func fake(t *testing.T, settings ...string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "calibration.json")
	if err := os.WriteFile(path, []byte(calibration), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("FAKE_K4A_CALIBRATION", path)
	t.Setenv("FAKE_K4A_DEVICES", "2")
	t.Setenv(LibraryEnv, fakeDir)
	for _, s := range settings {
		name, value, _ := strings.Cut(s, "=")
		t.Setenv("FAKE_K4A_"+name, value)
	}
}

func open(t *testing.T, options Options) *Device {
	t.Helper()
	d, err := Open(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func TestCaptureUntilUnplugged(t *testing.T) {
	for name, pad := range map[string]int{"tight rows": 0, "padded rows": 32} {
		t.Run(name, func(t *testing.T) {
			fake(t, "FRAMES=12", "PAD="+strconv.Itoa(pad))
			d := open(t, Options{Color: camera.Color720P, Serial: "FAKE1"})
			cal := d.Calibration()
			if d.Name() != "FAKE1" || cal.Depth.Width != 640 || cal.Color.Width != 1280 ||
				cal.DepthToColor.T != [3]float64{-30, 0, 0} {
				t.Errorf("name %q, calibration %+v", d.Name(), cal)
			}
			var last source.Frame
			defer func() { last.Release() }()
			for n := range 12 {
				if n%4 == 3 {
					continue // no depth
				}
				var f source.Frame
				if err := d.Next(t.Context(), &f); err != nil {
					t.Fatal(err)
				}
				if len(f.Depth) != 640*576 || f.DeviceTime != time.Duration(n)*200*time.Millisecond {
					t.Fatalf("capture %d: %d depth values at %v", n, len(f.Depth), f.DeviceTime)
				}
				for i, v := range f.Depth {
					if v != uint16(n+1) {
						t.Fatalf("capture %d: depth %d at pixel %d", n, v, i)
					}
				}
				var color []byte
				if n%3 != 2 {
					color = bytes.Repeat([]byte{byte(n)}, n+1)
				}
				if !bytes.Equal(f.Color, color) || (color != nil) != (f.Format == camera.NV12) {
					t.Errorf("capture %d: colour % x of format %q", n, f.Color, f.Format)
				}
				if since := time.Since(f.CaptureTime); since < 0 || since > time.Minute {
					t.Errorf("capture %d was taken %v ago", n, since)
				}
				// A frame stays valid after the next one is read.
				if last.Depth != nil &&
					(last.Depth[0] == f.Depth[0] || last.Depth[0] != last.Depth[len(last.Depth)-1]) {
					t.Errorf("capture %d changed the previous frame: depth %d to %d", n, last.Depth[0],
						last.Depth[len(last.Depth)-1])
				}
				last.Release()
				last = f
			}
			var f source.Frame
			err := d.Next(t.Context(), &f)
			const want = "k4a: camera FAKE1: the camera was unplugged or its USB connection failed"
			if !errors.Is(err, ErrUnplugged) || err.Error() != want || d.Dropped() != 3 {
				t.Errorf("error %v, %d dropped, want %q and 3", err, d.Dropped(), want)
			}
		})
	}
}

func TestDepthAlone(t *testing.T) {
	fake(t)
	d := open(t, Options{Depth: camera.WFOV2x2Binned, Index: 1, FPS: 15})
	var f source.Frame
	if err := d.Next(t.Context(), &f); err != nil {
		t.Fatal(err)
	}
	defer f.Release()
	if len(f.Depth) != 512*512 || f.Color != nil || d.Name() != "FAKE1" {
		t.Errorf("%d depth values, %d bytes of colour from %s", len(f.Depth), len(f.Color), d.Name())
	}
}

func TestSubordinateWaits(t *testing.T) {
	fake(t)
	d := open(t, Options{Sync: Subordinate, SubordinateDelay: 160 * time.Microsecond})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := d.Next(ctx, &source.Frame{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
}

func TestList(t *testing.T) {
	fake(t)
	infos, err := List("")
	if err != nil {
		t.Fatal(err)
	}
	if len(infos) != 2 || infos[0] != (Info{Index: 0, Serial: "FAKE0"}) ||
		infos[1] != (Info{Index: 1, Serial: "FAKE1"}) {
		t.Errorf("cameras %+v", infos)
	}
}

func TestOpenErrors(t *testing.T) {
	for name, tc := range map[string]struct {
		settings []string
		options  Options
		is       error
		want     string
	}{
		"no camera": {
			settings: []string{"DEVICES=0"}, is: ErrNoDevice,
			want: "k4a: no camera found. Check its USB 3 cable",
		},
		"no such index": {options: Options{Index: 2}, want: "k4a: no camera 2: 2 attached, numbered from 0"},
		"no such serial": {
			options: Options{Serial: "000123"}, want: "k4a: no camera has serial number 000123; attached: FAKE0, FAKE1",
		},
		"permission": {
			settings: []string{
				"FAIL=open",
				"MESSAGE=find_libusb_device(). libusb device(s) are all unavalable. Is the device being used by " +
					"another application?",
			},
			is: ErrPermission, want: "Copy 99-k4a.rules",
		},
		"permission of a chosen camera": {
			settings: []string{"FAIL=open", "MESSAGE=libusb device(s) are all unavalable."},
			options:  Options{Serial: "FAKE0"},
			want:     "no camera has serial number FAKE0; attached: camera 0 (no permission to open the camera.",
		},
		"busy": {
			settings: []string{"FAIL=open", "MESSAGE=Unable to open LIBUSB at index 0"},
			want: "k4a: opening camera 0 failed; is another program using the camera? (Unable to open LIBUSB at " +
				"index 0)",
		},
		"depth engine": {
			settings: []string{"FAIL=start", "MESSAGE=Failed to load depth engine plugin"}, is: ErrNoDepthEngine,
			want: "k4a: camera FAKE0: libk4a cannot start its depth engine. Put libdepthengine.so.2.0",
		},
		"silent failure": {
			settings: []string{"FAIL=start"},
			want:     "k4a: camera FAKE0: starting the camera failed; is another program using the camera?",
		},
		"serial": {settings: []string{"FAIL=serial"}, want: "k4a: reading the serial number failed"},
		"calibration": {
			settings: []string{"FAIL=calibration"},
			want:     "k4a: reading the calibration of camera FAKE0 failed",
		},
		"bad calibration": {
			settings: []string{"CALIBRATION=/dev/null"}, want: "k4a: camera FAKE0: calibration: not a factory document",
		},
		"no library": {
			options: Options{Library: "/nowhere/libk4a.so"}, is: ErrNoLibrary,
			want: "k4a: no libk4a found. Install the Azure Kinect Sensor SDK",
		},
		"empty directory": {options: Options{Library: t.TempDir()}, is: ErrNoLibrary, want: "has no libk4a.so"},
		"not a library":   {options: Options{Library: "k4a_test.go"}, is: ErrNoLibrary, want: "k4a_test.go: "},
		"frame rate":      {options: Options{FPS: 60}, want: "k4a: frame rate 60: want 5, 15 or 30"},
		"depth mode":      {options: Options{Depth: camera.PassiveIR}, want: `k4a: depth mode "PASSIVE_IR": want`},
		"colour mode":     {options: Options{Color: "4K"}, want: `k4a: colour mode "4K": want`},
		"colour format":   {options: Options{Format: "H264"}, want: `k4a: colour format "H264": want`},
		"sync mode":       {options: Options{Sync: "slave"}, want: `k4a: sync mode "slave": want`},
		"WFOV at 30": {
			options: Options{Depth: camera.WFOVUnbinned},
			want:    "depth mode WFOV_UNBINNED supports at most 15",
		},
		"3072P at 30": {options: Options{Color: camera.Color3072P}, want: "colour mode 3072P supports at most 15"},
		"NV12 at 1080P": {
			options: Options{Color: camera.Color1080P, Format: camera.NV12},
			want:    "colour format NV12: cameras support it at 720P only, not at 1080P",
		},
		"blind master": {options: Options{Sync: Master}, want: "sync mode master: the camera must capture colour"},
		"depth delay": {
			options: Options{DepthDelay: -40 * time.Millisecond},
			want:    "depth delay -40ms: must be less than a frame (33.333333ms) either way",
		},
		"long delay": {
			options: Options{Sync: Subordinate, SubordinateDelay: time.Second},
			want:    "subordinate delay 1s: must be between 0 and a frame",
		},
		"delay of no kind": {
			options: Options{SubordinateDelay: time.Millisecond},
			want:    "subordinate delay 1ms: requires sync mode subordinate, not standalone",
		},
	} {
		t.Run(name, func(t *testing.T) {
			fake(t, tc.settings...)
			_, err := Open(tc.options)
			if err == nil || !strings.Contains(err.Error(), tc.want) || tc.is != nil && !errors.Is(err, tc.is) {
				t.Errorf("error %v\nwant %q", err, tc.want)
			}
		})
	}
}

func TestWrongImage(t *testing.T) {
	fake(t, "WRONG_SIZE=1")
	d := open(t, Options{})
	err := d.Next(t.Context(), &source.Frame{})
	if err == nil ||
		!strings.Contains(err.Error(),
			"k4a: camera FAKE0: depth image is 640×2, 2560 bytes, rows of 1280; want 640×576") {
		t.Errorf("error %v", err)
	}
}

// TestMicrosoftsLibrary loads the real libk4a, without a camera.
func TestMicrosoftsLibrary(t *testing.T) {
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		t.Skip("Microsoft's libk4a exists for Linux on x86-64 only")
	}
	root := filepath.Join("..", "..", "..")
	if out, err := exec.Command(filepath.Join(root, "tools", "k4acheck", "check.sh"), "install").
		CombinedOutput(); err != nil {
		t.Fatalf("Microsoft's libk4a is not installed and tools/k4acheck/check.sh could not install it: %v\n%s", err,
			out)
	}
	libs := filepath.Join(root, "build", "k4a", "pyk4a_bundle.libs")
	infos, err := List(libs)
	if err != nil {
		t.Fatal(err)
	}
	if len(infos) > 0 {
		t.Skipf("%d cameras are attached; the test is about none", len(infos))
	}
	if _, err := Open(Options{Library: libs}); !errors.Is(err, ErrNoDevice) {
		t.Errorf("error %v, want %v", err, ErrNoDevice)
	}
}

// TestDeviceClock checks the times of captures that arrive 20 to 32 ms after exposure, with a
// device clock that jumps or fails after the hundredth capture.
func TestDeviceClock(t *testing.T) {
	const (
		frame, shortest, longest = 33 * time.Millisecond, 20 * time.Millisecond, 32 * time.Millisecond
		jumps, unusable          = "the camera's clock jumped", "the camera's clock is unusable"
	)
	for _, tt := range []struct {
		name   string
		device func(n int, exposed time.Duration) time.Duration
		amiss  time.Duration // maximum distance from exposure plus the shortest delay
		from   int           // first capture that counts
		log    string
	}{
		{"steady", func(_ int, e time.Duration) time.Duration { return e }, time.Millisecond, 13, ""},
		{"fast by 100 ppm", func(_ int, e time.Duration) time.Duration { return e + e/10000 }, 2 * time.Millisecond, 13, ""},
		{"zero", func(int, time.Duration) time.Duration { return 0 }, longest - shortest, 0, unusable},
		{"back 0.7 s", func(n int, e time.Duration) time.Duration {
			return e - time.Duration(n/100)*700*time.Millisecond
		}, longest - shortest, 13, jumps},
		{"back to zero", func(n int, e time.Duration) time.Duration {
			return e - time.Duration(n/100*100)*frame
		}, longest - shortest, 13, jumps},
		{"forward 0.7 s", func(n int, e time.Duration) time.Duration {
			return e + time.Duration(n/100)*700*time.Millisecond
		}, longest - shortest, 13, ""},
		{"to the epoch", func(n int, e time.Duration) time.Duration {
			return e + time.Duration(min(n/100, 1))*1730796756*time.Second
		}, longest - shortest, 13, jumps},
		{"32 bits of microseconds", func(_ int, e time.Duration) time.Duration {
			return (e + 1<<32*time.Microsecond - 2*time.Second) % (1 << 32 * time.Microsecond)
		}, longest - shortest, 13, jumps},
		{
			"nanoseconds for microseconds", func(_ int, e time.Duration) time.Duration { return 1000 * e },
			longest - shortest, 0, unusable,
		},
		{"slow", func(_ int, e time.Duration) time.Duration { return e * 588 / 1000 }, longest - shortest, 400, unusable},
		{
			"slow by a tenth", func(_ int, e time.Duration) time.Duration { return e * 9 / 10 }, longest - shortest,
			1400, unusable,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var log bytes.Buffer
			c := deviceClock{window: 5 * time.Second, log: slog.New(slog.NewTextHandler(&log, nil))}
			const offset = 100 * time.Second
			for n := range 1500 {
				exposed := time.Duration(n+1) * frame
				delay := shortest + time.Duration(n*7%13)*time.Millisecond
				got := c.at(tt.device(n, exposed), exposed+offset+delay)
				if amiss := (got - (exposed + offset + shortest)).Abs(); n >= tt.from && amiss > tt.amiss {
					t.Fatalf("capture %d is placed %v amiss, want at most %v", n, amiss, tt.amiss)
				}
			}
			if !strings.Contains(log.String(), tt.log) || tt.log == "" && log.Len() > 0 {
				t.Errorf("log %q, want %q", &log, tt.log)
			}
		})
	}
}
