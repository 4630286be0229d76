package sound

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// stopLimit is the time from SIGTERM to SIGKILL.
const stopLimit = 5 * time.Second

// process is a running program.
type process struct {
	cmd    *exec.Cmd
	stdout bytes.Buffer // read it after done is closed
	stderr output
	done   chan struct{}
	err    error // valid after done is closed
}

// command prepares a client of the PulseAudio server.
func (s *session) command(path string, args ...string) *exec.Cmd {
	cmd := exec.Command(path, args...)
	cmd.Env = s.pulse.Env
	return cmd
}

// run starts a command on a host. When it has ended, the functions ended are called.
func (s *session) run(h host, cmd *exec.Cmd, ended ...func()) (*process, error) {
	x := &process{cmd: cmd, done: make(chan struct{})}
	if cmd.Stdout == nil {
		cmd.Stdout = &x.stdout
	}
	cmd.Stderr = &x.stderr
	if err := h.start(cmd); err != nil {
		return nil, fmt.Errorf("start %s: %w", filepath.Base(cmd.Path), err)
	}
	go func() {
		defer close(x.done)
		x.err = cmd.Wait()
		for _, f := range ended {
			f()
		}
	}()
	s.list = append(s.list, x)
	return x, nil
}

// stop terminates a process, and kills it if necessary.
func (x *process) stop() {
	_ = x.cmd.Process.Signal(unix.SIGTERM)
	kill := time.AfterFunc(stopLimit, func() { _ = unix.Kill(-x.cmd.Process.Pid, unix.SIGKILL) })
	defer kill.Stop()
	<-x.done
}

// failure describes the end of a process.
func (x *process) failure() error {
	err := x.err
	if err == nil {
		err = errors.New("exit status 0")
	}
	return fmt.Errorf("%s ended: %w: %s", filepath.Base(x.cmd.Path), err, x.stderr.last())
}

// check returns an error if a program ended early.
func (s *session) check() error {
	for _, x := range s.list {
		select {
		case <-x.done:
			if x.err != nil || x.cmd.Stdin == nil { // pacat ends with its input
				return x.failure()
			}
		default:
		}
	}
	return nil
}

// stop ends all programs, the newest first.
func (s *session) stop() {
	for i := len(s.list) - 1; i >= 0; i-- {
		s.list[i].stop()
	}
	if s.relay != nil {
		s.relay.Stop()
	}
}

// output holds the end of a program's output.
type output struct {
	mu   sync.Mutex
	text []byte
}

var _ io.Writer = (*output)(nil)

// maxOutput bounds the output kept, in bytes.
const maxOutput = 16 << 10

// Write implements io.Writer.
func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text = append(o.text, b...)
	o.text = o.text[max(0, len(o.text)-maxOutput):]
	return len(b), nil
}

func (o *output) contains(text string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return bytes.Contains(o.text, []byte(text))
}

// last returns the last lines.
func (o *output) last() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	lines := strings.Split(strings.TrimSpace(string(o.text)), "\n")
	return strings.Join(lines[max(0, len(lines)-5):], "\n")
}
