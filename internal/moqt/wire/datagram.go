package wire

import (
	"errors"
	"fmt"
)

const datagramPadding = 0x132b3e29

// Datagram is one object sent as a datagram (§11.3.1).
type Datagram struct {
	TrackAlias      uint64
	Group           uint64
	Object          uint64
	Priority        uint8 // unset with DefaultPriority
	DefaultPriority bool
	EndOfGroup      bool // no object after this one exists in the group
	Properties      Properties
	Status          ObjectStatus // values other than StatusNormal have no payload
	Payload         []byte
}

// Append appends the datagram.
func (d *Datagram) Append(b []byte) ([]byte, error) {
	var t uint64
	if len(d.Properties) > 0 {
		t |= 0x01
	}
	if d.EndOfGroup {
		t |= 0x02
	}
	if d.Object == 0 {
		t |= 0x04
	}
	if d.DefaultPriority {
		t |= 0x08
	}
	if d.Status != StatusNormal {
		t |= 0x20
		if d.EndOfGroup || len(d.Payload) > 0 {
			return nil, errors.New("moqt: a status datagram must not have a payload or the end-of-group bit")
		}
	}
	if err := d.Status.validate(d.Properties); err != nil {
		// Do not wrap a local mistake: a wrapped *Error would end the session.
		return nil, fmt.Errorf("moqt: cannot send datagram: %v", err) //nolint:errorlint
	}
	b = AppendVarint(AppendVarint(AppendVarint(b, t), d.TrackAlias), d.Group)
	if d.Object != 0 {
		b = AppendVarint(b, d.Object)
	}
	if !d.DefaultPriority {
		b = append(b, d.Priority)
	}
	if len(d.Properties) > 0 {
		b = appendBytes(b, d.Properties)
	}
	if d.Status != StatusNormal {
		return AppendVarint(b, uint64(d.Status)), nil
	}
	return append(b, d.Payload...), nil
}

// ParseDatagram parses one datagram; its properties and payload alias b. It returns nil for padding
// (§11.5.2). With ErrMalformedTrack it also returns the datagram, so the caller can find the track.
func ParseDatagram(b []byte) (*Datagram, error) {
	c := cursor{b: b}
	t := c.varint()
	switch {
	case c.err != nil:
		return nil, violation("empty datagram")
	case t == datagramPadding:
		return nil, nil
	case t > 0x2f || t&0x10 != 0, t&0x22 == 0x22:
		return nil, violation("unknown datagram type %#x", t)
	}
	d := &Datagram{
		EndOfGroup:      t&0x02 != 0,
		DefaultPriority: t&0x08 != 0,
		TrackAlias:      c.varint(),
		Group:           c.varint(),
	}
	if t&0x04 == 0 {
		d.Object = c.varint()
	}
	if !d.DefaultPriority {
		d.Priority = c.uint8()
	}
	if t&0x01 != 0 {
		d.Properties = c.bytes(MaxObjectProperties, "datagram properties")
		if c.err == nil && len(d.Properties) == 0 {
			return nil, violation("datagram with empty properties")
		}
	}
	if t&0x20 != 0 {
		d.Status = ObjectStatus(c.varint())
		if c.err == nil && len(c.b) > 0 {
			return nil, violation("%d bytes after the status of a datagram", len(c.b))
		}
	}
	if c.err == errShort {
		return nil, violation("datagram ends inside a field")
	}
	if c.err != nil {
		return nil, c.err
	}
	if err := d.Status.validate(d.Properties); err != nil {
		return nil, err
	}
	d.Payload = c.b
	return d, d.Properties.validateObject(Location{d.Group, d.Object})
}
