package moqt

import "holocast/internal/moqt/wire"

// Opener decrypts received objects; package secureobjects has an implementation.
type Opener interface {
	// OpenTrack returns the opener for one subscription to a track or one fetch of it, or nil if its
	// objects are not encrypted. properties are the track's.
	OpenTrack(track TrackName, properties Properties) ObjectOpener
}

// ObjectOpener decrypts the objects of one subscription or fetch. It is called concurrently.
type ObjectOpener interface {
	// Open returns an object's properties and payload. The payload may be decrypted in place. If ok
	// is false, the object is refused: readers skip it.
	Open(l Location, priority uint8, p Properties, sealed []byte) (properties Properties, payload []byte, ok bool)
}

// maxSealed bounds the payload of an encrypted object in bytes. A larger one is skipped.
const maxSealed = 64 << 20

// openTrack returns the opener of a track's objects, or nil.
func (s *Session) openTrack(track TrackName, p Properties) ObjectOpener {
	if s.opener == nil {
		return nil
	}
	return s.opener.OpenTrack(track, p)
}

// openedPayload is the decrypted payload of a reader's current object.
type openedPayload struct {
	b   []byte
	set bool
}

// take returns the payload, in buf if that has room.
func (o *openedPayload) take(buf []byte, limit int) ([]byte, error) {
	if len(o.b) > limit {
		return buf, ErrObjectTooLarge
	}
	b := o.b
	if cap(buf) >= len(b) {
		return append(buf[:0], b...), nil
	}
	o.b = nil // the caller's now
	return b, nil
}

// read reads from the rest of the payload.
func (o *openedPayload) read(p []byte) int {
	n := copy(p, o.b)
	o.b = o.b[n:]
	return n
}

// open decrypts an object whose payload has n bytes. read reads them into a buffer. If ok is false the
// object is to be skipped.
func (o *openedPayload) open(
	t ObjectOpener, l Location, priority uint8, p *Properties, n *uint64, read func(buf []byte) ([]byte, error),
) (ok bool, err error) {
	if *n > maxSealed {
		return false, nil
	}
	sealed, err := read(o.b)
	if err != nil {
		return false, err
	}
	properties, payload, ok := t.Open(l, priority, *p, sealed)
	if !ok {
		o.b = sealed[:0]
		return false, nil
	}
	o.b, o.set = payload, true
	*p, *n = properties, uint64(len(payload))
	return true, nil
}

// openDatagram decrypts a datagram's object. It returns false if the datagram is to be dropped.
func openDatagram(t ObjectOpener, d *Datagram) bool {
	if t == nil || d.Status != wire.StatusNormal {
		return true
	}
	var ok bool
	d.Properties, d.Payload, ok = t.Open(
		Location{Group: d.Group, Object: d.Object}, d.Priority, d.Properties, d.Payload,
	)
	return ok
}
