// Package film is the medium of 360° video that is encoded already, a folder that holocast
// prepare wrote, beside other media of a session. What is beside it is live, so the film is,
// too: it is published at its own pace, as if it were captured now, for all viewers alike. It
// begins again at its end, or leaves the session; nobody pauses it, since nobody could pause
// what is in front of it. Alone in its session prepared video is a replay (internal/replay).
package film

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"holocast/capture-server/publish"
	"holocast/internal/catalog"
	"holocast/internal/moqt/wire"
	"holocast/internal/prepared"
	"holocast/internal/replay"
)

// Medium is the film of a session.
type Medium struct {
	replay *replay.Replayer
	listed *catalog.Catalog
	ended  atomic.Bool
}

var _ publish.Medium = (*Medium)(nil)

// New makes the medium of a folder. With loop the film begins again where it ends.
func New(session *publish.Publisher, dir string, loop bool) (*Medium, error) {
	if !prepared.IsFolder(dir) {
		return nil, fmt.Errorf("tiles:%s is no folder; holocast prepare makes one of a film", dir)
	}
	r, err := replay.Open(dir, replay.Config{
		Namespace: session.Namespace(), Live: true, Loop: loop, Log: session.Log(),
		Into: &replay.Session{Add: session.AddTrack, Clock: session.RelayTime(), FirstGroup: publish.FirstGroup()},
	})
	if err != nil {
		return nil, err
	}
	m := &Medium{replay: r}
	if m.listed, err = r.Catalog(); err != nil {
		return nil, err
	}
	session.Log().Info("prepared 360° video", "folder", dir, "length", r.Info.Duration().Round(time.Millisecond), "loop", loop)
	return m, nil
}

// Name implements publish.Medium.
func (m *Medium) Name() string { return "film" }

// Close implements publish.Medium.
func (m *Medium) Close() {}

// Describe implements publish.Medium.
func (m *Medium) Describe(c *catalog.Catalog) error {
	if !m.ended.Load() {
		c.Tracks = append(c.Tracks, m.listed.Tracks...)
		c.InitDataList = append(c.InitDataList, m.listed.InitDataList...)
	}
	return nil
}

// Run implements publish.Medium.
func (m *Medium) Run(ctx context.Context) error {
	err := m.replay.Run(ctx)
	m.ended.Store(true)
	if ctx.Err() != nil {
		return nil //nolint:nilerr // ctx ended it, it did not fail
	}
	m.replay.End(wire.DoneTrackEnded, "the film is over")
	return err
}
