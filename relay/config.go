package main

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"holocast/internal/config"
	"holocast/internal/origin"
	"holocast/internal/quiccc"
	"holocast/internal/service"
	"holocast/internal/trace"
	"holocast/relay/auth"
	"holocast/relay/cluster"
	"holocast/relay/diskcache"
	"holocast/relay/fastpath"
	"holocast/relay/limits"
	"holocast/relay/record"
	"holocast/relay/router"
)

// Config is the relay's configuration; relay.example.yaml documents it.
type Config struct {
	Listen   string `yaml:"listen"`
	Insecure bool   `yaml:"insecure"`
	HTTP     string `yaml:"http"`
	Admin    string `yaml:"admin"`
	// AdminToken is a file of tokens for the API.
	AdminToken string   `yaml:"adminToken"`
	Web        string   `yaml:"web"`
	Origins    []string `yaml:"origins"`
	Qlog       struct {
		Dir      string `yaml:"dir"`
		MaxFiles int    `yaml:"maxFiles"`
		MaxBytes int64  `yaml:"maxBytes"`
	} `yaml:"qlog"`
	// Congestion names the congestion controller of all sessions (quiccc.Controllers).
	Congestion string `yaml:"congestion"`
	// Multipath accepts sessions over several paths.
	Multipath bool `yaml:"multipath"`
	// EarlyData lets clients that resume a session send requests along with their first packet.
	EarlyData bool `yaml:"earlyData"`
	// FastPath configures forwarding of datagrams in the kernel.
	FastPath fastpath.Mode `yaml:"fastpath"`
	TLS      struct {
		Certificate string   `yaml:"certificate"`
		Key         string   `yaml:"key"`
		Hosts       []string `yaml:"hosts"`
	} `yaml:"tls"`
	Cache struct {
		MaxBytes   int64         `yaml:"maxBytes"`
		TotalBytes int64         `yaml:"totalBytes"`
		MaxAge     time.Duration `yaml:"maxAge"`
		// Disk keeps groups that leave the memory.
		Disk diskcache.Config `yaml:"disk"`
	} `yaml:"cache"`
	Viewer struct {
		MaxOpenSubgroups int           `yaml:"maxOpenSubgroups"`
		MaxRendezvous    time.Duration `yaml:"maxRendezvous"`
	} `yaml:"viewer"`
	Publisher struct {
		Grace  time.Duration `yaml:"grace"`
		Linger time.Duration `yaml:"linger"`
		// Backups allows several publishers per namespace, which can replace each other.
		Backups bool `yaml:"backups"`
	} `yaml:"publisher"`
	Record      record.Config  `yaml:"record"`
	Cluster     cluster.Config `yaml:"cluster"`
	Auth        auth.Config    `yaml:"auth"`
	Limits      limits.Config  `yaml:"limits"`
	MaxSessions int            `yaml:"maxSessions"`
	MaxConnects int            `yaml:"maxConnects"`
	Drain       time.Duration  `yaml:"drain"`
	// DrainTimeout is how long sessions may stay with a process that an upgrade has replaced.
	DrainTimeout time.Duration `yaml:"drainTimeout"`
	Trace        trace.Config  `yaml:"trace"`
	Log          config.Log    `yaml:"log"`
}

func defaultConfig() Config {
	var c Config
	c.Listen, c.HTTP = "127.0.0.1:4443", "127.0.0.1:4443"
	c.FastPath, c.Multipath = fastpath.Off, true
	c.TLS.Hosts = []string{"localhost", "127.0.0.1", "::1"}
	c.Cache.MaxBytes, c.Cache.TotalBytes, c.Cache.MaxAge = origin.DefaultMaxBytes, 1<<30, origin.DefaultMaxAge
	c.Cache.Disk.Size, c.Cache.Disk.Age = diskcache.DefaultSize, diskcache.DefaultAge
	c.MaxSessions, c.MaxConnects = router.DefaultMaxSessions, 100
	c.Qlog.MaxFiles, c.Qlog.MaxBytes = 100, 16<<20
	c.Auth.Refresh = 5 * time.Minute
	c.Cluster.Listen = cluster.DefaultListen
	c.Record.MaxDuration, c.Record.MinFree = record.DefaultMaxDuration, record.DefaultMinFree
	c.Viewer.MaxOpenSubgroups, c.Viewer.MaxRendezvous = origin.DefaultMaxOpen, router.DefaultMaxRendezvous
	c.Limits = limits.Default()
	c.Publisher.Grace, c.Publisher.Linger = router.DefaultGrace, router.DefaultLinger
	c.Drain, c.DrainTimeout = 5*time.Second, time.Hour
	c.Trace.Every = trace.DefaultEvery
	c.Log.Level, c.Log.Format = "info", "text"
	return c
}

// Validate implements service.Settings.
func (c *Config) Validate() error {
	if err := settings.Check(c); err != nil {
		return err
	}
	if c.Web != "" {
		if _, err := os.Stat(filepath.Join(c.Web, "index.html")); err != nil {
			return fmt.Errorf("web: %s is not a built web viewer (no index.html); "+
				"build one in client-web/dist with make web", c.Web)
		}
	}
	if err := quiccc.Check(c.Congestion); err != nil {
		return fmt.Errorf("congestion: %w", err)
	}
	if err := c.Auth.Validate(); err != nil {
		return err
	}
	if err := c.Cluster.Validate(); err != nil {
		return err
	}
	if err := c.Record.Validate(); err != nil {
		return err
	}
	if err := c.Limits.Validate(); err != nil {
		return err
	}
	for i, o := range c.Origins {
		if u, err := url.Parse(o); o != "*" && (err != nil || u.Host == "" || u.Scheme+"://"+u.Host != o) {
			return fmt.Errorf("origins[%d]: %q is not of the form https://host:port", i, o)
		}
	}
	if err := c.FastPath.Check(); err != nil {
		return err
	}
	for _, a := range []struct{ setting, addr string }{{"listen", c.Listen}, {"http", c.HTTP}, {"admin", c.Admin}} {
		if a.addr == "" && a.setting != "listen" {
			continue
		}
		if err := service.CheckAddress(a.setting, a.addr); err != nil {
			return err
		}
	}
	switch {
	case !c.Insecure && !c.Auth.Enabled() && !loopback(c.Listen):
		return fmt.Errorf("listen: any peer could publish and subscribe at %s: "+
			"generate a key (relay key relay.key) and set auth.keys (--auth-keys), "+
			"listen on 127.0.0.1, or set insecure", c.Listen)
	case c.Admin != "" && c.Admin == c.HTTP:
		return errors.New("admin is the same address as http; remove one of them")
	case (c.TLS.Certificate == "") != (c.TLS.Key == ""):
		return errors.New("tls.certificate and tls.key must be given together")
	case c.Cache.TotalBytes < c.Cache.MaxBytes:
		return errors.New("cache.totalBytes must be at least cache.maxBytes")
	}
	if err := c.Trace.Validate(); err != nil {
		return err
	}
	return c.Log.Validate()
}

// loopback reports whether a listen address is reachable only from this machine.
func loopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func (c *Config) certificate() service.CertificateFiles {
	return service.CertificateFiles{Certificate: c.TLS.Certificate, Key: c.TLS.Key, Hosts: c.TLS.Hosts, Section: "tls"}
}

// routing returns the router's settings, all of which SIGHUP can change.
func (c *Config) routing() router.Config {
	return router.Config{
		Limits: origin.Limits{MaxBytes: c.Cache.MaxBytes, MaxAge: c.Cache.MaxAge},
		Grace:  c.Publisher.Grace, Linger: c.Publisher.Linger,
		MaxSessions: c.MaxSessions, MaxOpen: c.Viewer.MaxOpenSubgroups,
		MaxRendezvous: c.Viewer.MaxRendezvous,
	}
}
