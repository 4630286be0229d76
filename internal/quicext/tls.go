package quicext

import (
	"crypto/fips140"
	"crypto/tls"
	_ "unsafe" // for linkname
)

// The orders in which crypto/tls prefers the cipher suites of TLS 1.3, with hardware for
// AES on both ends and without. It has no other way to set them, and keeps these names
// for quic-go, which sets them in tests.

//go:linkname defaultCipherSuitesTLS13 crypto/tls.defaultCipherSuitesTLS13
var defaultCipherSuitesTLS13 []uint16

//go:linkname defaultCipherSuitesTLS13NoAES crypto/tls.defaultCipherSuitesTLS13NoAES
var defaultCipherSuitesTLS13NoAES []uint16

// PreferChaCha20 makes this process's TLS servers agree on TLS_CHACHA20_POLY1305_SHA256
// with every client that offers it, in whatever order, and its clients offer it first:
// an eBPF program can seal with ChaCha20-Poly1305, whereas AES without the processor's
// instructions is slow. With others they agree on AES as before. Call it before the
// first handshake of the process. In FIPS 140-3 mode it has no effect, and returns false.
func PreferChaCha20() bool {
	if fips140.Enabled() {
		return false
	}
	order := []uint16{tls.TLS_CHACHA20_POLY1305_SHA256, tls.TLS_AES_128_GCM_SHA256, tls.TLS_AES_256_GCM_SHA384}
	defaultCipherSuitesTLS13, defaultCipherSuitesTLS13NoAES = order, order
	return true
}
