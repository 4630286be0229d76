//go:build linux

package tiles

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"holocast/internal/catalog"
	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/netlab"
	"holocast/internal/netlab/topology"
	"holocast/internal/quiccc"
	"holocast/tools/holocast/player/sphere"
	"holocast/tools/holocast/player/sphere/spheretest"
	"holocast/tools/lab/bench/internal/direct"
)

// sessions makes a viewer watch over an emulated path, with each scheme in turn.
func sessions(ctx context.Context, log io.Writer, set setup, c *clip, traces []trace, nets []network) (*Sessions,
	error,
) {
	if os.Geteuid() != 0 {
		fmt.Fprintln(log, "skip real sessions: network namespaces need root")
		return nil, nil
	}
	if err := netlab.Supported(); err != nil {
		return nil, err
	}
	if !quiccc.Patched() {
		return nil, errors.New("this program lacks our quic-go patches (congestion control, stream priorities): " +
			"build it with make")
	}
	return viewings(ctx, log, set, c, traces, nets, func(t trace, net network, scheme string,
		percentile float64,
	) (sphere.Report, int, error) {
		return session(ctx, c, t, net, scheme, percentile, set.sessionGOPs)
	})
}

// session is one viewing.
func session(ctx context.Context, c *clip, t trace, net network, scheme string, percentile float64,
	gops int,
) (report sphere.Report, late int, err error) {
	var schedule strings.Builder
	mbit := func(second int) float64 { return max(leastMbit, 8e-6*net.at(float64(second))) }
	for i := 1; i < gops+20; i++ {
		fmt.Fprintf(&schedule, "      - {at: %ds, rate: %.3fMbit, direction: forward}\n", i, mbit(i))
	}
	top, err := topology.Parse(fmt.Appendf(nil, `name: tiles
hosts: [a, b]
paths:
  - name: path
    between: [a, b]
    rate: %.3fMbit
    backward: {rate: 20Mbit}
    delay: %v
    queue: %v
    schedule:
%s`, mbit(0), sessionDelay, sessionQueue, schedule.String()))
	if err != nil {
		return report, 0, err
	}
	lab, err := netlab.Start(top, netlab.Options{})
	if err != nil {
		return report, 0, err
	}
	defer func() { err = errors.Join(err, lab.Close()) }()
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	ns := moqt.Namespace{"holocast", "bench"}
	publisher, err := spheretest.New(ns, c.film())
	if err != nil {
		return report, 0, err
	}
	var server *direct.Server
	if err := lab.Node("a").Namespace.Do(func() (err error) {
		server, err = direct.Listen(lab.Node("a").Addr, publisher.Set.Handler())
		return err
	}); err != nil {
		return report, 0, err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	failed := make(chan error, 2)
	running.Go(func() { failed <- publisher.Run(ctx) })
	select { // GoP rates are known once the GoPs have ended
	case <-time.After(2200 * time.Millisecond):
	case <-ctx.Done():
		return report, 0, ctx.Err()
	}
	var s *moqt.Session
	if err := lab.Node("b").Namespace.Do(func() (err error) {
		s, err = server.Dial(ctx)
		return err
	}); err != nil {
		return report, 0, err
	}
	defer s.Close(wire.NoError, "")
	cat, err := readCatalog(ctx, s, ns)
	if err != nil {
		return report, 0, err
	}
	v, err := sphere.New(sphere.Config{
		Head: t.head.At, Crowd: t.crowd, Viewport: fieldOfView, Scheme: scheme,
		Percentile: percentile, Log: direct.Quiet.Log,
	})
	if err != nil {
		return report, 0, err
	}
	defer v.Close()
	v.Configure(cat, func(track catalog.Track) moqt.TrackName {
		return moqt.TrackName{
			Namespace: ns,
			Name:      track.Name,
		}
	})
	if err := lab.Begin(); err != nil {
		return report, 0, err
	}
	running.Go(func() { failed <- v.Play(ctx, s) })
	for limit := time.After(time.Duration(gops+20) * time.Second); v.Report().GOPs < gops; {
		select {
		case err := <-failed:
			return report, 0, fmt.Errorf("the session ended: %w", cmp.Or(err, io.EOF))
		case <-limit:
			return v.Report(), 0, nil // stalled too long to finish
		case <-time.After(50 * time.Millisecond):
		}
	}
	report = v.Report()
	lr, err := lab.Finish()
	if err == nil && len(lr.Failures) > 0 {
		late = 1
	}
	return report, late, err
}
