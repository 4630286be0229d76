package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"holocast/internal/connect"
	"holocast/internal/moqt"
	"holocast/internal/plyfile"
	"holocast/internal/pointcloud"
	"holocast/internal/render"
	"holocast/tools/holocast/player"
)

// playOptions are the flags of play.
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
	frames     string
}

func playCommand() *cobra.Command {
	var o playOptions
	c := &cobra.Command{
		Use:   "play URL",
		Short: "Receive a session, show its frame rate and frame delay",
		Long: `Receives a session as a viewer does, decodes every frame and shows frame rate,
frame delay (captured to decoded, on the relay's clock), points per frame, bit
rate and lost frames. It goes on when the publisher or the relay comes back.

A receipt of every frame goes back on the track receipts/<viewer> of the session,
a datagram of 200 to 240 bytes.`,
		Example: `  holocast play moqt://localhost:4443/demo
  holocast play https://relay.example/studio --camera 0 --duration 10s --json
  holocast play moqt://localhost:4443/demo --duration 5s --png cloud.png --ply cloud.ply`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.target.URL = args[0]
			return play(cmd.Context(), o, cmd.OutOrStdout(), os.Stderr)
		},
	}
	f := c.Flags()
	o.target.AddFlags(f)
	f.IntSliceVar(&o.cameras, "camera", nil, "cameras to play, by number (default all)")
	f.StringVar(&o.quality, "quality", "", "quality of the tracks (default the best)")
	f.DurationVar(&o.duration, "duration", 0, "stop this long after the first frame (default at the session's end or Ctrl-C)")
	f.DurationVar(&o.timeout, "delivery-timeout", 0, "age at which an object is not worth sending any more (default the session's)")
	f.BoolVar(&o.wait, "wait", false, "wait for a relay or a session that is not there yet")
	f.BoolVar(&o.json, "json", false, "print what was measured as one JSON object, the last line of stdout")
	f.BoolVar(&o.noReceipts, "no-receipts", false, "send no receipts")
	f.StringVar(&o.png, "png", "", "write a picture of the last frame, all cameras merged")
	f.StringVar(&o.frames, "frames", "", "write a line for every frame shown to this CSV file (times in UNIX µs)")
	f.StringVar(&o.ply, "ply", "", "write the last frame, all cameras merged")
	return c
}

// play plays until the duration is over, the session ends or ctx does.
func play(ctx context.Context, o playOptions, stdout io.Writer, stderr *os.File) error {
	ns, err := o.target.Namespace()
	if err != nil {
		return err
	}
	cfg := player.Config{Namespace: ns, Cameras: o.cameras, Quality: o.quality, DeliveryTimeout: o.timeout, Wait: o.wait}
	if !o.noReceipts {
		cfg.Viewer = fmt.Sprintf("%08x", rand.Uint32())
	}
	var list *frameList
	if o.frames != "" {
		if list, err = newFrameList(o.frames); err != nil {
			return err
		}
		cfg.Shown = list.add
	}
	p := player.New(cfg)
	defer p.Close()
	report, err := watch(ctx, o, p, stderr)
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
		fmt.Fprintln(stdout, report)
		return nil
	}
	return json.NewEncoder(stdout).Encode(report)
}

// firstFramePatience is how long a session may take to show a frame, where there is
// an end to playing it.
const firstFramePatience = 20 * time.Second

// watch plays and shows the live line. That ctx ended is no error where frames came.
func watch(ctx context.Context, o playOptions, p *player.Player, stderr *os.File) (player.Report, error) {
	playing, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() {
		ended <- keep(playing, o.target, moqt.Handler{}, o.wait, p.Play)
	}()
	line := newLiveLine(stderr)
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
				limit = time.After(firstFramePatience)
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
		case now := <-tick.C:
			if showing == nil {
				line.show(p.Live(now).String())
			} else if line.terminal {
				line.show("waiting for the first frame")
			}
		}
	}
	report := p.Snapshot(time.Now())
	line.end()
	if err != nil && playing.Err() == nil {
		return report, err
	}
	if report.Frames == 0 {
		return report, errors.New("no frame arrived")
	}
	return report, nil
}

// writePictures writes the files that were asked for.
func (o playOptions) writePictures(p *player.Player) error {
	if o.png == "" && o.ply == "" {
		return nil
	}
	clouds, sensors := p.Clouds()
	if o.ply != "" {
		var all pointcloud.Points
		for _, c := range clouds {
			all.XYZ, all.RGB = append(all.XYZ, c.XYZ...), append(all.RGB, c.RGB...)
		}
		if err := writeFile(o.ply, func(w io.Writer) error { return plyfile.Write(w, all) }); err != nil {
			return err
		}
	}
	if o.png == "" {
		return nil
	}
	opts := render.Options{Views: 4, Elevation: 15, YUp: p.YUp(), Sensors: sensors}
	return writeFile(o.png, func(w io.Writer) error { return render.PNG(w, opts, clouds...) })
}

// writeFile writes a file whole or not at all.
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

// liveLine shows one line that is redrawn on a terminal and repeated elsewhere.
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
