package origin

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
)

// Chunk sizes of a subgroup's bytes. The first chunk is small, for small objects. From the second
// on, sizes double, so that large objects need few writes.
const (
	firstChunk  = 4 << 10
	secondChunk = 32 << 10
	maxChunk    = 128 << 10
)

// object locates an object in its subgroup's bytes.
type object struct {
	wire.Object
	arrived time.Time // of the last byte of the header
	arrival uint64    // from Track.arrive
	offset  int64     // of the header
	payload int64     // of the payload
}

func (o *object) end() int64 { return o.payload + int64(o.PayloadLength) }

// cost returns the object's memory beyond its bytes: the index entry and a copy of its properties.
func (o *object) cost() int64 { return objectCost + int64(cap(o.Properties)) }

// expired reports whether the object is older than age and must not be sent from the cache; a
// negative age means no limit.
func (o *object) expired(age time.Duration) bool { return age >= 0 && time.Since(o.arrived) > age }

type subgroupState uint8

const (
	open subgroupState = iota
	finished
	reset
	evicted // no longer cached
)

// subgroup holds the bytes of one subgroup stream after its header, up to the last well-formed byte
// received.
type subgroup struct {
	t          *Track
	g          *group
	header     wire.SubgroupHeader
	backfilled bool         // not for subscriptions
	cost       atomic.Int64 // memory in bytes; written under t.mu
	gone       bool         // evicted; guarded by t.mu

	mu         sync.Mutex
	id         uint64   // subgroup ID, known once the first object has arrived
	chunks     [][]byte // all full except the last
	starts     []int64  // offset of each chunk
	size       int64
	objects    []object
	trimmed    int    // number of objects evicted before objects[0]
	next       uint64 // one above the last object's ID
	state      subgroupState
	code       wire.StreamCode // if reset
	ended      time.Time       // when state changed from open
	changed    chan struct{}   // closed and replaced at each change of the above
	waiting    bool            // a caller holds changed
	deliveries []*delivery
}

// ID returns the subgroup ID, valid once the first object has arrived.
func (s *subgroup) ID() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.id
}

func (s *subgroup) wasReset() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state == reset
}

func (s *subgroup) isOpen() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state == open
}

// hasAfter reports whether the subgroup has, or may still get, objects with a higher arrival number.
func (s *subgroup) hasAfter(arrival uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.objects)
	return s.state == open || n > 0 && s.objects[n-1].arrival > arrival
}

// missingFrom returns the first object ID that is incomplete or has not arrived.
func (s *subgroup) missingFrom() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.missingFromLocked()
}

// missingFromLocked is missingFrom with s.mu held.
func (s *subgroup) missingFromLocked() uint64 {
	if n := len(s.objects); n > 0 && s.objects[n-1].end() > s.size {
		return s.objects[n-1].ID
	}
	return s.next
}

// wake wakes the waiters. s.mu is held.
func (s *subgroup) wake() {
	if s.waiting {
		s.waiting = false
		close(s.changed)
		s.changed = make(chan struct{})
	}
}

// wait returns a channel that is closed at the next change. s.mu is held.
func (s *subgroup) wait() <-chan struct{} {
	s.waiting = true
	return s.changed
}

// first returns the properties of the subgroup's first object, or nil if it is not cached.
func (s *subgroup) first() moqt.Properties {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.trimmed > 0 || len(s.objects) == 0 {
		return nil
	}
	return s.objects[0].Properties
}

// object returns object i, or a channel to wait on if it has not arrived yet. over is set if it
// will never arrive. If objects from i on were evicted, it returns the first one left and its
// index.
func (s *subgroup) object(i int) (o object, at int, changed <-chan struct{}, over bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i = max(i, s.trimmed)
	switch {
	case s.state == evicted:
		return o, i, nil, true
	case i-s.trimmed < len(s.objects):
		return s.objects[i-s.trimmed], i, nil, false
	case s.state != open:
		return o, i, nil, true
	}
	return o, i, s.wait(), false
}

// piece returns the bytes a delivery sends next: at most maxPiece contiguous bytes from offset at,
// or none if more have yet to arrive. The error is io.EOF at the end of the subgroup.
//
// With timed set, the bytes end with the current object o or the last object that arrived within
// deadlineSlack of it. *i, an object index at or before the current one, is updated to the current
// one.
func (s *subgroup) piece(at int64, i *int, timed bool) (b []byte, o *object, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.state == evicted || s.size > at && at < s.starts[0]:
		return nil, nil, ErrEvicted
	case at < s.size:
	case s.state == finished:
		return nil, nil, io.EOF
	case s.state == reset:
		return nil, nil, errReset
	default:
		return nil, nil, nil
	}
	limit := int64(maxPiece)
	if timed {
		k := max(*i-s.trimmed, 0)
		for k < len(s.objects) && at >= s.objects[k].end() {
			k++
		}
		*i = k + s.trimmed
		if k < len(s.objects) {
			last := k
			for last+1 < len(s.objects) && s.objects[last+1].arrived.Sub(s.objects[k].arrived) < deadlineSlack {
				last++
			}
			o, limit = &s.objects[k], min(limit, s.objects[last].end()-at)
		}
	}
	return s.from(at, limit), o, nil
}

// errReset means that the publisher reset the subgroup.
var errReset = errors.New("origin: subgroup reset by the publisher")

// from returns at most limit contiguous bytes from offset at, which must be cached. s.mu is held.
func (s *subgroup) from(at, limit int64) []byte {
	// Most readers are near the end.
	i := len(s.starts) - 1
	for s.starts[i] > at {
		i--
	}
	b := s.chunks[i][at-s.starts[i]:]
	if i == len(s.chunks)-1 {
		b = b[:s.size-at]
	}
	return b[:min(int64(len(b)), limit)]
}

// bytes returns at most limit contiguous bytes from offset at, or a channel to wait on. If both are
// nil, the subgroup has ended and state says how.
func (s *subgroup) bytes(at, limit int64) (b []byte, changed <-chan struct{}, state subgroupState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at >= s.size || s.state == evicted {
		if s.state == open {
			changed = s.wait()
		}
		return nil, changed, s.state
	}
	if at < s.starts[0] {
		return nil, nil, evicted
	}
	return s.from(at, limit), nil, s.state
}

// unsent returns the arrival time of the object at offset at, or false if nothing from there on has
// arrived.
func (s *subgroup) unsent(at int64) (arrived time.Time, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at >= s.size || len(s.objects) == 0 {
		return arrived, false
	}
	i, found := slices.BinarySearchFunc(
		s.objects,
		at,
		func(o object, at int64) int { return cmp.Compare(o.offset, at) },
	)
	if !found && i > 0 {
		i-- // at lies inside the previous object
	}
	return s.objects[i].arrived, true
}

// add registers f, which is notified when the subgroup grows, ends or is evicted. It returns false
// if the subgroup is already evicted.
func (s *subgroup) add(f *delivery) bool {
	s.mu.Lock()
	if s.state == evicted {
		s.mu.Unlock()
		return false
	}
	f.index = len(s.deliveries)
	s.deliveries = append(s.deliveries, f)
	ended := s.ended
	s.mu.Unlock()
	if !ended.IsZero() {
		f.subgroupEnded(ended)
	}
	return true
}

func (s *subgroup) remove(f *delivery) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.index >= len(s.deliveries) || s.deliveries[f.index] != f {
		return // evicted
	}
	last := len(s.deliveries) - 1
	s.deliveries[f.index] = s.deliveries[last]
	s.deliveries[f.index].index = f.index
	s.deliveries[last] = nil
	s.deliveries = s.deliveries[:last]
}

// evict frees the subgroup and drops its unfinished deliveries. It returns the subgroup's ID, one
// above its last object ID, and the bytes freed. s.t.mu is held.
func (s *subgroup) evict() (id, next uint64, cost int64) {
	s.gone = true
	s.mu.Lock()
	id, next = s.id, s.next
	deliveries := s.deliveries
	s.deliveries, s.chunks, s.starts, s.objects = nil, nil, nil, nil
	s.state = evicted
	s.wake()
	s.mu.Unlock()
	for _, f := range deliveries {
		if f.drop() {
			s.t.dropped.Add(1)
		}
	}
	return id, next, s.cost.Swap(0)
}

// trim frees the older half of the subgroup's chunks. It returns the bytes freed and one above the
// last object ID removed. s.t.mu is held.
func (s *subgroup) trim() (freed int64, next uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.chunks) / 2
	for _, c := range s.chunks[:n] {
		freed += int64(cap(c))
	}
	if n == 0 {
		return 0, 0
	}
	s.chunks = append([][]byte(nil), s.chunks[n:]...)
	s.starts = append([]int64(nil), s.starts[n:]...)
	gone := 0
	for gone < len(s.objects) && s.objects[gone].offset < s.starts[0] {
		next = s.objects[gone].ID + 1
		freed += s.objects[gone].cost()
		gone++
	}
	s.objects = append([]object(nil), s.objects[gone:]...)
	s.trimmed += gone
	s.cost.Add(-freed)
	return freed, next
}

// Feed appends to one subgroup. It is not safe for concurrent use.
type Feed struct {
	sg      *subgroup
	scanner wire.ObjectScanner
	enc     *wire.ObjectEncoder
	tail    []byte      // last chunk, from the first unpublished byte on
	used    int         // bytes of tail received
	checked int         // bytes of tail published
	objects int         // published
	notify  []*delivery // buffer reused by publish

	identified bool // the subgroup ID is known
}

// Space returns a buffer for the next bytes of the stream. Commit publishes them.
func (f *Feed) Space() []byte {
	if f.used == cap(f.tail) {
		size := firstChunk
		if f.tail != nil {
			// Allocate no more than the current object still needs, with secondChunk as the
			// minimum.
			size = int(min(uint64(max(secondChunk, min(2*cap(f.tail), maxChunk))), max(secondChunk, f.scanner.Left())))
		}
		// Move the unpublished rest, part of an object header, to the new chunk.
		rest := f.tail[f.checked:f.used]
		next := make([]byte, max(size, 2*len(rest)))
		f.used, f.checked = copy(next, rest), 0
		f.tail = next
		f.sg.append(next)
		_ = f.charge(int64(len(next)), nil, time.Now()) // cannot fail without objects
	}
	return f.tail[f.used:cap(f.tail)]
}

// append adds a chunk whose bytes are published later.
func (s *subgroup) append(chunk []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state == evicted {
		return
	}
	if n := len(s.chunks); n > 0 { // cut to the published bytes
		s.chunks[n-1] = s.chunks[n-1][:s.size-s.starts[n-1]]
	}
	s.chunks = append(s.chunks, chunk)
	s.starts = append(s.starts, s.size)
}

// charge accounts for n bytes and the index entries of objects about to be published, and numbers
// the objects.
func (f *Feed) charge(n int64, added []object, now time.Time) error {
	sg := f.sg
	for i := range added {
		n += added[i].cost()
	}
	defer sg.t.memory.Load().reclaim()
	sg.t.mu.Lock()
	defer sg.t.mu.Unlock()
	for i := range added {
		l := moqt.Location{Group: sg.header.Group, Object: added[i].ID}
		if err := sg.t.checkEnd(l, added[i].Status); err != nil {
			return err
		}
		if _, exists := sg.g.hashes[l.Object]; exists {
			return malformed("object {%d, %d} arrived as a datagram and in a subgroup", l.Group, l.Object)
		}
		if o := sg.g.holder(l.Object, sg); o != nil {
			return malformed("object {%d, %d} arrived in subgroups %d and %d", l.Group, l.Object, o.ID(), sg.id)
		}
		added[i].arrival = sg.t.arrive(l)
	}
	sg.charge(n, now)
	return nil
}

// maxScan bounds the subgroups of a group that are searched for a duplicate object.
const maxScan = 16

// holder returns a subgroup that holds an object, or nil. If the argument but is set, that subgroup
// and others with its ID are skipped. t.mu is held.
func (g *group) holder(object uint64, but *subgroup) *subgroup {
	for _, sg := range g.subgroups[:min(len(g.subgroups), maxScan)] {
		if sg != but && sg.holds(object) && (but == nil || sg.ID() != but.id) {
			return sg
		}
	}
	return nil
}

// holds reports whether the subgroup has an object.
func (s *subgroup) holds(id uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := slices.BinarySearchFunc(s.objects, id, func(x object, id uint64) int { return cmp.Compare(x.ID, id) })
	return ok
}

// charge accounts for n bytes of memory. s.t.mu is held.
func (s *subgroup) charge(n int64, now time.Time) {
	if !s.gone {
		s.cost.Add(n)
		s.t.charge(s.g, n, now)
	}
}

// Commit publishes the first n bytes of Space, up to the first malformed byte. On an error, which
// may be ErrEvicted or ErrDuplicate, the caller must reset the feed.
func (f *Feed) Commit(n int) error {
	now := time.Now()
	f.used += n
	before := f.checked
	var added []object
	base := f.sg.size - int64(f.checked) // only this goroutine writes size
	var failed error
	for f.checked < f.used {
		n, o, header, err := f.scanner.Next(f.tail[f.checked:f.used])
		if err != nil {
			failed = err
			break
		}
		if n == 0 {
			break
		}
		if header {
			at := base + int64(f.checked)
			if o.PayloadLength > math.MaxInt64-uint64(at)-uint64(n) {
				failed = fmt.Errorf("%w: object length %d overflows", wire.ErrMalformedTrack, o.PayloadLength)
				break
			}
			added = append(added, object{Object: o, arrived: now, offset: at, payload: at + int64(n)})
		}
		f.checked += n
	}
	if err := f.publish(int64(f.checked-before), added, now); err != nil {
		if errors.Is(err, ErrDuplicate) {
			payload := f.tail[added[0].payload-base : f.used]
			return cmp.Or(f.sg.t.CheckDuplicate(f.sg.header.Group, added[0].ID, added[0].Object, payload), err)
		}
		return err
	}
	return failed
}

func (f *Feed) publish(n int64, added []object, now time.Time) error {
	if n == 0 {
		return nil
	}
	sg := f.sg
	if len(added) > 0 {
		if !f.identified {
			if err := f.identify(added[0].ID); err != nil {
				return err
			}
			f.identified = true
		}
		f.objects += len(added)
		sg.t.objects.Add(uint64(len(added)))
		if err := f.charge(0, added, now); err != nil {
			return err
		}
	}
	sg.t.received.Add(uint64(n))
	if !sg.grow(n, added, &f.notify) {
		return ErrEvicted
	}
	for i, d := range f.notify {
		d.more()
		f.notify[i] = nil
	}
	return nil
}

// grow publishes n bytes, in which the objects in added start. It stores the deliveries to notify
// in list and returns false if the subgroup was evicted.
func (s *subgroup) grow(n int64, added []object, list *[]*delivery) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.size += n
	if len(added) > 0 {
		s.next = added[len(added)-1].ID + 1
	}
	if s.state == evicted {
		return false
	}
	s.objects = append(s.objects, added...)
	s.wake()
	*list = append((*list)[:0], s.deliveries...)
	return true
}

// CheckDuplicate compares an object with the object of the same ID in a cached subgroup, because a
// publisher may repeat an object but not change it (§9.1). payload is a prefix of the payload; only
// that much is compared. An error wraps wire.ErrMalformedTrack.
func (t *Track) CheckDuplicate(group, id uint64, o wire.Object, payload []byte) error {
	t.mu.Lock()
	i, ok := t.find(group)
	var list []*subgroup
	if ok {
		for k, sg := range t.groups[i].index {
			if k.id == id {
				list = append(list, sg)
			}
		}
	}
	t.mu.Unlock()
	payload = payload[:min(uint64(len(payload)), o.PayloadLength)]
	for _, sg := range list {
		if sg.differs(o, payload) {
			return malformed("object {%d, %d} arrived twice with different content", group, o.ID)
		}
	}
	return nil
}

// differs reports whether the subgroup has an object of the same ID with different content.
func (s *subgroup) differs(o wire.Object, payload []byte) bool {
	s.mu.Lock()
	i, ok := slices.BinarySearchFunc(s.objects, o.ID, func(x object, id uint64) int { return cmp.Compare(x.ID, id) })
	if !ok {
		s.mu.Unlock()
		return false
	}
	was := s.objects[i]
	s.mu.Unlock()
	if was.PayloadLength != o.PayloadLength || was.Status != o.Status {
		return true
	}
	for at := was.payload; len(payload) > 0; {
		b, _, _ := s.bytes(at, int64(len(payload)))
		if len(b) == 0 {
			return false // not arrived yet, or evicted
		}
		if !bytes.Equal(b, payload[:len(b)]) {
			return true
		}
		at, payload = at+int64(len(b)), payload[len(b):]
	}
	return false
}

// identify sets the subgroup ID, which the first object may determine.
func (f *Feed) identify(first uint64) error {
	sg := f.sg
	id := sg.header.Subgroup
	if sg.header.Mode == wire.SubgroupIDFirstObject {
		id = first
		sg.t.mu.Lock()
		err := sg.g.enter(sg, id)
		sg.t.mu.Unlock()
		if err != nil {
			sg.t.duplicates.Add(1)
			return err
		}
	}
	sg.mu.Lock()
	sg.id = id
	sg.mu.Unlock()
	return nil
}

// WriteObject appends one object. It keeps payload, which must not change afterwards.
func (f *Feed) WriteObject(o moqt.Object, payload []byte) error {
	if f.enc == nil {
		f.enc = &wire.ObjectEncoder{HasProperties: f.sg.header.HasProperties}
	}
	if h := f.sg.header; f.sg.t.Seal != nil && o.Status == wire.StatusNormal {
		var err error
		l := moqt.Location{Group: h.Group, Object: o.ID}
		if o.Properties, payload, err = f.sg.t.Seal(l, h.Priority, o.Properties, payload); err != nil {
			return err
		}
	}
	o.PayloadLength = uint64(len(payload))
	header, err := f.enc.Append(nil, o)
	if err != nil {
		return err
	}
	sg, now := f.sg, time.Now()
	sg.mu.Lock()
	at := sg.size
	if sg.state != evicted {
		sg.chunks = append(sg.chunks, header)
		sg.starts = append(sg.starts, at)
		if len(payload) > 0 {
			sg.chunks = append(sg.chunks, payload)
			sg.starts = append(sg.starts, at+int64(len(header)))
		}
	}
	sg.mu.Unlock()
	_ = f.charge(int64(cap(header)+cap(payload)), nil, now) // cannot fail without objects
	added := []object{{Object: o, arrived: now, offset: at, payload: at + int64(len(header))}}
	return f.publish(int64(len(header)+len(payload)), added, now)
}

// Objects returns the number of objects that have started to arrive.
func (f *Feed) Objects() int { return f.objects }

// Close ends the subgroup. If the last object is incomplete, it resets the subgroup and returns an
// error.
func (f *Feed) Close() error {
	if !f.scanner.Boundary() || f.checked != f.used {
		f.Reset(wire.StreamInternalError)
		return errors.New("origin: subgroup ends inside an object")
	}
	f.finish(finished, 0)
	return nil
}

// Reset ends the subgroup early. Viewers' streams are reset with the same code.
func (f *Feed) Reset(code wire.StreamCode) { f.finish(reset, code) }

func (f *Feed) finish(state subgroupState, code wire.StreamCode) {
	sg, now := f.sg, time.Now()
	freed, deliveries := sg.end(state, code, now)
	for _, f := range deliveries {
		f.subgroupEnded(now)
	}
	sg.t.mu.Lock()
	defer sg.t.mu.Unlock()
	sg.charge(-freed, now)
}

// end records the end of the feed and shrinks a mostly empty last chunk. It returns the bytes freed
// and the subgroup's deliveries.
func (s *subgroup) end(state subgroupState, code wire.StreamCode, now time.Time) (freed int64, deliveries []*delivery) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state != open {
		return 0, nil
	}
	s.state, s.code, s.ended = state, code, now
	if n := len(s.chunks); n > 0 && state == finished {
		last := s.chunks[n-1][:s.size-s.starts[n-1]]
		if cap(last) > 2*len(last) {
			freed = int64(cap(last) - len(last))
			last = append(make([]byte, 0, len(last)), last...)
		}
		s.chunks[n-1] = last
	}
	s.wake()
	return freed, slices.Clone(s.deliveries)
}
