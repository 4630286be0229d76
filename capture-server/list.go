package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"holocast/capture-server/audio"
	"holocast/capture-server/source/k4a"
)

// listCommand lists the cameras that --source k4a can open and the microphones that --audio can
// open.
func listCommand(cfg *Config) *cobra.Command {
	c := &cobra.Command{
		Use:   "list",
		Short: "List attached Azure Kinect cameras and microphones",
		Args:  cobra.NoArgs,
	}
	cfg.Settings().AddFlags(c.Flags(), cfg, "k4a.library")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		microphones, heard := audio.List()
		listMicrophones(cmd.OutOrStdout(), microphones)
		infos, err := k4a.List(cfg.K4A.Library)
		if err == nil {
			err = list(cmd.OutOrStdout(), infos)
		}
		if err != nil {
			return errors.Join(err, heard)
		}
		if heard != nil {
			fmt.Fprintln(cmd.ErrOrStderr(), heard)
		}
		return nil
	}
	return c
}

func listMicrophones(w io.Writer, infos []audio.Info) {
	for _, i := range infos {
		channels, chosen := "mono", ""
		if i.Channels > 1 {
			channels = "stereo"
		}
		if i.Default {
			chosen = "\tdefault"
		}
		fmt.Fprintf(w, "audio\t%s\t%s%s\n", i.Name, channels, chosen)
	}
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
