package moqt

import (
	"context"
	"time"

	"holocast/internal/moqt/wire"
)

// Alive asks the peer for a sign of life: it sends padding (§11.5.1), which any peer
// acknowledges. It returns true as soon as anything arrives, false after limit or when the
// session ends. What was under way when it was called counts, too.
func (s *Session) Alive(ctx context.Context, limit time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	received := func() uint64 { return s.conn.quic().ConnectionStats().BytesReceived }
	before := received()
	if str, err := s.conn.openUni(); err == nil { // else the peer's keep-alive has to do
		_ = str.SetWriteDeadline(time.Now().Add(limit))
		_, _ = str.Write(wire.Padding{}.Append(nil))
		_ = str.Close()
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if received() > before {
				return true
			}
		case <-s.ctx.Done():
			return false
		case <-ctx.Done():
			return false
		}
	}
}
