package auth

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"

	"holocast/internal/secretfile"
)

// Key verifies tokens. A private key or a secret also signs them.
type Key struct {
	jose.JSONWebKey
	algorithm jose.SignatureAlgorithm
}

// algorithms are the accepted signature algorithms. Each key has exactly one of them, regardless of
// the token's header (RFC 8725 §3.1).
var algorithms = []jose.SignatureAlgorithm{jose.HS256, jose.RS256, jose.ES256, jose.EdDSA}

// minSecret is the minimum size of a shared secret in bytes (RFC 7518 §3.2).
const minSecret = 32

// newKey checks a key and selects its algorithm.
func newKey(k jose.JSONWebKey) (Key, error) {
	var a jose.SignatureAlgorithm
	switch key := k.Key.(type) {
	case []byte:
		a = jose.HS256
		if len(key) < minSecret {
			return Key{}, fmt.Errorf("a secret of %d bytes; HS256 needs at least %d", len(key), minSecret)
		}
	case *rsa.PublicKey:
		a = jose.RS256
		if key.Size() < 256 {
			return Key{}, fmt.Errorf("an RSA key of %d bits; RS256 needs at least 2048", 8*key.Size())
		}
	case *rsa.PrivateKey:
		k2, err := newKey(jose.JSONWebKey{Key: &key.PublicKey})
		if err != nil {
			return Key{}, err
		}
		a = k2.algorithm
	case *ecdsa.PublicKey:
		if key.Curve != elliptic.P256() {
			return Key{}, fmt.Errorf("a key on curve %s; ES256 needs P-256", key.Params().Name)
		}
		a = jose.ES256
	case *ecdsa.PrivateKey:
		k2, err := newKey(jose.JSONWebKey{Key: &key.PublicKey})
		if err != nil {
			return Key{}, err
		}
		a = k2.algorithm
	case ed25519.PublicKey, ed25519.PrivateKey:
		a = jose.EdDSA
	default:
		return Key{}, fmt.Errorf("a key of type %T, which cannot sign tokens", k.Key)
	}
	if k.Algorithm != "" && k.Algorithm != string(a) {
		return Key{}, fmt.Errorf("a key for %s; tokens are signed with HS256, RS256, ES256 or EdDSA", k.Algorithm)
	}
	if k.Use != "" && k.Use != "sig" {
		return Key{}, fmt.Errorf("a key for use %q, not for signatures", k.Use)
	}
	return Key{k, a}, nil
}

// NewKey generates a key for HS256, RS256, ES256 or EdDSA.
func NewKey(algorithm string) (Key, error) {
	k := jose.JSONWebKey{Algorithm: algorithm, Use: "sig"}
	var err error
	switch jose.SignatureAlgorithm(algorithm) {
	case jose.HS256:
		secret := make([]byte, minSecret)
		_, _ = rand.Read(secret) // does not fail
		k.Key = secret
	case jose.RS256:
		k.Key, err = rsa.GenerateKey(rand.Reader, 2048)
	case jose.ES256:
		k.Key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case jose.EdDSA:
		_, k.Key, err = ed25519.GenerateKey(rand.Reader)
	default:
		return Key{}, fmt.Errorf("algorithm %q is not HS256, RS256, ES256 or EdDSA", algorithm)
	}
	if err != nil {
		return Key{}, err
	}
	id := make([]byte, 12)
	_, _ = rand.Read(id) // does not fail
	k.KeyID = base64.RawURLEncoding.EncodeToString(id)
	return newKey(k)
}

// Secret returns the HS256 key of a shared secret of at least 32 bytes.
func Secret(secret []byte) (Key, error) { return newKey(jose.JSONWebKey{Key: secret}) }

// MarshalKey encodes a key as a JSON Web Key.
func MarshalKey(k Key) ([]byte, error) {
	b, err := json.MarshalIndent(k.JSONWebKey, "", "  ")
	return append(b, '\n'), err
}

// MarshalPublic encodes the public parts of keys as a JSON Web Key Set. It fails for a shared secret,
// which has no public part.
func MarshalPublic(keys []Key) ([]byte, error) {
	set := jose.JSONWebKeySet{Keys: []jose.JSONWebKey{}}
	for _, k := range keys {
		public := k.Public()
		if public.Key == nil {
			return nil, errors.New("a shared secret (HS256) has no public part")
		}
		set.Keys = append(set.Keys, public)
	}
	b, err := json.MarshalIndent(set, "", "  ")
	return append(b, '\n'), err
}

// CanSign reports whether the key can sign tokens.
func (k Key) CanSign() bool {
	_, symmetric := k.Key.([]byte)
	return symmetric || !k.IsPublic()
}

// parseKeys parses a key file, which holds a JSON Web Key or key set, PEM blocks, or a raw shared
// secret. Errors continue a sentence that begins with the file's name.
func parseKeys(b []byte) ([]Key, error) {
	var raw []jose.JSONWebKey
	switch text := bytes.TrimSpace(b); {
	case len(text) == 0:
		return nil, errors.New("is empty")
	case text[0] == '{':
		var set struct {
			Keys []json.RawMessage `json:"keys"`
		}
		if err := json.Unmarshal(text, &set); err != nil {
			return nil, fmt.Errorf("is not a JSON Web Key: %w", err)
		}
		if set.Keys == nil {
			set.Keys = []json.RawMessage{text}
		}
		return parseSet(set.Keys)
	case bytes.Contains(text, []byte("-----BEGIN ")):
		for {
			block, rest := pem.Decode(text)
			if block == nil {
				break
			}
			key, err := parsePEM(block)
			if err != nil {
				return nil, err
			}
			raw = append(raw, jose.JSONWebKey{Key: key})
			text = rest
		}
		if raw == nil {
			return nil, errors.New("is not a readable PEM file")
		}
	default:
		raw = append(raw, jose.JSONWebKey{Key: text})
	}
	var keys []Key
	for _, k := range raw {
		key, err := newKey(k)
		if err != nil {
			return nil, fmt.Errorf("holds %w", err)
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// parseSet parses the keys of a set. It skips unusable keys (RFC 7517 §5), and fails if none is
// usable.
func parseSet(all []json.RawMessage) (keys []Key, err error) {
	err = errors.New("holds no key")
	for _, one := range all {
		var k jose.JSONWebKey
		if bad := json.Unmarshal(one, &k); bad != nil {
			err = fmt.Errorf("holds a key that cannot be read: %w", bad)
			continue
		}
		key, bad := newKey(k)
		if bad != nil {
			err = fmt.Errorf("holds %w", bad)
			continue
		}
		keys = append(keys, key)
	}
	if keys == nil {
		return nil, err
	}
	return keys, nil
}

func parsePEM(block *pem.Block) (key any, err error) {
	switch block.Type {
	case "PUBLIC KEY":
		key, err = x509.ParsePKIXPublicKey(block.Bytes)
	case "RSA PUBLIC KEY":
		key, err = x509.ParsePKCS1PublicKey(block.Bytes)
	case "PRIVATE KEY":
		key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
	case "EC PRIVATE KEY":
		key, err = x509.ParseECPrivateKey(block.Bytes)
	case "RSA PRIVATE KEY":
		key, err = x509.ParsePKCS1PrivateKey(block.Bytes)
	case "CERTIFICATE":
		var c *x509.Certificate
		if c, err = x509.ParseCertificate(block.Bytes); err == nil {
			key = c.PublicKey
		}
	default:
		return nil, fmt.Errorf("holds a PEM block %q, which is not a key", block.Type)
	}
	if err != nil {
		return nil, fmt.Errorf("holds a PEM block %q that cannot be read: %w", block.Type, err)
	}
	return key, nil
}

// ReadKeys reads keys from a file, an https:// URL or a loopback http:// URL. Other users may not read a file with
// keys that can sign.
func ReadKeys(ctx context.Context, source string) ([]Key, error) {
	var b []byte
	var exposed, err error
	if isURL(source) {
		b, err = fetch(ctx, source)
	} else {
		b, exposed, err = secretfile.Load(source)
	}
	if err != nil {
		return nil, err // includes the source
	}
	keys, err := parseKeys(b)
	if err != nil {
		return nil, fmt.Errorf("%s %w", source, err)
	}
	if exposed != nil && slices.ContainsFunc(keys, Key.CanSign) {
		return nil, exposed
	}
	return keys, nil
}

func isURL(source string) bool { return strings.Contains(source, "://") }

// checkURL rejects URLs that would let an attacker on the path replace the keys.
func checkURL(source string) error {
	u, err := url.Parse(source)
	if err != nil {
		return err
	}
	ip := net.ParseIP(u.Hostname())
	local := u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
	if u.Scheme != "https" && (u.Scheme != "http" || !local) {
		return fmt.Errorf("%s: %w", source, errInsecure)
	}
	return nil
}

const (
	fetchTimeout = 10 * time.Second
	maxKeySet    = 1 << 20 // bytes
)

func fetch(ctx context.Context, source string) ([]byte, error) {
	if err := checkURL(source); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, source, nil)
	if err != nil {
		return nil, err
	}
	client := &http.Client{
		CheckRedirect: func(r *http.Request, _ []*http.Request) error { return checkURL(r.URL.String()) },
	}
	defer client.CloseIdleConnections()
	resp, err := client.Do(req)
	if errors.Is(err, errInsecure) {
		return nil, err
	}
	if err != nil {
		return nil, &unreachableError{err}
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, &unreachableError{fmt.Errorf("%s answered %s", source, resp.Status)}
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxKeySet))
	if err != nil {
		return nil, &unreachableError{err}
	}
	return b, nil
}

// unreachableError reports a key server that is unreachable or answered with an error.
type unreachableError struct{ error }

func (e *unreachableError) Unwrap() error { return e.error }

// errInsecure reports a key URL that is neither https nor local.
var errInsecure = errors.New("keys must be fetched over https")
