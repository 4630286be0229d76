package diskcache

import (
	"cmp"
	"context"
	"errors"
	"io"
	"math"
	"slices"
	"sync"
	"time"

	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/origin"
)

// maxGaps limits the requests to the publisher for the groups of one fetch that are not on the disk.
const maxGaps = 4

// Source returns a source of groups on the disk, and of the others from upstream, which may be nil. Groups that
// arrived more than age ago are not used; a negative age means no limit. props are the track's properties. It
// returns upstream if t is nil.
func (t *Track) Source(upstream origin.Source, age time.Duration, props moqt.Properties) origin.Source {
	if t == nil {
		return upstream
	}
	return func(
		ctx context.Context, start, end moqt.Location, order moqt.GroupOrder, timeout time.Duration,
	) (*origin.Response, error) {
		list := t.lookup(start.Group, end.Group, age)
		if len(list) == 0 && upstream != nil {
			return upstream(ctx, start, end, order, timeout)
		}
		select {
		case t.s.readers <- struct{}{}:
		default:
			for _, f := range list {
				t.s.finished(f.g)
			}
			if upstream != nil {
				return upstream(ctx, start, end, order, timeout)
			}
			return nil, &moqt.RequestError{
				Code: wire.RequestExcessiveLoad, Reason: "too many concurrent fetches of old groups",
				RetryInterval: wire.RetryAfter(time.Second),
			}
		}
		r := &response{s: t.s, upstream: upstream, order: order, timeout: timeout, start: start, end: end, list: list}
		r.ctx, r.stop = context.WithCancel(context.WithoutCancel(ctx)) // ctx ends with this function
		r.plan()
		return &origin.Response{Objects: r, End: end, Properties: props}, nil
	}
}

// found is a group on the disk, whose segment is open until finished is called.
type found struct {
	g *segment
	entry
}

// lookup returns the groups from first to last on the disk, ascending.
func (t *Track) lookup(first, last uint64, age time.Duration) (list []found) {
	s := t.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tracks[t.name] != t {
		return nil
	}
	limit := s.cfg.Age
	if age >= 0 {
		limit = min(limit, age)
	}
	oldest := time.Now().Add(-limit)
	for _, g := range t.segments {
		i, _ := g.find(first)
		for ; i < len(g.entries) && g.entries[i].group <= last; i++ {
			if e := g.entries[i]; !e.arrived.Before(oldest) {
				list = append(list, found{g, e})
				g.users++
			}
		}
	}
	slices.SortFunc(list, func(a, b found) int { return cmp.Compare(a.group, b.group) })
	return list
}

// finished ends one use of a segment.
func (s *Store) finished(g *segment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g.users--
	s.release(g, false)
}

// damagedGroup removes a group that is not intact from the index, unless its segment has been removed meanwhile.
func (s *Store) damagedGroup(f found, err error) {
	s.damaged.Add(1)
	s.log.Warn("cache on disk: dropped a group", "file", f.g.path, "err", err)
	s.mu.Lock()
	defer s.mu.Unlock()
	if i, ok := f.g.find(f.group); ok && !f.g.deleted {
		f.g.entries = slices.Delete(f.g.entries, i, i+1)
		s.groups--
	}
}

// run is a part of a response: a group on the disk, or the groups first to last that are not there.
type run struct {
	on          *found
	first, last uint64
}

// response reads groups from the disk and the gaps between them from upstream. It implements
// origin.ResponseReader.
type response struct {
	s          *Store
	upstream   origin.Source
	order      moqt.GroupOrder
	timeout    time.Duration
	start, end moqt.Location // as in a FETCH
	list       []found
	ctx        context.Context
	stop       func()
	once       sync.Once

	runs    []run
	objects []object // of the current group
	group   uint64
	current *object
	gaps    int
	piped   origin.ResponseReader // of the current gap

	mu     sync.Mutex
	active origin.ResponseReader // the same, for Cancel
	ended  bool

	loading sync.Mutex // held while reading the disk
}

// plan divides the range into runs, in the order of the response.
func (r *response) plan() {
	next, more := r.start.Group, true
	for i := range r.list {
		f := &r.list[i]
		if f.group > next {
			r.runs = append(r.runs, run{first: next, last: f.group - 1})
		}
		r.runs = append(r.runs, run{on: f, first: f.group, last: f.group})
		next, more = f.group+1, f.group != math.MaxUint64
	}
	if more && next <= r.end.Group {
		r.runs = append(r.runs, run{first: next, last: r.end.Group})
	}
	if r.order == wire.Descending {
		slices.Reverse(r.runs)
	}
}

// limits returns the first and last object requested of a group.
func (r *response) limits(group uint64) (first, last uint64) {
	last = math.MaxUint64
	if group == r.start.Group {
		first = r.start.Object
	}
	if group == r.end.Group && r.end.Object > 0 {
		last = r.end.Object - 1
	}
	return first, last
}

// Next implements origin.ResponseReader.
func (r *response) Next() (wire.FetchObject, error) {
	for {
		switch {
		case r.ctx.Err() != nil:
			return wire.FetchObject{}, context.Cause(r.ctx)
		case len(r.objects) > 0:
			r.current, r.objects = &r.objects[0], r.objects[1:]
			o := r.current
			return wire.FetchObject{
				Group: r.group, Object: o.id, Subgroup: o.subgroup, Datagram: o.datagram, Priority: o.priority,
				Properties: o.properties, PayloadLength: uint64(len(o.payload)),
			}, nil
		case r.piped != nil:
			o, err := r.piped.Next()
			if err == nil {
				return o, nil
			}
			r.closePipe()
			if err != io.EOF {
				return wire.FetchObject{}, err // the rest of the response is unknown
			}
		case len(r.runs) == 0:
			return wire.FetchObject{}, io.EOF
		default:
			next := r.runs[0]
			r.runs = r.runs[1:]
			if next.on != nil && r.load(next.on) {
				continue
			}
			if r.fetch(next) {
				continue
			}
			return r.unknown(next), nil
		}
	}
}

// load reads a group from the disk. It returns false if the group is not intact.
func (r *response) load(f *found) bool {
	r.loading.Lock()
	defer r.loading.Unlock()
	if r.ctx.Err() != nil {
		return true // Next returns the error
	}
	list, err := readGroup(f.g.file, f.entry) // open until Cancel
	if err != nil {
		r.s.damagedGroup(*f, err)
		return false
	}
	r.s.read.Add(uint64(f.size))
	first, last := r.limits(f.group)
	r.group = f.group
	r.objects = slices.DeleteFunc(list, func(o object) bool { return o.id < first || o.id > last })
	return true
}

// fetch requests the groups of a gap from upstream. It returns false if that fails.
func (r *response) fetch(gap run) bool {
	if r.upstream == nil || r.gaps == maxGaps {
		return false
	}
	r.gaps++
	start, end := moqt.Location{Group: gap.first}, moqt.Location{Group: gap.last}
	start.Object, _ = r.limits(gap.first)
	if _, last := r.limits(gap.last); last != math.MaxUint64 {
		end.Object = last + 1
	}
	resp, err := r.upstream(r.ctx, start, end, r.order, r.timeout)
	if err != nil {
		return false
	}
	r.mu.Lock()
	r.active = resp.Objects
	ended := r.ended
	r.mu.Unlock()
	if r.piped = resp.Objects; ended {
		r.closePipe()
	}
	return true
}

func (r *response) closePipe() {
	r.piped.Cancel()
	r.piped = nil
	r.mu.Lock()
	r.active = nil
	r.mu.Unlock()
}

// unknown marks the groups of a run as unknown.
func (r *response) unknown(gap run) wire.FetchObject {
	group := gap.last
	if r.order == wire.Descending {
		group = gap.first
	}
	_, last := r.limits(group)
	return wire.FetchObject{Range: wire.RangeUnknown, Group: group, Object: min(last, math.MaxInt64)}
}

// ReadPayload implements origin.ResponseReader.
func (r *response) ReadPayload(buf []byte, limit int) ([]byte, error) {
	if r.piped != nil {
		return r.piped.ReadPayload(buf, limit)
	}
	if r.current == nil || len(r.current.payload) > limit {
		return nil, errors.New("diskcache: no object, or a large one")
	}
	return append(buf[:0], r.current.payload...), nil
}

// Cancel implements origin.ResponseReader.
func (r *response) Cancel() {
	r.once.Do(func() {
		r.stop()
		r.mu.Lock()
		r.ended = true
		active := r.active
		r.mu.Unlock()
		if active != nil {
			active.Cancel()
		}
		r.loading.Lock()
		defer r.loading.Unlock()
		for _, f := range r.list {
			r.s.finished(f.g)
		}
		<-r.s.readers
	})
}
