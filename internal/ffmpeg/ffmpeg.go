// Package ffmpeg runs the FFmpeg programs (https://ffmpeg.org) to probe inputs and to decode
// pictures and sound through pipes. Separate processes, unlike the libraries, confine the damage that
// hostile input can do (docs/adr/0004-ffmpeg.md).
package ffmpeg

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"time"
)

// ErrAbsent is returned if FFmpeg is not installed.
var ErrAbsent = errors.New("FFmpeg is not installed (Debian: apt install ffmpeg)")

// Find returns the path of ffmpeg or ffprobe.
func Find(program string) (string, error) {
	path, err := exec.LookPath(program)
	if err != nil {
		return "", fmt.Errorf("%s: %w", program, ErrAbsent)
	}
	return path, nil
}

// CodecError means that this FFmpeg lacks a decoder or encoder.
type CodecError struct {
	Codec  string
	Encode bool
}

func (e *CodecError) Error() string {
	if e.Encode {
		return fmt.Sprintf("this FFmpeg cannot encode %s (ffmpeg -encoders lists its encoders)", e.Codec)
	}
	return fmt.Sprintf("this FFmpeg cannot decode %s (ffmpeg -decoders lists its decoders)", e.Codec)
}

// ErrNoIndex is returned for an MP4 file truncated before its index.
var ErrNoIndex = errors.New("truncated MP4: it has no moov box and cannot be played")

// Process is a running ffmpeg.
type Process struct {
	cmd    *exec.Cmd
	stderr tail
	done   chan struct{}
	err    error
}

// Pipe is an output of ffmpeg. In ffmpeg's arguments, the first is pipe:3, the second pipe:4 and so
// on.
type Pipe = *os.File

// Start runs ffmpeg, with stdin unless it is nil, and returns the given number of output pipes.
// Cancelling ctx kills it.
func Start(ctx context.Context, pipes int, stdin io.Reader, args ...string) (*Process, []Pipe, error) {
	path, err := Find("ffmpeg")
	if err != nil {
		return nil, nil, err
	}
	args = append([]string{"-hide_banner", "-v", "error"}, args...)
	if stdin == nil {
		args = append([]string{"-nostdin"}, args...)
	}
	p := &Process{
		cmd:  exec.CommandContext(ctx, path, args...),
		done: make(chan struct{}),
	} //nolint:gosec // arguments come from this program
	p.cmd.Stdin, p.cmd.Stderr, p.cmd.WaitDelay = stdin, &p.stderr, time.Second
	var ours, theirs []*os.File
	closeAll := func(files []*os.File) {
		for _, f := range files {
			_ = f.Close()
		}
	}
	for range pipes {
		r, w, err := os.Pipe()
		if err != nil {
			closeAll(append(ours, theirs...))
			return nil, nil, err
		}
		ours, theirs = append(ours, r), append(theirs, w)
	}
	p.cmd.ExtraFiles = theirs
	started := make(chan error)
	go func() {
		defer close(p.done)
		p.err = supervise(p.cmd, started)
	}()
	err = <-started
	closeAll(theirs)
	if err != nil {
		closeAll(ours)
		return nil, nil, fmt.Errorf("ffmpeg: %w", err)
	}
	return p, ours, nil
}

// supervise runs a program until it ends and reports when it has started. On Linux, the program
// dies with this process, even if this process is killed.
func supervise(cmd *exec.Cmd, started chan<- error) error {
	// Linux sends the signal when the thread that started the program ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	dieWithParent(cmd)
	err := cmd.Start()
	started <- err
	if err != nil {
		return err
	}
	return cmd.Wait()
}

// run runs a program until it ends.
func run(cmd *exec.Cmd) error {
	started, ended := make(chan error, 1), make(chan error, 1)
	go func() { ended <- supervise(cmd, started) }()
	return <-ended
}

// Wait waits for the end and returns ffmpeg's error, if any.
func (p *Process) Wait() error {
	<-p.done
	if p.err == nil {
		return nil
	}
	return p.stderr.explain(p.err)
}

// Kill kills ffmpeg.
func (p *Process) Kill() { _ = p.cmd.Process.Kill() }

// Run runs ffmpeg until it ends.
func Run(ctx context.Context, args ...string) error {
	p, _, err := Start(ctx, 0, nil, args...)
	if err != nil {
		return err
	}
	return p.Wait()
}

// tail keeps the end of a program's output.
type tail struct {
	mu sync.Mutex
	b  []byte
}

const maxTail = 8 << 10

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, b...)
	if n := len(t.b) - maxTail; n > 0 {
		t.b = append(t.b[:0], t.b[n:]...)
	}
	return len(b), nil
}

var (
	noDecoder = regexp.MustCompile(`(?m)Decoder \(codec ([^)]+)\) not found|Unknown decoder '([^']+)'`)
	noEncoder = regexp.MustCompile(`(?m)Unknown encoder '([^']+)'|Encoder \(codec ([^)]+)\) not found`)
	failed    = regexp.MustCompile(`(?m)^\[[^]]* @ 0x[0-9a-f]+\] (.* failed: .*)$`)
	address   = regexp.MustCompile(`^\[[^]]* @ 0x[0-9a-f]+\] `)
)

// explain derives an error from the program's output.
func (t *tail) explain(err error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if m := noDecoder.FindSubmatch(t.b); m != nil {
		return &CodecError{Codec: string(m[1]) + string(m[2])}
	}
	if m := noEncoder.FindSubmatch(t.b); m != nil {
		return &CodecError{Codec: string(m[1]) + string(m[2]), Encode: true}
	}
	if bytes.Contains(t.b, []byte("moov atom not found")) {
		return ErrNoIndex
	}
	if m := failed.FindSubmatch(t.b); m != nil { // the last line may have the wrong error code
		return fmt.Errorf("ffmpeg: %.300s", strings.TrimSpace(string(m[1])))
	}
	lines := strings.Split(strings.TrimSpace(string(t.b)), "\n")
	last := strings.TrimSpace(address.ReplaceAllString(lines[len(lines)-1], ""))
	if last == "" {
		return fmt.Errorf("ffmpeg: %w", err)
	}
	return fmt.Errorf("ffmpeg: %.300s", last)
}
