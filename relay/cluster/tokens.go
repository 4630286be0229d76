package cluster

import (
	"maps"
	"slices"
	"time"

	"holocast/relay/auth"
)

// Limits and times of the sessions of tokens.
const (
	// MaxTokens limits the tokens that one relay announces, and maxAllTokens all other relays' tokens together.
	MaxTokens    = 1 << 14
	maxAllTokens = 1 << 18
	// maxTokenSessions limits the sessions of a token at one relay, to keep sums from overflowing.
	maxTokenSessions = 1 << 32
	// repeatTokens is the interval between repetitions of a relay's announcements, since one may be lost.
	// Announcements that are not repeated in forgetTokens are void.
	repeatTokens = 2 * time.Second
	forgetTokens = 3 * repeatTokens
	// tokensPerPart limits the tokens of a message.
	tokensPerPart = 1 << 13
)

// TokenSessions is how many sessions a token has at a relay.
type TokenSessions struct {
	Token    auth.TokenID
	Sessions uint64
}

// tokens are the sessions of tokens, at this relay and at the others.
type tokens struct {
	own       map[auth.TokenID]uint64 // announced
	repeated  time.Time
	forgotten time.Time // last removal of void announcements
	others    map[auth.TokenID]uint64
	changed   map[auth.TokenID]uint64 // of others, since the last call of ChangedTokens
	total     int                     // announcements of all other relays
}

// announced is how many sessions a token has at another relay.
type announced struct {
	sessions uint64
	at       time.Time
}

// SetTokens changes the sessions of tokens at this relay. It does not announce tokens beyond MaxTokens.
func (t *Table) SetTokens(sessions map[auth.TokenID]uint64) []*Message {
	k := &t.tokens
	var list []TokenSessions
	for id := range k.own {
		if sessions[id] == 0 {
			delete(k.own, id)
			list = append(list, TokenSessions{id, 0})
		}
	}
	for id, n := range sessions {
		before, known := k.own[id]
		if before == n || !known && len(k.own) >= MaxTokens {
			continue
		}
		if k.own == nil {
			k.own = map[auth.TokenID]uint64{}
		}
		k.own[id] = n
		list = append(list, TokenSessions{id, n})
	}
	return t.announceTokens(list)
}

func (t *Table) announceTokens(list []TokenSessions) (send []*Message) {
	for part := range slices.Chunk(list, tokensPerPart) {
		send = append(send, &Message{Kind: Tokens, From: t.id, Tokens: part})
	}
	return send
}

// tickTokens repeats this relay's announcements when it is time, and forgets void ones of others.
func (t *Table) tickTokens(now time.Time) []*Message {
	k := &t.tokens
	if now.Sub(k.forgotten) >= repeatTokens {
		k.forgotten = now
		for _, o := range t.members {
			maps.DeleteFunc(o.tokens, func(id auth.TokenID, a announced) bool {
				void := now.Sub(a.at) > forgetTokens
				if void {
					k.forget(id, a)
				}
				return void
			})
		}
	}
	if now.Sub(k.repeated) < repeatTokens {
		return nil
	}
	k.repeated = now
	var list []TokenSessions
	for id, n := range k.own {
		list = append(list, TokenSessions{id, n})
	}
	return t.announceTokens(list)
}

// receiveTokens applies another relay's announcements.
func (t *Table) receiveTokens(now time.Time, o *member, list []TokenSessions) {
	k := &t.tokens
	for _, one := range list {
		before, known := o.tokens[one.Token]
		if !known && (one.Sessions == 0 || len(o.tokens) >= MaxTokens || k.total >= maxAllTokens) {
			continue
		}
		if known {
			k.forget(one.Token, before)
			delete(o.tokens, one.Token)
		}
		if one.Sessions == 0 {
			continue
		}
		if o.tokens == nil {
			o.tokens = map[auth.TokenID]announced{}
		}
		n := min(one.Sessions, maxTokenSessions)
		o.tokens[one.Token] = announced{n, now}
		k.total++
		k.set(one.Token, k.others[one.Token]+n)
	}
}

// forget reverts an announcement.
func (k *tokens) forget(id auth.TokenID, a announced) {
	k.total--
	k.set(id, k.others[id]-a.sessions)
}

func (k *tokens) set(id auth.TokenID, n uint64) {
	if k.others == nil {
		k.others, k.changed = map[auth.TokenID]uint64{}, map[auth.TokenID]uint64{}
	}
	k.others[id], k.changed[id] = n, n
	if n == 0 {
		delete(k.others, id)
	}
}

// ChangedTokens returns the number of sessions at other relays, for each token whose number has changed since the
// last call.
func (t *Table) ChangedTokens() map[auth.TokenID]uint64 {
	changed := t.tokens.changed
	if len(changed) > 0 {
		t.tokens.changed = map[auth.TokenID]uint64{}
	}
	return changed
}

// countTokens announces this relay's sessions of tokens if they have changed, and applies other relays'. The
// caller holds c.mu.
func (c *Cluster) countTokens() (send []*Message) {
	changed := c.table.ChangedTokens()
	if c.host.Authority == nil {
		return nil
	}
	if sessions, version := c.host.Authority.Sessions(c.counted); version != c.counted {
		c.counted = version
		send = c.table.SetTokens(sessions)
	}
	if len(changed) > 0 {
		c.host.Authority.CountToo(changed)
	}
	return send
}
