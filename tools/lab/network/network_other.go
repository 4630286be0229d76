//go:build !linux

// Package network implements the commands of holocast-lab lab, which run emulated networks.
package network

import (
	"errors"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// WifiFlag adds nothing, since emulated networks need Linux.
func WifiFlag(*pflag.FlagSet) {}

// Command returns a command that fails, since emulated networks need Linux.
func Command() *cobra.Command {
	return &cobra.Command{
		Use:                "lab",
		Short:              "Run programs in an emulated network (Linux only)",
		DisableFlagParsing: true,
		RunE: func(*cobra.Command, []string) error {
			return errors.New("emulated networks need Linux network namespaces; run it on Linux")
		},
	}
}
