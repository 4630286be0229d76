//go:build linux

package main

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

// collector reads the status when Prometheus asks.
type collector struct {
	d   *daemon
	all []*prometheus.Desc

	up, rtt, loss, latent, reward, paths, connected *prometheus.Desc // now
	failed                                          *prometheus.Desc

	sent, sentBytes, sendErrors, first, late, rogue, lost, received               *prometheus.Desc // by path
	duplicated, passed, signals, uplink, untold                                   *prometheus.Desc // of the sender
	unknown, misaddressed, truncated, races, evicted, arrivals, alarms, decisions *prometheus.Desc // of the receiver
	reports, failures, observations, observationsLost                             *prometheus.Desc // to the controller
}

func newCollector(d *daemon) *collector {
	var all []*prometheus.Desc
	n := func(name, help string, labels ...string) *prometheus.Desc {
		all = append(all, prometheus.NewDesc("holocast_edge_"+name, help, labels, nil))
		return all[len(all)-1]
	}
	c := &collector{
		d:                d,
		up:               n("path_up", "1 while packets can take the path.", "path"),
		rtt:              n("path_rtt_seconds", "Round-trip time of the last two seconds' probes.", "path"),
		loss:             n("path_probe_loss", "Part of the newest 128 probes that was not answered.", "path"),
		latent:           n("path_latent", "1 while the path loses what others deliver.", "path", "destination"),
		reward:           n("path_reward", "Cumulative reward of the path over the window.", "path", "destination"),
		paths:            n("flow_paths", "Paths in the set of a destination.", "destination", "side"),
		connected:        n("controller_connected", "1 while the controller knows this edge."),
		failed:           n("status_failed", "1 when the counters could not be read from the kernel."),
		sent:             n("path_sent_packets_total", "Packets sent on the path.", "path"),
		sentBytes:        n("path_sent_bytes_total", "Bytes of IP packets sent on the path.", "path"),
		sendErrors:       n("path_send_errors_total", "Replicas that were not sent: refused by the kernel, or longer than the MTU.", "path", "reason"),
		first:            n("path_first_packets_total", "First replicas received on the path.", "path"),
		late:             n("path_late_packets_total", "Later replicas received on the path and dropped.", "path"),
		rogue:            n("path_rogue_packets_total", "Replicas on the path that were not to come there.", "path"),
		lost:             n("path_lost_packets_total", "Packets that came on other paths of their set, not on this one.", "path"),
		received:         n("path_received_bytes_total", "Bytes of IP packets received on the path.", "path"),
		duplicated:       n("duplicated_packets_total", "Packets that left by the paths of their policy."),
		passed:           n("passed_packets_total", "Packets that were to be duplicated, or eliminated, and passed as they were.", "reason"),
		signals:          n("signalling_packets_total", "Signalling packets.", "result"),
		uplink:           n("uplink_packets_total", "Packets of viewers in the uplink monitor's window."),
		untold:           n("events_untold_total", "Signals and uplink packets that were not told to the program."),
		unknown:          n("unknown_packets_total", "Packets with a path's codepoint of no flow."),
		misaddressed:     n("misaddressed_packets_total", "Replicas to another Ethernet address than the interface's: the sender has a next hop wrong."),
		truncated:        n("truncated_packets_total", "Packets with truncated headers, passed by the receiver."),
		races:            n("table_races_total", "Packets passed because processors raced for their place in the replica table."),
		evicted:          n("table_evicted_total", "Packets forgotten before they were stale."),
		arrivals:         n("arrivals_untold_total", "Arrivals that were not told to the program."),
		alarms:           n("latent_alarms_total", "Times that a path was found to lose what others deliver.", "destination"),
		decisions:        n("eliminations_total", "Decisions to take paths out.", "destination"),
		reports:          n("controller_reports_total", "Reports delivered to the controller."),
		failures:         n("controller_failures_total", "Times that the controller could not be reached, or refused."),
		observations:     n("controller_uplink_total", "Observations of the uplink delivered to the controller."),
		observationsLost: n("controller_uplink_lost_total", "Observations of the uplink given up."),
	}
	c.all = all
	return c
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range c.all {
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
	s, err := c.d.status()
	gauge(c.failed, truth(err != nil))
	if err != nil {
		return
	}
	for _, p := range s.Paths {
		path := strconv.Itoa(p.Index)
		gauge(c.up, truth(p.Up), path)
		if p.Probed {
			gauge(c.rtt, p.RTT/1000, path)
			gauge(c.loss, p.Loss, path)
		}
		if s.Sender != nil {
			counter(c.sent, p.Sent, path)
			counter(c.sentBytes, p.SentBytes, path)
			counter(c.sendErrors, p.Errors, path, "refused")
			counter(c.sendErrors, p.TooBig, path, "too_big")
		}
		if s.Receiver != nil {
			counter(c.first, p.First, path)
			counter(c.late, p.Late, path)
			counter(c.rogue, p.Rogue, path)
			counter(c.lost, p.Lost, path)
			counter(c.received, p.Bytes, path)
		}
	}
	if k := s.Sender; k != nil {
		counter(c.duplicated, k.Duplicated)
		for reason, n := range map[string]uint64{
			"no_usable_path": k.Passed.Unusable, "expiring": k.Passed.Expiring, "tagged": k.Passed.Tagged,
			"truncated": k.Passed.Short, "failed": k.Passed.Failed,
		} {
			counter(c.passed, n, reason)
		}
		for result, n := range map[string]uint64{
			"applied": k.Signals.Applied, "malformed": k.Signals.Malformed, "spoofed": k.Signals.Spoofed,
			"replayed": k.Signals.Replayed, "map_full": k.Signals.Full, "foreign": k.Signals.Foreign,
		} {
			counter(c.signals, n, result)
		}
		counter(c.uplink, k.Uplink)
		counter(c.untold, k.RingFull)
		for _, p := range k.Policies {
			gauge(c.paths, float64(p.Paths.Len()), p.Destination.String(), "sender")
		}
	}
	if k := s.Receiver; k != nil {
		counter(c.unknown, k.Unknown)
		counter(c.misaddressed, k.Misaddressed)
		counter(c.truncated, k.Short)
		counter(c.races, k.Races)
		counter(c.evicted, k.Evicted)
		counter(c.arrivals, k.RingFull)
		for _, f := range k.Flows {
			to := f.Destination.String()
			gauge(c.paths, float64(f.Paths.Len()), to, "receiver")
			if f.Elimination == nil {
				continue
			}
			counter(c.alarms, f.Elimination.Alarms, to)
			counter(c.decisions, f.Elimination.Decisions, to)
			for _, r := range f.Elimination.Rewards {
				gauge(c.reward, float64(r.Reward), strconv.Itoa(r.Path), to)
				gauge(c.latent, truth(f.Elimination.Latent.Has(r.Path)), strconv.Itoa(r.Path), to)
			}
		}
	}
	if k := s.Controller; k != nil {
		gauge(c.connected, truth(k.Connected))
		counter(c.reports, k.Reports)
		counter(c.failures, k.Failures)
		counter(c.observations, k.Uplink)
		counter(c.observationsLost, k.UplinkLost)
	}
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
