// Package direct lets a benchmark serve its viewers without a relay.
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

// Quiet is the configuration of sessions that log nothing.
var Quiet = moqt.Config{Log: slog.New(slog.DiscardHandler)}

// Server answers sessions over raw QUIC.
type Server struct {
	ln        *moqt.Listener
	tls       *tls.Config // trusts the server's certificate
	accepting sync.WaitGroup
}

// Listen opens a UDP port of addr, in the network namespace of the calling thread; h answers
// all sessions.
func Listen(addr netip.Addr, h moqt.Handler) (*Server, error) {
	cert, err := devcert.Generate(time.Now(), addr.String())
	if err != nil {
		return nil, err
	}
	ln, err := moqt.Listen(netip.AddrPortFrom(addr, 0).String(), moqt.ListenConfig{Config: Quiet, TLS: &tls.Config{Certificates: []tls.Certificate{cert}}})
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

// Dial opens a session to the server, from the network namespace of the calling thread.
func (s *Server) Dial(ctx context.Context) (*moqt.Session, error) { return s.DialWith(ctx, Quiet) }

// DialWith is Dial with another configuration.
func (s *Server) DialWith(ctx context.Context, cfg moqt.Config) (*moqt.Session, error) {
	return moqt.Dial(ctx, "moqt://"+s.ln.Addr().String(), s.tls, moqt.Handler{}, cfg)
}

// Close ends all sessions.
func (s *Server) Close() error {
	err := s.ln.Close()
	s.accepting.Wait()
	return err
}
