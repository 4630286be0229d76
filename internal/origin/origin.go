// Package origin holds tracks that this process can serve: the newest groups of
// each in memory, bounded by bytes and age, passed on to any number of viewers
// while they still arrive and fetched by those who come late. A relay feeds it
// from upstream, the capture server from its encoder, a replay from its file.
//
// A subgroup is kept as the bytes of its stream, with an index of its objects. A
// viewer has no queue of its own: it reads the shared bytes at its own pace on its
// own stream, and what it cannot take while they are kept is reset, so that a
// viewer that reads nothing costs the others nothing, and the bounds of the cache
// are the bounds of what slow viewers hold (draft-ietf-moq-transport-18 §8, §9).
//
// What is under way to one session, of all its tracks, is its Queue.
//
// Locks are taken in the order Memory, Track, viewer; Queue, subgroup, flight.
package origin

import (
	"cmp"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
)

// Limits bound what a track keeps. Zero fields take the defaults.
type Limits struct {
	MaxBytes int64         // of memory for cached groups; 64 MiB
	MaxAge   time.Duration // of cached groups but the newest; 3 s
	Memory   *Memory       // shared with other tracks; nil = none
}

func (l Limits) withDefaults() Limits {
	l.MaxBytes = cmp.Or(l.MaxBytes, 64<<20)
	l.MaxAge = cmp.Or(l.MaxAge, 3*time.Second)
	return l
}

// What the parts of a track cost beside their bytes, so that many small ones are
// bounded like few large ones. Bytes.
const (
	groupCost    = 256
	subgroupCost = 512
	objectCost   = 192
	datagramCost = 256
)

// Stats are a track's counters.
type Stats struct {
	Viewers           int
	CachedBytes       int64 // memory, with what the index costs
	CachedGroups      int
	Objects           uint64 // received
	Bytes             uint64 // received, headers included
	DuplicateSubgroup uint64 // refused: the same subgroup from another publisher
	Evicted           uint64 // subgroups that stopped being kept while they arrived
	SentBytes         uint64 // to all viewers
	SentSubgroups     uint64
	Late              uint64 // subgroups reset because they missed their deadline
	Behind            uint64 // subgroups reset or skipped because a viewer was too far behind
	UnsentDatagrams   uint64
}

// Add adds the counters of o, but not what either holds at the moment.
func (s *Stats) Add(o Stats) {
	s.Objects += o.Objects
	s.Bytes += o.Bytes
	s.DuplicateSubgroup += o.DuplicateSubgroup
	s.Evicted += o.Evicted
	s.SentBytes += o.SentBytes
	s.SentSubgroups += o.SentSubgroups
	s.Late += o.Late
	s.Behind += o.Behind
	s.UnsentDatagrams += o.UnsentDatagrams
}

// Track is one track. Its methods are safe for concurrent use.
type Track struct {
	// NewGroup, where set, is told that a subscriber wants a new group
	// (NEW_GROUP_REQUEST, §10.2.14); the track's property DYNAMIC_GROUPS says that
	// one may. It is not changed once the track is subscribed to.
	NewGroup func(group uint64)

	name   moqt.TrackName
	limits Limits

	mu         sync.Mutex
	props      moqt.Properties
	groups     []*group // ascending
	largest    moqt.Location
	hasLargest bool
	viewers    map[*viewer]struct{}
	ended      *moqt.DoneError
	discarded  bool

	bytes atomic.Int64 // of memory; written under mu

	objects, received, duplicates, evicted, sentBytes, sentSubgroups, late, behind, unsent atomic.Uint64
}

type group struct {
	id        uint64
	began     time.Time
	subgroups []*subgroup
	index     map[subgroupKey]*subgroup
	datagrams []datagram
	sent      map[uint64]struct{} // object IDs of datagrams
	bytes     int64
	gone      bool   // evicted
	shed      uint64 // objects below this ID may be missing
}

// subgroupKey tells a subgroup's streams apart: with and without the beginning,
// live and fetched.
type subgroupKey struct {
	id          uint64
	first, past bool
}

type datagram struct {
	moqt.Datagram
	arrived time.Time
}

// NewTrack returns an empty track with the properties that its subscribers are
// told.
func NewTrack(name moqt.TrackName, props moqt.Properties, limits Limits) *Track {
	t := &Track{name: name, props: props, limits: limits.withDefaults(), viewers: map[*viewer]struct{}{}}
	t.limits.Memory.add(t)
	return t
}

// Name is the track's full name.
func (t *Track) Name() moqt.TrackName { return t.name }

// Properties are the track's.
func (t *Track) Properties() moqt.Properties {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.props
}

// SetProperties replaces the track's properties, for subscribers to come.
func (t *Track) SetProperties(p moqt.Properties) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.props = p
}

// Largest is the largest location that began to arrive.
func (t *Track) Largest() (moqt.Location, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.largest, t.hasLargest
}

// RaiseLargest notes a largest location learned from upstream (§10.2.10).
func (t *Track) RaiseLargest(l moqt.Location) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.raise(l)
}

func (t *Track) raise(l moqt.Location) {
	if !t.hasLargest || t.largest.Less(l) {
		t.largest, t.hasLargest = l, true
	}
}

// Info is what a subscriber is told of the track.
func (t *Track) Info() moqt.TrackInfo {
	return moqt.TrackInfo{Largest: t.Largest, Properties: t.Properties(), NewGroup: t.NewGroup}
}

// Viewers is the number of subscriptions being served.
func (t *Track) Viewers() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.viewers)
}

// Stats returns the counters now.
func (t *Track) Stats() Stats {
	t.mu.Lock()
	s := Stats{Viewers: len(t.viewers), CachedBytes: t.bytes.Load(), CachedGroups: len(t.groups)}
	t.mu.Unlock()
	s.Objects, s.Bytes, s.DuplicateSubgroup = t.objects.Load(), t.received.Load(), t.duplicates.Load()
	s.SentBytes, s.SentSubgroups = t.sentBytes.Load(), t.sentSubgroups.Load()
	s.Late, s.Behind, s.UnsentDatagrams = t.late.Load(), t.behind.Load(), t.unsent.Load()
	s.Evicted = t.evicted.Load()
	return s
}

// Errors of a feed.
var (
	// ErrDuplicate says that a subgroup is being received, or was, already.
	ErrDuplicate = errors.New("origin: the subgroup is already here")
	// ErrEvicted says that a subgroup is not kept: it is older than what the
	// track's limits have room for.
	ErrEvicted = errors.New("origin: the subgroup is older than what is kept")
)

// OpenSubgroup begins a subgroup. Its bytes, those after the stream header, go to
// the returned Feed. A subgroup that was reset may be opened again.
func (t *Track) OpenSubgroup(h wire.SubgroupHeader) (*Feed, error) { return t.open(h, false) }

// Backfill begins a subgroup of the past: kept for fetches, not sent to
// subscriptions.
func (t *Track) Backfill(h wire.SubgroupHeader) (*Feed, error) { return t.open(h, true) }

func (t *Track) open(h wire.SubgroupHeader, past bool) (*Feed, error) {
	defer t.limits.Memory.relieve()
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	g := t.group(h.Group, now)
	sg := &subgroup{t: t, g: g, header: h, past: past, changed: make(chan struct{})}
	if h.Mode != wire.SubgroupIDFirstObject {
		if err := g.enter(sg, h.Subgroup); err != nil {
			t.duplicates.Add(1)
			return nil, err
		}
	}
	g.subgroups = append(g.subgroups, sg)
	sg.charge(subgroupCost, now)
	if g.gone {
		t.evicted.Add(1)
		return nil, ErrEvicted
	}
	if !past {
		for v := range t.viewers {
			v.offer(sg)
		}
	}
	return &Feed{sg: sg, scanner: wire.ObjectScanner{Decoder: wire.ObjectDecoder{HasProperties: h.HasProperties}}}, nil
}

// enter puts sg into the group's index under its ID. t.mu is held.
func (g *group) enter(sg *subgroup, id uint64) error {
	k := subgroupKey{id, sg.header.FirstObject, sg.past}
	if old := g.index[k]; old != nil && !old.wasReset() {
		return ErrDuplicate
	}
	if g.index == nil {
		g.index = map[subgroupKey]*subgroup{}
	}
	g.index[k] = sg
	return nil
}

// group finds or makes a group. t.mu is held.
func (t *Track) group(id uint64, now time.Time) *group {
	i, ok := slices.BinarySearchFunc(t.groups, id, func(g *group, id uint64) int { return cmp.Compare(g.id, id) })
	if ok {
		return t.groups[i]
	}
	g := &group{id: id, began: now}
	t.groups = slices.Insert(t.groups, i, g)
	t.charge(g, groupCost, now)
	t.evictOld(now)
	return g
}

// charge accounts for n bytes of memory of a group, and makes room where that
// exceeds the track's bounds. t.mu is held.
func (t *Track) charge(g *group, n int64, now time.Time) {
	if g.gone || t.discarded {
		return
	}
	g.bytes += n
	t.limits.Memory.use(n)
	if t.bytes.Add(n) > t.limits.MaxBytes {
		t.reduce(t.limits.MaxBytes, now)
	}
}

// evictOld drops the groups that are older than MaxAge, or than the publisher lets
// them be kept, but never the newest. t.mu is held.
func (t *Track) evictOld(now time.Time) {
	maxAge := t.limits.MaxAge
	if ms, ok := t.props.Int(wire.PropertyMaxCacheDuration); ok && ms < uint64(maxAge.Milliseconds()) {
		maxAge = time.Duration(ms) * time.Millisecond
	}
	for len(t.groups) > 1 && now.Sub(t.groups[0].began) > maxAge {
		t.drop()
	}
}

// reduce drops old groups, then the oldest of the newest one, until at most limit
// bytes are used. It goes somewhat further, so as not to have to for each object.
// t.mu is held.
func (t *Track) reduce(limit int64, now time.Time) {
	t.evictOld(now)
	for len(t.groups) > 1 && t.bytes.Load() > limit {
		t.drop()
	}
	if len(t.groups) == 1 && t.bytes.Load() > limit {
		g := t.groups[0]
		before := g.bytes
		g.reduce(limit - limit/8)
		t.limits.Memory.use(g.bytes - before)
		t.bytes.Add(g.bytes - before)
	}
}

// drop evicts the oldest group. t.mu is held.
func (t *Track) drop() {
	g := t.groups[0]
	t.groups[0] = nil
	t.groups = t.groups[1:]
	g.gone = true
	t.limits.Memory.use(-g.bytes)
	t.bytes.Add(-g.bytes)
	for _, sg := range g.subgroups {
		sg.evict()
	}
	g.subgroups, g.index, g.datagrams, g.sent = nil, nil, nil, nil
}

// reduce drops the oldest of a group that is to stay, until it uses at most limit
// bytes: datagrams, whole subgroups, in the end the beginning of one that does not
// end. t.mu is held.
func (g *group) reduce(limit int64) {
	if n := len(g.datagrams); n > 1 && g.bytes > limit {
		for _, d := range g.datagrams[:n/2] {
			g.bytes -= d.cost()
			g.shed = max(g.shed, d.Object+1)
		}
		g.datagrams = slices.Clone(g.datagrams[n/2:])
	}
	g.evict(limit, func(sg *subgroup) bool { return !sg.isOpen() })
	for range g.subgroups {
		if g.bytes <= limit {
			return
		}
		sg := slices.MaxFunc(g.subgroups, func(a, b *subgroup) int { return cmp.Compare(a.cost.Load(), b.cost.Load()) })
		freed, next := sg.trim()
		if freed == 0 {
			break
		}
		g.bytes -= freed
		g.shed = max(g.shed, next)
	}
	g.evict(limit, func(*subgroup) bool { return true })
}

// evict evicts the oldest subgroups of those that may be, but never the last one,
// until the group uses at most limit bytes. t.mu is held.
func (g *group) evict(limit int64, may func(*subgroup) bool) {
	kept := g.subgroups[:0]
	for i, sg := range g.subgroups {
		if g.bytes <= limit || i == len(g.subgroups)-1 || !may(sg) {
			kept = append(kept, sg)
			continue
		}
		id, next, cost := sg.evict()
		g.bytes -= cost
		g.shed = max(g.shed, next)
		if k := (subgroupKey{id, sg.header.FirstObject, sg.past}); g.index[k] == sg {
			delete(g.index, k)
		}
	}
	clear(g.subgroups[len(kept):])
	g.subgroups = kept
}

func (d *datagram) cost() int64 { return int64(len(d.Payload)+len(d.Properties)) + datagramCost }

// SendDatagram publishes an object as a datagram. One that was published already,
// by another publisher, is dropped.
func (t *Track) SendDatagram(dg moqt.Datagram) {
	defer t.limits.Memory.relieve()
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	g := t.group(dg.Group, now)
	if _, again := g.sent[dg.Object]; again {
		t.duplicates.Add(1)
		return
	}
	d := datagram{dg, now}
	if !g.gone {
		if g.sent == nil {
			g.sent = map[uint64]struct{}{}
		}
		g.sent[dg.Object] = struct{}{}
		g.datagrams = append(g.datagrams, d)
		t.charge(g, d.cost(), now)
	}
	l := moqt.Location{Group: dg.Group, Object: dg.Object}
	t.raise(l)
	t.objects.Add(1)
	t.received.Add(uint64(len(dg.Payload)))
	for v := range t.viewers {
		if !v.sink.Passes(l) {
			continue
		}
		if err := v.sink.SendDatagram(dg); err != nil {
			t.unsent.Add(1)
		} else {
			t.sentBytes.Add(uint64(len(dg.Payload)))
		}
	}
}

// WriteObject publishes a group's only object, or one of several in subgroups of
// their own: the way point-cloud frames are sent.
func (t *Track) WriteObject(h wire.SubgroupHeader, o moqt.Object, payload []byte) error {
	f, err := t.OpenSubgroup(h)
	if err != nil {
		return err
	}
	if err := f.WriteObject(o, payload); err != nil {
		f.Reset(wire.StreamInternalError)
		return err
	}
	return f.Close()
}

// End tells all viewers, present and future, that the track is over. What is
// under way to them still arrives, within MaxAge.
func (t *Track) End(code wire.DoneCode, reason string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended != nil {
		return
	}
	t.ended = &moqt.DoneError{Code: code, Reason: reason}
	for v := range t.viewers {
		v.signal()
	}
}

// Restart forgets what was published, as if the track had just been made: its
// publisher came back and counts its groups anew. Subscriptions go on.
func (t *Track) Restart() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.groups) > 0 {
		t.drop()
	}
	t.largest, t.hasLargest = moqt.Location{}, false
}

// Discard frees what is cached; the track keeps nothing from now on.
func (t *Track) Discard() {
	t.limits.Memory.remove(t)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.discarded = true
	for len(t.groups) > 0 {
		t.drop()
	}
}

// OldestGroup is the oldest group in the cache, false when there is none.
func (t *Track) OldestGroup() (uint64, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.groups) == 0 {
		return 0, false
	}
	return t.groups[0].id, true
}
