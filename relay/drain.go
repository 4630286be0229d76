package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"holocast/internal/config"
	"holocast/relay/router"
	"holocast/relay/upgrade"
)

// moveClients asks all clients to move to other relays. The relay ends once they have, or
// after drainTimeout. The answer tells how many have moved.
func (s *server) moveClients(ctx context.Context) (answer string, err error) {
	if err := s.mayDrain(); err != nil {
		return "", err
	}
	limit := s.cfg.DrainTimeout
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	n := s.leaveTo(ctx, limit)
	close(s.drained)
	if ctx.Err() != nil {
		return fmt.Sprintf("%d sessions asked to move; some had not after %s", n, limit), nil
	}
	return fmt.Sprintf("%d sessions moved", n), nil
}

// mayDrain returns nil if the clients can move. Later calls return an error.
func (s *server) mayDrain() error {
	switch {
	case s.cluster == nil:
		return errors.New("the relay is in no cluster, so its clients have nowhere to go; stop it instead")
	case s.cluster.Redirect() == "":
		return errors.New("no other relay of the cluster has room")
	case s.draining.Swap(true):
		return errors.New("the relay is already draining")
	}
	return nil
}

// beginDrain is moveClients without waiting. It returns the number of clients.
func (s *server) beginDrain() (clients int, err error) {
	if err := s.mayDrain(); err != nil {
		return 0, err
	}
	clients = len(s.router.Clients())
	s.wg.Go(func() {
		ctx, cancel := context.WithTimeout(s.background, s.cfg.DrainTimeout)
		defer cancel()
		s.leaveTo(ctx, s.cfg.DrainTimeout)
		close(s.drained)
	})
	return clients, nil
}

// leaveTo sends all clients to other relays and waits until they have left or ctx is done, and for at most
// limit. It returns their number.
func (s *server) leaveTo(ctx context.Context, limit time.Duration) int {
	s.cluster.Drain()
	s.router.Drain()
	clients := s.router.Clients()
	s.log.Info("sending clients to other relays", "sessions", len(clients), "limit", limit)
	var wg sync.WaitGroup
	for _, one := range clients {
		to := router.AddressFor(one, s.cluster.Redirect())
		wg.Go(func() { _ = one.Goaway(ctx, to, limit) })
	}
	wg.Wait()
	return len(clients)
}

// drainCommand asks a running relay to move its clients to other relays and to end.
func drainCommand(cfg *Config) *cobra.Command {
	c := &cobra.Command{
		Use:   "drain",
		Short: "Move the sessions of a running relay to other relays of its cluster, then stop it",
		Long: `Move the sessions of a running relay to other relays of its cluster, then stop it.

The relay that listens at the configured address sends each client to another relay with room, with a
GOAWAY. Clients that follow it lose no frame: they use both relays until the new one delivers. The relay
stops once all have left, or after drainTimeout. Meanwhile it sends new clients to other relays too.`,
		Example: `  relay drain --config /etc/holocast/relay.yaml
  relay drain --listen :4443`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			answer, err := upgrade.Ask(cfg.Listen, upgrade.Drain, cfg.DrainTimeout+5*time.Second)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), answer)
			return err
		},
	}
	f := c.Flags()
	f.String(config.Flag, "", "the relay's YAML configuration file")
	settings.AddFlags(f, cfg, "listen", "drainTimeout")
	return c
}
