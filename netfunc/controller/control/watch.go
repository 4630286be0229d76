package control

import (
	"net/netip"

	"holocast/netfunc/api"
	"holocast/netfunc/controller/policy"
)

// maxWatchers limits the watchers of all edges together.
const maxWatchers = 512

// Watcher delivers changes that involve an edge. A newer change to a flow replaces an older one.
type Watcher struct {
	C chan struct{} // holds a token when there may be changes

	plane *Plane
	edge  string
	dirty map[netip.Addr]struct{} // nil until the snapshot
	known map[netip.Addr]struct{} // flows that the edge has received
}

// Watch returns a Watcher for an edge. Its first Next returns a snapshot. Close it after use.
func (p *Plane) Watch(edge string) (*Watcher, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.engine.Known(edge) {
		return nil, policy.ErrUnknownEdge
	}
	if len(p.watchers) >= maxWatchers {
		return nil, errTooMany
	}
	w := &Watcher{C: make(chan struct{}, 1), plane: p, edge: edge, known: map[netip.Addr]struct{}{}}
	p.watchers[w] = struct{}{}
	p.countWatchers(edge)
	signalled(w.C)
	return w, nil
}

// countWatchers tells the policy engine how many watch streams an edge has. The caller holds p.mu.
func (p *Plane) countWatchers(edge string) {
	n := 0
	for w := range p.watchers {
		if w.edge == edge {
			n++
		}
	}
	p.engine.Watching(edge, n)
}

// Close ends the watch.
func (w *Watcher) Close() {
	w.plane.mu.Lock()
	defer w.plane.mu.Unlock()
	delete(w.plane.watchers, w)
	w.plane.countWatchers(w.edge)
}

// mark records flows that changed. The caller holds p.mu.
func (w *Watcher) mark(changed []netip.Addr) {
	if len(changed) == 0 || w.dirty == nil {
		return
	}
	for _, dst := range changed {
		w.dirty[dst] = struct{}{}
	}
	signalled(w.C)
}

// Next returns the changes since the last call, possibly none. It fails if the edge is no longer
// registered.
func (w *Watcher) Next() (api.Update, error) {
	w.plane.mu.Lock()
	defer w.plane.mu.Unlock()
	e := w.plane.engine
	if !e.Known(w.edge) {
		return api.Update{}, policy.ErrUnknownEdge
	}
	var u api.Update
	if w.dirty == nil {
		u = api.Update{Snapshot: true, Flows: w.plane.flowsOf(w.edge)}
		for _, f := range u.Flows {
			w.known[f.Destination] = struct{}{}
		}
	}
	for dst := range w.dirty {
		f, ok := e.Flow(dst)
		_, told := w.known[dst]
		switch mine := ok && (f.Sender == w.edge || f.Receiver == w.edge); {
		case mine:
			w.known[dst] = struct{}{}
			u.Flows = append(u.Flows, f)
		case told:
			delete(w.known, dst)
			u.Removed = append(u.Removed, dst)
		}
	}
	w.dirty = map[netip.Addr]struct{}{}
	return u, nil
}
