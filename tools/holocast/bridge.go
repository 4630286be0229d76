package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"holocast/internal/connect"
	"holocast/internal/livescan"
	"holocast/internal/moqt"
	"holocast/internal/pointcloud"
	"holocast/internal/secureobjects"
	"holocast/internal/service"
	"holocast/tools/holocast/bridge"
	"holocast/tools/holocast/player"
)

// bridgeOptions holds the flags of bridge.
type bridgeOptions struct {
	target             connect.Target
	listen, http       string
	cameras            []int
	quality            string
	points             int
	viewers, perSource int
	duration           time.Duration
	frames             string
	json               bool
	congestion         string // TCP congestion control
	key                string // key file
}

func bridgeCommand() *cobra.Command {
	o := bridgeOptions{listen: fmt.Sprintf("127.0.0.1:%d", livescan.ViewerPort), points: 200_000, viewers: 16}
	c := &cobra.Command{
		Use:   "bridge URL",
		Short: "Serve a session to LiveScan3D's viewers",
		Long: `Receives a session and serves it to LiveScan3D's viewers, in Unity and on HoloLens, with the
protocol of LiveScan3D's server: a viewer requests each frame over TCP and receives the points of
all cameras in studio coordinates. The bridge waits for a missing relay or session, and reconnects
after an outage.

LiveScan3D's protocol has neither encryption nor authorization: whoever reaches the address sees
the session. The default is loopback.`,
		Example: `  holocast bridge moqt://localhost:4443/demo
  holocast bridge --listen :48002 --points 100000 moqt://relay.example:4443/studio
  holocast bridge --listen 192.168.1.20:48002 --http 127.0.0.1:9192 moqt://relay.example:4443/studio`,
		Args: service.Arguments,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.target.URL = args[0]
			if !cmd.Flags().Changed("log-level") { // by default, log when viewers connect and disconnect
				slog.SetDefault(slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil)))
			}
			return serveBridge(cmd.Context(), o, cmd.OutOrStdout())
		},
	}
	f := c.Flags()
	o.target.AddFlags(f)
	f.StringVar(&o.key, "e2e-key", "", secureobjects.KeyUsage)
	f.StringVar(&o.listen, "listen", o.listen, "TCP address for viewers; :48002 listens on all of this machine's addresses")
	f.IntVar(
		&o.points, "points", o.points,
		"most points of a frame, all cameras together: the others are left out evenly; 9 bytes each",
	)
	f.IntSliceVar(&o.cameras, "camera", nil, "cameras to serve, by number (default all)")
	f.StringVar(&o.quality, "quality", "", "quality of the tracks (default the best)")
	f.IntVar(&o.viewers, "max-viewers", o.viewers, "maximum number of viewers")
	f.IntVar(&o.perSource, "max-per-address", 0, "maximum viewers per address (default --max-viewers)")
	f.StringVar(&o.http, "http", "", "TCP address for /metrics and /healthz (default none)")
	f.StringVar(
		&o.congestion, "tcp-congestion", "",
		"the kernel's TCP congestion control, such as cubic or bbr (default the system's)",
	)
	f.DurationVar(&o.duration, "duration", 0, "stop after this long (default at Ctrl-C)")
	f.StringVar(&o.frames, "frames", "", "write each sent frame to this CSV file (times in UNIX µs)")
	f.BoolVar(&o.json, "json", false, "print a summary as one JSON object, the last line of stdout")
	return c
}

// validate reports the first invalid option.
func (o bridgeOptions) validate() error {
	switch {
	case o.points < 1 || o.points > livescan.MaxPoints:
		return fmt.Errorf("--points is %d, want 1 to %d", o.points, livescan.MaxPoints)
	case o.viewers < 1 || o.viewers > 1000:
		return fmt.Errorf("--max-viewers is %d, want 1 to 1000", o.viewers)
	case o.perSource < 0:
		return fmt.Errorf("--max-per-address is %d, want 1 or more", o.perSource)
	}
	return nil
}

// errNoSession is the health error of a bridge without a session.
var errNoSession = errors.New("no frame of the session has arrived")

// serveBridge serves viewers until ctx is done or the duration is over.
func serveBridge(ctx context.Context, o bridgeOptions, stdout io.Writer) (err error) {
	if err := o.validate(); err != nil {
		return err
	}
	ns, err := o.target.Namespace()
	if err != nil {
		return err
	}
	if o.duration > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, o.duration)
		defer stop()
	}
	ln, err := service.ListenTCP("--listen", o.listen)
	if err != nil {
		return err
	}
	defer func() { _ = ln.Close() }()
	if o.congestion != "" {
		if err := bridge.SetCongestion(ln, o.congestion); err != nil {
			return fmt.Errorf("--tcp-congestion: %w", err)
		}
	}
	web, err := service.ListenHTTP("--http", o.http, slog.Default())
	if err != nil {
		return err
	}
	defer web.Close()

	var p *player.Player
	frames := bridge.NewFrames(func() []pointcloud.Points {
		clouds, _ := p.Clouds()
		return clouds
	}, o.points)
	decrypt, err := viewerOf(ns, o.key)
	if err != nil {
		return err
	}
	p = player.New(
		player.Config{
			Namespace: ns, Cameras: o.cameras, Quality: o.quality, Wait: true, Decrypt: decrypt,
			Shown: func(f player.ShownFrame) { frames.Shown(f.Camera, f.Captured, f.Shown) },
		},
	)
	defer p.Close()
	cfg := bridge.Config{Viewers: o.viewers, PerAddress: o.perSource}
	if o.frames != "" {
		list, lerr := newSentList(o.frames)
		if lerr != nil {
			return lerr
		}
		defer func() { err = errors.Join(err, list.close()) }()
		cfg.Sent = list.add
	}
	server := bridge.NewServer(frames, cfg)
	web.Handle("GET /metrics", service.MetricsHandler(service.NewRegistry(server.Metrics()...)))
	web.HandleFunc("GET /healthz", service.Health(func() error {
		select {
		case <-p.Showing():
			return nil
		default:
			return errNoSession
		}
	}))
	web.Start()
	fmt.Fprintf(stdout, "LiveScan3D's viewers of %s: %s\n", o.target.Address(), ln.Addr())

	ctx, stop := context.WithCancel(ctx)
	defer stop()
	received := make(chan error, 1)
	go func() {
		defer stop() // the session is unavailable
		received <- receiveSession(ctx, o.target, p, sessionConfig(decrypt))
	}()
	err = errors.Join(server.Serve(ctx, ln), func() error { stop(); return <-received }())
	if err != nil {
		return err
	}
	sum := bridged{Statistics: server.Statistics(), Received: p.Snapshot(time.Now())}
	if o.json {
		return json.NewEncoder(stdout).Encode(sum)
	}
	fmt.Fprintln(stdout, sum)
	return nil
}

// bridged is the final summary.
type bridged struct {
	bridge.Statistics
	Received player.Report `json:"received"`
}

func (b bridged) String() string {
	return fmt.Sprintf("%d frames of %d points to %d viewers, %.1f MB; %d refused, %d dropped; received: %v",
		b.Frames, b.Points/max(1, b.Frames), b.Viewers, float64(b.Bytes)/1e6, b.Refused, b.Dropped, b.Received)
}

// receiveSession plays the session, and the next one after it ends, until ctx is done.
func receiveSession(ctx context.Context, t connect.Target, p *player.Player, cfg moqt.Config) error {
	for {
		err := keep(ctx, t, moqt.Handler{}, cfg, true, true, p.Play)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // ctx is done
		}
		if err != nil {
			return err
		}
		slog.Info("the publisher ended the session; waiting for the next session")
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return nil
		}
	}
}

// sentList writes a CSV line per sent frame.
type sentList struct {
	mu   sync.Mutex
	file *os.File
	w    *bufio.Writer // keeps its first error, which close returns
}

func newSentList(path string) (*sentList, error) {
	file, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("frames: %w", err)
	}
	l := &sentList{file: file, w: bufio.NewWriter(file)}
	fmt.Fprintln(l.w, "viewer,frame,captured_us,asked_us,taken_us,points,bytes")
	return l, nil
}

func (l *sentList) add(s bridge.Sent) {
	l.mu.Lock()
	defer l.mu.Unlock()
	captured := int64(0)
	if !s.Captured.IsZero() {
		captured = s.Captured.UnixMicro()
	}
	fmt.Fprintf(
		l.w, "%s,%d,%d,%d,%d,%d,%d\n", s.Viewer, s.Frame, captured, s.Asked.UnixMicro(), s.Taken.UnixMicro(),
		s.Points, s.Bytes,
	)
}

// close flushes the file.
func (l *sentList) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := errors.Join(l.w.Flush(), l.file.Close()); err != nil {
		return fmt.Errorf("frames: %w", err)
	}
	return nil
}
