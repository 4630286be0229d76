package router

import (
	"context"
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

// Who may do what, and whose a namespace is.

// unprovenFor is how long a session that may do nothing yet has to show a token.
const unprovenFor = 10 * time.Second

// silence is how long a publisher has to show a sign of life when another one asks for its
// namespace. It is longer than the peers' keep-alive period.
const silence = 2 * time.Second

// maxGroup bounds the group that an upstream says is its largest, so that there is room
// for more: a subscription from there on would wait for good.
const maxGroup = 1<<62 - 1<<32

// maxProperties bounds a track's properties, bytes: they are kept as long as the track.
const maxProperties = 16 << 10

// sane refuses what a publisher says of a track where nobody could make use of it.
func sane(largest *moqt.Location, props moqt.Properties) error {
	switch {
	case largest != nil && largest.Group > maxGroup:
		return &moqt.RequestError{Code: wire.RequestMalformedTrack, Reason: "the track's largest group leaves no room for another"}
	case len(props) > maxProperties:
		return &moqt.RequestError{Code: wire.RequestExcessiveLoad, Reason: "the track has too many properties"}
	}
	return nil
}

// allow checks that a request may be made and returns by which grant; nil where anything
// is allowed.
func (r *Router) allow(req *moqt.Request, action auth.Action, name moqt.TrackName) (*auth.Grant, error) {
	return r.allowBy(req, action, name, req.Tokens)
}

// allowBy is allow by tokens that came otherwise than with the request.
func (r *Router) allowBy(req *moqt.Request, action auth.Action, name moqt.TrackName, tokens []wire.Token) (*auth.Grant, error) {
	r.mu.Lock()
	c := r.sessions[req.Session()]
	r.mu.Unlock()
	if c == nil || c.access == nil {
		return nil, nil
	}
	g, err := c.access.Allow(action, name, tokens)
	if err != nil {
		r.log.Debug("request not allowed", "name", abridged(name.String()), "peer", req.Session().RemoteAddr().String(), "err", abridged(err.Error()))
		return nil, err
	}
	if action == auth.Publish {
		r.mu.Lock()
		if c.subject == "" { // it proves itself by its requests
			c.subject = g.Subject
		}
		r.mu.Unlock()
	}
	return g, nil
}

// permit is by what a request may go on: a grant, until a token in an update of the request
// brings another one (§10.2.2).
type permit struct {
	mu      sync.Mutex
	grant   *auth.Grant // nil = none is needed
	stop    func() bool // of watching it
	revokes map[uint64]func(why error)
	next    uint64
}

// permit is allow for a request that goes on: tokens in its updates renew what allow returns.
func (r *Router) permit(req *moqt.Request, action auth.Action, name moqt.TrackName) (*permit, error) {
	g, err := r.allow(req, action, name)
	if err != nil {
		return nil, err
	}
	p := &permit{grant: g, revokes: map[uint64]func(error){}}
	if g != nil {
		req.Renewed(func(tokens []wire.Token) error {
			next, err := r.allowBy(req, action, name, tokens)
			if err == nil {
				p.renew(next)
			}
			return err
		})
	}
	return p, nil
}

// during calls revoke once the permit has ended, unless stop is called before.
func (p *permit) during(revoke func(why error)) (stop func()) {
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

// watch waits for the grant to end while somebody wants to know. p.mu is held.
func (p *permit) watch() {
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

// renew lets the request go on by another grant.
func (p *permit) renew(g *auth.Grant) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.grant = g
	p.watch()
}

// reserved refuses namespaces that nobody but the relay has.
func reserved(ns moqt.Namespace) error {
	switch {
	case len(ns) == 0:
		return &moqt.RequestError{Code: wire.RequestUnauthorized, Reason: "the empty namespace is everybody's"}
	case ns[0] == clock.Namespace:
		return &moqt.RequestError{Code: wire.RequestUnauthorized, Reason: clock.Namespace + " is the relay's namespace"}
	}
	return nil
}

// errTaken refuses a namespace that has an owner. The publisher may ask again: the owner may
// leave.
var errTaken = &moqt.RequestError{Code: wire.RequestUninterested, Reason: "another publisher has the namespace", RetryInterval: wire.RetryAfter(2 * time.Second)}

// contributed reports whether a track comes from viewers, in the namespace of a publisher.
func contributed(name moqt.TrackName) bool {
	return strings.HasPrefix(name.Name, connect.ReceiptsPrefix)
}

// same reports whether two upstreams are one identity's. r.mu is held.
func (r *Router) same(a, b Upstream) bool {
	if a == b {
		return true
	}
	x, y := r.subject(a), r.subject(b)
	return x != "" && x == y
}

// subject is the identity that an upstream has proved, "" for none. r.mu is held.
func (r *Router) subject(up Upstream) string {
	if p, ok := up.(peer); ok && r.sessions[p.s] != nil {
		return r.sessions[p.s].subject
	}
	return ""
}

// owner is an upstream of another identity than up that has the namespace, a part of it or
// one that it is a part of; nil when there is none. r.mu is held.
func (r *Router) owner(ns moqt.Namespace, up Upstream) Upstream {
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
		if !contributed(t.Name()) {
			if other := t.publisherBut(up); other != nil {
				return other
			}
		}
	}
	return nil
}

// trackOwner is an upstream of another identity than up to which a track belongs. r.mu is
// held.
func (r *Router) trackOwner(name moqt.TrackName, up Upstream) Upstream {
	if r.cfg().Backups {
		return nil
	}
	if !contributed(name) {
		for o := range r.offersAt.above(name.Namespace) {
			if !r.same(o.up, up) {
				return o.up
			}
		}
	}
	if t := r.tracks[name.String()]; t != nil {
		return t.publisherBut(up)
	}
	return nil
}

// publisherBut is a publisher of the track with another identity than up. r.mu is held.
func (t *track) publisherBut(up Upstream) Upstream {
	t.mu.Lock()
	defer t.mu.Unlock()
	for other := range t.pubs {
		if !t.r.same(other, up) {
			return other
		}
	}
	return nil
}

// claim calls take once nobody else owns what find looks for. An owner that shows no sign
// of life is taken for dead: its connection is closed, and what it had is free.
func (r *Router) claim(ctx context.Context, find func() Upstream, take func()) error {
	for {
		r.mu.Lock()
		other := find()
		if other == nil {
			take()
			r.mu.Unlock()
			return nil
		}
		r.mu.Unlock()
		p, ok := other.(peer)
		if !ok || p.s.Alive(ctx, silence) {
			return errTaken
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		r.log.Info("a publisher is silent and another one takes its place", "peer", other.String())
		p.s.Close(wire.NoError, "silent while another publisher came")
		r.disown(p)
	}
}

// disown takes back all that a session that has ended published.
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

// revoke takes back what an upstream publishes under a namespace that it may no longer
// publish in.
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
	r.log.Info("publisher's permission ended", "namespace", abridged(ns.String()), "peer", up.String(), "reason", reason(why))
	for _, sub := range subs {
		sub.Cancel()
	}
}

// streamCode is the code to end a request with whose grant has ended.
func streamCode(why error) wire.StreamCode {
	if auth.DoneCode(why) == wire.DoneExpired {
		return wire.StreamExpiredAuthToken
	}
	return wire.StreamCancelled
}

// maxLogged bounds what a log line has of text that a peer chose, bytes.
const maxLogged = 256

// abridged is text that a peer chose, for a log line.
func abridged(s string) string {
	if len(s) <= maxLogged {
		return s
	}
	return strings.ToValidUTF8(s[:maxLogged], "") + "…"
}

// reason is why something ended, for a log line; a regular end has none.
func reason(err error) string {
	if err == nil {
		return ""
	}
	return abridged(err.Error())
}
