package wire

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

// ObjectStatus marks an object without payload (§11.2.1.1).
type ObjectStatus uint64

// Object statuses, §11.2.1.1.
const (
	StatusNormal     ObjectStatus = 0x0
	StatusEndOfGroup ObjectStatus = 0x3
	StatusEndOfTrack ObjectStatus = 0x4
)

func (s ObjectStatus) validate(props Properties) error {
	switch s {
	case StatusNormal:
		return nil
	case StatusEndOfGroup, StatusEndOfTrack:
		if len(props) > 0 {
			return violation("properties on an object of status %#x", uint64(s))
		}
		return nil
	}
	return violation("unknown object status %#x", uint64(s))
}

// ErrMalformedTrack means that the track violates the data model (§2.4.2). It ends the
// subscription, not the session. Errors that wrap it give the reason.
var ErrMalformedTrack = errors.New("moqt: malformed track")

// validateObject checks the properties of a single object, without reference to other objects.
func (p Properties) validateObject(at Location) error {
	v := objectValidator{at: at}
	return v.list(p, false)
}

// objectValidator remembers properties that may occur only once per object.
type objectValidator struct {
	at                             Location
	immutable, groupGap, objectGap bool
}

func (v *objectValidator) list(b []byte, inImmutable bool) error {
	p := newPairs(b)
	for kv, ok := p.next(); ok; kv, ok = p.next() {
		switch {
		case mandatory(kv.Type):
			return malformed("mandatory track property %#x on an object", kv.Type)
		case kv.Type == PropertyImmutable: // §12.7
			if inImmutable || v.immutable {
				return malformed("second or nested immutable properties")
			}
			v.immutable = true
			if err := v.list(kv.Bytes, true); err != nil {
				return err
			}
		case kv.Type == PropertyPriorGroupIDGap: // §12.8
			if v.groupGap || kv.Int > v.at.Group {
				return malformed("invalid prior group ID gap %d in group %d", kv.Int, v.at.Group)
			}
			v.groupGap = true
		case kv.Type == PropertyPriorObjectIDGap: // §12.9
			if v.objectGap || kv.Int > v.at.Object {
				return malformed("invalid prior object ID gap %d at object %d", kv.Int, v.at.Object)
			}
			v.objectGap = true
		}
	}
	// A pair that violates a limit of §1.4.3 ends the session; a malformed one ends only the track
	// (§12.7).
	if e := (*Error)(nil); errors.As(p.err, &e) && e.Code == KeyValueFormattingError {
		return malformed("%s", e.Msg)
	}
	return p.err
}

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrMalformedTrack, fmt.Sprintf(format, args...))
}

// Object is the header of one object on a subgroup stream (§11.4.2), followed by PayloadLength
// bytes of payload.
type Object struct {
	ID            uint64
	Properties    Properties
	Status        ObjectStatus // StatusNormal unless PayloadLength is 0
	PayloadLength uint64
}

// ObjectDecoder reads the object headers of one subgroup stream in order. Its state changes only
// after a complete header, so a caller that runs out of bytes can retry with more.
type ObjectDecoder struct {
	Group         uint64 // from the stream header
	HasProperties bool   // PROPERTIES bit of the stream header
	started       bool
	ended         bool // an End of Group or End of Track status was read
	prev          uint64
}

// Decode reads one object header. It returns io.EOF if the stream ends before an object,
// io.ErrUnexpectedEOF inside a header.
func (d *ObjectDecoder) Decode(r ByteReader) (Object, error) {
	delta, err := ReadVarint(r)
	if err != nil {
		return Object{}, err
	}
	if d.ended {
		return Object{}, malformed("object after the end of its group") // §2.4.2
	}
	o := Object{ID: delta}
	if d.started {
		o.ID = d.prev + 1 + delta
		if o.ID <= d.prev {
			return o, violation("object ID exceeds 2^64-1")
		}
	}
	if d.HasProperties {
		if o.Properties, err = readProperties(r); err != nil {
			return o, err
		}
	}
	if o.PayloadLength, err = ReadVarint(r); err != nil {
		return o, unexpected(err)
	}
	if o.PayloadLength == 0 {
		s, err := ReadVarint(r)
		if err != nil {
			return o, unexpected(err)
		}
		o.Status = ObjectStatus(s)
	}
	if err := o.Status.validate(o.Properties); err != nil {
		return o, err
	}
	if err := o.Properties.validateObject(Location{d.Group, o.ID}); err != nil {
		return o, err
	}
	d.started, d.prev = true, o.ID
	d.ended = o.Status != StatusNormal
	return o, nil
}

// readProperties reads a length and that many bytes of properties.
func readProperties(r ByteReader) (Properties, error) {
	n, err := ReadVarint(r)
	if err != nil {
		return nil, unexpected(err)
	}
	if n > MaxObjectProperties {
		return nil, violation("object properties of %d bytes exceed %d", n, MaxObjectProperties)
	}
	if n == 0 {
		return nil, nil
	}
	// If r is a buffer, do not allocate more than it holds.
	if buf, ok := r.(interface{ Len() int }); ok && n > uint64(buf.Len()) {
		return nil, io.ErrUnexpectedEOF
	}
	p := make(Properties, n)
	if _, err := io.ReadFull(r, p); err != nil {
		return nil, unexpected(err)
	}
	return p, nil
}

// ObjectEncoder writes the object headers of one subgroup stream in order.
type ObjectEncoder struct {
	HasProperties bool
	started       bool
	ended         bool
	prev          uint64
}

// Append appends o's header. Object IDs must ascend, and nothing may follow an end of group or
// track.
func (e *ObjectEncoder) Append(b []byte, o Object) ([]byte, error) {
	if err := o.Status.validate(o.Properties); err != nil {
		// Do not wrap a local mistake: a wrapped *Error would end the session.
		return nil, fmt.Errorf("moqt: cannot send object: %v", err) //nolint:errorlint
	}
	delta := o.ID
	if e.ended {
		return nil, errors.New("moqt: the subgroup has ended")
	}
	if e.started {
		if o.ID <= e.prev {
			return nil, errors.New("moqt: object IDs of a subgroup must ascend")
		}
		delta = o.ID - e.prev - 1
	}
	switch {
	case e.HasProperties:
		b = appendBytes(AppendVarint(b, delta), o.Properties)
	case len(o.Properties) > 0:
		return nil, errors.New("moqt: the subgroup was opened without properties")
	default:
		b = AppendVarint(b, delta)
	}
	b = AppendVarint(b, o.PayloadLength)
	if o.PayloadLength == 0 {
		b = AppendVarint(b, uint64(o.Status))
	} else if o.Status != StatusNormal {
		return nil, errors.New("moqt: only a normal object may have a payload")
	}
	e.started, e.prev = true, o.ID
	e.ended = o.Status != StatusNormal
	return b, nil
}

// ObjectScanner finds the object boundaries of a subgroup stream that arrives in pieces. A relay
// uses it to forward bytes as they arrive and still know their objects.
type ObjectScanner struct {
	Decoder ObjectDecoder
	payload uint64 // remaining payload of the current object
	r       bytes.Reader
}

// Next consumes a part of b: the rest of the current payload, or one complete object header, in
// which case header is true. n is 0 if b ends inside a header; call again with b extended. All
// consumed bytes are well-formed.
func (s *ObjectScanner) Next(b []byte) (n int, o Object, header bool, err error) {
	if s.payload > 0 {
		take := min(uint64(len(b)), s.payload)
		s.payload -= take
		return int(take), o, false, nil
	}
	s.r.Reset(b)
	o, err = s.Decoder.Decode(&s.r)
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return 0, o, false, nil
	}
	if err != nil {
		return 0, o, false, err
	}
	s.payload = o.PayloadLength
	return len(b) - s.r.Len(), o, true, nil
}

// Left returns the number of payload bytes missing from the current object.
func (s *ObjectScanner) Left() uint64 { return s.payload }

// Boundary reports whether the consumed bytes end at the end of an object.
func (s *ObjectScanner) Boundary() bool { return s.payload == 0 }
