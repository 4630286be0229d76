// Package ffmpeg runs the FFmpeg programs (https://ffmpeg.org): what an input is made
// of, and its pictures and sound through pipes. A program of its own, not the libraries:
// what hostile input breaks there breaks nothing here (docs/adr/0004-ffmpeg.md).
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
	"strings"
	"sync"
	"time"
)

// ErrAbsent says that FFmpeg is not installed.
var ErrAbsent = errors.New("FFmpeg is not installed (Debian: apt install ffmpeg)")

// Find returns the path of ffmpeg or ffprobe.
func Find(program string) (string, error) {
	path, err := exec.LookPath(program)
	if err != nil {
		return "", fmt.Errorf("%s: %w", program, ErrAbsent)
	}
	return path, nil
}

// CodecError says that this FFmpeg lacks a decoder or an encoder.
type CodecError struct {
	Codec  string
	Encode bool
}

func (e *CodecError) Error() string {
	if e.Encode {
		return fmt.Sprintf("this FFmpeg cannot encode %s (ffmpeg -encoders lists what it can)", e.Codec)
	}
	return fmt.Sprintf("this FFmpeg cannot decode %s (ffmpeg -decoders lists what it can)", e.Codec)
}

// ErrNoIndex says that an MP4 file was cut off before its index.
var ErrNoIndex = errors.New("truncated MP4: it has no moov box, without which nothing of it can be played")

// Process is a running ffmpeg.
type Process struct {
	cmd    *exec.Cmd
	stderr tail
	done   chan struct{}
	err    error
}

// Pipe is an output that ffmpeg is given in its arguments as pipe:3 for the first,
// pipe:4 for the second and so on.
type Pipe = *os.File

// Start runs ffmpeg, with stdin where that is not nil, and returns so many pipes that it
// writes to. ctx ends it.
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
	} //nolint:gosec // the arguments are ours
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
	err = p.cmd.Start()
	closeAll(theirs)
	if err != nil {
		closeAll(ours)
		return nil, nil, fmt.Errorf("ffmpeg: %w", err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	return p, ours, nil
}

// Wait waits for the end and says why, nil where ffmpeg was content.
func (p *Process) Wait() error {
	<-p.done
	if p.err == nil {
		return nil
	}
	return p.stderr.explain(p.err)
}

// Kill ends ffmpeg at once.
func (p *Process) Kill() { _ = p.cmd.Process.Kill() }

// Run runs ffmpeg to its end.
func Run(ctx context.Context, args ...string) error {
	p, _, err := Start(ctx, 0, nil, args...)
	if err != nil {
		return err
	}
	return p.Wait()
}

// tail keeps the end of what a program says.
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
	address   = regexp.MustCompile(`^\[[^]]* @ 0x[0-9a-f]+\] `)
)

// explain makes an error of what the program said.
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
	lines := strings.Split(strings.TrimSpace(string(t.b)), "\n")
	last := strings.TrimSpace(address.ReplaceAllString(lines[len(lines)-1], ""))
	if last == "" {
		return fmt.Errorf("ffmpeg: %w", err)
	}
	return fmt.Errorf("ffmpeg: %.300s", last)
}
