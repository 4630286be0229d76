package moqt

import (
	"net"
	"sync"
	"time"
)

// connectRate measures the rate of connection attempts with a bucket that each attempt fills and
// that drains at limit per second.
type connectRate struct {
	limit int // per second; 0 = unlimited

	mu      sync.Mutex
	level   float64
	updated time.Time
}

// verify counts a connection attempt and reports whether the client must validate its address.
func (c *connectRate) verify(net.Addr) bool { return c.limit > 0 && c.add(time.Now()) }

// add counts an attempt and reports whether the bucket exceeds one second's attempts.
func (c *connectRate) add(now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	limit := float64(c.limit)
	drained := max(0, now.Sub(c.updated).Seconds()) * limit
	c.level = min(max(0, c.level-drained)+1, 2*limit)
	c.updated = now
	return c.level > limit
}
