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

// QueryParameter is the parameter of a session's URL that carries a token, for those who
// cannot send it in SETUP.
const QueryParameter = "token"

// maxGrants bounds the different tokens of one session.
const maxGrants = 64

// Action is what a session asks to do in a namespace.
type Action int

// The actions.
const (
	Subscribe Action = iota // receive tracks, or hear of them
	Publish
)

// Session is what one session may do.
type Session struct {
	a *Authority
	// own is what the session itself proved: by its SETUP, its URL or its certificate.
	own []*Grant

	mu     sync.Mutex
	byText map[string]*Grant // of tokens of requests, too; nil once closed
}

// Open verifies what a session proves of itself. An error is a *moqt.SessionError with
// which to close the session. A session that proves nothing is given what everybody may
// do. Close it at its end.
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
			continue // of a kind that this relay knows nothing of
		}
		if err := add(x.token(string(t.Value))); err != nil {
			return nil, err
		}
	}
	return x, nil
}

// tokenOf is the token in the path and query of a session's URL.
func tokenOf(path string) string {
	_, query, _ := strings.Cut(path, "?")
	values, err := url.ParseQuery(query)
	if err != nil {
		return ""
	}
	return values.Get(QueryParameter)
}

// token verifies a token once a session.
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
	g, err := x.a.token(raw)
	if err == nil {
		x.byText[raw] = g
	}
	return g, err
}

// MayStay reports whether the session has proved anything so far, or may do something
// without.
func (x *Session) MayStay() bool {
	everybody := x.everybody()
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.own) > 0 || len(x.byText) > 0 || !everybody.none()
}

// Subject is who the session has proved to be, "" for nobody.
func (x *Session) Subject() string {
	if len(x.own) == 0 {
		return ""
	}
	return x.own[0].Subject
}

// everybody is what everybody may do.
func (x *Session) everybody() *Grant {
	x.a.mu.Lock()
	defer x.a.mu.Unlock()
	return x.a.anonymous
}

// Ended is closed when everything that the session itself proved has ended; the error
// says why. It is nil for a session that proved nothing.
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

// Renewed reports whether something that the session proved, by a token of a request perhaps,
// is valid still.
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

// Allow says by which grant the session may act on a track, or on a namespace where
// its name is "". tokens are those of the request. An error is a *moqt.RequestError.
//
// Whoever publishes in a namespace may subscribe there, and whoever watches may send
// receipts.
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
	var best *Grant // the one that lasts longest
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
		return nil, &moqt.RequestError{Code: wire.RequestUnauthorized, Reason: "the token does not allow publishing there"}
	}
	return nil, &moqt.RequestError{Code: wire.RequestUnauthorized, Reason: "the token does not allow subscribing there"}
}

func (r rights) allow(action Action, track moqt.TrackName) bool {
	publish, subscribe := r.publish.cover(track.Namespace), r.subscribe.cover(track.Namespace)
	if action == Subscribe {
		return publish || subscribe
	}
	return publish || subscribe && strings.HasPrefix(track.Name, connect.ReceiptsPrefix)
}

// Close releases what the session was granted.
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

// sessionCode is the code to close a session with (§3.5).
func sessionCode(err error) wire.SessionCode {
	switch {
	case errors.Is(err, ErrMalformed):
		return wire.MalformedAuthToken
	case errors.Is(err, ErrExpired):
		return wire.ExpiredAuthToken
	}
	return wire.Unauthorized
}

// requestCode is the code to refuse a request with (§10.6).
func requestCode(err error) wire.RequestCode {
	switch {
	case errors.Is(err, ErrMalformed):
		return wire.RequestMalformedAuthToken
	case errors.Is(err, ErrExpired):
		return wire.RequestExpiredAuthToken
	}
	return wire.RequestUnauthorized
}

// DoneCode is the code to end a subscription with when its grant has ended (§10.11).
func DoneCode(err error) wire.DoneCode {
	if errors.Is(err, ErrExpired) {
		return wire.DoneExpired
	}
	return wire.DoneUnauthorized
}
