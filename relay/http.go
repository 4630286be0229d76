package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"

	"holocast/internal/pairing"
	"holocast/internal/qmux"
	"holocast/internal/service"
	"holocast/relay/admin"
	"holocast/relay/live"
	"holocast/relay/upgrade"
)

// errDraining is the health error of a stopping relay.
var errDraining = errors.New("draining")

// serveHTTP serves health, certificate hash, pairing codes and web viewer at webAddr, and health,
// pairing codes, metrics, the API and the live page at adminAddr. Without adminAddr, it serves metrics,
// API and live page at webAddr if that is a loopback address. Both also take HTTPS, and webAddr WebSockets
// for sessions over TCP. It reuses the predecessor's listeners. The relay is healthy until ctx is done.
func (s *server) serveHTTP(ctx context.Context, predecessor *upgrade.Predecessor, webAddr, adminAddr string) error {
	web, err := listenHTTP(predecessor, fileHTTP, s.inherited.HTTP, webAddr, s.log.Logger)
	if err != nil {
		return err
	}
	operator, err := listenHTTP(predecessor, fileAdmin, s.inherited.Admin, adminAddr, s.log.Logger)
	if err != nil {
		web.Close()
		return err
	}
	health := s.guard.host(service.Health(func() error {
		if ctx.Err() != nil {
			return errDraining
		}
		s.router.Stats() // takes the router's locks
		return nil
	}))
	registry := service.NewRegistry(newMetrics(s.router, s.ln), newLimitMetrics(s.limits),
		newFastPathMetrics(s.fast), newClusterMetrics(s.cluster), newRecordMetrics(s.record), newDiskMetrics(s.disk))
	api := s.guard.host(s.access.Protect(s.api))
	for _, at := range []*service.HTTP{operator, web} {
		if at == web && (adminAddr != "" || !loopback(webAddr)) {
			break
		}
		at.Handle("GET /metrics", s.guard.host(service.MetricsHandler(registry)))
		at.Handle("GET /live/", s.guard.host(live.Handler()))
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodDelete} {
			at.Handle(method+" "+admin.Base, api)
		}
	}
	operator.Handle("GET /healthz", health)
	if adminAddr == "" && webAddr != "" && !loopback(webAddr) {
		s.log.Info("metrics are not served: http is not a loopback address and admin is not set")
	}
	if s.codes == nil {
		s.codes = pairing.NewCodes()
	}
	create := s.guard.host(http.HandlerFunc(s.createCode))
	operator.Handle("POST "+pairing.Path+"{$}", create)
	web.Handle("POST "+pairing.Path+"{$}", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !pairing.FromThisMachine(r) {
			http.Error(w, "create codes only on the relay's machine or at its admin address", http.StatusForbidden)
			return
		}
		create.ServeHTTP(w, r)
	}))
	web.Handle("GET "+pairing.Path+"{code}", s.guard.host(http.HandlerFunc(s.codes.Serve)))
	web.Handle("GET /healthz", health)
	web.Handle("GET /certificate.sha256", s.guard.host(http.HandlerFunc(s.serveHash)))
	if s.cfg.Web != "" {
		web.Handle("GET /", s.guard.host(viewer(s.cfg.Web)))
	}
	web.Secure(s.tcpTLS())
	operator.Secure(s.tcpTLS())
	web.Wrap(s.webSockets)
	web.Start()
	operator.Start()
	s.web, s.admin = web, operator
	return nil
}

// serveAPI serves the API on a connection of the control socket, whose users may act.
func (s *server) serveAPI(conn net.Conn, peer string) {
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.api.ServeHTTP(w, r.WithContext(admin.WithActor(r.Context(), peer)))
	})
	service.ServeConn(conn, h, s.log.Logger)
}

// tcpTLS returns the TLS configuration for HTTPS, whose handshakes count towards the limits.
func (s *server) tcpTLS() *tls.Config {
	conf := s.tlsConfig()
	conf.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		return nil, s.limits.Handshake(hello.Conn.RemoteAddr())
	}
	return conf
}

// webSockets opens sessions for WebSocket requests. Without TLS it does so only if nobody else can
// read the token and the media, or where the operator has disabled authentication.
func (s *server) webSockets(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !qmux.IsUpgrade(r):
			next.ServeHTTP(w, r)
		case r.TLS == nil && s.authority != nil && !loopback(r.RemoteAddr):
			http.Error(w, "sessions need TLS; use wss://", http.StatusForbidden)
		default:
			s.ln.ServeWebSocket(w, r)
		}
	})
}

// serveHash serves the certificate's hash, which pages of other origins need to open WebTransport.
func (s *server) serveHash(w http.ResponseWriter, r *http.Request) {
	if origin := r.Header.Get("Origin"); origin != "" && s.guard.allows(r) {
		w.Header().Set("Access-Control-Allow-Origin", origin)
	}
	w.Header().Set("Vary", "Origin")
	w.Header().Set("Cache-Control", "no-store")
	fmt.Fprintln(w, s.cert.Hash())
}

// createCode creates a pairing code. It refuses pages of foreign origins.
func (s *server) createCode(w http.ResponseWriter, r *http.Request) {
	if !s.guard.allows(r) {
		http.Error(w, "pages of this origin may not create codes", http.StatusForbidden)
		return
	}
	s.codes.Create(w, r)
}

// contentSecurityPolicy lets the web viewer load only its own files and connect to any relay.
const contentSecurityPolicy = "default-src 'self'; script-src 'self' 'wasm-unsafe-eval'; worker-src 'self' blob:; " +
	"style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; connect-src * ws: wss:"

// viewer serves the web viewer's files.
func viewer(dir string) http.Handler {
	files := http.FileServer(http.Dir(dir))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", contentSecurityPolicy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cache-Control", "no-cache")
		files.ServeHTTP(w, r)
	})
}
