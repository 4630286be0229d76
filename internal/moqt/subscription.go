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

// SubscribeOptions are the parameters of a SUBSCRIBE, or of the acceptance of a PUBLISH (§10.7,
// §10.10). The zero value requests all objects from now on.
type SubscribeOptions struct {
	Filter                  *Filter // nil = unfiltered
	Priority                *uint8  // nil = 128
	GroupOrder              GroupOrder
	Paused                  bool          // start with forward state 0
	ObjectDeliveryTimeout   time.Duration // 0 = none
	SubgroupDeliveryTimeout time.Duration // 0 = none
	// RendezvousTimeout bounds a relay's wait for a publisher.
	RendezvousTimeout time.Duration
	// NewGroupRequest asks the publisher for a new group. Its value is the largest known group plus
	// one, or 0 if none is known. nil means no request (§10.2.13).
	NewGroupRequest *uint64
	Tokens          []wire.Token
	// Join requests the current group together with the subscription, by a joining FETCH or from
	// draft-20 on by a fill, so a late joiner has the group after one round trip; see
	// Subscription.Joined.
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

// Subscription is the receiving end of a subscription. Subgroups and datagrams are delivered as
// they arrive, in any order. The user must accept both until they end, or cancel the subscription.
// A subgroup is refused if it is not accepted within five seconds or if maxSubgroupQueue newer
// subgroups are queued. An accepted subgroup occupies receive window until it is read or cancelled.
type Subscription struct {
	s          *Session
	r          *requestStream
	track      TrackName
	role       *role
	alias      uint64
	streamWait time.Duration // wait for late streams after PUBLISH_DONE
	expire     uint64

	// Largest is the largest location when the subscription began, or nil if nothing was published.
	// Properties are the track's properties.
	Largest    *Location
	Properties Properties

	defaultPriority uint8
	opener          ObjectOpener  // nil unless the objects are encrypted
	bySubscribe     bool          // created by SUBSCRIBE, not by PUBLISH
	join            *joiningFetch // nil without SubscribeOptions.Join

	datagrams chan *Datagram
	done      chan struct{}
	endOnce   sync.Once
	err       error // valid once done is closed

	mu        sync.Mutex
	queue     []queuedSubgroup // unaccepted, oldest first
	available chan struct{}    // signalled when queue is not empty
	expiry    *time.Timer      // for the oldest subgroup in queue; nil if queue is empty
	open      map[*SubgroupReader]struct{}
	cancelled bool               // new subgroups are refused
	received  uint64             // number of streams
	arrived   chan struct{}      // signalled for each stream
	updates   []chan updateReply // unanswered REQUEST_UPDATEs
}

type queuedSubgroup struct {
	r    *SubgroupReader
	seen time.Time
}

type updateReply struct {
	params Parameters
	err    error
}

// Subscribe subscribes to a track and waits for the response.
func (s *Session) Subscribe(ctx context.Context, track TrackName, o SubscribeOptions) (*Subscription, error) {
	if err := track.Validate(); err != nil {
		return nil, err
	}
	sub := s.newSubscription(track, o)
	if sub.role = s.acquireRole(s.receiving, track); sub.role == nil {
		return nil, &RequestError{
			Code:   wire.RequestDuplicateSubscription,
			Reason: "already subscribed to " + track.String(),
		}
	}
	r, err := s.openRequest(ctx, func(id uint64) wire.Message {
		p := o.parameters()
		if o.Join && !o.Paused && s.version >= wire.Draft20 {
			p.Fill = &Parameters{Filter: &Filter{Type: wire.FilterRecentGroups, Groups: 1}}
			sub.join = s.expectFill(sub, id)
		}
		return &wire.Subscribe{RequestID: id, Track: track, Parameters: p}
	})
	if err != nil {
		sub.join.end()
		s.releaseRole(s.receiving, sub.role)
		return nil, err
	}
	sub.r, sub.bySubscribe = r, true
	if o.Join && s.version < wire.Draft20 {
		sub.join = s.join(track, r.id, o.RendezvousTimeout)
	}
	s.mu.Lock()
	sub.role.yield = func() { r.abort(wire.StreamCancelled) }
	s.notify() // wakes a PUBLISH that waits for the role
	s.mu.Unlock()
	m, err := r.awaitResponse(ctx, o.RendezvousTimeout)
	if !s.keepRole(sub.role) {
		r.abort(wire.StreamCancelled)
		err = &RequestError{
			Code:   wire.RequestDuplicateSubscription,
			Reason: "the publisher offered " + track.String() + " meanwhile",
		}
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
		s.releaseRole(s.receiving, sub.role)
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
		s: s, track: track, streamWait: max(s.wait.done, o.ObjectDeliveryTimeout, o.SubgroupDeliveryTimeout),
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
	sub.opener = sub.s.openTrack(sub.track, props)
}

// Track returns the subscription's track.
func (sub *Subscription) Track() TrackName { return sub.track }

// RequestID returns the ID that joining FETCHes refer to.
func (sub *Subscription) RequestID() uint64 { return sub.r.id }

// Session returns the subscription's session.
func (sub *Subscription) Session() *Session { return sub.s }

// EndsWithFilter reports whether the publisher ends the subscription after the last group of its
// filter. From draft-20 on it does not (draft-22 §3.3.1).
func (sub *Subscription) EndsWithFilter() bool { return sub.s.version < wire.Draft20 }

// Done is closed when the subscription has ended; Err then returns the reason.
func (sub *Subscription) Done() <-chan struct{} { return sub.done }

// Err returns nil while the subscription is open, a *DoneError if the publisher ended it, or
// another error.
func (sub *Subscription) Err() error {
	select {
	case <-sub.done:
		return sub.err
	default:
		return nil
	}
}

// AcceptSubgroup returns the next subgroup. After the end of the subscription it returns the
// remaining subgroups, then the subscription's error.
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
			if r := sub.nextSubgroup(); r != nil { // deliver the remaining subgroups first
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
		signal(sub.available) // more are queued
	}
	return r
}

// signal sends on a channel of capacity one without blocking.
func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// AcceptDatagram returns the next object that arrived as a datagram.
func (sub *Subscription) AcceptDatagram(ctx context.Context) (*Datagram, error) {
	for {
		d, err := sub.acceptDatagram(ctx)
		if err != nil || openDatagram(sub.opener, d) {
			return d, err
		}
	}
}

func (sub *Subscription) acceptDatagram(ctx context.Context) (*Datagram, error) {
	select { // deliver queued datagrams before an error
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

// deliverSubgroup queues r for AcceptSubgroup. If the queue is full, the oldest subgroup is
// refused.
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

// countStream counts a stream that is not a subgroup.
func (sub *Subscription) countStream() {
	sub.mu.Lock()
	sub.received++
	sub.mu.Unlock()
	signal(sub.arrived)
}

// refuseLate refuses subgroups that were not accepted in time, to free their receive window.
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

// Cancel ends the subscription (§3.3.2) and discards subgroups that are not completely read. It may
// be called after the end.
func (sub *Subscription) Cancel() {
	sub.end(&StreamError{Code: wire.StreamCancelled})
	sub.discard()
}

// end ends the subscription. After a PUBLISH_DONE, subgroups that arrived may still be accepted and
// read.
func (sub *Subscription) end(err error) {
	sub.endOnce.Do(func() {
		sub.err = err
		sub.join.end()
		sub.s.unregister(sub)
		sub.s.closeRequest()
		// Send a FIN, not a reset: some peers end the session when a request is reset.
		sub.r.end()
		if e := (*DoneError)(nil); !errors.As(err, &e) {
			sub.discard()
		}
		sub.mu.Lock()
		updates := sub.updates
		sub.updates = nil
		close(sub.done) // last, because the track may be subscribed to again afterwards
		sub.mu.Unlock()
		for _, u := range updates {
			u <- updateReply{err: err}
		}
	})
}

// discard refuses unread and future subgroups.
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

// run reads the publisher's messages on the request stream.
func (sub *Subscription) run() {
	for {
		m, err := sub.r.read()
		if err != nil {
			if err == io.EOF {
				err = &DoneError{Code: wire.DoneInternalError, Reason: "the publisher left without PUBLISH_DONE"}
			}
			if e := (*RequestError)(nil); errors.As(err, &e) { // GOAWAY
				err = &DoneError{
					Code:   wire.DoneGoingAway,
					Reason: strings.TrimSpace(e.Reason + " " + e.Redirect.ConnectURI),
				}
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
		case *wire.PublishStateNotify:
			// Only informs (draft-22 §9.10).
			sub.s.log.Debug("moqt publisher changed a subscription", "track", sub.track.String(),
				"forward", m.Parameters.Forward, "filter", m.Parameters.Filter)
		case *wire.PublishDone:
			sub.r.end()
			sub.awaitStreams(m.StreamCount)
			sub.end(&DoneError{m.Code, m.StreamCount, m.Reason})
			return
		case *wire.RequestUpdate:
			// The publisher of a PUBLISH may update it. No parameter of such an update applies
			// here.
			if sub.s.version >= wire.Draft19 && sub.bySubscribe { // §10.9
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

// update checks the request ID and the tokens of a REQUEST_UPDATE, after waiting for the rate
// limit. refused is the response if the update is refused. An error ends the session.
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
	if m.Parameters.RangeFilters || m.Parameters.Fill != nil && m.Parameters.Fill.RangeFilters {
		return &wire.RequestError{Code: wire.RequestInvalidFilter, Reason: "range filters were not offered"}, nil
	}
	if check := r.checkTokens.Load(); check != nil && len(tokens) > 0 {
		if err := (*check)(tokens); err != nil {
			return refusal(err), nil
		}
	}
	return nil, nil
}

// refusal converts err to a message that refuses a request.
func refusal(err error) *wire.RequestError {
	var e *RequestError
	if !errors.As(err, &e) {
		e = &RequestError{Code: wire.RequestInternalError, Reason: err.Error()}
	}
	return &wire.RequestError{Code: e.Code, Reason: e.Reason, RetryInterval: e.RetryInterval, Redirect: e.Redirect}
}

// awaitStreams waits for streams counted in PUBLISH_DONE that are still in flight (§10.11).
func (sub *Subscription) awaitStreams(count uint64) {
	t := time.NewTimer(sub.streamWait)
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
		case <-sub.done: // the response crossed our cancellation
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

// Update changes the parameters that are not nil (§10.9) and returns the publisher's response.
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

// maxUpdates returns the maximum number of unanswered REQUEST_UPDATEs per request.
func (s *Session) maxUpdates() int {
	if n := s.peerSetup().MaxRequestUpdates; n > 0 && s.version >= wire.Draft19 {
		return int(min(n, maxUpdates))
	}
	return maxUpdates
}

// SubgroupReader reads one subgroup stream, either object by object (NextObject and Read) or as raw
// bytes (ReadRaw). Read it until io.EOF or another error, or cancel it: until then it counts
// against the stream limit.
type SubgroupReader struct {
	wire.SubgroupHeader // Priority is set even if the header has none
	sub                 *Subscription
	str                 receiveStream
	br                  *bufio.Reader
	dec                 wire.ObjectDecoder
	left                uint64 // bytes left of the current object's payload
	opened              openedPayload
}

func newSubgroupReader(sub *Subscription, h wire.SubgroupHeader, str receiveStream, br *bufio.Reader) *SubgroupReader {
	if h.DefaultPriority {
		h.Priority = sub.defaultPriority
	}
	return &SubgroupReader{
		SubgroupHeader: h,
		sub:            sub,
		str:            str,
		br:             br,
		dec:            wire.ObjectDecoder{Group: h.Group, HasProperties: h.HasProperties},
	}
}

// NextObject reads the header of the next object and skips the rest of the current one. It returns
// io.EOF at the end of the subgroup. With Config.Opener it reads the whole object, and skips those
// that are refused.
func (r *SubgroupReader) NextObject() (Object, error) {
	for {
		r.opened.set = false
		o, err := r.nextObject()
		if err != nil || r.sub.opener == nil || o.Status != wire.StatusNormal {
			return o, err
		}
		ok, err := r.opened.open(
			r.sub.opener, Location{Group: r.Group, Object: o.ID}, r.Priority, &o.Properties, &o.PayloadLength,
			func(buf []byte) ([]byte, error) { return readPayload(r, buf, r.left) },
		)
		if err != nil {
			return o, streamError(err)
		}
		if ok {
			return o, nil
		}
	}
}

func (r *SubgroupReader) nextObject() (Object, error) {
	if err := discard(r.br, &r.left); err != nil {
		return Object{}, r.decodeError(err)
	}
	o, err := r.dec.Decode(r.br)
	if err != nil {
		return o, r.decodeError(err)
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

// Read reads the payload of the current object and returns io.EOF at its end.
func (r *SubgroupReader) Read(p []byte) (int, error) {
	if r.opened.set {
		if n := r.opened.read(p); n > 0 {
			return n, nil
		}
		return 0, io.EOF
	}
	if r.left == 0 {
		return 0, io.EOF
	}
	n, err := r.br.Read(p[:min(uint64(len(p)), r.left)])
	r.left -= uint64(n)
	switch {
	case err == nil:
		return n, nil
	case err == io.EOF && r.left == 0:
		return n, nil // end of stream, reported by the next call
	case err == io.EOF:
		err = io.ErrUnexpectedEOF
	}
	return n, r.decodeError(err)
}

// ReadPayload reads the payload of the current object into buf, which grows as needed. It returns
// ErrObjectTooLarge before reading a payload above limit.
func (r *SubgroupReader) ReadPayload(buf []byte, limit int) ([]byte, error) {
	if r.opened.set {
		return r.opened.take(buf, limit)
	}
	if r.left > uint64(limit) {
		return buf, ErrObjectTooLarge
	}
	buf, err := readPayload(r, buf, r.left)
	if err != nil {
		return buf, streamError(err)
	}
	return buf, nil
}

// firstRead is the capacity allocated before any payload has arrived.
const firstRead = 64 << 10

// readPayload reads n bytes into buf. buf grows fourfold as data arrives, so memory follows
// received rather than announced bytes. On an error it returns an empty buf.
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

// ReadRaw reads the stream's bytes after its header. The caller validates them with a
// wire.ObjectScanner and reports errors to Malformed.
func (r *SubgroupReader) ReadRaw(p []byte) (int, error) {
	n, err := r.br.Read(p)
	if err != nil {
		r.forget()
	}
	return n, streamError(err)
}

// Cancel refuses the rest of the subgroup.
func (r *SubgroupReader) Cancel(code wire.StreamCode) {
	r.forget()
	r.str.stop(code)
}

func (r *SubgroupReader) forget() {
	r.sub.mu.Lock()
	delete(r.sub.open, r)
	r.sub.mu.Unlock()
}

// Malformed ends the subscription because of a malformed track.
func (sub *Subscription) Malformed(err error) { sub.end(err) }

// Malformed reports an error found in ReadRaw's bytes. It ends the session, or only the
// subscription for a malformed track.
func (r *SubgroupReader) Malformed(err error) { _ = r.decodeError(err) }

// decodeError handles a decoding error and returns it.
func (r *SubgroupReader) decodeError(err error) error {
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
