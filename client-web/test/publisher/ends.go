package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"holocast/internal/connect"
	"holocast/internal/devcert"
	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/origin"
	"holocast/internal/qoe"
	"holocast/relay/router"
)

// printReceipts prints the receipts of a session's viewers, one per line, with track, camera,
// sequence number and frame delay in µs.
func printReceipts(ctx context.Context, w io.Writer, url string) error {
	target := connect.Target{URL: url}
	ns, err := target.Namespace()
	if err != nil {
		return err
	}
	h := moqt.Handler{Publish: func(r *moqt.PublishRequest) {
		sub, err := r.Accept(moqt.SubscribeOptions{})
		if err != nil {
			return
		}
		for {
			d, err := sub.AcceptDatagram(ctx)
			if err != nil {
				return
			}
			x, err := qoe.ParseReceipt(d.Payload)
			if err != nil {
				fmt.Fprintln(w, "invalid receipt:", err)
				continue
			}
			fmt.Fprintln(w, "receipt", r.Track.Name, x.Camera, x.Sequence, x.Delay.Microseconds())
		}
	}}
	err = target.Keep(ctx, h, moqt.Config{}, func(ctx context.Context, s *moqt.Session) error {
		slog.Info("listening for receipts", "session", url)
		if err := s.SubscribeTracks(ctx, ns); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.Context().Done():
			return s.Err()
		}
	})
	if ctx.Err() != nil {
		return nil //nolint:nilerr // stopped by a signal
	}
	return err
}

// sendAway runs a relay at addr (UDP and TCP) that sends its peers GOAWAY with the session URI uri.
// Without onSignal it rejects all requests and sends GOAWAY as soon as a peer connects; with
// onSignal it forwards the session and sends GOAWAY on SIGUSR1.
func sendAway(ctx context.Context, addr, uri string, onSignal bool) error {
	cert, err := serveCertificate(ctx, addr)
	if err != nil {
		return err
	}
	ln, err := moqt.Listen(addr, moqt.ListenConfig{TLS: &tls.Config{Certificates: []tls.Certificate{cert}}})
	if err != nil {
		return err
	}
	defer func() { _ = ln.Close() }()
	serve := func(s *moqt.Session) {
		s.Serve(moqt.Handler{
			Subscribe: func(r *moqt.SubscribeRequest) { _ = r.Reject(wire.RequestGoingAway, "elsewhere") },
			Publish:   func(r *moqt.PublishRequest) { _ = r.Reject(wire.RequestGoingAway, "elsewhere") },
		})
	}
	var signals chan os.Signal
	if onSignal {
		signals = make(chan os.Signal, 1)
		signal.Notify(signals, syscall.SIGUSR1)
		elsewhere := &connect.Lazy{Target: connect.Target{URL: uri}}
		defer elsewhere.Close()
		ns, err := elsewhere.Target.Namespace()
		if err != nil {
			return err
		}
		relay := router.New(router.Config{Log: slog.Default(), Limits: origin.Limits{MaxAge: time.Minute}})
		defer relay.Offer(ns, elsewhere)()
		serve = func(s *moqt.Session) { go relay.Serve(s, func() {}) }
	}
	slog.Info("sending GOAWAY", "to", uri)
	for {
		s, err := ln.Accept(ctx)
		if err != nil {
			return nil // stopped by a signal
		}
		serve(s)
		go func() {
			if onSignal {
				select {
				case <-signals:
				case <-s.Context().Done():
					return
				}
			}
			_ = s.Goaway(ctx, uri, 5*time.Second)
		}()
	}
}

// serveCertificate generates a relay's certificate and serves its hash to browsers at addr
// (TCP) until ctx is done.
func serveCertificate(ctx context.Context, addr string) (tls.Certificate, error) {
	cert, err := devcert.Generate(time.Now(), "127.0.0.1")
	if err != nil {
		return cert, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /certificate.sha256", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Access-Control-Allow-Origin", "*")
		fmt.Fprintf(w, "%x\n", devcert.Hash(cert))
	})
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return cert, err
	}
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: time.Second}
	context.AfterFunc(ctx, func() { _ = srv.Close() })
	go func() { _ = srv.Serve(ln) }()
	return cert, nil
}
