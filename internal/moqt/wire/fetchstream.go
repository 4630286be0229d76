package wire

import "errors"

// RangeKind marks an entry of a fetch stream that ends a range of objects
// rather than being one (§11.4.4.2).
type RangeKind uint64

// Range ends, §11.4.4.2.
const (
	RangeNone        RangeKind = 0     // an object
	RangeNonExistent RangeKind = 0x8c  // none of the objects up to here exists
	RangeUnknown     RangeKind = 0x10c // the objects up to here are unknown
)

// FetchObject is the header of one entry of a fetch stream (§11.4.4).
type FetchObject struct {
	Range RangeKind

	Group, Object uint64
	Subgroup      uint64 // unset for a datagram
	Datagram      bool   // the object's forwarding preference
	Priority      uint8
	Properties    Properties
	PayloadLength uint64
}

// fetchState is what an entry can refer back to.
type fetchState struct {
	Order       GroupOrder // Ascending unless set to Descending
	started     bool
	group, id   uint64
	hasSubgroup bool
	subgroup    uint64
	hasPriority bool
	priority    uint8
}

func (s *fetchState) advance(o *FetchObject) {
	s.started, s.group, s.id = true, o.Group, o.Object
	if o.Range != RangeNone {
		return
	}
	if !o.Datagram {
		s.hasSubgroup, s.subgroup = true, o.Subgroup
	}
	s.hasPriority, s.priority = true, o.Priority
}

// FetchDecoder reads the entries of one fetch stream in order.
type FetchDecoder struct{ fetchState }

// NewFetchDecoder returns a decoder for a response in the given group order.
func NewFetchDecoder(order GroupOrder) *FetchDecoder {
	return &FetchDecoder{fetchState{Order: order}}
}

// Decode reads one entry's header, io.EOF where the stream ends between entries.
func (d *FetchDecoder) Decode(r ByteReader) (o FetchObject, err error) {
	flags, err := ReadVarint(r)
	if err != nil {
		return o, err
	}
	switch RangeKind(flags) {
	case RangeNonExistent, RangeUnknown:
		o.Range = RangeKind(flags)
		flags = 0x0c
	default:
		if flags >= 128 {
			return o, violation("fetch serialization flags %#x", flags)
		}
		o.Datagram = flags&0x40 != 0
	}
	if !d.started && flags&0x0c != 0x0c {
		return o, violation("first fetch object without group and object ID")
	}
	// Each field depends on the ones before it, in wire order.
	if err := d.decodeGroup(&o, flags, r); err != nil {
		return o, err
	}
	if o.Range == RangeNone {
		if err := d.decodeSubgroup(&o, flags, r); err != nil {
			return o, err
		}
	}
	if err := d.decodeObject(&o, flags, r); err != nil {
		return o, err
	}
	if o.Range != RangeNone {
		d.advance(&o)
		return o, nil
	}
	if flags&0x10 != 0 {
		if o.Priority, err = r.ReadByte(); err != nil {
			return o, unexpected(err)
		}
	} else if !d.hasPriority {
		return o, violation("fetch object refers to a prior priority")
	} else {
		o.Priority = d.priority
	}
	if flags&0x20 != 0 {
		if o.Properties, err = readProperties(r); err != nil {
			return o, err
		}
	}
	if o.PayloadLength, err = ReadVarint(r); err != nil {
		return o, unexpected(err)
	}
	d.advance(&o)
	return o, nil
}

func (d *FetchDecoder) decodeGroup(o *FetchObject, flags uint64, r ByteReader) error {
	o.Group = d.group
	if flags&0x08 == 0 {
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

func (d *FetchDecoder) decodeSubgroup(o *FetchObject, flags uint64, r ByteReader) (err error) {
	if o.Datagram {
		return nil
	}
	switch flags & 0x03 {
	case 0x01, 0x02:
		if !d.hasSubgroup {
			return violation("fetch object refers to a prior subgroup")
		}
		o.Subgroup = d.subgroup + flags&0x03 - 1
	case 0x03:
		if o.Subgroup, err = ReadVarint(r); err != nil {
			return unexpected(err)
		}
	}
	return nil
}

func (d *FetchDecoder) decodeObject(o *FetchObject, flags uint64, r ByteReader) error {
	if flags&0x04 == 0 {
		o.Object = d.id + 1
		if o.Object == 0 {
			return violation("fetch object ID exceeds 2^64-1")
		}
		return nil
	}
	delta, err := ReadVarint(r)
	if err != nil {
		return unexpected(err)
	}
	o.Object = delta
	if flags&0x08 == 0 {
		o.Object = d.id + delta
		if o.Object < d.id {
			return violation("fetch object ID exceeds 2^64-1")
		}
	}
	return nil
}

// FetchEncoder writes the entries of one fetch stream in order.
type FetchEncoder struct{ fetchState }

// NewFetchEncoder returns an encoder for a response in the given group order.
func NewFetchEncoder(order GroupOrder) *FetchEncoder {
	return &FetchEncoder{fetchState{Order: order}}
}

// Append appends one entry's header; the payload follows it.
func (e *FetchEncoder) Append(b []byte, o FetchObject) ([]byte, error) {
	var flags uint64
	if !e.started || o.Group != e.group || o.Range != RangeNone {
		flags |= 0x08
	}
	if flags&0x08 != 0 || o.Object != e.id+1 {
		flags |= 0x04
	}
	if o.Range == RangeNone {
		switch {
		case o.Datagram:
			flags |= 0x40
		case o.Subgroup == 0:
		case e.hasSubgroup && o.Subgroup == e.subgroup:
			flags |= 0x01
		default:
			flags |= 0x03
		}
		if !e.hasPriority || o.Priority != e.priority {
			flags |= 0x10
		}
		if len(o.Properties) > 0 {
			flags |= 0x20
		}
		b = AppendVarint(b, flags)
	} else {
		b = AppendVarint(b, uint64(o.Range))
	}
	if flags&0x08 != 0 {
		delta := o.Group
		switch {
		case !e.started:
		case e.Order == Descending:
			delta = e.group - o.Group - 1
			if o.Group >= e.group {
				return nil, errors.New("moqt: fetched groups must descend")
			}
		default:
			delta = o.Group - e.group - 1
			if o.Group <= e.group {
				return nil, errors.New("moqt: fetched groups must ascend")
			}
		}
		b = AppendVarint(b, delta)
	}
	if flags&0x43 == 0x03 {
		b = AppendVarint(b, o.Subgroup)
	}
	if flags&0x04 != 0 {
		delta := o.Object
		if flags&0x08 == 0 {
			if o.Object <= e.id {
				return nil, errors.New("moqt: fetched objects of a group must ascend")
			}
			delta = o.Object - e.id
		}
		b = AppendVarint(b, delta)
	}
	if o.Range == RangeNone {
		if flags&0x10 != 0 {
			b = append(b, o.Priority)
		}
		if flags&0x20 != 0 {
			b = appendBytes(b, o.Properties)
		}
		b = AppendVarint(b, o.PayloadLength)
	}
	e.advance(&o)
	return b, nil
}
