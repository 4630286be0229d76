// Package signaltest holds signalling messages created independently of package signal, as test
// vectors for that package and the kernel programs.
package signaltest

import (
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"net/netip"
	"testing"

	"holocast/netfunc/pathset"
)

//go:embed messages.json
var messages []byte

// Vectors are messages for one edge.
type Vectors struct {
	Key      Hex // the signalling key
	Edge     string
	EdgeKey  Hex // derived from both
	Messages []Message
}

// Message is a message that is processed after the ones before it. Paths, Destination and Nonce are
// set if it is applied.
type Message struct {
	Name        string
	Verdict     string // "applied", "malformed", "spoofed", "version N" or "replayed"
	Message     Hex
	Paths       pathset.Set
	Destination netip.Addr
	Nonce       uint64 `json:",string"`
}

// Hex is a byte string, written as hexadecimal digits in JSON.
type Hex []byte

// UnmarshalText implements encoding.TextUnmarshaler.
func (h *Hex) UnmarshalText(b []byte) (err error) {
	*h, err = hex.DecodeString(string(b))
	return err
}

// Load returns the messages.
func Load(t testing.TB) (v Vectors) {
	t.Helper()
	if err := json.Unmarshal(messages, &v); err != nil {
		t.Fatal(err)
	}
	if len(v.Messages) == 0 {
		t.Fatal("there are no messages")
	}
	return v
}
