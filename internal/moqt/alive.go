package moqt

import (
	"context"
	"time"

	"holocast/internal/moqt/wire"
)

// receiveDelay bounds the time from a packet's arrival until BytesReceived includes it.
const receiveDelay = 20 * time.Millisecond

// Probe sends padding (§11.5.1), which every peer acknowledges. It gives up after limit.
func (s *Session) Probe(limit time.Duration) {
	str, err := s.conn.openUni()
	if err != nil { // at the peer's stream limit; its keep-alive has to do
		return
	}
	_ = str.SetWriteDeadline(time.Now().Add(limit))
	_, _ = str.Write(wire.Padding{}.Append(nil))
	_ = str.Close()
}

// Alive probes the peer. It returns true once data arrives that was not already in flight, and false
// after limit, when ctx is done or when the session ends.
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
	before := s.Received()
	s.Probe(limit)
	for s.Received() == before {
		if !sleep(receiveDelay / 2) {
			return false
		}
	}
	return sleep(receiveDelay) // true unless the data was the peer's CONNECTION_CLOSE
}

// Received returns the number of bytes received: of UDP payload, or of records over TCP.
func (s *Session) Received() uint64 {
	var st Stats
	s.conn.measure(&st)
	return st.BytesReceived
}
