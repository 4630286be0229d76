// Package sessiontest connects a client and a server in one process for tests.
package sessiontest

import (
	"crypto/tls"
	"log/slog"
	"net"
	"testing"
	"time"

	"holocast/internal/devcert"
	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
)

// Connect returns both ends of a session, which ends with the test.
func Connect(t *testing.T, client, server moqt.Handler) (c, s *moqt.Session) {
	t.Helper()
	return Over(t, nil, nil, client, server)
}

// Over is like Connect, from one end of an emulated network to the server at another; nil means a UDP
// socket of this machine.
func Over(t *testing.T, from, at net.PacketConn, client, server moqt.Handler) (c, s *moqt.Session) {
	t.Helper()
	return Controlled(t, from, at, "", client, server)
}

// Controlled is like Over, with a congestion controller.
func Controlled(
	t *testing.T, from, at net.PacketConn, congestion string, client, server moqt.Handler,
) (c, s *moqt.Session) {
	t.Helper()
	cfg := moqt.Config{Log: slog.New(slog.DiscardHandler), Packets: at, Congestion: congestion}
	ln, url, hash := Listen(t, cfg)
	t.Cleanup(func() { _ = ln.Close() })
	accepted := make(chan *moqt.Session, 1)
	go func() {
		s, err := ln.Accept(t.Context())
		if err == nil {
			s.Serve(server)
		}
		accepted <- s
	}()
	cfg.Packets = from
	c, err := moqt.Dial(t.Context(), url+"/test", devcert.Pinned(hash), client, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(wire.NoError, "") })
	if s = <-accepted; s == nil {
		t.Fatal("no session accepted")
	}
	return c, s
}

// Listen returns a listener on this machine, its URL without a path, and the hash of its certificate.
func Listen(t testing.TB, cfg moqt.Config) (ln *moqt.Listener, url string, hash [32]byte) {
	t.Helper()
	cert, err := devcert.Generate(time.Now(), "localhost", "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	ln, err = moqt.Listen("127.0.0.1:0", moqt.ListenConfig{
		Config: cfg, TLS: &tls.Config{Certificates: []tls.Certificate{cert}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return ln, "moqt://" + ln.Addr().String(), devcert.Hash(cert)
}

// Until polls until f returns true.
func Until(t *testing.T, what string, f func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !f(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s did not happen", what)
		}
	}
}
