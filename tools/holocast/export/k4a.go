package export

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"time"

	"holocast/internal/camera"
	"holocast/internal/k4amkv"
	"holocast/internal/mjpeg"
	"holocast/internal/pointcloud"
)

// jpegQuality loses almost nothing for colors that were JPEG before.
const jpegQuality = 95

// K4A writes one Azure Kinect recording per camera into dir, called camera-0.mkv and so on,
// readable by libk4arecord. Depth is copied. Color is already mapped to depth pixels, so it is
// stored as the image of a color camera with the depth camera's pose and lens, which the
// recording's calibration describes. Every depth pixel thus maps to its own color. format is
// camera.MJPG, or camera.BGRA, which is exact and twenty times larger.
func K4A(ctx context.Context, path, dir string, format camera.ColorFormat, cfg Config) (result Result, err error) {
	x, err := open(path, cfg)
	if err != nil {
		return Result{}, err
	}
	defer func() { _ = x.close() }() // read-only
	if err := K4AFiles.prepare(dir, cfg.Force); err != nil {
		return Result{}, err
	}
	cameras := map[*stream]*kinect{}
	defer func() {
		for _, k := range cameras {
			err = first(errors.Join(err, k.close()))
		}
	}()
	for _, s := range x.chosen {
		k, err := newKinect(s, dir, format)
		if err != nil {
			return Result{}, err
		}
		cameras[s] = k
		if s.video != nil {
			x.log.Warn("the recording holds lossy points, not the camera's original data", "camera", s.number, "file", k.path)
		}
		x.result.Files = append(x.result.Files, k.path)
	}
	err = x.frames(ctx, func(s *stream, f *frame) error {
		h, err := s.decodeGrid(f)
		if err != nil {
			x.damaged(s, f, err)
			return nil
		}
		x.result.Frames++
		return cameras[s].write(&s.frame.Grid, h)
	})
	return x.result, err
}

// decodeGrid decodes a frame of a grid-layout track into s.frame.
func (s *stream) decodeGrid(f *frame) (pointcloud.Header, error) {
	h, err := s.decode(f)
	grid := &s.frame.Grid
	switch {
	case err != nil:
	case h.Layout != s.layout:
		err = fmt.Errorf("frame has layout %s, but its track has %s", h.Layout, s.layout)
	case grid.Width != s.track.Width || grid.Height != s.track.Height:
		err = fmt.Errorf("frame has %d×%d pixels, but its track has %d×%d", grid.Width, grid.Height, s.track.Width,
			s.track.Height)
	}
	return h, err
}

// kinect writes one camera's recording.
type kinect struct {
	path     string
	w        *k4amkv.Writer
	encoder  *mjpeg.Encoder // nil for BGRA
	width    int            // width of the color image
	height   int
	left     int // column of the depth image in the color image
	top      int
	rgb      []byte
	color    []byte
	last     time.Duration
	captures int
}

// place returns the depth mode of a grid and the smallest color mode that can contain it.
func place(width, height int) (camera.DepthMode, camera.ColorMode, error) {
	modes := []camera.DepthMode{camera.NFOVUnbinned, camera.NFOV2x2Binned, camera.WFOV2x2Binned, camera.WFOVUnbinned}
	for _, d := range modes {
		if w, h := d.Size(); w != width || h != height {
			continue
		}
		for _, c := range []camera.ColorMode{camera.Color720P, camera.Color1080P} {
			if w, h := c.Size(); w >= width && h >= height {
				return d, c, nil
			}
		}
	}
	return "", "", fmt.Errorf("no Azure Kinect depth mode has %d×%d pixels", width, height)
}

func newKinect(s *stream, dir string, format camera.ColorFormat) (*kinect, error) {
	if !s.layout.OnGrid() {
		return nil, fmt.Errorf(
			"camera %d has layout %s: only layouts A and W hold sensor images; export --ply accepts all layouts", s.number,
			s.layout,
		)
	}
	depth, color, err := place(s.track.Width, s.track.Height)
	if err != nil {
		return nil, fmt.Errorf("camera %d: %w; export --ply accepts all sizes", s.number, err)
	}
	k := &kinect{path: filepath.Join(dir, fmt.Sprintf("camera-%d.mkv", s.number))}
	k.width, k.height = color.Size()
	k.left, k.top = (k.width-s.track.Width)/2, (k.height-s.track.Height)/2
	lens := s.init.Grid
	lens.Width, lens.Height = k.width, k.height
	lens.Cx += float64(k.left)
	lens.Cy += float64(k.top)
	calibration := camera.Calibration{
		Serial:       s.track.Points.CameraName,
		Depth:        s.init.Grid,
		Color:        lens,
		DepthToColor: camera.Identity,
	}
	doc, err := calibration.Document(depth, color)
	if err != nil {
		return nil, fmt.Errorf("camera %d: %w", s.number, err)
	}
	if format == camera.MJPG {
		if k.encoder, err = mjpeg.NewEncoder(); err != nil {
			return nil, err
		}
		k.rgb = make([]byte, 3*k.width*k.height)
	} else {
		k.color = make([]byte, 4*k.width*k.height)
	}
	k.w, err = k4amkv.Create(k.path, k4amkv.Config{
		DepthMode: depth, Depth: true, ColorMode: color, ColorFormat: format,
		FPS: kinectRate(s.track.Framerate), Serial: s.track.Points.CameraName, Calibration: doc,
	})
	if err != nil {
		return nil, errors.Join(err, k.close())
	}
	return k, nil
}

// kinectRate returns the Azure Kinect frame rate closest to fps, or 30 if fps is 0 (unknown).
func kinectRate(fps float64) int {
	switch {
	case fps == 0 || fps > 22:
		return 30
	case fps > 10:
		return 15
	}
	return 5
}

func (k *kinect) close() error {
	if k.encoder != nil {
		k.encoder.Close()
	}
	if k.w == nil {
		return nil
	}
	return k.w.Close()
}

// write writes one frame at its device time. If that has not increased, because the source
// restarted, the frame follows the last one by 1/30 s.
func (k *kinect) write(g *pointcloud.Grid, h pointcloud.Header) error {
	at := time.Duration(min(h.DeviceTime, math.MaxInt64/2000)) * time.Microsecond
	if k.captures > 0 && at <= k.last {
		at = k.last + time.Second/30
	}
	k.last = at
	k.captures++
	c := k4amkv.Capture{Depth: g.Depth, DepthTime: at, ColorTime: at}
	if k.encoder == nil {
		for y := range g.Height {
			from := 3 * y * g.Width
			to := 4 * ((y+k.top)*k.width + k.left)
			for range g.Width {
				k.color[to], k.color[to+1], k.color[to+2], k.color[to+3] = g.Color[from+2], g.Color[from+1], g.Color[from], 255
				from, to = from+3, to+4
			}
		}
	} else {
		for y := range g.Height {
			copy(k.rgb[3*((y+k.top)*k.width+k.left):], g.Color[3*y*g.Width:3*(y+1)*g.Width])
		}
		var err error
		if k.color, err = k.encoder.EncodeRGB(k.color, k.rgb, k.width, k.height, jpegQuality); err != nil {
			return fmt.Errorf("%s: %w", k.path, err)
		}
	}
	c.Color = k.color
	return k.w.WriteCapture(&c)
}
