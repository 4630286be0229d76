package auth

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"holocast/internal/moqt"
)

// Claims are the claims of a token: the registered claims (RFC 7519) and namespace prefixes.
type Claims struct {
	jwt.Claims
	// Publish and Subscribe are the prefixes of namespaces in which the holder may publish or
	// subscribe.
	Publish   Prefixes `json:"publish,omitempty"`
	Subscribe Prefixes `json:"subscribe,omitempty"`
}

// Prefixes are namespace prefixes. In JSON each is a list of fields or a string of fields joined by
// slashes; "/" and [] match every namespace.
type Prefixes []moqt.Namespace

// cover reports whether one of the prefixes is a prefix of ns.
func (p Prefixes) cover(ns moqt.Namespace) bool {
	for _, prefix := range p {
		if ns.HasPrefix(prefix) {
			return true
		}
	}
	return false
}

// ParsePrefix parses a prefix written with slashes.
func ParsePrefix(s string) (moqt.Namespace, error) {
	if s == "" {
		return nil, errors.New(`empty prefix; use "/" for all namespaces`)
	}
	s = strings.Trim(s, "/")
	if s == "" {
		return moqt.Namespace{}, nil
	}
	return checkPrefix(strings.Split(s, "/"))
}

func checkPrefix(fields []string) (moqt.Namespace, error) {
	ns := moqt.Namespace(fields)
	if len(ns) == 0 {
		return moqt.Namespace{}, nil
	}
	if err := (moqt.TrackName{Namespace: ns}).Validate(); err != nil {
		return nil, fmt.Errorf("prefix %q: %w", strings.Join(fields, "/"), err)
	}
	return ns, nil
}

// UnmarshalJSON implements json.Unmarshaler.
func (p *Prefixes) UnmarshalJSON(b []byte) error {
	var all []json.RawMessage
	if err := json.Unmarshal(b, &all); err != nil {
		return errors.New("publish and subscribe are lists of namespace prefixes")
	}
	*p = nil
	for _, one := range all {
		var text string
		var fields []string
		var ns moqt.Namespace
		var err error
		switch {
		case json.Unmarshal(one, &text) == nil && string(one) != "null":
			ns, err = ParsePrefix(text)
		case json.Unmarshal(one, &fields) == nil && fields != nil:
			ns, err = checkPrefix(fields)
		default:
			err = fmt.Errorf("%s is not a namespace prefix", one)
		}
		if err != nil {
			return err
		}
		*p = append(*p, ns)
	}
	return nil
}

// MaxTokenLength is the maximum size of a token in bytes.
const MaxTokenLength = 8 << 10

// clockSkew is how far an issuer's clock may be ahead of the relay's.
const clockSkew = 30 * time.Second

// Token errors.
var (
	ErrMalformed = errors.New("the token cannot be read")
	ErrUnknown   = errors.New("the token is not signed with a key of this relay")
	ErrExpired   = errors.New("the token has expired")
	ErrNotYet    = errors.New("the token is not valid yet")
	ErrRevoked   = errors.New("the token was revoked")
	ErrOther     = errors.New("the token is for another audience or from another issuer")
)

// Verify checks a token's signature and its registered claims at the time now. "" accepts any issuer or
// audience.
func Verify(raw string, keys []Key, issuer, audience string, now time.Time) (*Claims, error) {
	if len(raw) > MaxTokenLength {
		return nil, ErrMalformed
	}
	token, err := jwt.ParseSigned(raw, algorithms)
	if err != nil || len(token.Headers) != 1 {
		return nil, ErrMalformed
	}
	h := token.Headers[0]
	for _, k := range keys {
		if string(k.algorithm) != h.Algorithm || h.KeyID != "" && k.KeyID != "" && h.KeyID != k.KeyID {
			continue
		}
		key := k.Key
		if _, secret := key.([]byte); !secret {
			key = k.Public().Key
		}
		var c Claims
		switch err := token.Claims(key, &c); {
		case errors.Is(err, jose.ErrCryptoFailure):
			continue
		case err != nil:
			return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
		}
		return &c, c.check(issuer, audience, now)
	}
	return nil, ErrUnknown
}

// check checks the registered claims.
func (c *Claims) check(issuer, audience string, now time.Time) error {
	want := jwt.Expected{Issuer: issuer, Time: now}
	if audience != "" {
		want.AnyAudience = jwt.Audience{audience}
	}
	switch err := c.ValidateWithLeeway(want, clockSkew); {
	case c.Expiry != nil && !now.Before(c.Expiry.Time()): // without clockSkew
		return ErrExpired
	case errors.Is(err, jwt.ErrNotValidYet), errors.Is(err, jwt.ErrIssuedInTheFuture):
		return ErrNotYet
	case err != nil:
		return ErrOther
	}
	return nil
}

// subject returns the authenticated identity: the sub claim, with the issuer if there is one, or else a
// hash of the token.
func (c *Claims) subject(raw string) string {
	switch {
	case c.Subject != "" && c.Issuer != "":
		return c.Subject + " of " + c.Issuer
	case c.Subject != "":
		return c.Subject
	}
	sum := sha256.Sum256([]byte(raw))
	return "token " + hex.EncodeToString(sum[:8])
}

// Mint signs a token. It sets iat, a random jti if that is empty, and sub to jti if sub is empty.
func Mint(k Key, c Claims, now time.Time) (raw string, id string, err error) {
	if !k.CanSign() {
		return "", "", errors.New("a public key cannot sign tokens")
	}
	if c.ID == "" {
		var b [8]byte
		_, _ = rand.Read(b[:]) // does not fail
		c.ID = hex.EncodeToString(b[:])
	}
	if c.Subject == "" {
		c.Subject = c.ID
	}
	c.IssuedAt = jwt.NewNumericDate(now)
	o := (&jose.SignerOptions{}).WithType("JWT")
	if k.KeyID != "" {
		o = o.WithHeader("kid", k.KeyID)
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: k.algorithm, Key: k.Key}, o)
	if err != nil {
		return "", "", err
	}
	raw, err = jwt.Signed(signer).Claims(c).Serialize()
	return raw, c.ID, err
}
