package moqt

import "holocast/internal/moqt/wire"

// tokenCache holds the authorization tokens the peer registered (§10.2.1).
type tokenCache struct {
	limit, size uint64
	byAlias     map[uint64]wire.Token
}

// tokenOverhead counts towards the size of the cache in addition to the length of a token's value
// (§10.3.1.3).
const tokenOverhead = 16

// registerSetup registers the tokens of SETUP. A token that does not fit is treated as passed by
// value (§10.3.1.4).
func (c *tokenCache) registerSetup(m *wire.Setup) error {
	for i, t := range m.AuthorizationTokens {
		if t.AliasType != wire.TokenRegister {
			continue
		}
		if c.size+tokenOverhead+uint64(len(t.Value)) > c.limit {
			m.AuthorizationTokens[i].AliasType = wire.TokenUseValue
			continue
		}
		if err := c.register(t); err != nil {
			return err
		}
	}
	return nil
}

func (c *tokenCache) register(t wire.Token) error {
	if _, ok := c.byAlias[t.Alias]; ok {
		return &wire.Error{Code: wire.DuplicateAuthTokenAlias, Msg: "authorization token alias is in use"}
	}
	size := tokenOverhead + uint64(len(t.Value))
	if c.size+size > c.limit {
		return &wire.Error{Code: wire.AuthTokenCacheOverflow, Msg: "authorization token cache is full"}
	}
	if c.byAlias == nil {
		c.byAlias = map[uint64]wire.Token{}
	}
	c.byAlias[t.Alias] = t
	c.size += size
	return nil
}

// resolve registers, deletes and looks up the tokens of a message, and returns the values that
// authorize it. A *wire.Error ends the session, a *RequestError only the request.
func (c *tokenCache) resolve(tokens []wire.Token) ([]wire.Token, error) {
	var out []wire.Token
	for _, t := range tokens {
		switch t.AliasType {
		case wire.TokenUseValue:
			out = append(out, t)
		case wire.TokenRegister:
			if err := c.register(t); err != nil {
				return nil, err
			}
			out = append(out, t)
		case wire.TokenUseAlias, wire.TokenDelete:
			known, ok := c.byAlias[t.Alias]
			if !ok {
				return nil, &wire.Error{
					Code: wire.UnknownAuthTokenAlias,
					Msg:  "authorization token alias is not registered",
				}
			}
			if t.AliasType == wire.TokenUseAlias {
				out = append(out, known)
				continue
			}
			delete(c.byAlias, t.Alias)
			c.size -= tokenOverhead + uint64(len(known.Value))
		}
	}
	return out, nil
}
