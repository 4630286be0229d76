package moqt

import (
	"context"
	"time"

	"holocast/internal/moqt/wire"
)

// receiveDelay bounds the time from a packet's arrival until BytesReceived includes it.
const receiveDelay = 20 * time.Millisecond

// Alive probes the peer with padding (§11.5.1), which every peer acknowledges. It returns true once
// data arrives that was not already in flight, and false after limit, when ctx is done or when the
// session ends.
func (s *Session) Alive(ctx context.Context, limit time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	sleep := func(d time.Duration) bool {
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
	if !sleep(min(s.RTT(), limit/4) + receiveDelay) {
		return false
	}
	before := s.received()
	if str, err := s.conn.openUni(); err == nil { // otherwise rely on the peer's keep-alive
		_ = str.SetWriteDeadline(time.Now().Add(limit))
		_, _ = str.Write(wire.Padding{}.Append(nil))
		_ = str.Close()
	}
	for s.received() == before {
		if !sleep(receiveDelay / 2) {
			return false
		}
	}
	return sleep(receiveDelay) // true unless the data was the peer's CONNECTION_CLOSE
}

// received returns the number of bytes received, counted as UDP payload, or of records over TCP.
func (s *Session) received() uint64 {
	var st Stats
	s.conn.measure(&st)
	return st.BytesReceived
}
