package k4a

import (
	"bytes"
	"context"
	"errors"
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
				// A frame stays valid after the next one.
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
			want:    "depth mode WFOV_UNBINNED does at most 15",
		},
		"3072P at 30": {options: Options{Color: camera.Color3072P}, want: "colour mode 3072P does at most 15"},
		"NV12 at 1080P": {
			options: Options{Color: camera.Color1080P, Format: camera.NV12},
			want:    "colour format NV12: the camera has it at 720P only, not at 1080P",
		},
		"blind master": {options: Options{Sync: Master}, want: "sync mode master: the camera must capture colour"},
		"depth delay": {
			options: Options{DepthDelay: -40 * time.Millisecond},
			want:    "depth delay -40ms: must be less than a frame of 33.333333ms either way",
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
			"k4a: camera FAKE0: depth image of 640×2, 2560 bytes, rows of 1280; want 640×576") {
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

func TestDeviceClock(t *testing.T) {
	c := deviceClock{window: time.Second}
	const offset = 100 * time.Second
	var worst time.Duration
	for i := range 300 {
		exposed := time.Duration(i) * 33 * time.Millisecond
		delay := 20*time.Millisecond + time.Duration(i*7%13)*time.Millisecond
		got := c.at(exposed, exposed+offset+delay)
		if i >= 13 {
			worst = max(worst, (got - (exposed + offset + 20*time.Millisecond)).Abs())
		}
	}
	if worst > time.Millisecond {
		t.Errorf("captures are placed up to %v amiss", worst)
	}
	// The device's clock restarts with the cameras.
	if got, want := c.at(0, 200*time.Second), 200*time.Second; got != want {
		t.Errorf("after a reset a capture is placed at %v, want %v", got, want)
	}
}
