package publish

import (
	"time"

	"holocast/internal/service"
)

// newMetrics registers the metrics of the session and its tracks.
func newMetrics(p *Publisher) *service.Metrics {
	m := service.NewMetrics("holocast_capture_")
	var (
		connected   = m.Gauge("connected", "1 while the session's namespace is published at the relay.")
		offset      = m.Gauge("clock_offset_seconds", "Relay clock minus local clock.")
		uncertainty = m.Gauge("clock_error_seconds", "Maximum error of clock_offset_seconds.")
		rtt         = m.Gauge("relay_rtt_seconds", "Smoothed round-trip time to the relay.")
		minRTT      = m.Gauge("relay_min_rtt_seconds", "Minimum round-trip time to the relay.")
		bandwidth   = m.Gauge("relay_bandwidth_bytes_per_second",
			"Bandwidth of the path to the relay, estimated by congestion control.", "controller")
		lost   = m.Counter("relay_lost_packets_total", "Packets lost on the current connection to the relay.")
		unsent = m.Counter("relay_unsent_datagrams_total",
			"Datagrams dropped on the current connection to the relay: delivery timeout expired, or queue full.")
		viewers   = m.Gauge("viewers", "Subscriptions per track; a relay counts as one.", "track")
		cached    = m.Gauge("cached_bytes", "Bytes cached for late joiners.", "track")
		published = m.Counter("published_bytes_total", "Bytes of objects published.", "track")
		sent      = m.Counter("sent_bytes_total", "Bytes of objects sent.", "track")
		late      = m.Counter("late_subgroups_total", "Subgroups reset because their delivery timeout expired.",
			"track")
		behind = m.Counter("behind_subgroups_total", "Subgroups reset or skipped because a subscriber fell behind.",
			"track")
	)
	m.Read(func(put service.Put) {
		session := p.session.Load()
		put(connected, service.Bool(session != nil))
		if session != nil {
			st := session.Stats()
			put(rtt, st.RTT.Seconds())
			put(minRTT, st.MinRTT.Seconds())
			put(lost, float64(st.PacketsLost))
			put(unsent, float64(st.DatagramsUnsent))
			if st.Path.Controller != "" {
				put(bandwidth, st.Path.Bandwidth, st.Path.Controller)
			}
		}
		if e := p.relayTime.Estimate(time.Now()); e.Samples > 0 {
			put(offset, e.Offset.Seconds())
			put(uncertainty, e.Error.Seconds())
		}
		for _, t := range p.tracksNow() {
			s, name := t.Stats(), t.Name().Name
			put(viewers, float64(s.Viewers), name)
			put(cached, float64(s.CachedBytes), name)
			put(published, float64(s.Bytes), name)
			put(sent, float64(s.SentBytes), name)
			put(late, float64(s.Late), name)
			put(behind, float64(s.Behind), name)
		}
	})
	return m
}
