package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"holocast/internal/connect"
	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/qoe"
	"holocast/internal/service"
)

func monitorCommand() *cobra.Command {
	var target connect.Target
	address := "127.0.0.1:9191"
	c := &cobra.Command{
		Use:   "monitor URL",
		Short: "Serve frame rate and frame delay of a session's viewers to Prometheus",
		Long: `Reads the receipts of a session's viewers, one per displayed frame, and serves each viewer's frame
rate, frame delay and lost frames under /metrics. It waits for a missing relay.`,
		Example: `  holocast monitor moqt://localhost:4443/demo
  curl http://localhost:9191/metrics`,
		Args: service.Arguments,
		RunE: func(cmd *cobra.Command, args []string) error {
			target.URL = args[0]
			return monitor(cmd.Context(), target, address, cmd.OutOrStdout())
		},
	}
	target.AddFlags(c.Flags())
	c.Flags().StringVar(&address, "http", address, "TCP address for /metrics and /healthz")
	return c
}

// monitor serves the viewers' metrics until ctx is done.
func monitor(ctx context.Context, target connect.Target, address string, stdout io.Writer) error {
	ns, err := target.Namespace()
	if err != nil {
		return err
	}
	web, err := service.ListenHTTP("--http", address, slog.Default())
	if err != nil {
		return err
	}
	defer web.Close()
	v := newViewers(ns)
	web.Handle("GET /metrics", service.MetricsHandler(service.NewRegistry(v.metrics(), v.delays)))
	web.HandleFunc("GET /healthz", service.Health(func() error { return nil }))
	web.Start()
	fmt.Fprintf(stdout, "viewers of %s: http://%s/metrics\n", target.Address(), web.Addr())
	err = target.Keep(ctx, v.handler(), moqt.Config{}, func(ctx context.Context, s *moqt.Session) error {
		v.setConnected(true)
		defer v.setConnected(false)
		if err := s.SubscribeTracks(ctx, ns); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.Context().Done():
			return s.Err()
		}
	})
	if ctx.Err() != nil {
		return nil
	}
	return err
}

const (
	// watching is how long a viewer counts as present after its last receipt.
	watching = 5 * time.Second
	// forgetViewer is how long a viewer's metrics are kept after its last receipt.
	forgetViewer = time.Minute
	// maxViewers bounds memory use. Further viewers have no metrics of their own.
	maxViewers = 500
)

// viewers tracks a session's viewers by their receipts.
type viewers struct {
	namespace moqt.Namespace
	delays    prometheus.Histogram

	mu        sync.Mutex
	connected bool
	all       map[string]*viewer
}

// viewer is one receipts track.
type viewer struct {
	meter qoe.Meter
	last  time.Time // time of the last receipt
}

func newViewers(ns moqt.Namespace) *viewers {
	return &viewers{namespace: ns, all: map[string]*viewer{}, delays: prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "holocast_viewer_frame_delay_seconds",
		Help:    "Frame delay of all viewers, from capture to the end of decoding, on the relay's clock.",
		Buckets: []float64{.02, .03, .04, .05, .06, .08, .1, .125, .15, .2, .25, .3, .4, .5, .75, 1, 2, 5},
	})}
}

func (v *viewers) setConnected(yes bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.connected = yes
}

// handler accepts the viewers' receipt tracks.
func (v *viewers) handler() moqt.Handler {
	return moqt.Handler{Publish: func(r *moqt.PublishRequest) {
		name, ok := strings.CutPrefix(r.Track.Name, connect.ReceiptsPrefix)
		if !ok || !r.Track.Namespace.HasPrefix(v.namespace) {
			_ = r.Reject(wire.RequestUninterested, "not a receipts track of this session")
			return
		}
		sub, err := r.Accept(moqt.SubscribeOptions{})
		if err != nil {
			return
		}
		defer sub.Cancel()
		for {
			d, err := sub.AcceptDatagram(r.Session().Context())
			if err != nil {
				return
			}
			receipt, err := qoe.ParseReceipt(d.Payload)
			if err != nil {
				slog.Debug("ignored a receipt", "viewer", name, "err", err)
				continue
			}
			v.shown(name, receipt, time.Now())
		}
	}}
}

// shown counts a displayed frame.
func (v *viewers) shown(name string, r qoe.Receipt, now time.Time) {
	v.delays.Observe(r.Delay.Seconds())
	v.mu.Lock()
	defer v.mu.Unlock()
	one := v.all[name]
	if one == nil {
		v.forget(now)
		if len(v.all) >= maxViewers {
			return
		}
		one = &viewer{}
		v.all[name] = one
	}
	one.last = now
	one.meter.Shown(qoe.Frame{Camera: r.Camera, Sequence: r.Sequence, Shown: now, Delay: r.Delay})
}

// forget removes viewers that left long ago.
func (v *viewers) forget(now time.Time) {
	for name, one := range v.all {
		if now.Sub(one.last) > forgetViewer {
			delete(v.all, name)
		}
	}
}

func (v *viewers) metrics() *service.Metrics {
	m := service.NewMetrics("holocast_viewer_")
	var (
		connected = m.Gauge("monitor_connected", "1 while the monitor is connected to the relay.")
		sessions  = m.Gauge("sessions", "Viewers that sent a receipt in the last 5 s.")
		rate      = m.Gauge(
			"frames_per_second",
			"Distinct frames that a viewer displayed in the last second, averaged over its cameras.",
			"viewer",
		)
		delay = m.Gauge(
			"frame_delay_quantile_seconds", "Quantiles of a viewer's frame delay over the last 5 s.", "viewer",
			"quantile",
		)
		jitter = m.Gauge("jitter_seconds", "Jitter of a viewer's frame delay (RFC 3550, section 6.4.1).", "viewer")
		frames = m.Counter("frames_total", "Distinct frames displayed by a viewer.", "viewer")
		lost   = m.Gauge(
			"lost_frames", "Frames missing in a viewer's sequence, minus frames displayed late.", "viewer",
		)
	)
	m.Read(func(put service.Put) {
		now := time.Now()
		v.mu.Lock()
		defer v.mu.Unlock()
		v.forget(now)
		present := 0
		for name, one := range v.all {
			s := one.meter.Live(now)
			if now.Sub(one.last) <= watching {
				present++
				d := s.FrameDelayMS
				for quantile, ms := range map[string]float64{"0.5": d.P50, "0.95": d.P95, "0.99": d.P99} {
					put(delay, ms/1e3, name, quantile)
				}
				put(jitter, s.JitterMS/1e3, name)
			}
			put(rate, s.FPS, name)
			put(frames, float64(s.Frames), name)
			put(lost, float64(s.FramesLost), name)
		}
		put(sessions, float64(present))
		put(connected, service.Bool(v.connected))
	})
	return m
}
