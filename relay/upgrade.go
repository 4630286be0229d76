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
	"sync"
	"time"

	"github.com/spf13/cobra"

	"holocast/internal/config"
	"holocast/internal/devcert"
	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/service"
	"holocast/relay/router"
	"holocast/relay/steer"
	"holocast/relay/upgrade"
)

// How long an upgrade may take, and the parts of it.
const (
	startLimit  = 30 * time.Second // until the new process is ready
	bridgeLimit = 10 * time.Second // until it is joined to the old one
	drainPoll   = 100 * time.Millisecond
)

// Names of files that a new process is given.
const (
	fileSteer   = "steer"
	fileHTTP    = "http"
	fileAdmin   = "admin"
	fileControl = "control"
)

// state is what a new process is told.
type state struct {
	Listen, HTTP, Admin string // as configured
	Address             string // of UDP
	Keys                keys
	Bridge              bridge
	Namespaces          []moqt.Namespace // published when it was started
}

// keys are secrets that both processes have, so that clients of either can turn to both.
type keys struct {
	Token, Ticket [32]byte
	// Certificate is the development certificate in DER, CertificateKey its key in PKCS #8;
	// empty where certificates come from files.
	Certificate, CertificateKey []byte
}

// bridge is where the old process takes the new one's session.
type bridge struct {
	URL  string
	Hash [32]byte
}

// newKeys are the keys of a process that replaces none.
func newKeys() (k keys) {
	_, _ = rand.Read(k.Token[:]) // never fails
	_, _ = rand.Read(k.Ticket[:])
	return k
}

// setDevelopment puts the development certificate in.
func (k *keys) setDevelopment(c *tls.Certificate) error {
	der, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	k.Certificate, k.CertificateKey = c.Certificate[0], der
	return err
}

// development is the development certificate, nil if there is none.
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

// inherit returns the process that this one replaces and what that tells; nil if there is
// none.
func inherit(cfg Config) (*upgrade.Predecessor, state, error) {
	var st state
	before, err := upgrade.Inherit()
	if err == nil && before != nil {
		if err = before.State(&st); err == nil && st.Listen != cfg.Listen {
			err = fmt.Errorf("listen: an upgrade keeps the address, %s; another one takes a restart", st.Listen)
		}
	}
	return before, st, err
}

// openSockets opens the sockets for sessions, beside those of the process before.
func openSockets(cfg Config, n int, reset *[32]byte, before *upgrade.Predecessor, st state) (*steer.Group, error) {
	if before != nil {
		return steer.Join(st.Address, n, reset, before.Files(fileSteer))
	}
	return steer.Listen(cfg.Listen, n, reset)
}

// bridgeServer takes the session of a new process on a private address.
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
		Config: moqt.Config{Log: log}, TLS: &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS13},
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
				err := r.Bridge(ctx, func(h moqt.Handler) (*moqt.Session, error) { s.Serve(h); return s, nil }, nil, func() {})
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

// bridgePredecessor bridges the router to the process before, if there is one, and returns once that is
// done; ended is closed when the bridge has ended.
func bridgePredecessor(ctx context.Context, r *router.Router, before *upgrade.Predecessor, st state, log *slog.Logger) (ended <-chan struct{}, err error) {
	joined, over := make(chan struct{}), make(chan struct{})
	if before == nil {
		close(over)
		return over, nil
	}
	var reason error // written before over is closed
	go func() {
		defer close(over)
		reason = r.Bridge(ctx, func(h moqt.Handler) (*moqt.Session, error) {
			return moqt.Dial(ctx, st.Bridge.URL, devcert.Pinned(st.Bridge.Hash), h, moqt.Config{Log: log})
		}, st.Namespaces, func() { close(joined) })
		log.Info("the process before has ended", "reason", reason)
	}()
	select {
	case <-joined:
		return over, nil
	case <-over:
		return over, fmt.Errorf("bridge to the process before: %w", reason)
	case <-time.After(bridgeLimit): // a publisher has left meanwhile
		return over, nil
	}
}

// listenControl opens the socket that relay upgrade asks at, which the process before may have.
func listenControl(before *upgrade.Predecessor, address string, log *slog.Logger) *upgrade.Control {
	if before != nil {
		if ln, err := before.Listener(fileControl); ln != nil && err == nil {
			return upgrade.Inherited(ln)
		}
	}
	c, err := upgrade.Listen(address)
	if err != nil {
		log.Debug("relay upgrade does not reach this process", "err", err)
	}
	return c
}

// listenHTTP listens at a configured address, by the listener of the process before where that
// had the same.
func listenHTTP(before *upgrade.Predecessor, setting, addrBefore, addr string, log *slog.Logger) (*service.HTTP, error) {
	if before != nil && addr == addrBefore {
		if ln, err := before.Listener(setting); err != nil {
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

// upgrader starts new processes and hands over to them.
type upgrader struct {
	cfg     Config
	keys    keys
	cert    *service.Certificate
	address string
	sockets *steer.Group
	r       *router.Router
	log     *slog.Logger
	files   func() ([]upgrade.File, error) // of HTTP and control

	mu       sync.Mutex
	bridge   *bridgeServer
	replaced chan *upgrade.Successor // has the one that took over
	over     bool
}

var errReplaced = errors.New("this process was replaced already")

// upgrade starts a new process and returns its ID once it serves. Otherwise, or if ctx ends, all
// is as before.
func (u *upgrader) upgrade(ctx context.Context) (pid int, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.over {
		return 0, errReplaced
	}
	u.log.Info("upgrade: starting a new process", "program", os.Args[0])
	defer func() {
		if err != nil {
			u.log.Error("not upgraded: this process goes on", "err", err)
		}
	}()
	if err := u.sockets.Off(); err != nil {
		return 0, fmt.Errorf("an upgrade needs both processes' packets told apart: %w", err)
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
	}, files)
	if err != nil {
		return 0, errors.Join(err, u.sockets.Accept()) // which it may have changed
	}
	u.over = true
	u.replaced <- s
	return s.PID, nil
}

// resume has the process take new connections again.
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

// retire serves the sessions that a process has when it was replaced, until they have ended or
// their limit is over; stopping says that the new process stops, or ctx ended. An error says that
// the new process has ended unexpectedly. older is closed when a still older process has ended,
// which needs this one as its bridge.
func (u *upgrader) retire(ctx context.Context, s *upgrade.Successor, older <-chan struct{}) (stopping bool, err error) {
	type end struct {
		asked bool
		err   error
	}
	ended := make(chan end, 1)
	go func() {
		asked, err := s.Wait()
		ended <- end{asked, err}
	}()
	u.log.Info("replaced: a new process takes new sessions", "pid", s.PID, "sessions", len(u.r.Sessions()), "limit", u.cfg.DrainTimeout)
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
			case <-older:
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
		Short: "Replace the running relay by a new process, without ending sessions",
		Long: `Replace the running relay by a new process, without ending sessions.

The relay that listens at the configured address starts its program again, from the same path
and with the same arguments: a new version, a changed configuration. Once the new process
serves, new sessions come to it. Those that are open stay with the old process, which ends with
the last of them, or asks them to connect again after drainTimeout. Publishers and viewers need
not be at the same process.

If the new process does not start, upgrade says why, and the relay goes on as before. SIGUSR2
does the same and leaves the outcome in the log. The relay must be allowed to use eBPF (root,
or CAP_BPF).`,
		Example: `  relay upgrade --config /etc/holocast/relay.yaml
  relay upgrade --listen :4443`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			pid, err := upgrade.Ask(cfg.Listen, startLimit+5*time.Second)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "process %d takes new sessions\n", pid)
			return err
		},
	}
	f := c.Flags()
	f.String(config.Flag, "", "the relay's YAML configuration file")
	settings.AddFlags(f, cfg, "listen")
	return c
}
