//go:build !manual

package service

import "github.com/spf13/cobra"

// Document does nothing. Packaging builds, with the tag manual, add a command that writes manual
// pages and completions.
func Document(*cobra.Command) {}
