package main

import (
	"context"
	"crypto/tls"
	"encoding/hex"
	"log/slog"
	"sync"
	"time"

	"holocast/internal/connect"
	"holocast/internal/devcert"
	"holocast/internal/moqt"
	"holocast/internal/origin"
	"holocast/relay/router"
)

// behind is our relay, which serves a namespace from an upstream relay.
type behind struct {
	target connect.Target // the session's
	stop   func()
}

func startBehind(ctx context.Context, from connect.Target, ns moqt.Namespace) (b behind, err error) {
	cert, err := devcert.Generate(time.Now(), "127.0.0.1")
	if err != nil {
		return b, err
	}
	quiet := slog.New(slog.DiscardHandler)
	ln, err := moqt.Listen(
		"127.0.0.1:0",
		moqt.ListenConfig{Config: moqt.Config{Log: quiet}, TLS: &tls.Config{Certificates: []tls.Certificate{cert}}},
	)
	if err != nil {
		return b, err
	}
	r := router.New(router.Config{Log: quiet, Limits: origin.Limits{MaxAge: time.Minute}})
	up := &connect.Lazy{Target: from}
	withdraw := r.Offer(ns, up)
	ctx, cancel := context.WithCancel(ctx)
	var serving sync.WaitGroup
	serving.Go(func() { r.ServeAll(ctx, ln) })
	hash := devcert.Hash(cert)
	b.target = connect.Target{
		URL:             "moqt://" + ln.Addr().String() + "/" + ns[1],
		CertificateHash: hex.EncodeToString(hash[:]),
	}
	b.stop = func() {
		withdraw()
		cancel()
		_ = ln.Close()
		serving.Wait()
		up.Close()
	}
	return b, nil
}
