package main

import (
	"strconv"

	"holocast/internal/moqt"
	"holocast/internal/service"
	"holocast/relay/limits"
	"holocast/relay/router"
)

// newMetrics returns the metrics of the router and its listener.
func newMetrics(r *router.Router, ln *moqt.Listener) *service.Metrics {
	m := service.NewMetrics("holocast_relay_")
	var (
		sessions   = m.Gauge("sessions", "Open sessions.", "transport")
		tracks     = m.Gauge("tracks", "Tracks being forwarded.")
		viewers    = m.Gauge("viewers", "Subscriptions being served.", "track")
		cached     = m.Gauge("cached_bytes", "Bytes in the cache.", "track")
		received   = m.Counter("received_bytes_total", "Object bytes received from publishers.")
		objects    = m.Counter("received_objects_total", "Objects received from publishers.")
		duplicates = m.Counter("duplicate_subgroups_total", "Duplicate subgroups and datagrams refused.")
		evicted    = m.Counter("evicted_subgroups_total", "Subgroups refused because they were older than the cache.")
		sent       = m.Counter("sent_bytes_total", "Object bytes sent to viewers.")
		subgroups  = m.Counter("sent_subgroups_total",
			"Subgroup deliveries started; a subgroup for n viewers counts n times.")
		dropped   = m.Counter("dropped_subgroups_total", "Subgroup deliveries dropped, by reason.", "reason")
		datagrams = m.Counter("dropped_datagrams_total",
			"Datagrams dropped for a viewer: queue full, or subscription ended.")
		repaired = m.Counter("repaired_datagrams_total",
			"Datagrams fetched from publishers because they were lost or sent before the first viewer joined.")
		rtt    = m.Gauge("session_rtt_seconds", "Smoothed round-trip time of a session.", "session", "peer")
		unsent = m.Counter("session_refused_subgroups_total",
			"Subgroups from a peer refused: not accepted in time, or track alias unknown.", "session", "peer")
		undelivered = m.Counter("session_unsent_datagrams_total",
			"Datagrams to a peer dropped: delivery timeout expired, queue full, or larger than a packet.", "session",
			"peer")
		unread = m.Counter("session_refused_datagrams_total",
			"Datagrams from a peer dropped: not read in time, or track alias unknown.", "session", "peer")
		lost = m.Counter("session_lost_packets_total", "Packets sent to a peer and declared lost.", "session",
			"peer")
		minRTT    = m.Gauge("session_min_rtt_seconds", "Minimum round-trip time of a session.", "session", "peer")
		bandwidth = m.Gauge("session_bandwidth_bytes_per_second", "Estimated bandwidth to a peer.", "session", "peer",
			"controller")
		inFlight = m.Gauge("session_in_flight_bytes", "Unacknowledged bytes sent to a peer.", "session", "peer",
			"controller")
		window     = m.Gauge("session_congestion_window_bytes", "Congestion window towards a peer.", "session", "peer")
		refused    = m.Counter("refused_requests_total", "Requests refused, by REQUEST_ERROR code.", "reason")
		appLimited = m.Gauge("session_app_limited",
			"1 while the relay sends a peer less than the path's estimated bandwidth.", "session", "peer", "controller")
		multipath = m.Gauge("multipath_sessions", "Open sessions over several paths.")
		paths     = m.Gauge("paths", "Paths of open multipath sessions, by state.", "state")
		notJoined = m.Counter("refused_paths_total",
			"Connections refused when joining a multipath session, by reason.", "reason")
	)
	m.Read(func(put service.Put) {
		var several, up, down float64
		open := map[moqt.Transport]float64{}
		for number, s := range r.Sessions() {
			open[s.Transport()]++
			st, id, peer := s.Stats(), strconv.FormatUint(number, 10), s.RemoteAddr().String()
			put(rtt, st.RTT.Seconds(), id, peer)
			put(unsent, float64(st.SubgroupsRefused+st.SubgroupsUnknown), id, peer)
			put(undelivered, float64(st.DatagramsUnsent), id, peer)
			put(unread, float64(st.DatagramsRefused+st.DatagramsUnknown), id, peer)
			put(lost, float64(st.PacketsLost), id, peer)
			put(minRTT, st.MinRTT.Seconds(), id, peer)
			put(window, float64(st.CongestionWindow), id, peer)
			if path := st.Path; path.Controller != "" {
				put(bandwidth, path.Bandwidth, id, peer, path.Controller)
				put(inFlight, float64(path.InFlight), id, peer, path.Controller)
				put(appLimited, service.Bool(path.AppLimited), id, peer, path.Controller)
			}
			list := s.Paths()
			if list != nil {
				several++
			}
			for _, p := range list {
				if p.Down {
					down++
				} else {
					up++
				}
			}
		}
		put(multipath, several)
		put(paths, up, "up")
		put(paths, down, "down")
		for reason, n := range ln.RefusedPaths() {
			put(notJoined, float64(n), reason)
		}
		for code, n := range r.RefusedRequests() {
			put(refused, float64(n), code.String())
		}
		for _, t := range moqt.Transports() {
			put(sessions, open[t], string(t))
		}
		all, sum := r.Stats()
		put(tracks, float64(len(all)))
		for _, t := range all {
			name := t.Name.String()
			put(viewers, float64(t.Viewers), name)
			put(cached, float64(t.CachedBytes), name)
			sum.Add(t.Stats)
		}
		put(received, float64(sum.Bytes))
		put(objects, float64(sum.Objects))
		put(duplicates, float64(sum.DuplicateSubgroup))
		put(evicted, float64(sum.Evicted))
		put(sent, float64(sum.SentBytes))
		put(subgroups, float64(sum.SentSubgroups))
		put(dropped, float64(sum.Late), "late")
		put(dropped, float64(sum.Behind), "behind")
		put(datagrams, float64(sum.UnsentDatagrams))
		put(repaired, float64(sum.RepairedDatagrams))
	})
	return m
}

// newLimitMetrics returns the metrics of limits: their values, their use and how often each was
// reached.
func newLimitMetrics(l *limits.Limits) *service.Metrics {
	m := service.NewMetrics("holocast_relay_")
	var (
		limit = m.Gauge("limit", "Limit per session, per address or in total; 0 = unlimited. Rates are per second.",
			"kind", "scope")
		used = m.Gauge("limit_used",
			"Current use of each limit: the highest of any session or address, or the total.", "kind", "scope")
		reached = m.Counter("limit_reached_total",
			"Refusals and delays caused by a limit; for initials, packets dropped.", "kind", "scope")
	)
	m.Read(func(put service.Put) {
		for _, u := range l.Usage() {
			put(limit, float64(u.Limit), u.Kind.String(), u.Scope.String())
			put(used, float64(u.Used), u.Kind.String(), u.Scope.String())
			put(reached, float64(u.Limited), u.Kind.String(), u.Scope.String())
		}
	})
	return m
}
