// Package signal is the signalling packet with which the controller tells a sender
// edge which paths to duplicate a destination's packets over: the IPv4 packet with
// a ToS indicator of Qian et al., "Enabling eBPF-based packet duplication for robust
// volumetric video streaming", section III, with a nonce and an HMAC in it.
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
)

// The message is the whole payload of a UDP datagram, network byte order:
//
//	 0  magic "HCSG"
//	 4  version u8 = 1
//	 5  policy u8: bit i = path i+1; 0x00 and 0xff = off
//	 6  reserved u16 = 0
//	 8  nonce u64: UNIX time in nanoseconds, strictly increasing
//	16  destination, 16 bytes: IPv6, or IPv4 mapped into it (RFC 4291 §2.5.5.2)
//	32  HMAC-SHA256 over bytes 0 to 31, with the EdgeKey of the edge that it is for
const (
	Size    = 64
	Version = 1
	Magic   = "HCSG"

	signed = 32 // bytes under the HMAC
)

const (
	// Port is the UDP port of a sender edge for signalling, unless it says otherwise.
	Port = 4790
	// ToS marks an IPv4 packet as signalling: DSCP 63, of the pool for local use
	// (RFC 2474 §6), and no ECN.
	ToS = 0xfc
	// TurnOff is the policy that switches duplication off; the edge stores it as 0x00.
	TurnOff = 0xff
)

// Reasons why a message is not accepted.
var (
	// ErrMalformed: wrong length, magic, version, reserved bits or destination.
	ErrMalformed = errors.New("malformed signalling message")
	// ErrSpoofed: the HMAC is not that of the key.
	ErrSpoofed = errors.New("signalling message with a wrong HMAC")
	// ErrReplayed: the nonce is not above the last one accepted.
	ErrReplayed = errors.New("replayed signalling message")
)

// Message sets the policy of a destination.
type Message struct {
	Destination netip.Addr // without zone
	Policy      uint8      // bit i = path i+1; 0x00 and TurnOff = off
	Nonce       uint64
}

// Paths is the policy as it is stored: TurnOff becomes 0x00.
func (m Message) Paths() uint8 {
	if m.Policy == TurnOff {
		return 0
	}
	return m.Policy
}

// Append appends the message, signed with key, to b.
func (m Message) Append(b []byte, key []byte) ([]byte, error) {
	if !m.Destination.IsValid() || m.Destination.Zone() != "" {
		return b, fmt.Errorf("destination %s is not an address without zone", m.Destination)
	}
	start := len(b)
	b = append(b, Magic...)
	b = append(b, Version, m.Policy, 0, 0)
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

// Parse reads a message and verifies its HMAC. The error is ErrMalformed or
// ErrSpoofed. It does not look at the nonce: that is the Guard's part.
func Parse(b []byte, key []byte) (Message, error) {
	if len(b) != Size || string(b[:4]) != Magic || b[4] != Version || b[6] != 0 || b[7] != 0 {
		return Message{}, ErrMalformed
	}
	dst := netip.AddrFrom16([16]byte(b[16:32])).Unmap()
	if dst.IsUnspecified() {
		return Message{}, ErrMalformed
	}
	if !hmac.Equal(appendMAC(nil, b[:signed], key), b[signed:]) {
		return Message{}, ErrSpoofed
	}
	return Message{Destination: dst, Policy: b[5], Nonce: binary.BigEndian.Uint64(b[8:])}, nil
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
