// Package wan measures point clouds over home connections: the bit rate, accuracy and appearance of
// layout W and of other codecs on scenes whose exact depth is known, and the frames that reach a
// viewer over emulated paths.
package wan

import (
	"encoding/json"
	"io"
	"slices"
)

// Options configure Run.
type Options struct {
	Data  string    // recordings (HOLOCAST_DATA); "" measures synthetic scenes only
	Parts []string  // some of Parts; nil = all
	Quick bool      // fewer frames, views and paths
	Log   io.Writer // progress lines; nil discards them
}

// Parts of the benchmark.
const (
	qualityPart = "quality" // codecs
	posePart    = "pose"    // qualities by the viewer's pose
	pathsPart   = "paths"   // layouts over emulated paths
	camerasPart = "cameras" // capture server, relay and player on this machine
)

// Parts lists the parts of the benchmark.
func Parts() []string { return []string{qualityPart, posePart, pathsPart, camerasPart} }

func (o Options) has(part string) bool { return len(o.Parts) == 0 || slices.Contains(o.Parts, part) }

// Result holds the measurements. The summary describes layout W on the four cameras of the moving
// performer at homeTarget Mbit/s, and over a path of 20 Mbit/s without loss.
type Result struct {
	Summary
	Scenes []Scene `json:"scenes,omitempty"`
	Curve  []Point `json:"curve,omitempty"`
	Rates  []Rated `json:"rates,omitempty"`

	Selection *Selection `json:"selection,omitempty"`
	Draco     bool       `json:"draco"` // whether Draco was measured
	Paths     []PathRun  `json:"paths,omitempty"`

	Cameras []CameraRun `json:"cameras,omitempty"`

	pictures []picture
}

// Summary holds the main figures.
type Summary struct {
	MbpsFour     float64 `json:"mbps_four"`
	DepthMean    float64 `json:"depth_mean_mm"`
	DepthP99     float64 `json:"depth_p99_mm"`
	SensorMean   float64 `json:"sensor_mean_mm"`
	SensorP99    float64 `json:"sensor_p99_mm"`
	MovingMean   float64 `json:"moving_mean_mm"`
	SensorMoving float64 `json:"sensor_moving_mean_mm"`
	ColorPSNR    float64 `json:"color_psnr"`
	EncodeMs     float64 `json:"encode_ms"`
	DecodeMs     float64 `json:"decode_ms"`
	LosslessFour float64 `json:"lossless_mbps_four"`
	ViewGain     float64 `json:"view_gain_db"`
	DelayP50     float64 `json:"delay_p50_ms"`
	DelayP95     float64 `json:"delay_p95_ms"`
	Freezes      int     `json:"freezes"` // over 200 ms
}

func (r *Result) summarize() {
	r.Summary = Summary{}
	for _, s := range r.Scenes {
		if s.Name != sceneMoving {
			continue
		}
		r.SensorMean, r.SensorP99, r.SensorMoving = s.Sensor.MeanMm, s.Sensor.P99Mm, s.Moving.MeanMm
		for _, c := range s.Coded {
			switch c.Name {
			case layoutW:
				r.EncodeMs, r.DecodeMs = c.EncodeMs, c.DecodeMs
			case layoutA:
				r.LosslessFour = c.MbpsFour
			}
		}
	}
	for _, p := range r.Rates {
		if p.Target == homeTarget && p.Apart == 0 {
			r.MbpsFour, r.DepthMean, r.DepthP99 = p.Mbps, p.Depth.MeanMm, p.Depth.P99Mm
			r.MovingMean, r.ColorPSNR = p.Moving.MeanMm, p.ColorPSNR
		}
	}
	if r.Selection != nil {
		r.ViewGain = r.Selection.Gain
	}
	for _, run := range r.Paths {
		if run.Contender == layoutW && run.Path == homePath {
			r.DelayP50, r.DelayP95, r.Freezes = run.DelayP50, run.DelayP95, run.Freezes200
		}
	}
}

// With adds the parts of an earlier result that r lacks.
func (r Result) With(earlier []byte) (interface{ Markdown() string }, error) {
	var old Result
	if err := json.Unmarshal(earlier, &old); err != nil {
		return nil, err
	}
	if len(r.Scenes) == 0 {
		r.Scenes, r.Curve, r.Rates, r.Draco = old.Scenes, old.Curve, old.Rates, old.Draco
	}
	if r.Selection == nil {
		r.Selection = old.Selection
	}
	if len(r.Paths) == 0 {
		r.Paths = old.Paths
	}
	if len(r.Cameras) == 0 {
		r.Cameras = old.Cameras
	}
	r.summarize()
	return r, nil
}

// Measured returns the parts that r holds.
func (r Result) Measured() (parts []string) {
	if len(r.Scenes) > 0 {
		parts = append(parts, qualityPart)
	}
	if r.Selection != nil {
		parts = append(parts, posePart)
	}
	if len(r.Paths) > 0 {
		parts = append(parts, pathsPart)
	}
	if len(r.Cameras) > 0 {
		parts = append(parts, camerasPart)
	}
	return parts
}
