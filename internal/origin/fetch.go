package origin

import (
	"cmp"
	"context"
	"errors"
	"io"
	"math"
	"slices"
	"time"

	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
)

// Source fetches objects of a track from upstream, from start to end as in a FETCH. timeout is the
// FILL_TIMEOUT; ctx bounds only the wait for the response.
type Source func(ctx context.Context, start, end moqt.Location, order moqt.GroupOrder,
	timeout time.Duration) (*Response, error)

// Response is a Source's answer. Except for Objects, its fields are those of
// a [moqt.FetchReader].
type Response struct {
	Objects    ResponseReader
	End        moqt.Location // as in FETCH_OK
	EndOfTrack bool
	Properties moqt.Properties
}

// ResponseReader reads the entries of a response in order.
type ResponseReader interface {
	// Next reads the next entry's header. It returns io.EOF at the end.
	Next() (wire.FetchObject, error)
	// ReadPayload reads the current object's payload into buf. It accepts at most limit bytes.
	ReadPayload(buf []byte, limit int) ([]byte, error)
	// Cancel aborts the response; pending and later reads fail. It may be called from any goroutine
	// and is always called at the end.
	Cancel()
}

// Limits on upstream fetches for one FETCH.
const (
	maxPieces        = 4                // upstream requests; more are merged, including the cached groups between them
	maxFetchedObject = 16 << 20         // bytes of an object
	fillTimeout      = 10 * time.Second // for each wait, unless the request has a FILL_TIMEOUT
)

// SourceStall bounds how long a slow reader may block a response from a Source, because other
// readers may share the response.
const SourceStall = 3 * time.Second

// ServeFetch answers a FETCH from the cache and sends objects that are still arriving as they come.
// It requests the rest from source, within the request's FILL_TIMEOUT (§10.2.5). If source is nil or
// fails, the rest is reported as unknown rather than missing (§11.4.4.2); if it is too slow, as timed
// out (draft-22 §3.2.3).
func (t *Track) ServeFetch(r *moqt.FetchRequest, source Source) error {
	if largest, ok := t.Largest(); ok {
		r.Resolve(largest)
	}
	fill := newBudget(r.Parameters.FillTimeout)
	late := fill.left == 0
	if late {
		source = nil
	}
	p, err := t.plan(r, source != nil)
	if err != nil {
		return errors.Join(err, r.RejectWith(err))
	}
	a := &answer{t: t, plan: p, source: source, fill: fill, late: late}
	if source != nil && p.nothingCached() {
		// Nothing is cached, so return upstream's answer.
		a.first, err = a.open(r.Context(), p.pieces[0])
		a.late = errors.Is(err, errTooSlow)
		if err != nil && (!a.late || !p.known && !fill.total) {
			return errors.Join(err, r.RejectWith(err))
		}
		if err != nil {
			a.source = nil
		} else if first := a.first; !p.known {
			a.end, a.endOfTrack = first.End, first.EndOfTrack
		}
	}
	props := t.Properties()
	if a.first != nil {
		defer a.first.Objects.Cancel()
		props = a.first.Properties
	}
	if a.w, err = r.Accept(a.end, a.endOfTrack, props); err != nil {
		return err
	}
	if err := a.write(r.Context()); err != nil {
		a.w.Reset(wire.StreamUnknownObjectStatus)
		return err
	}
	return a.w.Close()
}

// ServeUnknown answers a FETCH of a track about which nothing is known, not even its largest
// location, because the request does not wait. It reports the whole range as timed out.
func ServeUnknown(r *moqt.FetchRequest) error {
	w, err := r.Accept(r.End, false, nil)
	if err != nil {
		return err
	}
	p := plan{start: r.Start, last: lastOf(r.End), end: r.End}
	a := &answer{plan: p, w: w, late: true}
	end := p.last.Group
	if r.Order == wire.Descending {
		end = p.start.Group
	}
	_, last := p.limits(end)
	if err := a.unknown(end, last); err != nil {
		w.Reset(wire.StreamUnknownObjectStatus)
		return err
	}
	return w.Close()
}

// lastOf returns the last object of a FETCH whose End Location is end.
func lastOf(end moqt.Location) moqt.Location {
	if end.Object == 0 {
		return moqt.Location{Group: end.Group, Object: math.MaxUint64}
	}
	return moqt.Location{Group: end.Group, Object: end.Object - 1}
}

// budget is the time an answer may still wait for its source.
type budget struct {
	left  time.Duration
	total bool // left is shared by all waits instead of granted to each
}

func newBudget(milliseconds *uint64) budget {
	if milliseconds == nil {
		return budget{left: fillTimeout}
	}
	return budget{min(time.Duration(min(*milliseconds, math.MaxInt32))*time.Millisecond, fillTimeout), true}
}

// errTooSlow means that the source exceeded the budget.
var errTooSlow = &moqt.RequestError{
	Code:          wire.RequestTimeout,
	Reason:        "the publisher did not answer the fetch in time",
	RetryInterval: wire.RetryAfter(0),
}

// wait runs f within the budget and calls cancel when the budget is exhausted.
func (b *budget) wait(cancel func(), f func() error) error {
	if b.left <= 0 {
		return errTooSlow
	}
	started := time.Now()
	late := time.AfterFunc(b.left, cancel)
	err := f()
	if !late.Stop() && err != nil {
		err = errTooSlow
	}
	if b.total {
		b.left -= time.Since(started)
	}
	return err
}

// plan is a FETCH divided into pieces.
type plan struct {
	known       bool          // the track's largest location is known
	start, last moqt.Location // inclusive
	end         moqt.Location // as sent in FETCH_OK
	endOfTrack  bool
	order       moqt.GroupOrder
	pieces      []piece // in response order
}

// piece is the range of groups from first to last. It is either one group that is complete in the
// cache, or groups to request from the source.
type piece struct {
	first, last uint64
	groups      []*group // cached, ascending
	incomplete  bool
}

func (p *plan) nothingCached() bool {
	return len(p.pieces) == 1 && p.pieces[0].incomplete && len(p.pieces[0].groups) == 0
}

// limits returns the first and last object requested of a group.
func (p *plan) limits(group uint64) (first, last uint64) {
	last = math.MaxUint64
	if group == p.start.Group {
		first = p.start.Object
	}
	if group == p.last.Group {
		last = p.last.Object
	}
	return first, last
}

func (t *Track) plan(r *moqt.FetchRequest, sourced bool) (p plan, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.hasLargest && !sourced || t.hasLargest && t.largest.Less(r.Start) {
		return p, &moqt.RequestError{
			Code:   wire.RequestInvalidRange,
			Reason: "no object of the range has been published yet",
		}
	}
	p = plan{known: t.hasLargest, start: r.Start, last: lastOf(r.End), end: r.End, order: r.Order}
	if t.hasLargest && t.largest.Less(p.last) {
		p.last = t.largest
		p.end = moqt.Location{Group: p.last.Group, Object: p.last.Object + 1}
	}
	over := t.final != nil || t.ended != nil && t.ended.Code == wire.DoneTrackEnded
	p.endOfTrack = t.hasLargest && over && p.last == t.largest
	p.pieces = t.pieces(&p, time.Now())
	if p.order == wire.Descending {
		slices.Reverse(p.pieces)
	}
	return p, nil
}

// pieces divides a range of groups into complete and incomplete pieces. t.mu is held.
func (t *Track) pieces(p *plan, now time.Time) []piece {
	var list []piece
	add := func(x piece) {
		if n := len(list); n > 0 && x.incomplete && list[n-1].incomplete {
			list[n-1].last = x.last
			list[n-1].groups = append(list[n-1].groups, x.groups...)
			return
		}
		list = append(list, x)
	}
	next, more := p.start.Group, true // first group not considered yet
	missing := func(last uint64) {
		if more && next <= last {
			add(piece{first: next, last: last, incomplete: true})
		}
	}
	for i, g := range t.groups {
		if g.id < p.start.Group || g.id > p.last.Group {
			continue
		}
		// Groups older than the cache may have been evicted. A gap between cached groups is a gap
		// in the track, unless a relayed group was lost.
		if g.id > next && (i == 0 || t.Relayed) && !t.isAbsent(next, g.id-1) {
			missing(g.id - 1)
		}
		first, last := p.limits(g.id)
		add(piece{first: g.id, last: g.id, groups: []*group{g}, incomplete: !g.complete(t, first, last, now)})
		next, more = g.id+1, g.id != math.MaxUint64
	}
	if len(list) == 0 || t.Relayed && !t.isAbsent(next, p.last.Group) {
		missing(p.last.Group)
	}
	return limitPieces(list)
}

// limitPieces merges incomplete pieces if there are more than maxPieces.
func limitPieces(list []piece) []piece {
	n, first, last := 0, -1, -1
	for i, x := range list {
		if x.incomplete {
			if n++; first < 0 {
				first = i
			}
			last = i
		}
	}
	if n <= maxPieces {
		return list
	}
	one := piece{first: list[first].first, last: list[last].last, incomplete: true}
	for _, x := range list[first : last+1] {
		one.groups = append(one.groups, x.groups...)
	}
	return slices.Concat(list[:first], []piece{one}, list[last+1:])
}

// answer writes the response to a FETCH.
type answer struct {
	plan
	t      *Track
	source Source
	fill   budget
	late   bool      // the budget is exhausted
	first  *Response // response to the first piece, if requested in advance
	w      *moqt.FetchWriter
	buf    []byte
}

func (a *answer) write(ctx context.Context) error {
	for _, x := range a.pieces {
		at := cursor{group: x.first}
		at.object, _ = a.limits(x.first)
		if a.order == wire.Descending {
			at.group = x.last
			at.object, _ = a.limits(x.last)
		}
		if x.incomplete && a.source != nil {
			done, err := a.pipe(ctx, x, &at)
			if err != nil {
				return err
			}
			if done {
				continue
			}
		}
		if err := a.cached(ctx, x, at); err != nil {
			return err
		}
	}
	return nil
}

// cursor is the position of an answer: at an object of a group, or after the group.
type cursor struct {
	group, object uint64
	after         bool
}

func (c *cursor) pass(group, object uint64) {
	c.group, c.object, c.after = group, object+1, object == math.MaxUint64
}

// ahead reports whether a group lies entirely ahead of the cursor, and here whether the cursor is
// inside it.
func (c *cursor) ahead(group uint64, order moqt.GroupOrder) (ahead, here bool) {
	if order == wire.Descending {
		return group < c.group, group == c.group && !c.after
	}
	return group > c.group, group == c.group && !c.after
}

// cached writes the cached objects of a piece, from at on, and marks the rest as unknown.
func (a *answer) cached(ctx context.Context, x piece, at cursor) error {
	groups := x.groups
	end := x.last
	if a.order == wire.Descending {
		groups = slices.Clone(groups)
		slices.Reverse(groups)
		end = x.first
	}
	for _, g := range groups {
		first, last := a.limits(g.id)
		switch ahead, here := at.ahead(g.id, a.order); {
		case here && at.object > last:
			continue
		case here:
			first = at.object
		case !ahead:
			continue
		default:
			if before, some := a.before(g.id, at); some {
				if err := a.unknown(before, math.MaxUint64); err != nil {
					return err
				}
			}
		}
		if err := a.group(ctx, g, first, last); err != nil {
			return err
		}
		at.group, at.after = g.id, true
	}
	_, last := a.limits(end)
	if !x.incomplete || at.group == end && (at.after || at.object > last) {
		return nil
	}
	return a.unknown(end, last)
}

// before returns the last group before g in response order. some is false if the cursor has reached
// g.
func (a *answer) before(g uint64, at cursor) (group uint64, some bool) {
	step := uint64(1)
	if a.order == wire.Descending {
		group, step = g+1, math.MaxUint64
	} else {
		group = g - 1
	}
	if at.after {
		return group, at.group+step != g
	}
	return group, at.group != g
}

// unknown marks everything up to a location as unknown or timed out.
func (a *answer) unknown(group, object uint64) error {
	kind := wire.RangeUnknown
	if a.late {
		kind = wire.RangeTimedOut
	}
	return a.w.WriteObject(
		wire.FetchObject{Range: kind, Group: group, Object: min(object, math.MaxInt64)},
		nil,
	)
}

// group writes the cached objects of a group from first to last.
func (a *answer) group(ctx context.Context, g *group, first, last uint64) error {
	list, known, gone := a.t.list(g, first, last)
	if gone {
		return a.unknown(g.id, last)
	}
	next, over := first, false
	for _, f := range list {
		if f.id > next && !known.absent(next, f.id-1) {
			if err := a.unknown(g.id, f.id-1); err != nil {
				return err
			}
		}
		if err := f.send(ctx, g.id, a.w); err != nil {
			return err
		}
		next, over = f.id+1, f.id == math.MaxUint64
	}
	if !over && next <= last && !known.absent(next, last) {
		return a.unknown(g.id, last)
	}
	return nil
}

// open requests a piece from the source.
func (a *answer) open(ctx context.Context, x piece) (resp *Response, err error) {
	start, end := moqt.Location{Group: x.first}, moqt.Location{Group: x.last}
	start.Object, _ = a.limits(x.first)
	if _, last := a.limits(x.last); last != math.MaxUint64 {
		end.Object = last + 1
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	err = a.fill.wait(cancel, func() (err error) {
		resp, err = a.source(ctx, start, end, a.order, a.fill.left)
		return err
	})
	return resp, err
}

// pipe copies a piece from the source and advances at. done is false if the source ended early; an
// error means that the response must be reset.
func (a *answer) pipe(ctx context.Context, x piece, at *cursor) (done bool, err error) {
	resp := a.first
	a.first = nil
	if resp == nil {
		if resp, err = a.open(ctx, x); err != nil {
			a.late = a.late || errors.Is(err, errTooSlow)
			return false, nil // the rest is reported as unknown
		}
	}
	defer resp.Objects.Cancel()
	a.w.SetWriteTimeout(SourceStall)
	seen, certain := []uint64{}, true // groups, and whether the others of the piece do not exist
	for {
		var o wire.FetchObject
		err := a.fill.wait(resp.Objects.Cancel, func() (err error) {
			if o, err = resp.Objects.Next(); err == nil && o.Range == wire.RangeNone {
				a.buf, err = resp.Objects.ReadPayload(a.buf, maxFetchedObject)
			}
			return err
		})
		if err == io.EOF {
			if a.order != wire.Descending && a.endsEarly(x, resp, at) {
				return false, nil
			}
			if certain {
				a.t.noteAbsent(x.first, x.last, seen)
			}
			return true, nil
		}
		a.late = a.late || errors.Is(err, errTooSlow)
		if err != nil || !a.in(x, o) {
			return false, nil // the rest is reported as unknown
		}
		payload := a.buf[:0]
		if o.Range == wire.RangeNone {
			payload = a.buf
		}
		if err := a.w.WriteObject(o, payload); err != nil {
			return false, err
		}
		at.pass(o.Group, o.Object)
		certain = certain && (o.Range == wire.RangeNone || o.Range == wire.RangeNonExistent)
		if n := len(seen); n == 0 || seen[n-1] != o.Group {
			seen = append(seen, o.Group)
		}
	}
}

// endsEarly reports whether a source's response has ended before the piece did.
func (a *answer) endsEarly(x piece, resp *Response, at *cursor) bool {
	_, last := a.limits(x.last)
	end := moqt.Location{Group: resp.End.Group, Object: resp.End.Object - 1}
	if resp.End.Object == 0 {
		end.Object = math.MaxUint64
	}
	if a.known && end.Less(moqt.Location{Group: x.last, Object: last}) {
		if at.group < end.Group || at.group == end.Group && at.object <= end.Object {
			at.pass(end.Group, end.Object)
		}
		return true
	}
	return false
}

// in reports whether an entry belongs to a piece.
func (a *answer) in(x piece, o wire.FetchObject) bool {
	if o.Group < x.first || o.Group > x.last {
		return false
	}
	first, last := a.limits(o.Group)
	if o.Range != wire.RangeNone { // a range may extend beyond the request
		return o.Object >= first
	}
	return o.Object >= first && o.Object <= last
}

// fetched is one object of an answer.
type fetched struct {
	id       uint64
	sg       *subgroup // nil for a datagram
	i        int       // index of the object in sg
	datagram *moqt.Datagram
}

// coverage describes which objects of a group may exist although they are not cached.
type coverage struct {
	knownFrom   uint64 // lower IDs may exist
	knownTo     uint64 // IDs from here on may exist; 2^64-1 = none
	unconfirmed bool   // any ID may exist
}

// absent reports whether the objects from first to last are known not to exist.
func (k coverage) absent(first, last uint64) bool {
	return !k.unconfirmed && first >= k.knownFrom && (last < k.knownTo || k.knownTo == math.MaxUint64)
}

// coverage returns the coverage of a group. t.mu is held.
func (g *group) coverage(t *Track, now time.Time) coverage {
	k := coverage{knownFrom: g.evictedBelow, knownTo: math.MaxUint64}
	if g.missingFrom > 0 {
		k.knownTo = g.missingFrom - 1
	}
	if t.missed != nil && t.missed.Group == g.id {
		k.knownFrom = max(k.knownFrom, t.missed.Object+1)
	}
	expired := t.expiry(now)
	for _, sg := range g.subgroups {
		knownFrom, knownTo := sg.coverage(expired)
		k.knownFrom = max(k.knownFrom, knownFrom)
		// A stream that is not indexed was replaced by a newer one.
		if g.index[subgroupKey{sg.id, sg.header.FirstObject, sg.backfilled}] == sg {
			k.knownTo = min(k.knownTo, knownTo)
		}
	}
	for i := range g.datagrams {
		if d := &g.datagrams[i]; d.arrived.Before(expired) {
			k.knownFrom = max(k.knownFrom, d.Object+1)
		}
	}
	return k
}

// coverage returns two bounds: the subgroup may lack objects with IDs below
// knownFrom, and from knownTo on.
func (s *subgroup) coverage(expired time.Time) (knownFrom, knownTo uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	knownTo = math.MaxUint64
	if s.state == reset {
		knownTo = s.missingFromLocked()
	}
	for i := range s.objects {
		if !s.objects[i].arrived.Before(expired) {
			break
		}
		knownFrom = s.objects[i].ID + 1
	}
	return knownFrom, knownTo
}

// expiry returns the arrival time before which objects must not be served (MAX_CACHE_DURATION,
// §12.3). t.mu is held.
func (t *Track) expiry(now time.Time) time.Time {
	if age := t.maxCacheAge(); age >= 0 {
		return now.Add(-age)
	}
	return time.Time{}
}

// complete reports whether every existing object of a group from first to last is cached or
// arriving. It ignores gaps between datagrams. t.mu is held.
func (g *group) complete(t *Track, first, last uint64, now time.Time) bool {
	return g.coverage(t, now).absent(first, last)
}

// list returns the cached objects of normal status from first to last of a group, in ascending
// order, and the group's coverage. gone reports that the group was evicted.
func (t *Track) list(g *group, first, last uint64) (list []fetched, k coverage, gone bool) {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if g.gone {
		return nil, k, true
	}
	k, expired := g.coverage(t, now), t.expiry(now)
	k.unconfirmed = t.Relayed && len(g.datagrams) > 0 && !g.confirmed(first, last)
	in := func(id uint64) bool { return id >= max(first, g.evictedBelow) && id <= last }
	for _, sg := range g.subgroups {
		list = sg.appendFetched(list, in, expired)
	}
	for i := range g.datagrams {
		if d := &g.datagrams[i]; d.Status == wire.StatusNormal && in(d.Object) && !d.arrived.Before(expired) {
			list = append(list, fetched{id: d.Object, datagram: &d.Datagram})
		}
	}
	slices.SortStableFunc(list, func(a, b fetched) int { return cmp.Compare(a.id, b.id) })
	list = slices.CompactFunc(list, func(a, b fetched) bool { return a.id == b.id })
	return list, k, false
}

func (s *subgroup) appendFetched(list []fetched, in func(uint64) bool, expired time.Time) []fetched {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.objects {
		o := &s.objects[i]
		if o.Status != wire.StatusNormal || !in(o.ID) || o.arrived.Before(expired) {
			continue
		}
		if s.state == reset && o.end() > s.size {
			continue // will never be complete
		}
		list = append(list, fetched{id: o.ID, sg: s, i: s.trimmed + i})
	}
	return list
}

// send writes one object and waits for the part that is still arriving.
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
		b, changed, state := f.sg.bytes(at, min(maxPiece, end-at))
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

var errEvictedObject = errors.New("origin: object evicted during a fetch")

// Confirm records that upstream was asked for the objects from first to last of a group. Objects
// that are still missing do not exist.
func (t *Track) Confirm(id, first, last uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if i, ok := t.find(id); ok {
		if g := t.groups[i]; len(g.requested) < maxConfirmed {
			g.requested = append(g.requested, Span{first, last})
		}
	}
}

const (
	maxConfirmed = 16 // spans per group
	maxAbsent    = 32 // spans per track
)

// confirmed reports whether upstream was asked about each gap between the datagrams first to last.
// t.mu is held.
func (g *group) confirmed(first, last uint64) bool {
	for _, gap := range g.gaps(first, last) {
		if !slices.ContainsFunc(g.requested, func(s Span) bool { return s.First <= gap.First && gap.Last <= s.Last }) {
			return false
		}
	}
	return true
}

// noteAbsent records that no groups from first to last exist except those in seen.
func (t *Track) noteAbsent(first, last uint64, seen []uint64) {
	slices.Sort(seen)
	t.mu.Lock()
	defer t.mu.Unlock()
	add := func(s Span) {
		if len(t.absent) == maxAbsent {
			t.absent = slices.Delete(t.absent, 0, 1)
		}
		t.absent = append(t.absent, s)
	}
	next := first
	for _, id := range seen {
		if id > next {
			add(Span{next, id - 1})
		}
		if next = id + 1; next == 0 {
			return
		}
	}
	if next <= last && (!t.hasLargest || last < t.largest.Group) { // otherwise newer groups may exist by now
		add(Span{next, last})
	}
}

// isAbsent reports whether the groups first to last are known not to exist. t.mu is held.
func (t *Track) isAbsent(first, last uint64) bool {
	return slices.ContainsFunc(t.absent, func(s Span) bool { return s.First <= first && last <= s.Last })
}
