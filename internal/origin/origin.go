// Package origin serves tracks. It caches the newest groups of each track, bounded in bytes and
// age, forwards objects to viewers while they arrive and answers fetches of late joiners. A relay
// feeds it from upstream, the capture server from its encoder, a replay from its file.
//
// A subgroup is stored as the bytes of its stream, with an index of its objects. Viewers share
// these bytes: each reads at its own pace and has its stream reset if the cache evicts the bytes
// first. A stalled viewer thus costs the others nothing, and the cache limits bound the memory that
// slow viewers hold (draft-ietf-moq-transport-18 §8, §9). A Queue holds the subgroups in flight to
// one session, across tracks.
//
// Lock order: Memory, Track, viewer; Queue, subgroup, delivery.
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

// Limits bound a track's cache. Zero fields mean the defaults.
type Limits struct {
	MaxBytes int64         // memory of cached groups
	MaxAge   time.Duration // maximum age of cached groups, except the newest
	Memory   *Memory       // shared with other tracks; nil = no shared limit
}

func (l Limits) withDefaults() Limits {
	l.MaxBytes = cmp.Or(l.MaxBytes, DefaultMaxBytes)
	l.MaxAge = cmp.Or(l.MaxAge, DefaultMaxAge)
	return l
}

// Bookkeeping memory per group, subgroup, object and datagram, in bytes. Counting it bounds many
// small objects as tightly as a few large ones.
const (
	groupCost    = 256
	subgroupCost = 512
	objectCost   = 192
	datagramCost = 320 // includes the entry in group.hashes
)

// Stats holds a track's counters.
type Stats struct {
	Viewers           int
	CachedBytes       int64 // memory, including the index
	CachedGroups      int
	Objects           uint64 // received
	Bytes             uint64 // received, including headers
	DuplicateSubgroup uint64 // rejected: another publisher already sent the subgroup
	Evicted           uint64 // subgroups evicted while arriving
	SentBytes         uint64 // to all viewers
	SentSubgroups     uint64
	Late              uint64 // subgroups reset at their deadline
	Behind            uint64 // subgroups dropped for viewers that fell behind
	UnsentDatagrams   uint64
	RepairedDatagrams uint64 // backfilled because no subscription delivered them
}

// Add adds o's counters, but not its gauges.
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

// Track is a cached track. It is safe for concurrent use.
type Track struct {
	// NewGroup, if set, is called when a subscriber requests a new group (NEW_GROUP_REQUEST,
	// §10.2.14). The track property DYNAMIC_GROUPS must permit this. Set it before the first
	// subscription.
	NewGroup func(group uint64)
	// Relayed marks a track received from upstream. Objects missing here may exist upstream, and
	// MAX_CACHE_DURATION limits the cache (§12.3). Set it before using the track.
	Relayed bool
	// Seal, if set, encrypts the objects of WriteObject and SendDatagram. Their properties and payload
	// are replaced by those it returns. Set it before the first object.
	Seal func(
		l moqt.Location, priority uint8, properties moqt.Properties, payload []byte,
	) (moqt.Properties, []byte, error)
	// Evicted, if set, receives each complete group that leaves the cache, except the newest. It must neither block
	// nor use the track. Set it before using the track.
	Evicted func(Group)

	name   moqt.TrackName
	limits Limits

	mu            sync.Mutex
	props         moqt.Properties
	groups        []*group // ascending
	largest       moqt.Location
	hasLargest    bool
	beforeRestart *moqt.Location // largest location before a restart; nil once the new numbering is known
	final         *moqt.Location // end of the track as published; no later objects exist
	missed        *moqt.Location // the group was published up to here before the subscription and is not cached
	absent        []Span         // groups known not to exist
	learned       *moqt.Location // from RaiseLargest
	arrivals      uint64         // arrival number of the last object
	restarted     uint64         // arrival number of the last Restart
	viewers       map[*Viewer]struct{}
	ended         *moqt.DoneError
	discarded     bool

	memory atomic.Pointer[Memory] // accounts for bytes; written under mu
	bytes  atomic.Int64           // memory used; written under mu

	objects, received, duplicates, evicted, sentBytes, sentSubgroups, late, dropped, unsent, repaired atomic.Uint64
}

type group struct {
	id           uint64
	started      time.Time
	subgroups    []*subgroup
	index        map[subgroupKey]*subgroup
	datagrams    []datagram
	hashes       map[uint64]uint64 // of cached datagrams by object ID, to detect different content
	bytes        int64
	gone         bool   // evicted
	evictedBelow uint64 // objects below this ID may have been evicted
	end          uint64 // one above the last object, from its end-of-group flag; 0 = unknown
	missingFrom  uint64 // one above the first object ID that may be missing; 0 = none
	requested    []Span // object ranges that upstream was asked to fill
}

// subgroupKey distinguishes streams of one subgroup by whether they start at its first object and
// whether they were fetched.
type subgroupKey struct {
	id                uint64
	first, backfilled bool
}

type datagram struct {
	moqt.Datagram
	arrived    time.Time
	arrival    uint64 // from Track.arrive
	backfilled bool   // not for subscriptions
}

// NewTrack returns an empty track. Subscribers receive props.
func NewTrack(name moqt.TrackName, props moqt.Properties, limits Limits) *Track {
	t := &Track{name: name, props: props, limits: limits.withDefaults(), viewers: map[*Viewer]struct{}{}}
	t.memory.Store(limits.Memory)
	limits.Memory.add(t)
	return t
}

// SetLimits replaces the track's limits, except for the shared Memory.
func (t *Track) SetLimits(l Limits) {
	l = l.withDefaults()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.limits.MaxBytes, t.limits.MaxAge = l.MaxBytes, l.MaxAge
	t.reduce(l.MaxBytes, time.Now())
}

// Served returns the queue of each subscription's session.
func (t *Track) Served() []*Queue {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := make([]*Queue, 0, len(t.viewers))
	for v := range t.viewers {
		list = append(list, v.q)
	}
	return list
}

// Name returns the full track name.
func (t *Track) Name() moqt.TrackName { return t.name }

// Properties returns the track properties.
func (t *Track) Properties() moqt.Properties {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.props
}

// SetProperties replaces the track properties for future subscribers.
func (t *Track) SetProperties(p moqt.Properties) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.discarded {
		t.memory.Load().use(int64(cap(p) - cap(t.props)))
	}
	t.props = p
}

// Largest returns the largest location that has started to arrive or was learned from upstream.
func (t *Track) Largest() (moqt.Location, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.largest, t.hasLargest
}

// RaiseLargest records a largest location learned from upstream (§10.2.10).
func (t *Track) RaiseLargest(l moqt.Location) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.raise(l)
	if t.learned == nil || t.learned.Less(l) {
		t.learned = &l
	}
}

func (t *Track) raise(l moqt.Location) {
	if !t.hasLargest || t.largest.Less(l) {
		t.largest, t.hasLargest = l, true
	}
}

// arrive records the location of an object that arrives and returns its arrival number. Since both
// change together, the largest location at Attach covers every object that arrived before. t.mu is
// held.
func (t *Track) arrive(l moqt.Location) uint64 {
	t.raise(l)
	t.arrivals++
	return t.arrivals
}

// Info describes the track for SUBSCRIBE_OK and TRACK_STATUS.
func (t *Track) Info() moqt.TrackInfo {
	return moqt.TrackInfo{Largest: t.Largest, Properties: t.Properties(), NewGroup: t.NewGroup}
}

// Viewers returns the number of subscriptions being served.
func (t *Track) Viewers() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.viewers)
}

// Stats returns the current counters.
func (t *Track) Stats() Stats {
	t.mu.Lock()
	s := Stats{Viewers: len(t.viewers), CachedBytes: t.bytes.Load(), CachedGroups: len(t.groups)}
	t.mu.Unlock()
	s.Objects, s.Bytes, s.DuplicateSubgroup = t.objects.Load(), t.received.Load(), t.duplicates.Load()
	s.SentBytes, s.SentSubgroups = t.sentBytes.Load(), t.sentSubgroups.Load()
	s.Late, s.Behind, s.UnsentDatagrams = t.late.Load(), t.dropped.Load(), t.unsent.Load()
	s.Evicted, s.RepairedDatagrams = t.evicted.Load(), t.repaired.Load()
	return s
}

// Errors returned by Track and Feed.
var (
	// ErrDuplicate means that the subgroup was already received, or is being received.
	ErrDuplicate = errors.New("origin: duplicate subgroup")
	// ErrEvicted means that the subgroup is older than the track's limits allow.
	ErrEvicted = errors.New("origin: subgroup older than the cache")
)

// OpenSubgroup starts a subgroup. The Feed takes the stream's bytes after its header. A subgroup
// that was reset may be opened again.
func (t *Track) OpenSubgroup(h wire.SubgroupHeader) (*Feed, error) { return t.open(h, false) }

// Backfill starts a past subgroup, which serves fetches but not subscriptions.
func (t *Track) Backfill(h wire.SubgroupHeader) (*Feed, error) { return t.open(h, true) }

func (t *Track) open(h wire.SubgroupHeader, backfilled bool) (*Feed, error) {
	defer t.memory.Load().reclaim()
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if !backfilled {
		t.resume(h.Group)
	}
	h.HasProperties = h.HasProperties || t.Seal != nil
	g := t.group(h.Group, now)
	sg := &subgroup{t: t, g: g, header: h, backfilled: backfilled, changed: make(chan struct{})}
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
	if !backfilled {
		for v := range t.viewers {
			v.offer(sg)
		}
	}
	return &Feed{
		sg:      sg,
		scanner: wire.ObjectScanner{Decoder: wire.ObjectDecoder{Group: h.Group, HasProperties: h.HasProperties}},
	}, nil
}

// enter indexes sg under id in its group. t.mu is held.
func (g *group) enter(sg *subgroup, id uint64) error {
	k := subgroupKey{id, sg.header.FirstObject, sg.backfilled}
	if old := g.index[k]; old != nil && !old.wasReset() {
		if old.header.Priority != sg.header.Priority {
			return malformed(
				"subgroup %d of group %d with priorities %d and %d",
				id,
				g.id,
				old.header.Priority,
				sg.header.Priority,
			)
		}
		return ErrDuplicate
	}
	if g.index == nil {
		g.index = map[subgroupKey]*subgroup{}
	}
	g.index[k] = sg
	return nil
}

// group returns a group, creating it if needed. t.mu is held.
func (t *Track) group(id uint64, now time.Time) *group {
	i, ok := t.find(id)
	if ok {
		return t.groups[i]
	}
	g := &group{id: id, started: now}
	t.groups = slices.Insert(t.groups, i, g)
	t.charge(g, groupCost, now)
	t.evictOld(now)
	return g
}

// charge adds n bytes to a group's memory and evicts if that exceeds the track's limits. t.mu is
// held.
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

// evictOld evicts groups older than MaxAge or MAX_CACHE_DURATION, but never the newest. t.mu is
// held.
func (t *Track) evictOld(now time.Time) {
	maxAge := t.limits.MaxAge
	if age, ok := t.maxCacheDuration(); ok {
		maxAge = min(maxAge, age)
	}
	for len(t.groups) > 1 && now.Sub(t.groups[0].started) > maxAge {
		t.evictOldest()
	}
}

// maxCacheAge returns the MAX_CACHE_DURATION of a relayed track, or a negative value if it has
// none. t.mu is held.
func (t *Track) maxCacheAge() time.Duration {
	if age, ok := t.maxCacheDuration(); ok && t.Relayed {
		return age
	}
	return -1
}

// maxCacheDuration returns the MAX_CACHE_DURATION property, if set. t.mu is held.
func (t *Track) maxCacheDuration() (time.Duration, bool) {
	ms, ok := t.props.Int(wire.PropertyMaxCacheDuration)
	return time.Duration(min(ms, math.MaxInt32)) * time.Millisecond, ok
}

// cacheAge returns how long after its arrival a relayed object may be sent; negative means no
// limit.
func (t *Track) cacheAge() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.maxCacheAge()
}

// reduce evicts old groups, and then the oldest part of the newest group, until at most limit bytes
// are used. In the newest group it frees an extra eighth, to run less often. t.mu is held.
func (t *Track) reduce(limit int64, now time.Time) {
	t.evictOld(now)
	for len(t.groups) > 1 && t.bytes.Load() > limit {
		t.evictOldest()
	}
	if len(t.groups) == 1 && t.bytes.Load() > limit {
		g := t.groups[0]
		before := g.bytes
		g.reduce(limit - limit/8)
		t.memory.Load().use(g.bytes - before)
		t.bytes.Add(g.bytes - before)
	}
}

// evictOldest evicts the oldest group. t.mu is held.
func (t *Track) evictOldest() {
	g := t.groups[0]
	t.evicting(g, time.Now())
	t.groups[0] = nil
	t.groups = t.groups[1:]
	g.gone = true
	t.memory.Load().use(-g.bytes)
	t.bytes.Add(-g.bytes)
	for _, sg := range g.subgroups {
		sg.evict()
	}
	g.subgroups, g.index, g.datagrams, g.hashes = nil, nil, nil, nil
}

// reduce frees a group's oldest parts until it uses at most limit bytes: first datagrams, then
// complete subgroups, then the start of an open subgroup. t.mu is held.
func (g *group) reduce(limit int64) {
	if n := len(g.datagrams); n > 1 && g.bytes > limit {
		for _, d := range g.datagrams[:n/2] {
			g.bytes -= d.cost()
			g.evictedBelow = max(g.evictedBelow, d.Object+1)
			delete(g.hashes, d.Object)
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
		g.evictedBelow = max(g.evictedBelow, next)
	}
	g.evict(limit, func(*subgroup) bool { return true })
}

// evict evicts the oldest subgroups for which may returns true, except the last, until the group
// uses at most limit bytes. t.mu is held.
func (g *group) evict(limit int64, may func(*subgroup) bool) {
	kept := g.subgroups[:0]
	for i, sg := range g.subgroups {
		if g.bytes <= limit || i == len(g.subgroups)-1 || !may(sg) {
			kept = append(kept, sg)
			continue
		}
		if sg.isOpen() || sg.wasReset() {
			g.markMissing(sg.missingFrom())
		}
		id, next, cost := sg.evict()
		g.bytes -= cost
		g.evictedBelow = max(g.evictedBelow, next)
		if k := (subgroupKey{id, sg.header.FirstObject, sg.backfilled}); g.index[k] == sg {
			delete(g.index, k)
		}
	}
	clear(g.subgroups[len(kept):])
	g.subgroups = kept
}

// markMissing records that objects with IDs of at least from may be missing. t.mu is held.
func (g *group) markMissing(from uint64) {
	if g.missingFrom == 0 || from < g.missingFrom-1 {
		g.missingFrom = min(from, math.MaxUint64-1) + 1
	}
}

// Interrupted records that the publisher left. The rest of the current group may have been
// published but not received.
func (t *Track) Interrupted() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if i, ok := t.find(t.largest.Group); ok && t.hasLargest {
		t.groups[i].markMissing(t.largest.Object + 1)
	}
}

// Missed records that the current group was published up to upTo before the subscription started.
// nil records that those objects have since been fetched.
func (t *Track) Missed(upTo *moqt.Location) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.missed = upTo
}

func (d *datagram) cost() int64 { return int64(len(d.Payload)+len(d.Properties)) + datagramCost }

// SendDatagram publishes an object as a datagram. It silently drops duplicates and the objects that
// ReceiveDatagram or Seal rejects.
func (t *Track) SendDatagram(dg moqt.Datagram) {
	if t.Seal != nil && dg.Status == wire.StatusNormal {
		var err error
		dg.Properties, dg.Payload, err = t.Seal(
			moqt.Location{Group: dg.Group, Object: dg.Object}, dg.Priority, dg.Properties, dg.Payload,
		)
		if err != nil {
			return
		}
	}
	_ = t.ReceiveDatagram(dg)
}

// ReceiveDatagram is SendDatagram for a datagram from another publisher. Its error wraps
// wire.ErrMalformedTrack if the object also arrived in a subgroup, differs from an earlier datagram
// with the same ID or lies beyond the end of the track.
func (t *Track) ReceiveDatagram(dg moqt.Datagram) error {
	defer t.memory.Load().reclaim()
	t.mu.Lock()
	defer t.mu.Unlock()
	l := moqt.Location{Group: dg.Group, Object: dg.Object}
	if err := t.checkEnd(l, dg.Status); err != nil {
		return err
	}
	if i, ok := t.find(dg.Group); ok && t.groups[i].holder(dg.Object, nil) != nil {
		return malformed("object {%d, %d} arrived in a subgroup and as a datagram", dg.Group, dg.Object)
	}
	t.resume(dg.Group)
	if !t.store(dg, false) {
		t.duplicates.Add(1)
		return t.checkSame(dg)
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

// checkEnd checks an object against the end of the track, and records the end if the object's
// status marks it (§2.4.2). t.mu is held.
func (t *Track) checkEnd(l moqt.Location, status wire.ObjectStatus) error {
	end := status == wire.StatusEndOfTrack
	switch {
	case t.final != nil && !l.Less(*t.final) && (!end || l != *t.final):
		return malformed("object {%d, %d} arrived after the end of the track", l.Group, l.Object)
	case end && t.hasLargest && l.Less(t.largest):
		return malformed(
			"the track ends at {%d, %d}, before {%d, %d}",
			l.Group,
			l.Object,
			t.largest.Group,
			t.largest.Object,
		)
	case end:
		t.final = &l
	}
	return nil
}

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", wire.ErrMalformedTrack, fmt.Sprintf(format, args...))
}

var hashSeed = maphash.MakeSeed()

// hash identifies a datagram's content.
func hash(dg *moqt.Datagram) uint64 {
	return maphash.Bytes(hashSeed, dg.Payload) ^ uint64(dg.Priority)<<8 ^ uint64(dg.Status)
}

// checkSame checks a duplicate datagram's content against that of the first (§9.1). t.mu is held.
func (t *Track) checkSame(dg moqt.Datagram) error {
	i, ok := t.find(dg.Group)
	if !ok {
		return nil
	}
	if was, kept := t.groups[i].hashes[dg.Object]; kept && was != hash(&dg) {
		return malformed("object {%d, %d} arrived twice with different content", dg.Group, dg.Object)
	}
	return nil
}

// BackfillDatagram stores a past object, which serves fetches but not subscriptions.
func (t *Track) BackfillDatagram(dg moqt.Datagram) {
	defer t.memory.Load().reclaim()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.store(dg, true) {
		t.repaired.Add(1)
	}
}

// store adds a datagram to its group. It returns false for a duplicate. t.mu is held.
func (t *Track) store(dg moqt.Datagram, backfilled bool) bool {
	now := time.Now()
	g := t.group(dg.Group, now)
	if _, again := g.hashes[dg.Object]; again || dg.Object < g.evictedBelow {
		return false
	}
	arrival := t.arrive(moqt.Location{Group: dg.Group, Object: dg.Object})
	if g.gone {
		return true
	}
	d := datagram{dg, now, arrival, backfilled}
	if g.hashes == nil {
		g.hashes = map[uint64]uint64{}
	}
	g.hashes[dg.Object] = hash(&dg)
	g.datagrams = append(g.datagrams, d)
	if dg.EndOfGroup {
		g.end = dg.Object + 1
	}
	t.charge(g, d.cost(), now)
	return true
}

// Span is a range of object IDs, both ends included.
type Span struct{ First, Last uint64 }

// Missing lists the objects from first to last of a group that may exist but have not arrived: gaps
// between datagrams, which may be losses, and everything after the last datagram unless the group
// has ended. It returns nil for a group without datagrams.
func (t *Track) Missing(id, first, last uint64) (list []Span) {
	t.mu.Lock()
	defer t.mu.Unlock()
	i, ok := t.find(id)
	if !ok || len(t.groups[i].datagrams) == 0 {
		return nil
	}
	return t.groups[i].gaps(first, last)
}

// find returns the index of a group, or its insertion point. t.mu is held.
func (t *Track) find(id uint64) (i int, ok bool) {
	return slices.BinarySearchFunc(t.groups, id, func(g *group, id uint64) int { return cmp.Compare(g.id, id) })
}

// gaps lists the objects from first to last without a datagram. t.mu is held.
func (g *group) gaps(first, last uint64) (list []Span) {
	if first = max(first, g.evictedBelow); g.end > 0 {
		last = min(last, g.end-1)
	}
	here := slices.DeleteFunc(
		slices.Collect(maps.Keys(g.hashes)),
		func(id uint64) bool { return id < first || id > last },
	)
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

// WriteObject publishes an object in a subgroup of its own, as point-cloud frames are sent.
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

// End ends the track for current and future viewers. Deliveries in flight have MaxAge to complete.
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

// maxGroupGap exceeds any real number of groups. At 30 groups per second it takes more than four
// years to reach.
const maxGroupGap = 1 << 32

// Restart clears the cache when the publisher returned or was replaced and may restart its group
// numbering. next is the start of the new numbering, or nil if it is unknown until the first
// object. Subscriptions continue unless their filter excludes the new groups. Those subscriptions
// end, because the groups they wait for may never come. If the old numbers were more than
// maxGroupGap ahead, all subscriptions end.
func (t *Track) Restart(next *moqt.Location) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.groups) > 0 {
		t.evictOldest()
	}
	if t.hasLargest {
		t.beforeRestart = &moqt.Location{Group: t.largest.Group}
	}
	t.largest, t.hasLargest = moqt.Location{}, false
	t.final, t.missed, t.absent, t.learned = nil, nil, nil, nil
	t.arrivals++
	t.restarted = t.arrivals
	if next != nil {
		t.resume(next.Group)
	}
}

// resume, at the first group after a restart, ends the subscriptions whose awaited groups will not
// come. t.mu is held.
func (t *Track) resume(group uint64) {
	if t.beforeRestart == nil {
		return
	}
	far := t.beforeRestart.Group > group && t.beforeRestart.Group-group > maxGroupGap
	t.beforeRestart = nil
	for v := range t.viewers {
		if far || v.sink.Forwarding() && !v.sink.Passes(moqt.Location{Group: group, Object: math.MaxUint64}) {
			v.endOnRestart()
		}
	}
}

// OldestGroup returns the oldest cached group, if any.
func (t *Track) OldestGroup() (uint64, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.groups) == 0 {
		return 0, false
	}
	return t.groups[0].id, true
}
