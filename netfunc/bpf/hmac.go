package bpf

import (
	"crypto/sha256"
	"encoding"
	"encoding/binary"
	"fmt"
	"hash"
)

// hmacStates returns the SHA-256 states after the inner and outer key blocks (RFC 2104 §4), from
// which the kernel program continues.
func hmacStates(key []byte) (inner, outer [8]uint32, err error) {
	if len(key) > sha256.BlockSize {
		sum := sha256.Sum256(key)
		key = sum[:]
	}
	if inner, err = stateAfter(key, 0x36); err != nil {
		return
	}
	outer, err = stateAfter(key, 0x5c)
	return
}

// stateAfter hashes the key, padded to a block and XORed with pad.
func stateAfter(key []byte, pad byte) (state [8]uint32, err error) {
	var block [sha256.BlockSize]byte
	copy(block[:], key)
	for i := range block {
		block[i] ^= pad
	}
	h := sha256.New()
	h.Write(block[:])
	return digestState(h)
}

// digestState returns the state of a SHA-256 digest. The standard library's digest marshals it as four
// magic bytes followed by the eight words.
func digestState(h hash.Hash) (state [8]uint32, err error) {
	m, ok := h.(encoding.BinaryMarshaler)
	if !ok {
		return state, fmt.Errorf("signalling key: %T cannot marshal its state", h)
	}
	b, err := m.MarshalBinary()
	if err != nil {
		return state, fmt.Errorf("signalling key: marshal the state of %T: %w", h, err)
	}
	if len(b) < 36 || string(b[:4]) != "sha\x03" {
		return state, fmt.Errorf("signalling key: the state of %T has an unknown encoding", h)
	}
	for i := range state {
		state[i] = binary.BigEndian.Uint32(b[4+4*i:])
	}
	return state, nil
}
