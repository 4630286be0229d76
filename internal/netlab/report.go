//go:build linux

package netlab

import (
	"fmt"
	"time"

	"holocast/internal/netlab/wire"
)

// A Report holds the measurements of a lab run and its failures.
type Report struct {
	Topology string    `json:"topology"`
	Started  time.Time `json:"started"`
	Seconds  float64   `json:"seconds"` // since Begin
	Emulator Emulation `json:"emulator"`
	Paths    []Path    `json:"paths"` // one per direction
	Commands []Result  `json:"commands,omitempty"`
	Series   []Sample  `json:"series,omitempty"`
	Warnings []string  `json:"warnings,omitempty"`
	Failures []string  `json:"failures,omitempty"` // reasons why the run is invalid; empty if it is valid
}

// Emulation describes the emulator of a run.
type Emulation struct {
	Kind         string  `json:"kind"`
	RealTime     bool    `json:"real_time"`
	CPUSeconds   float64 `json:"cpu_s"`
	CPUPerPacket float64 `json:"cpu_us_per_packet"` // including the kernel's delivery
	Wakes        uint64  `json:"wakes"`
	Dropped      uint64  `json:"kernel_drops"` // packets dropped on the way into hosts and edges
}

// A Path reports one direction of a path.
type Path struct {
	Path string `json:"path"`
	From string `json:"from"`
	To   string `json:"to"`
	wire.LinkReport
	Mbps    float64 `json:"mbps"` // rate of departed frames, averaged over the run
	Packets uint64  `json:"departed"`
}

// A Sample holds one interval of every direction, in the order of Report.Paths.
type Sample struct {
	Seconds  float64       `json:"t"` // end of the interval, since Begin
	Interval float64       `json:"interval_s"`
	Paths    []wire.Counts `json:"paths"`
}

// Finish stops the emulation and returns the report.
func (l *Lab) Finish() (*Report, error) {
	end := l.emulation.Now()
	emulation, samples, err := l.halt()
	if err != nil {
		return nil, err
	}
	r := &Report{
		Topology: l.topology.Name, Started: l.started, Seconds: (end - l.begun).Seconds(),
		Commands: l.results, Warnings: l.warnings,
		Emulator: Emulation{
			Kind: l.emulator.String(), RealTime: emulation.RealTime,
			CPUSeconds: emulation.CPU.Seconds(), Wakes: emulation.Wakes,
		},
	}
	for i, link := range emulation.Links {
		p := l.ports[i]
		r.Paths = append(r.Paths, Path{Path: p.path, From: p.from, To: p.to, LinkReport: link})
	}
	r.addSeries(samples, l.begun)
	departed := uint64(0)
	for i := range r.Paths {
		r.Paths[i].Mbps /= max(r.Seconds, 1e-9)
		departed += r.Paths[i].Packets
	}
	if departed > 0 {
		r.Emulator.CPUPerPacket = emulation.CPU.Seconds() * 1e6 / float64(departed)
	}
	if r.Emulator.Dropped, err = l.dropped(); err != nil {
		return nil, err
	}
	r.judge(l.topology.Late, emulation)
	return r, nil
}

// addSeries adds the samples since begun, and each path's totals over all samples.
func (r *Report) addSeries(samples []wire.Sample, begun time.Duration) {
	last := time.Duration(0)
	for _, s := range samples {
		for i, c := range s.Links {
			r.Paths[i].Packets += c.PacketsOut
			r.Paths[i].Mbps += float64(c.BytesOut) * 8e-6
		}
		if s.End > begun {
			r.Series = append(r.Series, Sample{
				Seconds: (s.End - begun).Seconds(), Interval: (s.End - last).Seconds(), Paths: s.Links,
			})
		}
		last = s.End
	}
}

// Limits for late departures. A run fails if the share of a direction's packets that departed later
// than the topology's limit exceeds lateShare and there are at least lateFew such packets (1 % of
// few packets means nothing). Above lateNoted the report warns.
const (
	lateShare = 0.01
	lateFew   = 5
	lateNoted = 0.001
)

// lateness describes a direction's departure errors and rates them.
func (p *Path) lateness(limit time.Duration) (text string, noted, failed bool) {
	share := float64(p.LatePackets) / float64(max(p.Late.Count, 1))
	text = fmt.Sprintf("%.3g %% of the packets of %s, %d of %d, departed more than %v off schedule: error %.0f µs in "+
		"the 99th percentile, %.0f at most",
		100*share, p.Name, p.LatePackets, p.Late.Count, limit, p.Late.P99, p.Late.Max)
	noted = share > lateNoted
	return text, noted, share > lateShare && p.LatePackets >= lateFew
}

// judge appends the failures and warnings of a run.
func (r *Report) judge(late time.Duration, emulation wire.Report) {
	for _, p := range r.Paths {
		switch text, noted, failed := p.lateness(late); {
		case failed:
			r.Failures = append(r.Failures, "the emulation was late: "+text)
		case noted:
			r.Warnings = append(r.Warnings, text)
		}
		if f := p.Faults; f.Any() > 0 {
			r.Failures = append(r.Failures,
				fmt.Sprintf("the emulation dropped %d packets of %s by mistake: %d in the ring, %d out of memory, %d "+
					"too long, %d refused",
					f.Any(), p.Name, f.Ring, f.Memory, f.Oversize, f.Send))
		}
	}
	if n := r.Emulator.Dropped; n > 0 {
		r.Failures = append(r.Failures,
			fmt.Sprintf("the kernel dropped %d packets on the way into hosts and edges: its queues were full (raise "+
				"net.core.netdev_max_backlog)", n))
	}
	if emulation.SamplesLost > 0 {
		r.Warnings = append(r.Warnings, fmt.Sprintf("%d samples of the time series were lost", emulation.SamplesLost))
	}
	for i := range r.Commands {
		if f := r.Commands[i].failure(); f != "" {
			r.Failures = append(r.Failures, f)
		}
	}
}
