// Package livescantcp is a server for LiveScan3D clients, which run at the cameras. It is also the
// source of their point clouds.
//
// It sends each client the settings, asks for a pose if the client reports none, and then requests
// frames one at a time. Clients with a pose send points in studio space. It supports LiveScan3D for
// the Kinect v2 and for the Azure Kinect.
package livescantcp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/bits"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"holocast/capture-server/source"
	"holocast/internal/livescan"
	"holocast/internal/pointcloud"
)

// Options configures the server. Zero values mean the defaults.
type Options struct {
	Cameras int     // maximum concurrent clients; default 1
	FPS     float64 // maximum frames per second requested from a client; default 30
	// Min and Max bound the points of clients with a pose, in metres; the default is ±5 m.
	Min, Max [3]float32
	// Calibrate asks clients without a pose to find a LiveScan3D marker (0 to 5). Its middle
	// becomes the origin of the studio.
	Calibrate bool
	// Probe is the time that an Azure Kinect client has to identify itself; the default is 5 s.
	Probe time.Duration
	// Timeout bounds a client's response time; the default is 15 s.
	Timeout time.Duration
	Log     *slog.Logger // nil = slog.Default
}

// listener accepts clients and assigns them to cameras.
type listener struct {
	o   Options
	log *slog.Logger
	ln  net.Listener
	wg  sync.WaitGroup

	mu      sync.Mutex
	cameras []*Camera
	conns   map[net.Conn]struct{}
	open    int // cameras not closed
}

// Camera is a slot for one client. It implements [source.Clouds].
type Camera struct {
	l    *listener
	name string
	most atomic.Int64 // maximum points per cloud

	// Guarded by l.mu.
	taken  bool
	last   string // host of the last client
	closed bool

	mu    sync.Mutex
	cloud source.Cloud // newest cloud
	fresh bool
	some  chan struct{} // holds an element while fresh is set
}

var _ source.Clouds = (*Camera)(nil)

// maxCameras bounds Options.Cameras.
const maxCameras = 64

// firstPoints is the initial maximum number of points per cloud. A Kinect v2 has 217,088 depth
// pixels.
const firstPoints = 1 << 18

// Listen accepts clients on a TCP address until all cameras are closed.
func Listen(address string, o Options) ([]*Camera, error) {
	o.Cameras, o.FPS = cmp.Or(o.Cameras, 1), cmp.Or(o.FPS, 30)
	o.Probe, o.Timeout = cmp.Or(o.Probe, 5*time.Second), cmp.Or(o.Timeout, 15*time.Second)
	if o.Min == o.Max {
		o.Min, o.Max = [3]float32{-5, -5, -5}, [3]float32{5, 5, 5}
	}
	if o.Cameras < 1 || o.Cameras > maxCameras {
		return nil, fmt.Errorf("livescan-tcp: cameras is %d, want 1 to %d", o.Cameras, maxCameras)
	}
	ln, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("livescan-tcp: %w", err)
	}
	l := &listener{o: o, log: cmp.Or(o.Log, slog.Default()), ln: ln, conns: map[net.Conn]struct{}{}, open: o.Cameras}
	for i := range o.Cameras {
		c := &Camera{l: l, name: fmt.Sprintf("livescan-tcp-%d", i), some: make(chan struct{}, 1)}
		c.most.Store(firstPoints)
		l.cameras = append(l.cameras, c)
	}
	l.wg.Go(l.accept)
	return l.cameras, nil
}

// Address returns the listening address.
func (c *Camera) Address() net.Addr { return c.l.ln.Addr() }

// Name implements [source.Clouds].
func (c *Camera) Name() string { return c.name }

// FPS implements [source.Clouds]. Clients do not report it.
func (c *Camera) FPS() float64 { return 0 }

// MaxPoints implements [source.Clouds]. It grows when larger clouds arrive.
func (c *Camera) MaxPoints() int { return int(c.most.Load()) }

// Next implements [source.Clouds]. It waits for a client and for its next cloud. Errors of clients
// are only logged.
func (c *Camera) Next(ctx context.Context, to *source.Cloud) error {
	select {
	case <-c.some:
	case <-ctx.Done():
		return ctx.Err()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	*to, c.cloud = c.cloud, *to
	c.fresh = false
	return nil
}

// put makes p's points the newest cloud. In exchange, p gets slices that the caller may overwrite.
func (c *Camera) put(p *pointcloud.Points, captured time.Time, device time.Duration) {
	if n := int64(len(p.XYZ) / 3); n > c.most.Load() {
		c.most.Store(min(livescan.MaxPoints, int64(1)<<bits.Len64(uint64(n-1)))) //nolint:gosec // n is positive
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cloud.Points, *p = *p, c.cloud.Points
	c.cloud.CaptureTime, c.cloud.DeviceTime = captured, device
	if !c.fresh {
		c.fresh = true
		c.some <- struct{}{}
	}
}

// Close implements [source.Clouds].
func (c *Camera) Close() error {
	l := c.l
	l.mu.Lock()
	if c.closed {
		l.mu.Unlock()
		return nil
	}
	c.closed = true
	if l.open--; l.open > 0 {
		l.mu.Unlock()
		return nil
	}
	err := l.ln.Close()
	for conn := range l.conns {
		_ = conn.Close()
	}
	l.mu.Unlock()
	l.wg.Wait()
	return err
}

// accept accepts clients until the listener is closed.
func (l *listener) accept() {
	for {
		conn, err := l.ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // out of file descriptors
			l.log.Warn("could not accept a LiveScan3D client", "err", err)
			time.Sleep(100 * time.Millisecond)
			continue
		}
		c := l.place(conn)
		if c == nil {
			l.log.Warn("refused a LiveScan3D client, as all cameras are taken; raise --cameras", "client",
				conn.RemoteAddr(), "cameras", l.o.Cameras)
			_ = conn.Close()
			continue
		}
		l.wg.Go(func() {
			defer l.free(c, conn)
			l.serve(c, conn)
		})
	}
}

// place returns a free camera, or nil if there is none. It prefers the camera that the client's host
// had last, then one that no client has used.
func (l *listener) place(conn net.Conn) (found *Camera) {
	host, _, err := net.SplitHostPort(conn.RemoteAddr().String())
	if err != nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open == 0 {
		return nil
	}
	better := func(c *Camera) bool { // than found
		switch {
		case found == nil, c.last == host:
			return true
		case found.last == host:
			return false
		}
		return c.last == "" && found.last != ""
	}
	for _, c := range l.cameras {
		if !c.taken && !c.closed && (found == nil || found.last != host) && better(c) {
			found = c
		}
	}
	if found != nil {
		found.taken, found.last = true, host
		l.conns[conn] = struct{}{}
	}
	return found
}

func (l *listener) free(c *Camera, conn net.Conn) {
	_ = conn.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	c.taken = false
	delete(l.conns, conn)
}

// serve reads a client's frames until it disconnects or is dropped.
func (l *listener) serve(c *Camera, conn net.Conn) {
	log := l.log.With("camera", c.name, "client", conn.RemoteAddr())
	log.Info("LiveScan3D client connected")
	x := &client{o: &l.o, c: c, conn: conn, log: log}
	err := x.run()
	var protocol *livescan.ProtocolError
	l.mu.Lock()
	ending := l.open == 0
	l.mu.Unlock()
	switch e := net.Error(nil); {
	case ending:
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		log.Info("LiveScan3D client disconnected", "frames", x.frames)
	case errors.Is(err, io.ErrUnexpectedEOF):
		log.Warn("LiveScan3D client disconnected in the middle of a message", "frames", x.frames)
	case errors.As(err, &e) && e.Timeout():
		log.Warn("dropped a LiveScan3D client that did not answer", "for", l.o.Timeout, "frames", x.frames)
	case errors.As(err, &protocol):
		log.Warn("dropped a LiveScan3D client that violated the protocol", "err", err, "frames", x.frames)
	default:
		log.Warn("LiveScan3D client connection failed", "err", err, "frames", x.frames)
	}
}
