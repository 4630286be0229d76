package moqt

import (
	"crypto/tls"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"holocast/internal/devcert"
)

// TestConnectRate checks that clients must validate their addresses while attempts exceed the
// limit.
func TestConnectRate(t *testing.T) {
	c := connectRate{limit: 10}
	now := time.Now()
	verified := func(n int, apart time.Duration) (count int) {
		for range n {
			now = now.Add(apart)
			if c.add(now) {
				count++
			}
		}
		return count
	}
	if n := verified(50, 110*time.Millisecond); n != 0 {
		t.Errorf("%d of 50 verified at 9 a second", n)
	}
	if n := verified(1000, time.Millisecond); n < 980 {
		t.Errorf("%d of 1000 verified at 1000 a second", n)
	}
	now = now.Add(2 * time.Second)
	if n := verified(5, 10*time.Millisecond); n != 0 {
		t.Errorf("%d of 5 verified after the flood", n)
	}
}

// TestRetry checks that a client receives a Retry from a busy server and then connects.
func TestRetry(t *testing.T) {
	cert, err := devcert.Generate(time.Now(), "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	ln, err := Listen(
		"127.0.0.1:0",
		ListenConfig{TLS: &tls.Config{Certificates: []tls.Certificate{cert}}, MaxConnects: 1},
	)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	var retries atomic.Int64
	between := listening(t)
	go func() { // one client at a time
		out, err := net.DialUDP("udp", nil, ln.Addr().(*net.UDPAddr))
		if err != nil {
			return
		}
		defer func() { _ = out.Close() }()
		var client atomic.Pointer[net.UDPAddr]
		go func() {
			b := make([]byte, 2048)
			for {
				n, err := out.Read(b)
				if err != nil {
					return
				}
				if b[0]&0xf0 == 0xf0 { // long header, type Retry (RFC 9000 §17.2.5)
					retries.Add(1)
				}
				_, _ = between.WriteToUDP(b[:n], client.Load())
			}
		}()
		b := make([]byte, 2048)
		for {
			n, from, err := between.ReadFromUDP(b)
			if err != nil {
				return
			}
			client.Store(from)
			_, _ = out.Write(b[:n])
		}
	}()
	for i := range 3 {
		s, err := Dial(
			t.Context(),
			"moqt://"+between.LocalAddr().String(),
			devcert.Pinned(devcert.Hash(cert)),
			Handler{},
			Config{},
		)
		if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		s.Close(0, "")
	}
	if retries.Load() == 0 {
		t.Error("no Retry was sent")
	}
}

func listening(t *testing.T) *net.UDPConn {
	t.Helper()
	c, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}
