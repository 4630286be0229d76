// Package exportcheck opens exports with the readers of other programs: RGB-D images with Open3D,
// MCAP files with Foxglove's reader and message definitions, and meshes with Open3D, trimesh and three.js.
package exportcheck

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"holocast/internal/camera"
	"holocast/internal/catalog"
	"holocast/internal/moqt/wire"
	"holocast/internal/plyfile"
	"holocast/internal/pointcloud"
	"holocast/internal/recording"
	"holocast/tools/holocast/export"
)

// foreign reads an export with read.py. It skips the test if the readers cannot be installed.
func foreign(t *testing.T, result any, args ...string) {
	t.Helper()
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		t.Skip("cannot run: Open3D is installed on Linux x86-64 only")
	}
	var said strings.Builder
	install := exec.Command("./install.sh")
	install.Stderr = &said
	folder, err := install.Output()
	if err != nil {
		t.Skipf("cannot run: install.sh could not install the readers from PyPI: %v\n%s", err, said.String())
	}
	cmd := exec.Command("python3", append([]string{"read.py"}, args...)...)
	cmd.Env = append(os.Environ(), "PYTHONPATH="+strings.TrimSpace(string(folder)))
	output(t, cmd, result)
}

// output decodes a command's JSON output.
func output(t *testing.T, cmd *exec.Cmd, result any) {
	t.Helper()
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(out, result)
	}
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
	}
}

const frames = 2

// place is the second camera's pose, rotated by 90° about y and translated.
var place = camera.Transform{R: [9]float64{0, 0, 1, 0, 1, 0, -1, 0, 0}, T: [3]float64{500, -200, 1000}}

// record makes a recording of a slope, seen by two cameras with the lens of an Azure Kinect.
func record(t *testing.T) string {
	t.Helper()
	lens := camera.Intrinsics{
		Width: 320, Height: 288, Fx: 252, Fy: 250, Cx: 160.5, Cy: 147.5,
		K: [6]float64{5.3, 3.6, 0.19, 5.6, 5.4, 1}, P: [2]float64{4e-5, -6e-5}, MaxRadius: 1.74,
	}
	path := filepath.Join(t.TempDir(), "a.mcap")
	w, err := recording.Create(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	at := time.Unix(1790000000, 0)
	write := func(name string, group uint64, payload []byte) {
		if err := w.Write(recording.Object{
			Track: wire.TrackName{Namespace: []string{"a"}, Name: name}, Group: group, Payload: payload, Arrival: at,
		}); err != nil {
			t.Fatal(err)
		}
		at = at.Add(time.Millisecond)
	}
	c := catalog.Catalog{Version: catalog.Version}
	for n, pose := range []camera.Transform{camera.Identity, place} {
		id, err := c.AddInit(fmt.Sprint(n), catalog.CameraInit{Grid: lens, Pose: pose, DepthMax: 5000})
		if err != nil {
			t.Fatal(err)
		}
		c.Tracks = append(c.Tracks, catalog.Track{
			Name: catalog.PointsTrack(n, "full"), Packaging: catalog.PackagingPoints, InitRef: id,
			Width: lens.Width, Height: lens.Height, Framerate: 30,
			Points: &catalog.Points{
				Camera: n, CameraName: fmt.Sprint(n), Quality: "full", Layout: "A", Descriptions: 1,
				MaxPoints: lens.Width * lens.Height,
			},
		})
	}
	doc, err := c.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	write(catalog.TrackName, 0, doc)
	enc, err := pointcloud.NewEncoder(pointcloud.EncoderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer enc.Close()
	for n := range frames {
		for cam := range 2 {
			g := pointcloud.Grid{
				Width: lens.Width, Height: lens.Height, Depth: make([]uint16, lens.Width*lens.Height),
				Color: make([]byte, 3*lens.Width*lens.Height),
			}
			for i := range g.Depth {
				if x := i % lens.Width; x > 60 && x < 260 && i > 60*lens.Width && i < 230*lens.Width {
					g.Depth[i] = uint16(1000 + 100*n + x)
					g.Color[3*i], g.Color[3*i+1], g.Color[3*i+2] = byte(50+100*cam), byte(x/2), 200
				}
			}
			b, err := enc.Encode(nil, pointcloud.Header{
				Sequence: uint32(n), CaptureTime: 1_790_000_000_000_000 + 33333*uint64(n), Camera: uint16(cam), Descriptions: 1,
			}, &pointcloud.Frame{Layout: pointcloud.LayoutGrid, Grid: g}, 0)
			if err != nil {
				t.Fatal(err)
			}
			write(catalog.PointsTrack(cam, "full"), uint64(n), b)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// cloud summarizes points.
type cloud struct {
	Points int
	Mean   [3]float64 // metres
	Color  [3]float64 // 0 to 1
}

// expected summarizes the clouds of the exported PLY files, which are in session coordinates.
func expected(t *testing.T, path string) (list [2][]cloud) {
	t.Helper()
	dir := t.TempDir()
	if _, err := export.PLY(t.Context(), path, dir, false, export.Config{Log: slog.New(slog.DiscardHandler)}); err != nil {
		t.Fatal(err)
	}
	for n := range list {
		for i := range frames {
			f, err := os.Open(filepath.Join(dir, fmt.Sprintf("camera-%d", n), fmt.Sprintf("frame-%06d.ply", i)))
			if err != nil {
				t.Fatal(err)
			}
			p, err := plyfile.Read(f)
			if err := errors.Join(err, f.Close()); err != nil {
				t.Fatal(err)
			}
			c := cloud{Points: len(p.XYZ) / 3}
			for j := range p.XYZ {
				c.Mean[j%3] += float64(p.XYZ[j]) / float64(c.Points)
				c.Color[j%3] += float64(p.RGB[j]) / 255 / float64(c.Points)
			}
			list[n] = append(list[n], c)
		}
	}
	return list
}

func (c cloud) check(t *testing.T, want cloud, points, tolerance float64) {
	t.Helper()
	close := math.Abs(float64(c.Points)-float64(want.Points)) <= points*float64(want.Points)
	for i := range 3 {
		close = close && math.Abs(c.Mean[i]-want.Mean[i]) <= tolerance && math.Abs(c.Color[i]-want.Color[i]) <= 0.01
	}
	if !close {
		t.Errorf("cloud %+v, want %+v", c, want)
	}
}

func TestRGBD(t *testing.T) {
	path := record(t)
	dir := t.TempDir()
	if _, err := export.RGBD(t.Context(), path, dir, export.Config{}); err != nil {
		t.Fatal(err)
	}
	want := expected(t, path)
	var cameras []struct {
		Width  int
		Focal  [2]float64
		Same   bool
		Frames []cloud
	}
	foreign(t, &cameras, "rgbd", filepath.Join(dir, "camera-0"), filepath.Join(dir, "camera-1"))
	for n, got := range cameras {
		if got.Width != 320 || got.Focal != [2]float64{252, 250} || !got.Same || len(got.Frames) != frames {
			t.Fatalf("Open3D reads %+v", got)
		}
		for i, c := range got.Frames {
			// Undistortion changes the number of pixels.
			c.check(t, want[n][i], 0.2, 0.01)
		}
	}
}

func TestFoxglove(t *testing.T) {
	path := record(t)
	out := filepath.Join(t.TempDir(), "clouds.mcap")
	if _, err := export.Foxglove(t.Context(), path, out, export.Config{}); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Same       bool
		Clouds     map[string][]cloud
		Transforms [][3]any
	}
	foreign(t, &got, "foxglove", out)
	if !got.Same {
		t.Error("the schemas or times differ from Foxglove's")
	}
	want := [][3]any{{"session", "camera-0", 0.0}, {"session", "camera-1", 0.5}}
	if !reflect.DeepEqual(got.Transforms, want) {
		t.Errorf("transforms %v, want %v", got.Transforms, want)
	}
	for n, list := range expected(t, path) {
		clouds := got.Clouds[fmt.Sprintf("/camera-%d/points", n)]
		if len(clouds) != frames {
			t.Fatalf("%d clouds of camera %d: %v", len(clouds), n, got.Clouds)
		}
		for i, c := range clouds {
			if n == 1 { // its own coordinates
				mean := place.Apply([3]float64{1000 * c.Mean[0], 1000 * c.Mean[1], 1000 * c.Mean[2]})
				c.Mean = [3]float64{mean[0] / 1000, mean[1] / 1000, mean[2] / 1000}
			}
			c.check(t, list[i], 0, 1e-3)
		}
	}
}

// shape summarizes a mesh.
type shape struct {
	cloud
	Name      string
	Triangles int
	Facing    float64 // share of triangles on their normals' side
	Unlit     bool
}

// check compares a mesh of the test image's slope, 199×170 pixels, with its points.
func (s shape) check(t *testing.T, want cloud, cameras int) {
	t.Helper()
	s.cloud.check(t, want, 0, 1e-3)
	if s.Triangles != cameras*2*198*169 || s.Facing != 1 {
		t.Errorf("%+v", s)
	}
}

// merge summarizes the clouds of all cameras.
func merge(clouds ...cloud) (c cloud) {
	for _, d := range clouds {
		c.Points += d.Points
		for i := range 3 {
			c.Mean[i] += d.Mean[i] / float64(len(clouds))
			c.Color[i] += d.Color[i] / float64(len(clouds))
		}
	}
	return c
}

// yUp turns a cloud of a studio with y down to glTF's coordinates.
func (c cloud) yUp() cloud {
	c.Mean[1], c.Mean[2] = -c.Mean[1], -c.Mean[2]
	return c
}

func TestMeshes(t *testing.T) {
	path := record(t)
	want := expected(t, path)
	glb := filepath.Join(t.TempDir(), "frame.glb")
	if _, err := export.GLB(t.Context(), path, glb, 0, export.Config{}); err != nil {
		t.Fatal(err)
	}
	r, err := export.PLY(t.Context(), path, t.TempDir(), true, export.Config{Faces: true})
	if err != nil {
		t.Fatal(err)
	}
	all := merge(want[0][0], want[1][0])
	t.Run("Python", func(t *testing.T) {
		var got []map[string]shape
		foreign(t, &got, "meshes", glb, r.Files[0])
		for reader, s := range got[0] {
			t.Log(reader)
			s.check(t, all.yUp(), 2)
		}
		for reader, s := range got[1] {
			t.Log(reader)
			s.check(t, all, 2)
		}
	})
	t.Run("three.js", func(t *testing.T) {
		if _, err := os.Stat("../../client-web/node_modules/three"); err != nil {
			t.Skip("cannot run: three.js is not installed; run npm ci in client-web")
		}
		var got []shape
		output(t, exec.Command("node", "read.mjs", glb), &got)
		if len(got) != 2 {
			t.Fatalf("%d meshes of two cameras", len(got))
		}
		for n, s := range got {
			if s.check(t, want[n][0].yUp(), 1); s.Name != fmt.Sprintf("camera-%d", n) || !s.Unlit {
				t.Errorf("%+v", s)
			}
		}
	})
}
