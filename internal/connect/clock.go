package connect

import (
	"context"
	"log/slog"
	"time"

	"holocast/internal/clock"
	"holocast/internal/moqt"
)

// FollowClock feeds the relay's clock stamps to an estimator until the session ends or ctx is done.
// heard, if not nil, is called after each stamp with the session's counters. FollowClock returns an
// error if the relay has no clock track.
func FollowClock(ctx context.Context, s *moqt.Session, e *clock.Estimator, heard func(moqt.Stats)) error {
	sub, err := s.Subscribe(ctx, clock.TrackName(), moqt.SubscribeOptions{})
	if err != nil {
		return err
	}
	defer sub.Cancel()
	for {
		d, err := sub.AcceptDatagram(ctx)
		arrived := time.Now()
		if err != nil {
			return nil
		}
		stamp, err := clock.ParseStamp(d.Payload)
		if err != nil {
			slog.Debug("ignored an invalid clock stamp", "err", err)
			continue
		}
		st := s.Stats()
		e.Observe(stamp, arrived, clock.RTT{Min: st.MinRTT, Smoothed: st.RTT})
		if heard != nil {
			heard(st)
		}
	}
}
