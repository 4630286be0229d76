package main

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"holocast/relay/router"
)

// collector reads the router's counters when Prometheus asks.
type collector struct {
	r *router.Router

	sessions, tracks, viewers, cached, received, objects, duplicates,
	evicted, sent, subgroups, late, behind, datagrams, rtt, unsent, lost,
	minRTT, bandwidth, inFlight, window, appLimited *prometheus.Desc
}

func newCollector(r *router.Router) *collector {
	d := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("holocast_relay_"+name, help, labels, nil)
	}
	return &collector{
		r:          r,
		sessions:   d("sessions", "Open sessions.", "transport"),
		tracks:     d("tracks", "Tracks being passed on."),
		viewers:    d("viewers", "Subscriptions being served.", "track"),
		cached:     d("cached_bytes", "Bytes kept for late joiners.", "track"),
		received:   d("received_bytes_total", "Bytes of objects received from publishers."),
		objects:    d("received_objects_total", "Objects received from publishers."),
		duplicates: d("duplicate_subgroups_total", "Subgroups refused because another publisher sent them already."),
		evicted:    d("evicted_subgroups_total", "Subgroups refused because they were older than what is kept."),
		sent:       d("sent_bytes_total", "Bytes of objects sent to viewers."),
		subgroups:  d("sent_subgroups_total", "Subgroups begun to be sent to viewers."),
		late:       d("late_subgroups_total", "Subgroups reset because they missed their delivery timeout."),
		behind:     d("behind_subgroups_total", "Subgroups reset or skipped because a viewer was too far behind."),
		datagrams:  d("dropped_datagrams_total", "Datagrams that could not be sent to a viewer."),
		rtt:        d("session_rtt_seconds", "Smoothed round-trip time of a session.", "session", "peer"),
		unsent:     d("session_refused_subgroups_total", "Subgroups that a session could not take in.", "session", "peer"),
		lost:       d("session_lost_packets_total", "Packets lost towards a peer.", "session", "peer"),
		minRTT:     d("session_min_rtt_seconds", "Least round-trip time of a session.", "session", "peer"),
		bandwidth:  d("session_bandwidth_bytes_per_second", "What congestion control believes the path to a peer carries.", "session", "peer", "controller"),
		inFlight:   d("session_in_flight_bytes", "Bytes sent to a peer and not yet acknowledged.", "session", "peer", "controller"),
		window:     d("session_congestion_window_bytes", "Congestion window towards a peer.", "session", "peer"),
		appLimited: d("session_app_limited", "1 while less is sent to a peer than its path is believed to carry.", "session", "peer", "controller"),
	}
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.sessions, c.tracks, c.viewers, c.cached, c.received, c.objects, c.duplicates,
		c.evicted, c.sent, c.subgroups, c.late, c.behind, c.datagrams, c.rtt, c.unsent, c.lost,
		c.minRTT, c.bandwidth, c.inFlight, c.window, c.appLimited} {
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
	var quic, wt float64
	for number, s := range c.r.Sessions() {
		if s.WebTransport() {
			wt++
		} else {
			quic++
		}
		st, id, peer := s.Stats(), strconv.FormatUint(number, 10), s.RemoteAddr().String()
		gauge(c.rtt, st.RTT.Seconds(), id, peer)
		counter(c.unsent, st.SubgroupsRefused+st.SubgroupsUnknown, id, peer)
		counter(c.lost, st.PacketsLost, id, peer)
		gauge(c.minRTT, st.MinRTT.Seconds(), id, peer)
		gauge(c.window, float64(st.CongestionWindow), id, peer)
		if path := st.Path; path.Controller != "" {
			gauge(c.bandwidth, path.Bandwidth, id, peer, path.Controller)
			gauge(c.inFlight, float64(path.InFlight), id, peer, path.Controller)
			limited := 0.0
			if path.AppLimited {
				limited = 1
			}
			gauge(c.appLimited, limited, id, peer, path.Controller)
		}
	}
	gauge(c.sessions, quic, "quic")
	gauge(c.sessions, wt, "webtransport")
	tracks, sum := c.r.Stats()
	gauge(c.tracks, float64(len(tracks)))
	for _, t := range tracks {
		name := t.Name.String()
		gauge(c.viewers, float64(t.Viewers), name)
		gauge(c.cached, float64(t.CachedBytes), name)
		sum.Add(t.Stats)
	}
	counter(c.received, sum.Bytes)
	counter(c.objects, sum.Objects)
	counter(c.duplicates, sum.DuplicateSubgroup)
	counter(c.evicted, sum.Evicted)
	counter(c.sent, sum.SentBytes)
	counter(c.subgroups, sum.SentSubgroups)
	counter(c.late, sum.Late)
	counter(c.behind, sum.Behind)
	counter(c.datagrams, sum.UnsentDatagrams)
}
