// Package origin holds the tracks that this process serves: the newest groups of
// each in memory, bounded by bytes and age, forwarded to any number of viewers
// while they still arrive and fetched by late joiners. A relay feeds it from
// upstream, the capture server from its encoder, a replay from its file.
//
// A subgroup is kept as the bytes of its stream, with an index of its objects.
// Viewers have no buffers: each reads the shared bytes at its own pace and on its own
// stream, and is reset when they are evicted first. A viewer that reads nothing
// therefore costs the others nothing, and the bounds of the cache bound what slow
// viewers hold (draft-ietf-moq-transport-18 §8, §9). A Queue holds what is in flight
// to one session, of all its tracks.
//
// Locks are taken in the order Memory, Track, viewer; Queue, subgroup, flight.
package origin

import (
	"cmp"
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
)

// Defaults of Limits.
const (
	DefaultMaxBytes = 64 << 20
	DefaultMaxAge   = 3 * time.Second
)

// Limits bound what a track keeps. Zero fields take the defaults.
type Limits struct {
	MaxBytes int64         // of memory for cached groups
	MaxAge   time.Duration // of cached groups but the newest
	Memory   *Memory       // shared with other tracks; nil = none
}

func (l Limits) withDefaults() Limits {
	l.MaxBytes = cmp.Or(l.MaxBytes, DefaultMaxBytes)
	l.MaxAge = cmp.Or(l.MaxAge, DefaultMaxAge)
	return l
}

// Overhead of the parts of a track, bytes: many small ones are bounded like few large
// ones.
const (
	groupCost    = 256
	subgroupCost = 512
	objectCost   = 192
	datagramCost = 320 // with its ID in the group's map
)

// Stats are a track's counters.
type Stats struct {
	Viewers           int
	CachedBytes       int64 // memory, index included
	CachedGroups      int
	Objects           uint64 // received
	Bytes             uint64 // received, headers included
	DuplicateSubgroup uint64 // refused: the same subgroup from another publisher
	Evicted           uint64 // subgroups evicted while they arrived
	SentBytes         uint64 // to all viewers
	SentSubgroups     uint64
	Late              uint64 // subgroups reset because they missed their deadline
	Behind            uint64 // subgroups dropped because a viewer was too far behind
	UnsentDatagrams   uint64
	RepairedDatagrams uint64 // kept though no subscription brought them
}

// Add adds the counters of o; the gauges stay.
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
	s.RepairedDatagrams += o.RepairedDatagrams
}

// Track is one track. Its methods are safe for concurrent use.
type Track struct {
	// NewGroup, if set, is called when a subscriber requests a new group
	// (NEW_GROUP_REQUEST, §10.2.14); the track's property DYNAMIC_GROUPS says that
	// one may. It is not changed once the track is subscribed to.
	NewGroup func(group uint64)
	// Relayed says that the track comes from elsewhere: what is not here may exist all the
	// same, and is kept no longer than the publisher allows (MAX_CACHE_DURATION, §12.3). It
	// is not changed once the track is in use.
	Relayed bool

	name   moqt.TrackName
	limits Limits

	mu         sync.Mutex
	props      moqt.Properties
	groups     []*group // ascending
	largest    moqt.Location
	hasLargest bool
	before     *moqt.Location // the largest before a restart, until it shows where the track goes on
	final      *moqt.Location // no object is at it or after it, as the publisher said
	missed     *moqt.Location // the group up to here was published before it was subscribed to, and is not here
	absent     []Span         // groups that are known not to exist
	viewers    map[*viewer]struct{}
	ended      *moqt.DoneError
	discarded  bool

	memory atomic.Pointer[Memory] // where bytes count; written under mu
	bytes  atomic.Int64           // of memory; written under mu

	objects, received, duplicates, evicted, sentBytes, sentSubgroups, late, behind, unsent, repaired atomic.Uint64
}

type group struct {
	id        uint64
	began     time.Time
	subgroups []*subgroup
	index     map[subgroupKey]*subgroup
	datagrams []datagram
	sent      map[uint64]uint64 // object IDs of datagrams that are kept, with hashes to know other ones by
	bytes     int64
	gone      bool   // evicted
	shed      uint64 // objects below this ID may be missing
	end       uint64 // one above the last object, as a datagram said; 0 = unknown
	torn      uint64 // one above the first object ID from which on objects may be missing; 0 = none
	asked     []Span // of the gaps between datagrams, those that the source was asked for
}

// subgroupKey distinguishes the streams of a subgroup: with and without its
// beginning, live and fetched.
type subgroupKey struct {
	id          uint64
	first, past bool
}

type datagram struct {
	moqt.Datagram
	arrived time.Time
	past    bool // fetched, not for subscriptions
}

// NewTrack returns an empty track; props are what its subscribers are sent.
func NewTrack(name moqt.TrackName, props moqt.Properties, limits Limits) *Track {
	t := &Track{name: name, props: props, limits: limits.withDefaults(), viewers: map[*viewer]struct{}{}}
	t.memory.Store(limits.Memory)
	limits.Memory.add(t)
	return t
}

// SetLimits replaces what bounds the track, but for the memory that it shares.
func (t *Track) SetLimits(l Limits) {
	l = l.withDefaults()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.limits.MaxBytes, t.limits.MaxAge = l.MaxBytes, l.MaxAge
	t.reduce(l.MaxBytes, time.Now())
}

// Served returns the queues of the sessions that the track is sent to, one for each
// subscription.
func (t *Track) Served() []*Queue {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := make([]*Queue, 0, len(t.viewers))
	for v := range t.viewers {
		list = append(list, v.q)
	}
	return list
}

// Name is the track's full name.
func (t *Track) Name() moqt.TrackName { return t.name }

// Properties are the track's.
func (t *Track) Properties() moqt.Properties {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.props
}

// SetProperties replaces the track's properties for future subscribers.
func (t *Track) SetProperties(p moqt.Properties) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.discarded {
		t.memory.Load().use(int64(cap(p) - cap(t.props)))
	}
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

// Info describes the track to a subscriber.
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
	s.Evicted, s.RepairedDatagrams = t.evicted.Load(), t.repaired.Load()
	return s
}

// Errors of a feed.
var (
	// ErrDuplicate says that a subgroup is being received, or was, already.
	ErrDuplicate = errors.New("origin: the subgroup is already here")
	// ErrEvicted says that a subgroup is older than what the track's limits have
	// room for.
	ErrEvicted = errors.New("origin: the subgroup is older than what is kept")
)

// OpenSubgroup begins a subgroup. Its bytes, those after the stream header, go to
// the returned Feed. A subgroup that was reset may be opened again.
func (t *Track) OpenSubgroup(h wire.SubgroupHeader) (*Feed, error) { return t.open(h, false) }

// Backfill begins a subgroup of the past: kept for fetches, not sent to
// subscriptions.
func (t *Track) Backfill(h wire.SubgroupHeader) (*Feed, error) { return t.open(h, true) }

func (t *Track) open(h wire.SubgroupHeader, past bool) (*Feed, error) {
	defer t.memory.Load().relieve()
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if !past {
		t.resume(h.Group)
	}
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
	return &Feed{sg: sg, scanner: wire.ObjectScanner{Decoder: wire.ObjectDecoder{Group: h.Group, HasProperties: h.HasProperties}}}, nil
}

// enter puts sg into the group's index under its ID. t.mu is held.
func (g *group) enter(sg *subgroup, id uint64) error {
	k := subgroupKey{id, sg.header.FirstObject, sg.past}
	if old := g.index[k]; old != nil && !old.wasReset() {
		if old.header.Priority != sg.header.Priority {
			return malformed("subgroup %d of group %d of priority %d and of %d", id, g.id, old.header.Priority, sg.header.Priority)
		}
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
	i, ok := t.find(id)
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
	t.memory.Load().use(n)
	if t.bytes.Add(n) > t.limits.MaxBytes {
		t.reduce(t.limits.MaxBytes, now)
	}
}

// evictOld drops groups older than MaxAge or the publisher's MAX_CACHE_DURATION, but
// never the newest. t.mu is held.
func (t *Track) evictOld(now time.Time) {
	maxAge := t.limits.MaxAge
	if age, ok := t.maxCacheDuration(); ok {
		maxAge = min(maxAge, age)
	}
	for len(t.groups) > 1 && now.Sub(t.groups[0].began) > maxAge {
		t.drop()
	}
}

// maxCacheAge is the publisher's MAX_CACHE_DURATION for what was relayed, negative for none.
// t.mu is held.
func (t *Track) maxCacheAge() time.Duration {
	if age, ok := t.maxCacheDuration(); ok && t.Relayed {
		return age
	}
	return -1
}

// maxCacheDuration is the publisher's MAX_CACHE_DURATION, false for none. t.mu is held.
func (t *Track) maxCacheDuration() (time.Duration, bool) {
	ms, ok := t.props.Int(wire.PropertyMaxCacheDuration)
	return time.Duration(min(ms, math.MaxInt32)) * time.Millisecond, ok
}

// cacheAge is how long what was relayed may be sent after it arrived, negative for any time.
func (t *Track) cacheAge() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.maxCacheAge()
}

// reduce drops old groups, then the oldest of the newest one, until at most limit
// bytes are used, and somewhat less, so that it does not run for each object.
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
		t.memory.Load().use(g.bytes - before)
		t.bytes.Add(g.bytes - before)
	}
}

// drop evicts the oldest group. t.mu is held.
func (t *Track) drop() {
	g := t.groups[0]
	t.groups[0] = nil
	t.groups = t.groups[1:]
	g.gone = true
	t.memory.Load().use(-g.bytes)
	t.bytes.Add(-g.bytes)
	for _, sg := range g.subgroups {
		sg.evict()
	}
	g.subgroups, g.index, g.datagrams, g.sent = nil, nil, nil, nil
}

// reduce drops the oldest parts of a group until it uses at most limit bytes:
// datagrams, then whole subgroups, then the beginning of one still open. t.mu is held.
func (g *group) reduce(limit int64) {
	if n := len(g.datagrams); n > 1 && g.bytes > limit {
		for _, d := range g.datagrams[:n/2] {
			g.bytes -= d.cost()
			g.shed = max(g.shed, d.Object+1)
			delete(g.sent, d.Object)
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

// evict evicts the oldest subgroups that may allows, but never the last one, until
// the group uses at most limit bytes. t.mu is held.
func (g *group) evict(limit int64, may func(*subgroup) bool) {
	kept := g.subgroups[:0]
	for i, sg := range g.subgroups {
		if g.bytes <= limit || i == len(g.subgroups)-1 || !may(sg) {
			kept = append(kept, sg)
			continue
		}
		if sg.isOpen() || sg.wasReset() {
			g.tear(sg.after())
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

// tear notes that objects from an ID on may be missing. t.mu is held.
func (g *group) tear(from uint64) {
	if g.torn == 0 || from < g.torn-1 {
		g.torn = min(from, math.MaxUint64-1) + 1
	}
}

// Interrupted notes that the source went away: more may have been published than came of the
// group that is under way.
func (t *Track) Interrupted() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if i, ok := t.find(t.largest.Group); ok && t.hasLargest {
		t.groups[i].tear(t.largest.Object + 1)
	}
}

// Missed notes that a group was published up to a location before it was subscribed to, or
// with nil that this has been fetched since.
func (t *Track) Missed(upTo *moqt.Location) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.missed = upTo
}

func (d *datagram) cost() int64 { return int64(len(d.Payload)+len(d.Properties)) + datagramCost }

// SendDatagram publishes an object as a datagram. A duplicate, from another
// publisher, is dropped, and so is what ReceiveDatagram refuses.
func (t *Track) SendDatagram(dg moqt.Datagram) { _ = t.ReceiveDatagram(dg) }

// ReceiveDatagram is SendDatagram for what comes from elsewhere. It returns an error that
// wraps wire.ErrMalformedTrack for an object that is another one than came before under its
// ID, or that comes after the end of the track.
func (t *Track) ReceiveDatagram(dg moqt.Datagram) error {
	defer t.memory.Load().relieve()
	t.mu.Lock()
	defer t.mu.Unlock()
	l := moqt.Location{Group: dg.Group, Object: dg.Object}
	if err := t.follows(l, dg.Status); err != nil {
		return err
	}
	if i, ok := t.find(dg.Group); ok && t.groups[i].holder(dg.Object, nil) != nil {
		return malformed("object {%d, %d} came in a subgroup and as a datagram", dg.Group, dg.Object)
	}
	t.resume(dg.Group)
	if !t.keep(dg, false) {
		t.duplicates.Add(1)
		return t.same(dg)
	}
	t.objects.Add(1)
	t.received.Add(uint64(len(dg.Payload)))
	for v := range t.viewers {
		if v.sink.Passes(l) {
			v.sendDatagram(dg)
		}
	}
	return nil
}

// follows checks an object against the end of the track, and notes that end (§2.4.2).
// t.mu is held.
func (t *Track) follows(l moqt.Location, status wire.ObjectStatus) error {
	end := status == wire.StatusEndOfTrack
	switch {
	case t.final != nil && !l.Less(*t.final) && (!end || l != *t.final):
		return malformed("object {%d, %d} after the end of the track", l.Group, l.Object)
	case end && t.hasLargest && l.Less(t.largest):
		return malformed("the track ends at {%d, %d}, before {%d, %d}", l.Group, l.Object, t.largest.Group, t.largest.Object)
	case end:
		t.final = &l
	}
	return nil
}

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", wire.ErrMalformedTrack, fmt.Sprintf(format, args...))
}

var hashSeed = maphash.MakeSeed()

// hash tells a datagram from another one of the same ID.
func hash(dg *moqt.Datagram) uint64 {
	return maphash.Bytes(hashSeed, dg.Payload) ^ uint64(dg.Priority)<<8 ^ uint64(dg.Status)
}

// same checks a datagram whose ID came before (§9.1). t.mu is held.
func (t *Track) same(dg moqt.Datagram) error {
	i, ok := t.find(dg.Group)
	if !ok {
		return nil
	}
	if was, kept := t.groups[i].sent[dg.Object]; kept && was != hash(&dg) {
		return malformed("object {%d, %d} came twice with different content", dg.Group, dg.Object)
	}
	return nil
}

// BackfillDatagram keeps an object of the past for fetches; it is not sent to
// subscriptions.
func (t *Track) BackfillDatagram(dg moqt.Datagram) {
	defer t.memory.Load().relieve()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.keep(dg, true) {
		t.repaired.Add(1)
	}
}

// keep puts a datagram into its group; false if it is there already. t.mu is held.
func (t *Track) keep(dg moqt.Datagram, past bool) bool {
	now := time.Now()
	g := t.group(dg.Group, now)
	if _, again := g.sent[dg.Object]; again || dg.Object < g.shed {
		return false
	}
	t.raise(moqt.Location{Group: dg.Group, Object: dg.Object})
	if g.gone {
		return true
	}
	d := datagram{dg, now, past}
	if g.sent == nil {
		g.sent = map[uint64]uint64{}
	}
	g.sent[dg.Object] = hash(&dg)
	g.datagrams = append(g.datagrams, d)
	if dg.EndOfGroup {
		g.end = dg.Object + 1
	}
	t.charge(g, d.cost(), now)
	return true
}

// Span is the object IDs from First to Last.
type Span struct{ First, Last uint64 }

// Missing lists what of the objects first to last of a group is not here though it may
// exist: gaps between objects that came as datagrams, which may be lost, and what comes
// after them unless the group has ended. It is nil for groups of which none did.
func (t *Track) Missing(id, first, last uint64) (list []Span) {
	t.mu.Lock()
	defer t.mu.Unlock()
	i, ok := t.find(id)
	if !ok || len(t.groups[i].datagrams) == 0 {
		return nil
	}
	return t.groups[i].gaps(first, last)
}

// find returns the index of a group, or where it belongs. t.mu is held.
func (t *Track) find(id uint64) (i int, ok bool) {
	return slices.BinarySearchFunc(t.groups, id, func(g *group, id uint64) int { return cmp.Compare(g.id, id) })
}

// gaps lists what of the objects first to last did not come as datagrams. t.mu is held.
func (g *group) gaps(first, last uint64) (list []Span) {
	if first = max(first, g.shed); g.end > 0 {
		last = min(last, g.end-1)
	}
	here := slices.DeleteFunc(slices.Collect(maps.Keys(g.sent)), func(id uint64) bool { return id < first || id > last })
	slices.Sort(here)
	for _, id := range here {
		if id > first {
			list = append(list, Span{first, id - 1})
		}
		if first = id + 1; first == 0 {
			return list
		}
	}
	if first <= last {
		list = append(list, Span{first, last})
	}
	return list
}

// WriteObject publishes a group's only object, or one of several in subgroups of
// their own, as point-cloud frames are sent.
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

// End ends the track for all viewers, present and future. What is
// in flight still arrives, within MaxAge.
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

// farAhead is more groups than anybody publishes: four years of 30 a second.
const farAhead = 1 << 32

// Restart forgets what was published: the publisher is back, or another one is there, and
// may number its groups anew. next is where it goes on, nil where that shows with its first
// object. Subscriptions go on, but for those whose filter does not let that pass: they wait
// for groups that were announced and may never come, so they end. All end where the groups
// before were so far ahead that none of them can be what anybody waits for.
func (t *Track) Restart(next *moqt.Location) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.groups) > 0 {
		t.drop()
	}
	if t.hasLargest {
		t.before = &moqt.Location{Group: t.largest.Group}
	}
	t.largest, t.hasLargest = moqt.Location{}, false
	t.final, t.missed, t.absent = nil, nil, nil
	if next != nil {
		t.resume(next.Group)
	}
}

// resume ends those who wait for what will not come now that the track goes on with a group
// after a restart. t.mu is held.
func (t *Track) resume(group uint64) {
	if t.before == nil {
		return
	}
	far := t.before.Group > group && t.before.Group-group > farAhead
	t.before = nil
	for v := range t.viewers {
		if far || v.sink.Forwarding() && !v.sink.Passes(moqt.Location{Group: group, Object: math.MaxUint64}) {
			v.strand()
		}
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
