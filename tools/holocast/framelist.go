package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"sync"

	"holocast/tools/holocast/player"
)

// frameList writes a CSV line per displayed frame.
type frameList struct {
	mu   sync.Mutex
	file *os.File
	w    *bufio.Writer // keeps its first error, which close returns
}

func newFrameList(path string) (*frameList, error) {
	file, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("frames: %w", err)
	}
	l := &frameList{file: file, w: bufio.NewWriter(file)}
	fmt.Fprintln(l.w, "camera,sequence,captured_us,arrived_us,shown_us,points,bytes")
	return l, nil
}

func (l *frameList) add(f player.ShownFrame) {
	l.mu.Lock()
	defer l.mu.Unlock()
	fmt.Fprintf(l.w, "%d,%d,%d,%d,%d,%d,%d\n", f.Camera, f.Sequence,
		f.Captured.UnixMicro(), f.Arrived.UnixMicro(), f.Shown.UnixMicro(), f.Points, f.Bytes)
}

// close flushes the file. Frames added later are not written.
func (l *frameList) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := errors.Join(l.w.Flush(), l.file.Close()); err != nil {
		return fmt.Errorf("frames: %w", err)
	}
	return nil
}
