package main

import (
	"strconv"

	"holocast/internal/service"
	"holocast/relay/limits"
	"holocast/relay/router"
)

// newMetrics are the router's figures.
func newMetrics(r *router.Router) *service.Metrics {
	m := service.NewMetrics("holocast_relay_")
	var (
		sessions    = m.Gauge("sessions", "Open sessions.", "transport")
		tracks      = m.Gauge("tracks", "Tracks being forwarded.")
		viewers     = m.Gauge("viewers", "Subscriptions being served.", "track")
		cached      = m.Gauge("cached_bytes", "Bytes cached for late joiners.", "track")
		received    = m.Counter("received_bytes_total", "Bytes of objects received from publishers.")
		objects     = m.Counter("received_objects_total", "Objects received from publishers.")
		duplicates  = m.Counter("duplicate_subgroups_total", "Subgroups refused as duplicates of another publisher's.")
		evicted     = m.Counter("evicted_subgroups_total", "Subgroups refused because they were older than the cache.")
		sent        = m.Counter("sent_bytes_total", "Bytes of objects sent to viewers.")
		subgroups   = m.Counter("sent_subgroups_total", "Subgroups whose transmission to a viewer began.")
		late        = m.Counter("late_subgroups_total", "Subgroups reset because they missed their delivery timeout.")
		behind      = m.Counter("behind_subgroups_total", "Subgroups dropped because a viewer was too far behind.")
		datagrams   = m.Counter("dropped_datagrams_total", "Datagrams dropped because a viewer's session could not take them.")
		repaired    = m.Counter("repaired_datagrams_total", "Datagrams fetched from publishers because they were lost or came before the first viewer did.")
		rtt         = m.Gauge("session_rtt_seconds", "Smoothed round-trip time of a session.", "session", "peer")
		unsent      = m.Counter("session_refused_subgroups_total", "Subgroups from a session that were not accepted in time.", "session", "peer")
		undelivered = m.Counter("session_unsent_datagrams_total", "Datagrams to a peer dropped because they missed their delivery timeout, or did not fit the queue or a packet.", "session", "peer")
		unread      = m.Counter("session_refused_datagrams_total", "Datagrams from a session dropped because they came faster than they could be handled.", "session", "peer")
		lost        = m.Counter("session_lost_packets_total", "Packets lost towards a peer.", "session", "peer")
		minRTT      = m.Gauge("session_min_rtt_seconds", "Minimum round-trip time of a session.", "session", "peer")
		bandwidth   = m.Gauge("session_bandwidth_bytes_per_second", "Estimated bandwidth of the path to a peer.", "session", "peer", "controller")
		inFlight    = m.Gauge("session_in_flight_bytes", "Bytes sent to a peer and not yet acknowledged.", "session", "peer", "controller")
		window      = m.Gauge("session_congestion_window_bytes", "Congestion window towards a peer.", "session", "peer")
		refused     = m.Counter("refused_requests_total", "Requests refused, by the code of REQUEST_ERROR.", "reason")
		appLimited  = m.Gauge("session_app_limited", "1 while a peer is sent less than its path is estimated to carry.", "session", "peer", "controller")
	)
	m.Read(func(put service.Put) {
		var quic, wt float64
		for number, s := range r.Sessions() {
			if s.WebTransport() {
				wt++
			} else {
				quic++
			}
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
		}
		for code, n := range r.RefusedRequests() {
			put(refused, float64(n), code.String())
		}
		put(sessions, quic, "quic")
		put(sessions, wt, "webtransport")
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
		put(late, float64(sum.Late))
		put(behind, float64(sum.Behind))
		put(datagrams, float64(sum.UnsentDatagrams))
		put(repaired, float64(sum.RepairedDatagrams))
	})
	return m
}

// newLimitMetrics are the limits, how much of them is used, and how often they were reached.
func newLimitMetrics(l *limits.Limits) *service.Metrics {
	m := service.NewMetrics("holocast_relay_")
	var (
		limit   = m.Gauge("limit", "Limit of a session, an address or all; 0 = none. Rates are a second's.", "kind", "scope")
		used    = m.Gauge("limit_used", "Use of a limit by the session or the address that uses most, or by all.", "kind", "scope")
		limited = m.Counter("limited_total", "Times that a limit refused or delayed something.", "kind", "scope")
	)
	m.Read(func(put service.Put) {
		for _, u := range l.Usage() {
			put(limit, float64(u.Limit), u.Kind.String(), u.Scope.String())
			put(used, float64(u.Used), u.Kind.String(), u.Scope.String())
			put(limited, float64(u.Limited), u.Kind.String(), u.Scope.String())
		}
	})
	return m
}
