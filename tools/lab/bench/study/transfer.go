//go:build linux

package study

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

	"holocast/internal/devcert"
	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/netlab"
	"holocast/internal/origin"
	"holocast/internal/quiccc"
	"holocast/tools/lab/bench/internal/direct"
)

// A transfer carries segments from host a, the server, to host b, the client, which dials.
type transfer struct {
	id   ID
	lab  *netlab.Lab
	sink sink

	// send sends a segment. It may return before it is sent.
	send func(ctx context.Context, segment []byte) error

	// sample returns the sender's congestion window in bytes and smoothed round-trip time, 0 if unknown.
	sample func() (window int64, rtt time.Duration)

	began   time.Time // just before dialing
	closing []func()  // in reverse order
	working sync.WaitGroup
}

// A segment begins with its capture time (Unix ns, 8 bytes) and its length (4 bytes).
const segmentHeader = 12

func newSegment(n int) []byte {
	s := make([]byte, max(n, segmentHeader))
	binary.BigEndian.PutUint64(s, uint64(time.Now().UnixNano()))
	binary.BigEndian.PutUint32(s[8:], uint32(len(s)))
	return s
}

// capturedAt returns a segment's capture time.
func capturedAt(segment []byte) time.Time {
	return time.Unix(0, int64(binary.BigEndian.Uint64(segment)))
}

// sink counts what the client receives.
type sink struct {
	bytes atomic.Int64
	last  atomic.Int64 // Unix ns of the last arrival
	all   chan struct{}
	want  int64 // bytes, after which all is closed

	mu     sync.Mutex
	frames []frame
}

// frame is a complete segment.
type frame struct{ captured, arrived time.Time }

func (s *sink) count(n int) {
	s.last.Store(time.Now().UnixNano())
	if total := s.bytes.Add(int64(n)); s.want > 0 && total >= s.want && total-int64(n) < s.want {
		close(s.all)
	}
}

func (s *sink) complete(header []byte) {
	f := frame{capturedAt(header), time.Now()}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.frames = append(s.frames, f)
}

// read reads segments until r ends.
func (s *sink) read(r io.Reader) {
	buf := make([]byte, 256<<10)
	for {
		header := buf[:segmentHeader]
		if _, err := io.ReadFull(r, header); err != nil {
			return
		}
		s.count(segmentHeader)
		stamp := [segmentHeader]byte(header)
		for left := int(binary.BigEndian.Uint32(header[8:])) - segmentHeader; left > 0; {
			n, err := r.Read(buf[:min(left, len(buf))])
			s.count(n)
			if left -= n; err != nil && left > 0 {
				return
			}
		}
		s.complete(stamp[:])
	}
}

// open starts a transfer. The caller closes it, also after an error.
func open(ctx context.Context, lab *netlab.Lab, id ID, want int64, tcp map[string]string) (*transfer, error) {
	t := &transfer{id: id, lab: lab, sink: sink{all: make(chan struct{}), want: want}}
	t.sample = func() (int64, time.Duration) { return 0, 0 }
	name := id.Transport
	var err error
	switch controller, segments := strings.CutSuffix(strings.TrimPrefix(name, quicPrefix), perSegment); {
	case name == udp:
		err = t.openUDP(0)
	case name == udpPaced:
		err = t.openUDP(udpRate)
	case name == moqtName || name == webTransport:
		err = t.openMOQT(ctx)
	case strings.HasPrefix(name, tcpPrefix):
		err = t.openTCP(ctx, tcp[strings.TrimPrefix(name, tcpPrefix)])
	default:
		err = t.openQUIC(ctx, controller, segments)
	}
	if err != nil {
		return t, fmt.Errorf("%s: %w", name, err)
	}
	return t, nil
}

func (t *transfer) onClose(f func()) { t.closing = append(t.closing, f) }

func (t *transfer) close() {
	for i := len(t.closing) - 1; i >= 0; i-- {
		t.closing[i]()
	}
	t.working.Wait()
}

func (t *transfer) server(do func() error) error { return t.lab.Node("a").Namespace.Do(do) }

func (t *transfer) client(do func() error) error { return t.lab.Node("b").Namespace.Do(do) }

func (t *transfer) address() netip.AddrPort { return netip.AddrPortFrom(t.lab.Node("a").Addr, 4433) }

// bytes is the size of buffers and windows.
func (t *transfer) buffer() int { return t.id.KiB << 10 }

func control(set func(fd int) error) func(string, string, syscall.RawConn) error {
	return func(_, _ string, c syscall.RawConn) error {
		var failed error
		err := c.Control(func(fd uintptr) { failed = set(int(fd)) })
		return errors.Join(err, failed)
	}
}

// buffers sets a socket's send and receive buffers. The kernel doubles the values, for its own
// bookkeeping.
func (t *transfer) buffers(fd int) error {
	return errors.Join(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, t.buffer()),
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, t.buffer()))
}

func (t *transfer) openTCP(ctx context.Context, controller string) error {
	var listener net.Listener
	listen := net.ListenConfig{Control: control(func(fd int) error {
		return errors.Join(t.buffers(fd), unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, controller))
	})}
	listen.SetMultipathTCP(false)
	if err := t.server(func() (err error) {
		listener, err = listen.Listen(ctx, "tcp4", t.address().String())
		return err
	}); err != nil {
		return err
	}
	t.onClose(func() { _ = listener.Close() })
	var client net.Conn
	dialer := net.Dialer{Control: control(t.buffers)}
	if err := t.client(func() (err error) {
		t.began = time.Now()
		client, err = dialer.DialContext(ctx, "tcp4", t.address().String())
		return err
	}); err != nil {
		return err
	}
	t.onClose(func() { _ = client.Close() })
	t.working.Go(func() { t.sink.read(client) })
	server, err := listener.Accept()
	if err != nil {
		return err
	}
	t.onClose(func() { _ = server.Close() })
	t.send = t.inOrder(server)
	raw, err := server.(*net.TCPConn).SyscallConn()
	if err != nil {
		return err
	}
	t.sample = func() (window int64, rtt time.Duration) {
		_ = raw.Control(func(fd uintptr) { // fails once the connection is closed
			if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
				window, rtt = int64(info.Snd_cwnd)*int64(info.Snd_mss), time.Duration(info.Rtt)*time.Microsecond
			}
		})
		return window, rtt
	}
	return nil
}

// inOrder returns a send function that queues segments for one stream.
func (t *transfer) inOrder(w io.Writer) func(context.Context, []byte) error {
	queue := make(chan []byte, 1<<14)
	var failed atomic.Value
	stop := make(chan struct{})
	t.onClose(func() { close(stop) })
	t.working.Go(func() {
		for {
			select {
			case <-stop:
				return
			case segment := <-queue:
				if _, err := w.Write(segment); err != nil {
					failed.Store(err)
					return
				}
			}
		}
	})
	return func(ctx context.Context, segment []byte) error {
		if err, ok := failed.Load().(error); ok {
			return err
		}
		select {
		case queue <- segment:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

const alpn = "holocast-study"

func (t *transfer) quicConfig(segments bool) *quic.Config {
	stream := uint64(t.buffer())
	all := stream
	if segments {
		all *= streams
	}
	return &quic.Config{
		InitialStreamReceiveWindow: stream, MaxStreamReceiveWindow: stream, InitialConnectionReceiveWindow: all,
		MaxConnectionReceiveWindow: all, MaxIncomingUniStreams: 1 << 12,
	}
}

// udpSockets opens a socket at each host, until the transfer closes.
func (t *transfer) udpSockets() (server, client *net.UDPConn, err error) {
	for _, s := range []struct {
		socket **net.UDPConn
		host   func(func() error) error
		addr   netip.AddrPort
	}{{&server, t.server, t.address()}, {&client, t.client, netip.AddrPort{}}} {
		if err := s.host(func() (err error) {
			*s.socket, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(s.addr))
			return err
		}); err != nil {
			return nil, nil, err
		}
		t.onClose(func() { _ = (*s.socket).Close() })
	}
	return server, client, nil
}

func (t *transfer) openQUIC(ctx context.Context, controller string, segments bool) error {
	cert, err := devcert.Generate(time.Now(), t.address().Addr().String())
	if err != nil {
		return err
	}
	connContext, err := quiccc.ConnContext(controller)
	if err != nil {
		return err
	}
	serverUDP, clientUDP, err := t.udpSockets()
	if err != nil {
		return err
	}
	serverSide := &quic.Transport{Conn: serverUDP, ConnContext: connContext}
	clientSide := &quic.Transport{Conn: clientUDP}
	t.onClose(func() {
		_ = clientSide.Close()
		_ = serverSide.Close()
	})
	listener, err := serverSide.Listen(&tls.Config{
		Certificates: []tls.Certificate{cert}, NextProtos: []string{alpn},
	}, t.quicConfig(segments))
	if err != nil {
		return err
	}
	trusted := devcert.Pinned(devcert.Hash(cert))
	trusted.NextProtos = []string{alpn}
	t.began = time.Now()
	client, err := clientSide.Dial(ctx, serverUDP.LocalAddr(), trusted, t.quicConfig(segments))
	if err != nil {
		return err
	}
	t.working.Go(func() {
		for {
			s, err := client.AcceptUniStream(context.Background())
			if err != nil {
				return
			}
			t.working.Go(func() { t.sink.read(s) })
		}
	})
	server, err := listener.Accept(ctx)
	if err != nil {
		return err
	}
	t.sample = func() (int64, time.Duration) {
		e, _ := quiccc.Estimates(server)
		return e.Window, e.SmoothedRTT
	}
	if !segments {
		s, err := server.OpenUniStream()
		if err != nil {
			return err
		}
		t.send = t.inOrder(s)
		return nil
	}
	t.send = func(_ context.Context, segment []byte) error {
		s, err := server.OpenUniStream()
		if err != nil {
			return err
		}
		t.working.Go(func() {
			if _, err := s.Write(segment); err == nil { // fails when the transfer ends
				_ = s.Close()
			}
		})
		return nil
	}
	return nil
}

var trackName = moqt.TrackName{Namespace: moqt.Namespace{"holocast", "study"}, Name: "points/0/full"}

func subgroup(group uint64) wire.SubgroupHeader {
	return wire.SubgroupHeader{
		Group: group, Mode: wire.SubgroupIDExplicit, Priority: wire.DefaultPriority, FirstObject: true, EndOfGroup: true,
	}
}

// openMOQT sends frames as the capture server does, with a delivery timeout, and an object's segments
// as groups without one.
func (t *transfer) openMOQT(ctx context.Context) error {
	var handler moqt.Handler
	accepted := make(chan *moqt.Publication, 1)
	group := uint64(0)
	if t.id.Load == framesLoad {
		ms := uint64(frameDeadline.Milliseconds())
		track := origin.NewTrack(trackName, wire.AppendKeyValues(nil,
			wire.KeyValue{Type: wire.PropertyObjectDeliveryTimeout, Int: ms},
			wire.KeyValue{Type: wire.PropertySubgroupDeliveryTimeout, Int: ms}), origin.Limits{})
		var set origin.Set
		set.Add(track)
		handler = set.Handler()
		t.send = func(_ context.Context, segment []byte) error {
			group++
			return track.WriteObject(subgroup(group), moqt.Object{}, segment)
		}
	} else {
		handler.Subscribe = func(r *moqt.SubscribeRequest) {
			if p, err := r.Accept(moqt.TrackInfo{}); err == nil {
				accepted <- p
			}
		}
	}
	var server *direct.Server
	if err := t.server(func() (err error) {
		server, err = direct.Listen(t.address().Addr(), handler)
		return err
	}); err != nil {
		return err
	}
	t.onClose(func() { _ = server.Close() })
	var session *moqt.Session
	if err := t.client(func() (err error) {
		t.began = time.Now()
		dial := server.Dial
		if t.id.Transport == webTransport {
			dial = server.DialWebTransport
		}
		session, err = dial(ctx)
		return err
	}); err != nil {
		return err
	}
	t.onClose(func() { session.Close(wire.NoError, "") })
	sub, err := session.Subscribe(ctx, trackName, moqt.SubscribeOptions{})
	if err != nil {
		return err
	}
	t.working.Go(func() {
		for {
			sg, err := sub.AcceptSubgroup(context.Background())
			if err != nil {
				return
			}
			t.working.Go(func() {
				if _, err := sg.NextObject(); err != nil {
					return
				}
				t.sink.read(sg)
				_, _ = sg.NextObject() // reading to the end releases the stream
			})
		}
	})
	if t.id.Load == framesLoad {
		return nil
	}
	var pub *moqt.Publication
	select {
	case pub = <-accepted:
	case <-ctx.Done():
		return ctx.Err()
	}
	t.send = func(_ context.Context, segment []byte) error {
		group++
		w, err := pub.OpenSubgroup(subgroup(group))
		if err != nil {
			return err
		}
		t.working.Go(func() {
			if w.WriteObject(moqt.Object{}, segment) == nil { // fails when the transfer ends
				_ = w.Close()
			}
		})
		return nil
	}
	return nil
}
