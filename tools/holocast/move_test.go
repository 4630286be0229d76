package main

import (
	"context"
	"crypto/tls"
	"encoding/hex"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"holocast/internal/devcert"
	"holocast/internal/moqt"
	"holocast/internal/origin"
	"holocast/relay/router"
	"holocast/tools/holocast/player"
)

// movable is a relay in the test's process, which may send its sessions elsewhere; the program
// asks them to come back to its own address.
type movable struct {
	*router.Router
	url string
}

func startMovable(t *testing.T, cert tls.Certificate) movable {
	t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	ln, err := moqt.Listen("127.0.0.1:0", moqt.ListenConfig{Config: moqt.Config{Log: quiet}, TLS: &tls.Config{Certificates: []tls.Certificate{cert}}})
	if err != nil {
		t.Fatal(err)
	}
	r := router.New(router.Config{Log: quiet, Limits: origin.Limits{MaxAge: time.Minute}})
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { r.RunClock(ctx) })
	wg.Go(func() {
		for {
			s, err := ln.Accept(ctx)
			if err != nil {
				return
			}
			wg.Add(1)
			go r.Serve(s, wg.Done)
		}
	})
	t.Cleanup(func() {
		cancel()
		_ = ln.Close()
		wg.Wait()
	})
	return movable{r, "moqt://" + ln.Addr().String()}
}

// objects is how many objects of points the relay has received.
func (m movable) objects() (n uint64) {
	tracks, _ := m.Stats()
	for _, tr := range tracks {
		if tr.Name.Name == "points/0/full" {
			n += tr.Objects
		}
	}
	return n
}

// move plays a capture server's session while its relay asks both programs to move to another.
func move(t *testing.T) player.Report {
	t.Helper()
	cert, err := devcert.Generate(time.Now(), "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	hash := devcert.Hash(cert)
	trust := "--certificate-hash=" + hex.EncodeToString(hash[:])
	one, two := startMovable(t, cert), startMovable(t, cert)
	capture := start(t, "capture-server", one.url+"/demo", trust, "--source", "synthetic", "--fps", "10", "--low=false", "--thin=false", "--delivery-timeout", "0")
	play := start(t, "holocast", "play", one.url+"/demo", trust, "--wait", "--json")
	until(t, "playing", func() bool { return play.fps() > 0 })
	for _, s := range one.Sessions() {
		go func() { _ = s.Goaway(t.Context(), two.url, time.Minute) }()
	}
	until(t, "the move of both", func() bool { return len(one.Sessions()) == 0 && len(two.Sessions()) == 2 })
	began := two.objects()
	until(t, "playing at the second relay", func() bool { return two.objects() > began+10 })
	r := play.interrupt()
	capture.Signal(os.Interrupt)
	capture.mustSucceed()
	return r
}

// TestMoveToAnotherRelay: capture server and player follow a GOAWAY to the relay that it names,
// and no frame is lost or shown twice.
func TestMoveToAnotherRelay(t *testing.T) {
	t.Parallel()
	var r player.Report
	for range 3 { // where a machine stalls, frames may be late for other reasons
		r = move(t)
		if r.FramesLost == 0 && r.FramesPartial == 0 && r.PublisherRestarts == 0 && r.Frames > 10 {
			return
		}
	}
	t.Errorf("three moves lost frames, the last one: %+v", r)
}
