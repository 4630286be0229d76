package router

import (
	"context"
	"errors"
	"iter"
	"strings"
	"sync"
	"time"

	"holocast/internal/clock"
	"holocast/internal/connect"
	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/relay/auth"
)

// tokenTimeout is how long a session without any rights may take to present a token.
const tokenTimeout = 10 * time.Second

// Claimant is an Upstream that no peer opened and whose claim of namespaces ends if it is not alive.
type Claimant interface {
	Upstream
	// Alive reports whether the upstream keeps its claims. It may wait about aliveTimeout.
	Alive(ctx context.Context) bool
}

// aliveTimeout limits the wait for a publisher's response to a liveness check, which is made when
// another publisher asks for its namespace. It exceeds the peers' keep-alive period.
const aliveTimeout = 2 * time.Second

// maxGroup limits an upstream's largest group. A subscription that starts at the largest possible
// group would never receive anything.
const maxGroup = 1<<62 - 1<<32

// maxProperties limits the size of a track's properties in bytes. The relay keeps them as long as the
// track.
const maxProperties = 16 << 10

// checkTrack rejects a publisher's track parameters that no subscriber could use.
func checkTrack(largest *moqt.Location, props moqt.Properties) error {
	switch {
	case largest != nil && largest.Group > maxGroup:
		return &moqt.RequestError{Code: wire.RequestMalformedTrack, Reason: "the track's largest group is too large"}
	case len(props) > maxProperties:
		return &moqt.RequestError{Code: wire.RequestExcessiveLoad, Reason: "the track's properties are too large"}
	}
	return nil
}

// errClosed refuses requests from a session that has ended.
var errClosed = &moqt.RequestError{Code: wire.RequestUnauthorized, Reason: "the session is closed"}

// allow checks the session's own grants and the given tokens, and returns the grant that allows the
// action, or nil without authentication. A closed session is allowed nothing.
func (c *client) allow(action auth.Action, name moqt.TrackName, tokens []wire.Token) (*auth.Grant, error) {
	if c.s.Err() != nil {
		return nil, errClosed
	}
	if err := c.r.checkBlocked(name.Namespace); err != nil {
		return nil, err
	}
	if c.relay && action == auth.Subscribe && name.Name != "" && !c.servesRelays(name) {
		return nil, unreachable(name)
	}
	if c.access == nil {
		return nil, nil
	}
	g, err := c.access.Allow(action, authorizedAs(name), tokens)
	if err != nil {
		c.r.log.Debug("request not allowed",
			"name", truncated(name.String()), "peer", c.s.RemoteAddr().String(), "err", truncated(err.Error()))
		return nil, err
	}
	if action == auth.Publish {
		c.r.mu.Lock()
		if c.subject == "" { // the session authenticates through its requests
			c.subject = g.Subject
		}
		c.r.mu.Unlock()
	}
	return g, nil
}

// authorization is the grant of a live request. A token in an update of the request replaces it
// (§10.2.2).
type authorization struct {
	mu      sync.Mutex
	grant   *auth.Grant // nil without authentication
	stop    func() bool // stops watching the grant
	revokes map[uint64]func(why error)
	next    uint64
}

// authorize checks a long-lived request. Tokens in its updates renew the authorization.
func (c *client) authorize(req *moqt.Request, action auth.Action, name moqt.TrackName) (*authorization, error) {
	g, err := c.allow(action, name, req.Tokens)
	if err != nil {
		return nil, err
	}
	p := &authorization{grant: g, revokes: map[uint64]func(error){}}
	if g != nil {
		req.Renewed(func(tokens []wire.Token) error {
			next, err := c.allow(action, name, tokens)
			if err == nil {
				p.renew(next)
			}
			return err
		})
	}
	return p, nil
}

// onRevoke calls revoke when the grant ends, unless stop is called first.
func (p *authorization) onRevoke(revoke func(why error)) (stop func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next++
	id := p.next
	p.revokes[id] = revoke
	p.watch()
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.revokes, id)
		p.watch()
	}
}

// watch watches the current grant while there are callbacks. The caller holds p.mu.
func (p *authorization) watch() {
	if p.stop != nil {
		p.stop()
		p.stop = nil
	}
	g := p.grant
	if g == nil || len(p.revokes) == 0 {
		return
	}
	p.stop = context.AfterFunc(g.Context(), func() {
		p.mu.Lock()
		revokes := p.revokes
		if p.grant != g {
			revokes = nil
		} else {
			p.revokes = map[uint64]func(error){}
		}
		p.mu.Unlock()
		for _, revoke := range revokes {
			revoke(context.Cause(g.Context()))
		}
	})
}

// renew replaces the grant.
func (p *authorization) renew(g *auth.Grant) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.grant = g
	p.watch()
}

// checkPublish rejects tracks and namespaces that the peer may not publish, whatever its authorization.
func (c *client) checkPublish(name moqt.TrackName) error {
	if c.relay {
		return &moqt.RequestError{Code: wire.RequestUnauthorized, Reason: "relays do not publish at other relays"}
	}
	if isRecording(name.Namespace) && fromViewers(name) {
		return nil
	}
	return checkReserved(name.Namespace)
}

// checkReserved rejects namespaces reserved for the relay.
func checkReserved(ns moqt.Namespace) error {
	switch {
	case len(ns) == 0:
		return &moqt.RequestError{Code: wire.RequestUnauthorized, Reason: "the empty namespace cannot be published"}
	case ns[0] == clock.Namespace:
		reason := clock.Namespace + " is reserved for the relay"
		return &moqt.RequestError{Code: wire.RequestUnauthorized, Reason: reason}
	case isRecording(ns):
		reason := "sessions whose name begins with " + recordings + " are reserved for the relay's recordings"
		return &moqt.RequestError{Code: wire.RequestUnauthorized, Reason: reason}
	}
	return nil
}

// errTaken refuses a namespace that has an owner. It invites the publisher to retry, since the
// owner may leave.
var errTaken = &moqt.RequestError{
	Code: wire.RequestUninterested, Reason: "another publisher has the namespace",
	RetryInterval: wire.RetryAfter(2 * time.Second),
}

// fromViewers reports whether viewers publish this track in the publisher's namespace.
func fromViewers(name moqt.TrackName) bool {
	return strings.HasPrefix(name.Name, connect.ReceiptsPrefix)
}

// same reports whether two upstreams have the same identity. The caller holds r.mu.
func (r *Router) same(a, b Upstream) bool {
	if a == b || yielded(a) || yielded(b) {
		return true
	}
	x, y := r.subject(a), r.subject(b)
	return x != "" && x == y
}

// yielded reports whether an upstream is a process that has given up its namespaces. The caller holds r.mu.
func yielded(up Upstream) bool {
	p, ok := up.(peer)
	return ok && p.c.yielded
}

// drains reports whether the process at the other end of a bridge drains.
func (c *client) drains(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, aliveTimeout)
	defer cancel()
	_, _, err := c.s.TrackStatus(ctx, drainTrack)
	return err == nil
}

// subject returns the authenticated identity of an upstream, or "" if it has none. The caller holds
// r.mu.
func (r *Router) subject(up Upstream) string {
	p, ok := up.(peer)
	if !ok {
		return ""
	}
	if _, open := r.clients[p.c]; !open {
		return ""
	}
	return p.c.subject
}

// otherOwner returns an upstream with an identity other than up's that owns the namespace, a prefix
// of it or a namespace below it, or nil if there is none. The caller holds r.mu.
func (r *Router) otherOwner(ns moqt.Namespace, up Upstream) Upstream {
	if r.cfg().Backups {
		return nil
	}
	for _, overlapping := range []iter.Seq[*offer]{r.offersAt.above(ns), r.offersUnder.under(ns)} {
		for o := range overlapping {
			if !r.same(o.up, up) {
				return o.up
			}
		}
	}
	for t := range r.tracksUnder.under(ns) {
		if !fromViewers(t.Name()) {
			if other := t.otherPublisher(up); other != nil {
				return other
			}
		}
	}
	return nil
}

// otherTrackOwner returns an upstream with an identity other than up's that owns the track, or nil
// if there is none. The caller holds r.mu.
func (r *Router) otherTrackOwner(name moqt.TrackName, up Upstream) Upstream {
	if r.cfg().Backups {
		return nil
	}
	if !fromViewers(name) {
		for o := range r.offersAt.above(name.Namespace) {
			if !r.same(o.up, up) {
				return o.up
			}
		}
	}
	if t := r.tracks[name.String()]; t != nil {
		return t.otherPublisher(up)
	}
	return nil
}

// otherPublisher returns a publisher of the track whose identity differs from up's. The caller
// holds r.mu.
func (t *track) otherPublisher(up Upstream) Upstream {
	t.mu.Lock()
	defer t.mu.Unlock()
	for other := range t.pubs {
		if !t.r.same(other, up) {
			return other
		}
	}
	return nil
}

// takeOwnership calls take if find returns no other owner of a namespace. If the other owner responds, it
// returns errTaken, unless the owner is a process that drains. Otherwise it closes that owner's connection,
// withdraws its namespaces and tries again.
func (r *Router) takeOwnership(ctx context.Context, ns moqt.Namespace, find func() Upstream, take func()) error {
	for {
		r.mu.Lock()
		other := find()
		if other == nil {
			take()
			r.mu.Unlock()
			return nil
		}
		r.mu.Unlock()
		if c, ok := other.(Claimant); ok && !c.Alive(ctx) && ctx.Err() == nil {
			r.log.Info("took over a namespace", "namespace", truncated(ns.String()), "upstream", other.String())
			r.displace(ns, other)
			continue
		}
		p, ok := other.(peer)
		if ok && p.c.bridge && p.c.drains(ctx) {
			r.mu.Lock()
			p.c.yielded = true
			r.mu.Unlock()
			continue
		}
		if !ok || p.c.s.Alive(ctx, aliveTimeout) {
			return errTaken
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		r.log.Info("replaced an unresponsive publisher", "peer", other.String())
		p.c.s.Close(wire.NoError, "unresponsive and replaced by another publisher")
		r.disown(p)
	}
}

// displace withdraws an upstream's offers of a namespace, prefixes of it and namespaces below it.
func (r *Router) displace(ns moqt.Namespace, up Upstream) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for o := range r.offers {
		if o.up == up && (ns.HasPrefix(o.ns) || o.ns.HasPrefix(ns)) {
			r.withdraw(o)
		}
	}
}

// Evict ends the claims of this relay's publishers to a namespace.
func (r *Router) Evict(ns moqt.Namespace, reason string) {
	r.mu.Lock()
	var list []*offer
	for o := range r.offersAt.get(ns) {
		if o.revoke != nil {
			list = append(list, o)
		}
	}
	r.mu.Unlock()
	for _, o := range list {
		o.revoke(errors.New(reason))
	}
}

// disown removes everything that a closed session published.
func (r *Router) disown(p peer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for o := range r.offers {
		if o.up == p {
			r.withdraw(o)
		}
	}
	for _, t := range r.tracks {
		t.mu.Lock()
		delete(t.pubs, p)
		t.mu.Unlock()
	}
}

// revoke cancels the relay's subscriptions at an upstream under a namespace in which it may no
// longer publish.
func (r *Router) revoke(ns moqt.Namespace, up Upstream, why error) {
	r.mu.Lock()
	var subs []*moqt.Subscription
	for t := range r.tracksUnder.under(ns) {
		t.mu.Lock()
		if sub := t.upstreams[up]; sub != nil && !t.pubs[up] {
			subs = append(subs, sub)
		}
		t.mu.Unlock()
	}
	r.mu.Unlock()
	r.log.Info("publisher's authorization ended",
		"namespace", truncated(ns.String()), "peer", up.String(), "reason", reason(why))
	for _, sub := range subs {
		sub.Cancel()
	}
}

// streamCode returns the code for ending a request whose grant ended.
func streamCode(why error) wire.StreamCode {
	if auth.DoneCode(why) == wire.DoneExpired {
		return wire.StreamExpiredAuthToken
	}
	return wire.StreamCancelled
}

// maxLogged limits peer-controlled text in a log line, in bytes.
const maxLogged = 256

// truncated shortens peer-controlled text for a log line.
func truncated(s string) string {
	if len(s) <= maxLogged {
		return s
	}
	return strings.ToValidUTF8(s[:maxLogged], "") + "…"
}

// reason returns an error's text for a log line, or "" for nil.
func reason(err error) string {
	if err == nil {
		return ""
	}
	return truncated(err.Error())
}
