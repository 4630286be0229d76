package quicext

import (
	"crypto/tls"
	_ "unsafe" // for linkname
)

// The preference orders of crypto/tls for TLS 1.3 cipher suites, with and without AES hardware on
// both ends. crypto/tls has no other way to set them. It keeps these names because quic-go's tests
// set them.

//go:linkname defaultCipherSuitesTLS13 crypto/tls.defaultCipherSuitesTLS13
var defaultCipherSuitesTLS13 []uint16

//go:linkname defaultCipherSuitesTLS13NoAES crypto/tls.defaultCipherSuitesTLS13NoAES
var defaultCipherSuitesTLS13NoAES []uint16

// PreferChaCha20 makes TLS servers of this process select TLS_CHACHA20_POLY1305_SHA256 if the
// client offers it in any position, and clients offer it first: eBPF programs can seal
// ChaCha20-Poly1305, but AES is slow without the processor's instructions. Other peers still get
// AES. restore reverts it. Call neither during a handshake. In FIPS 140-3 mode they have no effect.
func PreferChaCha20() (restore func()) {
	a, b := defaultCipherSuitesTLS13, defaultCipherSuitesTLS13NoAES
	order := []uint16{tls.TLS_CHACHA20_POLY1305_SHA256, tls.TLS_AES_128_GCM_SHA256, tls.TLS_AES_256_GCM_SHA384}
	defaultCipherSuitesTLS13, defaultCipherSuitesTLS13NoAES = order, order
	return func() { defaultCipherSuitesTLS13, defaultCipherSuitesTLS13NoAES = a, b }
}
