// Command relay is the Holocast relay. It forwards tracks from publishers to any number of viewers
// over Media over QUIC, caches the newest groups for late joiners, and publishes its clock.
package main

import (
	"strings"

	"github.com/spf13/cobra"

	"holocast/internal/config"
	"holocast/internal/moqt/wire"
	"holocast/internal/quiccc"
	"holocast/internal/service"
)

func main() { service.Main("relay", defaultConfig, command) }

// command returns the relay's command line. cfg holds the defaults and receives the values.
func command(cfg *Config) *cobra.Command {
	c := &cobra.Command{
		Use:   "relay",
		Short: "Forward Media over QUIC tracks from publishers to viewers",
		Example: `  relay                                       # for this machine only, at 127.0.0.1:4443
  relay key relay.key                         # generate a key, to accept remote peers:
  relay --listen :4443 --http :4443 --auth-keys relay.key
  relay token --auth-keys relay.key --publish studio --for 2h
  relay --config relay.yaml
  curl http://localhost:4443/metrics`,
		Version:       service.Version(strings.Join(wire.ALPNs(wire.Versions()), ", "), quiccc.Build()),
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	f := c.Flags()
	f.String(config.Flag, "", "YAML configuration file; flags override it")
	settings.AddFlags(f, cfg)
	c.PreRunE = func(*cobra.Command, []string) error { return cfg.Validate() }
	c.RunE = func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), *cfg) }
	c.AddCommand(tokenCommand(cfg), keyCommand(), upgradeCommand(cfg), drainCommand(cfg))
	c.AddCommand(operatorCommands(cfg)...)
	return c
}
