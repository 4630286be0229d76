package load

import (
	"io"
	"net"
	"testing"
)

// counting is a socket that provides a number of packets to read and counts the packets written.
type counting struct {
	net.PacketConn
	left, written int
}

func (c *counting) ReadFrom([]byte) (int, net.Addr, error) {
	if c.left == 0 {
		return 0, nil, io.EOF
	}
	c.left--
	return 1, &net.UDPAddr{}, nil
}

func (c *counting) WriteTo(b []byte, _ net.Addr) (int, error) {
	c.written++
	return len(b), nil
}

// The dropped fraction of many packets is close to the configured one, in each direction.
func TestDropping(t *testing.T) {
	const packets, share = 10_000, 0.25
	socket := &counting{left: packets}
	lossy := dropping{socket, nil, share}
	read := 0
	for {
		if _, _, err := lossy.ReadFrom(nil); err != nil {
			break
		}
		read++
	}
	for range packets {
		if n, err := lossy.WriteTo([]byte("x"), &net.UDPAddr{}); n != 1 || err != nil {
			t.Fatalf("write of a one-byte packet: %d, %v", n, err)
		}
	}
	for way, n := range map[string]int{"read": read, "written": socket.written} {
		if n < packets*7/10 || n > packets*8/10 { // eleven standard deviations
			t.Errorf("%s: %d of %d packets, want about three quarters", way, n, packets)
		}
	}
}
