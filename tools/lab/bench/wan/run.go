package wan

import (
	"context"
	"fmt"
	"io"

	"holocast/tools/lab/bench/internal/part"
)

// Run runs the benchmark. The part paths needs permission to create network namespaces.
func Run(ctx context.Context, o Options) (Result, error) {
	var r Result
	if o.Log == nil {
		o.Log = io.Discard
	}
	if err := part.Check(o.Parts, Parts()); err != nil {
		return r, err
	}
	if o.has(camerasPart) { // first, while nothing else runs
		if err := r.measureCameras(ctx, o); err != nil {
			return r, err
		}
		if len(o.Parts) == 1 {
			return r, nil
		}
	}
	frames := extentOf(o.Quick).moving
	fmt.Fprintf(o.Log, "rendering %d frames of %d cameras\n", frames, cameras)
	moving, err := performer(ctx, frames)
	if err != nil {
		return r, err
	}
	defer func() {
		for _, s := range moving {
			s.close()
		}
	}()
	if o.has(qualityPart) {
		if err := r.measureQuality(ctx, o, moving); err != nil {
			return r, err
		}
	}
	if o.has(posePart) {
		if r.Selection, err = selection(ctx, moving, extentOf(o.Quick), o.Log); err != nil {
			return r, err
		}
	}
	if o.has(pathsPart) {
		if err := r.measurePaths(ctx, o, moving, frames); err != nil {
			return r, err
		}
	}
	r.summarize()
	return r, nil
}
