package fbdt

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// tcp sends windows one after another over one connection, plain or multipath.
type tcp struct {
	listener       net.Listener
	server, client net.Conn
	reading        sync.WaitGroup

	last *turn // opened last
}

// turn is one window's place in the connection.
type turn struct {
	t      *tcp
	before *turn
	done   chan struct{} // closed with the turn
}

// dialTCP connects a client's radio to the server. With multipath the kernel adds subflows over the other radios.
func dialTCP(ctx context.Context, r *radios, from netip.Addr, control string, multipath bool) (t *tcp, err error) {
	set := func(_, _ string, c syscall.RawConn) error {
		var opt error
		err := c.Control(func(fd uintptr) {
			opt = unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, control)
		})
		return errors.Join(err, opt)
	}
	listen := net.ListenConfig{Control: set}
	dial := net.Dialer{
		Timeout: dialLimit, Control: set, LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0)),
	}
	listen.SetMultipathTCP(multipath)
	dial.SetMultipathTCP(multipath)
	var ln net.Listener
	if err := r.host(func() (err error) {
		ln, err = listen.Listen(ctx, "tcp4", netip.AddrPortFrom(r.server, 0).String())
		return err
	}); err != nil {
		return nil, err
	}
	t = &tcp{listener: ln} // subflows join through it
	defer func() {
		if err != nil {
			t.close()
		}
	}()
	if err := r.client(func() (err error) {
		t.client, err = dial.DialContext(ctx, "tcp4", ln.Addr().String())
		return err
	}); err != nil {
		return nil, err
	}
	if t.server, err = ln.Accept(); err != nil {
		return nil, err
	}
	if multipath {
		ok, err := t.server.(*net.TCPConn).MultipathTCP()
		if err == nil && !ok {
			err = errors.New("the kernel fell back to plain TCP")
		}
		if err != nil {
			return nil, err
		}
	}
	return t, nil
}

// dialLimit limits the time to connect.
const dialLimit = 10 * time.Second

func (t *tcp) receive(r *receiver, size int) {
	t.reading.Go(func() {
		for buf := make([]byte, size); r.read(t.client, buf) == nil; { // closing ends it
		}
	})
}

func (t *tcp) open(uint64) (io.WriteCloser, error) {
	t.last = &turn{t, t.last, make(chan struct{})}
	return t.last, nil
}

// Write waits until the earlier windows have been written.
func (w *turn) Write(p []byte) (int, error) {
	if w.before != nil {
		<-w.before.done
		w.before = nil
	}
	return w.t.server.Write(p)
}

func (w *turn) Close() error {
	close(w.done)
	return nil
}

func (t *tcp) mark() figures { return figures{} }

func (t *tcp) close() {
	for _, c := range []net.Conn{t.server, t.client} {
		if c != nil {
			_ = c.Close()
		}
	}
	_ = t.listener.Close()
	t.reading.Wait()
}
