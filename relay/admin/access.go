package admin

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"holocast/internal/filestate"
	"holocast/internal/pairing"
	"holocast/internal/secretfile"
)

// minToken is the smallest length of a token, in bytes.
const minToken = 20

// Limits of wrong tokens.
const (
	perMinute  = 10   // of an address (in IPv6 of a /64)
	maxGuesser = 4096 // addresses remembered
)

// Access decides who may use the API.
type Access struct {
	file string // of tokens; "" for none
	log  *slog.Logger

	mu     sync.Mutex
	state  filestate.State
	tokens [][32]byte // SHA-256
	minute time.Time  // of wrong
	wrong  map[netip.Prefix]int
}

// NewAccess returns an Access for the tokens in a file, one per line. A changed file is read again. Without a
// file, requests from this machine may read, and none may act.
func NewAccess(file string, log *slog.Logger) (*Access, error) {
	a := &Access{file: file, log: log, wrong: map[netip.Prefix]int{}}
	if file == "" {
		return a, nil
	}
	a.state = filestate.Of(file)
	var err error
	if a.tokens, err = readTokens(file); err != nil {
		return nil, fmt.Errorf("adminToken: %w", err)
	}
	return a, nil
}

func readTokens(file string) (tokens [][32]byte, err error) {
	b, err := secretfile.Read(file)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(b)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if len(line) < minToken {
			return nil, fmt.Errorf("%s: a token has at least %d characters; openssl rand -hex 32 generates one", file, minToken)
		}
		tokens = append(tokens, sha256.Sum256([]byte(line)))
	}
	if tokens == nil {
		return nil, fmt.Errorf("%s has no token; openssl rand -hex 32 generates one", file)
	}
	return tokens, nil
}

// Protect lets through the requests that may use h.
func (a *Access) Protect(h http.Handler) http.Handler {
	foreign := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("Cache-Control", "no-store")
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("Cross-Origin-Resource-Policy", "same-origin")
		if err := foreign.Check(r); err != nil {
			problem(w, http.StatusForbidden, "pages of other origins may not act: "+err.Error())
			return
		}
		if r.URL.Path == Base+"openapi.json" {
			h.ServeHTTP(w, r)
			return
		}
		if status, why := a.check(r); status != http.StatusOK {
			if status == http.StatusUnauthorized {
				header.Set("WWW-Authenticate", `Bearer realm="relay"`)
			}
			problem(w, status, why)
			return
		}
		h.ServeHTTP(w, r.WithContext(WithActor(r.Context(), r.RemoteAddr)))
	})
}

// check returns StatusOK if a request may use the API.
func (a *Access) check(r *http.Request) (status int, why string) {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	given := strings.EqualFold(scheme, "Bearer")
	local := pairing.FromThisMachine(r)
	reads := r.Method == http.MethodGet || r.Method == http.MethodHead
	switch {
	case a.file == "" && local && reads:
		return http.StatusOK, ""
	case a.file == "":
		return http.StatusUnauthorized, "without the setting adminToken, only this machine may read, and only " +
			"commands such as relay kick may act"
	case !given:
		return http.StatusUnauthorized, "a token of the file adminToken is needed (Authorization: Bearer TOKEN)"
	case r.TLS == nil && !fromLoopback(r):
		return http.StatusForbidden, "others could read the token; use https://"
	}
	from := pairing.Prefix(r.RemoteAddr)
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	if now.Sub(a.minute) >= time.Minute || len(a.wrong) >= maxGuesser {
		a.minute = now
		clear(a.wrong)
	}
	if a.wrong[from] >= perMinute {
		return http.StatusTooManyRequests, "too many wrong tokens; try again in a minute"
	}
	if a.knows(token) {
		return http.StatusOK, ""
	}
	if a.wrong[from]++; a.wrong[from] == 1 {
		a.log.Warn("admin: wrong token", "peer", r.RemoteAddr)
	}
	return http.StatusUnauthorized, "the token is not in the file adminToken"
}

// knows reports whether a token is in the file, which it reads again if it has changed. If that fails,
// the earlier tokens stay valid. The caller holds a.mu.
func (a *Access) knows(token string) bool {
	if state := filestate.Of(a.file); state != a.state {
		a.state = state
		if tokens, err := readTokens(a.file); err != nil {
			a.log.Error("admin: the earlier tokens stay valid", "err", err)
		} else {
			a.tokens = tokens
		}
	}
	sum, found := sha256.Sum256([]byte(token)), 0
	for _, t := range a.tokens {
		found |= subtle.ConstantTimeCompare(sum[:], t[:])
	}
	return found == 1
}

// fromLoopback reports whether a request's connection comes from this machine.
func fromLoopback(r *http.Request) bool {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	ip := net.ParseIP(host)
	return err == nil && ip != nil && ip.IsLoopback()
}
