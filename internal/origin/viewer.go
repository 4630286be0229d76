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

// maxOffered bounds the new subgroups queued for a viewer's goroutine.
const maxOffered = 1024

// maxPiece bounds the bytes a stream takes at a time. Deadlines are checked between pieces.
const maxPiece = 128 << 10

// deadlineSlack is the interval within which objects share a deadline, so that many small objects
// need few pieces.
const deadlineSlack = time.Millisecond

// Viewer is one subscription to a track. It sends nothing before Serve.
type Viewer struct {
	t    *Track
	q    *Queue // the session's
	sink Sink   // set by Serve

	// State of the track at Attach. Objects up to then belong to the joining fetch.
	after      uint64 // arrival number
	largest    moqt.Location
	hasLargest bool

	mu        sync.Mutex
	offered   []*subgroup
	restarted bool // Restart made the awaited groups unreachable
	wake      chan struct{}
	crew      *gopool.Pool // runs the deliveries
}

// delivery is the transmission of one subgroup to one viewer.
type delivery struct {
	v       *Viewer
	sg      *subgroup
	started time.Time
	dropped chan struct{} // closed when the delivery is dropped
	index   int           // in subgroup.deliveries; guarded by its mu
	sent    atomic.Int64  // offset in the subgroup; everything before it has been sent

	timeout          atomic.Int64              // an object's delivery timeout, from its first byte; 0 = none
	subgroupDeadline atomic.Pointer[time.Time] // set when the subgroup ends

	mu        sync.Mutex
	w         SubgroupSink // nil until the stream is open
	isDropped bool
}

// waited returns how long ago the oldest unsent object arrived, or 0 if there is none.
func (d *delivery) waited(now time.Time) time.Duration {
	arrived, ok := d.sg.unsent(d.sent.Load())
	if !ok {
		return 0
	}
	return now.Sub(arrived)
}

// stream returns the delivery's stream, or nil until it is open.
func (d *delivery) stream() SubgroupSink {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.w
}

// more notifies the stream that more bytes have arrived.
func (d *delivery) more() {
	if w := d.stream(); w != nil {
		w.More()
	}
}

// retime applies the subscriber's current timeouts.
func (d *delivery) retime() {
	d.mu.Lock()
	object, _ := d.v.sink.DeliveryTimeouts(d.sg.first())
	d.timeout.Store(int64(object))
	d.mu.Unlock()
	if w := d.stream(); w != nil {
		w.Retime()
	}
}

// subgroupEnded sets the subgroup's deadline once it has ended.
func (d *delivery) subgroupEnded(at time.Time) {
	if _, timeout := d.v.sink.DeliveryTimeouts(d.sg.first()); timeout != 0 {
		d.subgroupDeadline.Store(new(at.Add(timeout)))
	}
	if w := d.stream(); w != nil {
		w.Retime()
	}
}

// drop cancels the delivery, from any goroutine. It reports whether that reset a stream.
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

// Attach returns a viewer of the track for a subscription of the queue's session. The subscription
// covers the objects that arrive from now on, so call Attach before accepting it. A viewer that is
// never served needs no cleanup.
func (q *Queue) Attach(t *Track) *Viewer {
	t.mu.Lock()
	defer t.mu.Unlock()
	return &Viewer{
		t: t, q: q, after: t.arrivals, largest: t.largest, hasLargest: t.hasLargest,
		wake: make(chan struct{}, 1), crew: gopool.New(),
	}
}

// Info is Track.Info with the viewer's Largest, for the subscription's SUBSCRIBE_OK or PUBLISH.
func (v *Viewer) Info() moqt.TrackInfo {
	i := v.t.Info()
	i.Largest = v.Largest
	return i
}

// Largest returns the track's largest location. Before Serve it excludes the objects that arrive
// after Attach, since they belong to the subscription, but not a location learned from upstream.
func (v *Viewer) Largest() (l moqt.Location, ok bool) {
	t := v.t
	t.mu.Lock()
	defer t.mu.Unlock()
	if v.sink != nil {
		return t.largest, t.hasLargest
	}
	if v.after >= t.restarted {
		l, ok = v.largest, v.hasLargest
	}
	if t.learned != nil && (!ok || l.Less(*t.learned)) {
		l, ok = *t.learned, true
	}
	return l, ok
}

// Serve sends the objects that arrive after Attach to the accepted subscription until the
// subscription or the track ends. When all its goroutines have ended, it returns the cause of the
// subscription's end, or the *moqt.DoneError with which it ended the subscription. Call it at most
// once.
func (v *Viewer) Serve(sink Sink) error {
	t, q := v.t, v.q
	v.start(sink)
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
				return v.finish(
					&moqt.DoneError{Code: wire.DoneSubscriptionEnded, Reason: "the last group of the filter was sent"},
				)
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

// finish ends the subscription when its deliveries are done, at the latest after MaxAge.
func (v *Viewer) finish(end *moqt.DoneError) error {
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

// start adds v to the track's viewers and offers it the objects that have arrived since Attach.
func (v *Viewer) start(sink Sink) {
	t := v.t
	t.mu.Lock()
	defer t.mu.Unlock()
	v.sink = sink
	expired := t.expiry(time.Now())
	for _, g := range t.groups {
		for _, sg := range g.subgroups {
			if !sg.backfilled && sg.hasAfter(v.after) {
				v.offer(sg)
			}
		}
		for _, d := range g.datagrams {
			if !d.backfilled && d.arrival > v.after && !d.arrived.Before(expired) &&
				sink.Passes(moqt.Location{Group: d.Group, Object: d.Object}) {
				v.sendDatagram(d.Datagram)
			}
		}
	}
	t.viewers[v] = struct{}{}
}

func (v *Viewer) sendDatagram(d moqt.Datagram) {
	if v.sink.SendDatagram(d) != nil {
		v.t.unsent.Add(1)
	} else {
		v.t.sentBytes.Add(uint64(len(d.Payload)))
	}
}

// wants reports whether to send the viewer an object, that is, whether it arrived after Attach and
// passes the filter.
func (v *Viewer) wants(group uint64, o *object) bool {
	return o.arrival > v.after && v.sink.Passes(moqt.Location{Group: group, Object: o.ID})
}

// offer queues a new subgroup for the viewer without blocking.
func (v *Viewer) offer(sg *subgroup) {
	v.mu.Lock()
	if len(v.offered) < maxOffered {
		v.offered = append(v.offered, sg)
	} else {
		v.t.dropped.Add(1)
	}
	v.mu.Unlock()
	v.signal()
}

// endOnRestart ends the subscription because the groups it waits for will not be published.
func (v *Viewer) endOnRestart() {
	v.mu.Lock()
	v.restarted = true
	v.mu.Unlock()
	v.signal()
}

func (v *Viewer) restartError() *moqt.DoneError {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.restarted {
		return nil
	}
	return &moqt.DoneError{Code: wire.DoneInternalError, Reason: "the publisher restarted its group numbering"}
}

func (v *Viewer) signal() {
	select {
	case v.wake <- struct{}{}:
	default:
	}
}

func (v *Viewer) take() []*subgroup {
	v.mu.Lock()
	defer v.mu.Unlock()
	o := v.offered
	v.offered = nil
	return o
}

func (v *Viewer) idle() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.offered) == 0
}

// send sends one subgroup.
func (v *Viewer) send(d *delivery) {
	sg := d.sg
	if !sg.add(d) {
		return // already evicted
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
		// The stream starts mid-subgroup: rewrite the first object's ID in full. The following IDs
		// are deltas and stay valid.
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
	case d.wasDropped(): // takes precedence over the error
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

// report calls Queue.OnDone at the end of a delivery; o is the first object due.
func (d *delivery) report(o *object, reason string) {
	if d.v.q.OnDone == nil {
		return
	}
	d.v.q.OnDone(Delivery{
		Track: d.v.t, Group: d.sg.header.Group, Subgroup: d.sg.ID(), Arrived: o.arrived, Ended: time.Now(),
		Bytes: d.sent.Load(), Dropped: reason,
	})
}

// pump sends the subgroup's bytes from offset at: the start of object i, or of its payload if
// restart holds its header. It returns ErrEvicted if the bytes are gone.
func (v *Viewer) pump(d *delivery, restart []byte, at int64, i int) error {
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

// source implements moqt.Source for a delivery, whose stream pulls bytes as it builds packets.
// Except for Deadline, it is not safe for concurrent use.
type source struct {
	d       *delivery
	at      int64         // end of the bytes taken so far
	i       int           // index of the object at that offset, or a smaller one
	cached  time.Duration // objects older than this are not sent; negative = no limit
	arrived atomic.Int64  // arrival of the last object taken, nanoseconds after epoch; 0 = no deadline
	err     error         // why the source ended early
}

// epoch is the time from which source.arrived counts.
var epoch = time.Now().Add(-time.Nanosecond)

// Next returns the next bytes of one object or, where objects have deadlines, of several objects
// that arrived together.
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

// Deadline returns the earlier of the object's and the subgroup's deadline.
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
