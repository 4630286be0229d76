// Package origin holds tracks that this process can serve: the newest groups of
// each in memory, bounded by bytes and age, passed on to any number of viewers
// while they still arrive and fetched by those who come late. A relay feeds it
// from upstream, the capture server from its encoder, a replay from its file.
//
// A subgroup is kept as the bytes of its stream, with an index of its objects. A
// viewer has no queue of its own: it reads the shared bytes at its own pace on its
// own stream, and what it cannot take in time is reset, so that a viewer that
// reads nothing costs the others nothing (draft-ietf-moq-transport-18 §8, §9).
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
	MaxBytes int64         // of cached groups; the newest group stays in any case; 64 MiB
	MaxAge   time.Duration // of cached groups but the newest; 3 s
	MaxOpen  int           // subgroups under way to one viewer at a time; 64
}

func (l Limits) withDefaults() Limits {
	l.MaxBytes = cmp.Or(l.MaxBytes, 64<<20)
	l.MaxAge = cmp.Or(l.MaxAge, 3*time.Second)
	l.MaxOpen = cmp.Or(l.MaxOpen, 64)
	return l
}

// Stats are a track's counters.
type Stats struct {
	Viewers           int
	CachedBytes       int64
	CachedGroups      int
	Objects           uint64 // received
	Bytes             uint64 // received, headers included
	DuplicateSubgroup uint64 // refused: the same subgroup from another publisher
	SentBytes         uint64 // to all viewers
	SentSubgroups     uint64
	Late              uint64 // subgroups reset because they missed their deadline
	Behind            uint64 // subgroups reset or skipped because a viewer was too far behind
	UnsentDatagrams   uint64
}

// Track is one track. Its methods are safe for concurrent use.
type Track struct {
	name   moqt.TrackName
	limits Limits

	mu         sync.Mutex
	props      moqt.Properties
	groups     []*group // ascending
	bytes      int64
	largest    moqt.Location
	hasLargest bool
	viewers    map[*viewer]struct{}
	ended      *moqt.DoneError

	objects, received, duplicates, sentBytes, sentSubgroups, late, behind, unsent atomic.Uint64
}

type group struct {
	id        uint64
	began     time.Time
	subgroups []*subgroup
	datagrams []datagram
	bytes     int64
}

type datagram struct {
	moqt.Datagram
	arrived time.Time
}

// NewTrack returns an empty track with the properties that its subscribers are
// told.
func NewTrack(name moqt.TrackName, props moqt.Properties, limits Limits) *Track {
	return &Track{name: name, props: props, limits: limits.withDefaults(), viewers: map[*viewer]struct{}{}}
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
	return moqt.TrackInfo{Largest: t.Largest, Properties: t.Properties()}
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
	s := Stats{Viewers: len(t.viewers), CachedBytes: t.bytes, CachedGroups: len(t.groups)}
	t.mu.Unlock()
	s.Objects, s.Bytes, s.DuplicateSubgroup = t.objects.Load(), t.received.Load(), t.duplicates.Load()
	s.SentBytes, s.SentSubgroups = t.sentBytes.Load(), t.sentSubgroups.Load()
	s.Late, s.Behind, s.UnsentDatagrams = t.late.Load(), t.behind.Load(), t.unsent.Load()
	return s
}

// ErrDuplicate says that a subgroup is being received already.
var ErrDuplicate = errors.New("origin: the subgroup is already here")

// OpenSubgroup begins a subgroup. Its bytes, those after the stream header, go to
// the returned Feed. A subgroup that was reset may be opened again.
func (t *Track) OpenSubgroup(h wire.SubgroupHeader) (*Feed, error) { return t.open(h, false) }

// Backfill begins a subgroup of the past: kept for fetches, not sent to
// subscriptions.
func (t *Track) Backfill(h wire.SubgroupHeader) (*Feed, error) { return t.open(h, true) }

func (t *Track) open(h wire.SubgroupHeader, past bool) (*Feed, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	g := t.group(h.Group, time.Now())
	for _, old := range g.subgroups {
		if old.past == past && old.same(h) && !old.wasReset() {
			t.duplicates.Add(1)
			return nil, ErrDuplicate
		}
	}
	sg := newSubgroup(t, g, h)
	sg.past = past
	g.subgroups = append(g.subgroups, sg)
	if !past {
		for v := range t.viewers {
			v.offer(sg)
		}
	}
	return &Feed{sg: sg, scanner: wire.ObjectScanner{Decoder: wire.ObjectDecoder{HasProperties: h.HasProperties}}}, nil
}

// group finds or makes a group. t.mu is held.
func (t *Track) group(id uint64, now time.Time) *group {
	i, ok := slices.BinarySearchFunc(t.groups, id, func(g *group, id uint64) int { return cmp.Compare(g.id, id) })
	if ok {
		return t.groups[i]
	}
	g := &group{id: id, began: now}
	t.groups = slices.Insert(t.groups, i, g)
	t.evict(now)
	return g
}

// evict drops the oldest groups beyond the limits, never the newest. t.mu is held.
func (t *Track) evict(now time.Time) {
	maxAge := t.limits.MaxAge
	if ms, ok := t.props.Int(wire.PropertyMaxCacheDuration); ok && ms < uint64(maxAge.Milliseconds()) {
		maxAge = time.Duration(ms) * time.Millisecond
	}
	n := 0
	for n < len(t.groups)-1 && (t.bytes > t.limits.MaxBytes || now.Sub(t.groups[n].began) > maxAge) {
		t.bytes -= t.groups[n].bytes
		t.groups[n] = nil
		n++
	}
	t.groups = t.groups[n:]
}

// SendDatagram publishes an object as a datagram.
func (t *Track) SendDatagram(d moqt.Datagram) {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	g := t.group(d.Group, now)
	size := int64(len(d.Payload) + len(d.Properties) + 64)
	g.datagrams = append(g.datagrams, datagram{d, now})
	g.bytes += size
	t.bytes += size
	t.evict(now)
	l := moqt.Location{Group: d.Group, Object: d.Object}
	t.raise(l)
	t.objects.Add(1)
	t.received.Add(uint64(len(d.Payload)))
	for v := range t.viewers {
		if !v.pub.Passes(l) {
			continue
		}
		if err := v.pub.SendDatagram(d); err != nil {
			t.unsent.Add(1)
		} else {
			t.sentBytes.Add(uint64(len(d.Payload)))
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
// under way to them still arrives.
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

// OldestGroup is the oldest group in the cache, false when there is none.
func (t *Track) OldestGroup() (uint64, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.groups) == 0 {
		return 0, false
	}
	return t.groups[0].id, true
}
