package main

import (
	"time"

	"holocast/internal/service"
	"holocast/relay/cluster"
)

// newClusterMetrics returns the metrics of the cluster, which are 0 if the relay is in none.
func newClusterMetrics(c *cluster.Cluster) *service.Metrics {
	m := service.NewMetrics("holocast_relay_cluster_")
	var (
		info = m.Gauge("info",
			"1; the labels name cluster, region and relay, for joins by instance. They are empty in no cluster.",
			"cluster", "region", "relay")
		relays      = m.Gauge("relays", "Other relays of the cluster.")
		silent      = m.Gauge("silent_relays", "Other relays that were not heard for a second.")
		unreachable = m.Gauge("unreachable_relays", "Other relays that serve sessions, but to which no session works.")
		published   = m.Gauge("published_namespaces", "Namespaces announced to other relays.")
		routes      = m.Gauge("routes", "Namespaces served by other relays.")
		upstreams   = m.Gauge("upstream_sessions", "Open sessions to other relays.")
		rtt         = m.Gauge("link_rtt_seconds", "Round-trip time of an open session to another relay.", "from", "from_region")
		received    = m.Counter("link_received_bytes_total", "Bytes received on an open session to another relay.", "from",
			"from_region")
		lost = m.Counter("link_lost_packets_total", "Packets sent on an open session to another relay and declared lost.",
			"from", "from_region")
		messages = m.Counter("messages_total", "Messages between relays, by direction.", "direction")
		clock    = m.Gauge("clock_error_seconds",
			"Bound of the difference between this relay's clock and that of the relay that the others follow.")
		refused = m.Counter("refused_total",
			"Refusals by reason: secret (a peer or message without the cluster's secret), malformed (a message).", "reason")
	)
	m.Read(func(put service.Put) {
		s := c.Stats()
		put(relays, float64(len(s.Members)))
		var unheard, unreached float64
		now := time.Now()
		for _, o := range s.Members {
			if now.Sub(o.Seen) > cluster.Silence {
				unheard++
			}
			if o.Suspect && o.Namespaces > 0 {
				unreached++
			}
		}
		put(silent, unheard)
		put(unreachable, unreached)
		put(published, float64(s.Published))
		put(routes, float64(s.Routes))
		put(upstreams, float64(s.Upstreams))
		put(clock, s.ClockError.Seconds())
		put(messages, float64(s.Sent), "sent")
		put(messages, float64(s.Received), "received")
		put(refused, float64(s.Strangers), "secret")
		put(refused, float64(s.Malformed), "malformed")
		v := c.View()
		if v == nil {
			put(info, 1, "", "", "")
			return
		}
		put(info, 1, v.Name, v.Region, v.Relay)
		for _, o := range v.Relays {
			if o.Session != nil {
				st := o.Session.Stats()
				put(rtt, st.RTT.Seconds(), o.Name, o.Region)
				put(received, float64(st.BytesReceived), o.Name, o.Region)
				put(lost, float64(st.PacketsLost), o.Name, o.Region)
			}
		}
	})
	return m
}
