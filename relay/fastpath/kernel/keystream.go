//go:build linux && (amd64 || arm64)

package kernel

import (
	"crypto/cipher"
	"encoding/binary"
	"runtime"
	"sync/atomic"
	"unsafe"

	"golang.org/x/crypto/chacha20poly1305"
)

// precomputes: key streams are written in the order that KeyStreams needs on x86-64 alone, and
// only there ChaCha20 is much faster in this process than in the programs.
const precomputes = runtime.GOARCH == "amd64"

// Ahead is how many packets of a viewer there are key streams for.
const PrecomputedPackets = int64(len(fastpathKeyStreams{}.Of))

// KeyStreams are what the texts of a viewer's next packets are encrypted with, made before
// the texts are known: four fifths of the time that sealing takes in the programs. Each is
// for one packet number, which the programs use once. One goroutine calls the methods at a time.
type KeyStreams struct{ shared fastpathKeyStreams }

// Cipher makes the key streams under one key.
type Cipher struct {
	aead  cipher.AEAD
	iv    [chacha20poly1305.NonceSize]byte
	zeros []byte
}

// NewCipher returns one for a direction and key phase.
func NewCipher(k Keys) (*Cipher, error) {
	a, err := chacha20poly1305.New(k.Key)
	if err != nil {
		return nil, err
	}
	c := &Cipher{aead: a, zeros: make([]byte, keyStreamSize-chacha20poly1305.Overhead)}
	copy(c.iv[:], k.IV)
	return c, nil
}

const keyStreamSize = int(unsafe.Sizeof(fastpathKeyStreams{}.Of[0].Words))

// Make makes the key stream of a packet for a text of up to length bytes, in the place of
// that of the packet Ahead numbers before.
func (s *KeyStreams) Make(c *Cipher, number int64, length int) {
	k := &s.shared.Of[number%PrecomputedPackets]
	atomic.StoreUint64(&k.Number, 0)
	length = min((length+7)&^7, len(c.zeros))
	nonce := c.iv
	binary.BigEndian.PutUint64(nonce[4:], binary.BigEndian.Uint64(nonce[4:])^uint64(number))
	// What zeros are encrypted to; the tag behind it is of no use.
	stream := unsafe.Slice((*byte)(unsafe.Pointer(&k.Words[0])), keyStreamSize)
	c.aead.Seal(stream[:0], nonce[:], c.zeros[:length], nil)
	k.Length = uint64(length)
	atomic.StoreUint64(&k.Number, uint64(number)+1)
}

// Clear forgets all.
func (s *KeyStreams) Clear() {
	for i := range s.shared.Of {
		atomic.StoreUint64(&s.shared.Of[i].Number, 0)
	}
}
