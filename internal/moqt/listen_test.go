package moqt

import (
	"bytes"
	"crypto/tls"
	"log/slog"
	"net"
	"testing"
	"time"

	"holocast/internal/devcert"
	"holocast/internal/quiccc"
)

// TestStatelessReset checks that a server without a configured key answers packets of unknown
// connections with a stateless reset. A peer may send such packets before it notices that its
// session ended.
func TestStatelessReset(t *testing.T) {
	cert, err := devcert.Generate(time.Now(), "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	ln, err := Listen("127.0.0.1:0", ListenConfig{
		Config: Config{Log: slog.New(slog.DiscardHandler)}, TLS: &tls.Config{Certificates: []tls.Certificate{cert}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	conn, err := net.Dial("udp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	sizes := []int{1200, 43}
	if quiccc.Patched() {
		sizes = append(sizes, 29, 22) // keep-alives
	}
	var token []byte
	for _, size := range sizes {
		packet := append([]byte{0x40, 1, 2, 3, 4}, make([]byte, size-5)...)
		if _, err := conn.Write(packet); err != nil {
			t.Fatal(err)
		}
		_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
		answer := make([]byte, 1500)
		n, err := conn.Read(answer)
		if err != nil {
			t.Fatalf("%d bytes: %v", size, err)
		}
		if n < 21 || n >= size || answer[0]&0xc0 != 0x40 {
			t.Fatalf("%d bytes: an answer of %d bytes, %x", size, n, answer[0])
		}
		last := answer[n-16 : n]
		if token != nil && !bytes.Equal(token, last) {
			t.Errorf("%d bytes: another token", size)
		}
		token = last
	}
}
