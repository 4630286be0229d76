// Package auth authenticates sessions and authorizes their requests. A JSON Web Token (RFC 7519)
// names the namespaces in which its holder may publish or subscribe; for a client certificate, the
// configuration does. Tokens arrive in SETUP or a request (draft-ietf-moq-transport-18 §10.2.2), or in
// the session's URL. When a token expires or is revoked, the sessions and requests that it allowed
// end.
package auth

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"holocast/internal/filestate"
	"holocast/internal/moqt"
)

// Config configures authentication. The zero value accepts no credentials.
type Config struct {
	// Keys are the sources of keys that verify tokens: files, and URLs of key sets.
	Keys []string `yaml:"keys"`
	// Refresh is the interval between reads of the URLs.
	Refresh time.Duration `yaml:"refresh"`
	// Revoked is a file of revoked token IDs, subjects and client names, one per line.
	Revoked string `yaml:"revoked"`
	// SessionsPerToken limits the sessions of a token, at all relays of a cluster together. 0 means no limit.
	SessionsPerToken int `yaml:"sessionsPerToken"`
	// Issuer and Audience are the required iss and aud claims. "" accepts any value.
	Issuer   string `yaml:"issuer"`
	Audience string `yaml:"audience"`
	// Anonymous holds the rights of every session, even without a token.
	Anonymous Rights `yaml:"anonymous"`
	// ClientCA is a PEM file with the CA certificates that client certificates are verified
	// against.
	ClientCA string `yaml:"clientCA"`
	// Clients lists the accepted client certificates and their rights.
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

// Validate returns an error that begins with the name of the invalid setting. It reads no files.
func (c *Config) Validate() error {
	for i, k := range c.Keys {
		switch {
		case k == "":
			return fmt.Errorf("auth.keys[%d] is empty", i)
		case isURL(k):
			if err := checkURL(k); err != nil {
				return fmt.Errorf("auth.keys[%d]: %w", i, err)
			}
		}
	}
	if c.Refresh <= 0 {
		return errors.New("auth.refresh must be above 0")
	}
	switch {
	case c.SessionsPerToken < 0:
		return errors.New("auth.sessionsPerToken must not be negative; 0 means no limit")
	case c.SessionsPerToken > 0 && len(c.Keys) == 0:
		return errors.New("auth.sessionsPerToken has no effect without auth.keys")
	}
	if (c.ClientCA == "") != (len(c.Clients) == 0) {
		return errors.New("auth.clientCA and auth.clients must be given together")
	}
	if c.Revoked != "" && !c.Enabled() {
		return errors.New("auth.revoked has no effect without auth.keys or auth.clientCA")
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
	fetch func(ctx context.Context, url string) ([]Key, error) // ReadKeys
	wake  chan struct{}                                        // makes Run check for due work

	reading sync.Mutex // held while reading files; locked before mu

	mu        sync.Mutex
	cfg       Config
	now       state
	revision  uint64              // counts values of now
	elsewhere map[string]struct{} // revoked by other relays
	failed    string              // error from the last time the files were read, "" if none
	servers   map[string]*keyServer
	live      map[*Grant]struct{}
	holders   holders // of live
	anonymous *Grant  // rights of everybody
}

// state holds the content of a configuration's files.
type state struct {
	keys      map[string][]Key // by file
	revoked   map[string]struct{}
	roots     *x509.CertPool
	anonymous rights
	clients   map[string]rights
	files     map[string]filestate.State
}

// keyServer is the server of a key set. Authority.mu guards it.
type keyServer struct {
	keys     []Key
	err      error     // of the last fetch; after an error the previous keys stay valid
	asked    time.Time // start of the last fetch; zero if one is due
	fetching bool
}

// startWait limits the wait for key servers at startup.
const startWait = time.Second

// New reads keys and certificates; Run keeps them current. New waits at most a second for key
// servers. An unreachable server is not an error; its keys are unknown until it answers one of Run's
// retries.
func New(ctx context.Context, cfg Config, log *slog.Logger) (*Authority, error) {
	return newAuthority(ctx, cfg, log, ReadKeys)
}

func newAuthority(ctx context.Context, cfg Config, log *slog.Logger,
	fetch func(context.Context, string) ([]Key, error),
) (*Authority, error) {
	a := &Authority{
		log: cmp.Or(log, slog.Default()), clock: time.Now, fetch: fetch, wake: make(chan struct{}, 1),
		live: map[*Grant]struct{}{},
	}
	if err := a.Replace(ctx, cfg); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, startWait)
	defer cancel()
	var wg sync.WaitGroup
	results := make(chan error, len(a.servers))
	for url, s := range a.servers {
		s.asked, s.fetching = time.Now(), true
		wg.Go(func() { results <- a.fetchKeys(ctx, url, s) })
	}
	wg.Wait()
	close(results)
	for err := range results {
		if unreachable := (*unreachableError)(nil); err != nil && !errors.As(err, &unreachable) {
			return nil, fmt.Errorf("auth.keys: %w", err)
		}
	}
	return a, nil
}

// Replace adopts cfg, rereads all files and makes Run fetch the keys of all servers. It ends grants
// that are no longer valid. A server's previous keys stay valid until it responds. On error nothing
// changes.
func (a *Authority) Replace(ctx context.Context, cfg Config) error {
	a.reading.Lock()
	defer a.reading.Unlock()
	next, err := readFiles(ctx, cfg, nil)
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	servers := map[string]*keyServer{}
	for _, source := range cfg.Keys {
		if !isURL(source) {
			continue
		}
		servers[source] = a.servers[source]
		if servers[source] == nil {
			servers[source] = &keyServer{}
		}
		servers[source].asked = time.Time{}
	}
	a.cfg, a.servers, a.failed = cfg, servers, ""
	a.holders.version++
	a.apply(next)
	select {
	case a.wake <- struct{}{}:
	default:
	}
	return nil
}

// readFiles reads the files of a configuration. If before is not nil, it supplies the parts whose
// files cannot be read, so that an unreadable key file does not delay a revocation.
func readFiles(ctx context.Context, cfg Config, before *state) (next state, err error) {
	next = state{keys: map[string][]Key{}, clients: map[string]rights{}, files: map[string]filestate.State{}}
	for _, source := range cfg.Keys {
		if isURL(source) {
			continue
		}
		// Stat the file before reading it, so a change during the read is detected later.
		next.recordFile(source)
		keys, e := ReadKeys(ctx, source)
		if e != nil {
			err = errors.Join(err, fmt.Errorf("auth.keys: %w", e))
			if before != nil {
				keys = before.keys[source]
			}
		}
		next.keys[source] = keys
	}
	if e := next.readRevoked(cfg.Revoked); e != nil {
		err = errors.Join(err, e)
		if before != nil {
			next.revoked = before.revoked
		}
	}
	if e := next.readClients(cfg); e != nil {
		err = errors.Join(err, e)
		if before != nil {
			next.roots, next.clients = before.roots, before.clients
		}
	}
	return next, err
}

// apply makes next the current state. The caller holds a.mu.
func (a *Authority) apply(next state) {
	a.now = next
	a.revision++
	a.sweep(a.clock(), true)
	if a.anonymous == nil || !a.anonymous.equal(next.anonymous) {
		if a.anonymous != nil {
			a.end(a.anonymous, ErrRevoked)
		}
		a.anonymous = a.grant(Grant{rights: next.anonymous, renew: func(time.Time) error { return nil }})
	}
}

// fetchKeys fetches a server's keys, and logs when the server becomes unreachable or reachable
// again.
func (a *Authority) fetchKeys(ctx context.Context, url string, s *keyServer) error {
	keys, err := a.fetch(ctx, url)
	if errors.Is(ctx.Err(), context.Canceled) {
		return nil // the program ends
	}
	a.mu.Lock()
	before := s.err
	s.err, s.fetching = err, false
	if err == nil {
		s.keys = keys
		a.sweep(a.clock(), true)
	}
	kept := len(s.keys)
	a.mu.Unlock()
	switch {
	case err == nil && before != nil:
		a.log.Info("key server reachable again", "url", url, "keys", kept)
	case err == nil || before != nil:
	case kept > 0:
		a.log.Error("key server unreachable, keeping its previous keys",
			"url", url, "keys", kept, "retry", retryInterval, "err", err)
	default:
		a.log.Error("key server unreachable, refusing tokens signed with its keys until it responds",
			"url", url, "retry", retryInterval, "err", err)
	}
	return err
}

// recordFile records the current state of a file.
func (s *state) recordFile(file string) {
	if file != "" && !isURL(file) {
		s.files[file] = filestate.Of(file)
	}
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

// retryInterval is the interval between retries of an unreachable key server.
const retryInterval = 2 * time.Second

// checkEvery is the interval between checks of grants and files. Each check reads the wall clock, so
// that a step of the clock does not extend a grant.
const checkEvery = 500 * time.Millisecond

// Run ends expired grants, rereads changed files and fetches the servers' keys at intervals of
// Refresh, until ctx is done. Read errors are logged and leave the previous state unchanged.
func (a *Authority) Run(ctx context.Context) {
	tick := time.NewTicker(checkEvery)
	defer tick.Stop()
	var background sync.WaitGroup // slow servers and file systems must not delay expiry
	defer background.Wait()
	free := make(chan struct{}, 1) // allows one read of the files at a time
	for {
		a.mu.Lock()
		a.sweep(a.clock(), false)
		changed := a.now.changed()
		reread := changed || a.failed != ""
		for url, s := range a.servers {
			interval := a.cfg.Refresh
			if s.err != nil {
				interval = retryInterval
			}
			if s.fetching || !s.asked.IsZero() && time.Since(s.asked) < interval {
				continue
			}
			s.asked, s.fetching = time.Now(), true
			background.Go(func() { _ = a.fetchKeys(ctx, url, s) })
		}
		a.mu.Unlock()
		if reread {
			select {
			case free <- struct{}{}:
				background.Go(func() {
					a.refresh(ctx, changed)
					<-free
				})
			default: // a read is still running
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-a.wake:
		}
	}
}

// refresh rereads all files. After an error Run calls it again even if no file changes, since the
// cause may be temporary, such as a lack of descriptors.
func (a *Authority) refresh(ctx context.Context, changed bool) {
	a.reading.Lock()
	defer a.reading.Unlock()
	a.mu.Lock()
	cfg, before, failed := a.cfg, a.now, a.failed
	a.mu.Unlock()
	next, err := readFiles(ctx, cfg, &before)
	if ctx.Err() != nil {
		return
	}
	text := ""
	if err != nil {
		text = err.Error()
	}
	a.mu.Lock()
	if changed || err == nil { // otherwise grants need no check
		a.apply(next)
	}
	a.failed = text
	a.mu.Unlock()
	switch {
	case err == nil:
		a.log.Info("keys replaced")
	case text != failed:
		a.log.Error("cannot reread keys and revocations, keeping the previous ones", "err", err)
	}
}

func (s *state) changed() bool {
	for file, was := range s.files {
		if filestate.Of(file) != was {
			return true
		}
	}
	return false
}

// sweep ends expired grants. If renew is set, it also ends grants that the current keys, clients
// and revocations no longer allow. The caller holds a.mu.
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

// end ends a grant. The caller holds a.mu.
func (a *Authority) end(g *Grant, why error) {
	if _, live := a.live[g]; live {
		delete(a.live, g)
		a.holders.release(g)
	}
	g.cancel(why)
}

// Grant holds the rights of a token or certificate. Its context ends with the grant, with the
// reason as cause.
type Grant struct {
	// Subject is the authenticated identity, or "" for the anonymous grant.
	Subject string

	rights
	ctx     context.Context
	cancel  context.CancelCauseFunc
	given   time.Time
	expires time.Time                 // zero means never
	renew   func(now time.Time) error // verifies the credential again; a.mu is held
	token   TokenID
	holder  *Session // whose token it is; nil for other grants
}

// time returns the time at which to check the grant: now or, if the wall clock was set back since
// the grant was issued, the time it would show without that step. Setting the clock back thus
// neither extends a grant nor moves its start into the future.
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
	a.holders.hold(&g)
	return &g
}

// release ends a grant that is no longer used.
func (a *Authority) release(g *Grant) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.end(g, context.Canceled)
}

// revoked reports whether a token ID, subject or client name is revoked. The caller holds a.mu.
func (a *Authority) revoked(id string) bool {
	_, here := a.now.revoked[id]
	_, elsewhere := a.elsewhere[id]
	return here || elsewhere
}

// Revoked lists the content of Config.Revoked, in order. version changes whenever the list may have changed; the
// list is nil while version is known. 0 is no version.
func (a *Authority) Revoked(known uint64) (list []string, version uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.revision == known {
		return nil, known
	}
	return slices.Sorted(maps.Keys(a.now.revoked)), a.revision
}

// RevokeToo replaces the token IDs, subjects and client names that are revoked in addition to Config.Revoked. It
// ends their grants.
func (a *Authority) RevokeToo(list []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.elsewhere = make(map[string]struct{}, len(list))
	for _, id := range list {
		a.elsewhere[id] = struct{}{}
	}
	a.sweep(a.clock(), true)
}

// token verifies a token of a session and returns its grant.
func (a *Authority) token(x *Session, raw string) (*Grant, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	check := func(now time.Time) (*Claims, error) {
		var keys []Key
		for _, more := range a.now.keys {
			keys = append(keys, more...)
		}
		for _, s := range a.servers {
			keys = append(keys, s.keys...)
		}
		c, err := Verify(raw, keys, a.cfg.Issuer, a.cfg.Audience, now)
		if err != nil {
			return nil, err
		}
		for _, id := range []string{c.ID, c.Subject} {
			if id != "" && a.revoked(id) {
				return nil, ErrRevoked
			}
		}
		return c, nil
	}
	c, err := check(a.clock())
	if err != nil {
		return nil, err
	}
	g := Grant{
		Subject: c.subject(raw), rights: rights{c.Publish, c.Subscribe}, token: c.tokenID(raw), holder: x,
	}
	if a.full(g.token, x) {
		return nil, ErrSessions
	}
	if c.Expiry != nil {
		g.expires = c.Expiry.Time()
	}
	g.renew = func(now time.Time) error { _, err := check(now); return err }
	return a.grant(g), nil
}

// certificate verifies a client's certificate chain and returns its grant, or nil if chain is empty.
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
			return "", fmt.Errorf("client certificate: %w", err)
		}
		names := append([]string{leaf.Subject.CommonName}, leaf.DNSNames...)
		for _, u := range leaf.URIs {
			names = append(names, u.String())
		}
		for _, name := range names {
			if _, known := a.now.clients[name]; known {
				if a.revoked(name) {
					return "", ErrRevoked
				}
				return name, nil
			}
		}
		return "", fmt.Errorf("client certificate: auth.clients does not name %q", leaf.Subject.CommonName)
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
