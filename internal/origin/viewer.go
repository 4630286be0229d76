package origin

import (
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
)

// maxOffered bounds the subgroups a viewer was told of and did not look at yet.
const maxOffered = 1024

// maxWrite bounds one write to a viewer's stream, so that deadlines and resets
// are looked at between writes.
const maxWrite = 64 << 10

// narrowFor is how long a viewer's path is taken for too narrow after a flight was late
// or given up because of that. What comes in excess of a path adds up to patience
// meanwhile, if it is more than a thirtieth.
const narrowFor = 3 * time.Second

// patience is how long flights may wait on a path that is taken for too narrow: what was
// held up for a moment is made up for.
const patience = 100 * time.Millisecond

// viewer is one subscription being served.
type viewer struct {
	t     *Track
	pub   *moqt.Publication
	since time.Time // objects that began to arrive before are a joining fetch's

	mu      sync.Mutex
	offered []*subgroup
	wake    chan struct{}
	flights map[*flight]struct{}
	narrow  map[uint8]time.Time // until when the path is taken for too narrow, by priority
	wg      sync.WaitGroup
}

// flight is one subgroup under way to one viewer.
type flight struct {
	sg     *subgroup
	since  time.Time     // when it was launched
	behind chan struct{} // closed when it is given up: the viewer is too far behind

	mu    sync.Mutex
	w     *moqt.SubgroupWriter // nil until its stream is open
	given bool                 // up
}

// giveUp ends the flight from another goroutine than its own. It reports whether
// the viewer lost something by it.
func (f *flight) giveUp() bool {
	f.mu.Lock()
	w, again := f.w, f.given
	f.given = true
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
	return f.given
}

// Serve sends what the track receives from since on to an accepted subscription
// until either ends. It returns why: the publication's cause, or the
// *moqt.DoneError that ended the track. since is a moment before the subscription
// was accepted, so that nothing is lost between the two. No goroutine of it is left
// when it returns.
func (t *Track) Serve(pub *moqt.Publication, since time.Time) error {
	v := &viewer{t: t, pub: pub, since: since, wake: make(chan struct{}, 1), flights: map[*flight]struct{}{}, narrow: map[uint8]time.Time{}}
	t.attach(v)
	defer func() {
		t.mu.Lock()
		delete(t.viewers, v)
		t.mu.Unlock()
	}()
	defer v.wg.Wait()
	ctx := pub.Context()
	for {
		for _, sg := range v.take() {
			if pub.Ended(sg.header.Group) {
				return v.finish(&moqt.DoneError{Code: wire.DoneSubscriptionEnded, Reason: "the last group of the filter was sent"})
			}
			v.launch(sg)
		}
		t.mu.Lock()
		ended := t.ended
		t.mu.Unlock()
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

// finish ends the subscription when what is under way has arrived, or did not
// within the time that groups are kept.
func (v *viewer) finish(end *moqt.DoneError) error {
	late := time.AfterFunc(v.t.limits.MaxAge, func() {
		for _, f := range v.underWay() {
			v.t.behind.Add(1)
			f.giveUp()
		}
	})
	v.wg.Wait()
	late.Stop()
	if err := v.pub.Done(end.Code, end.Reason); err != nil {
		return err
	}
	return end
}

func (v *viewer) underWay() []*flight {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Collect(maps.Keys(v.flights))
}

// attach makes v a viewer and offers it what came since its beginning.
func (t *Track) attach(v *viewer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, g := range t.groups {
		for _, sg := range g.subgroups {
			if !sg.past && sg.reaches(v.since) {
				v.offer(sg)
			}
		}
		for _, d := range g.datagrams {
			if !d.arrived.Before(v.since) && v.pub.Passes(moqt.Location{Group: d.Group, Object: d.Object}) {
				if v.pub.SendDatagram(d.Datagram) != nil {
					t.unsent.Add(1)
				} else {
					t.sentBytes.Add(uint64(len(d.Payload)))
				}
			}
		}
	}
	t.viewers[v] = struct{}{}
}

// wants reports whether an object is this viewer's: it came in its time and
// passes its filter.
func (v *viewer) wants(group uint64, o *object) bool {
	return !o.arrived.Before(v.since) && v.pub.Passes(moqt.Location{Group: group, Object: o.ID})
}

// offer tells the viewer of a new subgroup without waiting for it.
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

// launch starts a flight. When too many are under way, the one that matters least
// is given up: of the lowest publisher priority, then of the oldest group.
func (v *viewer) launch(sg *subgroup) {
	f := &flight{sg: sg, since: time.Now(), behind: make(chan struct{})}
	v.mu.Lock()
	victim := f
	if len(v.flights) >= v.t.limits.MaxOpen {
		for o := range v.flights {
			if o.lessImportant(victim) {
				victim = o
			}
		}
		v.t.behind.Add(1)
		delete(v.flights, victim)
	}
	if victim != f || len(v.flights) < v.t.limits.MaxOpen {
		v.flights[f] = struct{}{}
		v.wg.Go(func() {
			v.fly(f)
			v.mu.Lock()
			delete(v.flights, f)
			v.mu.Unlock()
		})
	}
	v.mu.Unlock()
	if victim != f {
		victim.giveUp()
	}
	v.keepUp(sg.header.Priority, nil)
}

// keepUp gives up flights of a priority that wait for their turn while newer groups do. It
// does so when one was late (nil: none), which is no longer under way then, and from then on
// until none had to be given up for a while.
//
// Flights go one after the other, the oldest first. On a path that is too narrow for all of
// them they would all be late once one is: the time of each is nearly over when its turn
// comes, and what was sent of it was sent in vain. Therefore only the newest is left behind
// a late one, and behind one that is under way if others have waited for long.
func (v *viewer) keepUp(priority uint8, late *flight) {
	now := time.Now()
	v.mu.Lock()
	if late != nil {
		delete(v.flights, late)
		v.narrow[priority] = now.Add(narrowFor)
	}
	if now.After(v.narrow[priority]) {
		v.mu.Unlock()
		return
	}
	oldest, newest := uint64(math.MaxUint64), uint64(0)
	var waiting []*flight
	for f := range v.flights {
		if f.sg.header.Priority == priority {
			oldest, newest = min(oldest, f.sg.header.Group), max(newest, f.sg.header.Group)
			waiting = append(waiting, f)
		}
	}
	waiting = slices.DeleteFunc(waiting, func(f *flight) bool {
		return f.sg.header.Group == newest || f.sg.header.Group == oldest && late == nil
	})
	if late == nil && !slices.ContainsFunc(waiting, func(f *flight) bool { return now.Sub(f.since) >= patience }) {
		waiting = nil
	}
	if len(waiting) > 0 {
		v.narrow[priority] = now.Add(narrowFor)
	}
	for _, f := range waiting {
		delete(v.flights, f)
	}
	v.mu.Unlock()
	for _, f := range waiting {
		if f.giveUp() {
			v.t.behind.Add(1)
		}
	}
}

func (f *flight) lessImportant(o *flight) bool {
	a, b := f.sg.header, o.sg.header
	if a.Priority != b.Priority {
		return a.Priority > b.Priority
	}
	return a.Group < b.Group
}

// fly sends one subgroup.
func (v *viewer) fly(f *flight) {
	sg := f.sg
	if !sg.board(f) {
		return // evicted before it was looked at
	}
	defer sg.leave(f)
	// Wait for the first object that is this viewer's.
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
			case <-v.pub.Context().Done():
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
		// anew, the others refer to their predecessor and can stay as they are.
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
	w, err := v.pub.OpenSubgroup(h)
	if err != nil {
		if errors.Is(err, moqt.ErrStreamsBlocked) {
			v.t.behind.Add(1)
		}
		return
	}
	f.mu.Lock()
	f.w = w
	given := f.given
	f.mu.Unlock()
	if given {
		w.Reset(wire.StreamTooFarBehind)
		return
	}
	v.t.sentSubgroups.Add(1)
	switch err := v.pump(f, restart, at, first); {
	case f.givenUp(): // whatever the stream says of it
	case errors.Is(err, moqt.ErrDeliveryTimeout):
		v.t.late.Add(1)
		v.keepUp(sg.header.Priority, f)
	case errors.Is(err, ErrEvicted):
		v.t.behind.Add(1)
		w.Reset(wire.StreamTooFarBehind)
	}
}

// pump copies the subgroup's bytes from at, where object i begins or whose header
// is in restart, to the flight's stream. It returns ErrEvicted when they are no
// longer there.
func (v *viewer) pump(f *flight, restart []byte, at int64, i int) error {
	sg, w, ctx := f.sg, f.w, v.pub.Context()
	updates := v.pub.Changed()
	timeout, _ := v.pub.DeliveryTimeouts()
	if restart != nil {
		if err := w.WriteRaw(restart); err != nil {
			return err
		}
	}
	for {
		limit := int64(maxWrite)
		if timeout > 0 {
			// Each object has its own deadline; a write stays within one.
			o, n, changed, over := sg.object(i)
			if here := changed == nil && !over; here && n == i {
				if at >= o.end() {
					i++
					continue
				}
				limit = min(limit, o.end()-at)
				w.SetDeadline(o.arrived.Add(timeout))
			}
		}
		b, changed, state := sg.bytes(at, limit)
		if len(b) > 0 {
			if err := w.WriteRaw(b); err != nil {
				return err
			}
			at += int64(len(b))
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
			updates = v.pub.Changed()
			timeout, _ = v.pub.DeliveryTimeouts()
			if !v.pub.Forwarding() {
				w.Reset(wire.StreamCancelled)
				return nil
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
