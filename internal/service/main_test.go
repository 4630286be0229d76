package service

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/cobra"

	"holocast/internal/leaktest"
)

// settings configures the program under test, which is this test binary.
type settings struct {
	End   string `yaml:"end"` // how the program ends
	Limit int    `yaml:"limit"`
	Fixed int    `yaml:"fixed"` // needs a restart
}

// Validate implements Settings.
func (s *settings) Validate() error {
	if s.Limit < 0 {
		return errors.New("limit must not be negative")
	}
	return nil
}

const programEnv = "HOLOCAST_TEST_SERVICE"

func TestMain(m *testing.M) {
	if os.Getenv(programEnv) == "" {
		leaktest.Main(m)
		return
	}
	Main("program", func() settings { return settings{End: "success"} }, func(cfg *settings) *cobra.Command {
		c := &cobra.Command{Use: "program", SilenceUsage: true, SilenceErrors: true}
		c.Flags().String("config", "", "")
		c.Flags().StringVar(&cfg.End, "end", cfg.End, "")
		c.PreRunE = func(*cobra.Command, []string) error { return cfg.Validate() }
		c.RunE = func(cmd *cobra.Command, _ []string) error {
			log := slog.New(slog.NewTextHandler(os.Stderr, nil))
			unhook := OnReload(cmd.Context(), log, *cfg, []string{"limit"}, func(next settings) error {
				if next.Limit == 13 {
					return errors.New("limit 13 is refused")
				}
				fmt.Println("limit", next.Limit)
				return nil
			})
			defer unhook()
			Ready(cmd.Context(), func() {})
			fmt.Println("running")
			switch cfg.End {
			case "failure":
				return errors.New("it failed")
			case "canceled":
				return context.Canceled
			}
			<-cmd.Context().Done()
			fmt.Println("stopping")
			if cfg.End == "never" {
				select {}
			}
			if cfg.End == "interrupted" {
				return fmt.Errorf("open camera: %w", cmd.Context().Err())
			}
			return nil
		}
		return c
	})
}

func TestMainEnds(t *testing.T) {
	yaml := t.TempDir() + "/program.yaml"
	if err := os.WriteFile(yaml, []byte("end: failure\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		args    []string
		signals []os.Signal // sent in turn, each after a line of output
		status  string
		stderr  string
	}{
		"SIGTERM": {nil, []os.Signal{syscall.SIGTERM}, "exit status 0", ""},
		"SIGINT":  {nil, []os.Signal{syscall.SIGINT}, "exit status 0", ""},
		"second signal": {
			[]string{"--end", "never"},
			[]os.Signal{syscall.SIGTERM, syscall.SIGTERM},
			"signal: terminated", "",
		},
		"other second signal": {
			[]string{"--end", "never"},
			[]os.Signal{syscall.SIGTERM, syscall.SIGINT},
			"signal: interrupt", "",
		},
		"interrupted":        {[]string{"--end", "interrupted"}, []os.Signal{syscall.SIGINT}, "exit status 0", ""},
		"failure":            {[]string{"--end", "failure"}, nil, "exit status 1", "program: it failed\n"},
		"canceled by itself": {[]string{"--end", "canceled"}, nil, "exit status 1", "program: context canceled\n"},
		"configuration":      {[]string{"--config", yaml}, nil, "exit status 1", "program: it failed\n"},
		"flag over file": {
			[]string{"--config", yaml, "--end", "success"},
			[]os.Signal{syscall.SIGTERM},
			"exit status 0", "",
		},
		"missing configuration": {
			[]string{"--config", yaml + ".none"},
			nil, "exit status 1",
			"program: configuration: open " + yaml + ".none: no such file or directory\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), os.Args[0], c.args...)
			cmd.Env = append(os.Environ(), programEnv+"=1")
			var stderr strings.Builder
			cmd.Stderr = &stderr
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewScanner(out)
			for _, s := range c.signals {
				if !lines.Scan() {
					t.Fatal("it ended early")
				}
				if err := cmd.Process.Signal(s); err != nil {
					t.Fatal(err)
				}
			}
			for lines.Scan() {
			}
			_ = cmd.Wait()
			if got := cmd.ProcessState.String(); got != c.status {
				t.Errorf("ends with %q, want %q", got, c.status)
			}
			if stderr.String() != c.stderr {
				t.Errorf("says %q, want %q", stderr.String(), c.stderr)
			}
		})
	}
}
