// Package recording stores a session in an MCAP file (https://mcap.dev/spec): every MOQT object of
// every track with its arrival time, for replay with the same objects and timing.
//
// Each track is an MCAP channel whose topic is the serialized full track name (MOQT draft-18 §1.5).
// Each object is a message: a fixed header, the object's properties and its payload; see
// [objectSchema]. Messages are written in zstd chunks of at most about a second, so a file left by
// a crash replays up to its last chunk. The catalogs and poses are repeated in metadata records, so
// that a recording without its start plays too. The reader accepts every compression of MCAP, and
// messages outside chunks.
package recording

import (
	"encoding/binary"
	"fmt"
	"time"

	"holocast/internal/moqt/wire"
)

// Forwarding is an object's forwarding preference (MOQT §11.2.1).
type Forwarding uint8

// Forwarding preferences.
const (
	Subgroup Forwarding = iota
	Datagram
)

// End is the state of a subgroup's stream after an object.
type End uint8

// Ends of a subgroup's stream.
const (
	EndOpen  End = iota // more objects may follow, or the end is unknown
	EndFIN              // stream finished
	EndReset            // stream reset: later objects of the subgroup are lost
)

// Object is one MOQT object with its arrival.
type Object struct {
	Track      wire.TrackName
	Group      uint64
	Subgroup   uint64 // 0 for datagrams
	ObjectID   uint64
	Priority   uint8
	Status     uint8  // 0 normal, 3 end of group, 4 end of track (MOQT §11.2.1.1)
	Properties []byte // key-value pairs in wire format, without the length prefix
	Payload    []byte
	Forwarding Forwarding
	// EndOfGroup is the END_OF_GROUP bit of the subgroup header or datagram.
	EndOfGroup bool
	// FirstObject is the FIRST_OBJECT bit of the subgroup header, on the
	// stream's first object.
	FirstObject bool
	// End is set on a subgroup's last object. If the recorder learns of the end later, it writes an
	// extra Object with EndOnly.
	End End
	// EndOnly marks a record of the end of a subgroup's stream, without an object.
	EndOnly bool
	// Arrival is the arrival time of the object's last byte, in nanoseconds, without a monotonic
	// reading.
	Arrival time.Time
}

// MaxObject bounds the sum of one object's properties and payload, in bytes.
const MaxObject = 32 << 20

const (
	messageEncoding = "moqt" // of MCAP channels
	headerVersion   = 1
	headerSize      = 32
)

// Flag bits of the message header.
const (
	flagDatagram    = 1 << 0
	flagEndOfGroup  = 1 << 1
	flagFirstObject = 1 << 2
	flagFIN         = 1 << 3
	flagReset       = 1 << 4
	flagEndOnly     = 1 << 5
	flagsKnown      = 1<<6 - 1
)

// objectSchema is the text of the MCAP schema record.
const objectSchema = `One MOQT object (draft-ietf-moq-transport-18). Little-endian.
offset size field
0      1    version, 1
1      1    flags: 1 datagram, 2 end of group, 4 first object of the subgroup,
            8 subgroup stream ended by FIN after this, 16 by reset,
            32 no object, only the end of the subgroup stream
2      1    publisher priority
3      1    object status
4      4    properties length p
8      8    group ID
16     8    subgroup ID, 0 for datagrams
24     8    object ID
32     p    object properties, key-value pairs as on the wire
32+p   rest object payload
The message's log time is the arrival of the object's last byte.
`

func (o *Object) appendTo(b []byte) ([]byte, error) {
	if len(o.Properties)+len(o.Payload) > MaxObject {
		return b, fmt.Errorf("object %d/%d/%d of %v has %d bytes, more than %d",
			o.Group, o.Subgroup, o.ObjectID, o.Track, len(o.Properties)+len(o.Payload), MaxObject)
	}
	var flags byte
	if o.Forwarding == Datagram {
		flags |= flagDatagram
	}
	if o.EndOfGroup {
		flags |= flagEndOfGroup
	}
	if o.FirstObject {
		flags |= flagFirstObject
	}
	switch o.End {
	case EndFIN:
		flags |= flagFIN
	case EndReset:
		flags |= flagReset
	}
	if o.EndOnly {
		flags |= flagEndOnly
	}
	b = append(b, headerVersion, flags, o.Priority, o.Status)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(o.Properties)))
	b = binary.LittleEndian.AppendUint64(b, o.Group)
	b = binary.LittleEndian.AppendUint64(b, o.Subgroup)
	b = binary.LittleEndian.AppendUint64(b, o.ObjectID)
	b = append(b, o.Properties...)
	return append(b, o.Payload...), nil
}

// parseObject parses a message's data. The object's slices alias b.
func parseObject(b []byte) (Object, error) {
	if len(b) < headerSize {
		return Object{}, fmt.Errorf("object header has %d bytes, needs %d", len(b), headerSize)
	}
	if b[0] != headerVersion {
		return Object{}, fmt.Errorf("object header version %d; only %d is known", b[0], headerVersion)
	}
	flags := b[1]
	if flags&^flagsKnown != 0 || flags&flagFIN != 0 && flags&flagReset != 0 {
		return Object{}, fmt.Errorf("object header flags %#02x are not known", flags)
	}
	properties := uint64(binary.LittleEndian.Uint32(b[4:]))
	if properties > uint64(len(b)-headerSize) {
		return Object{}, fmt.Errorf("object properties have %d bytes, but the message has %d left", properties, len(b)-headerSize)
	}
	o := Object{
		Priority:    b[2],
		Status:      b[3],
		Group:       binary.LittleEndian.Uint64(b[8:]),
		Subgroup:    binary.LittleEndian.Uint64(b[16:]),
		ObjectID:    binary.LittleEndian.Uint64(b[24:]),
		Properties:  b[headerSize : headerSize+properties : headerSize+properties],
		Payload:     b[headerSize+properties:],
		EndOfGroup:  flags&flagEndOfGroup != 0,
		FirstObject: flags&flagFirstObject != 0,
		EndOnly:     flags&flagEndOnly != 0,
	}
	if flags&flagDatagram != 0 {
		o.Forwarding = Datagram
	}
	switch {
	case flags&flagFIN != 0:
		o.End = EndFIN
	case flags&flagReset != 0:
		o.End = EndReset
	}
	return o, nil
}
