package sound

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"

	"holocast/internal/netlab"
	"holocast/internal/netlab/topology"
	"holocast/internal/quiccc"
	"holocast/tools/lab/bench/internal/program"
)

// attempts bounds how often the path is measured while the emulator is late.
const attempts = 2

// host is where a program runs.
type host struct {
	addr  string
	start func(*exec.Cmd) error
}

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
		if r.Loopback, err = measure(ctx, o, p, here, here); err != nil {
			return r, fmt.Errorf("%s: %w", loopbackPart, err)
		}
	}
	for attempt := 1; o.has(pathPart) && attempt <= attempts; attempt++ {
		if r.Path, err = measurePath(ctx, o, p); err != nil {
			return r, fmt.Errorf("%s: %w", pathPart, err)
		}
		if len(r.Path.Failures) == 0 || o.Quick {
			break
		}
	}
	return r, nil
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
	at := func(name string) host { return host{lab.Node(name).Addr.String(), lab.Node(name).Start} }
	if r, err = measure(ctx, o, p, at("a"), at("b")); err != nil {
		return nil, err
	}
	report, err := lab.Finish()
	if err != nil {
		return nil, err
	}
	r.Failures = report.Failures
	return r, nil
}
