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

// track is a track the relay passes on.
type track struct {
	*origin.Track
	r *Router

	mu        sync.Mutex
	upstreams map[*moqt.Session]*moqt.Subscription
	joining   map[*moqt.Session]bool // SUBSCRIBE sent, not answered
	refs      int                    // viewers and requests that hold the track
	removed   bool
	timer     *time.Timer   // linger or grace
	filled    chan struct{} // closed when the first upstream's newest group is here
	fillOnce  sync.Once
	pubs      map[*moqt.Session]bool // sessions that PUBLISHed it
	changed   chan struct{}          // closed and replaced when an upstream comes or a join fails
	lastErr   error                  // of the last join that failed
}

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
	t.stopTimer()
	t.mu.Unlock()
	return t
}

// acquire returns a track that has an upstream subscription, making one where
// there is none, or waiting for a publisher for at most wait. The caller calls
// release in the end.
func (r *Router) acquire(ctx context.Context, name moqt.TrackName, wait time.Duration) (*track, error) {
	t := r.hold(name)
	deadline := time.NewTimer(wait)
	defer deadline.Stop()
	for {
		r.mu.Lock()
		appeared := r.changed
		publishers := r.publishers(name)
		r.mu.Unlock()

		t.mu.Lock()
		if len(t.upstreams) > 0 {
			t.mu.Unlock()
			return t, nil
		}
		changed := t.changed
		t.mu.Unlock()
		for _, s := range publishers {
			go t.joinPublisher(s)
		}
		if len(publishers) > 0 {
			// One of them will answer, or all will refuse.
			if err := t.awaitJoin(ctx, changed); err != nil {
				t.release()
				return nil, err
			}
			continue
		}
		if wait == 0 {
			t.release()
			return nil, &moqt.RequestError{Code: wire.RequestDoesNotExist, Reason: "nobody publishes " + name.String()}
		}
		select {
		case <-appeared:
		case <-changed:
		case <-deadline.C:
			t.release()
			return nil, &moqt.RequestError{Code: wire.RequestTimeout, Reason: "no publisher of " + name.String() + " appeared in time", RetryInterval: 1}
		case <-ctx.Done():
			t.release()
			return nil, context.Cause(ctx)
		}
	}
}

// awaitJoin waits until an upstream is there, nil, or none is being asked any
// more: the error of the last one.
func (t *track) awaitJoin(ctx context.Context, changed chan struct{}) error {
	for {
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		t.mu.Lock()
		up, asking, err := len(t.upstreams), len(t.joining), t.lastErr
		changed = t.changed
		t.mu.Unlock()
		if up > 0 {
			return nil
		}
		if asking == 0 {
			if err == nil {
				err = &moqt.RequestError{Code: wire.RequestDoesNotExist, Reason: "the publisher went away"}
			}
			return err
		}
	}
}

// notify wakes who waits for the track to change. t.mu is held.
func (t *track) notify() {
	close(t.changed)
	t.changed = make(chan struct{})
}

// stopTimer stops linger or grace. t.mu is held.
func (t *track) stopTimer() {
	if t.timer != nil {
		t.timer.Stop()
		t.timer = nil
	}
}

// release gives a reference back. A track nobody holds lingers, then goes.
func (t *track) release() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.refs--
	if t.refs > 0 || t.removed {
		return
	}
	t.stopTimer()
	linger := t.r.cfg.Linger
	if len(t.upstreams) == 0 && len(t.joining) == 0 {
		linger = 0
	}
	t.timer = time.AfterFunc(linger, func() { t.removeIfIdle() })
}

// removeIfIdle forgets a track that has no viewers, unless its publisher gave it
// to us unasked (PUBLISH): then it stays for those who come.
func (t *track) removeIfIdle() {
	t.r.mu.Lock()
	t.mu.Lock()
	if t.refs > 0 || t.removed || len(t.pubs) > 0 {
		t.mu.Unlock()
		t.r.mu.Unlock()
		return
	}
	t.remove()
	ups := t.upstreams
	t.mu.Unlock()
	t.r.mu.Unlock()
	for _, u := range ups {
		u.Cancel()
	}
}

// remove takes the track out of the router. r.mu and t.mu are held.
func (t *track) remove() {
	t.removed = true
	t.stopTimer()
	if key := t.Name().String(); t.r.tracks[key] == t {
		delete(t.r.tracks, key)
	}
	s, g := t.Stats(), &t.r.gone
	g.Objects += s.Objects
	g.Bytes += s.Bytes
	g.DuplicateSubgroup += s.DuplicateSubgroup
	g.SentBytes += s.SentBytes
	g.SentSubgroups += s.SentSubgroups
	g.Late += s.Late
	g.Behind += s.Behind
	g.UnsentDatagrams += s.UnsentDatagrams
}

// joinPublisher subscribes to the track at s, unless that is done or under way.
func (t *track) joinPublisher(s *moqt.Session) {
	t.mu.Lock()
	if t.removed || t.upstreams[s] != nil || t.joining[s] {
		t.mu.Unlock()
		return
	}
	t.joining[s] = true
	t.mu.Unlock()

	sub, err := s.Subscribe(s.Context(), t.Name(), moqt.SubscribeOptions{})

	t.mu.Lock()
	delete(t.joining, s)
	if err != nil {
		t.lastErr = err
		t.notify()
		t.mu.Unlock()
		t.r.log.Debug("upstream refused", "track", t.Name().String(), "peer", s.RemoteAddr().String(), "err", err)
		return
	}
	t.mu.Unlock()
	t.adopt(sub)
	if sub.Largest == nil {
		t.fill()
		return
	}
	go func() {
		defer t.fill()
		if err := t.fetchNewest(sub); err != nil {
			t.r.log.Debug("newest group not fetched", "track", t.Name().String(), "err", err)
		}
	}()
}

// adopt makes sub one of the track's upstreams and begins to receive.
func (t *track) adopt(sub *moqt.Subscription) {
	if len(sub.Properties) > 0 {
		t.SetProperties(sub.Properties)
	}
	if sub.Largest != nil {
		t.RaiseLargest(*sub.Largest)
	}
	t.mu.Lock()
	t.upstreams[sub.Session()] = sub
	t.stopTimer()
	if t.refs == 0 {
		t.timer = time.AfterFunc(t.r.cfg.Linger, t.removeIfIdle)
	}
	t.notify()
	t.mu.Unlock()
	go t.receiveDatagrams(sub)
	go t.receive(sub)
}

// fill says that what a late joiner needs is in the cache, or will not be.
func (t *track) fill() { t.fillOnce.Do(func() { close(t.filled) }) }

func (t *track) awaitFill(ctx context.Context) {
	select {
	case <-t.filled:
	case <-ctx.Done():
	}
}

// fetchNewest fills the cache with the group that is under way at sub.
func (t *track) fetchNewest(sub *moqt.Subscription) error {
	ctx, cancel := context.WithTimeout(sub.Session().Context(), 5*time.Second)
	defer cancel()
	f, err := sub.Session().FetchJoining(ctx, sub, 0, moqt.FetchOptions{})
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

// maxFetchedObject bounds an object that is fetched into the cache, bytes.
const maxFetchedObject = 32 << 20

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
			if cerr := feed.Commit(n); cerr != nil {
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
	delete(t.upstreams, s)
	delete(t.pubs, s)
	t.notify()
	if t.removed || len(t.upstreams) > 0 {
		return
	}
	var done *moqt.DoneError
	if errors.As(err, &done) && done.Code != wire.DoneGoingAway && done.Code != wire.DoneInternalError {
		t.remove()
		t.End(done.Code, done.Reason)
		return
	}
	if errors.Is(err, wire.ErrMalformedTrack) {
		t.remove()
		t.End(wire.DoneMalformedTrack, "the publisher's track is malformed")
		return
	}
	t.r.log.Info("publisher gone", "track", t.Name().String(), "reason", err, "grace", t.r.cfg.Grace)
	for _, other := range t.r.publishers(t.Name()) {
		if other != s || s.Err() == nil {
			go t.joinPublisher(other)
		}
	}
	t.stopTimer()
	t.timer = time.AfterFunc(t.r.cfg.Grace, func() {
		t.r.mu.Lock()
		defer t.r.mu.Unlock()
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.removed || len(t.upstreams) > 0 {
			return
		}
		t.remove()
		t.End(wire.DoneInternalError, "the publisher is gone")
	})
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
	if len(req.Properties) > 0 {
		t.SetProperties(req.Properties)
	}
	if req.Largest != nil {
		t.RaiseLargest(*req.Largest)
	}
	s := req.Session()
	sub, err := req.Accept(moqt.SubscribeOptions{})
	if err != nil {
		return
	}
	r.log.Info("track published", "track", req.Track.String(), "peer", s.RemoteAddr().String())
	t.fill() // nobody can fetch from a publisher that may not answer
	t.mu.Lock()
	t.pubs[s] = true
	t.mu.Unlock()
	t.adopt(sub)
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
	pub, err := d.s.Publish(d.s.Context(), t.Name(), t.Info())
	if err != nil {
		t.r.log.Debug("track not taken", "track", t.Name().String(), "peer", d.s.RemoteAddr().String(), "err", err)
		return
	}
	_ = t.Serve(pub, since)
}

// pipeFetch answers a FETCH with an upstream's response.
func pipeFetch(up *moqt.Session, req *moqt.FetchRequest) error {
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
