package rest

import (
	"net/http"
	"net/netip"
	"sync"
	"time"
)

// Rate is how often an address may call.
type Rate struct {
	PerSecond float64 // in the long run; 0 = without limit
	Burst     int     // at once
}

// failures is how often an address may present a wrong token.
var failures = Rate{PerSecond: 2, Burst: 20}

// bucketKey says whose a token bucket is.
type bucketKey struct {
	from netip.Addr // the zero address for an edge that is known by its credential
	Caller
}

func keyOf(c Caller, r *http.Request) bucketKey {
	if c.Edge != "" {
		return bucketKey{Caller: c}
	}
	return bucketKey{address(r), c}
}

// limiter holds a token bucket for each caller.
type limiter struct {
	rate Rate

	mu      sync.Mutex
	buckets map[bucketKey]*bucket
}

type bucket struct {
	left float64
	at   time.Time
}

// maxBuckets bounds the memory; beyond it full buckets are dropped, which changes
// nothing for theirs, and if there is none, all.
const maxBuckets = 8192

func newLimiter(r Rate) *limiter { return &limiter{rate: r, buckets: map[bucketKey]*bucket{}} }

// allow takes a token from the bucket of a, and reports whether there was one.
func (l *limiter) allow(a bucketKey, now time.Time) bool {
	if l.rate.PerSecond <= 0 {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.buckets[a]
	if b == nil {
		if len(l.buckets) >= maxBuckets {
			l.prune(now)
		}
		b = &bucket{left: float64(l.rate.Burst), at: now}
		l.buckets[a] = b
	}
	b.left = min(float64(l.rate.Burst), b.left+now.Sub(b.at).Seconds()*l.rate.PerSecond)
	b.at = now
	if b.left < 1 {
		return false
	}
	b.left--
	return true
}

func (l *limiter) prune(now time.Time) {
	full := time.Duration(float64(l.rate.Burst) / l.rate.PerSecond * float64(time.Second))
	for a, b := range l.buckets {
		if now.Sub(b.at) >= full {
			delete(l.buckets, a)
		}
	}
	if len(l.buckets) >= maxBuckets {
		clear(l.buckets)
	}
}
