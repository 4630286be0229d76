//go:build linux && (amd64 || arm64)

package kernel

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/features"
	"golang.org/x/sys/unix"

	"holocast/internal/bpfload"
)

// Limits of the programs.
const (
	MaxSources      = 256  // publisher connections
	MaxViewers      = 1024 // viewer connections
	MaxTrackViewers = 64   // viewers per track
	MaxConnID       = 20   // bytes of a connection ID
)

// Options configure the programs at load time.
type Options struct {
	Port      uint16 // the relay's UDP port
	ConnIDLen int    // length of the relay's connection IDs, 1 to MaxConnID bytes
	// Unprotected disables packet protection, for measurements. Attach then rejects interfaces of
	// the machine's own network, except for loopback.
	Unprotected bool
}

// Forwarder holds the loaded programs and their maps. It is safe for concurrent use, except for
// Drain.
type Forwarder struct {
	programs    map[string]*ebpf.Program
	maps        map[string]*ebpf.Map
	sources     *table[Source]
	viewers     *table[Viewer]
	precomputed *table[KeyStreams]
	leases      *table[fastpathLease]
	ring        *ring

	unprotected bool
}

// Check returns an error if the programs are known not to run on this kernel.
func Check() error {
	if b, err := os.ReadFile("/sys/kernel/realtime"); err == nil && strings.TrimSpace(string(b)) == "1" {
		return errors.New(
			"cannot run on a kernel with PREEMPT_RT, where a program may be interrupted while it uses per-CPU memory",
		)
	}
	if err := features.HaveProgramType(ebpf.SchedCLS); errors.Is(err, unix.EPERM) {
		return bpfload.Explain("eBPF", err, nil)
	}
	return bpfload.Missing(requirements())
}

// requirements lists the required kernel features, oldest first. TCX is optional, since clsact can
// replace it.
func requirements() []bpfload.Requirement {
	return []bpfload.Requirement{
		{
			Name:  "the helper bpf_clone_redirect in TC",
			Since: "4.2",
			Have:  bpfload.Helper(ebpf.SchedCLS, asm.FnCloneRedirect),
		},
		{
			Name:  "the helper bpf_skb_change_proto in TC",
			Since: "4.8",
			Have:  bpfload.Helper(ebpf.SchedCLS, asm.FnSkbChangeProto),
		},
		{Name: "bounded loops in eBPF", Since: "5.3", Have: features.HaveBoundedLoops},
		{Name: "eBPF ring buffers", Since: "5.8", Have: func() error { return features.HaveMapType(ebpf.RingBuf) }},
		// Detected by a helper that was introduced in the same kernel version.
		{
			Name:  "atomic compare-and-exchange in eBPF",
			Since: "5.12",
			Have:  bpfload.Helper(ebpf.SchedCLS, asm.FnCheckMtu),
		},
	}
}

// Open loads the programs without attaching them.
func Open(o Options) (_ *Forwarder, err error) {
	if o.ConnIDLen < 1 || o.ConnIDLen > MaxConnID {
		return nil, fmt.Errorf("connection IDs of %d bytes: want 1 to %d", o.ConnIDLen, MaxConnID)
	}
	if err := Check(); err != nil {
		return nil, err
	}
	spec, err := loadFastpath()
	if err != nil {
		return nil, err
	}
	for name, value := range map[string]any{
		fastpathVarPort: networkOrder(o.Port), fastpathVarCidLength: uint32(o.ConnIDLen),
		fastpathVarUnprotected: o.Unprotected,
	} {
		if err := spec.Variables[name].Set(value); err != nil {
			return nil, fmt.Errorf("setting %s: %w", name, err)
		}
	}
	c, err := ebpf.NewCollection(spec)
	if err != nil {
		return nil, bpfload.Explain("load eBPF programs", err, requirements())
	}
	k := &Forwarder{programs: c.Programs, maps: c.Maps, unprotected: o.Unprotected}
	defer func() {
		if err != nil {
			_ = k.Close()
		}
	}()
	if k.sources, err = mapTable[Source](k.maps[fastpathMapSources]); err != nil {
		return nil, err
	}
	if k.viewers, err = mapTable[Viewer](k.maps[fastpathMapViewers]); err != nil {
		return nil, err
	}
	if k.precomputed, err = mapTable[KeyStreams](k.maps[fastpathMapPrecomputed]); err != nil {
		return nil, err
	}
	if k.leases, err = mapTable[fastpathLease](k.maps[fastpathMapLeases]); err != nil {
		return nil, err
	}
	k.ring, err = mapRing(k.maps[fastpathMapRecords])
	return k, err
}

// Close unloads the programs. Detach them first.
func (k *Forwarder) Close() error {
	err := errors.Join(k.ring.close(), k.sources.close(), k.viewers.close(), k.precomputed.close(), k.leases.close())
	for _, p := range k.programs {
		err = errors.Join(err, p.Close())
	}
	for _, m := range k.maps {
		err = errors.Join(err, m.Close())
	}
	return err
}

// Source returns the i-th publisher connection.
func (k *Forwarder) Source(i int) *Source { return k.sources.at(i) }

// Viewer returns the i-th viewer connection.
func (k *Forwarder) Viewer(i int) *Viewer { return k.viewers.at(i) }

// KeyStreams returns the key streams of the i-th viewer, or nil if it has none.
func (k *Forwarder) KeyStreams(i int) *KeyStreams {
	if !precomputes || i >= k.precomputed.n {
		return nil
	}
	return k.precomputed.at(i)
}

// Renew lets the programs run until the given time on CLOCK_MONOTONIC.
func (k *Forwarder) Renew(until time.Duration) {
	storeRelease(&k.leases.at(0).Until, uint64(until))
}

// Now returns the time on CLOCK_MONOTONIC, the clock of all times in this package.
func Now() time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) // cannot fail for this clock
	return time.Duration(ts.Nano())
}

// Role holds a connection's source and viewer indices, with -1 for a role that it does not have.
type Role struct{ Source, Viewer int }

// SetConnection assigns a connection ID to a connection.
func (k *Forwarder) SetConnection(id []byte, r Role) error {
	return k.maps[fastpathMapConnections].Put(
		connID(id),
		fastpathConnection{Source: uint32(r.Source + 1), Viewer: uint32(r.Viewer + 1)},
	)
}

// RemoveConnection removes a connection ID.
func (k *Forwarder) RemoveConnection(id []byte) error {
	return ignoreMissing(k.maps[fastpathMapConnections].Delete(connID(id)))
}

func connID(id []byte) (key fastpathConnectionId) {
	copy(key.Bytes[:], id)
	return key
}

// Subscription is a viewer's subscription to a track.
type Subscription struct {
	Viewer                  int
	Alias                   []byte // encoded, at most 9 bytes
	StartGroup, StartObject uint64
	LastGroup               uint64
}

// SetTrack sets the subscriptions to a track that a source sends under an alias. It ignores
// subscriptions beyond MaxTrackViewers.
func (k *Forwarder) SetTrack(source int, alias uint64, id uint32, subs []Subscription) error {
	t := fastpathTrack{Id: id}
	for _, s := range subs[:min(len(subs), MaxTrackViewers)] {
		v := &t.Viewers[t.Count]
		v.StartGroup, v.StartObject, v.LastGroup = s.StartGroup, s.StartObject, s.LastGroup
		v.Viewer, v.AliasLength = uint32(s.Viewer), uint32(copy(bytesOf(&v.Alias), s.Alias))
		t.Count++
	}
	return k.maps[fastpathMapTracks].Put(trackKey(source, alias), &t)
}

// RemoveTrack removes a track.
func (k *Forwarder) RemoveTrack(source int, alias uint64) error {
	return ignoreMissing(k.maps[fastpathMapTracks].Delete(trackKey(source, alias)))
}

func trackKey(source int, alias uint64) fastpathTrackKey {
	return fastpathTrackKey{Alias: alias, Source: uint32(source)}
}

// AddRoute makes the programs learn the route to an address.
func (k *Forwarder) AddRoute(remote netip.AddrPort) error {
	err := k.maps[fastpathMapRoutes].Update(endpoint(remote), fastpathRoute{}, ebpf.UpdateNoExist)
	if errors.Is(err, ebpf.ErrKeyExist) {
		return nil
	}
	return err
}

// RemoveRoute removes the route to an address.
func (k *Forwarder) RemoveRoute(remote netip.AddrPort) error {
	return ignoreMissing(k.maps[fastpathMapRoutes].Delete(endpoint(remote)))
}

// Routed reports whether the stack has sent a packet to an address since AddRoute.
func (k *Forwarder) Routed(remote netip.AddrPort) bool {
	var r fastpathRoute
	return k.maps[fastpathMapRoutes].Lookup(endpoint(remote), &r) == nil && r.Ifindex != 0
}

func endpoint(a netip.AddrPort) (e fastpathEndpoint) {
	b := a.Addr().As16()
	copy(bytesOf(&e.Address), b[:])
	e.Port = networkOrder(a.Port())
	return e
}

func networkOrder(n uint16) uint16 { return n<<8 | n>>8 }

func ignoreMissing(err error) error {
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return nil
	}
	return err
}

// bytesOf returns the memory of a value.
func bytesOf[T any](v *T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(v)), unsafe.Sizeof(*v))
}

// Record describes a packet sent to a viewer.
type Record struct {
	Time          time.Duration // CLOCK_MONOTONIC
	Number        int64
	Group, Object uint64
	Viewer        int
	Track         uint32
	Size          int // UDP payload, bytes
	ECN           uint8
}

// Drained reports whether the ring is empty.
func (k *Forwarder) Drained() bool { return k.ring.drained() }

// Drain calls take for each record since the last call to Drain. It must not be called concurrently.
func (k *Forwarder) Drain(take func(Record)) {
	k.ring.drain(func(b []byte) {
		var r fastpathSentRecord
		copy(bytesOf(&r), b)
		take(Record{
			Time: time.Duration(r.Time), Number: int64(r.Number), Group: r.Group, Object: r.Object,
			Viewer: int(r.Viewer), Track: r.Track, Size: int(r.Size), ECN: uint8(r.Ecn),
		})
	})
}

// Runtime returns the run time of the programs if the kernel measures it (sysctl
// kernel.bpf_stats_enabled). It omits viewer_egress, because publisher_ingress includes its run time
// for clones.
func (k *Forwarder) Runtime() (total time.Duration, err error) {
	for name, p := range k.programs {
		if name == fastpathProgViewerEgress { // runs inside publisher_ingress
			continue
		}
		s, err := p.Stats()
		if err != nil {
			return 0, err
		}
		total += s.Runtime
	}
	return total, nil
}
