package bpf

import (
	"context"
	"errors"
	"os"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"
)

// ring reads a ring buffer whose producer wakes the reader.
type ring struct{ reader *ringbuf.Reader }

func openRing(m *ebpf.Map) (*ring, error) {
	r, err := ringbuf.NewReader(m)
	if err != nil {
		return nil, err
	}
	return &ring{r}, nil
}

// next waits for a record and returns its bytes.
func (r *ring) next(ctx context.Context) ([]byte, error) {
	if r == nil {
		return nil, os.ErrClosed
	}
	stop := context.AfterFunc(ctx, func() { _ = r.reader.Flush() })
	defer stop()
	for {
		record, err := r.reader.Read()
		if !errors.Is(err, ringbuf.ErrFlushed) {
			return record.RawSample, err
		}
		// The reader was flushed because this context, or the context of an earlier call, is done.
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
}

func (r *ring) close() error {
	if r == nil {
		return nil
	}
	return r.reader.Close()
}

// recordOf converts a record to its Go struct, which is generated from the C struct.
func recordOf[T any](b []byte) (record T) {
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&record)), unsafe.Sizeof(record)), b)
	return record
}
