// Package qmuxtest emulates a TCP connection in memory, in the virtual time of a testing/synctest bubble.
package qmuxtest

import (
	"bytes"
	"io"
	"net"
	"sync"
	"time"
)

// Pipe is an end of a link (qmux.Link).
type Pipe struct {
	// Rate is the bottleneck's rate in this end's direction, in bytes per second; 0 means unlimited.
	Rate  float64
	delay time.Duration
	out   chan sentRecord
	in    <-chan sentRecord
	free  time.Time // when the bottleneck is free
	once  *sync.Once
	done  chan struct{}
}

type sentRecord struct {
	b  []byte
	at time.Time // of its arrival
}

// maxUnsent is the socket's bound on unsent bytes.
const maxUnsent = 16 << 10

// New returns both ends of a link. In both directions records pass a bottleneck of rate bytes per
// second and arrive delay later. Like a socket with TCP_NOTSENT_LOWAT, Send returns once at most 16 kiB
// wait for the bottleneck.
func New(rate float64, delay time.Duration) (a, b *Pipe) {
	ab, ba := make(chan sentRecord, 1<<14), make(chan sentRecord, 1<<14)
	done, once := make(chan struct{}), new(sync.Once)
	a = &Pipe{Rate: rate, delay: delay, out: ab, in: ba, once: once, done: done}
	b = &Pipe{Rate: rate, delay: delay, out: ba, in: ab, once: once, done: done}
	return a, b
}

// Send implements qmux.Link.
func (p *Pipe) Send(record []byte) error {
	now := time.Now()
	if p.free.Before(now) {
		p.free = now
	}
	if p.Rate > 0 {
		p.free = p.free.Add(time.Duration(float64(len(record)) / p.Rate * float64(time.Second)))
	}
	select {
	case p.out <- sentRecord{bytes.Clone(record), p.free.Add(p.delay)}:
	case <-p.done:
		return net.ErrClosed
	}
	if p.Rate > 0 {
		backlog := time.Duration(maxUnsent / p.Rate * float64(time.Second))
		if wait := time.Until(p.free) - backlog; wait > 0 {
			t := time.NewTimer(wait)
			defer t.Stop()
			select {
			case <-t.C:
			case <-p.done:
			}
		}
	}
	return nil
}

// Receive implements qmux.Link.
func (p *Pipe) Receive() ([]byte, error) {
	var r sentRecord
	select {
	case r = <-p.in:
	case <-p.done:
		select {
		case r = <-p.in: // sent before the link ended
		default:
			return nil, io.EOF
		}
	}
	t := time.NewTimer(time.Until(r.at))
	defer t.Stop()
	select {
	case <-t.C:
	case <-p.done:
	}
	return r.b, nil
}

// Done is closed when the link ends.
func (p *Pipe) Done() <-chan struct{} { return p.done }

// Close implements qmux.Link.
func (p *Pipe) Close() { p.once.Do(func() { close(p.done) }) }

// Abort implements qmux.Link.
func (p *Pipe) Abort() { p.Close() }

// LocalAddr implements qmux.Link.
func (p *Pipe) LocalAddr() net.Addr { return &net.TCPAddr{} }

// RemoteAddr implements qmux.Link.
func (p *Pipe) RemoteAddr() net.Addr { return &net.TCPAddr{} }
