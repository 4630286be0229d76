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

	"holocast/internal/connect"
	"holocast/internal/devcert"
	"holocast/internal/sampledata"
	"holocast/internal/service"
	"holocast/tools/lab/bench/codec"
	"holocast/tools/lab/bench/congestion"
	"holocast/tools/lab/bench/duplication"
	"holocast/tools/lab/bench/fastpath"
	"holocast/tools/lab/bench/hostile"
	"holocast/tools/lab/bench/narrow"
	"holocast/tools/lab/bench/path"
	"holocast/tools/lab/bench/relay"
	"holocast/tools/lab/bench/steady"
	"holocast/tools/lab/bench/tiles"
	"holocast/tools/lab/bench/upgrade"
)

// benchOptions are every benchmark's.
type benchOptions struct {
	data  string // "" where there is none
	parts []string
	relay relay.Options
	app   string // of duplication
	quick bool
	flags string    // of the benchmark alone, as they were given
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
			o.relay.Quick, o.relay.Log = o.quick, o.log
			return relay.Run(ctx, o.relay)
		}},
		{"hostile", "relay under attack: what a viewer beside the attacker notices, and what the relay needs", func(ctx context.Context, o benchOptions) (interface{ Markdown() string }, error) {
			self, err := os.Executable()
			if err != nil {
				return nil, err
			}
			return hostile.Run(ctx, hostile.Options{Parts: o.parts, Quick: o.quick, Log: o.log, Attacker: []string{self, attackName}})
		}},
		{"steady", "relay: 200 viewers for minutes, and whether what it needs grows", func(ctx context.Context, o benchOptions) (interface{ Markdown() string }, error) {
			return steady.Run(ctx, steady.Options{Quick: o.quick, Log: o.log})
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
	var o benchOptions
	var w benchWriter
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
		Example: `  holocast-lab bench codec
  holocast-lab bench codec --quick --json
  holocast-lab bench relay --peer auto
  holocast-lab bench duplication --app livescan
  holocast-lab bench all --out docs/results`,
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
			all := args[0] == "all"
			if all && len(o.parts) > 0 {
				return errors.New("--parts are those of one benchmark")
			}
			if all && w.out == "" {
				w.out = filepath.Join("docs", "results")
			}
			if all {
				return w.run(cmd, o, list, true)
			}
			i := slices.Index(names, args[0])
			return w.run(cmd, o, list[i:i+1], false)
		},
	}
	shared := c.PersistentFlags()
	shared.BoolVar(&o.quick, "quick", false, "shorter runs, less exact")
	shared.BoolVar(&w.json, "json", false, "print one JSON object, the last line of stdout")
	shared.StringVar(&o.relay.Peer, "peer", "", "of relay: another one to alternate with: the binary of moq-relay-ietf, auto to look for that in PATH and build/peers/bin, or a command with {addr}, {cert} and {key} for its address and PEM files")
	shared.StringVar(&w.out, "out", "", "folder for NAME.md and NAME.json (bench all: docs/results)")
	f := c.Flags()
	f.StringSliceVar(&o.parts, "parts", nil, "of path: "+strings.Join(path.Parts(), ", ")+"; of congestion: "+strings.Join(congestion.Parts(), ", ")+"; of fastpath: "+strings.Join(fastpath.Parts(), ", ")+"; of hostile: "+strings.Join(hostile.Names(), ", ")+"; of narrow: "+strings.Join(narrow.Parts(), ", ")+"; of tiles: "+strings.Join(tiles.Parts(), ", ")+"; of duplication: "+strings.Join(duplication.Parts(), ", "))
	f.StringVar(&o.app, "app", "", "of duplication: push, our session (default); livescan, whose viewers ask for each frame over TCP, its --parts are also cubic, bbr; or uplink, from the publisher to the relay")
	c.AddCommand(benchRelayCommand(&o, &w, list))
	return c
}

// benchRelayCommand is bench relay with what it alone has to set.
func benchRelayCommand(o *benchOptions, w *benchWriter, list []benchmark) *cobra.Command {
	var at connect.Target
	var transport string
	var loss float64
	c := &cobra.Command{
		Use:   "relay [URL]",
		Short: "Load a relay",
		Long: `Loads a relay with frames of publishers that every viewer has; viewers do not decode. Of
each number of viewers it measures throughput, processor time and delay at a rate that is
carried, the most that is carried frame by frame, and how the relay fares past saturation; and the
time to a newcomer's first object and the memory of idle sessions.

URL is a session at a relay of any make, moqt://host:port/session or https://host:port/session;
publishers are below it: session/0 and so on. Its own limits bound the load. Without a URL our relay is
started on this machine, without limits, and with --peer another one beside it: they take turns
with the same work.`,
		Example: `  holocast-lab bench relay --peer auto --json
  holocast-lab bench relay --publishers 4 --viewers 1,10 --rate 30 --size 100000
  holocast-lab bench relay --viewers 4 --transport webtransport --loss 1 --time 20s
  holocast-lab bench relay --peer 'moq-relay-ietf --bind {addr} --tls-cert {cert} --tls-key {key}'
  HOLOCAST_TOKEN=… holocast-lab bench relay moqt://relay.example.com/load --viewers 50`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			r := &o.relay
			if len(args) > 0 {
				at.URL = args[0]
				r.At = &at
			}
			switch transport {
			case "quic":
			case "webtransport":
				r.WebTransport = true
			default:
				return fmt.Errorf("--transport %q: want quic or webtransport", transport)
			}
			if loss < 0 || loss >= 100 {
				return fmt.Errorf("--loss %g: want percent, from 0 to less than 100", loss)
			}
			r.Loss = loss / 100
			for _, name := range []string{"publishers", "viewers", "rate", "size", "loss", "transport", "time"} {
				if f := cmd.Flags().Lookup(name); f.Changed {
					o.flags += " --" + name + " " + strings.Trim(f.Value.String(), "[]")
				}
			}
			if r.At != nil {
				o.flags = " " + at.Address() + o.flags
			}
			i := slices.IndexFunc(list, func(b benchmark) bool { return b.name == "relay" })
			return w.run(cmd, *o, list[i:i+1], false)
		},
	}
	f := c.Flags()
	f.SortFlags = false
	f.IntVar(&o.relay.Publishers, "publishers", 1, "publishers, each with a track")
	f.IntSliceVar(&o.relay.Viewers, "viewers", nil, "numbers of viewers (default 1,4,16,50; --quick 1,4,16)")
	f.Float64Var(&o.relay.Rate, "rate", relay.FramesPerS, "frames a second of each publisher")
	f.IntVar(&o.relay.FrameBytes, "size", relay.FrameBytes, "bytes of a frame, which is an object")
	f.Float64Var(&loss, "loss", 0, "percent of the packets to viewers, and of those from them, to drop")
	f.StringVar(&transport, "transport", "quic", "quic or webtransport; of a URL its scheme says it")
	f.DurationVar(&o.relay.Time, "time", 0, "length of a run at that rate (default 8s, --quick 3s)")
	at.AddFlags(f)
	return c
}

// benchWriter says what becomes of results.
type benchWriter struct {
	json bool
	out  string // folder; "" for none
}

// run runs benchmarks, all of them or one.
func (w *benchWriter) run(cmd *cobra.Command, o benchOptions, list []benchmark, all bool) error {
	o.log = cmd.ErrOrStderr()
	if dir, err := sampledata.Find(); err == nil {
		o.data = dir
	}
	results := map[string]any{}
	for _, b := range list {
		if all && strings.Contains(b.about, needsRoot) && os.Geteuid() != 0 {
			fmt.Fprintf(cmd.ErrOrStderr(), "bench %s is left out: it needs root\n", b.name)
			continue
		}
		r, err := b.run(cmd.Context(), o)
		if err != nil {
			return fmt.Errorf("bench %s: %w", b.name, err)
		}
		if !w.json {
			fmt.Fprintf(cmd.OutOrStdout(), "%s\n", r.Markdown())
		}
		if w.out != "" {
			if err := writeResult(w.out, b, o, r); err != nil {
				return err
			}
		}
		results[b.name] = r
	}
	switch {
	case !w.json:
		return nil
	case !all:
		return json.NewEncoder(cmd.OutOrStdout()).Encode(results[list[0].name])
	}
	return json.NewEncoder(cmd.OutOrStdout()).Encode(results)
}

// attackName is the command of bench hostile's attackers.
const attackName = "attack"

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
	command := "holocast-lab bench " + b.name + o.flags
	if name != b.name {
		command += " --app " + o.app
	}
	if len(o.parts) > 0 && b.name != "codec" {
		command += " --parts " + strings.Join(o.parts, ",")
	}
	if peer := o.relay.Peer; peer != "" && b.name == "relay" {
		if !strings.Contains(peer, "{") {
			peer = "auto" // the path is this machine's
		}
		command += " --peer " + quoted(peer)
	}
	if o.quick {
		command += " --quick"
	}
	made := []string{command}
	if m, ok := r.(interface{ Measured() []string }); ok && len(o.parts) > 0 { // others of its parts may be from before
		made = nil
		for _, part := range m.Measured() {
			made = append(made, "holocast-lab bench "+b.name+" --parts "+part)
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
		err := os.WriteFile(filepath.Join(dir, name+f.ext), f.text, 0o644)
		if err != nil {
			return err
		}
	}
	return nil
}

// quoted is an argument as a shell takes it.
func quoted(arg string) string {
	if strings.ContainsAny(arg, " {}") {
		return "'" + arg + "'"
	}
	return arg
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
