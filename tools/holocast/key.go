package main

import (
	"cmp"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"holocast/internal/moqt"
	"holocast/internal/secureobjects"
	"holocast/internal/service"
)

func keyCommand() *cobra.Command {
	var rotate, show bool
	c := &cobra.Command{
		Use:   "key FILE",
		Short: "Make the key of an encrypted session",
		Long: `Makes a key file, with which capture-server encrypts a session end to end and viewers decrypt it.
Only its owner may read the file. Give it to viewers over a channel that you trust, or their links
the text that --show prints.

--rotate adds a key. Give the file to the viewers, then send capture-server a SIGHUP: it changes to
the new key at once, and viewers that have it notice nothing.`,
		Example: `  holocast key studio.key
  capture-server --e2e-key studio.key --source synthetic
  holocast play moqt://localhost:4443/demo --e2e-key studio.key
  holocast key studio.key --rotate
  holocast key studio.key --show    # for links: append #e2e=… to the viewer's address`,
		Args: service.Arguments,
		RunE: func(cmd *cobra.Command, args []string) error {
			path := args[0]
			var k *secureobjects.Keys
			var err error
			switch {
			case rotate:
				if k, err = secureobjects.ReadFile(path); err == nil {
					if err = k.Rotate(); err == nil {
						err = k.WriteFile(path)
					}
				}
			case show:
				if k, err = secureobjects.ReadFile(path); err == nil {
					fmt.Fprintln(cmd.OutOrStdout(), k.Text())
				}
				return err
			default:
				k, err = secureobjects.CreateFile(path)
			}
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s: key %d\n", path, k.Newest().ID)
			return nil
		},
	}
	f := c.Flags()
	f.BoolVar(&rotate, "rotate", false, "add a key to the file, which replaces the others at the publisher")
	f.BoolVar(&show, "show", false, "print the file's keys in the form of links and $"+secureobjects.KeyVariable)
	c.MarkFlagsMutuallyExclusive("rotate", "show")
	return c
}

// keysOf returns the keys in the key file that a flag names, or in $HOLOCAST_E2E_KEY; nil without either.
func keysOf(file string) (*secureobjects.KeyFile, error) {
	text := os.Getenv(secureobjects.KeyVariable)
	file = cmp.Or(file, strings.TrimPrefix(text, "@"))
	switch file {
	case "":
		return nil, nil //nolint:nilnil // no key
	case text:
		k, err := secureobjects.ParseKeys(text)
		if err != nil {
			return nil, fmt.Errorf("$%s: %w", secureobjects.KeyVariable, err)
		}
		return secureobjects.FixedKeys(k), nil
	}
	return secureobjects.NewKeyFile(file)
}

// sessionConfig returns the configuration of connections that decrypt with v, which may be nil.
func sessionConfig(v *secureobjects.Viewer) (cfg moqt.Config) {
	if v != nil {
		cfg.Opener = v
	}
	return cfg
}

// viewerOf returns what decrypts the session, or nil without keys.
func viewerOf(ns moqt.Namespace, file string) (*secureobjects.Viewer, error) {
	k, err := keysOf(file)
	if k == nil {
		return nil, err
	}
	return secureobjects.NewViewer(ns, k), nil
}
