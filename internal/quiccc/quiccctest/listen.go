// Package quiccctest connects QUIC endpoints over the loopback interface, to test features that
// only the patched quic-go has.
package quiccctest

import (
	"crypto/tls"
	"net"
	"testing"
	"time"

	"github.com/quic-go/quic-go"

	"holocast/internal/devcert"
	"holocast/internal/quiccc"
)

// ClientTLS is the configuration of a client that trusts any listener.
func ClientTLS() *tls.Config {
	return &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"test"}}
}

// Listen listens with the named congestion control, "" for quic-go's own, until the test ends.
func Listen(t testing.TB, controller string, cfg *quic.Config) (*net.UDPConn, *quic.Listener) {
	t.Helper()
	cert, err := devcert.Generate(time.Now(), "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	udp, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	tr := &quic.Transport{Conn: udp}
	if controller != "" {
		if tr.ConnContext, err = quiccc.ConnContext(controller); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { _ = tr.Close(); _ = udp.Close() })
	ln, err := tr.Listen(&tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{"test"}}, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return udp, ln
}
