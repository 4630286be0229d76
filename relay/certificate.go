package main

import (
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
	read    time.Time // the files' newest modification time when they were read
	checked time.Time
}

// renewBefore is how long before its end a development certificate is replaced.
const renewBefore = 24 * time.Hour

func newCertificates(cfg Config, log *slog.Logger) (*certificates, error) {
	c := &certificates{cert: cfg.TLS.Certificate, key: cfg.TLS.Key, hosts: cfg.TLS.Hosts, log: log}
	now := time.Now()
	if err := c.load(now); err != nil {
		return nil, err
	}
	if c.cert != "" && now.After(c.current.Leaf.NotAfter) {
		return nil, fmt.Errorf("tls.certificate %s expired on %s", c.cert, c.current.Leaf.NotAfter.Format(time.DateOnly))
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
	cert, err := tls.LoadX509KeyPair(c.cert, c.key)
	if err != nil {
		return fmt.Errorf("tls.certificate %s, tls.key %s: %w", c.cert, c.key, err)
	}
	if cert.Leaf == nil {
		if cert.Leaf, err = x509.ParseCertificate(cert.Certificate[0]); err != nil {
			return fmt.Errorf("tls.certificate %s: %w", c.cert, err)
		}
	}
	c.current, c.read = &cert, c.modified()
	return nil
}

func (c *certificates) modified() (newest time.Time) {
	for _, path := range []string{c.cert, c.key} {
		if info, err := os.Stat(path); err == nil && info.ModTime().After(newest) {
			newest = info.ModTime()
		}
	}
	return newest
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
		stale = c.modified().After(c.read)
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
