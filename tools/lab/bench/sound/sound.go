// Package sound measures the delay of sound from mouth to ear: from a microphone through capture
// server, relay and player to a loudspeaker. Both devices are sinks of a private PulseAudio server.
package sound

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"holocast/internal/qoe"
)

// Options configure Run.
type Options struct {
	Parts []string  // some of Parts; nil = all
	Quick bool      // 15 s instead of 60 s each
	Log   io.Writer // progress lines; nil discards them
}

// Parts of the benchmark.
const (
	loopbackPart = "loopback" // all programs on the loopback interface
	pathPart     = "path"     // the player behind an emulated path
)

// Parts lists the parts of the benchmark.
func Parts() []string { return []string{loopbackPart, pathPart} }

func (o Options) has(part string) bool { return len(o.Parts) == 0 || slices.Contains(o.Parts, part) }

func (o Options) check() error {
	for _, part := range o.Parts {
		if !slices.Contains(Parts(), part) {
			return fmt.Errorf("no part %q; want one of %s", part, strings.Join(Parts(), ", "))
		}
	}
	return nil
}

func (o Options) duration() time.Duration {
	if o.Quick {
		return 15 * time.Second
	}
	return time.Minute
}

// runs returns how often each part is measured.
func (o Options) runs() int {
	if o.Quick {
		return 1
	}
	return 3
}

// Result holds the measurements.
type Result struct {
	Loopback *Part `json:"loopback,omitempty"`
	Path     *Part `json:"path,omitempty"`
}

// Part holds the figures of a part: of all its runs' chirps together, and of each run.
type Part struct {
	Delays
	Concealed float64    `json:"concealed_percent"` // mean of the runs
	Runs      []*Figures `json:"runs"`
}

// newPart combines runs.
func newPart(runs []*Figures) *Part {
	p := &Part{Runs: runs}
	for _, f := range runs {
		p.Spoken += f.Spoken
		p.delay, p.correlations = append(p.delay, f.delay...), append(p.correlations, f.correlations...)
		p.Concealed += f.Concealed / float64(len(runs))
	}
	p.Concealed = qoe.Round(p.Concealed, 2)
	p.summarize()
	return p
}

// Delays describe the time of chirps from mouth to ear.
type Delays struct {
	Spoken int `json:"chirps_spoken"`
	Heard  int `json:"chirps_heard"`

	P50   float64 `json:"mouth_to_ear_p50_ms"`
	P95   float64 `json:"mouth_to_ear_p95_ms"`
	P99   float64 `json:"mouth_to_ear_p99_ms"`
	Worst float64 `json:"mouth_to_ear_worst_ms"`

	SNR   float64 `json:"snr_db"` // median of the heard chirps
	SNRP5 float64 `json:"snr_p5_db"`

	delay        []time.Duration
	correlations []float64
}

// Figures holds the figures of one run.
type Figures struct {
	Delays
	Seconds   float64  `json:"seconds"`
	Spread    float64  `json:"recorder_spread_ms"`        // largest change of a recorder's delay
	Concealed float64  `json:"concealed_percent"`         // of the sound
	BufferMs  float64  `json:"jitter_buffer_ms"`          // the player's, at the end
	DelayMs   float64  `json:"player_delay_ms"`           // the player's own figure, at the end
	LipMs     *float64 `json:"lip_offset_ms"`             // at the end
	FrameMs   float64  `json:"frame_delay_p50_ms"`        // of points
	Busy      float64  `json:"processors_busy_percent"`   // all processors' time in use
	Others    float64  `json:"processors_others_percent"` // by programs other than the benchmark's

	Failures []string `json:"emulator_failures,omitempty"`
}

// With adds the parts of an earlier result that r lacks.
func (r Result) With(earlier []byte) (interface{ Markdown() string }, error) {
	var old Result
	if err := json.Unmarshal(earlier, &old); err != nil {
		return nil, err
	}
	if r.Loopback == nil {
		r.Loopback = old.Loopback
	}
	if r.Path == nil {
		r.Path = old.Path
	}
	return r, nil
}

// Measured returns the parts that r holds.
func (r Result) Measured() (parts []string) {
	if r.Loopback != nil {
		parts = append(parts, loopbackPart)
	}
	if r.Path != nil {
		parts = append(parts, pathPart)
	}
	return parts
}
