package publish

import (
	"cmp"
	"sync"
	"time"

	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/origin"
	"holocast/internal/parts"
)

// Track describes a track of the session.
type Track struct {
	Name     string
	Priority uint8 // publisher priority; lower is sent first
	// DeliveryTimeout is how old an object may become on its way before its rest is
	// dropped; 0 is no limit.
	DeliveryTimeout time.Duration
	// CacheAge is how long groups are kept for those who join late; 0 is a second. The
	// newest group is kept in any case.
	CacheAge   time.Duration
	Properties []wire.KeyValue // further track properties
}

// defaultCacheAge is enough for a relay, which asks for the newest group only.
const defaultCacheAge = time.Second

// NewTrack adds a track to the session; it can be subscribed to at once. The caller
// writes its objects and ends it.
func (p *Publisher) NewTrack(t Track) *origin.Track {
	kvs := append(t.Properties[:len(t.Properties):len(t.Properties)],
		wire.KeyValue{Type: wire.PropertyPublisherPriority, Int: uint64(t.Priority)})
	if ms := uint64(t.DeliveryTimeout.Milliseconds()); ms > 0 {
		kvs = append(kvs, wire.KeyValue{Type: wire.PropertyObjectDeliveryTimeout, Int: ms},
			wire.KeyValue{Type: wire.PropertySubgroupDeliveryTimeout, Int: ms})
	}
	track := origin.NewTrack(moqt.TrackName{Namespace: p.namespace, Name: t.Name},
		wire.AppendKeyValues(nil, kvs...), origin.Limits{MaxAge: cmp.Or(t.CacheAge, defaultCacheAge)})
	p.AddTrack(track)
	return track
}

// AddTrack adds a track that a medium made itself; it can be subscribed to at once.
func (p *Publisher) AddTrack(t *origin.Track) {
	p.set.Add(t)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tracks = append(p.tracks, t)
}

// SendParts sends a payload in datagrams, as objects from ID next on of the group that h
// names, at h's priority; h.EndOfGroup says that nothing follows in the group. It keeps
// the payload and returns the ID after its last object.
func SendParts(t *origin.Track, h wire.SubgroupHeader, next uint64, payload []byte) uint64 {
	for d := range parts.Cut(moqt.Datagram{Group: h.Group, Object: next, Priority: h.Priority, EndOfGroup: h.EndOfGroup}, payload) {
		t.SendDatagram(d)
		next = d.Object + 1
	}
	return next
}

// FirstGroup is the ID for a track's first group: above those of an earlier run of the
// publisher, if that published less than a group per millisecond. Tracks with aligned
// group IDs share one.
func FirstGroup() uint64 { return uint64(time.Now().UnixMilli()) }

// Document is a track of which the newest object is valid; each is a group of its own. A
// subscriber that missed it can ask for it again (NEW_GROUP_REQUEST).
type Document struct {
	*origin.Track
	mu      sync.Mutex
	group   uint64 // the next
	payload []byte
	renewed time.Time
}

// priorityDocument is the publisher priority of documents: ahead of all media.
const priorityDocument = 32

// renewInterval is how often at most a document is published again on request.
const renewInterval = time.Second

// NewDocument adds a document to the session.
func (p *Publisher) NewDocument(name string) *Document {
	d := &Document{
		Track: p.NewTrack(Track{
			Name: name, Priority: priorityDocument, Properties: []wire.KeyValue{{Type: wire.PropertyDynamicGroups, Int: 1}},
		}),
		group: FirstGroup(),
	}
	d.NewGroup = d.renew
	return d
}

// Publish replaces the document and takes over payload.
func (d *Document) Publish(payload []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.payload = payload
	return d.write()
}

// renew publishes the newest object again, unless it already is in the requested group or
// a later one (§10.2.14).
func (d *Document) renew(group uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.payload == nil || group != 0 && group < d.group || time.Since(d.renewed) < renewInterval {
		return
	}
	d.renewed = time.Now()
	_ = d.write() // fails only once the track has ended
}

func (d *Document) write() error {
	h := wire.SubgroupHeader{Group: d.group, Priority: priorityDocument, EndOfGroup: true, FirstObject: true}
	d.group++
	return d.WriteObject(h, moqt.Object{}, d.payload)
}
