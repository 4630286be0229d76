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
	// Pin is as in SenderOptions; both may use the same directory.
	Pin string
	// Interfaces are those that replicas come in by. Their driver must have native
	// XDP: the kernel skips generic XDP for redirected packets, and replicas would
	// leak. An interface on VLAN tags has none; name the one below it.
	Interfaces []string
	// Stale is the age from which an equal packet is a new one; 0 = 1 s. At least
	// 10 ms, at most 30 s, in steps of 4.2 ms.
	Stale time.Duration
	// TableSize is the number of packets that the replica table remembers, rounded
	// up to a power of two; 0 = 1<<21 (16 MiB), good for 100 000 packets/s and 1 s.
	// What is pinned keeps its size. At most 1<<25.
	TableSize uint32
	// ArrivalRing is the size of the ring of arrivals, bytes, rounded up to a power
	// of two; 0 = 4 MiB, 0.3 s of 300 000 arrivals/s. What is pinned keeps its size.
	ArrivalRing uint32
}

// Receiver is the attached receiver. Its methods may be called from several
// goroutines.
type Receiver struct {
	dir  string
	maps map[string]*ebpf.Map
	done chan struct{} // closed by Close
	once sync.Once

	mu    sync.Mutex // of flows and ledger
	names sync.Map   // destination, netip.Addr, by the id of its flow, uint32

	reading  sync.Mutex
	arrivals *ringbuf.Reader
	record   ringbuf.Record
	next     time.Time // when arrivals are read again
	last     time.Time // when there were some
}

// Defaults and limits of ReceiverOptions.
const (
	defaultStale       = time.Second
	minStale           = 10 * time.Millisecond
	maxStale           = 30 * time.Second
	defaultTableSize   = 1 << 21
	maxTableSize       = 1 << 25
	defaultArrivalRing = 1 << 22

	slotWays = 8                     // of a bucket of the replica table
	slotUnit = 1 << 22               // nanoseconds
	pollBusy = 5 * time.Millisecond  // between looks for arrivals
	pollIdle = 20 * time.Millisecond // when none came for a second
)

func receiverDir(pin string) string { return filepath.Join(pin, "receiver") }

// OpenReceiver loads the program and attaches it, or takes over what is pinned in
// o.Pin without a packet being lost or doubled. The error is one sentence; errors.Is
// matches ErrPrivilege, ErrKernel, ErrNoNativeXDP.
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
	defer c.Close() // the program lives on in its attachments
	if err := r.open(c.Programs[receiverProgEliminate], targets, addresses, seed); err != nil {
		return fail(err)
	}
	return r, nil
}

// receiverTargets finds the interfaces, and by their indices the addresses that frames
// to them have.
func receiverTargets(interfaces []string) ([]target, map[uint32]receiverInterface, error) {
	var targets []target
	addresses := make(map[uint32]receiverInterface)
	for _, name := range interfaces {
		i, err := net.InterfaceByName(name)
		if err != nil {
			return nil, nil, fmt.Errorf("interface %s: %w", name, err)
		}
		t := target{Interface: i.Index, name: i.Name}
		if !slices.Contains(targets, t) { // several paths may come in by one
			targets = append(targets, t)
		}
		if len(i.HardwareAddr) == 6 {
			addresses[uint32(i.Index)] = receiverInterface{Address: [6]uint8(i.HardwareAddr)}
		}
	}
	return targets, addresses, nil
}

// setAddresses replaces the addresses that frames to this host have.
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
			return fmt.Errorf("interface addresses: %w", err)
		}
	}
	for index, address := range addresses {
		if err := m.Put(index, address); err != nil {
			return fmt.Errorf("interface addresses, room for %d: %w", m.MaxEntries(), err)
		}
	}
	return nil
}

// receiverSpec is the specification of the program with its settings but the seed.
func receiverSpec(o ReceiverOptions) (*ebpf.CollectionSpec, error) {
	spec, err := loadReceiver()
	if err != nil {
		return nil, err
	}
	if o.Stale == 0 {
		o.Stale = defaultStale
	}
	if o.Stale < minStale || o.Stale > maxStale {
		return nil, fmt.Errorf("replicas stale after %v: want %v to %v", o.Stale, minStale, maxStale)
	}
	if o.TableSize == 0 {
		o.TableSize = defaultTableSize
	}
	if o.TableSize > maxTableSize {
		return nil, fmt.Errorf("replica table of %d packets: at most %d", o.TableSize, maxTableSize)
	}
	if o.ArrivalRing == 0 {
		o.ArrivalRing = defaultArrivalRing
	}
	spec.Maps[receiverMapReplicas].MaxEntries = powerOfTwo(max(o.TableSize/slotWays, 1))
	spec.Maps[receiverMapArrivals].MaxEntries = powerOfTwo(max(o.ArrivalRing, uint32(os.Getpagesize())))
	return spec, set(spec, map[string]any{receiverVarStale: uint32((o.Stale + slotUnit - 1) / slotUnit)})
}

// powerOfTwo is the least power of two that is not less than n.
func powerOfTwo(n uint32) uint32 { return 1 << bits.Len32(n-1) }

// pinnedSeed is the seed that the hashes in the pinned replica table have, or a new
// one. The table's size is a constant of the program too, and is set here to that of
// the pinned one.
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
			return 0, fmt.Errorf("the maps in %s are of another version: detach it first: %w", dir, err)
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
func (r *Receiver) open(program *ebpf.Program, targets []target, addresses map[uint32]receiverInterface, seed uint64) error {
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
		return fmt.Errorf("arrival ring: %w", err)
	}
	r.arrivals.SetDeadline(time.Now()) // never wait: nobody wakes the reader
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

// PinnedReceiver opens what a receiver left pinned in pin, to look at or to detach:
// it loads and attaches nothing, and ReadArrivals says os.ErrClosed. The error is
// fs.ErrNotExist if nothing is pinned.
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

// Verdict is what became of a replica.
type Verdict uint8

const (
	// First says that it passed.
	First Verdict = iota
	// Late says that it was dropped: another replica of the packet was there before.
	Late
	// Rogue says that its path is not in the flow's set, or delivered the packet before.
	// It passed if it was the first all the same, see Arrival.Passed.
	Rogue
)

// Arrival is the arrival of one replica.
type Arrival struct {
	Key     uint64        // the same for all replicas of a packet
	Time    time.Duration // CLOCK_MONOTONIC
	Flow    netip.Addr    // its destination; the zero Addr if it was removed meanwhile
	Path    int           // 1 to MaxPaths
	ID      uint16        // IPv4 identification; 0 for IPv6
	Length  int           // of the IP packet, bytes
	Verdict Verdict
	Passed  bool // First, and Rogue where it was the first
}

// ReadArrivals waits for arrivals, fills buf with them in order of arrival and
// returns their number, at least 1. They are looked for every 5 ms, or 20 ms when
// none came for a second. The error is ctx's, or os.ErrClosed after Close.
func (r *Receiver) ReadArrivals(ctx context.Context, buf []Arrival) (int, error) {
	r.reading.Lock()
	defer r.reading.Unlock()
	if len(buf) == 0 {
		return 0, errors.New("no room for arrivals")
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
		case n == len(buf): // there may be more already
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

// pause waits until arrivals are to be looked for.
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

// readArrivals reads what is there.
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

// Flags of an arrival record: enum arrival_flags of structs.h.
const (
	arrivalPassed  = 1
	arrivalOutside = 2
	arrivalTwice   = 4
)

// arrival is what a record says.
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

// Close ends the reader and leaves program and maps running, pinned.
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

// Detach closes, takes the program off all interfaces and removes all that is
// pinned.
func (r *Receiver) Detach() error {
	return errors.Join(r.Close(), r.detach())
}

func (r *Receiver) detach() error {
	if err := detachExcept(r.dir, nil); err != nil {
		return explain("detach", err, nil)
	}
	return removePins(r.dir)
}
