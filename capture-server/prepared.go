package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"holocast/capture-server/publish"
	"holocast/internal/catalog"
	"holocast/internal/connect"
	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/prepared"
	"holocast/internal/replay"
	"holocast/internal/service"
)

// preparedMedium publishes a folder of prepared 360° video (holocast prepare) as live media, for
// sessions with other sources. The video is paced and stamped as if captured now, at the same
// position for all viewers. A session whose only source is prepared video is a replay instead
// (replayPrepared).
type preparedMedium struct {
	replay *replay.Replayer
	listed *catalog.Catalog
	ended  atomic.Bool
}

var _ publish.Medium = (*preparedMedium)(nil)

// newPreparedMedium opens a folder. If loop is set the video restarts at its end; otherwise its
// tracks end.
func newPreparedMedium(session *publish.Publisher, dir string, loop bool) (*preparedMedium, error) {
	if !prepared.IsFolder(dir) {
		return nil, fmt.Errorf("tiles:%s is not a folder; create one from a video with holocast prepare", dir)
	}
	r, err := replay.Open(dir, replay.Config{
		Namespace: session.Namespace(), Live: true, Loop: loop, Source: prepared.OpenSource, Log: session.Log(),
		Into: &replay.Session{Add: session.AddTrack, Clock: session.RelayTime(), FirstGroup: publish.FirstGroup()},
	})
	if err != nil {
		return nil, err
	}
	m := &preparedMedium{replay: r}
	if m.listed, err = r.Catalog(); err != nil {
		return nil, err
	}
	session.Log().
		Info("prepared 360° video opened", "folder", dir, "length", r.Info.Duration().Round(time.Millisecond), "loop", loop)
	return m, nil
}

// Name implements publish.Medium.
func (m *preparedMedium) Name() string { return "film" }

// Close implements publish.Medium.
func (m *preparedMedium) Close() {}

// Describe implements publish.Medium.
func (m *preparedMedium) Describe(c *catalog.Catalog) error {
	if !m.ended.Load() {
		c.Tracks = append(c.Tracks, m.listed.Tracks...)
		c.InitDataList = append(c.InitDataList, m.listed.InitDataList...)
	}
	return nil
}

// Run implements publish.Medium.
func (m *preparedMedium) Run(ctx context.Context) error {
	err := m.replay.Run(ctx)
	m.ended.Store(true)
	if ctx.Err() != nil {
		return nil //nolint:nilerr // canceled, not failed
	}
	m.replay.End(wire.DoneTrackEnded, "the video has ended")
	return err
}

// prepared returns the folder if the only source is prepared video, otherwise "". A prepared video
// among other sources is live instead (preparedMedium).
func (c *Config) prepared() string {
	if len(c.Sources) != 1 {
		return ""
	}
	if spec, err := parseSource(c.Sources[0]); err == nil && spec.kind == "tiles" {
		return spec.arg
	}
	return ""
}

// replayPrepared publishes prepared video as a replay: one pace for all viewers, plus fetches for
// viewers that pause or seek (docs/spec/replay.md).
func replayPrepared(
	ctx context.Context,
	dir string,
	cfg *Config,
	target connect.Target,
	ns moqt.Namespace,
	web *service.HTTP,
	log *slog.Logger,
) error {
	if !prepared.IsFolder(dir) {
		return fmt.Errorf("tiles:%s is not a folder; create one from a video with holocast prepare", dir)
	}
	r, err := replay.Open(dir, replay.Config{Namespace: ns, Loop: cfg.Loop, Source: prepared.OpenSource, Log: log})
	if err != nil {
		return err
	}
	var connected atomic.Bool
	web.Handle("GET /healthz", service.Health(func() error {
		if !connected.Load() {
			return errNotConnected
		}
		return nil
	}))
	web.Start()
	log.Info("prepared 360° video opened", "folder", dir, "length", r.Info.Duration().Round(time.Millisecond))
	service.Ready(ctx, func() { connected.Load() })
	link, unlink := context.WithCancel(ctx)
	defer unlink()
	first, over := make(chan struct{}), make(chan struct{})
	var once sync.Once
	ended := make(chan error, 1)
	go func() {
		ended <- target.Keep(link, r.Handler(), moqt.Config{Log: log},
			func(ctx context.Context, s *moqt.Session) error {
				connected.Store(true)
				defer connected.Store(false)
				once.Do(func() { close(first) })
				return r.Serve(ctx, s, over)
			})
	}()
	select {
	case <-first:
	case err := <-ended:
		return err
	}
	played := make(chan error, 1)
	go func() {
		played <- r.Run(link)
		close(over)
	}()
	err = <-ended
	unlink()
	perr := <-played
	if ctx.Err() != nil {
		return nil
	}
	return errors.Join(err, perr)
}
