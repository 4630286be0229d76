// Package crew runs functions on goroutines that it keeps for the next ones.
package crew

import (
	"sync"
	"sync/atomic"
)

// kept is how many goroutines wait for work at most.
const kept = 4

// Crew runs functions, each on a goroutine, as a go statement does; but one that has run its
// function waits for another. A new goroutine has a small stack, which is copied
// each time it has to grow: what runs for each frame and is deep does so for each frame.
type Crew struct {
	next chan func()
	over chan struct{}
	idle atomic.Int32
	wg   sync.WaitGroup
	once sync.Once
}

// New returns a crew, which its owner closes.
func New() *Crew { return &Crew{next: make(chan func()), over: make(chan struct{})} }

// Go runs f on a goroutine.
func (c *Crew) Go(f func()) {
	select {
	case c.next <- f:
	default:
		c.wg.Go(func() { c.work(f) })
	}
}

func (c *Crew) work(f func()) {
	for {
		f()
		if c.idle.Add(1) > kept {
			c.idle.Add(-1)
			return
		}
		select {
		case f = <-c.next:
			c.idle.Add(-1)
		case <-c.over:
			return
		}
	}
}

// Close lets go of the goroutines that wait; others run to their ends.
func (c *Crew) Close() { c.once.Do(func() { close(c.over) }) }

// Wait closes the crew and waits until all functions have returned. Go must not be called
// meanwhile.
func (c *Crew) Wait() {
	c.Close()
	c.wg.Wait()
}
