package main

import (
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"holocast/internal/devcert"
)

// certificates hands out the relay's certificate: from files, read again when
// they change, or one it makes itself.
type certificates struct {
	cert, key string
	hosts     []string
	log       *slog.Logger

	mu      sync.Mutex
	current *tls.Certificate
	read    [2]fileState // the files when they were last read
	checked time.Time
}

// fileState tells a file from its replacement.
type fileState struct {
	modified time.Time
	size     int64
}

// renewBefore is how long before its end a development certificate is replaced.
const renewBefore = 24 * time.Hour

func newCertificates(cfg Config, log *slog.Logger) (*certificates, error) {
	c := &certificates{cert: cfg.TLS.Certificate, key: cfg.TLS.Key, hosts: cfg.TLS.Hosts, log: log}
	if err := c.load(time.Now()); err != nil {
		return nil, err
	}
	return c, nil
}

func (c *certificates) load(now time.Time) error {
	if c.cert == "" {
		cert, err := devcert.Generate(now, c.hosts...)
		if err != nil {
			return fmt.Errorf("development certificate: %w", err)
		}
		c.current = &cert
		return nil
	}
	c.read = c.state() // before they are read: a change in between is seen later
	cert, err := tls.LoadX509KeyPair(c.cert, c.key)
	if err != nil {
		return fmt.Errorf("tls.certificate %s, tls.key %s: %w", c.cert, c.key, err)
	}
	switch leaf := cert.Leaf; {
	case now.After(leaf.NotAfter):
		return fmt.Errorf("tls.certificate %s expired on %s", c.cert, leaf.NotAfter.Format(time.DateOnly))
	case now.Before(leaf.NotBefore):
		return fmt.Errorf("tls.certificate %s is not valid before %s", c.cert, leaf.NotBefore.Format(time.DateTime))
	}
	c.current = &cert
	return nil
}

// resetKey is the key of the stateless resets by which peers learn at once that the
// relay was restarted (RFC 9000 §10.3). It follows from the certificate's key, so
// that it is the same after the restart; nil for a development certificate, which is
// not.
func (c *certificates) resetKey() (*[32]byte, error) {
	if c.cert == "" {
		return nil, nil
	}
	secret, err := x509.MarshalPKCS8PrivateKey(c.get().PrivateKey)
	if err != nil {
		return nil, fmt.Errorf("tls.key %s: %w", c.key, err)
	}
	key, err := hkdf.Key(sha256.New, secret, nil, "holocast relay stateless reset", 32)
	if err != nil {
		return nil, fmt.Errorf("stateless reset key: %w", err)
	}
	return (*[32]byte)(key), nil
}

func (c *certificates) state() (s [2]fileState) {
	for i, path := range []string{c.cert, c.key} {
		if info, err := os.Stat(path); err == nil {
			s[i] = fileState{info.ModTime(), info.Size()}
		}
	}
	return s
}

// get returns the certificate to use now.
func (c *certificates) get() *tls.Certificate {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	stale := false
	switch {
	case c.cert == "":
		stale = now.After(c.current.Leaf.NotAfter.Add(-renewBefore))
	case now.Sub(c.checked) > time.Second:
		c.checked = now
		stale = c.state() != c.read
	}
	if stale {
		if err := c.load(now); err != nil {
			c.log.Error("keeping the old certificate", "err", err)
		} else {
			c.log.Info("new certificate", "sha256", c.hashOf(c.current), "until", c.current.Leaf.NotAfter)
		}
	}
	return c.current
}

func (c *certificates) hash() string { return c.hashOf(c.get()) }

func (c *certificates) hashOf(cert *tls.Certificate) string {
	h := devcert.Hash(*cert)
	return hex.EncodeToString(h[:])
}

func (c *certificates) tlsConfig() *tls.Config {
	return &tls.Config{
		MinVersion:     tls.VersionTLS13,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.get(), nil },
	}
}
