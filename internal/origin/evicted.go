package origin

import (
	"cmp"
	"math"
	"slices"
	"time"

	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
)

// settled is the age from which a group is complete if nothing of it is known to be missing: late subgroups have
// arrived by then.
const settled = time.Second

// Group is a complete group that the cache has evicted. Its memory is shared and must not be changed.
type Group struct {
	ID      uint64
	Arrived time.Time // its first object
	Objects []GroupObject
}

// GroupObject is an object of normal status.
type GroupObject struct {
	ID         uint64
	Subgroup   uint64 // 0 for a datagram
	Datagram   bool
	Priority   uint8
	Properties moqt.Properties
	Payload    [][]byte // to be joined
}

// Size returns the bytes of the payload.
func (o *GroupObject) Size() (n int) {
	for _, part := range o.Payload {
		n += len(part)
	}
	return n
}

// evicting passes a group to Evicted if it is complete. t.mu is held.
func (t *Track) evicting(g *group, now time.Time) {
	if t.Evicted == nil || now.Sub(g.started) < settled || t.hasLargest && g.id == t.largest.Group ||
		len(g.datagrams) > 0 && !g.confirmed(0, math.MaxUint64) || !g.complete(t, 0, math.MaxUint64, now) {
		return
	}
	out := Group{ID: g.id, Arrived: now}
	for _, sg := range g.subgroups {
		if !sg.export(&out) {
			return
		}
	}
	for i := range g.datagrams {
		d := &g.datagrams[i]
		out.Arrived = earlier(out.Arrived, d.arrived)
		if d.Status == wire.StatusNormal {
			out.Objects = append(out.Objects, GroupObject{
				ID: d.Object, Datagram: true, Priority: d.Priority, Properties: d.Properties, Payload: [][]byte{d.Payload},
			})
		}
	}
	slices.SortStableFunc(out.Objects, func(a, b GroupObject) int { return cmp.Compare(a.ID, b.ID) })
	out.Objects = slices.CompactFunc(out.Objects, func(a, b GroupObject) bool { return a.ID == b.ID })
	if len(out.Objects) > 0 {
		t.Evicted(out)
	}
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// export adds a subgroup's objects to a group. It returns false while the subgroup is open.
func (s *subgroup) export(g *Group) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state == open {
		return false
	}
	for i := range s.objects {
		o := &s.objects[i]
		g.Arrived = earlier(g.Arrived, o.arrived)
		if o.Status != wire.StatusNormal || o.end() > s.size { // the latter was reset, and has arrived again
			continue
		}
		x := GroupObject{ID: o.ID, Subgroup: s.id, Priority: s.header.Priority, Properties: o.Properties}
		for at := o.payload; at < o.end(); {
			b := s.from(at, o.end()-at)
			x.Payload = append(x.Payload, b)
			at += int64(len(b))
		}
		g.Objects = append(g.Objects, x)
	}
	return true
}

// Flush evicts all groups.
func (t *Track) Flush() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.groups) > 0 {
		t.evictOldest()
	}
}

// CacheAge returns how long after its arrival an object of a relayed track may be sent; negative means no limit.
func (t *Track) CacheAge() time.Duration { return t.cacheAge() }
