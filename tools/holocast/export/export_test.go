package export

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/png"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/foxglove/mcap/go/mcap"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"holocast/internal/camera"
	"holocast/internal/catalog"
	"holocast/internal/k4amkv"
	"holocast/internal/moqt/wire"
	"holocast/internal/plyfile"
	"holocast/internal/pointcloud"
	"holocast/internal/recording"
	"holocast/internal/recording/recordingtest"
)

// lens is an Azure Kinect depth camera's lens at half size.
var lens = camera.Intrinsics{
	Width: 320, Height: 288, Fx: 252, Fy: 252, Cx: 160.5, Cy: 167.5,
	K: [6]float64{5.3, 3.6, 0.19, 5.6, 5.4, 1}, P: [2]float64{4e-5, -6e-5}, MaxRadius: 1.74,
}

const frames = 5

// firstCapture is the capture time of a recording's first frame, µs since 1970.
const firstCapture = 1_790_000_000_000_000

// grid returns frame n of a camera.
func grid(n, camera int) pointcloud.Grid {
	g := pointcloud.Grid{
		Width:  lens.Width,
		Height: lens.Height,
		Depth:  make([]uint16, lens.Width*lens.Height),
		Color:  make([]byte, 3*lens.Width*lens.Height),
	}
	for i := range g.Depth {
		if i%7 != 0 {
			g.Depth[i] = uint16(1000 + n + i%lens.Width)
			g.Color[3*i], g.Color[3*i+1], g.Color[3*i+2] = byte(i), byte(10*n), byte(camera)
		}
	}
	return g
}

// record makes a recording of cameras in a layout. Frame number drop of each camera lacks a
// description. moves are appended as objects of the pose track.
func record(t *testing.T, cameras, descriptions int, layout string, drop int, moves ...[]catalog.PoseEvent) string {
	t.Helper()
	return take{
		cameras: cameras, frames: frames, descriptions: descriptions, layout: layout, drop: drop, moves: moves,
	}.record(t)
}

// take describes a recording.
type take struct {
	cameras, frames, descriptions int
	layout                        string
	drop                          int // frame without its last description
	moves                         [][]catalog.PoseEvent
	missing                       func(frame, camera int) bool
	rates                         []float64 // frames per second of each camera; nil means 30
	early                         bool      // moves precede the frames
	paint                         func(frame int, rgb []byte)
	jitter                        func(frame int) time.Duration // of the capture time
	microphone                    *microphone
}

func (k take) record(t *testing.T) string {
	t.Helper()
	cameras, descriptions, layout := k.cameras, k.descriptions, k.layout
	path := filepath.Join(t.TempDir(), "a.mcap")
	w, err := recording.Create(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	enc, err := pointcloud.NewEncoder(pointcloud.EncoderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer enc.Close()
	ns := []string{"holocast", "test"}
	at := time.Unix(1790000000, 0)
	put := func(o recording.Object, name string) {
		at = at.Add(time.Millisecond)
		o.Track, o.Arrival = wire.TrackName{Namespace: ns, Name: name}, at
		if err := w.Write(o); err != nil {
			t.Fatal(err)
		}
	}
	write := func(name string, group, subgroup uint64, payload []byte) {
		put(recording.Object{Group: group, Subgroup: subgroup, ObjectID: subgroup, Payload: payload}, name)
	}
	c := catalog.Catalog{Version: catalog.Version}
	for n := range cameras {
		id, err := c.AddInit(
			fmt.Sprint(n),
			catalog.CameraInit{
				Grid:     lens,
				Pose:     camera.Transform{R: camera.Identity.R, T: [3]float64{1000 * float64(n)}},
				DepthMax: 5000,
			},
		)
		if err != nil {
			t.Fatal(err)
		}
		rate := 30.0
		if k.rates != nil {
			rate = k.rates[n]
		}
		c.Tracks = append(c.Tracks, catalog.Track{
			Name: catalog.PointsTrack(n, "full"), Packaging: catalog.PackagingPoints, InitRef: id,
			Width: lens.Width, Height: lens.Height, Framerate: rate,
			Points: &catalog.Points{
				Camera:       n,
				CameraName:   fmt.Sprintf("camera %d", n),
				Quality:      "full",
				Layout:       layout,
				Descriptions: descriptions,
				MaxPoints:    lens.Width * lens.Height,
			},
		})
	}
	if len(k.moves) > 0 {
		c.Tracks = append(c.Tracks, catalog.NewPoseTrack())
	}
	if k.microphone != nil {
		c.Tracks = append(c.Tracks, k.microphone.describe())
	}
	doc, err := c.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	write(catalog.TrackName, 0, 0, doc)
	writeMoves := func() {
		for i, events := range k.moves {
			doc, err := catalog.MarshalPoses(events)
			if err != nil {
				t.Fatal(err)
			}
			write(catalog.PoseTrack, uint64(i), 0, doc)
		}
	}
	if k.early {
		writeMoves()
	}
	if k.microphone != nil {
		k.microphone.run(t, func(o recording.Object) { put(o, catalog.SoundTrack(0)) })
	}
	for f := range k.frames {
		for n := range cameras {
			if k.missing != nil && k.missing(f, n) {
				continue
			}
			h := pointcloud.Header{
				Sequence:     uint32(f),
				DeviceTime:   uint64(5e6 + 33333*f),
				CaptureTime:  firstCapture + 33333*uint64(f),
				Camera:       uint16(n),
				Descriptions: uint8(descriptions),
			}
			if k.jitter != nil {
				h.CaptureTime += uint64(k.jitter(f).Microseconds())
			}
			for d := range descriptions {
				if f == k.drop && d == descriptions-1 {
					continue
				}
				from := pointcloud.Frame{
					Grid:   grid(f, n),
					Points: pointcloud.Points{XYZ: []int16{1, 2, 3, 4, 5, 6}, RGB: make([]byte, 6)},
				}
				from.Layout, _ = pointcloud.ParseLayout(layout)
				if k.paint != nil {
					k.paint(f, from.Grid.Color)
				}
				b, err := enc.Encode(nil, h, &from, d)
				if err != nil {
					t.Fatal(err)
				}
				write(catalog.PointsTrack(n, "full"), uint64(100+f), uint64(d), b)
			}
		}
	}
	if !k.early {
		writeMoves()
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

var quiet = Config{Log: slog.New(slog.DiscardHandler)}

func TestPLY(t *testing.T) {
	points := 0
	for _, d := range grid(0, 0).Depth {
		if d != 0 {
			points++
		}
	}
	for _, tt := range []struct {
		name            string
		cameras         []int
		merged          bool
		files           int
		file            string
		points, minimum int
	}{
		{"merged", nil, true, frames, "frame-000002.ply", 2 * points, 2 * points * 9 / 10},
		{"per camera", nil, false, 2 * frames, "camera-1/frame-000004.ply", points, points * 9 / 10},
		{"one camera", []int{1}, true, frames, "frame-000000.ply", points, points * 9 / 10},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			cfg := quiet
			cfg.Cameras = tt.cameras
			r, err := PLY(t.Context(), record(t, 2, 4, "A", 1), dir, tt.merged, cfg)
			if err != nil {
				t.Fatal(err)
			}
			if len(r.Files) != tt.files || r.Frames != tt.files || r.Damaged+r.Late != 0 || r.Partial == 0 {
				t.Errorf("%+v", r)
			}
			f, err := os.Open(filepath.Join(dir, tt.file))
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			// Some corners of the image have no rays.
			if c, err := plyfile.Read(f); err != nil || len(c.XYZ) > 3*tt.points || len(c.XYZ) < 3*tt.minimum {
				t.Errorf("%d coordinates of %d points, %v", len(c.XYZ), tt.points, err)
			}
		})
	}
}

// TestMergedByTime checks which cameras' frames a merged file contains.
func TestMergedByTime(t *testing.T) {
	for _, tt := range []struct {
		name    string
		cameras int
		rates   []float64
		missing func(frame, camera int) bool
		clouds  []int // per file
	}{
		{"all there", 3, nil, nil, []int{3, 3, 3, 3, 3, 3, 3, 3, 3, 3}},
		{"one ends", 3, nil, func(f, n int) bool { return n == 1 && f >= 2 }, []int{3, 3, 2, 2, 2, 2, 2, 2, 2, 2}},
		{"one begins late", 2, nil, func(f, n int) bool { return n == 1 && f < 7 }, []int{1, 1, 1, 1, 1, 1, 1, 2, 2, 2}},
		{"one loses a frame", 2, nil, func(f, n int) bool { return n == 1 && f == 4 }, []int{2, 2, 2, 2, 1, 2, 2, 2, 2, 2}},
		{
			"one has half the rate", 2,
			[]float64{30, 15},
			func(f, n int) bool { return n == 1 && f%2 == 1 },
			[]int{2, 2, 2, 2, 2, 2, 2, 2, 2, 2},
		},
		{
			"the first has half the rate", 2,
			[]float64{15, 30},
			func(f, n int) bool { return n == 0 && f%2 == 1 },
			[]int{2, 2, 2, 2, 2},
		},
		{"the first ends", 3, nil, func(f, n int) bool { return n == 0 && f >= 2 }, []int{3, 3, 2, 2, 2, 2, 2, 2, 2}},
		{
			"the first begins late", 3, nil,
			func(f, n int) bool { return n == 0 && f < 7 },
			[]int{2, 2, 2, 2, 2, 2, 2, 3, 3, 3},
		},
		{
			"the first pauses", 2, nil,
			func(f, n int) bool { return n == 0 && f > 1 && f < 8 },
			[]int{2, 2, 1, 1, 1, 1, 1, 2, 2},
		},
		{"the first has no frame", 2, nil, func(_, n int) bool { return n == 0 }, []int{1, 1, 1, 1, 1, 1, 1, 1, 1, 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			path := take{
				cameras: tt.cameras, frames: 10, descriptions: 1, layout: "B", drop: -1, rates: tt.rates, missing: tt.missing,
			}.record(t)
			r, err := PLY(t.Context(), path, dir, true, quiet)
			if err != nil {
				t.Fatal(err)
			}
			var got []int
			for _, file := range r.Files {
				got = append(got, len(readPLY(t, file).XYZ)/6) // two points each
			}
			if !slices.Equal(got, tt.clouds) {
				t.Errorf("%v clouds per file, want %v", got, tt.clouds)
			}
		})
	}
}

func readPLY(t *testing.T, path string) plyfile.Cloud {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	c, err := plyfile.Read(f)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestK4A(t *testing.T) {
	for _, format := range []camera.ColorFormat{camera.BGRA, camera.MJPG} {
		t.Run(string(format), func(t *testing.T) {
			dir := t.TempDir()
			r, err := K4A(t.Context(), record(t, 2, 1, "A", -1), dir, format, quiet)
			if err != nil || r.Frames != 2*frames || len(r.Files) != 2 {
				t.Fatalf("%+v, %v", r, err)
			}
			mkv, err := k4amkv.Open(filepath.Join(dir, "camera-1.mkv"))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = mkv.Close() }()
			if mkv.Config.DepthMode != camera.NFOV2x2Binned || mkv.Config.ColorMode != camera.Color720P ||
				mkv.Config.Serial != "camera 1" {
				t.Errorf("%+v", mkv.Config)
			}
			cal, err := camera.Parse(mkv.Config.Calibration, mkv.Config.DepthMode, mkv.Config.ColorMode)
			if err != nil {
				t.Fatal(err)
			}
			var c k4amkv.Capture
			for n := range frames {
				if err := mkv.Next(&c); err != nil {
					t.Fatal(err)
				}
				if want := time.Duration(5e6+33333*n) * time.Microsecond; c.DepthTime != want || c.ColorTime != want {
					t.Errorf("capture %d at %v, %v, want %v", n, c.DepthTime, c.ColorTime, want)
				}
				checkCapture(t, &c, grid(n, 1), cal, format)
			}
		})
	}
}

// checkCapture checks a capture's depth, and that the calibration maps every point to its color.
func checkCapture(
	t *testing.T, c *k4amkv.Capture, want pointcloud.Grid, cal camera.Calibration, format camera.ColorFormat,
) {
	t.Helper()
	rays := cal.Depth.RayTable()
	for i, d := range want.Depth {
		if c.Depth[i] != d {
			t.Fatalf("depth %d of pixel %d, want %d", c.Depth[i], i, d)
		}
		x := float64(rays.X[i])
		if d == 0 || math.IsNaN(x) || format != camera.BGRA {
			continue
		}
		z := float64(d)
		u, v, ok := cal.Color.Project(cal.DepthToColor.Apply([3]float64{x * z, float64(rays.Y[i]) * z, z}))
		if !ok {
			t.Fatalf("pixel %d is outside the color image", i)
		}
		at := 4 * (int(math.Round(v))*cal.Color.Width + int(math.Round(u)))
		got := []byte{c.Color[at+2], c.Color[at+1], c.Color[at]}
		if !bytes.Equal(got, want.Color[3*i:3*i+3]) {
			t.Fatalf("color %v of pixel %d, want %v", got, i, want.Color[3*i:3*i+3])
		}
	}
}

// TestUsedFolder checks that an export never mixes with an earlier one, and that Force deletes only
// the earlier export's files.
func TestUsedFolder(t *testing.T) {
	recording := take{cameras: 2, frames: 2, descriptions: 1, layout: "A", drop: -1}.record(t)
	exports := map[string]func(dir string, cfg Config) (Result, error){
		"ply": func(dir string, cfg Config) (Result, error) { return PLY(t.Context(), recording, dir, true, cfg) },
		"ply per camera": func(dir string, cfg Config) (Result, error) {
			return PLY(t.Context(), recording, dir, false, cfg)
		},
		"k4a": func(dir string, cfg Config) (Result, error) {
			return K4A(t.Context(), recording, dir, camera.MJPG, cfg)
		},
		"rgbd": func(dir string, cfg Config) (Result, error) { return RGBD(t.Context(), recording, dir, cfg) },
	}
	// Files of an earlier, longer export with more cameras.
	stale := map[string][]string{
		"ply":            {"frame-000099.ply", "camera-7/frame-000000.ply"},
		"ply per camera": {"frame-000000.ply", "camera-1/frame-000099.ply"},
		"k4a":            {"camera-0.mkv", "camera-7.mkv"},
		"rgbd":           {"camera-0/depth/000099.png", "camera-7/trajectory.log"},
	}
	own := []string{"notes.txt", "frame-1.ply", "frame-000000-mine.ply", "camera-7/color/mine.png", "camera-front.mkv"}
	for name, run := range exports {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "a[b]*")
			write := func(names []string) {
				for _, file := range names {
					path := filepath.Join(dir, file)
					if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
						t.Fatal(err)
					}
					if err := os.WriteFile(path, []byte(name), 0o600); err != nil {
						t.Fatal(err)
					}
				}
			}
			contents := func() (list []string) {
				_ = filepath.WalkDir(dir, func(path string, e os.DirEntry, _ error) error {
					if rel, _ := filepath.Rel(dir, path); !e.IsDir() {
						list = append(list, rel)
					}
					return nil
				})
				return list
			}
			write(own)
			fresh, err := run(dir, quiet)
			if err != nil {
				t.Fatal(err)
			}
			want := contents()
			if len(want) != len(own)+len(fresh.Files) {
				t.Fatalf("files %v, want %v and %v", want, own, fresh.Files)
			}
			write(stale[name])
			before := contents()
			if _, err := run(dir, quiet); err == nil || !strings.Contains(err.Error(), "--force") ||
				!strings.Contains(err.Error(), dir) {
				t.Errorf("used folder: %v", err)
			}
			if got := contents(); !slices.Equal(got, before) {
				t.Errorf("a refused export leaves %v, want %v", got, before)
			}
			cfg := quiet
			cfg.Force = true
			if r, err := run(dir, cfg); err != nil || r.Frames != fresh.Frames {
				t.Errorf("forced: %+v, %v", r, err)
			}
			if got := contents(); !slices.Equal(got, want) {
				t.Errorf("forced, files %v, want %v", got, want)
			}
			for _, file := range own {
				if b, err := os.ReadFile(filepath.Join(dir, file)); err != nil || string(b) != name {
					t.Errorf("%s: %q, %v", file, b, err)
				}
			}
		})
	}
	t.Run("foxglove", func(t *testing.T) {
		out := filepath.Join(t.TempDir(), "a.mcap")
		for n, want := range []string{"", "exists", "", "is the recording itself"} {
			cfg := quiet
			cfg.Force = n >= 2
			from := recording
			if n == 3 {
				from = out
			}
			if _, err := Foxglove(t.Context(), from, out, cfg); want == "" && err != nil ||
				want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
				t.Errorf("run %d: %v, want %q", n, err, want)
			}
		}
	})
}

// TestRGBD checks the images against the frames. Each pixel must show the point on the pinhole
// camera's ray.
func TestRGBD(t *testing.T) {
	dir := t.TempDir()
	r, err := RGBD(t.Context(), record(t, 2, 1, "A", -1), dir, quiet)
	if err != nil || r.Frames != 2*frames {
		t.Fatalf("%+v, %v", r, err)
	}
	decode := func(path string) image.Image {
		f, err := os.Open(filepath.Join(dir, path))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		i, err := png.Decode(f)
		if err != nil {
			t.Fatal(err)
		}
		return i
	}
	depth, ok := decode("camera-1/depth/000003.png").(*image.Gray16)
	color := decode("camera-1/color/000003.png")
	if !ok || depth.Rect.Dx() != lens.Width || color.Bounds() != depth.Rect {
		t.Fatalf("depth %T of %v, color of %v", depth, depth.Bounds(), color.Bounds())
	}
	from := grid(3, 1)
	points := 0
	for y := range lens.Height {
		for x := range lens.Width {
			got := depth.Gray16At(x, y).Y
			if got == 0 {
				continue
			}
			points++
			u, v, ok := lens.Project([3]float64{(float64(x) - lens.Cx) / lens.Fx, (float64(y) - lens.Cy) / lens.Fy, 1})
			i := int(math.Round(v))*lens.Width + int(math.Round(u))
			r, g, b, _ := color.At(x, y).RGBA()
			if !ok || got != from.Depth[i] || [3]byte{byte(r), byte(g), byte(b)} != [3]byte(from.Color[3*i:]) {
				t.Fatalf("pixel %d, %d: depth %d, color %d %d %d, want pixel %d's", x, y, got, r>>8, g>>8, b>>8, i)
			}
		}
	}
	if points < lens.Width*lens.Height/2 {
		t.Errorf("%d points", points)
	}
	for file, want := range map[string]string{
		"intrinsic.json":   `"intrinsic_matrix":[252,0,0,0,252,0,160.5,167.5,1]`,
		"trajectory.json":  `{"class_name":"PinholeCameraParameters","extrinsic":[1,0,0,0,0,1,0,0,0,0,1,0,-1,0,0,1]`,
		"trajectory.log":   "4 4 5\n1 0 0 1\n0 1 0 0\n0 0 1 0\n0 0 0 1\n",
		"associations.txt": "1790000000.099999 depth/000003.png 1790000000.099999 color/000003.png\n",
		"groundtruth.txt":  "1790000000.099999 1.000000 0.000000 0.000000 0.000000000 0.000000000 0.000000000 1.000000000\n",
	} {
		b, err := os.ReadFile(filepath.Join(dir, "camera-1", file))
		if err != nil || !strings.Contains(string(b), want) {
			t.Errorf("%s lacks %q: %.300q, %v", file, want, b, err)
		}
	}
}

// TestFoxglove reads the messages with their embedded schemas.
func TestFoxglove(t *testing.T) {
	moved := []catalog.PoseEvent{{
		T: 1_790_000_000_000 + 100, Data: catalog.Pose{Camera: 1, Pose: translated(9000)}, // between frames 2 and 3
	}}
	for _, layout := range []string{"A", "B"} {
		out := filepath.Join(t.TempDir(), "a.mcap")
		r, err := Foxglove(t.Context(), record(t, 2, 1, layout, -1, moved), out, quiet)
		if err != nil || r.Frames != 2*frames || !slices.Equal(r.Files, []string{out}) {
			t.Fatalf("%+v, %v", r, err)
		}
		f, err := os.Open(out)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		reader, err := mcap.NewReader(f)
		if err != nil {
			t.Fatal(err)
		}
		it, err := reader.Messages()
		if err != nil {
			t.Fatal(err)
		}
		topics := map[string]int{}
		var positions []string
		if err := mcap.Range(it, func(s *mcap.Schema, c *mcap.Channel, m *mcap.Message) error {
			topics[c.Topic]++
			var set descriptorpb.FileDescriptorSet
			if err := proto.Unmarshal(s.Data, &set); err != nil {
				return err
			}
			files, err := protodesc.NewFiles(&set)
			if err != nil {
				return err
			}
			d, err := files.FindDescriptorByName(protoreflect.FullName(s.Name))
			if err != nil {
				return err
			}
			message := dynamicpb.NewMessage(d.(protoreflect.MessageDescriptor))
			if err := proto.Unmarshal(m.Data, message); err != nil {
				return err
			}
			if len(message.GetUnknown()) > 0 || s.Encoding != "protobuf" || c.MessageEncoding != "protobuf" {
				return fmt.Errorf("%s does not fit its schema", c.Topic)
			}
			text, err := protojson.Marshal(message)
			if err != nil {
				return err
			}
			var v struct {
				FrameID     string `json:"frameId"`
				PointStride int    `json:"pointStride"`
				Data        []byte `json:"data"`
				Transforms  []struct {
					Timestamp, ParentFrameID, ChildFrameID string
					Translation                            struct{ X float64 }
				} `json:"transforms"`
			}
			if err := json.Unmarshal(text, &v); err != nil {
				return err
			}
			for _, x := range v.Transforms {
				positions = append(positions, fmt.Sprint(x.ParentFrameID, " ", x.ChildFrameID, " ", x.Translation.X))
			}
			if c.Topic == "/camera-1/points" && layout == "B" {
				want := []byte{}
				for _, mm := range []float32{1, 2, 3} {
					want = binary.LittleEndian.AppendUint32(want, math.Float32bits(mm/1000))
				}
				if want = append(want, 0, 0, 0, 255); v.PointStride != 16 || !bytes.Equal(v.Data[:16], want) ||
					len(v.Data) != 32 || v.FrameID != "camera-1" {
					return fmt.Errorf("points %v of stride %d in %q, want %v first", v.Data, v.PointStride, v.FrameID, want)
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if topics["/camera-0/points"] != frames || topics["/camera-1/points"] != frames || topics["/tf"] != 3 {
			t.Errorf("messages %v", topics)
		}
		want := []string{"session camera-0 0", "session camera-1 1", "session camera-1 9"}
		if !slices.Equal(positions, want) {
			t.Errorf("transforms %q, want %q", positions, want)
		}
	}
}

// TestTrimmed exports a recording that another tool trimmed. The recording includes the poses valid
// at its start.
func TestTrimmed(t *testing.T) {
	began := []catalog.PoseEvent{{T: 1_789_999_999_000, Data: catalog.Pose{Camera: 1, Pose: translated(7000)}}}
	path := take{
		cameras: 2, frames: 10, descriptions: 4, layout: "B", drop: -1, moves: [][]catalog.PoseEvent{began}, early: true,
	}.record(t)
	cut := recordingtest.Rewrite(t, path, recordingtest.Rewriting{
		// The recording holds two messages, then eight per frame. The cut falls within the first
		// camera's third frame.
		After: time.Unix(1790000000, 0).Add(21 * time.Millisecond),
	})
	r, err := PLY(t.Context(), cut, t.TempDir(), true, quiet)
	if err != nil || r.Frames != 8 || r.Partial+r.Damaged+r.Late != 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	for i, want := range []float64{7.001, 0.001} {
		c := readPLY(t, r.Files[0])
		if i == 1 {
			c = readPLY(t, r.Files[1])
		}
		if got := float64(c.XYZ[0]); math.Abs(got-want) > 1e-4 {
			t.Errorf("file %d: the first point is at x = %g m, want %g", i, got, want)
		}
	}
	_, err = PLY(t.Context(), recordingtest.Rewrite(t, path, recordingtest.Rewriting{
		After: time.Unix(1790000000, 0).Add(21 * time.Millisecond), DropMetadata: true,
	}), t.TempDir(), true, quiet)
	if err == nil || !strings.Contains(err.Error(), "its start was cut off") {
		t.Errorf("without metadata: %v", err)
	}
}

func TestRefused(t *testing.T) {
	dir := t.TempDir()
	points := record(t, 1, 1, "B", -1)
	if _, err := K4A(t.Context(), points, dir, camera.MJPG, quiet); err == nil ||
		!strings.Contains(err.Error(), "only layouts A and W") {
		t.Errorf("layout B: %v", err)
	}
	if r, err := PLY(t.Context(), points, dir, true, quiet); err != nil || r.Frames != frames {
		t.Errorf("layout B as PLY: %+v, %v", r, err)
	}
	cfg := quiet
	cfg.Cameras = []int{4}
	if _, err := PLY(t.Context(), points, dir, true, cfg); err == nil ||
		!strings.Contains(err.Error(), "has no camera 4, only [0]") {
		t.Errorf("camera 4: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := PLY(ctx, points, t.TempDir(), true, quiet); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// TestPosesThatAreCorrectedLater checks that a pose event also applies to earlier frames, since
// cameras publish before their poses are known.
func TestPosesThatAreCorrectedLater(t *testing.T) {
	at := func(ms int64, camera int, x float64) catalog.PoseEvent {
		return catalog.PoseEvent{T: 1_790_000_000_000 + ms, Data: catalog.Pose{Camera: camera, Pose: translated(x)}}
	}
	first := []catalog.PoseEvent{at(-1000, 0, 1), at(-1000, 1, 1)}
	corrected := []catalog.PoseEvent{at(-1000, 0, 7000), at(-1000, 1, 8000)}
	moved := []catalog.PoseEvent{at(100, 1, 9000)} // between frames 2 and 3
	broken := []catalog.PoseEvent{{Data: catalog.Pose{Camera: 0}}, at(0, 5, 1)}
	dir := t.TempDir()
	file := record(t, 2, 1, "B", -1, first, corrected, moved, broken)
	if _, err := PLY(t.Context(), file, dir, false, quiet); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]float32{
		"camera-0/frame-000000.ply": 7.001, "camera-0/frame-000004.ply": 7.001,
		"camera-1/frame-000002.ply": 8.001, "camera-1/frame-000004.ply": 9.001,
	} {
		if got := readPLY(t, filepath.Join(dir, name)).XYZ[0]; math.Abs(float64(got-want)) > 1e-4 {
			t.Errorf("%s: the first point is at x = %g m, want %g", name, got, want)
		}
	}
}

func translated(x float64) camera.Transform {
	return camera.Transform{R: camera.Identity.R, T: [3]float64{x}}
}
