// Package qlog writes the events of QUIC connections to files in qlog format
// (draft-ietf-quic-qlog-main-schema, JSON text sequences) for tools such as qvis. The number of
// files and the size of each are limited.
package qlog

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/quic-go/quic-go"
	quicqlog "github.com/quic-go/quic-go/qlog"
	"github.com/quic-go/quic-go/qlogwriter"
)

// extension is the extension of qlog files in JSON text sequences.
const extension = ".sqlog"

// Folder is a folder of qlog files.
type Folder struct {
	dir      string
	maxFiles int
	maxBytes int64
	log      *slog.Logger

	mu sync.Mutex // held while creating and removing files
}

// New creates the folder dir if it does not exist. The Folder keeps at most maxFiles files, including
// files of earlier runs, and removes the oldest. A connection's events beyond maxBytes are dropped.
func New(dir string, maxFiles int, maxBytes int64, log *slog.Logger) (*Folder, error) {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, err
	}
	return &Folder{dir: dir, maxFiles: maxFiles, maxBytes: maxBytes, log: cmp.Or(log, slog.Default())}, nil
}

// Trace records a connection. Use it as quic.Config.Tracer. If it cannot create a file, it logs a
// warning and records nothing.
func (f *Folder) Trace(_ context.Context, client bool, id quic.ConnectionID) qlogwriter.Trace {
	side := "server"
	if client {
		side = "client"
	}
	file, err := f.create(
		fmt.Sprintf("%s_%s_%s%s", time.Now().UTC().Format("20060102T150405.000000"), id, side, extension),
	)
	if err != nil {
		f.log.Warn("cannot write a connection's qlog", "err", err)
		return nil
	}
	limited := &limitedFile{file: file, left: f.maxBytes}
	limited.buffer = bufio.NewWriterSize(file, 64<<10)
	trace := qlogwriter.NewConnectionFileSeq(limited, client, id, []string{quicqlog.EventSchema})
	go trace.Run() // until the connection ends
	return trace
}

// create creates a file and removes old ones to stay within the limit.
func (f *Folder) create(name string) (*os.File, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	old, err := filepath.Glob(filepath.Join(f.dir, "*"+extension))
	if err != nil {
		return nil, err
	}
	slices.Sort(old) // by time
	for i := 0; i <= len(old)-f.maxFiles; i++ {
		if err := os.Remove(old[i]); err != nil {
			return nil, err
		}
	}
	return os.OpenFile(filepath.Join(f.dir, name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o640)
}

// limitedFile stops writing after the record that reaches its limit.
type limitedFile struct {
	file   *os.File
	buffer *bufio.Writer
	left   int64
	full   bool
}

// Write implements io.Writer. It drops data beyond the limit without an error.
func (l *limitedFile) Write(p []byte) (int, error) {
	n := len(p)
	if l.full {
		return n, nil
	}
	if l.left <= 0 {
		// Complete the current record.
		if end := bytes.IndexByte(p, qlogwriter.RecordSeparator); end >= 0 {
			p, l.full = p[:end], true
		}
	}
	l.left -= int64(len(p))
	if _, err := l.buffer.Write(p); err != nil {
		return 0, err
	}
	return n, nil
}

// Close implements io.Closer.
func (l *limitedFile) Close() error {
	err := l.buffer.Flush()
	return cmp.Or(l.file.Close(), err)
}
