package k4amkv

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"math/bits"
)

// Matroska element IDs (RFC 9559) used in k4a recordings.
const (
	idEBML           = 0x1A45DFA3
	idDocType        = 0x4282
	idVoid           = 0xEC
	idCRC32          = 0xBF
	idSegment        = 0x18538067
	idSeekHead       = 0x114D9B74
	idSeek           = 0x4DBB
	idSeekID         = 0x53AB
	idSeekPosition   = 0x53AC
	idInfo           = 0x1549A966
	idTimestampScale = 0x2AD7B1
	idDuration       = 0x4489
	idTracks         = 0x1654AE6B
	idTrackEntry     = 0xAE
	idTrackNumber    = 0xD7
	idTrackUID       = 0x73C5
	idTrackName      = 0x536E
	idCodecID        = 0x86
	idCodecPrivate   = 0x63A2
	idDefaultDur     = 0x23E383
	idEncodings      = 0x6D80
	idVideo          = 0xE0
	idPixelWidth     = 0xB0
	idPixelHeight    = 0xBA
	idAttachments    = 0x1941A469
	idAttachedFile   = 0x61A7
	idFileName       = 0x466E
	idFileData       = 0x465C
	idFileUID        = 0x46AE
	idTags           = 0x1254C367
	idTag            = 0x7373
	idTargets        = 0x63C0
	idTagAttachment  = 0x63C6
	idSimpleTag      = 0x67C8
	idTagName        = 0x45A3
	idTagString      = 0x4487
	idCluster        = 0x1F43B675
	idTimestamp      = 0xE7
	idSimpleBlock    = 0xA3
	idBlockGroup     = 0xA0
	idBlock          = 0xA1
	idCues           = 0x1C53BB6B
	idCuePoint       = 0xBB
	idCueTime        = 0xB3
	idCuePositions   = 0xB7
	idCueCluster     = 0xF1
)

// elementName returns Matroska's name of an element.
func elementName(id uint32) string {
	switch id {
	case idEBML:
		return "EBML"
	case idDocType:
		return "DocType"
	case idVoid:
		return "Void"
	case idCRC32:
		return "CRC-32"
	case idSegment:
		return "Segment"
	case idSeekHead:
		return "SeekHead"
	case idSeek:
		return "Seek"
	case idSeekID:
		return "SeekID"
	case idSeekPosition:
		return "SeekPosition"
	case idInfo:
		return "Info"
	case idTimestampScale:
		return "TimestampScale"
	case idDuration:
		return "Duration"
	case idTracks:
		return "Tracks"
	case idTrackEntry:
		return "TrackEntry"
	case idTrackNumber:
		return "TrackNumber"
	case idTrackUID:
		return "TrackUID"
	case idTrackName:
		return "Name"
	case idCodecID:
		return "CodecID"
	case idCodecPrivate:
		return "CodecPrivate"
	case idDefaultDur:
		return "DefaultDuration"
	case idVideo:
		return "Video"
	case idPixelWidth:
		return "PixelWidth"
	case idPixelHeight:
		return "PixelHeight"
	case idAttachments:
		return "Attachments"
	case idAttachedFile:
		return "AttachedFile"
	case idFileName:
		return "FileName"
	case idFileData:
		return "FileData"
	case idFileUID:
		return "FileUID"
	case idTags:
		return "Tags"
	case idTag:
		return "Tag"
	case idTargets:
		return "Targets"
	case idTagAttachment:
		return "TagAttachmentUID"
	case idSimpleTag:
		return "SimpleTag"
	case idTagName:
		return "TagName"
	case idTagString:
		return "TagString"
	case idCluster:
		return "Cluster"
	case idTimestamp:
		return "Timestamp"
	case idSimpleBlock:
		return "SimpleBlock"
	case idBlockGroup:
		return "BlockGroup"
	case idBlock:
		return "Block"
	case idCues:
		return "Cues"
	case idCuePoint:
		return "CuePoint"
	case idCueTime:
		return "CueTime"
	case idCuePositions:
		return "CueTrackPositions"
	case idCueCluster:
		return "CueClusterPosition"
	}
	return fmt.Sprintf("element %X", id)
}

// topLevel reports whether id is a child of Segment. Such an element ends a Cluster of unknown
// size.
func topLevel(id uint32) bool {
	switch id {
	case idSeekHead, idInfo, idTracks, idAttachments, idTags, idCluster, idCues:
		return true
	}
	return false
}

// element is an element of the file. Its header begins at start, and its content extends from data
// to end.
type element struct {
	id               uint32
	start, data, end int64
	unknown          bool // no size in the file; ends with its parent
}

func (e element) damage(format string, args ...any) error {
	return &DamageError{Offset: e.start, Element: elementName(e.id), Err: fmt.Errorf(format, args...)}
}

// file reads EBML elements (RFC 8794) from a file of known size. It allocates no more than the
// file's size justifies.
type file struct {
	r    io.ReaderAt
	size int64
}

var errBadVint = errors.New("invalid variable-length integer")

// header reads the element header at offset. The content may extend beyond limit. At limit it
// returns io.EOF.
func (f *file) header(offset, limit int64) (element, error) {
	if offset >= limit {
		return element{}, io.EOF
	}
	var buf [12]byte // at most 4 bytes of ID, 8 of size
	b := buf[:min(limit-offset, int64(len(buf)))]
	if err := f.readAt(b, offset); err != nil {
		return element{}, err
	}
	e := element{start: offset}
	n := bits.LeadingZeros8(b[0]) + 1
	if n > 4 || n > len(b) {
		return element{}, &DamageError{
			offset,
			"element header",
			fmt.Errorf("%w as ID: % x", errBadVint, b[:min(4, len(b))]),
		}
	}
	for _, x := range b[:n] {
		e.id = e.id<<8 | uint32(x)
	}
	size, m, unknown, ok := vint(b[n:])
	if !ok {
		return element{}, e.damage("%w as size", errBadVint)
	}
	e.data = offset + int64(n+m)
	switch {
	// A Segment or Cluster of size 0 was not closed by its recorder.
	case unknown, size == 0 && (e.id == idSegment || e.id == idCluster):
		e.unknown, e.end = true, limit
	case size > uint64(math.MaxInt64-e.data):
		e.end = math.MaxInt64
	default:
		e.end = e.data + int64(size)
	}
	return e, nil
}

// child reads the header of the element at offset, which must end within limit.
func (f *file) child(offset, limit int64) (element, error) {
	e, err := f.header(offset, limit)
	if err != nil {
		return element{}, err
	}
	if e.end > limit {
		return element{}, e.damage("%d bytes long, but only %d are left%s", e.end-e.data, limit-e.data,
			f.truncated(limit))
	}
	return e, nil
}

func (f *file) truncated(limit int64) string {
	if limit == f.size {
		return " in the file"
	}
	return " in its parent"
}

// children calls visit for each child of e.
func (f *file) children(e element, visit func(element) error) error {
	for at := e.data; at < e.end; {
		c, err := f.child(at, e.end)
		if err != nil {
			return err
		}
		if err := visit(c); err != nil {
			return err
		}
		at = c.end
	}
	return nil
}

func (f *file) readAt(b []byte, offset int64) error {
	n, err := f.r.ReadAt(b, offset)
	if n == len(b) { // io.EOF at the exact end is not an error
		return nil
	}
	return fmt.Errorf("reading %d bytes at byte %d: %w", len(b), offset, err)
}

// bytes reads the content of e. Content of more than limit bytes is an error.
func (f *file) bytes(e element, limit int64) ([]byte, error) {
	n := e.end - e.data
	if n > limit {
		return nil, e.damage("%d bytes long, more than the limit of %d", n, limit)
	}
	b := make([]byte, n)
	return b, f.readAt(b, e.data)
}

func (f *file) uint(e element) (uint64, error) {
	var buf [8]byte
	n := e.end - e.data
	if n > 8 {
		return 0, e.damage("integer of %d bytes is longer than 8", n)
	}
	err := f.readAt(buf[8-n:], e.data)
	return binary.BigEndian.Uint64(buf[:]), err
}

func (f *file) float(e element) (float64, error) {
	v, err := f.uint(e)
	switch e.end - e.data {
	case 0:
		return 0, err
	case 4:
		return float64(math.Float32frombits(uint32(v))), err
	case 8:
		return math.Float64frombits(v), err
	}
	return 0, e.damage("floating-point number of %d bytes, want 4 or 8", e.end-e.data)
}

// maxString bounds names, codec IDs and tags.
const maxString = 64 << 10

func (f *file) string(e element) (string, error) {
	b, err := f.bytes(e, maxString)
	for len(b) > 0 && b[len(b)-1] == 0 {
		b = b[:len(b)-1]
	}
	return string(b), err
}

// checksum verifies e's content against its first child, a CRC-32, if present. buf is scratch
// space.
func (f *file) checksum(e element, buf []byte) error {
	c, err := f.header(e.data, e.end)
	if err != nil || c.id != idCRC32 || c.end-c.data != 4 || c.end > e.end {
		return nil //nolint:nilerr // no checksum; the caller detects damaged headers
	}
	var want [4]byte
	if err := f.readAt(want[:], c.data); err != nil {
		return err
	}
	sum := uint32(0)
	for at := c.end; at < e.end; {
		b := buf[:min(int64(len(buf)), e.end-at)]
		if err := f.readAt(b, at); err != nil {
			return err
		}
		sum = crc32.Update(sum, crc32.IEEETable, b)
		at += int64(len(b))
	}
	if sum != binary.LittleEndian.Uint32(want[:]) {
		return e.damage("its %d bytes do not match its checksum", e.end-e.data)
	}
	return nil
}

// vint decodes a variable-length integer at the start of b, and returns its length. unknown is set
// for the reserved value with all bits set.
func vint(b []byte) (v uint64, n int, unknown, ok bool) {
	if len(b) == 0 {
		return 0, 0, false, false
	}
	n = bits.LeadingZeros8(b[0]) + 1
	if n > 8 || n > len(b) {
		return 0, 0, false, false
	}
	v = uint64(b[0]) & (1<<(8-n) - 1)
	for _, x := range b[1:n] {
		v = v<<8 | uint64(x)
	}
	return v, n, v == 1<<(7*n)-1, true
}
