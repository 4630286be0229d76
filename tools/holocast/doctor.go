package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"holocast/internal/quicext"
	"holocast/internal/sampledata"
	"holocast/relay/fastpath"
	"holocast/tools/holocast/doctor"
)

func doctorCommand() *cobra.Command {
	var asJSON bool
	var port int
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Check this machine's capabilities",
		Long: `Checks the requirements of sessions, cameras, the duplication pair and the network lab, and names a
command for each missing one. It changes nothing. It fails only if sessions cannot work at all.`,
		Example: `  holocast doctor
  sudo holocast doctor --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return diagnose(cmd.Context(), port, asJSON, cmd.OutOrStdout())
		},
	}
	f := c.Flags()
	f.BoolVar(&asJSON, "json", false, "print one JSON object")
	f.IntVar(&port, "port", 4443, "the relay's port")
	return c
}

func diagnose(ctx context.Context, port int, asJSON bool, stdout io.Writer) error {
	checks := append(doctor.Checks(port),
		doctor.Check{Name: "relay fast path", Run: checkFastPath},
		doctor.Check{Name: "programs", Run: findPrograms},
		doctor.Check{Name: "data", Run: func(context.Context) doctor.Finding {
			dir, err := sampledata.Find()
			if err != nil {
				return doctor.Finding{
					Status: doctor.Warn,
					Detail: err.Error() + ": the demo shows the synthetic performer, tests of real frames are skipped",
					Mend:   "export HOLOCAST_DATA=/path/to/data",
				}
			}
			return doctor.Finding{Status: doctor.OK, Detail: dir}
		}},
	)
	findings := doctor.Run(ctx, checks)
	counts := map[doctor.Status]int{}
	for _, f := range findings {
		counts[f.Status]++
	}
	if asJSON {
		if err := json.NewEncoder(stdout).Encode(map[string]any{
			"checks": findings, "ok": counts[doctor.OK], "warn": counts[doctor.Warn], "fail": counts[doctor.Fail],
		}); err != nil {
			return err
		}
	} else {
		for _, f := range findings {
			fmt.Fprintf(stdout, "%-4s  %-16s  %s\n", f.Status, f.Name, f.Detail)
			if f.Mend != "" {
				fmt.Fprintf(stdout, "%24s→ %s\n", "", f.Mend)
			}
		}
	}
	if n := counts[doctor.Fail]; n > 0 {
		return fmt.Errorf("%d of %d checks failed", n, len(findings))
	}
	return nil
}

// checkFastPath loads the relay's fast-path programs without attaching them.
func checkFastPath(context.Context) doctor.Finding {
	err := fastpath.Try()
	switch {
	case err == nil:
		return doctor.Finding{Status: doctor.OK, Detail: "relay --fastpath single forwards single datagrams in the kernel"}
	case errors.Is(err, quicext.ErrUnsupported):
		return doctor.Finding{
			Status: doctor.Warn,
			Detail: "datagrams go through user space: " + err.Error(),
			Mend:   "make build",
		}
	}
	return doctor.Finding{
		Status: doctor.Warn,
		Detail: "datagrams go through user space: the kernel fast path " + err.Error(),
	}
}

// findPrograms looks for the programs that the demo needs.
func findPrograms(context.Context) doctor.Finding {
	_, relay := findProgram("relay")
	_, capture := findProgram("capture-server")
	if err := errors.Join(relay, capture); err != nil {
		return doctor.Finding{Status: doctor.Warn, Detail: "relay or capture-server not found: no demo", Mend: "make build"}
	}
	return doctor.Finding{Status: doctor.OK, Detail: "relay and capture-server found"}
}
