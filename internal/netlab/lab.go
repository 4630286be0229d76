//go:build linux

// Package netlab runs programs in an emulated network: hosts and routers are network
// namespaces, joined by cables and by paths with rate, delay, loss and queue.
//
// Every cable k of a topology, links first, then paths, is the network 10.77.k.0/24 and
// fd77:0:0:k::/64; the node named first has the address that ends in 1, the other one 2.
// Nodes route over the fewest cables, among equals over the one named first, so that the
// first of several parallel paths is the default one. Edges are ordinary Linux routers.
package netlab

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"holocast/internal/netlab/namespace"
	"holocast/internal/netlab/netem"
	"holocast/internal/netlab/topology"
	"holocast/internal/netlab/wire"
)

// Supported returns what a lab needs and does not have here, nil if nothing is missing.
func Supported() error { return namespace.Supported() }

// Clean removes what labs left whose process is dead, and returns the names of the
// namespaces.
func Clean() ([]string, error) { return namespace.Clean() }

// Options of a lab. The zero value is good.
type Options struct {
	Emulator Emulator // zero: Forwarder
	Wire     wire.Options
	Log      *slog.Logger // warnings; nil: slog.Default
}

// An Emulator is what carries the packets of paths.
type Emulator int

// The emulators. The forwarder is the default on kernels with netem too: runs are then alike
// everywhere, and netem cannot say how late its packets left.
const (
	Forwarder Emulator = iota
	Netem
)

// String is the emulator's name in reports.
func (e Emulator) String() string {
	if e == Netem {
		return "netem"
	}
	return "forwarder"
}

// An emulation is a running emulator: wire.Forwarder or netem.Emulation. Ports are directions
// of paths, times are since its start.
type emulation interface {
	Now() time.Duration
	Change(port int, timeline []wire.Change) error
	Samples() []wire.Sample
	Mark()
	Stop() (wire.Report, []wire.Sample, error)
}

// A Lab is a running network.
type Lab struct {
	topology  *topology.Topology
	log       *slog.Logger
	group     *namespace.Group
	nodes     map[string]*Node
	sockets   []*wire.Socket
	ports     []port
	emulator  Emulator
	emulation emulation
	started   time.Time
	warnings  []string

	collecting sync.WaitGroup
	stop       chan struct{}

	mu      sync.Mutex
	begun   time.Duration // on the emulation's clock
	series  []wire.Sample
	results []Result
}

// A port is one direction of a path.
type port struct {
	path, from, to string
	timeline       []wire.Change
}

func (p port) name() string { return p.path + " " + p.from + "→" + p.to }

// A Node is a host or an edge.
type Node struct {
	Name      string
	Addr      netip.Addr // on its first cable
	Addr6     netip.Addr // invalid where the kernel has no IPv6
	Namespace *namespace.Namespace
	lab       *Lab
}

// Start builds a network. The conditions of its paths are those of the beginning of a run,
// until Begin.
func Start(t *topology.Topology, options Options) (*Lab, error) {
	l := &Lab{topology: t, log: options.Log, emulator: options.Emulator, nodes: map[string]*Node{}, started: time.Now(), stop: make(chan struct{})}
	if l.log == nil {
		l.log = slog.Default()
	}
	var err error
	if l.group, err = namespace.NewGroup(); err != nil {
		return nil, err
	}
	if err := l.build(options); err != nil {
		return nil, errors.Join(fmt.Errorf("lab %s: %w", t.Name, err), l.Close())
	}
	return l, nil
}

func (l *Lab) build(options Options) error {
	if err := l.addNodes(); err != nil {
		return err
	}
	if err := l.connect(); err != nil {
		return err
	}
	var err error
	if l.emulator == Netem {
		err = l.startNetem(options.Wire.Interval)
	} else {
		err = l.startForwarder(options.Wire)
	}
	if err != nil {
		return err
	}
	l.collecting.Go(l.collect)
	return nil
}

func (l *Lab) startForwarder(options wire.Options) error {
	ports := make([]wire.Port, len(l.ports))
	for i, p := range l.ports {
		from := l.sockets[i]
		to := l.sockets[i^1] // the same path's other end
		ports[i] = wire.Port{Name: p.name(), From: from, To: to, Timeline: p.timeline[:1], Seed: l.seed(i)}
	}
	options.Late = l.topology.Late
	if options.CPU == 0 {
		options.CPU = l.divide()
	}
	f, err := wire.Start(ports, options)
	if err != nil {
		return err
	}
	l.emulation = f
	if err := f.SchedulingError(); err != nil {
		l.warn("packets leave without real-time priority and may be late: " + err.Error())
	}
	return nil
}

// divide gives the last processor to the forwarder, which it returns, and has the hosts
// receive on the others. Else the forwarder's thread would carry every packet up the
// receiver's stack, and send what that sends in answer, before it comes to the next one:
// kernel TCP recovering from a loss held it up for 50 ms. Edges do little and stay with it.
// divide returns 0 where there is one processor.
func (l *Lab) divide() int {
	var allowed unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil || allowed.Count() < 2 {
		return 0
	}
	cpus := make([]int, 0, allowed.Count())
	for cpu := 0; len(cpus) < allowed.Count(); cpu++ {
		if allowed.IsSet(cpu) {
			cpus = append(cpus, cpu)
		}
	}
	last := len(cpus) - 1
	for _, c := range l.cables() {
		for k, name := range c.between {
			if !slices.Contains(l.topology.Hosts, name) {
				continue
			}
			end := namespace.End{Namespace: l.nodes[name].Namespace, Device: c.devices[k]}
			if err := end.Steer(cpus[:last]); err != nil {
				l.warn("packets may leave late under load: " + err.Error())
				return cpus[last]
			}
		}
	}
	return cpus[last]
}

// dropped counts the packets that the kernel dropped on their way into hosts and edges, for
// want of room in its own queues.
func (l *Lab) dropped() (sum uint64, err error) {
	for _, name := range l.topology.Nodes() {
		links, err := l.nodes[name].Namespace.Handle.LinkList()
		if err != nil {
			return 0, fmt.Errorf("%s: counters: %w", name, err)
		}
		for _, link := range links {
			if s := link.Attrs().Statistics; s != nil {
				sum += s.RxDropped
			}
		}
	}
	return sum, nil
}

func (l *Lab) startNetem(interval time.Duration) error {
	ports := make([]netem.Port, len(l.ports))
	for i, p := range l.ports {
		handle := l.nodes[p.from].Namespace.Handle
		device, err := handle.LinkByName(p.path)
		if err != nil {
			return fmt.Errorf("%s: %w", p.name(), err)
		}
		ports[i] = netem.Port{Name: p.name(), Handle: handle, Device: device.Attrs().Index, Timeline: p.timeline[:1], Seed: l.seed(i)}
	}
	e, err := netem.Start(ports, interval)
	if err != nil {
		return err
	}
	l.emulation = e
	l.warn("netem does not tell how late packets leave, nor losses from full queues")
	return nil
}

func (l *Lab) seed(port int) uint64 { return l.topology.Seed<<8 + uint64(port) }

func (l *Lab) warn(message string) {
	l.warnings = append(l.warnings, message)
	l.log.Warn(message, "lab", l.topology.Name)
}

// collect takes samples until stop.
func (l *Lab) collect() {
	for tick := time.NewTicker(500 * time.Millisecond); ; {
		select {
		case <-l.stop:
			tick.Stop()
			return
		case <-tick.C:
			samples := l.emulation.Samples()
			l.mu.Lock()
			l.series = append(l.series, samples...)
			l.mu.Unlock()
		}
	}
}

// Node returns a host or an edge by its name, nil if there is none.
func (l *Lab) Node(name string) *Node { return l.nodes[name] }

// Begin lets the run begin: the times of the topology's schedules and variations count from
// now.
func (l *Lab) Begin() error {
	now := l.emulation.Now()
	l.mu.Lock()
	l.begun = now
	l.mu.Unlock()
	for i, p := range l.ports {
		timeline := make([]wire.Change, len(p.timeline))
		for k, change := range p.timeline {
			change.At += now
			timeline[k] = change
		}
		if err := l.emulation.Change(i, timeline); err != nil {
			return fmt.Errorf("%s: %w", p.path, err)
		}
	}
	return nil
}

// Mark lets the report's distributions of delay, wait and queue count from now on, without
// what came before. How late packets left, and losses, count for the whole run.
func (l *Lab) Mark() { l.emulation.Mark() }

// Set gives a path new conditions from now on, in both directions, instead of those that its
// schedule has for later.
func (l *Lab) Set(path string, conditions wire.Conditions) error {
	found := false
	for i, p := range l.ports {
		if p.path != path {
			continue
		}
		found = true
		if err := l.emulation.Change(i, []wire.Change{{At: l.emulation.Now(), Conditions: conditions}}); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	if !found {
		return fmt.Errorf("no path %q", path)
	}
	return nil
}

// halt stops the emulation and returns how it went.
func (l *Lab) halt() (wire.Report, []wire.Sample, error) {
	close(l.stop)
	l.collecting.Wait()
	report, last, err := l.emulation.Stop()
	l.emulation = nil
	return report, append(l.series, last...), err
}

// Close ends all that runs in the lab and removes it.
func (l *Lab) Close() error {
	var errs []error
	if l.emulation != nil {
		_, _, err := l.halt()
		errs = append(errs, err)
	}
	for _, s := range l.sockets {
		errs = append(errs, s.Close())
	}
	l.sockets = nil
	return errors.Join(append(errs, l.group.Close())...)
}

// Run builds a network, runs the topology's commands in it and removes it. The error is for
// what kept the run from taking place; Report.Failures are for what went wrong in it.
func Run(ctx context.Context, t *topology.Topology, options Options) (*Report, error) {
	l, err := Start(t, options)
	if err != nil {
		return nil, err
	}
	if err := l.Begin(); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	l.runCommands(ctx)
	report, err := l.Finish()
	return report, errors.Join(err, l.Close())
}
