// Holocast is the end user's command. It plays, records, replays and exports sessions, checks the
// machine, and runs a demo. Benchmarks and emulated networks are in holocast-lab.
package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"holocast/internal/moqt/wire"
	"holocast/internal/quiccc"
	"holocast/internal/service"
)

func main() {
	ctx, stop := service.Context()
	defer stop()
	service.LimitMemory(0)
	c := command()
	service.Document(c)
	service.Exit("holocast", c.ExecuteContext(ctx))
}

func command() *cobra.Command {
	c := &cobra.Command{
		Use:   "holocast",
		Short: "Play, record and check live volumetric sessions",
		Example: `  holocast demo
  holocast play moqt://localhost:4443/demo
  holocast record moqt://localhost:4443/demo demo.mcap --duration 10s
  holocast replay demo.mcap moqt://localhost:4443/again --loop
  holocast doctor`,
		Version:       service.Version(strings.Join(wire.ALPNs(wire.Versions()), ", "), quiccc.Build()),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	service.LogLevel(c)
	c.AddCommand(
		playCommand(), bridgeCommand(), monitorCommand(), recordCommand(), replayCommand(), prepareCommand(),
		exportCommand(), keyCommand(), pairCommand(), demoCommand(), doctorCommand(), traceCommand(),
		movedCommand("bench"), movedCommand("lab"),
	)
	return c
}

// movedCommand returns an error saying that a subcommand moved to holocast-lab.
func movedCommand(name string) *cobra.Command {
	return &cobra.Command{
		Use:                name,
		Hidden:             true,
		DisableFlagParsing: true,
		RunE: func(*cobra.Command, []string) error {
			return fmt.Errorf("%s moved to another program: run holocast-lab %[1]s", name)
		},
	}
}
