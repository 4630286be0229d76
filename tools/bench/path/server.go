package path

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"holocast/internal/devcert"
	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/origin"
	"holocast/tools/bench/internal/direct"
)

// relayProcess is a running relay.
type relayProcess struct {
	cmd    *exec.Cmd
	addr   string // of its UDP socket
	tls    *tls.Config
	remove func() // its binary, if that was built for it
	done   chan struct{}
}

// startRelay runs the relay on ports of its own.
func startRelay(ctx context.Context, path string) (*relayProcess, error) {
	path, remove, err := findRelay(ctx, path)
	if err != nil {
		return nil, err
	}
	p, err := runRelay(path, "127.0.0.1", (*exec.Cmd).Start)
	if err != nil {
		remove()
		return nil, err
	}
	p.remove = remove
	return p, nil
}

// runRelay runs the relay on an address, started by start.
func runRelay(path, host string, start func(*exec.Cmd) error) (*relayProcess, error) {
	p := &relayProcess{remove: func() {}, done: make(chan struct{})}
	p.cmd = exec.Command(path, "--listen", net.JoinHostPort(host, "0"), "--insecure", "--http", "", "--log-format", "json")
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := start(p.cmd); err != nil {
		return nil, fmt.Errorf("start the relay: %w", err)
	}
	type listening struct {
		Msg, UDP string
		Hash     string `json:"certificate_sha256"`
	}
	ready := make(chan listening, 1)
	var said bytes.Buffer // until it listens
	go func() {
		defer close(p.done)
		listens := false
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			var l listening
			if json.Unmarshal(lines.Bytes(), &l) == nil && l.Msg == "relay is listening" {
				listens = true
				ready <- l
			} else if !listens {
				said.Write(append(lines.Bytes(), '\n'))
			}
		}
		_ = p.cmd.Wait()
	}()
	select {
	case l := <-ready:
		hash, err := devcert.ParseHash(l.Hash)
		if err != nil {
			p.stop()
			return nil, fmt.Errorf("the relay's certificate: %w", err)
		}
		p.addr, p.tls = l.UDP, devcert.Pinned(hash)
		return p, nil
	case <-p.done:
		return nil, fmt.Errorf("the relay did not start: %s", said.String())
	case <-time.After(10 * time.Second):
		p.stop()
		return nil, errors.New("the relay did not start within 10 s")
	}
}

// findRelay is the relay's binary: path, unless that is "", or the one beside this program,
// or one built for this run, which remove removes.
func findRelay(ctx context.Context, path string) (_ string, remove func(), err error) {
	remove = func() {}
	if path != "" {
		return path, remove, nil
	}
	if self, err := os.Executable(); err == nil {
		beside := filepath.Join(filepath.Dir(self), "relay")
		if _, err := os.Stat(beside); err == nil {
			return beside, remove, nil
		}
	}
	temp, err := os.MkdirTemp("", "holocast-bench")
	if err != nil {
		return "", nil, err
	}
	remove = func() { _ = os.RemoveAll(temp) }
	path = filepath.Join(temp, "relay")
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", path, "holocast/relay").CombinedOutput(); err != nil {
		remove()
		return "", nil, fmt.Errorf("no relay beside this program, and it cannot be built: %w\n%s", err, out)
	}
	return path, remove, nil
}

func (p *relayProcess) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	t := time.AfterFunc(3*time.Second, func() { _ = p.cmd.Process.Kill() })
	<-p.done
	t.Stop()
	p.remove()
}

// clockTick is the unit of /proc/PID/stat, which Linux fixes for user space.
const clockTick = 10 * time.Millisecond

// cpu is the processor time the relay has used, user and system.
func (p *relayProcess) cpu() (time.Duration, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		return 0, fmt.Errorf("processor time of the relay: %w", err)
	}
	// Fields after the name, which is in parentheses, begin with the third.
	f := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(f) < 13 {
		return 0, errors.New("processor time of the relay: /proc/PID/stat is too short")
	}
	user, err1 := strconv.ParseInt(string(f[11]), 10, 64)
	system, err2 := strconv.ParseInt(string(f[12]), 10, 64)
	if err := errors.Join(err1, err2); err != nil {
		return 0, fmt.Errorf("processor time of the relay: %w", err)
	}
	return time.Duration(user+system) * clockTick, nil
}

func (p *relayProcess) publish(ctx context.Context, t *origin.Track) (func(), error) {
	var set origin.Set
	set.Add(t)
	s, err := moqt.Dial(ctx, "moqt://"+p.addr, p.tls, set.Handler(), direct.Quiet)
	if err != nil {
		return nil, err
	}
	if _, err := s.PublishNamespace(ctx, t.Name().Namespace); err != nil {
		s.Close(wire.NoError, "")
		return nil, err
	}
	return func() { s.Close(wire.NoError, "") }, nil
}

func (p *relayProcess) view(ctx context.Context) (*moqt.Session, error) {
	return moqt.Dial(ctx, "moqt://"+p.addr, p.tls, moqt.Handler{}, direct.Quiet)
}

// directServer is the publisher as a server of its own.
type directServer struct {
	*direct.Server
	set *origin.Set
}

func listen() (*directServer, error) {
	set := &origin.Set{}
	s, err := direct.Listen(netip.MustParseAddr("127.0.0.1"), set.Handler())
	if err != nil {
		return nil, err
	}
	return &directServer{s, set}, nil
}

func (d *directServer) publish(_ context.Context, t *origin.Track) (func(), error) {
	d.set.Add(t)
	return func() { t.End(wire.DoneTrackEnded, "") }, nil
}

func (d *directServer) view(ctx context.Context) (*moqt.Session, error) { return d.Dial(ctx) }
