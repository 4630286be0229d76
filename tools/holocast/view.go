package main

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/spf13/pflag"

	"holocast/internal/render"
	"holocast/tools/holocast/export"
)

// viewOptions holds the flags that place the viewer of an exported picture or film.
type viewOptions struct {
	look               string
	size               string
	azimuth, elevation float64
	distance           float64
	target             []float64
	at                 time.Duration
	still              bool   // --at is set
	given              string // one of the flags that are set, or ""
	turn               time.Duration
	fps                float64
}

// Flags that apply to pictures and films, and to films only.
var (
	viewFlags = []string{"look", "size", "azimuth", "elevation", "distance", "target"}
	filmFlags = []string{"turn", "fps"}
)

func (o *viewOptions) addFlags(f *pflag.FlagSet) {
	addLookFlag(f, &o.look)
	f.StringVar(&o.size, "size", "1280x720", "size of the picture or film, pixels, WIDTHxHEIGHT")
	f.Float64Var(&o.azimuth, "azimuth", 0, "viewer: degrees to the right of the studio's front")
	f.Float64Var(&o.elevation, "elevation", 10, "viewer: degrees above the target, -90 to 90")
	f.Float64Var(&o.distance, "distance", 0, "viewer: distance to the target, millimetres (default fits the picture)")
	f.Float64SliceVar(
		&o.target, "target", nil, "viewer: x,y,z of the target in the studio, millimetres (default the middle of the points)",
	)
	f.DurationVar(&o.at, "at", 0, "time of the frame after the first one (default the first with all cameras)")
	f.DurationVar(&o.turn, "turn", 10*time.Second, "film: time of a revolution around the target; 0 stands still")
	f.Float64Var(&o.fps, "fps", 0, "film: pictures per second (default the recording's frame rate)")
}

func addLookFlag(f *pflag.FlagSet, look *string) {
	f.StringVar(look, "look", string(render.Surfaced), "how pictures draw layouts A and W: surface or points")
}

// view checks the flags, also those of a film.
func (o *viewOptions) view(film bool) (v export.View, err error) {
	if v.Look, err = render.ParseLook(o.look); err != nil {
		return v, fmt.Errorf("--%w", err)
	}
	const maxSide = 8192
	if n, err := fmt.Sscanf(o.size, "%dx%d", &v.Width, &v.Height); n != 2 || err != nil ||
		min(v.Width, v.Height) < 16 || max(v.Width, v.Height) > maxSide {
		return v, fmt.Errorf("--size %q: want WIDTHxHEIGHT, each 16 to %d pixels", o.size, maxSide)
	}
	if !(o.elevation >= -90 && o.elevation <= 90) || !(o.azimuth >= -1e6 && o.azimuth <= 1e6) {
		return v, fmt.Errorf("--azimuth %g --elevation %g: want degrees, elevation from -90 to 90", o.azimuth, o.elevation)
	}
	if !(o.distance >= 0 && o.distance <= 1e6) {
		return v, fmt.Errorf("--distance %g: want millimetres, 0 to 1000000", o.distance)
	}
	if !(o.fps == 0 || o.fps >= 1 && o.fps <= 240) {
		return v, fmt.Errorf("--fps %g: want 1 to 240", o.fps)
	}
	if o.at < 0 || o.turn < 0 {
		return v, fmt.Errorf("--at %v --turn %v: want no negative time", o.at, o.turn)
	}
	if film && o.still && o.turn == 0 {
		return v, errors.New("--turn 0s with --at: a film of one frame needs a revolution")
	}
	if o.target != nil {
		if len(o.target) != 3 || slices.ContainsFunc(o.target, func(x float64) bool { return !(math.Abs(x) <= 1e6) }) {
			return v, fmt.Errorf("--target %v: want x,y,z in millimetres", o.target)
		}
		v.Target = (*[3]float64)(o.target)
	}
	v.Azimuth, v.Elevation, v.Distance = o.azimuth, o.elevation, o.distance
	return v, nil
}

// frame returns the time of the frame, negative for the first with all cameras.
func (o *viewOptions) frame() time.Duration {
	if !o.still {
		return -1
	}
	return o.at
}

func (o *viewOptions) turning(v export.View) export.Turn {
	return export.Turn{View: v, Period: o.turn, Rate: o.fps, Still: o.still, At: o.at}
}
