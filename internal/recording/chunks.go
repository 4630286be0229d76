package recording

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/foxglove/mcap/go/mcap"
)

// Chunks reads the whole recording in file order. It calls visit with each chunk's objects, in
// order of arrival, and the chunk's byte offset for ReadChunk. Records outside chunks are read in
// batches of a chunk's size. Damaged chunks are skipped. Objects share their chunk's memory.
// Afterwards Next starts from the beginning.
func (r *Reader) Chunks(visit func(offset int64, objects []Object) error) error {
	r.rewind()
	defer r.rewind()
	r.ready = nil
	if len(r.restored) > 0 {
		if err := visit(0, slices.Clone(r.restored)); err != nil {
			return err
		}
	}
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

// ReadChunk returns the objects of a chunk that Chunks found, in order of arrival.
func (r *Reader) ReadChunk(offset int64) ([]Object, error) {
	if offset == 0 {
		return slices.Clone(r.restored), nil
	}
	op, length, err := r.recordAt(offset)
	var objects []Object
	switch {
	case err != nil:
	case op == mcap.OpChunk:
		objects, err = r.chunk(offset+9, length)
	case op == mcap.OpChannel || op == mcap.OpMessage:
		objects, _, err = r.loose(offset)
	default:
		err = fmt.Errorf("found a %v record instead of the chunk", op)
	}
	if err != nil {
		return nil, fmt.Errorf("recording %s: chunk at byte %d: %w", r.name, offset, err)
	}
	return objects, nil
}

// rewind makes Next start with the first object again. Known channels are kept.
func (r *Reader) rewind() {
	r.offset, r.dataEnd = int64(len(mcap.Magic)), false
	r.ready, r.ahead = slices.Clone(r.restored), nil
}
