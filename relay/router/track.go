package router

import (
	"cmp"
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"time"

	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/origin"
)

// track is a track the relay passes on. It is forgotten when nobody holds it and
// Linger has passed, and ends for its viewers when its publisher is gone and Grace
// has passed.
type track struct {
	*origin.Track
	r *Router

	mu        sync.Mutex
	upstreams map[*moqt.Session]*moqt.Subscription
	joining   map[*moqt.Session]bool // SUBSCRIBE sent, not answered
	pubs      map[*moqt.Session]bool // upstreams that came by PUBLISH
	refs      int                    // viewers and requests that hold the track
	lostAt    time.Time              // when the last upstream went; zero while there is one
	removed   bool
	timer     *time.Timer   // of Linger or Grace
	changed   chan struct{} // closed and replaced when upstreams or removed change, or a join fails
	lastErr   error         // of the last join that failed
	asked     newGroup      // outstanding request upstream
	filled    chan struct{} // closed when the newest group of the first upstream is here; another once there was none
}

// newGroup is a NEW_GROUP_REQUEST that was passed upstream, outstanding until the
// largest group is no longer what it was then (§10.2.14).
type newGroup struct {
	asked          bool
	group, largest uint64
}

// rejoinAfter is how long a publisher that ended or refused a subscription is left
// alone before it is asked again.
const rejoinAfter = time.Second

// hold finds or makes a track and takes a reference to it.
func (r *Router) hold(name moqt.TrackName) *track {
	key := name.String()
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.tracks[key]
	if t == nil {
		t = &track{
			Track: origin.NewTrack(name, nil, r.cfg.Limits), r: r,
			upstreams: map[*moqt.Session]*moqt.Subscription{}, joining: map[*moqt.Session]bool{},
			pubs: map[*moqt.Session]bool{}, filled: make(chan struct{}), changed: make(chan struct{}),
		}
		r.tracks[key] = t
	}
	t.mu.Lock()
	t.refs++
	t.arm()
	t.mu.Unlock()
	return t
}

// release gives a reference back.
func (t *track) release() {
	t.mu.Lock()
	t.refs--
	t.arm()
	t.mu.Unlock()
}

// acquire returns a track that has an upstream subscription, making one where
// there is none, or waiting for a publisher for at most wait. The caller calls
// release in the end.
func (r *Router) acquire(ctx context.Context, name moqt.TrackName, wait time.Duration) (*track, error) {
	deadline := time.NewTimer(wait)
	defer deadline.Stop()
	for {
		t := r.hold(name)
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
// for a publisher to appear, until deadline. again says that the track was removed
// meanwhile, and is to be looked up anew.
func (t *track) await(ctx context.Context, patient bool, deadline <-chan time.Time) (again bool, err error) {
	asked := false
	for {
		t.r.mu.Lock()
		appeared := t.r.changed
		publishers := t.r.publishers(t.Name())
		t.r.mu.Unlock()

		t.mu.Lock()
		ready, removed, changed, refused := len(t.upstreams) > 0, t.removed, t.changed, t.lastErr
		asking := len(t.joining) > 0
		t.mu.Unlock()
		switch {
		case removed:
			return true, nil
		case ready:
			return false, nil
		case asking: // one of them will answer, or all will refuse
		case len(publishers) > 0 && !asked:
			asked = true
			for _, s := range publishers {
				t.join(s)
			}
			continue
		case len(publishers) > 0:
			return false, cmp.Or(refused, error(&moqt.RequestError{
				Code: wire.RequestDoesNotExist, Reason: "the publisher of " + t.Name().String() + " went away", RetryInterval: 1 + 1000,
			}))
		case !patient:
			return false, &moqt.RequestError{Code: wire.RequestDoesNotExist, Reason: "nobody publishes " + t.Name().String()}
		}
		select {
		case <-appeared:
			asked = false
		case <-changed:
		case <-deadline:
			if patient {
				return false, &moqt.RequestError{Code: wire.RequestTimeout, Reason: "no publisher of " + t.Name().String() + " appeared in time", RetryInterval: 1}
			}
			deadline = nil // there was none to wait for
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
	}
}

// notify wakes who waits for the track to change. t.mu is held.
func (t *track) notify() {
	close(t.changed)
	t.changed = make(chan struct{})
}

// arm sets the timer that the track's state asks for. t.mu is held.
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
		wait = t.r.cfg.Linger
	case t.orphaned():
		wait = time.Until(t.lostAt.Add(t.r.cfg.Grace))
	default: // a track that its publisher gave to us unasked stays for those who come
		return
	}
	t.timer = time.AfterFunc(wait, t.expire)
}

// orphaned reports whether the track had a publisher and has none. t.mu is held.
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
	case t.orphaned() && time.Since(t.lostAt) >= t.r.cfg.Grace:
		t.end(wire.DoneInternalError, "the publisher is gone")
	}
}

// end ends the track for its viewers. r.mu and t.mu are held.
func (t *track) end(code wire.DoneCode, reason string) {
	t.End(code, reason)
	t.remove(2 * t.r.cfg.Limits.MaxAge) // what is under way has as long as it is kept
}

// remove takes the track out of the router, its cache after a while. r.mu and t.mu
// are held.
func (t *track) remove(after time.Duration) {
	t.removed = true
	t.arm()
	t.notify()
	if key := t.Name().String(); t.r.tracks[key] == t {
		delete(t.r.tracks, key)
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

// join subscribes to the track at s, unless that is done or under way.
func (t *track) join(s *moqt.Session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.removed || t.upstreams[s] != nil || t.joining[s] || s.Err() != nil {
		return
	}
	t.joining[s] = true
	t.arm()
	go t.subscribe(s)
}

// rejoin joins s after a while, if it still publishes the track by then.
func (t *track) rejoin(s *moqt.Session) {
	time.AfterFunc(rejoinAfter, func() {
		t.r.mu.Lock()
		publishes := slices.Contains(t.r.publishers(t.Name()), s)
		t.r.mu.Unlock()
		if publishes {
			t.join(s)
		}
	})
}

func (t *track) subscribe(s *moqt.Session) {
	sub, err := s.Subscribe(s.Context(), t.Name(), moqt.SubscribeOptions{Join: true})
	if err != nil {
		t.r.log.Debug("upstream refused", "track", t.Name().String(), "peer", s.RemoteAddr().String(), "err", err)
		t.mu.Lock()
		delete(t.joining, s)
		t.lastErr = err
		waiting := t.refs > 0 && t.orphaned()
		t.arm()
		t.notify()
		t.mu.Unlock()
		if waiting { // a publisher that came back may not have its tracks yet
			t.rejoin(s)
		}
		return
	}
	if !t.adopt(sub, false) {
		return
	}
	filled := t.filling()
	select {
	case <-filled:
		return
	default:
	}
	defer t.fill(filled)
	if sub.Largest == nil {
		return
	}
	if err := t.fetchNewest(sub); err != nil {
		t.r.log.Debug("newest group not fetched", "track", t.Name().String(), "err", err)
	}
}

// adopt makes sub one of the track's upstreams and begins to receive; false when
// the track was removed meanwhile, and sub is cancelled.
func (t *track) adopt(sub *moqt.Subscription, published bool) bool {
	s := sub.Session()
	t.mu.Lock()
	delete(t.joining, s)
	if t.removed {
		t.mu.Unlock()
		sub.Cancel()
		return false
	}
	known, ok := t.Largest()
	missed := ok && t.refs > 0 && sub.Largest != nil && known.Less(*sub.Largest)
	if ok && len(t.upstreams) == 0 && (sub.Largest == nil || sub.Largest.Less(known)) {
		t.Restart() // else new groups would be taken for those that were here before
		missed = t.refs > 0 && sub.Largest != nil
	}
	if len(sub.Properties) > 0 {
		t.SetProperties(sub.Properties)
	}
	if sub.Largest != nil {
		t.RaiseLargest(*sub.Largest)
	}
	switch {
	case published:
		t.pubs[s] = true
		t.closeFilled(t.filled) // nobody can fetch from a publisher that may not answer
	case len(t.upstreams) == 0 && !t.lostAt.IsZero(): // what is here is of one that went away
		t.closeFilled(t.filled)
		t.filled = make(chan struct{})
	}
	t.upstreams[s] = sub
	t.lostAt, t.lastErr, t.asked = time.Time{}, nil, newGroup{}
	t.arm()
	t.notify()
	t.mu.Unlock()
	if missed { // by those who watch: it was published before this subscription
		t.requestGroup(sub.Largest.Group + 1)
	}
	go t.receiveDatagrams(sub)
	go t.receive(sub)
	return true
}

// info is what a viewer is told of the track.
func (t *track) info() moqt.TrackInfo {
	i := t.Info()
	i.NewGroup = t.requestGroup
	return i
}

// requestGroup passes a viewer's NEW_GROUP_REQUEST upstream where the track has
// dynamic groups and nothing as good was asked for already (§10.2.14).
func (t *track) requestGroup(group uint64) {
	if dynamic, _ := t.Properties().Int(wire.PropertyDynamicGroups); dynamic != 1 {
		return
	}
	largest, ok := t.Largest()
	if ok && group != 0 && group <= largest.Group {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.asked.asked && t.asked.largest == largest.Group && t.asked.group >= group {
		return
	}
	t.asked = newGroup{true, group, largest.Group}
	for _, sub := range t.upstreams {
		go func() {
			ctx, cancel := context.WithTimeout(sub.Session().Context(), 5*time.Second)
			defer cancel()
			if _, err := sub.Update(ctx, moqt.Parameters{NewGroupRequest: &group}); err != nil {
				t.r.log.Debug("new group not requested", "track", t.Name().String(), "err", err)
			}
		}()
	}
}

// fill says that what a late joiner needs is in the cache, or will not be.
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

// fetchNewest fills the cache with the group that is under way at sub.
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

// claimBuffer waits until one more object may be held; returnBuffer is called
// afterwards.
func (r *Router) claimBuffer(ctx context.Context) error {
	select {
	case r.buffers <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (r *Router) returnBuffer() { <-r.buffers }

func (t *track) receive(sub *moqt.Subscription) {
	for {
		// The subscription ends with its session at the latest, and knows better
		// than that why.
		r, err := sub.AcceptSubgroup(context.Background())
		if err != nil {
			t.lost(sub, err)
			return
		}
		// Opened before the next is accepted, so that viewers are offered the last
		// subgroup before they are told of the track's end.
		feed, err := t.OpenSubgroup(r.SubgroupHeader)
		if err != nil {
			r.Cancel(wire.StreamCancelled)
			continue
		}
		go t.receiveSubgroup(r, feed)
	}
}

// receiveSubgroup passes a subgroup on as it arrives.
func (t *track) receiveSubgroup(r *moqt.SubgroupReader, feed *origin.Feed) {
	for {
		n, err := r.ReadRaw(feed.Space())
		if n > 0 {
			switch cerr := feed.Commit(n); {
			case cerr == nil:
			case errors.Is(cerr, origin.ErrDuplicate), errors.Is(cerr, origin.ErrEvicted):
				feed.Reset(wire.StreamTooFarBehind)
				r.Cancel(refusal(cerr))
				return
			default:
				feed.Reset(wire.StreamMalformedTrack)
				r.Malformed(cerr)
				return
			}
		}
		switch e := (*moqt.StreamError)(nil); {
		case err == nil:
			continue
		case err == io.EOF:
			if cerr := feed.Close(); cerr != nil {
				r.Malformed(io.ErrUnexpectedEOF)
			}
		case errors.As(err, &e):
			feed.Reset(e.Code)
		default:
			feed.Reset(wire.StreamInternalError)
		}
		return
	}
}

// refusal is the code with which a subgroup is refused that the cache does not take.
func refusal(err error) wire.StreamCode {
	if errors.Is(err, origin.ErrEvicted) {
		return wire.StreamTooFarBehind
	}
	return wire.StreamCancelled
}

func (t *track) receiveDatagrams(sub *moqt.Subscription) {
	for {
		d, err := sub.AcceptDatagram(context.Background())
		if err != nil {
			return
		}
		t.SendDatagram(*d)
	}
}

// lost handles the end of an upstream subscription. A track that its publisher
// ended is over for the viewers too; one whose publisher merely went away waits
// for it, or another, to come back.
func (t *track) lost(sub *moqt.Subscription, err error) {
	s := sub.Session()
	t.r.mu.Lock()
	defer t.r.mu.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.upstreams[s] == sub {
		delete(t.upstreams, s)
		delete(t.pubs, s)
	}
	if len(t.upstreams) == 0 {
		t.lostAt = time.Now()
	}
	t.arm()
	t.notify()
	if t.removed || len(t.upstreams) > 0 {
		return
	}
	var done *moqt.DoneError
	switch {
	case errors.Is(err, wire.ErrMalformedTrack):
		t.end(wire.DoneMalformedTrack, "the publisher's track is malformed")
		return
	case errors.As(err, &done) && over(done.Code):
		t.end(done.Code, done.Reason)
		return
	}
	t.r.log.Info("publisher gone", "track", t.Name().String(), "reason", err, "grace", t.r.cfg.Grace)
	for _, other := range t.r.publishers(t.Name()) {
		if other == s {
			t.rejoin(other)
		} else {
			go t.join(other)
		}
	}
}

// over reports whether a PUBLISH_DONE ends the track itself, and not only this
// subscription to it.
func over(code wire.DoneCode) bool {
	switch code {
	case wire.DoneTrackEnded, wire.DoneSubscriptionEnded, wire.DoneUnauthorized, wire.DoneMalformedTrack:
		return true
	}
	return false
}

func (t *track) anyUpstream() *moqt.Session {
	t.mu.Lock()
	defer t.mu.Unlock()
	for s := range t.upstreams {
		return s
	}
	return nil
}

// publishedByOther reports whether a session other than s PUBLISHed the track.
func (t *track) publishedByOther(s *moqt.Session) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for p := range t.pubs {
		if p != s {
			return true
		}
	}
	return false
}

// publish takes a track that its publisher offers.
func (r *Router) publish(req *moqt.PublishRequest) {
	t := r.hold(req.Track)
	defer t.release()
	s := req.Session()
	sub, err := req.Accept(moqt.SubscribeOptions{})
	if err != nil {
		return
	}
	if !t.adopt(sub, true) {
		return
	}
	r.log.Info("track published", "track", req.Track.String(), "peer", s.RemoteAddr().String())
	r.mu.Lock()
	r.notify()
	var interested []*discovery
	for d := range r.discoveries {
		if d.tracks && d.s != s && req.Track.Namespace.HasPrefix(d.prefix) {
			interested = append(interested, d)
		}
	}
	r.mu.Unlock()
	for _, d := range interested {
		go t.offerTo(d)
	}
}

// offerTo publishes the track to a session that asked for all tracks of a prefix.
func (t *track) offerTo(d *discovery) {
	t.mu.Lock()
	if t.removed {
		t.mu.Unlock()
		return
	}
	t.refs++
	t.mu.Unlock()
	defer t.release()
	since := time.Now()
	pub, err := d.s.Publish(d.s.Context(), t.Name(), t.info())
	if err != nil {
		t.r.log.Debug("track not taken", "track", t.Name().String(), "peer", d.s.RemoteAddr().String(), "err", err)
		return
	}
	_ = t.Serve(pub, since)
}

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
