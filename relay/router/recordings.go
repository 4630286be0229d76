package router

import (
	"context"
	"slices"
	"strings"

	"holocast/internal/connect"
	"holocast/internal/moqt"
	"holocast/internal/origin"
)

// recordings begins the name of each session that is a recording made by a relay; the name of the recorded
// session and the time follow.
const recordings = "recordings/"

// RecordingOf returns the namespace of a recording of a session.
func RecordingOf(session, at string) moqt.Namespace {
	return moqt.Namespace{connect.Root, recordings + session + "/" + at}
}

// SessionOf returns the name of the session with a namespace, or "" if it is not a session's.
func SessionOf(ns moqt.Namespace) string {
	if len(ns) != 2 || ns[0] != connect.Root || isRecording(ns) {
		return ""
	}
	return ns[1]
}

// isRecording reports whether a namespace is reserved for recordings.
func isRecording(ns moqt.Namespace) bool {
	return len(ns) >= 2 && ns[0] == connect.Root && strings.HasPrefix(ns[1], recordings)
}

// authorizedAs returns the name that decides who may watch a track: that of the recorded session for a
// recording.
func authorizedAs(name moqt.TrackName) moqt.TrackName {
	if !isRecording(name.Namespace) {
		return name
	}
	session := strings.TrimPrefix(name.Namespace[1], recordings)
	end := strings.LastIndexByte(session, '/')
	if end <= 0 {
		return name
	}
	ns := slices.Clone(name.Namespace)
	ns[1] = session[:end]
	return moqt.TrackName{Namespace: ns, Name: name.Name}
}

// Local is an Upstream within this process, such as a recording. Other relays of the cluster are served its
// tracks, a process that replaces this one is not.
type Local interface {
	Upstream
	Local()
}

// ours reports whether an upstream is a peer of this relay or Local.
func ours(up Upstream) bool {
	switch up.(type) {
	case peer, Local:
		return true
	}
	return false
}

func isLocal(up Upstream) bool {
	_, ok := up.(Local)
	return ok
}

// Connect opens a session of this process with the router. It may do everything, and does not count towards
// the limits. done is called for each of its deliveries.
func (r *Router) Connect(ctx context.Context, h moqt.Handler, done func(origin.Delivery)) (*moqt.Session, error) {
	s, served, err := moqt.Pipe(ctx, moqt.Config{Log: r.log})
	if err != nil {
		return nil, err
	}
	c := r.newClient()
	c.s, c.queue.OnDone = served, done
	served.Serve(moqt.Handler{
		Subscribe: c.subscribe, TrackStatus: c.trackStatus, Fetch: c.fetch,
		SubscribeNamespace: c.discover, SubscribeTracks: c.discover,
	})
	s.Serve(h)
	return s, nil
}

// Hosted lists the namespaces whose publishers are clients of this process. changed receives when the list, or
// an answer of Elsewhere, may have changed.
func (r *Router) Hosted() (list []moqt.Namespace, changed <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	seen := map[string]bool{}
	for o := range r.offers {
		if p, ok := o.up.(peer); ok && !p.c.bridge && !seen[o.ns.String()] {
			seen[o.ns.String()] = true
			list = append(list, o.ns)
		}
	}
	return list, r.hosted
}

// Elsewhere reports whether another relay or process publishes a namespace.
func (r *Router) Elsewhere(ns moqt.Namespace) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for o := range r.offersAt.get(ns) {
		if p, ok := o.up.(peer); !ok || p.c.bridge {
			return true
		}
	}
	return false
}
