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

// Source asks where a track comes from for objects of it, from start to end as in a FETCH.
// patience is how long that may take; ctx bounds the wait for the answer.
type Source func(ctx context.Context, start, end moqt.Location, order moqt.GroupOrder, patience time.Duration) (*Response, error)

// Response is the answer of a Source: what a [moqt.FetchReader] reads.
type Response struct {
	Objects    ResponseReader
	End        moqt.Location // as in FETCH_OK
	EndOfTrack bool
	Properties moqt.Properties
}

// ResponseReader reads the entries of a response in order.
type ResponseReader interface {
	// Next reads the header of the next entry, io.EOF at the end.
	Next() (wire.FetchObject, error)
	// ReadPayload reads the current object's payload into buf, at most limit bytes.
	ReadPayload(buf []byte, limit int) ([]byte, error)
	// Cancel gives the response up, from any goroutine; reading then fails. It is called at
	// the end, too.
	Cancel()
}

// Bounds of what one FETCH has fetched from the track's source.
const (
	maxPieces        = 4                // ranges; what is between more of them is fetched with them
	maxFetchedObject = 16 << 20         // bytes of an object
	fillTimeout      = 10 * time.Second // for each wait, where the request has no FILL_TIMEOUT
)

// SourceStall is how long what comes from a Source waits for the reader, who holds up what
// others fetch.
const SourceStall = 3 * time.Second

// ServeFetch answers a FETCH from what is cached. Objects still arriving are sent as they
// come. What the cache does not know comes from source, in the time that the request allows
// for that (FILL_TIMEOUT, §10.2.5); it is reported as unknown, not as missing (§11.4.4.2),
// where source is nil, fails or takes too long.
func (t *Track) ServeFetch(r *moqt.FetchRequest, source Source) error {
	fill := newBudget(r.Parameters.FillTimeout)
	if fill.left == 0 {
		source = nil
	}
	p, err := t.plan(r, source != nil)
	if err != nil {
		return errors.Join(err, r.RejectWith(err))
	}
	a := &answer{t: t, plan: p, source: source, fill: fill}
	if source != nil && p.allElsewhere() {
		// Nothing of it is here: what the source says of the request is the answer.
		a.first, err = a.open(r.Context(), p.pieces[0])
		if late := errors.Is(err, errTooSlow) && (p.known || fill.total); err != nil && !late {
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

// ServeUnknown answers a FETCH of a track of which nothing is known, not even how far it goes:
// all of it is unknown.
func ServeUnknown(r *moqt.FetchRequest) error {
	w, err := r.Accept(r.End, false, nil)
	if err != nil {
		return err
	}
	p := plan{start: r.Start, last: lastOf(r.End), end: r.End}
	a := &answer{plan: p, w: w}
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

// lastOf is the last object of a FETCH that ends at a location, as it is on the wire.
func lastOf(end moqt.Location) moqt.Location {
	if end.Object == 0 {
		return moqt.Location{Group: end.Group, Object: math.MaxUint64}
	}
	return moqt.Location{Group: end.Group, Object: end.Object - 1}
}

// budget is how long an answer may wait for its source.
type budget struct {
	left  time.Duration
	total bool // of all waits together, not of each
}

func newBudget(milliseconds *uint64) budget {
	if milliseconds == nil {
		return budget{left: fillTimeout}
	}
	return budget{min(time.Duration(min(*milliseconds, math.MaxInt32))*time.Millisecond, fillTimeout), true}
}

// errTooSlow says that the source did not answer in the time it had.
var errTooSlow = &moqt.RequestError{Code: wire.RequestTimeout, Reason: "the publisher did not answer the fetch in time", RetryInterval: wire.RetryAfter(0)}

// wait calls f, and cancel where that takes too long.
func (b *budget) wait(cancel func(), f func() error) error {
	if b.left <= 0 {
		return errTooSlow
	}
	began := time.Now()
	late := time.AfterFunc(b.left, cancel)
	err := f()
	if !late.Stop() && err != nil {
		err = errTooSlow
	}
	if b.total {
		b.left -= time.Since(began)
	}
	return err
}

// plan is what answers a FETCH.
type plan struct {
	known       bool          // how far the track goes
	start, last moqt.Location // inclusive
	end         moqt.Location // as FETCH_OK says it
	endOfTrack  bool
	order       moqt.GroupOrder
	pieces      []piece // in the response's order
}

// piece is groups of an answer, from first to last: one that is whole in the cache, or some
// that the source may know more of.
type piece struct {
	first, last uint64
	groups      []*group // in the cache, ascending
	elsewhere   bool
}

func (p *plan) allElsewhere() bool {
	return len(p.pieces) == 1 && p.pieces[0].elsewhere && len(p.pieces[0].groups) == 0
}

// limits are the first and the last object asked for of a group.
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
		return p, &moqt.RequestError{Code: wire.RequestInvalidRange, Reason: "nothing was published in the range yet"}
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

// pieces divides the groups of a range into those that are whole here and the others.
// t.mu is held.
func (t *Track) pieces(p *plan, now time.Time) []piece {
	var list []piece
	add := func(x piece) {
		if n := len(list); n > 0 && x.elsewhere && list[n-1].elsewhere {
			list[n-1].last = x.last
			list[n-1].groups = append(list[n-1].groups, x.groups...)
			return
		}
		list = append(list, x)
	}
	next, more := p.start.Group, true // not looked at yet
	missing := func(last uint64) {
		if more && next <= last {
			add(piece{first: next, last: last, elsewhere: true})
		}
	}
	for i, g := range t.groups {
		if g.id < p.start.Group || g.id > p.last.Group {
			continue
		}
		// What is older may have been evicted. A gap between groups is one of the track,
		// unless it was relayed and lost on the way.
		if g.id > next && (i == 0 || t.Relayed) && !t.isAbsent(next, g.id-1) {
			missing(g.id - 1)
		}
		first, last := p.limits(g.id)
		add(piece{first: g.id, last: g.id, groups: []*group{g}, elsewhere: !g.whole(t, first, last, now)})
		next, more = g.id+1, g.id != math.MaxUint64
	}
	if len(list) == 0 || t.Relayed && !t.isAbsent(next, p.last.Group) {
		missing(p.last.Group)
	}
	return merged(list)
}

// merged makes at most maxPieces of a list come from elsewhere.
func merged(list []piece) []piece {
	n, first, last := 0, -1, -1
	for i, x := range list {
		if x.elsewhere {
			if n++; first < 0 {
				first = i
			}
			last = i
		}
	}
	if n <= maxPieces {
		return list
	}
	one := piece{first: list[first].first, last: list[last].last, elsewhere: true}
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
	first  *Response // to the first piece, where it was asked for already
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
		if x.elsewhere && a.source != nil {
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

// cursor is where an answer goes on: at an object of a group, or after the group.
type cursor struct {
	group, object uint64
	after         bool
}

func (c *cursor) pass(group, object uint64) {
	c.group, c.object, c.after = group, object+1, object == math.MaxUint64
}

// ahead reports whether a group is wholly ahead of the cursor, and here whether it is the
// cursor's.
func (c *cursor) ahead(group uint64, order moqt.GroupOrder) (ahead, here bool) {
	if order == wire.Descending {
		return group < c.group, group == c.group && !c.after
	}
	return group > c.group, group == c.group && !c.after
}

// cached writes what is here of a piece from at on, and marks the rest of it as unknown.
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
	if !x.elsewhere || at.group == end && (at.after || at.object > last) {
		return nil
	}
	return a.unknown(end, last)
}

// before is the group next to g on the way from the cursor, false when there is none.
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

// unknown marks everything up to a location as unknown.
func (a *answer) unknown(group, object uint64) error {
	return a.w.WriteObject(wire.FetchObject{Range: wire.RangeUnknown, Group: group, Object: min(object, math.MaxInt64)}, nil)
}

// group writes the objects of a group from first to last that are here.
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

// open asks the source for a piece.
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

// pipe writes a piece as the source has it. Unless done, the rest of the piece from at on
// did not come; an error means that the response cannot go on.
func (a *answer) pipe(ctx context.Context, x piece, at *cursor) (done bool, err error) {
	resp := a.first
	a.first = nil
	if resp == nil {
		if resp, err = a.open(ctx, x); err != nil {
			return false, nil // what did not come is unknown
		}
	}
	defer resp.Objects.Cancel()
	a.w.SetWriteTimeout(SourceStall)
	seen := []uint64{} // groups
	for {
		var o wire.FetchObject
		err := a.fill.wait(resp.Objects.Cancel, func() (err error) {
			if o, err = resp.Objects.Next(); err == nil && o.Range == wire.RangeNone {
				a.buf, err = resp.Objects.ReadPayload(a.buf, maxFetchedObject)
			}
			return err
		})
		if err == io.EOF {
			if a.order != wire.Descending {
				return a.pipedTo(x, resp, seen, at)
			}
			a.t.noteAbsent(x.first, x.last, seen)
			return true, nil
		}
		if err != nil || !a.in(x, o) {
			return false, nil // what did not come is unknown
		}
		payload := a.buf[:0]
		if o.Range == wire.RangeNone {
			payload = a.buf
		}
		if err := a.w.WriteObject(o, payload); err != nil {
			return false, err
		}
		at.pass(o.Group, o.Object)
		if n := len(seen); n == 0 || seen[n-1] != o.Group {
			seen = append(seen, o.Group)
		}
	}
}

// pipedTo is the regular end of a source's response, which may be before that of the piece:
// what comes after is unknown.
func (a *answer) pipedTo(x piece, resp *Response, seen []uint64, at *cursor) (done bool, err error) {
	_, last := a.limits(x.last)
	end := moqt.Location{Group: resp.End.Group, Object: resp.End.Object - 1}
	if resp.End.Object == 0 {
		end.Object = math.MaxUint64
	}
	if a.known && end.Less(moqt.Location{Group: x.last, Object: last}) {
		if at.group < end.Group || at.group == end.Group && at.object <= end.Object {
			at.pass(end.Group, end.Object)
		}
		return false, nil
	}
	a.t.noteAbsent(x.first, x.last, seen)
	return true, nil
}

// in reports whether an entry belongs to a piece.
func (a *answer) in(x piece, o wire.FetchObject) bool {
	if o.Group < x.first || o.Group > x.last {
		return false
	}
	first, last := a.limits(o.Group)
	if o.Range != wire.RangeNone { // may end after what was asked for
		return o.Object >= first
	}
	return o.Object >= first && o.Object <= last
}

// fetched is one object of the answer.
type fetched struct {
	id       uint64
	sg       *subgroup // nil for a datagram
	i        int       // of the object in sg
	datagram *moqt.Datagram
}

// knowledge is what is known of the objects of a group that are not here.
type knowledge struct {
	head  uint64 // those below may exist
	torn  uint64 // those from here on may exist; 2^64-1 = none
	holes bool   // any may
}

// absent reports whether the objects from first to last are known not to exist.
func (k knowledge) absent(first, last uint64) bool {
	return !k.holes && first >= k.head && (last < k.torn || k.torn == math.MaxUint64)
}

// know says what is known of a group. t.mu is held.
func (g *group) know(t *Track, now time.Time) knowledge {
	k := knowledge{head: g.shed, torn: math.MaxUint64}
	if g.torn > 0 {
		k.torn = g.torn - 1
	}
	if t.missed != nil && t.missed.Group == g.id {
		k.head = max(k.head, t.missed.Object+1)
	}
	expired := t.expiry(now)
	for _, sg := range g.subgroups {
		head, torn := sg.know(expired)
		k.head = max(k.head, head)
		if g.index[subgroupKey{sg.id, sg.header.FirstObject, sg.past}] == sg { // else there is a newer one
			k.torn = min(k.torn, torn)
		}
	}
	for i := range g.datagrams {
		if d := &g.datagrams[i]; d.arrived.Before(expired) {
			k.head = max(k.head, d.Object+1)
		}
	}
	return k
}

// know says below and from which object on the subgroup may have more than is here.
func (s *subgroup) know(expired time.Time) (head, torn uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	torn = math.MaxUint64
	if s.state == reset {
		torn = s.afterLocked()
	}
	for i := range s.objects {
		if !s.objects[i].arrived.Before(expired) {
			break
		}
		head = s.objects[i].ID + 1
	}
	return head, torn
}

// expiry is the time before which nothing of the cache may be sent that arrived then
// (MAX_CACHE_DURATION, §12.3). t.mu is held.
func (t *Track) expiry(now time.Time) time.Time {
	if age := t.maxCacheAge(); age >= 0 {
		return now.Add(-age)
	}
	return time.Time{}
}

// whole reports whether all objects of a group from first to last are here that exist, or
// will be. Gaps between datagrams are no matter of it. t.mu is held.
func (g *group) whole(t *Track, first, last uint64, now time.Time) bool {
	return g.know(t, now).absent(first, last)
}

// list lists the objects of a group from first to last, those of normal status, in
// ascending order.
func (t *Track) list(g *group, first, last uint64) (list []fetched, k knowledge, gone bool) {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if g.gone {
		return nil, k, true
	}
	k, expired := g.know(t, now), t.expiry(now)
	k.holes = t.Relayed && len(g.datagrams) > 0 && !g.confirmed(first, last)
	in := func(id uint64) bool { return id >= max(first, g.shed) && id <= last }
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

var errEvictedObject = errors.New("origin: an object was evicted while it was fetched")

// What is known not to exist.

// Confirm notes that the source was asked for the objects first to last of a group, so that
// those of them that are not here do not exist.
func (t *Track) Confirm(id, first, last uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if i, ok := t.find(id); ok {
		if g := t.groups[i]; len(g.asked) < maxConfirmed {
			g.asked = append(g.asked, Span{first, last})
		}
	}
}

const (
	maxConfirmed = 16 // spans of a group
	maxAbsent    = 32 // spans of groups of a track
)

// confirmed reports whether each gap between the datagrams first to last was asked for.
// t.mu is held.
func (g *group) confirmed(first, last uint64) bool {
	for _, gap := range g.gaps(first, last) {
		if !slices.ContainsFunc(g.asked, func(s Span) bool { return s.First <= gap.First && gap.Last <= s.Last }) {
			return false
		}
	}
	return true
}

// noteAbsent notes that of the groups first to last only those in seen exist, which are in
// the response's order.
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
	if next <= last && (!t.hasLargest || last < t.largest.Group) { // else there may be more by now
		add(Span{next, last})
	}
}

// isAbsent reports whether the groups first to last are known not to exist. t.mu is held.
func (t *Track) isAbsent(first, last uint64) bool {
	return slices.ContainsFunc(t.absent, func(s Span) bool { return s.First <= first && last <= s.Last })
}
