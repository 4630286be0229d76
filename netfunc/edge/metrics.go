//go:build linux

package main

import (
	"strconv"

	"holocast/internal/service"
)

// putStatus sets metrics from a status.
type putStatus func(service.Put, *Status)

// newMetrics exports the edge's status as metrics.
func newMetrics(d *daemon) *service.Metrics {
	m := service.NewMetrics("holocast_edge_")
	var (
		failed = m.Gauge("status_failed", "1 if the kernel's counters could not be read.")
		paths  = m.Gauge("flow_paths", "Paths in the destination's path set, by side (sender or receiver).",
			"destination", "side")
	)
	all := []putStatus{pathMetrics(m), senderMetrics(m, paths), receiverMetrics(m, paths), controllerMetrics(m)}
	m.Read(func(put service.Put) {
		s, err := d.status()
		put(failed, service.Bool(err != nil))
		if err != nil {
			return
		}
		for _, set := range all {
			set(put, s)
		}
	})
	return m
}

func pathMetrics(m *service.Metrics) putStatus {
	var (
		up  = m.Gauge("path_up", "1 while the path can carry packets.", "path")
		rtt = m.Gauge("path_rtt_seconds", "Mean round-trip time of probes in the last two seconds.",
			"path")
		loss       = m.Gauge("path_probe_loss", "Fraction of the newest 128 probes that were not answered.", "path")
		sent       = m.Counter("path_sent_packets_total", "Packets sent on the path.", "path")
		sentBytes  = m.Counter("path_sent_bytes_total", "Bytes of IP packets sent on the path.", "path")
		sendErrors = m.Counter("path_send_errors_total",
			"Replicas not sent because the kernel refused them or they exceed the MTU, by reason.", "path", "reason")
		first = m.Counter("path_first_packets_total", "Packets whose first replica arrived on the path.", "path")
		late  = m.Counter("path_late_packets_total", "Later replicas received on the path and dropped.",
			"path")
		rogue = m.Counter("path_rogue_packets_total",
			"Replicas received on a path outside their flow's set, or repeated on the same path.", "path")
		lost = m.Counter("path_lost_packets_total",
			"Packets that arrived on other paths of their flow's set but not on this one.", "path")
		received = m.Counter("path_received_bytes_total", "Bytes of IP packets received on the path.", "path")
	)
	return func(put service.Put, s *Status) {
		for _, p := range s.Paths {
			path := strconv.Itoa(p.Index)
			put(up, service.Bool(p.Up), path)
			if p.Probed {
				put(rtt, p.RTT/1000, path)
				put(loss, p.Loss, path)
			}
			if s.Sender != nil {
				put(sent, float64(p.Sent), path)
				put(sentBytes, float64(p.SentBytes), path)
				put(sendErrors, float64(p.Errors), path, "refused")
				put(sendErrors, float64(p.TooBig), path, "too_big")
			}
			if s.Receiver != nil {
				put(first, float64(p.First), path)
				put(late, float64(p.Late), path)
				put(rogue, float64(p.Rogue), path)
				put(lost, float64(p.Lost), path)
				put(received, float64(p.Bytes), path)
			}
		}
	}
}

func senderMetrics(m *service.Metrics, paths service.Metric) putStatus {
	var (
		duplicated = m.Counter("duplicated_packets_total", "Packets sent over the paths of their policy.")
		passed     = m.Counter("passed_packets_total",
			"Packets passed unchanged although a policy or flow matched, by reason.", "reason")
		signals = m.Counter("signalling_packets_total", "Signalling packets received, by result.", "result")
		uplink  = m.Counter("uplink_packets_total", "Viewer packets matched by the uplink monitor.")
		dropped = m.Counter("events_dropped_total",
			"Signals and uplink packets dropped because user space read too slowly.")
	)
	return func(put service.Put, s *Status) {
		if k := s.Sender; k != nil {
			put(duplicated, float64(k.Duplicated))
			for reason, n := range map[string]uint64{
				"no_usable_path": k.Passed.Unusable, "expiring": k.Passed.Expiring, "tagged": k.Passed.Tagged,
				"truncated": k.Passed.Short, "failed": k.Passed.Failed,
			} {
				put(passed, float64(n), reason)
			}
			for result, n := range map[string]uint64{
				"applied": k.Signals.Applied, "malformed": k.Signals.Malformed, "spoofed": k.Signals.Spoofed,
				"other_version": k.Signals.OtherVersion, "replayed": k.Signals.Replayed, "map_full": k.Signals.Full,
				"foreign": k.Signals.Foreign,
			} {
				put(signals, float64(n), result)
			}
			put(uplink, float64(k.Uplink))
			put(dropped, float64(k.RingFull))
			for _, p := range k.Policies {
				put(paths, float64(p.Paths.Len()), p.Destination.String(), "sender")
			}
		}
	}
}

func receiverMetrics(m *service.Metrics, paths service.Metric) putStatus {
	var (
		unknown = m.Counter("unknown_packets_total",
			"Packets that carry a path's codepoint but match no flow.")
		misaddressed = m.Counter("misaddressed_packets_total",
			"Replicas with a wrong destination Ethernet address, from a sender with a wrong next hop.")
		truncated = m.Counter("truncated_packets_total",
			"Packets with truncated headers, passed by the receiver.")
		races = m.Counter("table_races_total",
			"Packets passed because CPUs raced for a slot of the replica table.")
		evicted = m.Counter("table_evicted_total",
			"Packets evicted from the replica table before they were stale.")
		arrivals = m.Counter("arrivals_dropped_total", "Arrivals dropped because user space read too slowly.")
		alarms   = m.Counter("latent_alarms_total",
			"Latent errors detected, where a path loses packets that others deliver.", "destination")
		decisions = m.Counter("eliminations_total", "Decisions to remove paths.", "destination")
		reward    = m.Gauge("path_reward", "Cumulative reward of the path over the window.", "path",
			"destination")
		latent = m.Gauge("path_latent", "1 while the path loses packets that other paths deliver.", "path",
			"destination")
	)
	return func(put service.Put, s *Status) {
		if k := s.Receiver; k != nil {
			put(unknown, float64(k.Unknown))
			put(misaddressed, float64(k.Misaddressed))
			put(truncated, float64(k.Short))
			put(races, float64(k.Races))
			put(evicted, float64(k.Evicted))
			put(arrivals, float64(k.RingFull))
			for _, f := range k.Flows {
				to := f.Destination.String()
				put(paths, float64(f.Paths.Len()), to, "receiver")
				if f.Elimination == nil {
					continue
				}
				put(alarms, float64(f.Elimination.Alarms), to)
				put(decisions, float64(f.Elimination.Decisions), to)
				for _, r := range f.Elimination.Rewards {
					put(reward, float64(r.Reward), strconv.Itoa(r.Path), to)
					put(latent, service.Bool(f.Elimination.Latent.Has(r.Path)), strconv.Itoa(r.Path), to)
				}
			}
		}
	}
}

func controllerMetrics(m *service.Metrics) putStatus {
	var (
		connected        = m.Gauge("controller_connected", "1 while the edge is registered with the controller.")
		reports          = m.Counter("controller_reports_total", "Reports delivered to the controller.")
		failures         = m.Counter("controller_failures_total", "Failed calls to the controller.")
		observations     = m.Counter("controller_uplink_total", "Uplink observations delivered to the controller.")
		observationsLost = m.Counter("controller_uplink_lost_total", "Uplink observations dropped before delivery.")
	)
	return func(put service.Put, s *Status) {
		if k := s.Controller; k != nil {
			put(connected, service.Bool(k.Connected))
			put(reports, float64(k.Reports))
			put(failures, float64(k.Failures))
			put(observations, float64(k.Uplink))
			put(observationsLost, float64(k.UplinkLost))
		}
	}
}
