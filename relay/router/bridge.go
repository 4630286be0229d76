package router

import (
	"context"

	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
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
	c := r.newClient()
	c.bridge = true
	s, err := open(moqt.Handler{
		Subscribe:          after(known, c.subscribe),
		TrackStatus:        after(known, c.trackStatus),
		Fetch:              after(known, c.fetch),
		Publish:            after(known, c.publish),
		SubscribeNamespace: after(known, c.discover),
		SubscribeTracks:    after(known, c.discover),
	})
	if err != nil {
		return err
	}
	defer s.Close(wire.NoError, "")
	c.s = s
	r.mu.Lock()
	r.clients[c] = struct{}{}
	r.mu.Unlock()
	close(known)
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.clients, c)
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
			offers[key] = r.Offer(e.Namespace, peer{c})
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
