//go:build linux

package congestion

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"holocast/internal/quiccc"
	"holocast/tools/netlab"
	"holocast/tools/netlab/topology"
)

// A path of the lab that no built-in topology has; conditions are YAML.
func path(name, conditions string) (*topology.Topology, error) {
	return topology.Parse([]byte(`
name: ` + name + `
hosts: [a, b]
edges: [ea, eb]
links:
  - between: [a, ea]
  - between: [eb, b]
paths:
  - {name: path1, between: [ea, eb], ` + conditions + `}
`))
}

// Conditions besides the built-in paths. The first is path 1 of Table I with its
// delay varying all the time.
var conditions = []struct{ name, yaml string }{
	{"path1-varying", "rate: 400Mbit, delay: 20ms, loss: 0.05%, variation: {delay: 20ms-70ms}"},
	{"path1-no-loss", "rate: 400Mbit, delay: 20ms"},
	{"path1-1%-loss", "rate: 400Mbit, delay: 20ms, loss: 1%"},
	{"path1-2%-loss", "rate: 400Mbit, delay: 20ms, loss: 2%"},
	{"path1-5%-bursts", "rate: 400Mbit, delay: 20ms, burst: {average: 5%, length: 10}"},
	{"path1-shallow", "rate: 400Mbit, delay: 20ms, loss: 0.05%, queue: 100kB"},
	{"path1-deep", "rate: 400Mbit, delay: 20ms, loss: 0.05%, queue: 8MB"},
	{"wireless", "rate: 80Mbit, delay: 10ms, loss: 0.1%, variation: {delay: 10ms-40ms}"},
}

// plan is one measurement to make.
type plan struct {
	topology   *topology.Topology
	transports []string
	load       load
}

const (
	frameSize     = 375_000 // bytes of one camera's frame
	frameInterval = time.Second / 30
)

// Run measures. It needs the rights to make network namespaces.
func Run(ctx context.Context, o Options) (Result, error) {
	if err := netlab.Supported(); err != nil {
		return Result{}, err
	}
	plans, err := plansFor(o.Quick)
	if err != nil {
		return Result{}, err
	}
	log := o.Log
	if log == nil {
		log = io.Discard
	}
	r := Result{Controllers: quiccc.Controllers()}
	for i, p := range plans {
		m, err := measure(ctx, p.topology, p.transports, p.load)
		if err != nil {
			return Result{}, fmt.Errorf("%s, %v: %w", p.topology.Name, p.transports, err)
		}
		if err := ctx.Err(); err != nil {
			return Result{}, err
		}
		fmt.Fprintf(log, "%d/%d %s %s %v: %.0f Mbit/s, queue %.1f ms\n", i+1, len(plans), m.Path, m.Load, p.transports, m.Mbps, m.QueueP50Ms)
		r.Runs = append(r.Runs, *m)
	}
	r.Path1, r.Path1Varying = r.compare("path1"), r.compare("path1-varying")
	r.LiveNFOV, r.LiveVarying = r.live("path1"), r.live("path1-varying")
	return r, nil
}

func plansFor(quick bool) ([]plan, error) {
	path1, err := topology.Builtin("path1")
	if err != nil {
		return nil, err
	}
	varying, err := path(conditions[0].name, conditions[0].yaml)
	if err != nil {
		return nil, err
	}
	bulk := load{warmup: 2 * time.Second, duration: 8 * time.Second}
	frames := load{warmup: 2 * time.Second, duration: 10 * time.Second, frame: frameSize, interval: frameInterval}
	repeat := 3
	if quick {
		bulk.duration, frames.duration, repeat = 3*time.Second, 4*time.Second, 1
	}
	var plans []plan
	// What is compared takes turns, so that a busy machine slows all alike.
	for range repeat {
		for _, t := range []*topology.Topology{path1, varying} {
			for _, transport := range []string{"bbr", stock, "tcp-bbr", "tcp-cubic"} {
				plans = append(plans, plan{t, []string{transport}, bulk})
			}
			for _, transport := range []string{"bbr", stock} {
				plans = append(plans, plan{t, []string{transport}, frames})
			}
		}
	}
	if quick {
		return plans, nil
	}
	for _, t := range []*topology.Topology{path1, varying} {
		for _, transport := range []string{"cubic", "newreno", "vegas", "yeah"} {
			plans = append(plans, plan{t, []string{transport}, bulk})
		}
	}
	var others []*topology.Topology
	for _, name := range []string{"lan", "path2", "path3", "path4", "path5"} {
		t, err := topology.Builtin(name)
		if err != nil {
			return nil, err
		}
		others = append(others, t)
	}
	for _, c := range conditions[1:] {
		t, err := path(c.name, c.yaml)
		if err != nil {
			return nil, err
		}
		others = append(others, t)
	}
	for _, t := range others {
		for _, transport := range []string{"bbr", "cubic", "newreno", "vegas", "yeah", stock, "tcp-bbr", "tcp-cubic"} {
			plans = append(plans, plan{t, []string{transport}, bulk})
		}
		for _, transport := range []string{"bbr", stock} {
			plans = append(plans, plan{t, []string{transport}, frames})
		}
	}
	shared, err := path("shared", "rate: 100Mbit, delay: 15ms, queue: 50ms")
	if err != nil {
		return nil, err
	}
	together := load{warmup: 8 * time.Second, duration: 20 * time.Second, stagger: 500 * time.Millisecond}
	for _, transports := range [][]string{
		{"bbr", "bbr"}, {"bbr", "bbr", "bbr", "bbr"}, {"cubic", "cubic"}, {"bbr", "cubic"},
		{"bbr", "tcp-cubic"}, {"bbr", "tcp-bbr"}, {"tcp-bbr", "tcp-cubic"},
	} {
		plans = append(plans, plan{shared, transports, together})
	}
	return plans, nil
}

// median of what of takes from the runs of one transport alone over a path.
func (r *Result) median(path, load, transport string, of func(*Measurement) float64) float64 {
	var v []float64
	for i := range r.Runs {
		if m := &r.Runs[i]; m.Path == path && m.Load == load && len(m.Flows) == 1 && m.Flows[0].Transport == transport {
			v = append(v, of(m))
		}
	}
	if len(v) == 0 {
		return 0
	}
	slices.Sort(v)
	return v[len(v)/2]
}

func (r *Result) compare(path string) Comparison {
	mbps := func(transport string) float64 {
		return r.median(path, "bulk", transport, func(m *Measurement) float64 { return m.Mbps })
	}
	return Comparison{
		BBRMbps: mbps("bbr"), NewRenoMbps: mbps(stock), TCPBBRMbps: mbps("tcp-bbr"), TCPCubicMbps: mbps("tcp-cubic"),
		QueueDelayP50Ms: r.median(path, "bulk", "bbr", func(m *Measurement) float64 { return m.QueueP50Ms }),
		QueueDelayP99Ms: r.median(path, "bulk", "bbr", func(m *Measurement) float64 { return m.QueueP99Ms }),
	}
}

func (r *Result) live(path string) Live {
	of := func(transport string, f func(*Flow) float64) float64 {
		return r.median(path, "frames", transport, func(m *Measurement) float64 { return f(&m.Flows[0]) })
	}
	fps := func(f *Flow) float64 { return f.FPS }
	p50 := func(f *Flow) float64 { return f.FrameP50Ms }
	return Live{
		BBRFPS: of("bbr", fps), NewRenoFPS: of(stock, fps),
		BBRDelayP50Ms: of("bbr", p50), NewRenoDelayP50: of(stock, p50),
		BBRDelayP99Ms: of("bbr", func(f *Flow) float64 { return f.FrameP99Ms }),
	}
}
