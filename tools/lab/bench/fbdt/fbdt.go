// Package fbdt compares ways to use several radios at once over the same emulated paths in one run: each path alone,
// the kernel's multipath TCP, and a bundle of QUIC connections with the schedulers of multipath TCP, with FBDT as
// printed and with our FBDT.
package fbdt

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"holocast/tools/lab/bench/fbdt/schedulers"
	"holocast/tools/lab/bench/internal/quantile"
)

// Options configure Run.
type Options struct {
	Data  string    // folder with network_traces; "" skips scenarios that need it
	Parts []string  // some of Parts; nil = all
	Quick bool      // shorter and fewer measurements
	Log   io.Writer // progress lines; nil discards them
}

func (o Options) has(part string) bool { return len(o.Parts) == 0 || slices.Contains(o.Parts, part) }

// repeat returns the number of repetitions of each measurement.
func (o Options) repeat() int {
	if o.Quick {
		return 1
	}
	return 2
}

// Parts of the benchmark.
const (
	throughputPart = "throughput"
	windowsPart    = "windows"
	smallPart      = "small"
	largePart      = "large"
	sessionsPart   = "sessions"
)

// Parts lists the parts: bulk data, windows at a steady rate, small objects and large frames (each duplicated over
// both paths or split between them), and real sessions.
func Parts() []string {
	return []string{throughputPart, windowsPart, smallPart, largePart, sessionsPart}
}

// load is the traffic of one part.
type load struct {
	part             string
	window           int           // bytes
	every            time.Duration // between windows; 0 = as fast as possible
	warmup, duration time.Duration
	scenarios        []string // nil = all
}

// Windows of the bulk and the paced traffic. Bulk windows have the paper's size (section 3.2).
const (
	bulkWindow  = 1 << 20
	pacedWindow = 250_000
	pacedEvery  = 50 * time.Millisecond
)

// Objects to duplicate or split. A small one stands for a pose, an audio frame or a controller event, a large one for
// a point cloud or a GoP of tiles.
const (
	smallObject = 1000
	smallEvery  = 10 * time.Millisecond
	largeFrame  = 125_000
	largeEvery  = 33 * time.Millisecond
)

// tail is the time to wait for windows in flight.
const tail = 2 * time.Second

// sampleEvery is the time between two samples of the throughput.
const sampleEvery = 250 * time.Millisecond

func loads(o Options) []load {
	bulk := load{part: throughputPart, window: bulkWindow, warmup: 3 * time.Second, duration: 8 * time.Second}
	paced := load{
		part: windowsPart, window: pacedWindow, every: pacedEvery, warmup: 2 * time.Second,
		duration: 10 * time.Second,
	}
	small := load{
		part: smallPart, window: smallObject, every: smallEvery, warmup: 2 * time.Second, duration: 10 * time.Second,
		scenarios: []string{static, loss, mobile, traces, rates, rtts},
	}
	large := small
	large.part, large.window, large.every = largePart, largeFrame, largeEvery
	if o.Quick {
		bulk.warmup, bulk.duration, bulk.scenarios = 2*time.Second, 4*time.Second, []string{static, loss, delay, mobile}
		paced.duration, paced.scenarios = 4*time.Second, []string{rates, rtts}
		small.duration, small.scenarios = 4*time.Second, []string{loss, mobile}
		large.duration, large.scenarios = small.duration, small.scenarios
	}
	return []load{bulk, paced, small, large}
}

func (l load) of(s Scenario) bool { return l.scenarios == nil || slices.Contains(l.scenarios, s.Name) }

// under returns how many windows may be written concurrently.
func (l load) under() int {
	if l.every > 0 {
		return 1 << 10
	}
	return 64
}

// Contenders.
const (
	ours      = "ours"
	paper     = "paper"
	duplicate = schedulers.Duplicate
)

type kind int

const (
	kindTCP    kind = iota // over one path
	kindQUIC               // over one path
	kindMPTCP              // of the kernel
	kindBundle             // of QUIC connections
)

// contender is one way to use the radios.
type contender struct {
	name    string
	kind    kind
	radio   int    // of one path
	control string // congestion control of TCP
}

// congestionControls lists the congestion controls measured with TCP and multipath TCP.
var congestionControls = []string{"bbr", "cubic"}

// contenders returns the contenders of a measurement.
func contenders(s Scenario, l load, quick bool) (list []contender) {
	for i, r := range s.Radios {
		list = append(list, contender{name: quicOver(r), kind: kindQUIC, radio: i})
	}
	if l.part == smallPart || l.part == largePart {
		return append(list, contender{name: duplicate, kind: kindBundle}, contender{name: ours, kind: kindBundle})
	}
	for _, control := range congestionControls {
		for i, r := range s.Radios {
			if l.part == throughputPart && !quick {
				list = append(list, contender{"tcp " + control + " " + r.Name, kindTCP, i, control})
			}
		}
	}
	for _, control := range congestionControls {
		list = append(list, contender{name: "mptcp " + control, kind: kindMPTCP, control: control})
	}
	for _, name := range schedulers.Names() {
		if !quick || name == "minrtt" {
			list = append(list, contender{name: name, kind: kindBundle})
		}
	}
	return append(list, contender{name: paper, kind: kindBundle}, contender{name: ours, kind: kindBundle})
}

// quicOver returns the name of the contender that uses QUIC over one radio.
func quicOver(r Radio) string { return "quic " + r.Name }

// Result holds the measurements.
type Result struct {
	// SumRatio is our throughput divided by the sum of QUIC's throughputs over each path alone, by the paper's cases.
	// The mobile case is the lower ratio of the scenarios mobile and traces.
	SumRatio map[string]float64 `json:"sum_ratio"`
	// WindowP95Ms is the 95th percentile of the windows' delivery time where paths differ fivefold, by contender: the
	// higher one of the scenarios with different rates and with different round-trip times. mptcp uses the better
	// congestion control, single the better path.
	WindowP95Ms map[string]float64 `json:"window_p95_ms"`
	// DuplicateOrSplit holds the delivery times of small objects and of large frames over the better path, duplicated
	// over all paths, and split between them.
	DuplicateOrSplit []Alternatives `json:"duplicate_or_split"`
	// Waste is the share of bytes that our scheduler sends twice, in the worst of the paper's cases.
	Waste float64 `json:"waste"`

	Began     time.Time     `json:"began"`
	Seconds   float64       `json:"seconds"`
	Repeated  int           `json:"repeated"` // measurements repeated because the emulator was late
	Scenarios []Scenario    `json:"scenarios"`
	Runs      []Measurement `json:"runs"`
	Sessions  []Session     `json:"sessions"`
}

// Alternatives compares sending over the better path, duplicating and splitting: the 95th and 99th
// percentiles of delivery time, in ms, and the share of bytes sent twice.
type Alternatives struct {
	Objects        string  `json:"objects"` // small or large
	Scenario       string  `json:"scenario"`
	SingleP95Ms    float64 `json:"single_p95_ms"` // over the better path
	SingleP99Ms    float64 `json:"single_p99_ms"`
	DuplicateP95Ms float64 `json:"duplicate_p95_ms"`
	DuplicateP99Ms float64 `json:"duplicate_p99_ms"`
	SplitP95Ms     float64 `json:"split_p95_ms"`
	SplitP99Ms     float64 `json:"split_p99_ms"`
	DuplicateWaste float64 `json:"duplicate_waste"` // share of bytes sent twice
	SplitWaste     float64 `json:"split_waste"`
}

// Measurement holds one contender's figures in one scenario.
type Measurement struct {
	Part        string    `json:"part"`
	Scenario    string    `json:"scenario"`
	Contender   string    `json:"contender"`
	Seconds     float64   `json:"seconds"`
	Mbps        float64   `json:"mbps"` // of the windows' bytes
	Delivery    *Delivery `json:"delivery,omitempty"`
	Waste       float64   `json:"waste"`              // share of bytes sent twice; of a bundle
	ReorderPeak int64     `json:"reorder_peak_bytes"` // delivered behind a gap, at most; of a bundle
	Paths       []float64 `json:"paths_mbps"`         // of frames on each path, over the whole run
	// DepartureP99Us is the 99th percentile of the emulator's departure error.
	DepartureP99Us float64  `json:"departure_error_p99_us"`
	Failures       []string `json:"emulator_failures,omitempty"`
	Warnings       []string `json:"emulator_warnings,omitempty"`

	at    []float64 // seconds of the measurement
	total []int64   // bytes until then
}

// String returns a progress line.
func (m *Measurement) String() string {
	line := fmt.Sprintf("%s, %s%s: %.1f Mbit/s", m.Scenario, m.Contender, m.mark(), m.Mbps)
	if d := m.Delivery; d != nil {
		line += fmt.Sprintf(", windows p50 / p95 / p99 %.0f / %.0f / %.0f ms, %d missing", d.P50Ms, d.P95Ms, d.P99Ms,
			d.Missing)
	}
	if m.ReorderPeak > 0 {
		line += fmt.Sprintf(", %.1f %% twice, reorder buffer %.2f MB", 100*m.Waste, float64(m.ReorderPeak)*1e-6)
	}
	return line
}

func (m *Measurement) mark() string {
	if len(m.Failures) > 0 {
		return "*"
	}
	return ""
}

// median returns a figure's median over the repetitions, and whether there are any.
func (r Result) median(part, scenario, contender string, of func(*Measurement) float64) (float64, bool) {
	var v []float64
	for i := range r.Runs {
		if m := &r.Runs[i]; m.Part == part && m.Scenario == scenario && m.Contender == contender {
			v = append(v, of(m))
		}
	}
	return quantile.Of(v, 0.5), len(v) > 0
}

func mbps(m *Measurement) float64  { return m.Mbps }
func p95(m *Measurement) float64   { return m.Delivery.P95Ms }
func p99(m *Measurement) float64   { return m.Delivery.P99Ms }
func twice(m *Measurement) float64 { return m.Waste }

// sum returns the sum of QUIC's throughputs over each of a scenario's paths alone.
func (r Result) sum(s Scenario) (sum float64) {
	for _, radio := range s.Radios {
		v, _ := r.median(throughputPart, s.Name, quicOver(radio), mbps)
		sum += v
	}
	return sum
}

// summarize computes the summary of the runs.
func (r *Result) summarize() {
	r.SumRatio, r.WindowP95Ms, r.Waste = map[string]float64{}, map[string]float64{}, 0
	r.DuplicateOrSplit = r.alternatives()
	for _, s := range r.Scenarios {
		if v, ok := r.median(throughputPart, s.Name, ours, mbps); ok {
			name := cmp.Or(map[string]string{traces: mobile}[s.Name], s.Name)
			if slices.Contains([]string{static, loss, delay, mobile}, name) {
				ratio := v / max(r.sum(s), 1e-9)
				if before, ok := r.SumRatio[name]; ok {
					ratio = min(ratio, before)
				}
				r.SumRatio[name] = ratio
				repeated, _ := r.median(throughputPart, s.Name, ours, twice)
				r.Waste = max(r.Waste, repeated)
			}
		}
		if s.Name != rates && s.Name != rtts {
			continue
		}
		best := map[string]float64{}
		for _, c := range contenders(s, load{part: windowsPart}, false) {
			v, ok := r.median(windowsPart, s.Name, c.name, p95)
			if !ok {
				continue
			}
			key := c.name
			switch c.kind {
			case kindQUIC:
				key = "single"
			case kindMPTCP:
				key = "mptcp"
			}
			if before, ok := best[key]; ok {
				v = min(v, before)
			}
			best[key] = v
		}
		for key, v := range best {
			r.WindowP95Ms[key] = max(r.WindowP95Ms[key], v)
		}
	}
}

// alternatives compares duplication with splitting.
func (r *Result) alternatives() (list []Alternatives) {
	for _, objects := range []string{smallPart, largePart} {
		for _, s := range r.Scenarios {
			a := Alternatives{Objects: objects, Scenario: s.Name}
			var ok bool
			if a.SplitP95Ms, ok = r.median(objects, s.Name, ours, p95); !ok {
				continue
			}
			of := func(contender string, figure func(*Measurement) float64) float64 {
				v, _ := r.median(objects, s.Name, contender, figure)
				return v
			}
			a.SplitP99Ms, a.SplitWaste = of(ours, p99), of(ours, twice)
			a.DuplicateP95Ms, a.DuplicateP99Ms, a.DuplicateWaste = of(duplicate, p95), of(duplicate, p99), of(duplicate, twice)
			for i, radio := range s.Radios {
				if v := of(quicOver(radio), p95); i == 0 || v < a.SingleP95Ms {
					a.SingleP95Ms, a.SingleP99Ms = v, of(quicOver(radio), p99)
				}
			}
			list = append(list, a)
		}
	}
	return list
}

// table writes a Markdown table.
func table(b *strings.Builder, head []string, rows [][]string) {
	fmt.Fprintf(b, "| %s |\n| --- |%s\n", strings.Join(head, " | "), strings.Repeat(" ---: |", len(head)-1))
	for _, row := range rows {
		fmt.Fprintf(b, "| %s |\n", strings.Join(row, " | "))
	}
	b.WriteByte('\n')
}
