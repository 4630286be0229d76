// Holocast-lab measures Holocast. It runs benchmarks, emulated networks and attacks on a relay.
// Installed programs link none of it.
package main

import (
	"strings"

	"github.com/spf13/cobra"

	"holocast/internal/moqt/wire"
	"holocast/internal/quiccc"
	"holocast/internal/service"
	"holocast/tools/lab/network"
)

func main() {
	ctx, stop := service.Context()
	defer stop()
	service.Exit("holocast-lab", command().ExecuteContext(ctx))
}

func command() *cobra.Command {
	c := &cobra.Command{
		Use:   "holocast-lab",
		Short: "Run benchmarks and emulated networks",
		Example: `  holocast-lab bench codec
  holocast-lab bench relay --peer auto
  sudo holocast-lab lab shell table1 a`,
		Version:       service.Version(strings.Join(wire.ALPNs(wire.Versions()), ", "), quiccc.Build()),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	service.LogLevel(c)
	c.AddCommand(benchCommand(), studyCommand(), network.Command(), attackCommand(), clientCommand())
	return c
}
