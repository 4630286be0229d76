package policy

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"holocast/netfunc/api"
	"holocast/netfunc/signal"
)

// An edge may claim only resources that its grant allows; otherwise the error names the excess.
func TestGrants(t *testing.T) {
	prefixes := func(s ...string) (out []netip.Prefix) {
		for _, p := range s {
			out = append(out, netip.MustParsePrefix(p))
		}
		return out
	}
	conf := DefaultConfig()
	conf.Grants = map[string]Grant{
		"a": {Prefixes: prefixes("10.9.0.0/16", "2001:db8:9::/48"), Signal: prefixes("10.1.0.1/32")},
		"b": {Prefixes: prefixes("10.9.0.0/24")},
	}
	if err := conf.Validate(); err != nil {
		t.Fatal(err)
	}
	address := netip.MustParseAddrPort("10.1.0.1:4790")
	for name, c := range map[string]struct {
		hello api.Edge
		want  string // "" = accepted
	}{
		"as granted": {api.Edge{
			Name: "a", Role: api.Sender, Signal: address, SignalVersion: signal.Version,
			Towards: prefixes("10.9.0.0/16", "2001:db8:9::/48"),
		}, ""},
		"a part": {api.Edge{
			Name: "a", Role: api.Sender, Signal: address, SignalVersion: signal.Version,
			Towards: prefixes("10.9.7.0/24"),
		}, ""},
		"mapped": {api.Edge{
			Name: "a", Role: api.Sender, Signal: address, SignalVersion: signal.Version,
			Towards: prefixes("::ffff:10.9.7.0/120"),
		}, ""},
		"receiver": {api.Edge{Name: "b", Role: api.Receiver, Behind: prefixes("10.9.0.0/24")}, ""},
		"wider": {
			api.Edge{Name: "b", Role: api.Receiver, Behind: prefixes("10.9.0.0/16")},
			"prefix 10.9.0.0/16",
		},
		"another's": {
			api.Edge{Name: "b", Role: api.Receiver, Behind: prefixes("10.9.0.0/24", "10.9.1.0/24")},
			"prefix 10.9.1.0/24",
		},
		"everything": {
			api.Edge{Name: "b", Role: api.Receiver, Behind: prefixes("0.0.0.0/0")},
			"prefix 0.0.0.0/0",
		},
		"IPv6": {api.Edge{Name: "b", Role: api.Receiver, Behind: prefixes("::/0")}, "prefix ::/0"},
		"another address": {api.Edge{
			Name: "a", Role: api.Sender, Signal: netip.MustParseAddrPort("10.1.0.2:4790"),
			SignalVersion: signal.Version, Towards: prefixes("10.9.0.0/16"),
		}, "address 10.1.0.2"},
		"a sender as well": {api.Edge{
			Name: "b", Role: api.Both, Signal: address, SignalVersion: signal.Version,
			Behind: prefixes("10.9.0.0/24"),
		}, "address 10.1.0.1"},
		"no grant": {api.Edge{Name: "c", Role: api.Receiver}, "no grant"},
	} {
		t.Run(name, func(t *testing.T) {
			err := New(conf).Hello(time.Unix(1, 0), c.hello)
			if c.want == "" && err != nil || c.want != "" && (!errors.Is(err, ErrForbidden) ||
				!strings.Contains(err.Error(), c.want)) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
	// An edge cannot report viewers outside its grant.
	e := New(conf)
	if err := e.Hello(time.Unix(1, 0), api.Edge{
		Name: "a", Role: api.Sender, Signal: address,
		SignalVersion: signal.Version, Towards: prefixes("10.9.0.0/16"),
	}); err != nil {
		t.Fatal(err)
	}
	if err := e.Hello(time.Unix(1, 0), api.Edge{
		Name: "b", Role: api.Receiver,
		Behind: prefixes("10.9.0.0/24"),
	}); err != nil {
		t.Fatal(err)
	}
	foreign := api.Observation{Source: netip.MustParseAddrPort("10.9.1.7:1")}
	if err := e.Uplink(time.Unix(2, 0), "b", []api.Observation{foreign}); err != nil || len(e.Flows()) != 0 {
		t.Errorf("%v, %+v", err, e.Flows())
	}
	for _, wrong := range []map[string]Grant{
		{"a/b": {}},
		{"a": {Prefixes: prefixes("10.9.0.1/24")}},
		{"a": {Signal: []netip.Prefix{{}}}},
	} {
		conf.Grants = wrong
		if err := conf.Validate(); err == nil || !strings.Contains(err.Error(), "grants") {
			t.Errorf("%+v: %v", wrong, err)
		}
	}
}
