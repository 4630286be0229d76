package moqt

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"sync"
	"time"

	"holocast/internal/moqt/wire"
)

// SubscribeOptions are the parameters of a SUBSCRIBE, or of the acceptance of a
// PUBLISH (§10.7, §10.10). The zero value asks for every object from now on.
type SubscribeOptions struct {
	Filter                  *Filter // nil = unfiltered
	Priority                *uint8  // nil = 128
	GroupOrder              GroupOrder
	Paused                  bool          // begin with forward state 0
	ObjectDeliveryTimeout   time.Duration // 0 = none
	SubgroupDeliveryTimeout time.Duration // 0 = none
	// RendezvousTimeout is how long a relay may wait for a publisher to appear.
	RendezvousTimeout time.Duration
	// NewGroupRequest asks the publisher for a new group, one above the largest that is
	// known here, 0 for none known; nil = not (§10.2.13).
	NewGroupRequest *uint64
	Tokens          []wire.Token
	// Join sends a joining FETCH for the current group right behind the SUBSCRIBE, so that
	// a late joiner has the group after one round trip; see Subscription.Joined.
	Join bool
}

func milliseconds(d time.Duration) *uint64 {
	if d <= 0 {
		return nil
	}
	return new(uint64(max(1, d.Milliseconds())))
}

func (o SubscribeOptions) parameters() Parameters {
	p := Parameters{
		Filter: o.Filter, SubscriberPriority: o.Priority, AuthorizationTokens: o.Tokens,
		ObjectDeliveryTimeout:   milliseconds(o.ObjectDeliveryTimeout),
		SubgroupDeliveryTimeout: milliseconds(o.SubgroupDeliveryTimeout),
		RendezvousTimeout:       milliseconds(o.RendezvousTimeout),
		NewGroupRequest:         o.NewGroupRequest,
	}
	if o.GroupOrder != 0 {
		p.GroupOrder = &o.GroupOrder
	}
	if o.Paused {
		p.Forward = new(false)
	}
	return p
}

// Subscription is the receiving end of a subscription: subgroups and datagrams of
// one track as they come, in no promised order. Its user accepts both until they
// end, or cancels it. A subgroup that nobody accepts within five seconds, or behind
// more than maxSubgroupQueue newer ones, is refused. One that was accepted takes
// up the session's receive window until it is read or cancelled.
type Subscription struct {
	s      *Session
	r      *requestStream
	track  TrackName
	role   *role
	alias  uint64
	hold   time.Duration // for late streams after PUBLISH_DONE
	expire uint64

	// Largest is the largest location when the subscription began, nil when
	// nothing had been published; Properties are the track's.
	Largest    *Location
	Properties Properties

	defaultPriority uint8
	asked           bool     // by SUBSCRIBE, not offered by PUBLISH
	join            *joining // the FETCH that left with SUBSCRIBE, if any

	datagrams chan *Datagram
	done      chan struct{}
	endOnce   sync.Once
	err       error // valid once done is closed

	mu        sync.Mutex
	queue     []queuedSubgroup // not yet accepted, oldest first
	available chan struct{}    // signalled when queue has something
	expiry    *time.Timer      // of the oldest in queue; nil while it is empty
	open      map[*SubgroupReader]struct{}
	cancelled bool               // nothing is wanted any more
	received  uint64             // streams
	arrived   chan struct{}      // signalled at each stream
	updates   []chan updateReply // REQUEST_UPDATEs not yet answered
}

type queuedSubgroup struct {
	r    *SubgroupReader
	seen time.Time
}

type updateReply struct {
	params Parameters
	err    error
}

// Subscribe asks the peer for a track and waits for its answer.
func (s *Session) Subscribe(ctx context.Context, track TrackName, o SubscribeOptions) (*Subscription, error) {
	if err := track.Validate(); err != nil {
		return nil, err
	}
	sub := s.newSubscription(track, o)
	if sub.role = s.claimTrack(s.receiving, track); sub.role == nil {
		return nil, &RequestError{Code: wire.RequestDuplicateSubscription, Reason: "already subscribed to " + track.String()}
	}
	r, err := s.openRequest(ctx, func(id uint64) wire.Message {
		return &wire.Subscribe{RequestID: id, Track: track, Parameters: o.parameters()}
	})
	if err != nil {
		s.release(s.receiving, sub.role)
		return nil, err
	}
	sub.r, sub.asked = r, true
	if o.Join {
		sub.join = s.join(r.id, o.RendezvousTimeout)
	}
	s.mu.Lock()
	sub.role.give = func() { r.abort(wire.StreamCancelled) }
	s.notify() // a PUBLISH may be here
	s.mu.Unlock()
	m, err := r.awaitResponse(ctx, o.RendezvousTimeout)
	if !s.keepRole(sub.role) {
		r.abort(wire.StreamCancelled)
		err = &RequestError{Code: wire.RequestDuplicateSubscription, Reason: "the publisher offered " + track.String() + " meanwhile"}
	}
	var ok *wire.SubscribeOK
	if err == nil {
		var isOK bool
		if ok, isOK = m.(*wire.SubscribeOK); !isOK {
			err = r.unexpectedMessage(m)
		} else if t, found := ok.Properties.UnknownMandatory(); found {
			r.abort(wire.StreamCancelled)
			err = unknownMandatory(t)
		}
	}
	if err != nil {
		sub.join.end()
		s.release(s.receiving, sub.role)
		s.closeRequest()
		return nil, err
	}
	sub.establish(ok.TrackAlias, ok.Parameters, ok.Properties)
	if err := s.register(sub); err != nil {
		sub.join.end()
		s.fail(err)
		return nil, err
	}
	go sub.run()
	return sub, nil
}

func unknownMandatory(property uint64) *RequestError {
	return &RequestError{
		Code:   wire.RequestUnsupportedExtension,
		Reason: fmt.Sprintf("the track's mandatory property %#x is unknown here", property),
	}
}

func (s *Session) newSubscription(track TrackName, o SubscribeOptions) *Subscription {
	return &Subscription{
		s: s, track: track, hold: max(s.wait.done, o.ObjectDeliveryTimeout, o.SubgroupDeliveryTimeout),
		datagrams: make(chan *Datagram, maxDatagramQueue),
		done:      make(chan struct{}),
		available: make(chan struct{}, 1),
		open:      map[*SubgroupReader]struct{}{},
		arrived:   make(chan struct{}, 1),
	}
}

func (sub *Subscription) establish(alias uint64, p Parameters, props Properties) {
	sub.alias, sub.Largest, sub.Properties = alias, p.LargestObject, props
	sub.defaultPriority = wire.DefaultPriority
	if v, ok := props.Int(wire.PropertyPublisherPriority); ok {
		sub.defaultPriority = uint8(v)
	}
	if p.Expires != nil {
		sub.expire = *p.Expires
	}
}

// Track is the subscription's track.
func (sub *Subscription) Track() TrackName { return sub.track }

// RequestID is what a joining FETCH refers to.
func (sub *Subscription) RequestID() uint64 { return sub.r.id }

// Session is the session the subscription belongs to.
func (sub *Subscription) Session() *Session { return sub.s }

// Done is closed when the subscription has ended; Err then says why.
func (sub *Subscription) Done() <-chan struct{} { return sub.done }

// Err is nil while the subscription lasts, then a *DoneError when the publisher
// ended it, or what else ended it.
func (sub *Subscription) Err() error {
	select {
	case <-sub.done:
		return sub.err
	default:
		return nil
	}
}

// AcceptSubgroup returns the next subgroup. When the subscription has ended and
// all its subgroups were accepted, it returns the subscription's error.
func (sub *Subscription) AcceptSubgroup(ctx context.Context) (*SubgroupReader, error) {
	for {
		if r := sub.nextSubgroup(); r != nil {
			return r, nil
		}
		select {
		case <-sub.available:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-sub.done:
			if r := sub.nextSubgroup(); r != nil { // what arrived comes before the end
				return r, nil
			}
			return nil, sub.err
		}
	}
}

func (sub *Subscription) nextSubgroup() *SubgroupReader {
	sub.mu.Lock()
	defer sub.mu.Unlock()
	if len(sub.queue) == 0 {
		return nil
	}
	r := sub.queue[0].r
	sub.queue = sub.queue[1:]
	if len(sub.queue) > 0 {
		signal(sub.available) // there may be more than one waiting
	}
	return r
}

// signal wakes the reader of a channel of one, now or when it next looks.
func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// AcceptDatagram returns the next object that came as a datagram.
func (sub *Subscription) AcceptDatagram(ctx context.Context) (*Datagram, error) {
	select { // what arrived comes before the end
	case d := <-sub.datagrams:
		return d, nil
	default:
	}
	select {
	case d := <-sub.datagrams:
		return d, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-sub.done:
		select {
		case d := <-sub.datagrams:
			return d, nil
		default:
			return nil, sub.err
		}
	}
}

// deliverSubgroup queues r for AcceptSubgroup. In a full queue the oldest makes
// room: it is the one that is late.
func (sub *Subscription) deliverSubgroup(r *SubgroupReader) {
	var refused *SubgroupReader
	sub.mu.Lock()
	sub.received++
	wanted := !sub.cancelled
	if wanted {
		if len(sub.queue) == maxSubgroupQueue {
			refused = sub.queue[0].r
			sub.queue = sub.queue[1:]
		}
		sub.queue = append(sub.queue, queuedSubgroup{r, time.Now()})
		sub.open[r] = struct{}{}
		if sub.expiry == nil {
			sub.expiry = time.AfterFunc(sub.s.wait.accept, sub.refuseLate)
		}
		signal(sub.available)
	}
	sub.mu.Unlock()
	signal(sub.arrived)
	if !wanted {
		r.str.stop(wire.StreamCancelled)
	}
	if refused != nil {
		sub.refuse(refused)
	}
}

// refuseLate refuses the subgroups that nobody accepted in time, so that what
// they hold of the session's receive window comes back.
func (sub *Subscription) refuseLate() {
	var late []*SubgroupReader
	now := time.Now()
	sub.mu.Lock()
	for len(sub.queue) > 0 && now.Sub(sub.queue[0].seen) >= sub.s.wait.accept {
		late = append(late, sub.queue[0].r)
		sub.queue = sub.queue[1:]
	}
	sub.expiry = nil
	if len(sub.queue) > 0 {
		sub.expiry = time.AfterFunc(sub.s.wait.accept-now.Sub(sub.queue[0].seen), sub.refuseLate)
	}
	sub.mu.Unlock()
	for _, r := range late {
		sub.refuse(r)
	}
}

func (sub *Subscription) refuse(r *SubgroupReader) {
	sub.s.count.subgroupsRefused.Add(1)
	r.Cancel(wire.StreamTooFarBehind)
}

func (sub *Subscription) deliverDatagram(d *Datagram) {
	if d.DefaultPriority {
		d.Priority = sub.defaultPriority
	}
	select {
	case sub.datagrams <- d:
	default:
		sub.s.count.datagramsRefused.Add(1)
	}
}

// Cancel ends the subscription from this side (§3.3.2) and with it every subgroup
// that was not read to its end. It may be called after the end.
func (sub *Subscription) Cancel() {
	sub.end(&StreamError{Code: wire.StreamCancelled})
	sub.discard()
}

// end ends the subscription. After the publisher's regular end, what arrived may
// still be accepted and read.
func (sub *Subscription) end(err error) {
	sub.endOnce.Do(func() {
		sub.err = err
		sub.join.end()
		sub.s.unregister(sub)
		sub.s.closeRequest()
		// A FIN, not a reset: to some peers a reset request ends the session.
		sub.r.end()
		if e := (*DoneError)(nil); !errors.As(err, &e) {
			sub.discard()
		}
		sub.mu.Lock()
		updates := sub.updates
		sub.updates = nil
		close(sub.done) // last: from here on the track may be subscribed to again
		sub.mu.Unlock()
		for _, u := range updates {
			u <- updateReply{err: err}
		}
	})
}

// discard refuses what was not read yet and what is still to come.
func (sub *Subscription) discard() {
	sub.mu.Lock()
	open := sub.open
	sub.cancelled, sub.queue, sub.open = true, nil, nil
	if sub.expiry != nil {
		sub.expiry.Stop()
	}
	sub.mu.Unlock()
	for r := range open {
		r.str.stop(wire.StreamCancelled)
	}
}

// run reads what the publisher sends on the request stream.
func (sub *Subscription) run() {
	for {
		m, err := sub.r.read()
		if err != nil {
			if err == io.EOF {
				err = &DoneError{Code: wire.DoneInternalError, Reason: "the publisher left without PUBLISH_DONE"}
			}
			if e := (*RequestError)(nil); errors.As(err, &e) { // GOAWAY
				err = &DoneError{Code: wire.DoneGoingAway, Reason: strings.TrimSpace(e.Reason + " " + e.Redirect.ConnectURI)}
			}
			if serr := sub.s.Err(); serr != nil {
				err = serr
			}
			sub.end(err)
			return
		}
		switch m := m.(type) {
		case *wire.RequestOK:
			sub.reply(m, updateReply{params: m.Parameters})
		case *wire.RequestError:
			sub.reply(m, updateReply{err: requestError(m)})
		case *wire.PublishDone:
			sub.r.end()
			sub.awaitStreams(m.StreamCount)
			sub.end(&DoneError{m.Code, m.StreamCount, m.Reason})
			return
		case *wire.RequestUpdate:
			// The publisher of a PUBLISH may update it; nothing of it concerns us.
			if sub.s.version >= wire.Draft19 && sub.asked { // §10.9
				sub.end(sub.r.unexpectedMessage(m))
				return
			}
			refused, err := sub.r.update(m)
			if err == nil && refused == nil {
				err = sub.r.send(&wire.RequestOK{})
			} else if err == nil {
				_ = sub.r.send(refused)
				err = requestError(refused)
			}
			if err != nil {
				sub.end(err)
				return
			}
		default:
			sub.end(sub.r.unexpectedMessage(m))
			return
		}
	}
}

// update accounts for the request ID and the tokens of a REQUEST_UPDATE, and waits where there
// are too many of them. refused is the answer where the tokens are not taken; an error ends
// the session.
func (r *requestStream) update(m *wire.RequestUpdate) (refused *wire.RequestError, err error) {
	s := r.s
	s.paceStreams(true)
	s.mu.Lock()
	err = s.requests.check(m.RequestID)
	var tokens []wire.Token
	if err == nil {
		tokens, err = s.tokens.resolve(m.Parameters.AuthorizationTokens)
	}
	s.mu.Unlock()
	if err != nil {
		s.fail(err)
		return nil, err
	}
	if m.Parameters.RangeFilters {
		return &wire.RequestError{Code: wire.RequestInvalidFilter, Reason: "range filters were not offered"}, nil
	}
	if renew := r.renew.Load(); renew != nil && len(tokens) > 0 {
		if err := (*renew)(tokens); err != nil {
			return refusal(err), nil
		}
	}
	return nil, nil
}

// refusal is the message that refuses a request because of err, which need be no
// *RequestError.
func refusal(err error) *wire.RequestError {
	var e *RequestError
	if !errors.As(err, &e) {
		e = &RequestError{Code: wire.RequestInternalError, Reason: err.Error()}
	}
	return &wire.RequestError{Code: e.Code, Reason: e.Reason, RetryInterval: e.RetryInterval, Redirect: e.Redirect}
}

// awaitStreams waits for the streams that PUBLISH_DONE counts and that it may
// have overtaken (§10.11).
func (sub *Subscription) awaitStreams(count uint64) {
	t := time.NewTimer(sub.hold)
	defer t.Stop()
	for {
		sub.mu.Lock()
		n := sub.received
		sub.mu.Unlock()
		if n >= count {
			return
		}
		select {
		case <-sub.arrived:
		case <-t.C:
			return
		case <-sub.s.ctx.Done():
			return
		case <-sub.done:
			return
		}
	}
}

func (sub *Subscription) reply(m wire.Message, u updateReply) {
	sub.mu.Lock()
	if len(sub.updates) == 0 {
		sub.mu.Unlock()
		select {
		case <-sub.done: // an answer that crossed our cancellation
		default:
			sub.end(sub.r.unexpectedMessage(m))
		}
		return
	}
	if err := sub.s.version.CheckResponse(wire.TypeRequestUpdate, m); err != nil {
		sub.mu.Unlock()
		sub.s.fail(err)
		sub.end(err)
		return
	}
	ch := sub.updates[0]
	sub.updates = sub.updates[1:]
	sub.mu.Unlock()
	ch <- u
}

// Update changes parameters of the subscription (§10.9); those left nil stay. It
// returns the publisher's answer.
func (sub *Subscription) Update(ctx context.Context, p Parameters) (Parameters, error) {
	ch := make(chan updateReply, 1)
	sub.mu.Lock()
	select {
	case <-sub.done:
		sub.mu.Unlock()
		return Parameters{}, sub.err
	default:
	}
	if len(sub.updates) >= sub.s.maxUpdates() {
		sub.mu.Unlock()
		return Parameters{}, ErrQueueFull
	}
	sub.updates = append(sub.updates, ch)
	err := sub.r.send(&wire.RequestUpdate{RequestID: sub.s.takeRequestID(), Parameters: p})
	sub.mu.Unlock()
	if err != nil {
		sub.end(err)
		return Parameters{}, err
	}
	select {
	case u := <-ch:
		return u.params, u.err
	case <-ctx.Done():
		return Parameters{}, ctx.Err()
	}
}

// maxUpdates is how many REQUEST_UPDATEs of a request may be unanswered.
func (s *Session) maxUpdates() int {
	if n := s.peer.MaxRequestUpdates; n > 0 && s.version >= wire.Draft19 {
		return int(min(n, maxUpdates))
	}
	return maxUpdates
}

// SubgroupReader reads one subgroup stream, either object by object (NextObject
// and Read) or as the bytes it is made of (ReadRaw), not both. It is to be read until an error,
// io.EOF or another, or cancelled: until then it is one of the streams that the publisher may have open.
type SubgroupReader struct {
	wire.SubgroupHeader // Priority is set whether or not the header had it
	sub                 *Subscription
	str                 receiveStream
	br                  *bufio.Reader
	dec                 wire.ObjectDecoder
	left                uint64 // of the current object's payload
}

func newSubgroupReader(sub *Subscription, h wire.SubgroupHeader, str receiveStream, br *bufio.Reader) *SubgroupReader {
	if h.DefaultPriority {
		h.Priority = sub.defaultPriority
	}
	return &SubgroupReader{SubgroupHeader: h, sub: sub, str: str, br: br, dec: wire.ObjectDecoder{Group: h.Group, HasProperties: h.HasProperties}}
}

// NextObject reads the header of the next object, skipping what is left of the
// current one. It returns io.EOF when the publisher finished the subgroup.
func (r *SubgroupReader) NextObject() (Object, error) {
	if err := discard(r.br, &r.left); err != nil {
		return Object{}, r.bad(err)
	}
	o, err := r.dec.Decode(r.br)
	if err != nil {
		return o, r.bad(err)
	}
	if r.Mode == wire.SubgroupIDFirstObject {
		r.Mode, r.Subgroup = wire.SubgroupIDExplicit, o.ID
	}
	r.left = o.PayloadLength
	return o, nil
}

// discard skips *n bytes.
func discard(br *bufio.Reader, n *uint64) error {
	for *n > 0 {
		skipped, err := br.Discard(int(min(*n, math.MaxInt32)))
		*n -= uint64(skipped)
		if err == io.EOF {
			return io.ErrUnexpectedEOF
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Read reads the payload of the current object, io.EOF at its end.
func (r *SubgroupReader) Read(p []byte) (int, error) {
	if r.left == 0 {
		return 0, io.EOF
	}
	n, err := r.br.Read(p[:min(uint64(len(p)), r.left)])
	r.left -= uint64(n)
	switch {
	case err == nil:
		return n, nil
	case err == io.EOF && r.left == 0:
		return n, nil // the stream's end, not yet asked about
	case err == io.EOF:
		err = io.ErrUnexpectedEOF
	}
	return n, r.bad(err)
}

// ReadPayload reads the whole payload of the current object into buf, which
// grows as needed. A payload above limit is an error before anything is read.
func (r *SubgroupReader) ReadPayload(buf []byte, limit int) ([]byte, error) {
	if r.left > uint64(limit) {
		return buf, ErrObjectTooLarge
	}
	buf, err := readPayload(r, buf, r.left)
	if err != nil {
		return buf, streamError(err)
	}
	return buf, nil
}

// firstRead is how much room a payload has before any of it has arrived.
const firstRead = 64 << 10

// readPayload reads n bytes into buf, which grows with what arrives, fourfold at a
// time, not with what was announced. With an error it is returned empty.
func readPayload(r io.Reader, buf []byte, n uint64) ([]byte, error) {
	buf = buf[:0]
	for size := min(n, uint64(max(cap(buf), firstRead))); ; size = min(n, 4*size) {
		at := len(buf)
		if uint64(cap(buf)) < size {
			grown := make([]byte, at, size)
			copy(grown, buf)
			buf = grown
		}
		buf = buf[:size]
		if _, err := io.ReadFull(r, buf[at:]); err != nil {
			return buf[:0], err
		}
		if size == n {
			return buf, nil
		}
	}
}

// ReadRaw reads the stream's bytes after its header. The caller follows objects
// with a wire.ObjectScanner and reports what that finds wrong to Malformed.
func (r *SubgroupReader) ReadRaw(p []byte) (int, error) {
	n, err := r.br.Read(p)
	if err != nil {
		r.forget()
	}
	return n, streamError(err)
}

// Cancel tells the publisher that the rest of the subgroup is not wanted.
func (r *SubgroupReader) Cancel(code wire.StreamCode) {
	r.forget()
	r.str.stop(code)
}

func (r *SubgroupReader) forget() {
	r.sub.mu.Lock()
	delete(r.sub.open, r)
	r.sub.mu.Unlock()
}

// Malformed ends the subscription because its track breaks its own rules, as err says.
func (sub *Subscription) Malformed(err error) { sub.end(err) }

// Malformed ends the session or, for a track that breaks its own rules, the
// subscription, because of what a scanner found in ReadRaw's bytes.
func (r *SubgroupReader) Malformed(err error) { _ = r.bad(err) }

// bad classifies a decoding error.
func (r *SubgroupReader) bad(err error) error {
	r.forget()
	var w *wire.Error
	switch {
	case errors.As(err, &w):
		r.sub.s.fail(err)
	case errors.Is(err, wire.ErrMalformedTrack):
		r.str.stop(wire.StreamMalformedTrack)
		r.sub.end(err)
	case errors.Is(err, io.ErrUnexpectedEOF):
		err = protocolViolation("a subgroup stream ends inside an object")
		r.sub.s.fail(err)
	}
	return streamError(err)
}
