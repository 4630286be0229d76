// Package auth says who may do what at the relay: sessions prove by JSON Web Tokens
// (RFC 7519), or by a client certificate, in which namespaces they may publish and to
// which they may subscribe. Tokens come in the MOQT authorization token, of SETUP or of a
// request (draft-ietf-moq-transport-18 §10.2.2), or in the session's URL, and what they
// allow ends for living sessions when they expire or are revoked.
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

// Config says whom to believe. Its zero value believes nobody.
type Config struct {
	// Keys are files with the keys that sign tokens, and URLs of key sets.
	Keys []string `yaml:"keys"`
	// Refresh is how often the URLs are read again.
	Refresh time.Duration `yaml:"refresh"`
	// Revoked is a file with the IDs and subjects of tokens that are no longer valid, one
	// a line.
	Revoked string `yaml:"revoked"`
	// Issuer and Audience are what the claims iss and aud of every token must be; "" = any.
	Issuer   string `yaml:"issuer"`
	Audience string `yaml:"audience"`
	// Anonymous is what sessions without a token may do.
	Anonymous Rights `yaml:"anonymous"`
	// ClientCA is a PEM file with the certificates that sign client certificates.
	ClientCA string `yaml:"clientCA"`
	// Clients are what the holders of client certificates may do.
	Clients []Client `yaml:"clients"`
}

// Rights are namespace prefixes with slashes between their fields, as ParsePrefix reads
// them.
type Rights struct {
	Publish   []string `yaml:"publish"`
	Subscribe []string `yaml:"subscribe"`
}

// Client is the holder of a client certificate.
type Client struct {
	// Name is the certificate's common name, or one of its DNS names or URIs.
	Name   string `yaml:"name"`
	Rights `yaml:",inline"`
}

// Enabled reports whether anybody can prove anything.
func (c *Config) Enabled() bool { return len(c.Keys) > 0 || c.ClientCA != "" }

// Validate returns an error that begins with the name of the wrong setting. Files are not
// read.
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
		return errors.New("auth.revoked is of no use without auth.keys")
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

// rights are what somebody may do.
type rights struct{ publish, subscribe Prefixes }

func (r rights) equal(o rights) bool {
	same := func(a, b Prefixes) bool { return slices.EqualFunc(a, b, moqt.Namespace.Equal) }
	return same(r.publish, o.publish) && same(r.subscribe, o.subscribe)
}

func (r rights) none() bool { return len(r.publish)+len(r.subscribe) == 0 }

// Authority verifies tokens and certificates, and takes back what they allowed when they
// expire or are revoked. Its methods are safe for concurrent use.
type Authority struct {
	log   *slog.Logger
	clock func() time.Time

	reading sync.Mutex // of keys; before mu

	mu        sync.Mutex
	cfg       Config
	now       state
	live      map[*Grant]struct{}
	anonymous *Grant // what everybody may do
}

// state is what has been read of a configuration.
type state struct {
	keys      map[string][]Key // by source
	away      map[string]error // URLs that did not answer; their keys are those from before
	revoked   map[string]struct{}
	roots     *x509.CertPool
	anonymous rights
	clients   map[string]rights
	files     map[string]fileState
}

// fileState tells a file from its replacement.
type fileState struct {
	modified time.Time
	size     int64
}

// New reads keys and certificates. Run keeps them up to date. A server of keys that does not
// answer is no error: it is asked again until it does, and nobody has its keys meanwhile.
func New(ctx context.Context, cfg Config, log *slog.Logger) (*Authority, error) {
	a := &Authority{log: cmp.Or(log, slog.Default()), clock: time.Now, live: map[*Grant]struct{}{}}
	if err := a.Replace(ctx, cfg); err != nil {
		return nil, err
	}
	return a, nil
}

// Replace reads everything anew, from now on as cfg says. What living sessions were
// allowed by what is no longer valid ends. With an error everything stays as it was. The keys
// of a server that does not answer stay, and it is asked again.
func (a *Authority) Replace(ctx context.Context, cfg Config) error {
	a.reading.Lock()
	defer a.reading.Unlock()
	return a.read(ctx, cfg)
}

// read is Replace. a.reading is held.
func (a *Authority) read(ctx context.Context, cfg Config) error {
	next := state{keys: map[string][]Key{}, away: map[string]error{}, clients: map[string]rights{}, files: map[string]fileState{}}
	a.mu.Lock()
	before := a.now
	a.mu.Unlock()
	for _, source := range cfg.Keys {
		// Before the file is read, so that a change in between is seen later.
		next.note(source)
		keys, err := ReadKeys(ctx, source)
		switch away := (*awayError)(nil); {
		case errors.As(err, &away):
			next.keys[source], next.away[source] = before.keys[source], err
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

// report logs which URLs of keys stopped to answer, and which do again.
func (a *Authority) report(before, next state) {
	for source, err := range next.away {
		if before.away[source] != nil {
			continue
		}
		if keys := len(next.keys[source]); keys > 0 {
			a.log.Error("a server of keys does not answer: its keys from before stay valid", "url", source, "keys", keys, "retry", awayRetry, "err", err)
		} else {
			a.log.Error("a server of keys does not answer: nobody with a token of its keys is let in until it does", "url", source, "retry", awayRetry, "err", err)
		}
	}
	for source := range before.away {
		if next.away[source] == nil && next.keys[source] != nil {
			a.log.Info("a server of keys answers again", "url", source, "keys", len(next.keys[source]))
		}
	}
}

// note remembers a file as it is now.
func (s *state) note(file string) {
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
	s.note(file)
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
	s.note(cfg.ClientCA)
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

// awayRetry is how often a server of keys that does not answer is asked again.
const awayRetry = 2 * time.Second

// checkEvery is how often grants and files are looked at. The wall clock is asked each
// time, so that a step of it does not prolong anything.
const checkEvery = time.Second

// Run ends what expires, and reads files that changed and, every Refresh, keys from URLs,
// until ctx ends. What cannot be read is logged and stays as it was.
func (a *Authority) Run(ctx context.Context) {
	tick := time.NewTicker(checkEvery)
	defer tick.Stop()
	var reading sync.WaitGroup // a server of keys that does not answer delays no expiry
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
			time.Since(read) >= awayRetry && len(a.now.away) > 0
		changed := a.now.changed()
		a.mu.Unlock()
		if !due && !changed {
			continue
		}
		select {
		case <-done:
		default:
			continue // still reading
		}
		read = time.Now()
		reading.Go(func() {
			a.refresh(ctx, changed)
			done <- struct{}{}
		})
	}
}

// refresh reads everything again, from where it came before.
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
			a.now.note(file) // reported once
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

// sweep ends the grants that are no longer valid: those that expired, and with again,
// those that would not be given any more. a.mu is held.
func (a *Authority) sweep(now time.Time, again bool) {
	for g := range a.live {
		now := g.time(now)
		if !g.expires.IsZero() && !now.Before(g.expires) {
			a.end(g, ErrExpired)
			continue
		}
		if again {
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

// Grant is what one token or certificate allows its holder, for as long as its context
// lasts; the context's cause is why it ended.
type Grant struct {
	// Subject is who proved it; "" for what everybody may do.
	Subject string

	rights
	ctx     context.Context
	cancel  context.CancelCauseFunc
	given   time.Time
	expires time.Time                 // zero = never
	renew   func(now time.Time) error // whether it would still be given; a.mu is held
}

// time is the time by which the grant is judged: now by the wall clock, and where that was set
// back, what it would be without. So that neither prolongs the grant, nor ends it as one that is
// not valid yet.
func (g *Grant) time(now time.Time) time.Time {
	if steady := g.given.Add(now.Sub(g.given)); now.Round(0).Before(steady.Round(0)) {
		return steady
	}
	return now
}

// Context ends with the grant.
func (g *Grant) Context() context.Context { return g.ctx }

func (a *Authority) grant(g Grant) *Grant {
	g.given = a.clock()
	g.ctx, g.cancel = context.WithCancelCause(context.Background())
	a.live[&g] = struct{}{}
	return &g
}

// release forgets a grant that nobody needs any more.
func (a *Authority) release(g *Grant) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.end(g, context.Canceled)
}

// token verifies a token.
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

// certificate verifies a client's certificate chain; nil without one.
func (a *Authority) certificate(chain []*x509.Certificate) (*Grant, error) {
	if len(chain) == 0 {
		return nil, nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	leaf := chain[0]
	check := func(now time.Time) (string, error) {
		if a.now.roots == nil {
			return "", nil // not asked for
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
			again, err := check(now)
			if err == nil && again != name {
				err = ErrRevoked
			}
			return err
		},
	}), nil
}
