//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"holocast/netfunc/api"
	"holocast/netfunc/bpf"
	"holocast/netfunc/edge/report"
	"holocast/netfunc/elimination"
	"holocast/netfunc/pathset"
)

const (
	// advance is the interval at which the algorithm's clock advances if there are no packets.
	advance = 20 * time.Millisecond
	// behind is the maximum age of unread arrivals.
	behind = 50 * time.Millisecond
	// forget is the time without packets after which an unwanted flow is removed from the kernel.
	// Replicas that arrive later would all pass.
	forget = time.Minute
)

// receiving is the receiver's half of the edge.
type receiving struct {
	cfg      *Config
	log      *slog.Logger
	kernel   *kernel
	reporter *report.Reporter // nil without a controller

	mu    sync.Mutex
	flows map[netip.Addr]*flow
}

// flow is the traffic to one destination behind the edge.
type flow struct {
	destination netip.Addr
	dscp        uint8
	paths       pathset.Set // in use at the sender, or about to be
	generation  uint64
	state       api.State // "" without a controller
	wanted      bool      // listed in the configuration or wanted by the controller

	set     bool        // installed in the kernel
	inside  pathset.Set // as installed in the kernel
	shrink  time.Time   // time to drop paths from the kernel; zero = none to drop
	problem string      // reason for the kernel's rejection

	algorithm *elimination.Flow
	quiet     time.Time // time since which no packet has arrived or left
	latent    pathset.Set
	alarms    uint64 // latent errors found
	decisions uint64
	last      *api.Elimination
	lastAt    time.Time
}

// settle makes the kernel's flows match the configuration. Flows of an earlier run are kept as long
// as a controller may want them.
func (r *receiving) settle() error {
	if !r.cfg.Role.Receives() {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.flows == nil {
		r.flows = make(map[netip.Addr]*flow)
		if err := r.adopt(); err != nil {
			return err
		}
	}
	for _, c := range r.cfg.Flows {
		if !r.cfg.inbound(c.Destination) {
			continue
		}
		f, err := r.flow(c.Destination)
		if err != nil {
			return err
		}
		if f.state == "" {
			f.wanted, f.paths, f.generation = true, pathset.Of(c.Paths...), max(f.generation, 1)
			f.algorithm.SetPaths(f.generation, f.paths, bpf.Now())
		}
	}
	for _, f := range r.flows {
		f.set = false // the kernel program may be new
		if err := r.install(f, time.Now()); err != nil {
			return err
		}
	}
	return nil
}

// adopt takes over flows that an earlier run left in the kernel.
func (r *receiving) adopt() error {
	return r.kernel.withReceiver(func(k *bpf.Receiver) error {
		flows, err := k.Flows()
		if err != nil {
			return err
		}
		for destination, left := range flows {
			f, err := r.flow(destination)
			if err != nil {
				return err
			}
			f.paths, f.inside, f.set = pathset.Set(left.Paths), pathset.Set(left.Paths), true
			f.wanted = r.reporter != nil // until the controller says otherwise
		}
		return nil
	})
}

// flow returns the flow to a destination, creating it if needed.
func (r *receiving) flow(destination netip.Addr) (*flow, error) {
	if f := r.flows[destination]; f != nil {
		return f, nil
	}
	algorithm, err := elimination.New(r.cfg.Eliminate.algorithm())
	if err != nil {
		return nil, err
	}
	f := &flow{destination: destination, dscp: r.cfg.Receiver.DSCP, algorithm: algorithm, quiet: time.Now()}
	for _, c := range r.cfg.Flows {
		if c.Destination == destination && c.DSCP != nil {
			f.dscp = *c.DSCP
		}
	}
	r.flows[destination] = f
	return f, nil
}

// seen prepares the kernel for replicas to a viewer that sent a packet, since replicas may arrive
// before the controller's update that announces them.
func (r *receiving) seen(viewer netip.Addr) {
	if !r.cfg.Role.Receives() || !contain(r.cfg.Receiver.Behind, viewer) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	f := r.flows[viewer]
	if f == nil && len(r.flows) < bpf.MaxFlows/2 { // the rest is reserved for flows that the controller wants
		var err error
		if f, err = r.flow(viewer); err == nil {
			err = r.install(f, time.Now())
		}
		if err != nil {
			r.log.Warn("cannot prepare flow of viewer", "destination", viewer, "err", err)
			return
		}
	}
	if f != nil {
		f.quiet = time.Now()
	}
}

// install writes a flow to the kernel. It adds paths immediately, but removes paths only after the
// packets in flight on them have arrived, which would otherwise count as rogue. With a controller, the
// kernel accepts all paths while the flow has none.
func (r *receiving) install(f *flow, now time.Time) error {
	bits := f.paths
	idle := bits == 0 && r.reporter != nil
	if idle {
		bits = r.all()
	}
	switch {
	case !f.set, f.inside == bits, !idle && f.inside&^bits == 0:
		f.shrink = time.Time{}
	case f.shrink.IsZero():
		f.shrink = now.Add(max(r.cfg.Drain, time.Millisecond))
		fallthrough
	case now.Before(f.shrink):
		if idle {
			bits = f.inside
		}
		bits |= f.inside
	default:
		f.shrink = time.Time{}
	}
	if f.set && bits == f.inside {
		return nil
	}
	err := r.kernel.withReceiver(func(k *bpf.Receiver) error {
		return k.SetFlow(f.destination, bpf.Flow{DSCP: f.dscp, Paths: uint8(bits)})
	})
	if err != nil {
		return fmt.Errorf("flow to %s: %w", f.destination, err)
	}
	fresh := !f.set
	f.set, f.inside = true, bits
	if fresh && r.reporter != nil {
		r.reporter.Soon() // the sender waits for it
	}
	return nil
}

// all returns the paths of the edge.
func (r *receiving) all() (s pathset.Set) {
	for _, p := range r.cfg.Paths {
		s |= pathset.Of(p.Index)
	}
	return s
}

// update applies the controller's flows.
func (r *receiving) update(u api.Update) {
	if !r.cfg.Role.Receives() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if u.Snapshot {
		for _, f := range r.flows {
			f.wanted = r.static(f.destination)
		}
	}
	for _, in := range u.Flows {
		in.Destination = in.Destination.Unmap()
		if !r.mine(in) {
			continue
		}
		if err := r.follow(in, u.Snapshot); err != nil {
			r.log.Error("cannot apply flow", "destination", in.Destination, "err", err)
		}
	}
	for _, destination := range u.Removed {
		if f := r.flows[destination.Unmap()]; f != nil {
			f.wanted = r.static(f.destination)
		}
	}
}

// mine reports whether this edge eliminates the replicas of a flow.
func (r *receiving) mine(f api.Flow) bool {
	if f.Receiver != "" {
		return f.Receiver == r.cfg.Name
	}
	return contain(r.cfg.Receiver.Behind, f.Destination) || r.static(f.Destination)
}

// static reports whether the configuration lists a destination.
func (r *receiving) static(destination netip.Addr) bool {
	return r.cfg.inbound(destination) && slices.ContainsFunc(r.cfg.Flows,
		func(f Flow) bool { return f.Destination == destination })
}

// follow applies the controller's state for a flow.
func (r *receiving) follow(in api.Flow, snapshot bool) error {
	f, err := r.flow(in.Destination)
	if err != nil {
		return err
	}
	if in.Generation < f.generation && snapshot {
		// A lower generation means that the controller lost its state.
		if f.algorithm, err = elimination.New(r.cfg.Eliminate.algorithm()); err != nil {
			return err
		}
		f.generation = 0
	}
	if in.Generation < f.generation {
		return nil
	}
	if f.paths != in.Paths || f.state != in.State {
		r.log.Info("flow updated by the controller", "destination", in.Destination, "state", in.State, "paths", in.Paths,
			"generation", in.Generation)
	}
	f.wanted, f.paths, f.generation, f.state = true, in.Paths, in.Generation, in.State
	f.algorithm.SetPaths(in.Generation, in.Paths, bpf.Now())
	return r.install(f, time.Now())
}

// arrivals feeds the algorithm until ctx is done.
func (r *receiving) arrivals(ctx context.Context) {
	buf := make([]bpf.Arrival, 4096)
	follow(ctx, r.kernel.currentReceiver, func(k *bpf.Receiver) error {
		wait, stop := context.WithTimeout(ctx, advance)
		n, err := k.ReadArrivals(wait, buf)
		stop()
		r.observe(buf[:n])
		if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) {
			return nil
		}
		return err
	})
}

// observe passes arrivals and the time to the algorithm.
func (r *receiving) observe(arrivals []bpf.Arrival) {
	r.mu.Lock()
	defer r.mu.Unlock()
	wall := time.Now()
	var f *flow
	for i := range arrivals {
		a := &arrivals[i]
		if f == nil || f.destination != a.Flow {
			if f = r.flows[a.Flow]; f == nil {
				continue
			}
			f.quiet = wall
		}
		if d, ok := f.algorithm.Observe(a.Key, a.Path, a.Time); ok {
			r.decided(f, d)
		}
	}
	if len(arrivals) == cap(arrivals) {
		return // older arrivals are still unread
	}
	now := bpf.Now() - behind
	for _, f := range r.flows {
		if d, ok := f.algorithm.Advance(now); ok {
			r.decided(f, d)
		}
	}
}

// decided reports a decision of the algorithm to the controller.
func (r *receiving) decided(f *flow, d elimination.Decision) {
	e := api.Elimination{
		Destination: f.destination, Generation: d.Generation,
		Removed: d.Removed, Remaining: d.Remaining, Lossy: d.Lossy, Single: d.Single, Reason: reason(d),
	}
	for i := range pathset.Max {
		if (e.Removed | e.Remaining).Has(i + 1) {
			e.Rewards = append(e.Rewards, api.Reward{Path: i + 1, Reward: int(d.Rewards[i]), Window: int(d.Window)})
		}
	}
	f.decisions++
	f.last, f.lastAt = &e, time.Now()
	if f.state == "" || r.reporter == nil {
		// Without a controller the configured set remains.
		r.log.Debug("ignored elimination, no controller", "destination", f.destination, "removed", e.Removed, "reason",
			e.Reason)
		f.generation++
		f.algorithm.SetPaths(f.generation, f.paths, bpf.Now())
		return
	}
	r.log.Info("paths eliminated", "destination", f.destination, "removed", e.Removed, "remaining", e.Remaining, "reason",
		e.Reason)
	r.reporter.Eliminate(e)
}

// reason explains a decision in one sentence.
func reason(d elimination.Decision) string {
	if d.Complete != 0 {
		return fmt.Sprintf("path %d alone delivered in time", d.Complete)
	}
	var parts []string
	if d.Silent != 0 {
		parts = append(parts, fmt.Sprintf("no packets on %v", d.Silent))
	}
	if slow := d.Removed &^ d.Silent; slow != 0 {
		parts = append(parts, fmt.Sprintf("%v earned no reward", slow))
	}
	return fmt.Sprintf("%s in a window of %d packets", strings.Join(parts, " and "), d.Window)
}

// tend removes paths from the kernel when they are due, forgets flows and raises alarms.
func (r *receiving) tend(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for destination, f := range r.flows {
		if !f.wanted && now.Sub(f.quiet) > forget {
			err := r.kernel.withReceiver(func(k *bpf.Receiver) error { return k.RemoveFlow(destination) })
			if err != nil {
				r.log.Warn("cannot remove flow", "destination", destination, "err", err)
				continue
			}
			delete(r.flows, destination)
			continue
		}
		switch err := r.install(f, now); {
		case err == nil:
			f.problem = ""
		case err.Error() != f.problem:
			f.problem = err.Error()
			r.log.Error("replicas are not eliminated", "err", err)
		}
		s := f.algorithm.Stats()
		for i := 1; i <= bpf.MaxPaths; i++ {
			switch was, is := f.latent.Has(i), s.Latent.Has(i); {
			case is && !was:
				f.alarms++
				r.log.Warn("latent error: path loses packets that others deliver", "destination", destination, "path",
					i, "lost", s.PerPath[i-1].Lost)
			case was && !is:
				r.log.Info("path delivers again", "destination", destination, "path", i)
			}
		}
		f.latent = s.Latent
	}
}

// alarms returns the number of latent errors found.
func (r *receiving) alarms() (sum uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range r.flows {
		sum += f.alarms
	}
	return sum
}

// add adds the algorithm's state to a status.
func (r *receiving) add(s *Status) {
	if s.Receiver == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range s.Receiver.Flows {
		to := &s.Receiver.Flows[i]
		f := r.flows[to.Destination]
		if f == nil {
			continue
		}
		to.Paths = f.paths
		stats := f.algorithm.Stats()
		a := &Algorithm{
			State: f.state, Generation: stats.Generation, Paths: stats.Paths, Packets: stats.Packets,
			Window:  stats.Window,
			Rewards: []api.Reward{}, Latent: f.latent, Alarms: f.alarms, Decisions: f.decisions, Last: f.last,
			LastAt: f.lastAt,
		}
		for _, path := range a.Paths.Indices() {
			a.Rewards = append(a.Rewards, api.Reward{
				Path: path, Reward: int(stats.PerPath[path-1].Reward),
				Window: int(stats.Window),
			})
		}
		to.Elimination = a
	}
}
