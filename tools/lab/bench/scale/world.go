package scale

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"holocast/internal/moqt"
	"holocast/internal/qoe"
	"holocast/relay/cluster"
)

const (
	step     = 10 * time.Millisecond // of fake time
	tick     = 5                     // steps between a table's ticks, as in relays
	near     = 1                     // steps of delay of a message within a region
	far      = 5                     // and between regions
	startup  = 10 * time.Second      // in which the relays start
	failover = time.Second           // until the clients of a killed relay are at another one
	restart  = 5 * time.Second       // between a relay's death and the start of its successor
	overhead = 32                    // bytes of a message's signature
	silence  = cluster.Silence
)

// node is a relay.
type node struct {
	name   string
	index  int
	region int
	table  *cluster.Table // nil if it is dead
	routes map[string]cluster.Route
}

// session is a publisher and its viewers.
type session struct {
	ns     moqt.Namespace
	key    string
	at     *node // of the publisher
	groups []*group
}

// group holds the viewers of a session at a relay.
type group struct {
	at      *node
	n       int
	lost    time.Time // since when they lack a picture; zero if they have one
	evicted bool      // their relay was killed since then
}

type delivery struct {
	from *node
	far  bool
	m    *cluster.Message
}

// event is an action at a step.
type event struct {
	at  int
	run func()
}

type world struct {
	Extent
	r        *rand.Rand
	now      time.Time
	steps    int
	nodes    []*node
	byID     map[string]*node
	sessions []*session
	inbox    [far + 1][]delivery // by step
	events   []event
	cut      int // region cut off, or -1
	started  int // relays so far

	received, bytes int
	gaps            [2][]time.Duration // of viewers elsewhere, and at killed relays
	lacking, total  float64            // viewers × time
}

func newWorld(x Extent, r *rand.Rand) *world {
	return &world{Extent: x, r: r, now: time.Unix(1e9, 0), byID: map[string]*node{}, cut: -1}
}

// launch starts a relay in a region.
func (w *world) launch(region int) *node {
	w.started++
	n := &node{
		name: fmt.Sprintf("%016x", w.r.Uint64()), index: w.started, region: region, routes: map[string]cluster.Route{},
	}
	info := cluster.Info{
		Name: n.name, Region: fmt.Sprint("r", region), URL: "moqt://" + n.name, Since: uint64(w.now.UnixMicro()),
	}
	n.table = cluster.NewTable(n.name, info, uint64(w.now.UnixMicro()), true)
	w.nodes = append(w.nodes, n)
	w.byID[n.name] = n
	w.send(n, n.table.Start(w.now))
	return n
}

// after runs an action after d.
func (w *world) after(d time.Duration, run func()) {
	w.events = append(w.events, event{w.steps + int(d/step), run})
}

func (w *world) send(from *node, list []*cluster.Message) {
	for _, m := range list {
		for _, d := range []struct {
			delay int
			far   bool
		}{{near, false}, {far, true}} {
			slot := &w.inbox[(w.steps+d.delay)%len(w.inbox)]
			*slot = append(*slot, delivery{from, d.far, m})
		}
	}
}

// linked reports whether two relays reach each other.
func (w *world) linked(a, b *node) bool {
	return a.table != nil && b.table != nil && (w.cut < 0 || (a.region == w.cut) == (b.region == w.cut))
}

// pass lets time pass. each runs every tick, if not nil.
func (w *world) pass(ctx context.Context, d time.Duration, each func()) error {
	for end := w.now.Add(d); w.now.Before(end); {
		if err := ctx.Err(); err != nil {
			return err
		}
		w.steps++
		w.now = w.now.Add(step)
		w.deliver()
		due := w.events
		w.events = nil
		for _, e := range due {
			if e.at <= w.steps {
				e.run()
			} else {
				w.events = append(w.events, e)
			}
		}
		for _, n := range w.nodes {
			if n.table == nil {
				continue
			}
			if (w.steps+n.index)%tick == 0 {
				w.send(n, n.table.Tick(w.now))
			}
			for _, route := range n.table.Changes() {
				if key := route.Namespace.String(); route.ID == "" {
					delete(n.routes, key)
				} else {
					n.routes[key] = route
				}
			}
		}
		if each != nil && w.steps%tick == 0 {
			each()
		}
	}
	return nil
}

func (w *world) deliver() {
	slot := &w.inbox[w.steps%len(w.inbox)]
	due := *slot
	*slot = nil
	for _, d := range due {
		size := len(d.m.Append(nil)) + overhead
		for _, n := range w.nodes {
			if n == d.from || (n.region != d.from.region) != d.far || !w.linked(n, d.from) {
				continue
			}
			w.received++
			w.bytes += size
			w.send(n, n.table.Receive(w.now, d.m))
		}
	}
}

// alive returns a random relay of a region that runs; −1 means any region.
func (w *world) alive(region int) *node {
	for {
		n := w.nodes[w.r.IntN(len(w.nodes))]
		if n.table != nil && (region < 0 || n.region == region) {
			return n
		}
	}
}

// publish connects a session's publisher to a relay.
func (w *world) publish(s *session, at *node) {
	s.at = at
	w.send(at, at.table.Publish(w.now, []moqt.Namespace{s.ns}, nil))
}

// path returns the relays between a session's publisher and a viewer's relay, which come last and first, or
// nil if the viewer's request does not reach the publisher. Relays serve each other as in relay/router.
func (w *world) path(s *session, at *node) []*node {
	list := []*node{at}
	var from *node
	for len(list) < 9 {
		if at == s.at && at.table != nil {
			return list
		}
		route, ok := at.routes[s.key]
		if at.table == nil || !ok || from != nil && (!route.Onward || from.region != at.region) {
			return nil
		}
		next := w.byID[cmp.Or(route.Via, route.ID)]
		if next == nil || !w.linked(at, next) {
			return nil
		}
		from, at = at, next
		list = append(list, next)
	}
	return nil
}

func (w *world) start(ctx context.Context, r *Result) error {
	for i := range w.Relays {
		w.after(time.Duration(w.r.Int64N(int64(startup))), func() { w.launch(i % w.Regions) })
	}
	return w.pass(ctx, startup+5*time.Second, nil)
}

// announce publishes all sessions and measures when relays know them.
func (w *world) announce(ctx context.Context, r *Result) error {
	type pending struct {
		s    *session
		n    *node
		from time.Time
	}
	var open []pending
	var delays []time.Duration
	const during = 5 * time.Second
	for i := range w.Sessions {
		s := &session{ns: moqt.Namespace{"holocast", fmt.Sprint(i)}}
		s.key = s.ns.String()
		w.sessions = append(w.sessions, s)
		at := map[*node]*group{}
		for range w.Viewers {
			n := w.alive(-1)
			if at[n] == nil {
				at[n] = &group{at: n}
				s.groups = append(s.groups, at[n])
			}
			at[n].n++
		}
		w.after(time.Duration(w.r.Int64N(int64(during))), func() {
			w.publish(s, w.alive(-1))
			for _, n := range w.nodes {
				if n != s.at {
					open = append(open, pending{s, n, w.now})
				}
			}
		})
	}
	err := w.pass(ctx, during+2*time.Second, func() {
		left := open[:0]
		for _, p := range open {
			if _, knows := p.n.routes[p.s.key]; knows {
				delays = append(delays, w.now.Sub(p.from))
			} else {
				left = append(left, p)
			}
		}
		open = left
	})
	if err == nil && len(open) > 0 {
		err = fmt.Errorf("%d of %d announcements not received", len(open), len(open)+len(delays))
	}
	r.AnnounceP50, _, r.AnnounceMax = quantiles(delays)
	return err
}

// idle measures the messages of an idle cluster, what a relay that joins needs, and the paths of sessions.
func (w *world) idle(ctx context.Context, r *Result) error {
	const seconds = 5
	w.received, w.bytes = 0, 0
	if err := w.pass(ctx, seconds*time.Second, nil); err != nil {
		return err
	}
	relays := float64(len(w.nodes))
	r.Messages = qoe.Round(float64(w.received)/seconds/relays, 0)
	r.KbitPerS = qoe.Round(8*float64(w.bytes)/1e3/seconds/relays, 0)
	w.measurePaths(r)
	n, began := w.launch(0), w.now
	for len(n.routes) < len(w.sessions) && w.now.Sub(began) < time.Minute {
		if err := w.pass(ctx, step, nil); err != nil {
			return err
		}
	}
	r.StartMs = ms(w.now.Sub(began))
	return nil
}

// measurePaths counts copies of sessions and hops.
func (w *world) measurePaths(r *Result) {
	total, direct, pairs := 0, 0, 0
	for _, s := range w.sessions {
		links := map[[2]*node]bool{}
		copies, relays := map[int]int{}, map[int]int{}
		for _, g := range s.groups {
			path := w.path(s, g.at)
			r.MaxHops = max(r.MaxHops, len(path)-1)
			if g.at.region != s.at.region {
				relays[g.at.region]++
			}
			for i := 1; i < len(path); i++ {
				link := [2]*node{path[i-1], path[i]}
				if !links[link] && link[0].region != link[1].region {
					copies[link[0].region]++
				}
				links[link] = true
			}
		}
		for region, n := range relays {
			pairs++
			direct += n
			total += copies[region]
			r.MaxCopies = max(r.MaxCopies, copies[region])
		}
	}
	r.Copies = qoe.Round(float64(total)/float64(max(1, pairs)), 3)
	r.CopiesDirect = qoe.Round(float64(direct)/float64(max(1, pairs)), 2)
}

// watch records which viewers lack a picture. counts selects the groups of a session.
func (w *world) watch(counts func(*session, *group) bool, gap func(*group, time.Duration)) {
	for _, s := range w.sessions {
		for _, g := range s.groups {
			if !counts(s, g) {
				continue
			}
			w.total += float64(g.n)
			if w.path(s, g.at) == nil {
				w.lacking += float64(g.n)
				if g.lost.IsZero() {
					g.lost = w.now
				}
				continue
			}
			if !g.lost.IsZero() {
				for range g.n {
					gap(g, w.now.Sub(g.lost))
				}
				g.lost, g.evicted = time.Time{}, false
			}
		}
	}
}

func everyone(*session, *group) bool { return true }

// kill ends a relay. Its clients continue at others.
func (w *world) kill(n *node) {
	n.table = nil
	w.after(restart, func() { w.launch(n.region) })
	for _, s := range w.sessions {
		if s.at == n {
			w.after(failover, func() { w.publish(s, w.alive(n.region)) })
		}
		for _, g := range s.groups {
			if g.at == n {
				g.evicted = true
				w.after(failover, func() { g.at = w.alive(n.region) })
			}
		}
	}
}

func (w *world) churn(ctx context.Context, r *Result) error {
	w.lacking, w.total = 0, 0
	during := time.Duration(w.Seconds * float64(time.Second))
	r.Killed = int(w.Churn * float64(w.Relays) * w.Seconds / 60)
	for range r.Killed {
		w.after(time.Duration(w.r.Int64N(int64(during))), func() { w.kill(w.alive(-1)) })
	}
	err := w.pass(ctx, during+10*time.Second, func() {
		w.watch(everyone, func(g *group, d time.Duration) {
			kind := 0
			if g.evicted {
				kind = 1
			}
			w.gaps[kind] = append(w.gaps[kind], d)
		})
	})
	r.Affected = qoe.Round(w.lacking/w.total, 6)
	r.Elsewhere.P50, r.Elsewhere.P95, r.Elsewhere.Max = quantiles(w.gaps[0])
	r.AtKilled.P50, r.AtKilled.P95, r.AtKilled.Max = quantiles(w.gaps[1])
	r.Elsewhere.Viewers, r.AtKilled.Viewers = len(w.gaps[0]), len(w.gaps[1])
	return err
}

// cutOff cuts a region off and heals it.
func (w *world) cutOff(ctx context.Context, r *Result) error {
	const region = 0
	inside := func(s *session, g *group) bool { return s.at.region == region && g.at.region == region }
	outside := func(s *session, g *group) bool { return s.at.region != region && g.at.region != region }
	w.cut = region
	var lacking, total [2]float64
	for end := w.now.Add(time.Duration(w.Cut * float64(time.Second))); w.now.Before(end); {
		if err := w.pass(ctx, tick*step, nil); err != nil {
			return err
		}
		for i, counts := range []func(*session, *group) bool{inside, outside} {
			w.lacking, w.total = 0, 0
			w.watch(counts, func(*group, time.Duration) {})
			lacking[i] += w.lacking
			total[i] += w.total
		}
	}
	r.CutInside, r.CutOthers = qoe.Round(1-lacking[0]/total[0], 4), qoe.Round(1-lacking[1]/total[1], 4)
	for _, s := range w.sessions { // count from the end of the cut
		for _, g := range s.groups {
			if g.lost = (time.Time{}); w.path(s, g.at) == nil {
				g.lost = w.now
			}
		}
	}
	w.cut = -1
	var heal []time.Duration
	err := w.pass(ctx, 15*time.Second, func() {
		w.watch(everyone, func(_ *group, d time.Duration) { heal = append(heal, d) })
	})
	r.HealP50, _, r.HealMax = quantiles(heal)
	w.lacking, w.total = 0, 0
	w.watch(everyone, func(*group, time.Duration) {})
	if err == nil && w.lacking > 0 {
		err = fmt.Errorf("%.0f viewers have no picture after the cut", w.lacking)
	}
	return err
}
