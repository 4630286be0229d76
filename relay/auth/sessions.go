package auth

import (
	"crypto/sha256"
	"errors"
	"maps"
)

// ErrSessions means that a token has as many sessions as Config.SessionsPerToken allows.
var ErrSessions = errors.New("the token has as many sessions as auth.sessionsPerToken allows")

// TokenID identifies a token: by its issuer and ID (jti), or by all of its text if it has no ID.
type TokenID [16]byte

// tokenID returns the ID of a token with these claims.
func (c *Claims) tokenID(raw string) (id TokenID) {
	text := "token\x00" + raw
	if c.ID != "" {
		text = "id\x00" + c.Issuer + "\x00" + c.ID
	}
	sum := sha256.Sum256([]byte(text))
	copy(id[:], sum[:])
	return id
}

// holders are the sessions of each token.
type holders struct {
	here      map[TokenID]map[*Session]int // number of grants
	elsewhere map[TokenID]uint64           // sessions at other relays
	version   uint64                       // counts changes of here and of the limit
}

// full reports whether a token has too many sessions for another one, x. The caller holds a.mu.
func (a *Authority) full(id TokenID, x *Session) bool {
	here := a.holders.here[id]
	_, holds := here[x]
	limit := uint64(a.cfg.SessionsPerToken)
	return limit > 0 && !holds && uint64(len(here))+a.holders.elsewhere[id] >= limit
}

// hold counts a grant. The caller holds a.mu.
func (h *holders) hold(g *Grant) {
	if g.holder == nil {
		return
	}
	if h.here == nil {
		h.here = map[TokenID]map[*Session]int{}
	}
	if h.here[g.token] == nil {
		h.here[g.token] = map[*Session]int{}
	}
	h.here[g.token][g.holder]++
	h.version++
}

// release reverts hold. The caller holds a.mu.
func (h *holders) release(g *Grant) {
	if g.holder == nil {
		return
	}
	sessions := h.here[g.token]
	if sessions[g.holder]--; sessions[g.holder] == 0 {
		delete(sessions, g.holder)
	}
	if len(sessions) == 0 {
		delete(h.here, g.token)
	}
	h.version++
}

// Sessions returns the number of sessions of each token, or none without Config.SessionsPerToken. version changes
// whenever the result may have changed; the result is nil while version is known. 0 is no version.
func (a *Authority) Sessions(known uint64) (sessions map[TokenID]uint64, version uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	version = a.holders.version
	if version == known {
		return nil, known
	}
	sessions = map[TokenID]uint64{}
	if a.cfg.SessionsPerToken > 0 {
		for id, all := range a.holders.here {
			sessions[id] = uint64(len(all))
		}
	}
	return sessions, version
}

// CountToo sets how many sessions tokens have at other relays. It leaves tokens that are not in sessions unchanged.
func (a *Authority) CountToo(sessions map[TokenID]uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.holders.elsewhere == nil {
		a.holders.elsewhere = map[TokenID]uint64{}
	}
	maps.Copy(a.holders.elsewhere, sessions)
	maps.DeleteFunc(a.holders.elsewhere, func(_ TokenID, n uint64) bool { return n == 0 })
}
