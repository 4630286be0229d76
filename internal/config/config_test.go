package config

import (
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
}

func TestLoad(t *testing.T) {
	defaults := settings{Listen: ":4443", Drain: time.Second}
	for name, c := range map[string]struct {
		file string
		args []string // FILE stands for the file
		want settings
		err  string // in the error, "" when there is none
	}{
		"no file":       {args: []string{"--listen", ":1"}, want: defaults},
		"empty file":    {args: []string{"--config", "FILE"}, want: defaults},
		"comments":      {file: "# listen: :5\n", args: []string{"--config", "FILE"}, want: defaults},
		"some settings": {file: "listen: :5\n", args: []string{"--config=FILE", "--other", "x"}, want: settings{Listen: ":5", Drain: time.Second}},
		"a duration":    {file: "drain: 250ms\n", args: []string{"--config", "FILE"}, want: settings{Listen: ":4443", Drain: 250 * time.Millisecond}},
		"unknown":       {file: "cache:\n  maxByte: 1\n", args: []string{"--config", "FILE"}, err: `line 2: unknown setting "maxByte"`},
		"wrong type":    {file: "cache:\n  maxBytes: many\n", args: []string{"--config", "FILE"}, err: "line 2: cannot unmarshal"},
		"not YAML":      {file: "listen: [\n", args: []string{"--config", "FILE"}, err: "line 1"},
		"missing":       {args: []string{"--config", "FILE.none"}, err: "no such file"},
		"help":          {file: "listen: :5\n", args: []string{"-h", "--config", "FILE"}, want: settings{Listen: ":5", Drain: time.Second}},
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
			err := Load(c.args, &got)
			switch {
			case c.err == "" && err != nil:
				t.Error(err)
			case c.err == "" && got != c.want:
				t.Errorf("%+v, want %+v", got, c.want)
			case c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err) || !strings.Contains(err.Error(), "settings.yaml")):
				t.Errorf("%v, want %q and the file's name", err, c.err)
			}
		})
	}
}

// Settings come from files that others may have written: whatever they hold, it is
// read or refused.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{"listen: :5\n", "cache: {maxBytes: 1}", "a: &a [*a]", "<<: 1", "- : [", "drain: 1h\n---\nx: 1", "!!binary x: 1", "? {a: b}\n: c"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(_ *testing.T, b []byte) {
		var s settings
		_ = Decode(b, &s)
	})
}
