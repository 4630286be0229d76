//go:build linux

package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"holocast/internal/netlab"
	"holocast/internal/pause"
	"holocast/tools/lab/bench/internal/cputime"
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
	r = &Result{
		Began: time.Now().UTC().Truncate(time.Second), Processors: runtime.NumCPU(), LoadAverage: cputime.LoadAverage(),
	}
	b := &bench{Options: o, relay: binary, tally: &tally{r: r, failover: map[string]*Failover{}}}
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
		if !o.Quick { // so that it does not disturb the next part
			if err := b.drop(); err != nil {
				return nil, err
			}
		}
	}
	if err := b.faults(ctx); err != nil {
		return nil, err
	}
	r.JoinMs, r.Joins = milliseconds(b.tally.joins, 0.5), len(b.tally.joins)
	r.Seconds = time.Since(r.Began).Seconds()
	return r, ctx.Err()
}

// bench measures one cluster at a time. Several measure faults at once and share a tally.
type bench struct {
	Options
	relay string // binary
	tally *tally
	shown *show // with viewers at all sites; nil before it is needed
}

// tally holds the figures of all clusters.
type tally struct {
	mu       sync.Mutex
	r        *Result
	joins    []time.Duration
	failover map[string]*Failover // by fault
}

func (b *bench) has(part string) bool { return b.Parts == nil || slices.Contains(b.Parts, part) }

func (b *bench) log(format string, args ...any) {
	b.tally.mu.Lock()
	defer b.tally.mu.Unlock()
	fmt.Fprintf(b.Log, format+"\n", args...)
}

func (b *bench) start(ctx context.Context, backup bool) (*network, error) {
	n, err := start(ctx, b.relay, b.Client, backup)
	if err == nil {
		b.tally.mu.Lock()
		defer b.tally.mu.Unlock()
		b.tally.joins = append(b.tally.joins, n.joined)
	}
	return n, err
}

// close closes a network and notes a late path, once per part.
func (b *bench) close(part string, n *network, err error) error {
	late, closeErr := n.close()
	b.tally.mu.Lock()
	defer b.tally.mu.Unlock()
	r := b.tally.r
	noted := slices.ContainsFunc(r.Late, func(text string) bool { return strings.HasPrefix(text, part+": ") })
	if len(late) > 0 && !noted {
		r.Late = append(r.Late, fmt.Sprintf("%s: %s", part, late[0]))
	}
	return errors.Join(err, closeErr)
}

// The sessions: a camera, another one whose frames nobody else must see, and one that has a publisher in
// both parts of a divided cluster.
var (
	camera  = session{Name: "bench", Bytes: FrameBytes}
	another = session{Name: "another", Bytes: 1000}
	rival   = session{Name: "rival", Bytes: 100}
)

// watched returns a session with viewers.
func (s session) watched(viewers int) session {
	s.Viewers = viewers
	return s
}

// show is a camera at site A and another one at site C, with viewers.
type show struct {
	n          *network
	publisher  *clientProcess // of camera
	publishers []*clientProcess
	viewers    map[string]*clientProcess // by site
	count      map[string]int            // viewers of camera by site
	total      map[string]int            // viewers by site
}

// play starts a camera and its viewers, with another one if both is set, and waits until each has a frame.
func (n *network) play(ctx context.Context, c session, count map[string]int, both bool) (*show, error) {
	s := &show{n: n, viewers: map[string]*clientProcess{}, count: count, total: map[string]int{}}
	cameras := []struct {
		site string
		session
	}{{siteA, c}, {siteC, another}}
	if !both {
		cameras = cameras[:1]
	}
	for _, c := range cameras {
		p, err := n.run(ctx, c.site, c.site, client{Role: rolePublish, Sessions: []session{c.session}})
		if err != nil {
			return nil, err
		}
		s.publishers = append(s.publishers, p)
	}
	s.publisher = s.publishers[0]
	if n.backup {
		p, err := n.run(ctx, siteC, siteC, client{Role: rolePublish, Sessions: []session{c}})
		if err != nil {
			return nil, err
		}
		s.publishers = append(s.publishers, p)
	}
	for site, viewers := range count {
		c := client{Role: roleWatch, Sessions: []session{c.watched(viewers)}}
		s.total[site] = viewers
		if both {
			c.Sessions = append(c.Sessions, another.watched(1))
			s.total[site]++
		}
		var err error
		if s.viewers[site], err = n.run(ctx, site, site, c); err != nil {
			return nil, err
		}
	}
	return s, s.awaitFrames(ctx, 0)
}

// awaitFrames waits until all viewers receive frames sent since a time.
func (s *show) awaitFrames(ctx context.Context, sent int64) error {
	err := await(ctx, startLimit, "all viewers receive frames", func() bool {
		return s.watching(s.total, sent) || s.failure() != nil
	})
	return errors.Join(err, s.failure())
}

// place makes clients at other relays connect to their own again, and waits until all receive frames there
// and each publisher's relay claims its namespace, but no other.
func (s *show) place(ctx context.Context) error {
	if err := s.n.awaitJoined(ctx); err != nil {
		return err
	}
	pausing := time.Duration(0)
	for round := 0; s.away() > 0; round++ {
		if round == attempts {
			return fmt.Errorf("%d clients are not at their own relays", s.away())
		}
		for _, p := range s.publishers {
			if p.away(1) > 0 {
				pausing = routesSettle
				if err := p.place(); err != nil {
					return err
				}
			}
		}
		for site, p := range s.viewers {
			if p.away(s.total[site]) > 0 {
				if err := p.place(); err != nil {
					return err
				}
			}
		}
		err := await(ctx, placeLimit, "all clients are at their own relays", func() bool {
			return s.away() == 0 || s.failure() != nil
		})
		if err := errors.Join(ctx.Err(), s.failure()); err != nil {
			return err
		}
		if err == nil {
			break
		}
	}
	if err := errors.Join(s.awaitFrames(ctx, time.Now().UnixNano()), pause.For(ctx, pausing)); err != nil {
		return err
	}
	if away := s.away(); away > 0 {
		return fmt.Errorf("%d clients have left their own relays", away)
	}
	return await(ctx, placeLimit, "one relay claims each namespace for each publisher", func() bool {
		return s.n.claims(ctx) == len(s.publishers)
	})
}

// routesSettle passes after the placement of a publisher. Relays leave its former relay after two seconds.
const routesSettle = 2500 * time.Millisecond

// placeLimit limits the wait until clients are at their own relays, after which they are placed again.
const placeLimit = 10 * time.Second

// away returns the number of clients that are not at their own relays.
func (s *show) away() (n int) {
	for _, p := range s.publishers {
		n += p.away(1)
	}
	for site, p := range s.viewers {
		n += p.away(s.total[site])
	}
	return n
}

// watching reports whether viewers, counted by site, have a frame that was sent at or after a time.
func (s *show) watching(viewers map[string]int, sent int64) bool {
	for site, count := range viewers {
		for viewer := range count {
			if !s.viewers[site].has(viewer, sent) {
				return false
			}
		}
	}
	return true
}

// failure returns an error if a client has ended.
func (s *show) failure() (err error) {
	for _, p := range s.publishers {
		err = errors.Join(err, p.failure())
	}
	for _, p := range s.viewers {
		err = errors.Join(err, p.failure())
	}
	return err
}

// wrongFrames returns the number of frames of other sessions that viewers received since a time.
func (s *show) wrongFrames(from int64) (n int) {
	for _, p := range s.viewers {
		n += p.wrongFrames(from)
	}
	return n
}

// at returns the arrivals at a site of the camera's frames sent between two times.
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

// show returns a show with viewers at all sites, and a second publisher of the camera if backup is set.
func (b *bench) show(ctx context.Context, backup bool) (_ *show, err error) {
	if b.shown != nil && b.shown.n.backup != backup {
		if err := b.drop(); err != nil {
			return nil, err
		}
	}
	for range attempts {
		if b.shown != nil {
			return b.shown, nil
		}
		if b.shown, err = b.startShow(ctx, backup); err == nil {
			return b.shown, pause.For(ctx, warmup)
		}
		b.log("cannot start: %v", err)
	}
	return nil, err
}

func (b *bench) startShow(ctx context.Context, backup bool) (*show, error) {
	n, err := b.start(ctx, backup)
	if err != nil {
		return nil, err
	}
	count := map[string]int{}
	for _, site := range sites() {
		count[site] = viewersPerSite
	}
	s, err := n.play(ctx, camera, count, true)
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
	s, err := b.show(ctx, false)
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
		b.tally.r.HopMs = append(b.tally.r.HopMs, Hop{
			Between: far.name, Path: float64(far.path.Milliseconds()), Frames: len(d),
			Limit: float64(far.path.Milliseconds())*hopFactor + float64(hopExtra.Milliseconds()),
			P50:   milliseconds(d, 0.5), P95: milliseconds(d, 0.95),
		})
		b.tally.r.Copies = max(b.tally.r.Copies, copies(after[siteA]-before[siteA], after[far.site]-before[far.site]))
	}
	b.log("hops: %+v, %.2f copies", b.tally.r.HopMs, b.tally.r.Copies)
	return nil
}

// Load of the processor time's measurement.
const (
	cpuBytes   = 4 * FrameBytes
	cpuViewers = 4
)

// cpu measures the processor time of relays with and without a hop.
func (b *bench) cpu(ctx context.Context) error {
	c := &CPU{Viewers: cpuViewers, MbitPerS: cpuBytes * 8 * FramesPerS / 1e6, Seconds: (b.length / 2).Seconds()}
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
	b.tally.r.CPU = c
	b.log("processor time: %+v", *c)
	return nil
}

// processorTime returns the relays' processor time in milliseconds per second, with the viewers at a
// site.
func (b *bench) processorTime(ctx context.Context, site string) (used map[string]float64, err error) {
	n, err := b.start(ctx, false)
	if err != nil {
		return nil, err
	}
	defer func() { err = b.close(cpuPart, n, err) }()
	s, err := n.play(ctx, session{Name: "bench", Bytes: cpuBytes}, map[string]int{site: cpuViewers}, false)
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
	n, err := b.start(ctx, false)
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
	b.tally.r.AnnounceMs = float64(last-p.reported("announcing")) / 1e6
	a.LastMs = max(0, float64(last-p.reported("announced"))/1e6)
	if b.tally.r.MemoryMB, err = largest(); err != nil {
		return err
	}
	b.tally.r.Announce = a
	b.log("announce: %d namespaces in %.0f ms, %.0f ms after the last; %.0f MB, %.0f MB before", a.Namespaces,
		b.tally.r.AnnounceMs, a.LastMs, b.tally.r.MemoryMB, a.IdleMB)
	return nil
}

// faults measures the faults in rounds, so that disturbances of the machine affect all faults alike. Several clusters
// share the rounds.
func (b *bench) faults(ctx context.Context) error {
	for _, backup := range []bool{false, true} {
		rounds := make(chan int, b.repetitions)
		for round := range b.repetitions {
			rounds <- round
		}
		close(rounds)
		group, ctx := errgroup.WithContext(ctx)
		for i := range min(clusters, b.repetitions) {
			one := b
			if i > 0 {
				one = &bench{Options: b.Options, relay: b.relay, tally: b.tally}
			}
			group.Go(func() (err error) {
				defer func() { err = errors.Join(err, one.drop()) }()
				for round := range rounds {
					if err := one.round(ctx, round, backup); err != nil {
						return err
					}
				}
				return nil
			})
		}
		if err := group.Wait(); err != nil {
			return err
		}
	}
	for name, f := range b.tally.failover {
		if f.summarize(); f.Repetitions == 0 {
			return fmt.Errorf("%s: no repetition succeeded", name)
		}
	}
	b.tally.r.Failover = b.tally.failover
	return nil
}

// round lets each fault happen once.
func (b *bench) round(ctx context.Context, round int, backup bool) error {
	for _, f := range faults() {
		if !b.has(f.name) || f.backup != backup || b.Quick && f.rare && round > 0 {
			continue
		}
		if err := b.fault(ctx, f, round); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
	}
	return nil
}

// fault lets a fault happen once and adds the viewers' outages to the tally. A failure of the benchmark itself
// costs the repetition. It starts a new show after a failure or if viewers did not recover.
func (b *bench) fault(ctx context.Context, f fault, round int) error {
	s, err := b.show(ctx, f.backup)
	if err != nil {
		return err
	}
	recovered, one := false, &Failover{}
	if err = s.place(ctx); err == nil {
		if err = pause.For(ctx, settle); err == nil {
			var list map[string][]outage
			list, recovered, err = s.endure(ctx, f, b.Quick, one)
			b.log("%s %d: %v", f.name, round+1, list)
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		b.log("%s failed: %v", f.name, err)
		one.Failed++
	}
	b.tally.add(f.name, one)
	if !recovered {
		return b.drop()
	}
	return nil
}

// add adds one repetition of a fault.
func (t *tally) add(name string, one *Failover) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := t.failover[name]
	if f == nil {
		f = &Failover{}
		t.failover[name] = f
	}
	f.Repetitions += one.Repetitions
	f.Failed += one.Failed
	f.Wrong += one.Wrong
	f.atAll = append(f.atAll, one.atAll...)
	f.othersAll = append(f.othersAll, one.othersAll...)
	f.settled = append(f.settled, one.settled...)
}

// settle passes between the placement of the clients and a fault.
const settle = 500 * time.Millisecond

// endure lets a fault happen, adds the outages of the viewers to all and returns them by site.
func (s *show) endure(
	ctx context.Context, f fault, quick bool, all *Failover,
) (list map[string][]outage, recovered bool, err error) {
	last := f.last
	if quick {
		last = f.quick
	}
	var r *rivals
	if f.name == partition {
		if r, err = s.n.oppose(ctx); err != nil {
			return nil, false, err
		}
		defer r.leave()
	}
	began := time.Now().UnixNano()
	for _, p := range append(slices.Collect(maps.Values(s.viewers)), s.publishers...) {
		p.forget(began - int64(10*time.Second))
	}
	if err := s.n.begin(ctx, f.name); err != nil {
		return nil, false, err
	}
	if r != nil {
		if err := r.compete(ctx); err != nil {
			return nil, false, err
		}
	}
	if err := pause.For(ctx, last); err != nil {
		return nil, false, err
	}
	if err := s.n.end(ctx, f.name); err != nil {
		return nil, false, err
	}
	ended := time.Now().UnixNano()
	const steady = 500 * time.Millisecond // after the fault
	late := await(ctx, recoverLimit, "all viewers receive frames", func() bool {
		return s.watching(s.count, ended+int64(steady)) || s.failure() != nil
	})
	if err := errors.Join(ctx.Err(), s.failure(), pause.For(ctx, inFlight)); err != nil {
		return nil, false, err
	}
	until := time.Now().UnixNano()
	if r != nil {
		settled, err := r.settle(ctx, time.Unix(0, ended))
		if err != nil {
			return nil, false, err
		}
		all.settled = append(all.settled, settled)
	}
	sent := s.publisher.sentFrames(began - int64(2*inFlight))
	list = map[string][]outage{}
	for site, count := range s.count {
		for viewer := range count {
			got := s.viewers[site].arrivals(viewer, began-int64(2*inFlight))
			o := outageOf(sent, got, began, ended, until)
			list[site] = append(list[site], o)
			all.add(slices.Contains(f.at, site), o)
		}
	}
	all.Wrong += s.wrongFrames(began)
	all.Repetitions++
	return list, late == nil, nil
}

// rivals are two publishers that claim one namespace, in two parts of a cluster.
type rivals struct {
	n      *network
	both   [2]*clientProcess
	others int // claims of other namespaces
}

// oppose starts the first of two rivals, at site A.
func (n *network) oppose(ctx context.Context) (r *rivals, err error) {
	r = &rivals{n: n, others: n.claims(ctx)}
	return r, r.claim(ctx, 0, siteA)
}

// compete starts the second, at site C, once the parts have lost sight of each other.
func (r *rivals) compete(ctx context.Context) error { return r.claim(ctx, 1, siteC) }

func (r *rivals) claim(ctx context.Context, i int, site string) (err error) {
	if r.both[i], err = r.n.run(ctx, site, site, client{Role: rolePublish, Sessions: []session{rival}}); err != nil {
		return err
	}
	return await(ctx, startLimit, "relay "+site+" has the rival's claim", func() bool {
		return r.n.claims(ctx) == r.others+i+1 || r.both[i].failure() != nil
	})
}

// settle waits until the namespace has one owner, and returns how long that took.
func (r *rivals) settle(ctx context.Context, healed time.Time) (time.Duration, error) {
	err := await(ctx, startLimit, "the namespace has one owner", func() bool { return r.n.claims(ctx) == r.others+1 })
	return time.Since(healed), err
}

// leave ends both.
func (r *rivals) leave() {
	for _, p := range r.both {
		if p != nil {
			p.leave()
		}
	}
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
