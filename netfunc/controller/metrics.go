//go:build linux

package main

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"holocast/internal/service"
	"holocast/netfunc/api"
	"holocast/netfunc/controller/control"
)

// metrics holds the metrics that are updated as events happen.
type metrics struct {
	reaction prometheus.Histogram
	requests *prometheus.CounterVec
}

func newMetrics() *metrics {
	return &metrics{
		reaction: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "holocast_controller_reaction_seconds",
			Help:    "Time from an event to the last signalling packet it caused.",
			Buckets: prometheus.ExponentialBuckets(10e-6, 2, 14),
		}),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "holocast_controller_requests_total", Help: "HTTP requests answered.",
		}, []string{"route", "status"}),
	}
}

func (m *metrics) reacted(d time.Duration) { m.reaction.Observe(d.Seconds()) }

func (m *metrics) answered(route string, status int) {
	m.requests.WithLabelValues(route, strconv.Itoa(status)).Inc()
}

// newPlaneMetrics exports the control plane's metrics.
func newPlaneMetrics(plane *control.Plane) *service.Metrics {
	m := service.NewMetrics("holocast_controller_")
	var (
		edges    = m.Gauge("edge_up", "1 while the edge reports, 0 once it is lost.", "edge", "role")
		reported = m.Gauge("edge_reported_timestamp_seconds", "Time of the edge's last report.", "edge")
		up       = m.Gauge("path_up", "1 while the edge reports the path up.", "edge", "path", "interface")
		rtt      = m.Gauge("path_rtt_seconds", "Round-trip time of probes on the path.", "edge", "path",
			"interface")
		loss = m.Gauge("path_loss_ratio", "Fraction of unanswered probes on the path.", "edge", "path",
			"interface")
		flows         = m.Gauge("flows", "Flows by state.", "state")
		paths         = m.Gauge("flow_paths", "Paths in use for the flow; 0 = plain routing.", "destination")
		applied       = m.Gauge("flow_applied", "1 while the sender reports the flow's paths in force.", "destination")
		live          = m.Gauge("flow_live", "1 while the viewer sends uplink packets.", "destination")
		signals       = m.Counter("signals_total", "Signalling packets sent.")
		signalsFailed = m.Counter("signals_failed_total", "Signalling packets that could not be sent.")
		decisions     = m.Counter("decisions_total", "Controller decisions about edges, paths and flows, by kind.", "kind")
		observations  = m.Counter("uplink_observations_total", "Uplink observations reported by edges.", "edge")
		ignored       = m.Counter("uplink_ignored_total", "Uplink observations that matched no flow.")
		saves         = m.Counter("state_saves_total", "Writes of the state file.")
		savesFailed   = m.Counter("state_saves_failed_total", "Failed writes of the state file.")
	)
	m.Read(func(put service.Put) {
		for _, e := range plane.Edges() {
			put(edges, service.Bool(!e.Lost), e.Name, string(e.Role))
			put(reported, float64(e.Reported.UnixMilli())/1000, e.Name)
			for _, p := range e.Paths {
				labels := []string{e.Name, strconv.Itoa(p.Index), p.Interface}
				put(up, service.Bool(p.Up && !e.Lost), labels...)
				put(rtt, p.RTT/1000, labels...)
				put(loss, p.Loss, labels...)
			}
		}
		states := map[api.State]float64{
			api.Armed: 0, api.Duplicating: 0, api.Trimmed: 0, api.Single: 0,
			api.Redirected: 0, api.Disabled: 0,
		}
		for _, f := range plane.Flows() {
			states[f.State]++
			dst := f.Destination.String()
			put(paths, float64(f.Paths.Len()), dst)
			put(applied, service.Bool(f.Applied), dst)
			put(live, service.Bool(f.Live), dst)
		}
		for s, n := range states {
			put(flows, n, string(s))
		}
		n := plane.Counts()
		put(signals, float64(n.Signals))
		put(signalsFailed, float64(n.SignalsFailed))
		for kind, v := range n.Decisions {
			put(decisions, float64(v), kind)
		}
		for edge, v := range n.Uplinks {
			put(observations, float64(v), edge)
		}
		put(ignored, float64(plane.Ignored()))
		put(saves, float64(n.Saves))
		put(savesFailed, float64(n.SavesFailed))
	})
	return m
}
