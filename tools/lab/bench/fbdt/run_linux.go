package fbdt

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"holocast/internal/fbdt"
	"holocast/internal/netlab"
	"holocast/internal/pause"
	"holocast/internal/quiccc"
	"holocast/tools/lab/bench/fbdt/schedulers"
	"holocast/tools/lab/bench/internal/part"
)

// transport carries windows from the server to the client.
type transport interface {
	receive(r *receiver, size int)
	// open returns a window's writer. Windows are written concurrently but sent in the order of the open calls.
	open(number uint64) (io.WriteCloser, error)
	mark() figures
	close()
}

// dial opens a contender's transport.
func dial(ctx context.Context, r *radios, c contender) (transport, error) {
	switch c.kind {
	case kindTCP:
		return dialTCP(ctx, r, r.radios[c.radio].addr, c.control, false)
	case kindMPTCP:
		if err := r.multipathTCP(ctx); err != nil {
			return nil, err
		}
		return dialTCP(ctx, r, r.radios[0].addr, c.control, true)
	case kindQUIC:
		return dialQUIC(ctx, r, r.radios[c.radio:c.radio+1], nil)
	}
	return dialQUIC(ctx, r, r.radios, func() fbdt.Scheduler {
		switch c.name {
		case ours:
			return fbdt.New(fbdt.Options{})
		case paper:
			return fbdt.NewPaper(fbdt.Options{})
		}
		return schedulers.New(c.name, fbdt.Options{})
	})
}

// attempts limits how many times a measurement runs if the emulator is late.
const attempts = 3

// Run runs the benchmark. It needs permission to create network namespaces.
func Run(ctx context.Context, o Options) (Result, error) {
	if err := part.Check(o.Parts, Parts()); err != nil {
		return Result{}, err
	}
	if err := netlab.Supported(); err != nil {
		return Result{}, err
	}
	if !quiccc.Patched() {
		return Result{}, errors.New("this program lacks our quic-go patches (congestion control, stream " +
			"priorities): build it with make")
	}
	if o.Log == nil {
		o.Log = io.Discard
	}
	list, err := scenarios(o.Data)
	if err != nil {
		return Result{}, err
	}
	if o.Data == "" {
		fmt.Fprintln(o.Log, "skip the scenario traces: set HOLOCAST_DATA to a folder with network_traces")
	}
	r := Result{Began: time.Now(), Scenarios: list}
	for range o.repeat() {
		for _, s := range list {
			for _, load := range loads(o) {
				if !o.has(load.part) || !load.of(s) {
					continue
				}
				for _, c := range contenders(s, load, o.Quick) {
					m, again, err := measureWell(ctx, s, c, load, o.Quick)
					if err := errors.Join(err, ctx.Err()); err != nil {
						return Result{}, fmt.Errorf("%s, %s, %s: %w", s.Name, c.name, load.part, err)
					}
					r.Repeated += again
					r.Runs = append(r.Runs, *m)
					fmt.Fprintln(o.Log, m)
				}
			}
		}
	}
	if o.has(sessionsPart) {
		if r.Sessions, err = realSessions(ctx, o); err != nil {
			return Result{}, err
		}
	}
	r.Seconds = time.Since(r.Began).Seconds()
	r.summarize()
	return r, nil
}

// measureWell repeats a measurement while the emulator is late, and returns the number of repetitions. The last
// attempt counts in any case. A quick run is not repeated.
func measureWell(ctx context.Context, s Scenario, c contender, l load, quick bool) (*Measurement, int, error) {
	for again := 0; ; again++ {
		m, err := measure(ctx, s, c, l)
		if err != nil || quick || len(m.Failures) == 0 || again == attempts-1 {
			return m, again, err
		}
	}
}

// measure sends windows over one transport.
func measure(ctx context.Context, s Scenario, c contender, l load) (m *Measurement, err error) {
	warmup := max(l.warmup, s.warmup)
	r, err := start(s, warmup+l.duration+tail+dialLimit)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.lab.Close()) }()
	t, err := dial(ctx, r, c)
	if err != nil {
		return nil, err
	}
	end := sync.OnceFunc(t.close)
	defer end()
	if err := r.lab.Begin(); err != nil {
		return nil, err
	}
	rec := newReceiver()
	t.receive(rec, l.window)
	sending, stop := context.WithCancel(ctx)
	failed := make(chan error, 1)
	var writers sync.WaitGroup
	writers.Go(func() { failed <- l.run(sending, t, rec) })
	defer writers.Wait()
	defer end()
	defer stop()
	if err := pause.Unless(failed, warmup); err != nil {
		return nil, err
	}
	r.lab.Mark()
	before, from, bytes := t.mark(), time.Since(rec.began), rec.bytes.Load()
	m = &Measurement{Part: l.part, Scenario: s.Name, Contender: c.name}
	for past := time.Duration(0); past < l.duration; {
		if err := pause.Unless(failed, min(sampleEvery, l.duration-past)); err != nil {
			return nil, err
		}
		past = time.Since(rec.began) - from
		m.at, m.total = append(m.at, past.Seconds()), append(m.total, rec.bytes.Load()-bytes)
	}
	to, bytes := time.Since(rec.began), rec.bytes.Load()-bytes
	after := t.mark()
	m.Seconds = (to - from).Seconds()
	m.Mbps = float64(bytes) * 8e-6 / m.Seconds
	if delivered := after.delivered - before.delivered; delivered > 0 {
		m.Waste = float64(after.repeated-before.repeated) / float64(delivered)
	}
	m.ReorderPeak = after.peak
	if l.every > 0 {
		if err := pause.Unless(failed, tail); err != nil { // for windows in flight
			return nil, err
		}
		d := deliveryOf(rec.delays(from, to, time.Since(rec.began)))
		m.Delivery = &d
	}
	stop()
	end()
	report, err := r.lab.Finish()
	if err != nil {
		return nil, err
	}
	for _, p := range report.Paths {
		if p.From == "e" {
			m.Paths = append(m.Paths, p.Mbps)
		}
		m.DepartureP99Us = max(m.DepartureP99Us, p.Late.P99)
	}
	m.Failures, m.Warnings = report.Failures, report.Warnings
	return m, nil
}

// run sends windows until ctx ends or the transport fails.
func (l load) run(ctx context.Context, t transport, r *receiver) error {
	var writing sync.WaitGroup
	defer writing.Wait()
	failed := make(chan error, 1)
	under := make(chan struct{}, l.under())
	next := time.Now()
	for number := uint64(0); ; number++ {
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			return fmt.Errorf("send window: %w", err)
		case <-time.After(time.Until(next)):
		}
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			return fmt.Errorf("send window: %w", err)
		case under <- struct{}{}:
		}
		to, err := t.open(number)
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("send window: %w", err)
		}
		window := r.window(l.window)
		writing.Go(func() {
			defer func() { <-under }()
			_, err := to.Write(window)
			if err := errors.Join(err, to.Close()); err != nil && ctx.Err() == nil {
				select {
				case failed <- err:
				default:
				}
			}
		})
		next = next.Add(l.every)
	}
}
