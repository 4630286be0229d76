package cluster

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"holocast/internal/pause"
	"holocast/internal/service"
)

// Times of the NATS server and connection.
const (
	startWait    = 10 * time.Second
	listenRetry  = 20 * time.Millisecond // while a predecessor still has the cluster port
	reconnect    = 500 * time.Millisecond
	maxReconnect = -1 // always
	queued       = 4096
)

// bus is a connection to NATS, with the server if that is embedded.
type bus struct {
	server *server.Server // nil if external
	user   *server.User   // of the server
	conn   *nats.Conn
	in     chan *nats.Msg
	notes  chan *nats.Msg
}

// openBus opens the cluster's bus. wait limits the wait for the cluster port.
func openBus(
	ctx context.Context, cfg Config, id string, wait time.Duration, s *secret, refused func(), log *slog.Logger,
) (*bus, error) {
	b := &bus{in: make(chan *nats.Msg, queued), notes: make(chan *nats.Msg, queued)}
	address := cfg.NATS
	o := []nats.Option{
		nats.Name("holocast relay " + id), nats.MaxReconnects(maxReconnect), nats.ReconnectWait(reconnect),
		nats.RetryOnFailedConnect(true), nats.NoEcho(),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				log.Warn("cluster: NATS is unreachable; serving the last known routes", "err", err)
			}
		}),
		nats.ReconnectHandler(func(*nats.Conn) { log.Info("cluster: NATS is reachable again") }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			log.Warn("cluster: NATS", "err", err)
		}),
	}
	if address == "" {
		if err := b.serve(ctx, cfg, id, wait, s, refused, log); err != nil {
			return nil, err
		}
		o = append(o, nats.InProcessServer(b.server), nats.UserInfo(b.user.Username, b.user.Password))
	}
	var err error
	if b.conn, err = nats.Connect(address, o...); err != nil {
		b.close()
		return nil, fmt.Errorf("cluster.nats: %w", err)
	}
	if _, err = b.conn.ChanSubscribe(subject(cfg.Name), b.in); err != nil {
		b.close()
		return nil, err
	}
	if _, err = b.conn.ChanSubscribe(boardSubject(cfg.Name), b.notes); err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

// subject is the NATS subject of a cluster's messages.
func subject(cluster string) string { return "holocast.relay." + cluster }

// serve starts the embedded server.
func (b *bus) serve(
	ctx context.Context, cfg Config, id string, wait time.Duration, s *secret, refused func(), log *slog.Logger,
) error {
	conf, err := s.tls(id, time.Now())
	if err != nil {
		return err
	}
	host, port, err := awaitPort(ctx, cfg.Listen, wait)
	if err != nil {
		return err
	}
	// Routes start only after the port for clients is open; Options.DontListen prevents both. The only
	// user may connect within this process.
	var password [16]byte
	_, _ = rand.Read(password[:]) // never fails
	b.user = &server.User{
		Username: id, Password: hex.EncodeToString(password[:]),
		AllowedConnectionTypes: map[string]struct{}{jwt.ConnectionTypeInProcess: {}},
	}
	o := &server.Options{
		ServerName: id, Host: "127.0.0.1", Port: server.RANDOM_PORT, Users: []*server.User{b.user},
		NoSigs: true, NoSystemAccount: true,
		Cluster: server.ClusterOpts{
			Name: cfg.Name, Host: host, Port: port, TLSConfig: conf, TLSTimeout: 5, PoolSize: -1,
			Compression: server.CompressionOpts{Mode: server.CompressionOff},
		},
	}
	for _, address := range cfg.Join {
		o.Routes = append(o.Routes, &url.URL{Scheme: "nats-route", Host: address})
	}
	if b.server, err = server.NewServer(o); err != nil {
		return fmt.Errorf("cluster: %w", err)
	}
	l := &logger{log: log, refused: refused, failed: make(chan error, 1)}
	b.server.SetLoggerV2(l, false, false, false)
	b.server.Start()
	ready := time.NewTimer(startWait)
	defer ready.Stop()
	for !b.server.ReadyForConnections(listenRetry) {
		select {
		case err = <-l.failed:
		case <-ctx.Done():
			err = ctx.Err()
		case <-ready.C:
			err = errors.New("cluster: the NATS server did not start")
		default:
			continue
		}
		b.close()
		return err
	}
	return nil
}

// awaitPort waits until the cluster port is free, since a predecessor may still have it, and returns it.
func awaitPort(ctx context.Context, address string, wait time.Duration) (host string, port int, err error) {
	for end := time.Now().Add(wait); ; {
		var ln net.Listener
		if ln, err = new(net.ListenConfig).Listen(ctx, "tcp", address); err == nil {
			port = ln.Addr().(*net.TCPAddr).Port
			host, _, err = net.SplitHostPort(address)
			return host, port, errors.Join(err, ln.Close())
		}
		if time.Now().After(end) || pause.For(ctx, listenRetry) != nil {
			return "", 0, service.AddressError("cluster.listen", address, err)
		}
	}
}

// address returns the address of the cluster port, or "" without an embedded server.
func (b *bus) address() string {
	if b.server == nil || b.server.ClusterAddr() == nil {
		return ""
	}
	return net.JoinHostPort(b.server.ClusterAddr().IP.String(), strconv.Itoa(b.server.ClusterAddr().Port))
}

// close closes the connection and the server. Published messages are sent before.
func (b *bus) close() {
	if b.conn != nil {
		_ = b.conn.FlushTimeout(time.Second)
		b.conn.Close()
	}
	if b.server != nil {
		b.server.Shutdown()
		b.server.WaitForShutdown()
	}
}

// logger writes the log of the NATS server. It reports the peers that lack the cluster's secret, once
// per host and minute.
type logger struct {
	log     *slog.Logger
	refused func()
	failed  chan error

	mu   sync.Mutex
	last map[string]time.Time // refusals reported, by host
}

const (
	reportEvery = time.Minute
	maxReported = 1 << 10 // hosts
)

// Noticef implements server.Logger.
func (l *logger) Noticef(format string, v ...any) { l.debug(format, v) }

// Debugf implements server.Logger.
func (l *logger) Debugf(format string, v ...any) { l.debug(format, v) }

// Tracef implements server.Logger.
func (l *logger) Tracef(string, ...any) {}

// Warnf implements server.Logger.
func (l *logger) Warnf(format string, v ...any) { l.debug(format, v) }

// Errorf implements server.Logger.
func (l *logger) Errorf(format string, v ...any) {
	text := fmt.Sprintf(format, v...)
	peer, what, _ := strings.Cut(text, " - ")
	if !strings.Contains(what, "TLS route handshake error") && !strings.Contains(what, "TLS handshake timeout") {
		l.debug("%s", []any{text})
		return
	}
	l.refused()
	host, _, err := net.SplitHostPort(peer)
	if err != nil {
		host = peer
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := time.Now(); now.Sub(l.last[host]) >= reportEvery {
		if l.last == nil || len(l.last) >= maxReported {
			l.last = map[string]time.Time{}
		}
		l.last[host] = now
		l.log.Warn("cluster: refused a peer that does not prove to have this cluster's name and secret",
			"peer", peer, "reason", what)
	}
}

// Fatalf implements server.Logger.
func (l *logger) Fatalf(format string, v ...any) {
	select {
	case l.failed <- fmt.Errorf("cluster: "+format, v...):
	default:
	}
}

func (l *logger) debug(format string, v []any) { l.log.Debug("NATS: " + fmt.Sprintf(format, v...)) }
