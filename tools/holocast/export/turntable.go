package export

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"image"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"time"

	"holocast/internal/ffmpeg"
	"holocast/internal/pointcloud"
	"holocast/internal/render"
)

// Turn describes a turntable film.
type Turn struct {
	View
	Period time.Duration // of a revolution; 0 = the viewer stands still
	Rate   float64       // pictures per second; 0 = the recording's frame rate
	Still  bool          // one revolution around the frame at At, without sound
	At     time.Duration
}

// HasClouds reports whether a recording's catalog has point clouds and no 360° video.
func HasClouds(path string) bool {
	r, _, c, err := openCatalog(path)
	if err != nil {
		return false
	}
	_ = r.Close() // read-only
	return len(c.Cameras()) > 0 && c.Sphere() == nil
}

// Turntable makes an H.264 film of point clouds whose viewer moves around them, with the recording's sound. A picture
// shows the frame captured last, up to half a frame interval later, which absorbs jitter.
func Turntable(ctx context.Context, path, out string, t Turn, cfg Config) (Film, error) {
	film, err := turntable(ctx, path, out, t, cfg)
	if err != nil {
		return film, fmt.Errorf("recording %s: %w", path, err)
	}
	return film, nil
}

func turntable(ctx context.Context, path, out string, t Turn, cfg Config) (film Film, err error) {
	if t.Width%2 != 0 || t.Height%2 != 0 {
		return film, fmt.Errorf("a film of %d×%d pixels: H.264 needs even numbers", t.Width, t.Height)
	}
	if t.Still && t.Period <= 0 {
		return film, errors.New("a film of one frame needs the time of a revolution above 0")
	}
	if _, err := ffmpeg.Find("ffmpeg"); err != nil {
		return film, err
	}
	f := &turning{Turn: t, cfg: cfg, path: path}
	if err := f.frame(ctx); err != nil {
		return film, err
	}
	if f.dir, err = os.MkdirTemp(filepath.Dir(out), ".holocast-export-"); err != nil {
		return film, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(f.dir)) }()
	partial := filepath.Join(f.dir, "film.mp4")
	if err := f.write(ctx, partial); err != nil {
		return film, err
	}
	return Film{Frames: f.drawn}, os.Rename(partial, out)
}

// turning is a turntable film in the making.
type turning struct {
	Turn
	cfg  Config
	path string
	dir  string // temporary files

	orbit render.Orbit
	shot  render.Shot // of a still
	start uint64      // capture time of the first frame, µs since 1970
	ahead float64     // a picture shows frames captured up to this many µs later
	drawn int
	queue chan *drawing
}

// drawing is a picture being drawn.
type drawing struct {
	done chan struct{}
	img  *image.RGBA
	err  error
}

// frame aims the viewer. It samples the recording to find the size of the scene.
func (f *turning) frame(ctx context.Context) error {
	quiet := f.cfg
	quiet.Progress = nil
	x, err := open(f.path, quiet)
	if err != nil {
		return err
	}
	defer func() { _ = x.close() }() // read-only
	period := x.chosen[0].period()
	if f.Rate == 0 {
		f.Rate = 1e6 / period
	}
	f.ahead = min(period, 1e6/f.Rate) / 2
	if f.Still {
		_, err := x.shotAt(ctx, f.At, func(shot render.Shot) error {
			f.shot = shot
			clouds, _ := shot.Clouds()
			f.orbit, err = f.View.orbit(clouds, shot.YUp())
			return err
		})
		return err
	}
	const samples = 8
	every := uint64(x.r.Info.Duration()/time.Microsecond)/samples + 1
	var next uint64
	var all []pointcloud.Points
	yUp := false
	err = x.merged(ctx, func(at uint64) bool { return at >= next }, func(at uint64, shot render.Shot) error {
		if len(shot) == 0 {
			return nil
		}
		if f.start == 0 {
			f.start, yUp = at, shot.YUp()
		}
		next = at + every
		clouds, _ := shot.Clouds()
		all = append(all, clouds...)
		return nil
	})
	if err != nil {
		return err
	}
	if f.start == 0 {
		return errors.New("it has no intact frame of the cameras")
	}
	f.orbit, err = f.View.orbit(all, yUp)
	return err
}

// write draws the film and passes it to FFmpeg.
func (f *turning) write(ctx context.Context, out string) error {
	sound, err := f.sound(ctx)
	if err != nil {
		return err
	}
	args := []string{
		"-f", "rawvideo", "-pix_fmt", "rgba", "-s", fmt.Sprintf("%dx%d", f.Width, f.Height),
		"-r", strconv.FormatFloat(f.Rate, 'f', -1, 64), "-i", "pipe:0",
	}
	args = append(args, sound...)
	args = append(
		args, "-vf", "scale=out_color_matrix=bt709:out_range=tv", "-c:v", "libx264", "-crf", "18", "-pix_fmt", "yuv420p",
		"-color_primaries", "bt709", "-color_trc", "bt709", "-colorspace", "bt709", "-movflags", "+faststart",
		"-f", "mp4", "file:"+out,
	)
	return encode(ctx, args, f.pictures)
}

// pictures draws several pictures at a time and writes them in order.
func (f *turning) pictures(ctx context.Context, w io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	f.queue = make(chan *drawing, max(1, runtime.GOMAXPROCS(0)-1))
	written := make(chan error, 1)
	go func() { written <- deliver(w, f.queue, cancel) }()
	err := f.draw(ctx)
	close(f.queue)
	return cmp.Or(<-written, err)
}

// deliver writes the pictures in order. After an error it calls stop and waits for the remaining pictures.
func deliver(w io.Writer, queue <-chan *drawing, stop func()) error {
	var first error
	for d := range queue {
		<-d.done
		if first == nil {
			first = d.err
		}
		if first == nil {
			_, first = w.Write(d.img.Pix)
		}
		if first != nil {
			stop()
		}
	}
	return first
}

// draw queues all pictures.
func (f *turning) draw(ctx context.Context) error {
	if f.Still {
		n := max(1, int(math.Round(f.Period.Seconds()*f.Rate)))
		for i := range n {
			if err := f.picture(ctx, f.shot); err != nil {
				return err
			}
			if f.cfg.Progress != nil {
				f.cfg.Progress(uint64((i + 1) * 1000 / n))
			}
		}
		return nil
	}
	cfg := f.cfg
	x, err := open(f.path, cfg)
	if err != nil {
		return err
	}
	defer func() { _ = x.close() }() // read-only
	if total := x.r.Info.Records; f.cfg.Progress != nil && total > 0 {
		x.cfg.Progress = func(n uint64) { f.cfg.Progress(min(n*1000/total, 1000)) }
	}
	end := f.start + uint64((x.r.Info.Duration()+soundBeyond)/time.Microsecond)
	var current render.Shot
	err = x.merged(ctx, nil, func(at uint64, shot render.Shot) error {
		if len(shot) == 0 || at > end { // a camera's clock may be wrong
			return nil
		}
		for current != nil && f.until() < at {
			if err := f.picture(ctx, current); err != nil {
				return err
			}
		}
		current = shot.Clone()
		return nil
	})
	if err != nil {
		return err
	}
	return f.picture(ctx, current)
}

// until returns the latest capture time of the frames that the next picture may show.
func (f *turning) until() uint64 { return f.start + uint64(float64(f.drawn)*1e6/f.Rate+f.ahead) }

// picture draws the next picture in the background.
func (f *turning) picture(ctx context.Context, shot render.Shot) error {
	azimuth := f.Azimuth
	if f.Period > 0 {
		azimuth += 360 * float64(f.drawn) / f.Rate / f.Period.Seconds()
	}
	o := render.Options{Width: f.Width, Height: f.Height, Eye: f.orbit.Eye(azimuth, f.Elevation)}
	d := &drawing{done: make(chan struct{})}
	select {
	case f.queue <- d:
	case <-ctx.Done():
		return ctx.Err()
	}
	f.drawn++
	go func() {
		defer close(d.done)
		d.img, d.err = shot.Draw(o, f.Look)
	}()
	return nil
}

// sound writes the recording's sound from the first picture on, and returns FFmpeg's arguments for it, or none.
func (f *turning) sound(ctx context.Context) ([]string, error) {
	if f.Still {
		return nil, nil
	}
	tracks, _, err := microphones(f.path)
	if len(tracks) == 0 {
		return nil, nil // no microphones; frame has read the catalog
	}
	if err != nil {
		return nil, err
	}
	path := filepath.Join(f.dir, "sound.wav")
	start := time.UnixMicro(int64(f.start)) //nolint:gosec // a time
	written, err := writeSound(ctx, f.path, path, tracks, start, Config{Log: f.cfg.Log})
	if err != nil || written.Length == 0 {
		return nil, err
	}
	return []string{"-i", "file:" + path, "-map", "0", "-map", "1", "-c:a", "aac", "-b:a", "160k"}, nil
}
