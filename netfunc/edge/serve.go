//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sys/unix"

	"holocast/internal/config"
	"holocast/netfunc/bpf"
)

// listeners answer what is asked of a running edge: over its socket its status, over HTTP
// metrics and health too.
type listeners struct {
	http    string // address, "" without
	servers []*http.Server
}

// listen starts the listeners.
func (d *daemon) listen() (*listeners, error) {
	l := &listeners{}
	// The lock is ours: a socket that is there is of a process that is not.
	if err := os.Remove(d.cfg.Socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("socket: %w", err)
	}
	ln, err := net.Listen("unix", d.cfg.Socket)
	if err != nil {
		return nil, fmt.Errorf("socket: %w", err)
	}
	if err := os.Chmod(d.cfg.Socket, 0o660); err != nil {
		_ = ln.Close()
		return nil, fmt.Errorf("socket: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", d.serveStatus)
	l.serve(ln, mux, d.log)
	if d.cfg.HTTP == "" {
		return l, nil
	}
	ln, err = net.Listen("tcp", d.cfg.HTTP)
	if err != nil {
		l.Close()
		if errors.Is(err, unix.EADDRINUSE) {
			return nil, fmt.Errorf("http: TCP address %s is in use by another program", d.cfg.HTTP)
		}
		return nil, fmt.Errorf("http: %w", err)
	}
	reg := prometheus.NewRegistry()
	reg.MustRegister(newCollector(d), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux = http.NewServeMux()
	mux.HandleFunc("GET /status", d.serveStatus)
	mux.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", d.serveHealth)
	l.http = ln.Addr().String()
	l.serve(ln, mux, d.log)
	return l, nil
}

func (l *listeners) serve(ln net.Listener, h http.Handler, log *slog.Logger) {
	srv := &http.Server{
		Handler: h, ReadHeaderTimeout: 5 * time.Second, WriteTimeout: 10 * time.Second, IdleTimeout: time.Minute,
		MaxHeaderBytes: 16 << 10, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	l.servers = append(l.servers, srv)
	go func() { _ = srv.Serve(ln) }()
}

// Close ends all listeners.
func (l *listeners) Close() {
	for _, s := range l.servers {
		_ = s.Close()
	}
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

// serveHealth says ok while some path can carry packets.
func (d *daemon) serveHealth(w http.ResponseWriter, _ *http.Request) {
	for _, p := range d.ways.report() {
		if p.Up {
			fmt.Fprintln(w, "ok")
			return
		}
	}
	http.Error(w, "no path is up", http.StatusServiceUnavailable)
}

// status is the edge as it is now.
func (d *daemon) status() (*Status, error) {
	s := &Status{
		Name: d.cfg.Name, Role: d.cfg.Role, Version: config.Version(), Running: true, PID: os.Getpid(), Started: d.started,
		Pin: d.cfg.Pin, Paths: d.ways.status(),
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

// status returns the paths without their counters.
func (w *ways) status() []PathStatus {
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
			p.RTT, p.MinRTT, p.Loss = milliseconds(s.RecentRTT), milliseconds(s.BestRTT), s.Loss
		}
		out = append(out, p)
	}
	return out
}

// sort brings a status into an order that does not change.
func (s *Status) sort() {
	slices.SortFunc(s.Paths, func(a, b PathStatus) int { return a.Index - b.Index })
	if s.Receiver != nil {
		slices.SortFunc(s.Receiver.Flows, func(a, b FlowStatus) int { return a.Destination.Compare(b.Destination) })
	}
}
