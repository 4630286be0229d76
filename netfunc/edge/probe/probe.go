//go:build linux

package probe

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// reopenAfter is the delay before a failed socket is opened again, as its device may return with
// another index.
const reopenAfter = 500 * time.Millisecond

// A Prober measures one path, and answers the peer's probes on it. Its fields must not change while
// it runs.
type Prober struct {
	Path      int            // 1 to 8
	Interface string         // used regardless of the routing table
	Peer      netip.AddrPort // the other edge's address on this path; both edges use its port
	Every     time.Duration  // between probes
	Timeout   time.Duration  // time after which a probe counts as lost
	Key       []byte         // shared with the peer; nil = no authentication
	Log       *slog.Logger

	mu      sync.Mutex
	window  window
	session uint64
}

// Run probes until ctx is done.
func (p *Prober) Run(ctx context.Context) {
	p.mu.Lock()
	p.window.timeout, p.session = p.Timeout, rand.Uint64()
	p.mu.Unlock()
	log := p.Log.With("path", p.Path, "interface", p.Interface)
	warned := false
	for {
		err := p.run(ctx)
		if ctx.Err() != nil {
			return
		}
		taken := errors.Is(err, unix.EADDRINUSE)
		if taken && !warned {
			log.Warn("path is not probed because the UDP port is in use, so its failure would go unnoticed; free the "+
				"port, or set another probe.port at both edges",
				"port", p.Peer.Port())
		} else {
			log.Debug("probes interrupted", "err", err)
		}
		warned = taken
		select {
		case <-ctx.Done():
			return
		case <-time.After(reopenAfter):
		}
	}
}

// Stats returns the current statistics.
func (p *Prober) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.window.at(time.Now())
}

// run probes with one socket until ctx is done or the socket fails.
func (p *Prober) run(ctx context.Context) error {
	conn, err := p.open(ctx)
	if err != nil {
		return err
	}
	failed := make(chan error, 1)
	var receiving sync.WaitGroup
	receiving.Go(func() { failed <- p.receive(conn) })
	defer receiving.Wait()
	defer func() { _ = conn.Close() }()
	tick := time.NewTicker(p.Every)
	defer tick.Stop()
	b := make([]byte, 0, size)
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			return err
		case <-tick.C:
		}
		p.mu.Lock()
		b = packet{
			kind: request, path: uint8(p.Path), session: p.session,
			sequence: p.window.sending(time.Now()),
		}.append(b[:0], p.Key)
		p.mu.Unlock()
		// If the path is down, this fails and the probe counts as lost.
		if _, err := conn.WriteToUDPAddrPort(b, p.Peer); errors.Is(err, unix.ENODEV) || errors.Is(err, net.ErrClosed) {
			return err
		}
	}
}

// open opens the socket of a path, which carries requests and answers of both edges.
func (p *Prober) open(ctx context.Context) (*net.UDPConn, error) {
	control := func(_, _ string, c syscall.RawConn) error {
		var failed error
		err := c.Control(func(fd uintptr) {
			if failed = unix.SetsockoptString(int(fd), unix.SOL_SOCKET, unix.SO_BINDTODEVICE,
				p.Interface); failed == nil {
				failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1)
			}
		})
		return errors.Join(err, failed)
	}
	network, local := "udp4", netip.IPv4Unspecified()
	if p.Peer.Addr().Is6() {
		network, local = "udp6", netip.IPv6Unspecified()
	}
	lc := net.ListenConfig{Control: control}
	pc, err := lc.ListenPacket(ctx, network, netip.AddrPortFrom(local, p.Peer.Port()).String())
	if err != nil {
		return nil, fmt.Errorf("probe socket on interface %s: %w", p.Interface, err)
	}
	return pc.(*net.UDPConn), nil
}

// receive answers requests and processes answers until the socket is closed or fails.
func (p *Prober) receive(conn *net.UDPConn) error {
	b, oob, out := make([]byte, 256), make([]byte, 128), make([]byte, 0, size)
	for {
		n, m, _, from, err := conn.ReadMsgUDPAddrPort(b, oob)
		if err != nil {
			return err
		}
		at := received(oob[:m])
		in, err := parse(b[:n], p.Key)
		if err != nil || from.Addr().Unmap().WithZone("") != p.Peer.Addr().WithZone("") {
			p.mu.Lock()
			p.window.stats.Refused++
			p.mu.Unlock()
			continue
		}
		if in.kind == answer {
			p.mu.Lock()
			if in.session == p.session && int(in.path) == p.Path {
				p.window.answered(in.sequence, at, in.dwell)
			}
			p.mu.Unlock()
			continue
		}
		in.kind, in.dwell = answer, time.Since(at)
		_, _ = conn.WriteToUDPAddrPort(in.append(out[:0], p.Key), from) // a failure counts as loss
	}
}

// received returns the kernel's receive timestamp from a control message, which excludes the
// scheduling delay of this process, or the current time if there is none.
func received(oob []byte) time.Time {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err == nil {
		for _, m := range messages {
			if m.Header.Level == unix.SOL_SOCKET && m.Header.Type == unix.SCM_TIMESTAMPNS && len(m.Data) >= 16 {
				return time.Unix(int64(binary.NativeEndian.Uint64(m.Data)),
					int64(binary.NativeEndian.Uint64(m.Data[8:])))
			}
		}
	}
	return time.Now()
}
