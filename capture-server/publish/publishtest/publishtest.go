// Package publishtest helps test media. It provides a relay for their sessions and reads their
// tracks.
package publishtest

import (
	"crypto/tls"
	"encoding/hex"
	"log/slog"
	"testing"
	"time"

	"holocast/capture-server/publish"
	"holocast/internal/connect"
	"holocast/internal/devcert"
	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
)

// Namespace is the namespace of test sessions.
var Namespace = moqt.Namespace{connect.Root, "test"}

// Relay accepts publishers' sessions.
type Relay struct {
	*moqt.Listener
	Target   connect.Target
	Sessions chan *moqt.Session // sessions that published their namespace
}

// NewRelay listens until the test ends.
func NewRelay(t *testing.T) *Relay {
	t.Helper()
	ln, hash := listen(t)
	r := &Relay{
		Listener: ln, Sessions: make(chan *moqt.Session, 10),
		Target: connect.Target{
			URL:             "moqt://" + ln.Addr().String() + "/test",
			CertificateHash: hex.EncodeToString(hash[:]),
		},
	}
	go func() {
		for {
			s, err := ln.Accept(t.Context())
			if err != nil {
				return
			}
			s.Serve(moqt.Handler{PublishNamespace: func(req *moqt.NamespaceRequest) {
				_ = req.Accept(func() { r.Sessions <- s })
			}})
		}
	}()
	return r
}

var quiet = moqt.Config{Log: slog.New(slog.DiscardHandler)}

func listen(t *testing.T) (*moqt.Listener, [32]byte) {
	t.Helper()
	cert, err := devcert.Generate(time.Now(), "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	ln, err := moqt.Listen("127.0.0.1:0",
		moqt.ListenConfig{Config: quiet, TLS: &tls.Config{Certificates: []tls.Certificate{cert}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	return ln, devcert.Hash(cert)
}

// Objects fetches the cached objects of one of p's tracks.
func Objects(t *testing.T, p *publish.Publisher, name string) [][]byte {
	t.Helper()
	ln, hash := listen(t)
	defer func() { _ = ln.Close() }()
	go func() {
		if s, err := ln.Accept(t.Context()); err == nil {
			s.Serve(p.Handler())
		}
	}()
	s, err := moqt.Dial(t.Context(), "moqt://"+ln.Addr().String()+"/", devcert.Pinned(hash), moqt.Handler{}, quiet)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(wire.NoError, "")
	track := moqt.TrackName{Namespace: Namespace, Name: name}
	f, err := s.Fetch(t.Context(), track, moqt.Location{}, moqt.Location{Group: 1 << 60}, moqt.FetchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var objects [][]byte
	err = f.Each(t.Context(), 32<<20, func(_ wire.FetchObject, b []byte) error {
		objects = append(objects, b)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return objects
}
