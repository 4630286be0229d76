//go:build linux

// Package pulse runs a private PulseAudio server for tests and benchmarks.
package pulse

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ErrMissing reports that PulseAudio is not installed.
var ErrMissing = errors.New("PulseAudio is missing: install the Debian packages pulseaudio and pulseaudio-utils")

// Server is a running server without devices.
type Server struct {
	Env []string // environment of its clients

	dir  string
	cmd  *exec.Cmd
	done chan struct{}
	logs strings.Builder // read after done is closed
}

// Start starts a server and waits until it answers. The caller must Close it.
func Start(ctx context.Context) (*Server, error) {
	for _, program := range []string{"pulseaudio", "pactl", "pacat", "parec"} {
		if _, err := exec.LookPath(program); err != nil {
			return nil, ErrMissing
		}
	}
	dir, err := os.MkdirTemp("", "pulse")
	if err != nil {
		return nil, err
	}
	socket := filepath.Join(dir, "socket")
	home := append(os.Environ(), "HOME="+dir, "XDG_RUNTIME_DIR="+dir)
	s := &Server{Env: append(home, "PULSE_SERVER=unix:"+socket), dir: dir, done: make(chan struct{})}
	s.cmd = exec.Command("pulseaudio", "-n", "--daemonize=no", "--use-pid-file=no", "--exit-idle-time=-1",
		"-L", "module-native-protocol-unix auth-anonymous=1 socket="+socket, "-L", "module-always-sink")
	s.cmd.Env, s.cmd.Stderr = home, &s.logs
	s.cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGKILL}
	if err := s.cmd.Start(); err != nil {
		_ = os.RemoveAll(dir)
		return nil, err
	}
	go func() {
		defer close(s.done)
		_ = s.cmd.Wait()
	}()
	if err := s.await(ctx); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func (s *Server) await(ctx context.Context) error {
	for {
		c := exec.CommandContext(ctx, "pactl", "info")
		c.Env = s.Env
		if c.Run() == nil {
			return nil
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-s.done:
			return fmt.Errorf("pulseaudio ended: %s", strings.TrimSpace(s.logs.String()))
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// PID returns the server's process ID.
func (s *Server) PID() int { return s.cmd.Process.Pid }

// Close ends the server.
func (s *Server) Close() {
	_ = s.cmd.Process.Kill()
	<-s.done
	_ = os.RemoveAll(s.dir)
}

// Control runs pactl and returns its output.
func (s *Server) Control(ctx context.Context, args ...string) (string, error) {
	c := exec.CommandContext(ctx, "pactl", args...)
	c.Env = s.Env
	out, err := c.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("pactl %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out)), nil
}

// AddSink adds a mono sink that discards its sound, with a name and a rate in Hz. Its monitor, named
// "Monitor of " and the name, serves as a microphone. AddSink returns the sink's module.
func (s *Server) AddSink(ctx context.Context, name string, rate int) (module string, err error) {
	return s.Control(ctx, "load-module", "module-null-sink", "sink_name="+name, fmt.Sprintf("rate=%d", rate),
		"channels=1", "sink_properties=device.description="+name)
}
