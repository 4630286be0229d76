// Package parts carries frames in datagrams (docs/spec/frames-in-datagrams.md): Cut
// makes a payload that does not fit a QUIC DATAGRAM several objects of one group that
// do, an Assembler puts it together again as its parts come, in any order, and a
// Receiver does so for a subscription and fetches what was lost.
package parts

import (
	"iter"

	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
)

// MaxPart is the most payload of one object, bytes. With the headers of MOQT,
// WebTransport and QUIC it fits the 1280 bytes of UDP payload that any path carries.
const MaxPart = 1150

// LengthProperty is the object property that marks the first part of a payload; its
// value is the payload's length in bytes. The type is even, so it holds a number, and
// outside the mandatory range.
const LengthProperty = 0x6863_706c

// maxObjects bounds the objects of a group: object IDs are below it.
const maxObjects = 1 << 16

// Cut cuts a payload into objects of at most MaxPart bytes: d with consecutive IDs from
// its Object on, the first with LengthProperty, the last with d's EndOfGroup. They alias
// payload.
func Cut(d moqt.Datagram, payload []byte) iter.Seq[moqt.Datagram] {
	return func(yield func(moqt.Datagram) bool) {
		end := d.EndOfGroup
		d.Properties = wire.AppendKeyValues(nil, wire.KeyValue{Type: LengthProperty, Int: uint64(len(payload))})
		for rest := payload; ; d.Object++ {
			n := min(len(rest), MaxPart)
			d.Payload, rest = rest[:n:n], rest[n:]
			d.EndOfGroup = end && len(rest) == 0
			if !yield(d) || len(rest) == 0 {
				return
			}
			d.Properties = nil
		}
	}
}

// Count is the number of objects that Cut makes of n bytes.
func Count(n int) int { return max(1, (n+MaxPart-1)/MaxPart) }
