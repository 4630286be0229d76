package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"holocast/internal/config"
	"holocast/internal/service"
	"holocast/relay/admin"
	"holocast/relay/upgrade"
)

// operatorCommands returns the commands that show and steer a running relay through its API.
func operatorCommands(cfg *Config) []*cobra.Command {
	var commands []*cobra.Command
	add := func(c *cobra.Command) {
		f := c.Flags()
		f.String(config.Flag, "", "the relay's YAML configuration file")
		settings.AddFlags(f, cfg, "listen")
		c.Args = service.Arguments
		commands = append(commands, c)
	}
	add(listCommand(cfg, "relays", "List the relays of a running relay's cluster",
		[]string{"ID", "NAME", "REGION", "STATE", "CLIENTS", "SESSIONS", "IN", "OUT", "RECEIVES FROM"},
		func(r admin.Relay) []string {
			var from []string
			for _, l := range r.Links {
				from = append(from, fmt.Sprintf("%s (%d tracks, %.1f ms)", l.From, l.TrackCount, l.RTT))
			}
			return []string{
				r.ID, r.Name, r.Region, r.State, strconv.Itoa(r.Clients), strconv.Itoa(r.Published),
				rate(r.Ingress), rate(r.Egress), strings.Join(from, ", "),
			}
		}))
	add(listCommand(cfg, "sessions", "List the sessions published at a running relay or its cluster, and blocked ones",
		[]string{"ID", "RELAY", "PUBLISHERS", "VIEWERS", "TRACKS", "BLOCKED"}, func(s admin.Session) []string {
			blocked := ""
			if s.Blocked != nil {
				blocked = s.Blocked.Local().Format(time.DateTime)
			}
			return []string{
				s.ID, s.Relay, strings.Join(s.Publishers, ", "), strconv.Itoa(s.Viewers), strconv.Itoa(s.Tracks), blocked,
			}
		}))
	add(listCommand(cfg, "viewers", "List the clients of a running relay, publishers included",
		[]string{"ID", "STATE", "PEER", "SUBJECT", "PUBLISHES", "WATCHES", "RTT"}, func(v admin.Viewer) []string {
			return []string{
				v.ID, v.State, v.Peer, v.Subject, strings.Join(v.Publishes, ", "), strings.Join(v.Watches, ", "),
				fmt.Sprintf("%.1f ms", v.RTT),
			}
		}))
	add(kickCommand(cfg))
	add(moveCommand(cfg))
	add(blockCommand(cfg))
	add(unblockCommand(cfg))
	return commands
}

func rate(bytesPerSecond float64) string { return fmt.Sprintf("%.1f Mbit/s", 8*bytesPerSecond/1e6) }

// listCommand prints a list of the API as a table, or as JSON.
func listCommand[T any](cfg *Config, name, short string, head []string, row func(T) []string) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   name,
		Short: short,
		Example: fmt.Sprintf(`  relay %[1]s --listen :4443
  relay %[1]s --config /etc/holocast/relay.yaml --json | jq -r '.[].id'`, name),
		RunE: func(cmd *cobra.Command, _ []string) error {
			all := []T{}
			for after := ""; ; {
				query := url.Values{"limit": {"1000"}}
				if after != "" {
					query.Set("after", after)
				}
				var part admin.Page[T]
				if err := callAPI(cmd.Context(), cfg, http.MethodGet, name+"?"+query.Encode(), nil, &part); err != nil {
					return err
				}
				all = append(all, part.Items...)
				if after = part.Next; after == "" {
					break
				}
			}
			if asJSON {
				out := json.NewEncoder(cmd.OutOrStdout())
				out.SetIndent("", "  ")
				return out.Encode(all)
			}
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, strings.Join(head, "\t"))
			for _, one := range all {
				fmt.Fprintln(w, printable(strings.Join(row(one), "\t")))
			}
			return w.Flush()
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON with all fields")
	return c
}

// printable replaces control characters, which peers may put into their names.
func printable(line string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' && r != '\t' || r == 0x7f {
			return '\uFFFD'
		}
		return r
	}, line)
}

func kickCommand(cfg *Config) *cobra.Command {
	var reason string
	c := &cobra.Command{
		Use:   "kick ID",
		Short: "End a client's session, at whichever relay of the cluster it is",
		Long: `End a client's session, at whichever relay of the cluster it is.

Holocast's clients do not connect again with the same token. relay block keeps everyone out of a session,
and auth.revoked the holder of a token.`,
		Example: `  relay kick 5e884898-17 --listen :4443
  relay kick 5e884898-17 --reason "the show is over"`,
		RunE: func(cmd *cobra.Command, args []string) error {
			body := map[string]string{}
			if reason != "" {
				body["reason"] = reason
			}
			return callAPI(cmd.Context(), cfg, http.MethodPost, "viewers/"+url.PathEscape(args[0])+"/kick", body, nil)
		},
	}
	c.Flags().StringVar(&reason, "reason", "", "told to the client")
	return c
}

func moveCommand(cfg *Config) *cobra.Command {
	return &cobra.Command{
		Use:   "move ID [URL]",
		Short: "Send a client to another relay",
		Long: `Send a client to another relay: URL, or the one of the cluster with the fewest clients. Clients that follow
GOAWAY lose no frame. One that has not left after drainTimeout is disconnected.`,
		Example: `  relay move 5e884898-17 --listen :4443
  relay move 5e884898-17 moqt://10.0.0.2:4443`,
		RunE: func(cmd *cobra.Command, args []string) error {
			body := map[string]string{}
			if len(args) > 1 {
				body["url"] = args[1]
			}
			var moved admin.Moved
			err := callAPI(cmd.Context(), cfg, http.MethodPost, "viewers/"+url.PathEscape(args[0])+"/move", body, &moved)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), moved.URL)
			return err
		},
	}
}

func blockCommand(cfg *Config) *cobra.Command {
	return &cobra.Command{
		Use:   "block SESSION",
		Short: "End a session at all relays of the cluster and keep it from starting again",
		Long: `End a session at all relays of the cluster and keep it from starting again, until relay unblock.

SESSION is a name such as studio. With a leading slash it is a namespace prefix with fields separated by
slashes. The block survives relay upgrade, and the restart of a relay whose cluster has others.`,
		Example: `  relay block studio --listen :4443
  relay block /holocast/studio --config /etc/holocast/relay.yaml`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return callBlock(cmd, cfg, http.MethodPost, args[0])
		},
	}
}

func unblockCommand(cfg *Config) *cobra.Command {
	return &cobra.Command{
		Use:     "unblock SESSION",
		Short:   "Allow a blocked session again",
		Example: "  relay unblock studio --listen :4443",
		RunE: func(cmd *cobra.Command, args []string) error {
			return callBlock(cmd, cfg, http.MethodDelete, args[0])
		},
	}
}

func callBlock(cmd *cobra.Command, cfg *Config, method, session string) error {
	list, err := prefixes("SESSION", []string{session})
	if err != nil {
		return err
	}
	if len(list[0]) == 0 {
		return errors.New("SESSION: / would block everything; stop the relay instead")
	}
	return callAPI(cmd.Context(), cfg, method, "sessions/"+list[0].String()+"/block", nil, nil)
}

// callAPI sends a request to the API of the relay that runs here at cfg.Listen.
func callAPI(ctx context.Context, cfg *Config, method, path string, body, result any) error {
	web := &http.Client{Timeout: 15 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext:       func(context.Context, string, string) (net.Conn, error) { return upgrade.Dial(cfg.Listen) },
	}}
	var in io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return err
		}
		in = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://relay"+admin.Base+path, in)
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := web.Do(req)
	if err != nil {
		if e := (*url.Error)(nil); errors.As(err, &e) {
			err = e.Err // without the URL, which means nothing here
		}
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode >= http.StatusBadRequest {
		var problem struct {
			Detail string
			Errors []struct{ Message string }
		}
		if json.NewDecoder(resp.Body).Decode(&problem) != nil {
			return errors.New(resp.Status)
		}
		for _, e := range problem.Errors {
			problem.Detail += ": " + e.Message
		}
		return errors.New(problem.Detail)
	}
	if result == nil {
		return nil
	}
	return json.NewDecoder(resp.Body).Decode(result)
}
