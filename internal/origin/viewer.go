package origin

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"holocast/internal/crew"
	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
)

// maxOffered bounds the new subgroups waiting for a viewer's goroutine.
const maxOffered = 1024

// maxPiece bounds what a stream takes of a subgroup at a time: deadlines are looked at between.
const maxPiece = 128 << 10

// deadlineSlack is within which objects have one deadline, so that many small ones are few
// pieces.
const deadlineSlack = time.Millisecond

// viewer is one subscription being served.
type viewer struct {
	t     *Track
	q     *Queue // of its session
	sink  Sink
	since time.Time // earlier objects belong to the joining fetch

	mu        sync.Mutex
	offered   []*subgroup
	restarted bool // by Restart
	wake      chan struct{}
	crew      *crew.Crew // sees to deliveries
}

// delivery is one subgroup in delivery to one viewer.
type delivery struct {
	v       *viewer
	sg      *subgroup
	started time.Time
	dropped chan struct{} // closed when it is dropped: the viewer is too far dropped
	index   int           // in the subgroup's deliveries; under its mu
	sent    atomic.Int64  // offset in the subgroup up to which it was sent

	timeout          atomic.Int64              // an object's, from its first byte; 0 = none
	subgroupDeadline atomic.Pointer[time.Time] // deadline of the subgroup, known once that has ended

	mu        sync.Mutex
	w         SubgroupSink // nil until it is open
	isDropped bool
}

// waits is how long the oldest unsent object has waited since it arrived.
func (d *delivery) waited(now time.Time) time.Duration {
	arrived, ok := d.sg.unsent(d.sent.Load())
	if !ok {
		return 0
	}
	return now.Sub(arrived)
}

// stream is the delivery's, nil until it is open.
func (d *delivery) stream() SubgroupSink {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.w
}

// more tells the stream that there is more to send.
func (d *delivery) more() {
	if w := d.stream(); w != nil {
		w.More()
	}
}

// retime takes over the timeouts that the subscriber asks for now.
func (d *delivery) retime() {
	d.mu.Lock()
	object, _ := d.v.sink.DeliveryTimeouts(d.sg.first())
	d.timeout.Store(int64(object))
	d.mu.Unlock()
	if w := d.stream(); w != nil {
		w.Retime()
	}
}

// subgroupEnded sets the deadline of the whole subgroup, which ended at a time.
func (d *delivery) subgroupEnded(at time.Time) {
	if _, timeout := d.v.sink.DeliveryTimeouts(d.sg.first()); timeout != 0 {
		d.subgroupDeadline.Store(new(at.Add(timeout)))
	}
	if w := d.stream(); w != nil {
		w.Retime()
	}
}

// giveUp drops the delivery, from any goroutine. It reports whether the viewer lost
// something.
func (d *delivery) drop() bool {
	d.mu.Lock()
	w, again := d.w, d.isDropped
	d.isDropped = true
	d.mu.Unlock()
	if again {
		return false
	}
	close(d.dropped)
	if w != nil {
		w.Abort(wire.StreamTooFarBehind)
	}
	return w != nil
}

func (d *delivery) wasDropped() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.isDropped
}

// Serve sends what a track receives from since on to an accepted subscription of the
// queue's session, until either ends. It returns why: the subscription's cause, or the
// *moqt.DoneError that ended the track. since is a moment before the subscription
// was accepted, so that nothing is lost between the two. No goroutine of it is left
// when it returns.
func (q *Queue) Serve(t *Track, sink Sink, since time.Time) error {
	v := &viewer{t: t, q: q, sink: sink, since: since, wake: make(chan struct{}, 1), crew: crew.New()}
	t.attach(v)
	defer func() {
		t.mu.Lock()
		delete(t.viewers, v)
		t.mu.Unlock()
	}()
	defer v.crew.Wait()
	ctx, updates := sink.Context(), sink.Changed()
	for {
		for _, sg := range v.take() {
			if sink.Ended(sg.header.Group) {
				return v.finish(&moqt.DoneError{Code: wire.DoneSubscriptionEnded, Reason: "the last group of the filter was sent"})
			}
			q.start(v, sg)
		}
		t.mu.Lock()
		ended := t.ended
		t.mu.Unlock()
		if ended == nil {
			ended = v.restartError()
		}
		if ended != nil && v.idle() {
			return v.finish(ended)
		}
		select {
		case <-v.wake:
		case <-updates:
			updates = sink.Changed()
			for _, d := range q.deliveriesTo(v) {
				d.retime()
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// finish ends the subscription when what is in delivery has arrived, or MaxAge has
// passed.
func (v *viewer) finish(end *moqt.DoneError) error {
	v.t.mu.Lock()
	maxAge := v.t.limits.MaxAge
	v.t.mu.Unlock()
	late := time.AfterFunc(maxAge, func() {
		for _, d := range v.q.deliveriesTo(v) {
			v.t.dropped.Add(1)
			d.drop()
		}
	})
	v.crew.Wait()
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
			if !sg.backfilled && sg.hasSince(v.since) {
				v.offer(sg)
			}
		}
		for _, d := range g.datagrams {
			if !d.backfilled && !d.arrived.Before(v.since) && !d.arrived.Before(expired) && v.sink.Passes(moqt.Location{Group: d.Group, Object: d.Object}) {
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
		v.t.dropped.Add(1)
	}
	v.mu.Unlock()
	v.signal()
}

// strand ends the viewer: the groups it waits for will not come.
func (v *viewer) endOnRestart() {
	v.mu.Lock()
	v.restarted = true
	v.mu.Unlock()
	v.signal()
}

func (v *viewer) restartError() *moqt.DoneError {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.restarted {
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
func (v *viewer) send(d *delivery) {
	sg := d.sg
	if !sg.add(d) {
		return // evicted already
	}
	defer sg.remove(d)
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
			case <-d.dropped:
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
		reason := "ended"
		if errors.Is(err, moqt.ErrStreamsBlocked) {
			v.t.dropped.Add(1)
			reason = "blocked"
		}
		d.report(&o, reason)
		return
	}
	d.mu.Lock()
	d.w = w
	dropped := d.isDropped
	d.mu.Unlock()
	if dropped {
		w.Reset(wire.StreamTooFarBehind)
		d.report(&o, "behind")
		return
	}
	v.t.sentSubgroups.Add(1)
	reason := ""
	switch err := v.pump(d, restart, at, first); {
	case d.wasDropped(): // whatever the error
		reason = "behind"
	case errors.Is(err, moqt.ErrDeliveryTimeout):
		v.t.late.Add(1)
		v.q.dropStale(d)
		reason = "late"
	case errors.Is(err, ErrEvicted):
		v.t.dropped.Add(1)
		w.Reset(wire.StreamTooFarBehind)
		reason = "behind"
	case err != nil:
		reason = "ended"
	case sg.wasReset():
		reason = "reset"
	}
	d.report(&o, reason)
}

// report tells Queue.Sent of the delivery's end; o is the first object that was to be sent.
func (d *delivery) report(o *object, reason string) {
	if d.v.q.OnDone == nil {
		return
	}
	d.v.q.OnDone(Delivery{
		Track: d.v.t, Group: d.sg.header.Group, Subgroup: d.sg.ID(), Arrived: o.arrived, Ended: time.Now(),
		Bytes: d.sent.Load(), Dropped: reason,
	})
}

// pump sends the subgroup's bytes from at, where object i begins or whose header is in
// restart. It returns ErrEvicted when they were evicted.
func (v *viewer) pump(d *delivery, restart []byte, at int64, i int) error {
	sg, w := d.sg, d.w
	d.sent.Store(at)
	d.retime()
	s := &source{d: d, at: at, i: i, cached: v.t.cacheAge()}
	if o, n, changed, over := sg.object(i); changed == nil && !over && n == i && o.expired(s.cached) {
		w.Reset(wire.StreamDeliveryTimeout)
		return moqt.ErrDeliveryTimeout
	}
	if restart != nil {
		if err := w.WriteRaw(restart); err != nil {
			return err
		}
	}
	err := w.Send(s)
	switch {
	case err == nil:
		return w.Close()
	case s.err == nil && !v.sink.Forwarding():
		return nil
	case s.err == nil:
		return err
	case errors.Is(s.err, moqt.ErrDeliveryTimeout):
		w.Reset(wire.StreamDeliveryTimeout)
	case errors.Is(s.err, errReset):
		w.Reset(sg.code)
		return nil
	}
	return s.err
}

// source is a delivery's bytes, which its stream takes as packets are made. But for Deadline it is for
// one goroutine at a time.
type source struct {
	d       *delivery
	at      int64         // the end of what was taken
	i       int           // the object there, or one before it
	cached  time.Duration // objects older than this are not sent; negative = all are
	arrived atomic.Int64  // of the object that was taken last, nanoseconds after epoch; 0 = it has no deadline
	err     error         // why there is no more, but for the end
}

// epoch is when times in source began.
var epoch = time.Now().Add(-time.Nanosecond)

// Next returns the bytes that follow, of one object or those that arrived together, where
// each has its deadline.
func (s *source) Next() ([]byte, error) {
	d := s.d
	if n := s.at - d.sent.Load(); n > 0 {
		d.sent.Store(s.at)
		d.v.t.sentBytes.Add(uint64(n))
	}
	timed := d.timeout.Load() > 0 || s.cached >= 0
	b, o, err := d.sg.piece(s.at, &s.i, timed)
	switch {
	case len(b) == 0:
	case o == nil:
		s.arrived.Store(0)
	case s.at == o.offset && o.expired(s.cached):
		b, err = nil, moqt.ErrDeliveryTimeout
	default:
		s.arrived.Store(int64(o.arrived.Sub(epoch)))
	}
	if err != nil && err != io.EOF {
		s.err = err
	}
	s.at += int64(len(b))
	return b, err
}

// Deadline is the earlier of the object's and the subgroup's.
func (s *source) Deadline() (by time.Time) {
	if whole := s.d.subgroupDeadline.Load(); whole != nil {
		by = *whole
	}
	timeout, arrived := s.d.timeout.Load(), s.arrived.Load()
	if timeout > 0 && arrived > 0 {
		if object := epoch.Add(time.Duration(arrived + timeout)); by.IsZero() || object.Before(by) {
			by = object
		}
	}
	return by
}
