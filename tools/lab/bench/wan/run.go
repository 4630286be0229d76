package wan

import (
	"context"
	"io"
)

// Run runs the benchmark. The part paths needs permission to create network namespaces.
func Run(ctx context.Context, o Options) (Result, error) {
	var r Result
	if o.Log == nil {
		o.Log = io.Discard
	}
	if err := o.check(); err != nil {
		return r, err
	}
	if o.has(qualityPart) {
		if err := r.measureQuality(ctx, o); err != nil {
			return r, err
		}
	}
	r.summarize()
	return r, nil
}
