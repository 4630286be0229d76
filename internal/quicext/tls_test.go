package quicext

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/fips140"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"testing"
	"time"

	"holocast/internal/quiccc/quiccctest"
)

const (
	aes128 = tls.TLS_AES_128_GCM_SHA256
	aes256 = tls.TLS_AES_256_GCM_SHA384
	chacha = tls.TLS_CHACHA20_POLY1305_SHA256
	grease = 0x1a1a // RFC 8701
)

// restoreOrder reverts PreferChaCha20 at the end of the test.
func restoreOrder(t *testing.T) {
	if fips140.Enabled() {
		t.Skip("ChaCha20-Poly1305 is not allowed in FIPS 140-3 mode")
	}
	a, b := defaultCipherSuitesTLS13, defaultCipherSuitesTLS13NoAES
	t.Cleanup(func() { defaultCipherSuitesTLS13, defaultCipherSuitesTLS13NoAES = a, b })
}

func TestPreferChaCha20(t *testing.T) {
	for _, tt := range []struct {
		name    string
		offered []uint16
		want    uint16
	}{
		{"Go, Chromium with AES hardware", []uint16{grease, aes128, aes256, chacha}, chacha},
		{"Firefox", []uint16{aes128, chacha, aes256}, chacha},
		{"a phone", []uint16{chacha, aes128, aes256}, chacha},
		{"ChaCha20 alone", []uint16{chacha}, chacha},
		{"no ChaCha20", []uint16{aes256, aes128}, aes128},
		{"AES-256 alone", []uint16{aes256}, aes256},
	} {
		t.Run(tt.name, func(t *testing.T) {
			restoreOrder(t)
			if got := negotiate(t, tt.offered); got != tt.want {
				t.Errorf("agreed on %s, not %s", tls.CipherSuiteName(got), tls.CipherSuiteName(tt.want))
			}
		})
	}
}

// negotiate connects a client that offers the given cipher suites to a server that prefers
// ChaCha20, and returns the negotiated suite.
func negotiate(t *testing.T, offered []uint16) uint16 {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &k.PublicKey, k)
	if err != nil {
		t.Fatal(err)
	}
	client := tls.QUICClient(&tls.QUICConfig{TLSConfig: &tls.Config{
		MinVersion: tls.VersionTLS13, InsecureSkipVerify: true, NextProtos: []string{"test"},
	}})
	server := tls.QUICServer(&tls.QUICConfig{TLSConfig: &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: []string{"test"},
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: k}},
	}})
	defer func() { _, _ = client.Close(), server.Close() }()
	for _, c := range []*tls.QUICConn{client, server} {
		c.SetTransportParameters(nil)
	}
	// Both ends use this process's order; the client's is fixed in its first message.
	defaultCipherSuitesTLS13, defaultCipherSuitesTLS13NoAES = offered, offered
	if err := client.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	PreferChaCha20()
	if err := server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	var done [2]bool
	for !done[0] || !done[1] {
		idle := true
		for i, c := range []*tls.QUICConn{client, server} {
			for {
				ev := c.NextEvent()
				if ev.Kind == tls.QUICNoEvent {
					break
				}
				idle = false
				switch ev.Kind {
				case tls.QUICWriteData:
					if err := []*tls.QUICConn{server, client}[i].HandleData(ev.Level, ev.Data); err != nil {
						t.Fatal(err)
					}
				case tls.QUICHandshakeDone:
					done[i] = true
				}
			}
		}
		if idle {
			t.Fatal("the handshake stopped")
		}
	}
	if a, b := client.ConnectionState().CipherSuite, server.ConnectionState().CipherSuite; a != b {
		t.Fatalf("client %x, server %x", a, b)
	}
	return server.ConnectionState().CipherSuite
}

func TestConnectionsPreferChaCha20(t *testing.T) {
	restoreOrder(t)
	PreferChaCha20()
	_, ln := quiccctest.Listen(t, "", datagrams)
	client, server := connect(t, ln, ln.Addr())
	for _, c := range []uint16{client.ConnectionState().TLS.CipherSuite, server.ConnectionState().TLS.CipherSuite} {
		if c != chacha {
			t.Errorf("agreed on %s", tls.CipherSuiteName(c))
		}
	}
}
