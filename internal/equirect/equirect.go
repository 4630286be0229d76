// Package equirect opens 360° video: it determines how a picture maps to the sphere, and decodes
// pictures and sound with FFmpeg.
package equirect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"holocast/internal/catalog"
	"holocast/internal/ffmpeg"
	"holocast/internal/loc"
	"holocast/internal/spherical"
	"holocast/internal/tileencoder"
	"holocast/internal/x264"
)

// StereoAuto derives the layout of the eyes from the file's metadata or the pictures' aspect ratio.
// Other values of Options.Stereo are defined in package spherical.
const StereoAuto = "auto"

// Options configures Open.
type Options struct {
	Stereo string // StereoAuto, spherical.Mono, TopBottom or SideBySide; "" is auto
	// Width and Height are the size in pixels to which one eye's picture is scaled; 0 keeps the
	// input's.
	Width, Height int
}

// MaxFPS is the maximum frame rate; excess pictures are dropped.
const MaxFPS = 60

// Video is 360° video.
type Video struct {
	Input ffmpeg.Input
	Info  ffmpeg.Info
	// Sphere has the size of one eye's picture and the orientation, but no grid.
	Sphere         catalog.Sphere
	FPSNum, FPSDen int
	// Notes are hints for the user, one sentence each.
	Notes []string

	opts       Options
	layout     string // layout of the input: spherical.Mono, TopBottom or SideBySide
	rightFirst bool   // the right eye is above or on the left
	colors     conversion
	sound      bool // published
	ambisonics spherical.Ambisonics
	endless    bool
	aac        bool // this FFmpeg lacks libopus
}

// Open probes an input. Errors explain why it cannot be used.
func Open(ctx context.Context, input string, opts Options) (*Video, error) {
	in, err := ffmpeg.ParseInput(input)
	if err != nil {
		return nil, err
	}
	v := &Video{Input: in, opts: opts}
	if err := v.open(ctx, nil); err != nil {
		return nil, fmt.Errorf("%s: %w", input, err)
	}
	v.sound, v.endless = v.Info.Audio != nil, in.Live() || in.File() == "" && v.Info.Duration == 0
	v.aac = v.sound && !ffmpeg.HasEncoder(ctx, "libopus")
	return v, nil
}

// Endless reports whether the input is live, or comes over HTTP without a known end.
func (v *Video) Endless() bool { return v.endless }

// Reopen probes an input again before another Start, because its size, colours and sound may have
// changed. The published size and colours stay the same. Reopen returns notes for the user.
func (v *Video) Reopen(ctx context.Context) ([]string, error) {
	now := &Video{Input: v.Input, opts: v.opts}
	if err := now.open(ctx, &v.Sphere.Color); err != nil {
		return nil, fmt.Errorf("%s: %w", v.Input, err)
	}
	if was, is := v.eyes(), now.eyes(); was != is {
		hint := "restart the session"
		if now.layout != v.layout {
			hint += ", or set --stereo"
		}
		return nil, fmt.Errorf("%s: its pictures of %d×%d are now %s, but the session is %s; %s",
			v.Input, now.Info.Video.Width, now.Info.Video.Height, is, was, hint)
	}
	if was, is := v.Info.Video, now.Info.Video; was.Width != is.Width || was.Height != is.Height {
		now.Notes = append(now.Notes, fmt.Sprintf("pictures were %d×%d, now %d×%d; scaled to the published size",
			was.Width, was.Height, is.Width, is.Height))
	}
	if v.sound && now.Info.Audio == nil {
		now.Notes = append(now.Notes, "it has no sound now")
	}
	v.Info, v.colors, v.ambisonics = now.Info, now.colors, now.ambisonics
	return now.Notes, nil
}

// eyes describes the layout of the input, such as "top-bottom".
func (v *Video) eyes() string {
	if v.rightFirst {
		return v.layout + " with the right eye first"
	}
	return v.layout
}

// open probes the input. to is the colour space already published, or nil.
func (v *Video) open(ctx context.Context, to *catalog.Color) error {
	var meta spherical.Metadata
	var err error
	if v.Input.File() != "" {
		if meta, err = v.readMetadata(); err != nil {
			return err
		}
	}
	if v.Info, err = ffmpeg.Probe(ctx, v.Input); err != nil {
		return err
	}
	s := v.Info.Video
	if meta.Projection == "" && s.Projection != "" {
		meta.Projection, meta.Part = s.Projection, false
		meta.Yaw, meta.Pitch, meta.Roll = spherical.Pose(s.Yaw, s.Pitch, s.Roll)
		if strings.Contains(s.Projection, spherical.Equirectangular) { // also tiled and half equirectangular
			meta.Part, meta.Projection = s.Projection != spherical.Equirectangular, spherical.Equirectangular
		}
	}
	if meta.Stereo == "" && s.Stereo != "" {
		meta.Stereo, meta.RightFirst = s.Stereo, s.Inverted
		if name := stereoNames[s.Stereo]; name != "" {
			meta.Stereo = name
		}
	}
	if v1 := spherical.ParseV1([]byte(s.SphericalV1)); meta.Projection == "" && v1.Projection != "" {
		meta.Projection, meta.Part, meta.Yaw, meta.Pitch, meta.Roll = v1.Projection, v1.Part, v1.Yaw, v1.Pitch, v1.Roll
		meta.Stereo = cmp.Or(meta.Stereo, v1.Stereo)
	}
	switch {
	case meta.Part:
		return errors.New("it shows only part of the sphere, as VR180 does; only entire spheres are supported")
	case meta.Projection == spherical.Mesh:
		return errors.New("it shows a mesh, as VR180 does; only entire spheres with equirectangular pictures are supported")
	case meta.Projection != "" && meta.Projection != spherical.Equirectangular:
		return fmt.Errorf("its projection is %.40s, but only equirectangular pictures are supported (FFmpeg's filter "+
			"v360 can convert it)", meta.Projection)
	}
	if err := v.chooseLayout(v.opts.Stereo, meta); err != nil {
		return err
	}
	if err := v.chooseSize(v.opts); err != nil {
		return err
	}
	if v.colors, err = convert(ctx, s, to); err != nil {
		return err
	}
	if v.Sphere.Color = v.colors.to; v.colors.note != "" {
		v.Notes = append(v.Notes, v.colors.note)
	}
	v.Sphere.Projection = catalog.ProjectionEquirectangular
	v.Sphere.Stereo = catalog.StereoMono
	if v.layout != spherical.Mono {
		v.Sphere.Stereo = catalog.StereoTopBottom
	}
	v.Sphere.Yaw, v.Sphere.Pitch, v.Sphere.Roll = meta.Yaw, meta.Pitch, meta.Roll
	if err := v.Sphere.Validate(); err != nil {
		return err
	}
	v.FPSNum, v.FPSDen = frameRate(s.FPSNum, s.FPSDen)
	if s.FPS() > MaxFPS {
		v.Notes = append(v.Notes, fmt.Sprintf("frame rate reduced from %.5g to %d", s.FPS(), MaxFPS))
	}
	if len(v.Info.Undecodable) > 0 {
		note := "it plays without sound"
		if v.Info.Audio != nil {
			note = "the track after it plays"
		}
		v.Notes = append(v.Notes, fmt.Sprintf("this FFmpeg cannot decode its sound (%.40s): %s",
			strings.Join(v.Info.Undecodable, ", "), note))
	}
	v.ambisonics = ambisonicsOf(v.Info.Audio, meta.Ambisonics)
	return nil
}

// readMetadata reads the metadata of an MP4 file; the result is empty for other files.
func (v *Video) readMetadata() (spherical.Metadata, error) {
	f, err := os.Open(v.Input.File())
	if err != nil {
		return spherical.Metadata{}, unwrapPath(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return spherical.Metadata{}, unwrapPath(err)
	}
	if !info.Mode().IsRegular() {
		return spherical.Metadata{}, errors.New("it is not a regular file")
	}
	m, err := spherical.Parse(f, info.Size())
	var cut *spherical.TruncatedError
	switch {
	case errors.Is(err, spherical.ErrNotMP4):
		return m, nil
	case errors.As(err, &cut) && cut.Index:
		v.Notes = append(v.Notes, cut.Error()+"; it plays up to there")
		return m, nil
	case err != nil && errors.As(err, &cut):
		return m, ffmpeg.ErrNoIndex
	case err != nil:
		return m, fmt.Errorf("damaged MP4: %w", err)
	}
	return m, nil
}

func unwrapPath(err error) error {
	var p *os.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

// stereoNames translates FFmpeg's names.
var stereoNames = map[string]string{
	"2D": spherical.Mono, "top and bottom": spherical.TopBottom, "side by side": spherical.SideBySide,
}

// aspectTolerance is the tolerance of a sphere's 2:1 aspect ratio.
const aspectTolerance = 0.02

func (v *Video) chooseLayout(asked string, meta spherical.Metadata) error {
	s := v.Info.Video
	switch asked {
	case spherical.Mono, spherical.TopBottom, spherical.SideBySide:
		v.layout, v.rightFirst = asked, asked == meta.Stereo && meta.RightFirst
		return nil
	case "", StereoAuto:
	default:
		return fmt.Errorf("stereo is %q, want %s, %s, %s or %s", asked, StereoAuto, spherical.Mono, spherical.TopBottom,
			spherical.SideBySide)
	}
	switch meta.Stereo {
	case "":
	case spherical.Mono, spherical.TopBottom, spherical.SideBySide:
		v.layout, v.rightFirst = meta.Stereo, meta.RightFirst
		return nil
	default:
		return fmt.Errorf("its eyes are arranged as %.40s, not %s or %s; if this is wrong, set --stereo",
			meta.Stereo, spherical.TopBottom, spherical.SideBySide)
	}
	if meta.Projection != "" {
		v.layout = spherical.Mono
		return nil
	}
	aspect := float64(s.Width) * s.PixelAspect / float64(s.Height)
	near := func(want float64) bool { return math.Abs(aspect/want-1) <= aspectTolerance }
	switch {
	case near(2):
		v.layout = spherical.Mono
	case near(1):
		v.layout = spherical.TopBottom
		v.Notes = append(v.Notes,
			"no metadata: a square picture is assumed to show two eyes, the left one above (override with --stereo)")
	case near(4):
		v.layout = spherical.SideBySide
		v.Notes = append(v.Notes,
			"no metadata: a 4:1 picture is assumed to show two eyes, side by side (override with --stereo)")
	default:
		return fmt.Errorf("its pictures of %d×%d are not 2:1, as an entire sphere is, and it has no spherical "+
			"metadata; if it shows a sphere, set --stereo to mono, top-bottom or side-by-side", s.Width, s.Height)
	}
	return nil
}

func (v *Video) chooseSize(opts Options) error {
	s := v.Info.Video
	w, h := s.Width, s.Height
	switch v.layout {
	case spherical.TopBottom:
		h /= 2
	case spherical.SideBySide:
		w /= 2
	}
	width, height := w, h
	switch {
	case opts.Width != 0 || opts.Height != 0:
		width, height = opts.Width, opts.Height
		if width < 32 || height < 16 || width > catalog.MaxSphereSize || height > catalog.MaxSphereSize ||
			width%2 != 0 ||
			height%2 != 0 {
			return fmt.Errorf("size is %d×%d, want even numbers from 32×16 to %d×%d", width, height,
				catalog.MaxSphereSize, catalog.MaxSphereSize)
		}
	case w%2 != 0 || h%2 != 0 || v.layout == spherical.TopBottom && s.Height%2 != 0 ||
		v.layout == spherical.SideBySide && s.Width%2 != 0:
		width, height = w&^1, h&^1
		v.Notes = append(v.Notes,
			fmt.Sprintf("pictures of %d×%d are scaled to %d×%d per eye: encoders need even sizes", s.Width, s.Height,
				width, height))
	}
	if width < 32 || height < 16 {
		return fmt.Errorf("its pictures of %d×%d are too small", s.Width, s.Height)
	}
	v.Sphere.Width, v.Sphere.Height = width, height
	return nil
}

// frameSize returns the size of the pictures that FFmpeg delivers.
func (v *Video) frameSize() (width, height int) {
	width, height = v.Sphere.Width, v.Sphere.Height
	switch v.layout {
	case spherical.TopBottom:
		height *= 2
	case spherical.SideBySide:
		width *= 2
	}
	return width, height
}

// frameRate returns a rate of at most MaxFPS with a small denominator.
func frameRate(num, den int) (int, int) {
	fps := float64(num) / float64(den)
	if fps >= MaxFPS {
		return MaxFPS, 1
	}
	if fps < 1 {
		return 1, 1
	}
	for _, d := range []int{1, 1001, 1000} {
		if n := math.Round(fps * float64(d)); math.Abs(n/float64(d)-fps) < 1e-5*fps {
			return int(n), d
		}
	}
	return int(math.Round(fps * 1000)), 1000
}

// Name describes the video for logs.
func (v *Video) Name() string {
	s := v.Sphere
	return fmt.Sprintf("%d×%d %s, %.5g pictures a second", s.Width, s.Height, v.layout,
		float64(v.FPSNum)/float64(v.FPSDen))
}

// Reader decodes an input. One goroutine reads pictures and another sound; both must be read.
type Reader struct {
	v       *Video
	process *ffmpeg.Process
	cancel  context.CancelFunc
	video   ffmpeg.Pipe
	audio   ffmpeg.Pipe // nil without sound
}

// audioBitrate is the bit rate of encoded sound, in bits per second.
const audioBitrate = "128k"

// Start starts decoding from the beginning of a file or from the live position.
func (v *Video) Start(ctx context.Context) (*Reader, error) {
	ctx, cancel := context.WithCancel(ctx)
	args := slices.Clone(v.Input.Args())
	// A file's pictures and sound share time 0. If there is no picture at 0, use the first.
	filter := fmt.Sprintf("fps=%d/%d:start_time=0", v.FPSNum, v.FPSDen)
	if v.Input.Live() {
		filter = fmt.Sprintf("fps=%d/%d", v.FPSNum, v.FPSDen)
	}
	// Scale even if the input already has this size, because its size may change.
	w, h := v.frameSize()
	filter += fmt.Sprintf(",scale=%d:%d:flags=area%s,setsar=1", w, h, v.colors.scale)
	if v.colors.filter != "" {
		filter += "," + v.colors.filter
	}
	format := "yuv420p"
	if v.Sphere.Color.FullRange {
		format = "yuvj420p" // otherwise FFmpeg converts to limited range
	}
	args = append(args, "-map", fmt.Sprintf("0:%d", v.Info.Video.Stream), "-vf", filter, "-pix_fmt", format, "-f",
		"rawvideo", "pipe:3")
	pipes := 1
	if v.sound && v.Info.Audio != nil {
		pipes = 2
		args = append(args, "-map", fmt.Sprintf("0:%d", v.Info.Audio.Stream), "-af",
			downmix(v.ambisonics)+"aresample=async=1:first_pts=0", "-ac", "2", "-ar", "48000", "-b:a", audioBitrate)
		if v.aac {
			args = append(args, "-c:a", "aac", "-f", "adts")
		} else {
			args = append(args, "-c:a", "libopus", "-frame_duration", "20", "-page_duration", "20000", "-f", "ogg")
		}
		args = append(args, "-flush_packets", "1", "pipe:4")
	}
	p, out, err := ffmpeg.Start(ctx, pipes, nil, args...)
	if err != nil {
		cancel()
		return nil, fmt.Errorf("%s: %w", v.Input, err)
	}
	r := &Reader{v: v, process: p, cancel: cancel, video: out[0]}
	if pipes == 2 {
		r.audio = out[1]
	}
	return r, nil
}

// Frame is a decoded picture.
type Frame struct {
	tileencoder.Frame
	b []byte
}

// NewFrame returns a frame for Next.
func (v *Video) NewFrame() *Frame {
	w, h := v.frameSize()
	n, c := w*h, (w/2)*(h/2)
	f := &Frame{b: make([]byte, n+2*c)}
	whole := x264.Picture{Y: f.b[:n], Cb: f.b[n : n+c], Cr: f.b[n+c:], YStride: w, CStride: w / 2}
	f.Eyes[0] = whole
	var right, rightC int
	switch v.layout {
	case spherical.TopBottom:
		right, rightC = v.Sphere.Height*w, v.Sphere.Height/2*(w/2)
	case spherical.SideBySide:
		right, rightC = v.Sphere.Width, v.Sphere.Width/2
	default:
		return f
	}
	f.Eyes[1] = whole
	f.Eyes[1].Y, f.Eyes[1].Cb, f.Eyes[1].Cr = whole.Y[right:], whole.Cb[rightC:], whole.Cr[rightC:]
	if v.rightFirst {
		f.Eyes[0], f.Eyes[1] = f.Eyes[1], f.Eyes[0]
	}
	return f
}

// Next reads the next picture. It returns io.EOF at the end, or FFmpeg's error.
func (r *Reader) Next(f *Frame) error {
	_, err := io.ReadFull(r.video, f.b)
	if err == nil {
		return nil
	}
	if err := r.process.Wait(); err != nil {
		return fmt.Errorf("%s: %w", r.v.Input, err)
	}
	return io.EOF
}

// Audio is a stream of encoded sound.
type Audio struct {
	Format loc.AudioFormat
	next   func() (loc.Packet, error)
}

// Next returns the next packet, or io.EOF at the end.
func (a *Audio) Next() (loc.Packet, error) { return a.next() }

// HasAudio reports whether the input has sound.
func (r *Reader) HasAudio() bool { return r.audio != nil }

// Audio starts reading the sound. Call it only if HasAudio returns true.
func (r *Reader) Audio() (*Audio, error) {
	if r.v.aac {
		a, format, err := loc.NewAACReader(r.audio)
		if err != nil {
			return nil, err
		}
		return &Audio{format, a.Next}, nil
	}
	o, format, err := loc.NewOpusReader(r.audio)
	if err != nil {
		return nil, err
	}
	return &Audio{format, o.Next}, nil
}

// AudioFormat returns the format of the published sound, or nil if there is none.
func (v *Video) AudioFormat() *loc.AudioFormat {
	switch {
	case !v.sound:
		return nil
	case v.aac: // AAC-LC, 48 kHz, stereo
		return &loc.AudioFormat{Codec: "mp4a.40.2", SampleRate: 48000, Channels: 2, Config: []byte{0x11, 0x90}}
	}
	return &loc.AudioFormat{Codec: "opus", SampleRate: 48000, Channels: 2}
}

// Close stops decoding.
func (r *Reader) Close() {
	r.cancel()
	r.process.Kill()
	_ = r.process.Wait() // killed above
	_ = r.video.Close()
	if r.audio != nil {
		_ = r.audio.Close()
	}
}

// Since returns the duration of a number of frames.
func (v *Video) Since(frames int64) time.Duration {
	return time.Duration(math.Round(float64(frames) * float64(v.FPSDen) / float64(v.FPSNum) * 1e9))
}
