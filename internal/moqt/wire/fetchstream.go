package wire

import "errors"

// RangeKind marks an entry of a fetch stream that ends a range of objects (§11.4.4.2).
type RangeKind uint64

// Range ends, §11.4.4.2.
const (
	RangeNone        RangeKind = 0     // an object
	RangeNonExistent RangeKind = 0x8c  // no object up to here exists
	RangeUnknown     RangeKind = 0x10c // the objects up to here are unknown
	RangeTimedOut    RangeKind = 0x20c // the objects up to here were not available in time; draft-20
)

// Serialization flags of a fetched object, §11.4.4.1.
const (
	fetchSubgroup      = 0x03 // mask: 0 zero, 1 prior, 2 prior plus one, 3 present
	fetchSubgroupPrior = 0x01
	fetchSubgroupField = 0x03
	fetchObjectID      = 0x04
	fetchGroupID       = 0x08
	fetchPriority      = 0x10
	fetchProperties    = 0x20
	fetchDatagram      = 0x40
	fetchFlags         = 0x7f // all flags
)

// FetchObject is the header of one entry of a fetch stream (§11.4.4). A range end has only Group
// and Object, and no payload.
type FetchObject struct {
	Range RangeKind

	Group, Object uint64
	Subgroup      uint64 // unset for a datagram
	Datagram      bool   // the object's forwarding preference
	Priority      uint8
	Properties    Properties
	PayloadLength uint64
}

// fetchState holds the values of the prior entry.
type fetchState struct {
	Order       GroupOrder // zero means Ascending
	v           Version
	started     bool
	group, id   uint64
	hasSubgroup bool
	subgroup    uint64
	hasPriority bool
	priority    uint8
}

// follows reports whether an entry at group and object may come next: groups in the response's
// order, object IDs ascending within a group (§10.12.3).
func (s *fetchState) follows(group, object uint64) bool {
	switch {
	case !s.started:
		return true
	case group == s.group:
		return object > s.id
	case s.Order == Descending:
		return group < s.group
	}
	return group > s.group
}

// advance makes o the prior entry. A range end does not change the prior subgroup and priority. A
// datagram has no subgroup to refer to.
func (s *fetchState) advance(o *FetchObject) {
	s.started, s.group, s.id = true, o.Group, o.Object
	if o.Range != RangeNone {
		return
	}
	s.hasSubgroup, s.subgroup = !o.Datagram, o.Subgroup
	s.hasPriority, s.priority = true, o.Priority
}

// FetchDecoder reads the entries of one fetch stream in order. Its state changes only after a
// complete header.
type FetchDecoder struct{ fetchState }

// NewFetchDecoder returns a decoder for a response in the given group order.
func (v Version) NewFetchDecoder(order GroupOrder) *FetchDecoder {
	return &FetchDecoder{fetchState{Order: order, v: v}}
}

// NewFetchDecoder calls Draft18.NewFetchDecoder.
func NewFetchDecoder(order GroupOrder) *FetchDecoder { return Draft18.NewFetchDecoder(order) }

// Decode reads one entry's header. It returns io.EOF if the stream ends between entries.
func (d *FetchDecoder) Decode(r ByteReader) (o FetchObject, err error) {
	flags, err := ReadVarint(r)
	if err != nil {
		return o, err
	}
	switch {
	case RangeKind(flags) == RangeNonExistent || RangeKind(flags) == RangeUnknown,
		RangeKind(flags) == RangeTimedOut && d.v >= Draft20:
		o.Range = RangeKind(flags)
		err = d.decodeRange(&o, r)
	case flags > fetchFlags:
		err = violation("invalid fetch serialization flags %#x", flags)
	default:
		err = d.decodeObject(&o, flags, r)
	}
	if err != nil {
		return o, err
	}
	d.advance(&o)
	return o, nil
}

// decodeRange reads the end of a range, whose IDs are absolute. The draft does not say so, but a
// Group ID Delta could not express the prior object's group, and other implementations agree.
func (d *FetchDecoder) decodeRange(o *FetchObject, r ByteReader) (err error) {
	if o.Group, err = ReadVarint(r); err != nil {
		return unexpected(err)
	}
	if o.Object, err = ReadVarint(r); err != nil {
		return unexpected(err)
	}
	if !d.follows(o.Group, o.Object) {
		return violation("fetched range ends at {%d, %d}, not after {%d, %d}", o.Group, o.Object, d.group, d.id)
	}
	return nil
}

func (d *FetchDecoder) decodeObject(o *FetchObject, flags uint64, r ByteReader) (err error) {
	if !d.started && flags&(fetchGroupID|fetchObjectID) != fetchGroupID|fetchObjectID {
		return violation("first fetch object without group and object ID")
	}
	o.Datagram = flags&fetchDatagram != 0
	// Each field depends on the ones before it, in wire order.
	if err := d.decodeGroupID(o, flags, r); err != nil {
		return err
	}
	if err := d.decodeSubgroupID(o, flags, r); err != nil {
		return err
	}
	if err := d.decodeObjectID(o, flags, r); err != nil {
		return err
	}
	o.Priority = d.priority
	if flags&fetchPriority != 0 {
		if o.Priority, err = r.ReadByte(); err != nil {
			return unexpected(err)
		}
	} else if !d.hasPriority {
		return violation("fetch object refers to a prior priority")
	}
	if flags&fetchProperties != 0 {
		if o.Properties, err = readProperties(r); err != nil {
			return err
		}
	}
	if o.PayloadLength, err = ReadVarint(r); err != nil {
		return unexpected(err)
	}
	return o.Properties.validateObject(Location{o.Group, o.Object})
}

func (d *FetchDecoder) decodeGroupID(o *FetchObject, flags uint64, r ByteReader) error {
	o.Group = d.group
	if flags&fetchGroupID == 0 {
		return nil
	}
	delta, err := ReadVarint(r)
	if err != nil {
		return unexpected(err)
	}
	switch {
	case !d.started:
		o.Group = delta
	case d.Order == Descending:
		o.Group = d.group - delta - 1
		if o.Group >= d.group {
			return violation("fetch group ID below 0")
		}
	default:
		o.Group = d.group + delta + 1
		if o.Group <= d.group {
			return violation("fetch group ID exceeds 2^64-1")
		}
	}
	return nil
}

func (d *FetchDecoder) decodeSubgroupID(o *FetchObject, flags uint64, r ByteReader) (err error) {
	mode := flags & fetchSubgroup
	switch {
	case o.Datagram || mode == 0:
		return nil
	case mode == fetchSubgroupField:
		o.Subgroup, err = ReadVarint(r)
		return unexpected(err)
	case !d.hasSubgroup:
		return violation("fetch object refers to a prior subgroup")
	}
	o.Subgroup = d.subgroup + mode - fetchSubgroupPrior
	if o.Subgroup < d.subgroup {
		return violation("fetch subgroup ID exceeds 2^64-1")
	}
	return nil
}

func (d *FetchDecoder) decodeObjectID(o *FetchObject, flags uint64, r ByteReader) (err error) {
	if flags&fetchObjectID == 0 {
		o.Object = d.id + 1
		if o.Object == 0 {
			return violation("fetch object ID exceeds 2^64-1")
		}
		return nil
	}
	if o.Object, err = ReadVarint(r); err != nil {
		return unexpected(err)
	}
	if flags&fetchGroupID == 0 {
		o.Object += d.id
		if o.Object <= d.id {
			return violation("fetch object ID exceeds 2^64-1 or repeats %d", d.id)
		}
	}
	return nil
}

// FetchEncoder writes the entries of one fetch stream in order.
type FetchEncoder struct{ fetchState }

// NewFetchEncoder returns an encoder for a response in the given group order.
func (v Version) NewFetchEncoder(order GroupOrder) *FetchEncoder {
	return &FetchEncoder{fetchState{Order: order, v: v}}
}

// NewFetchEncoder calls Draft18.NewFetchEncoder.
func NewFetchEncoder(order GroupOrder) *FetchEncoder { return Draft18.NewFetchEncoder(order) }

// Append appends one entry's header. An object's payload must follow it. Entries must be in the
// response's group order and ascend within a group.
func (e *FetchEncoder) Append(b []byte, o FetchObject) ([]byte, error) {
	if !e.follows(o.Group, o.Object) {
		return nil, errors.New("moqt: fetched objects out of order")
	}
	if o.Range == RangeTimedOut && e.v < Draft20 {
		o.Range = RangeUnknown
	}
	switch o.Range {
	case RangeNone:
		b = e.appendObject(b, &o)
	case RangeNonExistent, RangeUnknown, RangeTimedOut:
		b = AppendVarint(b, uint64(o.Range))
		b = AppendVarint(AppendVarint(b, o.Group), o.Object)
	default:
		return nil, errors.New("moqt: unknown kind of fetched range")
	}
	e.advance(&o)
	return b, nil
}

func (e *FetchEncoder) appendObject(b []byte, o *FetchObject) []byte {
	var flags uint64
	if !e.started || o.Group != e.group {
		flags |= fetchGroupID | fetchObjectID
	} else if o.Object != e.id+1 {
		flags |= fetchObjectID
	}
	switch {
	case o.Datagram:
		flags |= fetchDatagram
	case o.Subgroup == 0:
	case e.hasSubgroup && o.Subgroup == e.subgroup:
		flags |= fetchSubgroupPrior
	default:
		flags |= fetchSubgroupField
	}
	if !e.hasPriority || o.Priority != e.priority {
		flags |= fetchPriority
	}
	if len(o.Properties) > 0 {
		flags |= fetchProperties
	}
	b = AppendVarint(b, flags)
	object := o.Object
	if flags&fetchGroupID != 0 {
		switch {
		case !e.started:
			b = AppendVarint(b, o.Group)
		case e.Order == Descending:
			b = AppendVarint(b, e.group-o.Group-1)
		default:
			b = AppendVarint(b, o.Group-e.group-1)
		}
	} else {
		object -= e.id
	}
	if flags&fetchSubgroup == fetchSubgroupField {
		b = AppendVarint(b, o.Subgroup)
	}
	if flags&fetchObjectID != 0 {
		b = AppendVarint(b, object)
	}
	if flags&fetchPriority != 0 {
		b = append(b, o.Priority)
	}
	if flags&fetchProperties != 0 {
		b = appendBytes(b, o.Properties)
	}
	return AppendVarint(b, o.PayloadLength)
}
