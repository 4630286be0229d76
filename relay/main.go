// Command relay is the Holocast relay: it forwards tracks from publishers to any number
// of viewers over Media over QUIC, caches the newest groups for late joiners, and sends
// its clock.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"holocast/internal/config"
	"holocast/internal/connect"
	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/quiccc"
	"holocast/internal/service"
	"holocast/relay/router"
)

func main() { service.Main("relay", defaultConfig, command) }

// command returns the relay's command line, with the values in cfg as its defaults.
func command(cfg *Config) *cobra.Command {
	c := &cobra.Command{
		Use:   "relay",
		Short: "Forward Media over QUIC tracks from publishers to viewers",
		Example: `  relay                                       # UDP and TCP port 4443, development certificate
  relay --config relay.yaml
  relay --listen :443 --certificate fullchain.pem --key privkey.pem
  curl http://localhost:4443/metrics`,
		Version:       service.Version(wire.ALPN, quiccc.Build()),
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	f := c.Flags()
	f.String(config.Flag, "", "YAML configuration file; flags override it")
	f.StringVar(&cfg.Listen, "listen", cfg.Listen, "UDP address for sessions")
	f.StringVar(&cfg.HTTP, "http", cfg.HTTP, "TCP address for metrics, health and certificate hash; \"\" turns it off")
	f.StringVar(&cfg.Web, "web", cfg.Web, "folder with the built web viewer, served over HTTP")
	f.StringVar(&cfg.Congestion, "congestion", cfg.Congestion, connect.CongestionUsage)
	f.StringVar(&cfg.TLS.Certificate, "certificate", cfg.TLS.Certificate, "PEM certificate; without it a development certificate is made")
	f.StringVar(&cfg.TLS.Key, "key", cfg.TLS.Key, "PEM key of the certificate")
	f.StringSliceVar(&cfg.TLS.Hosts, "host", cfg.TLS.Hosts, "names and addresses in the development certificate")
	f.Int64Var(&cfg.Cache.MaxBytes, "cache-bytes", cfg.Cache.MaxBytes, "bytes kept of each track")
	f.Int64Var(&cfg.Cache.TotalBytes, "cache-total-bytes", cfg.Cache.TotalBytes, "bytes kept of all tracks together")
	f.DurationVar(&cfg.Cache.MaxAge, "cache-age", cfg.Cache.MaxAge, "how long groups but the newest are kept")
	f.DurationVar(&cfg.Publisher.Grace, "grace", cfg.Publisher.Grace, "how long viewers wait for a publisher that went away")
	f.IntVar(&cfg.MaxSessions, "sessions", cfg.MaxSessions, "sessions at a time; further ones are refused")
	f.DurationVar(&cfg.Drain, "drain", cfg.Drain, "how long sessions may take to leave on SIGTERM")
	f.StringVar(&cfg.Log.Level, "log-level", cfg.Log.Level, "debug, info, warn or error")
	f.StringVar(&cfg.Log.Format, "log-format", cfg.Log.Format, "text or json")
	c.PreRunE = func(*cobra.Command, []string) error { return cfg.Validate() }
	c.RunE = func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), *cfg) }
	return c
}

func run(ctx context.Context, cfg Config) error {
	logger, err := cfg.Log.Logger()
	if err != nil {
		return err
	}
	log := logger.Logger
	cert, err := service.NewCertificate(cfg.certificate(), log)
	if err != nil {
		return err
	}
	reset, err := resetKey(cfg, cert)
	if err != nil {
		return err
	}
	r := router.New(router.Config{
		Limits: cfg.limits(), Grace: cfg.Publisher.Grace, Linger: cfg.Publisher.Linger,
		MaxSessions: cfg.MaxSessions, MaxOpen: cfg.Viewer.MaxOpenSubgroups,
		MaxFetches: cfg.Viewer.MaxFetches, MaxRendezvous: cfg.Viewer.MaxRendezvous, Log: log,
	})
	ln, err := moqt.Listen(cfg.Listen, moqt.ListenConfig{
		Config: moqt.Config{Log: log, Congestion: cfg.Congestion}, TLS: cert.TLS(), ResetKey: reset,
	})
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	defer func() { _ = ln.Close() }()
	web, err := serveHTTP(ctx, cfg, r, cert, log)
	if err != nil {
		return err
	}
	defer web.Close()
	running, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	wg.Go(func() { r.RunClock(running) })
	wg.Go(func() {
		for {
			s, err := ln.Accept(running)
			if err != nil {
				return
			}
			wg.Go(func() { r.Serve(s) })
		}
	})
	unhook := service.OnReload(ctx, log, cfg, []string{"log.level", "tls"}, func(next Config) error {
		logger.SetLevel(next.Log)
		return cert.Replace(next.certificate())
	})
	defer unhook()
	log.Info("relay is listening", "udp", ln.Addr().String(), "http", web.Addr(), "certificate_sha256", cert.Hash())
	service.Ready(ctx, func() { r.Stats() })
	<-ctx.Done()
	return drain(ln, r, cfg.Drain, log)
}

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

// serveHTTP serves metrics, health, the certificate's hash and the web viewer. The relay is
// healthy until ctx ends.
func serveHTTP(ctx context.Context, cfg Config, r *router.Router, cert *service.Certificate, log *slog.Logger) (*service.HTTP, error) {
	web, err := service.ListenHTTP("http", cfg.HTTP, log)
	if err != nil {
		return nil, err
	}
	web.Handle("GET /metrics", service.MetricsHandler(service.NewRegistry(newMetrics(r))))
	web.Handle("GET /healthz", service.Health(func() error {
		if ctx.Err() != nil {
			return errDraining
		}
		return nil
	}))
	web.HandleFunc("GET /certificate.sha256", func(w http.ResponseWriter, _ *http.Request) {
		// A page served from elsewhere needs the hash to open WebTransport.
		w.Header().Set("Access-Control-Allow-Origin", "*")
		w.Header().Set("Cache-Control", "no-store")
		fmt.Fprintln(w, cert.Hash())
	})
	if cfg.Web != "" {
		web.Handle("GET /", viewer(cfg.Web))
	}
	web.Start()
	return web, nil
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
