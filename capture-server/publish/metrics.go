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
		pathUp    = m.Gauge("path_up", "1 while the path answers; only for sessions over several paths.", "path")
		pathRTT   = m.Gauge("path_rtt_seconds", "Smoothed round-trip time of a path.", "path")
		pathRate  = m.Gauge("path_bandwidth_bytes_per_second", "Estimated bandwidth of a path.", "path")
		pathSent  = m.Counter("path_sent_bytes_total", "Bytes sent over a path of the current session.", "path")
		pathCopy  = m.Counter("path_copied_bytes_total", "Bytes sent over a path after another had sent them.", "path")
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
			for _, path := range session.Paths() {
				put(pathUp, service.Bool(!path.Down), path.Name)
				put(pathRTT, path.RTT.Seconds(), path.Name)
				put(pathRate, path.Rate, path.Name)
				put(pathSent, float64(path.Sent), path.Name)
				put(pathCopy, float64(path.Copies), path.Name)
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
