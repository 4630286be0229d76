package router

import (
	"context"
	"errors"
	"io"
	"time"

	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/origin"
)

// fill marks the cache as filled as far as it will be for late joiners.
func (t *track) fill(filled chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closeFilled(filled)
}

// closeFilled closes a channel unless that is done. t.mu is held.
func (t *track) closeFilled(filled chan struct{}) {
	select {
	case <-filled:
	default:
		close(filled)
	}
}

// filling is closed when what a late joiner needs now is in the cache, or will not be.
func (t *track) filling() chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.filled
}

func (t *track) awaitFill(ctx context.Context) {
	select {
	case <-t.filling():
	case <-ctx.Done():
	}
}

// fetchNewest fills the cache with the current group of sub.
func (t *track) fetchNewest(sub *moqt.Subscription) error {
	ctx, cancel := context.WithTimeout(sub.Session().Context(), 5*time.Second)
	defer cancel()
	if err := t.r.claimBuffer(ctx); err != nil {
		return err
	}
	defer t.r.returnBuffer()
	f, err := sub.Joined(ctx)
	if err != nil {
		return err
	}
	defer f.Cancel()
	feeds := map[uint64]*origin.Feed{}
	defer func() {
		for _, feed := range feeds {
			_ = feed.Close()
		}
	}()
	for {
		o, err := f.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if o.Range != wire.RangeNone {
			continue
		}
		payload, err := f.ReadPayload(nil, maxFetchedObject)
		if err != nil {
			return err
		}
		if o.Datagram {
			continue // of no use to one who was not there
		}
		feed := feeds[o.Subgroup]
		if feed == nil {
			feed, err = t.Backfill(wire.SubgroupHeader{
				Group: o.Group, Subgroup: o.Subgroup, Mode: wire.SubgroupIDExplicit,
				Priority: o.Priority, HasProperties: true,
			})
			if errors.Is(err, origin.ErrDuplicate) {
				continue
			}
			if err != nil {
				return err
			}
			feeds[o.Subgroup] = feed
		}
		if err := feed.WriteObject(moqt.Object{ID: o.Object, Properties: o.Properties}, payload); err != nil {
			return err
		}
	}
}

// Bounds of what is held of objects that are fetched upstream: bytes of one, and
// how many at a time.
const (
	maxFetchedObject = 16 << 20
	maxFetchBuffers  = 16
)

// claimBuffer waits for one of the fetch buffers; returnBuffer returns it.
func (r *Router) claimBuffer(ctx context.Context) error {
	select {
	case r.buffers <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (r *Router) returnBuffer() { <-r.buffers }

// pipeFetch answers a FETCH with an upstream's response.
func (r *Router) pipeFetch(up *moqt.Session, req *moqt.FetchRequest) error {
	if err := r.claimBuffer(req.Context()); err != nil {
		return errors.Join(err, req.RejectWith(err))
	}
	defer r.returnBuffer()
	f, err := up.Fetch(req.Context(), req.Track, req.Start, req.End, moqt.FetchOptions{GroupOrder: req.Order})
	if err != nil {
		return errors.Join(err, req.RejectWith(err))
	}
	defer f.Cancel()
	w, err := req.Accept(f.End, f.EndOfTrack, f.Properties)
	if err != nil {
		return err
	}
	var buf []byte
	for {
		o, err := f.Next()
		if err == io.EOF {
			return w.Close()
		}
		if err == nil && o.Range == wire.RangeNone {
			buf, err = f.ReadPayload(buf, maxFetchedObject)
		}
		if err == nil {
			err = w.WriteObject(o, buf[:o.PayloadLength])
		}
		if err != nil {
			w.Reset(wire.StreamUnknownObjectStatus)
			return err
		}
	}
}
