// Package bottleneck measures what a viewer receives over a path below the stream's rate: the frame
// rate and delay of one camera, complete groups of a base track and its tiles, and wasted bytes. It
// compares internal/origin with MOQT's delivery timeout alone and with no timeout, in alternating
// runs over emulated paths. It also compares frames in datagrams with frames on streams over lossy
// paths.
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

// The camera's stream.
const (
	FrameBytes = 150_000 // payload per frame: 36 Mbit/s
	FramesPerS = 30

	// Timeout is the track's delivery timeout, the capture server's default.
	Timeout = 500 * time.Millisecond
)

// lateFrame is the delay after which a frame is useless.
const lateFrame = time.Second

// The contenders.
const (
	// Holocast is internal/origin, as used by the relay and the capture server.
	Holocast = "holocast"

	// DeliveryTimeout is the draft's delivery timeout alone. Late frames are reset while newer
	// frames wait.
	DeliveryTimeout = "timeout"

	// Queue sends every frame in full, in order.
	Queue = "queue"
)

// Contenders lists the contenders in table order.
func Contenders() []string { return []string{Holocast, DeliveryTimeout, Queue} }

// Options configure Run.
type Options struct {
	Parts []string  // some of Parts; nil = all
	Quick bool      // one path per part, a few seconds each
	Log   io.Writer // progress lines; nil discards them
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

// With returns r, completed with the parts of an earlier result that r lacks.
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

// Result holds the measurements.
type Result struct {
	FrameBytes int               `json:"frame_bytes"`
	FramesPerS int               `json:"frames_per_s"` // sent
	TimeoutMs  int64             `json:"delivery_timeout_ms"`
	Began      time.Time         `json:"began"`
	Seconds    float64           `json:"seconds"`  // duration of the run
	Repeated   int               `json:"repeated"` // measurements repeated because the emulator was late
	Paths      []Summary         `json:"paths"`
	Runs       []Measurement     `json:"runs"`
	Tiles      []TileMeasurement `json:"tiles"`

	Datagrams      []DatagramRun `json:"datagrams,omitempty"`
	DatagramsBegan time.Time     `json:"datagrams_began,omitzero"`
}

// Path is an emulated path.
type Path struct {
	RateMbps float64 `json:"rate_mbps"` // of Ethernet frames
	DelayMs  float64 `json:"delay_ms"`  // one way
	QueueMs  float64 `json:"queue_ms"`  // capacity at the path's rate
	Loss     float64 `json:"loss"`      // random loss per packet, in addition to queue drops
}

func (p Path) String() string { return fmt.Sprintf("%g Mbit/s, %g %% loss", p.RateMbps, 100*p.Loss) }

// conditions returns the path in a topology file's syntax.
func (p Path) conditions() string {
	return fmt.Sprintf("rate: %gMbit, delay: %gms, queue: %gms, loss: %g%%", p.RateMbps, p.DelayMs, p.QueueMs,
		100*p.Loss)
}

// payloadShare is the payload's share of a path's rate over QUIC with full packets. BBR reaches it
// at 400 Mbit/s (docs/results/congestion.md). Headers from Ethernet to QUIC take up the rest.
const payloadShare = 381.0 / 400

// fits returns the frame rate that the path can carry, up to the camera's.
func (p Path) fits() float64 {
	return min(FramesPerS, p.RateMbps*1e6*payloadShare*(1-p.Loss)/(8*FrameBytes))
}

// Figures are one viewer's results.
type Figures struct {
	FPS float64 `json:"fps"` // captured during the measurement and complete within lateFrame

	// Delay from capture to last byte, over frames completed during the measurement; 0 if there are
	// none.
	DelayP50Ms float64 `json:"frame_delay_ms_p50"`
	DelayP95Ms float64 `json:"frame_delay_ms_p95"`

	// Wasted is the percentage of received QUIC packet bytes that are not payload of complete
	// frames.
	Wasted     float64 `json:"wasted_percent"`
	QueueP50Ms float64 `json:"queue_delay_ms_p50"` // in the path's queue
}

// Measurement holds one contender's figures over one path.
type Measurement struct {
	Path      Path    `json:"path"`
	Contender string  `json:"contender"`
	Seconds   float64 `json:"seconds"`
	Figures
	DepartureP99Us float64  `json:"departure_error_p99_us"` // of the emulator
	Failures       []string `json:"emulator_failures,omitempty"`
	Warnings       []string `json:"emulator_warnings,omitempty"`
}

// Summary holds the medians for one path.
type Summary struct {
	Path
	Fits float64            `json:"fits_fps"` // frame rate that the path can carry
	Of   map[string]Figures `json:"of"`       // by contender

	// Late lists contenders for which the emulator was late in every attempt of a measurement.
	Late []string `json:"emulator_late"`
}

// summarize computes the medians. Paths stay in order of appearance.
func (r *Result) summarize() {
	r.Paths = nil
	of := map[Path]map[string][]Measurement{}
	for _, run := range r.Runs {
		if of[run.Path] == nil {
			of[run.Path] = map[string][]Measurement{}
			r.Paths = append(r.Paths, Summary{
				Path: run.Path, Fits: run.Path.fits(), Of: map[string]Figures{},
				Late: []string{},
			})
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
				Wasted:     median(func(f Figures) float64 { return f.Wasted }),
				QueueP50Ms: median(func(f Figures) float64 { return f.QueueP50Ms }),
			}
			if slices.ContainsFunc(runs, func(run Measurement) bool { return len(run.Failures) > 0 }) {
				s.Late = append(s.Late, contender)
			}
		}
	}
}

// The plot.
const (
	plotFile  = "bottleneck-rate.svg"
	plotTitle = "Frames and their delay over the path's rate"
)

// Markdown returns the tables.
func (r Result) Markdown() string {
	return r.cameraMarkdown() + r.tilesMarkdown() + r.datagramMarkdown()
}

func (r Result) cameraMarkdown() string {
	var b strings.Builder
	if len(r.Paths) == 0 {
		return ""
	}
	repeats, seconds := len(r.Runs)/len(r.Paths)/len(Contenders()), r.Runs[0].Seconds
	fmt.Fprintf(&b, "One camera, %d kB %d times a second: %.0f Mbit/s, over paths below and above that rate. `%s` "+
		"is what relay and capture server do, with a delivery timeout of %d ms; `%s` is that timeout alone, with "+
		"frames sent in "+
		"order until they are late; `%s` has no timeout.\n\n",
		r.FrameBytes/1000, r.FramesPerS, float64(8*r.FrameBytes*r.FramesPerS)*1e-6, Holocast, r.TimeoutMs,
		DeliveryTimeout, Queue)
	fmt.Fprintf(&b, "Measured at %s UTC in %.0f s; medians of %d measurements of %.0f s each, in which one frame is "+
		"%.2f frames/s. Frames/s counts frames captured during the measurement and complete within %g s. The path's "+
		"capacity in frames is %.1f %% of its rate, without headers and losses. Delays are from capture to the last "+
		"byte of frames completed during the measurement, however late; those of `%s` grow with time. Wasted bytes "+
		"reached the viewer without being payload of a complete "+
		"frame; about 2 %% are headers. %d measurements were repeated because the emulator was late; rows marked * "+
		"were late in every attempt.\n\n",
		r.Began.UTC().Format("2006-01-02 15:04"), r.Seconds, repeats, seconds, 1/seconds, lateFrame.Seconds(),
		100*payloadShare, Queue, r.Repeated)
	fmt.Fprintf(&b, "![%s](%s)\n", plotTitle, plotFile)
	for _, s := range r.Paths {
		fmt.Fprintf(&b, "\n### %v\n\n%g ms one way, a queue of %g ms: capacity %.1f frames/s.\n\n"+
			"| | frames/s | of capacity | frame delay p50 / p95 ms | wasted | queue p50 ms |\n| --- | ---: | ---: | "+
			"---: | ---: | ---: |\n",
			s.Path, s.DelayMs, s.QueueMs, s.Fits)
		for _, contender := range Contenders() {
			f, ok := s.Of[contender]
			if !ok {
				continue
			}
			delays, mark := fmt.Sprintf("%.0f / %.0f", f.DelayP50Ms, f.DelayP95Ms), ""
			if f.DelayP50Ms == 0 {
				delays = "none arrived"
			}
			if slices.Contains(s.Late, contender) {
				mark = "*"
			}
			fmt.Fprintf(&b, "| %s%s | %.1f | %.0f %% | %s | %.0f %% | %.0f |\n", contender, mark, f.FPS,
				100*f.FPS/s.Fits, delays, f.Wasted, f.QueueP50Ms)
		}
	}
	return b.String()
}

// SavePlots writes plots of frame rate and delay against path rate into dir, for paths with the
// same loss as the first one.
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
	frames := chart.Panel{Title: fmt.Sprintf("Frames per second, complete within %g s", lateFrame.Seconds())}
	delay := chart.Panel{
		Title: fmt.Sprintf("Median frame delay, ms, where below %g s", lateFrame.Seconds()),
		X:     "Mbit/s of the path",
	}
	for _, contender := range Contenders() {
		frames.Series = append(frames.Series, line(contender, func(s Summary) float64 { return s.Of[contender].FPS }))
		delay.Series = append(delay.Series, line(contender, func(s Summary) float64 {
			if d := s.Of[contender].DelayP50Ms; d > 0 && d < ms(lateFrame) {
				return d
			}
			return math.NaN()
		}))
	}
	frames.Series = append(frames.Series, line("capacity", func(s Summary) float64 { return s.Fits }))
	return chart.Save(filepath.Join(dir, plotFile), []chart.Panel{frames, delay})
}

func ms(d time.Duration) float64 { return float64(d) / 1e6 }
