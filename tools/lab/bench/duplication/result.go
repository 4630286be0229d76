package duplication

import (
	"cmp"
	"encoding/json"
	"fmt"
	"runtime"
	"time"

	"holocast/internal/qoe"
)

// Result holds the measurements of one application.
type Result struct {
	// App is the application that carried the frames; older results omit it for Push.
	App App `json:"app"`

	// Congestion is LiveScan's TCP congestion control.
	Congestion Congestion `json:"congestion,omitempty"`
	NFOV       *Level     `json:"nfov,omitempty"`
	HD         *Level     `json:"hd,omitempty"`
	FHD        *Level     `json:"fhd,omitempty"`

	Seconds float64 `json:"seconds"` // per run
	From    float64 `json:"from_s"`  // start of the period with varying delays, which FPS, delays and throughput cover
	To      float64 `json:"to_s"`    // end of that period
	Source  string  `json:"source"`  // of the frames
	Trigger string  `json:"trigger"` // settings of the pair
	// Processors of the machine.
	Processors int            `json:"processors"`
	Runs       []*Measurement `json:"runs"`

	// BBR holds the same measurements over TCP with BBR.
	BBR *Result `json:"bbr,omitempty"`
}

// Level summarizes one level's runs by mode.
type Level struct {
	FPS        map[Mode]float64 `json:"fps"`
	DelayP50   map[Mode]float64 `json:"frame_delay_ms_p50"`
	DelayP95   map[Mode]float64 `json:"frame_delay_ms_p95"`
	DelayP99   map[Mode]float64 `json:"frame_delay_ms_p99"`
	Throughput map[Mode]float64 `json:"throughput_mbps"`

	// Cost is the number of bytes sent over all paths per byte that entered the edges, with
	// duplication and over the whole run. CostVarying covers the period with varying delays.
	Cost        float64 `json:"cost"`
	CostVarying float64 `json:"cost_varying"`

	// Gain is the throughput of redirection and duplication relative to the single path.
	Gain   map[Mode]float64 `json:"gain"`
	Points float64          `json:"points_per_frame"`
	Mbps   float64          `json:"media_mbps"` // at 30 frames a second
}

// Measurement holds one run.
type Measurement struct {
	Level    string     `json:"level"`
	Mode     Mode       `json:"mode"`
	Began    time.Time  `json:"began,omitzero"`
	FPS      float64    `json:"fps"`
	Delay    Quantiles  `json:"frame_delay_ms"`
	Frames   int        `json:"frames"`
	Lost     int        `json:"frames_lost"`
	Mbps     float64    `json:"throughput_mbps"` // throughput to the viewer, in Ethernet frames
	Points   float64    `json:"points_per_frame"`
	Bytes    float64    `json:"bytes_per_frame"`
	Cost     float64    `json:"cost"`
	Varying  float64    `json:"cost_varying"`
	Sent     []uint64   `json:"sent_bytes"` // per path, over the whole run
	Series   Series     `json:"series"`
	Delays   PathDelays `json:"path_delays,omitzero"`   // NFOV only
	LateUs   float64    `json:"departure_error_us_p99"` // of the emulation, worst path
	Failures []string   `json:"failures,omitempty"`     // reasons for inaccurate emulation
	Attempts int        `json:"attempts"`

	// Processors is the number of processors used, by program.
	Processors map[string]float64 `json:"processors"`

	Decisions []Decision `json:"decisions,omitempty"`
	Rewards   []Rewards  `json:"rewards,omitempty"`
}

// PathDelays holds the stream's packet delays on each path to the viewer over time.
type PathDelays struct {
	T  []float64        `json:"t"`
	Ms [paths][]float64 `json:"ms"` // mean per interval; 0 = only probes
}

// Decision is a decision of the controller.
type Decision struct {
	T      float64 `json:"t"`
	Kind   string  `json:"kind"`
	Paths  []int   `json:"paths"` // in use from then on
	Reason string  `json:"reason"`
}

// Rewards holds the paths' cumulative rewards at one time.
type Rewards struct {
	T      float64     `json:"t"`
	Window int         `json:"window"` // packets
	Reward map[int]int `json:"reward"` // by path index
}

func newResult(o Options, s schedule) *Result {
	r := &Result{
		Seconds: s.length.Seconds(), From: s.from.Seconds(), To: s.to.Seconds(), Processors: runtime.NumCPU(),
		Source: "LiveScan3D test data, camera 0",
	}
	if o.Data == "" {
		r.Source = "synthetic performer"
	}
	if r.App = cmp.Or(o.App, Push); r.App.requests() {
		r.Congestion = o.congestions()[0]
		r.Trigger = livescanTrigger
		return r
	}
	if r.App == Uplink {
		r.Trigger = "Paths 1 and 2, set by an operator: `controller set ADDRESS --mode duplicate --paths 1,2`."
		return r
	}
	r.Trigger = "The pair runs with its default settings: trigger.rule lateness, sensitivity 2, for all levels. " +
		"Elimination: α 5 ms, W the packets of 2 s, or of 4 s for the second-to-last path; 1 % of them may be missing."
	return r
}

// of returns the result for a congestion control: r itself, or r.BBR, which it creates if
// necessary.
func (r *Result) of(c Congestion) *Result {
	if c == r.Congestion {
		return r
	}
	if r.BBR == nil {
		bbr := *r
		bbr.Congestion, bbr.Runs, bbr.NFOV, bbr.HD, bbr.FHD, bbr.BBR = c, nil, nil, nil, nil, nil
		r.BBR = &bbr
	}
	return r.BBR
}

// suffix returns the congestion control's suffix for file names.
func (c Congestion) suffix() string {
	if c == "" {
		return ""
	}
	return "-" + string(c)
}

func newMeasurement(level string, mode Mode, s schedule, frames []frame, counted []traffic) *Measurement {
	shown := sum(frames, s.from, s.to)
	whole, varying := difference(counted, 0, s.length), difference(counted, s.from, s.to)
	return &Measurement{
		Level: level, Mode: mode, FPS: qoe.Round(shown.fps, 2), Delay: shown.delay, Frames: shown.frames,
		Lost: shown.skipped,
		Mbps: qoe.Round(varying.mbps(), 2), Points: qoe.Round(shown.points, 0), Bytes: qoe.Round(shown.bytes, 0),
		Cost: qoe.Round(whole.cost(), 3), Varying: qoe.Round(varying.cost(), 3), Sent: whole.paths[:],
		Series: series(frames, counted, s.length),
	}
}

// String returns a one-line summary.
func (m *Measurement) String() string {
	return fmt.Sprintf("%.1f fps, frame delay %.1f / %.1f / %.1f ms (p50/p95/p99), %.1f Mbit/s, cost %.2f, %d "+
		"frames lost, %.0f points, departure error %.0f µs, processors: %v",
		m.FPS, m.Delay.P50, m.Delay.P95, m.Delay.P99, m.Mbps, m.Cost, m.Lost, m.Points, m.LateUs, m.Processors)
}

// add adds a run to its level.
func (r *Result) add(l level, m *Measurement) {
	r.Runs = append(r.Runs, m)
	at := map[string]**Level{"nfov": &r.NFOV, "hd": &r.HD, "fhd": &r.FHD}[l.name]
	if *at == nil {
		*at = &Level{
			FPS: map[Mode]float64{}, DelayP50: map[Mode]float64{}, DelayP95: map[Mode]float64{},
			DelayP99:   map[Mode]float64{},
			Throughput: map[Mode]float64{}, Gain: map[Mode]float64{},
		}
	}
	x := *at
	x.FPS[m.Mode], x.Throughput[m.Mode] = m.FPS, m.Mbps
	x.DelayP50[m.Mode], x.DelayP95[m.Mode], x.DelayP99[m.Mode] = m.Delay.P50, m.Delay.P95, m.Delay.P99
	x.Points, x.Mbps = m.Points, qoe.Round(m.Bytes*8e-6*fps, 1)
	if m.Mode == Duplicate {
		x.Cost, x.CostVarying = m.Cost, m.Varying
	}
	for _, mode := range []Mode{Redirect, Duplicate} {
		if single, ours := x.Throughput[Single], x.Throughput[mode]; single > 0 && ours > 0 {
			x.Gain[mode] = qoe.Round(ours/single, 3)
		}
	}
}

// draws reports whether the measurements suffice for a plot.
func (r *Result) draws(plot string) bool {
	switch plot {
	case "paths":
		return r.run("nfov", Duplicate) != nil
	case "gain":
		_, ls := r.named()
		for _, l := range ls {
			if len(l.Gain) < 2 {
				return false
			}
		}
		return len(ls) > 0
	}
	for _, m := range r.App.modes() {
		if r.run(plot, m) != nil {
			return true
		}
	}
	return false
}

// With returns r, completed with the runs of an earlier result that r lacks. It fails if the run
// length, source or application of the earlier result differs.
func (r *Result) With(earlier []byte) (interface{ Markdown() string }, error) {
	var old Result
	if err := json.Unmarshal(earlier, &old); err != nil {
		return nil, fmt.Errorf("read earlier result: %w", err)
	}
	if old.Seconds != r.Seconds || old.Source != r.Source {
		return nil, fmt.Errorf("the earlier result has %.0f s runs of %s, not %.0f s runs of %s; measure all "+
			"parts, or choose another folder", old.Seconds, old.Source, r.Seconds, r.Source)
	}
	if old.App = cmp.Or(old.App, Push); old.App != r.App {
		return nil, fmt.Errorf("the earlier result is for application %s, not %s; use another folder", old.App, r.App)
	}
	var all *Result
	for _, c := range append([]Congestion{""}, Congestions...) {
		x := r.measured(c).with(old.measured(c))
		switch {
		case x == nil:
		case all == nil:
			all = x
		default:
			all.BBR = x
		}
	}
	return all, nil
}

// measured returns the result for a congestion control ("" for applications without TCP), or nil.
func (r *Result) measured(c Congestion) *Result {
	switch {
	case r.Congestion == c:
		return r
	case r.BBR != nil && r.BBR.Congestion == c:
		return r.BBR
	}
	return nil
}

// with returns a result with r's runs and the runs of old that r lacks. Either may be nil.
func (r *Result) with(old *Result) *Result {
	if r == nil && old == nil {
		return nil
	}
	all := *cmp.Or(r, old)
	all.Runs, all.NFOV, all.HD, all.FHD, all.BBR = nil, nil, nil, nil, nil
	for _, l := range levels {
		for _, m := range all.App.modes() {
			for _, from := range []*Result{r, old} {
				if from == nil {
					continue
				}
				if x := from.run(l.name, m); x != nil {
					all.add(l, x)
					break
				}
			}
		}
	}
	return &all
}

// livescanTrigger describes the pair's settings for LiveScan.
const livescanTrigger = "Trigger: 150 ms between requests three times in a row, as in the paper, or none for 450 " +
	"ms; re-armed after 5 s. Elimination: α 5 ms, W the packets of 2 s, or of 4 s for the second-to-last path, of " +
	"which a path may miss 1 %."
