package origin

import (
	"errors"
	"sync"
	"time"

	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
)

// Chunk sizes of a subgroup's bytes: a first one that does not waste memory on
// small objects, then larger ones.
const (
	firstChunk = 4 << 10
	chunkSize  = 32 << 10
)

// object is one object's place in its subgroup's bytes.
type object struct {
	wire.Object
	arrived time.Time // first byte
	offset  int64     // of its header
	payload int64     // of its payload
}

func (o *object) end() int64 { return o.payload + int64(o.PayloadLength) }

type subgroupState uint8

const (
	open subgroupState = iota
	finished
	reset
)

// subgroup is the bytes of one subgroup stream after its header, as far as they
// arrived and were found well-formed.
type subgroup struct {
	t      *Track
	g      *group
	header wire.SubgroupHeader
	past   bool // fetched, not for subscriptions

	mu      sync.Mutex
	chunks  [][]byte // each full but the last
	starts  []int64  // offset of each chunk
	size    int64
	objects []object
	state   subgroupState
	code    wire.StreamCode // with reset
	changed chan struct{}   // closed and replaced when any of the above changes
	waiting bool            // somebody took changed
}

func newSubgroup(t *Track, g *group, h wire.SubgroupHeader) *subgroup {
	return &subgroup{t: t, g: g, header: h, changed: make(chan struct{})}
}

// same reports whether a stream with header h carries this subgroup from its
// beginning, as far as can be told before its first object.
func (s *subgroup) same(h wire.SubgroupHeader) bool {
	if h.Mode == wire.SubgroupIDFirstObject || s.header.Mode == wire.SubgroupIDFirstObject {
		return false
	}
	return s.header.Subgroup == h.Subgroup && s.header.FirstObject == h.FirstObject
}

func (s *subgroup) wasReset() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state == reset
}

// reaches reports whether the subgroup has, or may get, objects from since on.
func (s *subgroup) reaches(since time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.objects)
	return s.state == open || n > 0 && !s.objects[n-1].arrived.Before(since)
}

// wake tells those who wait. s.mu is held.
func (s *subgroup) wake() {
	if s.waiting {
		s.waiting = false
		close(s.changed)
		s.changed = make(chan struct{})
	}
}

// wait returns the channel of the next change. s.mu is held.
func (s *subgroup) wait() <-chan struct{} {
	s.waiting = true
	return s.changed
}

// object returns the i-th object, or the channel to wait on when it is not here
// yet; over says that it will never be.
func (s *subgroup) object(i int) (o object, ok bool, changed <-chan struct{}, over bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i < len(s.objects) {
		return s.objects[i], true, nil, false
	}
	if s.state != open {
		return o, false, nil, true
	}
	return o, false, s.wait(), false
}

// bytes returns what is here from offset at, in one piece of at most limit bytes,
// or the channel to wait on. With neither the subgroup is over.
func (s *subgroup) bytes(at, limit int64) (b []byte, changed <-chan struct{}, state subgroupState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at >= s.size {
		if s.state == open {
			changed = s.wait()
		}
		return nil, changed, s.state
	}
	// Readers are near the end more often than not.
	i := len(s.starts) - 1
	for s.starts[i] > at {
		i--
	}
	b = s.chunks[i][at-s.starts[i]:]
	if i == len(s.chunks)-1 {
		b = b[:s.size-at]
	}
	return b[:min(int64(len(b)), limit)], nil, s.state
}

// Feed takes the bytes of one subgroup. It is for one goroutine.
type Feed struct {
	sg      *subgroup
	scanner wire.ObjectScanner
	enc     *wire.ObjectEncoder
	tail    []byte // the last chunk, beyond what is published
	used    int    // bytes of tail received
	checked int    // bytes of tail published
}

// Space returns room for the next bytes of the stream. Commit publishes them.
func (f *Feed) Space() []byte {
	if f.used == cap(f.tail) {
		size := chunkSize
		if f.tail == nil {
			size = firstChunk
		}
		// What is not published yet, part of an object's header, moves along.
		rest := f.tail[f.checked:f.used]
		next := make([]byte, max(size, 2*len(rest)))
		f.used, f.checked = copy(next, rest), 0
		f.tail = next
		f.sg.mu.Lock()
		if n := len(f.sg.chunks); n > 0 { // trim to what was published
			f.sg.chunks[n-1] = f.sg.chunks[n-1][:f.sg.size-f.sg.starts[n-1]]
		}
		f.sg.chunks = append(f.sg.chunks, next)
		f.sg.starts = append(f.sg.starts, f.sg.size)
		f.sg.mu.Unlock()
	}
	return f.tail[f.used:cap(f.tail)]
}

// Commit says that n more bytes were put into Space. It publishes the well-formed
// part and fails at the first byte that is not: the caller then resets the feed.
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
			added = append(added, object{Object: o, arrived: now, offset: at, payload: at + int64(n)})
		}
		f.checked += n
	}
	f.publish(int64(f.checked-before), added, now)
	return failed
}

func (f *Feed) publish(n int64, added []object, now time.Time) {
	if n == 0 {
		return
	}
	sg := f.sg
	if len(added) > 0 {
		last := added[len(added)-1]
		sg.t.mu.Lock()
		sg.t.raise(moqt.Location{Group: sg.header.Group, Object: last.ID})
		sg.t.mu.Unlock()
		sg.t.objects.Add(uint64(len(added)))
	}
	sg.t.received.Add(uint64(n))
	sg.mu.Lock()
	sg.size += n
	sg.objects = append(sg.objects, added...)
	sg.wake()
	sg.mu.Unlock()

	sg.t.mu.Lock()
	sg.g.bytes += n
	sg.t.bytes += n
	if sg.t.bytes > sg.t.limits.MaxBytes {
		sg.t.evict(now)
	}
	sg.t.mu.Unlock()
}

// WriteObject appends one object of our own. The payload is not copied and must
// not change afterwards.
func (f *Feed) WriteObject(o moqt.Object, payload []byte) error {
	if f.enc == nil {
		f.enc = &wire.ObjectEncoder{HasProperties: f.sg.header.HasProperties}
	}
	o.PayloadLength = uint64(len(payload))
	header, err := f.enc.Append(nil, o)
	if err != nil {
		return err
	}
	sg, now := f.sg, time.Now()
	sg.mu.Lock()
	at := sg.size
	sg.chunks = append(sg.chunks, header)
	sg.starts = append(sg.starts, at)
	if len(payload) > 0 {
		sg.chunks = append(sg.chunks, payload)
		sg.starts = append(sg.starts, at+int64(len(header)))
	}
	sg.mu.Unlock()
	added := []object{{Object: o, arrived: now, offset: at, payload: at + int64(len(header))}}
	f.publish(int64(len(header)+len(payload)), added, now)
	return nil
}

// Close ends the subgroup: it has no more objects. Ending it inside an object is
// an error, and resets it.
func (f *Feed) Close() error {
	if !f.scanner.Boundary() || f.checked != f.used {
		f.Reset(wire.StreamInternalError)
		return errors.New("origin: subgroup ends inside an object")
	}
	f.finish(finished, 0)
	return nil
}

// Reset ends the subgroup early; viewers' streams are reset with the same code.
func (f *Feed) Reset(code wire.StreamCode) { f.finish(reset, code) }

func (f *Feed) finish(state subgroupState, code wire.StreamCode) {
	sg := f.sg
	sg.mu.Lock()
	defer sg.mu.Unlock()
	if sg.state != open {
		return
	}
	sg.state, sg.code = state, code
	sg.wake()
}
