package router

import (
	"bytes"
	"fmt"
	"slices"

	"holocast/internal/connect"
	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/origin"
)

// keep makes the cache on disk receive the groups that leave the track's memory.
func (t *track) keep() {
	if t.r.cfg().Disk == nil || fromViewers(t.Name()) || isRecording(t.Name().Namespace) {
		return
	}
	t.Evicted = func(g origin.Group) { t.disk.Load().Put(g) }
}

// openDisk opens the track's groups on the disk for its first upstream. fresh means that the publisher has begun its
// group numbers again. The caller holds t.mu.
func (t *track) openDisk(up Upstream, sub *moqt.Subscription, subject string, fresh bool) {
	if t.Evicted == nil {
		return
	}
	id, ok := sub.Properties.Int(connect.InstanceProperty)
	publisher := fmt.Sprintf("%s\x00%d", subject, id)
	if !ok { // recognized until its session ends only
		number := t.r.number(up)
		publisher = fmt.Sprintf("%d %d", t.r.began.UnixNano(), number)
		fresh = fresh || number == 0
	}
	t.disk.Store(t.r.cfg().Disk.Track(t.Name(), publisher, fresh, sub.Largest))
}

// number returns the number of a client's session, or 0 for other upstreams.
func (r *Router) number(up Upstream) uint64 {
	if p, ok := up.(peer); ok {
		return p.c.number
	}
	return 0
}

// sameContent reports whether track properties are the same apart from the publisher's instance.
func sameContent(a, b moqt.Properties) bool {
	return bytes.Equal(a, b) || bytes.Equal(withoutInstance(a), withoutInstance(b))
}

func withoutInstance(p moqt.Properties) []byte {
	kvs, err := wire.ParseKeyValues(p)
	if err != nil {
		return p
	}
	kvs = slices.DeleteFunc(kvs, func(kv wire.KeyValue) bool { return kv.Type == connect.InstanceProperty })
	return wire.AppendKeyValues(nil, kvs...)
}

// Flush moves the complete groups in memory to the cache on disk.
func (r *Router) Flush() {
	r.mu.Lock()
	var list []*track
	for _, t := range r.tracks {
		list = append(list, t)
	}
	r.mu.Unlock()
	for _, t := range list {
		t.Flush()
	}
}
