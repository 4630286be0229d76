package export

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"image"
	"image/png"
	"math"
	"os"
	"path/filepath"

	"holocast/internal/camera"
	"holocast/internal/pointcloud"
)

// RGBD writes one folder of RGB-D images per camera into dir. The folders are called camera-0 and
// so on and contain:
//
//	depth/000000.png      16 bits, millimetres, 0 = no reading
//	color/000000.png      8 bits RGB, aligned with the depth image
//	intrinsic.json        Open3D's PinholeCameraIntrinsic
//	trajectory.json       Open3D's PinholeCameraTrajectory: intrinsics and extrinsics per image
//	trajectory.log        Open3D's and Redwood's camera-to-session matrices, metres
//	associations.txt      the TUM RGB-D benchmark's pairs of images with times, UNIX seconds
//	groundtruth.txt       its camera poses, metres
//
// The images are undistorted to a pinhole camera of the same focal length, by nearest-pixel lookup.
// Pixels outside that camera's view are lost.
func RGBD(ctx context.Context, path, dir string, cfg Config) (Result, error) {
	x, err := open(path, cfg)
	if err != nil {
		return Result{}, err
	}
	defer func() { _ = x.close() }() // read-only
	sets := map[*stream]*imageSet{}
	for _, s := range x.chosen {
		if !s.layout.OnGrid() {
			return Result{}, fmt.Errorf(
				"camera %d has layout %s: only layouts A and W hold sensor images; export --ply accepts all layouts", s.number,
				s.layout,
			)
		}
		sets[s] = newImageSet(filepath.Join(dir, fmt.Sprintf("camera-%d", s.number)), s.init.Grid)
	}
	if err := RGBDFiles.prepare(dir, cfg.Force); err != nil {
		return Result{}, err
	}
	err = x.frames(ctx, func(s *stream, f *frame) error {
		h, err := s.decodeGrid(f)
		if err != nil {
			x.damaged(s, f, err)
			return nil
		}
		files, err := sets[s].add(&s.frame.Grid, h.CaptureTime, s.pose(h.CaptureTime))
		if err != nil {
			return err
		}
		x.result.Files = append(x.result.Files, files...)
		x.result.Frames++
		return nil
	})
	if err != nil {
		return x.result, err
	}
	for _, s := range x.chosen {
		files, err := sets[s].finish()
		if err != nil {
			return x.result, err
		}
		x.result.Files = append(x.result.Files, files...)
	}
	return x.result, nil
}

// imageSet is one camera's folder.
type imageSet struct {
	dir   string
	lens  camera.Intrinsics
	from  []int // source pixel of each pixel; -1 = none
	times []float64
	poses []camera.Transform // camera to session
	depth *image.Gray16
	color *image.RGBA
	png   png.Encoder
}

func newImageSet(dir string, lens camera.Intrinsics) *imageSet {
	size := image.Rect(0, 0, lens.Width, lens.Height)
	s := &imageSet{
		dir: dir, lens: lens, from: make([]int, lens.Width*lens.Height),
		depth: image.NewGray16(size), color: image.NewRGBA(size), png: png.Encoder{CompressionLevel: png.BestSpeed},
	}
	for i := range s.from {
		x, y := (float64(i%lens.Width)-lens.Cx)/lens.Fx, (float64(i/lens.Width)-lens.Cy)/lens.Fy
		u, v, ok := lens.Project([3]float64{x, y, 1})
		u, v = math.Round(u), math.Round(v)
		s.from[i] = -1
		if ok && u >= 0 && v >= 0 && u < float64(lens.Width) && v < float64(lens.Height) {
			s.from[i] = int(v)*lens.Width + int(u)
		}
	}
	return s
}

// add writes the images of a frame captured at the given time, in µs since 1970. It returns their
// paths.
func (s *imageSet) add(g *pointcloud.Grid, at uint64, pose camera.Transform) ([]string, error) {
	clear(s.depth.Pix)
	clear(s.color.Pix)
	for i, from := range s.from {
		to := s.color.Pix[4*i : 4*i+4]
		to[3] = 255
		if from < 0 || g.Depth[from] == 0 {
			continue
		}
		binary.BigEndian.PutUint16(s.depth.Pix[2*i:], g.Depth[from])
		copy(to, g.Color[3*from:3*from+3])
	}
	var files []string
	for _, x := range []struct {
		folder string
		image  image.Image
	}{{"depth", s.depth}, {"color", s.color}} {
		path := filepath.Join(s.dir, x.folder, fmt.Sprintf("%06d.png", len(s.poses)))
		if err := create(path, func(f *os.File) error { return s.png.Encode(f, x.image) }); err != nil {
			return nil, err
		}
		files = append(files, path)
	}
	s.times, s.poses = append(s.times, float64(at)/1e6), append(s.poses, pose)
	return files, nil
}

// columns returns m as a 4×4 matrix in column-major order, with the translation in metres.
func columns(m camera.Transform) []float64 {
	r, t := &m.R, &m.T
	c := []float64{
		r[0], r[3], r[6], 0, r[1], r[4], r[7], 0, r[2], r[5], r[8], 0, t[0] / 1000, t[1] / 1000, t[2] / 1000, 1,
	}
	for i := range c {
		c[i] += 0 // not -0
	}
	return c
}

// finish writes the files that describe all images. It returns their paths.
func (s *imageSet) finish() ([]string, error) {
	type object = map[string]any
	intrinsic := object{
		"width": s.lens.Width, "height": s.lens.Height,
		"intrinsic_matrix": []float64{s.lens.Fx, 0, 0, 0, s.lens.Fy, 0, s.lens.Cx, s.lens.Cy, 1},
	}
	versioned := func(class string, o object) object {
		o["class_name"], o["version_major"], o["version_minor"] = class, 1, 0
		return o
	}
	parameters := []object{}
	var log, associations, truth bytes.Buffer
	truth.WriteString("# time tx ty tz qx qy qz qw, camera to session, seconds and metres\n")
	for i, pose := range s.poses {
		parameters = append(parameters, versioned("PinholeCameraParameters", object{
			"extrinsic": columns(pose.Inverse()), "intrinsic": intrinsic,
		}))
		fmt.Fprintf(&log, "%d %d %d\n", i, i, i+1)
		m := columns(pose)
		for row := range 4 {
			fmt.Fprintf(&log, "%.9g %.9g %.9g %.9g\n", m[row], m[row+4], m[row+8], m[row+12])
		}
		fmt.Fprintf(&associations, "%.6f depth/%06d.png %.6f color/%06d.png\n", s.times[i], i, s.times[i], i)
		q := pose.Quaternion()
		fmt.Fprintf(&truth, "%.6f %.6f %.6f %.6f %.9f %.9f %.9f %.9f\n", s.times[i], m[12], m[13], m[14], q.X, q.Y, q.Z, q.W)
	}
	trajectory, err := json.Marshal(versioned("PinholeCameraTrajectory", object{"parameters": parameters}))
	if err != nil {
		return nil, err
	}
	lens, err := json.Marshal(intrinsic)
	if err != nil {
		return nil, err
	}
	var files []string
	for _, x := range []struct {
		name     string
		contents []byte
	}{
		{"intrinsic.json", lens},
		{"trajectory.json", trajectory},
		{"trajectory.log", log.Bytes()},
		{"associations.txt", associations.Bytes()},
		{"groundtruth.txt", truth.Bytes()},
	} {
		path := filepath.Join(s.dir, x.name)
		if err := create(path, func(f *os.File) error {
			_, err := f.Write(x.contents)
			return err
		}); err != nil {
			return nil, err
		}
		files = append(files, path)
	}
	return files, nil
}
