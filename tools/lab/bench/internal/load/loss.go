package load

import (
	"context"
	"math/rand/v2"
	"net"
	"time"

	"holocast/internal/moqt"
	"holocast/tools/lab/bench/internal/direct"
)

// closeAfter is how long a closed session's socket stays open for QUIC's final packets.
const closeAfter = time.Second

// lossy opens a session that drops a fraction of its packets in each direction.
func lossy(share float64, dial func(moqt.Config) (*moqt.Session, error)) (*moqt.Session, error) {
	cfg := direct.Quiet
	if share == 0 {
		return dial(cfg)
	}
	socket, err := net.ListenUDP("udp", nil)
	if err != nil {
		return nil, err
	}
	cfg.Packets = dropping{socket, socket, share}
	s, err := dial(cfg)
	if err != nil {
		_ = socket.Close()
		return nil, err
	}
	context.AfterFunc(s.Context(), func() { time.AfterFunc(closeAfter, func() { _ = socket.Close() }) })
	return s, nil
}

// dropping is a socket that drops a fraction of packets in each direction. It hides the UDP
// socket's other methods, with which quic-go would bypass it.
type dropping struct {
	net.PacketConn
	buffers
	share float64
}

// buffers lets quic-go set the socket's buffer sizes.
type buffers interface {
	SetReadBuffer(bytes int) error
	SetWriteBuffer(bytes int) error
}

// ReadFrom returns the next packet that is not dropped.
func (d dropping) ReadFrom(b []byte) (n int, from net.Addr, err error) {
	for {
		if n, from, err = d.PacketConn.ReadFrom(b); err != nil || rand.Float64() >= d.share {
			return n, from, err
		}
	}
}

// WriteTo sends or drops a packet. It reports success in both cases.
func (d dropping) WriteTo(b []byte, to net.Addr) (int, error) {
	if rand.Float64() < d.share {
		return len(b), nil
	}
	return d.PacketConn.WriteTo(b, to)
}
