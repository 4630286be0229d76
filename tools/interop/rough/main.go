// Command rough relays UDP packets to a server and back like a bad path. It drops, duplicates and
// reorders packets, and from time to time changes the source addresses that the server sees, like a
// NAT that lost its bindings.
package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/pflag"
)

// conditions apply in both directions.
type conditions struct {
	loss, duplication, reordering float64       // ratios of packets
	move                          time.Duration // interval between address changes; 0 = never
}

const overtaken = 5 * time.Millisecond // maximum delay of a reordered packet

func main() {
	var c conditions
	f := pflag.NewFlagSet("rough", pflag.ExitOnError)
	f.Float64Var(&c.loss, "loss", 0.01, "ratio of lost packets")
	f.Float64Var(&c.duplication, "duplicate", 0.01, "ratio of duplicated packets")
	f.Float64Var(&c.reordering, "reorder", 0.01, "ratio of reordered packets")
	f.DurationVar(&c.move, "move", 5*time.Second, "time between changes of the clients' addresses; 0 = never")
	_ = f.Parse(os.Args[1:])
	if f.NArg() != 2 {
		fmt.Fprintln(os.Stderr, "usage: rough [flags] LISTEN SERVER")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	p, err := listen(f.Arg(0), f.Arg(1), c)
	if err != nil {
		fmt.Fprintln(os.Stderr, "rough:", err)
		os.Exit(1)
	}
	fmt.Println("listening")
	<-ctx.Done()
	p.close()
	fmt.Println(p)
}

// path is a bad path to one server.
type path struct {
	conditions
	front  *net.UDPConn
	server *net.UDPAddr
	wg     sync.WaitGroup
	stop   context.CancelFunc

	mu    sync.Mutex
	flows map[string]*flow // by client address

	packets, lost, duplicated, reordered, moves atomic.Int64
}

// flow holds one client's sockets.
type flow struct {
	client *net.UDPAddr
	mu     sync.Mutex
	back   *net.UDPConn // the address that the server sees
}

func listen(addr, server string, c conditions) (*path, error) {
	at, err1 := net.ResolveUDPAddr("udp", addr)
	to, err2 := net.ResolveUDPAddr("udp", server)
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	front, err := net.ListenUDP("udp", at)
	if err != nil {
		return nil, err
	}
	_ = front.SetReadBuffer(4 << 20)
	ctx, stop := context.WithCancel(context.Background())
	p := &path{conditions: c, front: front, server: to, stop: stop, flows: map[string]*flow{}}
	p.wg.Go(p.forth)
	if c.move > 0 {
		p.wg.Go(func() { p.moveAll(ctx) })
	}
	return p, nil
}

// String returns the path's statistics.
func (p *path) String() string {
	return fmt.Sprintf("packets %d lost %d duplicated %d reordered %d moves %d",
		p.packets.Load(), p.lost.Load(), p.duplicated.Load(), p.reordered.Load(), p.moves.Load())
}

func (p *path) close() {
	p.stop()
	_ = p.front.Close()
	p.mu.Lock()
	for _, f := range p.flows {
		f.mu.Lock()
		_ = f.back.Close()
		f.mu.Unlock()
	}
	p.mu.Unlock()
	p.wg.Wait()
}

// forth forwards packets to the server.
func (p *path) forth() {
	for b := make([]byte, 1<<16); ; {
		n, from, err := p.front.ReadFromUDP(b)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // the client is gone
		}
		if f := p.flow(from); f != nil {
			p.pass(b[:n], func(b []byte) {
				f.mu.Lock()
				defer f.mu.Unlock()
				_, _ = f.back.Write(b)
			})
		}
	}
}

// flow returns the client's flow, creating it if needed. It returns nil if it cannot open a socket.
func (p *path) flow(client *net.UDPAddr) *flow {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := p.flows[client.String()]
	if f == nil {
		f = &flow{client: client}
		if p.place(f) != nil {
			return nil
		}
		p.flows[client.String()] = f
	}
	return f
}

// place gives a flow a new socket connected to the server.
func (p *path) place(f *flow) error {
	c, err := net.DialUDP("udp", nil, p.server)
	if err != nil {
		return err
	}
	_ = c.SetReadBuffer(4 << 20)
	f.mu.Lock()
	old := f.back
	f.back = c
	f.mu.Unlock()
	if old != nil {
		_ = old.Close()
	}
	p.wg.Go(func() {
		for b := make([]byte, 1<<16); ; {
			n, err := c.Read(b)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil {
				continue // the server does not listen
			}
			p.pass(b[:n], func(b []byte) { _, _ = p.front.WriteToUDP(b, f.client) })
		}
	})
	return nil
}

func (p *path) moveAll(ctx context.Context) {
	tick := time.NewTicker(p.move)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		p.mu.Lock()
		for _, f := range p.flows {
			if ctx.Err() == nil && p.place(f) == nil {
				p.moves.Add(1)
			}
		}
		p.mu.Unlock()
	}
}

// pass sends a packet once or twice, immediately or delayed, or drops it.
func (p *path) pass(b []byte, send func([]byte)) {
	p.packets.Add(1)
	if rand.Float64() < p.loss {
		p.lost.Add(1)
		return
	}
	if rand.Float64() < p.reordering {
		p.reordered.Add(1)
		later := append([]byte(nil), b...)
		time.AfterFunc(rand.N(overtaken), func() { send(later) })
		return
	}
	send(b)
	if rand.Float64() < p.duplication {
		p.duplicated.Add(1)
		send(b)
	}
}
