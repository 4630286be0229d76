//go:build linux

package main

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"holocast/netfunc/api"
	"holocast/netfunc/controller/control"
)

// metrics are counted as things happen.
type metrics struct {
	reaction prometheus.Histogram
	requests *prometheus.CounterVec
}

func newMetrics() *metrics {
	return &metrics{
		reaction: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "holocast_controller_reaction_seconds", Help: "From an event to the last signalling packet that it led to.",
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

// collector reads the control plane when Prometheus asks.
type collector struct {
	plane *control.Plane

	edges, reported, up, rtt, loss, flows, paths, applied, live,
	signals, signalsFailed, decisions, observations, ignored, saves, savesFailed *prometheus.Desc
}

func newCollector(p *control.Plane) *collector {
	d := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("holocast_controller_"+name, help, labels, nil)
	}
	return &collector{
		plane:         p,
		edges:         d("edge_up", "1 while an edge reports, 0 while it is lost.", "edge", "role"),
		reported:      d("edge_reported_timestamp_seconds", "Time of an edge's last report.", "edge"),
		up:            d("path_up", "1 while an edge reports that it can use a path.", "edge", "path", "interface"),
		rtt:           d("path_rtt_seconds", "Round-trip time of the probes on a path.", "edge", "path", "interface"),
		loss:          d("path_loss_ratio", "Part of the probes on a path that was not answered.", "edge", "path", "interface"),
		flows:         d("flows", "Flows in a state.", "state"),
		paths:         d("flow_paths", "Paths that a flow is sent on; 0 = plain routing.", "destination"),
		applied:       d("flow_applied", "1 while the sender reports the flow's paths in force.", "destination"),
		live:          d("flow_live", "1 while the flow's viewer is seen.", "destination"),
		signals:       d("signals_total", "Signalling packets sent."),
		signalsFailed: d("signals_failed_total", "Signalling packets that could not be sent."),
		decisions:     d("decisions_total", "Decisions.", "kind"),
		observations:  d("uplink_observations_total", "Packets that the edges' uplink monitors reported.", "edge"),
		ignored:       d("uplink_ignored_total", "Of them, those that belonged to no flow."),
		saves:         d("state_saves_total", "Times that the state was written."),
		savesFailed:   d("state_saves_failed_total", "Times that the state could not be written."),
	}
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.edges, c.reported, c.up, c.rtt, c.loss, c.flows, c.paths, c.applied, c.live,
		c.signals, c.signalsFailed, c.decisions, c.observations, c.ignored, c.saves, c.savesFailed} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	counter := func(d *prometheus.Desc, v uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	yes := func(b bool) float64 {
		if b {
			return 1
		}
		return 0
	}
	for _, e := range c.plane.Edges() {
		gauge(c.edges, yes(!e.Lost), e.Name, string(e.Role))
		gauge(c.reported, float64(e.Reported.UnixMilli())/1000, e.Name)
		for _, p := range e.Paths {
			labels := []string{e.Name, strconv.Itoa(p.Index), p.Interface}
			gauge(c.up, yes(p.Up && !e.Lost), labels...)
			gauge(c.rtt, p.RTT/1000, labels...)
			gauge(c.loss, p.Loss, labels...)
		}
	}
	states := map[api.State]float64{api.Armed: 0, api.Duplicating: 0, api.Trimmed: 0, api.Single: 0, api.Redirected: 0, api.Disabled: 0}
	for _, f := range c.plane.Flows() {
		states[f.State]++
		dst := f.Destination.String()
		gauge(c.paths, float64(f.Paths.Len()), dst)
		gauge(c.applied, yes(f.Applied), dst)
		gauge(c.live, yes(f.Live), dst)
	}
	for s, n := range states {
		gauge(c.flows, n, string(s))
	}
	n := c.plane.Counts()
	counter(c.signals, n.Signals)
	counter(c.signalsFailed, n.SignalsFailed)
	for kind, v := range n.Decisions {
		counter(c.decisions, v, kind)
	}
	for edge, v := range n.Uplinks {
		counter(c.observations, v, edge)
	}
	counter(c.ignored, c.plane.Ignored())
	counter(c.saves, n.Saves)
	counter(c.savesFailed, n.SavesFailed)
}
