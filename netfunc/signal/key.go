package signal

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"fmt"

	"holocast/internal/secretfile"
)

// KeySize is the length of GenerateKey's keys in bytes. ReadKey accepts MinKey to MaxKey bytes, since
// HMAC-SHA256 would hash a longer key first (RFC 2104 §2).
const (
	KeySize = 32
	MinKey  = 16
	MaxKey  = 64
)

// GenerateKey returns a new random key.
func GenerateKey() []byte {
	k := make([]byte, KeySize)
	_, _ = rand.Read(k) // never fails (crypto/rand)
	return k
}

// EdgeKey derives the key for one edge's messages from the common key, as the HMAC-SHA256 of "edge "
// and the edge's name. A message for one edge fails verification at any other.
func EdgeKey(key []byte, edge string) []byte { return appendMAC(nil, []byte("edge "+edge), key) }

// ReadKey reads a key file of hexadecimal digits, which other users may not read. It ignores surrounding white
// space.
func ReadKey(path string) ([]byte, error) {
	b, err := secretfile.Read(path)
	if err != nil {
		return nil, fmt.Errorf("signalling key: %w", err)
	}
	key, err := hex.DecodeString(string(bytes.TrimSpace(b)))
	if err != nil || len(key) < MinKey || len(key) > MaxKey {
		return nil, fmt.Errorf("signalling key %s: want %d to %d hexadecimal digits, as \"controller key\" writes them",
			path, 2*MinKey, 2*MaxKey)
	}
	return key, nil
}
