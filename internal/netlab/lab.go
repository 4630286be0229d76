//go:build linux

// Package netlab runs programs in an emulated network. Hosts and routers are network namespaces;
// cables and emulated paths (rate, delay, loss, queue) join them.
//
// Cable k of a topology (links first, then paths) uses 10.77.k.0/24 and fd77:0:0:k::/64. The first
// node's address ends in 1, the other node's in 2. Routes take the fewest cables; among equals, the
// cable named first wins, so the first of parallel paths is the default. Edges are ordinary Linux
// routers.
package netlab

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"holocast/internal/netlab/namespace"
	"holocast/internal/netlab/netem"
	"holocast/internal/netlab/topology"
	"holocast/internal/netlab/wire"
)

// Supported returns an error that names the missing privileges or kernel features, or nil.
func Supported() error { return namespace.Supported() }

// Clean removes the namespaces of labs whose process is dead, and returns their names.
func Clean() ([]string, error) { return namespace.Clean() }

// Options configure a lab. The zero value is valid.
type Options struct {
	Emulator Emulator // default: Forwarder
	Wire     wire.Options
	Log      *slog.Logger // receives warnings; nil = slog.Default
}

// An Emulator selects the implementation of paths.
type Emulator int

// The forwarder is the default even where netem exists, so that results are comparable across
// machines, and because netem cannot report departure errors.
const (
	Forwarder Emulator = iota
	Netem
)

// String returns the emulator's name in reports.
func (e Emulator) String() string {
	if e == Netem {
		return "netem"
	}
	return "forwarder"
}

// An emulation is a running emulator: wire.Forwarder or netem.Emulation. Ports are directions of
// paths; times count from its start.
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
	wifi           *wire.Wifi
}

func (p port) name() string { return p.path + " " + p.from + "→" + p.to }

// A Node is a host or an edge.
type Node struct {
	Name      string
	Addr      netip.Addr // on its first cable
	Addr6     netip.Addr // invalid if the kernel has no IPv6
	Namespace *namespace.Namespace
	lab       *Lab
}

// Start builds a network. Until Begin, its paths have the topology's initial conditions.
func Start(t *topology.Topology, options Options) (*Lab, error) {
	if name := os.Getenv(topology.WifiVariable); name != "" {
		model, err := topology.LoadWifi(name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", topology.WifiVariable, err)
		}
		if t, err = t.OverWifi("", model); err != nil {
			return nil, err
		}
	}
	l := &Lab{
		topology: t, log: options.Log, emulator: options.Emulator, nodes: map[string]*Node{}, started: time.Now(),
		stop: make(chan struct{}),
	}
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
		to := l.sockets[i^1] // the other end of the same path
		ports[i] = wire.Port{Name: p.name(), From: from, To: to, Timeline: p.timeline[:1], Seed: l.seed(i), Wifi: p.wifi}
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
		l.warn("forwarder has no real-time priority; packets may leave late: " + err.Error())
	}
	return nil
}

// divide returns the last CPU for the forwarder and steers the hosts' receive processing to the
// others, or returns 0 on a single CPU. Without steering, the forwarder's thread would run the
// receiver's network stack for each packet, including the replies: kernel TCP recovering from a
// loss delayed it by 50 ms. Edges need little CPU time and share the forwarder's CPU.
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
				l.warn("receive steering unavailable; packets may leave late under load: " + err.Error())
				return cpus[last]
			}
		}
	}
	return cpus[last]
}

// dropped counts the packets that the kernel dropped on their way into hosts and edges because its
// own queues were full.
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
		if p.wifi != nil {
			return fmt.Errorf("%s: netem has no Wi-Fi; use the forwarder", p.name())
		}
		if slices.ContainsFunc(p.timeline, func(c wire.Change) bool { return c.StrayShare > 0 }) {
			return fmt.Errorf("%s: netem has no strays; use the forwarder", p.name())
		}
		handle := l.nodes[p.from].Namespace.Handle
		device, err := handle.LinkByName(p.path)
		if err != nil {
			return fmt.Errorf("%s: %w", p.name(), err)
		}
		ports[i] = netem.Port{
			Name: p.name(), Handle: handle, Device: device.Attrs().Index, Timeline: p.timeline[:1],
			Seed: l.seed(i),
		}
	}
	e, err := netem.Start(ports, interval)
	if err != nil {
		return err
	}
	l.emulation = e
	l.warn("netem reports neither departure errors nor losses from full queues")
	return nil
}

func (l *Lab) seed(port int) uint64 { return l.topology.Seed<<8 + uint64(port) }

func (l *Lab) warn(message string) {
	l.warnings = append(l.warnings, message)
	l.log.Warn(message, "lab", l.topology.Name)
}

// collect gathers samples until stop is closed.
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

// Node returns a host or an edge by name, or nil if there is none.
func (l *Lab) Node(name string) *Node { return l.nodes[name] }

// Begin starts the topology's schedules and variations.
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

// Mark restarts the report's distributions of delay, wait and queue. Departure errors and losses
// still cover the whole run.
func (l *Lab) Mark() { l.emulation.Mark() }

// Set changes a path's conditions in both directions from now on and discards the rest of its
// schedule.
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

// halt stops the emulation and returns its report.
func (l *Lab) halt() (wire.Report, []wire.Sample, error) {
	close(l.stop)
	l.collecting.Wait()
	report, last, err := l.emulation.Stop()
	l.emulation = nil
	return report, append(l.series, last...), err
}

// Close stops everything in the lab and removes it.
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

// Run builds a network, runs the topology's commands in it and removes it. It returns an error if
// the run could not take place; Report.Failures lists failures during the run.
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
