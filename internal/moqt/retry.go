package moqt

import (
	"net"
	"sync"
	"time"
)

// connects tells whether more connections are attempted than usual: a bucket that each
// attempt fills and that drains at limit a second.
type connects struct {
	limit int // 0 = none

	mu    sync.Mutex
	level float64
	at    time.Time
}

// verify reports whether the next client has to prove its address first.
func (c *connects) verify(net.Addr) bool { return c.limit > 0 && c.add(time.Now()) }

// add counts an attempt; true when the bucket holds more than those of a second.
func (c *connects) add(now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	limit := float64(c.limit)
	drained := max(0, now.Sub(c.at).Seconds()) * limit
	c.level = min(max(0, c.level-drained)+1, 2*limit)
	c.at = now
	return c.level > limit
}
