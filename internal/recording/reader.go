package recording

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/foxglove/mcap/go/mcap"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"

	"holocast/internal/moqt/wire"
)

// The reader parses the framing of MCAP records itself, because mcap's lexer slices by unchecked
// lengths (a chunk's compression name, a chunk's records) and panics on hostile files. For schemas,
// channels, messages and statistics it uses mcap's parsers, which are safe.

// Limits of the reader.
const (
	maxChunk  = MaxObject + 2*chunkBytes // uncompressed, bytes
	maxRecord = maxChunk + 1<<20         // any other record, or a compressed chunk
)

// Info summarizes a recording.
type Info struct {
	Tracks  []TrackInfo
	Records uint64    // objects and separate subgroup ends; if 0, Start and End are zero
	Start   time.Time // first arrival
	End     time.Time // last arrival
	// Truncated is nil for a properly closed recording.
	Truncated *Truncation
}

// Duration is the time from the first arrival to the last.
func (i Info) Duration() time.Duration { return i.End.Sub(i.Start) }

// Truncation describes where a truncated recording becomes unreadable.
type Truncation struct {
	Offset int64  // readable bytes
	Lost   int64  // unreadable bytes after them
	Reason string // the fault at Offset
}

func (t *Truncation) String() string {
	if t.Lost == 0 {
		return fmt.Sprintf(
			"the recording was not closed: it ends after %d bytes without an index; all of them can be replayed",
			t.Offset,
		)
	}
	return fmt.Sprintf("the recording is cut off: the last %d bytes, from byte %d on, cannot be read (%s)", t.Lost,
		t.Offset, t.Reason)
}

// Reader reads a recording in order of arrival.
type Reader struct {
	// Info is available once the recording is open.
	Info Info

	name     string
	src      io.ReadSeeker
	close    func() error
	decoder  *zstd.Decoder
	size     int64
	offset   int64 // of the next record
	end      int64 // end of the data section
	dataEnd  bool  // offset is past the DataEnd record
	chunkAt  int64 // offset of the last chunk read
	channels map[uint16]TrackInfo
	others   map[uint16]bool // channels without objects

	// State of a trimmed recording.
	states     []state
	stateBytes int64
	restored   []Object // precede the first
	trimmed    bool
	first      map[string]uint64 // first complete group, by topic

	// Objects of the current chunk and the next, in order of arrival. Two chunks suffice to sort
	// the output of concurrent writers, and bound memory.
	ready, ahead []Object
}

// Open opens a recording. Without an index, as after a crash, it scans the whole file to fill Info.
func Open(path string) (*Reader, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("recording: %w", err)
	}
	r, err := NewReader(path, f)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	r.close = f.Close
	return r, nil
}

// NewReader is like Open for other sources. name is used in errors.
func NewReader(name string, src io.ReadSeeker) (*Reader, error) {
	decoder, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxChunk))
	if err != nil {
		return nil, fmt.Errorf("recording %s: %w", name, err)
	}
	r := &Reader{
		name: name, src: src, decoder: decoder, channels: make(map[uint16]TrackInfo), others: make(map[uint16]bool),
		first: make(map[string]uint64),
	}
	if err := r.open(); err != nil {
		decoder.Close()
		return nil, fmt.Errorf("recording %s: %w", name, err)
	}
	return r, nil
}

func (r *Reader) open() error {
	var err error
	if r.size, err = r.src.Seek(0, io.SeekEnd); err != nil {
		return err
	}
	magic := make([]byte, len(mcap.Magic))
	if err := r.readAt(magic, 0); err != nil || !slices.Equal(magic, mcap.Magic) {
		return errors.New("not an MCAP file: it does not begin with MCAP's magic number")
	}
	if info, err := r.readSummary(); err == nil {
		r.Info = info
		r.end = r.size
	} else {
		r.scan()
	}
	r.restore()
	r.rewind()
	clear(r.channels)
	return nil
}

// Close releases the reader and the file opened by Open.
func (r *Reader) Close() error {
	r.decoder.Close()
	if r.close == nil {
		return nil
	}
	return r.close()
}

// Next returns the next object in order of arrival, or io.EOF after the last. The object's slices
// stay valid. After an error about a damaged chunk, the next call continues with the following
// chunk.
func (r *Reader) Next() (Object, error) {
	for len(r.ready) == 0 || len(r.ahead) == 0 {
		objects, err := r.nextChunk()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return Object{}, fmt.Errorf("recording %s: %w", r.name, err)
		}
		if len(r.ahead) > 0 {
			r.ready, r.ahead = r.ahead, nil
		}
		if len(r.ready) == 0 {
			r.ready = objects
		} else {
			r.ahead = objects
		}
	}
	from := &r.ready
	// An older object in the next chunk goes first.
	if len(r.ready) == 0 || len(r.ahead) > 0 && r.ahead[0].Arrival.Before(r.ready[0].Arrival) {
		from = &r.ahead
	}
	if len(*from) == 0 {
		return Object{}, io.EOF
	}
	o := (*from)[0]
	(*from)[0] = Object{} // frees the payload
	*from = (*from)[1:]
	return o, nil
}

// frameError reports an invalid record at an offset.
type frameError struct {
	offset int64
	err    error
}

func (e *frameError) Error() string { return fmt.Sprintf("byte %d: %v", e.offset, e.err) }

// nextChunk returns the objects of the next non-empty chunk, in order of arrival. A frameError ends
// the recording; other errors except io.EOF concern one chunk.
func (r *Reader) nextChunk() ([]Object, error) {
	for r.offset < r.end && !r.dataEnd {
		start := r.offset
		op, length, err := r.recordAt(start)
		if err != nil {
			r.end = start
			return nil, &frameError{start, err}
		}
		var objects []Object
		switch op {
		case mcap.OpChunk:
			r.offset = start + 9 + length
			if objects, err = r.chunk(start+9, length); err != nil {
				return nil, fmt.Errorf("damaged chunk at byte %d: %w", start, err)
			}
		case mcap.OpChannel, mcap.OpMessage:
			if objects, r.offset, err = r.loose(start); err != nil {
				return nil, fmt.Errorf("byte %d: damaged %v record: %w", start, op, err)
			}
		default:
			r.offset = start + 9 + length
			r.dataEnd = op == mcap.OpDataEnd
		}
		if len(objects) > 0 {
			r.chunkAt = start
			return objects, nil
		}
	}
	return nil, io.EOF
}

// loose reads records outside chunks from offset on, about a chunk's size at a time. It returns
// their objects in order of arrival, and the offset of the next record. An error concerns the first
// record.
func (r *Reader) loose(offset int64) (objects []Object, next int64, err error) {
	size := int64(0)
	for next = offset; size < chunkBytes && next < r.end; {
		op, length, err := r.recordAt(next)
		if err != nil || op == mcap.OpChunk || op == mcap.OpDataEnd {
			break
		}
		if op == mcap.OpChannel || op == mcap.OpMessage {
			b := make([]byte, length)
			if err = r.readAt(b, next+9); err == nil {
				objects, err = r.record(objects, op, b)
			}
		}
		if err != nil && next > offset {
			break // reported by the next call
		}
		next += 9 + length
		size += length
		if err != nil {
			return nil, next, err
		}
		if n := len(objects); n > 0 && objects[n-1].Arrival.Sub(objects[0].Arrival) >= chunkTime {
			break
		}
	}
	return r.sorted(objects), next, nil //nolint:nilerr // nextChunk reports the error at next
}

// recordAt reads the header of the record at offset and checks that the record fits the file.
func (r *Reader) recordAt(offset int64) (mcap.OpCode, int64, error) {
	var head [9]byte
	if r.size-offset < int64(len(head)) {
		return 0, 0, fmt.Errorf("the last %d bytes are not a record", r.size-offset)
	}
	if err := r.readAt(head[:], offset); err != nil {
		return 0, 0, err
	}
	op, length := mcap.OpCode(head[0]), binary.LittleEndian.Uint64(head[1:])
	switch left := r.size - offset - int64(len(head)); {
	case op == mcap.OpReserved:
		return 0, 0, errors.New("a record has the reserved opcode 0")
	case length > maxRecord:
		return 0, 0, fmt.Errorf("a %v record has %d bytes, more than %d", op, length, int64(maxRecord))
	case length > uint64(left):
		return 0, 0, fmt.Errorf("a %v record has %d bytes, but only %d remain", op, length, left)
	}
	return op, int64(length), nil
}

func (r *Reader) readAt(b []byte, offset int64) error {
	if _, err := r.src.Seek(offset, io.SeekStart); err != nil {
		return err
	}
	_, err := io.ReadFull(r.src, b)
	return err
}

// chunk reads and checks a chunk's records and returns its objects in order of arrival.
func (r *Reader) chunk(offset, length int64) ([]Object, error) {
	// The record is known to be within the file and below maxRecord.
	b := make([]byte, length)
	if err := r.readAt(b, offset); err != nil {
		return nil, err
	}
	const fixed = 8 + 8 + 8 + 4 + 4
	if len(b) < fixed {
		return nil, errors.New("its header is cut off")
	}
	size := binary.LittleEndian.Uint64(b[16:])
	sum := binary.LittleEndian.Uint32(b[24:])
	nameLength := uint64(binary.LittleEndian.Uint32(b[28:]))
	b = b[fixed:]
	if nameLength > 32 || uint64(len(b)) < nameLength+8 {
		return nil, fmt.Errorf("its compression name of %d bytes is too long", nameLength)
	}
	compression := string(b[:nameLength])
	stored := binary.LittleEndian.Uint64(b[nameLength:])
	b = b[nameLength+8:]
	if stored != uint64(len(b)) {
		return nil, fmt.Errorf("its header states %d bytes of records, but it has %d", stored, len(b))
	}
	if size > maxChunk {
		return nil, fmt.Errorf("it has %d bytes uncompressed, more than %d", size, int64(maxChunk))
	}
	switch mcap.CompressionFormat(compression) {
	case mcap.CompressionNone:
	case mcap.CompressionLZ4:
		var err error
		if b, err = io.ReadAll(io.LimitReader(lz4.NewReader(bytes.NewReader(b)), int64(size)+1)); err != nil {
			return nil, err
		}
	case mcap.CompressionZSTD:
		// The output grows with the actual data, not with the size in the header.
		var err error
		if b, err = r.decoder.DecodeAll(b, make([]byte, 0, min(size, 16*uint64(len(b))+1024))); err != nil {
			return nil, err
		}
	default:
		return nil, fmt.Errorf("it is compressed with %.32q; only lz4 and zstd are supported", compression)
	}
	if uint64(len(b)) != size {
		return nil, fmt.Errorf("its header states %d bytes uncompressed, but it has %d", size, len(b))
	}
	if sum != 0 && crc32.ChecksumIEEE(b) != sum {
		return nil, errors.New("its checksum is wrong")
	}
	return r.records(b)
}

// records reads the records inside a chunk.
func (r *Reader) records(b []byte) ([]Object, error) {
	var objects []Object
	for pos := 0; pos < len(b); {
		if len(b)-pos < 9 {
			return nil, fmt.Errorf("the last %d bytes are not a record", len(b)-pos)
		}
		op, length := mcap.OpCode(b[pos]), binary.LittleEndian.Uint64(b[pos+1:])
		if length > uint64(len(b)-pos-9) {
			return nil, fmt.Errorf("a %v record has %d bytes, but only %d remain", op, length, len(b)-pos-9)
		}
		record := b[pos+9 : pos+9+int(length)]
		pos += 9 + int(length)
		var err error
		if objects, err = r.record(objects, op, record); err != nil {
			return nil, err
		}
	}
	return r.sorted(objects), nil
}

// record adds the object of a message to objects, or stores a channel.
func (r *Reader) record(objects []Object, op mcap.OpCode, record []byte) ([]Object, error) {
	switch op {
	case mcap.OpChannel:
		id, info, err := parseChannel(record)
		if errors.Is(err, errNoObjects) {
			r.others[id] = true
			return objects, nil
		}
		if err != nil {
			return objects, err
		}
		r.channels[id] = info
	case mcap.OpMessage:
		m, err := mcap.ParseMessage(record)
		if err != nil {
			return objects, fmt.Errorf("message: %w", err)
		}
		channel, ok := r.channels[m.ChannelID]
		switch {
		case r.others[m.ChannelID]:
			return objects, nil
		case !ok:
			return objects, fmt.Errorf("a message on unknown channel %d", m.ChannelID)
		}
		o, err := parseObject(m.Data)
		if err != nil {
			return objects, err
		}
		if m.LogTime > math.MaxInt64 {
			return objects, fmt.Errorf("arrival time %d is out of range", m.LogTime)
		}
		o.Track, o.Arrival = channel.Track, time.Unix(0, int64(m.LogTime))
		objects = append(objects, o)
	}
	return objects, nil
}

// sorted sorts objects by arrival. In a trimmed recording it removes the objects of incomplete
// groups.
func (r *Reader) sorted(objects []Object) []Object {
	slices.SortStableFunc(objects, func(a, b Object) int { return a.Arrival.Compare(b.Arrival) })
	if r.trimmed {
		objects = slices.DeleteFunc(objects, func(o Object) bool { return !r.complete(&o) })
	}
	return objects
}

// errNoObjects is returned for another program's channel in a merged file.
var errNoObjects = errors.New("its messages are not MOQT objects")

func parseChannel(record []byte) (uint16, TrackInfo, error) {
	c, err := mcap.ParseChannel(record)
	if err != nil {
		return 0, TrackInfo{}, fmt.Errorf("channel: %w", err)
	}
	if c.MessageEncoding != messageEncoding {
		return c.ID, TrackInfo{}, fmt.Errorf("channel %d: %w", c.ID, errNoObjects)
	}
	info := TrackInfo{}
	if info.Track, err = wire.ParseTrackName(c.Topic); err == nil {
		err = info.Track.Validate()
	}
	if err != nil {
		return 0, TrackInfo{}, fmt.Errorf("channel %d: %w", c.ID, err)
	}
	if s := c.Metadata["alias"]; s != "" {
		if info.Alias, err = strconv.ParseUint(s, 10, 64); err != nil {
			return 0, TrackInfo{}, fmt.Errorf("channel %d: alias: %w", c.ID, err)
		}
	}
	if info.Properties, err = hex.DecodeString(c.Metadata["properties"]); err != nil {
		return 0, TrackInfo{}, fmt.Errorf("channel %d: properties: %w", c.ID, err)
	}
	return c.ID, info, nil
}

// closed reports whether the file ends with MCAP's magic number.
func (r *Reader) closed() bool {
	magic := make([]byte, len(mcap.Magic))
	return r.readAt(magic, r.size-int64(len(magic))) == nil && slices.Equal(magic, mcap.Magic)
}

// readSummary reads the index at the end of a closed recording.
func (r *Reader) readSummary() (Info, error) {
	const footer = 9 + 8 + 8 + 4
	tail := make([]byte, footer+len(mcap.Magic))
	if r.size < int64(len(mcap.Magic)+len(tail)) {
		return Info{}, io.ErrUnexpectedEOF
	}
	if err := r.readAt(tail, r.size-int64(len(tail))); err != nil {
		return Info{}, err
	}
	if !r.closed() || tail[0] != byte(mcap.OpFooter) {
		return Info{}, errors.New("no footer")
	}
	start, end := binary.LittleEndian.Uint64(tail[9:]), r.size-int64(len(tail))
	if start < uint64(len(mcap.Magic)) || start >= uint64(end) {
		return Info{}, errors.New("no summary")
	}
	tracks := make(map[uint16]TrackInfo)
	var info Info
	var statistics bool
	var states []mcap.MetadataIndex
	for offset := int64(start); offset < end; {
		op, length, err := r.recordAt(offset)
		if err != nil {
			return Info{}, err
		}
		switch op {
		case mcap.OpChannel, mcap.OpStatistics, mcap.OpMetadataIndex:
			record := make([]byte, length)
			if err := r.readAt(record, offset+9); err != nil {
				return Info{}, err
			}
			switch op {
			case mcap.OpChannel:
				id, track, err := parseChannel(record)
				if err != nil {
					return Info{}, err
				}
				tracks[id] = track
			case mcap.OpMetadataIndex:
				i, err := mcap.ParseMetadataIndex(record)
				if err != nil {
					return Info{}, err
				}
				if i.Name == stateName {
					states = append(states, *i)
				}
			default:
				s, err := mcap.ParseStatistics(record)
				if err != nil {
					return Info{}, err
				}
				if s.MessageStartTime > s.MessageEndTime || s.MessageEndTime > math.MaxInt64 {
					return Info{}, fmt.Errorf("invalid time range in the statistics: %d to %d ns", s.MessageStartTime,
						s.MessageEndTime)
				}
				statistics = true
				info.Records = s.MessageCount
				if s.MessageCount > 0 {
					info.Start, info.End = time.Unix(0, int64(s.MessageStartTime)), time.Unix(0, int64(s.MessageEndTime))
				}
			}
		}
		offset += 9 + length
	}
	if !statistics || info.Records > 0 && len(tracks) == 0 {
		return Info{}, errors.New("the summary lacks statistics or channels, which are optional")
	}
	for _, i := range states {
		if op, length, err := r.recordAt(int64(min(i.Offset, uint64(r.size)))); err == nil && op == mcap.OpMetadata {
			r.readState(int64(i.Offset)+9, length)
		}
	}
	info.Tracks = sorted(tracks)
	return info, nil
}

// scan reads a whole recording without an index and fills in Info.
func (r *Reader) scan() {
	r.offset, r.end = int64(len(mcap.Magic)), r.size
	reason := "no index"
	for {
		objects, err := r.nextChunk()
		if errors.Is(err, io.EOF) {
			break
		}
		var frame *frameError
		if errors.As(err, &frame) {
			reason = frame.err.Error()
			break
		}
		for _, o := range objects { // none for a damaged chunk, which Next reports
			if r.Info.Records == 0 || o.Arrival.Before(r.Info.Start) {
				r.Info.Start = o.Arrival
			}
			if r.Info.Records == 0 || o.Arrival.After(r.Info.End) {
				r.Info.End = o.Arrival
			}
			r.Info.Records++
		}
	}
	r.Info.Tracks = sorted(r.channels)
	if r.dataEnd && r.closed() {
		r.end = r.size
		return
	}
	r.end = r.offset
	r.Info.Truncated = &Truncation{Offset: r.offset, Lost: r.size - r.offset, Reason: reason}
}

func sorted(tracks map[uint16]TrackInfo) []TrackInfo {
	ids := make([]uint16, 0, len(tracks))
	for id := range tracks {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(a, b uint16) int { return cmp.Compare(a, b) })
	out := make([]TrackInfo, len(ids))
	for i, id := range ids {
		out[i] = tracks[id]
	}
	return out
}
