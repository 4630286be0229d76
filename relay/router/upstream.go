package router

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"holocast/internal/gopool"
	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/origin"
	"holocast/relay/auth"
)

// Upstream is where the tracks of an offered namespace come from. Equal values are the
// same upstream.
type Upstream interface {
	// Session returns the session to subscribe on, dialling it if needed.
	Session(ctx context.Context) (*moqt.Session, error)
	// String names it in logs.
	String() string
}

// peer is the upstream of a session that the publisher opened.
type peer struct{ s *moqt.Session }

func (p peer) Session(context.Context) (*moqt.Session, error) { return p.s, p.s.Err() }
func (p peer) String() string                                 { return p.s.RemoteAddr().String() }

// dialTimeout bounds Upstream.Session.
const dialTimeout = 10 * time.Second

// rejoinAfter is the delay before subscribing again at a publisher that ended or
// refused a subscription.
const rejoinAfter = time.Second

// newGroup is a NEW_GROUP_REQUEST sent upstream, outstanding until the largest group
// changes (§10.2.14).
type newGroup struct {
	asked          bool
	group, largest uint64
}

// join subscribes to the track at up unless it is subscribed or about to be.
func (t *track) join(up Upstream) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.removed || t.upstreams[up] != nil || t.joining[up] {
		return
	}
	t.joining[up] = true
	t.arm()
	go t.subscribe(up)
}

// rejoin joins up after a while, if it still publishes the track by then.
func (t *track) rejoin(up Upstream) {
	time.AfterFunc(rejoinAfter, func() {
		t.r.mu.Lock()
		publishes := slices.Contains(t.r.publishers(t.Name()), up)
		t.r.mu.Unlock()
		if publishes {
			t.join(up)
		}
	})
}

func (t *track) subscribe(up Upstream) {
	sub, err := t.ask(up)
	if err != nil {
		t.r.log.Debug("upstream refused", "track", abridged(t.Name().String()), "upstream", up.String(), "err", abridged(err.Error()))
		t.mu.Lock()
		delete(t.joining, up)
		t.lastErr = err
		waiting := t.refs > 0 && t.orphaned()
		t.arm()
		t.notify()
		t.mu.Unlock()
		if waiting { // a publisher that came back may not have its tracks yet
			t.rejoin(up)
		}
		return
	}
	release, err := receipt(sub.Session(), sub.Properties)
	if t = t.adopt(up, sub, false, release, err); t == nil {
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
		t.r.log.Debug("newest group not fetched", "track", abridged(t.Name().String()), "err", abridged(err.Error()))
	}
}

// ask subscribes at up and sends the joining FETCH for the current group with it.
func (t *track) ask(up Upstream) (*moqt.Subscription, error) {
	ctx, cancel := context.WithTimeout(context.Background(), dialTimeout)
	defer cancel()
	s, err := up.Session(ctx)
	if err != nil {
		t.r.log.Debug("upstream has no session", "upstream", up.String(), "err", abridged(err.Error()))
		return nil, away(t.Name())
	}
	t.mu.Lock()
	group := t.first
	t.mu.Unlock()
	return s.Subscribe(s.Context(), t.Name(), moqt.SubscribeOptions{Join: true, NewGroupRequest: group})
}

// away refuses a request for a track whose publisher cannot be reached now.
func away(name moqt.TrackName) error {
	return &moqt.RequestError{Code: wire.RequestDoesNotExist, Reason: "the publisher of " + name.String() + " went away", RetryInterval: wire.RetryAfter(time.Second)}
}

// adopt makes sub the track's subscription at up and starts receiving, unless refused says why
// not; release gives back what that takes. What a publisher
// said of the track goes with it: viewers of another identity's, or of one with other
// properties, are told to subscribe again. adopt returns the track that has sub then; nil,
// having cancelled sub, when there is none.
func (t *track) adopt(up Upstream, sub *moqt.Subscription, published bool, release func(), refused error) *track {
	t.r.mu.Lock()
	t.mu.Lock()
	delete(t.joining, up)
	if refused == nil {
		refused = sane(sub.Largest, sub.Properties)
	}
	if refused != nil {
		t.lastErr = refused
		delete(t.pubs, up)
		t.arm()
		t.notify()
	}
	if refused != nil || t.removed {
		t.mu.Unlock()
		t.r.mu.Unlock()
		sub.Cancel()
		if release != nil {
			release()
		}
		return nil
	}
	for other, old := range t.upstreams { // whose end is about to be noticed
		if old.Session().Err() != nil {
			t.leave(other)
		}
	}
	subject, first := t.r.subject(up), len(t.upstreams) == 0
	if first && !t.lostAt.IsZero() && (t.subject != subject || !bytes.Equal(t.Properties(), sub.Properties)) {
		t.end(wire.DoneInternalError, "another publisher has the track now")
		t.mu.Unlock()
		again := t.r.find(t.Name())
		t.r.mu.Unlock()
		defer again.release()
		return again.adopt(up, sub, published, release, nil)
	}
	known, ok := t.Largest()
	missed := ok && t.refs > 0 && sub.Largest != nil && known.Less(*sub.Largest)
	if ok && first && (sub.Largest == nil || sub.Largest.Less(known)) {
		t.Restart(sub.Largest) // else new groups would pass for duplicates of cached ones
		missed = t.refs > 0 && sub.Largest != nil
	}
	if first || len(sub.Properties) > 0 {
		t.SetProperties(sub.Properties)
	}
	if sub.Largest != nil {
		t.RaiseLargest(*sub.Largest)
		if first {
			t.Missed(sub.Largest)
		}
	}
	switch {
	case published:
		t.pubs[up] = true
		t.closeFilled(t.filled) // nobody can fetch from a publisher that may not answer
	case first && !t.lostAt.IsZero(): // the cache is from a publisher that left
		t.closeFilled(t.filled)
		t.filled = make(chan struct{})
	}
	if first {
		t.SetMemory(allowance(sub.Session()).Memory())
	}
	if before := t.held[up]; before != nil { // of a subscription that this one replaces
		before()
	}
	t.upstreams[up], t.held[up] = sub, release
	t.subject = subject
	t.lostAt, t.lastErr, t.asked = time.Time{}, nil, newGroup{}
	if t.first != nil && !published {
		largest, _ := t.Largest()
		t.asked = newGroup{true, *t.first, largest.Group}
	}
	t.first = nil
	t.arm()
	t.notify()
	t.mu.Unlock()
	t.r.mu.Unlock()
	if missed { // viewers missed groups published before this subscription
		t.requestGroup(sub.Largest.Group + 1)
	}
	t.r.cfg().FastPath.Publisher(t.Track, sub)
	go t.receiveDatagrams(sub)
	go t.receive(up, sub)
	return t
}

// leave removes an upstream. t.mu is held.
func (t *track) leave(up Upstream) {
	if release := t.held[up]; release != nil {
		release()
	}
	delete(t.held, up)
	delete(t.upstreams, up)
	delete(t.pubs, up)
	if len(t.upstreams) == 0 {
		t.lostAt = time.Now()
	}
}

// requestFirst has a new group requested with the SUBSCRIBE that the track is about to be
// subscribed to with; the requests of several subscribers are one (§10.2.13). nil = none.
func (t *track) requestFirst(group *uint64) {
	if group == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.upstreams) == 0 && (t.first == nil || *t.first < *group) {
		t.first = group
	}
}

// requestGroup passes a viewer's NEW_GROUP_REQUEST upstream where the track has
// dynamic groups and nothing as good was asked for already (§10.2.14). However many
// viewers ask, and however often, the publisher is asked once in a while, and never for
// more than the group after the largest.
func (t *track) requestGroup(group uint64) {
	if dynamic, _ := t.Properties().Int(wire.PropertyDynamicGroups); dynamic != 1 {
		return
	}
	largest, ok := t.Largest()
	if ok && group != 0 && group <= largest.Group {
		return
	}
	if ok {
		group = min(group, largest.Group+1)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.asked.asked && t.asked.largest == largest.Group && t.asked.group >= group {
		return
	}
	t.asked = newGroup{true, group, largest.Group}
	if t.wanted = &group; t.relaying {
		return
	}
	t.relaying = true
	go t.relayGroupRequests()
}

// groupRequestsApart is how long a NEW_GROUP_REQUEST waits for the one before it.
const groupRequestsApart = 200 * time.Millisecond

// relayGroupRequests sends what is wanted upstream until nothing is.
func (t *track) relayGroupRequests() {
	for {
		t.mu.Lock()
		group := t.wanted
		t.wanted = nil
		t.relaying = group != nil && !t.removed
		again := t.relaying
		subs := slices.Collect(maps.Values(t.upstreams))
		t.mu.Unlock()
		if !again {
			return
		}
		for _, sub := range subs {
			go func() {
				ctx, cancel := context.WithTimeout(sub.Session().Context(), 5*time.Second)
				defer cancel()
				if _, err := sub.Update(ctx, moqt.Parameters{NewGroupRequest: group}); err != nil {
					t.r.log.Debug("new group not requested", "track", abridged(t.Name().String()), "err", abridged(err.Error()))
				}
			}()
		}
		time.Sleep(groupRequestsApart)
	}
}

func (t *track) receive(up Upstream, sub *moqt.Subscription) {
	in := ingress{allowance(sub.Session()), sub}
	receivers := gopool.New()
	defer receivers.Close()
	for {
		// The subscription ends with its session at the latest; its error is the
		// more precise one.
		r, err := sub.AcceptSubgroup(context.Background())
		if err != nil {
			t.lost(up, sub, err)
			return
		}
		if r.Group > maxGroup {
			r.Malformed(fmt.Errorf("%w: group %d leaves no room for another", wire.ErrMalformedTrack, r.Group))
			continue
		}
		// Opened before the next one is accepted, so that viewers are offered the
		// last subgroup before the track ends for them.
		feed, err := t.OpenSubgroup(r.SubgroupHeader)
		switch {
		case errors.Is(err, wire.ErrMalformedTrack):
			r.Malformed(err)
			continue
		case errors.Is(err, origin.ErrDuplicate):
			go t.compare(r)
			continue
		case err != nil:
			r.Cancel(wire.StreamCancelled)
			continue
		}
		traced := t.r.traceReceived(t.Name(), up, r.SubgroupHeader)
		receivers.Go(func() { t.receiveSubgroup(r, feed, traced, in) })
	}
}

// receiveSubgroup passes a subgroup on as it arrives. traced, if not nil, is told of its end:
// how many bytes came, and why not all.
func (t *track) receiveSubgroup(r *moqt.SubgroupReader, feed *origin.Feed, traced func(bytes int, failed string), in ingress) {
	bytes, objects, failed := 0, 0, ""
	if traced != nil {
		defer func() { traced(bytes, failed) }()
	}
	for {
		n, err := r.ReadRaw(feed.Space())
		bytes += n
		if n > 0 {
			cerr := feed.Commit(n)
			in.spend(feed.Objects()-objects, n)
			objects = feed.Objects()
			switch {
			case cerr == nil:
			case errors.Is(cerr, origin.ErrDuplicate), errors.Is(cerr, origin.ErrEvicted):
				feed.Reset(wire.StreamTooFarBehind)
				r.Cancel(refusal(cerr))
				failed = "refused"
				return
			default:
				feed.Reset(wire.StreamMalformedTrack)
				r.Malformed(cerr)
				failed = "malformed"
				return
			}
		}
		switch e := (*moqt.StreamError)(nil); {
		case err == nil:
			continue
		case err == io.EOF:
			if cerr := feed.Close(); cerr != nil {
				r.Malformed(io.ErrUnexpectedEOF)
				failed = "malformed"
			}
		case errors.As(err, &e):
			feed.Reset(e.Code)
			failed = "reset"
		default:
			feed.Reset(wire.StreamInternalError)
			failed = "reset"
		}
		return
	}
}

// comparedBytes is how much of a duplicate's first object is compared with what came before:
// what its first packets bring.
const comparedBytes = 4 << 10

// compare looks at the beginning of a subgroup that is being received already, and refuses
// it.
func (t *track) compare(r *moqt.SubgroupReader) {
	o, err := r.NextObject()
	if err == nil {
		payload := make([]byte, min(o.PayloadLength, comparedBytes))
		if _, err = io.ReadFull(r, payload); err == nil {
			if err := t.CheckDuplicate(r.Group, r.Subgroup, o, payload); err != nil {
				r.Malformed(err)
				return
			}
		}
	}
	r.Cancel(wire.StreamCancelled)
}

// refusal is the code for a subgroup that the cache refuses.
func refusal(err error) wire.StreamCode {
	if errors.Is(err, origin.ErrEvicted) {
		return wire.StreamTooFarBehind
	}
	return wire.StreamCancelled
}

func (t *track) receiveDatagrams(sub *moqt.Subscription) {
	in := ingress{allowance(sub.Session()), sub}
	for {
		d, err := sub.AcceptDatagram(context.Background())
		if err != nil {
			return
		}
		if d.Group > maxGroup || !in.take(len(d.Payload)) {
			continue
		}
		if err := t.ReceiveDatagram(*d); err != nil {
			sub.Malformed(err)
			return
		}
	}
}

// lost handles the end of an upstream subscription. A track that its publisher ended
// ends for the viewers, too; one whose publisher disconnected waits for it, or
// another.
func (t *track) lost(up Upstream, sub *moqt.Subscription, err error) {
	t.r.mu.Lock()
	defer t.r.mu.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.upstreams[up] == sub {
		t.leave(up)
	}
	t.arm()
	t.notify()
	if t.removed || len(t.upstreams) > 0 {
		return
	}
	t.Interrupted()
	var done *moqt.DoneError
	switch {
	case errors.Is(err, wire.ErrMalformedTrack):
		t.end(wire.DoneMalformedTrack, "the publisher's track is malformed")
		return
	case errors.As(err, &done) && over(done.Code):
		t.end(done.Code, done.Reason)
		return
	}
	t.r.log.Info("publisher lost", "track", abridged(t.Name().String()), "reason", reason(err), "grace", t.r.cfg().Grace)
	for _, other := range t.r.publishers(t.Name()) {
		if other == up {
			t.rejoin(other)
		} else {
			go t.join(other)
		}
	}
}

// over reports whether a PUBLISH_DONE ends the track and not only this subscription.
func over(code wire.DoneCode) bool {
	switch code {
	case wire.DoneTrackEnded, wire.DoneSubscriptionEnded, wire.DoneUnauthorized, wire.DoneMalformedTrack:
		return true
	}
	return false
}

// anyUpstream is a session that the track comes from, nil when there is none.
func (t *track) anyUpstream() *moqt.Session {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, sub := range t.upstreams {
		return sub.Session()
	}
	return nil
}

// publishedByOther reports whether a session other than s PUBLISHed the track.
func (t *track) publishedByOther(s *moqt.Session) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for p := range t.pubs {
		if p != (peer{s}) {
			return true
		}
	}
	return false
}

// publish accepts a track that its publisher PUBLISHes.
func (r *Router) publish(req *moqt.PublishRequest) {
	up := peer{req.Session()}
	answered, _, ok := r.admit(req)
	if !ok {
		return
	}
	defer answered()
	log := r.log.With("track", abridged(req.Track.String()), "peer", up.String())
	permit, err := r.permit(req.Request, auth.Publish, req.Track)
	if err == nil {
		err = reserved(req.Track.Namespace)
	}
	if err == nil {
		err = sane(req.Largest, req.Properties)
	}
	var release func()
	if err == nil {
		release, err = receipt(req.Session(), req.Properties)
	}
	t := r.hold(req.Track)
	defer func(held *track) { held.release() }(t)
	if err == nil {
		find := func() Upstream { return r.trackOwner(req.Track, up) }
		err = r.claim(req.Context(), find, func() { // its own from here on
			t.mu.Lock()
			t.pubs[up] = true
			t.mu.Unlock()
		})
	}
	if err != nil {
		log.Info("track refused", "reason", reason(err))
		if release != nil {
			release()
		}
		r.reject(req, err)
		return
	}
	sub, err := req.Accept(moqt.SubscribeOptions{})
	if err != nil {
		release()
		t.mu.Lock()
		delete(t.pubs, up)
		t.notify()
		t.mu.Unlock()
		return
	}
	if t = t.adopt(up, sub, true, release, nil); t == nil {
		return
	}
	stop := permit.during(func(error) { sub.Cancel() })
	context.AfterFunc(sub.Session().Context(), func() { stop() })
	log.Info("track published")
	r.mu.Lock()
	var interested []*discovery
	for d := range r.discoveries.above(req.Track.Namespace) {
		if d.tracks && d.s != up.s {
			interested = append(interested, d)
		}
	}
	r.mu.Unlock()
	for _, d := range interested {
		go t.offerTo(d)
	}
}

// maxBlocked bounds the tracks that a subscriber is remembered not to get. One that has so
// many is offered no further ones.
const maxBlocked = 1024

// mayOffer reports whether a PUBLISH of a track may be sent: none may after PUBLISH_BLOCKED
// (§6.1).
func (d *discovery) mayOffer(t *track) bool {
	t.r.mu.Lock()
	defer t.r.mu.Unlock()
	return !d.blocked[t.Name().String()] && len(d.blocked) < maxBlocked
}

// block notes that a track is not offered any more; false when that was known.
func (d *discovery) block(t *track) bool {
	t.r.mu.Lock()
	defer t.r.mu.Unlock()
	name := t.Name().String()
	if d.blocked[name] {
		return false
	}
	d.blocked[name] = true
	return true
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
	if !d.mayOffer(t) {
		return
	}
	info := t.info()
	info.Paused, info.Defaults = d.paused, d.params
	pub, err := d.s.Publish(d.s.Context(), t.Name(), info)
	if errors.Is(err, moqt.ErrRequestsBlocked) && d.block(t) {
		_ = d.a.Blocked(t.Name())
	}
	if err != nil {
		t.r.log.Debug("PUBLISH refused", "track", abridged(t.Name().String()), "peer", d.s.RemoteAddr().String(), "err", abridged(err.Error()))
		return
	}
	defer d.permit.during(func(why error) { _ = pub.Done(auth.DoneCode(why), why.Error()) })()
	_ = t.r.queue(d.s).Serve(t.Track, t.r.cfg().FastPath.Viewer(t.Track, pub), since)
}
