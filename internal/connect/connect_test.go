package connect

import (
	"context"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"holocast/internal/devcert"
	"holocast/internal/moqt"
)

func TestSession(t *testing.T) {
	for url, want := range map[string]string{
		"moqt://localhost:4443/demo":   "demo",
		"https://relay.example/stage/": "stage",
		"moqt://localhost:4443":        "",
		"moqt://localhost:4443/":       "",
		"moqt://local host/":           "",
	} {
		got, err := Target{URL: url}.Session()
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q, %v", url, got, err)
		}
	}
}

var quiet = moqt.Config{Log: slog.New(slog.DiscardHandler)}

// relay listens for sessions and, where wanted, names its certificate over HTTP.
func relay(t *testing.T, tellHash bool) (addr, hash string) {
	t.Helper()
	cert, err := devcert.Generate(time.Now(), "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	sum := devcert.Hash(cert)
	hash = hex.EncodeToString(sum[:])
	web, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr = web.Addr().String()
	ln, err := moqt.Listen(addr, moqt.ListenConfig{Config: quiet, TLS: &tls.Config{Certificates: []tls.Certificate{cert}}})
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !tellHash || r.URL.Path != "/certificate.sha256" {
			http.NotFound(w, r)
			return
		}
		fmt.Fprintln(w, hash)
	})}
	go func() { _ = srv.Serve(web) }()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() { cancel(); _ = ln.Close(); _ = srv.Close() })
	go func() {
		for {
			s, err := ln.Accept(ctx)
			if err != nil {
				return
			}
			s.Serve(moqt.Handler{})
		}
	}()
	return addr, hash
}

func TestTrust(t *testing.T) {
	telling, hash := relay(t, true)
	silent, _ := relay(t, false)
	for name, c := range map[string]struct {
		target Target
		err    string
	}{
		"local relay names its certificate": {Target{URL: "moqt://" + telling + "/x"}, ""},
		"the same over WebTransport":        {Target{URL: "https://" + telling + "/x"}, ""},
		"pinned":                            {Target{URL: "moqt://" + telling + "/x", CertificateHash: hash}, ""},
		"pinned to another":                 {Target{URL: "moqt://" + telling + "/x", CertificateHash: strings.Repeat("00", 32)}, "certificate"},
		"pinned to nonsense":                {Target{URL: "moqt://" + telling + "/x", CertificateHash: "abc"}, "64 hex digits"},
		"names nothing, unknown authority":  {Target{URL: "moqt://" + silent + "/x"}, "not trusted"},
		"names nothing, insecure":           {Target{URL: "moqt://" + silent + "/x", Insecure: true}, "404"},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := c.target.Dial(t.Context(), moqt.Handler{}, quiet)
			if s != nil {
				defer s.Close(0, "")
			}
			if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
				t.Errorf("%v, want %q", err, c.err)
			}
		})
	}
}

// TestKeep: it connects again after a loss, and not after a final error.
func TestKeep(t *testing.T) {
	addr, hash := relay(t, false)
	target := Target{URL: "moqt://" + addr + "/x", CertificateHash: hash}
	final := errors.New("nothing mends this")
	calls := 0
	err := target.Keep(t.Context(), moqt.Handler{}, quiet, func(context.Context, *moqt.Session) error {
		calls++
		if calls < 3 {
			return errors.New("lost")
		}
		return Final(final)
	})
	if calls != 3 || !errors.Is(err, final) {
		t.Errorf("%d sessions, %v", calls, err)
	}
}
