package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
	"github.com/quic-go/webtransport-go"

	"holocast/internal/connect"
	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/origin"
	"holocast/relay/auth"
)

// issuer signs tokens with a key in a file.
type issuer struct {
	t    *testing.T
	key  auth.Key
	file string
}

func newIssuer(t *testing.T, algorithm string) *issuer {
	t.Helper()
	key, err := auth.NewKey(algorithm)
	if err != nil {
		t.Fatal(err)
	}
	x := &issuer{t, key, filepath.Join(t.TempDir(), "relay.key")}
	x.write(key)
	return x
}

// write writes keys to the file.
func (x *issuer) write(keys ...auth.Key) {
	x.t.Helper()
	var all []string
	for _, k := range keys {
		b, err := auth.MarshalKey(k)
		if err != nil {
			x.t.Fatal(err)
		}
		all = append(all, string(b))
	}
	next := x.file + ".next"
	if err := os.WriteFile(next, []byte(`{"keys":[`+strings.Join(all, ",")+`]}`), 0o600); err != nil {
		x.t.Fatal(err)
	}
	if err := os.Rename(next, x.file); err != nil {
		x.t.Fatal(err)
	}
}

func (x *issuer) mint(c auth.Claims) string {
	x.t.Helper()
	raw, _, err := auth.Mint(x.key, c, time.Now())
	if err != nil {
		x.t.Fatal(err)
	}
	return raw
}

// publisher and viewer return tokens that allow publishing and subscribing in points.Namespace.
func (x *issuer) publisher() string {
	return x.mint(auth.Claims{Publish: auth.Prefixes{points.Namespace}})
}

func (x *issuer) viewer() string {
	return x.mint(auth.Claims{Subscribe: auth.Prefixes{points.Namespace}})
}

func value(raw string) wire.Token {
	return wire.Token{AliasType: wire.TokenUseValue, Value: []byte(raw)}
}

// with opens a session that sends tokens in SETUP.
func (p *process) with(h moqt.Handler, tokens ...string) *moqt.Session {
	p.t.Helper()
	s, err := p.attempt(h, tokens...)
	if err != nil {
		p.t.Fatal(err)
	}
	return s
}

// attempt is like with, but returns an error if the relay refuses the session.
func (p *process) attempt(h moqt.Handler, tokens ...string) (*moqt.Session, error) {
	p.t.Helper()
	cfg := quiet
	for _, raw := range tokens {
		cfg.Tokens = append(cfg.Tokens, value(raw))
	}
	s, err := moqt.Dial(p.t.Context(), "moqt://"+p.udp, pinned(p.t, p.hash), h, cfg)
	if err == nil {
		p.t.Cleanup(func() { s.Close(wire.NoError, "") })
	}
	return s, err
}

// publishing opens a session that publishes tracks.
func publishing(t *testing.T, p *process, token string, tracks ...*origin.Track) *moqt.Session {
	t.Helper()
	var set origin.Set
	for _, tr := range tracks {
		set.Add(tr)
	}
	s := p.with(set.Handler(), token)
	if _, err := s.PublishNamespace(t.Context(), points.Namespace); err != nil {
		t.Fatal(err)
	}
	return s
}

// refusal describes why a request failed: the code of the rejected request or of the closed session, or
// else the error text; "" if err is nil.
func refusal(err error, s *moqt.Session) string {
	var refused *moqt.RequestError
	if errors.As(err, &refused) {
		return "request: " + refused.Code.String()
	}
	var closed *moqt.SessionError
	if s != nil && err != nil {
		<-s.Context().Done()
		err = s.Err()
	}
	if errors.As(err, &closed) && closed.Remote {
		return "session: " + closed.Code.String()
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// TestTokens checks that tokens in SETUP and in requests determine what a session may do.
func TestTokens(t *testing.T) {
	x, stranger := newIssuer(t, "EdDSA"), newIssuer(t, "EdDSA")
	p := start(t, "--auth-keys", x.file)
	tr := origin.NewTrack(points, nil, origin.Limits{})
	write(t, tr, 1, []byte("a frame"))
	publishing(t, p, x.publisher(), tr)
	elsewhere := moqt.Namespace{"holocast", "elsewhere"}
	subscribeTo := func(name moqt.TrackName, tokens ...string) func(*moqt.Session) error {
		return func(s *moqt.Session) error {
			o := moqt.SubscribeOptions{}
			for _, raw := range tokens {
				o.Tokens = append(o.Tokens, value(raw))
			}
			_, err := s.Subscribe(within(t), name, o)
			return err
		}
	}
	publishIn := func(ns moqt.Namespace, tokens ...wire.Token) func(*moqt.Session) error {
		return func(s *moqt.Session) error {
			_, err := s.PublishNamespace(within(t), ns, tokens...)
			return err
		}
	}
	past := auth.Claims{Subscribe: auth.Prefixes{points.Namespace}}
	past.Expiry = jwt.NewNumericDate(time.Now().Add(-time.Second))
	future := auth.Claims{Subscribe: auth.Prefixes{points.Namespace}}
	future.NotBefore = jwt.NewNumericDate(time.Now().Add(time.Hour))
	for _, c := range []struct {
		name  string
		setup []string
		do    func(*moqt.Session) error
		want  string
	}{
		{"watch", []string{x.viewer()}, subscribeTo(points), ""},
		{"watch by a request's token", nil, subscribeTo(points, x.viewer()), ""},
		{"watch with the token of a publisher", []string{x.publisher()}, subscribeTo(points), ""},
		{
			"watch with the second token",
			[]string{x.mint(auth.Claims{Subscribe: auth.Prefixes{elsewhere}}), x.viewer()},
			subscribeTo(points), "",
		},
		{"watch everything", []string{x.mint(auth.Claims{Subscribe: auth.Prefixes{{}}})}, subscribeTo(points), ""},
		{"the clock without a token", nil, subscribeTo(moqt.TrackName{
			Namespace: moqt.Namespace{".relay"},
			Name:      "clock",
		}), ""},
		{"no token", nil, subscribeTo(points), "request: UNAUTHORIZED"},
		{"no token, fetch", nil, func(s *moqt.Session) error {
			_, err := s.Fetch(within(t), points, moqt.Location{}, moqt.Location{Group: 2}, moqt.FetchOptions{})
			return err
		}, "request: UNAUTHORIZED"},
		{"no token, track status", nil, func(s *moqt.Session) error {
			_, _,
				err := s.TrackStatus(within(t), points)
			return err
		}, "request: UNAUTHORIZED"},
		{"no token, namespaces", nil, func(s *moqt.Session) error {
			_, err := s.SubscribeNamespace(within(t), moqt.Namespace{"holocast"})
			return err
		}, "request: UNAUTHORIZED"},
		{"namespaces beyond the token's", []string{x.viewer()}, func(s *moqt.Session) error {
			_, err := s.SubscribeNamespace(within(t), moqt.Namespace{"holocast"})
			return err
		}, "request: UNAUTHORIZED"},
		{
			"tracks beyond the token's",
			[]string{x.viewer()},
			func(s *moqt.Session) error { return s.SubscribeTracks(within(t), moqt.Namespace{"holocast"}) },
			"request: UNAUTHORIZED",
		},
		{
			"another namespace",
			[]string{x.viewer()},
			subscribeTo(moqt.TrackName{Namespace: elsewhere, Name: "points"}),
			"request: UNAUTHORIZED",
		},
		{
			"a namespace that begins alike",
			[]string{x.viewer()},
			subscribeTo(moqt.TrackName{
				Namespace: moqt.Namespace{"holocast", points.Namespace[1] + "2"},
				Name:      "points",
			}), "request: UNAUTHORIZED",
		},
		{
			"publish with the token of a viewer",
			[]string{x.viewer()},
			publishIn(points.Namespace),
			"request: UNAUTHORIZED",
		},
		{"publish elsewhere", []string{x.publisher()}, publishIn(elsewhere), "request: UNAUTHORIZED"},
		{"publish above", []string{x.publisher()}, publishIn(moqt.Namespace{"holocast"}), "request: UNAUTHORIZED"},
		{
			"publish the empty namespace",
			[]string{x.mint(auth.Claims{Publish: auth.Prefixes{{}}})},
			publishIn(moqt.Namespace{}), "request: UNAUTHORIZED",
		},
		{
			"publish the relay's namespace",
			[]string{x.mint(auth.Claims{Publish: auth.Prefixes{{}}})},
			publishIn(moqt.Namespace{".relay"}), "request: UNAUTHORIZED",
		},
		{"receipts", []string{x.viewer()}, func(s *moqt.Session) error {
			_, err := s.Publish(within(t), moqt.TrackName{Namespace: points.Namespace, Name: "receipts/me"},
				moqt.TrackInfo{})
			return err
		}, ""},
		{"a track with the token of a viewer", []string{x.viewer()}, func(s *moqt.Session) error {
			_, err := s.Publish(within(t), moqt.TrackName{Namespace: points.Namespace, Name: "catalog"},
				moqt.TrackInfo{})
			return err
		}, "request: UNAUTHORIZED"},
		{"a stranger's key", []string{stranger.viewer()}, subscribeTo(points), "session: UNAUTHORIZED"},
		{"a stranger's key in a request", nil, subscribeTo(points, stranger.viewer()), "request: UNAUTHORIZED"},
		{"no JWT", []string{"let me in"}, subscribeTo(points), "session: MALFORMED_AUTH_TOKEN"},
		{"no JWT in a request", nil, subscribeTo(points, "let me in"), "request: MALFORMED_AUTH_TOKEN"},
		{
			"unsigned",
			[]string{"eyJhbGciOiJub25lIn0.eyJzdWJzY3JpYmUiOlsiLyJdfQ."},
			subscribeTo(points),
			"session: MALFORMED_AUTH_TOKEN",
		},
		{"expired", []string{x.mint(past)}, subscribeTo(points), "session: EXPIRED_AUTH_TOKEN"},
		{"expired in a request", nil, subscribeTo(points, x.mint(past)), "request: EXPIRED_AUTH_TOKEN"},
		{"not valid yet", []string{x.mint(future)}, subscribeTo(points), "session: UNAUTHORIZED"},
		{"cut off", []string{x.viewer()[:100]}, subscribeTo(points), "session: MALFORMED_AUTH_TOKEN"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := p.attempt(moqt.Handler{}, c.setup...)
			if err == nil {
				err = c.do(s)
			}
			if got := refusal(err, s); got != c.want {
				t.Errorf("refused with %q, want %q", got, c.want)
			}
		})
	}
	t.Run("in the URL", func(t *testing.T) {
		s, err := moqt.Dial(t.Context(), "https://"+p.udp+"/studio?token="+x.viewer(), pinned(t, p.hash),
			moqt.Handler{}, quiet)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close(wire.NoError, "")
		if err := subscribeTo(points)(s); err != nil {
			t.Error(err)
		}
		if strings.Contains(p.output(), "token=") {
			t.Error("the token is in the log")
		}
	})
}

// TestTokenAlias checks that a token can be registered and then used by its alias, but only in its own
// session and while it is valid.
func TestTokenAlias(t *testing.T) {
	x := newIssuer(t, "HS256")
	revoked := filepath.Join(t.TempDir(), "revoked")
	if err := os.WriteFile(revoked, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(t.TempDir(), "relay.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, "auth: {keys: [%s], revoked: %s}\n", x.file, revoked),
		0o600); err != nil {
		t.Fatal(err)
	}
	p := start(t, "--config", config)
	tr := origin.NewTrack(points, nil, origin.Limits{})
	write(t, tr, 1, []byte("a frame"))
	publishing(t, p, x.publisher(), tr)
	use := func(s *moqt.Session, tokens ...wire.Token) error {
		_, _, err := s.TrackStatus(within(t), points, tokens...)
		return err
	}
	raw := x.mint(auth.Claims{Claims: jwt.Claims{ID: "alias"}, Subscribe: auth.Prefixes{points.Namespace}})
	register := wire.Token{AliasType: wire.TokenRegister, Alias: 7, Value: []byte(raw)}
	alias := wire.Token{AliasType: wire.TokenUseAlias, Alias: 7}
	forget := wire.Token{AliasType: wire.TokenDelete, Alias: 7}

	s := p.with(moqt.Handler{})
	for i, token := range []wire.Token{register, alias, alias} {
		if err := use(s, token); err != nil {
			t.Fatalf("use %d: %v", i, err)
		}
	}
	if got := refusal(use(s), s); got != "request: UNAUTHORIZED" {
		t.Errorf("without its token a request was refused with %q", got)
	}
	other := p.with(moqt.Handler{})
	if got := refusal(use(other, alias), other); got != "session: UNKNOWN_AUTH_TOKEN_ALIAS" {
		t.Errorf("another session's alias: %q", got)
	}
	again := p.with(moqt.Handler{})
	if err := use(again, register); err != nil {
		t.Fatal(err)
	}
	if got := refusal(use(again, register), again); got != "session: DUPLICATE_AUTH_TOKEN_ALIAS" {
		t.Errorf("registered twice: %q", got)
	}
	// An expired token can be registered, and each use reports the expiry (§10.2.2).
	past := auth.Claims{Subscribe: auth.Prefixes{points.Namespace}}
	past.Expiry = jwt.NewNumericDate(time.Now().Add(-time.Second))
	late := p.with(moqt.Handler{})
	for i, token := range []wire.Token{
		{AliasType: wire.TokenRegister, Alias: 7, Value: []byte(x.mint(past))},
		alias,
		alias,
	} {
		if got := refusal(use(late, token), late); got != "request: EXPIRED_AUTH_TOKEN" {
			t.Errorf("use %d of an expired token: %q", i, got)
		}
	}
	if err := os.WriteFile(revoked, []byte("# lost\nalias # the laptop\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the alias of a revoked token is refused",
		func() bool { return refusal(use(s, alias), s) == "request: UNAUTHORIZED" })
	_ = use(s, forget)
	if got := refusal(use(s, alias), s); got != "session: UNKNOWN_AUTH_TOKEN_ALIAS" {
		t.Errorf("after it was deleted: %q", got)
	}
}

// TestTokenEnds checks that when a token expires, is revoked or loses its key, the subscriptions and
// publications that it allows end. Others continue.
func TestTokenEnds(t *testing.T) {
	for _, c := range []struct {
		name    string
		claims  jwt.Claims
		expires bool
		end     func(x *issuer, revoked string)
		session wire.SessionCode
		done    wire.DoneCode
	}{
		{"expired", jwt.Claims{}, true, func(*issuer, string) {}, wire.ExpiredAuthToken, wire.DoneExpired},
		{"revoked by ID", jwt.Claims{ID: "short-lived"}, false, func(_ *issuer, revoked string) {
			_ = os.WriteFile(revoked, []byte("short-lived\n"), 0o600)
		}, wire.Unauthorized, wire.DoneUnauthorized},
		{"revoked by subject", jwt.Claims{Subject: "alice"}, false, func(_ *issuer, revoked string) {
			_ = os.WriteFile(revoked, []byte("alice\n"), 0o600)
		}, wire.Unauthorized, wire.DoneUnauthorized},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			x := newIssuer(t, "ES256")
			revoked := filepath.Join(t.TempDir(), "revoked")
			config := filepath.Join(t.TempDir(), "relay.yaml")
			if err := errors.Join(os.WriteFile(revoked, nil, 0o600),
				os.WriteFile(config, fmt.Appendf(nil, "auth: {keys: [%s], revoked: %s}\npublisher: {grace: 1s}\n",
					x.file, revoked), 0o600)); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			p := start(t, "--config", config)
			tr := origin.NewTrack(points, nil, origin.Limits{})
			publishing(t, p, x.publisher(), tr)
			lasting := subscribe(t, p.with(moqt.Handler{}, x.viewer()), points)
			if c.expires { // late enough to open four more sessions on a slow machine
				c.claims.Expiry = jwt.NewNumericDate(time.Now().Add(10*time.Second + 20*time.Since(began)))
			}
			ending := p.with(moqt.Handler{}, x.mint(auth.Claims{
				Claims:    c.claims,
				Subscribe: auth.Prefixes{points.Namespace},
			}))
			subscribe(t, ending, points)
			byRequest, err := p.with(moqt.Handler{}).Subscribe(t.Context(), points, moqt.SubscribeOptions{
				Tokens: []wire.Token{value(x.mint(auth.Claims{
					Claims:    c.claims,
					Subscribe: auth.Prefixes{points.Namespace},
				}))},
			})
			if err != nil {
				t.Fatal(err)
			}
			elsewhere := moqt.Namespace{"holocast", "elsewhere"}
			var set origin.Set
			other := origin.NewTrack(moqt.TrackName{Namespace: elsewhere, Name: "points"}, nil, origin.Limits{})
			set.Add(other)
			publisher := p.with(set.Handler())
			ns, err := publisher.PublishNamespace(t.Context(), elsewhere,
				value(x.mint(auth.Claims{Claims: c.claims, Publish: auth.Prefixes{elsewhere}})))
			if err != nil {
				t.Fatal(err)
			}
			watched := subscribe(t, p.with(moqt.Handler{}, x.mint(auth.Claims{Subscribe: auth.Prefixes{elsewhere}})),
				other.Name())
			for _, s := range []*moqt.Session{ending, publisher, byRequest.Session()} {
				if s.Err() != nil {
					t.Fatalf("ended too soon: %v", s.Err())
				}
			}
			c.end(x, revoked)
			<-ending.Context().Done()
			var closed *moqt.SessionError
			if !errors.As(ending.Err(), &closed) || closed.Code != c.session {
				t.Errorf("the session ended with %v", ending.Err())
			}
			<-byRequest.Done()
			var done *moqt.DoneError
			if !errors.As(byRequest.Err(), &done) || done.Code != c.done {
				t.Errorf("the subscription ended with %v", byRequest.Err())
			}
			if err := byRequest.Session().Err(); err != nil {
				t.Errorf("the request's token ended its session: %v", err)
			}
			<-ns.Done()
			eventually(t, "the publisher is not subscribed to", func() bool { return other.Viewers() == 0 })
			<-watched.Done()
			write(t, tr, 1, []byte("goes on"))
			expect(t, lasting, 1, []byte("goes on"))
		})
	}
}

// TestTokenRenewed checks that a valid token in REQUEST_UPDATE replaces the request's token, and that
// an invalid one ends the request.
func TestTokenRenewed(t *testing.T) {
	x := newIssuer(t, "ES256")
	revoked := filepath.Join(t.TempDir(), "revoked")
	config := filepath.Join(t.TempDir(), "relay.yaml")
	if err := errors.Join(os.WriteFile(revoked, nil, 0o600),
		os.WriteFile(config, fmt.Appendf(nil, "auth: {keys: [%s], revoked: %s}\n", x.file, revoked),
			0o600)); err != nil {
		t.Fatal(err)
	}
	p := start(t, "--config", config)
	tr := origin.NewTrack(points, nil, origin.Limits{})
	publishing(t, p, x.publisher(), tr)
	of := func(id string) []wire.Token {
		return []wire.Token{value(x.mint(auth.Claims{
			Claims:    jwt.Claims{ID: id},
			Subscribe: auth.Prefixes{points.Namespace},
		}))}
	}
	by := func(tokens []wire.Token) *moqt.Subscription {
		sub, err := p.with(moqt.Handler{}).Subscribe(t.Context(), points, moqt.SubscribeOptions{Tokens: tokens})
		if err != nil {
			t.Fatal(err)
		}
		return sub
	}
	renewed, left, wrong := by(of("old")), by(of("old")), by(of("other"))
	if _, err := renewed.Update(t.Context(), moqt.Parameters{AuthorizationTokens: of("new")}); err != nil {
		t.Fatal(err)
	}
	bad := []wire.Token{value(x.mint(auth.Claims{Subscribe: auth.Prefixes{{"holocast", "elsewhere"}}}))}
	var refused *moqt.RequestError
	if _, err := wrong.Update(t.Context(), moqt.Parameters{AuthorizationTokens: bad}); !errors.As(err, &refused) ||
		refused.Code != wire.RequestUnauthorized {
		t.Errorf("a token for another namespace: %v", err)
	}
	<-wrong.Done()
	if err := os.WriteFile(revoked, []byte("old\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	<-left.Done()
	write(t, tr, 1, []byte("goes on"))
	expect(t, renewed, 1, []byte("goes on"))
	if err := os.WriteFile(revoked, []byte("old\nnew # too\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	<-renewed.Done()
}

// TestKeyRotation replaces keys while sessions with the old and the new key are active. No frame is
// lost. Once the old key is removed, its sessions end, and the other sessions lose nothing.
func TestKeyRotation(t *testing.T) {
	old := newIssuer(t, "RS256")
	key, err := auth.NewKey("EdDSA")
	if err != nil {
		t.Fatal(err)
	}
	young := &issuer{t, key, old.file}
	p := start(t, "--auth-keys", old.file)
	hup := func(says string) {
		t.Helper()
		n := strings.Count(p.output(), says)
		p.Signal(syscall.SIGHUP)
		eventually(t, says, func() bool { return strings.Count(p.output(), says) > n })
	}
	tr := origin.NewTrack(points, nil, origin.Limits{})
	old.write(old.key, young.key)
	hup("configuration reloaded")
	publisher := publishing(t, p, young.publisher(), tr)

	stop := writeFrames(t, tr)
	olds := []*frameLog{
		logFrames(t, p.with(moqt.Handler{}, old.viewer())),
		logFrames(t, p.with(moqt.Handler{}, old.viewer())),
	}
	news := []*frameLog{
		logFrames(t, p.with(moqt.Handler{}, young.viewer())),
		logFrames(t, p.with(moqt.Handler{}, young.viewer())),
	}
	flows(t, append(olds, news...)...)
	for range 3 { // add and remove keys repeatedly
		third, err := auth.NewKey("ES256")
		if err != nil {
			t.Fatal(err)
		}
		old.write(third, young.key, old.key)
		hup("configuration reloaded")
		flows(t, append(olds, news...)...)
		old.write(old.key, young.key)
		hup("configuration reloaded")
	}
	if err := os.WriteFile(old.file, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	hup("configuration not reloaded")
	flows(t, append(olds, news...)...)

	old.write(young.key)
	for _, w := range olds {
		<-w.s.Context().Done()
		var closed *moqt.SessionError
		if !errors.As(w.s.Err(), &closed) || closed.Code != wire.Unauthorized {
			t.Errorf("a session of the old key ended with %v", w.s.Err())
		}
	}
	flows(t, news...)
	s, err := p.attempt(moqt.Handler{}, old.viewer())
	if err == nil {
		_, err = s.Subscribe(t.Context(), points, moqt.SubscribeOptions{})
	}
	if got := refusal(err, s); got != "session: UNAUTHORIZED" {
		t.Errorf("a token of the old key: %q, %v", got, err)
	}
	if publisher.Err() != nil {
		t.Error(publisher.Err())
	}
	last := stop()
	for i, w := range news {
		if lost := w.lost(t, last); lost > 0 {
			t.Errorf("viewer %d of the new key lost %d frames", i, lost)
		}
	}
	for i, w := range olds {
		if lost := w.lost(t, 0); lost > 2 { // the relay may close the session between frames
			t.Errorf("viewer %d of the old key lost %d frames before its session ended", i, lost)
		}
	}
}

// TestAnonymous checks that anonymous rights need no token. Without them, a session without a token
// is closed.
func TestAnonymous(t *testing.T) {
	t.Parallel()
	x := newIssuer(t, "EdDSA")
	config := filepath.Join(t.TempDir(), "relay.yaml")
	write := func(anonymous string) {
		t.Helper()
		if err := os.WriteFile(config, fmt.Appendf(nil, "auth: {keys: [%s], anonymous: {subscribe: [%s]}}\n", x.file,
			anonymous), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(strings.Join(points.Namespace, "/"))
	p := start(t, "--config", config)
	publishing(t, p, x.publisher(), origin.NewTrack(points, nil, origin.Limits{}))
	s := p.with(moqt.Handler{})
	sub := subscribe(t, s, points)
	if _, err := s.PublishNamespace(t.Context(), points.Namespace); refusal(err, s) != "request: UNAUTHORIZED" {
		t.Errorf("published anonymously: %v", err)
	}
	write("")
	p.Signal(syscall.SIGHUP)
	<-sub.Done()
	var done *moqt.DoneError
	if !errors.As(sub.Err(), &done) || done.Code != wire.DoneUnauthorized {
		t.Errorf("the subscription ended with %v", sub.Err())
	}
	silent := p.with(moqt.Handler{})
	<-silent.Context().Done()
	if got := refusal(silent.Err(), silent); got != "session: UNAUTHORIZED" {
		t.Errorf("a session without a token ended with %q", got)
	}
}

// authority issues client certificates.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t}
	a.cert, a.key = a.sign(&x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "the studio"}, IsCA: true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	})
	return a
}

func (a *authority) sign(c *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	c.NotBefore, c.NotAfter = time.Now().Add(-time.Minute), time.Now().Add(time.Hour)
	parent, by := a.cert, a.key
	if parent == nil {
		parent, by = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, by)
	if err != nil {
		a.t.Fatal(err)
	}
	signed, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return signed, key
}

func (a *authority) client(name string) tls.Certificate {
	a.t.Helper()
	cert, key := a.sign(&x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	return tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key}
}

// TestClientCertificate checks that a configured client certificate works in place of a token.
func TestClientCertificate(t *testing.T) {
	t.Parallel()
	ours, theirs := newAuthority(t), newAuthority(t)
	dir := t.TempDir()
	ca, config := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "relay.yaml")
	yaml := fmt.Sprintf("auth:\n  clientCA: %s\n  clients:\n    - {name: camera, publish: [holocast/test]}\n    - "+
		"{name: screen, subscribe: [holocast/test]}\n", ca)
	if err := errors.Join(os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ours.cert.Raw}),
		0o600),
		os.WriteFile(config, []byte(yaml), 0o600)); err != nil {
		t.Fatal(err)
	}
	p := start(t, "--config", config)
	dial := func(certs ...tls.Certificate) (*moqt.Session, error) {
		conf := pinned(t, p.hash)
		conf.Certificates = certs
		s, err := moqt.Dial(t.Context(), "moqt://"+p.udp, conf, moqt.Handler{}, quiet)
		if err == nil {
			t.Cleanup(func() { s.Close(wire.NoError, "") })
		}
		return s, err
	}
	ns := moqt.Namespace{"holocast", "test"}
	for _, c := range []struct {
		name  string
		certs []tls.Certificate
		want  string
	}{
		{"camera", []tls.Certificate{ours.client("camera")}, ""},
		{"screen", []tls.Certificate{ours.client("screen")}, "request: UNAUTHORIZED"},
		{"unnamed", []tls.Certificate{ours.client("somebody")}, "session: UNAUTHORIZED"},
		{"of another authority", []tls.Certificate{theirs.client("camera")}, "session: UNAUTHORIZED"},
		{"none", nil, "request: UNAUTHORIZED"},
	} {
		s, err := dial(c.certs...)
		if err == nil {
			_, err = s.PublishNamespace(within(t), ns)
		}
		if got := refusal(err, s); got != c.want {
			t.Errorf("%s: refused with %q, want %q", c.name, got, c.want)
		}
	}
}

// TestOpenToOthers checks that a relay on a public address does not start without keys unless insecure
// is set.
func TestOpenToOthers(t *testing.T) {
	x := newIssuer(t, "EdDSA")
	p := start(t, "--listen", ":0", "--http", ":0", "--insecure")
	if !strings.Contains(p.output(), "authentication is disabled") {
		t.Error("no warning")
	}
	start(t, "--listen", ":0", "--http", ":0", "--auth-keys", x.file)
	for _, addr := range []string{":0", "0.0.0.0:0", "[::]:0", "192.0.2.1:0", "relay.example:0"} {
		out, err := exec.Command(binary, "--listen", addr, "--http", "").CombinedOutput()
		if err == nil || !strings.Contains(string(out), "relay key relay.key") {
			t.Errorf("%s: %v\n%s", addr, err, out)
		}
	}
}

// TestMetricsAccess checks that metrics are served only on loopback addresses or at admin.
func TestMetricsAccess(t *testing.T) {
	status := func(addr, path string) int {
		t.Helper()
		_, port, _ := strings.Cut(addr, "]:")
		resp, err := http.Get("http://127.0.0.1:" + port + path)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		return resp.StatusCode
	}
	p := start(t, "--http", ":0")
	if got := status(p.http, "/metrics"); got != http.StatusNotFound {
		t.Errorf("metrics for everybody: %d", got)
	}
	if got := status(p.http, "/healthz"); got != http.StatusOK {
		t.Errorf("health: %d", got)
	}
	p = start(t, "--http", ":0", "--admin", "127.0.0.1:0")
	if got := status(p.http, "/metrics"); got != http.StatusNotFound {
		t.Errorf("metrics on the public address: %d", got)
	}
	resp, err := http.Get("http://" + p.admin + "/metrics")
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("metrics at admin: %v %v", resp, err)
	}
	_ = resp.Body.Close()
}

// TestForeignOrigins checks that a page from another host can neither read the relay's HTTP responses
// nor open a session. Unknown host names are refused (DNS rebinding).
func TestForeignOrigins(t *testing.T) {
	p := start(t, "--origins", "https://viewer.example")
	for _, c := range []struct {
		host, origin string
		status       int
		named        bool // in Access-Control-Allow-Origin
	}{
		{"", "", 200, false},
		{"localhost:4443", "http://localhost:8080", 200, true},
		{"", "http://127.0.0.1:8080", 200, true},
		{"", "https://viewer.example", 200, true},
		{"", "https://evil.example", 200, false},
		{"", "null", 200, false},
		{"evil.example", "", 421, false},
		{"evil.example", "http://evil.example", 421, false},
		{"viewer.example", "", 200, false},
	} {
		for _, path := range []string{"/certificate.sha256", "/metrics", "/healthz"} {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+p.http+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Host = c.host
			if c.origin != "" {
				req.Header.Set("Origin", c.origin)
			}
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			if resp.StatusCode != c.status {
				t.Errorf("%s for host %q: %d, want %d", path, c.host, resp.StatusCode, c.status)
			}
			if named := resp.Header.Get("Access-Control-Allow-Origin") != ""; named != (c.named &&
				path == "/certificate.sha256") {
				t.Errorf("%s for origin %q: may be read: %v", path, c.origin, named)
			}
		}
	}
}

// TestForeignOriginsWebTransport checks that the rules of TestForeignOrigins apply to WebTransport
// sessions too.
func TestForeignOriginsWebTransport(t *testing.T) {
	p := start(t, "--origins", "https://viewer.example")
	for origin, allowed := range map[string]bool{
		"": true, "https://viewer.example": true, "http://localhost:8080": true, "https://127.0.0.1": true,
		"https://evil.example": false, "https://viewer.example:444": false, "null": false,
		"https://viewer.example.evil.example": false,
	} {
		conf := pinned(t, p.hash)
		conf.NextProtos = []string{http3.NextProtoH3}
		qc, err := quic.DialAddr(t.Context(), p.udp, conf,
			&quic.Config{EnableDatagrams: true, EnableStreamResetPartialDelivery: true})
		if err != nil {
			t.Fatal(err)
		}
		tr := &webtransport.Transport{ApplicationProtocols: []string{wire.ALPN}}
		cc, err := tr.NewClientConn(qc)
		if err != nil {
			t.Fatal(err)
		}
		header := http.Header{}
		if origin != "" {
			header.Set("Origin", origin)
		}
		_, _, err = cc.Dial(within(t), "https://"+p.udp+"/studio", header) //nolint:bodyclose // the body is the session
		if (err == nil) != allowed {
			t.Errorf("origin %q: %v", origin, err)
		}
		_ = qc.CloseWithError(0, "")
		_ = tr.Close()
	}
}

// TestTokenCommand checks that relay and clients accept the keys and tokens that the relay program
// creates.
func TestTokenCommand(t *testing.T) {
	dir := t.TempDir()
	run := func(args ...string) (stdout string) {
		t.Helper()
		cmd := exec.Command(binary, args...)
		cmd.Dir = dir
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("relay %s: %v", strings.Join(args, " "), err)
		}
		return string(out)
	}
	for _, algorithm := range []string{"EdDSA", "ES256", "RS256", "HS256"} {
		name := algorithm + ".key"
		run("key", "--algorithm", algorithm, name)
		again := exec.Command(binary, "key", "--algorithm", algorithm, name)
		again.Dir = dir
		if out, err := again.CombinedOutput(); err == nil || !strings.Contains(string(out), name+" exists") {
			t.Errorf("a key in the place of another one: %v %s", err, out)
		}
		verifying := filepath.Join(dir, name)
		if algorithm != "HS256" {
			verifying += ".public"
			if err := os.WriteFile(verifying, []byte(run("key", "--public", name)), 0o600); err != nil {
				t.Fatal(err)
			}
			if b, _ := os.ReadFile(verifying); strings.Contains(string(b), `"d"`) {
				t.Errorf("%s: the public part has the private key", algorithm)
			}
		}
		p := start(t, "--auth-keys", verifying)
		token := strings.TrimSpace(run("token", "--auth-keys", name, "--publish", "studio", "--for", "1h"))
		file := filepath.Join(dir, "token")
		if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, target := range []connect.Target{
			{URL: "moqt://" + p.udp + "/studio", Token: token},
			{URL: "moqt://" + p.udp + "/studio", Token: "@" + file},
			{URL: "moqt://" + p.udp + "/studio#token=" + token},
			{URL: "https://" + p.udp + "/studio?token=" + token},
		} {
			target.CertificateHash = p.hash
			ns, err := target.Namespace()
			if err != nil {
				t.Fatal(err)
			}
			s, err := target.Dial(t.Context(), moqt.Handler{}, quiet)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.PublishNamespace(within(t), ns); err != nil {
				t.Errorf("%s, %s: %v", algorithm, target.Address(), err)
			}
			s.Close(wire.NoError, "")
		}
	}
}

// TestKeyOnFullDisk checks that no partial key file remains if the disk is full, so that the next try
// succeeds.
func TestKeyOnFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=4k"); err != nil {
		t.Skipf("cannot mount a small tmpfs (needs root): %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	other, key := filepath.Join(dir, "other"), filepath.Join(dir, "relay.key")
	if err := os.WriteFile(other, make([]byte, 4<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), binary, "key", key).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "no space left on device") {
		t.Errorf("%v: %s", err, out)
	}
	if err := os.Remove(other); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), binary, "key", key).CombinedOutput(); err != nil {
		t.Errorf("the next try: %v: %s", err, out)
	}
}
