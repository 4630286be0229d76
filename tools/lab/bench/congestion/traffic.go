//go:build linux

package congestion

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/quic-go/quic-go"
	"golang.org/x/sys/unix"

	"holocast/internal/congestion"
	"holocast/internal/devcert"
	"holocast/internal/netlab"
	"holocast/internal/quiccc"
)

// flow carries data from one host to another.
type flow struct {
	transport string
	send      io.WriteCloser             // for bulk data
	frame     func(payload []byte) error // sends one frame; nil for TCP
	estimates func() (congestion.Estimates, bool)

	received atomic.Int64 // bytes read by the application

	// arrived returns the amount of data that has reached the receiving host, in any order and
	// including duplicates: bytes of QUIC packets, or TCP segments.
	arrived func() int64
	frames  frameLog
	close   func()
}

// frameLog records the arrivals of a stream of frames.
type frameLog struct {
	mu     sync.Mutex
	delays []time.Duration
	at     []time.Time
}

func (l *frameLog) add(sent time.Time) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.delays, l.at = append(l.delays, now.Sub(sent)), append(l.at, now)
}

// captured returns the delays of the frames that were captured between from and to and have arrived.
func (l *frameLog) captured(from, to time.Time) []time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	var d []time.Duration
	for i, at := range l.at {
		if c := at.Add(-l.delays[i]); !c.Before(from) && c.Before(to) {
			d = append(d, l.delays[i])
		}
	}
	return d
}

// lines returns the points of a plot: each frame's arrival in seconds after from, and its delay in
// ms.
func (l *frameLog) lines(from time.Time) (t, y []float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, at := range l.at {
		t, y = append(t, at.Sub(from).Seconds()), append(y, ms(l.delays[i]))
	}
	return t, y
}

// place runs a function in a network namespace.
type place func(func() error) error

// here runs do in the current namespace.
func here(do func() error) error { return do() }

// open connects host a to host b of a lab.
func open(ctx context.Context, lab *netlab.Lab, transport string, port uint16) (*flow, error) {
	if lab.Node("a") == nil || lab.Node("b") == nil {
		return nil, errors.New("the topology lacks host a or b")
	}
	a, b := place(lab.Node("a").Namespace.Do), place(lab.Node("b").Namespace.Do)
	addr := netip.AddrPortFrom(lab.Node("b").Addr, port)
	f := &flow{transport: transport}
	if name, ok := strings.CutPrefix(transport, tcpPrefix); ok {
		return f, f.openTCP(ctx, a, b, addr, name)
	}
	return f, f.openQUIC(ctx, a, b, addr)
}

func (f *flow) openTCP(ctx context.Context, a, b place, addr netip.AddrPort, cc string) error {
	var ln net.Listener
	err := b(func() (err error) {
		ln, err = net.Listen("tcp", addr.String())
		return err
	})
	if err != nil {
		return err
	}
	var client net.Conn
	dialer := net.Dialer{Timeout: 10 * time.Second, Control: func(_, _ string, c syscall.RawConn) error {
		var opt error
		err := c.Control(func(fd uintptr) {
			opt = unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, cc)
		})
		return errors.Join(err, opt)
	}}
	if err := a(func() (err error) {
		client, err = dialer.DialContext(ctx, "tcp", addr.String())
		return err
	}); err != nil {
		_ = ln.Close()
		return err
	}
	server, err := ln.Accept()
	_ = ln.Close()
	if err != nil {
		_ = client.Close()
		return err
	}
	if f.arrived, err = segments(server.(*net.TCPConn)); err != nil {
		_ = client.Close()
		_ = server.Close()
		return err
	}
	var wg sync.WaitGroup
	wg.Go(func() { f.count(server) })
	f.send = client
	f.close = func() { _ = client.Close(); _ = server.Close(); wg.Wait() }
	return nil
}

// segments returns a counter of data segments received by c.
func segments(c *net.TCPConn) (func() int64, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	var last atomic.Int64
	return func() int64 {
		_ = raw.Control(func(fd uintptr) { // fails once c is closed
			if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
				last.Store(int64(info.Data_segs_in))
			}
		})
		return last.Load()
	}, nil
}

// count reads r to its end and counts the bytes.
func (f *flow) count(r io.Reader) {
	buf := make([]byte, 256<<10)
	for {
		n, err := r.Read(buf)
		f.received.Add(int64(n))
		if err != nil {
			return
		}
	}
}

const alpn = "holocast-bench"

// receiveWindow exceeds every measured bandwidth-delay product, so that flow control does not limit
// a flow.
const receiveWindow = 64 << 20

func quicConfig() *quic.Config {
	return &quic.Config{
		InitialStreamReceiveWindow: receiveWindow, MaxStreamReceiveWindow: receiveWindow,
		InitialConnectionReceiveWindow: receiveWindow, MaxConnectionReceiveWindow: receiveWindow,
		MaxIncomingUniStreams: 1 << 10,
	}
}

func (f *flow) openQUIC(ctx context.Context, a, b place, addr netip.AddrPort) (err error) {
	cert, err := devcert.Generate(time.Now())
	if err != nil {
		return err
	}
	var serverUDP, clientUDP *net.UDPConn
	if err := b(func() (err error) {
		serverUDP, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(addr))
		return err
	}); err != nil {
		return err
	}
	if err := a(func() (err error) {
		clientUDP, err = net.ListenUDP("udp4", nil)
		return err
	}); err != nil {
		_ = serverUDP.Close()
		return err
	}
	serverTransport, clientTransport := &quic.Transport{Conn: serverUDP}, &quic.Transport{Conn: clientUDP}
	var wg sync.WaitGroup
	f.close = func() {
		_ = clientTransport.Close()
		_ = serverTransport.Close()
		_ = clientUDP.Close()
		_ = serverUDP.Close()
		wg.Wait()
	}
	defer func() {
		if err != nil {
			f.close()
		}
	}()
	ln, err := serverTransport.Listen(&tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{alpn}},
		quicConfig())
	if err != nil {
		return err
	}
	if f.transport != stock {
		if ctx, err = quiccc.WithController(ctx, f.transport); err != nil {
			return err
		}
	}
	client, err := clientTransport.Dial(ctx, serverUDP.LocalAddr(), &tls.Config{
		InsecureSkipVerify: true,
		NextProtos:         []string{alpn},
	}, quicConfig())
	if err != nil {
		return err
	}
	server, err := ln.Accept(ctx)
	if err != nil {
		return err
	}
	wg.Go(func() {
		for {
			s, err := server.AcceptUniStream(context.Background())
			if err != nil {
				return
			}
			wg.Go(func() { f.receive(s) })
		}
	})
	f.arrived = func() int64 { return int64(server.ConnectionStats().BytesReceived) }
	f.estimates = func() (congestion.Estimates, bool) { return quiccc.Estimates(client) }
	f.frame = func(payload []byte) error {
		s, err := client.OpenUniStream()
		if err != nil {
			return err
		}
		if _, err := s.Write(payload); err != nil {
			return err
		}
		return s.Close()
	}
	f.send = &bulk{client: client}
	return nil
}

// bulk opens a stream on its first write.
type bulk struct {
	client *quic.Conn
	s      *quic.SendStream
}

func (b *bulk) Write(p []byte) (int, error) {
	if b.s == nil {
		s, err := b.client.OpenUniStream()
		if err != nil {
			return 0, err
		}
		b.s = s
	}
	return b.s.Write(p)
}

func (b *bulk) Close() error { return nil }

// frameHeader holds a frame's capture time in Unix ns, or 0 for bulk data.
const frameHeader = 8

func (f *flow) receive(s io.Reader) {
	var header [frameHeader]byte
	if _, err := io.ReadFull(s, header[:]); err != nil {
		return
	}
	f.received.Add(frameHeader)
	captured := int64(binary.BigEndian.Uint64(header[:]))
	f.count(s)
	if captured != 0 {
		f.frames.add(time.Unix(0, captured))
	}
}

// runBulk sends continuously until ctx is done.
func (f *flow) runBulk(ctx context.Context) error {
	stop := context.AfterFunc(ctx, f.close)
	defer stop()
	data := make([]byte, 4<<20) // the size of a kernel socket buffer
	for ctx.Err() == nil {
		if _, err := f.send.Write(data); err != nil && ctx.Err() == nil {
			return fmt.Errorf("%s: send: %w", f.transport, err)
		}
	}
	return nil
}

// runFrames sends a frame of size bytes per interval until ctx is done, and returns the number of
// frames. Each is written by its own goroutine, since a live source does not wait for the previous
// frame.
func (f *flow) runFrames(ctx context.Context, interval time.Duration, size int) (captured int, err error) {
	var wg sync.WaitGroup
	defer wg.Wait()
	stop := context.AfterFunc(ctx, f.close)
	defer stop()
	tick := time.NewTicker(interval)
	defer tick.Stop()
	var failed atomic.Value
	for {
		select {
		case <-ctx.Done():
			return captured, nil
		case now := <-tick.C:
			captured++
			frame := make([]byte, size)
			binary.BigEndian.PutUint64(frame, uint64(now.UnixNano()))
			wg.Go(func() {
				if err := f.frame(frame); err != nil && ctx.Err() == nil {
					failed.CompareAndSwap(nil, fmt.Errorf("frame %d: %w", captured, err))
				}
			})
			if err, ok := failed.Load().(error); ok {
				return captured, err
			}
		}
	}
}
