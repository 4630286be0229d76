package congestion

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"holocast/internal/netlab/chart"
)

// plotEvery is the time between plotted points. It is long enough to smooth the bursts of a path
// with varying delay.
const plotEvery = 500 * time.Millisecond

// SavePlots draws throughput and frame delay over time into dir. It plots the first valid run of
// each kind as congestion-NAME.svg.
func (r Result) SavePlots(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, p := range r.plots() {
		if len(p.panels) == 0 { // from an earlier result, already drawn
			continue
		}
		if err := chart.Save(filepath.Join(dir, p.file), p.panels); err != nil {
			return err
		}
	}
	return nil
}

// The plots of each part, and their titles.
var (
	plotsOf    = map[string][]string{"path1": {path1Plot, framesPlot}, "fairness": {fairnessPlot}}
	plotTitles = map[string]string{
		path1Plot:    "Throughput and round-trip time over path 1",
		framesPlot:   "One camera's frames over path 1",
		fairnessPlot: "Flows that share a path",
	}
)

const (
	path1Plot    = "congestion-path1.svg"
	framesPlot   = "congestion-frames.svg"
	fairnessPlot = "congestion-fairness.svg"
)

type plot struct {
	file   string
	panels []chart.Panel
}

func (r Result) plots() []plot {
	var bulk, frames, shared []chart.Panel
	for _, path := range []string{"path1", "path1-varying"} {
		throughput := chart.Panel{Title: path + ": bulk data, Mbit/s"}
		rtt := chart.Panel{Title: path + ": smoothed round-trip time, ms"}
		delay := chart.Panel{Title: path + ": delay of a camera's frames, ms"}
		for _, transport := range []string{"bbr", stock, "tcp-bbr", "tcp-cubic"} {
			if m := r.first(path, "bulk", transport); m != nil && len(m.Flows[0].series) > 0 {
				f := &m.Flows[0]
				throughput.Series = append(throughput.Series, f.series.throughput(transport))
				if s := f.series.rtt(transport); len(s.T) > 0 {
					rtt.Series = append(rtt.Series, s)
				}
			}
			if m := r.first(path, "frames", transport); m != nil && len(m.Flows[0].frameT) > 0 {
				f := &m.Flows[0]
				delay.Series = append(delay.Series, chart.Series{Name: transport, T: f.frameT, Y: f.frameMs})
			}
		}
		if len(throughput.Series) > 0 {
			bulk = append(bulk, throughput)
		}
		if len(rtt.Series) > 0 {
			bulk = append(bulk, rtt)
		}
		if len(delay.Series) > 0 {
			frames = append(frames, delay)
		}
	}
	for i := range r.Runs {
		m := &r.Runs[i]
		if len(m.Flows) < 2 || len(m.Flows[0].series) == 0 || len(shared) == 6 {
			continue
		}
		p := chart.Panel{Title: m.Path + ": flows that share 100 Mbit/s, Mbit/s"}
		for k, f := range m.Flows {
			p.Series = append(p.Series, f.series.throughput(fmt.Sprintf("%d %s", k+1, f.Transport)))
		}
		shared = append(shared, p)
	}
	return []plot{{path1Plot, bulk}, {framesPlot, frames}, {fairnessPlot, shared}}
}

// first returns the first run of a single transport over a path in part path1, preferably one with
// accurate emulation. It returns nil if there is none.
func (r *Result) first(path, load, transport string) (found *Measurement) {
	for i := range r.Runs {
		m := &r.Runs[i]
		if m.Part != "path1" || m.Path != path || m.Load != load || len(m.Flows) != 1 ||
			m.Flows[0].Transport != transport {
			continue
		}
		if len(m.Failures) == 0 {
			return m
		}
		if found == nil {
			found = m
		}
	}
	return found
}

func (s series) throughput(name string) chart.Series {
	line := chart.Series{Name: name}
	for chunk := range slices.Chunk(s, int(plotEvery/sampleEvery)) {
		sum := 0.0
		for _, p := range chunk {
			sum += p.mbps
		}
		line.T = append(line.T, chunk[len(chunk)-1].at.Seconds())
		line.Y = append(line.Y, sum/float64(len(chunk)))
	}
	return line
}

// rtt returns the round-trip time over time. It has no points if the flow does not report the
// round-trip time.
func (s series) rtt(name string) chart.Series {
	line := chart.Series{Name: name}
	for _, p := range s {
		if p.est.SmoothedRTT > 0 {
			line.T, line.Y = append(line.T, p.at.Seconds()), append(line.Y, ms(p.est.SmoothedRTT))
		}
	}
	return line
}

func ms(d time.Duration) float64 { return float64(d) / 1e6 }
