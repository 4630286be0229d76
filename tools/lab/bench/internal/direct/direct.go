// Package direct serves a benchmark's viewers without a relay.
package direct

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"holocast/internal/devcert"
	"holocast/internal/moqt"
)

// Quiet configures sessions that log nothing.
var Quiet = moqt.Config{Log: slog.New(slog.DiscardHandler)}

// Server answers sessions over raw QUIC.
type Server struct {
	ln        *moqt.Listener
	tls       *tls.Config // for clients; trusts the server's certificate
	accepting sync.WaitGroup
}

// Listen opens a UDP port on addr in the calling thread's network namespace. h handles all
// sessions.
func Listen(addr netip.Addr, h moqt.Handler) (*Server, error) {
	cert, err := devcert.Generate(time.Now(), addr.String())
	if err != nil {
		return nil, err
	}
	ln, err := moqt.Listen(netip.AddrPortFrom(addr, 0).String(), moqt.ListenConfig{
		Config: Quiet,
		TLS:    &tls.Config{Certificates: []tls.Certificate{cert}},
	})
	if err != nil {
		return nil, err
	}
	s := &Server{ln: ln, tls: devcert.Pinned(devcert.Hash(cert))}
	s.accepting.Go(func() {
		for {
			session, err := ln.Accept(context.Background())
			if err != nil {
				return
			}
			session.Serve(h)
		}
	})
	return s, nil
}

// Dial opens a session to the server from the calling thread's network namespace.
func (s *Server) Dial(ctx context.Context) (*moqt.Session, error) { return s.DialWith(ctx, Quiet) }

// DialWith is like Dial, but takes a configuration.
func (s *Server) DialWith(ctx context.Context, cfg moqt.Config) (*moqt.Session, error) {
	return moqt.Dial(ctx, "moqt://"+s.ln.Addr().String(), s.tls, moqt.Handler{}, cfg)
}

// DialWebTransport is like Dial, but opens a WebTransport session.
func (s *Server) DialWebTransport(ctx context.Context) (*moqt.Session, error) {
	return moqt.Dial(ctx, "https://"+s.ln.Addr().String(), s.tls, moqt.Handler{}, Quiet)
}

// Close ends all sessions.
func (s *Server) Close() error {
	err := s.ln.Close()
	s.accepting.Wait()
	return err
}
