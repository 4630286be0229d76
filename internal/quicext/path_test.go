package quicext

import (
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"
)

// path is a UDP proxy between one client and a server. It delays packets and drops and reorders the
// server's.
type path struct {
	delay         time.Duration
	loss, reorder float64 // fractions of the server's packets

	client, server *net.UDPConn // sockets facing the client and the server
	done           sync.WaitGroup

	mu       sync.Mutex
	rand     *rand.Rand
	captured [][]byte // short-header packets of the server
	dropped  []bool
	seenAt   []time.Time // by the proxy
}

// newPath creates a path to a server. addr is the address to dial.
func newPath(t *testing.T, server net.Addr, delay time.Duration, loss, reorder float64) (p *path, addr net.Addr) {
	t.Helper()
	p = &path{delay: delay, loss: loss, reorder: reorder, rand: rand.New(rand.NewPCG(1, 2))}
	var err error
	if p.client, err = net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}); err != nil {
		t.Fatal(err)
	}
	if p.server, err = net.DialUDP("udp4", nil, server.(*net.UDPAddr)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []*net.UDPConn{p.client, p.server} {
		_ = c.SetReadBuffer(4 << 20)
	}
	var clientAddr *net.UDPAddr
	known := make(chan struct{})
	toServer, toClient, late := p.line(
		func(b []byte) { _, _ = p.server.Write(b) },
	), p.line(
		p.toClient(&clientAddr),
	), p.line(
		p.toClient(&clientAddr),
	)
	p.done.Go(func() {
		defer close(toServer)
		for first := true; ; first = false {
			b := make([]byte, 2048)
			n, from, err := p.client.ReadFromUDP(b)
			if err != nil {
				return
			}
			if first {
				clientAddr = from
				close(known)
			}
			toServer <- parcel{time.Now().Add(delay), b[:n]}
		}
	})
	p.done.Go(func() {
		defer close(toClient)
		defer close(late)
		for {
			b := make([]byte, 2048)
			n, err := p.server.Read(b)
			if err != nil {
				return
			}
			<-known
			switch b = b[:n]; p.fate(b) {
			case 0:
				toClient <- parcel{time.Now().Add(delay), b}
			case 1:
				late <- parcel{time.Now().Add(delay * 3 / 2), b}
			}
		}
	})
	t.Cleanup(func() {
		_ = p.client.Close()
		_ = p.server.Close()
		p.done.Wait()
	})
	return p, p.client.LocalAddr()
}

type parcel struct {
	at time.Time
	b  []byte
}

// line delivers packets in order, at their times.
func (p *path) line(deliver func([]byte)) chan<- parcel {
	c := make(chan parcel, 1<<14)
	p.done.Go(func() {
		for q := range c {
			time.Sleep(time.Until(q.at))
			deliver(q.b)
		}
	})
	return c
}

func (p *path) toClient(addr **net.UDPAddr) func([]byte) {
	return func(b []byte) { _, _ = p.client.WriteToUDP(b, *addr) }
}

// fate returns 0 for in time, 1 for late and 2 for lost. Handshake packets are never late or lost.
func (p *path) fate(b []byte) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if b[0]&0x80 != 0 {
		return 0
	}
	fate := 0
	switch r := p.rand.Float64(); {
	case r < p.loss:
		fate = 2
	case r < p.loss+p.reorder:
		fate = 1
	}
	p.captured = append(p.captured, b)
	p.dropped = append(p.dropped, fate == 2)
	p.seenAt = append(p.seenAt, time.Now())
	return fate
}
