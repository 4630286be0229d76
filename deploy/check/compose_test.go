package check

import (
	"bytes"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
)

// programs is the folder of the built programs, kept between runs to save linking.
var programs string

func TestMain(m *testing.M) {
	code := 1
	var err error
	if programs, err = filepath.Abs("../../build/programs/check"); err != nil {
		panic(err)
	}
	if build("./relay", "./netfunc/edge", "./netfunc/controller") == nil {
		code = m.Run()
	}
	os.Exit(code)
}

// build builds programs in the folder.
func build(packages ...string) error {
	cmd := exec.Command("go", append([]string{"build", "-o", programs + "/"}, packages...)...)
	cmd.Dir, cmd.Stderr = "../..", os.Stderr
	cmd.Env = append(os.Environ(), "GOWORK=off")
	return cmd.Run()
}

// checks runs a program's check command on a configuration file.
func checks(t *testing.T, program, file string) {
	t.Helper()
	if out, err := exec.Command(filepath.Join(programs, program), "check", file).CombinedOutput(); err != nil {
		t.Errorf("%s check: %v\n%s", program, err, out)
	}
}

// stages returns the names of the Containerfile's stages.
func stages(t *testing.T) (names []string) {
	t.Helper()
	text, err := os.ReadFile("../images/Containerfile")
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := parser.Parse(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range parsed.Warnings {
		t.Errorf("Containerfile: %s", w.Short)
	}
	all, arguments, err := instructions.Parse(parsed.AST, nil)
	if err != nil {
		t.Fatal(err)
	}
	bases := map[string]bool{"scratch": true}
	for _, a := range arguments {
		for _, pair := range a.Args {
			bases["${"+pair.Key+"}"] = true
		}
	}
	for _, s := range all {
		if !bases[s.BaseName] {
			t.Errorf("stage %s is from %s, which is neither a stage nor an argument", s.Name, s.BaseName)
		}
		bases[s.Name] = true
		names = append(names, s.Name)
		for _, c := range s.Commands {
			if c, ok := c.(*instructions.CopyCommand); ok && c.From == "" {
				for _, source := range c.SourcePaths {
					if _, err := os.Stat(filepath.Join("../..", source)); err != nil {
						t.Errorf("Containerfile copies %s: %v", source, err)
					}
				}
			}
		}
	}
	return names
}

func TestContainerfile(t *testing.T) {
	have := stages(t)
	for _, image := range []string{"relay", "controller", "edge", "capture-server", "tools", "holocast"} {
		if !slices.Contains(have, image) {
			t.Errorf("no stage %s", image)
		}
	}
}

func TestCompose(t *testing.T) {
	options, err := cli.NewProjectOptions([]string{"../compose/compose.yaml"}, cli.WithProfiles([]string{"*"}),
		cli.WithInterpolation(true), cli.WithConsistency(true))
	if err != nil {
		t.Fatal(err)
	}
	project, err := options.LoadProject(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := "capture-server controller grafana keys london monitor paris prometheus relay relay-route viewer"
	if got := strings.Join(slices.Sorted(maps.Keys(project.Services)), " "); got != want {
		t.Errorf("services: %s\nwant:     %s", got, want)
	}
	targets := stages(t)
	for name, s := range project.Services {
		if s.Build != nil && !slices.Contains(targets, s.Build.Target) {
			t.Errorf("%s: the Containerfile has no stage %s", name, s.Build.Target)
		}
		if !strings.HasPrefix(s.Image, "holocast/") &&
			(strings.HasSuffix(s.Image, ":latest") || !strings.Contains(s.Image, ":")) {
			t.Errorf("%s: image %s without a version", name, s.Image)
		}
		for _, v := range s.Volumes {
			if v.Type != types.VolumeTypeBind || strings.HasPrefix(v.Source, "/sys") {
				continue
			}
			if _, err := os.Stat(v.Source); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	checks(t, "edge", "../compose/london.yaml")
	checks(t, "edge", "../compose/paris.yaml")
	checks(t, "controller", "../compose/controller.yaml")
	config, err := os.ReadFile("../compose/relay.yaml")
	if err != nil {
		t.Fatal(err)
	}
	relayChecks(t, string(config))
}

// TestPrometheus checks that Prometheus scrapes every program of the compose file that serves
// metrics, and that its configuration is valid.
func TestPrometheus(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is not installed: tools/setup.sh --test")
	}
	text, err := os.ReadFile("../compose/prometheus.yaml")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	rules, err := os.ReadFile("../prometheus/holocast.rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	token := filepath.Join(dir, "token")
	for name, b := range map[string][]byte{
		filepath.Join(dir, "prometheus.yml"):     bytes.Replace(text, []byte("/keys/operator.token"), []byte(token), 1),
		filepath.Join(dir, "holocast.rules.yml"): rules,
		token:                                    nil,
	} {
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{
		{"check", "config", filepath.Join(dir, "prometheus.yml")},
		{"check", "config", "--syntax-only", "../prometheus/prometheus.yml"},
		{"test", "rules", "../prometheus/holocast.rules.test.yml"},
	} {
		if out, err := exec.Command(promtool, args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}
