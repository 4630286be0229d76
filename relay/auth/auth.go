// Package auth authenticates sessions and authorizes their requests. A JSON Web Token (RFC 7519) or
// a client certificate names the namespaces in which its holder may publish or subscribe. Tokens
// arrive in SETUP or a request (draft-ietf-moq-transport-18 §10.2.2), or in the session's URL. When
// a token expires or is revoked, the sessions and requests that it allowed end.
package auth

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"holocast/internal/moqt"
)

// Config configures authentication. The zero value accepts no credentials.
type Config struct {
	// Keys are files with keys that sign tokens, and URLs of key sets.
	Keys []string `yaml:"keys"`
	// Refresh is the interval between reads of the URLs.
	Refresh time.Duration `yaml:"refresh"`
	// Revoked is a file of revoked tokens, one ID or subject per line.
	Revoked string `yaml:"revoked"`
	// Issuer and Audience are the required iss and aud claims; "" accepts any.
	Issuer   string `yaml:"issuer"`
	Audience string `yaml:"audience"`
	// Anonymous are the rights of sessions without a token.
	Anonymous Rights `yaml:"anonymous"`
	// ClientCA is a PEM file with the certificates that sign client certificates.
	ClientCA string `yaml:"clientCA"`
	// Clients are the rights of client certificates.
	Clients []Client `yaml:"clients"`
}

// Rights are namespace prefixes in the format of ParsePrefix.
type Rights struct {
	Publish   []string `yaml:"publish"`
	Subscribe []string `yaml:"subscribe"`
}

// Client is a client certificate and its rights.
type Client struct {
	// Name is the certificate's common name or one of its DNS names or URIs.
	Name   string `yaml:"name"`
	Rights `yaml:",inline"`
}

// Enabled reports whether any kind of credential is configured.
func (c *Config) Enabled() bool { return len(c.Keys) > 0 || c.ClientCA != "" }

// Validate returns an error that begins with the name of the wrong setting. It reads no files.
func (c *Config) Validate() error {
	for i, k := range c.Keys {
		switch {
		case k == "":
			return fmt.Errorf("auth.keys[%d] names no file", i)
		case isURL(k):
			if err := checkURL(k); err != nil {
				return fmt.Errorf("auth.keys[%d]: %w", i, err)
			}
		}
	}
	if c.Refresh <= 0 {
		return errors.New("auth.refresh must be above 0")
	}
	if (c.ClientCA == "") != (len(c.Clients) == 0) {
		return errors.New("auth.clientCA and auth.clients must be given together")
	}
	if c.Revoked != "" && !c.Enabled() {
		return errors.New("auth.revoked has no effect without auth.keys")
	}
	if _, err := c.Anonymous.parse(); err != nil {
		return fmt.Errorf("auth.anonymous: %w", err)
	}
	for i, one := range c.Clients {
		if one.Name == "" {
			return fmt.Errorf("auth.clients[%d].name is empty", i)
		}
		if _, err := one.parse(); err != nil {
			return fmt.Errorf("auth.clients[%d]: %w", i, err)
		}
	}
	return nil
}

func (r Rights) parse() (parsed rights, err error) {
	for _, list := range []struct {
		name string
		from []string
		to   *Prefixes
	}{{"publish", r.Publish, &parsed.publish}, {"subscribe", r.Subscribe, &parsed.subscribe}} {
		for _, text := range list.from {
			ns, err := ParsePrefix(text)
			if err != nil {
				return parsed, fmt.Errorf("%s: %w", list.name, err)
			}
			*list.to = append(*list.to, ns)
		}
	}
	return parsed, nil
}

// rights are parsed Rights.
type rights struct{ publish, subscribe Prefixes }

func (r rights) equal(o rights) bool {
	same := func(a, b Prefixes) bool { return slices.EqualFunc(a, b, moqt.Namespace.Equal) }
	return same(r.publish, o.publish) && same(r.subscribe, o.subscribe)
}

func (r rights) none() bool { return len(r.publish)+len(r.subscribe) == 0 }

// Authority verifies tokens and certificates, and ends their grants when they expire or are
// revoked. Its methods are safe for concurrent use.
type Authority struct {
	log   *slog.Logger
	clock func() time.Time

	reading sync.Mutex // held while reading keys; locked before mu

	mu        sync.Mutex
	cfg       Config
	now       state
	live      map[*Grant]struct{}
	anonymous *Grant // rights of everybody
}

// state holds the keys and files of a configuration.
type state struct {
	keys        map[string][]Key // by source
	unreachable map[string]error // unreachable URLs; their previous keys stay valid
	revoked     map[string]struct{}
	roots       *x509.CertPool
	anonymous   rights
	clients     map[string]rights
	files       map[string]fileState
}

// fileState detects changes of a file.
type fileState struct {
	modified time.Time
	size     int64
}

// New reads keys and certificates; Run keeps them current. An unreachable key server is not an
// error: it is retried, and until it responds its keys are unknown.
func New(ctx context.Context, cfg Config, log *slog.Logger) (*Authority, error) {
	a := &Authority{log: cmp.Or(log, slog.Default()), clock: time.Now, live: map[*Grant]struct{}{}}
	if err := a.Replace(ctx, cfg); err != nil {
		return nil, err
	}
	return a, nil
}

// Replace reads everything again, using cfg from now on. Grants that are no longer valid end. On
// error nothing changes. An unreachable key server's previous keys stay valid, and it is retried.
func (a *Authority) Replace(ctx context.Context, cfg Config) error {
	a.reading.Lock()
	defer a.reading.Unlock()
	return a.read(ctx, cfg)
}

// read implements Replace. a.reading is held.
func (a *Authority) read(ctx context.Context, cfg Config) error {
	next := state{
		keys: map[string][]Key{}, unreachable: map[string]error{}, clients: map[string]rights{},
		files: map[string]fileState{},
	}
	a.mu.Lock()
	before := a.now
	a.mu.Unlock()
	for _, source := range cfg.Keys {
		// Stat the file before reading it, so a change during the read is detected later.
		next.recordFile(source)
		keys, err := ReadKeys(ctx, source)
		switch unreachable := (*unreachableError)(nil); {
		case errors.As(err, &unreachable):
			next.keys[source], next.unreachable[source] = before.keys[source], err
		case err != nil:
			return fmt.Errorf("auth.keys: %w", err)
		default:
			next.keys[source] = keys
		}
	}
	if err := next.readRevoked(cfg.Revoked); err != nil {
		return err
	}
	if err := next.readClients(cfg); err != nil {
		return err
	}
	a.report(before, next)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.cfg, a.now = cfg, next
	a.sweep(a.clock(), true)
	if a.anonymous == nil || !a.anonymous.equal(next.anonymous) {
		if a.anonymous != nil {
			a.end(a.anonymous, ErrRevoked)
		}
		a.anonymous = a.grant(Grant{rights: next.anonymous, renew: func(time.Time) error { return nil }})
	}
	return nil
}

// report logs key servers that became unreachable or reachable again.
func (a *Authority) report(before, next state) {
	for source, err := range next.unreachable {
		if before.unreachable[source] != nil {
			continue
		}
		if keys := len(next.keys[source]); keys > 0 {
			a.log.Error("key server unreachable: keeping its previous keys",
				"url", source, "keys", keys, "retry", retryInterval, "err", err)
		} else {
			a.log.Error("key server unreachable: refusing tokens of its keys until it responds",
				"url", source, "retry", retryInterval, "err", err)
		}
	}
	for source := range before.unreachable {
		if next.unreachable[source] == nil && next.keys[source] != nil {
			a.log.Info("key server reachable again", "url", source, "keys", len(next.keys[source]))
		}
	}
}

// recordFile records the current state of a file.
func (s *state) recordFile(file string) {
	if file != "" && !isURL(file) {
		s.files[file] = stat(file)
	}
}

func stat(file string) (f fileState) {
	if info, err := os.Stat(file); err == nil {
		f = fileState{info.ModTime(), info.Size()}
	}
	return f
}

func (s *state) readRevoked(file string) error {
	s.revoked = map[string]struct{}{}
	if file == "" {
		return nil
	}
	s.recordFile(file)
	b, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("auth.revoked: %w", err)
	}
	for line := range strings.Lines(string(b)) {
		line, _, _ = strings.Cut(line, "#")
		if id := strings.TrimSpace(line); id != "" {
			s.revoked[id] = struct{}{}
		}
	}
	return nil
}

func (s *state) readClients(cfg Config) (err error) {
	if s.anonymous, err = cfg.Anonymous.parse(); err != nil {
		return fmt.Errorf("auth.anonymous: %w", err)
	}
	if cfg.ClientCA == "" {
		return nil
	}
	s.recordFile(cfg.ClientCA)
	b, err := os.ReadFile(cfg.ClientCA)
	if err != nil {
		return fmt.Errorf("auth.clientCA: %w", err)
	}
	s.roots = x509.NewCertPool()
	if !s.roots.AppendCertsFromPEM(b) {
		return fmt.Errorf("auth.clientCA %s holds no certificate", cfg.ClientCA)
	}
	for i, one := range cfg.Clients {
		if s.clients[one.Name], err = one.parse(); err != nil {
			return fmt.Errorf("auth.clients[%d]: %w", i, err)
		}
	}
	return nil
}

// retryInterval separates retries of an unreachable key server.
const retryInterval = 2 * time.Second

// checkEvery is the interval between checks of grants and files. Each check reads the wall clock,
// so a clock step does not extend a grant.
const checkEvery = time.Second

// Run ends expired grants and rereads changed files, and URLs every Refresh, until ctx ends. Read
// errors are logged and leave the previous state.
func (a *Authority) Run(ctx context.Context) {
	tick := time.NewTicker(checkEvery)
	defer tick.Stop()
	var reading sync.WaitGroup // in the background: a slow key server must not delay expiry
	defer reading.Wait()
	read := time.Now()
	done := make(chan struct{}, 1)
	done <- struct{}{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		a.mu.Lock()
		a.sweep(a.clock(), false)
		due := time.Since(read) >= a.cfg.Refresh && slices.ContainsFunc(a.cfg.Keys, isURL) ||
			time.Since(read) >= retryInterval && len(a.now.unreachable) > 0
		changed := a.now.changed()
		a.mu.Unlock()
		if !due && !changed {
			continue
		}
		select {
		case <-done:
		default:
			continue // a read is still running
		}
		read = time.Now()
		reading.Go(func() {
			a.refresh(ctx, changed)
			done <- struct{}{}
		})
	}
}

// refresh rereads all sources.
func (a *Authority) refresh(ctx context.Context, changed bool) {
	a.reading.Lock()
	defer a.reading.Unlock()
	a.mu.Lock()
	cfg := a.cfg
	a.mu.Unlock()
	switch err := a.read(ctx, cfg); {
	case err == nil && changed:
		a.log.Info("keys replaced")
	case err != nil && ctx.Err() == nil:
		a.log.Error("keeping the old keys", "err", err)
		a.mu.Lock()
		for file := range a.now.files {
			a.now.recordFile(file) // log the error once per change
		}
		a.mu.Unlock()
	}
}

func (s *state) changed() bool {
	for file, was := range s.files {
		if stat(file) != was {
			return true
		}
	}
	return false
}

// sweep ends expired grants and, if renew is set, those that current keys and lists no longer
// support. a.mu is held.
func (a *Authority) sweep(now time.Time, renew bool) {
	for g := range a.live {
		now := g.time(now)
		if !g.expires.IsZero() && !now.Before(g.expires) {
			a.end(g, ErrExpired)
			continue
		}
		if renew {
			if err := g.renew(now); err != nil {
				a.end(g, err)
			}
		}
	}
}

// end ends a grant. a.mu is held.
func (a *Authority) end(g *Grant, why error) {
	delete(a.live, g)
	g.cancel(why)
}

// Grant is what a token or certificate allows. Its context ends with it; the cause is the reason.
type Grant struct {
	// Subject is the authenticated identity; "" for the anonymous grant.
	Subject string

	rights
	ctx     context.Context
	cancel  context.CancelCauseFunc
	given   time.Time
	expires time.Time                 // zero means never
	renew   func(now time.Time) error // verifies the credential again; a.mu is held
}

// time returns the time by which to judge the grant: the wall clock, or if that was set back, the
// time it would show otherwise. Setting the clock back thus neither extends a grant nor makes it
// invalid because it starts in the future.
func (g *Grant) time(now time.Time) time.Time {
	if unstepped := g.given.Add(now.Sub(g.given)); now.Round(0).Before(unstepped.Round(0)) {
		return unstepped
	}
	return now
}

// Context returns a context that ends with the grant.
func (g *Grant) Context() context.Context { return g.ctx }

func (a *Authority) grant(g Grant) *Grant {
	g.given = a.clock()
	g.ctx, g.cancel = context.WithCancelCause(context.Background())
	a.live[&g] = struct{}{}
	return &g
}

// release ends a grant that is no longer used.
func (a *Authority) release(g *Grant) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.end(g, context.Canceled)
}

// token verifies a token and returns its grant.
func (a *Authority) token(raw string) (*Grant, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	check := func(now time.Time) (*Claims, error) {
		var keys []Key
		for _, more := range a.now.keys {
			keys = append(keys, more...)
		}
		c, err := verify(raw, keys, a.cfg.Issuer, a.cfg.Audience, now)
		if err != nil {
			return nil, err
		}
		for _, id := range []string{c.ID, c.Subject} {
			if _, revoked := a.now.revoked[id]; revoked && id != "" {
				return nil, ErrRevoked
			}
		}
		return c, nil
	}
	c, err := check(a.clock())
	if err != nil {
		return nil, err
	}
	g := Grant{Subject: c.subject(raw), rights: rights{c.Publish, c.Subscribe}}
	if c.Expiry != nil {
		g.expires = c.Expiry.Time()
	}
	g.renew = func(now time.Time) error { _, err := check(now); return err }
	return a.grant(g), nil
}

// certificate verifies a client's certificate chain and returns its grant; nil without a chain.
func (a *Authority) certificate(chain []*x509.Certificate) (*Grant, error) {
	if len(chain) == 0 {
		return nil, nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	leaf := chain[0]
	check := func(now time.Time) (string, error) {
		if a.now.roots == nil {
			return "", nil // client certificates are not configured
		}
		o := x509.VerifyOptions{
			Roots: a.now.roots, Intermediates: x509.NewCertPool(), CurrentTime: now,
			KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		}
		for _, c := range chain[1:] {
			o.Intermediates.AddCert(c)
		}
		if _, err := leaf.Verify(o); err != nil {
			return "", fmt.Errorf("the client's certificate: %w", err)
		}
		names := append([]string{leaf.Subject.CommonName}, leaf.DNSNames...)
		for _, u := range leaf.URIs {
			names = append(names, u.String())
		}
		for _, name := range names {
			if _, known := a.now.clients[name]; known {
				if _, revoked := a.now.revoked[name]; revoked {
					return "", ErrRevoked
				}
				return name, nil
			}
		}
		return "", fmt.Errorf("the client's certificate: auth.clients does not name %q", leaf.Subject.CommonName)
	}
	name, err := check(a.clock())
	if err != nil || name == "" {
		return nil, err
	}
	return a.grant(Grant{
		Subject: "certificate " + name, rights: a.now.clients[name], expires: leaf.NotAfter,
		renew: func(now time.Time) error {
			current, err := check(now)
			if err == nil && current != name {
				err = ErrRevoked
			}
			return err
		},
	}), nil
}
