//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"

	"holocast/internal/service"
	"holocast/netfunc/bpf"
)

// listeners answer requests to a running edge. socket serves its status; web also serves metrics and
// health.
type listeners struct{ socket, web *service.HTTP }

// listen starts the listeners.
func (d *daemon) listen() (*listeners, error) {
	// The edge holds its lock, so an existing socket belongs to a dead process.
	if err := os.Remove(d.cfg.Socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("socket: %w", err)
	}
	ln, err := net.Listen("unix", d.cfg.Socket)
	if err != nil {
		return nil, fmt.Errorf("socket: %w", err)
	}
	socket := service.NewHTTP(ln, d.log)
	if err := os.Chmod(d.cfg.Socket, 0o660); err != nil {
		socket.Close()
		return nil, fmt.Errorf("socket: %w", err)
	}
	web, err := service.ListenHTTP("http", d.cfg.HTTP, d.log)
	if err != nil {
		socket.Close()
		return nil, err
	}
	socket.HandleFunc("GET /status", d.serveStatus)
	web.HandleFunc("GET /status", d.serveStatus)
	web.Handle("GET /metrics", service.MetricsHandler(service.NewRegistry(newMetrics(d))))
	web.Handle("GET /healthz", service.Health(d.healthy))
	socket.Start()
	web.Start()
	return &listeners{socket, web}, nil
}

// Close closes all listeners.
func (l *listeners) Close() {
	l.socket.Close()
	l.web.Close()
}

func (d *daemon) serveStatus(w http.ResponseWriter, _ *http.Request) {
	s, err := d.status()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(s)
}

// errNoPath is the health error of an edge without a usable path.
var errNoPath = errors.New("no path is up")

// healthy reports whether some path can carry packets.
func (d *daemon) healthy() error {
	for _, p := range d.paths.report() {
		if p.Up {
			return nil
		}
	}
	return errNoPath
}

// status returns the edge's current status.
func (d *daemon) status() (*Status, error) {
	s := &Status{
		Name: d.cfg.Name, Role: d.cfg.Role, Version: service.Version(), Running: true, PID: os.Getpid(),
		Started: d.started,
		Pin:     d.cfg.Pin, Paths: d.paths.status(),
	}
	err := errors.Join(
		d.kernel.withSender(func(k *bpf.Sender) error { return s.addSender(k) }),
		d.kernel.withReceiver(func(k *bpf.Receiver) error { return s.addReceiver(k) }),
	)
	if err != nil {
		return nil, err
	}
	var err2 error
	if s.Attached, err2 = attached(d.cfg.Pin); err2 != nil {
		return nil, err2
	}
	d.receiving.add(s)
	if d.reporter != nil {
		s.Controller = &ControllerStatus{URL: d.cfg.Control.URL, Status: d.reporter.Status()}
	}
	s.sort()
	return s, nil
}

// status returns the paths without counters.
func (w *pathMonitor) status() []PathStatus {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := make([]PathStatus, 0, len(w.all))
	for _, one := range w.all {
		p := PathStatus{Index: one.Index, Interface: one.Interface}
		p.Up, p.Problem = one.up()
		if one.hop.Address.IsValid() {
			p.NextHop = one.hop.Address.String()
		}
		if one.hop.NextHop != nil {
			p.Ethernet = one.hop.NextHop.String()
		}
		if one.prober != nil {
			s := one.prober.Stats()
			p.Peer, p.Probed, p.Refused = one.Peer.String(), s.Answered > 0, s.Refused
			p.RTT, p.MinRTT, p.Loss = milliseconds(s.RecentRTT), milliseconds(s.MinRTT), s.Loss
		}
		out = append(out, p)
	}
	return out
}

// sort orders a status deterministically.
func (s *Status) sort() {
	slices.SortFunc(s.Paths, func(a, b PathStatus) int { return a.Index - b.Index })
	if s.Receiver != nil {
		slices.SortFunc(s.Receiver.Flows, func(a, b FlowStatus) int { return a.Destination.Compare(b.Destination) })
	}
}
