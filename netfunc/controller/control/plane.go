// Package control runs the policy engine. It provides the clock, sends signalling packets, saves the
// state, logs decisions and feeds the watch streams.
package control

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"holocast/netfunc/api"
	"holocast/netfunc/controller/policy"
	"holocast/netfunc/controller/statefile"
	"holocast/netfunc/signal"
)

// Config holds the settings of a Plane.
type Config struct {
	Policy    policy.Config
	Key       []byte     // signalling key
	From      netip.Addr // IPv4 source address of signalling; the zero Addr = any
	StateFile string     // "" = no state
	Version   string
	Log       *slog.Logger
	// Reaction, if not nil, is called with the time from an event to the last signalling packet
	// that it caused.
	Reaction func(time.Duration)
}

// Plane is the control plane for any number of edge pairs. It is safe for concurrent use.
type Plane struct {
	conf    Config
	signals *signal.Sender
	file    *statefile.File // nil without state
	started time.Time
	save    chan struct{} // the state changed
	earlier chan struct{} // the next deadline moved closer

	mu       sync.Mutex
	engine   *policy.Engine
	watchers map[*Watcher]struct{}
	planned  time.Time // next tick of Run
	counts   Counts
	saveErr  error
	sendErr  map[string]time.Time // time of the last logged failure, by edge

	fullLogged time.Time // time of the last log of a full flow table
}

// Counts holds a Plane's counters since its start.
type Counts struct {
	Signals       uint64 // signalling packets sent
	SignalsFailed uint64
	Observations  uint64            // from uplink monitors
	Decisions     map[string]uint64 // by kind
	Saves         uint64            // writes of the state
	SavesFailed   uint64
	Uplinks       map[string]uint64 // observations by edge
}

// Limits of saving and logging.
const (
	saveSpacing  = 100 * time.Millisecond // between writes of the state
	saveAgain    = 2 * time.Second        // after a failed write
	keepOnDisk   = 512                    // decisions
	quietFailure = 10 * time.Second       // between logs of the same failure
)

// confirmation limits how long a departing edge waits for the senders that feed it to stop.
const confirmation = 1500 * time.Millisecond

// New opens the signalling socket and the state file, and restores the state of an earlier run. A
// damaged state file is logged and renamed. The controller then starts without state and learns the
// path sets in force from the edges' reports.
func New(c Config) (*Plane, error) {
	if err := c.Policy.Validate(); err != nil {
		return nil, err
	}
	p := &Plane{
		conf: c, started: time.Now(), engine: policy.New(c.Policy), watchers: map[*Watcher]struct{}{},
		save: make(chan struct{}, 1), earlier: make(chan struct{}, 1), sendErr: map[string]time.Time{},
	}
	p.counts.Decisions, p.counts.Uplinks = map[string]uint64{}, map[string]uint64{}
	var err error
	if p.signals, err = signal.NewSender(c.Key, c.From); err != nil {
		return nil, fmt.Errorf("signal.from: %w", err)
	}
	if c.StateFile != "" {
		if err := p.restore(); err != nil {
			p.Close()
			return nil, err
		}
	}
	return p, nil
}

// restore loads the state of an earlier run.
func (p *Plane) restore() (err error) {
	if p.file, err = statefile.Open(p.conf.StateFile); err != nil {
		return err
	}
	var s policy.State
	there, err := p.file.Load(&s)
	if there {
		if e := p.engine.Restore(p.started, s); e != nil {
			p.engine = policy.New(p.conf.Policy)
			err = p.file.SetAside(e)
		}
	}
	if errors.Is(err, statefile.ErrDamaged) {
		p.conf.Log.Error("starting without earlier state; edges will report their path sets", "err", err)
		return nil
	}
	return err
}

// SetKey changes the key that signs later signalling packets.
func (p *Plane) SetKey(key []byte) error { return p.signals.SetKey(key) }

// SetPolicy applies new settings with [policy.Engine.Reconfigure]. If they remove an edge, the edge's
// next report returns policy.ErrUnknownEdge.
func (p *Plane) SetPolicy(c policy.Config) {
	p.event(func(now time.Time) {
		for _, edge := range p.engine.Reconfigure(now, c) {
			p.left(edge)
		}
		p.conf.Policy = p.engine.Config()
	})
}

// left forgets a removed edge. The caller holds p.mu.
func (p *Plane) left(edge string) {
	p.signals.Forget(edge)
	for w := range p.watchers {
		if w.edge == edge {
			signalled(w.C)
		}
	}
}

// Close closes the socket and the state file. Call it after Run has returned.
func (p *Plane) Close() {
	_ = p.signals.Close()
	if p.file != nil {
		_ = p.file.Close()
	}
}

// Run processes deadlines until ctx is done, then saves the state one last time and returns the error
// from that save.
func (p *Plane) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	var err error
	wg.Go(func() { err = p.saving(ctx) })
	p.ticking(ctx)
	wg.Wait()
	return err
}

func (p *Plane) ticking(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			p.event(func(now time.Time) { p.engine.Tick(now) })
		case <-p.earlier:
		}
		p.mu.Lock()
		p.planned = p.engine.Next()
		p.mu.Unlock()
		if p.planned.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(time.Until(p.planned))
		}
	}
}

// saving writes the state after changes, at most once per saveSpacing, until ctx is done.
func (p *Plane) saving(ctx context.Context) error {
	if p.file == nil {
		return nil
	}
	for {
		select {
		case <-ctx.Done():
			return p.saveNow()
		case <-p.save:
		}
		wait := saveSpacing
		if p.saveNow() != nil {
			wait = saveAgain
			signalled(p.save)
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

func (p *Plane) saveNow() error {
	p.mu.Lock()
	s := p.engine.State(keepOnDisk)
	p.mu.Unlock()
	err := p.file.Save(s)
	p.mu.Lock()
	was := p.saveErr
	p.saveErr = err
	if err == nil {
		p.counts.Saves++
	} else {
		p.counts.SavesFailed++
	}
	p.mu.Unlock()
	switch {
	case err != nil && was == nil:
		p.conf.Log.Error("cannot save the state; a restart would lose it", "err", err)
	case err == nil && was != nil:
		p.conf.Log.Info("state saved again")
	}
	return err
}

// signalled puts a token into c unless c already holds one.
func signalled(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// event calls do with the current time, then carries out the resulting effects.
func (p *Plane) event(do func(now time.Time)) {
	p.mu.Lock()
	now := time.Now()
	do(now)
	fx := p.engine.Take()
	p.send(now, fx.Signals)
	for w := range p.watchers {
		w.mark(fx.Flows)
	}
	for _, d := range fx.Decisions {
		p.counts.Decisions[d.Kind]++
	}
	full := fx.Full && now.Sub(p.fullLogged) >= quietFailure
	if full {
		p.fullLogged = now
	}
	maxFlows := p.conf.Policy.MaxFlows
	next := p.engine.Next()
	sooner := !next.IsZero() && (p.planned.IsZero() || next.Before(p.planned))
	p.mu.Unlock()
	if sooner {
		signalled(p.earlier)
	}
	if fx.Durable {
		signalled(p.save)
	}
	if full {
		p.conf.Log.Warn("flow table is full, ignoring new viewers; raise maxFlows", "maxFlows", maxFlows)
	}
	for _, d := range fx.Decisions { // without the lock, since the log may be slow
		p.write(d)
	}
}

// send sends signalling packets.
func (p *Plane) send(now time.Time, signals []policy.Signal) {
	for _, s := range signals {
		nonce, err := p.signals.Send(s.Edge, s.To, s.Destination, s.Paths)
		if err != nil {
			p.counts.SignalsFailed++
			if now.Sub(p.sendErr[s.Edge]) >= quietFailure {
				p.sendErr[s.Edge] = now
				p.conf.Log.Warn("signalling packet not sent", "edge", s.Edge, "err", err)
			}
			continue
		}
		p.counts.Signals++
		p.engine.Sent(now, s, nonce)
	}
	if len(signals) > 0 && p.conf.Reaction != nil {
		p.conf.Reaction(time.Since(now))
	}
}

// write logs a decision.
func (p *Plane) write(d api.Decision) {
	args := []any{"kind", d.Kind, "reason", d.Reason}
	if d.Destination.IsValid() {
		args = append(args, "destination", d.Destination, "from", d.From, "to", d.To, "generation", d.Generation,
			"state", d.State)
	}
	if n := len(d.Others); n > 0 {
		args = append(args, "flows", 1+n)
	}
	if d.Edge != "" {
		args = append(args, "edge", d.Edge)
	}
	p.conf.Log.Info("decision", append(args, "sequence", d.Sequence)...)
}

// Hello registers an edge.
func (p *Plane) Hello(h api.Edge) (w api.Welcome, err error) {
	p.event(func(now time.Time) {
		if err = p.engine.Hello(now, h); err == nil {
			w = api.Welcome{
				ReportInterval: int(p.conf.Policy.ReportInterval / time.Millisecond),
				Flows:          p.flowsOf(h.Name),
			}
		}
	})
	return w, err
}

// flowsOf returns the flows that involve an edge.
func (p *Plane) flowsOf(edge string) []api.Flow {
	out := []api.Flow{}
	for _, f := range p.engine.Flows() {
		if f.Sender == edge || f.Receiver == edge {
			out = append(out, f)
		}
	}
	return out
}

// Leave removes an edge. It waits until the senders that feed it report that they have stopped, and
// returns policy.ErrUnconfirmed if one does not.
func (p *Plane) Leave(ctx context.Context, edge string) (err error) {
	var changed []netip.Addr
	p.event(func(now time.Time) { changed, err = p.engine.Retire(now, edge) })
	if err != nil {
		return err
	}
	unconfirmed := p.applied(ctx, changed)
	p.event(func(now time.Time) {
		err = p.engine.Leave(now, edge)
		p.left(edge)
	})
	if err == nil {
		err = unconfirmed
	}
	return err
}

// applied waits until the senders of flows report their path sets in force. It returns
// policy.ErrUnconfirmed if one has not done so within confirmation.
func (p *Plane) applied(ctx context.Context, flows []netip.Addr) error {
	ctx, stop := context.WithTimeout(ctx, confirmation)
	defer stop()
	tick := time.NewTicker(confirmation / 100)
	defer tick.Stop()
	for {
		p.mu.Lock()
		done := p.engine.Applied(flows)
		p.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-ctx.Done():
			return policy.ErrUnconfirmed
		case <-tick.C:
		}
	}
}

// Report processes an edge's heartbeat.
func (p *Plane) Report(edge string, r api.Report) (err error) {
	p.event(func(now time.Time) {
		highest := r.Nonce
		for _, q := range r.Policies {
			highest = max(highest, q.Nonce)
		}
		if p.engine.Known(edge) {
			// An earlier run with a faster clock may have used higher nonces.
			if e := p.signals.Exceed(edge, highest); e != nil {
				p.conf.Log.Error("cannot exceed the nonces accepted by the edge", "edge", edge, "err", e)
			}
		}
		err = p.engine.Report(now, edge, r)
	})
	return err
}

// Uplink processes observations of an edge's uplink monitor.
func (p *Plane) Uplink(edge string, seen []api.Observation) (err error) {
	p.event(func(now time.Time) {
		if err = p.engine.Uplink(now, edge, seen); err == nil {
			p.counts.Observations += uint64(len(seen))
			p.counts.Uplinks[edge] += uint64(len(seen))
		}
	})
	return err
}

// Eliminated is the flow after an outcome of Algorithm 1, or the reason why the outcome was refused.
type Eliminated struct {
	Flow api.Flow
	Err  error
}

// Eliminate processes outcomes of Algorithm 1 and returns a result for each.
func (p *Plane) Eliminate(edge string, outcomes []api.Elimination) (out []Eliminated, err error) {
	p.event(func(now time.Time) {
		for _, o := range outcomes {
			var e Eliminated
			if e.Flow, e.Err = p.engine.Eliminate(now, edge, o); errors.Is(e.Err, policy.ErrUnknownEdge) {
				err = e.Err
				return
			}
			out = append(out, e)
		}
	})
	return out, err
}

// Set applies an operator's setting to a destination.
func (p *Plane) Set(dst netip.Addr, s api.Setting) (f api.Flow, err error) {
	p.event(func(now time.Time) { f, err = p.engine.Set(now, dst, s) })
	return f, err
}

// Unset removes an operator's setting from a destination.
func (p *Plane) Unset(dst netip.Addr) (err error) {
	p.event(func(now time.Time) { err = p.engine.Unset(now, dst) })
	return err
}

// Edges returns all edges, sorted by name.
func (p *Plane) Edges() []api.EdgeStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.engine.Edges()
}

// Flows returns all flows, sorted by destination.
func (p *Plane) Flows() []api.Flow {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.engine.Flows()
}

// Decisions returns at most limit decisions after number since, oldest first.
func (p *Plane) Decisions(since uint64, limit int) []api.Decision {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.engine.Decisions(since, limit)
}

// Status returns the controller's own status.
func (p *Plane) Status() api.Status {
	millis := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.conf.Policy.Trigger
	s := api.Status{
		Version: p.conf.Version, Started: p.started, Now: time.Now(), Flows: len(p.engine.Flows()),
		Signals: p.counts.Signals, Sequence: p.engine.Sequence(), Mode: p.conf.Policy.Mode,
		Trigger: api.Trigger{
			Rule: string(t.Rule), Sensitivity: t.Sensitivity,
			Interval: millis(t.Interval), Count: t.Count, Silence: millis(t.Silence),
		},
	}
	for _, e := range p.engine.Edges() {
		if !e.Lost {
			s.Edges++
		}
	}
	if p.saveErr != nil {
		s.StateErr = p.saveErr.Error()
	}
	return s
}

// Counts returns the counters since the start.
func (p *Plane) Counts() Counts {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.counts
	c.Decisions, c.Uplinks = clone(c.Decisions), clone(c.Uplinks)
	return c
}

func clone(m map[string]uint64) map[string]uint64 {
	out := make(map[string]uint64, len(m))
	for k, v := range m {
		out[k] = v
	}
	return out
}

// Ignored returns the number of observations that matched no flow.
func (p *Plane) Ignored() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.engine.Ignored()
}

var errTooMany = fmt.Errorf("%w watch streams", policy.ErrFull)
