package router

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/origin"
)

// track is a track the relay forwards. It is removed once it has been unused for
// Linger, and ends for its viewers once its publisher has been gone for Grace.
type track struct {
	*origin.Track
	r *Router

	appeared chan struct{} // closed and replaced when publishers of its namespace come or go; under r.mu

	mu        sync.Mutex
	upstreams map[Upstream]*moqt.Subscription
	held      map[Upstream]func() // gives back what an upstream's subscription takes of its session
	joining   map[Upstream]bool   // SUBSCRIBE sent, not answered
	pubs      map[Upstream]bool   // upstreams that came by PUBLISH
	refs      int                 // viewers and requests that hold the track
	subject   string              // the identity of the last upstream
	lostAt    time.Time           // when the last upstream was lost; zero while there is one
	removed   bool
	timer     *time.Timer   // of Linger or Grace
	changed   chan struct{} // closed and replaced when upstreams or removed change, or a join fails
	lastErr   error         // of the last join that failed
	first     *uint64       // group to request with the first SUBSCRIBE upstream, nil = none
	asked     newGroup      // outstanding request upstream
	wanted    *uint64       // group to request upstream next, nil = none
	relaying  bool          // somebody does
	repairs   []*repair     // newest last
	filled    chan struct{} // closed once the newest group of the first upstream is cached; replaced after there was none
}

// hold finds or makes a track and takes a reference to it.
func (r *Router) hold(name moqt.TrackName) *track {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.find(name)
}

// find is hold. r.mu is held.
func (r *Router) find(name moqt.TrackName) *track {
	key := name.String()
	t := r.tracks[key]
	if t == nil {
		t = &track{
			Track: origin.NewTrack(name, nil, r.cfg().Limits), r: r,
			upstreams: map[Upstream]*moqt.Subscription{}, held: map[Upstream]func(){}, joining: map[Upstream]bool{},
			pubs: map[Upstream]bool{}, filled: make(chan struct{}), changed: make(chan struct{}), appeared: make(chan struct{}),
		}
		t.Relayed = true
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

// acquire returns a track that has an upstream subscription. It makes one if needed and
// waits for a publisher for at most wait. The caller releases the track.
func (r *Router) acquire(ctx context.Context, name moqt.TrackName, wait time.Duration) (*track, error) {
	return r.acquireFor(ctx, name, wait, nil)
}

// acquireFor is acquire for a subscriber that requests a new group, unless group is nil.
func (r *Router) acquireFor(ctx context.Context, name moqt.TrackName, wait time.Duration, group *uint64) (*track, error) {
	deadline := time.NewTimer(wait)
	defer deadline.Stop()
	for {
		t := r.hold(name)
		t.requestFirst(group)
		again, err := t.await(ctx, wait > 0, deadline.C)
		if err == nil && !again {
			return t, nil
		}
		t.release()
		if err != nil {
			return nil, err
		}
	}
}

// await waits until the track has an upstream subscription. With patient it waits
// for a publisher to appear until deadline. again says that the track was removed and
// must be looked up again.
func (t *track) await(ctx context.Context, patient bool, deadline <-chan time.Time) (again bool, err error) {
	asked, waited := false, false
	var meeting <-chan time.Time
	for {
		t.r.mu.Lock()
		appeared := t.appeared
		publishers := t.r.publishers(t.Name())
		t.r.mu.Unlock()

		t.mu.Lock()
		ready, removed, changed, refused := len(t.upstreams) > 0, t.removed, t.changed, t.lastErr
		asking := len(t.joining) > 0 || len(t.pubs) > 0 // a PUBLISH is about to be accepted
		t.mu.Unlock()
		switch {
		case removed:
			return true, nil
		case ready:
			return false, nil
		case asking: // wait for an answer
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
		case len(publishers) > 0 && duplicate(refused): // of ours, not of the subscriber's
			return false, away(t.Name())
		case len(publishers) > 0:
			return false, cmp.Or(refused, away(t.Name()))
		case !patient:
			return false, &moqt.RequestError{Code: wire.RequestDoesNotExist, Reason: "nobody publishes " + t.Name().String()}
		}
		select {
		case <-appeared:
			asked = false
		case <-changed:
		case <-meeting:
			waited = true
		case <-deadline:
			if patient {
				return false, &moqt.RequestError{Code: wire.RequestTimeout, Reason: "no publisher of " + t.Name().String() + " appeared in time", RetryInterval: wire.RetryAfter(0)}
			}
			deadline = nil // there was none to wait for
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
	}
}

// publishWait is how long a publisher's PUBLISH may take to come once it has refused our SUBSCRIBE
// because of it (§5.1).
const publishWait = time.Second

// duplicate reports whether a SUBSCRIBE met a PUBLISH of the same track.
func duplicate(err error) bool {
	var e *moqt.RequestError
	return errors.As(err, &e) && e.Code == wire.RequestDuplicateSubscription
}

// notify wakes those waiting for the track to change. t.mu is held.
func (t *track) notify() {
	close(t.changed)
	t.changed = make(chan struct{})
}

// arm sets the timer for the track's state. t.mu is held.
func (t *track) arm() {
	if t.timer != nil {
		t.timer.Stop()
		t.timer = nil
	}
	var wait time.Duration
	switch {
	case t.removed:
		return
	case t.refs == 0 && len(t.upstreams)+len(t.joining) == 0: // nothing to keep
	case t.refs == 0 && len(t.pubs) == 0:
		wait = t.r.cfg().Linger
	case t.orphaned():
		wait = time.Until(t.lostAt.Add(t.r.cfg().Grace))
	default: // a PUBLISHed track stays for later subscribers
		return
	}
	t.timer = time.AfterFunc(wait, t.expire)
}

// orphaned reports whether the track lost its publishers. t.mu is held.
func (t *track) orphaned() bool { return len(t.upstreams) == 0 && !t.lostAt.IsZero() }

// expire is the end of Linger or Grace.
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

// end ends the track for its viewers. r.mu and t.mu are held.
func (t *track) end(code wire.DoneCode, reason string) {
	t.End(code, reason)
	t.remove(2 * t.r.cfg().Limits.MaxAge) // leaves time for what is in flight
}

// remove takes the track out of the router, its cache after a while. r.mu and t.mu
// are held.
func (t *track) remove(after time.Duration) {
	t.removed = true
	t.arm()
	t.notify()
	if key := t.Name().String(); t.r.tracks[key] == t {
		delete(t.r.tracks, key)
		t.r.tracksUnder.remove(t.Name().Namespace, t)
	}
	t.r.leaving[t] = struct{}{}
	time.AfterFunc(after, func() {
		t.Discard()
		t.r.mu.Lock()
		defer t.r.mu.Unlock()
		delete(t.r.leaving, t)
		t.r.gone.Add(t.Stats())
	})
}

// info describes the track to a viewer.
func (t *track) info() moqt.TrackInfo {
	i := t.Info()
	i.NewGroup = t.requestGroup
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, sub := range t.upstreams {
		i.Alias = new(sub.Alias()) // datagrams then leave as they came
	}
	return i
}
