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

// Engine decides. It is not safe for use by several goroutines at a time, and the
// times it is given must not go back.
type Engine struct {
	conf  Config
	edges map[string]*edge
	flows map[netip.Addr]*flow

	decisions []api.Decision // the newest, of KeepDecisions destinations
	kept      int            // destinations that decisions are about
	sequence  uint64         // of the last decision
	ignored   uint64         // observations that made no flow

	effects Effects
	next    time.Time // not after the earliest deadline; zero = none
}

// Effects are what is to be done about the events since they were last taken.
type Effects struct {
	Signals   []Signal
	Flows     []netip.Addr // changed, made or forgotten; a destination may repeat
	Decisions []api.Decision
	Durable   bool // the state to keep over a restart changed
	Full      bool // a flow found no room
}

// Signal is a signalling packet to send. Sent is to be called for it.
type Signal struct {
	Edge        string
	To          netip.AddrPort
	Destination netip.Addr
	Paths       pathset.Set // empty = turn off
}

// Errors of events; the text of what wraps them is one sentence.
var (
	ErrUnknownEdge = errors.New("no edge of this name said hello")
	ErrUnknownFlow = errors.New("no flow to this destination")
	ErrStale       = errors.New("the generation is no longer in force")
	ErrPinned      = errors.New("the mode of the flow does not eliminate paths")
	ErrNotReceiver = errors.New("the edge is not the receiver of the flow")
	ErrNoPathLeft  = errors.New("the elimination would leave no path")
	ErrInvalid     = errors.New("invalid")
	ErrFull        = errors.New("no room for another")
	ErrForbidden   = errors.New("not granted")
	ErrUnconfirmed = errors.New("a sender has not reported that it stopped to duplicate")
)

// New returns an engine that knows no edge and no flow. The configuration must be
// valid.
func New(conf Config) *Engine {
	return &Engine{conf: conf, edges: map[string]*edge{}, flows: map[netip.Addr]*flow{}}
}

// Reconfigure puts another valid configuration in force: flows that no operator set take its mode, and
// edges leave that it grants less than they claim, whose names are returned. The report interval, which
// edges learn with their hello, and the limits stay.
func (e *Engine) Reconfigure(now time.Time, conf Config) (gone []string) {
	conf.ReportInterval = e.conf.ReportInterval
	conf.MaxFlows, conf.MaxEdges, conf.KeepDecisions = e.conf.MaxFlows, e.conf.MaxEdges, e.conf.KeepDecisions
	e.conf = conf
	for _, name := range e.names() {
		if err := e.granted(e.edges[name].Edge); err != nil {
			gone = append(gone, name)
			e.remove(now, name, fmt.Sprintf("edge %s was taken out: %s", name, err))
		}
	}
	e.arrangeAll(now)
	e.plan()
	return gone
}

// Config returns the configuration in force.
func (e *Engine) Config() Config { return e.conf }

// arrangeAll has flows that no operator set follow the configured mode.
func (e *Engine) arrangeAll(now time.Time) {
	for _, f := range e.each() {
		if !f.set && f.Mode != e.conf.Mode {
			e.arrange(now, f, api.Setting{Mode: e.conf.Mode}, "the configured mode is "+string(e.conf.Mode))
		}
	}
}

// Take returns what is to be done, and forgets it.
func (e *Engine) Take() Effects {
	out := e.effects
	e.effects = Effects{}
	return out
}

// Next is when Tick is to be called, at the latest; zero = never.
func (e *Engine) Next() time.Time { return e.next }

// at sees to it that Tick is called at t; zero = no need.
func (e *Engine) at(t time.Time) {
	if !t.IsZero() && (e.next.IsZero() || t.Before(e.next)) {
		e.next = t
	}
}

// Hello takes in an edge.
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
		return fmt.Errorf("%w edge: maxEdges is %d", ErrFull, e.conf.MaxEdges)
	}
	c := &edge{EdgeStatus: api.EdgeStatus{Edge: h, Since: now, Reported: now}, heard: now, hello: now}
	e.edges[h.Name] = c
	reason := fmt.Sprintf("edge %s said hello as %s with paths %s up", h.Name, h.Role, c.up())
	if old != nil {
		c.streams = old.streams
		reason = fmt.Sprintf("edge %s said hello again as %s with paths %s up", h.Name, h.Role, c.up())
	}
	e.decide(now, api.Decision{Kind: "edge", Edge: h.Name, To: c.up(), Reason: reason})
	for _, f := range e.each() {
		if f.Sender == h.Name {
			e.signalUnknown(now, f) // what it has in force is not known until it reports
		}
	}
	e.settle(now, reason)
	e.at(now.Add(e.conf.ReportInterval))
	return nil
}

// granted returns why an edge may not say what it does.
func (e *Engine) granted(h api.Edge) error {
	if e.conf.Grants == nil {
		return nil
	}
	g, ok := e.conf.Grants[h.Name]
	if !ok {
		return fmt.Errorf("%w: nothing is granted to edge %s", ErrForbidden, h.Name)
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

// Retire has no more replicas sent to a receiver that is about to leave, and returns the
// destinations of the flows that this changes.
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

// Applied reports whether the senders of flows have their path sets in force.
func (e *Engine) Applied(flows []netip.Addr) bool {
	return !slices.ContainsFunc(flows, func(dst netip.Addr) bool { f := e.flows[dst]; return f != nil && !f.Applied })
}

// Leave takes an edge out.
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

// Report takes in an edge's heartbeat.
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

// compare sets what a sender has in force against what it shall have.
func (e *Engine) compare(now time.Time, c *edge) {
	for _, f := range e.each() {
		if f.Sender != c.Name {
			continue
		}
		p, there := c.policies[f.Destination]
		nonce := p.Nonce
		if !there {
			nonce = c.nonce // an empty set need not be in the map
		}
		switch {
		case p.Paths != f.Paths:
			if f.Applied {
				e.resignal(now, f) // the edge lost it, or somebody else signalled
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

// elsewhere reports whether c has nothing to send for f any more.
func (e *Engine) elsewhere(f *flow, c *edge) bool {
	s := e.edges[f.Sender]
	return s != c && (s == nil || !s.Lost)
}

// adopt makes a flow of a policy that is in force and that this controller does not
// know: one of an earlier run whose state is lost. What viewers see does not change.
func (e *Engine) adopt(now time.Time, c *edge, p api.Policy) {
	f, err := e.flow(now, p.Destination)
	if err != nil || f.Paths != 0 { // the mode has settled it already
		return
	}
	f.Paths, f.Applied = p.Paths, true
	f.Generation = uint64(max(now.UnixMilli(), 1))
	f.State = api.Armed
	if p.Paths.Len() > 1 {
		f.State = api.Trimmed
	}
	e.decide(now, api.Decision{Kind: "adopt", Destination: f.Destination, Edge: c.Name, To: f.Paths, Generation: f.Generation,
		State: f.State, Reason: fmt.Sprintf("edge %s has a path set in force that this controller did not know", c.Name)})
	e.follow(now, f, "")
}

// Uplink takes in what an edge's uplink monitor saw.
func (e *Engine) Uplink(now time.Time, name string, seen []api.Observation) error {
	c := e.edges[name]
	if c == nil {
		return ErrUnknownEdge
	}
	for _, o := range seen {
		dst := o.Source.Addr().Unmap()
		if !dst.IsValid() || dst.Zone() != "" || dst.IsUnspecified() {
			return fmt.Errorf("%w: source %s of an observation is not an address and port", ErrInvalid, o.Source)
		}
		f := e.flows[dst]
		if covers(c.Towards, dst) < 0 && covers(c.Behind, dst) < 0 && e.conf.Grants != nil {
			e.ignored++ // not the edge's viewer
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
	why := m.observe(e.conf.Trigger, e.conf.End, at, now)
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

// Eliminate takes in an outcome of Algorithm 1 and returns the flow as it is then.
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
			e.decide(now, api.Decision{Kind: "stale", Destination: f.Destination, Edge: name, From: f.Paths, To: f.Paths,
				Generation: o.Generation, State: f.State,
				Reason: fmt.Sprintf("elimination of path %s refused: it is about generation %d, in force is %d", o.Removed, o.Generation, f.Generation)})
		}
		return f.viewing(), fmt.Errorf("%w: it is %d", ErrStale, f.Generation)
	case f.Mode != api.Auto:
		return f.viewing(), fmt.Errorf("%w: it is %q", ErrPinned, f.Mode)
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
	case f.Paths: // signalled before
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

// maxReason is how much of an edge's own words is kept, bytes.
const maxReason = 300

// clean makes an edge's words fit for a log line.
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

// Set takes in what an operator wants of a destination.
func (e *Engine) Set(now time.Time, dst netip.Addr, s api.Setting) (api.Flow, error) {
	dst = dst.Unmap()
	switch {
	case !dst.IsValid() || dst.Zone() != "" || dst.IsUnspecified():
		return api.Flow{}, fmt.Errorf("%w: destination %q is not an address without zone", ErrInvalid, dst)
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

// settable returns why an operator's setting could never have an effect: no edge sends to the destination,
// or none that does has the paths. Before the first edge nobody knows.
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
		return fmt.Errorf("%w: no edge that sends to %s has path %s; they have %s", ErrInvalid, dst, missing, there)
	}
	return nil
}

// Unset takes back what an operator wanted of a destination.
func (e *Engine) Unset(now time.Time, dst netip.Addr) error {
	f := e.flows[dst.Unmap()]
	if f == nil {
		return ErrUnknownFlow
	}
	f.set, f.seen = false, later(f.seen, now)
	e.arrange(now, f, api.Setting{Mode: e.conf.Mode}, fmt.Sprintf("an operator gave it back to mode %s", e.conf.Mode))
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

// Sent records the nonce that a Signal was sent with.
func (e *Engine) Sent(now time.Time, s Signal, nonce uint64) {
	f := e.flows[s.Destination]
	if f == nil || f.Sender != s.Edge || f.Paths != s.Paths {
		return
	}
	if f.nonce == 0 {
		f.nonce = nonce
	}
}

// Tick does what is due at now.
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
	for s, m := range f.meters {
		if why := m.silence(e.conf.Trigger, now); why != "" {
			e.fire(now, f, why)
		}
		if now.Sub(m.seen) >= e.conf.End {
			delete(f.meters, s)
		}
	}
	if !now.Before(f.seen.Add(e.conf.End)) {
		e.end(now, f)
	}
	if f.State == api.Single && !now.Before(f.began.Add(f.rearm(e.conf))) {
		f.calm()
		e.move(now, f, api.Armed, f.Paths, api.Decision{Kind: "rearm",
			Reason: fmt.Sprintf("path %s carries the flow; the trigger is armed again", f.Paths)})
	}
	if due := e.due(f); !due.IsZero() && !now.Before(due) {
		e.signal(now, f)
	}
	if !f.set && !f.Live && f.Paths == 0 && (f.Applied || f.Sender == "") && !now.Before(f.seen.Add(e.conf.Forget)) {
		delete(e.flows, f.Destination)
		e.touch(f)
	}
}

// end is the flow's: its viewer has not been seen for long.
func (e *Engine) end(now time.Time, f *flow) {
	if f.Live {
		f.Live = false
		e.touch(f)
	}
	if f.Paths == 0 || f.pinned() {
		return
	}
	e.move(now, f, api.Armed, 0, api.Decision{Kind: "stop",
		Reason: fmt.Sprintf("the flow ended: no uplink packet for %s", ms(now.Sub(f.seen)))})
}

// plan finds the next deadline of all.
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

// displace forgets, of the flows that have not proven themselves, the one whose viewer has been silent
// for longest, and reports whether there was one. So forged sources of single packets displace
// each other, and not a viewer that goes on sending.
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

// proven reports whether a flow is to be kept: an operator set it, it has paths, or one of its viewers sent as many
// packets as make a flow live.
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

// flow makes one to dst.
func (e *Engine) flow(now time.Time, dst netip.Addr) (*flow, error) {
	if len(e.flows) >= e.conf.MaxFlows && !e.displace() {
		e.effects.Full = true
		return nil, fmt.Errorf("%w flow: maxFlows is %d", ErrFull, e.conf.MaxFlows)
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

// covered reports whether some sender may duplicate to dst, or some receiver has it behind
// itself, whose sender may not have said hello yet.
func (e *Engine) covered(dst netip.Addr) bool {
	for _, c := range e.edges {
		if (c.Role.Sends() && covers(c.Towards, dst) >= 0) || (c.Role.Receives() && covers(c.Behind, dst) >= 0) {
			return true
		}
	}
	return false
}

// unwatch forgets what an edge saw of the uplink: its silence is not a viewer's.
func (e *Engine) unwatch(name string) {
	for _, f := range e.flows {
		maps.DeleteFunc(f.meters, func(s source, _ *meter) bool { return s.edge == name })
	}
}

func (e *Engine) names() []string { return slices.Sorted(maps.Keys(e.edges)) }

// each returns the flows by destination, so that the same events have the same
// effects in the same order.
func (e *Engine) each() []*flow {
	return slices.SortedFunc(maps.Values(e.flows), func(a, b *flow) int { return a.Destination.Compare(b.Destination) })
}

// touch marks the flow as changed.
func (e *Engine) touch(f *flow) {
	e.effects.Flows = append(e.effects.Flows, f.Destination)
	e.effects.Durable = true
}

// decide writes a decision down. What one event decides for many flows alike is one decision.
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

// alike reports whether two decisions of one event differ in their destinations alone.
func alike(a, b api.Decision) bool {
	return a.Destination.IsValid() && b.Destination.IsValid() && a.Time.Equal(b.Time) && a.Kind == b.Kind && a.Edge == b.Edge &&
		a.From == b.From && a.To == b.To && a.Generation == b.Generation && a.State == b.State && a.Reason == b.Reason &&
		a.Rewards == nil && b.Rewards == nil
}

// forgetDecisions drops the oldest decisions while the others are about KeepDecisions destinations. Those
// of the event under way stay.
func (e *Engine) forgetDecisions() {
	for len(e.decisions) > len(e.effects.Decisions) && e.kept-1-len(e.decisions[0].Others) >= e.conf.KeepDecisions {
		e.kept -= 1 + len(e.decisions[0].Others)
		e.decisions = e.decisions[1:] // appending moves the rest to new memory, in time
	}
}

// Flows returns all flows by destination.
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

// Edges returns all edges by name.
func (e *Engine) Edges() []api.EdgeStatus {
	out := make([]api.EdgeStatus, 0, len(e.edges))
	for _, name := range e.names() {
		out = append(out, e.edges[name].EdgeStatus)
	}
	return out
}

// Known reports whether an edge said hello.
func (e *Engine) Known(name string) bool { return e.edges[name] != nil }

// Decisions returns at most limit decisions after the one numbered since, oldest
// first; those that are no longer kept are missing.
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

// Sequence is the number of the last decision.
func (e *Engine) Sequence() uint64 { return e.sequence }

// Ignored is how many observations belonged to no flow.
func (e *Engine) Ignored() uint64 { return e.ignored }
