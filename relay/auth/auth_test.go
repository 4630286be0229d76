package auth

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"golang.org/x/sys/unix"

	"holocast/internal/clock/clocktest"
	"holocast/internal/moqt"
	"holocast/internal/testlog"
)

var studio = moqt.Namespace{"holocast", "studio"}

func newTestKey(t testing.TB, algorithm string) Key {
	t.Helper()
	k, err := NewKey(algorithm)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func mint(t testing.TB, k Key, c Claims) string {
	t.Helper()
	raw, _, err := Mint(k, c, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// TestVerify checks for each algorithm that a token verifies only with the key that signed it.
func TestVerify(t *testing.T) {
	now := time.Now()
	claims := Claims{Publish: Prefixes{studio}, Subscribe: Prefixes{studio, {}}}
	for _, a := range []string{"HS256", "RS256", "ES256", "EdDSA"} {
		t.Run(a, func(t *testing.T) {
			key, other := newTestKey(t, a), newTestKey(t, a)
			raw, _, err := Mint(key, claims, now)
			if err != nil {
				t.Fatal(err)
			}
			for name, keys := range map[string][]Key{"alone": {key}, "after another": {other, key}} {
				c, err := Verify(raw, keys, "", "", now)
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				if !(rights{c.Publish, c.Subscribe}).equal(rights{claims.Publish, claims.Subscribe}) || c.ID == "" ||
					c.Subject != c.ID {
					t.Errorf("%s: claims %+v", name, c)
				}
			}
			if _, err := Verify(raw, []Key{other}, "", "", now); !errors.Is(err, ErrUnknown) {
				t.Errorf("another key: %v", err)
			}
			other.KeyID = key.KeyID
			if _, err := Verify(raw, []Key{other}, "", "", now); !errors.Is(err, ErrUnknown) {
				t.Errorf("another key of the same ID: %v", err)
			}
			want, _ := Verify(raw, []Key{key}, "", "", now)
			for i := range raw { // the last bits of a part may be unused
				b := []byte(raw)
				b[i] ^= 4
				if c, err := Verify(string(b), []Key{key}, "", "", now); err == nil && !reflect.DeepEqual(c, want) {
					t.Errorf("changed at %d it says %+v", i, c)
				}
			}
		})
	}
}

// TestAlgorithmIsTheKeys checks that a token cannot choose its algorithm, such as "none" or HMAC with a
// public key as the secret.
func TestAlgorithmIsTheKeys(t *testing.T) {
	key := newTestKey(t, "RS256")
	public, err := x509.MarshalPKIXPublicKey(key.Public().Key)
	if err != nil {
		t.Fatal(err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public})
	keys, err := parseKeys(text)
	if err != nil {
		t.Fatal(err)
	}
	for name, secret := range map[string][]byte{
		"PEM": text, "trimmed": []byte(strings.TrimSpace(string(text))),
		"DER": public,
	} {
		forged, err := newKey(jose.JSONWebKey{Key: secret})
		if err != nil {
			t.Fatal(err)
		}
		_, err = Verify(mint(t, forged, Claims{Publish: Prefixes{{}}}), keys, "", "", time.Now())
		if !errors.Is(err, ErrUnknown) {
			t.Errorf("%s as a secret: %v", name, err)
		}
	}
	part := base64.RawURLEncoding.EncodeToString
	for _, alg := range []string{"none", "None", "", "HS512", "RS512", "PS256"} {
		raw := part([]byte(`{"alg":"`+alg+`"}`)) + "." + part([]byte(`{"publish":["/"]}`)) + "."
		if _, err := Verify(raw, keys, "", "", time.Now()); !errors.Is(err, ErrMalformed) {
			t.Errorf("alg %q: %v", alg, err)
		}
	}
}

// TestClaims checks that exp, nbf, iat, iss and aud are verified.
func TestClaims(t *testing.T) {
	key, now := newTestKey(t, "EdDSA"), time.Now()
	at := func(d time.Duration) *jwt.NumericDate { return jwt.NewNumericDate(now.Add(d)) }
	for name, c := range map[string]struct {
		claims           jwt.Claims
		issuer, audience string
		want             error
	}{
		"nothing":               {},
		"an hour left":          {claims: jwt.Claims{Expiry: at(time.Hour)}},
		"just expired":          {claims: jwt.Claims{Expiry: at(-time.Second)}, want: ErrExpired},
		"long expired":          {claims: jwt.Claims{Expiry: at(-time.Hour)}, want: ErrExpired},
		"from a clock ahead":    {claims: jwt.Claims{NotBefore: at(clockSkew / 2)}},
		"from tomorrow":         {claims: jwt.Claims{NotBefore: at(24 * time.Hour)}, want: ErrNotYet},
		"its issuer":            {claims: jwt.Claims{Issuer: "us"}, issuer: "us"},
		"another issuer":        {claims: jwt.Claims{Issuer: "them"}, issuer: "us", want: ErrOther},
		"no issuer":             {issuer: "us", want: ErrOther},
		"one of its audiences":  {claims: jwt.Claims{Audience: jwt.Audience{"a", "b"}}, audience: "b"},
		"another audience":      {claims: jwt.Claims{Audience: jwt.Audience{"a"}}, audience: "b", want: ErrOther},
		"no audience":           {audience: "b", want: ErrOther},
		"an audience, unwanted": {claims: jwt.Claims{Audience: jwt.Audience{"a"}}},
	} {
		_, err := Verify(mint(t, key, Claims{Claims: c.claims}), []Key{key}, c.issuer, c.audience, now)
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

// TestPrefixes parses the formats of namespace prefixes in claims.
func TestPrefixes(t *testing.T) {
	for text, want := range map[string]Prefixes{
		`[]`:                             nil,
		`["holocast/studio"]`:            {studio},
		`["/holocast/studio/"]`:          {studio},
		`[["holocast","studio"]]`:        {studio},
		`[["holocast","a/b"], "/"]`:      {{"holocast", "a/b"}, {}},
		`[[]]`:                           {{}},
		`[["holocast","studio"],["x"]]`:  {studio, {"x"}},
		`["holocast/studio","holocast"]`: {studio, {"holocast"}},
	} {
		var got Prefixes
		if err := json.Unmarshal([]byte(text), &got); err != nil ||
			!(rights{publish: got}).equal(rights{publish: want}) {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{
		`"holocast"`, `{}`, `null1`, `[null]`, `[1]`, `[{}]`, `[""]`, `["a//b"]`,
		`[["a",""]]`, `[["a",1]]`, `["` + strings.Repeat("a/", 40) + `a"]`,
	} {
		var got Prefixes
		if err := json.Unmarshal([]byte(text), &got); err == nil {
			t.Errorf("%s parsed as %v", text, got)
		}
	}
	all := Prefixes{{}}
	if !all.cover(moqt.Namespace{}) || !all.cover(studio) || (Prefixes{}).cover(studio) ||
		!(Prefixes{studio}).cover(append(studio, "x")) || (Prefixes{studio}).cover(studio[:1]) {
		t.Error("wrong namespaces are covered")
	}
}

// TestParseKeys parses accepted and refused key files.
func TestParseKeys(t *testing.T) {
	ec, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	block := func(kind string, der []byte, err error) string {
		if err != nil {
			t.Fatal(err)
		}
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	private, err := x509.MarshalPKCS8PrivateKey(ec)
	pkcs8 := block("PRIVATE KEY", private, err)
	sec1, err := x509.MarshalECPrivateKey(ec)
	ecPEM := block("EC PRIVATE KEY", sec1, err)
	pkix, err := x509.MarshalPKIXPublicKey(&ec.PublicKey)
	public := block("PUBLIC KEY", pkix, err)
	p384, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	other, err := x509.MarshalPKIXPublicKey(&p384.PublicKey)
	p384PEM := block("PUBLIC KEY", other, err)
	small := block("RSA PUBLIC KEY", x509.MarshalPKCS1PublicKey(&rsa.PublicKey{N: ec.X, E: 65537}), nil)
	jwk, err := MarshalKey(newTestKey(t, "EdDSA"))
	if err != nil {
		t.Fatal(err)
	}
	encryption := `{"kty":"OKP","crv":"X25519","x":"3p7bfXt9wbTTW2HC7OQ1Nz-DQ8hbeGdNrfx-FG-IK08","use":"enc"}`
	for name, c := range map[string]struct {
		file string
		keys int
		err  string
	}{
		"JWK":                  {string(jwk), 1, ""},
		"set":                  {`{"keys":[` + string(jwk) + `]}`, 1, ""},
		"set with another use": {`{"keys":[` + encryption + `,` + string(jwk) + `]}`, 1, ""},
		"PEM":                  {public, 1, ""},
		"PEM of several":       {pkcs8 + public, 2, ""},
		"SEC 1":                {ecPEM, 1, ""},
		"secret":               {strings.Repeat("s", 32) + "\n", 1, ""},
		"short secret":         {"let me in\n", 0, "HS256 needs at least 32"},
		"empty":                {" \n", 0, "is empty"},
		"empty set":            {`{"keys":[]}`, 0, "holds no key"},
		"no signatures":        {`{"keys":[` + encryption + `]}`, 0, "holds a key"},
		"broken JSON":          {`{`, 0, "is not a JSON Web Key"},
		"broken PEM":           {"-----BEGIN PUBLIC KEY-----\nx\n", 0, "is not a readable PEM"},
		"another curve":        {p384PEM, 0, "P-256"},
		"small RSA":            {small, 0, "RS256 needs at least 2048"},
		"a request":            {block("CERTIFICATE REQUEST", pkix, nil), 0, "which is not a key"},
		"damaged key":          {block("PRIVATE KEY", private[1:], nil), 0, `holds a PEM block "PRIVATE KEY" that cannot`},
		"damaged certificate":  {block("CERTIFICATE", pkix, nil), 0, `holds a PEM block "CERTIFICATE" that cannot`},
	} {
		keys, err := parseKeys([]byte(c.file))
		if len(keys) != c.keys || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %d keys, %v", name, len(keys), err)
		}
	}
}

// TestKeyFileMode checks that other users may read files with public keys only.
func TestKeyFileMode(t *testing.T) {
	key := newTestKey(t, "EdDSA")
	private, err := MarshalKey(key)
	if err != nil {
		t.Fatal(err)
	}
	public, err := MarshalPublic([]Key{key})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "key")
	for name, c := range map[string]struct {
		text []byte
		mode os.FileMode
		want string
	}{
		"private, readable by its group":  {private, 0o640, ""},
		"private, readable by others":     {private, 0o644, "chmod 600 " + file},
		"a secret, readable by others":    {bytes.Repeat([]byte("s"), 32), 0o644, "chmod 600 " + file},
		"public keys, readable by others": {public, 0o644, ""},
	} {
		if err := errors.Join(os.WriteFile(file, c.text, 0o600), os.Chmod(file, c.mode)); err != nil {
			t.Fatal(err)
		}
		_, err := ReadKeys(t.Context(), file)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestKeySetURL checks that key sets are read from URLs and refreshed. The previous keys of a failing
// URL are kept; an insecure URL is refused.
func TestKeySetURL(t *testing.T) {
	first, second := newTestKey(t, "ES256"), newTestKey(t, "EdDSA")
	var serve atomic.Pointer[[]Key]
	serve.Store(&[]Key{first})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		keys := serve.Load()
		if keys == nil {
			http.Error(w, "down", http.StatusServiceUnavailable)
			return
		}
		b, err := MarshalPublic(*keys)
		if err != nil {
			t.Error(err)
		}
		_, _ = w.Write(b)
	}))
	defer srv.Close()
	ctx, cancel := context.WithCancel(t.Context())
	a, err := New(ctx, Config{Keys: []string{srv.URL}, Refresh: time.Millisecond}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { defer close(done); a.Run(ctx) }()
	defer func() { cancel(); <-done }()
	old, err := a.token(nil, mint(t, first, Claims{}))
	if err != nil {
		t.Fatal(err)
	}
	young := mint(t, second, Claims{})
	if _, err := a.token(nil, young); !errors.Is(err, ErrUnknown) {
		t.Errorf("a key that is not served yet: %v", err)
	}
	serve.Store(nil)
	time.Sleep(2 * checkEvery)
	if old.Context().Err() != nil {
		t.Error("the keys were dropped with their server")
	}
	serve.Store(&[]Key{second})
	<-old.Context().Done()
	if why := context.Cause(old.Context()); !errors.Is(why, ErrUnknown) {
		t.Errorf("ended with %v", why)
	}
	if _, err := a.token(nil, young); err != nil {
		t.Error(err)
	}

	for _, u := range []string{"http://keys.example/set", "ftp://127.0.0.1/set", "file:///etc/passwd"} {
		if _, err := ReadKeys(t.Context(), u); err == nil {
			t.Errorf("%s was read", u)
		}
	}
	to := httptest.NewServer(http.RedirectHandler("http://192.0.2.1/set", http.StatusFound))
	defer to.Close()
	if _, err := ReadKeys(t.Context(), to.URL); err == nil || !strings.Contains(err.Error(), "fetched over https") {
		t.Errorf("a redirect to plain HTTP: %v", err)
	}
}

// TestKeySetURLAwayAtStart checks that the authority starts without an unreachable key server.
// Tokens signed with other keys are valid immediately; tokens signed with that server's keys become
// valid once it responds.
func TestKeySetURLAwayAtStart(t *testing.T) {
	here, there := newTestKey(t, "ES256"), newTestKey(t, "EdDSA")
	b, err := MarshalKey(here)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	var up atomic.Bool
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !up.Load() {
			http.Error(w, "down", http.StatusServiceUnavailable)
			return
		}
		b, _ := MarshalPublic([]Key{there})
		_, _ = w.Write(b)
	}))
	defer srv.Close()
	ctx, cancel := context.WithCancel(t.Context())
	var log bytes.Buffer
	a, err := New(ctx, Config{Keys: []string{file, srv.URL}, Refresh: time.Hour},
		slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(log.String(), srv.URL) || !strings.Contains(log.String(), "level=ERROR") {
		t.Errorf("logged %q", log.String())
	}
	if _, err := a.token(nil, mint(t, here, Claims{})); err != nil {
		t.Error(err)
	}
	young := mint(t, there, Claims{})
	if _, err := a.token(nil, young); !errors.Is(err, ErrUnknown) {
		t.Errorf("a key that was not read: %v", err)
	}
	done := make(chan struct{})
	go func() { defer close(done); a.Run(ctx) }()
	defer func() { cancel(); <-done }()
	up.Store(true)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		if _, err := a.token(nil, young); err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the keys were not read once their server answered")
		}
	}
}

// TestClockStep checks that grants follow the wall clock even after a step.
func TestClockStep(t *testing.T) {
	file := filepath.Join(t.TempDir(), "key")
	key := newTestKey(t, "EdDSA")
	b, err := MarshalKey(key)
	if err == nil {
		err = os.WriteFile(file, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	a, err := New(t.Context(), Config{Keys: []string{file}, Refresh: time.Hour}, nil)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	g, err := a.token(nil, mint(t, key, Claims{Claims: jwt.Claims{Expiry: jwt.NewNumericDate(now.Add(time.Hour))}}))
	if err != nil {
		t.Fatal(err)
	}
	a.mu.Lock()
	a.sweep(now.Add(59*time.Minute), false)
	alive := g.Context().Err() == nil
	a.sweep(now.Add(61*time.Minute), false)
	a.mu.Unlock()
	if !alive || !errors.Is(context.Cause(g.Context()), ErrExpired) {
		t.Errorf("alive %v, then %v", alive, context.Cause(g.Context()))
	}
}

// TestClockSetRight checks that correcting the clock by an hour ends exactly the grants that are
// invalid at the new time, for open and for new sessions.
func TestClockSetRight(t *testing.T) {
	key := newTestKey(t, "EdDSA")
	file := filepath.Join(t.TempDir(), "keys.json")
	b, err := MarshalKey(key)
	if err == nil {
		err = os.WriteFile(file, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	before := func(d time.Duration) *jwt.NumericDate { return jwt.NewNumericDate(began.Add(d)) }
	for name, c := range map[string]struct {
		claims jwt.Claims
		step   time.Duration
		after  time.Duration // since the grant
		want   error         // of the open session
	}{
		"set forward, hours left":        {jwt.Claims{Expiry: before(2 * time.Hour)}, time.Hour, 0, nil},
		"set forward, no end":            {jwt.Claims{}, time.Hour, 0, nil},
		"set forward, half an hour left": {jwt.Claims{Expiry: before(30 * time.Minute)}, time.Hour, 0, ErrExpired},
		"set back":                       {jwt.Claims{Expiry: before(2 * time.Hour)}, -time.Hour, 0, nil},
		"set back, valid from now": {
			jwt.Claims{NotBefore: before(0), Expiry: before(time.Hour)},
			-time.Hour, 0,
			nil,
		},
		"set back, before its end": {
			jwt.Claims{Expiry: before(30 * time.Minute)},
			-time.Hour, 29 * time.Minute,
			nil,
		},
		"set back, after its end": {
			jwt.Claims{Expiry: before(30 * time.Minute)},
			-time.Hour, 31 * time.Minute,
			ErrExpired,
		},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := Config{Keys: []string{file}, Refresh: time.Hour}
			a, err := New(t.Context(), cfg, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			raw := mint(t, key, Claims{Claims: c.claims})
			g, err := a.token(nil, raw)
			if err != nil {
				t.Fatal(err)
			}
			a.clock = func() time.Time { return clocktest.Step(time.Now(), c.step).Add(c.after) }
			for range 2 { // rereads the keys
				if err := a.Replace(t.Context(), cfg); err != nil {
					t.Fatal(err)
				}
			}
			if got := context.Cause(g.Context()); !errors.Is(got, c.want) || (got == nil) != (c.want == nil) {
				t.Errorf("the open session's token: %v, want %v", got, c.want)
			}
			if _, err := a.token(nil, raw); c.step > 0 && !errors.Is(err, c.want) {
				t.Errorf("a new session's token: %v, want %v", err, c.want)
			}
			expired := jwt.Claims{Expiry: jwt.NewNumericDate(began.Add(-2 * time.Hour))}
			if _, err := a.token(nil, mint(t, key, Claims{Claims: expired})); err == nil {
				t.Error("an expired token is accepted")
			}
		})
	}
}

func FuzzVerify(f *testing.F) {
	keys := []Key{newTestKey(f, "EdDSA"), newTestKey(f, "HS256"), newTestKey(f, "ES256")}
	for _, k := range keys {
		f.Add(mint(f, k, Claims{Publish: Prefixes{studio}}))
	}
	f.Add("eyJhbGciOiJub25lIn0.e30.")
	f.Add(`{"payload":"e30","signatures":[]}`)
	f.Fuzz(func(t *testing.T, raw string) {
		_, _ = Verify(raw, keys, "", "", time.Now())
	})
}

func FuzzParseKeys(f *testing.F) {
	for _, a := range []string{"EdDSA", "HS256", "ES256"} {
		b, err := MarshalKey(newTestKey(f, a))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte("-----BEGIN PUBLIC KEY-----\nAA==\n-----END PUBLIC KEY-----\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		keys, err := parseKeys(b)
		if (err == nil) == (len(keys) == 0) {
			t.Errorf("%d keys and %v", len(keys), err)
		}
	})
}

func FuzzPrefixes(f *testing.F) {
	f.Add(`["holocast/studio",["a","b"],"/"]`)
	f.Fuzz(func(t *testing.T, text string) {
		var p, again Prefixes
		if json.Unmarshal([]byte(text), &p) != nil {
			return
		}
		b, err := json.Marshal(p)
		if err == nil {
			err = json.Unmarshal(b, &again)
		}
		if err != nil || !(rights{publish: p}).equal(rights{publish: again}) {
			t.Errorf("%v becomes %s: %v, %v", p, b, again, err)
		}
	})
}

// silent is a key server that never responds.
func silent(ctx context.Context, url string) ([]Key, error) {
	<-ctx.Done()
	return nil, &unreachableError{errors.New(url + " does not respond")}
}

// testFiles writes a key file and an empty revocation file. It returns a configuration that uses
// them, and the key.
func testFiles(t *testing.T) (Config, Key) {
	t.Helper()
	dir := t.TempDir()
	key := newTestKey(t, "ES256")
	b, err := MarshalKey(key)
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{
		Keys: []string{filepath.Join(dir, "key")}, Revoked: filepath.Join(dir, "revoked"), Refresh: time.Minute,
	}
	if err := errors.Join(os.WriteFile(cfg.Keys[0], b, 0o600), os.WriteFile(cfg.Revoked, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	return cfg, key
}

// TestSilentKeyServers checks that silent key servers delay the start by at most a second, and do
// not delay SIGHUP or revocations.
func TestSilentKeyServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg, key := testFiles(t)
		cfg.Keys = append(cfg.Keys, "https://one.example", "https://two.example", "https://three.example")
		ctx, cancel := context.WithCancel(t.Context())
		began := time.Now()
		a, err := newAuthority(ctx, cfg, slog.New(slog.DiscardHandler), silent)
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > startWait {
			t.Errorf("the start takes %v", took)
		}
		done := make(chan struct{})
		go func() { defer close(done); a.Run(ctx) }()
		defer func() { cancel(); <-done }()
		grant, err := a.token(nil, mint(t, key, Claims{Claims: jwt.Claims{Subject: "alice"}}))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(retryInterval + checkEvery) // fetches are in progress
		began = time.Now()
		if err := os.WriteFile(cfg.Revoked, []byte("alice\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		<-grant.Context().Done()
		if took := time.Since(began); took > 2*checkEvery {
			t.Errorf("a revocation takes %v", took)
		}
		began = time.Now()
		cfg.Keys = append(cfg.Keys, "https://four.example")
		if err := a.Replace(ctx, cfg); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("SIGHUP takes %v", took)
		}
	})
}

// TestUnreadableFiles checks that unreadable files leave the previous state in place, are retried
// even if they do not change, and do not delay other files.
func TestUnreadableFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg, key := testFiles(t)
		write := func(file string, content []byte) {
			t.Helper()
			if err := os.WriteFile(file, content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		var log testlog.Buffer
		a, err := New(ctx, cfg, slog.New(slog.NewTextHandler(&log, nil)))
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() { defer close(done); a.Run(ctx) }()
		defer func() { cancel(); <-done }()
		token := func(subject string) *Grant {
			t.Helper()
			g, err := a.token(nil, mint(t, key, Claims{Claims: jwt.Claims{Subject: subject}}))
			if err != nil {
				t.Fatal(err)
			}
			return g
		}
		alice, bob := token("alice"), token("bob")
		synctest.Wait() // Run is between checks

		// While no descriptors are free, the change cannot be read. It is read later.
		var limit unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
			t.Fatal(err)
		}
		write(cfg.Revoked, []byte("alice\n"))
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Max: limit.Max}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * checkEvery)
		synctest.Wait()
		early := alice.Context().Err()
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
			t.Fatal(err)
		}
		if early != nil || strings.Count(log.String(), "cannot reread keys and revocations") != 1 {
			t.Errorf("alice's grant: %v; logged %s", early, log.String())
		}
		<-alice.Context().Done()
		if bob.Context().Err() != nil {
			t.Error("the grant of another ended")
		}

		// If a key file is damaged, its previous key stays valid, and the revocation applies.
		write(cfg.Keys[0], []byte("damaged"))
		write(cfg.Revoked, []byte("bob\n"))
		<-bob.Context().Done()
		token("carol")
	})
}

// TestRevokeToo checks that revocations of other relays end grants and refuse tokens, in addition to the file's
// revocations.
func TestRevokeToo(t *testing.T) {
	key, err := NewKey("EdDSA")
	if err != nil {
		t.Fatal(err)
	}
	b, err := MarshalKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	keys, file := filepath.Join(dir, "key"), filepath.Join(dir, "revoked")
	if err := errors.Join(os.WriteFile(keys, b, 0o600), os.WriteFile(file, []byte("two\none\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	a, err := New(t.Context(), Config{Keys: []string{keys}, Refresh: time.Minute, Revoked: file}, nil)
	if err != nil {
		t.Fatal(err)
	}
	list, version := a.Revoked(0)
	if !slices.Equal(list, []string{"one", "two"}) || version == 0 {
		t.Errorf("revoked %q, version %d", list, version)
	}
	open := func(id string) (*Grant, error) {
		raw, _, err := Mint(key, Claims{Claims: jwt.Claims{ID: id}, Subscribe: Prefixes{{}}}, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		return a.token(nil, raw)
	}
	three, err := open("three")
	four, err2 := open("four")
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	a.RevokeToo([]string{"three"})
	if !errors.Is(context.Cause(three.ctx), ErrRevoked) || four.ctx.Err() != nil {
		t.Errorf("three ended with %v, four with %v", context.Cause(three.ctx), four.ctx.Err())
	}
	for id, want := range map[string]bool{"one": false, "three": false, "four": true} {
		if _, err := open(id); (err == nil) != want {
			t.Errorf("%s: %v", id, err)
		}
	}
	if list, same := a.Revoked(version); list != nil || same != version {
		t.Errorf("without a change: %q, version %d, before %d", list, same, version)
	}
	if list, same := a.Revoked(0); len(list) != 2 || same != version {
		t.Errorf("revocations of others are listed as own: %q, version %d, before %d", list, same, version)
	}
	a.RevokeToo(nil)
	if _, err := open("three"); err != nil {
		t.Errorf("a token that is no longer revoked: %v", err)
	}
}
