package secureobjects

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"holocast/internal/moqt/wire"
)

// Publisher seals a session's objects. It is safe for concurrent use.
type Publisher struct {
	mu    sync.Mutex
	key   Key
	keyID uint64
}

// NewPublisher returns a publisher that seals with the newest key.
func NewPublisher(k *Keys) *Publisher {
	p := &Publisher{}
	p.Replace(k)
	return p
}

// Replace seals later objects with the newest key of k.
func (p *Publisher) Replace(k *Keys) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.key = k.Newest()
	p.draw()
}

// draw changes the run. p.mu is held.
func (p *Publisher) draw() {
	before := p.keyID
	for p.keyID == before {
		var b [4]byte
		_, _ = rand.Read(b[:]) // never fails
		p.keyID = uint64(p.key.ID)<<runBits | uint64(binary.BigEndian.Uint32(b[:])>>(32-runBits))
	}
}

// KeyID returns the current Key ID.
func (p *Publisher) KeyID() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.keyID
}

// current returns the Key ID and its secret.
func (p *Publisher) current() (keyID uint64, secret []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.keyID, p.key.Secret
}

// exhausted changes the run unless it changed since keyID.
func (p *Publisher) exhausted(keyID uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.keyID == keyID {
		p.draw()
	}
}

// Sealer seals the objects of one track. It is safe for concurrent use.
type Sealer struct {
	p     *Publisher
	track []byte

	mu      sync.Mutex
	keyID   uint64
	key     *objectKey
	window  window
	scratch scratch
	limit   uint64 // blocks per key
}

// Sealer returns the sealer of a track. A track must have only one.
func (p *Publisher) Sealer(track wire.TrackName) *Sealer {
	return &Sealer{p: p, track: fullTrackName(track), limit: maxBlocks}
}

// ErrAgain means that a location was sealed before, or is too old to know. A second object there would
// reveal both.
var ErrAgain = errors.New("secureobjects: an object of this location was sealed before")

// Seal encrypts an object's payload and properties. It appends to dst first the sealed object's
// properties, its Key ID, and then its payload, and returns both. payload must not overlap dst.
func (s *Sealer) Seal(dst []byte, l Location, properties, payload []byte) (sealedProperties, sealed []byte, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seal(dst, l, properties, payload)
}

// seal does Seal's work. s.mu is held.
func (s *Sealer) seal(dst []byte, l Location, properties, payload []byte) (sealedProperties, sealed []byte, err error) {
	if err := s.renew(uint64(len(payload)+len(properties))/16 + 4); err != nil {
		return nil, nil, err
	}
	dst = grow(dst, len(properties)+len(payload)+MaxOverhead)
	from := len(dst)
	dst, immutable := appendProperties(dst, s.keyID)
	to := len(dst)
	if err := s.scratch.set(&s.key.salt, l, immutable); err != nil {
		return nil, nil, err
	}
	if !s.window.add(l.Group, l.Object) {
		return nil, nil, fmt.Errorf("%w: group %d, object %d", ErrAgain, l.Group, l.Object)
	}
	dst = wire.AppendVarint(dst, uint64(len(payload)))
	dst = append(dst, payload...)
	if len(properties) > 0 {
		dst = append(dst, propertyEncrypted>>8, propertyEncrypted)
		dst = append(wire.AppendVarint(dst, uint64(len(properties))), properties...)
	}
	dst = s.key.aead.Seal(dst[:to], s.scratch.nonce[:], dst[to:], s.scratch.aad)
	return dst[from:to:to], dst[to:], nil
}

// renew derives the key of the current Key ID, and counts blocks. s.mu is held.
func (s *Sealer) renew(blocks uint64) error {
	for {
		keyID, secret := s.p.current()
		if s.key == nil || s.keyID != keyID {
			key, err := newObjectKey(secret, s.track, keyID)
			if err != nil {
				return err
			}
			s.key, s.keyID = key, keyID
		}
		if s.key.blocks.Add(blocks) <= s.limit || blocks > s.limit {
			return nil
		}
		s.p.exhausted(keyID)
	}
}

// grow returns b with room for n more bytes.
func grow(b []byte, n int) []byte {
	if cap(b)-len(b) >= n {
		return b
	}
	return append(make([]byte, 0, len(b)+n), b...)
}

// appendProperties appends the properties of a sealed object: Immutable Properties with the Key ID. It
// returns their content too.
func appendProperties(b []byte, keyID uint64) (out, immutable []byte) {
	size := wire.VarintLen(propertyKeyID) + wire.VarintLen(keyID)
	b = wire.AppendVarint(wire.AppendVarint(b, wire.PropertyImmutable), uint64(size))
	from := len(b)
	b = wire.AppendVarint(wire.AppendVarint(b, propertyKeyID), keyID)
	return b, b[from:]
}
