//go:build linux

package upgrade

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"holocast/internal/logqueue"
)

// variable marks a process started by Start.
const variable = "HOLOCAST_UPGRADE"

// Descriptors of a process started by Start: its end of the socket to the old process, the error output
// to use once it is ready, and the files.
const (
	lineFD = 3 + iota
	stderrFD
	filesFD
)

// message is a line of JSON from the new process to the old one.
type message string

const (
	ready    message = "ready"    // the process is ready
	replaced message = "replaced" // a successor has taken over from the process
	stopping message = "stopping" // the process was asked to stop
)

// Signal requests an upgrade.
var Signal os.Signal = unix.SIGUSR2

// File is a named open file.
type File struct {
	Name string
	*os.File
}

// hello is the message from the old process to the new one.
type hello struct {
	Files []string
	State json.RawMessage
}

// Successor is the new process, as seen by the old one.
type Successor struct {
	PID  int
	line net.Conn
	in   *bufio.Scanner
}

// Start runs the program again with the same arguments, passes it files and state (encoded as JSON),
// and waits until it is ready. If it fails or ctx is done first, Start kills it. If it failed, the
// error holds the last line that it wrote, if any. Start closes the files.
func Start(ctx context.Context, state any, files []File) (*Successor, error) {
	defer func() {
		for _, f := range files {
			_ = f.Close()
		}
	}()
	program, err := exec.LookPath(os.Args[0])
	if err != nil {
		return nil, err
	}
	encoded, err := json.Marshal(state)
	if err != nil {
		return nil, err
	}
	ours, theirs, err := pair()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(program, os.Args[1:]...)
	cmd.Stdout = os.Stdout
	said, stderr, err := os.Pipe()
	if err != nil {
		_, _ = ours.Close(), theirs.Close()
		return nil, err
	}
	cmd.Stderr = stderr
	cmd.ExtraFiles = []*os.File{theirs, os.Stderr}
	h := hello{State: encoded}
	for _, f := range files {
		cmd.ExtraFiles = append(cmd.ExtraFiles, f.File)
		h.Files = append(h.Files, f.Name)
	}
	cmd.Env = []string{variable + "=1"}
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "WATCHDOG_PID=") { // the watchdog belongs to the old process
			cmd.Env = append(cmd.Env, v)
		}
	}
	err = cmd.Start()
	_, _ = stderr.Close(), theirs.Close() // otherwise we would not notice that the new process closes its copies
	for _, f := range files {             // Fd has also made our copies blocking
		_ = unix.SetNonblock(int(f.Fd()), true)
	}
	if err != nil {
		_, _ = ours.Close(), said.Close()
		return nil, err
	}
	var heard tail
	var hearing sync.WaitGroup
	hearing.Go(func() { // until the process ends, or is ready and uses our error output itself
		defer func() { _ = said.Close() }()
		_, _ = io.Copy(io.MultiWriter(logqueue.Stderr, &heard), said)
	})
	s := &Successor{PID: cmd.Process.Pid, line: ours, in: bufio.NewScanner(ours)}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	err = json.NewEncoder(ours).Encode(h)
	var m message
	if err == nil {
		m, err = s.next()
	}
	if err == nil && m != ready {
		err = fmt.Errorf("it reported %q, want %q", m, ready)
	}
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		_ = cmd.Process.Kill()
		ended := cmd.Wait()
		hearing.Wait()
		_ = ours.Close()
		switch last := heard.line(); {
		case ctx.Err() != nil:
			err = errors.New("it was not ready in time")
		case last != "":
			err = errors.New(last)
		case ended != nil:
			err = ended
		}
		return nil, fmt.Errorf("the new process did not start: %w", err)
	}
	go func() { _ = cmd.Wait() }()
	return s, nil
}

// next reads a message.
func (s *Successor) next() (m message, err error) {
	if !s.in.Scan() {
		return "", errors.Join(s.in.Err(), io.ErrUnexpectedEOF)
	}
	return m, json.Unmarshal(s.in.Bytes(), &m)
}

// Wait returns when the new process ends or is asked to stop, in which case asked is true. The error is
// not nil if it ended unexpectedly. If it was itself replaced, Wait returns false and nil.
func (s *Successor) Wait() (asked bool, err error) {
	defer func() { _ = s.line.Close() }()
	over := false
	for {
		switch m, err := s.next(); {
		case m == stopping:
			return true, nil
		case m == replaced:
			over = true
		case err != nil && !over:
			return false, fmt.Errorf("the new process %d has ended unexpectedly", s.PID)
		case err != nil:
			return false, nil
		}
	}
}

// Predecessor is the old process, as seen by the new one.
type Predecessor struct {
	line  net.Conn
	files []File
	state json.RawMessage
}

// Inherit returns the process that started this one as its successor, or nil if there is none.
func Inherit() (*Predecessor, error) {
	if os.Getenv(variable) == "" {
		return nil, nil
	}
	_ = os.Unsetenv(variable)
	for _, fd := range []int{lineFD, stderrFD} {
		unix.CloseOnExec(fd)
	}
	f := os.NewFile(lineFD, "predecessor")
	line, err := net.FileConn(f)
	_ = f.Close()
	if err != nil {
		return nil, fmt.Errorf("%s is set, but there is no predecessor: %w", variable, err)
	}
	_ = line.SetReadDeadline(time.Now().Add(10 * time.Second))
	var h hello
	in := bufio.NewReader(line)
	b, err := in.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(b, &h)
	}
	if err != nil {
		_ = line.Close()
		return nil, fmt.Errorf("read from the process to replace: %w", err)
	}
	p := &Predecessor{line: line, state: h.State}
	for i, name := range h.Files {
		unix.CloseOnExec(filesFD + i)
		p.files = append(p.files, File{name, os.NewFile(uintptr(filesFD+i), name)})
	}
	return p, nil
}

// State decodes the old process's state into to.
func (p *Predecessor) State(to any) error { return json.Unmarshal(p.state, to) }

// Files returns the files with the given name, in order. The Predecessor closes them.
func (p *Predecessor) Files(name string) (files []*os.File) {
	for _, f := range p.files {
		if f.Name == name {
			files = append(files, f.File)
		}
	}
	return files
}

// Listener returns the listener with the given name, or nil if there is none. It shares the old
// process's socket.
func (p *Predecessor) Listener(name string) (net.Listener, error) {
	for _, f := range p.Files(name) {
		return net.FileListener(f)
	}
	return nil, nil
}

// Ready reports to the old process that this one is ready, and takes over its error output. Without an
// old process it does nothing.
func (p *Predecessor) Ready() error {
	if p == nil {
		return nil
	}
	for _, f := range p.files {
		_ = f.Close()
	}
	p.files = nil
	if err := unix.Dup3(stderrFD, 2, 0); err != nil {
		return err
	}
	_ = unix.Close(stderrFD)
	return p.say(ready)
}

// Replaced reports to the old process, if it is still running, that a successor has taken over from
// this one.
func (p *Predecessor) Replaced() {
	if p != nil {
		_ = p.say(replaced)
	}
}

// Stopping reports to the old process that this one was asked to stop.
func (p *Predecessor) Stopping() {
	if p != nil {
		_ = p.say(stopping)
		_ = p.line.Close()
	}
}

func (p *Predecessor) say(m message) error {
	_ = p.line.SetWriteDeadline(time.Now().Add(time.Second))
	return json.NewEncoder(p.line).Encode(m)
}

// pair returns our end and their end of a socket between two processes.
func pair() (net.Conn, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "line"), os.NewFile(uintptr(fds[1]), "line")
	defer func() { _ = ours.Close() }()
	conn, err := net.FileConn(ours)
	if err != nil {
		_ = theirs.Close()
		return nil, nil, err
	}
	return conn, theirs, nil
}

// tail keeps the last bytes written to it.
type tail struct{ b []byte }

func (t *tail) Write(b []byte) (int, error) {
	const keep = 4 << 10
	t.b = append(t.b, b...)
	t.b = t.b[max(0, len(t.b)-keep):]
	return len(b), nil
}

// line returns the last line.
func (t *tail) line() string {
	b := bytes.TrimSpace(t.b)
	return string(bytes.TrimSpace(b[bytes.LastIndexByte(b, '\n')+1:]))
}
