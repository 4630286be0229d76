package router

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/origin"
)

// fill marks the cache as filled for late joiners.
func (t *track) fill(filled chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closeFilled(filled)
}

// closeFilled closes a channel unless it is closed. The caller holds t.mu.
func (t *track) closeFilled(filled chan struct{}) {
	select {
	case <-filled:
	default:
		close(filled)
	}
}

// filling returns a channel that is closed once the cache holds the current group for late joiners,
// or once fetching it has failed.
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

// acquireForFetch acquires a track for a FETCH. If the FETCH must not wait (FILL_TIMEOUT 0, §10.2.5),
// it does not subscribe upstream, and returns context.DeadlineExceeded if the track has a publisher but
// neither objects nor an upstream subscription.
func (r *Router) acquireForFetch(ctx context.Context, req *moqt.FetchRequest) (*track, error) {
	if ms := req.Parameters.FillTimeout; ms == nil || *ms > 0 {
		return r.acquire(ctx, req.Track, 0)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if t := r.tracks[req.Track.String()]; t != nil {
		t.mu.Lock()
		subscribed := len(t.upstreams) > 0
		t.mu.Unlock()
		if _, some := t.Largest(); some || subscribed {
			return r.holdLocked(req.Track), nil
		}
	}
	if len(r.publishers(req.Track)) > 0 {
		return nil, context.DeadlineExceeded
	}
	return nil, notPublished(req.Track)
}

// fetchNewest fills the cache with the current group of sub.
func (t *track) fetchNewest(up Upstream, sub *moqt.Subscription) error {
	ctx, cancel := context.WithTimeout(sub.Session().Context(), 5*time.Second)
	defer cancel()
	fills := t.r.slotsOf(up).fills
	if err := acquireSlot(ctx, fills); err != nil {
		return err
	}
	defer func() { <-fills }()
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
	whole := true
	for {
		o, err := f.Next()
		if err == io.EOF {
			if whole {
				t.Missed(nil)
			}
			return nil
		}
		if err != nil {
			return err
		}
		if o.Range != wire.RangeNone {
			whole = whole && o.Range == wire.RangeNonExistent
			continue
		}
		payload, err := f.ReadPayload(nil, maxFetchedObject)
		if err != nil {
			return err
		}
		if o.Datagram {
			t.BackfillDatagram(fetchedDatagram(o, payload))
			continue
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

// Limits on objects fetched upstream. A viewer that reads a response slowly blocks a stream of the
// publisher's connection and part of its flow-control window, which live groups need too, so few
// such responses run at a time.
const (
	maxFetchedObject = 16 << 20
	maxFills         = 4  // per publisher, to fill the cache
	maxLost          = 16 // per publisher, to fetch lost datagrams
	maxOldFetches    = 2  // per publisher and per viewer, for groups older than the cache
)

// oldFetchWait limits how long a viewer waits for an upstream's slot to fetch old groups.
const oldFetchWait = 2 * time.Second

// slots are semaphores that limit one session's fetches.
type slots struct{ fills, lost, oldFrom, oldTo chan struct{} }

func newSlots() slots {
	return slots{
		fills: make(chan struct{}, maxFills), lost: make(chan struct{}, maxLost),
		oldFrom: make(chan struct{}, maxOldFetches), oldTo: make(chan struct{}, maxOldFetches),
	}
}

// slotsOf returns the slots of an upstream.
func (r *Router) slotsOf(up Upstream) slots {
	if p, ok := up.(peer); ok {
		return p.c.slots
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if d := r.dialled[up]; d != nil {
		return d.slots
	}
	return newSlots() // its offers have just been withdrawn
}

// acquireSlot waits for a free slot.
func acquireSlot(ctx context.Context, free chan struct{}) error {
	select {
	case free <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// source returns a function that fetches the part of a viewer's FETCH that is missing from the
// cache. Until a response is cancelled, it holds one slot of the upstream and one of the viewer.
func (c *client) source(up Upstream, s *moqt.Session, req *moqt.FetchRequest) origin.Source {
	to, from := c.slots.oldTo, c.r.slotsOf(up).oldFrom
	return func(
		ctx context.Context, start, end moqt.Location, order moqt.GroupOrder, timeout time.Duration,
	) (*origin.Response, error) {
		if err := acquireSlot(ctx, to); err != nil {
			return nil, err
		}
		turn, cancel := context.WithTimeout(ctx, oldFetchWait)
		err := acquireSlot(turn, from)
		cancel()
		if err != nil {
			<-to
			return nil, &moqt.RequestError{
				Code: wire.RequestExcessiveLoad, Reason: "too many concurrent fetches of old groups",
				RetryInterval: wire.RetryAfter(time.Second),
			}
		}
		f, err := s.Fetch(ctx, req.Track, start, end, moqt.FetchOptions{GroupOrder: order, FillTimeout: &timeout})
		if err != nil {
			<-from
			<-to
			return nil, err
		}
		p := &slotResponse{FetchReader: f, release: func() { <-from; <-to }}
		return &origin.Response{Objects: p, End: f.End, EndOfTrack: f.EndOfTrack, Properties: f.Properties}, nil
	}
}

// slotResponse is an upstream's response that holds slots.
type slotResponse struct {
	*moqt.FetchReader
	release func()
	once    sync.Once
}

// Cancel implements origin.ResponseReader.
func (p *slotResponse) Cancel() {
	p.FetchReader.Cancel()
	p.once.Do(p.release)
}
