// Package export converts a recorded session for other tools. It writes PLY files, Azure Kinect
// recordings, RGB-D image sets, Foxglove messages in an MCAP file, pictures, turntables, glTF, or a 360° video.
package export

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"

	"holocast/internal/camera"
	"holocast/internal/catalog"
	"holocast/internal/connect"
	"holocast/internal/mesh"
	"holocast/internal/moqt/wire"
	"holocast/internal/plyfile"
	"holocast/internal/pointcloud"
	"holocast/internal/pointvideo"
	"holocast/internal/recording"
	"holocast/internal/render"
)

// Config selects the exported data.
type Config struct {
	Cameras []int  // catalog numbers; nil = all
	Quality string // quality of the points tracks; "" means the highest bit rate
	Force   bool   // replace an earlier export
	Faces   bool   // PLY files hold the triangles of surfaces, not all points
	Log     *slog.Logger
	// Progress, if set, receives the number of objects read so far.
	Progress func(objects uint64)
}

// Result summarizes an export.
type Result struct {
	Files   []string
	Frames  int // number of PLY files, or of captures in all recordings
	Damaged int // undecodable frames, and objects without a valid frame header
	Partial int // frames with missing descriptions
	Late    int // objects skipped because their frame or a later one had been exported, or a later one had begun
}

// stream is the recorded track of one camera.
type stream struct {
	number  int
	track   catalog.Track
	init    catalog.CameraInit
	moves   []catalog.PoseEvent // in recording order
	rays    camera.RayTable
	layout  pointcloud.Layout
	decoder *pointcloud.Decoder
	video   *video           // of layout W, or nil
	frame   pointcloud.Frame // decoded last

	current *frame
	last    uint64 // group of the last frame passed on
	some    bool
	recent  []*frame // for merging
}

// frame holds the recorded descriptions of one frame.
type frame struct {
	group   uint64
	header  pointcloud.Header
	objects [][]byte
	used    bool // in a merged frame

	// In layout W, the frame is decoded when it is read.
	decoded bool
	grid    pointcloud.Grid
	err     error
}

// reader reads a recording frame by frame.
type reader struct {
	cfg     Config
	log     *slog.Logger
	r       *recording.Reader
	root    wire.TrackName // the catalog's
	streams map[string]*stream
	chosen  []*stream // by camera number
	result  Result
}

func open(path string, cfg Config) (*reader, error) {
	r, err := recording.Open(path)
	if err != nil {
		return nil, err
	}
	x := &reader{cfg: cfg, log: cmp.Or(cfg.Log, slog.Default()), r: r, streams: map[string]*stream{}}
	if err := x.findCameras(path); err != nil {
		return nil, errors.Join(err, x.close())
	}
	return x, nil
}

func (x *reader) close() error {
	for _, s := range x.chosen {
		s.decoder.Close()
		if s.video != nil {
			s.video.decoder.Close()
		}
	}
	return x.r.Close()
}

// findCameras selects the cameras' tracks from the recording's first catalog, and reads their
// poses.
func (x *reader) findCameras(path string) error {
	r, root, c, err := openCatalog(path)
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }() // read-only
	x.root = root
	for _, n := range x.cfg.Cameras {
		if !slices.Contains(c.Cameras(), n) {
			return fmt.Errorf("recording %s has no camera %d, only %v", path, n, c.Cameras())
		}
	}
	for _, n := range c.Cameras() {
		if x.cfg.Cameras != nil && !slices.Contains(x.cfg.Cameras, n) {
			continue
		}
		s := &stream{number: n}
		if s.track, err = c.Select(n, x.cfg.Quality); err != nil {
			return err
		}
		s.init.Pose = camera.Identity
		if s.track.InitRef != "" {
			if s.init, err = c.Init(s.track); err != nil {
				return err
			}
		}
		s.layout, _ = pointcloud.ParseLayout(s.track.Points.Layout) // the catalog is validated
		if s.layout.OnGrid() {
			s.rays = s.init.Grid.RayTable()
		}
		if s.decoder, err = pointcloud.NewDecoder(); err != nil {
			return err
		}
		s.decoder.MaxPoints = s.track.Points.MaxPoints
		x.chosen = append(x.chosen, s)
		if s.layout == pointcloud.LayoutVideo {
			d, err := pointvideo.NewDecoder()
			if err != nil {
				return fmt.Errorf("camera %d in layout %s: %w", n, s.layout, err)
			}
			d.MaxPoints = s.track.Points.MaxPoints
			s.video = &video{decoder: d}
		}
		x.streams[connect.TrackName(x.root.Namespace, s.track).String()] = s
	}
	if len(x.chosen) == 0 {
		return fmt.Errorf("recording %s has no point clouds", path)
	}
	for _, t := range c.Tracks {
		if t.EventType == catalog.PoseEventType {
			return x.findPoses(r, t)
		}
	}
	return nil
}

// findPoses reads the events of the pose track from the rest of the recording. An event may apply
// to earlier frames.
func (x *reader) findPoses(r *recording.Reader, t catalog.Track) error {
	name := connect.TrackName(x.root.Namespace, t).String()
	for {
		o, err := r.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil || o.Track.String() != name || o.EndOnly || o.Status != 0 {
			continue // frames reports errors
		}
		events, err := catalog.ParsePoses(o.Payload)
		if err != nil {
			x.log.Warn("skipped invalid poses", "group", o.Group, "err", err)
			continue
		}
		for _, e := range events {
			i := slices.IndexFunc(x.chosen, func(s *stream) bool { return s.number == e.Data.Camera })
			if i >= 0 && e.Data.Pose.Validate() == nil {
				x.chosen[i].moves = append(x.chosen[i].moves, e)
			}
		}
	}
}

// pose returns the camera's pose at the given time, in µs since 1970: that of the last event up to
// then, or else the initial pose.
func (s *stream) pose(at uint64) camera.Transform {
	for _, e := range slices.Backward(s.moves) {
		if e.T <= int64(at/1000) {
			return e.Data.Pose
		}
	}
	return s.init.Pose
}

// frames calls use for every frame of every camera, in arrival order.
func (x *reader) frames(ctx context.Context, use func(*stream, *frame) error) error {
	hand := func(s *stream, f *frame) error {
		if len(f.objects) < int(f.header.Descriptions) {
			x.result.Partial++
		}
		s.last, s.some = f.group, true
		return use(s, f)
	}
	var n uint64
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		o, err := x.r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			x.log.Warn("skipped a damaged record", "err", err)
			continue
		}
		if n++; x.cfg.Progress != nil {
			x.cfg.Progress(n)
		}
		s := x.streams[o.Track.String()]
		if s == nil || o.EndOnly || o.Status != 0 {
			continue
		}
		h, err := pointcloud.ParseHeader(o.Payload)
		if err != nil {
			x.result.Damaged++
			x.log.Warn("skipped a frame", "camera", s.number, "group", o.Group, "err", err)
			continue
		}
		if s.video != nil {
			f, late := s.video.take(s, o.Group, h, o.Payload)
			if late {
				x.result.Late++
			} else if err := hand(s, f); err != nil {
				return err
			}
			continue
		}
		if s.current != nil && o.Group > s.current.group {
			if err := hand(s, s.current); err != nil {
				return err
			}
			s.current = nil
		}
		if s.some && o.Group <= s.last || s.current != nil && o.Group < s.current.group {
			x.result.Late++
			continue
		}
		if s.current == nil {
			s.current = &frame{group: o.Group, header: h}
		}
		s.current.objects = append(s.current.objects, o.Payload)
		if len(s.current.objects) == int(h.Descriptions) {
			if err := hand(s, s.current); err != nil {
				return err
			}
			s.current = nil
		}
	}
	for _, s := range x.chosen {
		if s.current != nil {
			if err := hand(s, s.current); err != nil {
				return err
			}
			s.current = nil
		}
	}
	return nil
}

// view decodes a frame. The result is valid until the stream's next frame is decoded.
func (s *stream) view(f *frame) (render.Camera, error) {
	if _, err := s.decode(f); err != nil {
		return render.Camera{}, err
	}
	if g := &s.frame.Grid; s.frame.Layout.OnGrid() && (g.Width != s.rays.Width || g.Height != s.rays.Height) {
		return render.Camera{}, fmt.Errorf("frame has %d×%d pixels, but its track has %d×%d", g.Width, g.Height,
			s.rays.Width, s.rays.Height)
	}
	return render.Camera{Number: s.number, Frame: &s.frame, Rays: &s.rays, Pose: s.pose(f.header.CaptureTime)}, nil
}

// mergeDepth is the number of frames kept per camera to find the one closest in time to another
// camera's frame.
const mergeDepth = 4

// PLY writes one file per frame into dir. The files are called frame-000000.ply and so on if
// merged, otherwise camera-0/frame-000000.ply and so on. A merged frame consists of the first
// camera's frame and each other camera's closest frame by capture time, at most half a frame
// interval away.
func PLY(ctx context.Context, path, dir string, merged bool, cfg Config) (Result, error) {
	x, err := open(path, cfg)
	if err != nil {
		return Result{}, err
	}
	defer func() { _ = x.close() }() // read-only
	if cfg.Faces {
		if err := x.onGrid(); err != nil {
			return Result{}, err
		}
	}
	if err := PLYFiles.prepare(dir, cfg.Force); err != nil {
		return Result{}, err
	}
	if merged {
		err = x.merged(ctx, nil, func(_ uint64, shot render.Shot) error {
			return x.write(dir, x.result.Frames, shot)
		})
	} else {
		err = x.single(ctx, dir)
	}
	return x.result, err
}

// onGrid returns an error if a camera has no surface.
func (x *reader) onGrid() error {
	for _, s := range x.chosen {
		if !s.layout.OnGrid() {
			return render.NoGrid(s.number, s.layout)
		}
	}
	return nil
}

func (x *reader) single(ctx context.Context, dir string) error {
	counts := map[*stream]int{}
	return x.frames(ctx, func(s *stream, f *frame) error {
		view, err := s.view(f)
		if err != nil {
			x.damaged(s, f, err)
			return nil
		}
		folder := filepath.Join(dir, fmt.Sprintf("camera-%d", s.number))
		err = x.write(folder, counts[s], render.Shot{view})
		counts[s]++
		return err
	})
}

func (x *reader) damaged(s *stream, f *frame, err error) {
	x.result.Damaged++
	x.log.Warn("skipped a frame", "camera", s.number, "group", f.group, "err", err)
}

// merged calls use for each frame of the first camera, together with the other cameras' closest
// frames. While the first camera has none (before its first frame, after its last and in long gaps),
// it calls use for each frame of the camera whose frame is earliest. use receives the capture time, in µs since 1970.
// It skips frames whose time is not wanted, if wanted is not nil.
func (x *reader) merged(
	ctx context.Context, wanted func(at uint64) bool, use func(at uint64, shot render.Shot) error,
) error {
	first := x.chosen[0]
	lead := func(leader *stream, f *frame) error {
		at := f.header.CaptureTime
		decode := wanted == nil || wanted(at)
		var shot render.Shot
		for _, s := range x.chosen {
			f := f
			if s != leader {
				if f = s.nearest(at); f == nil {
					continue
				}
			}
			if f.used = true; !decode {
				continue
			}
			view, err := s.view(f)
			if err != nil {
				x.damaged(s, f, err)
				continue
			}
			shot = append(shot, view)
		}
		if !decode {
			return nil
		}
		return use(at, shot)
	}
	// A frame is used once its successor has arrived. By then the other cameras' frames from the
	// same time have also arrived.
	var pending *frame
	emit := func() error {
		if pending == nil {
			return nil
		}
		f := pending
		pending = nil
		return lead(first, f)
	}
	var led uint64 // capture time of the first camera's newest frame
	// orphans writes the frames before a given time that were captured while the first camera was
	// silent.
	orphans := func(until uint64) error {
		for {
			var leader *stream
			var f *frame
			for _, s := range x.chosen {
				for _, r := range s.recent {
					at := r.header.CaptureTime
					if !r.used && at < until && (led == 0 || at > led+uint64(1.5*first.period())) &&
						(f == nil || at < f.header.CaptureTime) {
						leader, f = s, r
					}
				}
			}
			if f == nil {
				return nil
			}
			if err := emit(); err != nil {
				return err
			}
			if err := lead(leader, f); err != nil {
				return err
			}
		}
	}
	err := x.frames(ctx, func(s *stream, f *frame) error {
		at := f.header.CaptureTime
		if s == first {
			if err := emit(); err != nil {
				return err
			}
			if err := orphans(at - min(at, uint64(first.period()/2))); err != nil {
				return err
			}
			pending, led = f, at
			return nil
		}
		s.recent = append(s.recent, f)
		if len(s.recent) <= mergeDepth {
			return nil
		}
		oldest := s.recent[0].header.CaptureTime
		if pending != nil && oldest+uint64(s.period()) > led {
			if err := emit(); err != nil { // while its companions are here
				return err
			}
		}
		err := orphans(oldest + 1)
		s.recent = slices.Delete(s.recent, 0, 1)
		return err
	})
	if err != nil {
		return err
	}
	if err := emit(); err != nil {
		return err
	}
	return orphans(math.MaxUint64)
}

// period returns the track's frame interval in µs.
func (s *stream) period() float64 {
	return 1e6 / min(max(cmp.Or(s.track.Framerate, 30), 0.1), 1000)
}

// nearest returns the frame captured closest to a time, in µs since 1970. It returns nil if none is
// within half a frame interval plus 1 ms of jitter, for example because the camera lost a frame.
func (s *stream) nearest(at uint64) *frame {
	var best *frame
	distance := s.period()/2 + 1000
	for _, f := range s.recent {
		if d := math.Abs(float64(int64(f.header.CaptureTime - at))); d <= distance {
			best, distance = f, d
		}
	}
	return best
}

// write writes frame n.
func (x *reader) write(dir string, n int, shot render.Shot) error {
	path := filepath.Join(dir, fmt.Sprintf("frame-%06d.ply", n))
	if err := create(path, func(f *os.File) error { return WritePLY(f, shot, x.cfg.Faces) }); err != nil {
		return err
	}
	x.result.Frames++
	x.result.Files = append(x.result.Files, path)
	return nil
}

// WritePLY writes a shot as points or triangles, all cameras merged.
func WritePLY(w io.Writer, shot render.Shot, faces bool) error {
	if !faces {
		var all pointcloud.Points
		clouds, _ := shot.Clouds()
		for _, c := range clouds {
			all.XYZ, all.RGB = append(all.XYZ, c.XYZ...), append(all.RGB, c.RGB...)
		}
		return plyfile.Write(w, all)
	}
	meshes, err := shot.Meshes()
	if err != nil {
		return err
	}
	var all mesh.Mesh
	for _, m := range meshes {
		all.Append(m)
	}
	return plyfile.WriteMesh(w, &all)
}

// WriteGLB writes a shot as glTF, a mesh per camera.
func WriteGLB(w io.Writer, shot render.Shot) error {
	meshes, err := shot.Meshes()
	if err != nil {
		return err
	}
	if !shot.YUp() {
		for _, m := range meshes {
			m.FlipYZ()
		}
	}
	return mesh.WriteGLB(w, meshes...)
}
