package config

import (
	"io"
	"maps"
	"math"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

type mode string

type client struct {
	Name string `yaml:"name"`
	Port int    `yaml:"port"`
}

type program struct {
	Listen string   `yaml:"listen"`
	Mode   mode     `yaml:"mode"`
	Peers  []string `yaml:"peers"`
	Cache  struct {
		MaxAge   time.Duration `yaml:"maxAge"`
		MaxBytes int64         `yaml:"maxBytes"`
	} `yaml:"cache"`
	Peer    netip.Addr        `yaml:"peer"`
	Ratio   float64           `yaml:"ratio"`
	Tokens  map[string]string `yaml:"tokens"`
	Clients []client          `yaml:"clients"`
	Log     Log               `yaml:"log"`
}

var table = append(Table{
	{Key: "listen", Help: "UDP address."},
	{Key: "mode", Help: "Mode of operation.", More: "One of:\n  a   the first\n  b   the second"},
	{Key: "peers", Help: "Peers to connect to.", OldFlag: "peer-list", Reload: true},
	{Key: "cache", Help: "The cache.", Reload: true},
	{Key: "cache.maxAge", Help: "Maximum age.", OldFlag: "cache-age", OldKey: "cache.age", Range: Positive},
	{Key: "cache.maxBytes", Help: "Maximum size in bytes.", Range: NotNegative},
	{Key: "peer", Help: "IP address of the peer."},
	{Key: "ratio", Help: "A ratio.", Flag: "-", Range: NotNegative},
	{Key: "tokens", Help: "Tokens by name."},
	{Key: "clients", Help: "Clients by name."},
}, LogSettings()...)

func (*program) Settings() Table { return table }

func defaults() *program {
	p := &program{Listen: ":4443", Mode: "a", Peer: netip.MustParseAddr("::1"), Log: Log{"info", "text"}}
	p.Cache.MaxAge = time.Hour
	p.Clients = []client{{"a", 1}, {"b", 2}}
	return p
}

func TestFlags(t *testing.T) {
	p := defaults()
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	var warnings strings.Builder
	fs.SetOutput(&warnings)
	table.AddFlags(fs, p)
	err := fs.Parse([]string{
		"--listen", ":1", "--mode=b", "--peers=x,y", "--cache-max-bytes", "5", "--cache-age", "2s", "--peer",
		"10.0.0.1", "--log-level", "warn", "--tokens", "a=x,b=y", "--tokens", "c=z",
	})
	if err != nil {
		t.Fatal(err)
	}
	if p.Listen != ":1" || p.Mode != "b" || !slices.Equal(p.Peers, []string{"x", "y"}) || p.Cache.MaxBytes != 5 ||
		p.Cache.MaxAge != 2*time.Second || p.Peer != netip.MustParseAddr("10.0.0.1") || p.Log.Level != "warn" ||
		!maps.Equal(p.Tokens, map[string]string{"a": "x", "b": "y", "c": "z"}) {
		t.Errorf("got %+v", p)
	}
	if want := "Flag --cache-age has been deprecated, use --cache-max-age\n"; warnings.String() != want {
		t.Errorf("warning %q, want %q", warnings.String(), want)
	}
	for _, name := range []string{"ratio", "cache", "clients"} {
		if fs.Lookup(name) != nil {
			t.Errorf("there is a flag --%s", name)
		}
	}
	if usage := fs.Lookup("cache-max-age").Usage; usage != "maximum age" {
		t.Errorf("usage %q", usage)
	}
	some := pflag.NewFlagSet("", pflag.ContinueOnError)
	some.SetOutput(io.Discard)
	table.AddFlags(some, p, "listen")
	if some.Lookup("listen") == nil || some.Lookup("mode") != nil {
		t.Error("AddFlags ignores the list of keys")
	}
}

func TestRanges(t *testing.T) {
	for want, change := range map[string]func(*program){
		"":                                    func(*program) {},
		"cache.maxAge must be above 0":        func(p *program) { p.Cache.MaxAge = 0 },
		"cache.maxBytes must not be negative": func(p *program) { p.Cache.MaxBytes = -1 },
		"ratio must not be negative":          func(p *program) { p.Ratio = math.NaN() },
	} {
		p := defaults()
		change(p)
		got := ""
		if err := table.Check(p); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestReloaded(t *testing.T) {
	if got := strings.Join(table.Reloaded(), " "); got != "peers cache log.level" {
		t.Error(got)
	}
}

func TestDeprecatedKey(t *testing.T) {
	stderr := os.Stderr
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	os.Stderr = w
	p := defaults()
	err = Decode("x.yaml", []byte("listen: :5\ncache: {maxBytes: 7, \"age\": 3s} # age\n"), p)
	os.Stderr = stderr
	w.Close()
	warning, _ := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	if p.Cache.MaxAge != 3*time.Second || p.Cache.MaxBytes != 7 {
		t.Errorf("got %+v", p.Cache)
	}
	if want := "x.yaml:2: cache.age is deprecated, use cache.maxAge\n"; string(warning) != want {
		t.Errorf("warning %q, want %q", warning, want)
	}
}

func TestExample(t *testing.T) {
	got, err := table.Example("A program.", defaults())
	if err != nil {
		t.Fatal(err)
	}
	const want = `# A program.

# UDP address.
listen: :4443

# Mode of operation. One of:
#   a   the first
#   b   the second
mode: a

# Peers to connect to.
peers: []

# The cache.
cache:
  # Maximum age.
  maxAge: 1h
  # Maximum size in bytes.
  maxBytes: 0

# IP address of the peer.
peer: ::1

# A ratio.
ratio: 0

# Tokens by name.
tokens: {}

# Clients by name.
clients:
  - {name: a, port: 1}
  - {name: b, port: 2}

log:
  # Least severe log level: debug, info, warn or error.
  level: info
  # Log format: text or json.
  format: text
`
	if string(got) != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if err := Decode("x", got, defaults()); err != nil {
		t.Error(err)
	}
	if _, err := table[1:].Example("", defaults()); err == nil ||
		!strings.Contains(err.Error(), "setting listen is not in the table") {
		t.Errorf("for an incomplete table: %v", err)
	}
	if _, err := append(table, table[0]).Example("", defaults()); err == nil {
		t.Error("no error for a duplicate entry")
	}
}

func TestFlagName(t *testing.T) {
	for key, want := range map[string]string{
		"listen": "listen", "cache.maxAge": "cache-max-age", "auth.clientCA": "auth-client-ca", "onExit": "on-exit",
	} {
		if got := (Setting{Key: key}).flagName(); got != want {
			t.Errorf("%s: %s, want %s", key, got, want)
		}
	}
}
