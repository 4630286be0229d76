package main

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"

	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/origin"
	"holocast/internal/programtest"
)

// startPiped runs a relay that logs everything to a small pipe. It reads the lines up to the first
// record after the start and returns the pipe.
func startPiped(t *testing.T) (*process, *os.File) {
	t.Helper()
	log, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = log.Close() })
	if _, err := unix.FcntlInt(w.Fd(), unix.F_SETPIPE_SZ, os.Getpagesize()); err != nil {
		t.Fatal(err)
	}
	c := exec.Command(binary, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0",
		"--log-format", "json", "--log-level", "debug")
	c.Stderr = w
	p := &process{Process: programtest.Start(t, c), t: t}
	_ = w.Close()
	for lines := bufio.NewScanner(log); p.udp == ""; {
		if !lines.Scan() {
			t.Fatalf("the relay logged no address: %v", lines.Err())
		}
		var line struct {
			UDP, HTTP string
			Hash      string `json:"certificate_sha256"`
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			t.Fatal(err)
		}
		p.udp, p.http, p.hash = line.UDP, line.HTTP, line.Hash
	}
	return p, log
}

// fill makes a relay log until its pipe is full.
func (p *process) fill(pipe *os.File) {
	p.t.Helper()
	for before := -1; ; {
		p.works()
		n, err := unix.IoctlGetInt(int(pipe.Fd()), unix.TIOCINQ)
		if err != nil {
			p.t.Fatal(err)
		}
		if n == before {
			return
		}
		before = n
	}
}

// works checks that a relay serves a publisher and a viewer, and notices when the publisher ends.
func (p *process) works() {
	p.t.Helper()
	tr := origin.NewTrack(points, nil, origin.Limits{})
	var set origin.Set
	set.Add(tr)
	publisher := p.dial(set.Handler())
	if _, err := publisher.PublishNamespace(p.t.Context(), session); err != nil {
		p.t.Fatal(err)
	}
	viewer := p.dial(moqt.Handler{})
	sub := subscribe(p.t, viewer, points)
	write(p.t, tr, 1, []byte("frame"))
	expect(p.t, sub, 1, []byte("frame"))
	publisher.Close(wire.NoError, "")
	viewer.Close(wire.NoError, "")
	eventually(p.t, "both sessions are over", func() bool {
		return p.metric(`holocast_relay_sessions{transport="quic"}`) == 0
	})
	if status, body := p.get("/healthz"); status != 200 {
		p.t.Errorf("health: %d %s", status, body)
	}
}

// TestUnreadLog checks that a relay whose log is not read serves new sessions, metrics and health, and
// stops on request.
func TestUnreadLog(t *testing.T) {
	p, log := startPiped(t)
	p.fill(log)
	p.works()
	p.Stop()
}

// TestLogReaderExits checks that a relay outlives the reader of its log and counts the lost records.
func TestLogReaderExits(t *testing.T) {
	p, log := startPiped(t)
	_ = log.Close()
	p.works()
	if p.metric("holocast_log_records_dropped_total") == 0 {
		t.Error("no lost record is counted")
	}
	p.Stop()
}
