package multipath_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quic-go/quic-go"

	"holocast/internal/devcert"
	"holocast/internal/leaktest"
	"holocast/internal/multipath"
	"holocast/internal/quiccc"
	"holocast/internal/sessiontest/fakepath"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

const protocol = multipath.ProtocolPrefix + "test"

// faults drops, duplicates and reorders the packets that one end sends.
type faults struct {
	net.PacketConn
	cut       *atomic.Bool
	duplicate int // interval in packets; 0 = never
	reorder   int
	mu        sync.Mutex
	count     int
	held      []byte
}

func (f *faults) WriteTo(b []byte, to net.Addr) (int, error) {
	if f.cut.Load() {
		return len(b), nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.count++
	if f.reorder > 0 && f.held == nil && f.count%f.reorder == 0 {
		f.held = append([]byte(nil), b...)
		return len(b), nil
	}
	n, err := f.PacketConn.WriteTo(b, to)
	if f.held != nil {
		_, _ = f.PacketConn.WriteTo(f.held, to)
		f.held = nil
	}
	if f.duplicate > 0 && f.count%f.duplicate == 0 {
		_, _ = f.PacketConn.WriteTo(b, to)
	}
	return n, err
}

// link describes a path of the lab.
type link struct {
	rate               float64 // bytes/s; 0 = unlimited
	delay              time.Duration
	duplicate, reorder int
	slow               *atomic.Bool // while true, a byte a second
}

// lab is a server and a client with several paths between them.
type lab struct {
	t       *testing.T
	server  *multipath.Server
	cuts    []*atomic.Bool
	paths   []multipath.Path
	bundles chan *multipath.Conn
	cfg     multipath.Config
}

var quicConfig = &quic.Config{
	EnableDatagrams: true, EnableStreamResetPartialDelivery: true, MaxIncomingUniStreams: 1 << 10,
	InitialStreamReceiveWindow: 2 << 20, InitialConnectionReceiveWindow: 48 << 20,
	MaxIdleTimeout: 5 * time.Second, KeepAlivePeriod: 1500 * time.Millisecond, InitialPacketSize: 1200,
}

// newLab returns a lab. It must be called in a synctest bubble.
func newLab(t *testing.T, protocols []string, links ...link) *lab {
	t.Helper()
	l := &lab{t: t, server: multipath.NewServer(), bundles: make(chan *multipath.Conn, 16)}
	l.cfg.Log = slog.New(slog.DiscardHandler)
	cert, err := devcert.Generate(time.Now(), "192.0.2.1")
	if err != nil {
		t.Fatal(err)
	}
	connContext, err := quiccc.ConnContext("")
	if err != nil {
		t.Fatal(err)
	}
	for i, k := range links {
		d := fakepath.Direction{Delay: k.delay, Queue: 200 * time.Millisecond}
		if k.rate > 0 {
			d.Rate = func(int) float64 {
				if k.slow != nil && k.slow.Load() {
					return 1
				}
				return k.rate
			}
		}
		path := fakepath.New(d, d)
		t.Cleanup(path.Close)
		cut := new(atomic.Bool)
		l.cuts = append(l.cuts, cut)
		end := func(e *fakepath.End) *quic.Transport {
			tr := &quic.Transport{Conn: &faults{PacketConn: e, cut: cut, duplicate: k.duplicate, reorder: k.reorder}}
			t.Cleanup(func() { _ = tr.Close() })
			return tr
		}
		a, b := end(path.A), end(path.B)
		a.ConnContext = connContext
		ln, err := a.Listen(&tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: protocols}, quicConfig)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = ln.Close() })
		go l.accept(ln)
		l.paths = append(l.paths, multipath.Path{
			Name: "p" + strconv.Itoa(i),
			Dial: func(ctx context.Context) (*quic.Conn, error) {
				ctx, err := quiccc.WithController(ctx, "")
				if err != nil {
					return nil, err
				}
				conf := devcert.Pinned(devcert.Hash(cert))
				conf.NextProtos = []string{protocol, "plain"}
				return b.Dial(ctx, path.A.LocalAddr(), conf, quicConfig)
			},
		})
	}
	return l
}

func (l *lab) accept(ln *quic.Listener) {
	for {
		qc, err := ln.Accept(context.Background())
		if err != nil {
			return
		}
		if qc.ConnectionState().TLS.NegotiatedProtocol != protocol {
			continue
		}
		go func() {
			if c, _ := l.server.Accept(context.Background(), qc, l.cfg); c != nil {
				l.bundles <- c
			}
		}()
	}
}

// connect returns both ends of a bundle.
func (l *lab) connect() (client, server *multipath.Conn) {
	l.t.Helper()
	client, _, err := multipath.Dial(l.t.Context(), l.paths, l.cfg)
	if err != nil || client == nil {
		l.t.Fatal("no bundle:", err)
	}
	server = <-l.bundles
	l.t.Cleanup(func() {
		_ = client.CloseWithError(0, "")
		<-server.Context().Done()
	})
	return client, server
}

// joined waits until a bundle has n paths.
func joined(t *testing.T, c *multipath.Conn, n int) {
	t.Helper()
	for range 1000 {
		if up(c) == n {
			return
		}
		time.Sleep(10 * time.Millisecond) // of the bubble
	}
	t.Fatalf("%d paths are up, want %d: %+v", up(c), n, c.Paths())
}

// up returns the number of a bundle's paths that are up.
func up(c *multipath.Conn) (n int) {
	for _, p := range c.Paths() {
		if !p.Down {
			n++
		}
	}
	return n
}

// pattern is a stream whose bytes depend on their offset.
type pattern struct{ seed, at, size int }

func (p *pattern) Read(b []byte) (int, error) {
	if p.at == p.size {
		return 0, io.EOF
	}
	b = b[:min(len(b), p.size-p.at)]
	for i := range b {
		b[i] = p.value(p.at + i)
	}
	p.at += len(b)
	return len(b), nil
}

func (p *pattern) value(at int) byte { return byte(at ^ at>>8*31 ^ at>>16*17 ^ p.seed) }

// check reads r to its end and compares it with the pattern.
func (p *pattern) check(r io.Reader) error {
	b := make([]byte, 8<<10)
	for {
		n, err := r.Read(b)
		for i, v := range b[:n] {
			if v != p.value(p.at+i) {
				return errors.New("wrong byte at " + strconv.Itoa(p.at+i))
			}
		}
		p.at += n
		if err == io.EOF && p.at != p.size {
			return errors.New("the stream ends at " + strconv.Itoa(p.at) + " of " + strconv.Itoa(p.size))
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
