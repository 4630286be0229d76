package wire

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

// ObjectStatus marks an object that carries no payload (§11.2.1.1).
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

// ErrMalformedTrack says that a track breaks the rules of its publisher, not of
// the session (§2.4.2): the subscription ends, the session goes on. Errors that
// wrap it say how.
var ErrMalformedTrack = errors.New("moqt: malformed track")

// validateObject checks what can be known from the properties of the one object
// at that location.
func (p Properties) validateObject(at Location) error {
	v := objectValidator{at: at}
	return v.list(p, false)
}

// objectValidator remembers which properties it met that an object may have
// only once.
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
				return malformed("prior group ID gap %d of group %d", kv.Int, v.at.Group)
			}
			v.groupGap = true
		case kv.Type == PropertyPriorObjectIDGap: // §12.9
			if v.objectGap || kv.Int > v.at.Object {
				return malformed("prior object ID gap %d of object %d", kv.Int, v.at.Object)
			}
			v.objectGap = true
		}
	}
	// A pair that breaks a limit of §1.4.3 ends the session, one that cannot be
	// read only the track (§12.7).
	if e := (*Error)(nil); errors.As(p.err, &e) && e.Code == KeyValueFormattingError {
		return malformed("%s", e.Msg)
	}
	return p.err
}

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrMalformedTrack, fmt.Sprintf(format, args...))
}

// Object is the header of one object on a subgroup stream (§11.4.2); the
// payload of PayloadLength bytes follows it.
type Object struct {
	ID            uint64
	Properties    Properties
	Status        ObjectStatus // StatusNormal unless PayloadLength is 0
	PayloadLength uint64
}

// ObjectDecoder reads the object headers of one subgroup stream in order. Its
// state changes only when a whole header was read, so a caller that runs out of
// bytes may try again with more.
type ObjectDecoder struct {
	Group         uint64 // the stream header's
	HasProperties bool   // the stream header's PROPERTIES bit
	started       bool
	ended         bool // by an End of Group or End of Track status
	prev          uint64
}

// Decode reads one object header. It returns io.EOF when the stream ends where
// an object would begin, io.ErrUnexpectedEOF inside a header.
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
	// A buffer tells what it holds: don't allocate what it cannot fill.
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

// Append appends o's header. Object IDs must ascend, and nothing may follow an
// end of group or track.
func (e *ObjectEncoder) Append(b []byte, o Object) ([]byte, error) {
	if err := o.Status.validate(o.Properties); err != nil {
		return nil, fmt.Errorf("moqt: cannot send object: %v", err) //nolint:errorlint // our mistake: no *Error, which would end the session
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
		return nil, errors.New("moqt: only a normal object has a payload")
	}
	e.started, e.prev = true, o.ID
	e.ended = o.Status != StatusNormal
	return b, nil
}

// ObjectScanner follows the object boundaries of a subgroup stream that arrives
// in pieces of any size, so that a relay can pass the bytes on as they come and
// still know which object they belong to.
type ObjectScanner struct {
	Decoder ObjectDecoder
	payload uint64 // bytes of the current object still to come
	r       bytes.Reader
}

// Next consumes what it can of b: the rest of the current payload, or one whole
// object header, in which case header is true. n is 0 when b ends inside a
// header; call again with b extended. Every byte consumed is well-formed.
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

// Left is how many bytes of the current object's payload are still to come.
func (s *ObjectScanner) Left() uint64 { return s.payload }

// Boundary reports whether the bytes so far end where an object ends.
func (s *ObjectScanner) Boundary() bool { return s.payload == 0 }
