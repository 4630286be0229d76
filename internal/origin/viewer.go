package origin

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"holocast/internal/gopool"
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

	mu       sync.Mutex
	offered  []*subgroup
	stranded bool // by Restart
	wake     chan struct{}
	crew     *gopool.Pool // sees to flights
}

// flight is one subgroup in flight to one viewer.
type flight struct {
	v      *viewer
	sg     *subgroup
	began  time.Time
	behind chan struct{} // closed when it is dropped: the viewer is too far behind
	seat   int           // in the subgroup's flights; under its mu
	sent   atomic.Int64  // offset in the subgroup up to which it was sent

	timeout atomic.Int64              // an object's, from its first byte; 0 = none
	whole   atomic.Pointer[time.Time] // deadline of the subgroup, known once that has ended

	mu      sync.Mutex
	w       SubgroupSink // nil until it is open
	dropped bool
}

// waits is how long the oldest unsent object has waited since it arrived.
func (f *flight) waits(now time.Time) time.Duration {
	arrived, ok := f.sg.unsent(f.sent.Load())
	if !ok {
		return 0
	}
	return now.Sub(arrived)
}

// stream is the flight's, nil until it is open.
func (f *flight) stream() SubgroupSink {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.w
}

// more tells the stream that there is more to send.
func (f *flight) more() {
	if w := f.stream(); w != nil {
		w.More()
	}
}

// retime takes over the timeouts that the subscriber asks for now.
func (f *flight) retime() {
	f.mu.Lock()
	object, _ := f.v.sink.DeliveryTimeouts(f.sg.first())
	f.timeout.Store(int64(object))
	f.mu.Unlock()
	if w := f.stream(); w != nil {
		w.Retime()
	}
}

// subgroupEnded sets the deadline of the whole subgroup, which ended at a time.
func (f *flight) subgroupEnded(at time.Time) {
	if _, timeout := f.v.sink.DeliveryTimeouts(f.sg.first()); timeout != 0 {
		f.whole.Store(new(at.Add(timeout)))
	}
	if w := f.stream(); w != nil {
		w.Retime()
	}
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
	v := &viewer{t: t, q: q, sink: sink, since: since, wake: make(chan struct{}, 1), crew: gopool.New()}
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
		case <-updates:
			updates = sink.Changed()
			for _, f := range q.inFlight(v) {
				f.retime()
			}
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

// pump sends the subgroup's bytes from at, where object i begins or whose header is in
// restart. It returns ErrEvicted when they were evicted.
func (v *viewer) pump(f *flight, restart []byte, at int64, i int) error {
	sg, w := f.sg, f.w
	f.sent.Store(at)
	f.retime()
	s := &source{f: f, at: at, i: i, cached: v.t.cacheAge()}
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

// source is a flight's bytes, which its stream takes as packets are made. But for Deadline it is for
// one goroutine at a time.
type source struct {
	f       *flight
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
	f := s.f
	if n := s.at - f.sent.Load(); n > 0 {
		f.sent.Store(s.at)
		f.v.t.sentBytes.Add(uint64(n))
	}
	timed := f.timeout.Load() > 0 || s.cached >= 0
	b, o, err := f.sg.piece(s.at, &s.i, timed)
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
	if whole := s.f.whole.Load(); whole != nil {
		by = *whole
	}
	timeout, arrived := s.f.timeout.Load(), s.arrived.Load()
	if timeout > 0 && arrived > 0 {
		if object := epoch.Add(time.Duration(arrived + timeout)); by.IsZero() || object.Before(by) {
			by = object
		}
	}
	return by
}
