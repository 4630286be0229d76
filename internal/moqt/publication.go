package moqt

import (
	"cmp"
	"context"
	"errors"
	"os"
	"slices"
	"sync"
	"time"

	"holocast/internal/moqt/wire"
)

// TrackInfo is what a publisher tells of a track when a subscription begins.
type TrackInfo struct {
	// Largest returns the largest location published so far, false when none.
	// It is asked again when the subscriber resumes a paused subscription.
	Largest func() (Location, bool)
	// Properties are the track's. Their delivery timeouts are honoured.
	Properties Properties
	// Expires is when the publisher means to end the subscription; 0 = never.
	Expires time.Duration
	// NewGroup, if set, is called when the subscriber requests a new group.
	NewGroup func(group uint64)
	// Alias, if set, is the track alias to use if the session has it free: a relay's
	// upstream's, so that datagrams can be forwarded as they are.
	Alias *uint64
	// Paused begins a PUBLISH with forward state 0.
	Paused bool
	// Defaults are what the subscriber of a PUBLISH wants unless its answer says otherwise: the
	// parameters of its SUBSCRIBE_TRACKS (draft-19 §10.19.1).
	Defaults Parameters
}

func (i TrackInfo) largest() *Location {
	if i.Largest == nil {
		return nil
	}
	if l, ok := i.Largest(); ok {
		return &l
	}
	return nil
}

func (i TrackInfo) parameters() Parameters {
	return Parameters{LargestObject: i.largest(), Expires: milliseconds(i.Expires)}
}

// SubscribeRequest is an incoming SUBSCRIBE (§10.7).
type SubscribeRequest struct {
	*Request
	Track TrackName
	role  *role
	// further says that the peer is subscribed to the track already: it gets an alias of its own.
	further bool
}

func (s *Session) handleSubscribe(req *Request, m *wire.Subscribe) {
	claim, alone := s.claimPublishing(m.Track)
	if claim == nil {
		_ = req.Reject(wire.RequestDuplicateSubscription, "already subscribed to "+m.Track.String())
		return
	}
	defer s.release(s.sending, claim)
	serve(req, s.handler.Subscribe, &SubscribeRequest{Request: req, Track: m.Track, role: claim, further: !alone})
}

// Accept answers SUBSCRIBE_OK and returns the sending end. It fails when the
// filter lies wholly in the past, having rejected the request.
func (r *SubscribeRequest) Accept(info TrackInfo) (*Publication, error) {
	s := r.stream.s
	if r.further {
		info.Alias = nil
	}
	p := s.newPublication(r.Track, r.stream, info)
	params := info.parameters()
	if err := p.begin(r.Parameters, params.LargestObject); err != nil {
		p.cancel(err)
		_ = r.RejectWith(err)
		return nil, err
	}
	if err := r.claim(); err != nil {
		p.cancel(err)
		return nil, err
	}
	if err := r.stream.send(&wire.SubscribeOK{TrackAlias: p.alias, Parameters: params, Properties: info.Properties}); err != nil {
		p.end(err)
		r.running.Done()
		return nil, err
	}
	s.mu.Lock()
	s.joinable[r.stream.id] = p
	s.notify()
	s.mu.Unlock()
	go func() {
		defer r.running.Done()
		p.run()
		s.release(s.sending, r.role)
	}()
	if g := r.Parameters.NewGroupRequest; g != nil && info.NewGroup != nil {
		info.NewGroup(*g)
	}
	return p, nil
}

// Publication is the sending end of a subscription.
type Publication struct {
	s     *Session
	r     *requestStream
	track TrackName
	alias uint64
	info  TrackInfo

	ctx    context.Context
	cancel context.CancelCauseFunc

	defaultPriority uint8
	// The latest groups of which datagrams were sent, and those that were dropped: what else comes
	// of these is, too. Under the datagram queue's lock.
	begun, skipped []lineGroup

	mu         sync.Mutex
	forward    bool
	start      Location
	last       *uint64 // last group, nil = open
	joining    *Location
	priority   uint8 // subscriber's
	order      GroupOrder
	filter     *Filter  // where the answer to a PUBLISH has none
	own, asked timeouts // delivery timeouts of the track and of the subscriber
	streams    uint64
	open       map[*SubgroupWriter]struct{}
	ended      error         // why; set before ctx ends
	changed    chan struct{} // closed and replaced at each update
}

// timeouts are delivery timeouts (§8); 0 = none.
type timeouts struct{ object, subgroup time.Duration }

func (s *Session) newPublication(track TrackName, r *requestStream, info TrackInfo) *Publication {
	p := &Publication{
		s: s, r: r, track: track, info: info, forward: true, priority: wire.DefaultPriority,
		defaultPriority: wire.DefaultPriority, order: wire.Ascending,
		open: map[*SubgroupWriter]struct{}{}, changed: make(chan struct{}),
	}
	p.ctx, p.cancel = context.WithCancelCause(s.ctx)
	for kv := range info.Properties.All() {
		switch kv.Type {
		case wire.PropertyPublisherPriority:
			p.defaultPriority = uint8(kv.Int)
		case wire.PropertyPublisherGroupOrder:
			p.order = GroupOrder(kv.Int)
		case wire.PropertyObjectDeliveryTimeout:
			p.own.object = timeout(kv.Int)
		case wire.PropertySubgroupDeliveryTimeout:
			p.own.subgroup = timeout(kv.Int)
		}
	}
	p.alias = s.takeAlias(track, info.Alias)
	return p
}

// Aliases that nobody wishes for count from 0 at a client and from serverAliases at a
// server, so that those of a relay's upstream, mostly a client, are free downstream.
// Larger ones than these two bytes hold would be a byte more in each datagram.
const (
	serverAliases    = 1 << 13
	maxWishedAliases = 1024 // of a session
)

// takeAlias returns the alias of a new publication. An alias is never another track's
// later: objects of the first may still be in flight.
func (s *Session) takeAlias(track TrackName, wish *uint64) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if wish != nil && (*wish < s.firstAlias || *wish >= s.nextAlias) {
		switch of, taken := s.wished[*wish]; {
		case taken && of == track.String():
			return *wish
		case !taken && len(s.wished) < maxWishedAliases:
			s.wished[*wish] = track.String()
			return *wish
		}
	}
	for {
		alias := s.nextAlias
		s.nextAlias++
		if _, taken := s.wished[alias]; !taken {
			return alias
		}
		delete(s.wished, alias) // it is below the next one now
	}
}

// assume applies what a SUBSCRIBE_TRACKS says of the subscriptions that it brings.
func (p *Publication) assume(d Parameters) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.apply(Parameters{ // none of these fails
		SubscriberPriority: d.SubscriberPriority, GroupOrder: d.GroupOrder,
		ObjectDeliveryTimeout: d.ObjectDeliveryTimeout, SubgroupDeliveryTimeout: d.SubgroupDeliveryTimeout,
	}, nil)
	p.filter = d.Filter
}

// timeout converts milliseconds of the wire; an absurd one is as good as none.
func timeout(ms uint64) time.Duration {
	if ms > uint64(24*time.Hour/time.Millisecond) {
		return 0
	}
	return time.Duration(ms) * time.Millisecond
}

// begin applies the subscriber's parameters, and the largest location it was sent.
func (p *Publication) begin(params Parameters, largest *Location) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.joining = largest
	if params.Filter == nil {
		params.Filter = p.filter
	}
	return p.apply(params, largest)
}

// apply sets what params names. p.mu is held.
func (p *Publication) apply(params Parameters, largest *Location) error {
	if f := params.Filter; f != nil {
		if f.Type == wire.FilterAbsoluteRange && largest != nil && f.EndGroup < largest.Group {
			return &RequestError{Code: wire.RequestInvalidRange, Reason: "the range was published already"}
		}
		p.start, p.last = Location{}, nil
		switch f.Type {
		case wire.FilterLargestObject:
			if largest != nil {
				p.start = Location{Group: largest.Group, Object: largest.Object + 1}
			}
		case wire.FilterNextGroup:
			if largest != nil {
				p.start = Location{Group: largest.Group + 1}
			}
		case wire.FilterAbsoluteStart:
			p.start = f.Start
		case wire.FilterAbsoluteRange:
			p.start, p.last = f.Start, &f.EndGroup
		}
	}
	if params.Forward != nil {
		if *params.Forward && !p.forward {
			p.joining = largest
		}
		p.forward = *params.Forward
		if !p.forward { // what is left of open subgroups will not be sent (§11.4.3)
			for w := range p.open {
				w.reset(wire.StreamCancelled)
			}
			clear(p.open)
		}
	}
	if params.SubscriberPriority != nil {
		p.priority = *params.SubscriberPriority
		for w := range p.open {
			w.str.setPriority(objectPriority(p.priority, w.priority, w.slot))
		}
	}
	if o := params.GroupOrder; o != nil && *o != p.order {
		p.order = *o
		for w := range p.open {
			p.arrange(w.priority)
		}
	}
	if v := params.ObjectDeliveryTimeout; v != nil {
		p.asked.object = timeout(*v)
	}
	if v := params.SubgroupDeliveryTimeout; v != nil {
		p.asked.subgroup = timeout(*v)
	}
	return nil
}

// shorter is the smaller of two timeouts of which 0 means none (§8).
func shorter(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// Priority is the subscriber's priority, lower first.
func (p *Publication) Priority() uint8 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.priority
}

// Track is the publication's track.
func (p *Publication) Track() TrackName { return p.track }

// Session is the session the publication belongs to.
func (p *Publication) Session() *Session { return p.s }

// Context ends when the subscription does; its cause says why.
func (p *Publication) Context() context.Context { return p.ctx }

// Forwarding reports the subscription's forward state.
func (p *Publication) Forwarding() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.forward
}

// Changed returns a channel that is closed at the subscriber's next update.
func (p *Publication) Changed() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.changed
}

// Start is the first location that passes the subscription's filter.
func (p *Publication) Start() Location {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.start
}

// Passes reports whether an object at l is to be sent now: it passes the filter
// and the forward state is 1.
func (p *Publication) Passes(l Location) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.forward && !l.Less(p.start) && (p.last == nil || l.Group <= *p.last)
}

// Ended reports whether the filter lets no group from group on pass any more.
func (p *Publication) Ended(group uint64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last != nil && group > *p.last
}

// DeliveryTimeouts are those in force (§8): of an object from its first byte, of
// a subgroup from its end; 0 = none.
func (p *Publication) DeliveryTimeouts() (object, subgroup time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return shorter(p.own.object, p.asked.object), shorter(p.own.subgroup, p.asked.subgroup)
}

// SubgroupTimeouts are DeliveryTimeouts for a subgroup whose first object has properties: from
// draft-19 on they may take the place of the track's.
func (p *Publication) SubgroupTimeouts(first Properties) (object, subgroup time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	own := p.own
	if p.s.version >= wire.Draft19 && len(first) > 0 {
		if ms, ok := first.Int(wire.PropertyObjectDeliveryTimeout); ok {
			own.object = timeout(ms)
		}
		if ms, ok := first.Int(wire.PropertySubgroupDeliveryTimeout); ok {
			own.subgroup = timeout(ms)
		}
	}
	return shorter(own.object, p.asked.object), shorter(own.subgroup, p.asked.subgroup)
}

// run reads the subscriber's updates until the subscription ends.
func (p *Publication) run() {
	stopped := context.AfterFunc(p.r.str.Context(), func() {
		p.mu.Lock()
		ended := p.ended != nil
		p.mu.Unlock()
		if !ended {
			p.end(&StreamError{Code: wire.StreamCancelled, Remote: true})
		}
	})
	defer stopped()
	for {
		m, err := p.r.read()
		if err != nil {
			// A FIN is not a cancellation: the subscriber cancels with
			// STOP_SENDING.
			if e := (*StreamError)(nil); errors.As(err, &e) {
				p.end(err)
			}
			break
		}
		u, ok := m.(*wire.RequestUpdate)
		if !ok {
			p.end(p.r.unexpectedMessage(m))
			break
		}
		if err := p.update(u); err != nil {
			p.end(err)
			break
		}
	}
	<-p.ctx.Done()
}

func (p *Publication) update(m *wire.RequestUpdate) error {
	refused, err := p.r.update(m)
	if err != nil {
		return err
	}
	largest := p.info.largest()
	p.mu.Lock()
	if refused != nil {
		err = requestError(refused)
	} else {
		err = p.apply(m.Parameters, largest)
	}
	close(p.changed)
	p.changed = make(chan struct{})
	p.mu.Unlock()
	if err != nil {
		var e *RequestError
		errors.As(err, &e)
		_ = p.r.send(&wire.RequestError{Code: e.Code, Reason: e.Reason})
		return errors.Join(err, p.Done(wire.DoneUpdateFailed, e.Reason))
	}
	if g := m.Parameters.NewGroupRequest; g != nil && p.info.NewGroup != nil {
		p.info.NewGroup(*g)
	}
	return p.r.send(&wire.RequestOK{Parameters: Parameters{LargestObject: largest}})
}

// end releases everything the publication holds; the first cause stays.
func (p *Publication) end(cause error) {
	p.mu.Lock()
	if p.ended != nil {
		p.mu.Unlock()
		return
	}
	p.ended = cause
	open := p.open
	p.open = nil
	p.mu.Unlock()
	p.cancel(cause)
	p.s.sendq.forget(p)
	for w := range open {
		w.reset(wire.StreamCancelled)
	}
	p.r.abort(wire.StreamCancelled)
}

// Done ends the subscription from this side with PUBLISH_DONE (§10.11). Subgroups
// still open are reset.
func (p *Publication) Done(code wire.DoneCode, reason string) error {
	p.mu.Lock()
	if p.ended != nil {
		defer p.mu.Unlock()
		return p.ended
	}
	open, streams := p.open, p.streams
	done := &DoneError{code, streams, reason}
	p.ended, p.open = done, nil
	p.mu.Unlock()
	for w := range open {
		w.reset(wire.StreamCancelled)
	}
	err := p.r.send(&wire.PublishDone{Code: code, StreamCount: streams, Reason: reason})
	p.r.end()
	p.cancel(done)
	return err
}

// datagramHeader is room for the integers of a datagram.
const datagramHeader = 32

// SendDatagram sends an object as a datagram; TrackAlias is filled in. It never
// waits: datagrams queue for the transport by priority, and what it cannot take in time
// is dropped and counted: one that has missed the shorter of the delivery timeouts, and
// at a bottleneck whole groups.
func (p *Publication) SendDatagram(d Datagram) error {
	if p.ctx.Err() != nil {
		return context.Cause(p.ctx)
	}
	if !p.Forwarding() {
		return ErrNotForwarding
	}
	d.TrackAlias = p.alias
	b, err := d.Append(make([]byte, 0, datagramHeader+len(d.Properties)+len(d.Payload)))
	if err != nil {
		return err
	}
	p.s.sendOnce.Do(func() { go p.s.sendDatagrams() })
	now := time.Now()
	out := outgoingDatagram{b: b}
	if t := shorter(p.DeliveryTimeouts()); t > 0 {
		out.deadline = now.Add(t)
	}
	prio := d.Priority
	if d.DefaultPriority {
		prio = p.defaultPriority
	}
	dropped, queued := p.s.sendq.push(p, d.Group, uint16(p.Priority())<<8|uint16(prio), out, now)
	if !queued {
		dropped++
		err = ErrQueueFull
	}
	p.s.count.datagramsUnsent.Add(uint64(dropped))
	return err
}

// OpenSubgroup begins a subgroup stream; TrackAlias is filled in. It does not
// wait for the peer's stream limit: ErrStreamsBlocked says it is reached.
func (p *Publication) OpenSubgroup(h wire.SubgroupHeader) (*SubgroupWriter, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended != nil {
		return nil, p.ended
	}
	if !p.forward {
		return nil, ErrNotForwarding
	}
	str, err := p.s.conn.openUni()
	if err != nil {
		if errors.Is(err, ErrStreamsBlocked) {
			p.s.count.streamsBlocked.Add(1)
		}
		return nil, err
	}
	h.TrackAlias = p.alias
	prio := h.Priority
	if h.DefaultPriority {
		prio = p.defaultPriority
	}
	slot := p.s.takeSlot()
	str.setPriority(objectPriority(p.priority, prio, slot))
	w := &SubgroupWriter{
		p: p, str: str, pull: str.sourced(), grown: make(chan struct{}, 1), group: h.Group, subgroup: h.Subgroup, priority: prio, slot: slot,
		enc:    wire.ObjectEncoder{HasProperties: h.HasProperties},
		header: h.Append(make([]byte, 0, 96)),
	}
	p.streams++
	p.open[w] = struct{}{}
	p.arrange(prio)
	return w, nil
}

// arrange hands the slots of the open subgroups of one publisher priority out anew, in
// the order that the subscription asks for (§7): a group that begins late, or is to
// overtake others, takes the slot of the first that comes after it. Tracks of equal
// priorities take turns all the same, as no slot of another is touched. p.mu is held.
func (p *Publication) arrange(priority uint8) {
	var list []*SubgroupWriter
	for w := range p.open {
		if w.priority == priority {
			list = append(list, w)
		}
	}
	if len(list) < 2 {
		return
	}
	slots := make([]uint64, 0, len(list))
	for _, w := range list {
		slots = append(slots, w.slot)
	}
	slices.Sort(slots)
	slices.SortFunc(list, func(a, b *SubgroupWriter) int {
		groups := cmp.Compare(a.group, b.group)
		if p.order == wire.Descending {
			groups = -groups
		}
		return cmp.Or(groups, cmp.Compare(a.subgroup, b.subgroup), cmp.Compare(a.slot, b.slot))
	})
	for i, w := range list {
		if w.slot != slots[i] {
			w.slot = slots[i]
			w.str.setPriority(objectPriority(p.priority, priority, w.slot))
		}
	}
}

// takeSlot returns the place of a new stream behind all others of equal priorities.
func (s *Session) takeSlot() uint64 { return s.nextSlot.Add(1) }

// SubgroupWriter writes one subgroup stream, either object by object or as raw
// bytes that a subgroup reader delivered. It is for one goroutine at a time, unless a
// method says otherwise.
type SubgroupWriter struct {
	p        *Publication
	str      uniStream
	group    uint64
	subgroup uint64
	priority uint8  // publisher's
	slot     uint64 // among those of equal priorities; under p.mu
	enc      wire.ObjectEncoder
	buf      []byte        // of an object's header
	left     uint64        // of the current object's payload
	begun    bool          // an object was written
	first    Properties    // of the first object
	pull     sourced       // str, for Send; nil: it takes no source
	grown    chan struct{} // without pull: Send's source has more

	mu       sync.Mutex // the publication's end may write the header, too
	src      Source     // Send's
	header   []byte     // of the stream, until it was written
	deadline time.Time
	over     bool // reset
}

// smallObject is up to where a payload is copied to go out with its header.
const smallObject = 512

// SetDeadline makes writes fail with ErrDeliveryTimeout, and the stream be reset,
// when they cannot be done by t. The zero time means never. It may be called from
// another goroutine than the writer's.
func (w *SubgroupWriter) SetDeadline(t time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.over && !t.Equal(w.deadline) {
		w.deadline = t
		_ = w.str.SetWriteDeadline(t)
	}
}

// WriteObject writes one object whole.
func (w *SubgroupWriter) WriteObject(o Object, payload []byte) error {
	o.PayloadLength = uint64(len(payload))
	if len(payload) > smallObject {
		if err := w.BeginObject(o); err != nil {
			return err
		}
		_, err := w.Write(payload)
		return err
	}
	if err := w.encode(o); err != nil {
		return err
	}
	w.buf, w.left = append(w.buf, payload...), 0
	return w.flush(w.buf, w.str.Write)
}

// BeginObject writes an object's header; Write then takes PayloadLength bytes.
func (w *SubgroupWriter) BeginObject(o Object) error {
	if err := w.encode(o); err != nil {
		return err
	}
	return w.flush(w.buf, w.str.Write)
}

// encode puts o's header into buf.
func (w *SubgroupWriter) encode(o Object) error {
	if w.left > 0 {
		return errors.New("moqt: the current object's payload is not complete")
	}
	b, err := w.enc.Append(w.buf[:0], o)
	if err != nil {
		return err
	}
	if !w.begun {
		w.begun, w.first = true, o.Properties
	}
	w.buf, w.left = b, o.PayloadLength
	return nil
}

// Write writes payload of the current object.
func (w *SubgroupWriter) Write(payload []byte) (int, error) {
	if uint64(len(payload)) > w.left {
		return 0, errors.New("moqt: payload exceeds the object's announced length")
	}
	if len(payload) == 0 {
		return 0, nil
	}
	w.left -= uint64(len(payload))
	if err := w.flush(payload, w.str.Write); err != nil {
		return 0, err
	}
	return len(payload), nil
}

// SetFirst says what properties the first object of WriteRaw's bytes has.
func (w *SubgroupWriter) SetFirst(p Properties) { w.begun, w.first = true, p }

// WriteRaw writes bytes of the stream after its header.
func (w *SubgroupWriter) WriteRaw(b []byte) error { return w.flush(b, w.str.Write) }

func (w *SubgroupWriter) flush(b []byte, write func([]byte) (int, error)) error {
	err := w.writeHeader()
	if err == nil && len(b) > 0 {
		_, err = write(b)
	}
	return w.failed(err)
}

// failed is what an error of the stream, or none, means to the writer.
func (w *SubgroupWriter) failed(err error) error {
	if err == nil {
		return nil
	}
	if cause := context.Cause(w.p.ctx); cause != nil {
		w.forget()
		return cause
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		w.p.s.count.deliveryTimeouts.Add(1)
		w.Reset(wire.StreamDeliveryTimeout)
		return ErrDeliveryTimeout
	}
	w.forget()
	return streamError(err)
}

// writeHeader writes the stream's header once, and so that it survives a reset:
// the subscriber counts streams by it (§11.4.3). The transport takes so few bytes
// without waiting.
func (w *SubgroupWriter) writeHeader() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.header == nil {
		return nil
	}
	_, err := w.str.Write(w.header)
	if err == nil {
		w.header = nil
		w.str.setReliable()
	}
	return err
}

// Close ends the subgroup. With a subgroup delivery timeout in
// force the stream is reset if it has not arrived by then (§8).
func (w *SubgroupWriter) Close() error {
	if w.left > 0 {
		w.Reset(wire.StreamInternalError)
		return errors.New("moqt: subgroup closed inside an object")
	}
	if err := w.flush(nil, nil); err != nil {
		return err
	}
	w.forget()
	if err := w.str.Close(); err != nil {
		return streamError(err)
	}
	if _, t := w.p.SubgroupTimeouts(w.first); t > 0 {
		w.resetAfter(t)
	}
	return nil
}

// sweepEvery is how often finished streams are looked at for having arrived.
const sweepEvery = time.Second

// resetAfter resets the finished stream if it has not arrived by t from now.
func (w *SubgroupWriter) resetAfter(t time.Duration) {
	s := w.p.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return
	}
	now := time.Now()
	s.lingering[w] = now.Add(t)
	s.sweepBy(now.Add(min(t, sweepEvery)))
}

// sweepBy has lingering streams looked at by a time. s.mu is held.
func (s *Session) sweepBy(at time.Time) {
	if s.sweeper != nil {
		if !at.Before(s.sweepAt) {
			return
		}
		s.sweeper.Stop()
	}
	s.sweepAt = at
	s.sweeper = time.AfterFunc(time.Until(at), s.sweep)
}

// sweep forgets the finished streams that have arrived, however long their timeouts,
// and resets those that are late.
func (s *Session) sweep() {
	var late []*SubgroupWriter
	now := time.Now()
	s.mu.Lock()
	s.sweeper = nil
	next := now.Add(sweepEvery)
	for w, deadline := range s.lingering {
		switch {
		case w.str.delivered():
			delete(s.lingering, w)
		case !now.Before(deadline):
			delete(s.lingering, w)
			late = append(late, w)
		case deadline.Before(next):
			next = deadline
		}
	}
	if len(s.lingering) > 0 {
		s.sweepBy(next)
	}
	s.mu.Unlock()
	for _, w := range late {
		s.count.deliveryTimeouts.Add(1)
		w.str.reset(wire.StreamDeliveryTimeout)
	}
}

// Reset abandons the subgroup.
func (w *SubgroupWriter) Reset(code wire.StreamCode) {
	w.forget()
	w.reset(code)
}

// Abort is Reset for another goroutine than the writer's, whose write then fails.
func (w *SubgroupWriter) Abort(code wire.StreamCode) { w.Reset(code) }

func (w *SubgroupWriter) reset(code wire.StreamCode) {
	w.mu.Lock()
	w.over = true
	_ = w.str.SetWriteDeadline(time.Time{})
	w.mu.Unlock()
	_ = w.writeHeader() // tells the peer which subgroup it was
	w.str.reset(code)
}

func (w *SubgroupWriter) forget() {
	w.p.mu.Lock()
	delete(w.p.open, w)
	w.p.mu.Unlock()
}

// Publish offers a track to the peer and waits for its answer (§10.10).
func (s *Session) Publish(ctx context.Context, track TrackName, info TrackInfo, tokens ...wire.Token) (*Publication, error) {
	if err := track.Validate(); err != nil {
		return nil, err
	}
	claim := s.claimTrack(s.sending, track)
	if claim == nil { // from draft-19 on we might, and do not
		return nil, &RequestError{Code: wire.RequestDuplicateSubscription, Reason: "already publishing " + track.String()}
	}
	p := s.newPublication(track, nil, info)
	var id *uint64
	over := func(err error) {
		p.cancel(err)
		if id != nil {
			s.mu.Lock()
			delete(s.joinable, *id)
			s.mu.Unlock()
		}
		s.release(s.sending, claim)
	}
	params := info.parameters()
	params.AuthorizationTokens = tokens
	if s.version >= wire.Draft19 {
		p.assume(info.Defaults)
		params.GroupOrder = info.Defaults.GroupOrder
	}
	if info.Paused {
		p.forward, params.Forward = false, new(false)
	}
	r, err := s.openRequest(ctx, func(i uint64) wire.Message {
		id = &i
		s.mu.Lock()
		s.joinable[i] = nil // pending
		s.mu.Unlock()
		return &wire.Publish{RequestID: i, Track: track, TrackAlias: p.alias, Parameters: params, Properties: info.Properties}
	})
	if err != nil {
		over(err)
		return nil, err
	}
	p.r = r
	m, err := r.awaitResponse(ctx, 0)
	if err == nil {
		ok, isOK := m.(*wire.RequestOK)
		if !isOK {
			err = r.unexpectedMessage(m)
		} else if err = p.begin(accepted(ok.Parameters), params.LargestObject); err != nil {
			_ = p.Done(wire.DoneSubscriptionEnded, err.Error())
		}
	}
	if err != nil {
		over(err)
		s.closeRequest()
		return nil, err
	}
	s.mu.Lock()
	s.joinable[r.id] = p
	s.notify()
	s.mu.Unlock()
	go func() {
		p.run()
		over(nil)
		s.closeRequest()
	}()
	return p, nil
}

// accepted are the parameters of a PUBLISH_OK with what it means by saying nothing (§10.2.12).
func accepted(p Parameters) Parameters {
	if p.Forward == nil {
		p.Forward = new(true)
	}
	return p
}

// duplicate is the code for a PUBLISH of a track that is received already. Draft-19 has none
// of its own: it allows that, and we do not want it.
func (s *Session) duplicate() wire.RequestCode {
	if s.version >= wire.Draft19 {
		return wire.RequestUninterested
	}
	return wire.RequestDuplicateSubscription
}

// PublishRequest is an incoming PUBLISH (§10.10).
type PublishRequest struct {
	*Request
	Track      TrackName
	Largest    *Location
	Properties Properties
	alias      uint64
	role       *role
	pending    *role // our own SUBSCRIBE's, in place of role
}

func (s *Session) handlePublish(req *Request, m *wire.Publish) {
	claim, pending := s.claimOffered(m.Track)
	if claim == nil && pending == nil {
		_ = req.Reject(s.duplicate(), "already subscribed to "+m.Track.String())
		return
	}
	r := &PublishRequest{
		Request: req, Track: m.Track, Largest: m.Parameters.LargestObject,
		Properties: m.Properties, alias: m.TrackAlias, role: claim, pending: pending,
	}
	defer func() {
		if r.role != nil {
			s.release(s.receiving, r.role)
		}
	}()
	if t, found := m.Properties.UnknownMandatory(); found {
		_ = req.RejectWith(unknownMandatory(t))
		return
	}
	serve(req, s.handler.Publish, r)
}

// Accept answers PUBLISH_OK and returns the receiving end.
func (r *PublishRequest) Accept(o SubscribeOptions) (*Subscription, error) {
	s := r.stream.s
	if r.pending != nil {
		if r.role = s.takeOver(r.pending); r.role == nil {
			r.role = s.claimSoon(s.receiving, r.Track) // it may have been refused
		}
		if r.role == nil {
			err := &RequestError{Code: wire.RequestDuplicateSubscription, Reason: "already subscribed to " + r.Track.String()}
			_ = r.RejectWith(err)
			return nil, err
		}
		r.pending = nil
	}
	sub := s.newSubscription(r.Track, o)
	sub.r, sub.role = r.stream, r.role
	sub.establish(r.alias, r.Parameters, r.Properties)
	if err := r.claim(); err != nil {
		return nil, err
	}
	if err := s.register(sub); err != nil {
		r.running.Done()
		s.fail(err)
		return nil, err
	}
	s.mu.Lock()
	s.openRequests++ // the request's own ends with its handler, this with the subscription
	s.mu.Unlock()
	p := o.parameters()
	p.AuthorizationTokens, p.RendezvousTimeout = nil, nil
	if err := r.stream.send(&wire.RequestOK{Parameters: p}); err != nil {
		sub.end(err)
		r.running.Done()
		return nil, err
	}
	go func() {
		defer r.running.Done()
		sub.run()
	}()
	return sub, nil
}
