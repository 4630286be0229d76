package main

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"holocast/internal/config"
	"holocast/internal/devcert"
	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/service"
	"holocast/relay/admin"
	"holocast/relay/router"
	"holocast/relay/steer"
	"holocast/relay/upgrade"
)

// Time limits of an upgrade.
const (
	startLimit  = 30 * time.Second // limit until the new process is ready
	bridgeLimit = 10 * time.Second // limit until the bridge between the processes is complete
	drainPoll   = 100 * time.Millisecond
)

// Names of the files that are passed to a new process.
const (
	fileSteer   = "steer"
	fileHTTP    = "http"
	fileAdmin   = "admin"
	fileControl = "control"
)

// state is passed to a new process.
type state struct {
	Listen, HTTP, Admin string // as configured
	Address             string // UDP address
	Keys                keys
	Bridge              bridge
	Namespaces          []moqt.Namespace // published when the new process starts
	Cluster             string           // ID in the cluster, "" if in none
	ClockOffset         time.Duration    // of the relay's clock from the machine's
	Blocks              []admin.Block
}

// keys are secrets shared by both processes, so that clients can resume sessions with either.
type keys struct {
	Token, Ticket, Reset [32]byte
	// Certificate is the development certificate in DER, CertificateKey its key in PKCS #8. They
	// are empty if the certificate is loaded from files.
	Certificate, CertificateKey []byte
}

// bridge is the address at which the old process accepts the session of the new process.
type bridge struct {
	URL  string
	Hash [32]byte
}

// newKeys generates the keys of a process without a predecessor.
func newKeys() (k keys) {
	_, _ = rand.Read(k.Token[:]) // never fails
	_, _ = rand.Read(k.Ticket[:])
	_, _ = rand.Read(k.Reset[:])
	return k
}

// setDevelopment stores the development certificate.
func (k *keys) setDevelopment(c *tls.Certificate) error {
	der, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	k.Certificate, k.CertificateKey = c.Certificate[0], der
	return err
}

// development returns the development certificate, or nil if there is none.
func (k *keys) development() (*tls.Certificate, error) {
	if len(k.Certificate) == 0 {
		return nil, nil
	}
	leaf, err := x509.ParseCertificate(k.Certificate)
	if err != nil {
		return nil, err
	}
	key, err := x509.ParsePKCS8PrivateKey(k.CertificateKey)
	return &tls.Certificate{Certificate: [][]byte{k.Certificate}, Leaf: leaf, PrivateKey: key}, err
}

// inherit returns the predecessor and its state. The predecessor is nil if there is none.
func inherit(cfg Config) (*upgrade.Predecessor, state, error) {
	var st state
	before, err := upgrade.Inherit()
	if err == nil && before != nil {
		if err = before.State(&st); err == nil && st.Listen != cfg.Listen {
			err = fmt.Errorf("listen: an upgrade cannot change the address %s; restart the relay instead", st.Listen)
		}
	}
	return before, st, err
}

// openSockets opens the sockets for sessions, in the predecessor's socket group if there is one.
func openSockets(
	cfg Config, n int, reset *[32]byte, predecessor *upgrade.Predecessor, inherited state,
) (*steer.Group, error) {
	if predecessor != nil {
		return steer.Join(inherited.Address, n, reset, predecessor.Files(fileSteer))
	}
	return steer.Listen(cfg.Listen, n, reset)
}

// bridgeServer accepts the session of a new process at a private address.
type bridgeServer struct {
	bridge
	ln   *moqt.Listener
	wg   sync.WaitGroup
	stop context.CancelFunc
}

func newBridgeServer(r *router.Router, log *slog.Logger) (*bridgeServer, error) {
	cert, err := devcert.Generate(time.Now(), "127.0.0.1")
	if err != nil {
		return nil, err
	}
	ln, err := moqt.Listen("127.0.0.1:0", moqt.ListenConfig{
		Config: moqt.Config{Log: log},
		TLS:    &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS13},
	})
	if err != nil {
		return nil, err
	}
	var secret [32]byte
	_, _ = rand.Read(secret[:]) // never fails
	path := "/" + hex.EncodeToString(secret[:])
	ctx, stop := context.WithCancel(context.Background())
	b := &bridgeServer{bridge: bridge{"moqt://" + ln.Addr().String() + path, devcert.Hash(cert)}, ln: ln, stop: stop}
	b.wg.Go(func() {
		for {
			s, err := ln.Accept(ctx)
			if err != nil {
				return
			}
			if !hmac.Equal([]byte(s.Path()), []byte(path)) { // in constant time
				s.Close(wire.Unauthorized, "this address is the relay's own")
				continue
			}
			b.wg.Go(func() {
				open := func(h moqt.Handler) (*moqt.Session, error) { s.Serve(h); return s, nil }
				err := r.Bridge(ctx, open, nil, func() {})
				log.Debug("bridge to the new process ended", "err", err)
			})
		}
	})
	return b, nil
}

func (b *bridgeServer) close() {
	b.stop()
	_ = b.ln.Close()
	b.wg.Wait()
}

// bridgePredecessor bridges the router to the router of the predecessor, if there is one. It returns
// once the bridge is complete or has failed, or after bridgeLimit. ended is closed when the bridge has
// ended.
func bridgePredecessor(
	ctx context.Context, r *router.Router, predecessor *upgrade.Predecessor, inherited state, log *slog.Logger,
) (ended <-chan struct{}, err error) {
	joined, over := make(chan struct{}), make(chan struct{})
	if predecessor == nil {
		close(over)
		return over, nil
	}
	var reason error // written before over is closed
	go func() {
		defer close(over)
		reason = r.Bridge(ctx, func(h moqt.Handler) (*moqt.Session, error) {
			return moqt.Dial(ctx, inherited.Bridge.URL, devcert.Pinned(inherited.Bridge.Hash), h, moqt.Config{Log: log})
		}, inherited.Namespaces, func() { close(joined) })
		log.Info("predecessor has ended", "reason", reason)
	}()
	select {
	case <-joined:
		return over, nil
	case <-over:
		return over, fmt.Errorf("bridge to the predecessor: %w", reason)
	case <-time.After(bridgeLimit): // a publisher has left meanwhile
		return over, nil
	}
}

// listenControl opens the socket for "relay upgrade", or takes over the predecessor's socket.
func listenControl(predecessor *upgrade.Predecessor, address string, log *slog.Logger) *upgrade.Control {
	if predecessor != nil {
		if ln, err := predecessor.Listener(fileControl); ln != nil && err == nil {
			return upgrade.Inherited(ln)
		}
	}
	c, err := upgrade.Listen(address)
	if err != nil {
		log.Debug("control socket unavailable, so relay upgrade cannot reach this process", "err", err)
	}
	return c
}

// listenHTTP listens at a configured address. It reuses the predecessor's listener if that was
// configured with the same address.
func listenHTTP(
	predecessor *upgrade.Predecessor, setting, predecessorAddr, addr string, log *slog.Logger,
) (*service.HTTP, error) {
	if predecessor != nil && addr == predecessorAddr {
		if ln, err := predecessor.Listener(setting); err != nil {
			return nil, err
		} else if ln != nil {
			return service.NewHTTP(ln, log), nil
		}
	}
	return service.ListenHTTP(setting, addr, log)
}

// listenerFiles returns the listeners for a new process.
func listenerFiles(web, admin *service.HTTP, control *upgrade.Control) (files []upgrade.File, err error) {
	for _, l := range []struct {
		name string
		file func() (*os.File, error)
	}{{fileHTTP, web.File}, {fileAdmin, admin.File}, {fileControl, control.File}} {
		f, e := l.file()
		if f != nil {
			files = append(files, upgrade.File{Name: l.name, File: f})
		}
		err = errors.Join(err, e)
	}
	return files, err
}

// upgrader starts successors and hands over to them.
type upgrader struct {
	cfg     Config
	keys    keys
	cert    *service.Certificate
	address string
	sockets *steer.Group
	r       *router.Router
	log     *slog.Logger
	files   func() ([]upgrade.File, error) // HTTP and control listeners
	cluster string                         // ID in the cluster
	blocks  func() []admin.Block

	mu       sync.Mutex
	bridge   *bridgeServer
	replaced chan *upgrade.Successor // receives the successor that took over
	over     bool
}

var errReplaced = errors.New("this process has already been replaced")

// upgrade starts a successor and returns its process ID once it is ready. If this fails, or ctx is
// done, this process continues unchanged.
func (u *upgrader) upgrade(ctx context.Context) (pid int, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.over {
		return 0, errReplaced
	}
	u.log.Info("upgrade: starting a new process", "program", os.Args[0])
	defer func() {
		if err != nil {
			u.log.Error("upgrade failed; this process continues", "err", err)
		}
	}()
	if err := u.sockets.Off(); err != nil {
		return 0, fmt.Errorf("an upgrade needs eBPF to steer packets to both processes: %w", err)
	}
	if u.bridge == nil {
		if u.bridge, err = newBridgeServer(u.r, u.log); err != nil {
			return 0, err
		}
	}
	if u.cfg.TLS.Certificate == "" {
		if err := u.keys.setDevelopment(u.cert.Get()); err != nil {
			return 0, err
		}
	}
	steering, err := u.sockets.Files()
	if err != nil {
		return 0, err
	}
	var files []upgrade.File
	for _, f := range steering {
		files = append(files, upgrade.File{Name: fileSteer, File: f})
	}
	others, err := u.files()
	files = append(files, others...)
	if err != nil {
		for _, f := range files {
			_ = f.Close()
		}
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	s, err := upgrade.Start(ctx, state{
		Listen: u.cfg.Listen, HTTP: u.cfg.HTTP, Admin: u.cfg.Admin, Address: u.address,
		Keys: u.keys, Bridge: u.bridge.bridge, Namespaces: u.r.Namespaces(),
		Cluster: u.cluster, ClockOffset: u.r.ClockOffset(), Blocks: u.blocks(),
	}, files)
	if err != nil {
		return 0, errors.Join(err, u.sockets.Accept()) // the successor may have begun to accept
	}
	u.over = true
	u.replaced <- s
	return s.PID, nil
}

// resume accepts new connections again.
func (u *upgrader) resume() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.over = false
	return u.sockets.Accept()
}

func (u *upgrader) close() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.over = true
	if u.bridge != nil {
		u.bridge.close()
	}
}

// retire serves the remaining sessions of a replaced process until they have ended, DrainTimeout has
// passed, ctx is done, or the successor stops. stopping is true if ctx is done or the successor was
// asked to stop; err is set if the successor ended unexpectedly. predecessorEnded is closed when this
// process's own predecessor, which needs it as a bridge, has ended; retire waits for that too.
func (u *upgrader) retire(
	ctx context.Context, s *upgrade.Successor, predecessorEnded <-chan struct{},
) (stopping bool, err error) {
	type end struct {
		asked bool
		err   error
	}
	ended := make(chan end, 1)
	go func() {
		asked, err := s.Wait()
		ended <- end{asked, err}
	}()
	u.log.Info("replaced by a new process, which accepts new sessions",
		"pid", s.PID, "sessions", len(u.r.Sessions()), "limit", u.cfg.DrainTimeout)
	limit := time.NewTimer(u.cfg.DrainTimeout)
	defer limit.Stop()
	poll := time.NewTicker(drainPoll)
	defer poll.Stop()
	for {
		select {
		case <-ctx.Done():
			return true, nil
		case <-limit.C:
			return false, nil
		case e := <-ended:
			if e.asked || e.err != nil {
				return e.asked, e.err
			}
		case <-poll.C:
			select {
			case <-predecessorEnded:
				if len(u.r.Sessions()) == 0 {
					return false, nil
				}
			default:
			}
		}
	}
}

// upgradeCommand asks a running relay to upgrade.
func upgradeCommand(cfg *Config) *cobra.Command {
	c := &cobra.Command{
		Use:   "upgrade",
		Short: "Replace the running relay process without ending sessions",
		Long: `Replace the running relay process without ending sessions.

The relay that listens at the configured address starts its program again from the same path
with the same arguments, and thus with a new version or a changed configuration. The new process
accepts new sessions. Open sessions stay with the old process, which ends with the last one; after
drainTimeout it asks the remaining sessions to reconnect. Publishers and viewers may be connected
to different processes.

If the new process does not start, upgrade prints the reason and the relay continues unchanged.
SIGUSR2 does the same and logs the result. The relay needs permission to use eBPF (root or
CAP_BPF).`,
		Example: `  relay upgrade --config /etc/holocast/relay.yaml
  relay upgrade --listen :4443`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			answer, err := upgrade.Ask(cfg.Listen, upgrade.Upgrade, startLimit+5*time.Second)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "process %s takes new sessions\n", strings.TrimPrefix(answer, "pid "))
			return err
		},
	}
	f := c.Flags()
	f.String(config.Flag, "", "the relay's YAML configuration file")
	settings.AddFlags(f, cfg, "listen")
	return c
}
