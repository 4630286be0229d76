package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"log/slog"
	"strings"
	"testing"
	"time"

	"holocast/internal/devcert"
	"holocast/internal/moqt"
	"holocast/internal/origin"
	"holocast/relay/router"
)

// TestCases runs the tests against our relay, and against a server that accepts everything.
func TestCases(t *testing.T) {
	cert, err := devcert.Generate(time.Now(), "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	quiet := slog.New(slog.DiscardHandler)
	listen := func() *moqt.Listener {
		ln, err := moqt.Listen("127.0.0.1:0", moqt.ListenConfig{
			Config: moqt.Config{Log: quiet}, TLS: &tls.Config{Certificates: []tls.Certificate{cert}},
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = ln.Close() })
		return ln
	}
	patient := make([]test, len(tests))
	for i, c := range tests {
		c.limit = time.Minute
		patient[i] = c
	}
	check := func(ln *moqt.Listener, want int, lines ...string) {
		t.Helper()
		var out bytes.Buffer
		d := &dialer{url: "moqt://" + ln.Addr().String(), insecure: true, log: quiet}
		if failed := run(t.Context(), &out, d, patient); failed != want {
			t.Errorf("%d tests failed, want %d", failed, want)
		}
		for _, line := range lines {
			if !strings.Contains(out.String(), line) {
				t.Errorf("no %q in\n%s", line, out.String())
			}
		}
	}

	relay := listen()
	go router.New(router.Config{Log: quiet, Limits: origin.Limits{}}).ServeAll(t.Context(), relay)
	check(relay, 0, "TAP version 14\n", "\n1..6\n", "\nok 1 - setup-only\n", "\nok 6 - subscribe-before-announce\n")

	eager := listen()
	go func() {
		for {
			s, err := eager.Accept(context.Background())
			if err != nil {
				return
			}
			go s.Serve(moqt.Handler{
				PublishNamespace: func(r *moqt.NamespaceRequest) { _ = r.Accept(nil) },
				Subscribe:        func(r *moqt.SubscribeRequest) { _, _ = r.Accept(moqt.TrackInfo{}) },
			})
		}
	}()
	check(eager, 1, "\nnot ok 4 - subscribe-error\n", `message: "SUBSCRIBE_OK, want REQUEST_ERROR"`)
}
