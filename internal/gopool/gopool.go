// Package gopool runs functions on reusable goroutines.
package gopool

import (
	"sync"
	"sync/atomic"
)

// maxIdle limits the number of idle goroutines.
const maxIdle = 4

// Pool runs functions on goroutines like the go statement, but reuses goroutines. A new goroutine
// has a small stack, which is copied each time it grows; reuse avoids that for deep calls made for
// every frame.
type Pool struct {
	next chan func()
	over chan struct{}
	idle atomic.Int32
	wg   sync.WaitGroup
	once sync.Once
}

// New returns a pool. Its owner must close it.
func New() *Pool { return &Pool{next: make(chan func()), over: make(chan struct{})} }

// Go runs f on a goroutine.
func (p *Pool) Go(f func()) {
	select {
	case p.next <- f:
	default:
		p.wg.Go(func() { p.work(f) })
	}
}

func (p *Pool) work(f func()) {
	for {
		f()
		if p.idle.Add(1) > maxIdle {
			p.idle.Add(-1)
			return
		}
		select {
		case f = <-p.next:
			p.idle.Add(-1)
		case <-p.over:
			return
		}
	}
}

// Close ends idle goroutines. Busy goroutines end when their function returns.
func (p *Pool) Close() { p.once.Do(func() { close(p.over) }) }

// Wait closes the pool and waits until all functions have returned. Do not call Go while it waits.
func (p *Pool) Wait() {
	p.Close()
	p.wg.Wait()
}
