//go:build linux && (amd64 || arm64)

package fastpath

import (
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"sync"
	"time"

	"holocast/internal/moqt/wire"
	"holocast/relay/fastpath/kernel"
)

// forwarding sends packets through the IP forwarding of the relay host's kernel.
type forwarding struct {
	publisher *net.UDPConn
	viewers   []*net.UDPConn
	to        []netip.AddrPort
}

func startForwarding(l *lab, viewers int) (session, error) {
	f := &forwarding{}
	var err error
	if f.publisher, err = listen(l.publisher, publisherIP, 5000); err != nil {
		return nil, err
	}
	if f.viewers, f.to, err = listenViewers(l, viewers); err != nil {
		f.close()
		return nil, err
	}
	return f, nil
}

// listenViewers opens sockets that discard all packets they receive.
func listenViewers(l *lab, n int) (conns []*net.UDPConn, at []netip.AddrPort, err error) {
	for i := range n {
		c, err := listen(l.viewer, viewerIP, viewerPort+i)
		if err != nil {
			return conns, nil, err
		}
		go discard(c)
		conns = append(conns, c)
		at = append(at, netip.AddrPortFrom(netip.MustParseAddr(viewerIP), uint16(viewerPort+i)))
	}
	return conns, at, nil
}

func (f *forwarding) send(sequence uint64) {
	b := payload(sequence)
	for _, to := range f.to {
		_, _ = f.publisher.WriteToUDPAddrPort(b, to)
	}
}

// in accepts only packets to the first viewer. The publisher sends each viewer its own copy, and
// one is enough for matching.
func (f *forwarding) in(p captured) (uint64, bool) {
	if p.to != viewerPort {
		return 0, false
	}
	return sequenceIn(p.payload)
}

func (f *forwarding) out(p captured) (uint64, int, bool) {
	s, ok := sequenceIn(p.payload)
	return s, int(p.to) - viewerPort, ok
}

func (f *forwarding) usage() (usage, error) { return usage{}, nil }
func (f *forwarding) check() error          { return nil }

func (f *forwarding) close() {
	_ = f.publisher.Close()
	for _, c := range f.viewers {
		_ = c.Close()
	}
}

// programs runs the fast path's programs without packet protection and without a relay.
type programs struct {
	forwarding
	kernel   *kernel.Forwarder
	attached []*kernel.Attachment
	sink     *net.UDPConn // receives packets meant for the relay
	toRelay  netip.AddrPort
	viewers  int
	stop     chan struct{}
	wg       sync.WaitGroup
}

var programsID = []byte{1, 2, 3, 4} // the packets' connection ID

func startPrograms(l *lab, viewers int) (_ session, err error) {
	p := &programs{
		viewers: viewers, stop: make(chan struct{}),
		toRelay: netip.AddrPortFrom(netip.MustParseAddr(relayUpIP), relayPort),
	}
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	if p.publisher, err = listen(l.publisher, publisherIP, 5000); err != nil {
		return nil, err
	}
	if p.forwarding.viewers, p.to, err = listenViewers(l, viewers); err != nil {
		return nil, err
	}
	if p.sink, err = listen(l.relay, "0.0.0.0", relayPort); err != nil {
		return nil, err
	}
	go discard(p.sink)
	if p.kernel, err = kernel.Open(kernel.Options{
		Port: relayPort, ConnIDLen: len(programsID),
		Unprotected: true,
	}); err != nil {
		return nil, err
	}
	for _, end := range l.ends {
		link, err := end.Link()
		if err != nil {
			return nil, err
		}
		if err := l.relay.Do(func() error {
			a, err := p.kernel.Attach(link.Attrs().Index, false)
			p.attached = append(p.attached, a)
			return err
		}); err != nil {
			return nil, err
		}
	}
	zero := kernel.Keys{Key: make([]byte, 32), IV: make([]byte, 12)}
	src := p.kernel.Source(0)
	src.Clear()
	src.SetKeys(0, zero)
	src.Start(kernel.SourceOptions{
		Remote:    netip.AddrPortFrom(netip.MustParseAddr(publisherIP), 5000),
		HeaderKey: zero.Key,
	})
	var subs []kernel.Subscription
	for i, to := range p.to {
		if err := p.kernel.AddRoute(to); err != nil {
			return nil, err
		}
		v := p.kernel.Viewer(i)
		v.Clear()
		v.SetKeys(0, zero)
		v.Start(kernel.ViewerOptions{Remote: to, HeaderKey: zero.Key, MaxSize: 1452, MaxFrame: 1452})
		v.Give(0, math.MaxInt32, 0)
		v.Allow(math.MaxInt64)
		subs = append(subs, kernel.Subscription{Viewer: i, Alias: wire.AppendVarint(nil, 1), LastGroup: math.MaxUint64})
		if _, err := p.sink.WriteToUDPAddrPort([]byte("route"), to); err != nil {
			return nil, fmt.Errorf("find route to %v: %w", to, err)
		}
	}
	if err := errors.Join(p.kernel.SetConnection(programsID, kernel.Role{Source: 0, Viewer: -1}),
		p.kernel.SetTrack(0, 1, 1, subs)); err != nil {
		return nil, err
	}
	p.kernel.Renew(kernel.Now() + time.Minute)
	p.wg.Go(func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				p.kernel.Drain(func(kernel.Record) {})
			case <-p.stop:
				return
			}
		}
	})
	return p, nil
}

// send sends an unprotected short-header packet with a zero authentication tag.
func (p *programs) send(sequence uint64) {
	o := wire.Datagram{TrackAlias: 1, Group: sequence, DefaultPriority: true, Payload: payload(sequence)}
	object, err := o.Append([]byte{0x30})
	if err != nil {
		panic(err) // the header is well-formed
	}
	b := append([]byte{0x40 | 3}, programsID...)
	b = append(b, byte(sequence>>24), byte(sequence>>16), byte(sequence>>8), byte(sequence))
	b = append(append(b, object...), make([]byte, 16)...)
	_, _ = p.publisher.WriteToUDPAddrPort(b, p.toRelay)
}

func (p *programs) in(c captured) (uint64, bool) { return sequenceIn(c.payload) }

func (p *programs) usage() (usage, error) {
	c, err := p.kernel.Counts()
	if err != nil {
		return usage{}, err
	}
	t, err := p.kernel.Runtime()
	return usage{cpu: t, known: t > 0, kernel: float64(c.Forwarded)}, err
}

func (p *programs) close() {
	close(p.stop)
	p.wg.Wait()
	for _, a := range p.attached {
		if a != nil {
			_ = a.Detach()
		}
	}
	if p.sink != nil {
		_ = p.sink.Close()
	}
	if p.kernel != nil {
		_ = p.kernel.Close()
	}
	if p.publisher != nil {
		p.forwarding.close()
	}
}
