//go:build linux

package main

import (
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"holocast/internal/config"
	"holocast/internal/service/servicetest"
	"holocast/netfunc/api"
)

// load reads a configuration in the same way as main.
func load(t *testing.T, text string) (Config, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "edge.yml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c := defaultConfig()
	_, err := config.Load([]string{"--config", path}, &c)
	if err == nil {
		err = c.Validate()
	}
	return c, err
}

const (
	onePath = "name: a\npaths: [{index: 1, interface: wan1, peer: 10.1.0.2}]\n"
	sends   = onePath + "role: sender\nsender: {attach: [{interface: lan0}]}\n"
	gets    = onePath + "role: receiver\n"
	rules   = "http://controller:4780"
)

func TestValidate(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want string // expected in the error; "" if valid
	}{
		"sender":   {sends, ""},
		"receiver": {gets, ""},
		"both": {onePath + "role: both\nsender: {attach: [{interface: wan1, direction: egress}], towards: " +
			"[10.8.0.0/16]}\n" +
			"receiver: {behind: [10.9.0.0/16]}\nflows: [{destination: 10.8.0.1, paths: [1]}, {destination: 10.9.0.1, " +
			"paths: [1], dscp: 46}]", ""},
		"IPv6": {"name: a\nrole: receiver\npaths: [{index: 8, interface: wan8, peer: \"fd00::2\", gateway: " +
			"\"fe80::1\"}]", ""},
		"gateway alone": {"name: a\nrole: receiver\npaths: [{index: 8, interface: wan8, gateway: 10.1.0.1}]", ""},
		"printed":       {gets + "elimination: {span: 0s, completeSpan: 0s, slack: 0}", ""},
		"empty":         {"name: a", `role "" is not sender, receiver or both`},
		"role":          {onePath + "role: relay", `role "relay" is not sender, receiver or both`},
		"name":          {"name: a/b", `name "a/b": want 1 to 64 letters`},
		"no paths":      {"name: a\nrole: receiver", "paths: want at least one"},
		"index 0": {
			"name: a\nrole: receiver\npaths: [{interface: wan1, peer: 10.1.0.2}]",
			"paths[0].index 0: want 1 to 8",
		},
		"index 9": {
			"name: a\nrole: receiver\npaths: [{index: 9, interface: wan1, peer: 10.1.0.2}]",
			"paths[0].index 9: want 1 to 8",
		},
		"index twice": {"name: a\nrole: receiver\npaths: [{index: 1, interface: wan1, peer: 10.1.0.2}, {index: " +
			"1, interface: wan2, peer: 10.1.0.2}]", "paths[1].index 1 appears twice"},
		"interface twice": {"name: a\nrole: receiver\npaths: [{index: 1, interface: wan1, peer: 10.1.0.2}, {index: " +
			"2, interface: wan1, peer: 10.1.0.2}]", "paths[1].interface wan1 is already used by path 1"},
		"no interface": {
			"name: a\nrole: receiver\npaths: [{index: 1, peer: 10.1.0.2}]",
			"paths[0].interface is missing",
		},
		"no peer": {
			"name: a\nrole: receiver\npaths: [{index: 1, interface: wan1}]",
			"paths[0].peer is missing: want the other edge's address on this path",
		},
		"families": {"name: a\nrole: receiver\npaths: [{index: 1, interface: wan1, peer: 10.1.0.2, gateway: " +
			"\"fd00::1\"}]", "paths[0].gateway fd00::1 and peer 10.1.0.2 differ in address family"},
		"not an address": {
			"name: a\nrole: receiver\npaths: [{index: 1, interface: wan1, peer: wan}]",
			`edge.yml:3: paths[0].peer: "wan" is not an IP address`,
		},
		"nothing attached": {onePath + "role: sender", "sender.attach: want at least one interface"},
		"direction": {
			onePath + "role: sender\nsender: {attach: [{interface: lan0, direction: in}]}",
			`sender.attach[0].direction "in" is not ingress or egress`,
		},
		"receiver attach": {
			gets + "sender: {attach: [{interface: lan0}]}",
			"sender.attach is set, but the role is receiver",
		},
		"no policies": {
			onePath + "role: sender\nsender: {attach: [{interface: lan0}], maxPolicies: 0}",
			"sender.maxPolicies 0: want 1 to 6144",
		},
		"many policies": {
			onePath + "role: sender\nsender: {attach: [{interface: lan0}], maxPolicies: 6145}",
			"sender.maxPolicies 6145: want 1 to 6144",
		},
		"dscp":         {gets + "receiver: {dscp: 64}", "receiver.dscp 64: want 0 to 63"},
		"stale":        {gets + "receiver: {stale: 1ms}", "receiver.stale 1ms: want 10ms to 30s"},
		"table":        {gets + "receiver: {tableSize: 0}", "receiver.tableSize 0: want 1 to"},
		"no such path": {sends + "flows: [{destination: 10.9.0.2, paths: [2]}]", "flows[0].paths: unknown path 2"},
		"flow twice": {
			sends + "flows: [{destination: 10.9.0.2}, {destination: \"::ffff:10.9.0.2\"}]",
			"flows[1].destination ::ffff:10.9.0.2 appears twice",
		},
		"no destination": {sends + "flows: [{paths: [1]}]", "flows[0].destination is not an address"},
		"flow of no side": {
			onePath +
				"role: both\nsender: {attach: [{interface: lan0}]}\nflows: [{destination: 10.9.0.2}]",
			"flows[0].destination 10.9.0.2 is neither in sender.towards nor in receiver.behind",
		},
		"uplink": {
			gets + "uplink: {interfaces: [lan0], min: 300, max: 200}",
			"uplink.min 300 and uplink.max 200: want",
		},
		"window":        {gets + "elimination: {window: 0}", "elimination.window must be above 0"},
		"algorithm":     {gets + "elimination: {window: 2000000}", "W = 2000000: want 1 to 1048576"},
		"signal port":   {gets + "signal: {port: 0}", "signal.port must be above 0"},
		"probe port":    {gets + "probe: {port: 0}", "probe.port must be above 0"},
		"probe rate":    {gets + "probe: {every: 1ms}", "probe.every 1ms: want 5ms to 1s"},
		"few probes":    {gets + "probe: {every: 2s}", "probe.every 2s: want 5ms to 1s"},
		"probe timeout": {gets + "probe: {timeout: 50ms}", "probe.timeout 50ms: want probe.every, 100ms, to 1s"},
		"late loss":     {gets + "probe: {timeout: 2s}", "probe.timeout 2s: want probe.every, 100ms, to 1s"},
		"probe down":    {gets + "probe: {down: 100ms}", "probe.down 100ms is below twice probe.every, 100ms"},
		"exit":          {gets + "onExit: stay", `onExit "stay" is not detach or keep`},
		"drain":         {gets + "drain: -1s", "drain must not be negative"},
		"token, no URL": {gets + "controller: {token: f}", "controller.url is missing"},
		"no key":        {sends + "controller: {url: \"" + rules + "\"}", "signal.key is missing"},
		"no towards": {
			sends + "signal: {key: f}\ncontroller: {url: \"" + rules + "\"}",
			"sender.towards is missing",
		},
		"no behind":       {gets + "controller: {url: \"" + rules + "\"}", "receiver.behind is missing"},
		"signal address":  {sends + "signal: {address: \"fd00::1\"}", "signal.address fd00::1 is not an IPv4 address"},
		"level":           {gets + "log: {level: loud}", `log.level "loud": want debug, info, warn or error`},
		"unknown setting": {gets + "pathes: []", `unknown setting "pathes"`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := load(t, c.text)
			switch {
			case c.want == "" && err != nil:
				t.Error(err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// exampleConfig returns the defaults, completed with the example's values for settings without a
// default.
func exampleConfig() Config {
	c := defaultConfig()
	c.Name, c.Role = "london", api.Sender
	c.Paths = []Path{
		{Index: 1, Interface: "wan1", Peer: netip.MustParseAddr("10.1.0.2")},
		{Index: 2, Interface: "wan2", Peer: netip.MustParseAddr("10.2.0.2")},
	}
	c.Sender.Attach = []Attach{{Interface: "lan0", Direction: "ingress"}}
	c.Sender.Towards = []netip.Prefix{netip.MustParsePrefix("10.9.0.0/24")}
	return c
}

// TestExample checks that the example is valid and shows the defaults of all optional settings.
func TestExample(t *testing.T) {
	want := exampleConfig()
	servicetest.Example(t, "edge.example.yaml", exampleHeader, &want)
	text, err := os.ReadFile("edge.example.yaml")
	if err != nil {
		t.Fatal(err)
	}
	got, err := load(t, string(text))
	if err != nil {
		t.Fatal(err)
	}
	want.Receiver.Interfaces, want.Receiver.Behind = []string{}, []netip.Prefix{}
	want.Uplink.Interfaces, want.Signal.Interfaces, want.Flows = []string{}, []string{}, []Flow{}
	if err := want.places(); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if got.Pin != "/sys/fs/bpf/holocast/london" || got.Socket != "/run/holocast/london.sock" {
		t.Errorf("%+v", got)
	}
}

// TestExampleIsComplete checks that the example lists every setting.
func TestExampleIsComplete(t *testing.T) {
	text, err := os.ReadFile("edge.example.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var walk func(reflect.Type)
	walk = func(ty reflect.Type) {
		for ty.Kind() == reflect.Slice || ty.Kind() == reflect.Pointer {
			ty = ty.Elem()
		}
		if ty.Kind() != reflect.Struct || !strings.HasPrefix(ty.PkgPath(), "holocast") && ty.PkgPath() != "main" {
			return
		}
		for i := range ty.NumField() {
			f := ty.Field(i)
			if name := f.Tag.Get("yaml"); name != "" && !strings.Contains(string(text), name+":") {
				t.Errorf("%s.%s (%s) is not in edge.example.yaml", ty.Name(), f.Name, name)
			}
			walk(f.Type)
		}
	}
	walk(reflect.TypeFor[Config]())
}

func TestSecrets(t *testing.T) {
	dir := t.TempDir()
	key := strings.Repeat("0f", 32)
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for name, c := range map[string]struct {
		path string
		want string
	}{
		"good":        {write("good", key+"\n", 0o600), ""},
		"group reads": {write("group", key, 0o640), ""},
		"missing": {filepath.Join(dir, "none"), "signal.key: signalling key: open " + filepath.Join(dir,
			"none") + ": no such file"},
		"all read": {
			write("all", key, 0o644),
			"has mode 0644, which lets other users read or write the secret; run chmod 600",
		},
		"group may write": {write("written", key, 0o660), "has mode"},
		"short":           {write("short", "0f0f", 0o600), "want 32 to 128 hexadecimal digits"},
		"not hex": {
			write("words", "a key of the usual kind, in words", 0o600),
			"want 32 to 128 hexadecimal digits",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if c.path != "" && name == "group may write" {
				if err := os.Chmod(c.path, 0o660); err != nil { // regardless of the umask
					t.Fatal(err)
				}
			}
			cfg := Config{Signal: Signal{Key: c.path}}
			got, err := cfg.signalKey()
			switch {
			case c.want == "" && (err != nil || len(got) != 32):
				t.Errorf("%d bytes, %v", len(got), err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
	cfg := Config{Control: Controller{URL: rules, Token: write("blank", " \n", 0o600)}}
	if _, err := cfg.client(); err == nil || !strings.Contains(err.Error(), "controller.token") {
		t.Errorf("%v, want an empty token error", err)
	}
	cfg.Control.URL, cfg.Control.Token = "controller:80", ""
	if _, err := cfg.client(); err == nil || !strings.Contains(err.Error(), "controller") {
		t.Errorf("%v, want a URL error", err)
	}
}

func TestSides(t *testing.T) {
	c, err := load(t, onePath+"role: both\nsender: {attach: [{interface: lan0}], towards: [10.8.0.0/16]}\n"+
		"receiver: {behind: [10.9.0.0/16]}\nflows: [{destination: 10.8.0.1}, {destination: 10.9.0.1}]")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range c.Flows {
		if out := f.Destination.String() == "10.8.0.1"; c.outbound(f.Destination) != out ||
			c.inbound(f.Destination) == out || !c.serves(f.Destination) {
			t.Errorf("%s: outbound %v, inbound %v", f.Destination, c.outbound(f.Destination), c.inbound(f.Destination))
		}
	}
	if got := c.destinations(c.Sender.Towards, c.outbound); len(got) != 1 {
		t.Errorf("towards %v", got)
	}
	c, err = load(t, sends+"sender: {attach: [{interface: lan0}], towards: [10.9.0.0/24]}\nflows: [{destination: "+
		"10.9.0.1}, {destination: \"fd00::9\"}]")
	if err == nil {
		t.Error("a duplicate key was accepted")
	}
	c, err = load(t, onePath+"role: sender\nsender: {attach: [{interface: lan0}], towards: [10.9.0.0/24]}\nflows: "+
		"[{destination: 10.9.0.1}, {destination: \"fd00::9\"}]")
	if err != nil {
		t.Fatal(err)
	}
	if got := c.destinations(c.Sender.Towards, c.outbound); len(got) != 2 || got[1].String() != "fd00::9/128" {
		t.Errorf("towards %v", got)
	}
}
