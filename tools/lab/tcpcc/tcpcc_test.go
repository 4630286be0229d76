package tcpcc

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"holocast/internal/bpfload"
)

func add(t *testing.T) *Controllers {
	t.Helper()
	c, err := Add()
	if errors.Is(err, bpfload.ErrPrivilege) || errors.Is(err, bpfload.ErrKernel) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func available(t *testing.T) []string {
	t.Helper()
	b, err := os.ReadFile("/proc/sys/net/ipv4/tcp_available_congestion_control")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(b))
}

// TestAlone checks that each controller loads with its own programs only.
func TestAlone(t *testing.T) {
	for _, of := range []string{"vegas", "yeah"} {
		spec, err := alone(of)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for name, p := range spec.Programs {
			got = append(got, name+" "+p.AttachTo)
		}
		slices.Sort(got)
		var want []string
		for _, member := range []string{"cong_avoid", "init", "pkts_acked", "ssthresh", "undo_cwnd"} {
			want = append(want, of+"_"+member+" tcp_congestion_ops:"+member)
		}
		if len(spec.Maps) != 1 || spec.Maps[of] == nil || !slices.Equal(got, want) {
			t.Errorf("%s: %d maps, programs %q, want %q", of, len(spec.Maps), got, want)
		}
	}
}

// TestTransfer sends data with each controller, which grows its window.
func TestTransfer(t *testing.T) {
	c := add(t)
	for _, of := range []string{"vegas", "yeah"} {
		t.Run(of, func(t *testing.T) {
			name, ok := c.Name(of)
			if !ok {
				t.Fatal("no name")
			}
			got, window := transfer(t, name)
			if got != name {
				t.Errorf("the socket uses %q, not %q", got, name)
			}
			if window <= 10 { // the first
				t.Errorf("the window is %d packets", window)
			}
		})
	}
}

// transfer sends 64 MB over the loopback interface and returns the sender's controller and window.
func transfer(t *testing.T, name string) (got string, window uint32) {
	t.Helper()
	listen := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
		failed := c.Control(func(fd uintptr) {
			err = unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, name)
		})
		return errors.Join(err, failed)
	}}
	listen.SetMultipathTCP(false)
	l, err := listen.Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	client, err := net.Dial("tcp4", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = server.Close() }()
	data := make([]byte, 64<<20)
	_, _ = rand.Read(data)
	sent := make(chan error, 1)
	go func() {
		_, err := server.Write(data)
		sent <- err
	}()
	received := make([]byte, len(data))
	if _, err := io.ReadFull(client, received); err != nil {
		t.Fatal(err)
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(received, data) {
		t.Error("data changed")
	}
	raw, err := server.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		var info *unix.TCPInfo
		if got, failed = unix.GetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION); failed != nil {
			return
		}
		if info, failed = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); failed == nil {
			window = info.Snd_cwnd
		}
	})
	if err := errors.Join(err, failed); err != nil {
		t.Fatal(err)
	}
	return strings.TrimRight(got, "\x00"), window
}

// TestClose checks that the controllers leave the kernel, and that two of the same process share no name.
func TestClose(t *testing.T) {
	c := add(t)
	name, _ := c.Name("yeah")
	if all := available(t); !strings.Contains(strings.Join(all, " ")+" ", name+" ") {
		t.Fatalf("%s is not in %v", name, all)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if all := available(t); strings.Contains(strings.Join(all, " ")+" ", name+" ") {
		t.Errorf("%s remains in %v", name, all)
	}
}
