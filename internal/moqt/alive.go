package moqt

import (
	"context"
	"time"

	"holocast/internal/moqt/wire"
)

// settle is how long what a peer sent takes to become known here, at most.
const settle = 20 * time.Millisecond

// Alive asks the peer for a sign of life: it sends padding (§11.5.1), which any peer
// acknowledges. It returns true as soon as something arrives that was not under way when
// it was called, and false after limit or when the session ends.
func (s *Session) Alive(ctx context.Context, limit time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	lasts := func(d time.Duration) bool {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
			return true
		case <-s.ctx.Done():
		case <-ctx.Done():
		}
		return false
	}
	q := s.conn.quic()
	if !lasts(min(q.ConnectionStats().SmoothedRTT, limit/4) + settle) {
		return false
	}
	before := q.ConnectionStats().BytesReceived
	if str, err := s.conn.openUni(); err == nil { // else the peer's keep-alive has to do
		_ = str.SetWriteDeadline(time.Now().Add(limit))
		_, _ = str.Write(wire.Padding{}.Append(nil))
		_ = str.Close()
	}
	for q.ConnectionStats().BytesReceived == before {
		if !lasts(settle / 2) {
			return false
		}
	}
	return lasts(settle) // what arrived was not the peer's farewell
}
