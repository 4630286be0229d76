package study

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"holocast/tools/lab/bench/internal/quantile"
)

// A Result holds the cells of a run.
type Result struct {
	Quick    bool      `json:"quick,omitempty"`
	Wifi     string    `json:"wifi"` // model of path wifi
	Began    time.Time `json:"began"`
	Seconds  float64   `json:"seconds"`
	Missing  []string  `json:"missing,omitempty"` // transports that this kernel lacks
	Added    []string  `json:"added,omitempty"`   // transports whose congestion control is ours, in eBPF (tcpcc)
	Repeated int       `json:"repeated"`          // measurements repeated because the emulator was late
	Resumed  int       `json:"resumed"`           // cells of an earlier run

	Processors  int     `json:"processors"`   // of the machine
	LoadAverage float64 `json:"load_average"` // the kernel's, over a minute, before the run

	Cells []Cell `json:"cells"`
}

// String describes a cell in one line.
func (c Cell) String() string {
	mark := ""
	if len(c.Failures) > 0 {
		mark = "*"
	}
	if c.Load == framesLoad {
		return fmt.Sprintf("%s%s %s frames: %.1f %% on time, delay p50 %.0f p99 %.0f ms", c.Path, mark, c.Transport,
			100*c.Delivery, c.FrameP50Ms, c.FrameP99Ms)
	}
	return fmt.Sprintf("%s%s %s %d Mbit, %d KiB: %.2f s, %.1f Mbit/s, delay %.1f ms, jitter %.3f ms, %.1f %% delivered",
		c.Path, mark, c.Transport, c.Mbit, c.KiB, c.RetrievalS, c.Mbps, c.DelayMs, c.JitterMs, 100*c.Delivery)
}

// keepsSeries reports whether a plot shows the cell over time.
func (c Cell) keepsSeries() bool {
	return c.Load == objectLoad && c.Mbit >= sweptMbit && c.KiB == largeBuffer && c.Turn == 0
}

// figures are a transport's figures over a path.
type figures struct {
	Mbps     float64 `json:"mbps"`
	DelayMs  float64 `json:"delay_ms"`
	JitterMs float64 `json:"jitter_ms"`
	Delivery float64 `json:"delivery"`
}

// camera holds a transport's figures of frames.
type camera struct {
	OnTime float64 `json:"on_time"`
	P50Ms  float64 `json:"delay_ms_p50"`
	P99Ms  float64 `json:"delay_ms_p99"`
}

// median is the median of a figure over cells. NaN stands for no cells.
func median(cells []Cell, of func(Cell) float64) float64 {
	if len(cells) == 0 {
		return math.NaN()
	}
	v := make([]float64, len(cells))
	for i, c := range cells {
		v[i] = of(c)
	}
	return quantile.Of(v, 0.5)
}

// find returns the cells of an object, those with accurate emulation if there are any.
func (r Result) find(path, transport string, mbit, kib int) []Cell {
	var all, good []Cell
	for _, c := range r.Cells {
		if c.Path == path && c.Transport == transport && c.Load == objectLoad && c.Mbit == mbit && c.KiB == kib {
			all = append(all, c)
			if len(c.Failures) == 0 {
				good = append(good, c)
			}
		}
	}
	if len(good) > 0 {
		return good
	}
	return all
}

// largest is the size of the paper's paths' largest object.
func (r Result) largest() int {
	most := 0
	for _, c := range r.Cells {
		if !strings.HasPrefix(c.Path, reorderPrefix) {
			most = max(most, c.Mbit)
		}
	}
	return most
}

// of lists the distinct values of a field in the order of the cells.
func of[T comparable](r Result, field func(Cell) T) (values []T) {
	for _, c := range r.Cells {
		if v := field(c); !slices.Contains(values, v) {
			values = append(values, v)
		}
	}
	return values
}

func (r Result) names() []string { return of(r, func(c Cell) string { return c.Transport }) }

func (r Result) summary(path, name string) (f figures, ok bool) {
	cells := r.find(path, name, r.largest(), largeBuffer)
	if len(cells) == 0 {
		return f, false
	}
	return figures{
		Mbps:     round3(median(cells, func(c Cell) float64 { return c.Mbps })),
		DelayMs:  round3(median(cells, func(c Cell) float64 { return c.DelayMs })),
		JitterMs: round3(median(cells, func(c Cell) float64 { return c.JitterMs })),
		Delivery: round3(median(cells, func(c Cell) float64 { return c.Delivery })),
	}, true
}

func (r Result) framesOf(path, name string) (cells []Cell) {
	for _, c := range r.Cells {
		if c.Path == path && c.Transport == name && c.Load == framesLoad {
			cells = append(cells, c)
		}
	}
	return cells
}

func (r Result) camera(path, name string) (f camera, ok bool) {
	cells := r.framesOf(path, name)
	if len(cells) == 0 {
		return f, false
	}
	return camera{
		OnTime: round3(median(cells, func(c Cell) float64 { return c.Delivery })),
		P50Ms:  round3(median(cells, func(c Cell) float64 { return c.FrameP50Ms })),
		P99Ms:  round3(median(cells, func(c Cell) float64 { return c.FrameP99Ms })),
	}, true
}

func round3(v float64) float64 { return math.Round(v*1000) / 1000 }

// Summary returns the figures for --json: by path and transport those of the largest object, then
// retrieval times by path, transport and size in Mbit, and frames on time.
func (r Result) Summary() map[string]any {
	all := map[string]any{}
	retrieval, frames := map[string]any{}, map[string]any{}
	for _, path := range Paths() {
		byName, times, cameras := map[string]figures{}, map[string]any{}, map[string]camera{}
		for _, name := range r.names() {
			if f, ok := r.summary(path, name); ok {
				byName[name] = f
			}
			if f, ok := r.camera(path, name); ok {
				cameras[name] = f
			}
			bySize := map[string]float64{}
			for _, mbit := range of(r, func(c Cell) int { return c.Mbit }) {
				v := median(r.find(path, name, mbit, largeBuffer), func(c Cell) float64 { return c.RetrievalS })
				if v > 0 { // 0: not within the limit
					bySize[strconv.Itoa(mbit)] = round3(v)
				}
			}
			if len(bySize) > 0 {
				times[name] = bySize
			}
		}
		all[path], retrieval[path], frames[path] = byName, times, cameras
	}
	all["retrieval_s"], all["frames"] = retrieval, frames
	return all
}
