package fbdt

import (
	"os"
	"path/filepath"
	"slices"

	"holocast/internal/netlab/chart"
)

// The plots.
const (
	coursePlot  = "fbdt-throughput.svg"
	windowsPlot = "fbdt-windows.svg"
)

var plotTitles = map[string]string{
	coursePlot:  "Throughput while the radios' rates change",
	windowsPlot: "Delivery times of windows where paths differ fivefold",
}

// drawn lists the contenders in every plot, which also shows single-path QUIC over each radio.
var drawn = []string{ours, paper, "minrtt", "musher", "mptcp bbr", "mptcp cubic"}

// SavePlots draws throughput over time and the distributions of windows' delivery times into dir.
func (r Result) SavePlots(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for name, panels := range r.panels() {
		if len(panels) == 0 {
			continue
		}
		if err := chart.Save(filepath.Join(dir, name), panels); err != nil {
			return err
		}
	}
	return nil
}

// plotted reports whether the run has data for a plot.
func (r Result) plotted(name string) bool { return len(r.panels()[name]) > 0 }

func (r Result) panels() map[string][]chart.Panel {
	all := map[string][]chart.Panel{}
	add := func(file, part, scenario, title, x string, line func(*Measurement) chart.Series) {
		p := chart.Panel{Title: scenario + ": " + title, X: x}
		names := drawn
		if i := slices.IndexFunc(r.Scenarios, func(s Scenario) bool { return s.Name == scenario }); i >= 0 {
			for _, radio := range r.Scenarios[i].Radios {
				names = append(names[:len(names):len(names)], quicOver(radio))
			}
		}
		for _, name := range names {
			i := slices.IndexFunc(r.Runs, func(m Measurement) bool {
				return m.Part == part && m.Scenario == scenario && m.Contender == name
			})
			if i < 0 {
				continue
			}
			if s := line(&r.Runs[i]); len(s.T) > 0 {
				s.Name = name
				p.Series = append(p.Series, s)
			}
		}
		if len(p.Series) > 0 {
			all[file] = append(all[file], p)
		}
	}
	add(coursePlot, throughputPart, mobile, "bulk data, Mbit/s (paper: FBDT 2.5 × MuSher, 1.41 × MPTCP)", "",
		(*Measurement).course)
	add(coursePlot, throughputPart, traces, "bulk data, Mbit/s", "", (*Measurement).course)
	for _, scenario := range []string{rates, rtts} {
		add(windowsPlot, windowsPart, scenario, "share of windows delivered, %", "ms after sending",
			func(m *Measurement) chart.Series { return m.Delivery.distribution() })
	}
	return all
}

// course returns the throughput over time.
func (m *Measurement) course() (s chart.Series) {
	at, total := 0.0, int64(0)
	for i, t := range m.at {
		s.T = append(s.T, t)
		s.Y = append(s.Y, float64(m.total[i]-total)*8e-6/max(t-at, 1e-9))
		at, total = t, m.total[i]
	}
	return s
}

// distribution returns the cumulative distribution of delivery times: the share of windows in % against ms.
func (d *Delivery) distribution() (s chart.Series) {
	for i, ms := range slices.Sorted(slices.Values(d.ms)) {
		s.T, s.Y = append(s.T, ms), append(s.Y, 100*float64(i+1)/float64(len(d.ms)))
	}
	return s
}
