package main

import (
	"fmt"
	"log/slog"
	"net"
	"strconv"

	"holocast/internal/service"
	"holocast/relay/fastpath"
)

// startFastPath starts the kernel fast path as configured. It returns nil if the fast path is off, or
// if it is unavailable in mode auto, and then logs why.
func startFastPath(cfg Config, log *slog.Logger) (*fastpath.Manager, error) {
	if cfg.FastPath == fastpath.Off {
		return nil, nil
	}
	port, err := listenPort(cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("fastpath: %w", err)
	}
	fast, err := fastpath.Start(fastpath.Config{Port: port, Mode: cfg.FastPath, Log: log})
	switch {
	case err == nil:
		log.Info("kernel fast path is on for connections with ChaCha20-Poly1305", "mode", cfg.FastPath)
		return fast, nil
	case cfg.FastPath == fastpath.Auto:
		log.Info("kernel fast path is off: all datagrams go through user space", "reason", err)
		return nil, nil
	}
	return nil, fmt.Errorf("fastpath: %w", err)
}

// listenPort returns the UDP port of a listen address. The programs need it before the socket is
// open.
func listenPort(listen string) (uint16, error) {
	_, port, err := net.SplitHostPort(listen)
	if err != nil {
		return 0, fmt.Errorf("listen address %q: %w", listen, err)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("listen address %q: the kernel fast path needs the port as a number above 0", listen)
	}
	return uint16(n), nil
}

// newFastPathMetrics returns the metrics of the kernel fast path. While it is off, only the enabled
// metric is set.
func newFastPathMetrics(fast *fastpath.Manager) *service.Metrics {
	m := service.NewMetrics("holocast_relay_fastpath_")
	var (
		enabled    = m.Gauge("enabled", "1 if the kernel fast path is in use.")
		interfaces = m.Gauge("interfaces", "Interfaces with the eBPF programs attached.")
		sources    = m.Gauge("publishers", "Publisher connections handled by the kernel fast path.")
		viewers    = m.Gauge("viewers", "Viewer connections handled by the kernel fast path.")
		tracks     = m.Gauge("tracks", "Tracks forwarded by the kernel.")
		frames     = m.Gauge("frame_tracks", "Tracks whose frames are several datagrams long, which only mode chacha20 forwards in the kernel.")
		refused    = m.Gauge("refused_connections", "Connections that the kernel does not handle, by reason.", "reason")
		opened     = m.Counter("received_packets_total", "Publisher packets authenticated in the kernel.")
		userSpace  = m.Counter(
			"user_space_packets_total",
			"Publisher packets that the kernel forwarded to no viewer, by reason.",
			"reason",
		)
		forwarded   = m.Counter("forwarded_packets_total", "Packets sent to viewers by the kernel.")
		bytes       = m.Counter("forwarded_bytes_total", "UDP payload bytes sent to viewers by the kernel.")
		precomputed = m.Counter("precomputed_packets_total", "Packets forwarded with a precomputed key stream.")
		fallback    = m.Counter(
			"fallback_packets_total",
			"Packets left to user space for one viewer, by reason.",
			"reason",
		)
		failed     = m.Counter("failed_packets_total", "Packets registered as sent but not sent by the kernel.")
		migrated   = m.Counter("migrated_viewers_total", "Viewers moved to user space after an address change.")
		registered = m.Counter("registered_packets_total", "Kernel-sent packets registered with their connections.")
		lag        = m.Counter(
			"registration_lag_seconds_total",
			"Time between sending and registration, summed over packets.",
		)
		lost      = m.Counter("lost_packets_total", "Packets sent by the kernel and declared lost.")
		handovers = m.Counter("handovers_total",
			"Handovers of a viewer to user space because its fallback packets were sent too slowly.")
		handed  = m.Gauge("handed_over_viewers", "Viewers currently handed over to user space.")
		unknown = m.Gauge("unregistered_bytes", "Bytes sent by the kernel but not registered yet.")
		budget  = m.Gauge("budget_bytes", "Bytes that the kernel may currently send, summed over viewers.")
	)
	m.Read(func(put service.Put) {
		if put(enabled, service.Bool(fast != nil)); fast == nil {
			return
		}
		s := fast.Stats()
		put(interfaces, float64(s.Interfaces))
		put(sources, float64(s.Sources))
		put(viewers, float64(s.Viewers))
		put(tracks, float64(s.Tracks))
		put(frames, float64(s.FrameTracks))
		put(opened, float64(s.Opened))
		put(forwarded, float64(s.Forwarded))
		put(bytes, float64(s.Bytes))
		put(precomputed, float64(s.Precomputed))
		put(failed, float64(s.Failed))
		put(migrated, float64(s.Migrated))
		put(registered, float64(s.Registered))
		put(lag, s.Lag.Seconds())
		put(lost, float64(s.Lost))
		put(handovers, float64(s.Handovers))
		put(handed, float64(s.HandedOver))
		put(unknown, float64(s.Unregistered))
		put(budget, float64(s.Budget))
		for reason, n := range s.Refused {
			put(refused, float64(n), reason)
		}
		for reason, n := range s.UserSpace {
			put(userSpace, float64(n), reason)
		}
		for reason, n := range s.Fallback {
			put(fallback, float64(n), reason)
		}
	})
	return m
}
