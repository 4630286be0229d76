//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"holocast/internal/config"
	"holocast/netfunc/bpf"
	"holocast/netfunc/pathset"
)

// askTimeout limits the wait for a running edge's response, which takes milliseconds unless the edge
// lacks CPU time.
const askTimeout = 10 * time.Second

func statusCommand(cfg *Config) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "status",
		Short: "Show paths, policies and counters of this machine's edges",
		Long: `Show paths, policies and counters of this machine's edges, or of the edge
selected by --config or --name. For a stopped edge it shows the state of its
kernel programs.`,
		Example: `  edge status
  edge status --config edge.yaml
  edge status --name london --json | jq '.paths[] | {index, up, rtt_ms}'`,
		Args: cobra.NoArgs,
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON: one object, or one per line if no edge is named")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		edges := []Config{*cfg}
		if !named(cmd) {
			var err error
			if edges, err = here(*cfg); err != nil {
				return err
			}
		}
		for i, e := range edges {
			if err := e.places(); err != nil {
				return err
			}
			s, err := e.look(cmd.Context())
			if err != nil {
				return err
			}
			if asJSON {
				if err := json.NewEncoder(cmd.OutOrStdout()).Encode(s); err != nil {
					return err
				}
				continue
			}
			if i > 0 {
				fmt.Fprintln(cmd.OutOrStdout())
			}
			s.print(cmd.OutOrStdout())
		}
		return nil
	}
	return c
}

// named reports whether the command line names an edge.
func named(cmd *cobra.Command) bool {
	return cmd.Flags().Changed(config.Flag) || slices.ContainsFunc(identity, cmd.Flags().Changed)
}

// here lists this machine's edges in the default directories.
func here(cfg Config) ([]Config, error) {
	found := map[string]bool{}
	pins, err := filepath.Glob(filepath.Join(pinRoot, "*"))
	if err != nil {
		return nil, err
	}
	for _, p := range pins {
		found[filepath.Base(p)] = true
	}
	sockets, err := filepath.Glob(filepath.Join(socketRoot, "*.sock"))
	if err != nil {
		return nil, err
	}
	for _, p := range sockets {
		if conn, err := net.Dial("unix", p); err == nil { // otherwise the socket was left by a killed edge
			_ = conn.Close()
			found[strings.TrimSuffix(filepath.Base(p), ".sock")] = true
		}
	}
	var out []Config
	for name := range found {
		one := cfg
		one.Name, one.Pin, one.Socket = name, "", ""
		out = append(out, one)
	}
	if len(out) == 0 && os.Geteuid() != 0 {
		return nil, errors.New("cannot see this machine's edges: run as root, or as a member of the socket's group " +
			"with --config")
	}
	if len(out) == 0 {
		return nil, errors.New("no edge found: start one, or use --config if its pin or socket is not in the default " +
			"directory")
	}
	slices.SortFunc(out, func(a, b Config) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// look returns the status of a running edge, or of a stopped edge's pinned state.
func (c *Config) look(ctx context.Context) (*Status, error) {
	s, err := c.ask(ctx)
	if err == nil {
		return s, nil
	}
	if errors.Is(err, fs.ErrPermission) {
		return nil, fmt.Errorf("status: %w: run as root or as a member of the group of %s", err, c.Socket)
	}
	if errors.Is(err, context.DeadlineExceeded) { // the edge has not stopped
		return nil, fmt.Errorf("status: edge %s is running but does not answer at %s; try again", c.Name, c.Socket)
	}
	s, failed := c.left()
	if errors.Is(failed, fs.ErrNotExist) {
		return nil, fmt.Errorf("edge %s is not running on this machine: nothing pinned in %s, no answer at %s", c.Name,
			c.Pin, c.Socket)
	}
	return s, failed
}

// ask requests the status from a running edge.
func (c *Config) ask(ctx context.Context) (*Status, error) {
	ctx, stop := context.WithTimeout(ctx, askTimeout)
	defer stop()
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", c.Socket)
		},
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://edge/status", nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("edge %s answered %s", c.Name, resp.Status)
	}
	s := &Status{}
	if err := json.NewDecoder(resp.Body).Decode(s); err != nil {
		return nil, fmt.Errorf("status of edge %s: %w", c.Name, err)
	}
	return s, nil
}

// left returns the status of a stopped edge's kernel programs, or fs.ErrNotExist.
func (c *Config) left() (*Status, error) {
	s := &Status{Name: c.Name, Role: c.Role, Pin: c.Pin, Paths: []PathStatus{}}
	for _, p := range c.Paths {
		s.Paths = append(s.Paths, PathStatus{Index: p.Index, Interface: p.Interface})
	}
	var known pathset.Set
	var err error
	sender, errS := bpf.PinnedSender(c.Pin)
	if errS == nil {
		defer func() { _ = sender.Close() }()
		if err := s.addSender(sender); err != nil {
			return nil, err
		}
		if known, err = s.addPinnedPaths(sender); err != nil {
			return nil, err
		}
	}
	receiver, errR := bpf.PinnedReceiver(c.Pin)
	if errR == nil {
		defer func() { _ = receiver.Close() }()
		if err := s.addReceiver(receiver); err != nil {
			return nil, err
		}
	}
	for _, err := range []error{errS, errR} {
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	if errS != nil && errR != nil {
		return nil, errS
	}
	if s.Attached, err = attached(c.Pin); err != nil {
		return nil, err
	}
	s.links(known)
	s.sort()
	return s, nil
}

// links completes the paths of a stopped edge. Paths whose interface is missing, down or without
// carrier are down. known holds the paths whose state is in the sender's maps; the state of the others
// is unknown.
func (s *Status) links(known pathset.Set) {
	for i := range s.Paths {
		p := &s.Paths[i]
		p.Unknown = !known.Has(p.Index)
		if p.Interface == "" {
			continue
		}
		var problem string
		switch link, err := net.InterfaceByName(p.Interface); {
		case err != nil:
			problem = fmt.Sprintf("interface %s does not exist", p.Interface)
		case link.Flags&net.FlagUp == 0:
			problem = fmt.Sprintf("interface %s is down", p.Interface)
		case link.Flags&net.FlagRunning == 0:
			problem = fmt.Sprintf("interface %s has no carrier", p.Interface)
		default:
			continue
		}
		p.Up, p.Unknown, p.Problem = false, false, problem
	}
}

// addPinnedPaths adds the paths that were last set in the sender, and returns them.
func (s *Status) addPinnedPaths(k *bpf.Sender) (known pathset.Set, err error) {
	paths, err := k.Paths()
	if err != nil {
		return 0, err
	}
	for _, p := range paths {
		to := s.path(p.Index)
		to.Up = p.Up
		known |= pathset.Of(p.Index)
		if p.NextHop != nil {
			to.Ethernet = p.NextHop.String()
		}
		if i, err := net.InterfaceByIndex(p.Interface); err == nil {
			to.Interface = i.Name
		}
	}
	return known, nil
}

func detachCommand(cfg *Config) *cobra.Command {
	return &cobra.Command{
		Use:   "detach",
		Short: "Remove a stopped edge's programs from the kernel",
		Long: `Remove a stopped edge's programs from the kernel, as after SIGKILL or with
onExit: keep. A running edge detaches on SIGTERM.`,
		Example: `  edge detach --config edge.yaml    # deregisters from the controller first
  edge detach --name london`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !named(cmd) {
				return fmt.Errorf("name the edge with --%s or --name", config.Flag)
			}
			if err := cfg.places(); err != nil {
				return err
			}
			return cfg.detach(cmd.Context())
		},
	}
}

// detach detaches a stopped edge.
func (c *Config) detach(ctx context.Context) error {
	if err := privileged(); err != nil {
		return err
	}
	lock, err := claim(*c)
	if err != nil {
		return fmt.Errorf("%w: stop it with SIGTERM", err)
	}
	defer lock.release()
	logger, err := c.Log.Logger()
	if err != nil {
		return err
	}
	log := logger.Logger
	d := &daemon{cfg: *c, log: log, kernel: &kernel{cfg: c, log: log}}
	d.sending = &sending{cfg: c, log: log, kernel: d.kernel}
	var errS, errR error
	d.kernel.sender, errS = bpf.PinnedSender(c.Pin)
	d.kernel.receiver, errR = bpf.PinnedReceiver(c.Pin)
	for _, err := range []error{errS, errR} {
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if errS != nil && errR != nil {
		return fmt.Errorf("edge %s has nothing to detach: nothing is pinned in %s", c.Name, c.Pin)
	}
	if client, err := c.client(); err != nil {
		log.Warn("cannot deregister from the controller", "err", err)
	} else if client != nil {
		ctx, stop := context.WithTimeout(ctx, leaving)
		if err := client.Leave(ctx, c.Name); err != nil {
			log.Warn("cannot deregister from the controller", "err", err)
		}
		stop()
		client.Close()
	}
	if err := d.detach(); err != nil {
		return err
	}
	if err := os.Remove(c.Socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("detach: %w", err)
	}
	return nil
}
