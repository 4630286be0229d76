package rest

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"holocast/internal/secretfile"
	"holocast/netfunc/api"
)

// Auth defines who may call. The zero value admits everybody on this machine.
type Auth struct {
	Token string // the token of operators, who may make all calls and act as any edge
	// Edges holds tokens by edge name. Each allows reports as that edge.
	Edges map[string]string
	// EdgeToken is valid for every edge not in Edges; "" means no such token.
	EdgeToken string
	// ClientCertificates is true if the TLS listener verifies client certificates. A verified
	// certificate replaces a token.
	ClientCertificates bool
	// Operators are the common names of certificates that allow all calls. Any other certificate
	// allows reports as the edge of its common name.
	Operators []string
}

// minToken is the minimum length of a token in bytes.
const minToken = 16

// ReadToken reads a token file, which holds one word of at least 16 bytes and which other users may not read.
func ReadToken(path string) (string, error) {
	b, err := secretfile.Read(path)
	if err != nil {
		return "", fmt.Errorf("token: %w", err)
	}
	token := strings.TrimSpace(string(b))
	if len(token) < minToken || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", fmt.Errorf("token %s: want one word of at least %d ASCII characters", path, minToken)
	}
	return token, nil
}

// Validate returns an error if one token identifies several callers.
func (a Auth) Validate() error {
	whose := map[string]string{}
	if a.Token != "" {
		whose[a.Token] = "auth.token"
	}
	if _, same := whose[a.EdgeToken]; same && a.EdgeToken != "" {
		return errors.New("auth.edgeToken is the same token as auth.token: edges would be operators")
	}
	whose[a.EdgeToken] = "auth.edgeToken"
	for _, name := range slices.Sorted(maps.Keys(a.Edges)) {
		token, setting := a.Edges[name], "auth.edges."+name
		if other, same := whose[token]; same {
			return fmt.Errorf("%s is the same token as %s", setting, other)
		}
		whose[token] = setting
	}
	return nil
}

// Open reports whether no credentials are configured.
func (a Auth) Open() bool {
	return a.Token == "" && a.EdgeToken == "" && len(a.Edges) == 0 && !a.ClientCertificates
}

// admit returns nil if the request may use a route with access who.
func (s *Server) admit(who access, r *http.Request) *api.Problem {
	a := *s.auth.Load()
	if who == open {
		return nil
	}
	if a.Open() {
		// Only this machine can reach the listener, but so could a foreign web page in a local browser,
		// through a name that resolves to this address.
		if !local(r.Host) {
			return &api.Problem{
				Status: http.StatusForbidden,
				Detail: "without a token the controller answers only as localhost",
			}
		}
		return nil
	}
	callers, token := a.callers(r), bearer(r)
	refused := a.refused(callers, who, r.PathValue("name"))
	switch {
	case refused == nil && len(callers) > 0:
		return nil
	case refused != nil && (token == "" || a.knows(token)):
		return refused
	}
	if !s.failing.allow(bucketKey{from: address(r)}, time.Now()) {
		return &api.Problem{Status: http.StatusTooManyRequests, Detail: "too many attempts without a valid token"}
	}
	detail := "the bearer token is missing"
	if token != "" {
		detail = "the bearer token is wrong"
	}
	if a.ClientCertificates {
		detail += ", and there is no client certificate"
	}
	return &api.Problem{Status: http.StatusUnauthorized, Detail: detail}
}

// bearer returns the request's token, or "" if it has none.
func bearer(r *http.Request) string {
	word, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(word, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// certified returns the common name of the client's certificate, if verified.
func certified(r *http.Request) (string, bool) {
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {
		return "", false
	}
	return r.TLS.PeerCertificates[0].Subject.CommonName, true
}

// credential is a token or a certificate of a request.
type credential struct {
	what     string // for error messages
	operator bool   // valid for all calls
	shared   bool   // the common token of edges without a token of their own
	edge     string // otherwise the edge's name
}

// callers returns the valid credentials of a request.
func (a Auth) callers(r *http.Request) (out []credential) {
	if name, ok := certified(r); ok && a.ClientCertificates {
		out = append(out, credential{
			what:     fmt.Sprintf("certificate %q", name),
			operator: slices.Contains(a.Operators, name), edge: name,
		})
	}
	return append(out, a.tokens(bearer(r))...)
}

// caller returns the caller of a request to a route with access who.
func (a Auth) caller(who access, r *http.Request) (out Caller) {
	switch {
	case who == open:
		return Caller{}
	case a.Open() && who == operator:
		return Caller{Class: Operator}
	case a.Open():
		return Caller{Class: Edge}
	}
	for _, c := range a.callers(r) {
		if c.operator {
			return Caller{Class: Operator}
		}
		if out.Class = Edge; out.Edge == "" {
			out.Edge = c.edge
		}
	}
	return out
}

// tokens returns the credentials that a token stands for. It compares with every token, so the time
// does not reveal which one matched.
func (a Auth) tokens(token string) (out []credential) {
	if a.Token != "" && equal(token, a.Token) {
		out = append(out, credential{what: "the operators' token", operator: true})
	}
	for name, its := range a.Edges {
		if equal(token, its) {
			out = append(out, credential{what: fmt.Sprintf("the token of edge %q", name), edge: name})
		}
	}
	if a.EdgeToken != "" && equal(token, a.EdgeToken) {
		out = append(out, credential{what: "the edges' token", shared: true})
	}
	return out
}

// knows reports whether a token is valid.
func (a Auth) knows(token string) bool { return len(a.tokens(token)) > 0 }

// refused returns nil if the credential is valid for a route with access who and the named edge (""
// if the route has none).
func (c credential) refused(a Auth, who access, edge string) *api.Problem {
	switch {
	case c.operator:
		return nil
	case who != edges:
		return &api.Problem{Status: http.StatusForbidden, Detail: c.what + " does not allow this call: operators only"}
	case edge == "", c.edge != "" && c.edge == edge:
		return nil
	case !c.shared:
		return &api.Problem{Status: http.StatusForbidden, Detail: fmt.Sprintf("%s is not valid for edge %.80q", c.what,
			edge)}
	}
	if _, own := a.Edges[edge]; own {
		return &api.Problem{Status: http.StatusForbidden, Detail: fmt.Sprintf("edge %.80q must use its own token",
			edge)}
	}
	return nil
}

// refused returns nil if one of the credentials is valid for a route, or if there are none.
func (a Auth) refused(callers []credential, who access, edge string) (refused *api.Problem) {
	for _, c := range callers {
		if refused = c.refused(a, who, edge); refused == nil {
			return nil
		}
	}
	return refused
}

// mayBe returns nil if the caller of an admitted request may register as edge.
func (a Auth) mayBe(edge string, r *http.Request) *api.Problem {
	return a.refused(a.callers(r), edges, edge)
}

// equal compares in constant time, hiding token and length.
func equal(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

// local reports whether a Host header names this machine.
func local(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	if host == "localhost" {
		return true
	}
	a, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil && a.Unmap().IsLoopback()
}

// address returns a request's source address or, for IPv6, its /64, since one host may own a whole
// /64.
func address(r *http.Request) netip.Addr {
	ap, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	a := ap.Addr().Unmap()
	if a.Is4() {
		return a
	}
	p, _ := a.WithZone("").Prefix(64)
	return p.Addr()
}

// String describes the credentials required.
func (a Auth) String() string {
	switch {
	case a.Open():
		return "none, this machine only"
	case a.Token == "" && a.EdgeToken == "" && len(a.Edges) == 0:
		return "client certificate"
	case a.ClientCertificates:
		return "token or client certificate"
	}
	return "token"
}
