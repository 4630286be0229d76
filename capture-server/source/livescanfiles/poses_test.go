package livescanfiles

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"holocast/internal/camera"
)

// Poses as LiveScan3D's server writes them, with each matrix on one line (since 2023) or on four.
const (
	poseOfClient0 = "0\t000841194412\t0\r\n1\t0\t0\t0.5\t0\t-1\t0\t1.25\t0\t0\t-1\t-2\t0\t0\t0\t1\t\r\n"
	poseOfClient1 = "0\t000775294412\t1\r\n0\t0\t1\t-1.5\r\n0\t1\t0\t0\r\n-1\t0\t0\t0.25\r\n" +
		"0.0000000000\t0.0000000000\t0.0000000000\t1.0000000000\r\n"
	identityOfClient0 = "0\tUnknown\t0\n1 0 0 0 0 1 0 0 0 0 1 0 0 0 0 1\n"
)

// storedPoses holds poseOfClient0 and poseOfClient1, which map the colour camera's space to the
// studio, in millimetres.
var storedPoses = []camera.Transform{
	{R: [9]float64{1, 0, 0, 0, -1, 0, 0, 0, -1}, T: [3]float64{500, 1250, -2000}},
	{R: [9]float64{0, 0, 1, 0, 1, 0, -1, 0, 0}, T: [3]float64{-1500, 0, 250}},
}

func TestPoses(t *testing.T) {
	take := func(t *testing.T) string { return writeTake(t, map[int]uint64{0: 0}, map[int]uint64{0: 0}) }
	for _, tt := range []struct {
		name string
		log  string
		open string // client directory to open instead of the take
		want []int  // indices of storedPoses
	}{
		{"both clients", poseOfClient0 + poseOfClient1, "", []int{0, 1}},
		{"another order", poseOfClient1 + poseOfClient0, "", []int{0, 1}},
		{"byte order mark, empty lines", "\xef\xbb\xbf\n" + poseOfClient0 + "\r\n" + poseOfClient1, "", []int{0, 1}},
		{"no serial number", strings.Replace(poseOfClient0, "000841194412", "", 1) + poseOfClient1, "", []int{0, 1}},
		{"one client's folder", poseOfClient0 + poseOfClient1, "client_1", []int{1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := take(t)
			write(t, filepath.Join(dir, posesFile), []byte(tt.log))
			dir = filepath.Join(dir, tt.open)
			cameras, err := Open(dir, Options{})
			if err != nil {
				t.Fatal(err)
			}
			got, err := Poses(dir, cameras)
			if err != nil {
				t.Fatal(err)
			}
			for i, n := range tt.want {
				// A point in the colour camera's space, as seen from the depth camera.
				p := [3]float64{100, 200, 1500}
				depth := cameras[i].Calibration().DepthToColor.Inverse().Apply(p)
				a, b := got[i].Apply(depth), storedPoses[n].Apply(p)
				if d := math.Hypot(math.Hypot(a[0]-b[0], a[1]-b[1]), a[2]-b[2]); d > 1e-6 {
					t.Errorf("camera %d: the point is at %v, want %v", i, a, b)
				}
			}
		})
	}
}

func TestPosesRenamedFolder(t *testing.T) {
	dir := writeTake(t, map[int]uint64{0: 0})
	rename(t, dir, "client_0", "left")
	cameras, err := Open(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	serial := cameras[0].Calibration().Serial
	write(t, filepath.Join(dir, posesFile), []byte(strings.Replace(poseOfClient1, "000775294412", serial, 1)))
	got, err := Poses(dir, cameras)
	if err != nil {
		t.Fatal(err)
	}
	if want := storedPoses[1].Compose(cameras[0].Calibration().DepthToColor); got[0] != want {
		t.Errorf("pose %v, want %v", got[0], want)
	}
}

func TestPosesRefused(t *testing.T) {
	dir := writeTake(t, map[int]uint64{0: 0}, map[int]uint64{0: 0})
	cameras, err := Open(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Poses(dir, cameras); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a file: error %v, want %v", err, fs.ErrNotExist)
	}
	for name, tt := range map[string]struct{ log, want string }{
		"empty":         {"", "the file ends within a pose"},
		"cut off":       {poseOfClient0[:40], "the file ends within a pose"},
		"header only":   {poseOfClient0 + "0\tx\t1\n", "the file ends within a pose"},
		"no header":     {"1 0 0 0\n", "line 1: want 0, serial number and client number"},
		"text":          {"0\tx\t0\n1 0 zero\n", "line 2: want the 16 numbers of a matrix"},
		"no rotation":   {"0\tx\t0\n" + strings.Repeat("0 ", 16), "line 2: rotation rows 0 and 0"},
		"not a number":  {"0\tx\t0\n" + strings.Repeat("NaN ", 16), "line 2: transform is not finite"},
		"a camera less": {poseOfClient0, "no pose for camera client_1"},
		"uncalibrated":  {identityOfClient0 + poseOfClient1, "camera client_0 was not calibrated"},
		"too many":      {strings.Repeat(poseOfClient1, 257), "line 1281: want 0"},
	} {
		t.Run(name, func(t *testing.T) {
			write(t, filepath.Join(dir, posesFile), []byte(tt.log))
			if _, err := Poses(dir, cameras); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one with %q", err, tt.want)
			}
		})
	}
}

func FuzzParsePoses(f *testing.F) {
	f.Add([]byte(poseOfClient0 + poseOfClient1))
	f.Add([]byte(identityOfClient0))
	f.Add([]byte("\xef\xbb\xbf0\t\t0\n1 2"))
	f.Add([]byte(fmt.Sprintf("0\tx\t0\n%s", strings.Repeat("1e308 ", 16))))
	f.Fuzz(func(t *testing.T, b []byte) {
		poses, err := parsePoses(b)
		if (err == nil) != (len(poses) > 0) || len(poses) > maxPoses {
			t.Errorf("%d poses, error %v", len(poses), err)
		}
		for _, p := range poses {
			if p.pose.Validate() != nil {
				t.Errorf("pose %v", p.pose)
			}
		}
	})
}
