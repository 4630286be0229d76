// Package k4acheck compares Holocast's depth geometry and recordings with Microsoft's Azure Kinect
// SDK. See check.sh, which also installs the SDK's libraries.
package k4acheck

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"image"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
	"time"

	"golang.org/x/image/tiff"

	"holocast/internal/camera"
	"holocast/internal/k4amkv"
)

// sdk runs sdk.py with the SDK's libraries, installing them if they are missing. They exist for
// Linux on x86-64 only; elsewhere sdk skips the test.
func sdk(t *testing.T, args ...string) []byte {
	t.Helper()
	out, err := sdkCommand(t, args...).Output()
	if err != nil {
		t.Fatalf("sdk.py %v: %v", args, err)
	}
	return out
}

func sdkCommand(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		t.Skip("the Azure Kinect SDK exists for Linux on x86-64 only")
	}
	if out, err := exec.Command("./check.sh", "install").CombinedOutput(); err != nil {
		t.Fatalf("the Azure Kinect SDK is not installed and tools/k4acheck/check.sh could not install it: %v\n%s", err, out)
	}
	libs := filepath.Join("..", "..", "build", "k4a", "pyk4a_bundle.libs")
	cmd := exec.CommandContext(t.Context(), "python3", append([]string{"sdk.py", libs}, args...)...)
	cmd.Stderr = os.Stderr
	cmd.Env = append(os.Environ(), "K4A_ENABLE_LOG_TO_STDOUT=0") // it would log each pixel (Rational6KT)
	return cmd
}

// data returns the folder with the capture data. It skips the test if there is none.
func data(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("HOLOCAST_DATA")
	if dir == "" {
		dir = filepath.Join("..", "..", "..", "shared", "data")
	}
	if _, err := os.Stat(dir); err != nil {
		t.Skipf("HOLOCAST_DATA not found: %v", err)
	}
	return dir
}

// openRecording opens the capture data's k4arecorder file.
func openRecording(t *testing.T) *k4amkv.Reader {
	t.Helper()
	r, err := k4amkv.Open(filepath.Join(data(t), "k4a_recording", "pyk4a_recording.mkv"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// depthFrame is a real depth image with its camera's calibration.
type depthFrame struct {
	name        string
	calibration []byte
	mode        camera.DepthMode
	depth       []uint16
}

func depthFrames(t *testing.T) []depthFrame {
	t.Helper()
	dir := data(t)
	r := openRecording(t)
	var c k4amkv.Capture
	if err := r.Next(&c); err != nil {
		t.Fatal(err)
	}
	frames := []depthFrame{{"k4a_recording", r.Config.Calibration, r.Config.DepthMode, c.Depth}}
	for device := range 4 {
		dir := filepath.Join(dir, "livescan_testdata", fmt.Sprintf("virtualdevice%d", device))
		doc, err := os.ReadFile(filepath.Join(dir, "Intrinsics.json"))
		if err != nil {
			t.Fatal(err)
		}
		for _, mode := range []camera.DepthMode{camera.NFOVUnbinned, camera.WFOV2x2Binned} {
			for i := 1; i <= 2; i++ {
				frames = append(frames, depthFrame{
					fmt.Sprintf("virtualdevice%d/%s/%d", device, mode, i), doc, mode,
					readTIFF(t, filepath.Join(dir, "depth_"+string(mode), fmt.Sprintf("Depth_%d.tiff", i))),
				})
			}
		}
	}
	return frames
}

func readTIFF(t *testing.T, path string) []uint16 {
	t.Helper()
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	img, err := tiff.Decode(bytes.NewReader(file))
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	grey, ok := img.(*image.Gray16)
	if !ok {
		t.Fatalf("%s: %T, want 16-bit grey", path, img)
	}
	depth := make([]uint16, len(grey.Pix)/2)
	for i := range depth {
		depth[i] = binary.BigEndian.Uint16(grey.Pix[2*i:])
	}
	return depth
}

// TestPointCloud compares the points of a ray table with the SDK's point cloud.
func TestPointCloud(t *testing.T) {
	for _, f := range depthFrames(t) {
		t.Run(f.name, func(t *testing.T) {
			cal, err := camera.Parse(f.calibration, f.mode, camera.ColorOff)
			if err != nil {
				t.Fatal(err)
			}
			compareCloud(t, cal, f)
		})
	}
	// Cover every pixel of the modes without a real frame, over the whole depth range.
	doc := openRecording(t).Config.Calibration
	for _, mode := range []camera.DepthMode{camera.NFOV2x2Binned, camera.WFOVUnbinned} {
		t.Run("ramp/"+string(mode), func(t *testing.T) {
			cal, err := camera.Parse(doc, mode, camera.ColorOff)
			if err != nil {
				t.Fatal(err)
			}
			depth := make([]uint16, cal.Depth.Width*cal.Depth.Height)
			for i := range depth {
				depth[i] = uint16(250 + i*7%6000)
			}
			compareCloud(t, cal, depthFrame{"ramp", doc, mode, depth})
		})
	}
	// The conversion of early devices' lens model is accurate to a millimetre up to 3 m.
	for _, mode := range []camera.DepthMode{camera.NFOVUnbinned, camera.WFOV2x2Binned} {
		t.Run("Rational6KT/"+string(mode), func(t *testing.T) {
			doc := bytes.Replace(doc, []byte("BrownConrady"), []byte("Rational6KT"), 2)
			cal, err := camera.Parse(doc, mode, camera.ColorOff)
			if err != nil {
				t.Fatal(err)
			}
			depth := make([]uint16, cal.Depth.Width*cal.Depth.Height)
			for i := range depth {
				depth[i] = uint16(250 + i*7%2750)
			}
			compareCloud(t, cal, depthFrame{"ramp", doc, mode, depth})
		})
	}
}

func compareCloud(t *testing.T, cal camera.Calibration, f depthFrame) {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "calibration"), f.calibration)
	raw := make([]byte, 0, 2*len(f.depth))
	for _, d := range f.depth {
		raw = binary.LittleEndian.AppendUint16(raw, d)
	}
	write(t, filepath.Join(dir, "depth"), raw)
	sdk(t, "cloud", filepath.Join(dir, "calibration"), string(f.mode), filepath.Join(dir, "depth"),
		filepath.Join(dir, "cloud"))
	xyz, err := os.ReadFile(filepath.Join(dir, "cloud"))
	if err != nil {
		t.Fatal(err)
	}
	table := cal.Depth.RayTable()
	if len(table.X) != len(f.depth) || len(xyz) != 6*len(f.depth) {
		t.Fatalf("%d rays and %d bytes of points for %d pixels", len(table.X), len(xyz), len(f.depth))
	}
	points, differ, far := 0, 0, 0
	for i, d := range f.depth {
		var want [3]int
		for k := range want {
			want[k] = int(int16(binary.LittleEndian.Uint16(xyz[6*i+2*k:])))
		}
		var got [3]int
		if x := table.X[i]; x == x {
			// Round half to even, as the SDK does on x86.
			got = [3]int{
				int(math.RoundToEven(float64(x * float32(d)))),
				int(math.RoundToEven(float64(table.Y[i] * float32(d)))),
				int(d),
			}
		}
		if got[2] == 0 && want[2] == 0 {
			continue
		}
		points++
		if got != want {
			differ++
		}
		for k := range got {
			if got[k]-want[k] > 1 || want[k]-got[k] > 1 {
				far++
				break
			}
		}
	}
	t.Logf("%d points: %d differ from the SDK's, %d by more than 1 mm", points, differ, far)
	if points == 0 || float64(far) > 1e-4*float64(points) {
		t.Errorf("%d of %d points are more than 1 mm from the SDK's", far, points)
	}
}

// TestColorPixels compares the positions of depth pixels in the color image with the SDK's.
func TestColorPixels(t *testing.T) {
	doc := openRecording(t).Config.Calibration
	for _, mode := range []camera.ColorMode{
		camera.Color720P, camera.Color1080P, camera.Color1440P,
		camera.Color1536P, camera.Color2160P, camera.Color3072P,
	} {
		t.Run(string(mode), func(t *testing.T) {
			const step, depth = 16, 1500.0
			cal, err := camera.Parse(doc, camera.WFOVUnbinned, mode)
			if err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			write(t, filepath.Join(dir, "calibration"), doc)
			sdk(t, "pixels", filepath.Join(dir, "calibration"), string(camera.WFOVUnbinned), string(mode),
				strconv.Itoa(step), strconv.Itoa(depth), filepath.Join(dir, "pixels"))
			out, err := os.ReadFile(filepath.Join(dir, "pixels"))
			if err != nil {
				t.Fatal(err)
			}
			compared, worst := 0, 0.0
			for v := 0; v < cal.Depth.Height; v += step {
				for u := 0; u < cal.Depth.Width; u += step {
					var sdk [3]float64
					for k := range sdk {
						sdk[k] = float64(math.Float32frombits(binary.LittleEndian.Uint32(out[4*k:])))
					}
					out = out[12:]
					valid := math.Float32bits(float32(sdk[2])) != 0
					x, y, ok := cal.Depth.Unproject(float64(u), float64(v))
					var cu, cv float64
					if ok {
						cu, cv, ok = cal.Color.Project(cal.DepthToColor.Apply([3]float64{x * depth, y * depth, depth}))
					}
					if ok != valid {
						t.Errorf("depth pixel (%d, %d): valid %v, SDK: %v", u, v, ok, valid)
						continue
					}
					// The lens model folds back outside the image; those pixels are not used.
					if ok && cu >= 0 && cv >= 0 && cu < float64(cal.Color.Width) && cv < float64(cal.Color.Height) {
						compared++
						worst = max(worst, math.Hypot(cu-sdk[0], cv-sdk[1]))
					}
				}
			}
			t.Logf("%d pixels, at most %.4f pixels from the SDK's", compared, worst)
			if compared < 500 || worst > 0.01 {
				t.Errorf("%d pixels compared, one %.4f pixels from the SDK's", compared, worst)
			}
		})
	}
}

type sdkImage struct {
	Us    uint64
	CRC32 uint32
}

type sdkRecording struct {
	Captures          []struct{ Color, Depth, IR *sdkImage }
	IMU               int
	LengthUs          uint64 `json:"length_us"`
	CalibrationCRC32  uint32 `json:"calibration_crc32"`
	CapturesAfterSeek bool   `json:"captures_after_seek"`
}

func sdkCaptures(t *testing.T, path string) sdkRecording {
	t.Helper()
	var r sdkRecording
	if err := json.Unmarshal(sdk(t, "captures", path), &r); err != nil {
		t.Fatal(err)
	}
	return r
}

func greyCRC(image []uint16) uint32 {
	b := make([]byte, 0, 2*len(image))
	for _, v := range image {
		b = binary.LittleEndian.AppendUint16(b, v)
	}
	return crc32.ChecksumIEEE(b)
}

// compareCapture compares capture i, as read by libk4arecord, with ours.
func compareCapture(t *testing.T, i int, got struct{ Color, Depth, IR *sdkImage }, want *k4amkv.Capture) {
	t.Helper()
	for _, image := range []struct {
		name    string
		got     *sdkImage
		present bool
		time    time.Duration
		crc     uint32
	}{
		{"colour", got.Color, want.Color != nil, want.ColorTime, crc32.ChecksumIEEE(want.Color)},
		{"depth", got.Depth, want.Depth != nil, want.DepthTime, greyCRC(want.Depth)},
		{"IR", got.IR, want.IR != nil, want.IRTime, greyCRC(want.IR)},
	} {
		switch {
		case (image.got != nil) != image.present:
			t.Errorf("capture %d: libk4arecord has %s: %v, our reader: %v", i, image.name, image.got != nil, image.present)
		case image.present && (image.got.CRC32 != image.crc || image.got.Us != uint64(image.time/time.Microsecond)):
			t.Errorf("capture %d: %s of %d µs differs from ours of %v", i, image.name, image.got.Us, image.time)
		}
	}
}

// TestReadersAgree compares libk4arecord and our Reader on a real recording.
func TestReadersAgree(t *testing.T) {
	got := sdkCaptures(t, filepath.Join(data(t), "k4a_recording", "pyk4a_recording.mkv"))
	r := openRecording(t)
	imu := 0
	for i := range got.Captures {
		var c k4amkv.Capture
		if err := r.Next(&c); err != nil {
			t.Fatal(err)
		}
		imu += len(c.IMU)
		compareCapture(t, i, got.Captures[i], &c)
	}
	if imu != got.IMU {
		t.Errorf("%d IMU samples, libk4arecord reads %d", imu, got.IMU)
	}
}

// TestRecordingsOpen writes recordings with our Writer and reads them with libk4arecord.
func TestRecordingsOpen(t *testing.T) {
	calibration := []byte(`{"CalibrationInformation":{}}`)
	for name, config := range map[string]k4amkv.Config{
		"all tracks": {
			DepthMode: camera.NFOV2x2Binned, ColorMode: camera.Color720P, ColorFormat: camera.MJPG, FPS: 30,
			Depth: true, IR: true, IMU: true, Serial: "1", Calibration: calibration,
		},
		"raw colour": {
			DepthMode: camera.WFOV2x2Binned, ColorMode: camera.Color720P,
			ColorFormat: camera.NV12, FPS: 15, Depth: true, IR: true, Calibration: calibration,
		},
		"depth only": {DepthMode: camera.WFOVUnbinned, FPS: 15, Depth: true, Calibration: calibration},
		"depth late": {
			DepthMode: camera.NFOV2x2Binned, ColorMode: camera.Color3072P, ColorFormat: camera.MJPG,
			FPS: 5, Depth: true, DepthDelay: 150 * time.Millisecond, Calibration: calibration,
		},
		"passive IR": {DepthMode: camera.PassiveIR, FPS: 30, IR: true, Calibration: calibration},
		"no depth":   {ColorMode: camera.Color1080P, ColorFormat: camera.MJPG, FPS: 30, IMU: true, Calibration: calibration},
		"long enough": {
			DepthMode: camera.NFOV2x2Binned, ColorMode: camera.Color720P,
			ColorFormat: camera.MJPG, FPS: 5, Depth: true, IR: true, Calibration: calibration,
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "recording.mkv")
			w, err := k4amkv.Create(path, config)
			if err != nil {
				t.Fatal(err)
			}
			const n = 25
			var captures []k4amkv.Capture
			for i := range n {
				c := capture(config, i)
				if err := w.WriteCapture(&c); err != nil {
					t.Fatal(err)
				}
				captures = append(captures, c)
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			got := sdkCaptures(t, path)
			if len(got.Captures) != n {
				t.Fatalf("libk4arecord reads %d captures, want %d", len(got.Captures), n)
			}
			for i := range captures {
				compareCapture(t, i, got.Captures[i], &captures[i])
			}
			if config.IMU && got.IMU != n {
				t.Errorf("libk4arecord reads %d IMU samples, want %d", got.IMU, n)
			}
			if got.CalibrationCRC32 != crc32.ChecksumIEEE(calibration) {
				t.Error("libk4arecord reads a different calibration")
			}
			if !got.CapturesAfterSeek {
				t.Error("libk4arecord reads no capture after seeking")
			}
			if want := uint64((n - 1) * int(time.Second/time.Microsecond) / config.FPS); got.LengthUs+1 < want {
				t.Errorf("libk4arecord says the recording has %d µs, want at least %d", got.LengthUs, want)
			}
		})
	}
}

// TestCutOffRecordingOpens checks that libk4arecord reads a recording that our Writer has not
// closed, like the file of a killed recorder.
func TestCutOffRecordingOpens(t *testing.T) {
	path := filepath.Join(t.TempDir(), "recording.mkv")
	config := k4amkv.Config{
		DepthMode: camera.NFOV2x2Binned, ColorMode: camera.Color720P, ColorFormat: camera.MJPG, FPS: 30,
		Depth: true, IR: true, Calibration: []byte("{}"),
	}
	w, err := k4amkv.Create(path, config)
	if err != nil {
		t.Fatal(err)
	}
	const n = 60
	var captures []k4amkv.Capture
	for i := range n {
		c := capture(config, i)
		captures = append(captures, c)
		if err := w.WriteCapture(&c); err != nil {
			t.Fatal(err)
		}
	}
	got := sdkCaptures(t, path)
	if lost := n - len(got.Captures); lost > 17 { // at most half a second and the unfinished cluster
		t.Errorf("libk4arecord reads %d captures of %d", len(got.Captures), n)
	}
	for i := range got.Captures {
		compareCapture(t, i, got.Captures[i], &captures[i])
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestKilledRecorder checks that we read the file of a killed libk4arecord, which libk4arecord
// itself refuses.
func TestKilledRecorder(t *testing.T) {
	dir := t.TempDir()
	calibration := []byte(`{"CalibrationInformation":{}}`)
	write(t, filepath.Join(dir, "calibration"), calibration)
	path := filepath.Join(dir, "recording.mkv")
	const sent = 90
	cmd := sdkCommand(t, "kill", filepath.Join(dir, "calibration"), strconv.Itoa(sent), path)
	if err := cmd.Run(); cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != -1 {
		t.Fatalf("sdk.py kill: %v, want the end by a signal", err)
	}
	r, err := k4amkv.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	if c := r.Config; c.DepthMode != camera.NFOV2x2Binned || c.FPS != 30 || !c.Depth || !c.IR ||
		!bytes.Equal(c.Calibration, calibration) {
		t.Errorf("configuration %+v", c)
	}
	n, incomplete := 0, false
	for ; ; n++ {
		var c k4amkv.Capture
		var damage *k4amkv.DamageError
		if err := r.Next(&c); errors.Is(err, io.EOF) || errors.As(err, &damage) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if incomplete {
			t.Fatalf("capture %d lacks an image, and is not the last", n-1)
		}
		if incomplete = c.Depth == nil || c.IR == nil; incomplete { // the kill may come between the images
			continue
		}
		at := time.Duration(n*1_000_000/30) * time.Microsecond
		if len(c.Depth) != 320*288 || len(c.IR) != 320*288 {
			t.Fatalf("capture %d: %d pixels of depth and %d of IR", n, len(c.Depth), len(c.IR))
		}
		if c.Depth[100] != uint16(n) || c.IR[100] != uint16(n) || c.DepthTime != at {
			t.Errorf("capture %d: depth %d and IR %d at %v, want %d at %v", n, c.Depth[100], c.IR[100], c.DepthTime, n, at)
		}
	}
	if n < 10 || n > sent {
		t.Errorf("%d captures of %d, want at least the 10 before the kill", n, sent)
	}
}

// capture returns capture i of a recording. Every image differs from its neighbors.
func capture(config k4amkv.Config, i int) k4amkv.Capture {
	t := (time.Second + time.Duration(i)*time.Second/time.Duration(config.FPS)).Truncate(time.Microsecond)
	var c k4amkv.Capture
	if config.ColorMode != camera.ColorOff {
		size := 5000 + i
		if config.ColorFormat == camera.NV12 {
			w, h := config.ColorMode.Size()
			size = w * h * 3 / 2
		}
		c.ColorTime, c.Color = t, make([]byte, size)
		for p := range c.Color {
			c.Color[p] = byte(p*3 + i)
		}
	}
	grey := func() []uint16 {
		w, h := config.DepthMode.Size()
		image := make([]uint16, w*h)
		for p := range image {
			image[p] = uint16(p*5 + i)
		}
		return image
	}
	if config.Depth {
		c.DepthTime, c.Depth = t+config.DepthDelay+200*time.Microsecond, grey()
	}
	if config.IR {
		c.IRTime, c.IR = t+config.DepthDelay+200*time.Microsecond, grey()
	}
	if config.IMU {
		c.IMU = []k4amkv.IMUSample{{AccelTime: t + time.Millisecond, GyroTime: t + time.Millisecond}}
	}
	return c
}

func write(t *testing.T, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}
