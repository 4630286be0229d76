//go:build linux

// Package probe measures the paths between two edges. Each edge sends small UDP packets over every
// path and answers the other edge's packets. This gives the round-trip time, the loss, and whether a
// path works in both directions.
package probe

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"math"
	"time"
)

// A probe is the whole payload of a UDP datagram, in network byte order:
//
//	 0  magic "HCPR"
//	 4  version u8 = 1
//	 5  kind u8: 1 request, 2 answer
//	 6  path u8: 1 to 8, numbered by the requester
//	 7  reserved u8 = 0
//	 8  session u64: random, per run of the requester
//	16  sequence u32
//	20  dwell u32: nanoseconds between receipt of a request and its answer; 0 in requests
//	24  HMAC-SHA256 over bytes 0 to 23, truncated to 16 bytes; zeros without a key
//
// An answer has the length of its request, which rules out amplification.
const (
	size    = 40
	signed  = 24
	version = 1
	magic   = "HCPR"
)

const (
	request = 1
	answer  = 2
)

// errRefused is returned for a packet that is not a probe or was not signed by the peer.
var errRefused = errors.New("not a probe from the peer")

type packet struct {
	kind     uint8
	path     uint8
	session  uint64
	sequence uint32
	dwell    time.Duration
}

func (p packet) append(b, key []byte) []byte {
	start := len(b)
	b = append(b, magic...)
	b = append(b, version, p.kind, p.path, 0)
	b = binary.BigEndian.AppendUint64(b, p.session)
	b = binary.BigEndian.AppendUint32(b, p.sequence)
	b = binary.BigEndian.AppendUint32(b, uint32(min(max(p.dwell, 0), math.MaxUint32)))
	mac := sign(b[start:], key)
	return append(b, mac[:]...)
}

func parse(b, key []byte) (packet, error) {
	if len(b) != size || string(b[:4]) != magic || b[4] != version || b[7] != 0 {
		return packet{}, errRefused
	}
	p := packet{
		kind: b[5], path: b[6],
		session: binary.BigEndian.Uint64(b[8:]), sequence: binary.BigEndian.Uint32(b[16:]),
		dwell: time.Duration(binary.BigEndian.Uint32(b[20:])),
	}
	if p.kind != request && p.kind != answer || p.path < 1 || p.path > 8 || p.kind == request && p.dwell != 0 {
		return packet{}, errRefused
	}
	if mac := sign(b[:signed], key); !hmac.Equal(mac[:], b[signed:]) {
		return packet{}, errRefused
	}
	return p, nil
}

// sign returns the MAC of a probe's first bytes, or zeros without a key.
func sign(b, key []byte) (mac [size - signed]byte) {
	if len(key) > 0 {
		h := hmac.New(sha256.New, key)
		h.Write(b)
		copy(mac[:], h.Sum(nil))
	}
	return mac
}
