//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"holocast/netfunc/api"
	"holocast/netfunc/bpf"
	"holocast/netfunc/edge/report"
	"holocast/netfunc/pathset"
	"holocast/netfunc/signal"
)

// sending is the sender's half of the edge.
type sending struct {
	cfg      *Config
	log      *slog.Logger
	kernel   *kernel
	reporter *report.Reporter // nil without a controller
	seen     func(viewer netip.Addr)
	refused  time.Time // last log of a signalling packet of another version; used by signals

	mu    sync.Mutex
	plain map[netip.Addr]struct{} // destinations of flows under plain routing
}

// update applies the controller's flows, except for their path sets, which are signalled to the kernel
// program.
func (s *sending) update(u api.Update) {
	if !s.cfg.Role.Sends() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if u.Snapshot || s.plain == nil {
		s.plain = make(map[netip.Addr]struct{})
	}
	for _, f := range u.Flows {
		if f.Sender == s.cfg.Name && f.Paths == 0 {
			s.plain[f.Destination.Unmap()] = struct{}{}
		} else {
			delete(s.plain, f.Destination.Unmap())
		}
	}
	for _, destination := range u.Removed {
		delete(s.plain, destination.Unmap())
	}
}

// routes returns the plain routes of flows without a path set. by maps an interface index to its path,
// or 0 if it has none.
func (s *sending) routes(by func(link int) int) (out []api.Route) {
	s.mu.Lock()
	plain := slices.Collect(maps.Keys(s.plain))
	s.mu.Unlock()
	if len(plain) == 0 {
		return nil
	}
	table, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		s.log.Warn("cannot read routing table", "err", err)
		return nil
	}
	defer table.Close()
	for _, destination := range plain {
		r := api.Route{Destination: destination}
		switch routes, err := table.RouteGet(destination.AsSlice()); {
		case errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EHOSTUNREACH):
			r.Unreachable = true
		case err != nil || len(routes) == 0:
			continue
		default:
			r.Path = by(routes[0].LinkIndex)
		}
		out = append(out, r)
	}
	return out
}

// settle makes the policy map match the configuration. Signalled policies are kept, as they are newer
// than the file, and override it until the edge is detached.
func (s *sending) settle() error {
	return s.kernel.withSender(func(k *bpf.Sender) error {
		if !s.cfg.Role.Sends() {
			return nil
		}
		policies, err := k.Policies()
		if err != nil {
			return err
		}
		signalled := map[netip.Addr]bool{}
		for _, p := range policies {
			switch {
			case s.reporter != nil && p.Nonce > 0:
				signalled[p.Destination] = true
			case !s.static(p.Destination):
				if err := k.RemovePolicy(p.Destination); err != nil {
					return fmt.Errorf("policy of %s: %w", p.Destination, err)
				}
			}
		}
		for _, f := range s.cfg.Flows {
			if signalled[f.Destination] || len(f.Paths) == 0 || !s.cfg.outbound(f.Destination) {
				continue
			}
			if err := k.SetPolicy(f.Destination, uint8(pathset.Of(f.Paths...))); err != nil {
				return fmt.Errorf("policy of %s: %w", f.Destination, err)
			}
		}
		return errors.Join(k.RemoveOff(s.static), s.retire(k))
	})
}

// static reports whether the configuration has a path set for a destination. The map keeps the entry
// of such a destination even if the controller turned it off; otherwise the next start would turn it
// on again.
func (s *sending) static(destination netip.Addr) bool {
	return slices.ContainsFunc(s.cfg.Flows, func(f Flow) bool {
		return f.Destination == destination && len(f.Paths) > 0 && s.cfg.outbound(destination)
	})
}

// retire removes paths of an earlier run that are not configured.
func (s *sending) retire(k *bpf.Sender) error {
	paths, err := k.Paths()
	if err != nil {
		return err
	}
	for _, p := range paths {
		if p.Up && !slices.ContainsFunc(s.cfg.Paths, func(c Path) bool { return c.Index == p.Index }) {
			if err := k.SetPath(bpf.Path{Index: p.Index}); err != nil {
				return fmt.Errorf("path %d: %w", p.Index, err)
			}
		}
	}
	return nil
}

// stop returns all packets to plain routing.
func (s *sending) stop() error {
	return s.kernel.withSender(func(k *bpf.Sender) error {
		policies, err := k.Policies()
		if err != nil {
			return err
		}
		for _, p := range policies {
			if err := k.SetPolicy(p.Destination, 0); err != nil {
				return fmt.Errorf("policy of %s: %w", p.Destination, err)
			}
		}
		return nil
	})
}

// quiet is the minimum interval between logs of signalling packets of another version, which the
// controller repeats.
const quiet = time.Minute

// signals logs applied signalling packets and requests a report.
func (s *sending) signals(ctx context.Context) {
	follow(ctx, s.kernel.currentSender, func(k *bpf.Sender) error {
		in, err := k.ReadSignal(ctx)
		if err != nil {
			return err
		}
		if in.Version != signal.Version {
			if time.Since(s.refused) >= quiet {
				s.refused = time.Now()
				s.log.Error("policy not applied", "from", in.Source, "err", signal.VersionError(in.Version))
			}
			return nil
		}
		if in.Bits == 0 || in.Full {
			if err := k.RemoveOff(s.static); err != nil {
				s.log.Error("cannot remove destinations that are off", "err", err)
			}
		}
		if s.reporter != nil {
			s.reporter.Soon()
		}
		if in.Full {
			s.log.Error("policy map is full; raise sender.maxPolicies, then detach and restart", "destination",
				in.Destination)
			return nil
		}
		s.log.Info("policy signalled", "destination", in.Destination, "paths", pathset.Set(in.Bits), "from", in.Source,
			"nonce", in.Nonce)
		return nil
	})
}

// uplink reports packets seen by the uplink monitor to the controller.
func (s *sending) uplink(ctx context.Context) {
	follow(ctx, s.kernel.currentSender, func(k *bpf.Sender) error {
		u, err := k.ReadUplink(ctx)
		if err == nil && s.reporter != nil && s.cfg.serves(u.Source.Addr()) {
			s.seen(u.Source.Addr().Unmap())
			s.reporter.Uplink(api.Observation{
				Time: int64(u.Time), Source: u.Source, Destination: u.Destination,
				Length: u.Length,
			})
		}
		return err
	})
}

// serves reports whether the edge handles a viewer's traffic.
func (c *Config) serves(viewer netip.Addr) bool {
	viewer = viewer.Unmap()
	return contain(c.Sender.Towards, viewer) || contain(c.Receiver.Behind, viewer) ||
		slices.ContainsFunc(c.Flows, func(f Flow) bool { return f.Destination == viewer })
}
