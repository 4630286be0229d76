package rest

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"holocast/netfunc/api"
)

// Auth says who may call. Where nothing is set anybody may, from this machine.
type Auth struct {
	Token     string // of operators and edges
	EdgeToken string // of edges alone; "" = there is none
	// ClientCertificates tells that the TLS listener verifies certificates of
	// clients; a verified one stands for a token.
	ClientCertificates bool
	// Operators are the common names of the certificates that may make all calls;
	// others are edges, each of which may speak for the edge of its name alone.
	// Empty: every certificate may make all calls.
	Operators []string
}

// minToken is the length of the shortest token taken, bytes.
const minToken = 16

// ReadToken reads a token file: one word of at least 16 bytes.
func ReadToken(path string) (string, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("token: %w", err)
	}
	token := strings.TrimSpace(string(b))
	if len(token) < minToken || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", fmt.Errorf("token %s: want one word of at least %d ASCII characters", path, minToken)
	}
	return token, nil
}

// Open tells that no credentials are set up.
func (a Auth) Open() bool { return a.Token == "" && !a.ClientCertificates }

// admit returns nil if the request may use a route that needs who.
func (s *Server) admit(who access, r *http.Request) *api.Problem {
	a := s.conf.Auth
	if who == open {
		return nil
	}
	if a.Open() {
		// Only this machine can reach the listener, but a page of another site in a
		// browser of this machine could, by a name that it lets point here.
		if !local(r.Host) {
			return &api.Problem{Status: http.StatusForbidden, Detail: "without a token the controller answers only as localhost"}
		}
		return nil
	}
	var refused *api.Problem
	if name, ok := certified(r); ok && a.ClientCertificates {
		if refused = a.admitCertificate(name, who, r); refused == nil {
			return nil
		}
	}
	token := bearer(r)
	switch {
	case a.operates(token):
		return nil
	case a.EdgeToken != "" && equal(token, a.EdgeToken):
		if who == edges {
			return nil
		}
		return &api.Problem{Status: http.StatusForbidden, Detail: "an edge's token does not allow this call"}
	}
	if refused != nil && token == "" {
		return refused
	}
	if !s.failing.allow(caller(r), time.Now()) {
		return &api.Problem{Status: http.StatusTooManyRequests, Detail: "too many attempts with a wrong token"}
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

// bearer is the token of a request, "" without one.
func bearer(r *http.Request) string {
	word, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(word, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// operates tells whether token is the operators'.
func (a Auth) operates(token string) bool { return a.Token != "" && equal(token, a.Token) }

// certified is the common name of the client's certificate, if it has been verified.
func certified(r *http.Request) (string, bool) {
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {
		return "", false
	}
	return r.TLS.PeerCertificates[0].Subject.CommonName, true
}

// admitCertificate returns nil if the holder of the certificate name may make the call.
func (a Auth) admitCertificate(name string, who access, r *http.Request) *api.Problem {
	if len(a.Operators) == 0 || slices.Contains(a.Operators, name) {
		return nil
	}
	if who != edges {
		return &api.Problem{Status: http.StatusForbidden, Detail: fmt.Sprintf("certificate %q is not one of auth.operators", name)}
	}
	if edge := r.PathValue("name"); edge != "" && edge != name {
		return speaksFor(name, edge)
	}
	return nil
}

// speaksFor is the answer to an edge that speaks for another.
func speaksFor(name, edge string) *api.Problem {
	return &api.Problem{Status: http.StatusForbidden, Detail: fmt.Sprintf("certificate %q does not speak for edge %.80q", name, edge)}
}

// mayBe tells whether the caller may say hello as edge.
func (a Auth) mayBe(edge string, r *http.Request) *api.Problem {
	name, ok := certified(r)
	if !ok || !a.ClientCertificates || len(a.Operators) == 0 || slices.Contains(a.Operators, name) || name == edge || a.operates(bearer(r)) {
		return nil
	}
	return speaksFor(name, edge)
}

// equal compares in a time that tells nothing of the token, nor of its length.
func equal(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

// local tells whether a Host header names this machine.
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

// caller is the address that a request comes from; of IPv6 the /64, which one host
// has to itself.
func caller(r *http.Request) netip.Addr {
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

// String says what is asked of callers.
func (a Auth) String() string {
	switch {
	case a.Open():
		return "none, this machine only"
	case a.Token == "":
		return "client certificate"
	case a.ClientCertificates:
		return "token or client certificate"
	}
	return "token"
}
