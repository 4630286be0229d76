package publish

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// collector reads the session's and its tracks' counters when Prometheus asks.
type collector struct {
	p *Publisher

	connected, offset, uncertainty, viewers, cached, published, sent, late, behind,
	rtt, minRTT, bandwidth, lost *prometheus.Desc
}

func newCollector(p *Publisher) *collector {
	d := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("holocast_capture_"+name, help, labels, nil)
	}
	return &collector{
		p:           p,
		connected:   d("connected", "1 while the session's namespace is published at the relay."),
		offset:      d("clock_offset_seconds", "Relay's clock minus this machine's."),
		uncertainty: d("clock_error_seconds", "Bound of the offset's error."),
		rtt:         d("relay_rtt_seconds", "Smoothed round-trip time to the relay."),
		minRTT:      d("relay_min_rtt_seconds", "Minimum round-trip time to the relay."),
		bandwidth:   d("relay_bandwidth_bytes_per_second", "Congestion control's bandwidth estimate of the path to the relay.", "controller"),
		lost:        d("relay_lost_packets_total", "Packets lost towards the relay in this connection."),
		viewers:     d("viewers", "Subscriptions to a track; a relay counts as one.", "track"),
		cached:      d("cached_bytes", "Bytes kept for late joiners.", "track"),
		published:   d("published_bytes_total", "Bytes of objects published.", "track"),
		sent:        d("sent_bytes_total", "Bytes of objects sent.", "track"),
		late:        d("late_subgroups_total", "Subgroups reset because they missed their delivery timeout.", "track"),
		behind:      d("behind_subgroups_total", "Subgroups reset or skipped because a subscriber was too far behind.", "track"),
	}
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.connected, c.offset, c.uncertainty, c.viewers, c.cached, c.published, c.sent, c.late, c.behind,
		c.rtt, c.minRTT, c.bandwidth, c.lost} {
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
	connected := 0.0
	if s := c.p.session.Load(); s != nil {
		connected = 1
		st := s.Stats()
		gauge(c.rtt, st.RTT.Seconds())
		gauge(c.minRTT, st.MinRTT.Seconds())
		counter(c.lost, st.PacketsLost)
		if st.Path.Controller != "" {
			gauge(c.bandwidth, st.Path.Bandwidth, st.Path.Controller)
		}
	}
	gauge(c.connected, connected)
	if e := c.p.relayTime.Estimate(time.Now()); e.Samples > 0 {
		gauge(c.offset, e.Offset.Seconds())
		gauge(c.uncertainty, e.Error.Seconds())
	}
	for _, t := range c.p.tracksNow() {
		s, name := t.Stats(), t.Name().Name
		gauge(c.viewers, float64(s.Viewers), name)
		gauge(c.cached, float64(s.CachedBytes), name)
		counter(c.published, s.Bytes, name)
		counter(c.sent, s.SentBytes, name)
		counter(c.late, s.Late, name)
		counter(c.behind, s.Behind, name)
	}
}
