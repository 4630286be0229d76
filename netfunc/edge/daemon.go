//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/vishvananda/netlink"

	"holocast/internal/service"
	"holocast/netfunc/api"
	"holocast/netfunc/bpf"
	"holocast/netfunc/edge/report"
	"holocast/netfunc/pathset"
	"holocast/netfunc/signal"
)

// leaving limits the time for deregistering from the controller, and for draining.
const leaving = 2 * time.Second

// daemon is a running edge.
type daemon struct {
	cfg       Config
	log       *slog.Logger
	started   time.Time
	kernel    *kernel
	paths     *pathMonitor
	sending   *sending
	receiving *receiving
	reporter  *report.Reporter // nil without a controller
	warned    map[string]bool  // missing settings already reported; used by hello
}

// run implements "edge run". SIGHUP reloads the configuration and restarts everything except the
// kernel programs, which keep running and are taken over as after a restart.
func run(ctx context.Context, cfg Config) error {
	logger, err := cfg.Log.Logger()
	if err != nil {
		return err
	}
	log := logger.Logger
	if err := privileged(); err != nil {
		return err
	}
	lock, err := claim(cfg)
	if err != nil {
		return err
	}
	defer lock.release()
	reloaded := make(chan Config, 1)
	unhook := service.OnReload(ctx, log, cfg, settings.Reloaded(), func(next Config) error {
		if err := next.follows(&cfg); err != nil {
			return err
		}
		select {
		case <-reloaded: // superseded
		default:
		}
		reloaded <- next
		return nil
	})
	defer unhook()
	current, old := cfg, (*Config)(nil) // the configuration before the last reload
	for {
		logger.SetLevel(current.Log)
		next, ran, err := runWith(ctx, current, log, reloaded)
		switch {
		case next != nil:
			was := current
			current, old = *next, &was
		case err != nil && !ran && old != nil:
			log.Error("new configuration failed, keeping the old one", "err", err)
			current, old = *old, nil
		default:
			return err
		}
	}
}

// follows returns an error if a running edge cannot change to this configuration because the edge's
// identity or role differs.
func (c *Config) follows(before *Config) error {
	switch {
	case c.Name != before.Name || c.Pin != before.Pin || c.Socket != before.Socket:
		return errors.New("name, pin and socket of a running edge cannot change; stop it first")
	case c.Role != before.Role:
		return errors.New("role of a running edge cannot change; stop it first")
	}
	return nil
}

// runWith runs an edge until ctx is done or another configuration arrives, which it returns. ran
// reports whether the edge started.
func runWith(ctx context.Context, cfg Config, log *slog.Logger, reloaded <-chan Config) (next *Config, ran bool,
	err error,
) {
	key, err := cfg.signalKey()
	if err != nil {
		return nil, false, err
	}
	client, err := cfg.client()
	if err != nil {
		return nil, false, err
	}
	d := &daemon{cfg: cfg, log: log, started: time.Now(), warned: map[string]bool{}}
	if client != nil {
		defer client.Close()
		d.reporter = &report.Reporter{
			Client: client, Name: cfg.Name, Log: log,
			Hello: d.hello, Report: d.report, Update: func(u api.Update) { d.sending.update(u); d.receiving.update(u) },
		}
	}
	d.kernel = &kernel{cfg: &d.cfg, key: key, log: log, due: make(chan struct{}, 1)}
	d.sending = &sending{cfg: &d.cfg, log: log, kernel: d.kernel, reporter: d.reporter}
	d.receiving = &receiving{cfg: &d.cfg, log: log, kernel: d.kernel, reporter: d.reporter}
	d.sending.seen = d.receiving.seen
	d.paths = newPathMonitor(&d.cfg, key, log)
	d.paths.set, d.paths.appeared, d.paths.changed = d.kernel.setPath, d.kernel.look, func() {
		if d.reporter != nil {
			d.reporter.Soon()
		}
	}
	if d.reporter != nil {
		d.findController(ctx)
	}
	status, err := d.listen()
	if err != nil {
		return nil, false, err
	}
	defer status.Close()
	if err := d.attach(); err != nil {
		return nil, false, err
	}
	// From here on the kernel keeps its state even if this process fails.
	defer d.kernel.close()
	for _, a := range d.cfg.advice() {
		log.Warn(a)
	}
	log.Info("edge is running", "name", cfg.Name, "role", cfg.Role, "paths", len(cfg.Paths), "http", status.web.Addr(),
		"socket", cfg.Socket)
	service.Ready(ctx, func() { _, _ = d.status() })
	next, err = d.serve(ctx, reloaded)
	return next, true, err
}

// attach opens the kernel programs and updates their maps. On failure, earlier attachments are kept.
func (d *daemon) attach() error {
	_, left := d.cfg.left()
	if err := d.kernel.open(); err != nil {
		return err
	}
	err := errors.Join(d.receiving.settle(), d.sending.settle())
	if err == nil {
		return nil
	}
	if errors.Is(left, fs.ErrNotExist) {
		return errors.Join(err, d.kernel.detach(), tidy(d.cfg))
	}
	d.kernel.close()
	return err
}

// serve runs the edge until ctx is done, then ends it according to onExit. If another configuration
// arrives first, serve returns it.
func (d *daemon) serve(ctx context.Context, reloaded <-chan Config) (*Config, error) {
	running, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	failed := make(chan error, 1)
	wg.Go(func() {
		if err := d.paths.run(running, d.cfg.Probe.Every); err != nil {
			failed <- err
		}
	})
	wg.Go(func() { d.kernel.watch(running, d.reopened) })
	wg.Go(func() { d.sending.signals(running) })
	wg.Go(func() { d.sending.uplink(running) })
	wg.Go(func() { d.receiving.arrivals(running) })
	wg.Go(func() { d.tend(running) })
	if d.reporter != nil {
		wg.Go(func() { d.reporter.Run(running) })
	}
	select {
	case err := <-failed:
		return nil, err
	case next := <-reloaded:
		return &next, nil
	case <-ctx.Done():
	}
	stop()
	wg.Wait()
	return nil, d.leave()
}

// reopened updates the kernel programs after they were opened again.
func (d *daemon) reopened() {
	if err := errors.Join(d.receiving.settle(), d.sending.settle()); err != nil {
		d.log.Error("cannot update kernel programs", "err", err)
	}
	d.paths.again()
}

// tend does the periodic work.
func (d *daemon) tend(ctx context.Context) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			d.receiving.tend(now)
		}
	}
}

// leave ends the edge according to onExit. Duplication stops before the receiver leaves: this edge
// stops its own duplication, and the controller stops that of other senders.
func (d *daemon) leave() error {
	if d.cfg.OnExit == exitKeep {
		d.log.Info("stopping; the kernel programs keep running")
		return nil
	}
	unconfirmed := false
	if d.reporter != nil {
		ctx, stop := context.WithTimeout(context.Background(), leaving)
		err := d.reporter.Leave(ctx)
		unconfirmed = errors.Is(err, api.ErrUnconfirmed)
		if err != nil && !unconfirmed {
			d.log.Warn("cannot deregister from the controller", "err", err)
		}
		stop()
	}
	d.stopSending()
	if quiet, err := d.drained(); err != nil || !quiet || unconfirmed {
		d.kernel.close()
		return errors.Join(err, fmt.Errorf("the sender may still be duplicating: kernel programs stay attached to "+
			"remove duplicates; stop the sender, then run: edge detach --name %s", d.cfg.Name))
	}
	return d.remove()
}

// detach stops duplication, waits for packets in flight and removes everything, whether or not the
// remote sender has stopped.
func (d *daemon) detach() error {
	d.stopSending()
	if quiet, err := d.drained(); err != nil || !quiet {
		d.log.Warn("the sender is still duplicating, so viewers receive duplicates", "err", err)
	}
	return d.remove()
}

func (d *daemon) stopSending() {
	if err := d.sending.stop(); err != nil {
		d.log.Warn("cannot stop duplication before detaching", "err", err)
	}
}

// drained waits until no replica has arrived for the drain time, and reports whether that happened in
// time.
func (d *daemon) drained() (quiet bool, err error) {
	k := d.kernel.currentReceiver()
	if k == nil {
		return true, nil
	}
	arrived := func() (sum uint64) {
		s, e := k.Stats()
		err = errors.Join(err, e)
		for _, p := range s.Paths {
			sum += p.First + p.Late
		}
		return sum
	}
	for end := time.Now().Add(leaving); ; {
		before := arrived()
		time.Sleep(d.cfg.Drain)
		switch {
		case arrived() == before || err != nil:
			return err == nil, err
		case time.Now().After(end):
			return false, nil
		}
	}
}

func (d *daemon) remove() error {
	if err := d.kernel.detach(); err != nil {
		return fmt.Errorf("detach: %w", err)
	}
	return tidy(d.cfg)
}

// tidy removes the directories of detached programs if they are empty.
func tidy(cfg Config) error {
	if err := os.Remove(cfg.Pin); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("detach: %w", err)
	}
	if filepath.Dir(cfg.Pin) == pinRoot {
		_ = os.Remove(pinRoot) // other edges may use it
	}
	return nil
}

// findController finds the interface towards the controller, which receives signalling packets unless
// another interface is configured. The route may change, and may be unknown at first.
func (d *daemon) findController(ctx context.Context) {
	if len(d.cfg.Signal.Interfaces) > 0 || !d.cfg.Role.Sends() {
		return
	}
	name, err := d.routeToController(ctx)
	if err != nil {
		d.unknown("signal.interfaces", "interface", err)
		return
	}
	d.kernel.setTowards(name)
}

// unknown logs that the route to the controller does not provide a missing setting: the first time
// as a warning, later for debugging.
func (d *daemon) unknown(setting, what string, err error) {
	level := slog.LevelDebug // called on every attempt to reach the controller
	if !d.warned[setting] {
		level = slog.LevelWarn
		d.warned[setting] = true
	}
	d.log.Log(context.Background(), level, setting+" is not set and the "+what+" towards the controller is unknown",
		"err", err)
}

// routeToController returns the interface towards the controller.
func (d *daemon) routeToController(ctx context.Context) (string, error) {
	local, remote, err := d.controllerAddresses(ctx)
	if err != nil {
		return "", err
	}
	routes, err := netlink.RouteGet(remote.AsSlice())
	if err != nil {
		return "", fmt.Errorf("no route from %s to %s: %w", local, remote, err)
	}
	if len(routes) == 0 {
		return "", fmt.Errorf("no route from %s to %s", local, remote)
	}
	i, err := net.InterfaceByIndex(routes[0].LinkIndex)
	if err != nil {
		return "", err
	}
	return i.Name, nil
}

// controllerAddresses returns the local and remote addresses of connections to the controller.
func (d *daemon) controllerAddresses(ctx context.Context) (local, remote netip.Addr, err error) {
	u, err := url.Parse(d.cfg.Control.URL)
	if err != nil {
		return local, remote, err
	}
	// Connecting a UDP socket looks up the route without sending anything.
	conn, err := (&net.Dialer{Timeout: leaving}).DialContext(ctx, "udp",
		net.JoinHostPort(u.Hostname(), strconv.Itoa(int(d.cfg.Signal.Port))))
	if err != nil {
		return local, remote, err
	}
	defer conn.Close()
	return conn.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap(),
		conn.RemoteAddr().(*net.UDPAddr).AddrPort().Addr().Unmap(), nil
}

// hello describes the edge.
func (d *daemon) hello(ctx context.Context) api.Edge {
	e := api.Edge{
		Name: d.cfg.Name, Role: d.cfg.Role, Peer: d.cfg.Peer, Paths: d.pathReport(),
		Version: service.Version(),
	}
	if d.cfg.Role.Sends() {
		d.findController(ctx)
		address := d.cfg.Signal.Address
		if !address.IsValid() {
			local, _, err := d.controllerAddresses(ctx)
			if err != nil || !local.Is4() {
				d.unknown("signal.address", "IPv4 address", err)
			} else {
				address = local
			}
		}
		if address.IsValid() {
			e.Signal = netip.AddrPortFrom(address, d.cfg.Signal.Port)
			e.SignalVersion = signal.Version
		}
		e.Towards = d.cfg.destinations(d.cfg.Sender.Towards, d.cfg.outbound)
	}
	if d.cfg.Role.Receives() {
		e.Behind = d.cfg.destinations(d.cfg.Receiver.Behind, d.cfg.inbound)
	}
	return e
}

// destinations returns the prefixes, plus the destinations of flows on the given side that no
// prefix contains.
func (c *Config) destinations(prefixes []netip.Prefix, side func(netip.Addr) bool) []netip.Prefix {
	out := slices.Clone(prefixes)
	for _, f := range c.Flows {
		if side(f.Destination) && !contain(prefixes, f.Destination) {
			out = append(out, netip.PrefixFrom(f.Destination, f.Destination.BitLen()))
		}
	}
	return out
}

// pathReport returns the paths with their counters.
func (d *daemon) pathReport() []api.Path {
	paths := d.paths.report()
	byIndex := func(i int) *api.Path {
		for n := range paths {
			if paths[n].Index == i+1 {
				return &paths[n]
			}
		}
		return nil
	}
	_ = d.kernel.withSender(func(k *bpf.Sender) error {
		s, err := k.Stats()
		for i, c := range s.Paths {
			if p := byIndex(i); p != nil {
				p.Sent, p.SentBytes = c.Packets, c.Bytes
			}
		}
		return err
	})
	_ = d.kernel.withReceiver(func(k *bpf.Receiver) error {
		s, err := k.Stats()
		for i, c := range s.Paths {
			if p := byIndex(i); p != nil {
				p.First, p.Late, p.Rogue = c.First, c.Late, c.Rogue
			}
		}
		return err
	})
	return paths
}

// report returns a heartbeat.
func (d *daemon) report() api.Report {
	out := api.Report{Paths: d.pathReport(), Routes: d.sending.routes(d.paths.by), Counters: map[string]uint64{}}
	err := d.kernel.withSender(func(k *bpf.Sender) error {
		policies, err := k.Policies()
		if err != nil {
			return err
		}
		if out.Nonce, err = k.Nonce(); err != nil {
			return err
		}
		for _, p := range policies {
			out.Policies = append(out.Policies, api.Policy{
				Destination: p.Destination, Paths: pathset.Set(p.Bits),
				Nonce: p.Nonce,
			})
		}
		s, err := k.Stats()
		out.Counters["duplicated"], out.Counters["no_usable_path"] = s.Duplicated, s.Unusable
		out.Counters["signals_applied"], out.Counters["signals_malformed"] = s.Applied, s.Malformed
		out.Counters["signals_spoofed"], out.Counters["signals_replayed"] = s.Spoofed, s.Replayed
		out.Counters["signals_other_version"] = s.OtherVersion
		return err
	})
	if err == nil {
		err = d.kernel.withReceiver(func(k *bpf.Receiver) error {
			flows, err := k.Flows()
			if err != nil {
				return err
			}
			out.Ready = slices.SortedFunc(maps.Keys(flows), netip.Addr.Compare)
			s, err := k.Stats()
			out.Counters["misaddressed"] = s.Misaddressed
			out.Counters["unknown"], out.Counters["evicted"], out.Counters["arrivals_dropped"] = s.Unknown, s.Evicted,
				s.RingFull
			return err
		})
	}
	if err != nil {
		d.log.Warn("cannot read counters", "err", err)
	}
	if d.cfg.Role.Receives() {
		out.Counters["latent_alarms"] = d.receiving.alarms()
	}
	return out
}
