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

// fetched is one object to be answered with.
type fetched struct {
	wire.FetchObject
	sg      *subgroup // nil for a datagram
	at      int64     // of the payload in sg
	payload []byte    // of a datagram
}

// ServeFetch answers a FETCH from what is cached. Objects still arriving are sent
// as they come. What was evicted is reported as unknown, not as missing
// (§11.4.4.2).
func (t *Track) ServeFetch(r *moqt.FetchRequest) error {
	list, end, endOfTrack, gap, err := t.collect(r)
	if err != nil {
		return errors.Join(err, r.RejectWith(err))
	}
	w, err := r.Accept(end, endOfTrack, t.Properties())
	if err != nil {
		return err
	}
	if gap != nil && r.Order != wire.Descending {
		if err := w.WriteObject(*gap, nil); err != nil {
			return err
		}
	}
	for i := range list {
		if err := list[i].send(r.Context(), w); err != nil {
			w.Reset(wire.StreamUnknownObjectStatus)
			return err
		}
	}
	if gap != nil && r.Order == wire.Descending {
		if err := w.WriteObject(*gap, nil); err != nil {
			return err
		}
	}
	return w.Close()
}

// collect lists the objects of the requested range, in the requested order.
func (t *Track) collect(r *moqt.FetchRequest) (list []fetched, end moqt.Location, endOfTrack bool, gap *wire.FetchObject, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.hasLargest || t.largest.Less(r.Start) {
		return nil, end, false, nil, &moqt.RequestError{Code: wire.RequestInvalidRange, Reason: "nothing was published in the range yet"}
	}
	end = r.End
	last := moqt.Location{Group: end.Group, Object: end.Object - 1} // inclusive
	if end.Object == 0 {
		last.Object = math.MaxUint64
	}
	if t.largest.Less(last) {
		last = t.largest
		end = moqt.Location{Group: last.Group, Object: last.Object + 1}
	}
	endOfTrack = t.ended != nil && last == t.largest
	for _, g := range t.groups {
		if g.id < r.Start.Group || g.id > last.Group {
			continue
		}
		n := len(list)
		in := func(id uint64) bool {
			l := moqt.Location{Group: g.id, Object: id}
			return !l.Less(r.Start) && !last.Less(l)
		}
		for _, sg := range g.subgroups {
			list = sg.appendFetched(list, in)
		}
		for _, d := range g.datagrams {
			if d.Status == wire.StatusNormal && in(d.Datagram.Object) {
				list = append(list, fetched{payload: d.Payload, FetchObject: wire.FetchObject{
					Group: g.id, Object: d.Datagram.Object, Datagram: true, Priority: d.Priority,
					Properties: d.Properties, PayloadLength: uint64(len(d.Payload)),
				}})
			}
		}
		slices.SortStableFunc(list[n:], func(a, b fetched) int { return cmp.Compare(a.Object, b.Object) })
		list = append(list[:n], slices.CompactFunc(list[n:], func(a, b fetched) bool { return a.Object == b.Object })...)
	}
	if r.Order == wire.Descending {
		slices.SortStableFunc(list, func(a, b fetched) int { return cmp.Compare(b.Group, a.Group) })
	}
	if oldest := t.groups; len(oldest) > 0 && r.Start.Group < oldest[0].id {
		gap = &wire.FetchObject{Range: wire.RangeUnknown, Group: min(oldest[0].id-1, last.Group), Object: math.MaxInt64}
	}
	return list, end, endOfTrack, gap, nil
}

func (s *subgroup) appendFetched(list []fetched, in func(uint64) bool) []fetched {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := s.header.Subgroup
	if s.header.Mode == wire.SubgroupIDFirstObject && len(s.objects) > 0 {
		id = s.objects[0].ID
	}
	for i := range s.objects {
		o := &s.objects[i]
		if o.Status != wire.StatusNormal || !in(o.ID) {
			continue
		}
		if s.state == reset && o.end() > s.size {
			continue // the rest of it will never come
		}
		list = append(list, fetched{sg: s, at: o.payload, FetchObject: wire.FetchObject{
			Group: s.header.Group, Object: o.ID, Subgroup: id, Priority: s.header.Priority,
			Properties: o.Properties, PayloadLength: o.PayloadLength,
		}})
	}
	return list
}

// send writes one object, waiting for what of it is still to arrive.
func (f *fetched) send(ctx context.Context, w *moqt.FetchWriter) error {
	if f.sg == nil {
		return w.WriteObject(f.FetchObject, f.payload)
	}
	if err := w.BeginObject(f.FetchObject); err != nil {
		return err
	}
	for at, end := f.at, f.at+int64(f.PayloadLength); at < end; {
		b, changed, _ := f.sg.bytes(at, min(maxWrite, end-at))
		switch {
		case len(b) > 0:
			if _, err := w.Write(b); err != nil {
				return err
			}
			at += int64(len(b))
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
