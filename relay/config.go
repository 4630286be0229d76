package main

import (
	"errors"
	"time"

	"holocast/internal/origin"
)

// Config is the relay's configuration; relay.example.yaml is its reference.
type Config struct {
	Listen string `yaml:"listen"`
	HTTP   string `yaml:"http"`
	TLS    struct {
		Certificate string   `yaml:"certificate"`
		Key         string   `yaml:"key"`
		Hosts       []string `yaml:"hosts"`
	} `yaml:"tls"`
	Cache struct {
		MaxBytes int64         `yaml:"maxBytes"`
		MaxAge   time.Duration `yaml:"maxAge"`
	} `yaml:"cache"`
	Viewer struct {
		MaxOpenSubgroups int `yaml:"maxOpenSubgroups"`
	} `yaml:"viewer"`
	Publisher struct {
		Grace  time.Duration `yaml:"grace"`
		Linger time.Duration `yaml:"linger"`
	} `yaml:"publisher"`
	Drain time.Duration `yaml:"drain"`
	Log   struct {
		Level  string `yaml:"level"`
		Format string `yaml:"format"`
	} `yaml:"log"`
}

func defaultConfig() Config {
	var c Config
	c.Listen, c.HTTP = ":4443", ":4443"
	c.TLS.Hosts = []string{"localhost", "127.0.0.1", "::1"}
	c.Cache.MaxBytes, c.Cache.MaxAge = 64<<20, 3*time.Second
	c.Viewer.MaxOpenSubgroups = 64
	c.Publisher.Grace, c.Publisher.Linger = 15*time.Second, 5*time.Second
	c.Drain = 5 * time.Second
	c.Log.Level, c.Log.Format = "info", "text"
	return c
}

func (c *Config) validate() error {
	switch {
	case (c.TLS.Certificate == "") != (c.TLS.Key == ""):
		return errors.New("tls.certificate and tls.key must be given together")
	case c.Cache.MaxBytes <= 0:
		return errors.New("cache.maxBytes must be above 0")
	case c.Cache.MaxAge <= 0:
		return errors.New("cache.maxAge must be above 0")
	case c.Viewer.MaxOpenSubgroups <= 0:
		return errors.New("viewer.maxOpenSubgroups must be above 0")
	case c.Publisher.Grace <= 0 || c.Publisher.Linger <= 0:
		return errors.New("publisher.grace and publisher.linger must be above 0")
	}
	return nil
}

func (c *Config) limits() origin.Limits {
	return origin.Limits{MaxBytes: c.Cache.MaxBytes, MaxAge: c.Cache.MaxAge, MaxOpen: c.Viewer.MaxOpenSubgroups}
}
