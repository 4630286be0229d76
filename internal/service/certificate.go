package service

import (
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"holocast/internal/devcert"
	"holocast/internal/filestate"
	"holocast/internal/secretfile"
)

const (
	// renewBefore is the time before expiry at which a development certificate is renewed.
	renewBefore = 24 * time.Hour
	// checkEvery is the interval between checks of a certificate's files.
	checkEvery = time.Second
)

// CertificateFiles is the source of a certificate.
type CertificateFiles struct {
	Certificate, Key string   // PEM files
	Hosts            []string // names in the development certificate, used if Certificate is ""
	Section          string   // configuration section, for errors
}

// Certificate is a server's current certificate. It is read from files and reloaded when they
// change, or it is a development certificate, which is renewed in time.
type Certificate struct {
	files CertificateFiles
	log   *slog.Logger
	clock func() time.Time

	mu      sync.Mutex
	current *tls.Certificate
	read    [2]filestate.State // files at the last read
	checked time.Time
	failed  string // last error logged, or "" after success
}

// NewCertificate loads or generates the certificate. It accepts a certificate outside its validity,
// just as a running server keeps its own after it expires: the machine's clock may be wrong at
// boot, and clients report an expired certificate more clearly than a missing server.
func NewCertificate(f CertificateFiles, log *slog.Logger) (*Certificate, error) {
	c := &Certificate{files: f, log: log, clock: time.Now}
	err := c.load(c.clock())
	if invalid := (*validityError)(nil); errors.As(err, &invalid) {
		c.current, c.failed = invalid.cert, err.Error()
		log.Error("clients will refuse the certificate until it is replaced", "err", err)
		return c, nil
	}
	if err != nil {
		return nil, err
	}
	return c, nil
}

// validityError reports a certificate that is expired or not valid yet.
type validityError struct {
	cert *tls.Certificate
	text string
}

func (e *validityError) Error() string { return e.text }

// Prepare loads or generates the certificate from f. use makes it current and uses f from now on.
func (c *Certificate) Prepare(f CertificateFiles) (use func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.Certificate == "" && c.files.Certificate == "" && slices.Equal(f.Hosts, c.files.Hosts) {
		return func() {}, nil // clients have pinned the development certificate
	}
	next := &Certificate{files: f}
	if err := next.load(c.clock()); err != nil {
		return nil, err
	}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.files, c.current, c.read, c.failed = next.files, next.current, next.read, ""
	}, nil
}

func (c *Certificate) load(now time.Time) error {
	if c.files.Certificate == "" {
		cert, err := devcert.Generate(now, c.files.Hosts...)
		if err != nil {
			return fmt.Errorf("development certificate: %w", err)
		}
		c.current, c.failed = &cert, ""
		return nil
	}
	name := c.files.Section + ".certificate " + c.files.Certificate
	// Stat the files before reading them, so a change during the read is detected later.
	c.read = c.state()
	cert, err := secretfile.KeyPair(c.files.Certificate, c.files.Key)
	if err != nil {
		return fmt.Errorf("%s, %s.key %s: %w", name, c.files.Section, c.files.Key, err)
	}
	switch leaf := cert.Leaf; {
	case now.After(leaf.NotAfter):
		return &validityError{&cert, fmt.Sprintf("%s expired on %s", name, leaf.NotAfter.Format(time.DateOnly))}
	case now.Before(leaf.NotBefore):
		return &validityError{
			&cert, fmt.Sprintf("%s is not valid before %s", name, leaf.NotBefore.Format(time.DateTime)),
		}
	}
	c.current, c.failed = &cert, ""
	return nil
}

func (c *Certificate) state() [2]filestate.State {
	return [2]filestate.State{filestate.Of(c.files.Certificate), filestate.Of(c.files.Key)}
}

// Adopt uses the predecessor's development certificate, which clients have pinned. It does nothing
// if certificates come from files.
func (c *Certificate) Adopt(development *tls.Certificate) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.files.Certificate == "" {
		c.current = development
	}
}

// Get returns the current certificate.
func (c *Certificate) Get() *tls.Certificate {
	now := c.clock()
	c.mu.Lock()
	defer c.mu.Unlock()
	stale := false
	switch {
	case c.files.Certificate == "":
		stale = now.After(c.current.Leaf.NotAfter.Add(-renewBefore))
	case now.Sub(c.checked) > checkEvery:
		c.checked = now
		// An error may go away without a change to the files, for example when the clock is
		// corrected or descriptors become free.
		stale = c.failed != "" || c.state() != c.read
	}
	if stale {
		if err := c.load(now); err != nil {
			if c.failed != err.Error() {
				c.log.Error("keeping the old certificate", "err", err)
			}
			c.failed = err.Error()
		} else {
			c.log.Info("certificate replaced", "sha256", hash(c.current), "until", c.current.Leaf.NotAfter)
		}
	}
	return c.current
}

// Hash returns the SHA-256 of the current certificate in hex.
func (c *Certificate) Hash() string { return hash(c.Get()) }

func hash(cert *tls.Certificate) string {
	h := devcert.Hash(*cert)
	return hex.EncodeToString(h[:])
}

// TLS returns a server configuration with this certificate.
func (c *Certificate) TLS() *tls.Config {
	return &tls.Config{
		MinVersion:     tls.VersionTLS13,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.Get(), nil },
	}
}
