package connect

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net/url"
	"sync"
	"time"

	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
)

// Transports of Target.
const (
	TransportAuto = "auto" // QUIC, or a WebSocket where the relay does not answer over UDP
	TransportQUIC = "quic"
	TransportTCP  = "tcp" // a WebSocket
)

// TransportUsage is the help text of transport settings.
const TransportUsage = "transport: quic, tcp (a WebSocket), or auto, which uses tcp where UDP gets no answer"

// CheckTransport checks the name of a transport.
func CheckTransport(name string) error {
	switch name {
	case "", TransportAuto, TransportQUIC, TransportTCP:
		return nil
	}
	return fmt.Errorf("transport %q: want auto, quic or tcp", name)
}

const (
	// tcpDelay is the head start of QUIC, and tcpGrace how far it may come behind TCP and still win.
	tcpDelay = 500 * time.Millisecond
	tcpGrace = 500 * time.Millisecond
)

// blocked remembers the hosts that answered over TCP only. QUIC then has no head start.
var blocked = tcpHosts{until: map[string]time.Time{}}

type tcpHosts struct {
	mu    sync.Mutex
	until map[string]time.Time
}

// rememberFor is the lifetime of an entry.
const rememberFor = 10 * time.Minute

func (h *tcpHosts) has(host string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return time.Now().Before(h.until[host])
}

func (h *tcpHosts) set(host string, tcp bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if delete(h.until, host); tcp {
		h.until[host] = time.Now().Add(rememberFor)
	}
}

// open opens a session over the target's transport.
func (t Target) open(ctx context.Context, conf *tls.Config, h moqt.Handler, cfg moqt.Config) (*moqt.Session, error) {
	if err := CheckTransport(t.Transport); err != nil {
		return nil, Final(err)
	}
	u, err := url.Parse(t.Address())
	if err != nil {
		return nil, fmt.Errorf("URL %w", URLError(t.URL, err))
	}
	overQUIC := func(ctx context.Context) (*moqt.Session, error) { return moqt.Dial(ctx, u.String(), conf, h, cfg) }
	overTCP := func(ctx context.Context) (*moqt.Session, error) {
		socket := *u
		socket.Scheme = "wss"
		return moqt.Dial(ctx, socket.String(), conf, h, cfg)
	}
	switch {
	case t.Transport == TransportTCP:
		return overTCP(ctx)
	case t.Transport == TransportQUIC, cfg.Packets != nil, len(cfg.Paths) > 0, u.Scheme == "wss", u.Scheme == "ws":
		return overQUIC(ctx)
	}
	delay := tcpDelay
	if blocked.has(u.Host) {
		delay = 0
	}
	s, tcp, err := race(ctx, delay, overQUIC, overTCP)
	if err != nil {
		return nil, err
	}
	if blocked.set(u.Host, tcp); tcp && delay > 0 {
		slog.Warn("connected over TCP, because the relay does not answer over UDP; lost packets then delay all media",
			"relay", u.String())
	}
	return s, nil
}

type dial func(context.Context) (*moqt.Session, error)

// race opens a session over QUIC. If that takes longer than delay, or the server does not answer, it
// also tries TCP, and returns that session unless QUIC follows within grace. It does not try TCP if the
// server refuses the session over QUIC.
func race(ctx context.Context, delay time.Duration, overQUIC, overTCP dial) (s *moqt.Session, tcp bool, err error) {
	type result struct {
		s   *moqt.Session
		err error
	}
	grace := min(delay, tcpGrace)
	results := make(chan result, 1)
	failed := make(chan struct{}) // QUIC has failed
	quicCtx, stopQUIC := context.WithCancel(ctx)
	defer stopQUIC()
	tcpCtx, stopTCP := context.WithCancel(ctx)
	defer stopTCP()
	// wait returns false once TCP is not needed.
	wait := func(d time.Duration) bool {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
		case <-failed:
		case <-tcpCtx.Done():
			return false
		}
		return true
	}
	go func() {
		if !wait(delay) {
			results <- result{err: tcpCtx.Err()}
			return
		}
		s, err := overTCP(tcpCtx)
		if err == nil && wait(grace) {
			stopQUIC()
		}
		results <- result{s, err}
	}()
	s, err = overQUIC(quicCtx)
	if err == nil || !moqt.Unanswered(err) && quicCtx.Err() == nil {
		stopTCP()
		go func() {
			if loser := <-results; loser.s != nil {
				loser.s.Close(wire.NoError, "")
			}
		}()
		return s, false, err
	}
	close(failed)
	r := <-results
	switch {
	case r.err == nil:
		return r.s, true, nil
	case moqt.Unanswered(r.err), ctx.Err() != nil:
		return nil, false, err
	}
	return nil, false, fmt.Errorf("%w; over TCP: %w", err, r.err)
}
