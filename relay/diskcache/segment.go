package diskcache

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"time"

	"holocast/internal/moqt"
	"holocast/internal/origin"
)

// A segment is a file with groups of one track, appended in the order of their eviction from memory.
// All numbers are little-endian; checksums are CRC-32C.
//
//	"HCDC" version:u8 reserved:u8[3] size:u32 sum:u32  identity:[size]      sum covers identity
//	size:u32 group:u64 arrived:i64 sum:u32 head:u32    body:[size]          per group; head covers what precedes it
//
// The identity is the track's name and its publisher's identity. A body has a number of objects (u32), and of each
//
//	id:u64 subgroup:u64 flags:u8 priority:u8 reserved:u16 properties:u32 payload:u32  properties payload
const (
	magic      = "HCDC\x01\x00\x00\x00"
	fileHead   = len(magic) + 8
	recordHead = 4 + 8 + 8 + 4 + 4
	objectHead = 8 + 8 + 4 + 4 + 4

	flagDatagram = 1

	// maxRecord limits the size of a group; larger ones are not kept.
	maxRecord   = 8 << 20
	maxIdentity = 8 << 10
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// entry locates a group in a segment.
type entry struct {
	group   uint64
	arrived time.Time
	offset  int64 // of its record
	size    uint32
	sum     uint32
}

func appendFileHead(b, identity []byte) []byte {
	b = append(b, magic...)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(identity)))
	b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(identity, castagnoli))
	return append(b, identity...)
}

// bodySize returns the size of a group's body.
func bodySize(g *origin.Group) (n int) {
	n = 4
	for i := range g.Objects {
		o := &g.Objects[i]
		n += objectHead + len(o.Properties) + o.Size()
	}
	return n
}

// appendRecord appends a group's record.
func appendRecord(b []byte, g *origin.Group) []byte {
	le := binary.LittleEndian
	at := len(b)
	b = append(b, make([]byte, recordHead)...)
	b = le.AppendUint32(b, uint32(len(g.Objects)))
	for i := range g.Objects {
		o := &g.Objects[i]
		b = le.AppendUint64(b, o.ID)
		b = le.AppendUint64(b, o.Subgroup)
		flags := byte(0)
		if o.Datagram {
			flags = flagDatagram
		}
		b = append(b, flags, o.Priority, 0, 0)
		b = le.AppendUint32(b, uint32(len(o.Properties)))
		b = le.AppendUint32(b, uint32(o.Size()))
		b = append(b, o.Properties...)
		for _, part := range o.Payload {
			b = append(b, part...)
		}
	}
	body, head := b[at+recordHead:], b[at:]
	le.PutUint32(head, uint32(len(body)))
	le.PutUint64(head[4:], g.ID)
	le.PutUint64(head[12:], uint64(g.Arrived.UnixMicro()))
	le.PutUint32(head[20:], crc32.Checksum(body, castagnoli))
	le.PutUint32(head[24:], crc32.Checksum(head[:24], castagnoli))
	return b
}

// errDamaged means that a segment's bytes have changed since they were written.
var errDamaged = errors.New("damaged")

// readSegment reads the index of a segment of size bytes. If it is damaged, it returns the entries before the
// damage, the offset of the damage and an error.
func readSegment(r io.ReaderAt, size int64) (identity []byte, list []entry, end int64, err error) {
	head := make([]byte, fileHead)
	if size < int64(fileHead) {
		return nil, nil, 0, fmt.Errorf("%w: no header", errDamaged)
	}
	if _, err := r.ReadAt(head, 0); err != nil {
		return nil, nil, 0, err
	}
	le := binary.LittleEndian
	n := le.Uint32(head[len(magic):])
	if string(head[:len(magic)]) != magic || n > maxIdentity || int64(n) > size-int64(fileHead) {
		return nil, nil, 0, fmt.Errorf("%w: not a segment", errDamaged)
	}
	identity = make([]byte, n)
	if _, err := r.ReadAt(identity, int64(fileHead)); err != nil {
		return nil, nil, 0, err
	}
	if crc32.Checksum(identity, castagnoli) != le.Uint32(head[len(magic)+4:]) {
		return nil, nil, 0, fmt.Errorf("%w: checksum of the header", errDamaged)
	}
	end = int64(fileHead) + int64(n)
	for end < size {
		var b [recordHead]byte
		if size-end < recordHead {
			return identity, list, end, fmt.Errorf("%w: cut off", errDamaged)
		}
		if _, err := r.ReadAt(b[:], end); err != nil {
			return identity, list, end, err
		}
		body := le.Uint32(b[:])
		if crc32.Checksum(b[:24], castagnoli) != le.Uint32(b[24:]) || body > maxRecord {
			return identity, list, end, fmt.Errorf("%w: checksum of a group's header", errDamaged)
		}
		if int64(body) > size-end-recordHead {
			return identity, list, end, fmt.Errorf("%w: cut off", errDamaged)
		}
		list = append(list, entry{
			group: le.Uint64(b[4:]), arrived: time.UnixMicro(int64(le.Uint64(b[12:]))), offset: end, size: body,
			sum: le.Uint32(b[20:]),
		})
		end += recordHead + int64(body)
	}
	return identity, list, end, nil
}

// object is an object of a group on the disk. Its slices share the body's memory.
type object struct {
	id, subgroup        uint64
	datagram            bool
	priority            uint8
	properties, payload []byte
}

// readGroup reads and checks the objects of a group.
func readGroup(r io.ReaderAt, e entry) ([]object, error) {
	body := make([]byte, e.size)
	if _, err := r.ReadAt(body, e.offset+recordHead); err != nil {
		return nil, err
	}
	if crc32.Checksum(body, castagnoli) != e.sum {
		return nil, fmt.Errorf("%w: checksum of group %d", errDamaged, e.group)
	}
	return parseGroup(body)
}

func parseGroup(b []byte) ([]object, error) {
	le := binary.LittleEndian
	if len(b) < 4 {
		return nil, fmt.Errorf("%w: empty group", errDamaged)
	}
	n := le.Uint32(b)
	b = b[4:]
	if uint64(n)*objectHead > uint64(len(b)) {
		return nil, fmt.Errorf("%w: %d objects in %d bytes", errDamaged, n, len(b))
	}
	list := make([]object, 0, n)
	for range n {
		if len(b) < objectHead {
			return nil, fmt.Errorf("%w: object cut off", errDamaged)
		}
		o := object{id: le.Uint64(b), subgroup: le.Uint64(b[8:]), datagram: b[16]&flagDatagram != 0, priority: b[17]}
		properties, payload := uint64(le.Uint32(b[20:])), uint64(le.Uint32(b[24:]))
		b = b[objectHead:]
		if properties+payload > uint64(len(b)) {
			return nil, fmt.Errorf("%w: object cut off", errDamaged)
		}
		if k := len(list); o.id > math.MaxInt64 || k > 0 && list[k-1].id >= o.id {
			return nil, fmt.Errorf("%w: order of objects", errDamaged)
		}
		o.properties, o.payload = b[:properties:properties], b[properties:properties+payload]
		b = b[properties+payload:]
		list = append(list, o)
	}
	if len(b) > 0 {
		return nil, fmt.Errorf("%w: %d bytes after the last object", errDamaged, len(b))
	}
	return list, nil
}

// identityOf returns the identity of a track and its publisher.
func identityOf(name moqt.TrackName, publisher string) []byte {
	return append(append([]byte(name.String()), 0), publisher...)
}
