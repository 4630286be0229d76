package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"holocast/internal/connect"
	"holocast/internal/moqt"
	"holocast/internal/render"
	"holocast/internal/sampledata"
	"holocast/tools/holocast/panorama"
	"holocast/tools/holocast/player"
	"holocast/tools/holocast/player/sphere"
)

type demoOptions struct {
	seconds     float64
	cameras     int
	source      string
	sphere      bool // 360° video
	captureArgs []string
	relayArgs   []string
	out         string
}

// firstFrameTimeout bounds the time to the first frame. On a slow machine, rendering the synthetic
// performer takes half of it.
const firstFrameTimeout = time.Minute

func demoCommand() *cobra.Command {
	var o demoOptions
	c := &cobra.Command{
		Use:   "demo",
		Short: "Run a relay, a capture server and a player on this machine",
		Long: `Starts a relay and a capture server on free ports, plays their session and shows frame rate and
frame delay. The source is a recording of four real cameras around a marker cube if HOLOCAST_DATA
has it, otherwise a synthetic performer with sound. The output folder receives a picture of the last frame and
the programs' logs.

--360 plays 360° video: a real clip if HOLOCAST_DATA has one, otherwise a rendered plaza.`,
		Example: `  holocast demo
  holocast demo --seconds 10                      # ends after 10 s; the last line is JSON
  holocast demo --cameras 1
  holocast demo --360
  holocast demo --source synthetic --cameras 2 --capture-arg=--descriptions=4
  holocast demo --capture-arg=--audio=default     # with your microphone`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return demo(cmd.Context(), o, cmd.OutOrStdout(), os.Stderr)
		},
	}
	f := c.Flags()
	f.Float64Var(&o.seconds, "seconds", 0, "end this long after the first frame (default at Ctrl-C)")
	f.IntVar(&o.cameras, "cameras", 0, "cameras (default all of the recording's, one synthetic)")
	f.StringVar(&o.source, "source", "", "the capture server's source (default livescan:… with data, otherwise synthetic)")
	f.BoolVar(&o.sphere, "360", false, "360° video instead of point clouds")
	f.StringArrayVar(&o.captureArgs, "capture-arg", nil, "additional argument of capture-server; repeatable")
	f.StringArrayVar(&o.relayArgs, "relay-arg", nil, "additional argument of relay; repeatable")
	f.StringVar(&o.out, "out", "demo-out", "output folder")
	return c
}

func demo(ctx context.Context, o demoOptions, stdout io.Writer, stderr *os.File) error {
	if o.seconds < 0 || o.cameras < 0 {
		return errors.New("--seconds and --cameras must not be negative")
	}
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return err
	}
	source, err := o.chooseSource(ctx, stderr)
	if err != nil {
		return err
	}
	addr, err := freeAddress()
	if err != nil {
		return err
	}
	relayArgs := []string{"--listen", addr, "--http", addr}
	viewer := findViewer()
	if viewer != "" {
		relayArgs = append(relayArgs, "--web", viewer)
	}
	relay, err := startChild(o.out, "relay", append(relayArgs, o.relayArgs...)...)
	if err != nil {
		return err
	}
	defer relay.stop()
	if err := relay.awaitHealth(ctx, addr); err != nil {
		return err
	}
	url := "moqt://" + addr + "/demo"
	args := []string{"--source", source}
	if source == "synthetic" && !o.setsAudio() {
		args = append(args, "--audio", source)
	}
	if o.cameras > 0 {
		args = append(args, "--cameras", strconv.Itoa(o.cameras))
	}
	capture, err := startChild(o.out, "capture-server", append(append(args, o.captureArgs...), url)...)
	if err != nil {
		return err
	}
	defer capture.stop()
	fmt.Fprintf(stderr, "%s from %s; watch it too: holocast play %s\n", url, source, url)
	if viewer != "" {
		fmt.Fprintf(stderr, "in a browser on this machine: http://%s/?relay=https://%s&session=demo\n", addr, addr)
	}

	target := connect.Target{URL: url}
	ns, err := target.Namespace()
	if err != nil {
		return err
	}
	play := playOptions{
		target: target, wait: true, png: filepath.Join(o.out, "cloud.png"), look: string(render.Surfaced), fov: "90x90",
		scheme:   sphere.Ours,
		duration: time.Duration(o.seconds * float64(time.Second)),
	}
	cfg := player.Config{Namespace: ns, Viewer: "demo", Wait: true}
	if o.sphere {
		play.png = filepath.Join(o.out, "viewport.png")
	}
	if cfg.Sphere, err = play.sphere(); err != nil {
		return err
	}
	p := player.New(cfg)
	defer p.Close()
	// If a child exits, the demo ends.
	playing, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	go func() {
		select {
		case <-relay.done:
			stop(relay.failure())
		case <-capture.done:
			stop(capture.failure())
		case <-p.Showing():
			select {
			case <-relay.done:
				stop(relay.failure())
			case <-capture.done:
				stop(capture.failure())
			case <-playing.Done():
			}
		case <-time.After(firstFrameTimeout):
			stop(fmt.Errorf("no frame arrived in %v\n%s", firstFrameTimeout, capture.tail()))
		case <-playing.Done():
		}
	}()
	report, err := watch(playing, play, p, moqt.Config{}, stderr)
	if cause := context.Cause(playing); cause != nil && ctx.Err() == nil {
		return cause
	}
	if err != nil {
		if ctx.Err() != nil {
			return nil // stopped before the first frame
		}
		return fmt.Errorf("%w\n%s", err, capture.tail())
	}
	if err := play.writePictures(p); err != nil {
		return err
	}
	fmt.Fprintln(stdout, "last received frame:", play.png)
	if o.seconds == 0 {
		fmt.Fprintln(stdout, report)
		return nil
	}
	return json.NewEncoder(stdout).Encode(report)
}

// setsAudio reports whether the capture server's arguments include --audio.
func (o *demoOptions) setsAudio() bool {
	return slices.ContainsFunc(o.captureArgs, func(a string) bool {
		return a == "--audio" || strings.HasPrefix(a, "--audio=")
	})
}

// chooseSource returns the capture server's source. It renders a 360° video if it needs one.
func (o *demoOptions) chooseSource(ctx context.Context, stderr io.Writer) (string, error) {
	if o.source != "" {
		return o.source, nil
	}
	kind, name, instead := "livescan:", "livescan_testdata", "a synthetic performer, without recordings of real cameras"
	if o.sphere {
		kind, name, instead = "equirect:", filepath.Join("video360", "congo.mp4"), "a rendered plaza, without a 360° film"
	}
	data, err := sampledata.Find()
	if err == nil {
		path := filepath.Join(data, name)
		if _, err = os.Stat(path); err == nil {
			return kind + path, nil
		}
	}
	fmt.Fprintf(stderr, "%s (%v)\n", instead, err)
	if !o.sphere {
		return "synthetic", nil
	}
	path := filepath.Join(o.out, "panorama.mp4")
	if _, err := os.Stat(path); err == nil {
		return kind + path, nil
	}
	var b *bar
	began := time.Now()
	err = panorama.Write(ctx, path, func(done, total int) {
		if b == nil {
			b = newCountBar("rendering", int64(total))
		}
		b.set(time.Since(began), int64(done))
	})
	if b != nil {
		b.end()
	}
	return kind + path, err
}

// findViewer returns the folder of the built web viewer next to the programs' folder, or "" if the
// viewer is not built.
func findViewer() string {
	exe, err := os.Executable()
	if err != nil {
		return ""
	}
	dir := filepath.Join(filepath.Dir(exe), "..", "client-web", "dist")
	if _, err := os.Stat(filepath.Join(dir, "index.html")); err != nil {
		return ""
	}
	return dir
}

// freeAddress finds a local port that is free for UDP and TCP.
func freeAddress() (string, error) {
	for range 20 {
		t, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return "", err
		}
		addr := t.Addr().String()
		u, err := net.ListenPacket("udp", addr)
		_ = t.Close()
		if err == nil {
			return addr, u.Close()
		}
	}
	return "", errors.New("no port is free for both UDP and TCP")
}

// awaitHealth waits until the relay is healthy, for up to ten seconds.
func (c *child) awaitHealth(ctx context.Context, addr string) error {
	client := http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	deadline := time.After(10 * time.Second)
	for {
		resp, err := client.Get("http://" + addr + "/healthz")
		if err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-c.done:
			return c.failure()
		case <-ctx.Done():
			return ctx.Err()
		case <-deadline:
			return fmt.Errorf("%s did not answer\n%s", c.name, strings.TrimSpace(c.tail()))
		}
	}
}
