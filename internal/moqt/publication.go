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

// TrackInfo describes a track to a subscriber.
type TrackInfo struct {
	// Largest returns the largest published location, or false if nothing was published. It is
	// called again when a paused subscription resumes.
	Largest func() (Location, bool)
	// Properties are the track properties, including its delivery timeouts.
	Properties Properties
	// Expires is the time after which the publisher will end the subscription; 0 means never.
	Expires time.Duration
	// NewGroup, if set, is called when the subscriber requests a new group.
	NewGroup func(group uint64)
	// Alias, if set, is the preferred track alias. Relays prefer their upstream's alias, so that
	// they can forward datagrams unchanged.
	Alias *uint64
	// Paused sends a PUBLISH with forward state 0.
	Paused bool
	// Defaults are the parameters of the subscriber's SUBSCRIBE_TRACKS. They apply to a PUBLISH
	// unless the response overrides them (draft-19 §10.19.1).
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
	// The tokens of the SUBSCRIBE, which also authorize its fills.
	tokens []wire.Token

	ctx    context.Context
	cancel context.CancelCauseFunc

	defaultPriority uint8
	// Recent groups with datagrams sent, and recent groups dropped. Later datagrams of these groups
	// are sent or dropped too. Guarded by the datagram queue's lock.
	startedGroups, droppedGroups []groupPriority

	mu                                sync.Mutex
	forward                           bool
	start                             Location
	last, lastObject                  *uint64 // last group and its last object; nil = open-ended
	joining                           *Location
	priority                          uint8 // subscriber priority
	order                             GroupOrder
	filter                            *Filter  // in effect; before that, the default if PUBLISH_OK has none
	trackTimeouts, subscriberTimeouts timeouts // delivery timeouts set by the track and by the subscriber
	streams                           uint64
	open                              map[*SubgroupWriter]struct{}
	fills                             map[*fill]struct{}
	filled                            chan struct{} // closed when the last fill ends; set by Done
	ended                             error         // cause; set before ctx is cancelled
	changed                           chan struct{} // closed and replaced at each update
}

// timeouts are delivery timeouts (§8); 0 = none.
type timeouts struct{ object, subgroup time.Duration }

func (s *Session) newPublication(track TrackName, r *requestStream, info TrackInfo) *Publication {
	p := &Publication{
		s: s, r: r, track: track, info: info, forward: true, priority: wire.DefaultPriority,
		defaultPriority: wire.DefaultPriority, order: wire.Ascending,
		open: map[*SubgroupWriter]struct{}{}, fills: map[*fill]struct{}{}, changed: make(chan struct{}),
	}
	p.ctx, p.cancel = context.WithCancelCause(s.ctx)
	for kv := range info.Properties.All() {
		switch kv.Type {
		case wire.PropertyPublisherPriority:
			p.defaultPriority = uint8(kv.Int)
		case wire.PropertyPublisherGroupOrder:
			p.order = GroupOrder(kv.Int)
		case wire.PropertyObjectDeliveryTimeout:
			p.trackTimeouts.object = timeout(kv.Int)
		case wire.PropertySubgroupDeliveryTimeout:
			p.trackTimeouts.subgroup = timeout(kv.Int)
		}
	}
	p.alias = s.takeAlias(track, info.Alias)
	return p
}

// applyDefaults applies the parameters of a SUBSCRIBE_TRACKS.
func (p *Publication) applyDefaults(d Parameters) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.apply(Parameters{ // these parameters cannot fail
		SubscriberPriority: d.SubscriberPriority, GroupOrder: d.GroupOrder,
		ObjectDeliveryTimeout: d.ObjectDeliveryTimeout, SubgroupDeliveryTimeout: d.SubgroupDeliveryTimeout,
	}, nil)
	p.filter = d.Filter
}

// timeout converts milliseconds to a duration. More than a day counts as no timeout.
func timeout(ms uint64) time.Duration {
	if ms > uint64(24*time.Hour/time.Millisecond) {
		return 0
	}
	return time.Duration(ms) * time.Millisecond
}

// begin applies the subscriber's parameters and the largest location sent to it.
func (p *Publication) begin(params Parameters, largest *Location) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.joining = largest
	if params.Filter == nil {
		params.Filter = p.filter
	}
	return p.apply(params, largest)
}

// apply applies the parameters that are set. p.mu is held.
func (p *Publication) apply(params Parameters, largest *Location) error {
	if f := params.Filter; f != nil {
		// From draft-20 on, every range is valid.
		past := f.Type == wire.FilterAbsoluteRange && largest != nil && f.EndGroup < largest.Group
		if past && p.s.version < wire.Draft20 {
			return &RequestError{Code: wire.RequestInvalidRange, Reason: "the range was published already"}
		}
		p.filter, p.start, p.last, p.lastObject = f, Location{}, nil, nil
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
		case wire.FilterObjectRange:
			p.start, p.last, p.lastObject = f.Start, &f.EndGroup, &f.EndObject
		case wire.FilterRecentGroups:
			if largest != nil && f.Groups > 0 {
				p.start = Location{Group: largest.Group - min(f.Groups-1, largest.Group)}
			}
		}
	}
	if params.Forward != nil {
		if *params.Forward && !p.forward {
			p.joining = largest
		}
		p.forward = *params.Forward
		if !p.forward { // open subgroups are abandoned (§11.4.3)
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
		for f := range p.fills {
			f.reprioritize(p.priority)
		}
	}
	if o := params.GroupOrder; o != nil && *o != p.order {
		p.order = *o
		for w := range p.open {
			p.reorder(w.priority)
		}
	}
	if v := params.ObjectDeliveryTimeout; v != nil {
		p.subscriberTimeouts.object = timeout(*v)
	}
	if v := params.SubgroupDeliveryTimeout; v != nil {
		p.subscriberTimeouts.subgroup = timeout(*v)
	}
	return nil
}

// shorter returns the smaller timeout; 0 means none (§8).
func shorter(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// Priority returns the subscriber priority; lower goes first.
func (p *Publication) Priority() uint8 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.priority
}

// Track returns the publication's track.
func (p *Publication) Track() TrackName { return p.track }

// Session returns the publication's session.
func (p *Publication) Session() *Session { return p.s }

// Context returns a context that is cancelled when the subscription ends. Its cause is the reason.
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

// Start returns the first location that passes the subscription's filter.
func (p *Publication) Start() Location {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.start
}

// Passes reports whether to send an object at l: it passes the filter and the forward state is 1.
func (p *Publication) Passes(l Location) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.forward || l.Less(p.start) || p.last != nil && l.Group > *p.last {
		return false
	}
	return p.lastObject == nil || l.Group < *p.last || l.Object <= *p.lastObject
}

// Ended reports whether the subscription ends before group, because its filter excludes this and
// all later groups. From draft-20 on, that does not end a subscription.
func (p *Publication) Ended(group uint64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.s.version < wire.Draft20 && p.last != nil && group > *p.last
}

// DeliveryTimeouts returns the effective timeouts (§8) of an object, counted from its header, and
// of a subgroup, counted from its end. 0 means none.
func (p *Publication) DeliveryTimeouts() (object, subgroup time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return shorter(
			p.trackTimeouts.object,
			p.subscriberTimeouts.object,
		), shorter(
			p.trackTimeouts.subgroup,
			p.subscriberTimeouts.subgroup,
		)
}

// SubgroupTimeouts returns the delivery timeouts of a subgroup. From draft-19 on, the properties of
// its first object may override the track's timeouts. Immutable ones do not: there, the same type is
// the Key ID of an encrypted object (draft-ietf-moq-secure-objects-01 §4.1).
func (p *Publication) SubgroupTimeouts(first Properties) (object, subgroup time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	own := p.trackTimeouts
	if p.s.version >= wire.Draft19 && len(first) > 0 {
		if ms, ok := first.MutableInt(wire.PropertyObjectDeliveryTimeout); ok {
			own.object = timeout(ms)
		}
		if ms, ok := first.MutableInt(wire.PropertySubgroupDeliveryTimeout); ok {
			own.subgroup = timeout(ms)
		}
	}
	return shorter(own.object, p.subscriberTimeouts.object), shorter(own.subgroup, p.subscriberTimeouts.subgroup)
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
			// A FIN is not a cancellation: subscribers cancel with STOP_SENDING.
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
	} else if m.Parameters.Fill != nil && len(p.fills) >= maxFills {
		err = &RequestError{Code: wire.RequestExcessiveLoad, Reason: "too many fills at a time"}
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
	if err := p.r.send(&wire.RequestOK{Parameters: Parameters{LargestObject: largest}}); err != nil {
		return err
	}
	p.startFill(m.RequestID, m.Parameters, largest)
	return nil
}

// end releases the publication's resources. The first cause is kept.
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

// Done ends the subscription with PUBLISH_DONE (§10.11) and resets open subgroups. Fills may still
// complete if the track has ended; otherwise they are reset too.
func (p *Publication) Done(code wire.DoneCode, reason string) error {
	p.mu.Lock()
	if p.ended != nil {
		defer p.mu.Unlock()
		return p.ended
	}
	if p.s.version >= wire.Draft20 && code == wire.DoneSubscriptionEnded {
		code = wire.DoneTrackEnded // the other code is unassigned
	}
	open := p.open
	done := &DoneError{Code: code, Reason: reason}
	p.ended, p.open = done, nil
	if len(p.fills) > 0 {
		p.filled = make(chan struct{})
	}
	if code != wire.DoneTrackEnded {
		for f := range p.fills {
			f.cancel()
		}
	}
	filled := p.filled
	p.mu.Unlock()
	for w := range open {
		w.reset(wire.StreamCancelled)
	}
	if filled == nil {
		return p.sendDone(done)
	}
	go func() { // PUBLISH_DONE comes after all streams
		t := time.NewTimer(p.s.wait.fetch)
		defer t.Stop()
		select {
		case <-filled:
		case <-t.C:
		case <-p.r.str.Context().Done():
		}
		_ = p.sendDone(done)
	}()
	return nil
}

func (p *Publication) sendDone(done *DoneError) error {
	p.mu.Lock()
	done.StreamCount = p.streams
	p.mu.Unlock()
	err := p.r.send(&wire.PublishDone{Code: done.Code, StreamCount: done.StreamCount, Reason: done.Reason})
	p.r.end()
	p.cancel(done)
	return err
}

// datagramHeader is the capacity reserved for a datagram's integer fields.
const datagramHeader = 32

// SendDatagram queues an object as a datagram; TrackAlias is filled in. It never blocks. Datagrams
// are sent by priority. A datagram is dropped when the shorter of its delivery timeouts expires; a
// congested path drops whole groups. Stats.DatagramsUnsent counts both.
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

// OpenSubgroup opens a subgroup stream; TrackAlias is filled in. It does not block: at the peer's
// stream limit it returns ErrStreamsBlocked.
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
		p: p, str: str, pull: str.sourced(), more: make(chan struct{}, 1),
		group: h.Group, subgroup: h.Subgroup, priority: prio, slot: slot,
		enc:    wire.ObjectEncoder{HasProperties: h.HasProperties},
		header: h.Append(make([]byte, 0, 96)),
	}
	p.streams++
	p.open[w] = struct{}{}
	p.reorder(prio)
	return w, nil
}

// reorder redistributes the slots of the open subgroups of one publisher priority in the
// subscription's group order (§7). A group that starts late, or overtakes others, takes the slot of
// the first group after it. Only the publication's own slots are permuted, so tracks of equal
// priority still share the path. p.mu is held.
func (p *Publication) reorder(priority uint8) {
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

// takeSlot returns the slot of a new stream, after all earlier ones.
func (s *Session) takeSlot() uint64 { return s.nextSlot.Add(1) }
