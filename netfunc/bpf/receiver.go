package bpf

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"
)

// ReceiverOptions configure a receiver.
type ReceiverOptions struct {
	// Pin has the same meaning as in SenderOptions. Both may use the same directory.
	Pin string
	// Interfaces lists the interfaces that receive replicas. Their drivers must have native XDP,
	// since the kernel skips generic XDP for redirected packets, so replicas would leak. VLAN
	// interfaces have no native XDP; name the parent interface.
	Interfaces []string
	// Stale is the age at which an equal packet counts as a new one, 10 ms to 30 s in steps of 4.2
	// ms. Zero means 1 s.
	Stale time.Duration
	// TableSize is the number of packets in the replica table, rounded up to a power of two, at
	// most 1<<25. Zero means 1<<21 (16 MiB), enough for 100 000 packets/s with a Stale of 1 s. The
	// size of a pinned table does not change.
	TableSize uint32
	// ArrivalRing is the size of the arrival ring in bytes, rounded up to a power of two. Zero
	// means 4 MiB, which holds 0.3 s at 300 000 arrivals/s. The size of a pinned ring does not
	// change.
	ArrivalRing uint32
}

// Receiver is an attached receiver. It is safe for concurrent use.
type Receiver struct {
	dir  string
	maps map[string]*ebpf.Map
	done chan struct{} // closed by Close
	once sync.Once

	mu    sync.Mutex // guards flows and the ledger
	names sync.Map   // destination (netip.Addr) by flow ID (uint32)

	reading  sync.Mutex
	arrivals *ringbuf.Reader
	record   ringbuf.Record
	next     time.Time // next time to read arrivals
	last     time.Time // last time there were arrivals
}

// Defaults and limits of ReceiverOptions.
const (
	DefaultStale       = time.Second
	minStale           = 10 * time.Millisecond
	maxStale           = 30 * time.Second
	DefaultTableSize   = 1 << 21
	MaxTableSize       = 1 << 25
	defaultArrivalRing = 1 << 22

	slotWays = 8                     // per bucket of the replica table
	slotUnit = 1 << 22               // nanoseconds
	pollBusy = 5 * time.Millisecond  // interval between reads of the ring
	pollIdle = 20 * time.Millisecond // the same after a second without arrivals
)

func receiverDir(pin string) string { return filepath.Join(pin, "receiver") }

// OpenReceiver loads and attaches the program, or takes over the state pinned in o.Pin without
// losing or duplicating a packet. The error is one sentence; errors.Is matches ErrPrivilege, ErrKernel
// and ErrNoNativeXDP.
func OpenReceiver(o ReceiverOptions) (*Receiver, error) {
	targets, addresses, err := receiverTargets(o.Interfaces)
	if err != nil {
		return nil, err
	}
	spec, err := receiverSpec(o)
	if err != nil {
		return nil, err
	}
	dir := receiverDir(o.Pin)
	if err := preparePins(dir); err != nil {
		return nil, err
	}
	fresh := !pinned(dir)
	r := &Receiver{dir: dir, done: make(chan struct{})}
	fail := func(err error) (*Receiver, error) {
		_ = r.Close()
		if fresh {
			err = errors.Join(err, r.detach())
		}
		return nil, err
	}
	seed, err := pinnedSeed(spec, dir)
	if err != nil {
		return fail(err)
	}
	if err := set(spec, map[string]any{receiverVarSeed: seed}); err != nil {
		return fail(err)
	}
	c, err := load(spec, dir, receiverMapReplicas, receiverMapArrivals)
	if err != nil {
		return fail(err)
	}
	r.maps = c.Maps
	c.Maps = nil
	defer c.Close() // its attachments keep the program
	if err := r.open(c.Programs[receiverProgEliminate], targets, addresses, seed); err != nil {
		return fail(err)
	}
	return r, nil
}

// receiverTargets resolves the interfaces and returns their Ethernet addresses by index.
func receiverTargets(interfaces []string) ([]target, map[uint32]receiverInterface, error) {
	var targets []target
	addresses := make(map[uint32]receiverInterface)
	for _, name := range interfaces {
		i, err := net.InterfaceByName(name)
		if err != nil {
			return nil, nil, fmt.Errorf("interface %s: %w", name, err)
		}
		t := target{Interface: i.Index, name: i.Name}
		if !slices.Contains(targets, t) { // several paths may share an interface
			targets = append(targets, t)
		}
		if len(i.HardwareAddr) == 6 {
			addresses[uint32(i.Index)] = receiverInterface{Address: [6]uint8(i.HardwareAddr)}
		}
	}
	return targets, addresses, nil
}

// setAddresses replaces the Ethernet addresses that count as this host's.
func (r *Receiver) setAddresses(addresses map[uint32]receiverInterface) error {
	m := r.maps[receiverMapInterfaces]
	var gone []uint32
	var index uint32
	var address receiverInterface
	for known := m.Iterate(); known.Next(&index, &address); {
		if _, ok := addresses[index]; !ok {
			gone = append(gone, index)
		}
	}
	for _, index := range gone {
		if err := m.Delete(index); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("remove address of a former interface: %w", err)
		}
	}
	for index, address := range addresses {
		if err := m.Put(index, address); err != nil {
			return fmt.Errorf("store addresses of at most %d interfaces: %w", m.MaxEntries(), err)
		}
	}
	return nil
}

// receiverSpec returns the program's specification with all settings except the seed.
func receiverSpec(o ReceiverOptions) (*ebpf.CollectionSpec, error) {
	spec, err := loadReceiver()
	if err != nil {
		return nil, err
	}
	if o.Stale == 0 {
		o.Stale = DefaultStale
	}
	if o.Stale < minStale || o.Stale > maxStale {
		return nil, fmt.Errorf("stale time of %v: want %v to %v", o.Stale, minStale, maxStale)
	}
	if o.TableSize == 0 {
		o.TableSize = DefaultTableSize
	}
	if o.TableSize > MaxTableSize {
		return nil, fmt.Errorf("replica table of %d packets, want at most %d", o.TableSize, MaxTableSize)
	}
	if o.ArrivalRing == 0 {
		o.ArrivalRing = defaultArrivalRing
	}
	spec.Maps[receiverMapReplicas].MaxEntries = powerOfTwo(max(o.TableSize/slotWays, 1))
	spec.Maps[receiverMapArrivals].MaxEntries = powerOfTwo(max(o.ArrivalRing, uint32(os.Getpagesize())))
	return spec, set(spec, map[string]any{receiverVarStale: uint32((o.Stale + slotUnit - 1) / slotUnit)})
}

// powerOfTwo returns the smallest power of two that is at least n.
func powerOfTwo(n uint32) uint32 { return 1 << bits.Len32(n-1) }

// pinnedSeed returns the hash seed of the pinned replica table, or a new seed if none is pinned. It
// also sets the program's table size, which is that of the pinned table if there is one.
func pinnedSeed(spec *ebpf.CollectionSpec, dir string) (uint64, error) {
	buckets := spec.Maps[receiverMapReplicas].MaxEntries
	if m, err := ebpf.LoadPinnedMap(filepath.Join(dir, receiverMapReplicas), nil); err == nil {
		buckets = m.MaxEntries()
		_ = m.Close()
	}
	if err := set(spec, map[string]any{receiverVarBucketMask: buckets - 1}); err != nil {
		return 0, err
	}
	var ledger receiverLedger
	if m, err := ebpf.LoadPinnedMap(filepath.Join(dir, receiverMapLedgers), nil); err == nil {
		defer func() { _ = m.Close() }()
		if err := m.Lookup(uint32(0), &ledger); err != nil {
			return 0, fmt.Errorf("the maps in %s are from another version; detach first: %w", dir, err)
		}
	}
	if ledger.Seed != 0 {
		return ledger.Seed, nil
	}
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	return binary.NativeEndian.Uint64(b[:]) | 1, nil
}

// open attaches the program and opens the ring.
func (r *Receiver) open(
	program *ebpf.Program,
	targets []target,
	addresses map[uint32]receiverInterface,
	seed uint64,
) error {
	ledger, err := r.ledger()
	if err != nil {
		return err
	}
	if ledger.Seed == 0 {
		ledger.Seed = seed
		if err := r.setLedger(ledger); err != nil {
			return err
		}
	}
	if err := r.nameFlows(); err != nil {
		return err
	}
	if r.arrivals, err = ringbuf.NewReader(r.maps[receiverMapArrivals]); err != nil {
		return fmt.Errorf("open arrival ring: %w", err)
	}
	r.arrivals.SetDeadline(time.Now()) // never block, since the program does not wake the reader
	if err := r.setAddresses(addresses); err != nil {
		return err
	}
	keep := make(map[string]bool)
	for _, t := range targets {
		if err := attachXDP(r.dir, t, program); err != nil {
			return explain("attach XDP", err, nil)
		}
		keep[t.String()] = true
	}
	return detachExcept(r.dir, keep)
}

// PinnedReceiver opens the state that a receiver pinned in pin, to inspect or detach it. It loads and
// attaches nothing, and ReadArrivals returns os.ErrClosed. If nothing is pinned, the error matches
// fs.ErrNotExist.
func PinnedReceiver(pin string) (*Receiver, error) {
	spec, err := loadReceiver()
	if err != nil {
		return nil, err
	}
	maps, err := pinnedMaps(spec, receiverDir(pin))
	if err != nil {
		return nil, err
	}
	return &Receiver{dir: receiverDir(pin), maps: maps, done: make(chan struct{})}, nil
}

// Verdict classifies a replica.
type Verdict uint8

const (
	// First means that the replica was the first of its packet, and passed.
	First Verdict = iota
	// Late means that the replica was dropped because another replica of the packet had arrived.
	Late
	// Rogue means that the replica's path is not in the flow's set or has already delivered the
	// packet. The first replica of a packet passes even so; see Arrival.Passed.
	Rogue
)

// Arrival reports one replica.
type Arrival struct {
	Key     uint64        // shared by all replicas of a packet
	Time    time.Duration // CLOCK_MONOTONIC
	Flow    netip.Addr    // destination; the zero Addr if the flow was removed meanwhile
	Path    int           // 1 to MaxPaths
	ID      uint16        // IPv4 identification; 0 for IPv6
	Length  int           // IP packet length, bytes
	Verdict Verdict
	Passed  bool // true for First, and for Rogue replicas that arrived first
}

// ReadArrivals waits for arrivals, fills buf in order of arrival and returns their number, at least
// 1. It polls every 5 ms, or every 20 ms after a second without arrivals. It returns ctx.Err() once
// ctx is done, and os.ErrClosed after Close.
func (r *Receiver) ReadArrivals(ctx context.Context, buf []Arrival) (int, error) {
	r.reading.Lock()
	defer r.reading.Unlock()
	if len(buf) == 0 {
		return 0, errors.New("buffer for arrivals is empty")
	}
	for {
		if err := r.pause(ctx); err != nil {
			return 0, err
		}
		n, err := r.readArrivals(buf)
		if err != nil {
			return 0, err
		}
		now := time.Now()
		switch {
		case n == len(buf): // more may be waiting
			r.next = now
		case n > 0 || now.Sub(r.last) < time.Second:
			r.next = now.Add(pollBusy)
		default:
			r.next = now.Add(pollIdle)
		}
		if n > 0 {
			r.last = now
			return n, nil
		}
	}
}

// pause waits until the next read is due.
func (r *Receiver) pause(ctx context.Context) error {
	wait := time.NewTimer(time.Until(r.next))
	defer wait.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-r.done:
		return os.ErrClosed
	case <-wait.C:
		if r.arrivals == nil {
			return os.ErrClosed
		}
		return ctx.Err()
	}
}

// readArrivals reads the arrivals in the ring without waiting.
func (r *Receiver) readArrivals(buf []Arrival) (n int, err error) {
	for n < len(buf) {
		err := r.arrivals.ReadInto(&r.record)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		if err != nil {
			return n, err
		}
		buf[n] = r.arrival(recordOf[receiverArrivalRecord](r.record.RawSample))
		n++
	}
	return n, nil
}

// Flags of an arrival record, as in enum arrival_flags in structs.h.
const (
	arrivalPassed  = 1
	arrivalOutside = 2
	arrivalTwice   = 4
)

// arrival converts a record.
func (r *Receiver) arrival(record receiverArrivalRecord) Arrival {
	a := Arrival{
		Key:    record.Key,
		Time:   time.Duration(record.Time),
		ID:     record.Id,
		Length: int(record.Length),
		Path:   int(record.Path) + 1,
		Passed: record.Flags&arrivalPassed != 0,
	}
	if name, ok := r.names.Load(record.Flow); ok {
		a.Flow = name.(netip.Addr)
	}
	switch {
	case record.Flags&(arrivalOutside|arrivalTwice) != 0:
		a.Verdict = Rogue
	case !a.Passed:
		a.Verdict = Late
	}
	return a
}

// Close ends the reader. Program and maps stay pinned and active.
func (r *Receiver) Close() error {
	r.once.Do(func() { close(r.done) })
	r.reading.Lock()
	defer r.reading.Unlock()
	var err error
	if r.arrivals != nil {
		err = r.arrivals.Close()
	}
	closeMaps(r.maps)
	return err
}

// Detach closes the receiver, detaches the program and removes everything pinned.
func (r *Receiver) Detach() error {
	return errors.Join(r.Close(), r.detach())
}

func (r *Receiver) detach() error {
	if err := detachExcept(r.dir, nil); err != nil {
		return explain("detach", err, nil)
	}
	return removePins(r.dir)
}
