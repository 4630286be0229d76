package rest

import (
	"net/http"
	"net/netip"
	"sync"
	"time"
)

// Rate limits the calls of one caller, which is an address or an edge with its own credential.
type Rate struct {
	PerSecond float64 // sustained; 0 = unlimited
	Burst     int     // maximum burst
}

// failures limits the calls without a valid credential, per address.
var failures = Rate{PerSecond: 2, Burst: 20}

// bucketKey identifies the owner of a token bucket.
type bucketKey struct {
	from netip.Addr // the zero address for an edge with its own credential
	Caller
}

func keyOf(c Caller, r *http.Request) bucketKey {
	if c.Edge != "" {
		return bucketKey{Caller: c}
	}
	return bucketKey{address(r), c}
}

// limiter holds a token bucket per caller.
type limiter struct {
	rate Rate

	mu      sync.Mutex
	buckets map[bucketKey]*bucket
}

type bucket struct {
	left float64
	at   time.Time
}

// maxBuckets bounds memory. When it is exceeded, full buckets are dropped, which does not affect their
// owners, or all buckets if none is full.
const maxBuckets = 8192

func newLimiter(r Rate) *limiter { return &limiter{rate: r, buckets: map[bucketKey]*bucket{}} }

// allow takes a token from bucket a and reports whether there was one.
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
