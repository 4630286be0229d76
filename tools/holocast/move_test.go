package main

import (
	"context"
	"crypto/tls"
	"encoding/hex"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"holocast/internal/devcert"
	"holocast/internal/moqt"
	"holocast/internal/origin"
	"holocast/relay/router"
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
	wg.Go(func() { r.ServeAll(ctx, ln) })
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

// move has a capture server's session received by "holocast ARGS" while its relay asks both
// programs to move to another one, where somebody is to ask for frames then. It returns
// what receives, which goes on.
func move(t *testing.T, began func(*process) bool, command string, args ...string) (receiver *process, stop func()) {
	t.Helper()
	cert, err := devcert.Generate(time.Now(), "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	hash := devcert.Hash(cert)
	trust := "--certificate-hash=" + hex.EncodeToString(hash[:])
	one, two := startMovable(t, cert), startMovable(t, cert)
	capture := start(t, "capture-server", one.url+"/demo", trust, "--source", "synthetic", "--fps", "10", "--low=false", "--thin=false", "--delivery-timeout", "0")
	receiver = start(t, "holocast", append([]string{command, one.url + "/demo", trust, "--wait", "--json"}, args...)...)
	until(t, "the first frames", func() bool { return one.objects() > 0 && began(receiver) })
	for _, s := range one.Sessions() {
		go func() { _ = s.Goaway(t.Context(), two.url, time.Minute) }()
	}
	until(t, "the move of both", func() bool { return len(one.Sessions()) == 0 && len(two.Sessions()) == 2 })
	moved := two.objects()
	until(t, "frames at the second relay", func() bool { return two.objects() > moved+10 })
	return receiver, func() {
		t.Helper()
		capture.Signal(os.Interrupt)
		capture.mustSucceed()
	}
}

// TestMoveToAnotherRelay: capture server and player follow a GOAWAY to the relay that it names,
// and no frame is lost, but where the machine stalls for longer than both sessions are used: then
// the test says how many. relay/router's TestMoveBetweenRelays has no such excuse.
func TestMoveToAnotherRelay(t *testing.T) {
	t.Parallel()
	for range 3 {
		play, stop := move(t, func(p *process) bool { return p.fps() > 0 }, "play")
		r := play.interrupt()
		stop()
		if r.PublisherRestarts != 0 || r.Frames <= 10 {
			t.Errorf("%+v", r)
		}
		if r.FramesLost == 0 && r.FramesPartial == 0 {
			return
		}
		t.Logf("%d of %d frames were lost, %d are not whole", r.FramesLost, r.Frames+r.FramesLost, r.FramesPartial)
	}
}

// TestRecordingMoves: a recording goes on at the relay that a GOAWAY names.
func TestRecordingMoves(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "moved.mcap")
	// Nobody else asks for frames.
	record, stop := move(t, func(*process) bool { return true }, "record", file)
	defer stop()
	record.Signal(os.Interrupt)
	record.mustSucceed()
	var r recorded
	record.lastLine(&r)
	if r.Objects < 10 {
		t.Errorf("recorded %+v", r)
	}
}
