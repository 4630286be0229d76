//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"holocast/internal/service"
	"holocast/netfunc/api"
	"holocast/netfunc/controller/rest"
	"holocast/netfunc/pathset"
)

// connection holds the flags that locate a running controller.
type connection struct {
	url, token, ca, certificate, key string
}

func (c *connection) flags(f *pflag.FlagSet) {
	f.SortFlags = false
	f.StringVar(&c.url, "url", "", "the controller's URL (default from the configuration)")
	f.StringVar(&c.token, "token", "", "file with the token (default from the configuration)")
	f.StringVar(&c.ca, "ca", "", "PEM certificates to trust instead of the system's")
	f.StringVar(&c.certificate, "certificate", "", "PEM client certificate (mTLS)")
	f.StringVar(&c.key, "key", "", "PEM key of the client certificate")
}

// client connects with the flags, completed from the configuration.
func (c *connection) client(cfg *Config) (*api.Client, error) {
	o := api.Options{URL: c.url, CA: c.ca, Certificate: c.certificate, Key: c.key}
	if o.URL == "" {
		setting, addr := "http.listen", cfg.HTTP.Listen
		if cfg.HTTP.Operators != "" {
			setting, addr = "http.operators", cfg.HTTP.Operators
		}
		host, port, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, fmt.Errorf("%s %q: want host:port", setting, addr)
		}
		if a, err := netip.ParseAddr(host); host == "" || (err == nil && a.IsUnspecified()) {
			host = "localhost"
		}
		o.URL = "http://" + net.JoinHostPort(host, port)
		if cfg.HTTP.Certificate != "" {
			o.URL = "https://" + net.JoinHostPort(host, port)
		}
	}
	if file := c.token; file != "" || cfg.Auth.Token != "" {
		if file == "" {
			file = cfg.Auth.Token
		}
		var err error
		if o.Token, err = rest.ReadToken(file); err != nil {
			return nil, err
		}
	}
	client, err := api.NewClient(o)
	if err != nil {
		return nil, fmt.Errorf("--%w", err)
	}
	return client, nil
}

// explain adds advice to a connection error.
func explain(err error) error {
	if e := (*net.OpError)(nil); errors.As(err, &e) && e.Op == "dial" {
		return fmt.Errorf("no controller answers; check that it is running, and check --config or --url: %w", err)
	}
	return err
}

func statusCommand(cfg *Config) *cobra.Command {
	var conn connection
	var asJSON bool
	var decisions int
	c := &cobra.Command{
		Use:   "status",
		Short: "Show edges, paths, flows and the last decisions of a running controller",
		Example: `  controller status
  controller status --config controller.yaml --decisions 50
  controller status --json --url https://controller.example:4793 --token operator.token | jq .flows`,
		Args: cobra.NoArgs,
	}
	conn.flags(c.Flags())
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON value")
	c.Flags().IntVar(&decisions, "decisions", 10, "number of decisions to show")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		client, err := conn.client(cfg)
		if err != nil {
			return err
		}
		defer client.Close()
		s, err := ask(cmd.Context(), client, decisions)
		if err != nil {
			return explain(err)
		}
		if asJSON {
			e := json.NewEncoder(cmd.OutOrStdout())
			e.SetIndent("", "  ")
			return e.Encode(s)
		}
		return s.print(cmd.OutOrStdout())
	}
	return c
}

// picture is the complete state of a controller.
type picture struct {
	Status    api.Status       `json:"status"`
	Edges     []api.EdgeStatus `json:"edges"`
	Flows     []api.Flow       `json:"flows"`
	Decisions []api.Decision   `json:"decisions"`
}

func ask(ctx context.Context, c *api.Client, decisions int) (p picture, err error) {
	if p.Status, err = c.Status(ctx); err != nil {
		return p, err
	}
	if p.Edges, err = c.Edges(ctx); err != nil {
		return p, err
	}
	if p.Flows, err = c.Flows(ctx); err != nil {
		return p, err
	}
	since := uint64(0)
	if n := uint64(max(0, decisions)); p.Status.Sequence > n {
		since = p.Status.Sequence - n
	}
	p.Decisions, err = c.Decisions(ctx, since)
	return p, err
}

// print writes the picture as tables.
func (p picture) print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	s := p.Status
	fmt.Fprintf(w, "controller %s, up %s: %d edges, %d flows, mode %s; trigger %s\n",
		s.Version, s.Now.Sub(s.Started).Round(time.Second), s.Edges, s.Flows, s.Mode, s.Trigger)
	if s.StateErr != "" {
		fmt.Fprintf(w, "THE STATE IS NOT SAVED: %s\n", s.StateErr)
	}
	if len(p.Edges) == 0 {
		fmt.Fprintln(w, "\nno edges registered")
	} else {
		fmt.Fprintln(w, "\nEDGE\tROLE\tSTATE\tREPORTED\tPATH\tINTERFACE\tUP\tRTT\tMIN\tLOSS")
	}
	for _, e := range p.Edges {
		state := "ok"
		if e.Lost {
			state = "LOST"
		}
		head := fmt.Sprintf("%s\t%s\t%s\t%s ago", e.Name, e.Role, state,
			s.Now.Sub(e.Reported).Round(100*time.Millisecond))
		if len(e.Paths) == 0 {
			fmt.Fprintln(w, head+"\t\t\t\t\t\t")
		}
		for _, q := range e.Paths {
			up := "up"
			if !q.Up {
				up = "DOWN"
			}
			fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%s\t%.1f %%\n", head, q.Index, q.Interface, up, millis(q.RTT),
				millis(q.MinRTT), 100*q.Loss)
			head = "\t\t\t"
		}
	}
	if len(p.Flows) == 0 {
		fmt.Fprintln(w, "\nno flows")
	} else {
		fmt.Fprintln(w, "\nDESTINATION\tMODE\tSTATE\tPATHS\tIN FORCE\tFROM\tTO\tLIVE\tINTERVAL\tFOR")
	}
	for _, f := range p.Flows {
		paths := f.Paths.String()
		if f.Paths == 0 {
			paths = "plain routing"
		}
		mode := string(f.Mode)
		if f.Allowed != 0 {
			mode += " of " + f.Allowed.String()
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", f.Destination, mode, f.State, paths,
			yesNo(f.Applied), dash(f.Sender), dash(f.Receiver),
			yesNo(f.Live), millis(f.Interval), s.Now.Sub(f.Since).Round(time.Second))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	w = tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\nDECIDED\tKIND\tABOUT\tPATHS\tREASON")
	for _, d := range p.Decisions {
		about, paths := d.Edge, ""
		if d.Destination.IsValid() {
			about, paths = d.Destination.String(), d.From.String()+" → "+d.To.String()
		}
		if n := len(d.Others); n > 0 {
			about += fmt.Sprintf(" and %d more", n)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", d.Time.Local().Format("01-02 15:04:05.000"), d.Kind, dash(about),
			dash(paths), d.Reason)
	}
	return w.Flush()
}

func millis(v float64) string {
	if v == 0 {
		return "-"
	}
	return strconv.FormatFloat(v, 'f', 1, 64) + " ms"
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func setCommand(cfg *Config) *cobra.Command {
	var conn connection
	var mode string
	var paths []int
	var back bool
	c := &cobra.Command{
		Use:   "set DESTINATION",
		Short: "Set the mode and paths of a flow",
		Long: `Set the mode and paths of a flow, until reset by --default.

  auto       duplicate when the trigger fires, trim, stop with one path left
  redirect   move the flow to the path with the least RTT when the trigger fires;
             with one path given, move it there now
  duplicate  always duplicate
  off        use plain routing`,
		Example: `  controller set 10.9.0.7 --mode duplicate --paths 1,2
  controller set 2001:db8:9::7 --mode redirect --paths 3
  controller set 10.9.0.7 --default`,
		Args: service.Arguments,
	}
	f := c.Flags()
	conn.flags(f)
	f.StringVar(&mode, "mode", "", "auto, redirect, duplicate or off")
	f.IntSliceVar(&paths, "paths", nil, "allowed paths (default all)")
	f.BoolVar(&back, "default", false, "return the flow to the configured mode")
	c.MarkFlagsOneRequired("mode", "default")
	c.MarkFlagsMutuallyExclusive("mode", "default")
	c.MarkFlagsMutuallyExclusive("paths", "default")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		dst, err := netip.ParseAddr(args[0])
		if err != nil {
			return fmt.Errorf("destination %q is not an IPv4 or IPv6 address", args[0])
		}
		for _, p := range paths {
			if p < 1 || p > pathset.Max {
				return fmt.Errorf("--paths: path %d: want 1 to %d", p, pathset.Max)
			}
		}
		client, err := conn.client(cfg)
		if err != nil {
			return err
		}
		defer client.Close()
		if back {
			return explain(client.UnsetFlow(cmd.Context(), dst))
		}
		flow, err := client.SetFlow(cmd.Context(), dst, api.Setting{Mode: api.Mode(mode), Paths: pathset.Of(paths...)})
		if err != nil {
			return explain(err)
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: mode %s, state %s, paths %s\n", flow.Destination, flow.Mode,
			flow.State, flow.Paths)
		return err
	}
	return c
}
