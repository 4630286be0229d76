package router

import (
	"context"

	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/origin"
)

// Bridge joins this router and that of another process of the same relay, while one takes
// over from the other: each has what is published to the other, so that publishers and viewers
// need not be at the same. open opens the session with a handler: it dials, or serves one that
// was accepted. The other process is trusted; each asks its own clients for what they may do.
// joined is called once all of some namespaces that the other is known to have are offered here.
// Bridge returns when the session has ended.
//
// Bridges may form a chain, but no ring: what comes from one goes to all others.
func (r *Router) Bridge(ctx context.Context, open func(moqt.Handler) (*moqt.Session, error), has []moqt.Namespace, joined func()) error {
	known := make(chan struct{}) // closed once requests of the session are known as a bridge's
	s, err := open(moqt.Handler{
		Subscribe:          after(known, r.subscribe),
		TrackStatus:        after(known, r.trackStatus),
		Fetch:              after(known, r.fetch),
		Publish:            after(known, r.publish),
		SubscribeNamespace: after(known, r.discover),
		SubscribeTracks:    after(known, r.discover),
	})
	if err != nil {
		return err
	}
	defer s.Close(wire.NoError, "")
	r.mu.Lock()
	r.sessions[s] = &client{queue: origin.NewQueue(r.cfg().MaxOpen), slots: newSlots(), bridge: true}
	r.mu.Unlock()
	close(known)
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.sessions, s)
	}()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	events, err := s.SubscribeNamespace(ctx, nil)
	if err == nil {
		err = s.SubscribeTracks(ctx, nil)
	}
	if err != nil {
		return err
	}
	offers := map[string]func(){}
	defer func() {
		for _, withdraw := range offers {
			withdraw()
		}
	}()
	missing := map[string]bool{}
	for _, ns := range has {
		missing[ns.String()] = true
	}
	if len(missing) == 0 {
		joined()
	}
	for e := range events {
		key := e.Namespace.String()
		switch withdraw := offers[key]; {
		case e.Added && withdraw == nil:
			offers[key] = r.Offer(e.Namespace, peer{s})
		case !e.Added && withdraw != nil:
			withdraw()
			delete(offers, key)
		}
		if missing[key] {
			if delete(missing, key); len(missing) == 0 {
				joined()
			}
		}
	}
	if err := s.Err(); err != nil {
		return err
	}
	return ctx.Err()
}

// after has requests wait for known.
func after[R any](known <-chan struct{}, handle func(R)) func(R) {
	return func(request R) {
		<-known
		handle(request)
	}
}

// bridged reports whether a session is a bridge. r.mu is held.
func (r *Router) bridged(s *moqt.Session) bool {
	c := r.sessions[s]
	return c != nil && c.bridge
}
