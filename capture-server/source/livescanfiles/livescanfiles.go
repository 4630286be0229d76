// Package livescanfiles plays directories of Azure Kinect frames in LiveScan3D's layouts. A
// recorded take is laid out as follows:
//
//	<take>/client_0/Intrinsics_Calib_0.json   the sensor's factory calibration
//	<take>/client_0/Depth_0.tiff …            16 bits, millimetres
//	<take>/client_0/Color_0.jpg …
//	<take>/client_0/Timestamps_Client0.txt    frame, device time in microseconds
//	<take>/Extrinsics_Open3D.log              camera poses, see [Poses]
//	<take>/audio.wav                          optional: the sound, from the first frame on
//
// LiveScan3D's published test set has a directory per mode:
//
//	<studio>/<camera>/Intrinsics.json
//	<studio>/<camera>/depthImages/NFOV_UNBINNED/Depth_1.tiff …
//	<studio>/<camera>/colorImages/720p/Color_1.jpg …
//
// The directories may also be called depth_NFOV_UNBINNED and color_720p.
//
// The cameras of a studio play synchronized and in a loop. A take plays by its timestamps, in its
// recorded modes; other studios play at Options.FPS. Colour stays JPEG. Missing and unreadable
// frames are gaps.
package livescanfiles

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"image"
	"io"
	"log/slog"
	"os"
	"time"

	"golang.org/x/image/tiff"
	"golang.org/x/sync/errgroup"

	"holocast/capture-server/source"
	"holocast/capture-server/source/pace"
	"holocast/internal/camera"
	"holocast/internal/mjpeg"
)

// Options selects what to play.
type Options struct {
	Depth  camera.DepthMode // for a studio with several modes; "" means NFOVUnbinned
	Color  camera.ColorMode // for a studio with several modes; "" means Color720P
	FPS    float64          // frame rate without timestamps; 0 means 30
	Frames int              // play only the first Frames of each camera; 0 means all
	Log    *slog.Logger     // nil is slog.Default
}

const (
	// maxFile bounds the size of a file in bytes; a Kinect's 4096×3072 JPEG takes about 4 MB.
	maxFile = 64 << 20
	// keepDepth bounds the decoded depth that a studio keeps in memory, in bytes. If a studio needs
	// more, each camera reads one frame ahead instead.
	keepDepth = 256 << 20
)

// Open opens the studio in dir, or a single camera's directory. Cameras are sorted by and named
// after their directories. Errors name the directory or file. If the requested modes are missing,
// the error wraps [ErrMode].
func Open(dir string, opts Options) ([]source.Source, error) {
	opts.Depth = cmp.Or(opts.Depth, camera.NFOVUnbinned)
	opts.Color = cmp.Or(opts.Color, camera.Color720P)
	opts.FPS = cmp.Or(opts.FPS, 30)
	opts.Log = cmp.Or(opts.Log, slog.Default())
	cameras, err := open(dir, opts)
	if err != nil {
		return nil, fmt.Errorf("livescan: %w", err)
	}
	return cameras, nil
}

func open(dir string, opts Options) ([]source.Source, error) {
	clock, err := pace.NewClock(opts.FPS)
	if err != nil {
		return nil, err
	}
	found, err := find(dir, opts)
	if err != nil {
		return nil, err
	}
	var total int
	for _, r := range found {
		if opts.Frames > 0 && len(r.frames) > opts.Frames {
			r.frames = r.frames[:opts.Frames]
		}
		w, h := r.depth.Size()
		total += 2 * w * h * len(r.frames)
	}
	timelines := schedule(found, clock, opts.Log)
	sound := findSound(dir, found, timelines, clock)
	sources := make([]source.Source, len(found))
	for i, r := range found {
		p, err := newPlayer(r)
		if err != nil {
			return nil, err
		}
		p.pace.Clock, p.pace.Recorded, p.sound = clock, timelines[i], sound
		if err := p.load(total <= keepDepth); err != nil {
			return nil, err
		}
		sources[i] = p
	}
	return sources, nil
}

// schedule returns each camera's frame times: device times if all frames have one; else times
// computed from the frame numbers if any camera lacks a frame; else nil, which means one frame per
// tick.
func schedule(cameras []*recorded, clock *pace.Clock, log *slog.Logger) []*pace.Recording {
	stamped, gaps := true, false
	for _, r := range cameras {
		for i, f := range r.frames {
			_, ok := r.stamps[f.number]
			stamped = stamped && ok
			gaps = gaps || f.number != r.frames[0].number+i || len(r.frames) != len(cameras[0].frames) ||
				f.number != cameras[0].frames[i].number
		}
	}
	if !stamped && !gaps {
		return make([]*pace.Recording, len(cameras))
	}
	recordings := make([]pace.Times, len(cameras))
	for i, r := range cameras {
		times := make([]time.Duration, len(r.frames))
		for k, f := range r.frames {
			times[k] = clock.Offset(int64(f.number))
			if stamped {
				times[k] = time.Duration(r.stamps[f.number]) * time.Microsecond
			}
		}
		recordings[i] = pace.Times{Name: r.name, Frames: times, Step: cmp.Or(pace.Interval(times), clock.Offset(1))}
	}
	return pace.Schedule(recordings, log)
}

// player is one camera.
type player struct {
	name  string
	cal   camera.Calibration
	files []filePair
	pace  pace.Camera
	fps   float64
	sound *Sound

	damaged map[int]bool // frames reported as unreadable

	kept  []picture    // all pictures, or nil
	ahead chan picture // receives the picture being read if kept is nil
}

// picture holds one capture's images.
type picture struct {
	index int
	depth []uint16
	color []byte
	err   error
}

func newPlayer(r *recorded) (*player, error) {
	doc, err := readFile(r.intrinsics)
	if err != nil {
		return nil, err
	}
	cal, err := camera.Parse(doc, r.depth, r.color)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.intrinsics, err)
	}
	return &player{name: r.name, cal: cal, files: r.frames, damaged: map[int]bool{}}, nil
}

// load sets the frame rate. If keep is set it also reads all images. It fails if no capture is
// readable.
func (p *player) load(keep bool) error {
	p.fps = p.pace.Clock.FPS()
	if r := p.pace.Recorded; r != nil {
		p.fps = 1 / cmp.Or(pace.Interval(r.Frames), p.pace.Clock.Offset(1)).Seconds()
	}
	read := p.read
	if keep {
		kept := make([]picture, len(p.files))
		var g errgroup.Group
		g.SetLimit(4)
		for i := range kept {
			g.Go(func() error {
				kept[i] = p.read(i)
				return nil
			})
		}
		_ = g.Wait()
		p.kept, read = kept, func(i int) picture { return kept[i] }
	}
	var damage error
	for i := range p.files {
		err := read(i).err
		if err == nil {
			return nil
		}
		if damage == nil {
			damage = err
		}
	}
	return damage
}

// read reads and checks one capture's images. depth is nil for a placeholder.
func (p *player) read(i int) picture {
	f := p.files[i]
	got := picture{index: i}
	file, err := readFile(f.depth)
	if err == nil {
		if got.depth, err = decodeDepth(file, p.cal.Depth.Width, p.cal.Depth.Height); err != nil {
			err = fmt.Errorf("%s: %w", f.depth, err)
		}
	}
	if err == nil && f.color != "" && got.depth != nil {
		if got.color, err = readFile(f.color); err == nil {
			if err = checkColor(got.color, p.cal.Color.Width, p.cal.Color.Height); err != nil {
				err = fmt.Errorf("%s: %w", f.color, err)
			}
		}
	}
	got.err = err
	return got
}

// picture returns the images of capture i. Unless all images are in memory, it also prefetches
// those of the next capture.
func (p *player) picture(i int) picture {
	if p.kept != nil {
		return p.kept[i]
	}
	got := picture{index: -1}
	if p.ahead != nil {
		got = <-p.ahead
	}
	if got.index != i {
		got = p.read(i)
	}
	ahead := make(chan picture, 1)
	next := (i + 1) % len(p.files)
	go func() { ahead <- p.read(next) }()
	p.ahead = ahead
	return got
}

// decodeDepth decodes a TIFF of width×height 16-bit grey pixels. It returns nil for the
// single-pixel image that stands for a missing frame.
func decodeDepth(file []byte, width, height int) ([]uint16, error) {
	cfg, err := tiff.DecodeConfig(bytes.NewReader(file))
	if err != nil {
		return nil, err
	}
	if isPlaceholder(cfg) {
		return nil, nil
	}
	if cfg.Width != width || cfg.Height != height {
		return nil, fmt.Errorf("depth image is %d×%d, the depth mode has %d×%d", cfg.Width, cfg.Height, width, height)
	}
	img, err := tiff.Decode(bytes.NewReader(file))
	if err != nil {
		return nil, err
	}
	gray, ok := img.(*image.Gray16)
	if !ok {
		return nil, fmt.Errorf("depth image is %T, want 16-bit grey", img)
	}
	depth := make([]uint16, width*height)
	for y := range height {
		row := gray.Pix[y*gray.Stride:]
		for x := range width {
			depth[y*width+x] = uint16(row[2*x])<<8 | uint16(row[2*x+1])
		}
	}
	return depth, nil
}

// checkColor checks a JPEG image's size. The image's data may still be damaged.
func checkColor(jpeg []byte, width, height int) error {
	d, err := mjpeg.NewDecoder()
	if err != nil {
		return err
	}
	defer d.Close()
	hdr, err := d.Header(jpeg)
	if err != nil {
		return err
	}
	if hdr.Width != width || hdr.Height != height {
		return fmt.Errorf("colour image is %d×%d, the colour mode has %d×%d", hdr.Width, hdr.Height, width, height)
	}
	return nil
}

func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, err
	}
	if len(b) > maxFile {
		return nil, fmt.Errorf("%s is larger than %d MiB", path, maxFile>>20)
	}
	return b, nil
}

func (p *player) Name() string { return p.name }

// Calibration returns the factory calibration for the modes.
func (p *player) Calibration() camera.Calibration { return p.cal }

// FPS returns the playback rate. For a take it is one over the median frame interval.
func (p *player) FPS() float64 { return p.fps }

// Dropped counts frames overdue when Next was called.
func (p *player) Dropped() int64 { return p.pace.Dropped() }

// Next waits for the next frame of the loop. For an unreadable frame it returns a
// [source.DamageError] once; in later passes the frame is missing.
func (p *player) Next(ctx context.Context, f *source.Frame) error {
	for {
		k, due, err := p.pace.Wait(ctx)
		if err != nil {
			return err
		}
		got := p.picture(int(k % int64(len(p.files))))
		if got.err != nil && !p.damaged[got.index] {
			p.damaged[got.index] = true
			return &source.DamageError{Err: fmt.Errorf("livescan: %w", got.err)}
		}
		if got.err != nil || got.depth == nil {
			continue // missing frame
		}
		*f = source.Frame{
			Depth:       got.depth,
			Color:       got.color,
			Format:      camera.MJPG,
			DeviceTime:  p.pace.Offset(k),
			CaptureTime: due,
		}
		return nil
	}
}

// Close waits for the reader.
func (p *player) Close() error {
	if p.ahead != nil {
		<-p.ahead
		p.ahead = nil
	}
	return nil
}
