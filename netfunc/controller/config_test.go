//go:build linux

package main

import (
	"reflect"
	"strings"
	"testing"

	"holocast/internal/config"
	"holocast/internal/service/servicetest"
)

func TestExample(t *testing.T) {
	cfg := defaultConfig()
	servicetest.Example(t, "controller.example.yaml", exampleHeader, &cfg)
	var read Config
	if err := config.Read("controller.example.yaml", &read); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(read, cfg) {
		t.Errorf("%+v\nwant %+v", read, cfg)
	}
}

func TestValidate(t *testing.T) {
	for want, change := range map[string]func(*Config){
		"":                     func(*Config) {},
		"http.listen":          func(c *Config) { c.HTTP.Listen = "4793" },
		"http.operators":       func(c *Config) { c.HTTP.Operators = "4794" },
		"http.operators :4794": func(c *Config) { c.HTTP.Operators = ":4794" },
		"http.certificate":     func(c *Config) { c.HTTP.Key = "x" },
		"http.clientCA":        func(c *Config) { c.HTTP.ClientCA = "x" },
		"is open to others":    func(c *Config) { c.HTTP.Listen = ":4793" },
		"operators need one":   func(c *Config) { c.Auth.EdgeToken = "x" },
		"auth.token":           func(c *Config) { c.Auth.Edges = map[string]string{"london": "x"} },
		"auth.token or":        func(c *Config) { c.HTTP.Certificate, c.HTTP.Key, c.HTTP.ClientCA = "x", "x", "x" },
		"auth.edges":           func(c *Config) { c.Auth.Token, c.Auth.Edges = "x", map[string]string{"lon/don": "x"} },
		"auth.edges.london":    func(c *Config) { c.Auth.Token, c.Auth.Edges = "x", map[string]string{"london": ""} },
		"auth.operators":       func(c *Config) { c.Auth.Operators = []string{"x"} },
		"http.burst":           func(c *Config) { c.HTTP.Burst = 0 },
		"http.maxBody":         func(c *Config) { c.HTTP.MaxBody = 1 },
		"maxFlows 1025":        func(c *Config) { c.MaxFlows = 1025 },
		"at least 327680":      func(c *Config) { c.HTTP.MaxBody = 327679 },
		"http.maxConnections":  func(c *Config) { c.HTTP.MaxConnections = 1 },
		"http.perAddress":      func(c *Config) { c.HTTP.PerAddress = c.HTTP.MaxConnections },
		"http.perEdge":         func(c *Config) { c.HTTP.PerEdge = 3 },
		"maxEdges":             func(c *Config) { c.MaxEdges = 0 },
		"keepDecisions":        func(c *Config) { c.KeepDecisions = 0 },
		"redirect.hold":        func(c *Config) { c.Redirect.Hold = -1 },
		"signal.slow":          func(c *Config) { c.Signal.Slow = 0 },
		"http.rate":            func(c *Config) { c.HTTP.Rate = -1 },
		"signal.key":           func(c *Config) { c.Signal.Key = "" },
		"signal.from":          func(c *Config) { _ = c.Signal.From.UnmarshalText([]byte("::1")) },
		"end must be":          func(c *Config) { c.End = 0 },
	} {
		c := defaultConfig()
		c.Signal.Key = "key"
		change(&c)
		err := c.Validate()
		if (err == nil) != (want == "") || (err != nil && !strings.Contains(err.Error(), want)) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
