//go:build linux && (amd64 || arm64)

package kernel

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// table is an array map in shared memory.
type table[T any] struct {
	memory []byte
	n      int
}

func mapTable[T any](m *ebpf.Map) (*table[T], error) {
	size := int(unsafe.Sizeof(*new(T)))
	if stride := int(m.ValueSize()+7) &^ 7; stride != size {
		return nil, fmt.Errorf("map %v has elements of %d bytes, want %d", m, stride, size)
	}
	n := int(m.MaxEntries())
	memory, err := unix.Mmap(m.FD(), 0, pages(n*size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %v: %w", m, err)
	}
	return &table[T]{memory, n}, nil
}

func pages(n int) int {
	page := os.Getpagesize()
	return (n + page - 1) / page * page
}

func (t *table[T]) at(i int) *T {
	if uint(i) >= uint(t.n) {
		panic(fmt.Sprintf("element %d is outside a table of %d", i, t.n))
	}
	return (*T)(unsafe.Add(unsafe.Pointer(&t.memory[0]), i*int(unsafe.Sizeof(*new(T)))))
}

func (t *table[T]) close() error {
	if t == nil {
		return nil
	}
	return unix.Munmap(t.memory)
}

// The programs use atomic operations on the same memory to order their loads.

func storeRelease(to *uint64, v uint64) { atomic.StoreUint64(to, v) }

// Keys protect one direction of a connection (RFC 9001 section 5).
type Keys struct {
	Key []byte // 32 bytes
	IV  []byte // 12 bytes
}

func (k Keys) set(to *fastpathPacketKey) {
	atomic.StoreUint32(&to.Valid, 0)
	for i := range to.Key {
		to.Key[i] = binary.LittleEndian.Uint32(k.Key[4*i:])
	}
	for i := range to.Iv {
		to.Iv[i] = binary.LittleEndian.Uint32(k.IV[4*i:])
	}
	atomic.StoreUint32(&to.Valid, 1)
}

func setHeaderKey(to *[8]uint32, key []byte) {
	for i := range to {
		to[i] = binary.LittleEndian.Uint32(key[4*i:])
	}
}

// Source is a publisher connection, shared with the programs. It is not safe for concurrent use.
type Source struct{ shared fastpathSource }

// SourceOptions describes a publisher connection.
type SourceOptions struct {
	Remote    netip.AddrPort
	HeaderKey []byte // 32 bytes
	Prefix    []byte // encoded quarter stream ID of a WebTransport session; empty for raw QUIC
}

// Start configures and enables a source. Call SetKeys first. The search for the packet number restarts
// at the last one known.
func (s *Source) Start(o SourceOptions) {
	v := &s.shared
	atomic.StoreUint32(&v.On, 0)
	v.Remote = endpoint(o.Remote)
	setHeaderKey(&v.HeaderKey, o.HeaderKey)
	v.Prefix, v.PrefixLength = prefix(o.Prefix)
	if v.Found != 0 { // packets may have been missed since
		v.Found, v.Guess = 0, uint32(v.Largest>>16)<<1
	}
	atomic.StoreUint32(&v.On, 1)
}

// On reports whether a source is enabled.
func (s *Source) On() bool { return atomic.LoadUint32(&s.shared.On) != 0 }

// SetKeys sets the keys for key phases with the same lowest bit.
func (s *Source) SetKeys(phase uint64, k Keys) { k.set(&s.shared.Keys[phase&1]) }

// Stop disables a source.
func (s *Source) Stop() { atomic.StoreUint32(&s.shared.On, 0) }

// Clear resets a stopped source for another connection.
func (s *Source) Clear() { s.shared = fastpathSource{} }

func prefix(b []byte) (uint64, uint32) {
	var p [8]byte
	n := copy(p[:], b)
	return binary.LittleEndian.Uint64(p[:]), uint32(n)
}

// Viewer is a viewer connection, shared with the programs. It is not safe for concurrent use.
type Viewer struct{ shared fastpathViewer }

// ViewerOptions describes a viewer connection.
type ViewerOptions struct {
	Remote    netip.AddrPort
	ConnID    []byte // destination connection ID of its packets
	HeaderKey []byte // 32 bytes
	Prefix    []byte // as in SourceOptions
	MaxSize   int    // UDP payload, bytes
	MaxFrame  int    // maximum size of a DATAGRAM frame in bytes, including its type
	ECN       uint8  // ECN field of the IP header
}

// blockNone is the value of Block.next when there is no block.
const blockNone = 1 << 62

// Start configures and enables a viewer. Packets are sent to it once it also has a block of packet
// numbers, keys and an allowance.
func (v *Viewer) Start(o ViewerOptions) {
	s := &v.shared
	atomic.StoreUint32(&s.On, 0)
	s.Remote = endpoint(o.Remote)
	s.Cid, s.CidLength = connID(o.ConnID), uint32(len(o.ConnID))
	setHeaderKey(&s.HeaderKey, o.HeaderKey)
	s.Prefix, s.PrefixLength = prefix(o.Prefix)
	s.MaxSize, s.MaxFrame, s.Ecn = uint32(o.MaxSize), uint32(o.MaxFrame), uint32(o.ECN)
	atomic.StoreUint32(&s.On, 1)
}

// Stop disables a viewer. Packets in progress are still sent.
func (v *Viewer) Stop() { atomic.StoreUint32(&v.shared.On, 0) }

// On reports whether a viewer is enabled. The programs disable it when its address changes.
func (v *Viewer) On() bool { return atomic.LoadUint32(&v.shared.On) != 0 }

// Clear resets a stopped viewer for another connection.
func (v *Viewer) Clear() {
	v.shared = fastpathViewer{}
	v.shared.Block.Next = blockNone
}

// SetKeys sets the keys for key phases with the same lowest bit. No block may be using such a
// phase.
func (v *Viewer) SetKeys(phase uint64, k Keys) { k.set(&v.shared.Keys[phase&1]) }

// Give hands out the packet numbers from first up to but excluding end, for a key phase. An earlier
// block must have been taken back.
func (v *Viewer) Give(first, end int64, phase uint64) {
	b := &v.shared.Block
	atomic.StoreUint64(&b.First, uint64(first))
	atomic.StoreUint64(&b.Limit, uint64(end)<<1|phase&1)
	atomic.StoreUint64(&b.Next, uint64(first))
}

// TakeBack takes the block back and returns the first unused number. Lower numbers have records, or
// will have them shortly.
func (v *Viewer) TakeBack() (next int64) {
	b := &v.shared.Block
	next = int64(atomic.SwapUint64(&b.Next, blockNone))
	return min(next, int64(atomic.LoadUint64(&b.Limit)>>1))
}

// Next returns the first unused number of the block. If all are used, it returns the end of the block
// or a higher number.
func (v *Viewer) Next() int64 { return int64(atomic.LoadUint64(&v.shared.Block.Next)) }

// Fallbacks returns the number of fallbacks and the location of the last one, or of one that is in
// progress and not counted yet.
func (v *Viewer) Fallbacks() (n uint64, track uint32, group, object uint64) {
	s := &v.shared
	n = atomic.LoadUint64(&s.Fallbacks)
	return n, atomic.LoadUint32(
			&s.LastFallback.Track,
		), atomic.LoadUint64(
			&s.LastFallback.Group,
		), atomic.LoadUint64(
			&s.LastFallback.Object,
		)
}

// CatchUp records that user space has sent the first n fallbacks. If there are no more, the programs
// continue, except for the rest of the last fallback's group.
func (v *Viewer) CatchUp(n uint64) { atomic.StoreUint64(&v.shared.CaughtUp, n) }

// Sent returns the total bytes of UDP payload sent.
func (v *Viewer) Sent() int64 { return int64(atomic.LoadUint64(&v.shared.Sent)) }

// Allow sets the limit for Sent.
func (v *Viewer) Allow(sent int64) { atomic.StoreUint64(&v.shared.Allowed, uint64(max(sent, 0))) }

// Allowed returns the limit set by Allow.
func (v *Viewer) Allowed() int64 { return int64(atomic.LoadUint64(&v.shared.Allowed)) }
