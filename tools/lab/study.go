package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"holocast/tools/lab/bench/study"
)

func studyCommand() *cobra.Command {
	var o study.Options
	var asJSON bool
	var out string
	c := &cobra.Command{
		Use:   "study",
		Short: "Compare transports for holographic objects, next to a published study",
		Long: `Retrieve objects of 1 to 400 Mbit and a camera's frames over raw UDP, the kernel's TCP, QUIC, MOQT and
WebTransport, on a LAN, a WAN and a WAN with a wireless client, and print the figures next to those of
I. Ali et al. (2023). Needs root. The full run takes about two hours on a quiet machine, --quick less
than ten minutes. Finished measurements are kept: --resume continues an interrupted run.`,
		Example: `  holocast-lab study --quick --json
  holocast-lab study --out docs/results
  holocast-lab study --resume --out docs/results
  holocast-lab study --paths wifi --wifi mine.yaml`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Log = cmd.ErrOrStderr()
			if o.State == "" {
				o.State = studyState(o.Quick)
			}
			r, err := study.Run(cmd.Context(), o)
			if err != nil {
				return fmt.Errorf("study: %w; --resume continues it", err)
			}
			if out != "" {
				if err := writeStudy(out, o, r); err != nil {
					return err
				}
			}
			if asJSON {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(r.Summary())
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), r.Markdown())
			return err
		},
	}
	f := c.Flags()
	f.BoolVar(&o.Quick, "quick", false, "fewer transports, sizes and buffers, once each")
	f.BoolVar(&asJSON, "json", false, "print the figures as one JSON object on the last line of stdout")
	f.BoolVar(&o.Resume, "resume", false, "keep the finished measurements of an interrupted run")
	f.StringVar(&out, "out", "", "folder for study.md, study.json and plots")
	f.StringSliceVar(&o.Paths, "paths", nil, "measure only these paths: "+
		strings.Join(study.AllPaths(), ", "))
	f.StringVar(&o.Wifi, "wifi", "study", "Wi-Fi model of path wifi: a file, home or study")
	f.StringVar(&o.State, "state", "", "file of finished measurements (default: in the user's cache folder)")
	return c
}

// studyState returns the default file of finished measurements.
func studyState(quick bool) string {
	dir, err := os.UserCacheDir()
	if err != nil {
		dir = os.TempDir()
	}
	name := "study.jsonl"
	if quick {
		name = "study-quick.jsonl"
	}
	return filepath.Join(dir, "holocast", name)
}

func writeStudy(dir string, o study.Options, r study.Result) error {
	if err := r.SavePlots(dir); err != nil {
		return err
	}
	command := "holocast-lab study"
	if o.Quick {
		command += " --quick"
	}
	if len(o.Paths) > 0 {
		command += " --paths " + strings.Join(o.Paths, ",")
	}
	if r.Wifi != "study" {
		command += " --wifi " + quoted(r.Wifi)
	}
	md := wrap(fmt.Sprintf("# study\n\nTransports for holographic objects, next to a published study (needs root). Measured "+
		"by `%s` on %s.\n\n%s", command, time.Now().UTC().Format(time.DateOnly), r.Markdown()))
	figures, err := json.Marshal(map[string]any{"command": command, "summary": r.Summary(), "result": r})
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "study.md"), []byte(md), 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "study.json"), append(figures, '\n'), 0o644)
}
