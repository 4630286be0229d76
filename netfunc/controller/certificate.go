//go:build linux

package main

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// certificate is that of the listener, read again when its files change.
type certificate struct {
	cert, key string
	log       *slog.Logger

	mu      sync.Mutex
	current *tls.Certificate
	read    [2]time.Time // when the files were changed that current is from
	checked time.Time
}

func newCertificate(cert, key string, log *slog.Logger) (*certificate, error) {
	c := &certificate{cert: cert, key: key, log: log, checked: time.Now()}
	return c, c.load()
}

func (c *certificate) load() error {
	changed := c.changed()
	pair, err := tls.LoadX509KeyPair(c.cert, c.key)
	if err != nil {
		return fmt.Errorf("http.certificate %s, http.key %s: %w", c.cert, c.key, err)
	}
	if now := time.Now(); now.After(pair.Leaf.NotAfter) {
		return fmt.Errorf("http.certificate %s expired on %s", c.cert, pair.Leaf.NotAfter.Format(time.DateOnly))
	}
	c.current, c.read = &pair, changed
	return nil
}

func (c *certificate) changed() (at [2]time.Time) {
	for i, path := range []string{c.cert, c.key} {
		if info, err := os.Stat(path); err == nil {
			at[i] = info.ModTime()
		}
	}
	return at
}

// get implements tls.Config.GetCertificate.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); now.Sub(c.checked) > time.Second {
		c.checked = now
		if c.changed() != c.read {
			if err := c.load(); err != nil {
				c.log.Error("keeping the old certificate", "err", err)
			} else {
				c.log.Info("new certificate", "until", c.current.Leaf.NotAfter)
			}
		}
	}
	return c.current, nil
}
