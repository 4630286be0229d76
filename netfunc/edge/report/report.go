// Package report connects an edge to its controller. It sends the hello, heartbeats, uplink
// observations and eliminations, and receives the controller's flows. If the controller is
// unreachable, it retries with back-off while the edge keeps working.
package report

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"holocast/netfunc/api"
)

const (
	// maxUplink limits the undelivered observations. Beyond it, the oldest are dropped.
	maxUplink = 4096
	// batch limits the observations per call.
	batch = 512
	// heartbeat is the report interval if the controller gives none.
	heartbeat = time.Second
)

// Reporter sends an edge's reports to the controller and receives its path sets.
type Reporter struct {
	Client *api.Client
	Name   string                         // of the edge
	Hello  func(context.Context) api.Edge // returns the edge's description, before each hello
	Report func() api.Report              // returns a report, before each heartbeat
	Update func(api.Update)               // applies an update; snapshots come first
	Log    *slog.Logger

	once  sync.Once
	soon  chan struct{} // a report is due
	seen  chan struct{} // uplink is not empty
	found chan struct{} // eliminations is not empty

	mu           sync.Mutex
	uplink       []api.Observation
	recent       recent
	eliminations map[netip.Addr]api.Elimination // undelivered, merged per destination
	status       Status
}

// Status is the state of the connection to the controller.
type Status struct {
	Connected bool      `json:"connected"`
	Since     time.Time `json:"since"`           // of Connected
	Error     string    `json:"error,omitempty"` // last failure, while not connected
	Reports   uint64    `json:"reports"`         // delivered
	Failures  uint64    `json:"failures"`        // calls that failed
	// Uplink counts observations delivered, UplinkLost observations dropped.
	Uplink       uint64 `json:"uplink"`
	UplinkLost   uint64 `json:"uplink_lost"`
	Eliminations uint64 `json:"eliminations"` // delivered
	Stale        uint64 `json:"stale"`        // eliminations refused for an outdated path set
}

func (r *Reporter) init() {
	r.once.Do(func() {
		r.soon, r.seen, r.found = make(chan struct{}, 1), make(chan struct{}, 1), make(chan struct{}, 1)
		r.eliminations = make(map[netip.Addr]api.Elimination)
		r.status.Since = time.Now()
	})
}

// Status returns the state of the connection.
func (r *Reporter) Status() Status {
	r.init()
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.status
}

// Soon requests an immediate report.
func (r *Reporter) Soon() {
	r.init()
	wake(r.soon)
}

// Uplink reports a viewer's packet to the controller without waiting for the next heartbeat.
func (r *Reporter) Uplink(o api.Observation) {
	r.init()
	r.mu.Lock()
	r.recent.add(o, time.Now())
	if !r.status.Connected {
		r.status.UplinkLost++ // only the newest will still be useful when delivered
		r.mu.Unlock()
		return
	}
	if len(r.uplink) == maxUplink {
		r.uplink = append(r.uplink[:0], r.uplink[1:]...)
		r.status.UplinkLost++
	}
	r.uplink = append(r.uplink, o)
	r.mu.Unlock()
	wake(r.seen)
}

// Eliminate reports paths to remove, and retries until delivery. The elimination is merged with an
// undelivered one of the same destination and generation, and replaces an older one.
func (r *Reporter) Eliminate(e api.Elimination) {
	r.init()
	r.mu.Lock()
	if before, ok := r.eliminations[e.Destination]; ok && before.Generation == e.Generation {
		e.Removed |= before.Removed
	}
	r.eliminations[e.Destination] = e
	r.mu.Unlock()
	wake(r.found)
}

// Run communicates with the controller until ctx is done.
func (r *Reporter) Run(ctx context.Context) {
	r.init()
	var b api.Backoff
	for {
		w, err := r.Client.Hello(ctx, r.Hello(ctx))
		if err == nil {
			b.Reset()
			r.connected()
			r.Log.Info("registered with the controller")
			r.Update(api.Update{Snapshot: true, Flows: w.Flows})
			err = r.session(ctx, time.Duration(w.ReportInterval)*time.Millisecond)
		}
		if ctx.Err() != nil {
			return
		}
		r.lost(err)
		if b.Wait(ctx) != nil {
			return
		}
	}
}

// Leave deregisters the edge, which ends duplication to it.
func (r *Reporter) Leave(ctx context.Context) error { return r.Client.Leave(ctx, r.Name) }

// session communicates until a call fails or ctx is done. It waits for all its goroutines.
func (r *Reporter) session(ctx context.Context, every time.Duration) error {
	if every <= 0 {
		every = heartbeat
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var wg sync.WaitGroup
	for _, part := range []func(context.Context) error{
		func(ctx context.Context) error { return r.reports(ctx, every) },
		r.observations,
		r.decisions,
		r.flows,
	} {
		wg.Go(func() { stop(part(ctx)) })
	}
	wg.Wait()
	return context.Cause(ctx)
}

// reports sends heartbeats.
func (r *Reporter) reports(ctx context.Context, every time.Duration) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		if err := r.Client.Report(ctx, r.Name, r.Report()); err != nil {
			return err
		}
		r.count(func(s *Status) { s.Reports++ })
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		case <-r.soon:
			tick.Reset(every)
		}
	}
}

// observations sends uplink observations, one call at a time. Observations made during a call are
// sent with the next.
func (r *Reporter) observations(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-r.seen:
		}
		for {
			r.mu.Lock()
			n := min(len(r.uplink), batch)
			seen := append([]api.Observation(nil), r.uplink[:n]...)
			r.uplink = append(r.uplink[:0], r.uplink[n:]...)
			r.mu.Unlock()
			if n == 0 {
				break
			}
			if err := r.Client.Uplink(ctx, r.Name, seen); err != nil {
				r.count(func(s *Status) { s.UplinkLost += uint64(n) })
				return err
			}
			r.count(func(s *Status) { s.Uplink += uint64(n) })
		}
	}
}

// decisions delivers eliminations. One that fails is kept for the next session.
func (r *Reporter) decisions(ctx context.Context) error {
	wake(r.found) // there may be eliminations from an earlier session
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-r.found:
		}
		r.mu.Lock()
		waiting := slices.Collect(maps.Values(r.eliminations))
		r.mu.Unlock()
		for some := range slices.Chunk(waiting, api.MaxEliminations) {
			outcomes, refused := r.Client.Eliminate(ctx, r.Name, some...)
			for i, e := range some {
				err := refused // all together
				if err == nil {
					err = outcomes[i].Err()
				}
				if err := r.eliminated(e, err); err != nil {
					return err
				}
			}
		}
	}
}

// eliminated counts the result of an elimination. It returns an error if the elimination must be
// sent again.
func (r *Reporter) eliminated(e api.Elimination, err error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var problem *api.Problem
	switch {
	case err == nil:
		r.status.Eliminations++
	case errors.Is(err, api.ErrStale):
		r.status.Stale++
	case errors.Is(err, api.ErrUnknownEdge) || !errors.As(err, &problem) || problem.Temporary() ||
		problem.Status == http.StatusUnauthorized:
		return err
	default:
		// Refused permanently, because the flow no longer exists or an operator changed its mode.
		r.Log.Warn("elimination refused", "destination", e.Destination, "removed", e.Removed, "err", err)
	}
	if now := r.eliminations[e.Destination]; now.Generation == e.Generation && now.Removed == e.Removed {
		delete(r.eliminations, e.Destination)
	}
	return nil
}

// flows applies the controller's updates.
func (r *Reporter) flows(ctx context.Context) error {
	return r.Client.Watch(ctx, r.Name, func(u api.Update) error {
		if u.Snapshot || len(u.Flows)+len(u.Removed) > 0 {
			r.Update(u)
		}
		return nil
	}, func(err error) { r.Log.Debug("watch interrupted", "err", err) })
}

// connected begins a session. A restarted controller does not know viewers that have recently fallen
// silent, so the newest observations of each viewer are sent again.
func (r *Reporter) connected() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status.Connected, r.status.Since, r.status.Error = true, time.Now(), ""
	r.uplink = append(r.recent.since(time.Now().Add(-recall)), r.uplink...)
	wake(r.seen)
}

// lost records a failure. It logs the first one after each connection, and later ones if the error
// differs.
func (r *Reporter) lost(err error) {
	r.mu.Lock()
	was := r.status
	r.status.Failures++
	if was.Connected {
		r.status.Connected, r.status.Since = false, time.Now()
	}
	r.status.Error = err.Error()
	r.status.UplinkLost += uint64(len(r.uplink))
	r.uplink = r.uplink[:0]
	r.mu.Unlock()
	if was.Connected || was.Error != err.Error() {
		r.Log.Warn("controller unreachable, continuing without it", "err", err)
	}
}

func (r *Reporter) count(f func(*Status)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f(&r.status)
}

// wake wakes the reader of c, now or when it next waits.
func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
