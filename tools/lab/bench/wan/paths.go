package wan

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"holocast/internal/netlab/chart"
	"holocast/internal/qoe"
	"holocast/tools/lab/bench/internal/csvtrace"
	"holocast/tools/lab/bench/internal/quantile"
)

// The emulated paths.
const (
	homeRate  = 20 // Mbit/s
	homeDelay = 20 // ms, one way
	homeQueue = 100

	// share is the part of a path's first rate that layout W may use: its quantizers are the finest
	// that fit, from the smallest.
	share             = 0.8
	leastQP, coarseQP = 20, 36

	warmup          = time.Second
	deliveryTimeout = 500 * time.Millisecond // the capture server's default

	homePath   = "20 Mbit/s"
	halvedPath = "20 Mbit/s, then 10"
)

// path is an emulated path from a relay to a viewer.
type path struct {
	name    string
	loss    float64 // percent
	rates   []step
	changed float64 // s, when the rate falls; 0 = never
}

// step is a rate from a time on.
type step struct {
	at   int // s
	mbps float64
}

// conditions returns the path in a topology file's syntax.
func (p path) conditions() string {
	var b strings.Builder
	fmt.Fprintf(&b, "rate: %gMbit, delay: %dms, queue: %dms, loss: %g%%", p.rates[0].mbps, homeDelay, homeQueue, p.loss)
	if len(p.rates) > 1 {
		b.WriteString(", schedule: [")
		for _, s := range p.rates[1:] {
			fmt.Fprintf(&b, "{at: %ds, rate: %gMbit, queue: %dms}, ", s.at, s.mbps, homeQueue)
		}
		b.WriteString("]")
	}
	return b.String()
}

// paths returns the paths to measure. The 5G traces need recorded throughput below data; their rate
// is scaled to a mean of the home connection's, and at least 1 Mbit/s.
func paths(data string, quick bool, seconds int) ([]path, error) {
	steady := []step{{0, homeRate}}
	half := seconds / 2
	list := []path{
		{name: homePath, rates: steady},
		{name: halvedPath, rates: []step{{0, homeRate}, {half, homeRate / 2}}, changed: float64(half)},
	}
	if quick {
		return list, nil
	}
	list = append(list[:1:1], path{name: "20 Mbit/s, 0.5 % loss", rates: steady, loss: 0.5},
		path{name: "20 Mbit/s, 2 % loss", rates: steady, loss: 2}, list[1])
	if data == "" {
		return list, nil
	}
	for _, t := range []struct{ name, file, column string }{
		{"5G, walking", "All-Carriers_03-User-Mobility_walking-trace.csv", "throughput_mbps"},
		{"5G, driving", "All-Carriers_03-User-Mobility_car-driving-trace-1.csv", "TMobile_throughput_mbps"},
	} {
		rate, err := csvtrace.Column(filepath.Join(data, "network_traces", t.file), t.column)
		if err != nil {
			return nil, err
		}
		list = append(list, path{name: t.name, rates: scaled(rate[:min(len(rate), seconds)])})
	}
	return list, nil
}

// scaled returns rates per second whose mean is the home connection's.
func scaled(rate []float64) (steps []step) {
	factor := homeRate / mean(rate)
	for i, r := range rate {
		steps = append(steps, step{i, qoe.Round(max(1, r*factor), 1)})
	}
	return steps
}

// PathRun holds what four cameras' viewer received over a path. Frames in layout W count only with all
// frames of their group before them.
type PathRun struct {
	Path      string  `json:"path"`
	Contender string  `json:"contender"`
	Mbps      float64 `json:"mbps"` // sent by the cameras
	DepthQP   int     `json:"depth_qp,omitempty"`
	Seconds   float64 `json:"seconds"`
	FPS       float64 `json:"fps"` // shown, mean of the cameras

	// Delay from capture to the last byte, of frames shown.
	DelayP50 float64 `json:"delay_p50_ms"`
	DelayP95 float64 `json:"delay_p95_ms"`

	// Freezes are long times between a camera's shown frames, over all cameras; LongestMs is the longest
	// time, also if it is no freeze.
	Freezes200 int     `json:"freezes_200ms"`
	Freezes300 int     `json:"freezes_300ms"`
	LongestMs  float64 `json:"longest_freeze_ms"`

	// RecoveryS is the time from the fall of the path's rate to the first second in which all cameras
	// show 9 of 10 frames within 200 ms; 0 without a fall, −1 if no second does.
	RecoveryS float64 `json:"recovery_s"`

	Delays   Delays   `json:"delays"`
	Failures []string `json:"emulator_failures,omitempty"`
}

// Delays are the medians of the frame delays in each half second.
type Delays struct {
	T  []float64 `json:"t"`
	Ms []float64 `json:"ms"` // 0 = no frame
}

// sample is a frame of one camera. Times count from the first capture.
type sample struct{ captured, shown time.Duration }

// figures computes the figures of frames captured between from and to. cameras holds the frames that
// each camera's viewer showed, in order.
func (r *PathRun) figures(cameras [][]sample, from, to time.Duration, changed time.Duration) {
	var delays []time.Duration
	frames := 0
	for _, shown := range cameras {
		last := from
		for _, f := range shown {
			if f.captured < from || f.captured >= to {
				continue
			}
			frames++
			delays = append(delays, f.shown-f.captured)
			r.gap(f.shown - last)
			last = f.shown
		}
		r.gap(to - last)
	}
	r.Seconds = (to - from).Seconds()
	r.FPS = qoe.Round(float64(frames)/r.Seconds/float64(len(cameras)), 1)
	r.DelayP50, r.DelayP95 = ms(quantile.Of(delays, 0.5)), ms(quantile.Of(delays, 0.95))
	r.Delays = series(cameras, from, to)
	if changed > 0 {
		r.RecoveryS = recovery(cameras, changed, to)
	}
}

// gap counts the time between two shown frames.
func (r *PathRun) gap(d time.Duration) {
	r.LongestMs = max(r.LongestMs, ms(d))
	if d >= 200*time.Millisecond {
		r.Freezes200++
	}
	if d >= 300*time.Millisecond {
		r.Freezes300++
	}
}

func series(cameras [][]sample, from, to time.Duration) (d Delays) {
	const bin = 500 * time.Millisecond
	for at := from; at < to; at += bin {
		var delays []time.Duration
		for _, shown := range cameras {
			for _, f := range shown {
				if f.captured >= at && f.captured < at+bin {
					delays = append(delays, f.shown-f.captured)
				}
			}
		}
		d.T, d.Ms = append(d.T, at.Seconds()), append(d.Ms, ms(quantile.Of(delays, 0.5)))
	}
	return d
}

// recovery returns the time in seconds from a change to the first good second.
func recovery(cameras [][]sample, changed, to time.Duration) float64 {
	const step, second, most = 100 * time.Millisecond, time.Second, 200 * time.Millisecond
	for at := changed; at+second <= to; at += step {
		good := true
		for _, shown := range cameras {
			inTime := 0
			for _, f := range shown {
				if f.captured >= at && f.captured < at+second && f.shown-f.captured <= most {
					inTime++
				}
			}
			good = good && 10*inTime >= 9*fps
		}
		if good {
			return qoe.Round((at - changed).Seconds(), 1)
		}
	}
	return -1
}

func ms(d time.Duration) float64 { return qoe.Round(float64(d)/1e6, 1) }

// pathsFile is the plot of delays.
const pathsFile = "wan-paths.svg"

// pathPanels shows the frame delays over time, one panel for each path.
func (r Result) pathPanels() (panels []chart.Panel) {
	for _, run := range r.Paths {
		if len(panels) == 0 || panels[len(panels)-1].Title != delayTitle(run.Path) {
			panels = append(panels, chart.Panel{Title: delayTitle(run.Path)})
		}
		p := &panels[len(panels)-1]
		line := chart.Series{Name: run.Contender}
		for i, d := range run.Delays.Ms {
			if d > 0 {
				line.T, line.Y = append(line.T, run.Delays.T[i]), append(line.Y, d)
			}
		}
		p.Series = append(p.Series, line)
	}
	return panels
}

func delayTitle(path string) string { return "Frame delay over " + path + ", ms" }
