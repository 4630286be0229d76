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

// acquireForFetch is acquire for a FETCH. Where that may not wait (FILL_TIMEOUT 0, §10.2.5), the
// track is what is here of it, and the error of ctx when nothing is and somebody publishes it.
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
			return r.find(req.Track), nil
		}
	}
	if len(r.publishers(req.Track)) > 0 {
		return nil, context.DeadlineExceeded
	}
	return nil, &moqt.RequestError{Code: wire.RequestDoesNotExist, Reason: "nobody publishes " + req.Track.String()}
}

// fetchNewest fills the cache with the current group of sub.
func (t *track) fetchNewest(sub *moqt.Subscription) error {
	ctx, cancel := context.WithTimeout(sub.Session().Context(), 5*time.Second)
	defer cancel()
	fills := t.r.slots(sub.Session()).fills
	if err := claim(ctx, fills); err != nil {
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
			whole = whole && o.Range != wire.RangeUnknown
			continue
		}
		payload, err := f.ReadPayload(nil, maxFetchedObject)
		if err != nil {
			return err
		}
		if o.Datagram {
			t.BackfillDatagram(moqt.Datagram{Group: o.Group, Object: o.Object, Priority: o.Priority, Properties: o.Properties, Payload: payload})
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

// Bounds of what is held of objects that are fetched upstream: bytes of one, and how many
// at a time. What a viewer does not take of a pipe waits in the publisher's connection,
// whose window has room for few streams that do: live groups must still come through.
const (
	maxFetchedObject = 16 << 20
	maxFills         = 4  // from one publisher, to fill the cache
	maxLost          = 16 // from one publisher, of datagrams that were lost
	maxPipes         = 2  // of what is older than the cache, from one publisher and to one viewer
)

// pipeWait is how long a viewer waits for its turn to have old groups fetched.
const pipeWait = 2 * time.Second

// slots bound what goes on at a time between the relay and one session.
type slots struct{ fills, lost, pipesFrom, pipesTo chan struct{} }

func newSlots() slots {
	return slots{make(chan struct{}, maxFills), make(chan struct{}, maxLost), make(chan struct{}, maxPipes), make(chan struct{}, maxPipes)}
}

// slots are a session's; those of upstreams that the relay dialled are one.
func (r *Router) slots(s *moqt.Session) slots {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.sessions[s]; c != nil {
		return c.slots
	}
	return r.dialled
}

// claim waits for a slot.
func claim(ctx context.Context, free chan struct{}) error {
	select {
	case free <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// source fetches from an upstream what a viewer's FETCH asks for and the cache has not. Each
// response takes a slot of the upstream's and one of the viewer's until it is cancelled.
func (r *Router) source(up *moqt.Session, req *moqt.FetchRequest) origin.Source {
	to, from := r.slots(req.Session()).pipesTo, r.slots(up).pipesFrom
	return func(ctx context.Context, start, end moqt.Location, order moqt.GroupOrder, patience time.Duration) (*origin.Response, error) {
		if err := claim(ctx, to); err != nil {
			return nil, err
		}
		turn, cancel := context.WithTimeout(ctx, pipeWait)
		err := claim(turn, from)
		cancel()
		if err != nil {
			<-to
			return nil, &moqt.RequestError{Code: wire.RequestExcessiveLoad, Reason: "too many fetches of old groups at a time", RetryInterval: wire.RetryAfter(time.Second)}
		}
		f, err := up.Fetch(ctx, req.Track, start, end, moqt.FetchOptions{GroupOrder: order, FillTimeout: &patience})
		if err != nil {
			<-from
			<-to
			return nil, err
		}
		p := &piped{FetchReader: f, release: func() { <-from; <-to }}
		return &origin.Response{Objects: p, End: f.End, EndOfTrack: f.EndOfTrack, Properties: f.Properties}, nil
	}
}

// piped is an upstream's response that holds slots.
type piped struct {
	*moqt.FetchReader
	release func()
	once    sync.Once
}

// Cancel implements origin.ResponseReader.
func (p *piped) Cancel() {
	p.FetchReader.Cancel()
	p.once.Do(p.release)
}
