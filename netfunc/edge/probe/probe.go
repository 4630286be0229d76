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

// reopenAfter is the wait before a socket that failed is opened again: its device may come
// back with another index.
const reopenAfter = 500 * time.Millisecond

// A Prober measures one path, and answers the peer's probes on it. Its fields are not to be
// changed once it runs.
type Prober struct {
	Path      int            // 1 to 8
	Interface string         // that the packets use, whatever the routing table says
	Peer      netip.AddrPort // the other edge's address on this path; its port is ours as well
	Every     time.Duration  // between probes
	Timeout   time.Duration  // after which a probe counts as lost
	Key       []byte         // shared with the peer; nil: probes are not authenticated
	Log       *slog.Logger

	mu      sync.Mutex
	window  window
	session uint64
}

// Run probes until ctx ends.
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
			log.Warn("the path is not probed, and not noticed when it dies: another program has the UDP port; end that, or set another probe.port at both edges",
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

// Stats returns what was found up to now.
func (p *Prober) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.window.at(time.Now())
}

// run probes over one socket until ctx ends or the socket fails.
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
		b = packet{kind: request, path: uint8(p.Path), session: p.session, sequence: p.window.sending(time.Now())}.append(b[:0], p.Key)
		p.mu.Unlock()
		// A path that is down gives an error here; the probe is lost, and counted so.
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
			if failed = unix.SetsockoptString(int(fd), unix.SOL_SOCKET, unix.SO_BINDTODEVICE, p.Interface); failed == nil {
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

// receive takes answers and gives them, until the socket is closed or fails.
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
		_, _ = conn.WriteToUDPAddrPort(in.append(out[:0], p.Key), from) // lost is lost
	}
}

// received returns when the kernel received the packet of a control message, which tells
// more of the path than when this process came to run.
func received(oob []byte) time.Time {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err == nil {
		for _, m := range messages {
			if m.Header.Level == unix.SOL_SOCKET && m.Header.Type == unix.SCM_TIMESTAMPNS && len(m.Data) >= 16 {
				return time.Unix(int64(binary.NativeEndian.Uint64(m.Data)), int64(binary.NativeEndian.Uint64(m.Data[8:])))
			}
		}
	}
	return time.Now()
}
