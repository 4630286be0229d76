//go:build linux

// Command edge is one end of an edge pair. It duplicates packets over several paths, eliminates
// duplicates, or both, as described by Qian et al., "Enabling eBPF-based packet duplication for robust
// volumetric video streaming". Kernel programs do the forwarding; this program sets them up, measures
// the paths, finds dispensable paths with Algorithm 1, and reports to the controller.
package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"holocast/internal/config"
	"holocast/internal/service"
)

func main() { service.Main("edge", defaultConfig, command) }

// command returns the edge's command line. cfg holds the defaults and receives the values.
func command(cfg *Config) *cobra.Command {
	c := &cobra.Command{
		Use:   "edge",
		Short: "Duplicate packets over several paths, or eliminate the duplicates",
		Example: `  edge run --config edge.yaml                 # attach and watch the paths
  edge status                                 # the edges of this machine
  edge status --config edge.yaml --json       # one of them, for programs
  edge detach --config edge.yaml              # remove a killed edge's programs from the kernel
  curl http://localhost:4792/metrics`,
		Version:       service.Version(),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	f := c.PersistentFlags()
	f.SortFlags = false
	f.String(config.Flag, "", "YAML configuration file; flags override it")
	settings.AddFlags(f, cfg, identity...)
	c.AddCommand(runCommand(cfg), statusCommand(cfg), detachCommand(cfg))
	return c
}

func runCommand(cfg *Config) *cobra.Command {
	c := &cobra.Command{
		Use:   "run",
		Short: "Attach to the kernel and monitor the paths until SIGTERM",
		Long: `Attach to the kernel and monitor the paths until SIGTERM.

Kernel programs of an earlier run are taken over without losing a packet. The process
may be killed at any time: the kernel continues to duplicate and eliminate packets. On
SIGTERM it detaches, unless onExit is keep.`,
		Example: `  edge run --config edge.yaml
  edge run --config edge.yaml --http :4792 --log-level debug`,
		Args: cobra.NoArgs,
	}
	f := c.Flags()
	f.SortFlags = false
	settings.AddFlags(f, cfg)
	c.PreRunE = func(cmd *cobra.Command, _ []string) error {
		if !cmd.Flags().Changed(config.Flag) {
			return fmt.Errorf("--%s is missing: name a file with the paths of this edge", config.Flag)
		}
		return cfg.Validate()
	}
	c.RunE = func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), *cfg) }
	return c
}
