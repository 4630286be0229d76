//go:build !linux

// Package network is the command line of emulated networks.
package network

import (
	"errors"

	"github.com/spf13/cobra"
)

// Command returns a command that says why there is no lab here.
func Command() *cobra.Command {
	return &cobra.Command{
		Use:                "lab",
		Short:              "Run programs in an emulated network (Linux only)",
		DisableFlagParsing: true,
		RunE: func(*cobra.Command, []string) error {
			return errors.New("a lab is made of Linux network namespaces: run it on Linux")
		},
	}
}
