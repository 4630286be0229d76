// Package logqueue keeps programs running while nothing reads their log.
package logqueue

import (
	"io"
	"log/slog"
	"os"
	"sync"
	"time"
)

// maxBytes bounds the records waiting in a Queue.
const maxBytes = 1 << 20

// Stderr writes to standard error. All of a program's logs go through it.
var Stderr = New(os.Stderr)

// Queue is a writer that never blocks: it queues records, and drops them while the queue is full.
// When there is room again, it logs the number dropped to the default logger. It is safe for
// concurrent use.
type Queue struct {
	w io.Writer

	mu        sync.Mutex
	records   [][]byte
	bytes     int           // bytes of records, including the one being written
	done      chan struct{} // closed when everything is written; nil if nothing is queued
	full      dropped       // because the queue was full
	unwritten dropped       // because writing failed
	err       error         // of the last write that failed
}

// dropped counts records dropped for one reason.
type dropped struct{ total, reported uint64 }

// unreported returns the number of records to log and counts them as logged.
func (d *dropped) unreported() uint64 {
	n := d.total - d.reported
	d.reported = d.total
	return n
}

// New returns a queue for w.
func New(w io.Writer) *Queue { return &Queue{w: w} }

// Write queues a record of one or more lines. It never fails.
func (q *Queue) Write(record []byte) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.bytes+len(record) > maxBytes {
		q.full.total++
		return len(record), nil
	}
	q.records = append(q.records, append([]byte(nil), record...))
	q.bytes += len(record)
	if q.done == nil {
		q.done = make(chan struct{})
		go q.drain()
	}
	return len(record), nil
}

// drain writes the queued records.
func (q *Queue) drain() {
	for {
		q.mu.Lock()
		if len(q.records) == 0 {
			close(q.done)
			q.done, q.records = nil, nil
			q.mu.Unlock()
			return
		}
		record := q.records[0]
		q.records = q.records[1:]
		q.mu.Unlock()

		_, err := q.w.Write(record)

		q.mu.Lock()
		q.bytes -= len(record)
		var full, unwritten uint64
		if err != nil {
			q.unwritten.total++
			q.err = err
		} else if q.bytes <= maxBytes/2 {
			full, unwritten = q.full.unreported(), q.unwritten.unreported()
		}
		err = q.err
		q.mu.Unlock()
		if full > 0 {
			slog.Warn("log records dropped: the log is read too slowly", "records", full)
		}
		if unwritten > 0 {
			slog.Warn("log records dropped: writing the log failed", "records", unwritten, "err", err)
		}
	}
}

// Flush waits until all records are written, but no longer than limit.
func (q *Queue) Flush(limit time.Duration) {
	q.mu.Lock()
	done := q.done
	q.mu.Unlock()
	if done == nil {
		return
	}
	select {
	case <-done:
	case <-time.After(limit):
	}
}

// Dropped returns the number of records dropped so far.
func (q *Queue) Dropped() uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.full.total + q.unwritten.total
}
