//go:build linux && (amd64 || arm64)

package kernel

import (
	"encoding/binary"
	"errors"
	"testing"

	"golang.org/x/crypto/chacha20"
	"golang.org/x/crypto/chacha20poly1305"
)

// keys are the keys of one direction with TLS_CHACHA20_POLY1305_SHA256.
type keys struct {
	Keys
	header []byte
}

func newKeys() keys { return keys{Keys{Key: random(32), IV: random(12)}, random(32)} }

func (k keys) nonce(number int64) []byte {
	nonce := append([]byte(nil), k.IV...)
	for i := range 8 {
		nonce[4+i] ^= byte(number >> (56 - 8*i))
	}
	return nonce
}

func (k keys) mask(sample []byte) []byte {
	c, _ := chacha20.NewUnauthenticatedCipher(k.header, sample[4:])
	c.SetCounter(binary.LittleEndian.Uint32(sample))
	mask := make([]byte, 5)
	c.XORKeyStream(mask, mask)
	return mask
}

// seal returns a short-header packet (RFC 9001 section 5) with a packet number of numberLen bytes.
func (k keys) seal(id []byte, number int64, numberLen int, phase byte, frames []byte) []byte {
	b := append([]byte{0x40 | phase<<2 | byte(numberLen-1)}, id...)
	at := len(b)
	for i := numberLen - 1; i >= 0; i-- {
		b = append(b, byte(number>>(8*i)))
	}
	a, _ := chacha20poly1305.New(k.Key)
	b = a.Seal(b, k.nonce(number), frames, b)
	mask := k.mask(b[at+4 : at+20])
	b[0] ^= mask[0] & 0x1f
	for i := range numberLen {
		b[at+i] ^= mask[1+i]
	}
	return b
}

// open opens a packet whose number is below 2^24.
func (k keys) open(b []byte, idLen int) (number int64, phase byte, frames []byte, err error) {
	b = append([]byte(nil), b...)
	if len(b) < 1+idLen+20 {
		return 0, 0, nil, errors.New("too short")
	}
	mask := k.mask(b[1+idLen+4:][:16])
	b[0] ^= mask[0] & 0x1f
	n := int(b[0]&3) + 1
	for i := range n {
		b[1+idLen+i] ^= mask[1+i]
		number = number<<8 | int64(b[1+idLen+i])
	}
	if b[0]&0x18 != 0 || b[0]&0xc0 != 0x40 {
		return 0, 0, nil, errors.New("wrong bits in the first byte")
	}
	a, _ := chacha20poly1305.New(k.Key)
	frames, err = a.Open(nil, k.nonce(number), b[1+idLen+n:], b[:1+idLen+n])
	return number, b[0] >> 2 & 1, frames, err
}

// TestSealOpen tests seal and open.
func TestSealOpen(t *testing.T) {
	k := newKeys()
	for n := 1; n <= 4; n++ {
		number, phase, frames, err := k.open(k.seal([]byte{1, 2, 3}, 77, n, 1, []byte("frames")), 3)
		if err != nil || number != 77 || phase != 1 || string(frames) != "frames" {
			t.Fatal(number, phase, frames, err)
		}
	}
}
