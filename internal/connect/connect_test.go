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
	"sync/atomic"
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
		"localhost:4443/demo":          "",
		"demo":                         "",
		"http://localhost:4443/demo":   "",
	} {
		got, err := Target{URL: url}.Session()
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q, %v", url, got, err)
		}
	}
}

var quiet = moqt.Config{Log: slog.New(slog.DiscardHandler)}

// relay listens for sessions and, if tellHash is set, serves its certificate's hash over HTTP.
func relay(t *testing.T, tellHash bool) (addr, hash string) {
	t.Helper()
	return serving(t, tellHash, func(*moqt.Session) {})
}

// serving is like relay and calls accepted for each session.
func serving(t *testing.T, tellHash bool, accepted func(*moqt.Session)) (addr, hash string) {
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
	ln, err := moqt.Listen(
		addr,
		moqt.ListenConfig{Config: quiet, TLS: &tls.Config{Certificates: []tls.Certificate{cert}}},
	)
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{
		ReadHeaderTimeout: time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !tellHash || r.URL.Path != "/certificate.sha256" {
				http.NotFound(w, r)
				return
			}
			fmt.Fprintln(w, hash)
		}),
	}
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
			accepted(s)
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
		"local relay announces its certificate": {Target{URL: "moqt://" + telling + "/x"}, ""},
		"the same over WebTransport":            {Target{URL: "https://" + telling + "/x"}, ""},
		"pinned":                                {Target{URL: "moqt://" + telling + "/x", CertificateHash: hash}, ""},
		"pinned to another certificate": {
			Target{URL: "moqt://" + telling + "/x", CertificateHash: strings.Repeat("00", 32)}, "certificate",
		},
		"malformed hash": {
			Target{URL: "moqt://" + telling + "/x", CertificateHash: "abc"}, "64 hex digits",
		},
		"no announcement, unknown authority": {Target{URL: "moqt://" + silent + "/x"}, "not trusted"},
		"no announcement, insecure":          {Target{URL: "moqt://" + silent + "/x", Insecure: true}, "404"},
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

// TestKeep checks that Keep reconnects after a loss but not after a final error.
func TestKeep(t *testing.T) {
	addr, hash := relay(t, false)
	target := Target{URL: "moqt://" + addr + "/x", CertificateHash: hash}
	final := errors.New("permanent failure")
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

// TestMoveTakesNewestToken checks that after a GOAWAY the new session uses the URL's token, or else
// the token that Renew returns at that time, and that an empty URI means the same relay.
func TestMoveTakesNewestToken(t *testing.T) {
	t.Setenv(TokenVariable, "")
	for name, c := range map[string]struct {
		moving bool
		token  string // in the URL
		want   []string
	}{
		"sequential sessions":           {want: []string{"1", "2", "3"}},
		"overlapping sessions":          {moving: true, want: []string{"1", "2", "3"}},
		"token in the URL":              {token: "#token=a%2Bb", want: []string{"a+b", "a+b", "a+b"}},
		"token in the URL, overlapping": {moving: true, token: "#token=a%2Bb", want: []string{"a+b", "a+b", "a+b"}},
	} {
		t.Run(name, func(t *testing.T) {
			type arrival struct {
				relay int
				*moqt.Session
			}
			arrivals := make(chan arrival, 1)
			var addrs [2]string
			for i := range addrs {
				addrs[i], _ = serving(t, true, func(s *moqt.Session) { arrivals <- arrival{i, s} })
			}
			var newest atomic.Int32
			target := Target{
				URL:   "moqt://" + addrs[0] + "/x" + c.token,
				Renew: func() Target { return Target{Token: fmt.Sprint(newest.Load())} },
			}
			newest.Store(1)
			ctx, stop := context.WithCancel(t.Context())
			over := make(chan error, 1)
			go func() {
				over <- newKeeper(target, moqt.Handler{}, quiet, func(ctx context.Context, _ *moqt.Session) error {
					Settled(ctx)
					<-ctx.Done()
					return ctx.Err()
				}, c.moving).keep(ctx)
			}()
			for i, uri := range []string{"moqt://" + addrs[1], "", ""} {
				s := <-arrivals
				if relay := min(i, 1); s.relay != relay {
					t.Errorf("session %d is with relay %d, want %d", i, s.relay, relay)
				}
				if got := s.SetupTokens(); len(got) != 1 || string(got[0].Value) != c.want[i] {
					t.Errorf("session %d arrived with %+v, want %q", i, got, c.want[i])
				}
				newest.Add(1)
				if i < 2 {
					go func() { _ = s.Goaway(ctx, uri, time.Minute) }()
				}
			}
			stop()
			if err := <-over; !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
	}
}
