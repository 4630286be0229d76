package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"holocast/internal/config"
	"holocast/internal/devcert"
	"holocast/internal/moqt"
	"holocast/internal/origin"
	"holocast/internal/pairing"
	"holocast/internal/service"
	"holocast/internal/trace"
	"holocast/relay/admin"
	"holocast/relay/auth"
	"holocast/relay/cluster"
	"holocast/relay/diskcache"
	"holocast/relay/fastpath"
	"holocast/relay/limits"
	"holocast/relay/qlog"
	"holocast/relay/record"
	"holocast/relay/router"
	"holocast/relay/steer"
	"holocast/relay/tickets"
	"holocast/relay/upgrade"
)

const (
	// tokenCache limits the size, in bytes, of the tokens that a session may register by alias.
	tokenCache = 32 << 10
	// interruptDrain limits the draining time after SIGINT, as a user at the terminal waits for it.
	interruptDrain = 500 * time.Millisecond
)

// server is a running relay.
type server struct {
	cfg         Config // as started
	log         *config.Logger
	predecessor *upgrade.Predecessor // nil unless an upgrade started this process
	inherited   state                // from predecessor
	// predecessorEnded is closed once the predecessor has ended, or if there is none.
	predecessorEnded <-chan struct{}

	keys      keys
	cert      *service.Certificate
	reset     *[32]byte        // stateless reset key
	authority *auth.Authority  // nil without authentication
	cluster   *cluster.Cluster // nil if in none
	guard     guard
	codes     *pairing.Codes

	fast   *fastpath.Manager // nil if off
	tracer *trace.Tracer
	memory *origin.Memory
	disk   *diskcache.Store // nil without cache.disk.dir
	limits *limits.Limits
	router *router.Router
	api    *admin.API
	access *admin.Access
	record *record.Recorder // nil without record.dir

	sockets    *steer.Group
	ln         *moqt.Listener
	web, admin *service.HTTP
	control    *upgrade.Control
	upgrader   *upgrader
	signals    chan os.Signal // requests for an upgrade
	draining   atomic.Bool    // clients are asked to move to other relays
	drained    chan struct{}  // closed once all have
	drain      atomic.Int64   // time.Duration; changed by SIGHUP
	grace      atomic.Int64   // likewise

	background context.Context // cancelled when the server ends, after ctx
	wg         sync.WaitGroup
	closers    []func()
}

// run runs a relay until ctx is done or a new process has replaced this one.
func run(ctx context.Context, cfg Config) error {
	s := &server{cfg: cfg}
	defer s.close()
	for _, start := range []func(context.Context) error{
		s.loadKeys, s.startRouter, s.listen, s.startBackground, s.joinPredecessor, s.joinCluster,
		s.acceptUpgrades,
	} {
		if err := start(ctx); err != nil {
			return err
		}
	}
	s.log.Info("relay is listening", "udp", s.ln.Addr().String(), "http", s.web.Addr(), "admin", s.admin.Addr(),
		"certificate_sha256", s.cert.Hash())
	service.Ready(ctx, func() { s.router.Stats() })
	return s.serve(ctx)
}

// onClose registers a function for close, which calls the functions in reverse order.
func (s *server) onClose(f func()) { s.closers = append(s.closers, f) }

func (s *server) close() {
	for _, f := range slices.Backward(s.closers) {
		f()
	}
}

// loadKeys loads the predecessor's state, the certificate and the keys that sign tokens.
func (s *server) loadKeys(ctx context.Context) (err error) {
	if s.log, err = s.cfg.Log.Logger(); err != nil {
		return err
	}
	if s.predecessor, s.inherited, err = inherit(s.cfg); err != nil {
		return err
	}
	if s.cert, err = service.NewCertificate(s.cfg.certificate(), s.log.Logger); err != nil {
		return err
	}
	if s.keys = s.inherited.Keys; s.predecessor == nil {
		s.keys = newKeys()
	}
	if development, err := s.keys.development(); err != nil {
		return err
	} else if development != nil {
		s.cert.Adopt(development)
	}
	if s.reset, err = resetKey(s.cfg, s.cert, &s.keys.Reset); err != nil {
		return err
	}
	if s.cfg.Auth.Enabled() {
		if s.authority, err = auth.New(ctx, s.cfg.Auth, s.log.Logger); err != nil {
			return err
		}
	} else if s.cfg.Insecure {
		s.log.Warn("authentication is disabled, so any peer may publish and subscribe", "listen", s.cfg.Listen)
	}
	if s.cfg.Cluster.Enabled() {
		if s.cluster, err = cluster.New(ctx, s.cfg.Cluster, s.inherited.Cluster, s.log.Logger); err != nil {
			return err
		}
	}
	s.guard.cert = s.cert
	s.guard.allow(s.cfg.Origins)
	return nil
}

// startRouter creates the router, the fast path, the tracer and the limits.
func (s *server) startRouter(ctx context.Context) (err error) {
	log := s.log.Logger
	program := trace.Program{Name: "relay", Version: service.Version()}
	if s.tracer, err = trace.New(ctx, s.cfg.Trace, program, log); err != nil {
		return err
	}
	s.onClose(s.tracer.Close)
	if s.fast, err = startFastPath(s.cfg, log); err != nil {
		return err
	}
	s.onClose(func() { _ = s.fast.Close() })
	s.memory = origin.NewMemory(s.fitMemory(s.cfg))
	s.limits = limits.New(s.cfg.Limits, s.memory)
	c := s.cfg.routing()
	c.Limits.Memory = s.memory
	c.Auth, c.Backups, c.FastPath, c.Tracer, c.Log = s.authority, s.cfg.Publisher.Backups, s.fast, s.tracer, log
	if s.cfg.Cache.Disk.Dir != "" {
		if s.disk, err = diskcache.Open(s.cfg.Cache.Disk, log); err != nil {
			return err
		}
		s.onClose(func() { s.router.Flush(); s.disk.Close() })
		c.Disk = s.disk
	}
	if s.cluster != nil {
		c.Relay, c.Near, c.Redirect = s.cluster.Relay, s.cluster.Near, s.cluster.Redirect
	}
	s.router = router.New(c)
	s.router.AdjustClock(s.inherited.ClockOffset)
	if s.access, err = admin.NewAccess(s.cfg.AdminToken, log); err != nil {
		return err
	}
	if s.cfg.Record.Dir != "" {
		s.grace.Store(int64(s.cfg.Publisher.Grace))
		s.record, err = record.New(s.cfg.Record, record.Host{
			Router: s.router, Memory: s.memory, Log: log,
			Grace: func() time.Duration { return time.Duration(s.grace.Load()) },
		})
		if err != nil {
			return err
		}
	}
	s.api, err = admin.New(admin.Config{
		Router: s.router, Cluster: s.cluster, Recorder: s.record, Drain: s.beginDrain, MoveTimeout: s.cfg.DrainTimeout,
		Blocks: s.inherited.Blocks, Version: service.Version(), Log: log,
	})
	return err
}

// fitMemory returns the cache size for a configuration and limits the process's memory.
func (s *server) fitMemory(cfg Config) int64 {
	cache, collector := fitMemory(cfg.Cache.TotalBytes)
	if cache < cfg.Cache.TotalBytes {
		s.log.Info("cache.totalBytes exceeds 40 % of the memory limit", "cache_bytes", cache)
	}
	s.log.Debug("memory", "cache_bytes", cache, "collector_limit_bytes", collector)
	return cache
}

// listen opens the sockets for sessions and for HTTP.
func (s *server) listen(ctx context.Context) (err error) {
	session := moqt.Config{Log: s.log.Logger, Congestion: s.cfg.Congestion, MaxAuthTokenCacheSize: tokenCache}
	if q := s.cfg.Qlog; q.Dir != "" {
		folder, err := qlog.New(q.Dir, q.MaxFiles, q.MaxBytes, s.log.Logger)
		if err != nil {
			return fmt.Errorf("qlog.dir: %w", err)
		}
		session.Trace = folder.Trace
	}
	// One socket per processor, independent of fitProcessors.
	s.sockets, err = openSockets(s.cfg, runtime.GOMAXPROCS(0), s.reset, s.predecessor, s.inherited)
	if err != nil {
		return service.AddressError("listen", s.cfg.Listen, err)
	}
	s.onClose(func() { s.sockets.Close() })
	go fitProcessors(ctx)
	if err := s.sockets.Off(); err != nil {
		s.log.Info("using one UDP socket for all processors", "reason", err)
	}
	s.sockets.OnInitials(s.limits.CountInitials)
	s.ln, err = moqt.Listen(s.cfg.Listen, moqt.ListenConfig{
		Config: session, Sockets: s.sockets.Sockets(),
		TLS: s.tlsConfig(), ResetKey: s.reset, TokenKey: &s.keys.Token, CheckOrigin: s.guard.allows,
		MaxConnects: s.cfg.MaxConnects,
		Suspect:     s.limits.Suspect, Greedy: s.limits.Greedy,
		Admit: func(addr net.Addr) (moqt.Admission, error) { return s.limits.Connect(addr) },
		NoGRO: s.cfg.FastPath == fastpath.ChaCha20, SinglePath: !s.cfg.Multipath, EarlyData: s.cfg.EarlyData,
	})
	if err != nil {
		return service.AddressError("listen", s.cfg.Listen, err)
	}
	s.onClose(func() { _ = s.ln.Close() })
	if err := s.serveHTTP(ctx, s.predecessor, s.cfg.HTTP, s.cfg.Admin); err != nil {
		return err
	}
	s.onClose(func() { s.web.Close(); s.admin.Close() })
	return nil
}

func (s *server) tlsConfig() *tls.Config {
	c := s.cert.TLS()
	c.SetSessionTicketKeys([][32]byte{s.keys.Ticket})
	if s.cfg.EarlyData {
		tickets.Limit(c)
	}
	if s.cfg.Auth.ClientCA != "" {
		c.ClientAuth = tls.RequestClientCert // verified by the authority
	}
	return c
}

// startBackground starts the server's goroutines and handles SIGHUP.
func (s *server) startBackground(ctx context.Context) error {
	running, stop := context.WithCancel(context.Background())
	s.background = running
	s.onClose(s.wg.Wait)
	s.onClose(stop)
	s.wg.Go(func() { s.router.RunClock(running) })
	s.wg.Go(func() { s.api.Run(running) })
	s.wg.Go(func() { s.limits.FitInitials(running, s.sockets.Pass, s.log.Logger) })
	if s.authority != nil {
		s.wg.Go(func() { s.authority.Run(running) })
	}
	s.wg.Go(func() { s.router.ServeAll(running, s.ln) })
	if s.record != nil {
		s.wg.Go(func() { s.record.Run(running) })
	}
	s.drain.Store(int64(s.cfg.Drain))
	reloaded := settings.Reloaded()
	if s.authority == nil { // enabling authentication requires a restart
		reloaded = slices.DeleteFunc(reloaded, func(key string) bool { return key == "auth" })
	}
	s.onClose(service.OnReload(ctx, s.log.Logger, s.cfg, reloaded,
		func(next Config) error { return s.reload(ctx, next) }))
	return nil
}

// reload applies the settings that the settings table marks as reloadable. On error nothing changes.
func (s *server) reload(ctx context.Context, next Config) error {
	useCertificate, err := s.cert.Prepare(next.certificate())
	if err != nil {
		return err
	}
	if s.authority != nil {
		if !next.Auth.Enabled() {
			return errors.New("auth.keys: disabling authentication requires a restart")
		}
		if err := s.authority.Replace(ctx, next.Auth); err != nil {
			return err
		}
	}
	// No error is possible from here on.
	useCertificate()
	s.limits.Replace(next.Limits)
	s.log.SetLevel(next.Log)
	s.router.SetLimits(next.routing())
	s.memory.SetLimit(s.fitMemory(next))
	s.guard.allow(next.Origins)
	s.drain.Store(int64(next.Drain))
	s.grace.Store(int64(next.Publisher.Grace))
	s.record.SetConfig(next.Record)
	s.disk.SetConfig(next.Cache.Disk)
	return nil
}

// joinPredecessor bridges the router to the predecessor's router and then accepts new connections.
func (s *server) joinPredecessor(context.Context) (err error) {
	s.predecessorEnded, err = bridgePredecessor(s.background, s.router, s.predecessor, s.inherited, s.log.Logger)
	if err != nil {
		return err
	}
	return s.sockets.Accept()
}

// joinCluster joins the cluster, or takes the predecessor's place in it.
func (s *server) joinCluster(ctx context.Context) error {
	if s.cluster == nil {
		return nil
	}
	s.onClose(func() { s.cluster.Leave(false) })
	return s.startCluster(ctx, s.predecessor != nil)
}

func (s *server) startCluster(ctx context.Context, takeOver bool) error {
	hash := func() [32]byte { return devcert.Hash(*s.cert.Get()) }
	return s.cluster.Start(ctx, cluster.Host{
		Router: s.router, Address: s.ln.Addr(), Hash: hash, Congestion: s.cfg.Congestion,
		Backups: s.cfg.Publisher.Backups, SelfSigned: s.cfg.TLS.Certificate == "", Authority: s.authority,
		Board: s.api.Board(),
	}, takeOver)
}

// acceptUpgrades accepts requests for an upgrade and reports to the predecessor that this process is
// ready.
func (s *server) acceptUpgrades(ctx context.Context) error {
	address := s.ln.Addr().String()
	s.control = listenControl(s.predecessor, address, s.log.Logger)
	s.upgrader = &upgrader{
		cfg: s.cfg, keys: s.keys, cert: s.cert, address: address, sockets: s.sockets, r: s.router, log: s.log.Logger,
		cluster: s.cluster.ID(), blocks: s.api.Blocks, replaced: make(chan *upgrade.Successor, 1),
		files: func() ([]upgrade.File, error) { return listenerFiles(s.web, s.admin, s.control) },
	}
	s.onClose(s.upgrader.close)
	s.signals, s.drained = make(chan os.Signal, 1), make(chan struct{})
	s.serveControl(ctx)
	s.onClose(func() { s.control.Close() })
	if upgrade.Signal != nil {
		signal.Notify(s.signals, upgrade.Signal)
		s.onClose(func() { signal.Stop(s.signals) })
	}
	return s.predecessor.Ready()
}

func (s *server) serveControl(ctx context.Context) {
	control := s.control
	s.wg.Go(func() {
		control.Serve(func(command string) (string, error) {
			switch command {
			case upgrade.Upgrade:
				pid, err := s.upgrader.upgrade(ctx)
				return "pid " + strconv.Itoa(pid), err
			case upgrade.Drain:
				return s.moveClients(ctx)
			}
			return "", fmt.Errorf("unknown command %q", command)
		}, s.serveAPI)
	})
}

// serve runs until ctx is done or a successor has taken over.
func (s *server) serve(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			s.predecessor.Stopping()
			limit := time.Duration(s.drain.Load())
			if errors.Is(context.Cause(ctx), service.ErrInterrupted) {
				limit = min(limit, interruptDrain)
			}
			return s.drainSessions(limit)
		case <-s.drained:
			return s.drainSessions(time.Duration(s.drain.Load()))
		case <-s.signals:
			s.wg.Go(func() { _, _ = s.upgrader.upgrade(ctx) }) // logs its result
		case successor := <-s.upgrader.replaced:
			service.Replaced(successor.PID)
			s.cluster.Leave(true)
			s.predecessor.Replaced()
			s.web.Close()
			s.admin.Close()
			s.control.Close()
			stopping, err := s.upgrader.retire(ctx, successor, s.predecessorEnded)
			if err == nil {
				if stopping {
					s.predecessor.Stopping()
				}
				return s.drainSessions(time.Duration(s.drain.Load()))
			}
			if failed := s.resume(ctx); failed != nil {
				return errors.Join(err, failed)
			}
			s.log.Error("successor failed; this process accepts new sessions again", "err", err)
		}
	}
}

// resume serves new sessions again after the successor has failed.
func (s *server) resume(ctx context.Context) error {
	if err := s.serveHTTP(ctx, nil, s.web.Addr(), s.admin.Addr()); err != nil { // with the ports assigned for port 0
		return err
	}
	s.control = listenControl(nil, s.upgrader.address, s.log.Logger)
	s.serveControl(ctx)
	if s.cluster != nil {
		if err := s.startCluster(ctx, true); err != nil {
			return err
		}
	}
	return s.upgrader.resume()
}

// drainSessions sends GOAWAY to all sessions, waits up to limit for them to leave, and closes the
// listener. In a cluster it sends clients to other relays.
func (s *server) drainSessions(limit time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if s.cluster.Redirect() != "" {
		s.leaveTo(ctx, limit)
	}
	s.router.Drain()
	s.ln.StopAccepting()
	s.cluster.Leave(false)
	sessions := s.router.Sessions()
	s.log.Info("draining", "sessions", len(sessions), "limit", limit)
	var wg sync.WaitGroup
	for _, one := range sessions {
		wg.Go(func() { _ = one.Goaway(ctx, "", limit) })
	}
	wg.Wait()
	return s.ln.Close()
}
