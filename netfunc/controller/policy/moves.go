package policy

import (
	"cmp"
	"fmt"
	"time"

	"holocast/netfunc/api"
	"holocast/netfunc/pathset"
)

// move sets a flow's state and path set, and records the decision.
func (e *Engine) move(now time.Time, f *flow, state api.State, paths pathset.Set, d api.Decision) {
	d.Destination, d.From, d.To, d.State = f.Destination, f.Paths, paths, state
	if paths&^f.Paths != 0 {
		// Generations follow the clock, so they grow even across a restart that loses the state.
		f.Generation = max(f.Generation+1, uint64(max(now.UnixMilli(), 1)))
	}
	switch {
	case state == api.Duplicating:
		f.helped, f.useless = false, false
		for _, m := range f.meters {
			m.good = 0
		}
	case state == api.Single && f.useless && !f.helped:
		f.idle, f.useless = min(f.idle+1, maxIdle), false
		d.Reason += fmt.Sprintf("; duplication did not help, trigger rests for %s", f.rearm(e.conf))
	}
	if state != f.State {
		f.Since = now
	}
	if state != api.Single {
		f.before = 0
	}
	switch {
	case state != api.Duplicating && state != api.Trimmed:
		f.tried, f.vain = 0, 0 // the network has changed
	case state == api.Trimmed && f.tried != 0 && paths&^f.tried == 0:
		f.tried, f.vain = 0, min(f.vain+1, maxIdle)
		d.Reason += fmt.Sprintf("; the added paths did not help, next attempt in %s", f.rest(e.conf))
	}
	f.State, f.began = state, now
	if paths != f.Paths {
		f.Paths, f.moved = paths, now
		f.calm()
		e.resignal(now, f)
	}
	d.Generation = f.Generation
	e.decide(now, d)
	e.touch(f)
	if state == api.Single {
		e.at(now.Add(f.rearm(e.conf)))
	}
}

// resignal repeats signals of the flow's path set until the sender reports it in force.
func (e *Engine) resignal(now time.Time, f *flow) {
	f.Applied, f.reported = false, false
	f.signalled, f.resent, f.nonce = time.Time{}, time.Time{}, 0
	e.touch(f)
	if f.Sender != "" {
		e.signal(now, f)
	}
}

// signalUnknown signals a sender whose state is unknown. An empty set waits for the sender's first
// report, since senders start with empty sets.
func (e *Engine) signalUnknown(now time.Time, f *flow) {
	if f.Paths != 0 || !f.Applied {
		e.resignal(now, f)
	}
}

// signal sends the flow's path set to the sender once. Until the receiver has confirmed, it signals
// only a sender that is duplicating, and only one of the paths.
func (e *Engine) signal(now time.Time, f *flow) {
	s := e.edges[f.Sender]
	if s == nil {
		return
	}
	if e.held(f) {
		if e.replicates(f) {
			f.resent = now
			e.effects.Signals = append(e.effects.Signals, Signal{
				Edge: s.Name, To: s.Signal, Destination: f.Destination,
				Paths: pathset.Of(e.least(f, f.Paths)),
			})
			e.at(e.due(f))
		}
		return
	}
	if f.signalled.IsZero() {
		f.signalled = now
	}
	f.resent = now
	e.effects.Signals = append(e.effects.Signals, Signal{
		Edge: s.Name, To: s.Signal, Destination: f.Destination,
		Paths: f.Paths,
	})
	if !f.reported && !s.Lost && now.Sub(f.signalled) >= e.conf.Signal.Slow {
		f.reported = true
		e.decide(now, api.Decision{
			Kind: "signal", Destination: f.Destination, Edge: s.Name, From: f.Paths, To: f.Paths,
			Generation: f.Generation, State: f.State,
			Reason: fmt.Sprintf("edge %s has not reported paths %s in force for %s; still signalling", s.Name, f.Paths,
				ms(now.Sub(f.signalled))),
		})
	}
	e.at(e.due(f))
}

// confirmed processes a receiver's readiness. It signals the senders of flows that are now ready, and
// stops duplication of flows whose replicas are no longer eliminated.
func (e *Engine) confirmed(now time.Time, c *edge) {
	for _, f := range e.each() {
		if f.Receiver != c.Name || f.Sender == "" || f.Paths.Len() < 2 {
			continue
		}
		switch ready := e.prepared(f); {
		case ready && !f.Applied && f.signalled.IsZero():
			e.signal(now, f)
		case !ready && f.Applied:
			e.resignal(now, f)
		}
	}
}

// fire handles the trigger.
func (e *Engine) fire(now time.Time, f *flow, why string) {
	switch f.Mode {
	case api.Auto:
		e.start(now, f, why)
	case api.Redirect:
		e.redirect(now, f, why, false)
	}
}

// start begins duplication over all usable paths (step 3 of the paper's section III.A), or resumes it
// if a trimmed set proved too small. Paths that recently did not carry the flow are omitted if two
// others are usable.
func (e *Engine) start(now time.Time, f *flow, why string) {
	all := e.usable(f)
	running := f.State == api.Duplicating || f.State == api.Trimmed
	var unfit string
	if fit := all &^ (f.unfit(e.conf, now) &^ f.Paths); fit != all && fit.Len() > 1 {
		unfit = fmt.Sprintf("; path %s did not carry the flow lately", all&^fit)
		all = fit
	}
	receiver := e.receiver(f)
	switch {
	case all == 0:
		e.futile(now, f, why+", but no path is up")
		return
	case e.regret(now, f, all, why):
		return
	case running && now.Sub(f.moved) < f.rest(e.conf) && f.Paths&all != 0,
		f.State == api.Single && now.Sub(f.moved) < f.rearm(e.conf) && f.Paths&all != 0:
		return // let the new set take effect first
	case receiver == nil:
		// No receiver would remove duplicates or eliminate paths.
		e.steer(now, f, why+", and no receiver removes duplicates")
		return
	case !running && !receiver.reachable():
		e.steer(now, f, why+", and receiver "+receiver.Name+" has no watch stream")
		return
	case running && all&^f.Paths == 0:
		f.useless = true
		in := "all paths that are up"
		if unfit != "" {
			in = "all other paths that are up"
		}
		e.futile(now, f, why+", though "+in+" are in use"+unfit)
		return
	}
	if all.Len() == 1 {
		if all == f.Paths {
			e.futile(now, f, why+", but no other path is up")
			return
		}
		e.move(now, f, api.Single, all, api.Decision{Kind: "start", Reason: why + "; one path is up"})
		return
	}
	from := f.Paths
	e.move(now, f, api.Duplicating, all, api.Decision{Kind: "start", Reason: why + unfit})
	if running {
		f.tried = from
	}
}

// regret undoes an elimination that recently left one path, and reports whether it did. A trigger so
// soon after the elimination shows that it was a mistake, unless duplication had not helped or the
// delayed packets were sent earlier.
func (e *Engine) regret(now time.Time, f *flow, usable pathset.Set, why string) bool {
	back := (f.before | f.Paths) & usable
	late := e.conf.Trigger.Interval * time.Duration(e.conf.Trigger.Count)
	if f.State != api.Single || !f.helped || f.before == 0 || back.Len() < 2 || now.Sub(f.moved) < late {
		return false
	}
	if r := e.receiver(f); r == nil || !r.reachable() {
		return false
	}
	e.move(now, f, api.Trimmed, back, api.Decision{
		Kind:   "start",
		Reason: fmt.Sprintf("%s; path %s alone is not enough", why, f.Paths),
	})
	return true
}

// futile records a trigger without effect, once per generation.
func (e *Engine) futile(now time.Time, f *flow, why string) {
	if f.noop == f.Generation+1 {
		return
	}
	f.noop = f.Generation + 1
	e.decide(now, api.Decision{
		Kind: "trigger", Destination: f.Destination, From: f.Paths, To: f.Paths,
		Generation: f.Generation, State: f.State, Reason: why,
	})
}

// steer moves a flow to the best single path because there is no reachable receiver.
func (e *Engine) steer(now time.Time, f *flow, why string) {
	among := f.Paths & e.usable(f)
	if among == 0 || f.Paths.Len() == 1 { // there are no replicas to choose from, so try another path
		among = e.usable(f) &^ f.Paths
	}
	to := e.least(f, among)
	if to == 0 {
		e.futile(now, f, why+", and no other path is up")
		return
	}
	e.move(now, f, api.Single, pathset.Of(to), api.Decision{
		Kind:   "single",
		Reason: fmt.Sprintf("%s: path %d has the least RTT", why, to),
	})
}

// redirect moves a flow to the path with the least RTT (the paper's section IV.D). If quiet is set,
// attempts without gain are not recorded.
func (e *Engine) redirect(now time.Time, f *flow, why string, quiet bool) {
	usable := e.usable(f)
	to := e.least(f, usable)
	if to == 0 {
		if !quiet {
			e.futile(now, f, why+", but no path is up")
		}
		return
	}
	from := f.Paths.Indices()
	lost := f.Paths != 0 && f.Paths&usable == 0
	reason := fmt.Sprintf("path %d has the least RTT", to)
	if rtt := e.rtt(f, to); rtt < 1e9 {
		reason = fmt.Sprintf("path %d has the least RTT, %.1f ms", to, rtt)
	}
	if len(from) == 1 && !lost {
		if now.Sub(f.moved) < e.conf.Redirect.Hold {
			return
		}
		gain, ok := e.better(f, from[0], to)
		if !ok {
			if !quiet {
				e.futile(now, f, why+fmt.Sprintf(", but no path gains enough over path %d", from[0]))
			}
			return
		}
		reason = gain
	}
	e.move(now, f, api.Redirected, pathset.Of(to), api.Decision{Kind: "redirect", Reason: why + ": " + reason})
}

// settle adapts every flow to changed edges and paths. why describes the change, or is "" if only
// measurements changed.
func (e *Engine) settle(now time.Time, why string) {
	for _, f := range e.each() {
		if e.pair(f) {
			e.touch(f)
			e.signalUnknown(now, f)
		}
		e.follow(now, f, why)
	}
}

// follow adapts a flow to its edges and paths.
func (e *Engine) follow(now time.Time, f *flow, why string) {
	if f.Sender == "" {
		if f.Paths != 0 {
			e.move(now, f, resting(f.Mode), 0, api.Decision{
				Kind:   "stop",
				Reason: cmp.Or(why, "its edge has left") + ": no edge sends to it",
			})
		}
		f.Applied = true
		return
	}
	usable := e.usable(f)
	if e.settling(f) {
		usable |= f.Paths
	}
	switch f.Mode {
	case api.Off:
		if f.Paths != 0 {
			e.move(now, f, api.Disabled, 0, api.Decision{Kind: "stop", Reason: cmp.Or(why, "the flow is switched off")})
		}
	case api.Duplicate:
		all := usable
		switch {
		case all.Len() > 1 && e.receiver(f) == nil:
			why := cmp.Or(why, "the receiver is lost") + ": no receiver removes duplicates"
			if f.Paths.Len() > 1 || f.Paths != 0 && f.Paths&usable == 0 {
				e.steer(now, f, why)
			} else if f.Live || f.set {
				e.futile(now, f, why)
			}
		case all != 0 && all != f.Paths && (f.Live || f.set):
			e.move(now, f, api.Duplicating, all, api.Decision{
				Kind:   "start",
				Reason: cmp.Or(why, "the paths that are up changed"),
			})
		}
	case api.Redirect:
		switch one := f.fixed(); {
		case one != 0:
			if f.Paths != one && usable == one {
				e.move(now, f, api.Redirected, one, api.Decision{
					Kind:   "redirect",
					Reason: cmp.Or(why, "the path answers again") + ": the operator's path is up",
				})
			}
		case f.Paths == 0:
			if dead := e.stranded(now, f); dead != "" {
				e.redirect(now, f, dead, true)
			}
		case f.Paths&usable == 0:
			e.redirect(now, f, cmp.Or(why, "the path is dead"), true)
		case e.conf.Redirect.Follow:
			e.redirect(now, f, cmp.Or(why, "the RTTs changed"), true)
		}
	case api.Auto:
		e.followAuto(now, f, usable, why)
	}
}

func (e *Engine) followAuto(now time.Time, f *flow, usable pathset.Set, why string) {
	left := f.Paths & usable
	switch {
	case usable == 0:
		// There is no path to choose, and the sender's kernel program passes packets unchanged.
	case f.Paths == 0:
		if dead := e.stranded(now, f); dead != "" {
			e.start(now, f, dead)
		}
	case left == 0:
		e.start(now, f, cmp.Or(why, "no probe is answered")+fmt.Sprintf(": path %s is lost", f.Paths))
	case e.receiver(f) == nil && f.Paths.Len() > 1:
		e.steer(now, f, cmp.Or(why, "the receiver is lost")+": no receiver removes duplicates")
	case left == f.Paths:
	case left.Len() == 1:
		e.move(now, f, api.Single, left,
			api.Decision{Kind: "single", Reason: cmp.Or(why, "no probe is answered") + fmt.Sprintf(": path %s is lost",
				f.Paths&^left)})
	default:
		e.move(now, f, api.Trimmed, left,
			api.Decision{Kind: "trim", Reason: cmp.Or(why, "no probe is answered") + fmt.Sprintf(": path %s is lost",
				f.Paths&^left)})
	}
}

// fixed returns the single path to which an operator redirects the flow, or 0.
func (f *flow) fixed() pathset.Set {
	if f.Mode == api.Redirect && f.Allowed.Len() == 1 {
		return f.Allowed
	}
	return 0
}

// pinned reports whether an operator's setting makes the flow keep its paths without a viewer.
func (f *flow) pinned() bool { return f.set && (f.Mode == api.Duplicate || f.fixed() != 0) }

// resting returns the state of a flow under plain routing.
func resting(m api.Mode) api.State {
	if m == api.Off {
		return api.Disabled
	}
	return api.Armed
}

// arrange applies a setting.
func (e *Engine) arrange(now time.Time, f *flow, s api.Setting, why string) {
	f.Mode, f.Allowed = s.Mode, s.Paths
	paths := f.Paths
	if f.Allowed != 0 {
		paths &= f.Allowed
	}
	if f.Mode == api.Off {
		paths = 0
	}
	if f.Mode == api.Redirect && paths.Len() > 1 {
		paths = pathset.Of(e.least(f, paths))
	}
	state := resting(f.Mode)
	switch {
	case paths.Len() > 1 && f.Mode == api.Auto && f.State == api.Trimmed:
		state = api.Trimmed
	case paths.Len() > 1:
		state = api.Duplicating
	case paths != 0 && f.Mode == api.Redirect:
		state = api.Redirected
	}
	e.move(now, f, state, paths, api.Decision{Kind: "operator", Reason: why})
	e.follow(now, f, why)
	e.at(now.Add(e.conf.End))
}
