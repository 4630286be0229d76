package fastpath

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/crypto/chacha20"
	"golang.org/x/crypto/chacha20poly1305"
)

// keyLog collects the traffic secrets logged by crypto/tls.
type keyLog struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (k *keyLog) Write(b []byte) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.text.Write(b)
}

// secret returns the secret with the given label, such as CLIENT_TRAFFIC_SECRET_0.
func (k *keyLog) secret(label string) ([]byte, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for line := range bytes.Lines(k.text.Bytes()) {
		if f := bytes.Fields(line); len(f) == 3 && string(f[0]) == label {
			return hex.DecodeString(string(f[2]))
		}
	}
	return nil, fmt.Errorf("TLS logged no %s", label)
}

// opener decrypts short-header packets of one direction of a connection whose cipher suite has
// 32-byte secrets (RFC 9001, Section 5).
type opener struct {
	idLen   int
	chacha  bool
	secret  []byte
	phase   byte
	aead    cipher.AEAD
	iv      []byte
	hp      []byte
	largest int64
}

func newOpener(secret []byte, chacha bool, idLen int) (*opener, error) {
	if len(secret) != sha256.Size {
		return nil, fmt.Errorf("traffic secret has %d bytes: only SHA-256 cipher suites are supported", len(secret))
	}
	o := &opener{idLen: idLen, chacha: chacha, secret: secret, largest: -1}
	o.hp = expand(secret, "quic hp", o.keyLen())
	return o, o.setKeys()
}

func (o *opener) keyLen() int {
	if o.chacha {
		return chacha20poly1305.KeySize
	}
	return 16
}

func (o *opener) setKeys() (err error) {
	key := expand(o.secret, "quic key", o.keyLen())
	o.iv = expand(o.secret, "quic iv", 12)
	if o.chacha {
		o.aead, err = chacha20poly1305.New(key)
		return err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return err
	}
	o.aead, err = cipher.NewGCM(block)
	return err
}

// expand is HKDF-Expand-Label (RFC 8446, Section 7.1) with an empty context.
func expand(secret []byte, label string, n int) []byte {
	info := binary.BigEndian.AppendUint16(nil, uint16(n))
	info = append(info, byte(len("tls13 ")+len(label)))
	info = append(append(info, "tls13 "...), label...)
	out, err := hkdf.Expand(sha256.New, secret, string(append(info, 0)), n)
	if err != nil {
		panic(err) // only for absurd lengths
	}
	return out
}

func (o *opener) mask(sample []byte) []byte {
	mask := make([]byte, 16)
	if o.chacha {
		c, _ := chacha20.NewUnauthenticatedCipher(o.hp, sample[4:])
		c.SetCounter(binary.LittleEndian.Uint32(sample))
		c.XORKeyStream(mask, mask)
		return mask
	}
	block, _ := aes.NewCipher(o.hp)
	block.Encrypt(mask, sample)
	return mask
}

var errNotOurs = errors.New("not a short-header packet of this connection")

// open returns a packet's number and frames.
func (o *opener) open(b []byte) (number int64, frames []byte, err error) {
	at := 1 + o.idLen
	if len(b) < at+20 || b[0]&0xc0 != 0x40 {
		return 0, nil, errNotOurs
	}
	b = bytes.Clone(b)
	mask := o.mask(b[at+4 : at+20])
	b[0] ^= mask[0] & 0x1f
	n := int(b[0]&3) + 1
	var truncated int64
	for i := range n {
		b[at+i] ^= mask[1+i]
		truncated = truncated<<8 | int64(b[at+i])
	}
	window := int64(1) << (8 * n)
	number = (o.largest+1)&^(window-1) | truncated
	if number+window/2 <= o.largest+1 {
		number += window
	} else if number > o.largest+1+window/2 && number >= window {
		number -= window
	}
	if b[0]>>2&1 != o.phase {
		next := *o
		next.secret, next.phase = expand(o.secret, "quic ku", sha256.Size), o.phase^1
		if err := next.setKeys(); err != nil {
			return 0, nil, err
		}
		if frames, err = next.openWith(b, at+n, number); err != nil {
			return 0, nil, err
		}
		*o = next
	} else if frames, err = o.openWith(b, at+n, number); err != nil {
		return 0, nil, err
	}
	o.largest = max(o.largest, number)
	return number, frames, nil
}

func (o *opener) openWith(b []byte, header int, number int64) ([]byte, error) {
	nonce := bytes.Clone(o.iv)
	for i := range 8 {
		nonce[4+i] ^= byte(number >> (56 - 8*i))
	}
	return o.aead.Open(nil, nonce, b[header:], b[:header])
}

// marker starts each payload; the sequence number follows in 8 bytes.
var marker = []byte("holocast fastpath bench ")

// payload returns one object's payload.
func payload(sequence uint64) []byte {
	b := make([]byte, payloadSize)
	binary.BigEndian.PutUint64(b[copy(b, marker):], sequence)
	return b
}

// sequenceIn finds the sequence number in decrypted data.
func sequenceIn(b []byte) (uint64, bool) {
	i := bytes.Index(b, marker)
	if i < 0 || len(b) < i+len(marker)+8 {
		return 0, false
	}
	return binary.BigEndian.Uint64(b[i+len(marker):]), true
}
