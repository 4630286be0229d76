package config

import (
	"errors"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

type settings struct {
	Listen string        `yaml:"listen"`
	Drain  time.Duration `yaml:"drain"`
	Cache  struct {
		MaxBytes int64 `yaml:"maxBytes"`
	} `yaml:"cache"`
	Peer   netip.Addr                   `yaml:"peer"`
	Behind [1]struct{ At netip.Prefix } `yaml:"behind"`
	Name   string                       `yaml:"name"`
}

func TestLoad(t *testing.T) {
	defaults := settings{Listen: ":4443", Drain: time.Second}
	for name, c := range map[string]struct {
		file string
		args []string // FILE stands for the file
		want settings
		err  string // expected in the error, "" for success
	}{
		"no file":    {args: []string{"--listen", ":1"}, want: defaults},
		"empty file": {args: []string{"--config", "FILE"}, want: defaults},
		"comments":   {file: "# listen: :5\n", args: []string{"--config", "FILE"}, want: defaults},
		"some settings": {
			file: "listen: :5\n", args: []string{"--config=FILE", "--other", "x"},
			want: settings{Listen: ":5", Drain: time.Second},
		},
		"a duration": {
			file: "drain: 250ms\n", args: []string{"--config", "FILE"},
			want: settings{Listen: ":4443", Drain: 250 * time.Millisecond},
		},
		"unknown": {
			file: "cache:\n  maxByte: 1\n", args: []string{"--config", "FILE"},
			err: `settings.yaml:2: unknown setting "maxByte"`,
		},
		"wrong type": {
			file: "cache:\n  maxBytes: many\n", args: []string{"--config", "FILE"},
			err: `settings.yaml:2: cache.maxBytes: "many" is not a whole number`,
		},
		"no unit": {
			file: "drain: 3\n", args: []string{"--config", "FILE"},
			err: `settings.yaml:1: drain: "3" has no unit; write 3s`,
		},
		"no duration": {
			file: "\ndrain: soon\n", args: []string{"--config", "FILE"},
			err: `settings.yaml:2: drain: "soon" is not a duration such as 250ms, 3s or 1m`,
		},
		"two errors": {
			file: "drain: 3\ncache: {maxBytes: x}\n", args: []string{"--config", "FILE"},
			err: `settings.yaml:2: cache.maxBytes: "x" is not a whole number`,
		},
		"a section": {
			file: "cache: 5\n", args: []string{"--config", "FILE"},
			err: `settings.yaml:1: cache: "5" is not `,
		},
		"no address": {
			file: "name: here\npeer: here\n", args: []string{"--config", "FILE"},
			err: `settings.yaml:2: peer: "here" is not an IP address`,
		},
		"no prefix": {
			file: "behind:\n  - at: 10.9.0.7\n", args: []string{"--config", "FILE"},
			err: `settings.yaml:2: behind[0].at: "10.9.0.7" is not a prefix`,
		},
		"no list": {
			file: "behind: all\n", args: []string{"--config", "FILE"},
			err: `settings.yaml:1: behind: "all" is not `,
		},
		"twice":    {file: "drain: 1s\ndrain: 2s\n", args: []string{"--config", "FILE"}, err: "settings.yaml:2: "},
		"not YAML": {file: "listen: [\n", args: []string{"--config", "FILE"}, err: "settings.yaml:1: "},
		"missing":  {args: []string{"--config", "FILE.none"}, err: "no such file"},
		"help": {
			file: "listen: :5\n", args: []string{"-h", "--config", "FILE"},
			want: settings{Listen: ":5", Drain: time.Second},
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "settings.yaml")
			if err := os.WriteFile(path, []byte(c.file), 0o600); err != nil {
				t.Fatal(err)
			}
			for i := range c.args {
				c.args[i] = strings.Replace(c.args[i], "FILE", path, 1)
			}
			got := defaults
			_, err := Load(c.args, &got)
			switch {
			case c.err == "" && err != nil:
				t.Error(err)
			case c.err == "" && got != c.want:
				t.Errorf("%+v, want %+v", got, c.want)
			case c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err) ||
				!strings.Contains(err.Error(), "settings.yaml")):
				t.Errorf("%v, want %q and the file's name", err, c.err)
			}
		})
	}
}

func TestLocate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "settings.yaml")
	yaml := "listen: :5\n\ncache:\n  maxBytes: 0\npaths:\n  - index: 1\n  - index: 9\n"
	if err := os.WriteFile(path, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"cache.maxBytes must be above 0":        ":4: ",
		"cache.maxAge must be above 0":          ":3: ", // of the enclosing section
		"listen: address :5 is in use":          ":1: ",
		"paths[1].index 9 is not 1 to 8":        ":7: ",
		"paths[0].interface is missing":         ":6: ",
		"drain must not be negative":            "",
		"Something else":                        "",
		"cached":                                "",
		"cache.maxBytes.below is not a setting": ":4: ",
	} {
		got := Locate(path, errors.New(text)).Error()
		if want != "" {
			want = path + want
		}
		if got != want+text {
			t.Errorf("%q, want %q", got, want+text)
		}
	}
	if err := Locate("", io.EOF); err != io.EOF {
		t.Error(err)
	}
}

func TestChanged(t *testing.T) {
	a := settings{Listen: ":1", Drain: time.Second}
	b := a
	b.Listen, b.Cache.MaxBytes = ":2", 5
	for name, c := range map[string]struct {
		but  []string
		want string
	}{
		"all":         {nil, "listen cache.maxBytes"},
		"one":         {[]string{"listen"}, "cache.maxBytes"},
		"a section":   {[]string{"cache"}, "listen"},
		"no prefixes": {[]string{"lis", "cache.max"}, "listen cache.maxBytes"},
		"every":       {[]string{All}, ""},
	} {
		if got := strings.Join(Changed(a, b, c.but...), " "); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	type list struct{ Origins []string }
	if got := Changed(list{}, list{[]string{"a"}}, "origins"); got != nil {
		t.Errorf("of a list: %q", got)
	}
	if got := Changed(a, a); got != nil {
		t.Error(got)
	}
}

// FuzzDecode checks that any file is either read or refused.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		"listen: :5\n", "cache: {maxBytes: 1}", "a: &a [*a]", "<<: 1", "- : [",
		"drain: 1h\n---\nx: 1", "!!binary x: 1", "? {a: b}\n: c",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(_ *testing.T, b []byte) {
		var s settings
		_ = Decode("fuzz.yaml", b, &s)
	})
}
