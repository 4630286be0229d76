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

// update is a catalog of the session, and whether that is a replay.
type update struct {
	*catalog.Catalog
	replayed bool
}

// followCatalog sends every catalog of the session to updates until the track or
// the connection ends. nil means that the publisher ended it.
func (p *Player) followCatalog(ctx context.Context, s *moqt.Session, updates chan<- update) error {
	name := moqt.TrackName{Namespace: p.cfg.Namespace, Name: catalog.TrackName}
	wait := p.cfg.Wait
	select {
	case <-p.joined: // it was there: it is away, not unknown
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
			current, err := reader.Read(payload, o.Properties, sub.Properties)
			if err != nil { // another one may follow; until then the last that was understood holds
				p.log.Warn("catalog ignored: it cannot be read", "err", err)
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

// followPoses applies the pose track's events.
func (p *Player) followPoses(ctx context.Context, s *moqt.Session, name moqt.TrackName) {
	sub, err := connect.Subscribe(ctx, s, name, 0, true)
	if err == nil {
		err = p.objects(ctx, sub, catalog.MaxSize, func(_ wire.FetchObject, payload []byte) error {
			events, err := catalog.ParsePoses(payload)
			for _, e := range events {
				p.mu.Lock()
				f := p.feeds[e.Data.Camera]
				p.mu.Unlock()
				if f != nil {
					f.move(e.Data.Pose)
				}
			}
			if err != nil {
				p.log.Warn("poses ignored: they cannot be read", "err", err)
			}
			return nil
		})
		sub.Cancel()
	}
	if ctx.Err() == nil && !connect.Ended(err) && s.Err() == nil {
		p.log.Warn("pose track ended", "err", err)
	}
}

// objects reads a track of small objects in order, first the newest group by
// FETCH: one group after the other, each object once.
func (p *Player) objects(ctx context.Context, sub *moqt.Subscription, limit int, use func(o wire.FetchObject, payload []byte) error) error {
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
		p.log.Debug("the newest group cannot be fetched", "track", sub.Track().String(), "err", err)
	} else if err != nil {
		return err
	}
	for {
		r, err := sub.AcceptSubgroup(ctx)
		if err != nil {
			return err
		}
		stop := context.AfterFunc(ctx, func() { r.Cancel(wire.StreamCancelled) }) // a publisher may keep the group open
		for {
			o, err := r.NextObject()
			var payload []byte
			if err == nil && o.PayloadLength > uint64(limit) {
				p.log.Warn("object ignored: it is too long", "track", sub.Track().String(), "bytes", o.PayloadLength, "limit", limit)
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

// fetch reads the group that a subscription began in, as far as it is the past. A
// relay may answer a track's first SUBSCRIBE before its publisher did (moq-relay-ietf
// does) and not know what that group is: then all that the publisher keeps is asked
// for.
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
		return nil // nothing that can be used is behind it
	}
	return err
}
