package router

import (
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

// Upstream is the source of an offered namespace's tracks. Equal values mean the same upstream.
type Upstream interface {
	// Session returns the session to subscribe on, dialling it if needed.
	Session(ctx context.Context) (*moqt.Session, error)
	// String names the upstream in logs.
	String() string
}

// peer is the Upstream for a session that the publisher opened.
type peer struct{ c *client }

func (p peer) Session(context.Context) (*moqt.Session, error) { return p.c.s, p.c.s.Err() }
func (p peer) String() string                                 { return p.c.s.RemoteAddr().String() }

// dialTimeout bounds Upstream.Session.
const dialTimeout = 10 * time.Second

// rejoinAfter is the delay before subscribing again after a publisher ended or refused a
// subscription.
const rejoinAfter = time.Second

// newGroup is a NEW_GROUP_REQUEST sent upstream. It is outstanding until the largest group changes
// (§10.2.14).
type newGroup struct {
	asked          bool
	group, largest uint64
}

// join subscribes to the track at up unless it already has or is making a subscription there.
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

// rejoin calls join(up) after a delay if up still publishes the track then.
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
		t.r.log.Debug("upstream refused",
			"track", truncated(t.Name().String()), "upstream", up.String(), "err", truncated(err.Error()))
		t.mu.Lock()
		delete(t.joining, up)
		t.lastErr = err
		waiting := t.refs > 0 && t.orphaned()
		t.arm()
		t.notify()
		t.mu.Unlock()
		if waiting { // a returning publisher may not have its tracks yet
			t.rejoin(up)
		}
		return
	}
	release, err := chargeTrack(sub.Session(), sub.Properties)
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
	if err := t.fetchNewest(up, sub); err != nil {
		t.r.log.Debug("newest group not fetched", "track", truncated(t.Name().String()), "err", truncated(err.Error()))
	}
}

// ask sends up a SUBSCRIBE, with a joining FETCH for the current group.
func (t *track) ask(up Upstream) (*moqt.Subscription, error) {
	ctx, cancel := context.WithTimeout(context.Background(), dialTimeout)
	defer cancel()
	s, err := up.Session(ctx)
	if err != nil {
		t.r.log.Debug("upstream has no session", "upstream", up.String(), "err", truncated(err.Error()))
		return nil, unreachable(t.Name())
	}
	t.mu.Lock()
	group := t.first
	t.mu.Unlock()
	return s.Subscribe(s.Context(), t.Name(), moqt.SubscribeOptions{Join: true, NewGroupRequest: group})
}

// unreachable refuses a request for a track whose publisher is temporarily unreachable.
func unreachable(name moqt.TrackName) error {
	return &moqt.RequestError{
		Code: wire.RequestDoesNotExist, Reason: "the publisher of " + name.String() + " is unreachable",
		RetryInterval: wire.RetryAfter(time.Second),
	}
}

// adopt makes sub the track's subscription at up and starts receiving. published means that sub accepts
// a PUBLISH. release refunds the charge for the subscription. If refused is not nil, sub's parameters
// are unusable or the track was removed, adopt cancels sub and returns nil. If up's identity or track
// properties differ from the previous publisher's, the track ends for its viewers and a new one takes
// its place. adopt returns the track that now has sub.
func (t *track) adopt(up Upstream, sub *moqt.Subscription, published bool, release func(), refused error) *track {
	t.r.mu.Lock()
	t.mu.Lock()
	delete(t.joining, up)
	if refused == nil {
		refused = checkTrack(sub.Largest, sub.Properties)
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
	for other, old := range t.upstreams { // sessions that have ended without their receive loop having noticed
		if old.Session().Err() != nil {
			t.removeUpstream(other)
		}
	}
	subject, first := t.r.subject(up), len(t.upstreams) == 0
	if first && !t.lostAt.IsZero() && (t.subject != subject || !sameContent(t.Properties(), sub.Properties)) {
		t.end(wire.DoneInternalError, "another publisher took over the track")
		t.mu.Unlock()
		successor := t.r.holdLocked(t.Name())
		t.r.mu.Unlock()
		defer successor.release()
		return successor.adopt(up, sub, published, release, nil)
	}
	known, ok := t.Largest()
	missed := ok && t.refs > 0 && sub.Largest != nil && known.Less(*sub.Largest)
	restarted := ok && first && (sub.Largest == nil || sub.Largest.Less(known))
	if restarted {
		t.Restart(sub.Largest) // otherwise new groups would count as duplicates of cached ones
		missed = t.refs > 0 && sub.Largest != nil
	}
	if first {
		t.openDisk(up, sub, subject, restarted)
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
		t.closeFilled(t.filled) // the publisher may not answer FETCH
	case first && !t.lostAt.IsZero(): // the cache is a previous publisher's
		t.closeFilled(t.filled)
		t.filled = make(chan struct{})
	}
	if first {
		t.SetMemory(peerLimits(sub.Session()).Memory())
	}
	if before := t.refunds[up]; before != nil { // the charge for the subscription that this one replaces
		before()
	}
	t.upstreams[up], t.refunds[up] = sub, release
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
	if missed { // groups were published before this subscription
		t.requestGroup(sub.Largest.Group + 1)
	}
	t.r.cfg().FastPath.Publisher(t.Track, sub)
	go t.receiveDatagrams(sub)
	go t.receive(up, sub)
	return t
}

// removeUpstream removes an upstream. The caller holds t.mu.
func (t *track) removeUpstream(up Upstream) {
	if release := t.refunds[up]; release != nil {
		release()
	}
	delete(t.refunds, up)
	delete(t.upstreams, up)
	delete(t.pubs, up)
	if len(t.upstreams) == 0 {
		t.lostAt = time.Now()
	}
}

// requestFirst adds a new-group request, unless it is nil, to the track's first upstream SUBSCRIBE.
// Requests of several subscribers are merged (§10.2.13).
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

// requestGroup forwards a viewer's NEW_GROUP_REQUEST upstream if the track has dynamic groups and no
// equivalent request is outstanding (§10.2.14). Requests of all viewers are merged and rate-limited,
// and never go beyond the group after the largest.
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

// groupRequestInterval separates consecutive NEW_GROUP_REQUESTs.
const groupRequestInterval = 200 * time.Millisecond

// relayGroupRequests sends requested groups upstream until none is left.
func (t *track) relayGroupRequests() {
	for {
		t.mu.Lock()
		group := t.wanted
		t.wanted = nil
		t.relaying = group != nil && !t.removed
		more := t.relaying
		subs := slices.Collect(maps.Values(t.upstreams))
		t.mu.Unlock()
		if !more {
			return
		}
		for _, sub := range subs {
			go func() {
				ctx, cancel := context.WithTimeout(sub.Session().Context(), 5*time.Second)
				defer cancel()
				if _, err := sub.Update(ctx, moqt.Parameters{NewGroupRequest: group}); err != nil {
					t.r.log.Debug("new group not requested",
						"track", truncated(t.Name().String()), "err", truncated(err.Error()))
				}
			}()
		}
		time.Sleep(groupRequestInterval)
	}
}

func (t *track) receive(up Upstream, sub *moqt.Subscription) {
	in := ingress{peerLimits(sub.Session()), sub}
	receivers := gopool.New()
	defer receivers.Close()
	for {
		// No context is needed: the subscription ends no later than its session, with a more
		// precise error than the session's.
		r, err := sub.AcceptSubgroup(context.Background())
		if err != nil {
			t.upstreamEnded(up, sub, err)
			return
		}
		if r.Group > maxGroup {
			r.Malformed(fmt.Errorf("%w: group %d is too large", wire.ErrMalformedTrack, r.Group))
			continue
		}
		// Open the subgroup before accepting the next one, so that viewers receive the last
		// subgroup before the track ends.
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

// receiveSubgroup forwards a subgroup as it arrives. traced, if not nil, is called with the byte count
// and, for an incomplete subgroup, the reason.
func (t *track) receiveSubgroup(
	r *moqt.SubgroupReader, feed *origin.Feed, traced func(bytes int, failed string), in ingress,
) {
	bytes, objects, failed := 0, 0, ""
	if traced != nil {
		defer func() { traced(bytes, failed) }()
	}
	for {
		n, err := r.ReadRaw(feed.Space())
		bytes += n
		if n > 0 {
			cerr := feed.Commit(n)
			in.charge(feed.Objects()-objects, n)
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

// comparedBytes limits how much of a duplicate's first object is compared, to about three packets.
const comparedBytes = 4 << 10

// compare compares the start of a duplicate subgroup with the original, then refuses it.
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

// refusal returns the code for a subgroup that the cache refuses.
func refusal(err error) wire.StreamCode {
	if errors.Is(err, origin.ErrEvicted) {
		return wire.StreamTooFarBehind
	}
	return wire.StreamCancelled
}

func (t *track) receiveDatagrams(sub *moqt.Subscription) {
	in := ingress{peerLimits(sub.Session()), sub}
	for {
		d, err := sub.AcceptDatagram(context.Background())
		if err != nil {
			return
		}
		if d.Group > maxGroup || !in.tryCharge(len(d.Payload)) {
			continue
		}
		if err := t.ReceiveDatagram(*d); err != nil {
			sub.Malformed(err)
			return
		}
	}
}

// upstreamEnded handles the end of an upstream subscription. If the publisher ended the track, it ends
// for the viewers too. If the publisher disconnected, the track waits for it or for another publisher.
func (t *track) upstreamEnded(up Upstream, sub *moqt.Subscription, err error) {
	if t.lostPublisher(up, sub, err) {
		t.r.log.Info("publisher lost", "track", truncated(t.Name().String()), "reason", reason(err), "grace",
			t.r.cfg().Grace)
	}
}

// lostPublisher implements upstreamEnded. It reports whether the track waits for a publisher.
func (t *track) lostPublisher(up Upstream, sub *moqt.Subscription, err error) bool {
	t.r.mu.Lock()
	defer t.r.mu.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.upstreams[up] == sub {
		t.removeUpstream(up)
	}
	t.arm()
	t.notify()
	if t.removed || len(t.upstreams) > 0 {
		return false
	}
	t.Interrupted()
	var done *moqt.DoneError
	switch {
	case errors.Is(err, wire.ErrMalformedTrack):
		t.end(wire.DoneMalformedTrack, "the publisher's track is malformed")
		return false
	case errors.As(err, &done) && endsTrack(done.Code):
		t.end(done.Code, done.Reason)
		return false
	}
	for _, other := range t.r.publishers(t.Name()) {
		if other == up {
			t.rejoin(other)
		} else {
			go t.join(other)
		}
	}
	return true
}

// endsTrack reports whether a PUBLISH_DONE code ends the track rather than only this subscription.
func endsTrack(code wire.DoneCode) bool {
	switch code {
	case wire.DoneTrackEnded, wire.DoneSubscriptionEnded, wire.DoneUnauthorized, wire.DoneMalformedTrack:
		return true
	}
	return false
}

// anyUpstream returns an upstream of the track and its session, or nil if there is none.
func (t *track) anyUpstream() (Upstream, *moqt.Session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for up, sub := range t.upstreams {
		return up, sub.Session()
	}
	return nil, nil
}

// publish handles a publisher's PUBLISH request for a track.
func (c *client) publish(req *moqt.PublishRequest) {
	r, up := c.r, peer{c}
	answered, _, ok := c.admit(req)
	if !ok {
		return
	}
	defer answered()
	log := r.log.With("track", truncated(req.Track.String()), "peer", up.String())
	authz, err := c.authorize(req.Request, auth.Publish, req.Track)
	if err == nil {
		err = c.checkPublish(req.Track)
	}
	if err == nil {
		err = checkTrack(req.Largest, req.Properties)
	}
	var release func()
	switch {
	case err != nil:
	case c.member:
		release, err = c.chargeMember()
	default:
		release, err = chargeTrack(req.Session(), req.Properties)
	}
	t := r.hold(req.Track)
	defer func(held *track) { held.release() }(t)
	if err == nil {
		find := func() Upstream { return r.otherTrackOwner(req.Track, up) }
		err = r.takeOwnership(req.Context(), req.Track.Namespace, find, func() { // from here on the track belongs to up
			t.mu.Lock()
			t.pubs[up] = true
			t.mu.Unlock()
		})
	}
	if err == nil {
		if err = r.checkBlocked(req.Track.Namespace); err != nil { // since authorize
			t.mu.Lock()
			delete(t.pubs, up)
			t.mu.Unlock()
		}
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
	stop := authz.onRevoke(func(error) { sub.Cancel() })
	context.AfterFunc(sub.Session().Context(), func() { stop() })
	log.Info("track published")
	r.mu.Lock()
	var interested []*discovery
	for d := range r.discoveries.above(req.Track.Namespace) {
		if d.tracks && d.takes(c) {
			interested = append(interested, d)
		}
	}
	r.mu.Unlock()
	for _, d := range interested {
		go t.offerTo(d)
	}
}

// maxBlocked limits the blocked tracks remembered per subscriber. A subscriber that reaches it is
// offered no further tracks.
const maxBlocked = 1024

// mayOffer reports whether a PUBLISH of the track may be sent. None may follow PUBLISH_BLOCKED (§6.1).
func (d *discovery) mayOffer(t *track) bool {
	t.r.mu.Lock()
	defer t.r.mu.Unlock()
	return !d.blocked[t.Name().String()] && len(d.blocked) < maxBlocked
}

// block records that a track is blocked and no longer offered. It returns false if the track was
// already blocked.
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

// offerTo sends PUBLISH for the track to a session that subscribed to all tracks under a prefix.
func (t *track) offerTo(d *discovery) {
	t.mu.Lock()
	if t.removed {
		t.mu.Unlock()
		return
	}
	t.refs++
	t.mu.Unlock()
	defer t.release()
	v := d.c.queue.Attach(t.Track)
	if !d.mayOffer(t) {
		return
	}
	info := t.info(v)
	info.Paused, info.Defaults = d.paused, d.params
	s := d.c.s
	pub, err := s.Publish(s.Context(), t.Name(), info)
	if errors.Is(err, moqt.ErrRequestsBlocked) && d.block(t) {
		_ = d.a.Blocked(t.Name())
	}
	if err != nil {
		t.r.log.Debug("PUBLISH refused",
			"track", truncated(t.Name().String()), "peer", s.RemoteAddr().String(), "err", truncated(err.Error()))
		return
	}
	defer d.authz.onRevoke(func(why error) { _ = pub.Done(auth.DoneCode(why), why.Error()) })()
	_ = v.Serve(t.r.cfg().FastPath.Viewer(t.Track, pub))
}
