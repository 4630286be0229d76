package auth

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"strings"
	"sync"

	"holocast/internal/connect"
	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
)

// QueryParameter carries a token in the session's URL, for clients that cannot send it in SETUP.
const QueryParameter = "token"

// maxGrants limits the distinct tokens of a session.
const maxGrants = 64

// Action is a kind of access to a namespace.
type Action int

// Actions.
const (
	Subscribe Action = iota // subscribe to tracks and discover them
	Publish
)

// Session holds the grants of one session.
type Session struct {
	a *Authority
	// own holds the grants of the session itself, from SETUP, its URL or its certificate.
	own []*Grant

	mu     sync.Mutex
	byText map[string]*Grant // includes the tokens of requests; nil once closed
}

// Open verifies a session's credentials. The error is a *moqt.SessionError with which to close the
// session. A session without credentials has the anonymous rights. Close the result when the session
// ends.
func (a *Authority) Open(s *moqt.Session) (*Session, error) {
	x := &Session{a: a, byText: map[string]*Grant{}}
	add := func(g *Grant, err error) error {
		if err != nil {
			x.Close()
			return &moqt.SessionError{Code: sessionCode(err), Reason: err.Error()}
		}
		if g != nil {
			x.own = append(x.own, g)
		}
		return nil
	}
	if err := add(a.certificate(s.PeerCertificates())); err != nil {
		return nil, err
	}
	tokens := s.SetupTokens()
	if raw := tokenOf(s.Path()); raw != "" {
		tokens = append(tokens, wire.Token{AliasType: wire.TokenUseValue, Value: []byte(raw)})
	}
	for _, t := range tokens {
		if t.Type != 0 || t.AliasType == wire.TokenDelete || t.AliasType == wire.TokenUseAlias {
			continue // unsupported token type
		}
		if err := add(x.token(string(t.Value))); err != nil {
			return nil, err
		}
	}
	return x, nil
}

// tokenOf returns the token in the query of a session's URL.
func tokenOf(path string) string {
	_, query, _ := strings.Cut(path, "?")
	values, err := url.ParseQuery(query)
	if err != nil {
		return ""
	}
	return values.Get(QueryParameter)
}

// token verifies a token, once per session.
func (x *Session) token(raw string) (*Grant, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch g := x.byText[raw]; {
	case x.byText == nil:
		return nil, context.Canceled
	case g != nil && g.ctx.Err() != nil:
		return nil, context.Cause(g.ctx)
	case g != nil:
		return g, nil
	case len(x.byText) >= maxGrants:
		return nil, errors.New("too many tokens in one session")
	}
	g, err := x.a.token(x, raw)
	if err == nil {
		x.byText[raw] = g
	}
	return g, err
}

// MayStay reports whether the session has presented credentials or has anonymous rights.
func (x *Session) MayStay() bool {
	everybody := x.everybody()
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.own) > 0 || len(x.byText) > 0 || !everybody.none()
}

// Subject returns the authenticated identity, or "" if there is none.
func (x *Session) Subject() string {
	if len(x.own) == 0 {
		return ""
	}
	return x.own[0].Subject
}

// everybody returns the anonymous grant.
func (x *Session) everybody() *Grant {
	x.a.mu.Lock()
	defer x.a.mu.Unlock()
	return x.a.anonymous
}

// Ended returns a channel that receives the reason once all of the session's own grants have ended. It
// returns nil if the session has none.
func (x *Session) Ended() <-chan *moqt.SessionError {
	if len(x.own) == 0 {
		return nil
	}
	ended := make(chan *moqt.SessionError, 1)
	left := len(x.own)
	var mu sync.Mutex
	for _, g := range x.own {
		context.AfterFunc(g.ctx, func() {
			mu.Lock()
			defer mu.Unlock()
			if left--; left == 0 {
				why := context.Cause(g.ctx)
				ended <- &moqt.SessionError{Code: sessionCode(why), Reason: why.Error()}
			}
		})
	}
	return ended
}

// Renewed reports whether any grant of the session or its requests is still valid.
func (x *Session) Renewed() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, g := range x.byText {
		if g.ctx.Err() == nil {
			return true
		}
	}
	return slices.ContainsFunc(x.own, func(g *Grant) bool { return g.ctx.Err() == nil })
}

// Allow returns the grant that allows an action on a track, or on a namespace if the track's name is
// empty. tokens are the request's tokens. The error is a *moqt.RequestError.
//
// Publish rights include subscribing to the same namespaces, and subscribe rights include
// publishing receipts there.
func (x *Session) Allow(action Action, track moqt.TrackName, tokens []wire.Token) (*Grant, error) {
	var grants []*Grant
	for _, t := range tokens {
		if t.Type != 0 {
			continue
		}
		g, err := x.token(string(t.Value))
		if err != nil {
			return nil, &moqt.RequestError{Code: requestCode(err), Reason: err.Error()}
		}
		grants = append(grants, g)
	}
	grants = append(grants, x.own...)
	var best *Grant // with the latest expiry
	var ended error
	for _, g := range grants {
		switch {
		case !g.allow(action, track):
		case g.ctx.Err() != nil:
			ended = context.Cause(g.ctx)
		case best == nil || !best.expires.IsZero() && (g.expires.IsZero() || g.expires.After(best.expires)):
			best = g
		}
	}
	everybody := x.everybody()
	switch {
	case best != nil:
		return best, nil
	case everybody.allow(action, track):
		return everybody, nil
	case ended != nil:
		return nil, &moqt.RequestError{Code: requestCode(ended), Reason: ended.Error()}
	case len(grants) == 0:
		return nil, &moqt.RequestError{Code: wire.RequestUnauthorized, Reason: "a token is needed"}
	case action == Publish:
		return nil, &moqt.RequestError{
			Code:   wire.RequestUnauthorized,
			Reason: "the token does not allow publishing in this namespace",
		}
	}
	return nil, &moqt.RequestError{Code: wire.RequestUnauthorized, Reason: "the token does not allow subscribing in this namespace"}
}

func (r rights) allow(action Action, track moqt.TrackName) bool {
	publish, subscribe := r.publish.cover(track.Namespace), r.subscribe.cover(track.Namespace)
	if action == Subscribe {
		return publish || subscribe
	}
	return publish || subscribe && strings.HasPrefix(track.Name, connect.ReceiptsPrefix)
}

// Close ends the session's grants.
func (x *Session) Close() {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, g := range x.own {
		x.a.release(g)
	}
	for _, g := range x.byText {
		x.a.release(g)
	}
	x.byText = nil
}

// sessionCode returns the code for closing a session (§3.5).
func sessionCode(err error) wire.SessionCode {
	switch {
	case errors.Is(err, ErrMalformed):
		return wire.MalformedAuthToken
	case errors.Is(err, ErrExpired):
		return wire.ExpiredAuthToken
	case errors.Is(err, ErrSessions): // the peer may try again
		return wire.InternalError
	}
	return wire.Unauthorized
}

// requestCode returns the code for refusing a request (§10.6).
func requestCode(err error) wire.RequestCode {
	switch {
	case errors.Is(err, ErrMalformed):
		return wire.RequestMalformedAuthToken
	case errors.Is(err, ErrExpired):
		return wire.RequestExpiredAuthToken
	case errors.Is(err, ErrSessions):
		return wire.RequestExcessiveLoad
	}
	return wire.RequestUnauthorized
}

// DoneCode returns the code for ending a subscription whose grant ended (§10.11).
func DoneCode(err error) wire.DoneCode {
	if errors.Is(err, ErrExpired) {
		return wire.DoneExpired
	}
	return wire.DoneUnauthorized
}
