//go:build linux && (amd64 || arm64)

package kernel

import (
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// ring reads a ring buffer without system calls. It need not block, since the packet behind each
// record also reaches user space and wakes it up.
type ring struct {
	consumer, producer []byte
	data               []byte // mapped twice in a row, so that records never wrap
	mask               uint64
}

// A record header has four bytes with the length and two flags, and four bytes used by the kernel.
const (
	ringHeader  = unix.BPF_RINGBUF_HDR_SZ
	ringBusy    = unix.BPF_RINGBUF_BUSY_BIT
	ringDiscard = unix.BPF_RINGBUF_DISCARD_BIT
)

func mapRing(m *ebpf.Map) (*ring, error) {
	page, size := os.Getpagesize(), int(m.MaxEntries())
	consumer, err := unix.Mmap(m.FD(), 0, page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map ring: %w", err)
	}
	producer, err := unix.Mmap(m.FD(), int64(page), page+2*size, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		_ = unix.Munmap(consumer)
		return nil, fmt.Errorf("map ring: %w", err)
	}
	return &ring{consumer, producer, producer[page:], uint64(size - 1)}, nil
}

// drain calls take for all complete records, in order.
func (r *ring) drain(take func([]byte)) {
	consumed := (*uint64)(unsafe.Pointer(&r.consumer[0]))
	produced := (*uint64)(unsafe.Pointer(&r.producer[0]))
	at := atomic.LoadUint64(consumed)
	for at < atomic.LoadUint64(produced) {
		offset := at & r.mask
		header := atomic.LoadUint32((*uint32)(unsafe.Pointer(&r.data[offset])))
		if header&ringBusy != 0 {
			return
		}
		length := uint64(header &^ (ringBusy | ringDiscard))
		if header&ringDiscard == 0 {
			take(r.data[offset+ringHeader:][:length])
		}
		at += (length + ringHeader + 7) &^ 7
		atomic.StoreUint64(consumed, at)
	}
}

// drained reports whether the ring is empty.
func (r *ring) drained() bool {
	return atomic.LoadUint64(
		(*uint64)(unsafe.Pointer(&r.consumer[0])),
	) == atomic.LoadUint64(
		(*uint64)(unsafe.Pointer(&r.producer[0])),
	)
}

func (r *ring) close() error {
	if r == nil {
		return nil
	}
	if err := unix.Munmap(r.consumer); err != nil {
		return err
	}
	return unix.Munmap(r.producer)
}
