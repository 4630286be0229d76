package moqt

import (
	"cmp"
	"context"
	"errors"
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
