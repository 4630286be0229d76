package origin

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
)

// maxOffered bounds the new subgroups waiting for a viewer's goroutine.
const maxOffered = 1024

// maxWrite bounds one write to a viewer's stream: deadlines and resets are checked
// between writes.
const maxWrite = 128 << 10

// deadlineSlack is within which objects have one deadline, so that many small ones take few
// writes.
const deadlineSlack = time.Millisecond

// viewer is one subscription being served.
type viewer struct {
	t     *Track
	q     *Queue // of its session
	sink  Sink
	since time.Time // earlier objects belong to the joining fetch

	mu       sync.Mutex
	offered  []*subgroup
	stranded bool // by Restart
	wake     chan struct{}
	wg       sync.WaitGroup
}

// flight is one subgroup in flight to one viewer.
type flight struct {
	v      *viewer
	sg     *subgroup
	began  time.Time
	behind chan struct{} // closed when it is dropped: the viewer is too far behind
	sent   atomic.Int64  // offset in the subgroup up to which it was sent

	mu      sync.Mutex
	w       SubgroupSink // nil until it is open
	dropped bool
	object  time.Time // deadline of the object being sent; zero = none
	whole   time.Time // deadline of the subgroup, known once that has ended
}

// waits is how long the oldest unsent object has waited since it arrived.
func (f *flight) waits(now time.Time) time.Duration {
	arrived, ok := f.sg.unsent(f.sent.Load())
	if !ok {
		return 0
	}
	return now.Sub(arrived)
}

// setDeadline sets the deadline of the object that is sent next.
func (f *flight) setDeadline(object time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.object = object
	f.w.SetDeadline(f.deadline())
}

// subgroupEnded sets the deadline of the whole subgroup, which ended at a time.
func (f *flight) subgroupEnded(at time.Time) {
	_, timeout := f.v.sink.DeliveryTimeouts(f.sg.first())
	if timeout == 0 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.whole = at.Add(timeout)
	if f.w != nil {
		f.w.SetDeadline(f.deadline())
	}
}

// deadline is the earlier of the two. f.mu is held.
func (f *flight) deadline() time.Time {
	if f.object.IsZero() || !f.whole.IsZero() && f.whole.Before(f.object) {
		return f.whole
	}
	return f.object
}

// giveUp drops the flight, from any goroutine. It reports whether the viewer lost
// something.
func (f *flight) giveUp() bool {
	f.mu.Lock()
	w, again := f.w, f.dropped
	f.dropped = true
	f.mu.Unlock()
	if again {
		return false
	}
	close(f.behind)
	if w != nil {
		w.Abort(wire.StreamTooFarBehind)
	}
	return w != nil
}

func (f *flight) givenUp() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.dropped
}

// Serve sends what a track receives from since on to an accepted subscription of the
// queue's session, until either ends. It returns why: the subscription's cause, or the
// *moqt.DoneError that ended the track. since is a moment before the subscription
// was accepted, so that nothing is lost between the two. No goroutine of it is left
// when it returns.
func (q *Queue) Serve(t *Track, sink Sink, since time.Time) error {
	v := &viewer{t: t, q: q, sink: sink, since: since, wake: make(chan struct{}, 1)}
	t.attach(v)
	defer func() {
		t.mu.Lock()
		delete(t.viewers, v)
		t.mu.Unlock()
	}()
	defer v.wg.Wait()
	ctx := sink.Context()
	for {
		for _, sg := range v.take() {
			if sink.Ended(sg.header.Group) {
				return v.finish(&moqt.DoneError{Code: wire.DoneSubscriptionEnded, Reason: "the last group of the filter was sent"})
			}
			q.launch(v, sg)
		}
		t.mu.Lock()
		ended := t.ended
		t.mu.Unlock()
		if ended == nil {
			ended = v.leftBehind()
		}
		if ended != nil && v.idle() {
			return v.finish(ended)
		}
		select {
		case <-v.wake:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// finish ends the subscription when what is in flight has arrived, or MaxAge has
// passed.
func (v *viewer) finish(end *moqt.DoneError) error {
	v.t.mu.Lock()
	patience := v.t.limits.MaxAge
	v.t.mu.Unlock()
	late := time.AfterFunc(patience, func() {
		for _, f := range v.q.inFlight(v) {
			v.t.behind.Add(1)
			f.giveUp()
		}
	})
	v.wg.Wait()
	late.Stop()
	if err := v.sink.Done(end.Code, end.Reason); err != nil {
		return err
	}
	return end
}

// attach adds v to the viewers and offers it what arrived since it subscribed.
func (t *Track) attach(v *viewer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	expired := t.expiry(time.Now())
	for _, g := range t.groups {
		for _, sg := range g.subgroups {
			if !sg.past && sg.reaches(v.since) {
				v.offer(sg)
			}
		}
		for _, d := range g.datagrams {
			if !d.past && !d.arrived.Before(v.since) && !d.arrived.Before(expired) && v.sink.Passes(moqt.Location{Group: d.Group, Object: d.Object}) {
				v.sendDatagram(d.Datagram)
			}
		}
	}
	t.viewers[v] = struct{}{}
}

func (v *viewer) sendDatagram(d moqt.Datagram) {
	if v.sink.SendDatagram(d) != nil {
		v.t.unsent.Add(1)
	} else {
		v.t.sentBytes.Add(uint64(len(d.Payload)))
	}
}

// wants reports whether an object is to be sent: it arrived after the viewer
// subscribed and passes its filter.
func (v *viewer) wants(group uint64, o *object) bool {
	return !o.arrived.Before(v.since) && v.sink.Passes(moqt.Location{Group: group, Object: o.ID})
}

// offer queues a new subgroup for the viewer without blocking.
func (v *viewer) offer(sg *subgroup) {
	v.mu.Lock()
	if len(v.offered) < maxOffered {
		v.offered = append(v.offered, sg)
	} else {
		v.t.behind.Add(1)
	}
	v.mu.Unlock()
	v.signal()
}

// strand ends the viewer: the groups it waits for will not come.
func (v *viewer) strand() {
	v.mu.Lock()
	v.stranded = true
	v.mu.Unlock()
	v.signal()
}

func (v *viewer) leftBehind() *moqt.DoneError {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.stranded {
		return nil
	}
	return &moqt.DoneError{Code: wire.DoneInternalError, Reason: "the publisher numbers its groups anew"}
}

func (v *viewer) signal() {
	select {
	case v.wake <- struct{}{}:
	default:
	}
}

func (v *viewer) take() []*subgroup {
	v.mu.Lock()
	defer v.mu.Unlock()
	o := v.offered
	v.offered = nil
	return o
}

func (v *viewer) idle() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.offered) == 0
}

// fly sends one subgroup.
func (v *viewer) fly(f *flight) {
	sg := f.sg
	if !sg.board(f) {
		return // evicted already
	}
	defer sg.leave(f)
	// Wait for the first object to send.
	first := 0
	var o object
	for {
		var over bool
		var changed <-chan struct{}
		o, first, changed, over = sg.object(first)
		if over {
			return
		}
		if changed != nil {
			select {
			case <-changed:
				continue
			case <-f.behind:
				return
			case <-v.sink.Context().Done():
				return
			}
		}
		if v.wants(sg.header.Group, &o) {
			break
		}
		first++
	}
	h, at := sg.header, int64(0)
	var restart []byte
	if first > 0 {
		// The stream begins inside the subgroup: its first object's ID is written
		// in full; the others are deltas and stay as they are.
		h.FirstObject = false
		if h.Mode == wire.SubgroupIDFirstObject {
			h.Mode, h.Subgroup = wire.SubgroupIDExplicit, sg.id
		}
		enc := wire.ObjectEncoder{HasProperties: h.HasProperties}
		var err error
		if restart, err = enc.Append(nil, o.Object); err != nil {
			return
		}
		at = o.payload
	}
	w, err := v.sink.OpenSubgroup(h, sg.first())
	if err != nil {
		failed := "ended"
		if errors.Is(err, moqt.ErrStreamsBlocked) {
			v.t.behind.Add(1)
			failed = "blocked"
		}
		f.report(&o, failed)
		return
	}
	f.mu.Lock()
	f.w = w
	if !f.whole.IsZero() {
		w.SetDeadline(f.whole)
	}
	dropped := f.dropped
	f.mu.Unlock()
	if dropped {
		w.Reset(wire.StreamTooFarBehind)
		f.report(&o, "behind")
		return
	}
	v.t.sentSubgroups.Add(1)
	failed := ""
	switch err := v.pump(f, restart, at, first); {
	case f.givenUp(): // whatever the error
		failed = "behind"
	case errors.Is(err, moqt.ErrDeliveryTimeout):
		v.t.late.Add(1)
		v.q.keepUp(f)
		failed = "late"
	case errors.Is(err, ErrEvicted):
		v.t.behind.Add(1)
		w.Reset(wire.StreamTooFarBehind)
		failed = "behind"
	case err != nil:
		failed = "ended"
	case sg.wasReset():
		failed = "reset"
	}
	f.report(&o, failed)
}

// report tells Queue.Sent of the flight's end; o is the first object that was to be sent.
func (f *flight) report(o *object, failed string) {
	if f.v.q.Sent == nil {
		return
	}
	f.v.q.Sent(Sent{
		Track: f.v.t, Group: f.sg.header.Group, Subgroup: f.sg.ID(), Arrived: o.arrived, Ended: time.Now(),
		Bytes: f.sent.Load(), Failed: failed,
	})
}

// pump copies the subgroup's bytes from at, where object i begins or whose header
// is in restart, to the flight's stream. It returns ErrEvicted when they were
// evicted.
func (v *viewer) pump(f *flight, restart []byte, at int64, i int) error {
	sg, w, ctx := f.sg, f.w, v.sink.Context()
	updates := v.sink.Changed()
	timeout, _ := v.sink.DeliveryTimeouts(sg.first())
	cached := v.t.cacheAge()
	f.sent.Store(at)
	if o, n, changed, over := sg.object(i); changed == nil && !over && n == i && o.expired(cached) {
		w.Reset(wire.StreamDeliveryTimeout)
		return moqt.ErrDeliveryTimeout
	}
	if restart != nil {
		if err := w.WriteRaw(restart); err != nil {
			return err
		}
	}
	for {
		limit := int64(maxWrite)
		if timeout > 0 || cached >= 0 {
			// Each object has its own deadline; a write stays within one, or those that
			// arrived together.
			o, n, changed, over := sg.object(i)
			if here := changed == nil && !over; here && n == i {
				if at >= o.end() {
					i++
					continue
				}
				limit = min(limit, max(o.end(), sg.together(i, deadlineSlack))-at)
				if at == o.offset && o.expired(cached) {
					w.Reset(wire.StreamDeliveryTimeout)
					return moqt.ErrDeliveryTimeout
				}
				if timeout > 0 {
					f.setDeadline(o.arrived.Add(timeout))
				}
			}
		}
		b, changed, state := sg.bytes(at, limit)
		if len(b) > 0 {
			if err := w.WriteShared(b); err != nil {
				return err
			}
			at += int64(len(b))
			f.sent.Store(at)
			v.t.sentBytes.Add(uint64(len(b)))
			continue
		}
		switch state {
		case finished:
			return w.Close()
		case reset:
			w.Reset(sg.code)
			return nil
		case evicted:
			return ErrEvicted
		}
		select {
		case <-changed:
		case <-updates:
			updates = v.sink.Changed()
			timeout, _ = v.sink.DeliveryTimeouts(sg.first())
			if !v.sink.Forwarding() {
				w.Reset(wire.StreamCancelled)
				return nil
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
