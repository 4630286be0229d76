//go:build linux

package network

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"holocast/internal/netlab"
	"holocast/internal/netlab/topology"
	"holocast/internal/service"
)

// asLab, if set in the environment, makes the test binary run holocast-lab lab.
const asLab = "LAB_TEST_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asLab) == "" {
		os.Exit(m.Run())
	}
	ctx, stop := service.Context()
	defer stop()
	c := Command()
	c.SetArgs(os.Args[1:])
	if err := c.ExecuteContext(ctx); err != nil && ctx.Err() == nil {
		os.Exit(1)
	}
}

// lab runs the command and returns its output.
func lab(t *testing.T, args ...string) (string, error) {
	t.Helper()
	c := Command()
	c.SilenceUsage, c.SilenceErrors = true, true
	var out bytes.Buffer
	c.SetOut(&out)
	c.SetErr(&out)
	c.SetArgs(args)
	err := c.ExecuteContext(t.Context())
	return out.String(), err
}

func TestShowIsATopology(t *testing.T) {
	out, err := lab(t, "show", "table1-varying")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "mine.yaml")
	if err := os.WriteFile(path, []byte(out), 0o600); err != nil {
		t.Fatal(err)
	}
	again, err := lab(t, "show", path)
	if err != nil || again != out {
		t.Errorf("%v\n%s\n%s", err, out, again)
	}
	if parsed, err := topology.Parse([]byte(out)); err != nil || len(parsed.Paths) != 5 {
		t.Error(err)
	}
}

func TestErrors(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad.yaml")
	if err := os.WriteFile(bad, []byte("name: x\nhosts: [a, b]\npaths: [{name: p, between: [a, b], rate: fast}]"),
		0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		want string
		args []string
	}{
		{"unknown topology \"path9\": want one of lan,", []string{"show", "path9"}},
		{"none.yaml", []string{"show", "./none.yaml"}},
		{"bad.yaml: paths[0]: rate: \"fast\"", []string{"show", bad}},
		{"nothing to wait for", []string{"run", "lan"}},
		{"\"a\" is not HOST='COMMAND'", []string{"run", "lan", "--exec", "a"}},
		{"command \"true\": unknown node \"z\": name a host or an edge", []string{"run", "lan", "--exec", "z=true"}},
	} {
		if _, err := lab(t, c.args...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, not %s", c.args, err, c.want)
		}
	}
}

func TestRunAndPlot(t *testing.T) {
	if err := netlab.Supported(); err != nil {
		t.Skip("network lab unavailable: ", err)
	}
	plot := filepath.Join(t.TempDir(), "run.svg")
	out, err := lab(t, "run", "lan", "--exec", `a=echo "{\"b\":\"$ADDR_B\"}"`, "--background", "b=sleep 60", "--json",
		"--plot", plot)
	if err != nil {
		t.Fatal(err)
	}
	var report netlab.Report
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if len(report.Commands) != 2 || string(report.Commands[1].JSON) != `{"b":"10.77.2.2"}` {
		t.Errorf("%s", out)
	}
	if _, err := os.Stat(plot); err != nil {
		t.Error(err)
	}
	out, err = lab(t, "run", "lan", "--exec", "a=exit 4")
	if err == nil || !strings.Contains(err.Error(), "exit status 4") || !strings.Contains(out, "lan: ") {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestShell(t *testing.T) {
	if err := netlab.Supported(); err != nil {
		t.Skip("network lab unavailable: ", err)
	}
	out, err := lab(t, "shell", "path1", "ea", "test", "-e", "/proc/self/ns/net")
	if err != nil || !strings.Contains(out, "nsenter --net=/run/netns/netlab-") {
		t.Errorf("%v\n%s", err, out)
	}
	if _, err := lab(t, "shell", "path1", "zz"); err == nil || !strings.Contains(err.Error(), `no node "zz"`) {
		t.Error(err)
	}
	if _, err := lab(t, "shell", "path1", "a", "false"); err == nil {
		t.Error("the command's exit status was lost")
	}
}

// SIGTERM ends a shell that ignores it, together with its lab.
func TestShellEnds(t *testing.T) {
	if err := netlab.Supported(); err != nil {
		t.Skip("network lab unavailable: ", err)
	}
	for name, shell := range map[string]string{
		"exits":           "echo ready; exec sleep 1000",
		"ignores SIGTERM": "trap '' TERM; echo ready; while :; do sleep 1; done",
		"ignores SIGHUP":  "trap '' TERM HUP; echo ready; while :; do sleep 1; done",
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command(os.Args[0], "shell", "path1", "a", "sh", "-c", shell)
			cmd.Env = append(os.Environ(), asLab+"=1")
			stdout, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			limit := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
			defer limit.Stop()
			if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "ready\n" {
				t.Fatalf("%q, %v", line, err)
			}
			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			if err := cmd.Wait(); err != nil {
				t.Errorf("it ended with %v", err)
			}
			if left, _ := filepath.Glob(fmt.Sprintf("/run/netns/netlab-%d-*", cmd.Process.Pid)); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

func TestClean(t *testing.T) {
	if err := netlab.Supported(); err != nil {
		t.Skip("network lab unavailable: ", err)
	}
	if _, err := lab(t, "clean"); err != nil {
		t.Error(err)
	}
}
