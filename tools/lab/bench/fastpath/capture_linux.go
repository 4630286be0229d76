package fastpath

import (
	"encoding/binary"
	"errors"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"holocast/internal/netlab/namespace"
)

// captured is a UDP packet seen at one of the relay's interfaces.
type captured struct {
	at       time.Time // the kernel's time stamp
	out      bool      // outgoing
	from, to uint16    // ports
	payload  []byte
}

// capture is a packet socket on an interface.
type capture struct {
	fd      int
	out     bool
	done    chan struct{}
	mu      sync.Mutex
	packets []captured
}

// startCapture captures an interface's outgoing or incoming packets.
func startCapture(end namespace.End, out bool) (*capture, error) {
	link, err := end.Link()
	if err != nil {
		return nil, err
	}
	c := &capture{out: out, done: make(chan struct{})}
	err = end.Namespace.Do(func() (err error) {
		if c.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		timeout := unix.NsecToTimeval(int64(50 * time.Millisecond))
		all := binary.NativeEndian.Uint16([]byte{unix.ETH_P_ALL >> 8, unix.ETH_P_ALL & 0xff})
		return errors.Join(
			unix.SetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20),
			unix.SetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1),
			unix.SetsockoptTimeval(c.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout),
			unix.Bind(c.fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: link.Attrs().Index}),
		)
	})
	if err != nil {
		return nil, err
	}
	return c, nil
}

// run reads packets until closing is closed.
func (c *capture) run(closing <-chan struct{}) {
	defer close(c.done)
	b, oob := make([]byte, 2048), make([]byte, 256)
	for {
		n, control, _, from, err := unix.Recvmsg(c.fd, b, oob, 0)
		if err != nil {
			select {
			case <-closing:
				return
			default:
				if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
					continue
				}
				return
			}
		}
		ll, ok := from.(*unix.SockaddrLinklayer)
		if !ok || (ll.Pkttype == unix.PACKET_OUTGOING) != c.out {
			continue
		}

		// Parse only IPv4 packets without options that carry UDP.
		if n < 28 || b[0] != 0x45 || b[9] != unix.IPPROTO_UDP {
			continue
		}
		p := captured{
			out: c.out, from: binary.BigEndian.Uint16(b[20:]), to: binary.BigEndian.Uint16(b[22:]),
			payload: append([]byte(nil), b[28:n]...),
		}
		messages, err := unix.ParseSocketControlMessage(oob[:control])
		if err != nil {
			continue
		}
		for _, m := range messages {
			if m.Header.Type == unix.SO_TIMESTAMPNS && len(m.Data) >= 16 {
				p.at = time.Unix(int64(binary.NativeEndian.Uint64(m.Data)),
					int64(binary.NativeEndian.Uint64(m.Data[8:])))
			}
		}
		c.mu.Lock()
		c.packets = append(c.packets, p)
		c.mu.Unlock()
	}
}

func (c *capture) close() error { return unix.Close(c.fd) }
