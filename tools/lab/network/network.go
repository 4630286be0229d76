//go:build linux

// Package network implements the commands of holocast-lab lab, which run emulated networks.
package network

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"holocast/internal/netlab"
	"holocast/internal/netlab/chart"
	"holocast/internal/netlab/topology"
	"holocast/internal/service"
)

// Command returns the lab command with its subcommands.
func Command() *cobra.Command {
	c := &cobra.Command{
		Use:   "lab",
		Short: "Run programs in an emulated network",
		Long: `Run programs in an emulated network: hosts and routers are network namespaces, joined
by paths with rate, delay, delay variation, loss and queue. Needs root. Everything is
removed at the end, and nothing outside the lab is contacted.

TOPOLOGY is a YAML file or one of
  ` + strings.Join(topology.Builtins(), ", ") + `.`,
		Example: `  holocast-lab lab run path1 --background b='iperf3 -s' --exec a='iperf3 -c $ADDR_B -J' --plot path1.png
  holocast-lab lab run mine.yaml --json
  holocast-lab lab run path1 --wifi home --exec a='ping -c 10 $ADDR_B'
  holocast-lab lab shell table1 a
  holocast-lab lab check table1
  holocast-lab lab clean`,
	}
	WifiFlag(c.PersistentFlags())
	c.AddCommand(runCommand(), shellCommand(), checkCommand(), showCommand(), cleanCommand())
	return c
}

// WifiFlag adds --wifi, which sets the Wi-Fi model of all labs of this process and its children.
func WifiFlag(f *pflag.FlagSet) {
	f.Func("wifi", "put a lab's last host on the Wi-Fi channel of this model: a file, or "+
		strings.Join(topology.BuiltinWifis(), " or "), func(name string) error {
		if _, err := topology.LoadWifi(name); err != nil {
			return err
		}
		return os.Setenv(topology.WifiVariable, name)
	})
}

// load reads a topology file or returns a built-in topology.
func load(name string) (*topology.Topology, error) {
	if !strings.ContainsAny(name, "./") {
		return topology.Builtin(name)
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("topology: %w", err)
	}
	t, err := topology.Parse(data)
	if err != nil {
		return nil, fmt.Errorf("topology %s: %w", name, err)
	}
	return t, nil
}

func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// failed returns a report's failures as one error, or nil.
func failed(failures []string) error {
	if len(failures) == 0 {
		return nil
	}
	return errors.New(strings.Join(failures, "\n"))
}

// emulatorFlag adds --emulator to a command that starts a lab.
func emulatorFlag(c *cobra.Command, into *netlab.Emulator) {
	c.Flags().Func("emulator", "forwarder (default) or netem, if the kernel supports it", func(name string) error {
		for _, e := range []netlab.Emulator{netlab.Forwarder, netlab.Netem} {
			if name == e.String() {
				*into = e
				return nil
			}
		}
		return errors.New("want forwarder or netem")
	})
}

func runCommand() *cobra.Command {
	var (
		foreground, background []string
		duration               time.Duration
		plots                  []string
		asJSON                 bool
		options                netlab.Options
	)
	c := &cobra.Command{
		Use:   "run TOPOLOGY",
		Short: "Run commands in a lab and report on its paths",
		Long: `Run commands in a lab and report the behaviour of its paths.

The topology's commands and those of --exec and --background each run in a shell in their
host. The addresses of all nodes are in the environment: $ADDR_B and $ADDR6_B for b. The
run ends with the last foreground command, or after the duration. It fails if a foreground
command fails, or if the emulation was late or lost packets by mistake.`,
		Example: `  holocast-lab lab run table1 --exec a='ping -c 10 $ADDR_B'
  holocast-lab lab run path1-varying --background b='iperf3 -s' \
    --exec a='iperf3 -c $ADDR_B -t 60 -J' --json --plot run.svg`,
		Args: service.Arguments,
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := load(args[0])
			if err != nil {
				return err
			}
			for i, specs := range [][]string{background, foreground} {
				if err := addCommands(t, specs, i == 0); err != nil {
					return err
				}
			}
			if cmd.Flags().Changed("duration") {
				t.Duration = duration
			}
			waits := t.Duration > 0
			for _, c := range t.Commands {
				waits = waits || !c.Background
			}
			if !waits {
				return errors.New("nothing to wait for; set --exec or --duration")
			}
			report, err := netlab.Run(cmd.Context(), t, options)
			if err != nil {
				return err
			}
			for _, path := range plots {
				if err := chart.Save(path, report.Panels()); err != nil {
					return err
				}
			}
			if asJSON {
				err = writeJSON(cmd.OutOrStdout(), report)
			} else {
				err = writeRun(cmd.OutOrStdout(), report)
			}
			return errors.Join(err, failed(report.Failures))
		},
	}
	emulatorFlag(c, &options.Emulator)
	f := c.Flags()
	f.StringArrayVar(&foreground, "exec", nil, "HOST='COMMAND' to run and wait for; repeatable")
	f.StringArrayVar(&background, "background", nil,
		"HOST='COMMAND' to run until the foreground commands end; repeatable")
	f.DurationVar(&duration, "duration", 0, "maximum duration (default: the topology's)")
	f.StringArrayVar(&plots, "plot", nil, "draw the time series into this .png or .svg file")
	f.BoolVar(&asJSON, "json", false, "print the full report as JSON, with time series and command output")
	return c
}

func addCommands(t *topology.Topology, specs []string, background bool) error {
	for _, spec := range specs {
		host, command, ok := strings.Cut(spec, "=")
		if !ok || command == "" {
			return fmt.Errorf("%q is not HOST='COMMAND'", spec)
		}
		if err := t.AddCommand(topology.Command{Host: host, Shell: command, Background: background}); err != nil {
			return err
		}
	}
	return nil
}

func writeRun(w io.Writer, r *netlab.Report) error {
	for _, c := range r.Commands {
		fmt.Fprintf(w, "%s: %s (%.1f s, exit status %d)\n", c.Host, c.Command, c.Seconds, c.ExitCode)
		for _, output := range []string{string(c.JSON), c.Output, c.Stderr} {
			if output != "" {
				fmt.Fprintln(w, strings.TrimRight(output, "\n"))
			}
		}
	}
	return r.WriteTable(w)
}

func shellCommand() *cobra.Command {
	var options netlab.Options
	c := &cobra.Command{
		Use:   "shell TOPOLOGY HOST [COMMAND [ARG...]]",
		Short: "Open a shell in a host of a new lab",
		Long: `Start a lab and open a shell in one of its hosts. The lab ends with the shell. Other
terminals reach the lab's nodes with nsenter and the printed names; ip netns exec would
hide /sys/fs/bpf, where edges pin their programs. Schedules begin with the shell.
SIGTERM ends shell and lab.`,
		Example: `  holocast-lab lab shell table1 a
  holocast-lab lab shell path1 a ping -c 3 10.77.2.2`,
		Args: cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			t, err := load(args[0])
			if err != nil {
				return err
			}
			l, err := netlab.Start(t, options)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, l.Close()) }()
			node := l.Node(args[1])
			if node == nil {
				return fmt.Errorf("%s has no node %q", t.Name, args[1])
			}
			shell := args[2:]
			if len(shell) == 0 {
				shell = []string{"sh"}
				if s := os.Getenv("SHELL"); s != "" {
					shell[0] = s
				}
			}
			for _, name := range t.Nodes() {
				n := l.Node(name)
				fmt.Fprintf(cmd.ErrOrStderr(), "%-12s %-12v nsenter --net=/run/netns/%s\n", name, n.Addr,
					n.Namespace.Name)
			}
			err = interactive(cmd.Context(), l, node, shell)
			var exit *exec.ExitError
			if len(args) == 2 && errors.As(err, &exit) {
				return nil // the status of the shell's last command does not matter
			}
			return err
		},
	}
	emulatorFlag(c, &options.Emulator)
	c.Flags().SetInterspersed(false) // flags after HOST belong to the command
	return c
}

// hangUp is how long a shell has to exit after a signal.
const hangUp = 2 * time.Second

// interactive runs a command on the terminal. Ctrl-C reaches only the command. SIGTERM ends both
// the command and the lab.
func interactive(ctx context.Context, l *netlab.Lab, node *netlab.Node, args []string) error {
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt)
	defer signal.Stop(interrupts)
	cmd := node.Command(context.WithoutCancel(ctx), args[0], args[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := l.Begin(); err != nil {
		return err
	}
	terminated := make(chan os.Signal, 1)
	signal.Notify(terminated, unix.SIGTERM)
	defer signal.Stop(terminated)
	if err := node.Start(cmd); err != nil {
		return err
	}
	var failed error
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		failed = cmd.Wait()
	}()
	select {
	case <-ended:
		return failed
	case <-terminated:
	}
	_ = cmd.Process.Signal(unix.SIGTERM)
	_ = cmd.Process.Signal(unix.SIGHUP) // interactive shells ignore SIGTERM
	select {
	case <-ended:
	case <-time.After(hangUp):
		_ = cmd.Process.Kill()
		<-ended
	}
	return context.Canceled
}

func checkCommand() *cobra.Command {
	full := netlab.Load{Duration: 3 * time.Second, Size: 1000, Fill: 1.1}
	var asJSON bool
	var options netlab.Options
	c := &cobra.Command{
		Use:   "check [TOPOLOGY]",
		Short: "Measure how accurately a lab emulates its topology on this machine",
		Long: `Measure how accurately a lab emulates its topology (default table1) on this machine. UDP
packets are sent over every path in the forward direction, under the path's initial
conditions: first a few packets, to measure delay, then more than the path can carry.`,
		Example: `  holocast-lab lab check
  holocast-lab lab check path1 --size 1400 --json`,
		Args: service.Arguments,
		RunE: func(cmd *cobra.Command, args []string) error {
			name := "table1"
			if len(args) > 0 {
				name = args[0]
			}
			t, err := load(name)
			if err != nil {
				return err
			}
			check, err := netlab.CheckTopology(cmd.Context(), t, full, options)
			if err != nil {
				return err
			}
			if asJSON {
				check.Series = nil
				err = writeJSON(cmd.OutOrStdout(), check)
			} else {
				err = check.WriteTable(cmd.OutOrStdout())
			}
			return errors.Join(err, failed(check.Failures))
		},
	}
	emulatorFlag(c, &options.Emulator)
	f := c.Flags()
	f.DurationVar(&full.Duration, "duration", full.Duration, "duration of each phase")
	f.IntVar(&full.Size, "size", full.Size, "bytes of UDP payload")
	f.Float64Var(&full.Fill, "fill", full.Fill, "offered load in the second phase, as a multiple of the path's rate")
	f.BoolVar(&asJSON, "json", false, "print the result as JSON")
	return c
}

func showCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "show TOPOLOGY",
		Short:   "Print a topology as YAML, as a template",
		Example: `  holocast-lab lab show table1-varying > mine.yaml`,
		Args:    service.Arguments,
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := load(args[0])
			if err != nil {
				return err
			}
			text, err := t.YAML()
			if err != nil {
				return err
			}
			_, err = cmd.OutOrStdout().Write(text)
			return err
		},
	}
}

func cleanCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "clean",
		Short: "Remove the remains of killed labs",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := netlab.Supported(); err != nil {
				return err
			}
			removed, err := netlab.Clean()
			for _, name := range removed {
				fmt.Fprintln(cmd.OutOrStdout(), "removed", name)
			}
			return err
		},
	}
}
