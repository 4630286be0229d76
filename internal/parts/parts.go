// Package parts carries frames in datagrams (docs/spec/frames-in-datagrams.md). Cut splits a
// payload into objects of one group that fit QUIC DATAGRAMs; an Assembler reassembles it from parts
// in any order; a Receiver does so for a subscription and fetches lost parts.
package parts

import (
	"iter"

	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
)

// MaxPart is the maximum payload of one object in bytes. With MOQT, WebTransport and QUIC headers
// it fits 1200 bytes of UDP payload, which every QUIC path carries (RFC 9000 §14).
const MaxPart = 1130

// LengthProperty marks the first part of a payload. Its value is the payload's length in bytes. Its
// type is even, because the value is a number, and outside the mandatory range.
const LengthProperty = 0x6863_706c

// maxObjects is the exclusive upper bound of object IDs in a group.
const maxObjects = 1 << 16

// Cut splits a payload into objects of at most MaxPart bytes, with consecutive IDs from d.Object.
// The first has LengthProperty, the last d.EndOfGroup. They alias payload.
func Cut(d moqt.Datagram, payload []byte) iter.Seq[moqt.Datagram] { return CutAt(d, payload, MaxPart) }

// CutAt is Cut with a size below MaxPart, which leaves room for encryption.
func CutAt(d moqt.Datagram, payload []byte, size int) iter.Seq[moqt.Datagram] {
	return func(yield func(moqt.Datagram) bool) {
		end := d.EndOfGroup
		d.Properties = wire.AppendKeyValues(nil, wire.KeyValue{Type: LengthProperty, Int: uint64(len(payload))})
		for rest := payload; ; d.Object++ {
			n := min(len(rest), size)
			d.Payload, rest = rest[:n:n], rest[n:]
			d.EndOfGroup = end && len(rest) == 0
			if !yield(d) || len(rest) == 0 {
				return
			}
			d.Properties = nil
		}
	}
}

// Count returns the number of objects that Cut makes from n bytes.
func Count(n int) int { return max(1, (n+MaxPart-1)/MaxPart) }
