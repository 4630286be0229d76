package publish

import (
	"cmp"
	"sync"
	"time"

	"holocast/internal/catalog"
	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/origin"
	"holocast/internal/parts"
	"holocast/internal/secureobjects"
)

// Track describes a track of the session.
type Track struct {
	Name     string
	Priority uint8 // publisher priority; lower is sent first
	// DeliveryTimeout is the age at which the rest of an object is dropped; 0 disables it.
	DeliveryTimeout time.Duration
	// CacheAge is how long groups are cached for late joiners; 0 means one second. The newest group
	// is always kept.
	CacheAge   time.Duration
	Properties []wire.KeyValue // additional track properties
}

// defaultCacheAge suffices for a relay, which joins at the newest group.
const defaultCacheAge = time.Second

// NewTrack adds a track to the session and opens it to subscriptions. The caller writes its objects
// and ends it.
func (p *Publisher) NewTrack(t Track) *origin.Track {
	kvs := append(t.Properties[:len(t.Properties):len(t.Properties)],
		wire.KeyValue{Type: wire.PropertyPublisherPriority, Int: uint64(t.Priority)}, p.instance)
	if ms := uint64(t.DeliveryTimeout.Milliseconds()); ms > 0 {
		kvs = append(kvs, wire.KeyValue{Type: wire.PropertyObjectDeliveryTimeout, Int: ms},
			wire.KeyValue{Type: wire.PropertySubgroupDeliveryTimeout, Int: ms})
	}
	track := origin.NewTrack(moqt.TrackName{Namespace: p.namespace, Name: t.Name},
		wire.AppendKeyValues(nil, kvs...), origin.Limits{MaxAge: cmp.Or(t.CacheAge, defaultCacheAge)})
	p.AddTrack(track)
	return track
}

// AddTrack adds a track created by a medium and opens it to subscriptions.
func (p *Publisher) AddTrack(t *origin.Track) {
	if p.encrypt != nil {
		t.Seal = p.sealer(t.Name())
	}
	p.set.Add(t)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tracks = append(p.tracks, t)
}

// sealer returns the function that encrypts a track's objects.
func (p *Publisher) sealer(name moqt.TrackName) func(
	moqt.Location, uint8, moqt.Properties, []byte,
) (moqt.Properties, []byte, error) {
	s := p.encrypt.Sealer(name)
	if name.Name == catalog.TrackName {
		return func(l moqt.Location, priority uint8, props moqt.Properties, b []byte) (moqt.Properties, []byte, error) {
			b, err := s.SealCatalog(
				p.namespace, secureobjects.Location{Group: l.Group, Object: l.Object, Priority: priority}, b,
			)
			return props, b, err
		}
	}
	return func(l moqt.Location, priority uint8, props moqt.Properties, b []byte) (moqt.Properties, []byte, error) {
		sealed, b, err := s.Seal(
			nil, secureobjects.Location{Group: l.Group, Object: l.Object, Priority: priority}, props, b,
		)
		return sealed, b, err
	}
}

// MaxDatagram returns the maximum payload in bytes of a datagram object of t.
func MaxDatagram(t *origin.Track) int {
	if t.Seal != nil {
		return parts.MaxPart - secureobjects.MaxOverhead
	}
	return parts.MaxPart
}

// SendParts sends payload as datagram objects of group h.Group with priority h.Priority and object
// IDs from next on. h.EndOfGroup marks the last object as the end of the group. It retains payload
// and returns the next free object ID.
func SendParts(t *origin.Track, h wire.SubgroupHeader, next uint64, payload []byte) uint64 {
	for d := range parts.CutAt(moqt.Datagram{
		Group: h.Group, Object: next, Priority: h.Priority,
		EndOfGroup: h.EndOfGroup,
	}, payload, MaxDatagram(t)) {
		t.SendDatagram(d)
		next = d.Object + 1
	}
	return next
}

// FirstGroup returns a track's first group ID. It is higher than all group IDs of an earlier run
// that published less than one group per millisecond. Tracks with aligned group IDs share one.
func FirstGroup() uint64 { return uint64(time.Now().UnixMilli()) }

// Document is a track whose newest object replaces all earlier ones; each object is its own group.
// A subscriber that missed it can request it again (NEW_GROUP_REQUEST).
type Document struct {
	*origin.Track
	mu      sync.Mutex
	group   uint64 // next group
	payload []byte
	renewed time.Time
}

// priorityDocument ranks documents after microphones and before points and pictures.
const priorityDocument = 32

// renewInterval is the minimum time between repeats requested by subscribers.
const renewInterval = time.Second

// NewDocument adds a document to the session.
func (p *Publisher) NewDocument(name string) *Document {
	d := &Document{
		Track: p.NewTrack(Track{
			Name: name, Priority: priorityDocument,
			Properties: []wire.KeyValue{{Type: wire.PropertyDynamicGroups, Int: 1}},
		}),
		group: FirstGroup(),
	}
	d.NewGroup = d.renew
	return d
}

// Publish replaces the document. It retains payload.
func (d *Document) Publish(payload []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.payload = payload
	return d.write()
}

// renew repeats the newest object, unless it is already in the requested group or a later one
// (§10.2.14).
func (d *Document) renew(group uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.payload == nil || group != 0 && group < d.group || time.Since(d.renewed) < renewInterval {
		return
	}
	d.renewed = time.Now()
	_ = d.write() // fails only after the track has ended
}

func (d *Document) write() error {
	h := wire.SubgroupHeader{Group: d.group, Priority: priorityDocument, EndOfGroup: true, FirstObject: true}
	d.group++
	return d.WriteObject(h, moqt.Object{}, d.payload)
}
