package duplication

import (
	"fmt"
	"math"
	"path/filepath"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"

	"holocast/internal/netlab/chart"
)

// SavePlots draws the paper's figures into dir.
func (r *Result) SavePlots(dir string) error {
	for _, l := range levels {
		if r.draws(l.name) {
			if err := chart.Save(r.plotFile(dir, l.name), r.overTime(l.name)); err != nil {
				return err
			}
		}
	}
	if r.draws("paths") {
		if err := chart.Save(r.plotFile(dir, "paths"), r.overPaths()); err != nil {
			return err
		}
	}
	if r.draws("gain") {
		if err := r.bars(r.plotFile(dir, "gain")); err != nil {
			return err
		}
	}
	if r.BBR != nil {
		return r.BBR.SavePlots(dir)
	}
	return nil
}

func (r *Result) plotFile(dir, name string) string { return filepath.Join(dir, r.plotName(name)) }

// plotName returns a plot's file name.
func (r *Result) plotName(name string) string {
	return "duplication" + r.App.Suffix() + r.Congestion.suffix() + "-" + name + ".png"
}

// overTime draws Fig. 5: one level in all modes.
func (r *Result) overTime(level string) []chart.Panel {
	title := strings.ToUpper(level)
	panels := []chart.Panel{
		{Title: title + ", frames shown per second"},
		{Title: title + ", frame delay, ms, mean per second"},
		{Title: title + ", throughput, Mbit/s"},
		{Title: title + ", bytes sent ÷ one path"},
	}
	for _, m := range r.App.modes() {
		x := r.run(level, m)
		if x == nil {
			continue
		}
		for i, y := range [][]float64{x.Series.FPS, gaps(x.Series.Delay), x.Series.Mbps, x.Series.Paths} {
			panels[i].Series = append(panels[i].Series, chart.Series{Name: string(m), T: x.Series.T, Y: y})
		}
	}
	return panels
}

// overPaths draws Fig. 6: packet delays and rewards of the paths.
func (r *Result) overPaths() []chart.Panel {
	packets := chart.Panel{Title: "Delay of the packets on each path, ms (duplication)"}
	m := r.run("nfov", Duplicate)
	for i, y := range m.Delays.Ms {
		packets.Series = append(packets.Series, chart.Series{
			Name: fmt.Sprintf("path %d", i+1), T: m.Delays.T,
			Y: gaps(y),
		})
	}
	first := chart.Panel{Title: "Delay of the first copy, ms"}
	if s := r.run("nfov", Single); s != nil {
		first.Series = append(first.Series, chart.Series{Name: "single path", T: s.Delays.T, Y: gaps(s.Delays.Ms[0])})
	}
	first.Series = append(first.Series, chart.Series{Name: "duplication", T: m.Delays.T, Y: m.firstDelays()})
	rewards := chart.Panel{Title: "Cumulative reward of each path, % of the window"}
	for i := range paths {
		s := chart.Series{Name: fmt.Sprintf("path %d", i+1)}
		for _, x := range m.Rewards {
			y := math.NaN()
			if n, ok := x.Reward[i+1]; ok && x.Window > 0 {
				y = 100 * float64(n) / float64(x.Window)
			}
			s.T, s.Y = append(s.T, x.T), append(s.Y, y)
		}
		rewards.Series = append(rewards.Series, s)
	}
	return []chart.Panel{packets, first, rewards}
}

// firstDelays returns the lowest path delay at each moment.
func (m *Measurement) firstDelays() []float64 {
	y := make([]float64, len(m.Delays.T))
	for i := range y {
		y[i] = math.NaN()
		for _, path := range m.Delays.Ms {
			if i < len(path) && path[i] > 0 && !(path[i] >= y[i]) {
				y[i] = path[i]
			}
		}
	}
	return y
}

// gaps replaces zeros, which mark missing values, with NaN.
func gaps(y []float64) []float64 {
	out := make([]float64, len(y))
	for i, v := range y {
		if out[i] = v; v == 0 {
			out[i] = math.NaN()
		}
	}
	return out
}

// bars draws Fig. 7: throughput relative to the single path.
func (r *Result) bars(path string) error {
	p := plot.New()
	p.Title.Text = "Throughput ÷ that of the single path"
	p.Y.Min = 0
	p.Legend.Top = true
	p.Add(plotter.NewGrid())
	names, ls := r.named()
	const wide = 36
	for k, mode := range []Mode{Redirect, Duplicate} {
		values := make(plotter.Values, len(ls))
		for i, l := range ls {
			values[i] = l.Gain[mode]
			p.Y.Max = max(p.Y.Max, 1.25*values[i])
		}
		bars, err := plotter.NewBarChart(values, vg.Points(wide))
		if err != nil {
			return fmt.Errorf("plot %s: %w", path, err)
		}
		bars.Color, bars.Offset = plotutil.Color(k), vg.Points(float64(2*k-1)*wide/2)
		p.Add(bars)
		p.Legend.Add(string(mode), bars)
	}
	p.NominalX(names...)
	if err := p.Save(16*vg.Centimeter, 9*vg.Centimeter, path); err != nil {
		return fmt.Errorf("plot %s: %w", path, err)
	}
	return nil
}
