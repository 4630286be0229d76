package load

import (
	"context"
	"math/rand/v2"
	"net"
	"time"

	"holocast/internal/moqt"
	"holocast/tools/lab/bench/internal/direct"
)

// closeAfter is how long a session's socket outlives it, for what QUIC has to say at its end.
const closeAfter = time.Second

// lossy has dial open a session that loses a share of its packets, in both directions.
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

// dropping is a socket that drops a share of its packets, each way. It has no more of a UDP
// socket's methods than these, or quic-go would read and write past it.
type dropping struct {
	net.PacketConn
	buffers
	share float64
}

// buffers lets quic-go choose the sizes of a socket's buffers.
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

// WriteTo sends a packet, or drops it and says that it was sent.
func (d dropping) WriteTo(b []byte, to net.Addr) (int, error) {
	if rand.Float64() < d.share {
		return len(b), nil
	}
	return d.PacketConn.WriteTo(b, to)
}
