package main

import (
	"holocast/internal/service"
	"holocast/relay/cluster"
)

// newClusterMetrics returns the metrics of the cluster, which are 0 if the relay is in none.
func newClusterMetrics(c *cluster.Cluster) *service.Metrics {
	m := service.NewMetrics("holocast_relay_cluster_")
	var (
		relays    = m.Gauge("relays", "Other relays of the cluster.")
		published = m.Gauge("published_namespaces", "Namespaces announced to other relays.")
		routes    = m.Gauge("routes", "Namespaces served by other relays.")
		upstreams = m.Gauge("upstream_sessions", "Open sessions to other relays.")
		messages  = m.Counter("messages_total", "Messages between relays, by direction.", "direction")
		clock     = m.Gauge("clock_error_seconds",
			"Bound of the difference between this relay's clock and that of the relay that the others follow.")
		refused = m.Counter("refused_total",
			"Refusals by reason: secret (a peer or message without the cluster's secret), malformed (a message).", "reason")
	)
	m.Read(func(put service.Put) {
		s := c.Stats()
		put(relays, float64(len(s.Members)))
		put(published, float64(s.Published))
		put(routes, float64(s.Routes))
		put(upstreams, float64(s.Upstreams))
		put(clock, s.ClockError.Seconds())
		put(messages, float64(s.Sent), "sent")
		put(messages, float64(s.Received), "received")
		put(refused, float64(s.Strangers), "secret")
		put(refused, float64(s.Malformed), "malformed")
	})
	return m
}
