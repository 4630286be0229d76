//go:build linux && (amd64 || arm64)

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"holocast/internal/devcert"
	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/origin"
	"holocast/relay/router"
	"holocast/relay/upgrade"
)

// upgradable runs a relay from its own copy of the program, which tests replace.
func upgradable(t *testing.T, args ...string) (p *process, program string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("not root: the relay may not use eBPF")
	}
	program = filepath.Join(t.TempDir(), "relay")
	if err := os.Link(binary, program); err != nil {
		t.Fatal(err)
	}
	p = startBy(t, func(cmd *exec.Cmd) error {
		cmd.Path, cmd.Args[0] = program, program
		return cmd.Start()
	}, append([]string{"--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"}, args...)...)
	return p, program
}

// upgrade upgrades the relay and returns the new process, which ends with the test.
func (p *process) upgrade() *os.Process {
	p.t.Helper()
	answer, err := upgrade.Ask(p.udp, upgrade.Upgrade, time.Minute)
	if err != nil {
		p.t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimPrefix(answer, "pid "))
	if err != nil {
		p.t.Fatal(err)
	}
	return p.owns(pid)
}

func (p *process) owns(pid int) *os.Process {
	p.t.Helper()
	process, err := os.FindProcess(pid)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = process.Kill() })
	return process
}

// running reports whether a process is running.
func running(p *os.Process) bool { return p.Signal(syscall.Signal(0)) == nil }

// camera writes 30 one-object frames a second to a track, or fewer if the viewers that it waits for are
// slower, so that no frames are lost on a busy machine.
type camera struct {
	frame   []byte
	stop    func() // may be called repeatedly
	mu      sync.Mutex
	last    uint64 // last group written
	waitFor []*watcher
}

func newCamera(t *testing.T, tr *origin.Track, size int) *camera {
	ctx, cancel := context.WithCancel(t.Context())
	c := &camera{frame: make([]byte, size)}
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(time.Second / 30)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				if !c.received() {
					continue
				}
				if err := c.write(tr); err != nil {
					t.Error(err)
					return
				}
			case <-ctx.Done():
				return
			}
		}
	})
	c.stop = func() { cancel(); wg.Wait() }
	t.Cleanup(c.stop)
	return c
}

// received reports whether each viewer that the camera waits for has the last frame.
func (c *camera) received() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range c.waitFor {
		if !w.has(c.last) {
			return false
		}
	}
	return true
}

func (c *camera) write(tr *origin.Track) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last++
	return tr.WriteObject(header(c.last), moqt.Object{}, c.frame)
}

// wait makes the camera wait for a viewer from the next frame on.
func (c *camera) wait(w *watcher) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w.from(c.last + 1)
	c.waitFor = append(c.waitFor, w)
}

// written returns the last group written.
func (c *camera) written() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last
}

// watcher is a viewer that records received frames.
type watcher struct {
	session *moqt.Session
	mu      sync.Mutex
	got     map[uint64]int
	first   uint64 // first group required
	err     error
}

func watch(t *testing.T, p *process, name moqt.TrackName) *watcher {
	t.Helper()
	w := &watcher{session: p.dial(moqt.Handler{}), got: map[uint64]int{}}
	sub := subscribe(t, w.session, name)
	go func() {
		for {
			f, err := next(t.Context(), sub)
			w.mu.Lock()
			if err == nil {
				w.got[f.group]++
				if w.first == 0 {
					w.first = f.group
				}
			} else if w.err == nil {
				w.err = err
			}
			w.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	eventually(t, "a frame", func() bool { return w.frames() > 0 })
	return w
}

// from sets the first group that the watcher is required to receive.
func (w *watcher) from(group uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.first = group
}

// has reports whether a frame has arrived, is not required, or can no longer arrive.
func (w *watcher) has(group uint64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return group < w.first || w.got[group] > 0 || w.err != nil
}

func (w *watcher) frames() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.got)
}

// whole waits for the last group and reports missing and duplicate ones.
func (w *watcher) whole(t *testing.T, who string, last uint64) {
	t.Helper()
	eventually(t, who+" to have the last frame", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.got[last] > 0 || w.err != nil
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	for g := w.first; g <= last; g++ {
		if w.got[g] != 1 {
			t.Errorf("%s has frame %d of %d to %d %d times; its session: %v", who, g, w.first, last, w.got[g], w.err)
			return
		}
	}
}

// TestUpgrade upgrades a relay twice while 20 viewers watch a camera with 100 kB frames and others
// join. None loses a frame, and the old processes end with their last sessions.
func TestUpgrade(t *testing.T) {
	for _, fastpath := range []string{"off", "single"} {
		t.Run("fastpath "+fastpath, func(t *testing.T) {
			args := []string{"--fastpath", fastpath}
			if fastpath != "off" {
				args = append(args, "--listen", "127.0.0.1:47443") // the port must be known in advance
			}
			p, _ := upgradable(t, args...)
			tr := origin.NewTrack(points, nil, origin.Limits{})
			p.publish(tr)
			camera := newCamera(t, tr, 100_000)
			watchers := map[string]*watcher{}
			join := func(n int, when string) {
				t.Helper()
				for i := range n {
					w := watch(t, p, points)
					camera.wait(w)
					watchers[fmt.Sprint("viewer ", i, " ", when)] = w
				}
				seen := camera.written()
				eventually(t, "frames with viewers "+when, func() bool { return camera.written() >= seen+5 })
			}
			join(20, "before")
			second := p.upgrade()
			if !running(p.Cmd.Process) {
				t.Fatal("the old process has ended, though it has sessions")
			}
			join(2, "of the second process")
			third := p.upgrade()
			join(3, "of the third process")
			if status, body := p.get("/healthz"); status != 200 {
				t.Errorf("health: %d %s", status, body)
			}
			if got := p.metric(`holocast_relay_sessions{transport="quic"}`); got != 3 {
				t.Errorf("%v sessions at the third process, want its 3", got)
			}
			camera.stop()
			last := camera.written()
			for who, w := range watchers {
				w.whole(t, who, last)
			}
			t.Logf("%d frames", last)
			for _, w := range watchers {
				w.session.Close(0, "")
			}
			_ = third.Signal(syscall.SIGTERM) // the old processes, to which the publisher is connected, end with it
			for i, process := range []*os.Process{third, second} {
				eventually(t, fmt.Sprint("process ", 3-i, " to end"), func() bool { return !running(process) })
			}
			select {
			case <-p.Done():
			case <-time.After(time.Minute):
				t.Error("the first process has not ended")
			}
		})
	}
}

// TestUpgradeFails checks that if a new process fails to start, the old one continues and the requester
// receives the reason.
func TestUpgradeFails(t *testing.T) {
	config := filepath.Join(t.TempDir(), "relay.yaml")
	settings := func(yaml string) {
		t.Helper()
		if err := os.WriteFile(config, []byte(yaml), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	settings("maxSessions: 100\n")
	p, program := upgradable(t, "--config", config)
	tr := origin.NewTrack(points, nil, origin.Limits{})
	p.publish(tr)
	camera := newCamera(t, tr, 1000) // fits the initial congestion window
	before := watch(t, p, points)
	camera.wait(before)
	replace := func(content string) {
		t.Helper()
		if err := errors.Join(os.Remove(program), os.WriteFile(program, []byte(content), 0o700)); err != nil {
			t.Fatal(err)
		}
	}
	fails := func(want string) {
		t.Helper()
		if _, err := upgrade.Ask(p.udp, upgrade.Upgrade, time.Minute); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("upgrade: %v, want %q", err, want)
		}
		watch(t, p, points).session.Close(0, "")
	}
	settings("maxSessions: 0\n")
	fails("maxSessions must be above 0")
	settings("tls: {certificate: /none.pem, key: /none.pem}\n")
	fails("open /none.pem: no such file or directory")
	settings("maxSessions: 100\n")
	replace("no program")
	fails("exec format error")
	replace("#!/bin/sh\nexit 3\n")
	fails("exit status 3")

	// A successor is killed while it starts.
	replace("#!/bin/sh\necho $$ >" + program + ".pid\nexec sleep 60\n")
	asked := make(chan error, 1)
	go func() {
		_, err := upgrade.Ask(p.udp, upgrade.Upgrade, time.Minute)
		asked <- err
	}()
	var pid int
	eventually(t, "the new process", func() bool {
		b, _ := os.ReadFile(program + ".pid")
		_, err := fmt.Sscan(string(b), &pid)
		return err == nil
	})
	if process, err := os.FindProcess(pid); err == nil {
		_ = process.Kill()
	}
	if err := <-asked; err == nil || !strings.Contains(err.Error(), "signal: killed") {
		t.Errorf("upgrade: %v", err)
	}

	if err := errors.Join(os.Remove(program), os.Link(binary, program)); err != nil {
		t.Fatal(err)
	}
	second := p.upgrade()
	watch(t, p, points)
	// A successor is killed while it serves. Its sessions are lost, and the old process accepts new
	// ones again.
	_ = second.Kill()
	eventually(t, "the old process to take over",
		func() bool { return strings.Contains(p.output(), "accepts new sessions again") })
	watch(t, p, points)
	if status, _ := p.get("/healthz"); status != 200 {
		t.Errorf("health: %d", status)
	}
	camera.stop()
	before.whole(t, "the viewer of the old process", camera.written())
}

// TestUpgradeCommand upgrades once by command and once by signal.
func TestUpgradeCommand(t *testing.T) {
	p, _ := upgradable(t)
	out, err := exec.Command(binary, "upgrade", "--listen", p.udp).CombinedOutput()
	var pid int
	if _, e := fmt.Sscanf(string(out), "process %d takes new sessions", &pid); err != nil || e != nil {
		t.Fatalf("%v: %s", err, out)
	}
	second := p.owns(pid)
	if err := second.Signal(syscall.SIGUSR2); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the third process", func() bool { return strings.Count(p.output(), `"relay is listening"`) == 3 })
	eventually(t, "the second process to end", func() bool { return !running(second) })
	fields := strings.Split(p.output(), `"pid":`)
	if _, err := fmt.Sscan(fields[len(fields)-1], &pid); err != nil {
		t.Fatal(err)
	}
	third := p.owns(pid)
	_ = third.Signal(syscall.SIGTERM)
	<-p.Done()
	if out, err := exec.Command(binary, "upgrade", "--listen", p.udp).CombinedOutput(); err == nil ||
		!strings.Contains(string(out), "no relay is running here") {
		t.Errorf("without a relay: %v, %s", err, out)
	}
}

// TestBridgeIsPrivate checks that the bridge's address accepts only the new process.
func TestBridgeIsPrivate(t *testing.T) {
	b, err := newBridgeServer(router.New(router.Config{}), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer b.close()
	dial := func(url string) (*moqt.Session, error) {
		t.Helper()
		s, err := moqt.Dial(t.Context(), url, devcert.Pinned(b.Hash), moqt.Handler{}, quiet)
		if err == nil {
			t.Cleanup(func() { s.Close(wire.NoError, "") })
		}
		return s, err
	}
	i := strings.LastIndexByte(b.URL, '/')
	for _, url := range []string{b.URL[:i], b.URL[:i+1] + strings.Repeat("0", len(b.URL)-i-1), b.URL + "0"} {
		s, err := dial(url)
		if err == nil { // refused a moment later
			<-s.Context().Done()
			err = s.Err()
		}
		var e *moqt.SessionError
		if !errors.As(err, &e) || e.Code != wire.Unauthorized {
			t.Errorf("%s: %v", url, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	joined, over := make(chan struct{}), make(chan error, 1)
	go func() {
		over <- router.New(router.Config{}).Bridge(ctx, func(h moqt.Handler) (*moqt.Session, error) {
			return moqt.Dial(ctx, b.URL, devcert.Pinned(b.Hash), h, quiet)
		}, nil, func() { close(joined) })
	}()
	select {
	case <-joined:
		cancel()
		if err := <-over; err == nil {
			t.Error("a bridge that was ended reports nothing")
		}
	case err := <-over:
		t.Errorf("with the secret: %v", err)
	}
	cancel()
}

// TestUpgradeWithUnreadLog checks that a process whose log is not read can be replaced.
func TestUpgradeWithUnreadLog(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("not root: the relay may not use eBPF")
	}
	p, log := startPiped(t)
	p.fill(log)
	next := p.upgrade()
	eventually(t, "the old process has ended", func() bool { return !running(p.Cmd.Process) })
	p.works()
	if err := next.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := p.Err(); err != nil { // waits for the standard output of both processes
		t.Errorf("the old process ended with %v", err)
	}
}
