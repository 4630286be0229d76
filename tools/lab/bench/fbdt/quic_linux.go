package fbdt

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/quic-go/quic-go"

	"holocast/internal/devcert"
	"holocast/internal/fbdt"
	"holocast/internal/multipath"
	"holocast/internal/quiccc"
)

// bundle sends each window on its own stream, in order, over one or several QUIC connections.
type bundle struct {
	stream  func(order uint64) (io.WriteCloser, error) // at the server; lower orders go first
	accept  func(context.Context) (io.Reader, error)   // at the client
	meter   *meter                                     // nil for one connection
	ctx     context.Context
	cancel  context.CancelFunc
	reading sync.WaitGroup
	opening sync.Mutex
	closing []func() error // in reverse order
}

// receiveWindow exceeds every bandwidth-delay product in the benchmark.
const receiveWindow = 64 << 20

func quicConfig() *quic.Config {
	return &quic.Config{
		InitialStreamReceiveWindow: receiveWindow, MaxStreamReceiveWindow: receiveWindow,
		InitialConnectionReceiveWindow: receiveWindow, MaxConnectionReceiveWindow: receiveWindow,
		MaxIncomingUniStreams: 1 << 14, MaxIncomingStreams: 1 << 10, EnableDatagrams: true,
		MaxIdleTimeout: idleLimit,
	}
}

// urgency of all streams.
const urgency = 3

// idleLimit exceeds every outage in the benchmark.
const idleLimit = 30 * time.Second

// single is the ALPN protocol of a connection outside a bundle.
const single = "holocast-bench"

// dialQUIC connects to the server over all radios in from, or only over the first one if scheduler is nil.
func dialQUIC(ctx context.Context, r *radios, from []radio, scheduler func() fbdt.Scheduler) (b *bundle, err error) {
	b = &bundle{}
	b.ctx, b.cancel = context.WithCancel(context.WithoutCancel(ctx))
	defer func() {
		if err != nil {
			b.close()
		}
	}()
	protocol := single
	if scheduler != nil {
		protocol = multipath.ProtocolPrefix + "bench"
	}
	ln, pinned, err := b.listen(r, protocol)
	if err != nil {
		return nil, err
	}
	dial := func(radio radio) func(context.Context) (*quic.Conn, error) {
		var transport *quic.Transport
		return func(ctx context.Context) (*quic.Conn, error) {
			if transport == nil {
				t, err := b.transport(r.client, netip.AddrPortFrom(radio.addr, 0))
				if err != nil {
					return nil, err
				}
				transport = t
			}
			return transport.Dial(ctx, ln.Addr(), pinned, quicConfig())
		}
	}
	dialing, cancel := context.WithTimeout(ctx, dialLimit)
	defer cancel()
	if scheduler == nil {
		return b, b.dialOne(dialing, ln, dial(from[0]))
	}
	return b, b.dialAll(dialing, ln, from, dial, scheduler)
}

// listen opens the server's socket.
func (b *bundle) listen(r *radios, protocol string) (*quic.Listener, *tls.Config, error) {
	transport, err := b.transport(r.host, netip.AddrPortFrom(r.server, 0))
	if err != nil {
		return nil, nil, err
	}
	if transport.ConnContext, err = quiccc.ConnContext(quiccc.Default); err != nil {
		return nil, nil, err
	}
	cert, err := devcert.Generate(time.Now(), r.server.String())
	if err != nil {
		return nil, nil, err
	}
	ln, err := transport.Listen(&tls.Config{
		Certificates: []tls.Certificate{cert}, NextProtos: []string{protocol},
	}, quicConfig())
	if err != nil {
		return nil, nil, err
	}
	b.closing = append(b.closing, ln.Close)
	pinned := devcert.Pinned(devcert.Hash(cert))
	pinned.NextProtos = []string{protocol}
	return ln, pinned, nil
}

// transport opens a UDP socket.
func (b *bundle) transport(in func(func() error) error, addr netip.AddrPort) (*quic.Transport, error) {
	var socket *net.UDPConn
	if err := in(func() (err error) {
		socket, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(addr))
		return err
	}); err != nil {
		return nil, err
	}
	t := &quic.Transport{Conn: socket}
	b.opening.Lock()
	defer b.opening.Unlock()
	b.closing = append(b.closing, socket.Close, t.Close)
	return t, nil
}

func (b *bundle) dialOne(ctx context.Context, ln *quic.Listener, dial func(context.Context) (*quic.Conn, error)) error {
	client, err := dial(ctx)
	if err != nil {
		return err
	}
	server, err := ln.Accept(ctx)
	if err != nil {
		return err
	}
	b.stream = func(order uint64) (io.WriteCloser, error) {
		s, err := server.OpenUniStreamSync(b.ctx)
		if err != nil {
			return nil, err
		}
		if s, ok := any(s).(interface{ SetOrder(order uint64) }); ok { // patched quic-go
			s.SetOrder(order)
		}
		return s, nil
	}
	b.accept = func(ctx context.Context) (io.Reader, error) { return client.AcceptUniStream(ctx) }
	return nil
}

func (b *bundle) dialAll(ctx context.Context, ln *quic.Listener, from []radio,
	dial func(radio) func(context.Context) (*quic.Conn, error), scheduler func() fbdt.Scheduler,
) error {
	quiet := slog.New(slog.DiscardHandler)
	accepted := make(chan *multipath.Conn, 1)
	server := multipath.NewServer()
	b.reading.Go(func() {
		for {
			qc, err := ln.Accept(b.ctx)
			if err != nil {
				return
			}
			b.reading.Go(func() {
				c, err := server.Accept(b.ctx, qc, multipath.Config{
					Log: quiet, Scheduler: func() fbdt.Scheduler {
						b.meter = newMeter(scheduler())
						return b.meter
					},
				})
				if err == nil && c != nil {
					accepted <- c
				}
			})
		}
	})
	paths := make([]multipath.Path, len(from))
	for i, radio := range from {
		paths[i] = multipath.Path{Name: radio.name, Dial: dial(radio)}
	}
	client, _, err := multipath.Dial(ctx, paths, multipath.Config{Log: quiet})
	if err != nil {
		return err
	}
	if client == nil {
		return errors.New("the server does not support multipath")
	}
	b.closing = append(b.closing, func() error { return client.CloseWithError(0, "") })
	select {
	case c := <-accepted:
		b.stream = func(order uint64) (io.WriteCloser, error) {
			s, err := c.OpenUniStreamSync(b.ctx)
			if err != nil {
				return nil, err
			}
			s.SetPriority(urgency, order)
			return s, nil
		}
		b.closing = append(b.closing, func() error { return c.CloseWithError(0, "") })
	case <-ctx.Done():
		return fmt.Errorf("wait for the bundle at the server: %w", ctx.Err())
	}
	b.accept = func(ctx context.Context) (io.Reader, error) { return client.AcceptUniStream(ctx) }
	return nil
}

func (b *bundle) receive(r *receiver, size int) {
	b.reading.Go(func() {
		for {
			s, err := b.accept(b.ctx)
			if err != nil {
				return
			}
			b.reading.Go(func() {
				buf := make([]byte, size)
				if r.read(s, buf) == nil {
					_, _ = io.Copy(io.Discard, s) // reading to the end returns the stream's credit
				}
			})
		}
	})
}

func (b *bundle) open(number uint64) (io.WriteCloser, error) { return b.stream(number) }

func (b *bundle) mark() figures {
	if b.meter == nil {
		return figures{}
	}
	return b.meter.mark()
}

func (b *bundle) close() {
	b.cancel()
	b.opening.Lock()
	closing := b.closing
	b.opening.Unlock()
	for i := len(closing) - 1; i >= 0; i-- {
		_ = closing[i]()
	}
	b.reading.Wait()
}
