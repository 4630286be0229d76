//go:build linux

package main

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"time"

	"holocast/internal/config"
	"holocast/internal/service"
	"holocast/netfunc/api"
	"holocast/netfunc/controller/policy"
	"holocast/netfunc/controller/rest"
)

// Config is the controller's configuration; controller.example.yaml documents it.
type Config struct {
	HTTP struct {
		Listen         string  `yaml:"listen"`
		Operators      string  `yaml:"operators"`
		Certificate    string  `yaml:"certificate"`
		Key            string  `yaml:"key"`
		ClientCA       string  `yaml:"clientCA"`
		Rate           float64 `yaml:"rate"`
		Burst          int     `yaml:"burst"`
		MaxBody        int64   `yaml:"maxBody"`
		MaxConnections int     `yaml:"maxConnections"`
		PerAddress     int     `yaml:"perAddress"`
		PerEdge        int     `yaml:"perEdge"`
	} `yaml:"http"`
	Auth struct {
		Token     string            `yaml:"token"`
		Edges     map[string]string `yaml:"edges"`
		EdgeToken string            `yaml:"edgeToken"`
		Operators []string          `yaml:"operators"`
	} `yaml:"auth"`
	Grants map[string]Grant `yaml:"grants"`
	Signal struct {
		Key    string        `yaml:"key"`
		From   netip.Addr    `yaml:"from"`
		Resend time.Duration `yaml:"resend"`
		Slow   time.Duration `yaml:"slow"`
	} `yaml:"signal"`
	State   string   `yaml:"state"`
	Mode    api.Mode `yaml:"mode"`
	Trigger struct {
		Rule        policy.Rule `yaml:"rule"`
		Sensitivity float64     `yaml:"sensitivity"`

		Interval time.Duration `yaml:"interval"`
		Count    int           `yaml:"count"`
		Silence  time.Duration `yaml:"silence"`
		Merge    time.Duration `yaml:"merge"`
		Live     int           `yaml:"live"`
	} `yaml:"trigger"`
	Redirect struct {
		Margin float64       `yaml:"margin"`
		Gain   time.Duration `yaml:"gain"`
		Hold   time.Duration `yaml:"hold"`
		Follow bool          `yaml:"follow"`
	} `yaml:"redirect"`
	ReportInterval time.Duration `yaml:"reportInterval"`
	Rearm          time.Duration `yaml:"rearm"`
	End            time.Duration `yaml:"end"`
	Forget         time.Duration `yaml:"forget"`
	MaxFlows       int           `yaml:"maxFlows"`
	MaxEdges       int           `yaml:"maxEdges"`
	KeepDecisions  int           `yaml:"keepDecisions"`
	Log            config.Log    `yaml:"log"`
}

// Grant limits an edge's claims.
type Grant struct {
	Prefixes []netip.Prefix `yaml:"prefixes"`
	Signal   []netip.Addr   `yaml:"signal"`
}

func defaultConfig() Config {
	var c Config
	p := policy.DefaultConfig()
	c.HTTP.Listen = "127.0.0.1:4793"
	c.HTTP.Rate, c.HTTP.Burst = 5000, 10000
	c.HTTP.MaxBody, c.HTTP.MaxConnections, c.HTTP.PerAddress, c.HTTP.PerEdge = 1<<20, 1024, 64, 16
	c.Auth.Edges, c.Auth.Operators = map[string]string{}, []string{}
	c.Grants = map[string]Grant{}
	c.Signal.Resend, c.Signal.Slow = p.Signal.First, p.Signal.Slow
	c.State = "/var/lib/holocast/controller.json"
	c.Mode = p.Mode
	t := p.Trigger
	c.Trigger.Rule, c.Trigger.Sensitivity = t.Rule, t.Sensitivity
	c.Trigger.Interval, c.Trigger.Count, c.Trigger.Silence, c.Trigger.Merge, c.Trigger.Live = t.Interval, t.Count,
		t.Silence, t.Merge, t.Live
	r := p.Redirect
	c.Redirect.Margin, c.Redirect.Gain, c.Redirect.Hold, c.Redirect.Follow = r.Margin, r.Gain, r.Hold, r.Follow
	c.ReportInterval, c.Rearm, c.End, c.Forget = p.ReportInterval, p.Rearm, p.End, p.Forget
	c.MaxFlows, c.MaxEdges, c.KeepDecisions = p.MaxFlows, p.MaxEdges, p.KeepDecisions
	c.Log.Level, c.Log.Format = "info", "text"
	return c
}

// policy returns the policy engine's part of the configuration.
func (c *Config) policy() policy.Config {
	var grants map[string]policy.Grant
	for name, g := range c.Grants {
		if grants == nil {
			grants = make(map[string]policy.Grant)
		}
		p := policy.Grant{Prefixes: g.Prefixes}
		for _, a := range g.Signal {
			p.Signal = append(p.Signal, netip.PrefixFrom(a, a.BitLen()))
		}
		grants[name] = p
	}
	return policy.Config{
		Mode: c.Mode, Grants: grants,
		Trigger: policy.Trigger{
			Rule: c.Trigger.Rule, Sensitivity: c.Trigger.Sensitivity,
			Interval: c.Trigger.Interval, Count: c.Trigger.Count, Silence: c.Trigger.Silence,
			Merge: c.Trigger.Merge, Live: c.Trigger.Live,
		},
		Redirect: policy.Redirect{
			Margin: c.Redirect.Margin, Gain: c.Redirect.Gain, Hold: c.Redirect.Hold,
			Follow: c.Redirect.Follow,
		},
		Signal:         policy.Resend{First: c.Signal.Resend, Slow: c.Signal.Slow},
		ReportInterval: c.ReportInterval, Rearm: c.Rearm, End: c.End, Forget: c.Forget,
		MaxFlows: c.MaxFlows, MaxEdges: c.MaxEdges, KeepDecisions: c.KeepDecisions,
	}
}

// Validate implements service.Settings.
func (c *Config) Validate() error {
	if err := settings.Check(c); err != nil {
		return err
	}
	host, _, err := net.SplitHostPort(c.HTTP.Listen)
	operators, _, operatorsErr := net.SplitHostPort(c.HTTP.Operators)
	switch {
	case err != nil:
		return fmt.Errorf("http.listen %q: want host:port", c.HTTP.Listen)
	case c.HTTP.Operators != "" && operatorsErr != nil:
		return fmt.Errorf("http.operators %q: want host:port", c.HTTP.Operators)
	case (c.HTTP.Certificate == "") != (c.HTTP.Key == ""):
		return errors.New("http.certificate and http.key must be given together")
	case c.HTTP.ClientCA != "" && c.HTTP.Certificate == "":
		return errors.New("http.clientCA needs http.certificate and http.key")
	case len(c.Auth.Operators) > 0 && c.HTTP.ClientCA == "":
		return errors.New("auth.operators lists client certificates, which need http.clientCA")
	case c.Auth.Token == "" && len(c.Auth.Operators) == 0 && (c.Auth.EdgeToken != "" || len(c.Auth.Edges) > 0 ||
		c.HTTP.ClientCA != ""):
		return errors.New("auth.token or auth.operators is missing: operators need one of them")
	case c.Auth.Token == "" && c.HTTP.ClientCA == "" && !loopback(host):
		return fmt.Errorf("http.listen %s is open to others: set auth.token or http.clientCA, or listen on 127.0.0.1",
			c.HTTP.Listen)
	case c.HTTP.Operators != "" && c.Auth.Token == "" && c.HTTP.ClientCA == "" && !loopback(operators):
		return fmt.Errorf("http.operators %s is open to others: set auth.token or http.clientCA, or listen on "+
			"127.0.0.1", c.HTTP.Operators)
	case c.HTTP.Rate > 0 && c.HTTP.Burst < 1:
		return errors.New("http.burst must be at least 1")
	case c.MaxFlows > api.MaxFlows:
		return fmt.Errorf("maxFlows %d is more than %d, the capacity of a receiver's kernel program", c.MaxFlows,
			api.MaxFlows)
	case c.HTTP.MaxBody < bodyAtLeast+bodyPerFlow*int64(c.MaxFlows):
		return fmt.Errorf("http.maxBody must be at least %d, for the reports of %d flows (maxFlows)",
			bodyAtLeast+bodyPerFlow*int64(c.MaxFlows), c.MaxFlows)
	case c.HTTP.MaxConnections < 2:
		return errors.New("http.maxConnections must be at least 2")
	case c.HTTP.PerAddress < 1 || c.HTTP.PerAddress >= c.HTTP.MaxConnections:
		return errors.New("http.perAddress must be at least 1 and below http.maxConnections: otherwise one address " +
			"could take all")
	case c.HTTP.PerEdge < edgeConnections:
		return fmt.Errorf("http.perEdge must be at least %d, the number of connections that an edge opens",
			edgeConnections)
	case c.Signal.Key == "":
		return errors.New(`signal.key is missing: create a key file with "controller key"`)
	case c.Signal.From.IsValid() && !c.Signal.From.Is4():
		return fmt.Errorf("signal.from %s: want an IPv4 address", c.Signal.From)
	}
	for name, file := range c.Auth.Edges {
		switch {
		case !policy.EdgeName(name):
			return fmt.Errorf("auth.edges: %.80q is not an edge name: want 1 to 64 letters, digits, '.', '_' or '-'",
				name)
		case file == "":
			return fmt.Errorf("auth.edges.%s: the token file is missing", name)
		}
	}
	if err := c.Log.Validate(); err != nil {
		return err
	}
	return c.policy().Validate()
}

func (c *Config) certificate() service.CertificateFiles {
	return service.CertificateFiles{Certificate: c.HTTP.Certificate, Key: c.HTTP.Key, Section: "http"}
}

// bodyPerFlow bounds the size in bytes of one flow's policy, route and readiness in a report;
// bodyAtLeast covers the rest of the report.
const (
	bodyPerFlow = 256
	bodyAtLeast = 64 << 10
)

// edgeConnections is the number of connections that an edge opens, for reports, uplink observations,
// eliminations and the watch stream.
const edgeConnections = 4

func loopback(host string) bool {
	a, err := netip.ParseAddr(host)
	return host == "localhost" || (err == nil && a.IsLoopback())
}

// auth reads the token files.
func (c *Config) auth() (a rest.Auth, err error) {
	a.ClientCertificates, a.Operators = c.HTTP.ClientCA != "", c.Auth.Operators
	if c.Auth.Token != "" {
		if a.Token, err = rest.ReadToken(c.Auth.Token); err != nil {
			return a, fmt.Errorf("auth.token: %w", err)
		}
	}
	if c.Auth.EdgeToken != "" {
		if a.EdgeToken, err = rest.ReadToken(c.Auth.EdgeToken); err != nil {
			return a, fmt.Errorf("auth.edgeToken: %w", err)
		}
	}
	a.Edges = make(map[string]string, len(c.Auth.Edges))
	for _, name := range slices.Sorted(maps.Keys(c.Auth.Edges)) {
		if a.Edges[name], err = rest.ReadToken(c.Auth.Edges[name]); err != nil {
			return a, fmt.Errorf("auth.edges.%s: %w", name, err)
		}
	}
	return a, a.Validate()
}
