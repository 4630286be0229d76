package signal

import (
	"encoding/hex"
	"math"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// edge returns a UDP socket that reports each packet's ToS, and its address.
func edge(t *testing.T) (*net.UDPConn, netip.AddrPort) {
	t.Helper()
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	raw, err := conn.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	_ = raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_RECVTOS, 1) })
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(2 * time.Minute))
	return conn, conn.LocalAddr().(*net.UDPAddr).AddrPort()
}

// receive returns the next packet's payload and ToS.
func receive(t *testing.T, conn *net.UDPConn) ([]byte, byte) {
	t.Helper()
	b, oob := make([]byte, 128), make([]byte, 128)
	n, on, _, _, err := conn.ReadMsgUDP(b, oob)
	if err != nil {
		t.Fatal(err)
	}
	messages, err := unix.ParseSocketControlMessage(oob[:on])
	if err != nil || len(messages) != 1 || messages[0].Header.Type != unix.IP_TOS {
		t.Fatalf("control messages %+v, %v", messages, err)
	}
	return b[:n], messages[0].Data[0]
}

func TestSender(t *testing.T) {
	conn, to := edge(t)
	s, err := NewSender(testKey(), netip.MustParseAddr("127.0.0.1"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	var g Guard
	before := uint64(time.Now().UnixNano())
	for _, dst := range []netip.Addr{netip.MustParseAddr("192.0.2.7"), netip.MustParseAddr("2001:db8::7")} {
		nonce, err := s.Send("a", to, dst, 0x1f)
		if err != nil {
			t.Fatal(err)
		}
		b, tos := receive(t, conn)
		m, err := g.Accept(b, EdgeKey(testKey(), "a"))
		if err != nil || m != (Message{dst, 0x1f, nonce}) || nonce < before {
			t.Errorf("%+v, %v; nonce %d", m, err, nonce)
		}
		if tos != ToS {
			t.Errorf("ToS %#x, want %#x", tos, ToS)
		}
	}
}

// Packets of concurrent senders leave in nonce order.
func TestSenderKeepsOrder(t *testing.T) {
	const senders, each = 4, 50
	conn, to := edge(t)
	s, err := NewSender(testKey(), netip.Addr{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	var wg sync.WaitGroup
	for range senders {
		wg.Go(func() {
			for range each {
				if _, err := s.Send("a", to, netip.MustParseAddr("192.0.2.7"), 1); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	var g Guard
	for i := range senders * each {
		b, _ := receive(t, conn)
		if _, err := g.Accept(b, EdgeKey(testKey(), "a")); err != nil {
			t.Fatalf("packet %d: %v", i, err)
		}
	}
}

func TestSenderExceed(t *testing.T) {
	_, to := edge(t)
	s, err := NewSender(testKey(), netip.Addr{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	ahead := uint64(time.Now().Add(time.Hour).UnixNano())
	for name, c := range map[string]struct {
		nonce uint64
		ok    bool
	}{"an hour ahead": {ahead, true}, "far behind": {5, true}, "no time": {
		math.MaxUint64,
		false,
	}, "2262": {math.MaxInt64, false}, "two days ahead": {uint64(time.Now().Add(48 * time.Hour).UnixNano()), false}} {
		if err := s.Exceed("a", c.nonce); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
	for range 2 {
		nonce, err := s.Send("a", to, netip.MustParseAddr("192.0.2.7"), 1)
		if err != nil || nonce <= ahead || nonce > ahead+10 {
			t.Errorf("nonce %d, %v; want just above %d", nonce, err, ahead)
		}
	}
}

// Nonces are independent per edge, and a new key has its own nonces.
func TestSenderNoncesArePerEdge(t *testing.T) {
	conn, to := edge(t)
	s, err := NewSender(testKey(), netip.Addr{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	ahead := uint64(time.Now().Add(time.Hour).UnixNano())
	if err := s.Exceed("a", ahead); err != nil {
		t.Fatal(err)
	}
	send := func(edge string) uint64 {
		nonce, err := s.Send(edge, to, netip.MustParseAddr("192.0.2.7"), 1)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := receive(t, conn)
		for other, good := range map[string]bool{edge: true, "c": false} {
			if _, err := Parse(b, EdgeKey(s.key, other)); (err == nil) != good {
				t.Errorf("message for %s at %s: %v", edge, other, err)
			}
		}
		return nonce
	}
	if send("a") != ahead+1 || send("b") >= ahead {
		t.Error("the nonces of b depend on those of a")
	}
	if err := s.SetKey(GenerateKey()); err != nil {
		t.Fatal(err)
	}
	if send("a") >= ahead {
		t.Error("a new key continues the nonces of the old one")
	}
}

func TestSenderErrors(t *testing.T) {
	if _, err := NewSender(testKey()[:MinKey-1], netip.Addr{}); err == nil {
		t.Error("a short key was accepted")
	}
	if _, err := NewSender(testKey(), netip.MustParseAddr("::1")); err == nil ||
		!strings.Contains(err.Error(), "IPv4") {
		t.Error(err)
	}
	s, err := NewSender(testKey(), netip.Addr{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	for _, to := range []string{"[2001:db8::1]:4790", "0.0.0.0:0"} {
		if _, err := s.Send("a", netip.MustParseAddrPort(to), netip.MustParseAddr("192.0.2.7"), 1); err == nil {
			t.Errorf("sent to %s", to)
		}
	}
}

func TestReadKey(t *testing.T) {
	digits := hex.EncodeToString(GenerateKey())
	for name, c := range map[string]struct {
		file string
		size int // 0 = rejected
	}{
		"generated":   {digits + "\n", KeySize},
		"smallest":    {digits[:2*MinKey], MinKey},
		"largest":     {digits + digits, MaxKey},
		"too small":   {digits[:2*MinKey-2], 0},
		"too large":   {digits + digits + "00", 0},
		"odd":         {digits[:63], 0},
		"not digits":  {strings.Repeat("xy", 32), 0},
		"empty":       {"", 0},
		"white space": {" \t" + digits + "\r\n\n", KeySize},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "signal.key")
			if err := os.WriteFile(path, []byte(c.file), 0o600); err != nil {
				t.Fatal(err)
			}
			key, err := ReadKey(path)
			if (err == nil) != (c.size > 0) || len(key) != c.size {
				t.Errorf("%d bytes, %v; want %d", len(key), err, c.size)
			}
			if err != nil && !strings.Contains(err.Error(), path) {
				t.Errorf("%v does not name the file", err)
			}
		})
	}
	if _, err := ReadKey(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("read a missing file")
	}
}
