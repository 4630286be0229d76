package main

import (
	"context"
	"io"
	"log/slog"

	"holocast/internal/catalog"
	"holocast/internal/connect"
	"holocast/internal/moqt"
)

// watch subscribes to the session's frames and discards them until ctx is done. It loads the relay
// as a viewer does but uses little CPU time itself.
func watch(ctx context.Context, url string) error {
	target := connect.Target{URL: url}
	ns, err := target.Namespace()
	if err != nil {
		return err
	}
	err = target.Keep(ctx, moqt.Handler{}, moqt.Config{}, func(ctx context.Context, s *moqt.Session) error {
		track := moqt.TrackName{Namespace: ns, Name: catalog.PointsTrack(0, "full")}
		sub, err := s.Subscribe(ctx, track, moqt.SubscribeOptions{})
		if err != nil {
			return err
		}
		slog.Info("watching", "session", url)
		for {
			r, err := sub.AcceptSubgroup(ctx)
			if err != nil {
				return err
			}
			go discard(r)
		}
	})
	if ctx.Err() != nil {
		return nil //nolint:nilerr // stopped by a signal
	}
	return err
}

func discard(r *moqt.SubgroupReader) {
	buf := make([]byte, 64<<10)
	for {
		if _, err := r.ReadRaw(buf); err != nil {
			if err != io.EOF {
				slog.Debug("cannot read a subgroup", "err", err)
			}
			return
		}
	}
}
