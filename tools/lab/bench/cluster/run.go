//go:build linux

package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"holocast/internal/netlab"
	"holocast/internal/pause"
	"holocast/tools/lab/bench/internal/load"
)

// Run runs the benchmark. It needs permission to create network namespaces.
func Run(ctx context.Context, o Options) (r *Result, err error) {
	if o, err = o.withDefaults(); err != nil {
		return nil, err
	}
	if err := netlab.Supported(); err != nil {
		return nil, err
	}
	binary, remove, err := load.Binary(ctx, o.Relay)
	if err != nil {
		return nil, err
	}
	defer remove()
	r = &Result{Began: time.Now().UTC().Truncate(time.Second), Processors: runtime.NumCPU()}
	if b, err := os.ReadFile("/proc/loadavg"); err == nil {
		_, _ = fmt.Sscan(string(b), &r.LoadAverage)
	}
	b := &bench{Options: o, relay: binary, r: r}
	defer func() { err = errors.Join(err, b.drop()) }()
	for _, one := range []struct {
		name string
		run  func(context.Context) error
	}{{hopsPart, b.hops}, {cpuPart, b.cpu}, {announcePart, b.announce}} {
		if b.has(one.name) {
			if err := one.run(ctx); err != nil {
				return nil, fmt.Errorf("%s: %w", one.name, err)
			}
		}
	}
	for _, f := range faults() {
		if b.has(f.name) {
			if err := b.fault(ctx, f); err != nil {
				return nil, fmt.Errorf("%s: %w", f.name, err)
			}
		}
		if !o.Quick {
			if err := b.drop(); err != nil {
				return nil, err
			}
		}
	}
	r.JoinMs, r.Joins = milliseconds(b.joins, 0.5), len(b.joins)
	r.Seconds = time.Since(r.Began).Seconds()
	return r, ctx.Err()
}

// bench is a running benchmark.
type bench struct {
	Options
	relay string // binary
	r     *Result
	shown *show // with viewers at all sites; nil before it is needed
	joins []time.Duration
}

func (b *bench) has(part string) bool { return b.Parts == nil || slices.Contains(b.Parts, part) }

func (b *bench) log(format string, args ...any) { fmt.Fprintf(b.Log, format+"\n", args...) }

func (b *bench) start(ctx context.Context) (*network, error) {
	n, err := start(ctx, b.relay, b.Client)
	if err == nil {
		b.joins = append(b.joins, n.joined)
	}
	return n, err
}

// close closes a network and notes a late path, once per part.
func (b *bench) close(part string, n *network, err error) error {
	late, closeErr := n.close()
	noted := slices.ContainsFunc(b.r.Late, func(text string) bool { return strings.HasPrefix(text, part+": ") })
	if len(late) > 0 && !noted {
		b.r.Late = append(b.r.Late, fmt.Sprintf("%s: %s", part, late[0]))
	}
	return errors.Join(err, closeErr)
}

// show is a camera at site A with viewers.
type show struct {
	n         *network
	publisher *clientProcess
	viewers   map[string]*clientProcess // by site
	count     map[string]int            // viewers by site
}

// play starts the camera and its viewers, and waits until each has a frame.
func (n *network) play(ctx context.Context, bytes int, count map[string]int) (*show, error) {
	s := &show{n: n, viewers: map[string]*clientProcess{}, count: count}
	var err error
	s.publisher, err = n.run(ctx, siteA, siteA, client{Role: rolePublish, Bytes: bytes})
	if err != nil {
		return nil, err
	}
	for site, viewers := range count {
		c := client{Role: roleWatch, Count: viewers, Bytes: bytes}
		if s.viewers[site], err = n.run(ctx, site, site, c); err != nil {
			return nil, err
		}
	}
	err = await(ctx, startLimit, "all viewers receive frames", func() bool { return s.watching(0) || s.failure() != nil })
	if err := errors.Join(err, s.failure()); err != nil {
		return nil, err
	}
	return s, nil
}

// watching reports whether all viewers have a frame that was sent at or after a time.
func (s *show) watching(sent int64) bool {
	for site, count := range s.count {
		for viewer := range count {
			if !s.viewers[site].has(viewer, sent) {
				return false
			}
		}
	}
	return true
}

// failure returns an error if a client has ended.
func (s *show) failure() error {
	err := s.publisher.failure()
	for _, p := range s.viewers {
		err = errors.Join(err, p.failure())
	}
	return err
}

// at returns the arrivals at a site of frames sent between two times.
func (s *show) at(site string, from, to int64) (list []arrival) {
	for viewer := range s.count[site] {
		list = append(list, between(s.viewers[site].arrivals(viewer, from), from, to)...)
	}
	return list
}

// warmup passes before a measurement.
const warmup = time.Second

// attempts is the number of attempts to start a show, for a busy machine.
const attempts = 3

// show returns a show with viewers at all sites.
func (b *bench) show(ctx context.Context) (_ *show, err error) {
	for range attempts {
		if b.shown != nil {
			return b.shown, nil
		}
		if b.shown, err = b.startShow(ctx); err == nil {
			return b.shown, pause.For(ctx, warmup)
		}
		b.log("cannot start: %v", err)
	}
	return nil, err
}

func (b *bench) startShow(ctx context.Context) (*show, error) {
	n, err := b.start(ctx)
	if err != nil {
		return nil, err
	}
	count := map[string]int{}
	for _, site := range sites() {
		count[site] = viewersPerSite
	}
	s, err := n.play(ctx, FrameBytes, count)
	if err != nil {
		return nil, b.close("start", n, err)
	}
	return s, nil
}

// drop ends the show.
func (b *bench) drop() error {
	s := b.shown
	if b.shown = nil; s == nil {
		return nil
	}
	return b.close("hops and faults", s.n, nil)
}

// hops measures the delay of hops and the copies between relays.
func (b *bench) hops(ctx context.Context) error {
	s, err := b.show(ctx)
	if err != nil {
		return err
	}
	n := s.n
	received := func() map[string]float64 {
		all := map[string]float64{}
		for _, site := range sites() {
			all[site] = n.metric(ctx, site, "holocast_relay_received_bytes_total")
		}
		return all
	}
	from, before := time.Now().UnixNano(), received()
	if err := pause.For(ctx, b.length); err != nil {
		return err
	}
	to, after := time.Now().UnixNano(), received()
	for site := range after {
		if before[site] < 0 || after[site] < before[site] {
			return fmt.Errorf("relay %s has no metrics", site)
		}
	}
	if err := errors.Join(pause.For(ctx, inFlight), s.failure()); err != nil {
		return err
	}
	for _, far := range []struct {
		site, name string
		path       time.Duration
	}{{siteB, "A to B", delayAB}, {siteC, "A to C", delayAB + delayBC}} {
		d := hopDelays(s.at(siteA, from, to), s.at(far.site, from, to))
		b.r.HopMs = append(b.r.HopMs, Hop{
			Between: far.name, Path: float64(far.path.Milliseconds()), Frames: len(d),
			Limit: float64(far.path.Milliseconds())*hopFactor + float64(hopExtra.Milliseconds()),
			P50:   milliseconds(d, 0.5), P95: milliseconds(d, 0.95),
		})
		b.r.Copies = max(b.r.Copies, copies(after[siteA]-before[siteA], after[far.site]-before[far.site]))
	}
	b.log("hops: %+v, %.2f copies", b.r.HopMs, b.r.Copies)
	return nil
}

// Load of the processor time's measurement.
const (
	cpuBytes   = 4 * FrameBytes
	cpuViewers = 4
)

// cpu measures the processor time of relays with and without a hop.
func (b *bench) cpu(ctx context.Context) error {
	c := &CPU{Viewers: cpuViewers, MbitPerS: cpuBytes * 8 * FramesPerS / 1e6}
	for _, site := range []string{siteA, siteB} {
		used, err := b.processorTime(ctx, site)
		if err != nil {
			return err
		}
		if site == siteA {
			c.OneRelay, c.IdleRelay = used[siteA], used[siteC]
		} else {
			c.PublisherRelay, c.ViewersRelay = used[siteA], used[siteB]
		}
	}
	b.r.CPU = c
	b.log("processor time: %+v", *c)
	return nil
}

// processorTime returns the relays' processor time in milliseconds per second, with the viewers at a
// site.
func (b *bench) processorTime(ctx context.Context, site string) (used map[string]float64, err error) {
	n, err := b.start(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = b.close(cpuPart, n, err) }()
	s, err := n.play(ctx, cpuBytes, map[string]int{site: cpuViewers})
	if err != nil {
		return nil, err
	}
	if err := pause.For(ctx, warmup); err != nil {
		return nil, err
	}
	used = map[string]float64{}
	read := func(sign float64) error {
		for at, r := range n.relays {
			t, err := r.CPU()
			if err != nil {
				return err
			}
			used[at] += sign * t.Seconds() * 1000
		}
		return nil
	}
	began := time.Now()
	if err := errors.Join(read(-1), pause.For(ctx, b.length/2), read(1), s.failure()); err != nil {
		return nil, err
	}
	for at := range used {
		used[at] /= time.Since(began).Seconds()
	}
	return used, nil
}

// announce measures the announcement of many namespaces.
func (b *bench) announce(ctx context.Context) (err error) {
	n, err := b.start(ctx)
	if err != nil {
		return err
	}
	defer func() { err = b.close(announcePart, n, err) }()
	largest := func() (float64, error) {
		most := int64(0)
		for _, r := range n.relays {
			m, err := r.Memory()
			if err != nil {
				return 0, err
			}
			most = max(most, m)
		}
		return float64(most) / 1e6, nil
	}
	a := &Announce{Namespaces: b.namespaces}
	if a.IdleMB, err = largest(); err != nil {
		return err
	}
	p, err := n.run(ctx, siteA, siteA, client{Role: roleAnnounce, Count: b.namespaces})
	if err != nil {
		return err
	}
	known := map[string]time.Time{}
	err = await(ctx, startLimit, "all relays know the namespaces", func() bool {
		for _, site := range sites()[1:] {
			if known[site].IsZero() && n.metric(ctx, site, "holocast_relay_cluster_routes") == float64(b.namespaces) {
				known[site] = time.Now()
			}
		}
		return len(known) == 2 && p.reported("announced") > 0 || p.failure() != nil
	})
	if err := errors.Join(err, p.failure()); err != nil {
		return err
	}
	last := max(known[siteB].UnixNano(), known[siteC].UnixNano())
	b.r.AnnounceMs = float64(last-p.reported("announcing")) / 1e6
	a.LastMs = max(0, float64(last-p.reported("announced"))/1e6)
	if b.r.MemoryMB, err = largest(); err != nil {
		return err
	}
	b.r.Announce = a
	b.log("announce: %d namespaces in %.0f ms, %.0f ms after the last; %.0f MB, %.0f MB before", a.Namespaces,
		b.r.AnnounceMs, a.LastMs, b.r.MemoryMB, a.IdleMB)
	return nil
}

// fault measures a fault repeatedly. It starts a new show if viewers did not recover.
func (b *bench) fault(ctx context.Context, f fault) error {
	repetitions := b.repetitions
	switch {
	case f.most > 0 && b.Quick:
		repetitions = 1
	case f.most > 0:
		repetitions = min(repetitions, f.most)
	}
	var at, others []outage
	for i := range repetitions {
		s, err := b.show(ctx)
		if err != nil {
			return err
		}
		list, recovered, err := s.endure(ctx, f, b.Quick)
		if err != nil {
			return err
		}
		for site, outages := range list {
			if slices.Contains(f.at, site) {
				at = append(at, outages...)
			} else {
				others = append(others, outages...)
			}
		}
		b.log("%s %d of %d: %v", f.name, i+1, repetitions, list)
		if !recovered {
			if err := b.drop(); err != nil {
				return err
			}
		}
	}
	if b.r.Failover == nil {
		b.r.Failover = map[string]*Failover{}
	}
	b.r.Failover[f.name] = summarize(repetitions, at, others)
	return nil
}

// endure lets a fault happen and returns the outages of the viewers, by site.
func (s *show) endure(ctx context.Context, f fault, quick bool) (list map[string][]outage, recovered bool, err error) {
	last := f.last
	if quick {
		last = f.quick
	}
	began := time.Now().UnixNano()
	if err := s.n.begin(ctx, f.name); err != nil {
		return nil, false, err
	}
	if err := pause.For(ctx, last); err != nil {
		return nil, false, err
	}
	if err := s.n.end(f.name); err != nil {
		return nil, false, err
	}
	ended := time.Now().UnixNano()
	const steady = 500 * time.Millisecond // after the fault
	late := await(ctx, recoverLimit, "all viewers receive frames", func() bool {
		return s.watching(ended+int64(steady)) || s.failure() != nil
	})
	if err := errors.Join(ctx.Err(), s.failure(), pause.For(ctx, inFlight)); err != nil {
		return nil, false, err
	}
	until := time.Now().UnixNano()
	from := began - int64(2*inFlight)
	sent := s.publisher.sentFrames(from)
	list = map[string][]outage{}
	for site, count := range s.count {
		for viewer := range count {
			list[site] = append(list[site], outageOf(sent, s.viewers[site].arrivals(viewer, from), began, ended, until))
		}
	}
	return list, late == nil, nil
}

// pemOf returns a certificate and its key as PEM.
func pemOf(c tls.Certificate) (chain, key []byte, err error) {
	der, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	if err != nil {
		return nil, nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate[0]}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}
