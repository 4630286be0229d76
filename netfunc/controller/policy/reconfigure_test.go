package policy

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"holocast/netfunc/api"
)

// A changed configuration applies immediately, except for the report interval and the limits.
func TestReconfigure(t *testing.T) {
	w := pair(t, nil)
	w.live(time.Second, 30*time.Millisecond)
	change := func(what func(*Config)) (gone []string) {
		t.Helper()
		conf := w.e.Config()
		what(&conf)
		if err := conf.Validate(); err != nil {
			t.Fatal(err)
		}
		gone = w.e.Reconfigure(w.now, conf)
		w.deliver()
		return gone
	}

	// With another trigger, a single late packet starts duplication.
	change(func(c *Config) {
		c.Trigger.Count = 1
		c.ReportInterval, c.MaxFlows, c.MaxEdges, c.KeepDecisions = time.Hour, 1, 1, 1
	})
	if c, d := w.e.Config(), DefaultConfig(); c.ReportInterval != d.ReportInterval || c.MaxFlows != d.MaxFlows ||
		c.MaxEdges != d.MaxEdges || c.KeepDecisions != d.KeepDecisions {
		t.Errorf("%+v", c)
	}
	w.pass(200 * time.Millisecond)
	w.see("b")
	if f := w.flow(); f.State != api.Duplicating || f.Paths.Len() != 5 {
		t.Fatalf("after one late packet %+v", f)
	}

	// Another mode applies to flows without an operator's setting.
	change(func(c *Config) { c.Mode = api.Off })
	if f := w.flow(); f.Mode != api.Off || f.Paths != 0 || w.told["a"][viewer] != 0 {
		t.Errorf("switched off: %+v, the sender has %#x", f, w.told["a"][viewer])
	}
	if _, err := w.e.Set(w.now, viewer, api.Setting{Mode: api.Duplicate}); err != nil {
		t.Fatal(err)
	}
	w.deliver()
	change(func(c *Config) { c.Mode = api.Auto })
	if f := w.flow(); f.Mode != api.Duplicate || f.Paths.Len() != 5 {
		t.Errorf("an operator's flow: %+v", f)
	}

	// A receiver whose claim is no longer granted is removed, and duplication to it stops.
	prefixes := []netip.Prefix{netip.MustParsePrefix("10.9.0.0/16"), netip.MustParsePrefix("2001:db8:9::/48")}
	grants := map[string]Grant{
		"a": {Prefixes: prefixes, Signal: []netip.Prefix{netip.MustParsePrefix("10.1.0.1/32")}},
		"b": {Prefixes: prefixes},
	}
	if gone := change(func(c *Config) { c.Grants = grants }); gone != nil {
		t.Errorf("granted, but gone: %v", gone)
	}
	if gone := change(func(c *Config) { c.Grants = map[string]Grant{"a": grants["a"]} }); !slices.Equal(gone,
		[]string{"b"}) || w.e.Known("b") || !w.e.Known("a") {
		t.Errorf("gone: %v", gone)
	}
	if f := w.flow(); f.Paths.Len() > 1 {
		t.Errorf("without a receiver %+v", f)
	}
}
