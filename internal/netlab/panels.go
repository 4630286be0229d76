//go:build linux

package netlab

import (
	"math"

	"holocast/internal/netlab/chart"
	"holocast/internal/netlab/wire"
)

// Panels returns the time series of a run for drawing: throughput, delay, queue and drops of every
// direction that carried packets.
func (r *Report) Panels() []chart.Panel {
	panels := []chart.Panel{
		{Title: "Throughput, Mbit/s of frames"},
		{Title: "Delay on the path, ms"},
		{Title: "Queue, largest in the interval, kB"},
		{Title: "Drops, packets a second"},
	}
	values := []func(Sample, wire.Counts) float64{
		func(s Sample, c wire.Counts) float64 { return float64(c.BytesOut) * 8e-6 / s.Interval },
		func(_ Sample, c wire.Counts) float64 {
			if c.PacketsOut == 0 {
				return math.NaN()
			}
			return c.DelayMean
		},
		func(_ Sample, c wire.Counts) float64 { return float64(c.QueueMax) / 1e3 },
		func(s Sample, c wire.Counts) float64 {
			return float64(c.Lost+c.LostBurst+c.QueueFull+c.Failed) / s.Interval
		},
	}
	for i, p := range r.Paths {
		if p.Arrived == 0 {
			continue
		}
		for k, value := range values {
			series := chart.Series{Name: p.Name}
			for _, s := range r.Series {
				series.T = append(series.T, s.Seconds)
				series.Y = append(series.Y, value(s, s.Paths[i]))
			}
			panels[k].Series = append(panels[k].Series, series)
		}
	}
	return panels
}
