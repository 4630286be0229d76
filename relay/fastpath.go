package main

import (
	"fmt"
	"log/slog"
	"net"
	"strconv"

	"holocast/internal/service"
	"holocast/relay/fastpath"
)

// startFastPath starts the kernel fast path as configured, or logs why it is unavailable. A nil
// Manager means off.
func startFastPath(cfg Config, log *slog.Logger) (*fastpath.Manager, error) {
	if cfg.FastPath == fastpath.Off {
		return nil, nil
	}
	port, err := listenPort(cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("fastpath: %w", err)
	}
	fast, err := fastpath.Start(fastpath.Config{Port: port, Log: log})
	switch {
	case err == nil:
		log.Info("kernel fast path is on: datagrams of connections with ChaCha20-Poly1305 are forwarded in the kernel")
		return fast, nil
	case cfg.FastPath == fastpath.Auto:
		log.Info("kernel fast path is off: all goes through user space", "reason", err)
		return nil, nil
	}
	return nil, fmt.Errorf("fastpath: %w", err)
}

// listenPort returns the UDP port of a listen address, which the kernel programs need in advance.
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

// newFastPathMetrics returns the fast path's metrics. While it is off they only say that.
func newFastPathMetrics(fast *fastpath.Manager) *service.Metrics {
	m := service.NewMetrics("holocast_relay_fastpath_")
	var (
		on         = m.Gauge("on", "1 while the kernel fast path is on.")
		interfaces = m.Gauge("interfaces", "Interfaces that the programs are attached to.")
		sources    = m.Gauge("publishers", "Publishers' connections in the kernel.")
		viewers    = m.Gauge("viewers", "Viewers' connections in the kernel.")
		refused    = m.Gauge("refused_connections", "Connections that go through user space, by reason.", "reason")
		opened     = m.Counter("received_packets_total", "Publishers' packets found authentic in the kernel.")
		slow       = m.Counter("slow_packets_total", "Publishers' packets handled by user space alone, by reason.", "reason")
		forwarded  = m.Counter("forwarded_packets_total", "Packets sent to viewers by the kernel.")
		bytes      = m.Counter("forwarded_bytes_total", "UDP payload of packets sent to viewers by the kernel.")
		ahead      = m.Counter("ahead_packets_total", "Of the packets sent to viewers by the kernel, those whose key stream the process made before.")
		left       = m.Counter("left_packets_total", "Copies left to user space, by reason.", "reason")
		failed     = m.Counter("failed_packets_total", "Packets counted as sent that the kernel could not send.")
		moved      = m.Counter("suspended_viewers_total", "Viewers suspended because they came from another address.")
		registered = m.Counter("registered_packets_total", "Packets registered with their connections.")
		lag        = m.Counter("registration_lag_seconds_total", "Time from sending to registering, of all packets registered.")
		lost       = m.Counter("lost_packets_total", "Packets sent by the kernel that were lost on the way.")
		handovers  = m.Counter("handovers_total", "Viewers handed to user space for a while because it did not catch up with what the kernel left.")
		handed     = m.Gauge("handed_over_viewers", "Viewers handed to user space now.")
		unknown    = m.Gauge("unregistered_bytes", "Bytes that the kernel sent and that are not registered yet.")
		budget     = m.Gauge("budget_bytes", "Bytes that the kernel may send now, of all viewers.")
	)
	m.Read(func(put service.Put) {
		if put(on, service.Bool(fast != nil)); fast == nil {
			return
		}
		s := fast.Stats()
		put(interfaces, float64(s.Interfaces))
		put(sources, float64(s.Sources))
		put(viewers, float64(s.Viewers))
		put(opened, float64(s.Opened))
		put(forwarded, float64(s.Forwarded))
		put(bytes, float64(s.Bytes))
		put(ahead, float64(s.Ahead))
		put(failed, float64(s.Failed))
		put(moved, float64(s.Moved))
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
		for reason, n := range s.Slow {
			put(slow, float64(n), reason)
		}
		for reason, n := range s.Left {
			put(left, float64(n), reason)
		}
	})
	return m
}
