package router

import (
	"context"

	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
)

// Bridge connects this router to the router of another process of the same relay while one takes over
// from the other. Each router offers the other's namespaces and tracks, so publishers and viewers may
// be connected to different processes. open dials or accepts the session and serves it with the given
// handler. The other process is trusted, as each process authorizes its own clients. joined is called
// once this router offers all of the namespaces in has, which the other process is known to publish.
// Bridge returns when the session ends.
//
// Bridges may form a chain but not a ring, since a namespace learned from one bridge is forwarded to
// all others.
func (r *Router) Bridge(
	ctx context.Context, open func(moqt.Handler) (*moqt.Session, error), has []moqt.Namespace, joined func(),
) error {
	known := make(chan struct{}) // closed once the client's session is set
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

// after returns a handler that delays requests until known is closed.
func after[R any](known <-chan struct{}, handle func(R)) func(R) {
	return func(request R) {
		<-known
		handle(request)
	}
}
