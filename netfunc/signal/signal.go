// Package signal is the signalling packet with which the controller tells a sender
// edge which paths to duplicate a destination's packets over: the IPv4 packet with
// a ToS indicator of Qian et al., "Enabling eBPF-based packet duplication for robust
// volumetric video streaming", section III, with a nonce and an HMAC in it. Its bytes are in
// docs/spec/signalling.md.
//
// The sender's kernel program verifies it; this package makes and sends it, and
// verifies it the same way for tests and for edges without that program.
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

// The message is the whole payload of a UDP datagram, network byte order. Magic, version, nonce
// and HMAC have these places in every version:
//
//	 0  magic "HCSG"
//	 4  version u8 = 2
//	 5  paths u8: bit i = path i+1; 0x00 = off, 0xff = all eight
//	 6  reserved u16 = 0
//	 8  nonce u64: UNIX time in nanoseconds, strictly increasing
//	16  destination, 16 bytes: IPv6, or IPv4 mapped into it (RFC 4291 §2.5.5.2)
//	32  HMAC-SHA256 over bytes 0 to 31, with the EdgeKey of the edge that it is for
//
// In version 1 the paths 0xff meant off, as in the paper, so that eight paths could not be said.
const (
	Size    = 64
	Version = 2
	Magic   = "HCSG"

	signed = 32 // bytes under the HMAC
)

const (
	// Port is the UDP port of a sender edge for signalling, unless it says otherwise.
	Port = 4790
	// ToS marks an IPv4 packet as signalling: DSCP 63, of the pool for local use
	// (RFC 2474 §6), and no ECN.
	ToS = 0xfc
)

// Reasons why a message is not accepted. A message of another version is a VersionError.
var (
	// ErrMalformed: wrong length, magic, reserved bits or destination.
	ErrMalformed = errors.New("malformed signalling message")
	// ErrSpoofed: the HMAC is not that of the key.
	ErrSpoofed = errors.New("signalling message with a wrong HMAC")
	// ErrReplayed: the nonce is not above the last one accepted.
	ErrReplayed = errors.New("replayed signalling message")
)

// VersionError is the version of a message that has the right HMAC, and is not Version.
type VersionError uint8

func (v VersionError) Error() string {
	return fmt.Sprintf("signalling message of version %d, where this program speaks version %d: upgrade the controller and all edges together", uint8(v), Version)
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
		return b, fmt.Errorf("destination %s is not an address without zone", m.Destination)
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

// Parse reads a message and verifies its HMAC. The error is ErrMalformed, ErrSpoofed or a
// VersionError. It does not look at the nonce: that is the Guard's part.
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

// Guard accepts messages whose nonces strictly increase, over all destinations of
// an edge, as the kernel program does. The zero Guard has accepted none.
type Guard struct{ last uint64 }

// Last is the highest nonce accepted.
func (g *Guard) Last() uint64 { return g.last }

// Accept parses a message and admits its nonce. A message that is refused, for any
// reason, leaves the guard as it was.
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
