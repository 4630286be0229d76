package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"holocast/internal/devcert"
	"holocast/internal/service"
	"holocast/tools/bench/codec"
	"holocast/tools/bench/congestion"
	"holocast/tools/bench/duplication"
	"holocast/tools/bench/fastpath"
	"holocast/tools/bench/hostile"
	"holocast/tools/bench/narrow"
	"holocast/tools/bench/path"
	"holocast/tools/bench/relay"
	"holocast/tools/bench/tiles"
	"holocast/tools/bench/upgrade"
)

// benchOptions are every benchmark's.
type benchOptions struct {
	data  string // "" where there is none
	parts []string
	peer  string // of relay
	app   string // of duplication
	quick bool
	log   io.Writer // progress
}

// needsRoot ends the description of a benchmark that makes network namespaces.
const needsRoot = "(needs root)"

// benchmark is one benchmark: its result is JSON, and Markdown for people.
type benchmark struct {
	name, about string
	run         func(context.Context, benchOptions) (result interface{ Markdown() string }, err error)
}

func benchmarks() []benchmark {
	return []benchmark{
		{"codec", "point-cloud frame codec: bytes per point, encode and decode time", func(ctx context.Context, o benchOptions) (interface{ Markdown() string }, error) {
			return codec.Run(ctx, codec.Options{DataDir: o.data, Quick: o.quick, Log: o.log})
		}},
		{"path", "relay: first byte, fan-out, cost and delay; frames in datagrams", func(ctx context.Context, o benchOptions) (interface{ Markdown() string }, error) {
			return path.Run(ctx, path.Options{Parts: o.parts, Quick: o.quick, Log: o.log})
		}},
		{"relay", "relay under load, in turns with another implementation's (--peer): throughput of a core, delay, memory", func(ctx context.Context, o benchOptions) (interface{ Markdown() string }, error) {
			return relay.Run(ctx, relay.Options{Peer: o.peer, Quick: o.quick, Log: o.log})
		}},
		{"hostile", "relay under attack: what a viewer beside the attacker notices, and what the relay needs", func(ctx context.Context, o benchOptions) (interface{ Markdown() string }, error) {
			self, err := os.Executable()
			if err != nil {
				return nil, err
			}
			return hostile.Run(ctx, hostile.Options{Parts: o.parts, Quick: o.quick, Log: o.log, Attacker: []string{self, attackName}})
		}},
		{"congestion", "congestion control over emulated paths: throughput, queue, frames, fairness " + needsRoot, func(ctx context.Context, o benchOptions) (interface{ Markdown() string }, error) {
			return congestion.Run(ctx, congestion.Options{Parts: o.parts, Quick: o.quick, Log: o.log})
		}},
		{"narrow", "bottlenecks: a camera, and 33 tracks, over paths below their rate: what comes whole, delay, what is sent in vain " + needsRoot, func(ctx context.Context, o benchOptions) (interface{ Markdown() string }, error) {
			return narrow.Run(ctx, narrow.Options{Parts: o.parts, Quick: o.quick, Log: o.log})
		}},
		{"tiles", "tiled 360° video: what a viewport shows, by way of choosing tiles", func(ctx context.Context, o benchOptions) (interface{ Markdown() string }, error) {
			return tiles.Run(ctx, tiles.Options{Data: o.data, Parts: o.parts, Quick: o.quick, Log: o.log})
		}},
		{"fastpath", "relay: delay of each packet and cost, in user space and in the kernel " + needsRoot, func(ctx context.Context, o benchOptions) (interface{ Markdown() string }, error) {
			return fastpath.Run(ctx, fastpath.Options{Data: o.data, Parts: o.parts, Quick: o.quick, Log: o.log})
		}},
		{"upgrade", "relay: frames and their delay while it is replaced under load " + needsRoot, func(ctx context.Context, o benchOptions) (interface{ Markdown() string }, error) {
			return upgrade.Run(ctx, upgrade.Options{Data: o.data, Quick: o.quick, Log: o.log})
		}},
		{"duplication", "packet duplication over the paths of Table I: single path, redirection, duplication " + needsRoot, func(ctx context.Context, o benchOptions) (interface{ Markdown() string }, error) {
			return duplication.Run(ctx, duplication.Options{App: duplication.App(o.app), Data: o.data, Parts: o.parts, Quick: o.quick, Log: o.log})
		}},
	}
}

func benchCommand() *cobra.Command {
	var quick, asJSON bool
	var out, peer, app string
	var parts []string
	list := benchmarks()
	names := make([]string, len(list))
	about := ""
	for i, b := range list {
		names[i] = b.name
		about += fmt.Sprintf("  %-11s %s\n", b.name, b.about)
	}
	c := &cobra.Command{
		Use:   "bench NAME|all",
		Short: "Measure",
		Long: "Runs one benchmark or all of them and prints a table. With --out the table and the\n" +
			"figures are written to NAME.md and NAME.json, with the command that made them.\n\nBenchmarks:\n" + about,
		Example: `  holocast bench codec
  holocast bench codec --quick --json
  holocast bench relay --peer auto
  holocast bench duplication --app livescan
  holocast bench all --out docs/results`,
		Args: func(cmd *cobra.Command, args []string) error {
			if err := service.Arguments(cmd, args); err != nil {
				return err
			}
			if !slices.Contains(cmd.ValidArgs, args[0]) {
				return fmt.Errorf("there is no benchmark %q, but %s", args[0], strings.Join(cmd.ValidArgs, ", "))
			}
			return nil
		},
		ValidArgs: append(slices.Clone(names), "all"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if args[0] == "all" && len(parts) > 0 {
				return errors.New("--parts are those of one benchmark")
			}
			if args[0] == "all" && out == "" {
				out = filepath.Join("docs", "results")
			}
			o := benchOptions{quick: quick, parts: parts, peer: peer, app: app, log: cmd.ErrOrStderr()}
			if dir, err := findData(); err == nil {
				o.data = dir
			}
			results := map[string]any{}
			for _, b := range list {
				if args[0] != "all" && args[0] != b.name {
					continue
				}
				if args[0] == "all" && strings.Contains(b.about, needsRoot) && os.Geteuid() != 0 {
					fmt.Fprintf(cmd.ErrOrStderr(), "bench %s is left out: it needs root\n", b.name)
					continue
				}
				r, err := b.run(cmd.Context(), o)
				if err != nil {
					return fmt.Errorf("bench %s: %w", b.name, err)
				}
				if !asJSON {
					fmt.Fprintf(cmd.OutOrStdout(), "%s\n", r.Markdown())
				}
				if out != "" {
					if err := writeResult(out, b, o, r); err != nil {
						return err
					}
				}
				results[b.name] = r
			}
			switch {
			case !asJSON:
				return nil
			case args[0] != "all":
				return json.NewEncoder(cmd.OutOrStdout()).Encode(results[args[0]])
			}
			return json.NewEncoder(cmd.OutOrStdout()).Encode(results)
		},
	}
	f := c.Flags()
	f.BoolVar(&quick, "quick", false, "shorter runs, less exact")
	f.BoolVar(&asJSON, "json", false, "print one JSON object, the last line of stdout")
	f.StringSliceVar(&parts, "parts", nil, "of path: "+strings.Join(path.Parts(), ", ")+"; of congestion: "+strings.Join(congestion.Parts(), ", ")+"; of fastpath: "+strings.Join(fastpath.Parts(), ", ")+"; of hostile: "+strings.Join(hostile.Names(), ", ")+"; of narrow: "+strings.Join(narrow.Parts(), ", ")+"; of tiles: "+strings.Join(tiles.Parts(), ", ")+"; of duplication: "+strings.Join(duplication.Parts(), ", "))
	f.StringVar(&peer, "peer", "", "of relay: binary of moq-relay-ietf, or auto to look for it in PATH and build/peers/bin")
	f.StringVar(&app, "app", "", "of duplication: push, our session (default); livescan, whose viewers ask for each frame over TCP, its --parts are also cubic, bbr; or uplink, from the publisher to the relay")
	f.StringVar(&out, "out", "", "folder for NAME.md and NAME.json (bench all: docs/results)")
	return c
}

// attackName is the command of bench hostile's attackers.
const attackName = "bench-attack"

// attackCommand attacks a relay of this machine, for bench hostile.
func attackCommand() *cobra.Command {
	return &cobra.Command{
		Use: attackName + " NAME ADDRESS METRICS HASH", Hidden: true, Args: cobra.ExactArgs(4),
		Short: "Attack a relay of this machine, for bench hostile",
		RunE: func(cmd *cobra.Command, args []string) error {
			hash, err := devcert.ParseHash(args[3])
			if err != nil {
				return err
			}
			return hostile.Attack(cmd.Context(), args[0], &hostile.Target{Addr: args[1], HTTP: args[2], TLS: devcert.Pinned(hash)}, cmd.OutOrStdout())
		},
	}
}

// writeResult writes a benchmark's table and figures.
func writeResult(dir string, b benchmark, o benchOptions, r interface{ Markdown() string }) (err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	name := b.name
	if b.name == "duplication" {
		name += duplication.App(o.app).Suffix()
	}
	if r, err = withParts(filepath.Join(dir, name+".json"), o, r); err != nil {
		return err
	}
	command := "holocast bench " + b.name
	if name != b.name {
		command += " --app " + o.app
	}
	if len(o.parts) > 0 && b.name != "codec" {
		command += " --parts " + strings.Join(o.parts, ",")
	}
	if o.peer != "" && b.name == "relay" {
		command += " --peer auto"
	}
	if o.quick {
		command += " --quick"
	}
	made := []string{command}
	if m, ok := r.(interface{ Measured() []string }); ok && len(o.parts) > 0 { // others of its parts may be from before
		made = nil
		for _, part := range m.Measured() {
			made = append(made, "holocast bench "+b.name+" --parts "+part)
		}
	}
	md := fmt.Sprintf("# %s\n\n%s. Made by `%s` on %s.\n\n%s\n", name, strings.ToUpper(b.about[:1])+b.about[1:], strings.Join(made, "`, `"),
		time.Now().UTC().Format(time.DateOnly), strings.TrimSpace(r.Markdown()))
	figures, err := json.MarshalIndent(map[string]any{"command": command, "result": r}, "", "  ")
	if err != nil {
		return err
	}
	if r, ok := r.(interface{ SavePlots(dir string) error }); ok {
		if err := r.SavePlots(dir); err != nil {
			return err
		}
	}
	for _, f := range []struct {
		ext  string
		text []byte
	}{{".md", []byte(md)}, {".json", append(figures, '\n')}} {
		err := writeFile(filepath.Join(dir, name+f.ext), func(w io.Writer) error {
			_, err := w.Write(f.text)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// withParts adds to a result of some parts what the file has of the others, if the
// benchmark can do that.
func withParts(name string, o benchOptions, r interface{ Markdown() string }) (interface{ Markdown() string }, error) {
	m, ok := r.(interface {
		With(earlier []byte) (interface{ Markdown() string }, error)
	})
	if !ok || len(o.parts) == 0 {
		return r, nil
	}
	data, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	} else if err != nil {
		return nil, err
	}
	var file struct{ Result json.RawMessage }
	if err := json.Unmarshal(data, &file); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return m.With(file.Result)
}
