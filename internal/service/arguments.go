package service

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// Arguments implements cobra.Command's Args for a command whose usage line lists its arguments, the
// optional ones in brackets. Its errors name the missing or superfluous argument and show the usage.
func Arguments(c *cobra.Command, args []string) error {
	names := strings.Fields(c.Use)[1:]
	required := 0
	for required < len(names) && !strings.HasPrefix(names[required], "[") {
		required++
	}
	usage := strings.TrimSuffix(c.CommandPath(), c.Name()) + c.Use
	switch {
	case len(args) < required:
		return fmt.Errorf("%s is missing: %s (%s --help has examples)", names[len(args)], usage, c.CommandPath())
	case len(args) > len(names):
		return fmt.Errorf("%q is one argument too many: %s", args[len(names)], usage)
	}
	return nil
}
