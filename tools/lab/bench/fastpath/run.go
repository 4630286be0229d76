//go:build linux && (amd64 || arm64)

package fastpath

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os/exec"
	"runtime"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"holocast/tools/lab/bench/internal/cputime"
	"holocast/tools/lab/bench/internal/load"
	"holocast/tools/lab/bench/internal/part"
	"holocast/tools/lab/bench/internal/quantile"
)

// warmup precedes each measurement.
const warmup = 1500 * time.Millisecond

// plan sets the extent of the measurements.
type plan struct {
	viewers []int
	length  time.Duration // per cell
	turns   int
}

func planOf(o Options) plan {
	if o.Quick {
		return plan{viewers: []int{1}, length: 2 * time.Second, turns: 1}
	}
	return plan{viewers: []int{1, 4, 16}, length: 5 * time.Second, turns: 3}
}

// measured accumulates a cell's turns.
type measured struct {
	delays    []float64 // µs
	steps     []float64 // µs, differences between successive delays
	lost      int
	kernel    float64            // packets forwarded by the kernel
	fallback  map[string]float64 // packets left to user space, by reason
	cpu, bits float64            // seconds; UDP payload to viewers
	calls     map[string]float64 // system calls of the relay's process, by name
	seconds   float64
	cpuKnown  bool // cpu and calls are valid
}

func (m *measured) add(o measured) {
	m.delays, m.steps = append(m.delays, o.delays...), append(m.steps, o.steps...)
	m.lost += o.lost
	m.kernel += o.kernel
	if m.fallback == nil {
		m.fallback = map[string]float64{}
	}
	for reason, n := range o.fallback {
		m.fallback[reason] += n
	}
	m.cpu += o.cpu
	m.bits += o.bits
	if m.calls == nil {
		m.calls = map[string]float64{}
	}
	for name, n := range o.calls {
		m.calls[name] += n
	}
	m.seconds += o.seconds
	m.cpuKnown = o.cpuKnown
}

func (m *measured) cell() Cell {
	c := Cell{
		P50: quantile.Of(m.delays, 0.5), P99: quantile.Of(m.delays, 0.99), Packets: len(m.delays), Lost: m.lost,
		Fallback: m.fallback,
	}
	for _, s := range m.steps {
		c.JitterUs += s / float64(len(m.steps))
	}
	if n := len(m.delays); n > 0 {
		c.Forwarded = math.Min(1, m.kernel/float64(n))
	}
	if m.cpuKnown && m.bits > 0 {
		cpu := m.cpu / (m.bits / 1e9)
		c.CPU = &cpu
	}
	if m.cpuKnown && len(m.calls) > 0 && m.seconds > 0 {
		all := 0.0
		c.SyscallsByName = map[string]float64{}
		for name, n := range m.calls {
			all += n / m.seconds
			c.SyscallsByName[name] = n / m.seconds
		}
		c.Syscalls = &all
	}
	return c
}

// Run runs the benchmark. It needs root.
func Run(ctx context.Context, o Options) (r Result, err error) {
	if err := part.Check(o.Parts, Parts()); err != nil {
		return r, err
	}
	has := func(part string) bool { return len(o.Parts) == 0 || slices.Contains(o.Parts, part) }
	relay, remove, err := load.Binary(ctx, o.Relay)
	if err != nil {
		return r, err
	}
	defer remove()
	if has(packetsPart) {
		if r, err = runPackets(ctx, o, relay); err != nil {
			return r, err
		}
	}
	if has(cameraPart) {
		err = camera(ctx, o, relay, &r)
	}
	return r, err
}

// runPackets measures single packets.
func runPackets(ctx context.Context, o Options, relay string) (Result, error) {
	p := planOf(o)
	if stats, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME); err == nil { // CPU time of eBPF programs
		defer func() { _ = stats.Close() }()
	}
	load := cputime.LoadAverage()
	all := map[int]map[string]map[string]*measured{}
	for turn := range p.turns {
		for _, viewers := range p.viewers {
			for _, load := range Loads {
				for _, way := range Ways {
					if o.Log != nil {
						fmt.Fprintf(o.Log, "turn %d of %d: %s, %s, %d viewers\n", turn+1, p.turns, way, load, viewers)
					}
					m, err := measure(ctx, relay, way, load, viewers, p.length)
					if err != nil {
						return Result{}, fmt.Errorf("%s, %s, %d viewers: %w", way, load, viewers, err)
					}
					if all[viewers] == nil {
						all[viewers] = map[string]map[string]*measured{Idle: {}, Busy: {}}
					}
					if all[viewers][load][way] == nil {
						all[viewers][load][way] = &measured{}
					}
					all[viewers][load][way].add(m)
				}
			}
		}
	}
	r := Result{
		All: map[int]map[string]map[string]Cell{}, Processors: runtime.NumCPU(), Seconds: p.length.Seconds(),
		Turns: p.turns, LoadAverage: load,
	}
	for viewers, loads := range all {
		r.All[viewers] = map[string]map[string]Cell{}
		for load, ways := range loads {
			r.All[viewers][load] = map[string]Cell{}
			for way, m := range ways {
				r.All[viewers][load][way] = m.cell()
			}
		}
	}
	r.Idle, r.Busy = r.All[p.viewers[0]][Idle], r.All[p.viewers[0]][Busy]
	return r, nil
}

var errNoneForwarded = errors.New("none forwarded")

// measure measures one cell.
func measure(ctx context.Context, relay, way, load string, viewers int, length time.Duration) (_ measured, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l, err := newLab()
	if err != nil {
		return measured{}, err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	if err := l.capture(); err != nil {
		return measured{}, err
	}
	var w session
	switch way {
	case User:
		w, err = startRelay(ctx, l, relay, "off", viewers)
	case ChaCha20:
		w, err = startRelay(ctx, l, relay, "chacha20", viewers)
	case None:
		w, err = startPrograms(l, viewers)
	default:
		w, err = startForwarding(l, viewers)
	}
	if err != nil {
		return measured{}, err
	}
	defer w.close()
	if load == Busy {
		stop, err := startLoad(ctx)
		if err != nil {
			return measured{}, err
		}
		defer stop()
	}
	next := uint64(0)
	generate(w, &next, warmup)
	first := next
	before, err := w.usage()
	if err != nil {
		return measured{}, err
	}
	began := time.Now()
	generate(w, &next, length)
	after, err := w.usage()
	if err != nil {
		return measured{}, err
	}
	seconds := time.Since(began).Seconds()
	time.Sleep(200 * time.Millisecond) // for packets in flight
	l.halt()
	m := l.match(w, first, next, viewers)
	if err := w.check(); err != nil {
		return measured{}, err
	}
	m.kernel, m.fallback = after.kernel-before.kernel, map[string]float64{}
	for reason, n := range after.fallback {
		if n > before.fallback[reason] {
			m.fallback[reason] = n - before.fallback[reason]
		}
	}
	m.calls, m.seconds = map[string]float64{}, seconds
	for name, n := range after.calls {
		m.calls[name] = float64(n - before.calls[name])
	}
	m.cpu, m.cpuKnown = (after.cpu - before.cpu).Seconds(), after.known
	if len(m.delays) == 0 {
		return measured{}, fmt.Errorf("%d packets arrived at the relay: %w", m.lost, errNoneForwarded)
	}
	return m, nil
}

// session is one way of forwarding from publisher to viewers.
type session interface {
	send(sequence uint64)

	// in and out return the sequence number of a captured packet, and out also its viewer.
	in(p captured) (sequence uint64, ok bool)
	out(p captured) (sequence uint64, viewer int, ok bool)
	usage() (usage, error)

	// check validates the packets sent.
	check() error
	close()
}

// usage is the resource use of one way of forwarding so far.
type usage struct {
	cpu      time.Duration
	calls    map[string]uint64  // system calls by name
	known    bool               // cpu and calls are valid
	kernel   float64            // packets forwarded by the kernel
	fallback map[string]float64 // packets left to user space, by reason
}

// generate sends packets at a fixed pace. After a stall it catches up by at most 20 packets.
func generate(w session, next *uint64, length time.Duration) {
	const every = time.Second / packetsPerS
	begin := time.Now()
	for n := 0; time.Since(begin) < length; {
		due := int(time.Since(begin) / every)
		if due-n > 20 {
			n = due - 20
		}
		for ; n < due; n++ {
			w.send(*next)
			*next++
		}
		time.Sleep(every / 4)
	}
}

// match computes each packet's delay to each viewer.
func (l *lab) match(w session, first, end uint64, viewers int) (m measured) {
	in := map[uint64]time.Time{}
	for _, p := range l.up.packets {
		if s, ok := w.in(p); ok && s >= first && s < end {
			if _, again := in[s]; !again {
				in[s] = p.at
			}
		}
	}
	type key struct {
		sequence uint64
		viewer   int
	}
	out := map[key]time.Time{}
	for _, p := range l.down.packets {
		s, viewer, ok := w.out(p)
		if !ok || s < first || s >= end {
			continue
		}
		if _, again := out[key{s, viewer}]; !again {
			out[key{s, viewer}] = p.at
			m.bits += 8 * float64(len(p.payload))
		}
	}
	for viewer := range viewers {
		last := math.NaN()
		for s := first; s < end; s++ {
			arrived, ok := in[s]
			if !ok {
				continue
			}
			departed, ok := out[key{s, viewer}]
			if !ok {
				m.lost++
				continue
			}
			delay := float64(departed.Sub(arrived).Nanoseconds()) / 1000
			m.delays = append(m.delays, delay)
			if !math.IsNaN(last) {
				m.steps = append(m.steps, math.Abs(delay-last))
			}
			last = delay
		}
	}
	return m
}

// startLoad starts one busy process per processor.
func startLoad(ctx context.Context) (stop func(), err error) {
	var cmds []*exec.Cmd
	stop = func() {
		for _, c := range cmds {
			_ = c.Process.Kill()
			_ = c.Wait()
		}
	}
	for range runtime.NumCPU() {
		c := exec.CommandContext(ctx, "sh", "-c", "while :; do :; done")
		if err := c.Start(); err != nil {
			stop()
			return nil, fmt.Errorf("load: %w", err)
		}
		cmds = append(cmds, c)
	}
	return stop, nil
}
