package secureobjects

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"sync/atomic"

	"holocast/internal/moqt/wire"
)

// Values of MSF's catalog fields encryptionScheme and cipherSuite (draft-ietf-moq-msf-01 §5.2.38 and
// §5.2.39).
const (
	Scheme = "moq-secure-objects"
	Suite  = "aes-128-gcm-sha256"
)

// suite is the number of AES_128_GCM_SHA256_128 (§7.2), with its key, nonce and tag sizes in bytes.
const (
	suite     = 0x0004
	keySize   = 16
	nonceSize = 12
	tagSize   = 16
)

// Property types (§4).
const (
	propertyKeyID     = 0x02
	propertyEncrypted = 0x0a
)

// MaxOverhead bounds in bytes what sealing adds to an object below 2 MiB: the tag, the lengths of
// payload and properties, and the Key ID in its properties.
const MaxOverhead = tagSize + 3 + 5 + 4 + 8

// A Key ID on the wire is the key's ID and the run: a random number that the publisher draws at its
// start, at a rotation, and when a key's usage limit is near. Even if a publisher's clock was set
// back and its group IDs repeat, it seals with other keys than before.
const runBits = 24

// maxKeyID is the exclusive upper bound of Key IDs.
const maxKeyID = (MaxID + 1) << runBits

// Usage limits of one derived key (§6.1, draft-irtf-cfrg-aead-limits-11 §5.1): with at most maxBlocks
// blocks of 16 bytes sealed, an attacker's advantage stays below 2^-57. maxForged bounds failed
// openings far below the integrity limit.
const (
	maxBlocks = 1 << 36
	maxForged = 1 << 32
)

// objectKey seals or opens the objects of one track under one Key ID. It is safe for concurrent use.
type objectKey struct {
	aead   cipher.AEAD
	salt   [nonceSize]byte
	blocks atomic.Uint64 // sealed, plus one per object
	forged atomic.Uint64 // failed openings
}

// fullTrackName serializes a track's full name (§3.3.1).
func fullTrackName(t wire.TrackName) []byte {
	b := wire.AppendVarint(nil, uint64(len(t.Namespace)))
	for _, f := range t.Namespace {
		b = append(wire.AppendVarint(b, uint64(len(f))), f...)
	}
	return append(wire.AppendVarint(b, uint64(len(t.Name))), t.Name...)
}

// derive returns a track's key and salt (§3.7).
func derive(secret, track []byte, keyID uint64) (key, salt []byte, err error) {
	prk, err := hkdf.Extract(sha256.New, secret, nil)
	if err != nil {
		return nil, nil, err
	}
	label := func(text string) string {
		b := append([]byte(text), track...)
		return string(binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint16(b, suite), keyID))
	}
	if key, err = hkdf.Expand(sha256.New, prk, label("MOQ 1.0 Secure Objects Secret key "), keySize); err != nil {
		return nil, nil, err
	}
	salt, err = hkdf.Expand(sha256.New, prk, label("MOQ 1.0 Secret salt "), nonceSize)
	return key, salt, err
}

func newObjectKey(secret, track []byte, keyID uint64) (*objectKey, error) {
	key, salt, err := derive(secret, track, keyID)
	if err != nil {
		return nil, fmt.Errorf("secureobjects: %w", err)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("secureobjects: %w", err)
	}
	k := &objectKey{salt: [nonceSize]byte(salt)}
	if k.aead, err = cipher.NewGCM(block); err != nil {
		return nil, fmt.Errorf("secureobjects: %w", err)
	}
	return k, nil
}

// Location is an object's place and priority as the publisher sealed it.
type Location struct {
	Group    uint64
	Object   uint64 // below 2^32
	Priority uint8
}

var errObjectID = errors.New("secureobjects: object IDs above 2^32-1 cannot be encrypted")

// scratch holds the inputs of one call, which would otherwise be allocated.
type scratch struct {
	nonce [nonceSize]byte
	aad   []byte
}

// set computes nonce (§3.6) and additional data (§3.5). immutable holds the key-value pairs in the
// object's Immutable Properties, as on the wire.
func (s *scratch) set(salt *[nonceSize]byte, l Location, immutable []byte) error {
	if l.Object > math.MaxUint32 {
		return errObjectID
	}
	s.aad = binary.BigEndian.AppendUint64(s.aad[:0], l.Group)
	s.aad = binary.BigEndian.AppendUint32(s.aad, uint32(l.Object))
	for i, c := range s.aad {
		s.nonce[i] = salt[i] ^ c
	}
	s.aad = append(append(s.aad, l.Priority), immutable...)
	return nil
}
