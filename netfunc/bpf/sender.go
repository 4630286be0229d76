package bpf

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/cilium/ebpf"

	"holocast/netfunc/signal"
)

// Direction is the role in which a sender attaches to an interface. Ingress and Monitor also
// consume signalling packets for this host.
type Direction uint8

const (
	// Ingress duplicates packets that the interface receives. It is for the LAN side of an edge
	// that is a router, and decrements the TTL or hop limit.
	Ingress Direction = iota
	// Egress duplicates packets that leave by the interface. It is for the interfaces of the paths
	// if the edge runs on the host whose packets it duplicates.
	Egress
	// Monitor is the uplink monitor. It watches the packets that the interface receives from
	// viewers, and duplicates nothing.
	Monitor
)

// String returns the name used in pins and errors.
func (d Direction) String() string {
	switch d {
	case Ingress:
		return "ingress"
	case Egress:
		return "egress"
	case Monitor:
		return "monitor"
	default:
		return "direction " + strconv.Itoa(int(d))
	}
}

// Attach is one attachment of a sender.
type Attach struct {
	Interface string
	Direction Direction
}

// SenderOptions configure a sender.
type SenderOptions struct {
	// Pin is the directory for maps and links, on a bpf file system. It is created, and /sys/fs/bpf
	// is mounted if Pin is below it.
	Pin string
	// Attach lists the attachments. Attachments of an earlier run that are not listed are removed.
	Attach []Attach
	// SignalKey is the HMAC key of signalling packets. Without one, all are rejected as spoofed.
	SignalKey []byte
	// SignalPort is the UDP port of signalling packets; 0 means 4790.
	SignalPort uint16
	// SignalNonce is the nonce of an earlier run that signalling packets must exceed. A higher
	// pinned nonce takes precedence. If it is 0 and nothing is pinned, they must exceed the UNIX
	// time in nanoseconds of five seconds ago, so packets recorded earlier cannot be replayed
	// after a reboot.
	SignalNonce uint64
	// UplinkMin and UplinkMax are the window of the uplink monitor, an inclusive range of IP packet
	// lengths in bytes. If both are 0, it is 200 to 300.
	UplinkMin, UplinkMax uint16
	// MaxPolicies is the size of the policy map in destinations; 0 means 4096. The size of a pinned
	// map does not change.
	MaxPolicies uint32
	// FlowLabel makes the sender number IPv6 packets in the flow label, since IPv6 has no packet
	// ID. Without it, the receiver tells apart up to 8 equal packets of a flow within the stale
	// time by counting per path; see README.md. Do not set it if a path balances load over several
	// links by flow label.
	FlowLabel bool
	// Clsact attaches with clsact filters even if the kernel has TCX (Linux 6.6).
	Clsact bool
}

// Sender is an attached sender. It is safe for concurrent use.
type Sender struct {
	dir     string
	maps    map[string]*ebpf.Map
	uplinks *ring
	signals *ring

	mu sync.Mutex // serializes read-modify-write of path_states and policies
}

// Defaults of SenderOptions.
const (
	defaultSignalPort  = signal.Port
	DefaultUplinkMin   = 200
	DefaultUplinkMax   = 300
	DefaultMaxPolicies = 4096
	clockAllowance     = 5 * time.Second // for SignalNonce
)

func senderDir(pin string) string { return filepath.Join(pin, "sender") }

// OpenSender loads and attaches the programs, or takes over the state pinned in o.Pin without losing
// a packet or failing to duplicate one. The error is one sentence; errors.Is matches
// ErrPrivilege and ErrKernel.
func OpenSender(o SenderOptions) (*Sender, error) {
	targets, err := senderTargets(o.Attach)
	if err != nil {
		return nil, err
	}
	spec, err := senderSpec(o)
	if err != nil {
		return nil, err
	}
	dir := senderDir(o.Pin)
	if err := preparePins(dir); err != nil {
		return nil, err
	}
	fresh := !pinned(dir)
	c, err := load(spec, dir, senderMapPolicies)
	if err != nil {
		if fresh {
			_ = removePins(dir)
		}
		return nil, err
	}
	s := &Sender{dir: dir, maps: c.Maps}
	c.Maps = nil
	defer c.Close() // their attachments keep the programs
	if err = s.open(c.Programs, targets, o); err != nil {
		_ = s.Close()
		if fresh {
			err = errors.Join(err, s.detach())
		}
		return nil, err
	}
	return s, nil
}

// pinned reports whether maps are pinned in dir.
func pinned(dir string) bool {
	entries, err := os.ReadDir(dir)
	return err == nil && len(entries) > 0
}

// senderTargets resolves the interfaces.
func senderTargets(attach []Attach) ([]target, error) {
	var targets []target
	for _, a := range attach {
		if a.Direction > Monitor {
			return nil, fmt.Errorf("interface %s: unknown %s", a.Interface, a.Direction)
		}
		i, err := net.InterfaceByName(a.Interface)
		if err != nil {
			return nil, fmt.Errorf("interface %s: %w", a.Interface, err)
		}
		t := target{Direction: a.Direction, Interface: i.Index, name: i.Name}
		if slices.Contains(targets, t) {
			return nil, fmt.Errorf("interface %s is listed twice for %s", a.Interface, a.Direction)
		}
		targets = append(targets, t)
	}
	return targets, nil
}

// senderSpec returns the specification of the programs with their settings.
func senderSpec(o SenderOptions) (*ebpf.CollectionSpec, error) {
	spec, err := loadSender()
	if err != nil {
		return nil, err
	}
	if o.SignalPort == 0 {
		o.SignalPort = defaultSignalPort
	}
	if o.UplinkMin == 0 && o.UplinkMax == 0 {
		o.UplinkMin, o.UplinkMax = DefaultUplinkMin, DefaultUplinkMax
	}
	if o.UplinkMin > o.UplinkMax {
		return nil, fmt.Errorf("uplink window from %d to %d bytes is empty", o.UplinkMin, o.UplinkMax)
	}
	if o.MaxPolicies == 0 {
		o.MaxPolicies = DefaultMaxPolicies
	}
	inner, outer, err := hmacStates(o.SignalKey)
	if err != nil {
		return nil, err
	}
	spec.Maps[senderMapPolicies].MaxEntries = o.MaxPolicies
	return spec, set(spec, map[string]any{
		senderVarSignalKeyed: len(o.SignalKey) > 0,
		senderVarSignalInner: inner,
		senderVarSignalOuter: outer,
		senderVarSignalPort:  o.SignalPort,
		senderVarUplinkMin:   o.UplinkMin,
		senderVarUplinkMax:   o.UplinkMax,
		senderVarFlowLabel:   o.FlowLabel,
	})
}

// set sets the constants of a specification.
func set(spec *ebpf.CollectionSpec, values map[string]any) error {
	for name, value := range values {
		if err := spec.Variables[name].Set(value); err != nil {
			return fmt.Errorf("setting %s: %w", name, err)
		}
	}
	return nil
}

// open attaches the programs and opens the rings.
func (s *Sender) open(programs map[string]*ebpf.Program, targets []target, o SenderOptions) error {
	if err := s.rekey(o.SignalKey); err != nil {
		return err
	}
	if err := s.raiseNonce(o.SignalNonce); err != nil {
		return err
	}
	var err error
	if s.uplinks, err = openRing(s.maps[senderMapUplinks]); err != nil {
		return fmt.Errorf("open uplink ring: %w", err)
	}
	if s.signals, err = openRing(s.maps[senderMapSignals]); err != nil {
		return fmt.Errorf("open signal ring: %w", err)
	}
	keep := make(map[string]bool)
	var clsact []target
	for _, t := range targets {
		program := programs[senderProgDuplicate]
		switch t.Direction {
		case Egress:
			program = programs[senderProgDuplicateOut]
		case Monitor:
			program = programs[senderProgMonitor]
		}
		err := ebpf.ErrNotSupported
		if !o.Clsact {
			err = attachTCX(s.dir, t, program)
		}
		if errors.Is(err, ebpf.ErrNotSupported) {
			err = attachClsact(s.dir, t, program)
			clsact = append(clsact, t)
		} else {
			keep[t.String()] = true
		}
		if err != nil {
			return explain(fmt.Sprintf("attach to %s of interface %s", t.Direction, t.name), err, nil)
		}
	}
	return errors.Join(detachExcept(s.dir, keep), detachClsact(s.dir, clsact))
}

// rekey restarts the nonces if the key has changed, since the nonces of the previous key must not
// block messages with the new one. Messages recorded before the change cannot be replayed.
func (s *Sender) rekey(key []byte) error {
	sum := sha256.Sum256(append([]byte("nonces "), key...))
	is, was := binary.BigEndian.Uint64(sum[:]), uint64(0)
	if err := s.maps[senderMapNonces].Lookup(uint32(1), &was); err != nil {
		return fmt.Errorf("read nonce key: %w", err)
	}
	if is == was {
		return nil
	}
	if was != 0 {
		policies, err := s.Policies()
		if err != nil {
			return err
		}
		for _, p := range policies {
			value := senderPolicy{
				Bits:  p.Bits,
				Nonce: min(p.Nonce, 1),
			} // still marked as set by signalling, with the lowest nonce
			if err := s.maps[senderMapPolicies].Update(addressKey(p.Destination), value, ebpf.UpdateLock); err != nil {
				return fmt.Errorf("reset nonce in policy of %s: %w", p.Destination, err)
			}
		}
		if err := s.maps[senderMapNonces].Put(uint32(0),
			uint64(time.Now().Add(-clockAllowance).UnixNano())); err != nil {
			return fmt.Errorf("set nonce: %w", err)
		}
	}
	if err := s.maps[senderMapNonces].Put(uint32(1), is); err != nil {
		return fmt.Errorf("set nonce key: %w", err)
	}
	return nil
}

// raiseNonce raises the highest accepted nonce to floor if it is lower. If both are 0, it raises it to
// the current time minus clockAllowance.
func (s *Sender) raiseNonce(floor uint64) error {
	last, err := s.Nonce()
	if err != nil {
		return err
	}
	if floor == 0 && last == 0 {
		floor = uint64(time.Now().Add(-clockAllowance).UnixNano())
	}
	if floor <= last {
		return nil
	}
	if err := s.maps[senderMapNonces].Put(uint32(0), floor); err != nil {
		return fmt.Errorf("set nonce: %w", err)
	}
	return nil
}

// PinnedSender opens the state that a sender pinned in pin, to inspect or detach it. It loads and
// attaches nothing, and ReadUplink and ReadSignal return os.ErrClosed. If nothing is pinned, the error
// matches fs.ErrNotExist.
func PinnedSender(pin string) (*Sender, error) {
	spec, err := loadSender()
	if err != nil {
		return nil, err
	}
	maps, err := pinnedMaps(spec, senderDir(pin))
	if err != nil {
		return nil, err
	}
	return &Sender{dir: senderDir(pin), maps: maps}, nil
}

// SetPath sets a path's interface, addresses and state. The update is atomic for replicas being
// sent.
func (s *Sender) SetPath(p Path) error {
	if err := p.check(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	state, err := s.pathState()
	if err != nil {
		return err
	}
	i := p.Index - 1
	bit := uint8(1) << i
	if !p.Up {
		state.Up &^= bit
		return s.setPathState(state)
	}
	entry := senderPath{
		Ifindex: uint32(p.Interface),
		NextHop: [6]byte(p.NextHop),
		Source:  [6]byte(p.Source),
	}
	var now senderPath
	if err := s.maps[senderMapPaths].Lookup(pathEntry(i, state.Turn), &now); err != nil {
		return fmt.Errorf("path %d: %w", p.Index, err)
	}
	if now != entry {
		state.Turn ^= bit
		if err := s.maps[senderMapPaths].Put(pathEntry(i, state.Turn), entry); err != nil {
			return fmt.Errorf("path %d: %w", p.Index, err)
		}
	}
	state.Up |= bit
	return s.setPathState(state)
}

// pathEntry returns the index of path i+1's active entry in the path map.
func pathEntry(i int, turn uint8) uint32 { return uint32(2*i) + uint32(turn>>i&1) }

func (s *Sender) pathState() (senderPathState, error) {
	var state senderPathState
	if err := s.maps[senderMapPathStates].Lookup(uint32(0), &state); err != nil {
		return state, fmt.Errorf("read path states: %w", err)
	}
	return state, nil
}

func (s *Sender) setPathState(state senderPathState) error {
	if err := s.maps[senderMapPathStates].Put(uint32(0), state); err != nil {
		return fmt.Errorf("set path states: %w", err)
	}
	return nil
}

// Paths returns all paths that have been set, by index.
func (s *Sender) Paths() ([]Path, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	state, err := s.pathState()
	if err != nil {
		return nil, err
	}
	var paths []Path
	for i := range MaxPaths {
		var e senderPath
		if err := s.maps[senderMapPaths].Lookup(pathEntry(i, state.Turn), &e); err != nil {
			return nil, fmt.Errorf("path %d: %w", i+1, err)
		}
		if e.Ifindex == 0 {
			continue
		}
		paths = append(paths, Path{
			Index: i + 1, Interface: int(e.Ifindex), Source: e.Source[:], NextHop: e.NextHop[:],
			Up: state.Up>>i&1 != 0,
		})
	}
	return paths, nil
}

// Policy is the set of paths for a destination.
type Policy struct {
	Destination netip.Addr
	Bits        uint8 // bit i = path i+1; 0 = off
	// Nonce of the signalling packet that set it, or 0 if SetPolicy did.
	Nonce uint64
}

// SetPolicy sets the paths of destination dst; bit i stands for path i+1. 0 turns duplication off, and
// packets follow their route. A single bit reroutes packets to that path without changing their DSCP
// and packet ID, as there are no replicas to eliminate. The error matches ErrMapFull if the policy map
// is full.
func (s *Sender) SetPolicy(dst netip.Addr, bits uint8) error {
	if !dst.IsValid() || dst.IsUnspecified() || dst.Zone() != "" {
		return fmt.Errorf("policy of %q: want an IP address without a zone", dst)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.maps[senderMapPolicies].Update(addressKey(dst), senderPolicy{Bits: bits}, ebpf.UpdateLock)
	return full("policy of "+dst.String(), s.maps[senderMapPolicies], err)
}

// RemovePolicy removes the policy of dst, if any.
func (s *Sender) RemovePolicy(dst netip.Addr) error {
	err := s.maps[senderMapPolicies].Delete(addressKey(dst))
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("remove policy of %s: %w", dst, err)
	}
	return nil
}

// RemoveOff makes room for other policies by removing policies that are off, unless keep returns true
// for them. It may also remove a policy that a signalling packet turns on at that moment, so signallers
// must check the policies in force.
func (s *Sender) RemoveOff(keep func(netip.Addr) bool) error {
	policies, err := s.Policies()
	if err != nil {
		return err
	}
	for _, p := range policies {
		if p.Bits != 0 || keep(p.Destination) {
			continue
		}
		if err := s.RemovePolicy(p.Destination); err != nil {
			return err
		}
	}
	return nil
}

// Policies returns the policy map, including policies that are off, ordered by destination.
func (s *Sender) Policies() ([]Policy, error) {
	var (
		policies []Policy
		key      [16]byte
		value    senderPolicy
	)
	entries := s.maps[senderMapPolicies].Iterate()
	for entries.Next(&key, &value) {
		// Read again under the lock that the kernel program holds when it writes.
		err := s.maps[senderMapPolicies].LookupWithFlags(key, &value, ebpf.LookupLock)
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read policies: %w", err)
		}
		policies = append(policies, Policy{addressOf(key), value.Bits, value.Nonce})
	}
	if err := entries.Err(); err != nil {
		return nil, fmt.Errorf("read policies: %w", err)
	}
	slices.SortFunc(policies, func(a, b Policy) int { return a.Destination.Compare(b.Destination) })
	return policies, nil
}

// Nonce returns the highest nonce of an accepted signalling packet.
func (s *Sender) Nonce() (uint64, error) {
	var last uint64
	if err := s.maps[senderMapNonces].Lookup(uint32(0), &last); err != nil {
		return 0, fmt.Errorf("read nonce: %w", err)
	}
	return last, nil
}

// Uplink is a packet from a viewer whose length is in the uplink window.
type Uplink struct {
	Time                time.Duration // CLOCK_MONOTONIC at arrival
	Source, Destination netip.AddrPort
	Length              int // IP packet length, bytes
	// Segments is the number of packets of that length that GRO merged, usually 1.
	Segments int
}

// ReadUplink waits for the next packet in the uplink window. It returns ctx.Err() once ctx is done,
// and os.ErrClosed after Close.
func (s *Sender) ReadUplink(ctx context.Context) (Uplink, error) {
	b, err := s.uplinks.next(ctx)
	if err != nil {
		return Uplink{}, err
	}
	r := recordOf[senderUplinkRecord](b)
	return Uplink{
		Time:        time.Duration(r.Time),
		Source:      netip.AddrPortFrom(recordAddress(r.Source), recordPort(r.Ports[0])),
		Destination: netip.AddrPortFrom(recordAddress(r.Destination), recordPort(r.Ports[1])),
		Length:      int(r.Length),
		Segments:    int(r.Segments),
	}, nil
}

// Signal is a signalling packet with a valid HMAC and a new nonce. It has no effect if Version is
// not signal.Version.
type Signal struct {
	Time        time.Duration // CLOCK_MONOTONIC when applied
	Destination netip.Addr
	Bits        uint8 // bit i = path i+1; 0 = off
	Nonce       uint64
	Source      netip.Addr // source address
	// Full means that it had no effect because the policy map was full.
	Full    bool
	Version uint8
}

// ReadSignal waits for the next accepted signalling packet. It returns ctx.Err() once ctx is done,
// and os.ErrClosed after Close.
func (s *Sender) ReadSignal(ctx context.Context) (Signal, error) {
	b, err := s.signals.next(ctx)
	if err != nil {
		return Signal{}, err
	}
	r := recordOf[senderSignalRecord](b)
	return Signal{
		Time:        time.Duration(r.Time),
		Nonce:       r.Nonce,
		Destination: recordAddress(r.Destination),
		Source:      recordIPv4(r.Source),
		Bits:        r.Bits,
		Full:        r.Full != 0,
		Version:     r.Version,
	}, nil
}

// SenderPath holds a path's send counters.
type SenderPath struct {
	Packets uint64 // counts each segment of a GSO packet
	Bytes   uint64 // IP bytes
	Errors  uint64 // replicas that the kernel failed to send
	TooBig  uint64 // packets above the interface's MTU, not sent on the path
}

// SenderStats holds counters since the maps were created.
type SenderStats struct {
	Paths      [MaxPaths]SenderPath // of path i+1
	Duplicated uint64               // packets that left on at least one path of their policy
	Unusable   uint64               // passed: no path of the policy is up and has a sufficient MTU
	Expiring   uint64               // passed: TTL or hop limit of 1 or 0, answered by the stack
	Tagged     uint64               // passed: VLAN tag that could not be removed
	Short      uint64               // passed: truncated header
	Failed     uint64               // passed: the kernel failed to modify the packet
	Foreign    uint64               // passed: signalling packets for another host

	Applied      uint64 // signalling packets accepted
	Malformed    uint64 // rejected: wrong length, magic, reserved bits or destination
	Spoofed      uint64 // rejected: HMAC
	OtherVersion uint64 // rejected: another version, with a valid HMAC
	Replayed     uint64 // rejected: nonce
	PolicyFull   uint64 // accepted, but the policy map was full

	Uplink   uint64 // packets in the uplink window
	RingFull uint64 // uplink packets and signals lost because the reader was too slow
}

// Stats reads the counters.
func (s *Sender) Stats() (SenderStats, error) {
	var (
		stats SenderStats
		cpus  []senderSenderCounters
	)
	if err := s.maps[senderMapSent].Lookup(uint32(0), &cpus); err != nil {
		return stats, fmt.Errorf("read counters: %w", err)
	}
	for _, c := range cpus {
		for i, p := range c.Path {
			sum := &stats.Paths[i]
			sum.Packets += p.Packets
			sum.Bytes += p.Bytes
			sum.Errors += p.Errors
			sum.TooBig += p.TooBig
		}
		stats.Duplicated += c.Duplicated
		stats.Unusable += c.Unusable
		stats.Expiring += c.Expiring
		stats.Tagged += c.Tagged
		stats.Short += c.Truncated
		stats.Failed += c.Failed
		stats.Foreign += c.Foreign
		stats.Applied += c.Applied
		stats.Malformed += c.Malformed
		stats.Spoofed += c.Spoofed
		stats.OtherVersion += c.OtherVersion
		stats.Replayed += c.Replayed
		stats.PolicyFull += c.PolicyFull
		stats.Uplink += c.Uplink
		stats.RingFull += c.RingFull
	}
	return stats, nil
}

// Close ends the readers. Programs and maps stay pinned and active.
func (s *Sender) Close() error {
	err := errors.Join(s.uplinks.close(), s.signals.close())
	closeMaps(s.maps)
	return err
}

// Detach closes the sender, detaches the programs and removes everything pinned. Packets then
// follow their plain route.
func (s *Sender) Detach() error {
	return errors.Join(s.Close(), s.detach())
}

func (s *Sender) detach() error {
	if err := errors.Join(detachExcept(s.dir, nil), detachClsact(s.dir, nil)); err != nil {
		return explain("detach", err, nil)
	}
	return removePins(s.dir)
}
