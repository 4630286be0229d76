package udpio

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"

	"holocast/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func listen(t testing.TB, network, addr string) *Conn {
	t.Helper()
	ua, err := net.ResolveUDPAddr(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.ListenUDP(network, ua)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetReadBuffer(4 << 20)
	return Wrap(c).(*Conn)
}

func messages(n, size int) []ipv4.Message {
	ms := make([]ipv4.Message, n)
	for i := range ms {
		ms[i].Buffers, ms[i].OOB = [][]byte{make([]byte, size)}, make([]byte, 128)
	}
	return ms
}

// segments returns the control message that makes the kernel split a write into datagrams.
func segments(size int) []byte {
	b := make([]byte, unix.CmsgSpace(2))
	h := (*unix.Cmsghdr)(unsafe.Pointer(&b[0]))
	h.Level, h.Type = unix.IPPROTO_UDP, unix.UDP_SEGMENT
	h.SetLen(unix.CmsgLen(2))
	binary.NativeEndian.PutUint16(b[unix.CmsgSpace(0):], uint16(size))
	return b
}

func TestDatagrams(t *testing.T) {
	for _, tt := range []struct{ name, network, listen, dial, to string }{
		{"IPv4", "udp4", "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1"},
		{"IPv6", "udp6", "[::1]:0", "[::1]:0", "::1"},
		{"IPv4 on a socket of both", "udp", ":0", ":0", "127.0.0.1"},
		{"IPv6 on a socket of both", "udp", ":0", ":0", "::1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a, b := listen(t, tt.network, tt.listen), listen(t, tt.network, tt.dial)
			to := &net.UDPAddr{IP: net.ParseIP(tt.to), Port: a.LocalAddr().(*net.UDPAddr).Port}
			const size, whole, last = 1200, 20, 17
			data := make([]byte, whole*size+last)
			for i := range data {
				data[i] = byte(i / size)
			}
			n, oobn, err := b.WriteMsgUDP(data, segments(size), to)
			if err != nil || n != len(data) || oobn != unix.CmsgSpace(2) {
				t.Fatalf("write: %d and %d bytes, %v", n, oobn, err)
			}
			if _, _, err := b.WriteMsgUDP([]byte("alone"), nil, to); err != nil {
				t.Fatal(err)
			}
			var got [][]byte
			ms := messages(7, 1452)
			_ = a.SetReadDeadline(time.Now().Add(time.Minute))
			for len(got) < whole+2 {
				n, err := a.ReadBatch(ms, 0)
				if err != nil {
					t.Fatalf("after %d datagrams: %v", len(got), err)
				}
				for _, m := range ms[:n] {
					got = append(got, bytes.Clone(m.Buffers[0][:m.N]))
					if from := m.Addr.(*net.UDPAddr); from.Port != b.LocalAddr().(*net.UDPAddr).Port ||
						!from.IP.Equal(to.IP) {
						t.Fatalf("from %v, not %v", from, b.LocalAddr())
					}
				}
			}
			for i, g := range got {
				want := []byte("alone")
				if i <= whole {
					want = data[i*size : min((i+1)*size, len(data))]
				}
				if !bytes.Equal(g, want) {
					t.Fatalf("datagram %d has %d bytes, want the %d that were sent", i, len(g), len(want))
				}
			}
		})
	}
}

// TestControl checks that each datagram of a merged message gets the message's control messages,
// except the one about merging.
func TestControl(t *testing.T) {
	a, b := listen(t, "udp4", "127.0.0.1:0"), listen(t, "udp4", "127.0.0.1:0")
	for _, c := range []*Conn{a, b} {
		if err := c.raw.Control(func(fd uintptr) {
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_RECVTOS, 1)
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_TOS, 2)
		}); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := b.WriteMsgUDP(make([]byte, 3000), segments(1000), a.LocalAddr().(*net.UDPAddr)); err != nil {
		t.Fatal(err)
	}
	ms := messages(8, 1452)
	_ = a.SetReadDeadline(time.Now().Add(time.Minute))
	for count := 0; count < 3; {
		n, err := a.ReadBatch(ms, 0)
		if err != nil {
			t.Fatal(err)
		}
		count += n
		for _, m := range ms[:n] {
			controls, err := unix.ParseSocketControlMessage(m.OOB[:m.NN])
			if err != nil || len(controls) != 1 || controls[0].Header.Type != unix.IP_TOS ||
				controls[0].Data[0]&3 != 2 {
				t.Fatalf("control messages %+v, %v, want only the ECN mark", controls, err)
			}
		}
	}
}

// TestStrays checks that merged datagrams for connections of other sockets are dropped.
func TestStrays(t *testing.T) {
	a, b := listen(t, "udp4", "127.0.0.1:0"), listen(t, "udp4", "127.0.0.1:0")
	DropStrays(a)
	const size = 100
	var together []byte
	for _, p := range []struct{ flags, slot byte }{{0x40, 5}, {0x41, 5}, {0x40, 6}, {0xc0, 0}, {0x40, 5}} {
		packet := make([]byte, size)
		packet[0], packet[1] = p.flags, p.slot
		together = append(together, packet...)
	}
	to := a.LocalAddr().(*net.UDPAddr)
	if _, _, err := b.WriteMsgUDP(together, segments(size), to); err != nil {
		t.Fatal(err)
	}
	if _, _, err := b.WriteMsgUDP([]byte{0x40, 6}, nil, to); err != nil { // not merged: the kernel selected this socket
		t.Fatal(err)
	}
	var got [][2]byte
	ms := messages(8, 1452)
	_ = a.SetReadDeadline(time.Now().Add(time.Minute))
	for len(got) < 5 {
		n, err := a.ReadBatch(ms, 0)
		if err != nil {
			t.Fatalf("after %v: %v", got, err)
		}
		for _, m := range ms[:n] {
			got = append(got, [2]byte(m.Buffers[0]))
		}
	}
	if want := [][2]byte{{0x40, 5}, {0x41, 5}, {0xc0, 0}, {0x40, 5}, {0x40, 6}}; !slices.Equal(got, want) {
		t.Errorf("received %x, want %x", got, want)
	}
}

// TestPieces checks that merged datagrams are read together, and that a kept piece is not
// overwritten.
func TestPieces(t *testing.T) {
	a, b := listen(t, "udp4", "127.0.0.1:0"), listen(t, "udp4", "127.0.0.1:0")
	to := a.LocalAddr().(*net.UDPAddr)
	_ = a.SetReadDeadline(time.Now().Add(time.Minute))
	const size, last, sent = 1000, 700, 3 * batchSize
	var kept, want [][]byte
	for i := range sent {
		together := bytes.Repeat([]byte{byte(i)}, 20*size+last)
		if _, _, err := b.WriteMsgUDP(together, segments(size), to); err != nil {
			t.Fatal(err)
		}
		want = append(want, together)
		if i%batchSize != batchSize-1 { // so that some are received together
			continue
		}
		for len(kept) <= i {
			piece, segment, addr, _, err := a.ReadPiece()
			if err != nil {
				t.Fatal(err)
			}
			if segment != size || addr.Port != b.LocalAddr().(*net.UDPAddr).Port {
				t.Fatalf("%d bytes a datagram from %v", segment, addr)
			}
			if cap(piece) != PieceSize {
				t.Fatalf("the piece's buffer has %d bytes", cap(piece))
			}
			kept = append(kept, piece)
			a.KeepPiece(make([]byte, PieceSize))
		}
	}
	if !slices.EqualFunc(kept, want, bytes.Equal) {
		t.Error("the kept piece was overwritten")
	}
	if err := a.SetReadDeadline(time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	if _, _, _, _, err := a.ReadPiece(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("after the deadline: %v", err)
	}
}

// TestPieceStrays checks that datagrams for other sockets are removed from a piece.
func TestPieceStrays(t *testing.T) {
	a, b := listen(t, "udp4", "127.0.0.1:0"), listen(t, "udp4", "127.0.0.1:0")
	DropStrays(a)
	const size = 100
	var together, want []byte
	for i, slot := range []byte{5, 5, 6, 5, 7, 5} {
		packet := bytes.Repeat([]byte{byte(i)}, size-i/5) // the last one is shorter
		packet[0], packet[1] = 0x40, slot
		together = append(together, packet...)
		if slot == 5 {
			want = append(want, packet...)
		}
	}
	if _, _, err := b.WriteMsgUDP(together, segments(size), a.LocalAddr().(*net.UDPAddr)); err != nil {
		t.Fatal(err)
	}
	_ = a.SetReadDeadline(time.Now().Add(time.Minute))
	piece, segment, _, _, err := a.ReadPiece()
	if err != nil || segment != size || !bytes.Equal(piece, want) {
		t.Errorf("received %d bytes of %d, %v", len(piece), segment, err)
	}
}

func TestErrors(t *testing.T) {
	a, b := listen(t, "udp4", "127.0.0.1:0"), listen(t, "udp4", "127.0.0.1:0")
	to := a.LocalAddr().(*net.UDPAddr)
	var system *os.SyscallError
	if _, _, err := b.WriteMsgUDP(make([]byte, 70_000), nil, to); !errors.Is(err, syscall.EMSGSIZE) ||
		!errors.As(err, &system) {
		t.Errorf("oversized datagram: %v", err)
	}
	if _, _, err := b.WriteMsgUDP([]byte("x"), nil, &net.UDPAddr{IP: net.IPv6loopback, Port: 9}); err == nil {
		t.Error("an IPv4 socket accepted an IPv6 address")
	}
	_ = a.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
	if _, err := a.ReadBatch(messages(1, 100), 0); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("after the deadline: %v", err)
	}
	_ = a.SetReadDeadline(time.Time{})
	done := make(chan error)
	go func() {
		_, err := a.ReadBatch(messages(1, 100), 0)
		done <- err
	}()
	_ = a.Close()
	if err := <-done; !errors.Is(err, net.ErrClosed) {
		t.Errorf("read after close: %v", err)
	}
	if _, _, err := a.WriteMsgUDP([]byte("x"), nil, to); !errors.Is(err, net.ErrClosed) {
		t.Errorf("write after close: %v", err)
	}
}

// A writer waits for space in a full buffer.
func TestFullBuffer(t *testing.T) {
	a, b := listen(t, "udp4", "127.0.0.1:0"), listen(t, "udp4", "127.0.0.1:0")
	_ = b.SetWriteBuffer(1)
	for range 200 {
		if _, _, err := b.WriteMsgUDP(make([]byte, 1200), nil, a.LocalAddr().(*net.UDPAddr)); err != nil {
			t.Fatal(err)
		}
	}
}

// BenchmarkReceive receives merged datagrams; the baseline is quic-go with a plain socket.
func BenchmarkReceive(b *testing.B) {
	const size, burst = 1280, 40
	for _, tt := range []string{"here", "x/net"} {
		b.Run(fmt.Sprint("by=", tt), func(b *testing.B) {
			from := listen(b, "udp4", "127.0.0.1:0")
			udp, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = udp.Close() }()
			var reader interface {
				ReadBatch([]ipv4.Message, int) (int, error)
			} = ipv4.NewPacketConn(udp)
			if tt == "here" {
				reader = Wrap(udp).(*Conn)
			}
			to, data, oob, ms := udp.LocalAddr().(*net.UDPAddr), make(
				[]byte,
				burst*size,
			), segments(
				size,
			), messages(
				8,
				1452,
			)
			b.SetBytes(burst * size)
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := from.WriteMsgUDP(data, oob, to); err != nil {
					b.Fatal(err)
				}
				for n := 0; n < burst; {
					k, err := reader.ReadBatch(ms, 0)
					if err != nil {
						b.Fatal(err)
					}
					n += k
				}
			}
		})
	}
}
