package parts

import (
	"slices"
	"time"

	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
)

// Bounds of an Assembler's memory.
const (
	maxFrames = 16       // groups being put together
	maxHoles  = 256      // gaps in the object IDs of one group
	maxStarts = 255      // payloads of one group
	history   = 64       // finished groups remembered
	partCost  = 128      // memory overhead per part in bytes
	room      = 32 << 20 // bytes of memory, unless two payloads need more
)

// Loss detection.
const (
	// reordering is the number of later parts after which a part counts as lost (RFC 9002 §6.1.1).
	reordering = 3
	// quiet is the minimum time without parts of a group before its missing end is requested. A
	// quarter of the round-trip time applies if it is longer. If more than nearby parts are
	// missing, the end has probably not been sent yet. It is then requested when another group
	// begins, or after that time multiplied by longer.
	quiet  = 8 * time.Millisecond
	longer = 10
	// Requests for parts closer than this are merged, because duplicates cost less than another
	// message.
	nearby = 8
	// The first maxRequests of a group request exactly the missing parts. Later requests ask for
	// everything from the first missing part to the last.
	maxRequests = 16
)

// defaultTimeout applies to tracks without a delivery timeout.
const defaultTimeout = 2 * time.Second

// Limits bound an Assembler.
type Limits struct {
	// MaxPayload is the maximum payload in bytes.
	MaxPayload int
	// Timeout is the lifetime of an incomplete group, from its first part; 0 means 2 s.
	Timeout time.Duration
}

// room returns the memory limit in bytes, overhead included. It is maxFrames payloads or the
// constant room, whichever is less, but at least two payloads.
func (l Limits) room() int { return max(2*l.MaxPayload, min(maxFrames*l.MaxPayload, room)) }

// Stats are an Assembler's counters.
type Stats struct {
	Frames    uint64 `json:"frames"`     // complete groups
	Repaired  uint64 `json:"repaired"`   // groups completed by requested parts
	Abandoned uint64 `json:"abandoned"`  // dropped groups
	PartsLost uint64 `json:"parts_lost"` // parts missing when their group was dropped
	Requests  uint64 `json:"requests"`   // for missing parts
	Requested uint64 `json:"requested"`  // requested parts, including present ones
	Late      uint64 `json:"late"`       // parts of finished groups
	Duplicate uint64 `json:"duplicate"`  // parts already present
	Refused   uint64 `json:"refused"`    // parts that contradict others or exceed a bound
}

// Add adds the counters of o.
func (s *Stats) Add(o Stats) {
	s.Frames += o.Frames
	s.Repaired += o.Repaired
	s.Abandoned += o.Abandoned
	s.PartsLost += o.PartsLost
	s.Requests += o.Requests
	s.Requested += o.Requested
	s.Late += o.Late
	s.Duplicate += o.Duplicate
	s.Refused += o.Refused
}

// Since returns the difference from earlier counters.
func (s Stats) Since(earlier Stats) Stats {
	return Stats{
		Frames:    s.Frames - earlier.Frames,
		Repaired:  s.Repaired - earlier.Repaired,
		Abandoned: s.Abandoned - earlier.Abandoned,
		PartsLost: s.PartsLost - earlier.PartsLost,
		Requests:  s.Requests - earlier.Requests,
		Requested: s.Requested - earlier.Requested,
		Late:      s.Late - earlier.Late,
		Duplicate: s.Duplicate - earlier.Duplicate,
		Refused:   s.Refused - earlier.Refused,
	}
}

// Payload is a complete payload.
type Payload struct {
	Group    uint64
	Object   uint64 // ID of its first part
	Priority uint8
	Last     bool // the group is known to end with this payload
	Bytes    []byte
	Arrived  time.Time // arrival of the group's first part
}

// Request asks for objects First to Last of a group.
type Request struct{ Group, First, Last uint64 }

// Assembler reassembles payloads from parts. Use it from one goroutine at a time. It reads no clock
// and keeps the payloads passed to it.
type Assembler struct {
	limits Limits
	frames []*frame  // oldest first
	past   []uint64  // finished groups, oldest first
	begun  time.Time // start of the newest group
	bytes  int
	stats  Stats
}

// NewAssembler returns an empty Assembler.
func NewAssembler(l Limits) *Assembler {
	if l.Timeout <= 0 {
		l.Timeout = defaultTimeout
	}
	return &Assembler{limits: l}
}

// frame is an incomplete group.
type frame struct {
	group    uint64
	began    time.Time
	newest   time.Time // arrival of the last part that was not fetched
	parts    map[uint64][]byte
	next     uint64  // highest ID known to exist, plus one
	reached  uint64  // highest ID received unfetched, plus one
	holes    []hole  // below next, ascending
	starts   []start // ascending
	end      uint64  // ID of the last object plus one; 0 = unknown
	requests int
	seen     bool // a part has arrived
	fetched  bool // a fetched part was used
	bytes    int
}

// hole is a range of missing IDs.
type hole struct {
	first, last uint64
	asked       bool
}

// start is the first part of a payload.
type start struct {
	first, last uint64 // IDs of the payload's parts
	length      int
	size        int // size in bytes of each part except the last
	priority    uint8
	done        bool
}

// Add adds a part and returns the payloads that it completes. fetched marks the answer to a
// request.
func (a *Assembler) Add(d *moqt.Datagram, fetched bool, now time.Time) []Payload {
	if d.Status != wire.StatusNormal {
		return nil
	}
	if slices.Contains(a.past, d.Group) {
		a.stats.Late++
		return nil
	}
	f := a.frame(d.Group)
	if d.Object >= maxObjects || len(d.Payload) > a.limits.MaxPayload || f != nil && f.end > 0 && d.Object >= f.end {
		a.stats.Refused++
		return nil
	}
	if f == nil {
		f = a.open(d.Group, now)
	}
	if !fetched {
		f.newest = now
		f.reached = max(f.reached, d.Object+1)
	}
	if !f.fill(d.Object) {
		a.stats.Duplicate++
		return nil
	}
	f.seen = true
	f.parts[d.Object] = d.Payload
	f.bytes += len(d.Payload) + partCost
	a.bytes += len(d.Payload) + partCost
	f.fetched = f.fetched || fetched
	if d.EndOfGroup {
		if f.end > 0 || f.next > d.Object+1 {
			a.stats.Refused++ // an object beyond this end exists
		} else {
			f.end = d.Object + 1
		}
	}
	if length, ok := d.Properties.Int(LengthProperty); ok && !f.begin(d, length, a.limits.MaxPayload) {
		a.stats.Refused++
	}
	whole := a.collect(f, d.Object)
	if f.whole() {
		a.stats.Frames++
		if f.fetched && f.requests > 0 {
			a.stats.Repaired++
		}
		a.forget(f)
	} else if len(f.holes) > maxHoles {
		a.abandon(f)
	}
	for a.bytes > a.limits.room() && len(a.frames) > 0 {
		a.abandon(a.frames[0])
	}
	return whole
}

func (a *Assembler) frame(group uint64) *frame {
	for _, f := range a.frames {
		if f.group == group {
			return f
		}
	}
	return nil
}

// fill marks an object as received. It returns false if it already was.
func (f *frame) fill(id uint64) bool {
	if id >= f.next {
		f.expect(id)
		f.next = id + 1
		return true
	}
	i, found := slices.BinarySearchFunc(f.holes, id, func(h hole, id uint64) int {
		switch {
		case h.last < id:
			return -1
		case h.first > id:
			return 1
		}
		return 0
	})
	if !found {
		return false
	}
	h := f.holes[i]
	switch {
	case h.first == h.last:
		f.holes = slices.Delete(f.holes, i, i+1)
	case id == h.first:
		f.holes[i].first++
	case id == h.last:
		f.holes[i].last--
	default:
		f.holes[i].last = id - 1
		f.holes = slices.Insert(f.holes, i+1, hole{id + 1, h.last, h.asked})
	}
	return true
}

// expect adds a hole from next up to, but excluding, end.
func (f *frame) expect(end uint64) {
	if end > f.next {
		f.holes = append(f.holes, hole{first: f.next, last: end - 1})
		f.next = end
	}
}

// begin records that part d begins a payload of length bytes. It returns false if that is invalid.
func (f *frame) begin(d *moqt.Datagram, length uint64, most int) bool {
	size := uint64(len(d.Payload))
	if length > uint64(most) || size > length || size == 0 && length > 0 || len(f.starts) == maxStarts {
		return false
	}
	last := d.Object
	if length > size {
		last += (length - 1) / size
	}
	if last >= maxObjects || f.end > 0 && last >= f.end {
		return false
	}
	i, _ := slices.BinarySearchFunc(f.starts, d.Object, func(s start, id uint64) int { return int(s.first) - int(id) })
	if i > 0 && f.starts[i-1].last >= d.Object || i < len(f.starts) && f.starts[i].first <= last {
		return false // inside another payload
	}
	f.starts = slices.Insert(
		f.starts, i, start{first: d.Object, last: last, length: int(length), size: int(size), priority: d.Priority},
	)
	return true
}

// missing reports whether an ID from first to last is missing.
func (f *frame) missing(first, last uint64) bool {
	if last >= f.next {
		return true
	}
	i, _ := slices.BinarySearchFunc(f.holes, first, func(h hole, id uint64) int { return int(h.last) - int(id) })
	return i < len(f.holes) && f.holes[i].first <= last
}

// collect returns the payload completed by part id, if any.
func (a *Assembler) collect(f *frame, id uint64) (whole []Payload) {
	for i := range f.starts {
		s := &f.starts[i]
		if s.done || id < s.first || id > s.last || f.missing(s.first, s.last) {
			continue
		}
		s.done = true
		b, ok := make([]byte, 0, s.length), true
		for id := s.first; id <= s.last; id++ {
			p := f.parts[id]
			ok = ok && (len(p) == s.size || id == s.last) && len(b)+len(p) <= s.length
			if ok {
				b = append(b, p...)
			}
			delete(f.parts, id)
			f.bytes -= len(p) + partCost
			a.bytes -= len(p) + partCost
		}
		if !ok || len(b) != s.length {
			a.stats.Refused += s.last - s.first + 1
			continue
		}
		whole = append(whole, Payload{
			Group: f.group, Object: s.first, Priority: s.priority, Last: s.last+1 == f.end, Bytes: b, Arrived: f.began,
		})
	}
	return whole
}

// whole reports whether the group is complete.
func (f *frame) whole() bool { return f.end > 0 && f.next >= f.end && len(f.holes) == 0 && f.ready() }

// ready reports whether the group has payloads and all known payloads are complete.
func (f *frame) ready() bool {
	return len(f.starts) > 0 && !slices.ContainsFunc(f.starts, func(s start) bool { return !s.done })
}

// abandon drops a group.
func (a *Assembler) abandon(f *frame) {
	if !f.seen {
		a.forget(f) // expected, never arrived
		return
	}
	if f.lost() == 0 && f.ready() { // complete except for the end of the group
		a.stats.Frames++
		if f.fetched && f.requests > 0 {
			a.stats.Repaired++
		}
	} else {
		a.stats.Abandoned++
		a.stats.PartsLost += f.lost()
	}
	a.forget(f)
}

// lost returns the number of parts known to be missing.
func (f *frame) lost() (n uint64) {
	for _, h := range f.holes {
		n += h.last - h.first + 1
	}
	if e := f.expected(); e > f.next {
		n += e - f.next
	}
	return n
}

// expected returns the highest ID known to exist, plus one.
func (f *frame) expected() uint64 {
	e := f.end
	if n := len(f.starts); n > 0 {
		e = max(e, f.starts[n-1].last+1)
	}
	return e
}

// forget frees a group and ignores its later parts.
func (a *Assembler) forget(f *frame) {
	a.bytes -= f.bytes
	a.frames = slices.DeleteFunc(a.frames, func(o *frame) bool { return o == f })
	if len(a.past) == history {
		a.past = slices.Delete(a.past, 0, 1)
	}
	a.past = append(a.past, f.group)
}

// Due drops expired groups and returns at most limit requests to send now. Each part is requested
// once, and only if an answer can arrive in time.
func (a *Assembler) Due(now time.Time, rtt time.Duration, limit int) (list []Request) {
	for len(a.frames) > 0 && now.Sub(a.frames[0].began) >= a.limits.Timeout {
		a.abandon(a.frames[0])
	}
	for i := 0; i < len(a.frames); i++ {
		f := a.frames[i]
		if now.Add(rtt).Sub(f.began) >= a.limits.Timeout {
			continue
		}
		still := now.Sub(f.newest) >= gapTimeout(rtt)
		overtaken := a.begun.After(f.newest)
		if still && (overtaken || !now.Before(f.endDue(rtt))) {
			f.expect(f.expected())
		}
		if still && overtaken && len(f.holes) == 0 && f.ready() {
			a.abandon(f) // complete except for the end of the group
			i--
			continue
		}
		if len(list) < limit {
			list = a.ask(f, still || overtaken, limit, list)
		}
	}
	return list
}

// gapTimeout returns the time without parts of a group after which missing parts are requested.
func gapTimeout(rtt time.Duration) time.Duration { return max(quiet, rtt/4) }

// endDue returns the time to request a group's missing end if no other group begins.
func (f *frame) endDue(rtt time.Duration) time.Time {
	if f.expected() > f.next+nearby {
		return f.newest.Add(longer * gapTimeout(rtt))
	}
	return f.newest.Add(gapTimeout(rtt))
}

// ask appends requests for a group's missing parts; over means that no more parts will arrive
// unless requested. The last request within limit covers everything still missing. A further
// request would have to wait for an answer, which a rate-limited relay may send only after the
// group has expired.
func (a *Assembler) ask(f *frame, over bool, limit int, list []Request) []Request {
	var open *Request
	for i := range f.holes {
		h := &f.holes[i]
		if h.asked || !over && h.last+reordering >= f.reached {
			continue
		}
		switch {
		case open != nil && (h.first-open.Last <= nearby || f.requests > maxRequests || len(list) == limit):
			open.Last = h.last
		case len(list) == limit:
			continue
		default:
			list = append(list, Request{f.group, h.first, h.last})
			open = &list[len(list)-1]
			f.requests++
			a.stats.Requests++
		}
		h.asked = true
	}
	for _, r := range list {
		if r.Group == f.group {
			a.stats.Requested += r.Last - r.First + 1
		}
	}
	return list
}

// Deadline returns the time at which an incomplete group is dropped, or zero if the group is not
// held.
func (a *Assembler) Deadline(group uint64) time.Time {
	if f := a.frame(group); f != nil {
		return f.began.Add(a.limits.Timeout)
	}
	return time.Time{}
}

// Next returns the time at which to call Due if no part arrives before. It returns false if nothing
// is held.
func (a *Assembler) Next(rtt time.Duration) (at time.Time, ok bool) {
	for i, f := range a.frames {
		deadline := f.began.Add(a.limits.Timeout)
		if i == 0 {
			at = deadline
		}
		due := f.newest.Add(gapTimeout(rtt))
		if len(f.holes) == 0 {
			due = f.endDue(rtt)
		}
		if f.incomplete() && due.Before(at) && due.Add(rtt).Before(deadline) {
			at = due
		}
	}
	return at, len(a.frames) > 0
}

// Expect declares that the objects of a group up to last are being fetched, so they are not
// requested.
func (a *Assembler) Expect(group, last uint64, now time.Time) {
	if last >= maxObjects || a.frame(group) != nil || slices.Contains(a.past, group) {
		return
	}
	f := a.open(group, now)
	f.holes, f.next = []hole{{0, last, true}}, last+1
}

// open begins a group.
func (a *Assembler) open(group uint64, now time.Time) *frame {
	if len(a.frames) == maxFrames {
		a.abandon(a.frames[0])
	}
	f := &frame{group: group, began: now, newest: now, parts: map[uint64][]byte{}}
	a.frames, a.begun = append(a.frames, f), now
	return f
}

// incomplete reports whether to request parts once the group is quiet.
func (f *frame) incomplete() bool {
	return f.expected() > f.next || slices.ContainsFunc(f.holes, func(h hole) bool { return !h.asked })
}

// Stats returns the counters.
func (a *Assembler) Stats() Stats { return a.stats }

// Close drops all incomplete groups.
func (a *Assembler) Close() {
	for len(a.frames) > 0 {
		a.abandon(a.frames[0])
	}
}
