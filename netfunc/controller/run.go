//go:build linux

package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"holocast/internal/service"
	"holocast/netfunc/controller/control"
	"holocast/netfunc/controller/rest"
	"holocast/netfunc/signal"
)

const (
	// keepAlive is the interval of keep-alives on watch streams.
	keepAlive = 5 * time.Second
	// idleTimeout is the time after which idle connections are closed. It exceeds the usual report
	// interval, so edges keep their connections.
	idleTimeout = 5 * time.Second
	// stopLimit is how long requests in progress may take at shutdown.
	stopLimit = 5 * time.Second
)

func run(ctx context.Context, cfg Config) (err error) {
	logger, err := cfg.Log.Logger()
	if err != nil {
		return err
	}
	log := logger.Logger
	key, err := signal.ReadKey(cfg.Signal.Key)
	if err != nil {
		return fmt.Errorf("signal.key: %w", err)
	}
	auth, err := cfg.auth()
	if err != nil {
		return err
	}
	cert, err := certificate(cfg, log)
	if err != nil {
		return err
	}
	listeners, err := listen(cfg, cert, log)
	if err != nil {
		return err
	}
	defer listeners.close()
	m := newMetrics()
	plane, err := control.New(control.Config{
		Policy: cfg.policy(), Key: key, From: cfg.Signal.From, StateFile: cfg.State,
		Version: service.Version(), Log: log, Reaction: m.reacted,
	})
	if err != nil {
		return err
	}
	defer plane.Close()
	reg := service.NewRegistry(newPlaneMetrics(plane), m.reaction, m.requests)

	serving, stopServing := context.WithCancel(context.Background()) // ends watch streams
	defer stopServing()
	handler := rest.New(rest.Config{
		Auth: auth, Rate: rest.Rate{PerSecond: cfg.HTTP.Rate, Burst: cfg.HTTP.Burst}, MaxBody: cfg.HTTP.MaxBody,
		KeepAlive: keepAlive, Metrics: service.MetricsHandler(reg), Answered: m.answered, Admitted: admitted, Log: log,
	}, plane)
	running, stopRunning := context.WithCancel(context.Background())
	defer stopRunning()
	served, saved := make(chan error, len(listeners)), make(chan error, 1)
	servers := listeners.serve(serving, handler, log, served)
	go func() { saved <- plane.Run(running) }()
	unhook := service.OnReload(ctx, log, cfg, settings.Reloaded(), func(next Config) error {
		key, err := signal.ReadKey(next.Signal.Key)
		if err != nil {
			return fmt.Errorf("signal.key: %w", err)
		}
		auth, err := next.auth()
		if err != nil {
			return err
		}
		auth.ClientCertificates = cfg.HTTP.ClientCA != "" // verified by the listener
		useCertificate := func() {}
		if cert != nil && next.HTTP.Certificate != "" {
			if useCertificate, err = cert.Prepare(next.certificate()); err != nil {
				return err
			}
		}
		if err := plane.SetKey(key); err != nil {
			return err
		}
		// No error is possible from here on.
		useCertificate()
		plane.SetPolicy(next.policy())
		handler.SetAuth(auth)
		handler.SetRate(rest.Rate{PerSecond: next.HTTP.Rate, Burst: next.HTTP.Burst})
		logger.SetLevel(next.Log)
		return nil
	})
	defer unhook()
	log.Info("controller is listening", listeners.urls("url", cert != nil, "authentication", auth.String(), "state",
		cfg.State)...)
	service.Ready(ctx, func() { plane.Counts() })
	select {
	case <-ctx.Done():
	case err = <-served: // a listener failed
		err = fmt.Errorf("http: %w", err)
	}
	stopServing()
	limited, cancel := context.WithTimeout(context.Background(), stopLimit)
	defer cancel()
	for _, srv := range servers {
		if e := srv.Shutdown(limited); e != nil {
			_ = srv.Close()
		}
	}
	stopRunning()
	if e := <-saved; err == nil {
		err = e
	}
	log.Info("controller stopped; edges keep their path sets")
	return err
}

// serve starts a server per listener, which sends its error to served when it ends. ctx is the parent
// of the requests' contexts.
func (l endpoints) serve(ctx context.Context, handler *rest.Server, log *slog.Logger,
	served chan<- error,
) []*http.Server {
	servers := make([]*http.Server, len(l))
	for i, ln := range l {
		h := http.Handler(handler)
		if ln.edges {
			h = handler.Edges()
		}
		srv := service.NewServer(h, log)
		srv.ReadTimeout, srv.IdleTimeout = 10*time.Second, idleTimeout
		srv.BaseContext = func(net.Listener) context.Context { return ctx }
		srv.ConnContext = withConnection
		servers[i] = srv
		go func() { served <- srv.Serve(ln) }()
	}
	return servers
}

// certificate loads the listener's certificate. It returns nil if none is configured.
func certificate(cfg Config, log *slog.Logger) (*service.Certificate, error) {
	if cfg.HTTP.Certificate == "" {
		return nil, nil
	}
	return service.NewCertificate(cfg.certificate(), log)
}

// endpoint is an HTTP listener.
type endpoint struct {
	net.Listener
	edges bool // serves only edges' calls
}

type endpoints []endpoint

func (l endpoints) close() {
	for _, ln := range l {
		_ = ln.Close()
	}
}

// urls returns log attributes: the first endpoint's URL under name, the operators' endpoint if it is
// separate, and the attributes in more.
func (l endpoints) urls(name string, tls bool, more ...any) []any {
	scheme := "http://"
	if tls {
		scheme = "https://"
	}
	out := []any{name, scheme + l[0].Addr().String()}
	for _, ln := range l[1:] {
		out = append(out, "operators", scheme+ln.Addr().String())
	}
	return append(out, more...)
}

// listen opens the HTTP listeners, with TLS if there is a certificate. A single listener serves
// everyone, or edges and operators have one each.
func listen(cfg Config, cert *service.Certificate, log *slog.Logger) (out endpoints, err error) {
	defer func() {
		if err != nil {
			out.close()
		}
	}()
	add := func(setting, addr string, edges bool) error {
		ln, err := service.ListenTCP(setting, addr)
		if err != nil {
			return err
		}
		ln = listener{ln, newConnections(cfg.HTTP.MaxConnections, cfg.HTTP.PerAddress, cfg.HTTP.PerEdge)}
		out = append(out, endpoint{ln, edges})
		if cert == nil {
			if host, _, _ := net.SplitHostPort(addr); !loopback(host) {
				log.Warn("http.certificate is not set, so tokens cross the network unencrypted", "setting", setting)
			}
			return nil
		}
		conf, err := tlsConfig(cfg, cert)
		if err != nil {
			return err
		}
		out[len(out)-1].Listener = tls.NewListener(ln, conf)
		return nil
	}
	apart := cfg.HTTP.Operators != ""
	if err = add("http.listen", cfg.HTTP.Listen, apart); err == nil && apart {
		err = add("http.operators", cfg.HTTP.Operators, false)
	}
	return out, err
}

func tlsConfig(cfg Config, cert *service.Certificate) (*tls.Config, error) {
	conf := cert.TLS()
	if cfg.HTTP.ClientCA != "" {
		pem, err := os.ReadFile(cfg.HTTP.ClientCA)
		if err != nil {
			return nil, fmt.Errorf("http.clientCA: %w", err)
		}
		conf.ClientCAs = x509.NewCertPool()
		if !conf.ClientCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("http.clientCA: %s holds no PEM certificate", cfg.HTTP.ClientCA)
		}
		// The page's files and the health check need no certificate; each call checks for one.
		conf.ClientAuth = tls.VerifyClientCertIfGiven
	}
	return conf, nil
}
