package sound

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"holocast/internal/netlab"
	"holocast/internal/netlab/topology"
	"holocast/internal/quiccc"
	"holocast/tools/lab/bench/internal/program"
)

// attempts bounds how often the path is measured while the emulator is late.
const attempts = 2

// programs are the paths of the programs under test.
type programs struct{ relay, capture, player string }

// Run runs the benchmark. The part path needs permission to create network namespaces.
func Run(ctx context.Context, o Options) (r Result, err error) {
	if o.Log == nil {
		o.Log = io.Discard
	}
	if err := o.check(); err != nil {
		return r, err
	}
	if o.has(pathPart) {
		if err := netlab.Supported(); err != nil {
			return r, fmt.Errorf("part %s: %w", pathPart, err)
		}
		if !quiccc.Patched() {
			return r, errors.New("this program lacks our quic-go patches (congestion control, stream priorities): build it " +
				"with make")
		}
	}
	p, remove, err := findPrograms(ctx)
	if err != nil {
		return r, err
	}
	defer remove()
	if o.has(loopbackPart) {
		if r.Loopback, err = repeat(o, loopbackPart, func() (*Figures, error) {
			return measure(ctx, p, o.duration(), here, here)
		}); err != nil {
			return r, err
		}
	}
	if o.has(pathPart) {
		if r.Path, err = repeat(o, pathPart, func() (*Figures, error) { return measurePath(ctx, o, p) }); err != nil {
			return r, err
		}
	}
	return r, nil
}

// repeat takes a part's measurements.
func repeat(o Options, part string, measure func() (*Figures, error)) (*Part, error) {
	var all []*Figures
	for range o.runs() {
		f, err := measure()
		for attempt := 1; err == nil && len(f.Failures) > 0 && attempt < attempts && !o.Quick; attempt++ {
			f, err = measure()
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", part, err)
		}
		fmt.Fprintf(o.Log, "%s: mouth to ear p50 %.0f p99 %.0f ms, %d of %d chirps, %.2f %% concealed, %.0f %% other load\n",
			part, f.P50, f.P99, f.Heard, f.Spoken, f.Concealed, f.Others)
		all = append(all, f)
	}
	return newPart(all), nil
}

// findPrograms finds the programs, or builds them in a folder that remove deletes.
func findPrograms(ctx context.Context) (p programs, remove func(), err error) {
	temp := ""
	remove = func() { _ = os.RemoveAll(temp) } // nothing without a folder
	for name, path := range map[string]*string{"relay": &p.relay, "capture-server": &p.capture, "holocast": &p.player} {
		if *path, err = program.Path(ctx, name, func() (_ string, err error) {
			if temp == "" {
				temp, err = os.MkdirTemp("", "holocast-bench")
			}
			return temp, err
		}); err != nil {
			remove()
			return p, nil, err
		}
	}
	return p, remove, nil
}

// measurePath measures with publisher and relay on host a and the player on host b.
func measurePath(ctx context.Context, o Options, p programs) (r *Figures, err error) {
	t, err := topology.OnePath("sound", pathConditions)
	if err != nil {
		return nil, err
	}
	lab, err := netlab.Start(t, netlab.Options{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, lab.Close()) }()
	if err := lab.Begin(); err != nil {
		return nil, err
	}
	at := func(name string) host { return host{lab.Node(name).Addr.String(), lab.Node(name).Namespace.Do} }
	if r, err = measure(ctx, p, o.duration(), at("a"), at("b")); err != nil {
		return nil, err
	}
	report, err := lab.Finish()
	if err != nil {
		return nil, err
	}
	r.Failures = report.Failures
	return r, nil
}
