package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"holocast/capture-server/source/k4a"
)

// listCommand lists the cameras that --source k4a can open.
func listCommand(cfg *Config) *cobra.Command {
	c := &cobra.Command{
		Use:   "list",
		Short: "List attached Azure Kinect cameras",
		Args:  cobra.NoArgs,
	}
	cfg.Settings().AddFlags(c.Flags(), cfg, "k4a.library")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		infos, err := k4a.List(cfg.K4A.Library)
		if err != nil {
			return err
		}
		return list(cmd.OutOrStdout(), infos)
	}
	return c
}

func list(w io.Writer, infos []k4a.Info) error {
	if len(infos) == 0 {
		return fmt.Errorf("k4a: %w", k4a.ErrNoDevice)
	}
	for _, i := range infos {
		if i.Err != nil {
			fmt.Fprintf(w, "k4a:%d\t%v\n", i.Index, i.Err)
			continue
		}
		fmt.Fprintf(w, "k4a:%d\tk4a:%s\n", i.Index, i.Serial)
	}
	return nil
}
