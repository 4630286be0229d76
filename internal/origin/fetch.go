package origin

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"

	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
)

// ServeFetch answers a FETCH from what is cached. Objects still arriving are sent
// as they come. What was evicted is reported as unknown, not as missing
// (§11.4.4.2).
func (t *Track) ServeFetch(r *moqt.FetchRequest) error {
	plan, err := t.plan(r)
	if err != nil {
		return errors.Join(err, r.RejectWith(err))
	}
	w, err := r.Accept(plan.end, plan.endOfTrack, t.Properties())
	if err != nil {
		return err
	}
	if err := t.answer(r.Context(), plan, w); err != nil {
		w.Reset(wire.StreamUnknownObjectStatus)
		return err
	}
	return w.Close()
}

// plan is the part of the cache that answers a FETCH.
type plan struct {
	start, last moqt.Location // inclusive
	end         moqt.Location // as FETCH_OK says it
	endOfTrack  bool
	order       moqt.GroupOrder
	groups      []*group // ascending
	oldest      uint64   // the oldest group in the cache
}

func (t *Track) plan(r *moqt.FetchRequest) (p plan, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.hasLargest || t.largest.Less(r.Start) {
		return p, &moqt.RequestError{Code: wire.RequestInvalidRange, Reason: "nothing was published in the range yet"}
	}
	p = plan{start: r.Start, end: r.End, order: r.Order, oldest: math.MaxUint64}
	p.last = moqt.Location{Group: r.End.Group, Object: r.End.Object - 1}
	if r.End.Object == 0 {
		p.last.Object = math.MaxUint64
	}
	if t.largest.Less(p.last) {
		p.last = t.largest
		p.end = moqt.Location{Group: p.last.Group, Object: p.last.Object + 1}
	}
	p.endOfTrack = t.ended != nil && p.last == t.largest
	for i, g := range t.groups {
		if i == 0 {
			p.oldest = g.id
		}
		if g.id >= p.start.Group && g.id <= p.last.Group {
			p.groups = append(p.groups, g)
		}
	}
	return p, nil
}

// answer writes the response, one group after the other.
func (t *Track) answer(ctx context.Context, p plan, w *moqt.FetchWriter) error {
	// unknown marks the range up to a location as unknown.
	unknown := func(group, object uint64) error {
		return w.WriteObject(wire.FetchObject{Range: wire.RangeUnknown, Group: group, Object: object}, nil)
	}
	before := p.start.Group < p.oldest // there was more, which was evicted
	descending := p.order == wire.Descending
	if before && !descending {
		if err := unknown(min(p.oldest-1, p.last.Group), math.MaxInt64); err != nil {
			return err
		}
	}
	if descending {
		slices.Reverse(p.groups)
	}
	for _, g := range p.groups {
		list, shed, gone := t.list(g, p.start, p.last)
		if gone {
			return errors.New("origin: a group was evicted while it was fetched")
		}
		if shed > 0 && g.id >= p.start.Group {
			if err := unknown(g.id, shed-1); err != nil {
				return err
			}
		}
		for _, f := range list {
			if err := f.send(ctx, g.id, w); err != nil {
				return err
			}
		}
	}
	if before && descending {
		return unknown(min(p.oldest-1, p.last.Group), math.MaxInt64)
	}
	return nil
}

// fetched is one object of the answer.
type fetched struct {
	id       uint64
	sg       *subgroup // nil for a datagram
	i        int       // of the object in sg
	datagram *moqt.Datagram
}

// list lists the objects of a group from first to last, those of normal status, in
// ascending order; objects below shed may be missing.
func (t *Track) list(g *group, first, last moqt.Location) (list []fetched, shed uint64, gone bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if g.gone {
		return nil, 0, true
	}
	in := func(id uint64) bool {
		l := moqt.Location{Group: g.id, Object: id}
		return id >= g.shed && !l.Less(first) && !last.Less(l)
	}
	for _, sg := range g.subgroups {
		list = sg.appendFetched(list, in)
	}
	for i := range g.datagrams {
		if d := &g.datagrams[i].Datagram; d.Status == wire.StatusNormal && in(d.Object) {
			list = append(list, fetched{id: d.Object, datagram: d})
		}
	}
	slices.SortStableFunc(list, func(a, b fetched) int { return cmp.Compare(a.id, b.id) })
	list = slices.CompactFunc(list, func(a, b fetched) bool { return a.id == b.id })
	return list, g.shed, false
}

func (s *subgroup) appendFetched(list []fetched, in func(uint64) bool) []fetched {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.objects {
		o := &s.objects[i]
		if o.Status != wire.StatusNormal || !in(o.ID) {
			continue
		}
		if s.state == reset && o.end() > s.size {
			continue // the rest of it will never come
		}
		list = append(list, fetched{id: o.ID, sg: s, i: s.trimmed + i})
	}
	return list
}

// send writes one object, waiting for what of it is still to arrive.
func (f *fetched) send(ctx context.Context, group uint64, w *moqt.FetchWriter) error {
	if f.sg == nil {
		d := f.datagram
		return w.WriteObject(wire.FetchObject{
			Group: group, Object: d.Object, Datagram: true, Priority: d.Priority,
			Properties: d.Properties, PayloadLength: uint64(len(d.Payload)),
		}, d.Payload)
	}
	o, i, _, over := f.sg.object(f.i)
	if over || i != f.i {
		return errEvictedObject
	}
	if err := w.BeginObject(wire.FetchObject{
		Group: group, Object: o.ID, Subgroup: f.sg.id, Priority: f.sg.header.Priority,
		Properties: o.Properties, PayloadLength: o.PayloadLength,
	}); err != nil {
		return err
	}
	for at, end := o.payload, o.end(); at < end; {
		b, changed, state := f.sg.bytes(at, min(maxWrite, end-at))
		switch {
		case len(b) > 0:
			if _, err := w.Write(b); err != nil {
				return err
			}
			at += int64(len(b))
		case state == evicted:
			return errEvictedObject
		case changed == nil:
			return errors.New("origin: the object's subgroup was reset")
		default:
			select {
			case <-changed:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	}
	return nil
}

var errEvictedObject = errors.New("origin: an object was evicted while it was fetched")
