package policy

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"holocast/netfunc/api"
	"holocast/netfunc/pathset"
)

// Engine decides which paths each flow uses. It is not safe for concurrent use. The times passed to
// it must not decrease.
type Engine struct {
	conf  Config
	edges map[string]*edge
	flows map[netip.Addr]*flow

	decisions []api.Decision // the newest, covering KeepDecisions destinations
	kept      int            // destinations covered by decisions
	sequence  uint64         // of the last decision
	ignored   uint64         // observations that matched no flow

	effects Effects
	next    time.Time // at or before the earliest deadline; zero = none
}

// Effects are the pending results of events.
type Effects struct {
	Signals   []Signal
	Flows     []netip.Addr // changed, created or forgotten; may repeat
	Decisions []api.Decision
	Durable   bool // the persistent state changed
	Full      bool // a flow was refused at maxFlows
}

// Signal is a signalling packet to send. Call Engine.Sent once it is sent.
type Signal struct {
	Edge        string
	To          netip.AddrPort
	Destination netip.Addr
	Paths       pathset.Set // empty = turn off
}

// Errors returned for events. The errors that wrap them read as one sentence.
var (
	ErrUnknownEdge = errors.New("no edge of this name is registered; send a hello first")
	ErrUnknownFlow = errors.New("no flow to this destination")
	ErrStale       = errors.New("the generation is no longer in force")
	ErrPinned      = errors.New("the mode of the flow does not eliminate paths")
	ErrNotReceiver = errors.New("the edge is not the receiver of the flow")
	ErrNoPathLeft  = errors.New("the elimination would leave no path")
	ErrInvalid     = errors.New("invalid")
	ErrFull        = errors.New("limit reached for")
	ErrForbidden   = errors.New("not granted")
	ErrUnconfirmed = errors.New("a sender has not confirmed that it stopped duplicating")
)

// New returns an engine without edges and flows. The configuration must be valid.
func New(conf Config) *Engine {
	return &Engine{conf: conf, edges: map[string]*edge{}, flows: map[netip.Addr]*flow{}}
}

// Reconfigure applies another valid configuration. Flows without an operator's setting adopt its mode.
// Edges whose claims it no longer grants are removed, and their names returned. The report interval,
// which edges learn in their hello, and the limits do not change.
func (e *Engine) Reconfigure(now time.Time, conf Config) (gone []string) {
	conf.ReportInterval = e.conf.ReportInterval
	conf.MaxFlows, conf.MaxEdges, conf.KeepDecisions = e.conf.MaxFlows, e.conf.MaxEdges, e.conf.KeepDecisions
	e.conf = conf
	for _, name := range e.names() {
		if err := e.granted(e.edges[name].Edge); err != nil {
			gone = append(gone, name)
			e.remove(now, name, fmt.Sprintf("edge %s was removed: %s", name, err))
		}
	}
	e.arrangeAll(now)
	e.plan()
	return gone
}

// Config returns the configuration in force.
func (e *Engine) Config() Config { return e.conf }

// arrangeAll applies the configured mode to flows without an operator's setting.
func (e *Engine) arrangeAll(now time.Time) {
	for _, f := range e.each() {
		if !f.set && f.Mode != e.conf.Mode {
			e.arrange(now, f, api.Setting{Mode: e.conf.Mode}, "the configured mode is "+string(e.conf.Mode))
		}
	}
}

// Take returns and clears the pending effects.
func (e *Engine) Take() Effects {
	out := e.effects
	e.effects = Effects{}
	return out
}

// Next returns the time by which Tick must be called, or the zero time if no call is needed.
func (e *Engine) Next() time.Time { return e.next }

// at schedules a Tick at t, unless t is zero.
func (e *Engine) at(t time.Time) {
	if !t.IsZero() && (e.next.IsZero() || t.Before(e.next)) {
		e.next = t
	}
}

// Hello registers an edge.
func (e *Engine) Hello(now time.Time, h api.Edge) error {
	if err := CheckEdge(h); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if err := e.granted(h); err != nil {
		return err
	}
	if err := understands(h); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	old := e.edges[h.Name]
	if old == nil && len(e.edges) >= e.conf.MaxEdges {
		return fmt.Errorf("%w edges: maxEdges is %d", ErrFull, e.conf.MaxEdges)
	}
	c := &edge{EdgeStatus: api.EdgeStatus{Edge: h, Since: now, Reported: now}, heard: now, hello: now}
	e.edges[h.Name] = c
	reason := fmt.Sprintf("edge %s registered as %s with paths %s up", h.Name, h.Role, c.up())
	if old != nil {
		c.streams = old.streams
		reason = fmt.Sprintf("edge %s registered again as %s with paths %s up", h.Name, h.Role, c.up())
	}
	e.decide(now, api.Decision{Kind: "edge", Edge: h.Name, To: c.up(), Reason: reason})
	for _, f := range e.each() {
		if f.Sender == h.Name {
			e.signalUnknown(now, f) // its path sets are unknown until it reports
		}
	}
	e.settle(now, reason)
	e.at(now.Add(e.conf.ReportInterval))
	return nil
}

// granted returns an error if an edge's claims exceed its grant.
func (e *Engine) granted(h api.Edge) error {
	if e.conf.Grants == nil {
		return nil
	}
	g, ok := e.conf.Grants[h.Name]
	if !ok {
		return fmt.Errorf("%w: no grant for edge %s", ErrForbidden, h.Name)
	}
	if err := g.allows(h); err != nil {
		return fmt.Errorf("%w: %w", ErrForbidden, err)
	}
	return nil
}

// Watching sets the number of an edge's watch streams.
func (e *Engine) Watching(name string, streams int) {
	if c := e.edges[name]; c != nil {
		c.streams, c.watched = streams, c.watched || streams > 0
	}
}

// Retire stops replicas to a receiver that is about to leave, and returns the affected
// destinations.
func (e *Engine) Retire(now time.Time, name string) (changed []netip.Addr, err error) {
	c := e.edges[name]
	if c == nil {
		return nil, ErrUnknownEdge
	}
	for _, f := range e.flows {
		if f.Receiver == name && (f.Paths.Len() > 1 || !f.Applied) {
			changed = append(changed, f.Destination)
		}
	}
	if !c.leaving {
		c.leaving = true
		e.settle(now, fmt.Sprintf("edge %s is leaving", name))
	}
	return changed, nil
}

// Applied reports whether the desired path sets of flows are in force at their senders.
func (e *Engine) Applied(flows []netip.Addr) bool {
	return !slices.ContainsFunc(flows, func(dst netip.Addr) bool { f := e.flows[dst]; return f != nil && !f.Applied })
}

// Leave removes an edge.
func (e *Engine) Leave(now time.Time, name string) error {
	if e.edges[name] == nil {
		return ErrUnknownEdge
	}
	e.remove(now, name, fmt.Sprintf("edge %s left", name))
	return nil
}

func (e *Engine) remove(now time.Time, name, reason string) {
	delete(e.edges, name)
	e.decide(now, api.Decision{Kind: "edge", Edge: name, Reason: reason})
	e.unwatch(name)
	e.settle(now, reason)
}

// Report processes an edge's heartbeat.
func (e *Engine) Report(now time.Time, name string, r api.Report) error {
	c := e.edges[name]
	if c == nil {
		return ErrUnknownEdge
	}
	if err := checkReport(r); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	was, lost := c.up(), c.Lost
	c.Paths, c.Policies, c.Counters = r.Paths, r.Policies, r.Counters
	c.Reported, c.heard, c.Lost, c.nonce = now, now, false, r.Nonce
	c.policies = make(map[netip.Addr]api.Policy, len(r.Policies))
	for _, p := range r.Policies {
		p.Destination = p.Destination.Unmap()
		c.policies[p.Destination] = p
	}
	c.routes = make(map[netip.Addr]api.Route, len(r.Routes))
	for _, q := range r.Routes {
		c.routes[q.Destination.Unmap()] = q
	}
	reason := ""
	switch up := c.up(); {
	case lost:
		c.Since = now
		reason = fmt.Sprintf("edge %s reports again", name)
		e.decide(now, api.Decision{Kind: "edge", Edge: name, To: up, Reason: reason})
	case up != was:
		reason = pathNews(name, was, up)
		e.decide(now, api.Decision{Kind: "path", Edge: name, From: was, To: up, Reason: reason})
	}
	c.ready = make(map[netip.Addr]bool, len(r.Ready))
	for _, dst := range r.Ready {
		c.ready[dst.Unmap()] = true
	}
	if c.Role.Sends() {
		e.compare(now, c)
	}
	if c.Role.Receives() {
		e.confirmed(now, c)
	}
	if lost {
		e.settle(now, reason)
	} else {
		for _, f := range e.each() {
			e.follow(now, f, reason)
			e.listen(now, f)
		}
	}
	e.at(now.Add(lostAfter * e.conf.ReportInterval))
	return nil
}

func pathNews(edge string, was, up pathset.Set) string {
	switch down, back := was&^up, up&^was; {
	case back == 0:
		return fmt.Sprintf("edge %s reports path %s down", edge, down)
	case down == 0:
		return fmt.Sprintf("edge %s reports path %s up", edge, back)
	default:
		return fmt.Sprintf("edge %s reports path %s down and path %s up", edge, down, back)
	}
}

// compare checks a sender's path sets in force against the desired ones.
func (e *Engine) compare(now time.Time, c *edge) {
	for _, f := range e.each() {
		if f.Sender != c.Name {
			continue
		}
		p, there := c.policies[f.Destination]
		nonce := p.Nonce
		if !there {
			nonce = c.nonce // the map need not contain empty sets
		}
		switch {
		case p.Paths != f.Paths:
			if f.Applied {
				e.resignal(now, f) // the edge lost the set, or another controller changed it
			}
		case !f.Applied && !e.held(f) && nonce >= f.nonce:
			f.Applied, f.reported = true, false
			e.touch(f)
		}
	}
	for dst, p := range c.policies {
		if p.Paths == 0 {
			continue
		}
		switch f := e.flows[dst]; {
		case f == nil && covers(c.Towards, dst) >= 0:
			e.adopt(now, c, p)
		case f == nil || e.elsewhere(f, c):
			e.effects.Signals = append(e.effects.Signals, Signal{Edge: c.Name, To: c.Signal, Destination: dst})
		}
	}
}

// elsewhere reports whether f has left c: it has no known sender, or its sender is another edge that is
// not lost.
func (e *Engine) elsewhere(f *flow, c *edge) bool {
	s := e.edges[f.Sender]
	return s != c && (s == nil || !s.Lost)
}

// adopt creates a flow for an unknown policy in force, left by an earlier run whose state is lost.
// Nothing changes for viewers.
func (e *Engine) adopt(now time.Time, c *edge, p api.Policy) {
	f, err := e.flow(now, p.Destination)
	if err != nil || f.Paths != 0 { // already settled by the mode
		return
	}
	f.Paths, f.Applied = p.Paths, true
	f.Generation = uint64(max(now.UnixMilli(), 1))
	f.State = api.Armed
	if p.Paths.Len() > 1 {
		f.State = api.Trimmed
	}
	e.decide(now, api.Decision{
		Kind: "adopt", Destination: f.Destination, Edge: c.Name, To: f.Paths, Generation: f.Generation,
		State: f.State, Reason: fmt.Sprintf("edge %s has a path set in force that this controller did not know",
			c.Name),
	})
	e.follow(now, f, "")
}

// Uplink processes observations of an edge's uplink monitor.
func (e *Engine) Uplink(now time.Time, name string, seen []api.Observation) error {
	c := e.edges[name]
	if c == nil {
		return ErrUnknownEdge
	}
	for _, o := range seen {
		dst := o.Source.Addr().Unmap()
		if !dst.IsValid() || dst.Zone() != "" || dst.IsUnspecified() {
			return fmt.Errorf("%w: observation with invalid source %s", ErrInvalid, o.Source)
		}
		f := e.flows[dst]
		if covers(c.Towards, dst) < 0 && covers(c.Behind, dst) < 0 && e.conf.Grants != nil {
			e.ignored++ // the source is not a viewer behind the edge
			continue
		}
		if f == nil {
			if !e.covered(dst) {
				e.ignored++
				continue
			}
			var err error
			if f, err = e.flow(now, dst); err != nil {
				e.ignored++
				continue
			}
		}
		e.observe(now, f, source{c.Name, o.Source}, o.Time)
	}
	return nil
}

func (e *Engine) observe(now time.Time, f *flow, s source, at int64) {
	m := f.meters[s]
	if m == nil {
		if len(f.meters) >= maxSources {
			e.ignored++
			return
		}
		m = &meter{}
		f.meters[s] = m
	}
	why := m.observe(e.conf.Trigger, e.strain(f), e.conf.End, at, now)
	f.seen = now
	if m.good >= e.conf.Trigger.Live && !f.helped {
		f.helped, f.idle = true, 0
		if f.State == api.Single {
			e.at(f.began.Add(f.rearm(e.conf)))
		}
	}
	if !f.Live {
		f.Live = true
		e.touch(f)
		e.follow(now, f, "the flow is live")
	}
	e.at(m.silentAt(e.conf.Trigger))
	e.at(now.Add(e.conf.End))
	if why != "" {
		e.fire(now, f, why)
	}
}

// Eliminate processes an outcome of Algorithm 1 and returns the resulting flow.
func (e *Engine) Eliminate(now time.Time, name string, o api.Elimination) (api.Flow, error) {
	if e.edges[name] == nil {
		return api.Flow{}, ErrUnknownEdge
	}
	f := e.flows[o.Destination.Unmap()]
	switch {
	case f == nil:
		return api.Flow{}, ErrUnknownFlow
	case f.Receiver != name:
		return api.Flow{}, fmt.Errorf("%w %s", ErrNotReceiver, f.Destination)
	case o.Generation != f.Generation || (f.Mode == api.Auto && f.Paths == 0):
		if f.stale != o.Generation {
			f.stale = o.Generation
			e.decide(now, api.Decision{
				Kind: "stale", Destination: f.Destination, Edge: name, From: f.Paths, To: f.Paths,
				Generation: o.Generation, State: f.State,
				Reason: fmt.Sprintf("elimination of path %s refused: it refers to generation %d, but %d is in force",
					o.Removed, o.Generation, f.Generation),
			})
		}
		return f.viewing(), fmt.Errorf("%w: the current one is %d", ErrStale, f.Generation)
	case f.Mode != api.Auto:
		return f.viewing(), fmt.Errorf("%w: the mode is %q", ErrPinned, f.Mode)
	case len(o.Rewards) > pathset.Max:
		return f.viewing(), fmt.Errorf("%w: %d rewards for at most %d paths", ErrInvalid, len(o.Rewards), pathset.Max)
	}
	left := f.Paths &^ o.Removed
	if o.Single {
		left = f.Paths & o.Remaining
		if left.Len() > 1 {
			return f.viewing(), fmt.Errorf("%w: single, but %d paths remain", ErrInvalid, left.Len())
		}
	}
	switch left {
	case 0:
		return f.viewing(), ErrNoPathLeft
	case f.Paths: // already signalled
		return f.viewing(), nil
	}
	reason := fmt.Sprintf("path %s never delivered in time within a window", f.Paths&^left)
	if o.Single {
		reason = fmt.Sprintf("path %s alone delivered a whole window in time", left)
	}
	if o.Reason != "" {
		reason = clean(o.Reason)
	}
	for _, i := range (f.Paths &^ left & o.Lossy).Indices() {
		f.lossy[i-1] = now
	}
	d := api.Decision{Kind: "trim", Edge: name, Reason: reason, Rewards: o.Rewards}
	state := api.Trimmed
	if left.Len() == 1 {
		d.Kind, state = "single", api.Single
		f.before = f.Paths
	}
	e.move(now, f, state, left, d)
	return f.viewing(), nil
}

// maxReason limits an edge's reason in bytes.
const maxReason = 300

// clean makes an edge's text safe for a log line.
func clean(s string) string {
	out := []rune(nil)
	for _, r := range s {
		if r < ' ' || r == 0x7f {
			r = ' '
		}
		if len(string(out))+len(string(r)) > maxReason {
			break
		}
		out = append(out, r)
	}
	return string(out)
}

// Set applies an operator's setting to a destination.
func (e *Engine) Set(now time.Time, dst netip.Addr, s api.Setting) (api.Flow, error) {
	dst = dst.Unmap()
	switch {
	case !dst.IsValid() || dst.Zone() != "" || dst.IsUnspecified():
		return api.Flow{}, fmt.Errorf("%w: destination %q: want an IP address without a zone", ErrInvalid, dst)
	case !knownMode(s.Mode):
		return api.Flow{}, fmt.Errorf("%w: mode %.20q is not auto, duplicate, redirect or off", ErrInvalid, s.Mode)
	}
	if err := e.settable(dst, s.Paths); err != nil {
		return api.Flow{}, err
	}
	f := e.flows[dst]
	if f == nil {
		var err error
		if f, err = e.flow(now, dst); err != nil {
			return api.Flow{}, err
		}
	}
	f.set = true
	e.arrange(now, f, s, fmt.Sprintf("an operator set mode %s, paths %s", s.Mode, allowed(s.Paths)))
	return f.viewing(), nil
}

// settable returns an error if a setting could never take effect because no edge sends to the
// destination, or no such edge has the paths. Before the first edge registers it accepts everything.
func (e *Engine) settable(dst netip.Addr, paths pathset.Set) error {
	var there pathset.Set
	covered := len(e.edges) == 0
	for _, name := range e.names() {
		c := e.edges[name]
		if !c.Role.Sends() || covers(c.Towards, dst) < 0 {
			continue
		}
		covered = true
		for _, p := range c.Paths {
			there |= pathset.Of(p.Index)
		}
	}
	switch missing := paths &^ there; {
	case !covered && e.flows[dst] == nil:
		return fmt.Errorf("%w: no edge sends to %s: it is in no edge's sender.towards", ErrInvalid, dst)
	case there != 0 && missing != 0:
		return fmt.Errorf("%w: no edge that sends to %s has path %s; available: %s", ErrInvalid, dst, missing, there)
	}
	return nil
}

// Unset removes an operator's setting from a destination.
func (e *Engine) Unset(now time.Time, dst netip.Addr) error {
	f := e.flows[dst.Unmap()]
	if f == nil {
		return ErrUnknownFlow
	}
	f.set, f.seen = false, later(f.seen, now)
	e.arrange(now, f, api.Setting{Mode: e.conf.Mode}, fmt.Sprintf("an operator returned the flow to mode %s", e.conf.Mode))
	e.at(now.Add(e.conf.End))
	return nil
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func allowed(s pathset.Set) string {
	if s == 0 {
		return "all"
	}
	return s.String()
}

// Sent records the nonce used for a Signal.
func (e *Engine) Sent(now time.Time, s Signal, nonce uint64) {
	f := e.flows[s.Destination]
	if f == nil || f.Sender != s.Edge || f.Paths != s.Paths {
		return
	}
	if f.nonce == 0 {
		f.nonce = nonce
	}
}

// Tick processes the deadlines up to now.
func (e *Engine) Tick(now time.Time) {
	for _, name := range e.names() {
		c := e.edges[name]
		if !c.settled && !now.Before(c.hello.Add(e.conf.ReportInterval)) {
			c.settled = true
			e.settle(now, fmt.Sprintf("edge %s has paths %s up", name, c.up()))
		}
		if c.Lost || now.Before(c.heard.Add(lostAfter*e.conf.ReportInterval)) {
			continue
		}
		c.Lost, c.Since = true, now
		reason := fmt.Sprintf("edge %s is lost: no report for %s", name, ms(now.Sub(c.heard)))
		e.decide(now, api.Decision{Kind: "edge", Edge: name, From: c.up(), Reason: reason})
		e.unwatch(name)
		e.settle(now, reason)
	}
	for _, f := range e.each() {
		e.tick(now, f)
	}
	e.plan()
}

func (e *Engine) tick(now time.Time, f *flow) {
	e.listen(now, f)
	for s, m := range f.meters {
		if now.Sub(m.seen) >= e.conf.End {
			delete(f.meters, s)
		}
	}
	if !now.Before(f.seen.Add(e.conf.End)) {
		e.end(now, f)
	}
	if f.State == api.Single && !now.Before(f.began.Add(f.rearm(e.conf))) {
		f.calm()
		e.move(now, f, api.Armed, f.Paths, api.Decision{
			Kind:   "rearm",
			Reason: fmt.Sprintf("path %s carries the flow; the trigger is re-armed", f.Paths),
		})
	}
	if due := e.due(f); !due.IsZero() && !now.Before(due) {
		e.signal(now, f)
	}
	if !f.set && !f.Live && f.Paths == 0 && (f.Applied || f.Sender == "") && !now.Before(f.seen.Add(e.conf.Forget)) {
		delete(e.flows, f.Destination)
		e.touch(f)
	}
}

// listen fires the trigger if a viewer of the flow has been silent too long.
func (e *Engine) listen(now time.Time, f *flow) {
	for _, m := range f.meters {
		if why := m.silence(e.conf.Trigger, e.strain(f), now); why != "" {
			e.fire(now, f, why)
		}
	}
}

// end ends a flow whose viewer has been silent for Config.End.
func (e *Engine) end(now time.Time, f *flow) {
	if f.Live {
		f.Live = false
		e.touch(f)
	}
	if f.Paths == 0 || f.pinned() {
		return
	}
	e.move(now, f, api.Armed, 0, api.Decision{
		Kind:   "stop",
		Reason: fmt.Sprintf("the flow ended: no uplink packet for %s", ms(now.Sub(f.seen))),
	})
}

// plan finds the earliest deadline.
func (e *Engine) plan() {
	e.next = time.Time{}
	for _, c := range e.edges {
		if !c.Lost {
			e.at(c.heard.Add(lostAfter * e.conf.ReportInterval))
		}
		if !c.settled {
			e.at(c.hello.Add(e.conf.ReportInterval))
		}
	}
	for _, f := range e.flows {
		for _, m := range f.meters {
			e.at(m.silentAt(e.conf.Trigger))
			e.at(m.seen.Add(e.conf.End))
		}
		switch {
		case f.Live || (f.Paths != 0 && !f.pinned()):
			e.at(f.seen.Add(e.conf.End))
		case !f.set && f.Paths == 0 && (f.Applied || f.Sender == ""):
			e.at(f.seen.Add(e.conf.Forget))
		}
		if f.State == api.Single {
			e.at(f.began.Add(f.rearm(e.conf)))
		}
		e.at(e.due(f))
	}
}

// displace forgets the unproven flow whose viewer has been silent longest, and reports whether there
// was one. Forged sources of single packets thus displace each other instead of a viewer that keeps
// sending.
func (e *Engine) displace() bool {
	var oldest *flow
	for _, f := range e.flows {
		if e.proven(f) || oldest != nil && !f.seen.Before(oldest.seen) {
			continue
		}
		oldest = f
	}
	if oldest == nil {
		return false
	}
	delete(e.flows, oldest.Destination)
	e.touch(oldest)
	return true
}

// proven reports whether a flow must be kept because an operator set it, it has paths, its paths have
// not been removed at the sender yet, or a viewer sent enough packets to make it live.
func (e *Engine) proven(f *flow) bool {
	if f.set || f.Paths != 0 || !f.Applied {
		return true
	}
	for _, m := range f.meters {
		if m.packets >= e.conf.Trigger.Live {
			return true
		}
	}
	return false
}

// flow creates the flow to dst.
func (e *Engine) flow(now time.Time, dst netip.Addr) (*flow, error) {
	if len(e.flows) >= e.conf.MaxFlows && !e.displace() {
		e.effects.Full = true
		return nil, fmt.Errorf("%w flows: maxFlows is %d", ErrFull, e.conf.MaxFlows)
	}
	f := &flow{
		Flow:   api.Flow{Destination: dst, Mode: e.conf.Mode, State: api.Armed, Since: now, Applied: true},
		meters: map[source]*meter{}, seen: now, began: now,
	}
	if f.Mode == api.Off {
		f.State = api.Disabled
	}
	e.flows[dst] = f
	e.pair(f)
	e.touch(f)
	e.follow(now, f, "a new flow")
	e.at(now.Add(e.conf.End))
	return f, nil
}

// covered reports whether a sender may duplicate to dst, or dst is behind a receiver, whose sender may
// register later.
func (e *Engine) covered(dst netip.Addr) bool {
	for _, c := range e.edges {
		if (c.Role.Sends() && covers(c.Towards, dst) >= 0) || (c.Role.Receives() && covers(c.Behind, dst) >= 0) {
			return true
		}
	}
	return false
}

// unwatch drops an edge's uplink observations, so that the edge's silence does not count as its
// viewers'.
func (e *Engine) unwatch(name string) {
	for _, f := range e.flows {
		maps.DeleteFunc(f.meters, func(s source, _ *meter) bool { return s.edge == name })
	}
}

func (e *Engine) names() []string { return slices.Sorted(maps.Keys(e.edges)) }

// each returns the flows sorted by destination, for reproducible effects.
func (e *Engine) each() []*flow {
	return slices.SortedFunc(maps.Values(e.flows), func(a, b *flow) int { return a.Destination.Compare(b.Destination) })
}

// touch marks the flow as changed.
func (e *Engine) touch(f *flow) {
	e.effects.Flows = append(e.effects.Flows, f.Destination)
	e.effects.Durable = true
}

// decide records a decision. If an event leads to equal decisions for several flows, they are merged.
func (e *Engine) decide(now time.Time, d api.Decision) {
	d.Time = now
	e.effects.Durable = true
	e.kept++
	if i := slices.IndexFunc(e.effects.Decisions, func(o api.Decision) bool { return alike(o, d) }); i >= 0 {
		o := &e.effects.Decisions[i]
		o.Others = append(o.Others, d.Destination)
		e.decisions[len(e.decisions)-1-int(e.sequence-o.Sequence)].Others = o.Others
	} else {
		e.sequence++
		d.Sequence = e.sequence
		e.decisions = append(e.decisions, d)
		e.effects.Decisions = append(e.effects.Decisions, d)
	}
	e.forgetDecisions()
}

// alike reports whether two decisions about the same event differ only in their destinations.
func alike(a, b api.Decision) bool {
	return a.Destination.IsValid() && b.Destination.IsValid() && a.Time.Equal(b.Time) && a.Kind == b.Kind &&
		a.Edge == b.Edge &&
		a.From == b.From && a.To == b.To && a.Generation == b.Generation && a.State == b.State &&
		a.Reason == b.Reason &&
		a.Rewards == nil && b.Rewards == nil
}

// forgetDecisions drops the oldest decisions as long as the others cover KeepDecisions destinations.
// It keeps the decisions of the current event.
func (e *Engine) forgetDecisions() {
	for len(e.decisions) > len(e.effects.Decisions) && e.kept-1-len(e.decisions[0].Others) >= e.conf.KeepDecisions {
		e.kept -= 1 + len(e.decisions[0].Others)
		e.decisions = e.decisions[1:] // append reallocates and frees the head eventually
	}
}

// Flows returns all flows, sorted by destination.
func (e *Engine) Flows() []api.Flow {
	out := make([]api.Flow, 0, len(e.flows))
	for _, f := range e.each() {
		out = append(out, f.viewing())
	}
	return out
}

// Flow returns the flow to dst.
func (e *Engine) Flow(dst netip.Addr) (api.Flow, bool) {
	f := e.flows[dst.Unmap()]
	if f == nil {
		return api.Flow{}, false
	}
	return f.viewing(), true
}

// Edges returns all edges, sorted by name.
func (e *Engine) Edges() []api.EdgeStatus {
	out := make([]api.EdgeStatus, 0, len(e.edges))
	for _, name := range e.names() {
		out = append(out, e.edges[name].EdgeStatus)
	}
	return out
}

// Known reports whether an edge is registered.
func (e *Engine) Known(name string) bool { return e.edges[name] != nil }

// Decisions returns at most limit decisions after sequence number since, oldest first. Forgotten
// decisions are missing.
func (e *Engine) Decisions(since uint64, limit int) []api.Decision {
	kept := e.decisions
	i, _ := slices.BinarySearchFunc(kept, since, func(d api.Decision, s uint64) int {
		if d.Sequence <= s {
			return -1
		}
		return 1
	})
	kept = kept[i:]
	return slices.Clone(kept[:min(limit, len(kept))])
}

// Sequence returns the number of the last decision.
func (e *Engine) Sequence() uint64 { return e.sequence }

// Ignored returns the number of observations that matched no flow.
func (e *Engine) Ignored() uint64 { return e.ignored }
