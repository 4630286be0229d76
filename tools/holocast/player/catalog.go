package player

import (
	"context"
	"errors"
	"io"

	"holocast/internal/catalog"
	"holocast/internal/connect"
	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
)

// update is one version of the session's catalog. replayed reports whether the session is a replay.
type update struct {
	*catalog.Catalog
	replayed bool
}

// followCatalog sends every catalog of the session to updates until the track or the connection
// ends. It returns nil if the publisher ended the track.
func (p *Player) followCatalog(ctx context.Context, s *moqt.Session, updates chan<- update) error {
	name := moqt.TrackName{Namespace: p.cfg.Namespace, Name: catalog.TrackName}
	wait := p.cfg.Wait
	select {
	case <-p.joined: // played before, so the publisher is away, not unknown
		wait = true
	default:
	}
	for {
		sub, err := connect.Subscribe(ctx, s, name, 0, wait)
		if e := (*moqt.RequestError)(nil); errors.As(err, &e) && e.Code != wire.RequestGoingAway {
			return connect.Final(&connect.NoSessionError{Namespace: p.cfg.Namespace, Err: err})
		}
		if err != nil {
			return err
		}
		var reader catalog.Reader
		replayed, _ := sub.Properties.Int(connect.ReplayProperty)
		err = p.objects(ctx, sub, catalog.MaxSize, func(o wire.FetchObject, payload []byte) error {
			current, err := reader.Read(o.Group, payload, o.Properties, sub.Properties)
			if err != nil { // keep the last valid catalog
				p.log.Warn("ignored a catalog", "err", err)
				return nil
			}
			select {
			case updates <- update{current, replayed != 0}:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		sub.Cancel()
		if connect.Ended(err) {
			return nil
		}
		if !connect.Away(err) {
			return err
		}
		wait = true
	}
}

// followPoses applies the events of the pose track to the feeds.
func (p *Player) followPoses(ctx context.Context, s *moqt.Session, name moqt.TrackName) {
	sub, err := connect.Subscribe(ctx, s, name, 0, true)
	if err == nil {
		err = p.objects(ctx, sub, catalog.MaxSize, func(_ wire.FetchObject, payload []byte) error {
			events, err := catalog.ParsePoses(payload)
			for _, e := range events {
				for _, f := range p.all() {
					if f.camera == e.Data.Camera {
						f.move(e.Data.Pose)
					}
				}
			}
			if err != nil {
				p.log.Warn("ignored a pose event", "err", err)
			}
			return nil
		})
		sub.Cancel()
	}
	if ctx.Err() == nil && !connect.Ended(err) && s.Err() == nil {
		p.log.Warn("pose track ended", "err", err)
	}
}

// objects reads a track of small objects in order and passes each object to use once. It fetches
// the newest group first.
func (p *Player) objects(
	ctx context.Context, sub *moqt.Subscription, limit int, use func(o wire.FetchObject, payload []byte) error,
) error {
	var newest moqt.Location
	var some bool
	take := func(o wire.FetchObject, payload []byte) error {
		l := moqt.Location{Group: o.Group, Object: o.Object}
		if some && !newest.Less(l) {
			return nil
		}
		newest, some = l, true
		return use(o, payload)
	}
	err := fetch(ctx, sub, limit, take)
	if e := (*moqt.RequestError)(nil); errors.As(err, &e) {
		p.log.Debug("could not fetch the newest group", "track", sub.Track().String(), "err", err)
	} else if err != nil {
		return err
	}
	for {
		r, err := sub.AcceptSubgroup(ctx)
		if err != nil {
			return err
		}
		stop := context.AfterFunc(ctx, func() { r.Cancel(wire.StreamCancelled) }) // the publisher may keep the group open
		for {
			o, err := r.NextObject()
			var payload []byte
			if err == nil && o.PayloadLength > uint64(limit) {
				p.log.Warn("ignored large object", "track", sub.Track().String(), "bytes", o.PayloadLength, "limit", limit)
				r.Cancel(wire.StreamCancelled)
				break
			}
			if err == nil && o.Status == wire.StatusNormal {
				if payload, err = r.ReadPayload(nil, limit); err == nil {
					err = take(wire.FetchObject{Group: r.Group, Object: o.ID, Properties: o.Properties}, payload)
				}
			}
			if err == nil {
				continue
			}
			stop()
			r.Cancel(wire.StreamCancelled)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if e := (*moqt.StreamError)(nil); err == io.EOF || errors.As(err, &e) {
				break
			}
			return err
		}
	}
}

// fetch reads the past objects of the group in which a subscription began. A relay may answer a
// track's first SUBSCRIBE before its publisher does (moq-relay-ietf) and then does not know that
// group. In that case fetch requests all groups the publisher keeps.
func fetch(ctx context.Context, sub *moqt.Subscription, limit int, use func(wire.FetchObject, []byte) error) error {
	var f *moqt.FetchReader
	var err error
	if sub.Largest != nil {
		f, err = sub.Joined(ctx)
	} else {
		f, err = sub.Session().Fetch(ctx, sub.Track(), moqt.Location{}, moqt.Location{Group: 1 << 60}, moqt.FetchOptions{})
	}
	if err != nil {
		return err
	}
	if err = f.Each(ctx, limit, use); errors.Is(err, moqt.ErrObjectTooLarge) {
		return nil // objects after it are unusable
	}
	return err
}
