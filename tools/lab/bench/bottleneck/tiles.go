package bottleneck

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"holocast/tools/lab/bench/internal/quantile"
)

// The tiled stream: one base track and tiles of descending importance, all in groups of
// one second whose objects depend on one another.
const (
	Tiles          = 32
	TileBytes      = 4_166 // of an object's payload: 1 Mbit/s of a tile
	BaseBytes      = 8_333 // of an object of the base track: 2 Mbit/s
	ObjectsPerS    = 30    // of each track, and of each group
	tilePriority   = 64    // of the most important tile
	tilePriorities = 4     // between one tile's priority and the next
)

// priority is a track's publisher priority; track 0 is the base.
func priority(track int) uint8 {
	if track == 0 {
		return 0
	}
	return uint8(tilePriority + tilePriorities*(track-1))
}

// objectBytes is the payload of a track's objects.
func objectBytes(track int) int {
	if track == 0 {
		return BaseBytes
	}
	return TileBytes
}

// TileFigures are what a viewer got of the tiled stream in the time measured.
type TileFigures struct {
	Base float64 `json:"base_whole_percent"` // groups of the base track that came whole
	// Whole are the groups of tiles that came whole, all in all, a second.
	Whole float64 `json:"tiles_whole"`
	// Inverted are whole groups of tiles in whose second a more important one was not
	// whole, of all whole ones, %.
	Inverted float64 `json:"inverted_percent"`
	// DelayP95Ms is of the objects of whole groups, from capture to the last byte.
	DelayP95Ms float64 `json:"object_delay_ms_p95"`
	InVain     float64 `json:"in_vain_percent"` // as of one camera: bytes that are not payload of whole groups
}

// TileMeasurement is one contender over one path.
type TileMeasurement struct {
	Path      Path    `json:"path"`
	Contender string  `json:"contender"`
	Seconds   float64 `json:"seconds"`
	TileFigures
	// WholeOf is the share of groups that came whole by track, the base first, then the
	// tiles by importance, %.
	WholeOf  []float64 `json:"whole_percent"`
	Failures []string  `json:"emulator_failures,omitempty"`
	Warnings []string  `json:"emulator_warnings,omitempty"`
}

// tilesFit is how many tiles a second the path can carry beside the base track.
func (p Path) tilesFit() float64 {
	rest := p.RateMbps*1e6*payloadShare*(1-p.Loss) - 8*BaseBytes*ObjectsPerS
	return min(Tiles, max(0, rest/(8*TileBytes*ObjectsPerS)))
}

// tilesMarkdown is the tiled stream's part of the result.
func (r Result) tilesMarkdown() string {
	if len(r.Tiles) == 0 {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\n## %d tracks\n\nA base track of %.0f Mbit/s and %d tiles of %.0f Mbit/s each, every one of another priority, in groups of a second: %d objects in one subgroup, of which each needs those before it. A group is whole when all of them arrived; it has its delivery timeout, %d ms, from its end. Tiles are counted a second; inverted are those in whose second a more important one was not whole.\n",
		1+Tiles, 8e-6*BaseBytes*ObjectsPerS, Tiles, 8e-6*TileBytes*ObjectsPerS, ObjectsPerS, r.TimeoutMs)
	var paths []Path
	for _, run := range r.Tiles {
		if !slices.Contains(paths, run.Path) {
			paths = append(paths, run.Path)
		}
	}
	slices.SortFunc(paths, func(a, b Path) int { return cmp.Compare(a.RateMbps, b.RateMbps) })
	for _, path := range paths {
		fmt.Fprintf(&b, "\n### %d tracks, %v\n\nThe base and %.1f tiles fit.\n\n| | base whole | tiles whole | inverted | object delay p95 ms | in vain |\n| --- | ---: | ---: | ---: | ---: | ---: |\n", 1+Tiles, path, path.tilesFit())
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
				median(func(f TileFigures) float64 { return f.Base }), median(func(f TileFigures) float64 { return f.Whole }),
				median(func(f TileFigures) float64 { return f.Inverted }), median(func(f TileFigures) float64 { return f.DelayP95Ms }),
				median(func(f TileFigures) float64 { return f.InVain }))
		}
	}
	return b.String()
}
