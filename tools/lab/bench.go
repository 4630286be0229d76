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
	"unicode/utf8"

	"github.com/spf13/cobra"

	"holocast/internal/connect"
	"holocast/internal/devcert"
	"holocast/internal/netlab/topology"
	"holocast/internal/sampledata"
	"holocast/internal/service"
	"holocast/tools/lab/bench/bottleneck"
	"holocast/tools/lab/bench/cluster"
	"holocast/tools/lab/bench/codec"
	"holocast/tools/lab/bench/congestion"
	"holocast/tools/lab/bench/duplication"
	"holocast/tools/lab/bench/fastpath"
	"holocast/tools/lab/bench/fbdt"
	"holocast/tools/lab/bench/hostile"
	"holocast/tools/lab/bench/looks"
	"holocast/tools/lab/bench/relay"
	"holocast/tools/lab/bench/scale"
	"holocast/tools/lab/bench/sound"
	"holocast/tools/lab/bench/tiles"
	"holocast/tools/lab/bench/wan"
	"holocast/tools/lab/network"
)

// benchOptions are shared by all benchmarks.
type benchOptions struct {
	data  string // folder with recordings; "" if missing
	parts []string
	relay relay.Options
	app   string // of duplication
	quick bool
	flags string    // flags of bench relay as given; other benchmarks have none
	log   io.Writer // progress
}

// result is printed as JSON and as Markdown.
type result interface{ Markdown() string }

type benchmark struct {
	name, about string
	parts       func() []string // nil if the benchmark has only one part
	root        bool            // needs network namespaces
	run         func(context.Context, benchOptions) (result, error)
}

func benchmarks() []benchmark {
	return []benchmark{
		{
			name: "codec", about: "point-cloud codec: bytes per point, encoding and decoding time",
			run: func(ctx context.Context, o benchOptions) (result, error) {
				return codec.Run(ctx, codec.Options{DataDir: o.data, Quick: o.quick, Log: o.log})
			},
		},
		{
			name: "relay", about: "relay: throughput per core, delay, memory, minutes of load, upgrade",
			parts: relay.Parts,
			run: func(ctx context.Context, o benchOptions) (result, error) {
				o.relay.Parts, o.relay.Data, o.relay.Quick, o.relay.Log = o.parts, o.data, o.quick, o.log
				return relay.Run(ctx, o.relay)
			},
		},
		{
			name: "hostile", about: "relay under attack: its resource use and another viewer's frames",
			parts: hostile.Names,
			run: func(ctx context.Context, o benchOptions) (result, error) {
				self, err := os.Executable()
				if err != nil {
					return nil, err
				}
				return hostile.Run(ctx, hostile.Options{
					Parts: o.parts, Quick: o.quick, Log: o.log,
					Attacker: []string{self, attackName},
				})
			},
		},
		{
			name: "cluster", about: "many relays as one: delay and cost of hops, announcements, what viewers lose in faults",
			parts: cluster.Parts, root: true,
			run: func(ctx context.Context, o benchOptions) (result, error) {
				self, err := os.Executable()
				if err != nil {
					return nil, err
				}
				return cluster.Run(ctx, cluster.Options{
					Parts: o.parts, Quick: o.quick, Log: o.log,
					Client: []string{self, clientName},
				})
			},
		},
		{
			name: "scale", about: "clusters of many relays, simulated: announcements, copies between regions, faults",
			run: func(ctx context.Context, o benchOptions) (result, error) {
				return scale.Run(ctx, scale.Options{Quick: o.quick, Log: o.log})
			},
		},
		{
			name: "congestion", about: "congestion control over emulated paths: throughput, queue, frames, fairness",
			parts: congestion.Parts,
			root:  true,
			run: func(ctx context.Context, o benchOptions) (result, error) {
				return congestion.Run(ctx, congestion.Options{Parts: o.parts, Quick: o.quick, Log: o.log})
			},
		},
		{
			name: "bottleneck", about: "a camera and 33 tracks over paths below their rate, frames in datagrams " +
				"over lossy paths",
			parts: bottleneck.Parts, root: true,
			run: func(ctx context.Context, o benchOptions) (result, error) {
				return bottleneck.Run(ctx, bottleneck.Options{Parts: o.parts, Quick: o.quick, Log: o.log})
			},
		},
		{
			name: "tiles", about: "tiled 360° video: quality in the viewport, by tile selection scheme",
			parts: tiles.Parts,
			run: func(ctx context.Context, o benchOptions) (result, error) {
				return tiles.Run(ctx, tiles.Options{Data: o.data, Parts: o.parts, Quick: o.quick, Log: o.log})
			},
		},
		{
			name: "wan", about: "point clouds over home connections: bit rate and accuracy of codecs, frames that " +
				"arrive",
			parts: wan.Parts, root: true,
			run: func(ctx context.Context, o benchOptions) (result, error) {
				return wan.Run(ctx, wan.Options{Data: o.data, Parts: o.parts, Quick: o.quick, Log: o.log})
			},
		},
		{
			name: "looks", about: "pictures of depth cameras' frames as points and surfaces, against a camera left out",
			parts: looks.Parts,
			run: func(ctx context.Context, o benchOptions) (result, error) {
				return looks.Run(ctx, looks.Options{Data: o.data, Parts: o.parts, Quick: o.quick, Log: o.log})
			},
		},
		{
			name: "sound", about: "sound from mouth to ear: delay, concealment, noise",
			parts: sound.Parts, root: true,
			run: func(ctx context.Context, o benchOptions) (result, error) {
				return sound.Run(ctx, sound.Options{Parts: o.parts, Quick: o.quick, Log: o.log})
			},
		},
		{
			name: "fastpath", about: "relay: packet delay and cost in user space and in the kernel",
			parts: fastpath.Parts, root: true,
			run: func(ctx context.Context, o benchOptions) (result, error) {
				return fastpath.Run(ctx, fastpath.Options{Data: o.data, Parts: o.parts, Quick: o.quick, Log: o.log})
			},
		},
		{
			name: "fbdt", about: "several radios at once: single paths, multipath TCP, schedulers, FBDT",
			parts: fbdt.Parts, root: true,
			run: func(ctx context.Context, o benchOptions) (result, error) {
				return fbdt.Run(ctx, fbdt.Options{Data: o.data, Parts: o.parts, Quick: o.quick, Log: o.log})
			},
		},
		{
			name: "duplication", about: "packet duplication over the paths of Table I: single path, redirection, " +
				"duplication",
			parts: duplication.Parts, root: true,
			run: func(ctx context.Context, o benchOptions) (result, error) {
				return duplication.Run(ctx, duplication.Options{
					App: duplication.App(o.app), Data: o.data, Parts: o.parts, Quick: o.quick, Log: o.log,
				})
			},
		},
	}
}

// describe returns the benchmark's description for the list of benchmarks and for result pages.
func (b benchmark) describe() string {
	if b.root {
		return b.about + " (needs root)"
	}
	return b.about
}

func benchCommand() *cobra.Command {
	var o benchOptions
	var w benchWriter
	list := benchmarks()
	names := make([]string, len(list))
	about, parts := "", ""
	for i, b := range list {
		names[i] = b.name
		about += fmt.Sprintf("  %-11s %s\n", b.name, b.describe())
		if b.parts != nil {
			parts += fmt.Sprintf("  %-11s %s\n", b.name, strings.Join(b.parts(), ", "))
		}
	}
	c := &cobra.Command{
		Use:   "bench NAME|all",
		Short: "Run benchmarks",
		Long: "Run one benchmark or all of them and print a table. --out also writes the table to NAME.md and\n" +
			"the figures to NAME.json, with the command.\n\nBenchmarks:\n" + about + "\nParts, for --parts:\n" + parts,
		Example: `  holocast-lab bench codec
  holocast-lab bench codec --quick --json
  holocast-lab bench relay --peer auto
  holocast-lab bench relay --parts soak,upgrade
  holocast-lab bench duplication --app livescan
  holocast-lab bench all --out docs/results`,
		Args: func(cmd *cobra.Command, args []string) error {
			if err := service.Arguments(cmd, args); err != nil {
				return err
			}
			if !slices.Contains(cmd.ValidArgs, args[0]) {
				return fmt.Errorf("no benchmark %q; want one of %s", args[0], strings.Join(cmd.ValidArgs, ", "))
			}
			return nil
		},
		ValidArgs: append(slices.Clone(names), "all"),
		RunE: func(cmd *cobra.Command, args []string) error {
			all := args[0] == "all"
			if all && len(o.parts) > 0 {
				return errors.New("--parts needs a single benchmark")
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
	shared.BoolVar(&o.quick, "quick", false, "shorter, less accurate runs")
	shared.BoolVar(&w.json, "json", false, "print the result as one JSON object on the last line of stdout")
	shared.StringVar(&o.relay.Peer, "peer", "",
		"of relay: another relay to compare with: a moq-relay-ietf binary, auto to look for it in PATH and "+
			"build/peers/bin, or a command with {addr}, {cert} and {key}")
	shared.StringVar(&w.out, "out", "", "folder for NAME.md and NAME.json (bench all: docs/results)")
	network.WifiFlag(shared)
	shared.StringSliceVar(&o.parts, "parts", nil, "measure only these parts")
	c.Flags().StringVar(&o.app, "app", "",
		"of duplication: push (default), livescan (frames requested over TCP; parts also cubic, bbr), uplink "+
			"(publisher to relay), or reordered or livescan-reordered (delays change with each packet; part printed)")
	c.AddCommand(benchRelayCommand(&o, &w, list))
	return c
}

// benchRelayCommand returns the command bench relay, which has additional flags.
func benchRelayCommand(o *benchOptions, w *benchWriter, list []benchmark) *cobra.Command {
	var target connect.Target
	var loss float64
	c := &cobra.Command{
		Use:   "relay [URL]",
		Short: "Load a relay",
		Long: `Load a relay with publishers' frames, each of which every viewer receives without decoding it. For
each number of viewers it measures throughput, CPU time and delay at a sustainable rate, the
maximum rate, and behaviour past saturation; also a late joiner's time to the first object and
the memory of idle sessions.

Without a URL it starts our relay on this machine, without limits, and runs all parts: load,
first-byte, soak and upgrade. With --peer it runs load alone, alternating between our relay and the
peer. With a URL, moqt://host:port/session or https://host:port/session, it loads that relay, whose
own limits apply; publishers use the namespaces session/0, session/1, …`,
		Example: `  holocast-lab bench relay --peer auto --json
  holocast-lab bench relay --publishers 4 --viewers 1,10 --rate 30 --size 100000
  holocast-lab bench relay --viewers 4 --transport webtransport --loss 1 --time 20s
  holocast-lab bench relay --peer 'moq-relay-ietf --bind {addr} --tls-cert {cert} --tls-key {key}'
  HOLOCAST_TOKEN=… holocast-lab bench relay moqt://relay.example.com/load --viewers 50`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			r := &o.relay
			if len(args) > 0 {
				target.URL = args[0]
				r.At = &target
			}
			switch target.Transport {
			case connect.TransportQUIC:
			case "webtransport":
				r.WebTransport, target.Transport = true, connect.TransportQUIC
			default:
				return fmt.Errorf("--transport is %q, want quic or webtransport", target.Transport)
			}
			if loss < 0 || loss >= 100 {
				return fmt.Errorf("--loss is %g, want 0 to less than 100 percent", loss)
			}
			r.Loss = loss / 100
			for _, name := range []string{"publishers", "viewers", "rate", "size", "loss", "transport", "time"} {
				if f := cmd.Flags().Lookup(name); f.Changed {
					o.flags += " --" + name + " " + strings.Trim(f.Value.String(), "[]")
				}
			}
			if r.At != nil {
				o.flags = " " + target.Address() + o.flags
			}
			i := slices.IndexFunc(list, func(b benchmark) bool { return b.name == "relay" })
			return w.run(cmd, *o, list[i:i+1], false)
		},
	}
	f := c.Flags()
	f.SortFlags = false
	f.IntVar(&o.relay.Publishers, "publishers", 1, "publishers, with a track each")
	f.IntSliceVar(&o.relay.Viewers, "viewers", nil, "numbers of viewers (default 1,4,16,50; --quick 1,4,16)")
	f.Float64Var(&o.relay.Rate, "rate", relay.FramesPerS, "frames per second and publisher")
	f.IntVar(&o.relay.FrameBytes, "size", relay.FrameBytes, "bytes per frame (one object)")
	f.Float64Var(&loss, "loss", 0, "percentage of packets to and from viewers to drop")
	f.DurationVar(&o.relay.Time, "time", 0, "length of a run (default 8s, --quick 3s)")
	target.AddFlags(f)
	transport := f.Lookup("transport")
	transport.Usage = "quic or webtransport; a URL's scheme takes precedence"
	target.Transport, transport.DefValue = connect.TransportQUIC, connect.TransportQUIC
	return c
}

// benchWriter prints and stores results.
type benchWriter struct {
	json bool
	out  string // folder; "" stores nothing
}

// run runs the benchmarks in list. If all is set and the user is not root, it skips benchmarks that
// need root.
func (w *benchWriter) run(cmd *cobra.Command, o benchOptions, list []benchmark, all bool) error {
	o.log = cmd.ErrOrStderr()
	if dir, err := sampledata.Find(); err == nil {
		o.data = dir
	}
	results := map[string]any{}
	for _, b := range list {
		if all && b.root && os.Geteuid() != 0 {
			fmt.Fprintf(cmd.ErrOrStderr(), "skip bench %s: it needs root\n", b.name)
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

// attackName is the command that runs the attackers of bench hostile.
const attackName = "attack"

func attackCommand() *cobra.Command {
	return &cobra.Command{
		Use:   attackName + " NAME ADDRESS METRICS HASH",
		Short: "Attack a local relay",
		Long: `Run one attack of bench hostile against a relay: NAME is a part of that benchmark, ADDRESS the
relay's UDP host:port, METRICS its HTTP host:port, and HASH the SHA-256 of its certificate in hex.
It runs until interrupted.`,
		Example: `  holocast-lab attack "unread windows" 127.0.0.1:4443 127.0.0.1:8080 HASH`,
		Args:    cobra.ExactArgs(4),
		RunE: func(cmd *cobra.Command, args []string) error {
			hash, err := devcert.ParseHash(args[3])
			if err != nil {
				return err
			}
			return hostile.Attack(cmd.Context(), args[0], &hostile.Target{
				Addr: args[1], HTTP: args[2],
				TLS: devcert.Pinned(hash),
			}, cmd.OutOrStdout())
		},
	}
}

// clientName is the command that runs the publisher and viewers of bench cluster.
const clientName = "cluster-client"

func clientCommand() *cobra.Command {
	return &cobra.Command{
		Use:    clientName + " CONFIG",
		Short:  "Run a publisher or viewers of bench cluster",
		Long:   "Run a publisher or viewers of bench cluster, with a configuration in JSON, until interrupted.",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return cluster.RunClient(cmd.Context(), args[0], cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
}

// writeResult writes a benchmark's table to NAME.md and its figures to NAME.json.
func writeResult(dir string, b benchmark, o benchOptions, r result) (err error) {
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
			peer = "auto" // omit this machine's path
		}
		command += " --peer " + quoted(peer)
	}
	if wifi := os.Getenv(topology.WifiVariable); wifi != "" && b.root {
		command += " --wifi " + quoted(filepath.Base(wifi))
	}
	if o.quick {
		command += " --quick"
	}
	made := []string{command}
	if m, ok := r.(interface{ Measured() []string }); ok && len(o.parts) > 0 { // other parts may come from earlier runs
		made = nil
		for _, part := range m.Measured() {
			made = append(made, "holocast-lab bench "+b.name+" --parts "+part)
		}
	}
	md := wrap(fmt.Sprintf("# %s\n\n%s. Measured by `%s` on %s.\n\n%s\n", name,
		strings.ToUpper(b.about[:1])+b.describe()[1:], strings.Join(made, "`, `"),
		time.Now().UTC().Format(time.DateOnly), strings.TrimSpace(r.Markdown())))
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

// columns is the maximum line length in documents.
const columns = 120

// wrap breaks a document's long lines, except in tables, images and code blocks.
func wrap(md string) string {
	var out strings.Builder
	code := false
	for line := range strings.Lines(md) {
		if strings.HasPrefix(line, "```") {
			code = !code
		}
		if code || strings.HasPrefix(line, "|") || strings.HasPrefix(line, "!") {
			out.WriteString(line)
			continue
		}
		width := 0
		for i, word := range strings.Split(line, " ") {
			n := utf8.RuneCountInString(strings.TrimSuffix(word, "\n"))
			switch {
			case i == 0:
			case width+1+n > columns && !strings.Contains("-+*", word): // no list
				out.WriteByte('\n')
				width = 0
			default:
				out.WriteByte(' ')
				width++
			}
			out.WriteString(word)
			width += n
		}
	}
	return out.String()
}

// quoted quotes an argument for the shell.
func quoted(arg string) string {
	if strings.ContainsAny(arg, " {}") {
		return "'" + arg + "'"
	}
	return arg
}

// withParts adds to r the parts of an earlier result file that r lacks, if the benchmark supports
// it.
func withParts(name string, o benchOptions, r result) (result, error) {
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
