package main

import (
	"context"
	"crypto/tls"
	"encoding/hex"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"holocast/internal/devcert"
	"holocast/internal/moqt"
	"holocast/internal/origin"
	"holocast/relay/router"
)

// movable is a relay in the test process. Unlike the relay program, it can send a GOAWAY with
// another relay's URL.
type movable struct {
	*router.Router
	url string
}

func startMovable(t *testing.T, cert tls.Certificate) movable {
	t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	ln, err := moqt.Listen(
		"127.0.0.1:0",
		moqt.ListenConfig{Config: moqt.Config{Log: quiet}, TLS: &tls.Config{Certificates: []tls.Certificate{cert}}},
	)
	if err != nil {
		t.Fatal(err)
	}
	r := router.New(router.Config{Log: quiet, Limits: origin.Limits{MaxAge: time.Minute}})
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { r.RunClock(ctx) })
	wg.Go(func() { r.ServeAll(ctx, ln) })
	t.Cleanup(func() {
		cancel()
		_ = ln.Close()
		wg.Wait()
	})
	return movable{r, "moqt://" + ln.Addr().String()}
}

// objects returns the number of point-cloud objects received.
func (m movable) objects() (n uint64) {
	tracks, _ := m.Stats()
	for _, tr := range tracks {
		if tr.Name.Name == "points/0/full" {
			n += tr.Objects
		}
	}
	return n
}

// move publishes a session with a capture server and receives it with "holocast COMMAND ARGS". It
// waits for data, moves both programs to a second relay and waits for data there. received reports
// whether the receiver has new data since the last time it returned true.
func move(t *testing.T, received func(*process) bool, command string, args ...string) (receiver *process, stop func()) {
	t.Helper()
	cert, err := devcert.Generate(time.Now(), "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	hash := devcert.Hash(cert)
	trust := "--certificate-hash=" + hex.EncodeToString(hash[:])
	one, two := startMovable(t, cert), startMovable(t, cert)
	capture := start(
		t, "capture-server", one.url+"/demo", trust, "--source", "synthetic", "--fps", "10", "--low=false",
		"--thin=false", "--delivery-timeout", "0",
	)
	receiver = start(t, "holocast", append([]string{command, one.url + "/demo", trust, "--wait", "--json"}, args...)...)
	until(t, "data from the first relay", func() bool { return one.objects() > 0 && received(receiver) })
	for _, s := range one.Sessions() {
		go func() { _ = s.Goaway(t.Context(), two.url, time.Minute) }()
	}
	until(
		t, "two sessions at the second relay",
		func() bool { return len(one.Sessions()) == 0 && len(two.Sessions()) == 2 },
	)
	moved := two.objects()
	until(t, "objects at the second relay", func() bool { return two.objects() > moved+10 })
	for range 3 {
		until(t, "data from the second relay", func() bool { return received(receiver) })
	}
	return receiver, func() {
		t.Helper()
		capture.Signal(os.Interrupt)
		capture.mustSucceed()
	}
}

// TestMoveToAnotherRelay checks that the capture server and the player follow a GOAWAY to another
// relay within one publisher epoch. relay/router's TestMoveBetweenRelays checks that no frame is
// lost.
func TestMoveToAnotherRelay(t *testing.T) {
	t.Parallel()
	lines := 0
	play, stop := move(t, func(p *process) bool {
		n := strings.Count(p.Stderr.String(), "\n")
		if n == lines || p.fps() <= 0 {
			return false
		}
		lines = n
		return true
	}, "play")
	r := play.interrupt()
	stop()
	if r.PublisherRestarts != 0 {
		t.Errorf("%+v", r)
	}
	t.Logf("%d of %d frames lost, %d partial", r.FramesLost, r.Frames+r.FramesLost, r.FramesPartial)
}

// TestRecordingMoves checks that a recording continues at the relay named in a GOAWAY.
func TestRecordingMoves(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "moved.mcap")
	size := int64(0)
	record, stop := move(t, func(*process) bool {
		info, err := os.Stat(file)
		if err != nil || info.Size() <= size {
			return false
		}
		size = info.Size()
		return true
	}, "record", file)
	defer stop()
	var r recorded
	record.interrupted(&r)
	if r.Objects < 10 {
		t.Errorf("recorded %+v", r)
	}
}
