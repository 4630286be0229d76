package router

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/origin"
	"holocast/relay/diskcache"
)

// track is a track that the relay forwards. It is removed after Linger without use, and ends for
// its viewers after Grace without a publisher.
type track struct {
	*origin.Track
	r *Router

	appeared chan struct{} // closed and replaced when publishers of its namespace change; under r.mu

	mu        sync.Mutex
	upstreams map[Upstream]*moqt.Subscription
	refunds   map[Upstream]func() // refund the charge for each upstream's subscription
	joining   map[Upstream]bool   // SUBSCRIBE sent, not answered
	pubs      map[Upstream]bool   // upstreams that sent PUBLISH
	refs      int                 // viewers and requests
	subject   string              // identity of the last upstream
	lostAt    time.Time           // time at which the last upstream was lost; zero while there is one
	removed   bool
	timer     *time.Timer   // for Linger or Grace
	changed   chan struct{} // closed and replaced when upstreams or removed change, or a join fails
	lastErr   error         // of the last failed join
	first     *uint64       // group to request with the first SUBSCRIBE; nil for none
	asked     newGroup      // outstanding NEW_GROUP_REQUEST
	wanted    *uint64       // group to request next; nil for none
	relaying  bool          // relayGroupRequests is running
	repairs   []*repair     // newest last
	// closed once the first upstream's newest group is cached; replaced when the last upstream is lost
	filled chan struct{}

	disk atomic.Pointer[diskcache.Track] // nil without a publisher or a cache on disk
}

// hold finds or creates a track and takes a reference to it.
func (r *Router) hold(name moqt.TrackName) *track {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.holdLocked(name)
}

// holdLocked is like hold, but the caller holds r.mu.
func (r *Router) holdLocked(name moqt.TrackName) *track {
	key := name.String()
	t := r.tracks[key]
	if t == nil {
		t = &track{
			Track: origin.NewTrack(name, nil, r.cfg().Limits), r: r,
			upstreams: map[Upstream]*moqt.Subscription{}, refunds: map[Upstream]func(){}, joining: map[Upstream]bool{},
			pubs: map[Upstream]bool{}, filled: make(chan struct{}), changed: make(chan struct{}),
			appeared: make(chan struct{}),
		}
		t.Relayed = true
		t.keep()
		r.tracks[key] = t
		r.tracksUnder.add(name.Namespace, t)
	}
	t.mu.Lock()
	t.refs++
	t.arm()
	t.mu.Unlock()
	return t
}

// release drops a reference.
func (t *track) release() {
	t.mu.Lock()
	t.refs--
	t.arm()
	t.mu.Unlock()
}

// acquire returns a track with an upstream subscription, creating it if needed. It waits at most
// wait for a publisher. The caller releases the track.
func (r *Router) acquire(ctx context.Context, name moqt.TrackName, wait time.Duration) (*track, error) {
	return r.acquireFor(ctx, name, wait, func(*track) {})
}

// acquireFor is like acquire, but calls prepare with the track before it waits for the subscription.
// If the track is removed meanwhile, it calls prepare with the track that replaces it.
func (r *Router) acquireFor(
	ctx context.Context, name moqt.TrackName, wait time.Duration, prepare func(*track),
) (*track, error) {
	deadline := time.NewTimer(wait)
	defer deadline.Stop()
	for {
		t := r.hold(name)
		prepare(t)
		retry, err := t.await(ctx, wait > 0, deadline.C)
		if err == nil && !retry {
			return t, nil
		}
		t.release()
		if err != nil {
			return nil, err
		}
	}
}

// await waits until the track has an upstream subscription. If mayWait is set, it waits until deadline
// for a publisher to appear. retry means that the track was removed and must be looked up again.
func (t *track) await(ctx context.Context, mayWait bool, deadline <-chan time.Time) (retry bool, err error) {
	asked, waited := false, false
	var meeting <-chan time.Time
	for {
		t.r.mu.Lock()
		appeared := t.appeared
		publishers := t.r.publishers(t.Name())
		t.r.mu.Unlock()

		t.mu.Lock()
		ready, removed, changed, refused := len(t.upstreams) > 0, t.removed, t.changed, t.lastErr
		asking := len(t.joining) > 0 || len(t.pubs) > 0 // a SUBSCRIBE or PUBLISH is in progress
		t.mu.Unlock()
		switch {
		case removed:
			return true, nil
		case ready:
			return false, nil
		case asking: // wait for the answer
		case len(publishers) > 0 && !asked:
			asked = true
			for _, up := range publishers {
				t.join(up)
			}
			continue
		case len(publishers) > 0 && duplicate(refused) && !waited:
			if meeting == nil {
				meeting = time.After(publishWait)
			}
		case len(publishers) > 0 && duplicate(refused): // the error concerns our SUBSCRIBE, not the subscriber's
			return false, unreachable(t.Name())
		case len(publishers) > 0:
			return false, cmp.Or(refused, unreachable(t.Name()))
		case !mayWait:
			return false, notPublished(t.Name())
		}
		select {
		case <-appeared:
			asked = false
		case <-changed:
		case <-meeting:
			waited = true
		case <-deadline:
			if mayWait {
				return false, &moqt.RequestError{
					Code: wire.RequestTimeout, Reason: "no publisher of " + t.Name().String() + " appeared in time",
					RetryInterval: wire.RetryAfter(0),
				}
			}
			deadline = nil // not waiting for a publisher
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
	}
}

// notPublished refuses a request for a track without a publisher.
func notPublished(name moqt.TrackName) error {
	return &moqt.RequestError{Code: wire.RequestDoesNotExist, Reason: "nobody publishes " + name.String()}
}

// publishWait limits the wait for a publisher's PUBLISH after the publisher has refused our SUBSCRIBE
// because of it (§5.1).
const publishWait = time.Second

// duplicate reports whether a SUBSCRIBE collided with a PUBLISH of the same track.
func duplicate(err error) bool {
	var e *moqt.RequestError
	return errors.As(err, &e) && e.Code == wire.RequestDuplicateSubscription
}

// notify wakes goroutines that wait for the track to change. The caller holds t.mu.
func (t *track) notify() {
	close(t.changed)
	t.changed = make(chan struct{})
}

// arm sets the timer for the track's state. The caller holds t.mu.
func (t *track) arm() {
	if t.timer != nil {
		t.timer.Stop()
		t.timer = nil
	}
	var wait time.Duration
	switch {
	case t.removed:
		return
	case t.refs == 0 && len(t.upstreams)+len(t.joining) == 0: // expire immediately
	case t.refs == 0 && len(t.pubs) == 0:
		wait = t.r.cfg().Linger
	case t.orphaned():
		wait = time.Until(t.lostAt.Add(t.r.cfg().Grace))
	default: // a PUBLISHed track stays for later subscribers
		return
	}
	t.timer = time.AfterFunc(wait, t.expire)
}

// orphaned reports whether the track has lost its publishers. The caller holds t.mu.
func (t *track) orphaned() bool { return len(t.upstreams) == 0 && !t.lostAt.IsZero() }

// expire handles the end of Linger or Grace.
func (t *track) expire() {
	t.r.mu.Lock()
	defer t.r.mu.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.removed:
	case t.refs == 0 && len(t.pubs) == 0:
		t.remove(0)
		for _, u := range t.upstreams {
			go u.Cancel()
		}
	case t.orphaned() && time.Since(t.lostAt) >= t.r.cfg().Grace:
		t.end(wire.DoneInternalError, "the publisher is gone")
	}
}

// end ends the track for its viewers. The caller holds r.mu and t.mu.
func (t *track) end(code wire.DoneCode, reason string) {
	t.End(code, reason)
	t.remove(2 * t.r.cfg().Limits.MaxAge) // time for deliveries in flight
}

// remove removes the track from the router, and discards its cache after a delay. The caller holds
// r.mu and t.mu.
func (t *track) remove(after time.Duration) {
	t.removed = true
	t.arm()
	t.notify()
	if key := t.Name().String(); t.r.tracks[key] == t {
		delete(t.r.tracks, key)
		t.r.tracksUnder.remove(t.Name().Namespace, t)
	}
	t.r.closing[t] = struct{}{}
	time.AfterFunc(after, func() {
		t.Discard()
		t.disk.Load().Close()
		t.r.mu.Lock()
		defer t.r.mu.Unlock()
		delete(t.r.closing, t)
		t.r.removedStats.Add(t.Stats())
	})
}

// info describes the track to a viewer.
func (t *track) info(v *origin.Viewer) moqt.TrackInfo {
	i := v.Info()
	i.NewGroup = t.requestGroup
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, sub := range t.upstreams {
		i.Alias = new(sub.Alias()) // lets datagrams be forwarded unchanged
	}
	return i
}
