// Package signal implements the signalling packet with which the controller sets the paths over
// which a sender edge duplicates packets to a destination. It is the IPv4 packet with ToS indicator
// of Qian et al., "Enabling eBPF-based packet duplication for robust volumetric video streaming",
// section III, plus a nonce and an HMAC. docs/spec/signalling.md describes its bytes.
//
// The sender's kernel program verifies the packet. This package creates and sends it, and verifies it
// in the same way for tests.
package signal

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"holocast/netfunc/pathset"
)

// The message is the whole payload of a UDP datagram, in network byte order. The positions of
// magic, version, nonce and HMAC are the same in every version:
//
//	 0  magic "HCSG"
//	 4  version u8 = 2
//	 5  paths u8: bit i = path i+1; 0x00 = off, 0xff = all eight
//	 6  reserved u16 = 0
//	 8  nonce u64: UNIX time in nanoseconds, strictly increasing
//	16  destination, 16 bytes: IPv6, or IPv4-mapped IPv6 (RFC 4291 §2.5.5.2)
//	32  HMAC-SHA256 over bytes 0 to 31, with the EdgeKey of the addressed edge
//
// In version 1, paths 0xff meant off, as in the paper, so it could not express all eight paths.
const (
	Size    = 64
	Version = 2
	Magic   = "HCSG"

	signed = 32 // bytes covered by the HMAC
)

const (
	// Port is the default UDP port for signalling at a sender edge.
	Port = 4790
	// ToS marks an IPv4 packet as signalling: DSCP 63, from the pool for local use (RFC 2474 §6),
	// and no ECN.
	ToS = 0xfc
)

// Reasons for rejecting a message. An unsupported version is a VersionError.
var (
	// ErrMalformed means a wrong length, magic or destination, or reserved bits that are not 0.
	ErrMalformed = errors.New("malformed signalling message")
	// ErrSpoofed means that the HMAC does not match the key.
	ErrSpoofed = errors.New("signalling message with a wrong HMAC")
	// ErrReplayed means that the nonce is not above the last one accepted.
	ErrReplayed = errors.New("replayed signalling message")
)

// VersionError is the unsupported version of a message whose HMAC is valid.
type VersionError uint8

func (v VersionError) Error() string {
	return fmt.Sprintf(
		"signalling message of version %d, want version %d: upgrade the controller and all edges together",
		uint8(v),
		Version,
	)
}

// Message sets the paths of a destination.
type Message struct {
	Destination netip.Addr  // without zone
	Paths       pathset.Set // empty = off
	Nonce       uint64
}

// Append appends the message, signed with key, to b.
func (m Message) Append(b []byte, key []byte) ([]byte, error) {
	if !m.Destination.IsValid() || m.Destination.Zone() != "" {
		return b, fmt.Errorf("destination %s: want an IP address without a zone", m.Destination)
	}
	start := len(b)
	b = append(b, Magic...)
	b = append(b, Version, uint8(m.Paths), 0, 0)
	b = binary.BigEndian.AppendUint64(b, m.Nonce)
	dst := m.Destination.As16()
	b = append(b, dst[:]...)
	return appendMAC(b, b[start:], key), nil
}

// appendMAC appends the HMAC of text to b.
func appendMAC(b, text, key []byte) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write(text)
	return mac.Sum(b)
}

// Parse decodes a message and verifies its HMAC. A Guard also checks the nonce. The error is
// ErrMalformed, ErrSpoofed or a VersionError.
func Parse(b []byte, key []byte) (Message, error) {
	if len(b) != Size || string(b[:4]) != Magic {
		return Message{}, ErrMalformed
	}
	dst := netip.AddrFrom16([16]byte(b[16:32])).Unmap()
	if b[4] == Version && (b[6] != 0 || b[7] != 0 || dst.IsUnspecified()) {
		return Message{}, ErrMalformed
	}
	if !hmac.Equal(appendMAC(nil, b[:signed], key), b[signed:]) {
		return Message{}, ErrSpoofed
	}
	if b[4] != Version {
		return Message{}, VersionError(b[4])
	}
	return Message{Destination: dst, Paths: pathset.Set(b[5]), Nonce: binary.BigEndian.Uint64(b[8:])}, nil
}

// Guard accepts messages with strictly increasing nonces across all destinations of an edge, like the
// kernel program. The zero Guard has accepted none.
type Guard struct{ last uint64 }

// Last returns the highest nonce accepted.
func (g *Guard) Last() uint64 { return g.last }

// Accept parses a message and checks its nonce, and returns ErrReplayed or an error of Parse if it
// rejects the message. A rejected message leaves the guard unchanged.
func (g *Guard) Accept(b []byte, key []byte) (Message, error) {
	m, err := Parse(b, key)
	if err != nil {
		return Message{}, err
	}
	if m.Nonce <= g.last {
		return Message{}, ErrReplayed
	}
	g.last = m.Nonce
	return m, nil
}
