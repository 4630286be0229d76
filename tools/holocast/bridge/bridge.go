// Package bridge serves a session's point clouds to LiveScan3D viewers.
//
// A viewer requests each frame and receives the newest one that it lacks, with the points of all
// cameras merged in session coordinates. A frame is merged and encoded once for all viewers, on the
// first request.
package bridge

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"holocast/internal/livescan"
)

// Config configures a Server. Zero values mean the defaults.
type Config struct {
	Viewers    int // maximum at a time; default 16
	PerAddress int // maximum per address; default Viewers
	// MaxWait bounds the wait for a newer frame, after which a viewer receives the newest frame
	// again; the default is 200 ms. Some viewers block while they wait.
	MaxWait time.Duration
	// Stall bounds the time that a viewer may take to read each 64 KiB of a frame; the default is
	// 5 s.
	Stall time.Duration
	// Idle bounds the time between requests of a viewer; the default is 1 min.
	Idle time.Duration
	// Sent, if set, is called for every frame sent, on the viewers' goroutines.
	Sent func(Sent)
	Log  *slog.Logger // nil = slog.Default
}

// Sent describes a frame sent to a viewer.
type Sent struct {
	Viewer   string    // address
	Frame    uint64    // frame number from 1; 0 before the first
	Captured time.Time // latest capture time among its cameras, on the relay's clock
	Asked    time.Time // when the request was read
	Taken    time.Time // when the last byte was written to the socket
	Points   int
	Bytes    int
}

// Server serves frames to viewers.
type Server struct {
	cfg    Config
	log    *slog.Logger
	frames *Frames

	mu      sync.Mutex
	viewers map[net.Conn]netip.Addr
	closed  bool
	wg      sync.WaitGroup
	sum     Statistics

	connected       prometheus.Gauge
	sent, sentBytes prometheus.Counter
	gone            *prometheus.CounterVec
}

// Statistics summarize a server's run.
type Statistics struct {
	Viewers int    `json:"viewers"` // connected in total
	Most    int    `json:"most_viewers"`
	Refused int    `json:"refused"` // over a limit
	Dropped int    `json:"dropped"` // too slow, silent, or using another protocol
	Frames  uint64 `json:"frames"`  // sent to viewers
	Again   uint64 `json:"frames_again"`
	Points  uint64 `json:"points"`
	Bytes   uint64 `json:"bytes"`
	Encoded uint64 `json:"frames_encoded"` // encoded once for all viewers
}

// NewServer returns a server for frames.
func NewServer(frames *Frames, cfg Config) *Server {
	cfg.Viewers = cmp.Or(cfg.Viewers, 16)
	cfg.PerAddress = cmp.Or(cfg.PerAddress, cfg.Viewers)
	cfg.MaxWait = cmp.Or(cfg.MaxWait, 200*time.Millisecond)
	cfg.Stall = cmp.Or(cfg.Stall, 5*time.Second)
	cfg.Idle = cmp.Or(cfg.Idle, time.Minute)
	return &Server{
		cfg: cfg, log: cmp.Or(cfg.Log, slog.Default()), frames: frames, viewers: map[net.Conn]netip.Addr{},
		connected: prometheus.NewGauge(
			prometheus.GaugeOpts{Name: "holocast_bridge_viewers", Help: "Connected LiveScan3D viewers."},
		),
		sent: prometheus.NewCounter(
			prometheus.CounterOpts{Name: "holocast_bridge_sent_frames_total", Help: "Merged frames sent to viewers."},
		),
		sentBytes: prometheus.NewCounter(
			prometheus.CounterOpts{Name: "holocast_bridge_sent_bytes_total", Help: "Bytes of frames sent to viewers."},
		),
		gone: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "holocast_bridge_connections_ended_total",
			Help: "Ended viewer connections, by reason: closed, slow, silent, protocol or refused.",
		}, []string{"reason"}),
	}
}

// Metrics returns the server's collectors.
func (s *Server) Metrics() []prometheus.Collector {
	return []prometheus.Collector{s.connected, s.sent, s.sentBytes, s.gone}
}

// Statistics returns the statistics so far.
func (s *Server) Statistics() Statistics {
	encoded := s.frames.encodedCount()
	s.mu.Lock()
	defer s.mu.Unlock()
	sum := s.sum
	sum.Encoded = encoded
	return sum
}

// Serve accepts viewers until ctx is done. It then disconnects them and returns nil. It returns an
// error if the listener fails.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	stop := context.AfterFunc(ctx, func() { s.close(ln) })
	defer stop()
	defer s.wg.Wait()
	defer s.close(ln)
	for {
		conn, err := ln.Accept()
		if ctx.Err() != nil {
			if err == nil {
				_ = conn.Close()
			}
			return nil
		}
		if e := net.Error(nil); errors.As(err, &e) && !errors.Is(err, net.ErrClosed) { // no file descriptor left
			s.log.Warn("could not accept a viewer", "err", err)
			select {
			case <-time.After(100 * time.Millisecond):
			case <-ctx.Done():
			}
			continue
		}
		if err != nil {
			return err
		}
		if why := s.admit(conn); why != "" {
			s.log.Warn("refused a viewer", "viewer", conn.RemoteAddr(), "reason", why)
			s.gone.WithLabelValues("refused").Inc()
			_ = conn.Close()
			continue
		}
		s.wg.Go(func() { s.serve(ctx, conn) })
	}
}

// close closes all connections.
func (s *Server) close(ln net.Listener) {
	_ = ln.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for conn := range s.viewers {
		_ = conn.Close()
	}
}

// admit counts a viewer, or returns why the viewer is refused.
func (s *Server) admit(conn net.Conn) string {
	addr := address(conn)
	s.mu.Lock()
	defer s.mu.Unlock()
	same := 0
	for _, a := range s.viewers {
		if a == addr {
			same++
		}
	}
	switch {
	case s.closed:
		return "the bridge is shutting down"
	case len(s.viewers) >= s.cfg.Viewers:
		s.sum.Refused++
		return "--max-viewers reached"
	case same >= s.cfg.PerAddress:
		s.sum.Refused++
		return "--max-per-address reached"
	}
	s.viewers[conn] = addr
	s.sum.Viewers++
	s.sum.Most = max(s.sum.Most, len(s.viewers))
	s.connected.Set(float64(len(s.viewers)))
	return ""
}

func address(conn net.Conn) netip.Addr {
	a, err := netip.ParseAddrPort(conn.RemoteAddr().String())
	if err != nil {
		return netip.Addr{}
	}
	return a.Addr().Unmap()
}

// Reasons for dropping a viewer.
var (
	errSilent = errors.New("no request from the viewer")
	errSlow   = errors.New("the viewer stopped reading")
)

// serve answers one viewer until it disconnects or is dropped.
func (s *Server) serve(ctx context.Context, conn net.Conn) {
	log := s.log.With("viewer", conn.RemoteAddr())
	log.Info("viewer connected")
	began := time.Now()
	frames, err := s.answer(ctx, conn)
	_ = conn.Close()
	reason, dropped := "closed", false
	var protocol *livescan.ProtocolError
	switch {
	case errors.Is(err, errSlow):
		reason, dropped = "slow", true
		log.Warn("dropped a viewer: it or the network is too slow", "stalled", s.cfg.Stall, "frames", frames)
	case errors.Is(err, errSilent):
		reason, dropped = "silent", true
		log.Warn("dropped a viewer that requested no frames", "for", s.cfg.Idle, "frames", frames)
	case errors.As(err, &protocol):
		reason, dropped = "protocol", true
		log.Warn("dropped a viewer that does not speak LiveScan3D's protocol", "err", err)
	default:
		log.Info("viewer disconnected", "after", time.Since(began).Round(time.Millisecond), "frames", frames)
	}
	s.gone.WithLabelValues(reason).Inc()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.viewers, conn)
	s.connected.Set(float64(len(s.viewers)))
	if dropped {
		s.sum.Dropped++
	}
}

// piece is the number of bytes a viewer must read within Stall.
const piece = 64 << 10

// answer answers a viewer's requests and returns their number. Pipelined requests wait in the
// socket buffer.
func (s *Server) answer(ctx context.Context, conn net.Conn) (frames int, err error) {
	var has uint64 // the newest frame sent to the viewer
	for ; ; frames++ {
		if err := conn.SetReadDeadline(time.Now().Add(s.cfg.Idle)); err != nil {
			return frames, err
		}
		var request [1]byte
		if _, err := io.ReadFull(conn, request[:]); err != nil {
			if e := net.Error(nil); errors.As(err, &e) && e.Timeout() {
				err = errSilent
			}
			return frames, err
		}
		if request[0] != livescan.RequestFrame {
			return frames, &livescan.ProtocolError{What: "a frame request must be the byte 0"}
		}
		asked := time.Now()
		f, err := s.frames.newest(ctx, has, s.cfg.MaxWait)
		if err != nil {
			return frames, err
		}
		for rest := f.answer; len(rest) > 0; {
			if err := conn.SetWriteDeadline(time.Now().Add(s.cfg.Stall)); err != nil {
				return frames, err
			}
			n, err := conn.Write(rest[:min(piece, len(rest))])
			if e := net.Error(nil); errors.As(err, &e) && e.Timeout() {
				return frames, errSlow
			}
			if err != nil {
				return frames, err
			}
			rest = rest[n:]
		}
		s.count(f, has)
		if s.cfg.Sent != nil {
			s.cfg.Sent(Sent{
				Viewer: conn.RemoteAddr().String(), Frame: f.number, Captured: f.captured,
				Asked: asked, Taken: time.Now(), Points: f.points, Bytes: len(f.answer),
			})
		}
		has = f.number
	}
}

func (s *Server) count(f *encoded, had uint64) {
	s.sent.Inc()
	s.sentBytes.Add(float64(len(f.answer)))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sum.Frames++
	if f.number == had {
		s.sum.Again++
	}
	s.sum.Points += uint64(f.points) //nolint:gosec // not negative
	s.sum.Bytes += uint64(len(f.answer))
}
