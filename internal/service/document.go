//go:build !manual

package service

import "github.com/spf13/cobra"

// Document adds nothing to a command. Builds with the tag manual, made to package the
// programs, get a command that writes manual pages and completions.
func Document(*cobra.Command) {}
