package bottleneck

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"holocast/tools/lab/bench/internal/quantile"
)

// The tiled stream consists of a base track and tiles of descending priority, in one-second groups
// whose objects depend on each other.
const (
	Tiles          = 32
	TileBytes      = 4_166 // per object: 1 Mbit/s per tile
	BaseBytes      = 8_333 // per object: 2 Mbit/s
	ObjectsPerS    = 30    // per track; also per group
	tilePriority   = 64    // of the highest-priority tile
	tilePriorities = 4     // between successive tiles
)

// priority returns a track's publisher priority; track 0 is the base.
func priority(track int) uint8 {
	if track == 0 {
		return 0
	}
	return uint8(tilePriority + tilePriorities*(track-1))
}

// objectBytes returns the payload size of a track's objects.
func objectBytes(track int) int {
	if track == 0 {
		return BaseBytes
	}
	return TileBytes
}

// TileFigures are one viewer's results for the tiled stream.
type TileFigures struct {
	Base float64 `json:"base_complete_percent"` // complete groups of the base track

	// Complete counts complete tile groups per second.
	Complete float64 `json:"tiles_complete"`

	// Inverted is the percentage of complete tile groups that arrived although a higher-priority
	// group of the same second is incomplete.
	Inverted float64 `json:"inverted_percent"`

	// DelayP95Ms is the 95th percentile of the delay from capture to the last byte, over objects in
	// complete groups.
	DelayP95Ms float64 `json:"object_delay_ms_p95"`
	Wasted     float64 `json:"wasted_percent"` // bytes that are not payload of complete groups
}

// TileMeasurement holds one contender's figures over one path.
type TileMeasurement struct {
	Path      Path    `json:"path"`
	Contender string  `json:"contender"`
	Seconds   float64 `json:"seconds"`
	TileFigures

	// CompleteOf is the percentage of complete groups by track: the base first, then the tiles in
	// order of priority.
	CompleteOf []float64 `json:"complete_percent"`
	Failures   []string  `json:"emulator_failures,omitempty"`
	Warnings   []string  `json:"emulator_warnings,omitempty"`
}

// tilesFit returns how many tiles the path can carry in addition to the base track.
func (p Path) tilesFit() float64 {
	rest := p.RateMbps*1e6*payloadShare*(1-p.Loss) - 8*BaseBytes*ObjectsPerS
	return min(Tiles, max(0, rest/(8*TileBytes*ObjectsPerS)))
}

// tilesMarkdown returns the tiles part's tables.
func (r Result) tilesMarkdown() string {
	if len(r.Tiles) == 0 {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\n## %d tracks\n\nA base track of %.0f Mbit/s and %d tiles of %.0f Mbit/s with distinct "+
		"priorities, in groups of one second: %d objects in one subgroup, each of which needs the previous ones. A "+
		"group is complete if all of them arrive; its delivery timeout, %d ms, starts at its end. Tiles are counted "+
		"per second; inverted are those in a second in which a higher-priority tile is incomplete.\n",
		1+Tiles, 8e-6*BaseBytes*ObjectsPerS, Tiles, 8e-6*TileBytes*ObjectsPerS, ObjectsPerS, r.TimeoutMs)
	var paths []Path
	for _, run := range r.Tiles {
		if !slices.Contains(paths, run.Path) {
			paths = append(paths, run.Path)
		}
	}
	slices.SortFunc(paths, func(a, b Path) int { return cmp.Compare(a.RateMbps, b.RateMbps) })
	for _, path := range paths {
		fmt.Fprintf(&b, "\n### %d tracks, %v\n\nCapacity: the base and %.1f tiles.\n\n"+
			"| | base complete | tiles complete | inverted | object delay p95 ms | wasted |\n| --- | ---: | ---: | "+
			"---: | ---: | ---: |\n",
			1+Tiles, path, path.tilesFit())
		for _, contender := range Contenders() {
			var runs []TileMeasurement
			for _, run := range r.Tiles {
				if run.Path == path && run.Contender == contender {
					runs = append(runs, run)
				}
			}
			if len(runs) == 0 {
				continue
			}
			median := func(what func(TileFigures) float64) float64 {
				var v []float64
				for _, run := range runs {
					v = append(v, what(run.TileFigures))
				}
				return quantile.Of(v, 0.5)
			}
			mark := ""
			if slices.ContainsFunc(runs, func(run TileMeasurement) bool { return len(run.Failures) > 0 }) {
				mark = "*"
			}
			fmt.Fprintf(&b, "| %s%s | %.0f %% | %.1f | %.0f %% | %.0f | %.0f %% |\n", contender, mark,
				median(func(f TileFigures) float64 { return f.Base }),
				median(func(f TileFigures) float64 { return f.Complete }),
				median(func(f TileFigures) float64 { return f.Inverted }),
				median(func(f TileFigures) float64 { return f.DelayP95Ms }),
				median(func(f TileFigures) float64 { return f.Wasted }))
		}
	}
	return b.String()
}
