// Package tickets limits early data (0-RTT) of resumed TLS sessions, which attackers can replay: a ticket
// allows it once, and only for Window after its issue (RFC 8446 §8.1).
package tickets

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"sync"
	"time"
)

const (
	// Window is how long after its issue a ticket allows early data.
	Window = time.Hour
	// maxUsed bounds the used tickets that are remembered per Window. Beyond it, tickets allow no early
	// data.
	maxUsed = 1 << 17
)

// issuedKey precedes the time of issue in a ticket.
var issuedKey = []byte("holocast issued ")

// guard remembers used tickets.
type guard struct {
	began time.Time

	mu       sync.Mutex
	since    time.Time // when used[0] began
	used     [2]map[[16]byte]struct{}
	capacity int
}

// Limit makes sessions of c carry early data once per ticket. Tickets of earlier processes with the same
// keys allow resumption, but no early data, because this process does not know which of them were used.
// Call it after SetSessionTicketKeys.
func Limit(c *tls.Config) {
	g := newGuard(time.Now())
	keys := c.Clone() // without the functions below
	c.WrapSession = func(cs tls.ConnectionState, s *tls.SessionState) ([]byte, error) {
		now := uint64(time.Now().UnixMilli())
		s.Extra = append(s.Extra, binary.BigEndian.AppendUint64(bytes.Clone(issuedKey), now))
		return keys.EncryptTicket(cs, s)
	}
	c.UnwrapSession = func(ticket []byte, cs tls.ConnectionState) (*tls.SessionState, error) {
		s, err := keys.DecryptTicket(ticket, cs)
		if s != nil && s.EarlyData {
			s.EarlyData = g.first(ticket, issued(s), time.Now())
		}
		return s, err
	}
}

// issued returns the time in a ticket, or the zero time.
func issued(s *tls.SessionState) time.Time {
	for _, extra := range s.Extra {
		if text, ok := bytes.CutPrefix(extra, issuedKey); ok && len(text) == 8 {
			return time.UnixMilli(int64(binary.BigEndian.Uint64(text)))
		}
	}
	return time.Time{}
}

func newGuard(now time.Time) *guard {
	return &guard{began: now.Truncate(time.Millisecond), since: now, capacity: maxUsed}
}

// first reports whether this is the first use of a ticket, and records it.
func (g *guard) first(ticket []byte, issued, now time.Time) bool {
	if issued.Before(g.began) || now.Sub(issued) > Window {
		return false
	}
	sum := sha256.Sum256(ticket)
	key := [16]byte(sum[:16])
	g.mu.Lock()
	defer g.mu.Unlock()
	if passed := now.Sub(g.since); passed > Window {
		g.used[1] = g.used[0]
		if passed > 2*Window {
			g.used[1] = nil
		}
		g.used[0], g.since = nil, now
	}
	for _, used := range g.used {
		if _, ok := used[key]; ok {
			return false
		}
	}
	if len(g.used[0]) >= g.capacity {
		return false
	}
	if g.used[0] == nil {
		g.used[0] = map[[16]byte]struct{}{}
	}
	g.used[0][key] = struct{}{}
	return true
}
