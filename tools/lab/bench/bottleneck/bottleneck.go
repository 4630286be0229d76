// Package narrow measures what a viewer gets over a bottleneck: of one live camera, how many
// frames a second and how old; of a base track and its tiles, which arrive whole; and what was
// sent in vain. internal/origin is compared with MOQT's delivery timeout alone and with no timeout,
// in the same run, over paths of the network lab.
package bottleneck

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"holocast/internal/netlab/chart"
	"holocast/tools/lab/bench/internal/quantile"
)

// The stream.
const (
	FrameBytes = 150_000 // of one frame's payload: 36 Mbit/s
	FramesPerS = 30
	// Timeout is the track's delivery timeout, the capture server's default.
	Timeout = 500 * time.Millisecond
)

// lateFrame is the delay after which a frame is of no use.
const lateFrame = time.Second

// The contenders.
const (
	// Holocast is internal/origin, as the relay and the capture server serve viewers.
	Holocast = "holocast"
	// DeliveryTimeout is the draft's delivery timeout alone: a frame that is late is reset,
	// those behind it wait for their turn.
	DeliveryTimeout = "timeout"
	// Queue sends all frames whole, one after the other.
	Queue = "queue"
)

// Contenders are compared, in the order of the tables.
func Contenders() []string { return []string{Holocast, DeliveryTimeout, Queue} }

// Options say what to measure.
type Options struct {
	Parts []string  // some of Parts(); nil = all
	Quick bool      // one path a part, a few seconds
	Log   io.Writer // progress, a line each; nil for none
}

// Parts of the benchmark.
const (
	cameraPart    = "camera"    // one track of frames
	tilesPart     = "tiles"     // a base track and tiles of descending priority
	datagramsPart = "datagrams" // frames in datagrams and on streams, over lossy paths
)

// Parts lists the parts of the benchmark.
func Parts() []string { return []string{cameraPart, tilesPart, datagramsPart} }

func (o Options) has(part string) bool { return len(o.Parts) == 0 || slices.Contains(o.Parts, part) }

func (o Options) check() error {
	for _, part := range o.Parts {
		if !slices.Contains(Parts(), part) {
			return fmt.Errorf("no part %q; there are %s", part, strings.Join(Parts(), ", "))
		}
	}
	return nil
}

// With is r with an earlier result's figures where r has none.
func (r Result) With(earlier []byte) (interface{ Markdown() string }, error) {
	var old Result
	if err := json.Unmarshal(earlier, &old); err != nil {
		return nil, err
	}
	if len(r.Runs) == 0 {
		r.Runs, r.Paths = old.Runs, old.Paths
	}
	if len(r.Tiles) == 0 {
		r.Tiles = old.Tiles
	}
	if len(r.Datagrams) == 0 {
		r.Datagrams, r.DatagramsBegan = old.Datagrams, old.DatagramsBegan
	}
	return r, nil
}

// Result is what a run measured.
type Result struct {
	FrameBytes int               `json:"frame_bytes"`
	FramesPerS int               `json:"frames_per_s"` // sent
	TimeoutMs  int64             `json:"delivery_timeout_ms"`
	Began      time.Time         `json:"began"`
	Seconds    float64           `json:"seconds"`  // that it took
	Repeated   int               `json:"repeated"` // measurements made anew because the emulator was late
	Paths      []Summary         `json:"paths"`
	Runs       []Measurement     `json:"runs"`
	Tiles      []TileMeasurement `json:"tiles"`

	Datagrams      []DatagramRun `json:"datagrams,omitempty"`
	DatagramsBegan time.Time     `json:"datagrams_began,omitzero"`
}

// Path is a path of the lab.
type Path struct {
	RateMbps float64 `json:"rate_mbps"` // of Ethernet frames
	DelayMs  float64 `json:"delay_ms"`  // one-way
	QueueMs  float64 `json:"queue_ms"`  // that it holds at its rate, before it drops
	Loss     float64 `json:"loss"`      // probability for each packet, beside those
}

func (p Path) String() string { return fmt.Sprintf("%g Mbit/s, %g %% loss", p.RateMbps, 100*p.Loss) }

// conditions are the path's as a topology has them.
func (p Path) conditions() string {
	return fmt.Sprintf("rate: %gMbit, delay: %gms, queue: %gms, loss: %g%%", p.RateMbps, p.DelayMs, p.QueueMs, 100*p.Loss)
}

// payloadShare is what of a path's rate payload can be, with full packets over QUIC: what BBR
// reaches of 400 Mbit/s (docs/results/congestion.md). The rest is headers, of Ethernet's to
// QUIC's.
const payloadShare = 381.0 / 400

// fits is how many frames a second the path can carry of those that are sent.
func (p Path) fits() float64 {
	return min(FramesPerS, p.RateMbps*1e6*payloadShare*(1-p.Loss)/(8*FrameBytes))
}

// Figures are what a viewer got in the time measured.
type Figures struct {
	FPS        float64 `json:"fps"`                // frames captured in it that came whole within a second
	DelayP50Ms float64 `json:"frame_delay_ms_p50"` // from capture to the last byte, of frames that came whole in it; 0 = none did
	DelayP95Ms float64 `json:"frame_delay_ms_p95"`
	// InVain is the share of the bytes of QUIC packets that reached the viewer without being
	// payload of frames that came whole, %.
	InVain     float64 `json:"in_vain_percent"`
	QueueP50Ms float64 `json:"queue_delay_ms_p50"` // of the path's queue
}

// Measurement is one contender over one path.
type Measurement struct {
	Path      Path    `json:"path"`
	Contender string  `json:"contender"`
	Seconds   float64 `json:"seconds"`
	Figures
	DepartureP99Us float64  `json:"departure_error_p99_us"` // of the emulator
	Failures       []string `json:"emulator_failures,omitempty"`
	Warnings       []string `json:"emulator_warnings,omitempty"`
}

// Summary is the medians of one path.
type Summary struct {
	Path
	Fits float64            `json:"fits_fps"` // frames a second that the path can carry
	Of   map[string]Figures `json:"of"`       // by contender
	// Late are the contenders that the emulator was late for in every attempt at one of them.
	Late []string `json:"emulator_late"`
}

// summarize makes the medians of the runs, paths in the order of the first.
func (r *Result) summarize() {
	r.Paths = nil
	of := map[Path]map[string][]Measurement{}
	for _, run := range r.Runs {
		if of[run.Path] == nil {
			of[run.Path] = map[string][]Measurement{}
			r.Paths = append(r.Paths, Summary{Path: run.Path, Fits: run.Path.fits(), Of: map[string]Figures{}, Late: []string{}})
		}
		of[run.Path][run.Contender] = append(of[run.Path][run.Contender], run)
	}
	for i := range r.Paths {
		s := &r.Paths[i]
		for _, contender := range Contenders() {
			runs := of[s.Path][contender]
			if len(runs) == 0 {
				continue
			}
			median := func(what func(Figures) float64) float64 {
				var v []float64
				for _, run := range runs {
					v = append(v, what(run.Figures))
				}
				return quantile.Of(v, 0.5)
			}
			s.Of[contender] = Figures{
				FPS:        median(func(f Figures) float64 { return f.FPS }),
				DelayP50Ms: median(func(f Figures) float64 { return f.DelayP50Ms }),
				DelayP95Ms: median(func(f Figures) float64 { return f.DelayP95Ms }),
				InVain:     median(func(f Figures) float64 { return f.InVain }),
				QueueP50Ms: median(func(f Figures) float64 { return f.QueueP50Ms }),
			}
			if slices.ContainsFunc(runs, func(run Measurement) bool { return len(run.Failures) > 0 }) {
				s.Late = append(s.Late, contender)
			}
		}
	}
}

// plotFile and plotTitle are of the only plot.
const (
	plotFile  = "bottleneck-rate.svg"
	plotTitle = "Frames and their delay over the path's rate"
)

// Markdown is the result for people.
func (r Result) Markdown() string {
	return r.cameraMarkdown() + r.tilesMarkdown() + r.datagramMarkdown()
}

func (r Result) cameraMarkdown() string {
	var b strings.Builder
	if len(r.Paths) == 0 {
		return ""
	}
	repeats, seconds := len(r.Runs)/len(r.Paths)/len(Contenders()), r.Runs[0].Seconds
	fmt.Fprintf(&b, "One camera, %d kB %d times a second: %.0f Mbit/s, over bottlenecks below that rate and over wider paths. `%s` is what relay and capture server do, with a delivery timeout of %d ms; `%s` is that timeout alone, each frame in its turn until it is late; `%s` is no timeout at all.\n\n",
		r.FrameBytes/1000, r.FramesPerS, float64(8*r.FrameBytes*r.FramesPerS)*1e-6, Holocast, r.TimeoutMs, DeliveryTimeout, Queue)
	fmt.Fprintf(&b, "Measured at %s UTC in %.0f s; medians of %d measurements of %.0f s each, in which one frame is %.2f frames/s. Frames a second are those captured in the time measured that came whole within %g s. What fits is %.1f %% of the path's rate, the rest being headers, less its losses. Delays are from capture to the last byte, of the frames that came whole in the time measured, however late: those of `%s` grow with time. In vain is what reached the viewer and was not payload of a frame that came whole; some 2 %% are headers. %d measurements were made anew because the emulator was late; what is marked * was late all the same.\n\n",
		r.Began.UTC().Format("2006-01-02 15:04"), r.Seconds, repeats, seconds, 1/seconds, lateFrame.Seconds(), 100*payloadShare, Queue, r.Repeated)
	fmt.Fprintf(&b, "![%s](%s)\n", plotTitle, plotFile)
	for _, s := range r.Paths {
		fmt.Fprintf(&b, "\n### %v\n\n%g ms one way, a queue of %g ms: %.1f frames/s fit.\n\n| | frames/s | of what fits | frame delay p50 / p95 ms | in vain | queue p50 ms |\n| --- | ---: | ---: | ---: | ---: | ---: |\n", s.Path, s.DelayMs, s.QueueMs, s.Fits)
		for _, contender := range Contenders() {
			f, ok := s.Of[contender]
			if !ok {
				continue
			}
			delays, mark := fmt.Sprintf("%.0f / %.0f", f.DelayP50Ms, f.DelayP95Ms), ""
			if f.DelayP50Ms == 0 {
				delays = "none came"
			}
			if slices.Contains(s.Late, contender) {
				mark = "*"
			}
			fmt.Fprintf(&b, "| %s%s | %.1f | %.0f %% | %s | %.0f %% | %.0f |\n", contender, mark, f.FPS, 100*f.FPS/s.Fits, delays, f.InVain, f.QueueP50Ms)
		}
	}
	return b.String()
}

// SavePlots draws frames a second and their delay over the rate, of the paths that lose as
// much as the first, into dir.
func (r Result) SavePlots(dir string) error {
	if len(r.Paths) == 0 {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	paths := slices.DeleteFunc(slices.Clone(r.Paths), func(s Summary) bool { return s.Loss != r.Paths[0].Loss })
	slices.SortFunc(paths, func(a, b Summary) int { return cmp.Compare(a.RateMbps, b.RateMbps) })
	line := func(name string, y func(Summary) float64) chart.Series {
		s := chart.Series{Name: name}
		for _, p := range paths {
			s.T, s.Y = append(s.T, p.RateMbps), append(s.Y, y(p))
		}
		return s
	}
	frames := chart.Panel{Title: fmt.Sprintf("Frames a second that came within %g s", lateFrame.Seconds())}
	delay := chart.Panel{Title: fmt.Sprintf("Median delay of frames, ms, where it is below %g s", lateFrame.Seconds()), X: "Mbit/s of the path"}
	for _, contender := range Contenders() {
		frames.Series = append(frames.Series, line(contender, func(s Summary) float64 { return s.Of[contender].FPS }))
		delay.Series = append(delay.Series, line(contender, func(s Summary) float64 {
			if d := s.Of[contender].DelayP50Ms; d > 0 && d < ms(lateFrame) {
				return d
			}
			return math.NaN()
		}))
	}
	frames.Series = append(frames.Series, line("fits", func(s Summary) float64 { return s.Fits }))
	return chart.Save(filepath.Join(dir, plotFile), []chart.Panel{frames, delay})
}

func ms(d time.Duration) float64 { return float64(d) / 1e6 }
