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

// precomputes is true where key streams are precomputed. This is limited to x86-64, where the layout
// that KeyStreams needs is implemented and ChaCha20 is much faster in user space than in the
// programs.
const precomputes = runtime.GOARCH == "amd64"

// PrecomputedPackets is the number of key streams per viewer.
const PrecomputedPackets = int64(len(fastpathKeyStreams{}.Of))

// KeyStreams holds precomputed key streams for a viewer's next packets, which save the programs four
// fifths of the sealing time. Each is for one packet number and is used once. KeyStreams is not safe
// for concurrent use.
type KeyStreams struct{ shared fastpathKeyStreams }

// Cipher computes key streams for one key.
type Cipher struct {
	aead  cipher.AEAD
	iv    [chacha20poly1305.NonceSize]byte
	zeros []byte
}

// NewCipher returns the cipher for a direction and key phase.
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

// Make computes a packet's key stream for a text of up to length bytes. It replaces the key stream of
// the packet PrecomputedPackets numbers earlier.
func (s *KeyStreams) Make(c *Cipher, number int64, length int) {
	k := &s.shared.Of[number%PrecomputedPackets]
	atomic.StoreUint64(&k.Number, 0)
	length = min((length+7)&^7, len(c.zeros))
	nonce := c.iv
	binary.BigEndian.PutUint64(nonce[4:], binary.BigEndian.Uint64(nonce[4:])^uint64(number))
	// Encrypting zeros yields the key stream; the tag after it is unused.
	stream := unsafe.Slice((*byte)(unsafe.Pointer(&k.Words[0])), keyStreamSize)
	c.aead.Seal(stream[:0], nonce[:], c.zeros[:length], nil)
	k.Length = uint64(length)
	atomic.StoreUint64(&k.Number, uint64(number)+1)
}

// Clear removes all key streams.
func (s *KeyStreams) Clear() {
	for i := range s.shared.Of {
		atomic.StoreUint64(&s.shared.Of[i].Number, 0)
	}
}
