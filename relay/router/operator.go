package router

import (
	"context"
	"errors"
	"slices"
	"time"

	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
)

// Errors of an operator's actions.
var (
	ErrNoClient = errors.New("no such client")
	ErrMoving   = errors.New("the client has already been asked to move")
)

// errBlocked ends what publishers and viewers have in a blocked namespace.
var errBlocked = errors.New("the operator has blocked the session")

// blockedRetry is the time after which a publisher may ask again for a blocked namespace.
const blockedRetry = 10 * time.Second

// Block replaces the blocked namespaces. It ends publications and subscriptions in them and below them,
// and the router refuses new ones.
func (r *Router) Block(list []moqt.Namespace) {
	r.mu.Lock()
	r.blocked.Store(&list)
	var revoke []*offer
	var tracks []*track
	for _, ns := range list {
		for o := range r.offersUnder.under(ns) {
			if o.revoke != nil {
				revoke = append(revoke, o)
			}
		}
		for t := range r.tracksUnder.under(ns) {
			tracks = append(tracks, t)
		}
	}
	var subs []*moqt.Subscription
	for _, t := range tracks {
		t.mu.Lock()
		if !t.removed {
			for _, sub := range t.upstreams {
				subs = append(subs, sub)
			}
			t.end(wire.DoneUnauthorized, errBlocked.Error())
		}
		t.mu.Unlock()
	}
	r.mu.Unlock()
	for _, o := range revoke {
		o.revoke(errBlocked)
	}
	for _, sub := range subs {
		sub.Cancel()
	}
}

// checkBlocked refuses requests in a blocked namespace.
func (r *Router) checkBlocked(ns moqt.Namespace) error {
	list := r.blocked.Load()
	if list == nil || !slices.ContainsFunc(*list, ns.HasPrefix) {
		return nil
	}
	return &moqt.RequestError{
		Code: wire.RequestUninterested, Reason: errBlocked.Error(), RetryInterval: wire.RetryAfter(blockedRetry),
	}
}

// client returns the open client with a number, or nil. It does not return other relays.
func (r *Router) client(number uint64) *client {
	r.mu.Lock()
	defer r.mu.Unlock()
	for c := range r.clients {
		if c.number == number && !c.bridge && !c.relay {
			return c
		}
	}
	return nil
}

// Kick closes a client's session. Holocast's clients do not connect again with the same token.
func (r *Router) Kick(number uint64, reason string) error {
	c := r.client(number)
	if c == nil {
		return ErrNoClient
	}
	c.s.Close(wire.Unauthorized, reason)
	return nil
}

// Move asks a client to move to another relay, whose moqt:// URL it gets in the form that its transport
// needs. The session ends after limit at the latest.
func (r *Router) Move(number uint64, url string, limit time.Duration) error {
	c := r.client(number)
	switch {
	case c == nil:
		return ErrNoClient
	case c.moving.Swap(true):
		return ErrMoving
	}
	go func() { _ = c.s.Goaway(context.Background(), AddressFor(c.s, url), limit) }()
	return nil
}
