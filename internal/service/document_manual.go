//go:build manual

package service

import (
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// Document adds the command "manual DIR", which writes the program's manual pages to DIR/man
// and its completions to DIR/bash, DIR/zsh and DIR/fish.
func Document(c *cobra.Command) {
	c.AddCommand(&cobra.Command{
		Use:    "manual DIR",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE:   func(_ *cobra.Command, args []string) error { return document(c, args[0]) },
	})
}

func document(c *cobra.Command, dir string) error {
	for _, sub := range []string{"man", "bash", "zsh", "fish"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return err
		}
	}
	c.DisableAutoGenTag = true
	c.CompletionOptions.DisableDefaultCmd = true // without a manual page
	var epoch time.Time                          // makes the pages reproducible
	header := &doc.GenManHeader{Section: "1", Source: "Holocast", Manual: "Holocast", Date: &epoch}
	if err := doc.GenManTree(c, header, filepath.Join(dir, "man")); err != nil {
		return err
	}
	if err := c.GenBashCompletionFileV2(filepath.Join(dir, "bash", c.Name()), true); err != nil {
		return err
	}
	if err := c.GenZshCompletionFile(filepath.Join(dir, "zsh", "_"+c.Name())); err != nil {
		return err
	}
	return c.GenFishCompletionFile(filepath.Join(dir, "fish", c.Name()+".fish"), true)
}
