package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"holocast/internal/connect"
	"holocast/internal/moqt"
	"holocast/internal/prepared"
	"holocast/internal/replay"
	"holocast/internal/service"
)

type replayOptions struct {
	target     connect.Target
	speed      float64
	loop       bool
	waitViewer bool
	live       bool
	background bool
	json       bool
}

func replayCommand() *cobra.Command {
	o := replayOptions{}
	c := &cobra.Command{
		Use:   "replay FILE.mcap|FOLDER URL",
		Short: "Publish a recorded session again",
		Long: `Publishes a recording's objects unchanged and with their original timing, as the session in the
URL. --loop increases the group IDs in every pass; everything else stays the same. A truncated
recording is replayed up to its last readable object.

FOLDER is 360° video written by prepare. It is replayed like the recording of a session.

Viewers that support it, such as the web viewer, can pause and seek in the recording on their own
while it is replayed.

Players recognize a replay and measure frame delay from a frame's arrival, since the capture is
long past. --live gives frames new sequence numbers and sets the capture time to the time of
sending, so that players treat them as live. The network load then equals that of a camera, at a
fraction of the CPU time.`,
		Example: `  holocast replay demo.mcap moqt://localhost:4443/again
  holocast replay demo.mcap moqt://localhost:4443/again --loop --speed 0.5
  holocast replay demo.mcap moqt://localhost:4443/again --wait-viewer
  holocast replay tour/ moqt://localhost:4443/tour --loop`,
		Args: service.Arguments,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.target.URL = args[1]
			return runReplay(cmd.Context(), o, args[0], cmd.OutOrStdout())
		},
	}
	f := c.Flags()
	o.target.AddFlags(f)
	f.Float64Var(&o.speed, "speed", 1, "playback speed relative to the recording")
	f.BoolVar(&o.loop, "loop", false, "loop until Ctrl-C")
	f.BoolVar(&o.waitViewer, "wait-viewer", false, "start when a viewer subscribes to a media track")
	f.BoolVar(&o.live, "live", false, "give frames new capture times, as if live")
	f.BoolVar(&o.background, "background", false,
		"yield to all other traffic, by congestion controller ledbat; objects may be late")
	f.BoolVar(&o.json, "json", false, "print a summary as one JSON object, the last line of stdout")
	return c
}

// replayed is the final summary.
type replayed struct {
	File      string  `json:"file"`
	Objects   uint64  `json:"objects"`
	Unsent    uint64  `json:"unsent"` // subgroups and datagrams not sent in time
	Seconds   float64 `json:"seconds"`
	Truncated bool    `json:"truncated"`
}

func runReplay(ctx context.Context, o replayOptions, path string, stdout io.Writer) error {
	ns, err := o.target.Namespace()
	if err != nil {
		return err
	}
	if o.background {
		if o.target.Congestion != "" {
			return errors.New("--background selects the congestion controller; omit --congestion")
		}
		o.target.Congestion = "ledbat"
	}
	if o.speed <= 0 {
		return fmt.Errorf("--speed is %v, want more than 0", o.speed)
	}
	r, err := replay.Open(
		path, replay.Config{
			Namespace: ns, Speed: o.speed, Loop: o.loop, WaitViewer: o.waitViewer, Live: o.live, Source: prepared.OpenSource,
		},
	)
	if err != nil {
		return err
	}
	if t := r.Info.Truncated; t != nil {
		fmt.Fprintf(os.Stderr, "holocast: %s: %v\n", path, t)
	}
	began := time.Now()
	connection, disconnect := context.WithCancel(ctx)
	defer disconnect()
	connected, over := make(chan struct{}), make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		first := true
		use := func(ctx context.Context, s *moqt.Session) error {
			if first {
				close(connected)
				first = false
			}
			return r.Serve(ctx, s, over)
		}
		ended <- keep(connection, o.target, r.Handler(), moqt.Config{}, false, true, use)
	}()
	select {
	case <-connected:
	case err := <-ended:
		return err
	}
	played := make(chan error, 1)
	go func() {
		played <- r.Run(connection)
		close(over)
	}()
	bar := newTimeBar("replaying", r.Info.Duration())
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for running := true; running; {
		select {
		case <-tick.C:
			_, at, _ := r.Progress()
			bar.set(at, 0)
		case err = <-ended:
			running = false
		}
	}
	bar.end()
	disconnect()
	if rerr := <-played; ctx.Err() == nil && rerr != nil && err == nil {
		err = rerr
	}
	if err != nil && ctx.Err() == nil {
		return err
	}
	n, _, _ := r.Progress()
	sum := replayed{
		File:      path,
		Objects:   n,
		Unsent:    r.Unsent(),
		Seconds:   time.Since(began).Round(time.Millisecond).Seconds(),
		Truncated: r.Info.Truncated != nil,
	}
	if o.json {
		return json.NewEncoder(stdout).Encode(sum)
	}
	fmt.Fprintf(stdout, "%s: %d objects in %.1f s\n", path, n, sum.Seconds)
	if sum.Unsent > 0 {
		return fmt.Errorf(
			"%d subgroups or datagrams could not be sent in time: the path to the relay is too slow", sum.Unsent,
		)
	}
	return nil
}
