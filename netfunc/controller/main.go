//go:build linux

// Command controller selects the paths of each flow between edges that duplicate packets, as described
// by Qian et al., "Enabling eBPF-based packet duplication for robust volumetric video streaming".
// Edges report to it over HTTP; senders receive signed signalling packets.
package main

import (
	"encoding/hex"
	"fmt"

	"github.com/spf13/cobra"

	"holocast/internal/config"
	"holocast/internal/service"
	"holocast/netfunc/signal"
)

func main() { service.Main("controller", defaultConfig, command) }

// command returns the controller's command line. cfg holds the defaults and receives the values.
func command(cfg *Config) *cobra.Command {
	c := &cobra.Command{
		Use:   "controller",
		Short: "Select the paths for each flow between duplicating edges",
		Example: `  controller key > signal.key                 # once, for the controller and its edges
  controller run --config controller.yaml
  controller status                           # edges, paths, flows, the last decisions
  controller status --json --url https://controller.example:4793 --token operator.token
  controller set 10.9.0.7 --mode redirect     # until reset by:
  controller set 10.9.0.7 --default`,
		Version:       service.Version("api 1"),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	f := c.PersistentFlags()
	f.SortFlags = false
	f.String(config.Flag, "", "YAML configuration file; flags override it")
	c.AddCommand(runCommand(cfg), statusCommand(cfg), setCommand(cfg), keyCommand())
	return c
}

func runCommand(cfg *Config) *cobra.Command {
	c := &cobra.Command{
		Use:   "run",
		Short: "Run the controller until SIGTERM",
		Long: `Run the controller until SIGTERM.

It may be killed and restarted at any time: edges keep their path sets, and the
controller resumes from its state file and their reports.`,
		Example: `  controller run --config controller.yaml
  controller run --signal-key signal.key --state controller.json
  controller run --config controller.yaml --http-listen :4793 --auth-token operator.token --log-level debug`,
		Args: cobra.NoArgs,
	}
	f := c.Flags()
	f.SortFlags = false
	settings.AddFlags(f, cfg)
	c.PreRunE = func(*cobra.Command, []string) error { return cfg.Validate() }
	c.RunE = func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), *cfg) }
	return c
}

func keyCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "key",
		Short: "Print a new signalling key",
		Long: `Print a new signalling key.

The controller signs signalling packets with it, and the edges verify them. Its holder
can turn duplication on and off.`,
		Example: `  (umask 077; controller key > signal.key)`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), hex.EncodeToString(signal.GenerateKey()))
			return err
		},
	}
}
