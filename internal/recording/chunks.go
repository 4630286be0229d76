package recording

import (
	"errors"
	"fmt"
	"io"

	"github.com/foxglove/mcap/go/mcap"
)

// Chunks reads the whole recording in file order and calls visit with each chunk's objects, by
// arrival, and the chunk's byte offset, for ReadChunk. Damaged chunks are skipped. Objects share
// their chunk's memory. Afterwards Next starts from the beginning.
func (r *Reader) Chunks(visit func(offset int64, objects []Object) error) error {
	r.rewind()
	defer r.rewind()
	for {
		objects, err := r.nextChunk()
		var frame *frameError
		switch {
		case errors.Is(err, io.EOF) || errors.As(err, &frame):
			return nil
		case err != nil:
			continue
		}
		if err := visit(r.chunkAt, objects); err != nil {
			return err
		}
	}
}

// ReadChunk reads the objects of a chunk that Chunks found, by arrival.
func (r *Reader) ReadChunk(offset int64) ([]Object, error) {
	op, length, err := r.recordAt(offset)
	if err == nil && op != mcap.OpChunk {
		err = fmt.Errorf("found a %v record instead of the chunk", op)
	}
	var objects []Object
	if err == nil {
		objects, err = r.chunk(offset+9, length)
	}
	if err != nil {
		return nil, fmt.Errorf("recording %s: chunk at byte %d: %w", r.name, offset, err)
	}
	return objects, nil
}

// rewind makes Next start with the first object again. Known channels are kept.
func (r *Reader) rewind() {
	r.offset, r.dataEnd = int64(len(mcap.Magic)), false
	r.ready, r.ahead = nil, nil
}
