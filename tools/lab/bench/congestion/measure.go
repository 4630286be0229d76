//go:build linux

package congestion

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"holocast/internal/netlab"
	"holocast/internal/netlab/topology"
	"holocast/internal/pause"
	"holocast/tools/lab/bench/internal/quantile"
)

// load is the traffic of a measurement's flows.
type load struct {
	warmup, duration time.Duration
	frame            int           // bytes; 0 = bulk
	interval         time.Duration // between frames
	stagger          time.Duration // between the starts of flows
}

// lateFrame is the delay after which a frame is useless.
const lateFrame = time.Second

// measure runs a flow per transport concurrently over t's path.
func measure(ctx context.Context, t *topology.Topology, transports []string, l load) (m *Measurement, err error) {
	lab, err := netlab.Start(t, netlab.Options{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, lab.Close()) }()
	flows := make([]*flow, len(transports))
	for i, transport := range transports {
		if flows[i], err = open(ctx, lab, transport, uint16(4433+i)); err != nil {
			return nil, fmt.Errorf("%s: %w", transport, err)
		}
		defer flows[i].close()
	}
	if err := lab.Begin(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	errs := make([]error, len(flows))
	for i, f := range flows {
		wg.Go(func() {
			time.Sleep(time.Duration(i) * l.stagger)
			if l.frame > 0 && f.frame != nil {
				_, errs[i] = f.runFrames(ctx, l.interval, l.frame)
			} else {
				errs[i] = f.runBulk(ctx)
			}
		})
	}
	watching, stopWatching := context.WithCancel(ctx)
	defer stopWatching()
	start := time.Now()
	var watched sync.WaitGroup
	var lines []series
	var goodputs []goodput
	watched.Go(func() { lines, goodputs = watch(watching, flows, l.warmup) })
	_ = pause.For(ctx, l.warmup)
	before := make([]int64, len(flows))
	for i, f := range flows {
		before[i] = f.arrived()
	}
	lab.Mark()
	began := time.Now()
	_ = pause.For(ctx, l.duration)
	ended := time.Now()
	elapsed := ended.Sub(began)
	m = &Measurement{Path: t.Name, Load: "bulk", Seconds: elapsed.Seconds()}
	if l.frame > 0 {
		m.Load = "frames"
	}
	arrived := make([]int64, len(flows))
	for i, f := range flows {
		arrived[i] = f.arrived() - before[i]
	}
	if l.frame > 0 {
		_ = pause.For(ctx, lateFrame) // for frames in flight
	}
	stopWatching()
	watched.Wait()
	for i, f := range flows {
		r := Flow{Transport: transports[i], Mbps: goodputs[i].mbps(arrived[i], elapsed), series: lines[i]}
		r.frameT, r.frameMs = f.frames.lines(start)
		if l.frame > 0 && f.frame != nil {
			delays := f.frames.captured(began, ended)
			r.FrameP50Ms, r.FrameP99Ms = ms(quantile.Of(delays, 0.5)), ms(quantile.Of(delays, 0.99))
			n := 0
			for _, d := range delays {
				if d < lateFrame {
					n++
				}
			}
			r.FPS = float64(n) / elapsed.Seconds()
		}
		m.Flows = append(m.Flows, r)
		m.Mbps += r.Mbps
	}
	cancel()
	wg.Wait()
	report, err := lab.Finish()
	if err := errors.Join(append(errs, err)...); err != nil {
		return nil, err
	}
	forward := report.Paths[0]
	m.QueueP50Ms, m.QueueP99Ms = forward.Wait.P50, forward.Wait.P99
	m.DelayP50Ms, m.DelayP99Ms = forward.Delay.P50, forward.Delay.P99
	m.QueueDrops, m.Lost = forward.Full, forward.Lost
	m.DepartureP99Us = forward.Late.P99
	m.Failures, m.Warnings = report.Failures, report.Warnings
	if squares := 0.0; len(m.Flows) > 1 {
		for _, f := range m.Flows {
			squares += f.Mbps * f.Mbps
		}
		m.Jain = m.Mbps * m.Mbps / (float64(len(m.Flows)) * squares)
	}
	return m, nil
}
