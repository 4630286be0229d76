package recording

import (
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/foxglove/mcap/go/mcap"
	"github.com/klauspost/compress/zstd"

	"holocast/internal/moqt/wire"
)

// Chunk limits. A crash loses at most one chunk.
const (
	chunkBytes = 4 << 20
	chunkTime  = time.Second
)

// TrackInfo is a recording's data about a track, apart from its objects.
type TrackInfo struct {
	Track      wire.TrackName
	Alias      uint64 // track alias seen by the recorder
	Properties []byte // track properties, key-value pairs in wire format
}

// Writer writes a recording. Its methods may be called from several goroutines.
type Writer struct {
	mu         sync.Mutex
	path       string
	file       *os.File
	mcap       *mcap.Writer
	opts       *mcap.WriterOptions
	encoder    *zstd.Encoder
	channels   map[string]uint16 // by serialized full track name
	properties map[string][]byte // of tracks, by the same
	sequence   []uint32          // next message sequence, by channel
	pending    mcap.Message      // newest message, not yet passed to mcap
	hasPending bool
	chunkStart int64 // arrival of the current chunk's first message, ns; 0 = empty chunk
	whole      int64 // size of the file up to its last complete chunk
	err        error // the error that ended the recording
}

// Create starts a recording in a new file. It fails if the file exists. metadata (relay, session,
// version) is informational.
func Create(path string, metadata map[string]string) (*Writer, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("recording: %w", err)
	}
	w, err := NewWriter(file, metadata)
	if err != nil {
		return nil, errors.Join(err, file.Close(), os.Remove(path))
	}
	return w, nil
}

// NewWriter is Create for an open, empty file, which Close closes. On error the file stays open.
func NewWriter(file *os.File, metadata map[string]string) (*Writer, error) {
	path := file.Name()
	// Payloads are compressed already; the chunk's compression is for headers and JSON. One encoder
	// thread limits the recorder's CPU use.
	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return nil, fmt.Errorf("recording %s: %w", path, err)
	}
	w := &Writer{
		path: path, file: file, encoder: encoder, channels: make(map[string]uint16), properties: make(map[string][]byte),
	}
	w.opts = &mcap.WriterOptions{
		IncludeCRC: true,
		Chunked:    true,
		ChunkSize:  chunkBytes,
		Compressor: mcap.NewCustomCompressor(mcap.CompressionZSTD, encoder),
	}
	if w.mcap, err = mcap.NewWriter(file, w.opts); err != nil {
		return nil, fmt.Errorf("recording %s: %w", path, err)
	}
	if err := w.mcap.WriteHeader(&mcap.Header{Profile: "holocast", Library: "holocast"}); err != nil {
		return nil, w.fail(err)
	}
	if len(metadata) > 0 {
		if err := w.mcap.WriteMetadata(&mcap.Metadata{Name: "session", Metadata: metadata}); err != nil {
			return nil, w.fail(err)
		}
	}
	schema := &mcap.Schema{ID: 1, Name: "moqt.Object", Encoding: "", Data: []byte(objectSchema)}
	if err := w.mcap.WriteSchema(schema); err != nil {
		return nil, w.fail(err)
	}
	w.whole = int64(w.mcap.Offset())
	return w, nil
}

// AddTrack announces a track with its alias and properties. Write announces unknown tracks without
// them.
func (w *Writer) AddTrack(info TrackInfo) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return w.err
	}
	_, err := w.channel(info)
	return err
}

func (w *Writer) channel(info TrackInfo) (uint16, error) {
	topic := info.Track.String()
	if id, ok := w.channels[topic]; ok {
		return id, nil
	}
	if err := info.Track.Validate(); err != nil {
		return 0, fmt.Errorf("recording %s: %w", w.path, err)
	}
	if len(w.channels) > math.MaxUint16 {
		return 0, fmt.Errorf("recording %s: more than %d tracks", w.path, math.MaxUint16+1)
	}
	id := uint16(len(w.channels))
	err := w.mcap.WriteChannel(&mcap.Channel{
		ID: id, SchemaID: 1, Topic: topic, MessageEncoding: messageEncoding,
		Metadata: map[string]string{
			"alias":      strconv.FormatUint(info.Alias, 10),
			"properties": hex.EncodeToString(info.Properties),
		},
	})
	if err != nil {
		return 0, w.fail(err)
	}
	w.channels[topic] = id
	w.properties[topic] = info.Properties
	w.sequence = append(w.sequence, 0)
	return id, nil
}

// Write records one object, copying it. After an error that ended the recording, such as a full
// disk, every call returns that error.
func (w *Writer) Write(o Object) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return w.err
	}
	id, err := w.channel(TrackInfo{Track: o.Track})
	if err != nil {
		return err
	}
	arrival := o.Arrival.UnixNano()
	if arrival <= 0 {
		return fmt.Errorf("recording %s: object %d/%d/%d of %v has no arrival time", w.path, o.Group, o.Subgroup,
			o.ObjectID, o.Track)
	}
	if err := w.flushPending(w.chunkStart != 0 && arrival-w.chunkStart >= int64(chunkTime)); err != nil {
		return err
	}
	data, err := o.appendTo(w.pending.Data[:0])
	if err != nil {
		return fmt.Errorf("recording %s: %w", w.path, err)
	}
	w.pending = mcap.Message{
		ChannelID:   id,
		Sequence:    w.sequence[id],
		LogTime:     uint64(arrival),
		PublishTime: uint64(arrival),
		Data:        data,
	}
	w.hasPending = true
	w.sequence[id]++
	if w.chunkStart == 0 {
		w.chunkStart = arrival
	}
	if stated(&o) {
		return w.writeState(o.Track.String(), arrival, data)
	}
	return nil
}

// writeState writes an object's metadata record. It precedes the open chunk, which is in memory.
func (w *Writer) writeState(topic string, arrival int64, data []byte) error {
	if err := w.mcap.WriteMetadata(stateOf(topic, arrival, w.properties[topic], data)); err != nil {
		return w.fail(err)
	}
	w.whole = int64(w.mcap.Offset())
	return nil
}

// flushPending passes the newest message to mcap and closes the chunk if endChunk is set. mcap
// closes a chunk only on a message that makes it exceed ChunkSize, an option that it reads each
// time. Therefore one message is always held back.
func (w *Writer) flushPending(endChunk bool) error {
	if !w.hasPending {
		return nil
	}
	w.opts.ChunkSize = chunkBytes
	if endChunk {
		w.opts.ChunkSize = 0
	}
	before := w.mcap.Offset()
	if err := w.mcap.WriteMessage(&w.pending); err != nil {
		return w.fail(err)
	}
	w.hasPending = false
	if cap(w.pending.Data) > 2*chunkBytes {
		w.pending.Data = nil // release the memory of a huge object
	}
	if w.mcap.Offset() != before {
		w.whole = int64(w.mcap.Offset())
		w.chunkStart = 0
	}
	return nil
}

// Size returns the bytes written to the file. The current chunk is still in memory.
func (w *Writer) Size() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.whole
}

// Sync ends the current chunk and flushes the file to disk. Call it about once a second while no
// objects arrive.
func (w *Writer) Sync() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return w.err
	}
	if err := w.flushPending(true); err != nil {
		return err
	}
	if err := w.file.Sync(); err != nil {
		return w.fail(err)
	}
	return nil
}

// Close writes the index and closes the file. After an earlier Close or a fatal error it only
// releases the file.
func (w *Writer) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.file == nil {
		return nil
	}
	ended := w.err != nil
	if !ended {
		err := w.flushPending(true)
		if err == nil {
			if err = w.mcap.Close(); err != nil {
				_ = w.fail(err)
			}
		}
	}
	err := errors.Join(w.encoder.Close(), w.file.Close())
	w.file = nil
	switch {
	case ended: // already returned to the caller
	case w.err != nil:
		return w.err
	case err != nil:
		w.err = fmt.Errorf("recording %s: %w", w.path, err)
		return w.err
	}
	w.err = fmt.Errorf("recording %s: %w", w.path, os.ErrClosed)
	return nil
}

// fail ends the recording and removes the incomplete chunk, so the file replays up to the previous
// one.
func (w *Writer) fail(cause error) error {
	w.err = fmt.Errorf("recording %s stopped after %d bytes, which can be replayed: %w", w.path, w.whole, cause)
	// /dev/full and pipes cannot be truncated; the reader tolerates the rest.
	_ = w.file.Truncate(w.whole)
	return w.err
}
