//go:build linux

package congestion

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"holocast/internal/netlab"
	"holocast/internal/netlab/topology"
	"holocast/internal/quiccc"
	"holocast/tools/lab/bench/internal/part"
)

// Paths in addition to the built-in ones. pathN-varying is path N of Table I with continuously
// varying delay.
var conditions = []struct{ name, yaml string }{
	{"path1-varying", "rate: 400Mbit, delay: 20ms, loss: 0.05%, variation: {delay: 20ms-70ms}"},
	{"path2-varying", "rate: 400Mbit, delay: 30ms, loss: 0.05%, variation: {delay: 30ms-35ms}"},
	{"path3-varying", "rate: 150Mbit, delay: 100ms, loss: 0.05%, variation: {delay: 100ms-110ms}"},
	{"path4-varying", "rate: 50Mbit, delay: 100ms, loss: 0.05%, variation: {delay: 100ms-110ms}"},
	{"path5-varying", "rate: 50Mbit, delay: 30ms, variation: {delay: 30ms-35ms}"},
	{"path1-no-loss", "rate: 400Mbit, delay: 20ms"},
	{"path1-1%-loss", "rate: 400Mbit, delay: 20ms, loss: 1%"},
	{"path1-2%-loss", "rate: 400Mbit, delay: 20ms, loss: 2%"},
	{"path1-5%-bursts", "rate: 400Mbit, delay: 20ms, burst: {average: 5%, length: 10}"},
	{"path1-shallow", "rate: 400Mbit, delay: 20ms, loss: 0.05%, queue: 100kB"},
	{"path1-deep", "rate: 400Mbit, delay: 20ms, loss: 0.05%, queue: 8MB"},
	{"wireless", "rate: 80Mbit, delay: 10ms, loss: 0.1%, variation: {delay: 10ms-40ms}"},
}

// Shared paths, with queues of half, one and four bandwidth-delay products.
var shared = []struct{ name, yaml string }{
	{"shared-shallow", "rate: 100Mbit, delay: 15ms, queue: 15ms"},
	{"shared", "rate: 100Mbit, delay: 15ms, queue: 30ms"},
	{"shared-deep", "rate: 100Mbit, delay: 15ms, queue: 120ms"},
}

// plan describes one measurement.
type plan struct {
	part       string
	topology   *topology.Topology
	transports []string
	load       load
}

const (
	frameSize     = 375_000 // bytes per camera frame
	frameInterval = time.Second / 30
)

// attempts limits how many times a measurement runs if the emulator is late.
const attempts = 3

// Run runs the benchmark. It needs permission to create network namespaces.
func Run(ctx context.Context, o Options) (Result, error) {
	if err := part.Check(o.Parts, Parts()); err != nil {
		return Result{}, err
	}
	if err := netlab.Supported(); err != nil {
		return Result{}, err
	}
	if !quiccc.Patched() {
		return Result{}, errors.New("this program lacks our quic-go patches, so it has only one congestion control; " +
			"build it with make")
	}
	plans, err := plansFor(o)
	if err != nil {
		return Result{}, err
	}
	log := o.Log
	if log == nil {
		log = io.Discard
	}
	r := Result{Controllers: quiccc.Controllers()}
	if o.has("cpu") {
		part := Part{Name: "cpu", Began: time.Now()}
		turns, d := 7, time.Second
		if o.Quick {
			turns, d = 3, 300*time.Millisecond
		}
		if r.CPU, err = cpu(ctx, turns, d); err != nil {
			return Result{}, err
		}
		part.Seconds = time.Since(part.Began).Seconds()
		r.Measured = append(r.Measured, part)
		fmt.Fprintf(log, "processor time: %.3f s/Gbit bbr, %.3f %s\n", r.CPU.BBR, r.CPU.Stock, stock)
	}
	for i, p := range plans {
		if n := len(r.Measured); n == 0 || r.Measured[n-1].Name != p.part {
			r.Measured = append(r.Measured, Part{Name: p.part, Began: time.Now(), Plots: plotsOf[p.part]})
		}
		m, again, err := measureWell(ctx, p, o.Quick)
		if err != nil {
			return Result{}, fmt.Errorf("%s, %v: %w", p.topology.Name, p.transports, err)
		}
		if err := ctx.Err(); err != nil {
			return Result{}, err
		}
		m.Part = p.part
		part := &r.Measured[len(r.Measured)-1]
		part.Repeated += again
		part.Seconds = time.Since(part.Began).Seconds()
		fmt.Fprintf(log, "%d/%d %s%s %s %v: %.1f Mbit/s, queue %.1f ms\n", i+1, len(plans), m.Path, m.mark(), m.Load,
			p.transports, m.Mbps, m.QueueP50Ms)
		r.Runs = append(r.Runs, *m)
	}
	r.summarize()
	return r, nil
}

// measureWell repeats a measurement while the emulator is late, and returns the number of
// repetitions. The last attempt counts in any case. A quick run is not repeated.
func measureWell(ctx context.Context, p plan, quick bool) (*Measurement, int, error) {
	for again := 0; ; again++ {
		m, err := measure(ctx, p.topology, p.transports, p.load)
		if err != nil || quick || len(m.Failures) == 0 || again == attempts-1 {
			return m, again, err
		}
	}
}

func (o Options) has(part string) bool {
	return len(o.Parts) == 0 || slices.Contains(o.Parts, part)
}

// topologies returns the built-in and additional paths.
func topologies() (map[string]*topology.Topology, []string, error) {
	all, names := map[string]*topology.Topology{}, []string{"lan", "path1", "path2", "path3", "path4", "path5"}
	for _, name := range names {
		t, err := topology.Builtin(name)
		if err != nil {
			return nil, nil, err
		}
		all[name] = t
	}
	for _, c := range conditions {
		t, err := topology.OnePath(c.name, c.yaml)
		if err != nil {
			return nil, nil, err
		}
		all[c.name] = t
		names = append(names, c.name)
	}
	return all, names, nil
}

func plansFor(o Options) ([]plan, error) {
	all, names, err := topologies()
	if err != nil {
		return nil, err
	}
	var plans []plan
	compared := []string{"bbr", stock, "tcp-bbr", "tcp-cubic"}
	if o.has("path1") {
		bulk := load{warmup: 2 * time.Second, duration: 12 * time.Second}
		frames := load{warmup: time.Second, duration: 8 * time.Second, frame: frameSize, interval: frameInterval}
		repeat, transports := 3, compared
		if o.Quick {
			bulk.duration, frames.duration, repeat, transports = 2500*time.Millisecond, 2500*time.Millisecond, 1,
				transports[:3]
		}

		// Transports alternate, so a busy machine slows all of them alike.
		for range repeat {
			for _, name := range []string{"path1", "path1-varying"} {
				for _, transport := range transports {
					plans = append(plans, plan{"path1", all[name], []string{transport}, bulk})
				}
				for _, transport := range []string{"bbr", stock} {
					plans = append(plans, plan{"path1", all[name], []string{transport}, frames})
				}
			}
		}
	}
	if o.Quick {
		return plans, nil
	}
	if o.has("matrix") {
		bulk := load{warmup: 2 * time.Second, duration: 2500 * time.Millisecond}
		for _, name := range names {
			for _, transport := range []string{
				"bbr", "cubic", "newreno", "vegas", "yeah", stock, "tcp-bbr",
				"tcp-cubic",
			} {
				if o.has("path1") && (name == "path1" || name == "path1-varying") && slices.Contains(compared,
					transport) {
					continue // measured above, with more repetitions
				}
				plans = append(plans, plan{"matrix", all[name], []string{transport}, bulk})
			}
		}
	}
	if o.has("frames") {
		frames := load{warmup: time.Second, duration: 4 * time.Second, frame: frameSize, interval: frameInterval}
		for _, name := range names {
			if name == "path4" || name == "path5" || name == "path4-varying" || name == "path5-varying" ||
				name == "wireless" {
				continue // slower than a camera
			}
			if o.has("path1") && (name == "path1" || name == "path1-varying") {
				continue
			}
			for _, transport := range []string{"bbr", stock} {
				plans = append(plans, plan{"frames", all[name], []string{transport}, frames})
			}
		}
	}
	if !o.has("fairness") {
		return plans, nil
	}
	together := load{
		warmup:   6 * time.Second,
		duration: 15 * time.Second,
		stagger:  500 * time.Millisecond,
	} // enough for CUBIC to converge
	for _, c := range shared {
		t, err := topology.OnePath(c.name, c.yaml)
		if err != nil {
			return nil, err
		}
		sets := [][]string{
			{"bbr", "bbr"}, {"bbr", "cubic"}, {"bbr", "tcp-cubic"}, {"bbr", "tcp-bbr"}, {"tcp-bbr", "tcp-cubic"},
		}
		if c.name == "shared" {
			sets = append(sets, []string{"bbr", "bbr", "bbr", "bbr"}, []string{"bbr", "bbr", "cubic", "cubic"},
				[]string{"bbr", "bbr", "tcp-cubic", "tcp-cubic"}, []string{"cubic", "cubic"},
				[]string{"cubic", "tcp-cubic"})
		}
		for _, transports := range sets {
			plans = append(plans, plan{"fairness", t, transports, together})
		}
	}
	return plans, nil
}
