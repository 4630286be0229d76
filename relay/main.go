// Command relay is the Holocast relay: it forwards tracks from publishers to any number
// of viewers over Media over QUIC, caches the newest groups for late joiners, and sends
// its clock.
package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"holocast/internal/config"
	"holocast/internal/connect"
	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/origin"
	"holocast/internal/quiccc"
	"holocast/internal/service"
	"holocast/internal/trace"
	"holocast/relay/auth"
	"holocast/relay/fastpath"
	"holocast/relay/limits"
	"holocast/relay/live"
	"holocast/relay/qlog"
	"holocast/relay/router"
	"holocast/relay/upgrade"
)

// tokenCache is how much of tokens a session may register by alias, bytes.
const tokenCache = 32 << 10

func main() { service.Main("relay", defaultConfig, command) }

// command returns the relay's command line, with the values in cfg as its defaults.
func command(cfg *Config) *cobra.Command {
	c := &cobra.Command{
		Use:   "relay",
		Short: "Forward Media over QUIC tracks from publishers to viewers",
		Example: `  relay                                       # for this machine: 127.0.0.1:4443
  relay key relay.key                         # a key for tokens, and then a relay for others
  relay --listen :4443 --http :4443 --keys relay.key
  relay token --keys relay.key --publish studio --for 2h
  relay --config relay.yaml
  curl http://localhost:4443/metrics`,
		Version:       service.Version(strings.Join(wire.ALPNs(wire.Versions()), ", "), quiccc.Build()),
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	f := c.Flags()
	f.String(config.Flag, "", "YAML configuration file; flags override it")
	f.StringVar(&cfg.Listen, "listen", cfg.Listen, "UDP address for sessions")
	f.BoolVar(&cfg.Insecure, "insecure", cfg.Insecure, "let others than this machine publish and watch without tokens")
	f.StringSliceVar(&cfg.Auth.Keys, "keys", cfg.Auth.Keys, keysUsage)
	f.StringVar(&cfg.HTTP, "http", cfg.HTTP, "TCP address for the web viewer, health and certificate hash; \"\" turns it off")
	f.StringVar(&cfg.Admin, "admin", cfg.Admin, "TCP address for metrics and the live page (default that of --http where only this machine reaches it)")
	f.StringSliceVar(&cfg.Origins, "origin", cfg.Origins, "web page that may connect, https://host:port, beside the relay's own and this machine's; repeatable")
	f.StringVar(&cfg.Web, "web", cfg.Web, "folder with the built web viewer, served over HTTP")
	f.StringVar(&cfg.Congestion, "congestion", cfg.Congestion, connect.CongestionUsage)
	f.StringVar((*string)(&cfg.FastPath), "fastpath", string(cfg.FastPath), "forward datagrams in the kernel: off, auto (where it is possible) or chacha20 (or fail)")
	f.StringVar(&cfg.TLS.Certificate, "certificate", cfg.TLS.Certificate, "PEM certificate; without it a development certificate is made")
	f.StringVar(&cfg.TLS.Key, "key", cfg.TLS.Key, "PEM key of the certificate")
	f.StringSliceVar(&cfg.TLS.Hosts, "host", cfg.TLS.Hosts, "names and addresses in the development certificate")
	f.Int64Var(&cfg.Cache.MaxBytes, "cache-bytes", cfg.Cache.MaxBytes, "bytes kept of each track")
	f.Int64Var(&cfg.Cache.TotalBytes, "cache-total-bytes", cfg.Cache.TotalBytes, "bytes kept of all tracks together")
	f.DurationVar(&cfg.Cache.MaxAge, "cache-age", cfg.Cache.MaxAge, "how long groups but the newest are kept")
	f.DurationVar(&cfg.Publisher.Grace, "grace", cfg.Publisher.Grace, "how long viewers wait for a publisher that went away")
	f.StringVar(&cfg.Qlog.Dir, "qlog", cfg.Qlog.Dir, "folder for a file of events (qlog) of each connection")
	cfg.Trace.AddFlags(f)
	f.BoolVar(&cfg.Publisher.Backups, "backups", cfg.Publisher.Backups, "let several publishers have a namespace at a time")
	f.Var(&cfg.Limits, "limit", "limit of a kind for a session, an address or all, such as subscriptions.session=100; repeatable")
	f.IntVar(&cfg.MaxSessions, "sessions", cfg.MaxSessions, "sessions at a time; further ones are refused")
	f.DurationVar(&cfg.Drain, "drain", cfg.Drain, "how long sessions may take to leave on SIGTERM; half a second at most on Ctrl-C")
	f.DurationVar(&cfg.DrainTimeout, "drain-timeout", cfg.DrainTimeout, "how long sessions may stay with a process that was replaced (relay upgrade)")
	f.StringVar(&cfg.Log.Level, "log-level", cfg.Log.Level, "debug, info, warn or error")
	f.StringVar(&cfg.Log.Format, "log-format", cfg.Log.Format, "text or json")
	c.PreRunE = func(*cobra.Command, []string) error { return cfg.Validate() }
	c.RunE = func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), *cfg) }
	c.AddCommand(tokenCommand(cfg), keyCommand(), upgradeCommand(cfg))
	return c
}

func run(ctx context.Context, cfg Config) error {
	logger, err := cfg.Log.Logger()
	if err != nil {
		return err
	}
	log := logger.Logger
	before, st, err := inherit(cfg)
	if err != nil {
		return err
	}
	log.Debug("memory", "limit_bytes", limitMemory(cfg.Cache.TotalBytes))
	cert, err := service.NewCertificate(cfg.certificate(), log)
	if err != nil {
		return err
	}
	shared := st.Keys
	if before == nil {
		shared = newKeys()
	}
	if development, err := shared.development(); err != nil {
		return err
	} else if development != nil {
		cert.Adopt(development)
	}
	reset, err := resetKey(cfg, cert)
	if err != nil {
		return err
	}
	var authority *auth.Authority
	if cfg.Auth.Enabled() {
		if authority, err = auth.New(ctx, cfg.Auth, log); err != nil {
			return err
		}
	} else if cfg.Insecure {
		log.Warn("insecure: whoever reaches this relay may publish and watch everything", "listen", cfg.Listen)
	}
	guard := &guard{cert: cert}
	guard.allow(cfg.Origins)
	tlsConfig := cert.TLS()
	tlsConfig.SetSessionTicketKeys([][32]byte{shared.Ticket})
	if cfg.Auth.ClientCA != "" {
		tlsConfig.ClientAuth = tls.RequestClientCert // the authority verifies it
	}
	tracer, err := trace.New(ctx, cfg.Trace, trace.Program{Name: "relay", Version: service.Version()}, log)
	if err != nil {
		return err
	}
	defer tracer.Close()
	fast, err := startFastPath(cfg, log)
	if err != nil {
		return err
	}
	defer func() { _ = fast.Close() }()
	memory := origin.NewMemory(cfg.Cache.TotalBytes)
	bounds := limits.New(cfg.Limits, memory)
	routing := cfg.routing()
	routing.Limits.Memory = memory
	routing.Auth, routing.Backups, routing.FastPath, routing.Tracer, routing.Log = authority, cfg.Publisher.Backups, fast, tracer, log
	r := router.New(routing)
	session := moqt.Config{Log: log, Congestion: cfg.Congestion, MaxAuthTokenCacheSize: tokenCache}
	if cfg.Qlog.Dir != "" {
		folder, err := qlog.New(cfg.Qlog.Dir, cfg.Qlog.MaxFiles, cfg.Qlog.MaxBytes, log)
		if err != nil {
			return fmt.Errorf("qlog.dir: %w", err)
		}
		session.Trace = folder.Trace
	}
	sockets, err := openSockets(cfg, runtime.GOMAXPROCS(0), reset, before, st)
	if err != nil {
		return service.AddressError("listen", cfg.Listen, err)
	}
	defer sockets.Close()
	go fitProcessors(ctx) // the sockets are as many as all processors
	if err := sockets.Off(); err != nil {
		log.Info("one UDP socket for all processors", "reason", err)
	}
	sockets.OnInitials(bounds.CountInitials)
	ln, err := moqt.Listen(cfg.Listen, moqt.ListenConfig{
		Config: session, Sockets: sockets.Sockets(),
		TLS: tlsConfig, ResetKey: reset, TokenKey: &shared.Token, CheckOrigin: guard.allows, MaxConnects: cfg.MaxConnects,
		Suspect: bounds.Suspect, Greedy: bounds.Greedy,
		Admit: func(addr net.Addr) (moqt.Admission, error) { return bounds.Connect(addr) },
		NoGRO: fast != nil,
	})
	if err != nil {
		return service.AddressError("listen", cfg.Listen, err)
	}
	defer func() { _ = ln.Close() }()
	serve := func(cfg Config, before *upgrade.Predecessor) (web, admin *service.HTTP, err error) {
		return serveHTTP(ctx, cfg, before, st, r, bounds, fast, cert, guard, log)
	}
	web, admin, err := serve(cfg, before)
	if err != nil {
		return err
	}
	defer func() { web.Close(); admin.Close() }()
	running, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	wg.Go(func() { r.RunClock(running) })
	wg.Go(func() { bounds.FitInitials(running, sockets.Pass, log) })
	if authority != nil {
		wg.Go(func() { authority.Run(running) })
	}
	wg.Go(func() { r.ServeAll(running, ln) })
	var patience atomic.Int64 // drain
	patience.Store(int64(cfg.Drain))
	applied := append([]string{"log.level", "tls", "limits"}, limitSettings...)
	if authority != nil {
		applied = append(applied, "auth")
	}
	unhook := service.OnReload(ctx, log, cfg, applied, func(next Config) error {
		if authority != nil {
			if !next.Auth.Enabled() {
				return errors.New("auth.keys: a relay with keys is not opened to everybody without a restart")
			}
			if err := authority.Replace(ctx, next.Auth); err != nil {
				return err
			}
		}
		if err := cert.Replace(next.certificate()); err != nil {
			return err
		}
		bounds.Replace(next.Limits)
		logger.SetLevel(next.Log)
		r.SetLimits(next.routing())
		memory.SetLimit(next.Cache.TotalBytes)
		limitMemory(next.Cache.TotalBytes)
		guard.allow(next.Origins)
		patience.Store(int64(next.Drain))
		return nil
	})
	defer unhook()
	older, err := joinBefore(running, r, before, st, log)
	if err != nil {
		return err
	}
	if err := sockets.Accept(); err != nil {
		return err
	}
	control := listenControl(before, ln.Addr().String(), log)
	u := &upgrader{
		cfg: cfg, keys: shared, cert: cert, address: ln.Addr().String(), sockets: sockets, r: r, log: log,
		replaced: make(chan *upgrade.Successor, 1),
		files:    func() ([]upgrade.File, error) { return inheritance(web, admin, control) },
	}
	defer u.close()
	serveControl := func(c *upgrade.Control) {
		wg.Go(func() { c.Serve(func() (int, error) { return u.upgrade(ctx) }) })
	}
	serveControl(control)
	defer func() { control.Close() }()
	signals := make(chan os.Signal, 1)
	if upgrade.Signal != nil {
		signal.Notify(signals, upgrade.Signal)
		defer signal.Stop(signals)
	}
	if err := before.Ready(); err != nil {
		return err
	}
	log.Info("relay is listening", "udp", ln.Addr().String(), "http", web.Addr(), "admin", admin.Addr(), "certificate_sha256", cert.Hash())
	service.Ready(ctx, func() { r.Stats() })
	for {
		select {
		case <-ctx.Done():
			before.Stopping()
			limit := time.Duration(patience.Load())
			if errors.Is(context.Cause(ctx), service.ErrInterrupted) {
				limit = min(limit, interruptDrain)
			}
			return drain(ln, r, limit, log)
		case <-signals:
			wg.Go(func() { _, _ = u.upgrade(ctx) }) // says in the log what came of it
		case s := <-u.replaced:
			service.Replaced(s.PID)
			before.Replaced()
			web.Close()
			admin.Close()
			control.Close()
			stopping, err := u.retire(ctx, s, older)
			if err == nil {
				if stopping {
					before.Stopping()
				}
				return drain(ln, r, time.Duration(patience.Load()), log)
			}
			unexpected := err
			again := cfg // at the same addresses, whatever they were asked for as
			again.HTTP, again.Admin = web.Addr(), admin.Addr()
			if web, admin, err = serve(again, nil); err != nil {
				return errors.Join(unexpected, err)
			}
			control = listenControl(nil, u.address, log)
			serveControl(control)
			if err := u.resume(); err != nil {
				return errors.Join(unexpected, err)
			}
			log.Error("this process takes new sessions again", "err", unexpected)
		}
	}
}

// interruptDrain is how long sessions may take to leave on Ctrl-C, where that is less than drain:
// whoever pressed it waits.
const interruptDrain = 500 * time.Millisecond

// drain asks every session to leave and waits for them, at most for limit.
func drain(ln *moqt.Listener, r *router.Router, limit time.Duration, log *slog.Logger) error {
	ln.StopAccepting()
	sessions := r.Sessions()
	log.Info("draining", "sessions", len(sessions), "limit", limit)
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	var wg sync.WaitGroup
	for _, s := range sessions {
		wg.Go(func() { _ = s.Goaway(ctx, "", limit) })
	}
	wg.Wait()
	return ln.Close()
}

// serveHTTP serves health, the certificate's hash and the web viewer, and at an address for
// the operator alone the metrics. The relay is healthy until ctx ends.
func serveHTTP(ctx context.Context, cfg Config, before *upgrade.Predecessor, st state, r *router.Router, bounds *limits.Limits, fast *fastpath.Manager, cert *service.Certificate, g *guard, log *slog.Logger) (web, admin *service.HTTP, err error) {
	if web, err = listenHTTP(before, fileHTTP, st.HTTP, cfg.HTTP, log); err != nil {
		return nil, nil, err
	}
	if admin, err = listenHTTP(before, fileAdmin, st.Admin, cfg.Admin, log); err != nil {
		web.Close()
		return nil, nil, err
	}
	health := service.Health(func() error {
		if ctx.Err() != nil {
			return errDraining
		}
		return nil
	})
	metrics := g.host(service.MetricsHandler(service.NewRegistry(newMetrics(r), newLimitMetrics(bounds), newFastPathMetrics(fast))))
	page := g.host(live.Handler(r))
	admin.Handle("GET /metrics", metrics)
	admin.Handle("GET /live/", page)
	admin.Handle("GET /healthz", g.host(health))
	switch {
	case cfg.Admin != "":
	case loopback(cfg.HTTP):
		web.Handle("GET /metrics", metrics)
		web.Handle("GET /live/", page)
	case cfg.HTTP != "":
		log.Info("metrics are not served: others reach http, and admin is not set")
	}
	web.Handle("GET /healthz", g.host(health))
	web.Handle("GET /certificate.sha256", g.host(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// A page served from elsewhere needs the hash to open WebTransport.
		if origin := r.Header.Get("Origin"); origin != "" && g.allows(r) {
			w.Header().Set("Access-Control-Allow-Origin", origin)
		}
		w.Header().Set("Vary", "Origin")
		w.Header().Set("Cache-Control", "no-store")
		fmt.Fprintln(w, cert.Hash())
	})))
	if cfg.Web != "" {
		web.Handle("GET /", g.host(viewer(cfg.Web)))
	}
	web.Start()
	admin.Start()
	return web, admin, nil
}

// errDraining is why a relay that was asked to stop is not healthy.
var errDraining = errors.New("draining")

// viewer serves the web viewer's files. The page may load nothing from elsewhere, but
// may connect to any relay.
func viewer(dir string) http.Handler {
	files := http.FileServer(http.Dir(dir))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'self'; script-src 'self' 'wasm-unsafe-eval'; worker-src 'self' blob:; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; connect-src *")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cache-Control", "no-cache")
		files.ServeHTTP(w, r)
	})
}
