package bpf

import (
	"crypto/sha256"
	"encoding"
	"encoding/binary"
	"fmt"
)

// hmacStates returns the SHA-256 states after the inner and outer key block (RFC 2104 §4), from
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

// stateAfter hashes the key, padded to a block and XORed with pad. The standard library's digest
// marshals its state as four magic bytes followed by the eight words.
func stateAfter(key []byte, pad byte) (state [8]uint32, err error) {
	var block [sha256.BlockSize]byte
	copy(block[:], key)
	for i := range block {
		block[i] ^= pad
	}
	h := sha256.New()
	h.Write(block[:])
	m, ok := h.(encoding.BinaryMarshaler)
	if !ok {
		return state, fmt.Errorf("signalling key: %T cannot marshal its state", h)
	}
	b, err := m.MarshalBinary()
	if err != nil || len(b) < 36 || string(b[:4]) != "sha\x03" {
		return state, fmt.Errorf("signalling key: %T marshals its state in an unknown form: %w", h, err)
	}
	for i := range state {
		state[i] = binary.BigEndian.Uint32(b[4+4*i:])
	}
	return state, nil
}
