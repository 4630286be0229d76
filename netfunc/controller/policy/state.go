package policy

import (
	"fmt"
	"slices"
	"time"

	"holocast/netfunc/api"
	"holocast/netfunc/pathset"
)

// State is the engine's persistent state.
type State struct {
	Sequence  uint64           `json:"sequence"`
	Edges     []api.EdgeStatus `json:"edges"`
	Flows     []KeptFlow       `json:"flows"`
	Decisions []api.Decision   `json:"decisions"`
}

// KeptFlow is a flow in a State.
type KeptFlow struct {
	api.Flow
	Set bool `json:"set,omitempty"` // by an operator
}

// State returns the persistent state with the newest decisions, at most keep.
func (e *Engine) State(keep int) State {
	s := State{
		Sequence: e.sequence, Edges: e.Edges(),
		Decisions: slices.Clone(e.decisions[max(0, len(e.decisions)-keep):]),
	}
	for _, f := range e.each() {
		s.Flows = append(s.Flows, KeptFlow{Flow: f.viewing(), Set: f.set})
	}
	return s
}

// Restore loads a State into a new engine. Path sets stay in force, and edges and viewers have the
// usual time to appear. An error names the invalid part; the engine must then not be used.
func (e *Engine) Restore(now time.Time, s State) error {
	for _, k := range s.Edges {
		if err := CheckEdge(k.Edge); err != nil {
			return fmt.Errorf("edge %.80q: %w", k.Name, err)
		}
		if e.granted(k.Edge) != nil || understands(k.Edge) != nil {
			continue // no longer supported, so its next hello is refused
		}
		k.Policies = nil
		e.edges[k.Name] = &edge{EdgeStatus: k, heard: now, hello: now}
	}
	for _, k := range s.Flows {
		dst := k.Destination.Unmap()
		switch {
		case !dst.IsValid() || dst.Zone() != "":
			return fmt.Errorf("flow %q: the destination is invalid", k.Destination)
		case !knownMode(k.Mode):
			return fmt.Errorf("flow %s: unknown mode %.20q", dst, k.Mode)
		case !possible(k.State, k.Paths):
			return fmt.Errorf("flow %s: state %.20q is impossible with paths %s", dst, k.State, k.Paths)
		}
		f := &flow{Flow: k.Flow, set: k.Set, meters: map[source]*meter{}, seen: now, began: now, moved: now}
		f.Destination, f.Live, f.Interval = dst, false, 0
		e.flows[dst] = f
	}
	previous := uint64(0)
	for _, d := range s.Decisions {
		if d.Sequence <= previous || d.Sequence > s.Sequence {
			return fmt.Errorf("decision %d follows %d, and the last one is %d", d.Sequence, previous, s.Sequence)
		}
		previous = d.Sequence
	}
	e.decisions, e.sequence = s.Decisions, s.Sequence
	for _, d := range s.Decisions {
		e.kept += 1 + len(d.Others)
	}
	if len(e.edges)+len(e.flows) > 0 {
		e.decide(now, api.Decision{
			Kind: "restart",
			Reason: fmt.Sprintf("the controller started with %d edges and %d flows of an earlier run", len(e.edges),
				len(e.flows)),
		})
	}
	e.arrangeAll(now) // the configuration may have changed
	for _, f := range e.each() {
		if !f.Applied {
			e.resignal(now, f)
		}
	}
	e.settle(now, "")
	e.plan()
	return nil
}

// possible reports whether a flow can have this state and path set.
func possible(s api.State, p pathset.Set) bool {
	switch s {
	case api.Armed:
		return p.Len() <= 1
	case api.Disabled:
		return p == 0
	case api.Single, api.Redirected:
		return p.Len() == 1
	case api.Trimmed:
		return p.Len() > 1
	case api.Duplicating:
		return p.Len() >= 1 // one if an operator wants duplication and no other path is up
	}
	return false
}
