package qmux

import (
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// maxUnsent is the number of bytes in a socket that TCP has not sent yet above which Send blocks. What
// a socket has taken can no longer give way to newer data.
const maxUnsent = 16 << 10

// limitUnsent bounds a socket's unsent bytes, and uses BBR where the system permits it, because other
// congestion controls fill the queue of the bottleneck.
func limitUnsent(conn net.Conn) {
	control(conn, func(fd int) {
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, maxUnsent)
		_ = unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, "bbr")
	})
}

// path reads TCP_INFO.
func (l *link) path() (p PathStats, ok bool) {
	control(l.conn, func(fd int) {
		info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
		if err != nil {
			return
		}
		ok = true
		p.Controller, _ = unix.GetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION)
		mss := uint64(info.Snd_mss)
		p.Window, p.InFlight = uint64(info.Snd_cwnd)*mss, uint64(info.Unacked)*mss
		p.Delivered, p.Retransmitted = info.Bytes_acked, uint64(info.Total_retrans)
		p.Bandwidth, p.AppLimited = float64(info.Delivery_rate), info.Notsent_bytes == 0
		p.RTT = time.Duration(info.Rtt) * time.Microsecond
		p.MinRTT = time.Duration(info.Min_rtt) * time.Microsecond
	})
	return p, ok
}

func control(conn net.Conn, f func(fd int)) {
	c, ok := conn.(syscall.Conn)
	if !ok {
		return
	}
	raw, err := c.SyscallConn()
	if err == nil {
		_ = raw.Control(func(fd uintptr) { f(int(fd)) })
	}
}
