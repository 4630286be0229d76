package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"image/png"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"holocast/internal/config"
	"holocast/internal/connect"
	"holocast/internal/gazetrace"
	"holocast/internal/moqt"
	"holocast/internal/render"
	"holocast/internal/secureobjects"
	"holocast/internal/service"
	"holocast/internal/tile360"
	"holocast/internal/trace"
	"holocast/internal/viewselect"
	"holocast/internal/viewtrace"
	"holocast/tools/holocast/export"
	"holocast/tools/holocast/player"
	"holocast/tools/holocast/player/sphere"
)

// traced holds the settings that trace.Settings describes.
type traced struct {
	Trace trace.Config `yaml:"trace"`
}

// playOptions holds the flags of play.
type playOptions struct {
	target     connect.Target
	cameras    []int
	quality    string
	duration   time.Duration
	timeout    time.Duration
	wait       bool
	json       bool
	noReceipts bool
	png, ply   string
	glb        string
	mesh       bool
	look       string
	frames     string
	audio, wav string
	traced     traced
	key        string // key file

	view   string // recorded walk
	budget config.Bitrate

	gaze, crowd string // head traces
	fov         string
	reference   string
	scheme      string
	noDecode    bool

	from   time.Duration
	own    bool // --from is set
	script []player.Cue
}

func playCommand() *cobra.Command {
	o := playOptions{traced: traced{trace.Config{Every: trace.DefaultEvery}}}
	c := &cobra.Command{
		Use:   "play URL",
		Short: "Receive a session and show its frame rate and frame delay",
		Long: `Receives a session as a viewer does, decodes every frame and shows frame rate, frame delay
(capture to decoded, on the relay's clock), points per frame, bit rate and lost frames. It
continues when the publisher or the relay returns after an outage.

For 360° video it shows the frame rate, the PSNR of the viewport, the share of the viewport
covered by tiles, stalls, wasted bytes, and the time from a turn of the head to a sharp tile.
--gaze moves the head along a recorded trace: a CSV file with the columns t and either x, y, z
(right, up, forward) or yaw, pitch (degrees), and optionally video and user. FILE:VIDEO/USER
selects one trace; the video's other traces help to predict the gaze.

--view chooses each camera's quality by a recorded walk of a viewer, within --max-bitrate or, without
it, by the share of frames that are lost. It is a CSV file of eye position, direction and field of
view over time, described in docs/measure.md; its time starts at the first displayed frame.

A viewer of a replay can play the recording at its own pace, without affecting other viewers.
--from sets the start position. --seek AT:TO moves from position AT to TO; --pause-at AT pauses
at AT, and AT:DURATION resumes after DURATION. Seeks and pauses apply once each, in the given
order. Playback ends with the recording. On a terminal, the space bar pauses and resumes, ← and →
seek by 5 s, ↓ and ↑ by a minute, Home seeks to the beginning, L returns to the shared replay and
Q quits.

--audio plays the session's sound in step with its frames; --wav writes it to a file in real time.
Frames wait up to 80 ms for later sound.

The player sends a receipt for every frame on the session's track receipts/<viewer>, a datagram
of 200 to 240 bytes.`,
		Example: `  holocast play moqt://localhost:4443/demo
  holocast play https://relay.example/studio --camera 0 --duration 10s --json
  holocast play moqt://localhost:4443/demo --audio
  holocast play moqt://localhost:4443/demo --duration 5s --wav sound.wav --json
  holocast play moqt://localhost:4443/demo --duration 5s --png cloud.png --ply cloud.ply --glb surfaces.glb
  holocast play moqt://localhost:4443/tour --from 1m30s --duration 20s
  holocast play moqt://localhost:4443/tour --from 5s --seek 10s:40s --pause-at 42s:3s --json
  holocast play moqt://localhost:4443/tour --gaze traces.csv:10/0EUCC2 --reference panorama.mp4 --png viewport.png`,
		Args: service.Arguments,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.target.URL = args[0]
			o.own = cmd.Flags().Changed("from") || len(o.script) > 0
			if err := o.traced.Trace.Validate(); err != nil {
				return err
			}
			return play(cmd.Context(), o, cmd.OutOrStdout(), os.Stderr)
		},
	}
	f := c.Flags()
	o.target.AddFlags(f)
	f.StringVar(&o.key, "e2e-key", "", secureobjects.KeyUsage)
	f.IntSliceVar(&o.cameras, "camera", nil, "cameras to play, by number (default all)")
	f.StringVar(&o.quality, "quality", "", "quality of the tracks (default the best)")
	f.DurationVar(
		&o.duration, "duration", 0, "stop this long after the first frame (default at the session's end or Ctrl-C)",
	)
	f.DurationVar(&o.timeout, "delivery-timeout", 0, "age after which objects are not sent (default the session's)")
	f.BoolVar(&o.wait, "wait", false, "wait for the relay and the session to appear")
	f.BoolVar(&o.json, "json", false, "print the measurements as one JSON object, the last line of stdout")
	f.BoolVar(&o.noReceipts, "no-receipts", false, "send no receipts")
	f.StringVar(&o.png, "png", "", "write a picture of the last frame, all cameras merged; for 360° video the viewport")
	f.StringVar(&o.frames, "frames", "", "write each displayed frame to this CSV file (times in UNIX µs)")
	addSoundFlags(f, &o)
	trace.Settings().AddFlags(f, &o.traced)
	f.StringVar(&o.view, "view", "", "choose qualities by this recorded walk, a CSV file")
	f.TextVar(
		&o.budget, "max-bitrate", config.Bitrate(0),
		"with --view: maximum bit/s of all cameras, such as 8M (default as much as arrives)",
	)
	f.StringVar(&o.gaze, "gaze", "", "360°: head trace, FILE or FILE:VIDEO/USER (default straight ahead)")
	f.StringVar(
		&o.crowd, "crowd", "",
		"360°: other viewers' head traces, FILE or FILE:VIDEO (default the others of --gaze's video)",
	)
	f.StringVar(&o.fov, "fov", "90x90", "360° and --view: field of view, degrees, WIDTHxHEIGHT")
	f.StringVar(&o.reference, "reference", "", "360°: the source file, for comparison with the viewport")
	f.StringVar(&o.scheme, "scheme", sphere.Ours, "360°: how tiles are chosen: ours, whole, viewport, fixed or paper")
	f.BoolVar(
		&o.noDecode, "no-decode", false, "360°: do not decode; rate the viewport by the publisher's distortions only",
	)
	f.DurationVar(&o.from, "from", 0, "replay: start position")
	f.Var(&cueValue{script: &o.script}, "seek", "replay: at position AT seek to TO, AT:TO; repeatable")
	f.Var(
		&cueValue{script: &o.script, pause: true}, "pause-at",
		"replay: pause at position AT, AT or AT:DURATION; repeatable",
	)
	f.StringVar(&o.ply, "ply", "", "write the last frame, all cameras merged")
	f.BoolVar(&o.mesh, "mesh", false, "write triangles into the PLY file, of layouts A and W")
	f.StringVar(&o.glb, "glb", "", "write the surfaces of the last frame as glTF, a mesh per camera")
	addLookFlag(f, &o.look)
	return c
}

// play plays until the duration is over, the session ends or ctx is done.
func play(ctx context.Context, o playOptions, stdout io.Writer, stderr *os.File) error {
	ns, err := o.target.Namespace()
	if err != nil {
		return err
	}
	// Fail now instead of after playing.
	for _, f := range []struct{ flag, path string }{{"png", o.png}, {"ply", o.ply}, {"glb", o.glb}} {
		if info, err := os.Stat(filepath.Dir(f.path)); f.path != "" && (err != nil || !info.IsDir()) {
			return fmt.Errorf("--%s: folder %s does not exist", f.flag, filepath.Dir(f.path))
		}
		if info, err := os.Stat(f.path); err == nil && !info.Mode().IsRegular() {
			return fmt.Errorf("--%s: %s is a folder or a device; use the name of a file", f.flag, f.path)
		}
	}
	if _, err := render.ParseLook(o.look); err != nil {
		return fmt.Errorf("--%w", err)
	}
	if o.look != string(render.Surfaced) && o.png == "" {
		return errors.New("--look needs --png")
	}
	if o.mesh && o.ply == "" {
		return errors.New("--mesh needs --ply")
	}
	if o.from < 0 {
		return fmt.Errorf("--from %s is below 0", o.from)
	}
	tracer, err := trace.New(
		ctx, o.traced.Trace, trace.Program{Name: "holocast play", Version: service.Version()}, slog.Default(),
	)
	if err != nil {
		return err
	}
	defer tracer.Close()
	cfg := player.Config{
		Namespace: ns, Cameras: o.cameras, Quality: o.quality, DeliveryTimeout: o.timeout, Wait: o.wait,
		Own: o.own, From: o.from, Script: o.script,
	}
	if !o.noReceipts {
		cfg.Viewer = fmt.Sprintf("%08x", rand.Uint32())
	}
	if cfg.Sphere, err = o.sphere(); err != nil {
		return err
	}
	if cfg.View, err = o.walk(cfg.Sphere.Viewport); err != nil {
		return err
	}
	cfg.Tracer = tracer
	if cfg.Decrypt, err = viewerOf(ns, o.key); err != nil {
		return err
	}
	var list *frameList
	if o.frames != "" {
		if list, err = newFrameList(o.frames); err != nil {
			return err
		}
		cfg.Shown = list.add
	}
	out, err := o.openSound()
	if err != nil {
		return err
	}
	cfg.Sound = out.mixer
	p := player.New(cfg)
	defer p.Close()
	out.start()
	report, err := watch(ctx, o, p, sessionConfig(cfg.Decrypt), stderr)
	err = errors.Join(err, out.close(&report))
	if list != nil {
		err = errors.Join(err, list.close())
	}
	if err != nil {
		return err
	}
	if err := o.writePictures(p); err != nil {
		return err
	}
	if !o.json {
		fmt.Fprintln(stdout, report.String()+report.Paths.String())
		return nil
	}
	return json.NewEncoder(stdout).Encode(report)
}

// played is the final report.
type played struct {
	player.Report
	Paths pathReports `json:"paths,omitempty"` // of the last session, if it had several
	WAV   *wavReport  `json:"wav,omitempty"`
}

// playFirstFrameTimeout bounds the time to the first frame if playing has a time limit.
const playFirstFrameTimeout = 20 * time.Second

// decodeTimeout bounds the time for decoding the remaining 360° video at the end.
const decodeTimeout = 30 * time.Second

// watch plays and shows the live line. It returns no error if ctx ends after frames have arrived.
func watch(
	ctx context.Context, o playOptions, p *player.Player, cfg moqt.Config, stderr *os.File,
) (played, error) {
	playing, stop := context.WithCancel(ctx)
	defer stop()
	var paths pathMeter
	ended := make(chan error, 1)
	go func() {
		ended <- keep(playing, o.target, moqt.Handler{}, cfg, o.wait, true, paths.measured(p.Play))
	}()
	line := newLiveLine(stderr)
	keys, restore := readKeys(os.Stdin)
	defer restore()
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	showing, joined := p.Showing(), p.Joined()
	var limit <-chan time.Time
	var err error
	for going := true; going; {
		select {
		case <-joined:
			joined = nil
			if o.duration > 0 {
				limit = time.After(playFirstFrameTimeout)
			}
		case <-showing:
			showing = nil
			if o.duration > 0 {
				limit, joined = time.After(o.duration), nil
			}
		case <-limit:
			limit = nil
			stop()
		case err = <-ended:
			going = false
		case k := <-keys:
			if k == keyQuit {
				stop()
			} else if err := k.press(p); err != nil {
				line.show(err.Error())
			}
		case now := <-tick.C:
			if showing == nil {
				line.show(p.Live(now).String() + paths.live(now).String())
			} else if line.terminal {
				line.show("waiting for the first frame")
			}
		}
	}
	line.end()
	if v := p.Sphere(); v != nil {
		finish, cancel := context.WithTimeout(context.WithoutCancel(ctx), decodeTimeout) // also after an interrupt
		v.Finish(finish)
		cancel()
	}
	report := played{Report: p.Snapshot(time.Now()), Paths: paths.total(time.Now())}
	if err != nil && playing.Err() == nil {
		return report, err
	}
	if report.Frames == 0 && (report.Sphere == nil || report.Sphere.GOPs == 0) {
		return report, errors.New("no frame arrived")
	}
	return report, nil
}

// cueValue is a flag that appends a cue to a script.
type cueValue struct {
	script *[]player.Cue
	pause  bool
}

// Set implements pflag.Value.
func (v *cueValue) Set(s string) (err error) {
	c := player.Cue{Pause: v.pause}
	at, then, more := strings.Cut(s, ":")
	if !more && !v.pause {
		return errors.New("want AT:TO, such as 10s:1m30s")
	}
	if c.At, err = position(at); err == nil && more && v.pause {
		c.For, err = position(then)
	} else if err == nil && more {
		c.To, err = position(then)
	}
	*v.script = append(*v.script, c)
	return err
}

func position(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("%q is not a position; write it like 1m30s", s)
	}
	return d, nil
}

// String implements pflag.Value.
func (v *cueValue) String() string { return "" }

// Type implements pflag.Value.
func (v *cueValue) Type() string {
	if v.pause {
		return "AT[:TIME]"
	}
	return "AT:TO"
}

// sphere returns the settings for 360° video.
func (o playOptions) sphere() (*sphere.Config, error) {
	cfg := &sphere.Config{Scheme: o.scheme, Decode: !o.noDecode, Reference: o.reference}
	var w, h float64
	if n, err := fmt.Sscanf(o.fov, "%gx%g", &w, &h); n != 2 || err != nil ||
		!(w >= 10 && w <= 150 && h >= 10 && h <= 150) {
		return nil, fmt.Errorf("--fov %q: want WIDTHxHEIGHT, each 10 to 150 degrees", o.fov)
	}
	cfg.Viewport = tile360.Degrees(w, h)
	var others []gazetrace.Trace
	if o.gaze != "" {
		path, video, user := splitTrace(o.gaze)
		traces, err := gazetrace.Open(path)
		if err != nil {
			return nil, fmt.Errorf("--gaze: %w", err)
		}
		at := slices.IndexFunc(traces, func(t gazetrace.Trace) bool {
			return (video == "" || t.Video == video) && (user == "" || t.User == user)
		})
		if at < 0 {
			return nil, fmt.Errorf("--gaze: %s has no trace for video %q and user %q", path, video, user)
		}
		cfg.Head = traces[at].At
		for i, t := range traces {
			if i != at && t.Video == traces[at].Video {
				others = append(others, t)
			}
		}
	}
	if o.crowd != "" {
		path, video, _ := splitTrace(o.crowd)
		traces, err := gazetrace.Open(path)
		if err != nil {
			return nil, fmt.Errorf("--crowd: %w", err)
		}
		if others = traces; video != "" {
			others = gazetrace.Of(traces, video)
		}
	}
	if len(others) > 0 {
		cfg.Crowd = gazetrace.Crowd(others, 10)
	}
	return cfg, nil
}

// walk returns the settings for --view, or nil. viewport is the field of view of a file without one.
func (o playOptions) walk(viewport tile360.Viewport) (*player.View, error) {
	switch {
	case o.view == "" && o.budget > 0:
		return nil, errors.New("--max-bitrate needs --view")
	case o.view == "":
		return nil, nil
	case o.quality != "":
		return nil, errors.New("--view chooses qualities; remove --quality")
	}
	trace, err := viewtrace.Open(o.view)
	if err != nil {
		return nil, fmt.Errorf("--view: %w", err)
	}
	tanX, tanY := math.Tan(viewport.Width/2), math.Tan(viewport.Height/2)
	return &player.View{
		At: func(seconds float64) viewselect.View { return trace.At(seconds, tanX, tanY) }, Budget: float64(o.budget),
	}, nil
}

// splitTrace splits FILE:VIDEO/USER.
func splitTrace(s string) (path, video, user string) {
	if _, err := os.Stat(s); err == nil {
		return s, "", ""
	}
	at := strings.LastIndexByte(s, ':')
	if at < 0 {
		return s, "", ""
	}
	video, user, _ = strings.Cut(s[at+1:], "/")
	return s[:at], video, user
}

// writePictures writes the requested files.
func (o playOptions) writePictures(p *player.Player) error {
	if o.png == "" && o.ply == "" && o.glb == "" {
		return nil
	}
	shot := p.Shot()
	if v := p.Sphere(); v != nil && len(shot) == 0 {
		if o.ply != "" || o.glb != "" {
			return errors.New("--ply and --glb: the session has no point clouds")
		}
		picture := v.Picture(960)
		if picture == nil {
			return errors.New("--png: no viewport was decoded")
		}
		return writeFile(o.png, func(w io.Writer) error { return png.Encode(w, picture) })
	}
	if o.ply != "" {
		if err := writeFile(o.ply, func(w io.Writer) error { return export.WritePLY(w, shot, o.mesh) }); err != nil {
			return err
		}
	}
	if o.glb != "" {
		if err := writeFile(o.glb, func(w io.Writer) error { return export.WriteGLB(w, shot) }); err != nil {
			return err
		}
	}
	if o.png == "" {
		return nil
	}
	picture, err := shot.Draw(render.Options{Views: 4, Elevation: 15}, render.Look(o.look))
	if err != nil {
		return err
	}
	return writeFile(o.png, func(w io.Writer) error { return render.PNG(w, picture) })
}

// writeFile writes a file completely or not at all.
func writeFile(path string, write func(io.Writer) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".holocast-*")
	if err != nil {
		return err
	}
	err = errors.Join(write(f), f.Chmod(0o644), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// liveLine shows a status line. On a terminal it is redrawn in place; elsewhere, every update is a
// new line.
type liveLine struct {
	f        *os.File
	terminal bool
	drawn    bool
}

func newLiveLine(f *os.File) *liveLine {
	return &liveLine{f: f, terminal: term.IsTerminal(int(f.Fd()))}
}

func (l *liveLine) show(s string) {
	if !l.terminal {
		fmt.Fprintln(l.f, s)
		return
	}
	if width, _, err := term.GetSize(int(l.f.Fd())); err == nil && len(s) >= width && width > 0 {
		s = s[:width-1]
	}
	fmt.Fprintf(l.f, "\r\x1b[K%s", s)
	l.drawn = true
}

func (l *liveLine) end() {
	if l.drawn {
		fmt.Fprintln(l.f)
	}
}
