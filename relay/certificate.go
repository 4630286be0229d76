package main

import (
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/x509"
	"fmt"

	"holocast/internal/service"
)

// resetKey returns the key for stateless resets (RFC 9000 §10.3), which tell peers immediately that
// their session ended. It is derived from the certificate's key and thus survives a restart. A
// development certificate does not survive one; resetKey then returns own, the key of this process.
func resetKey(cfg Config, cert *service.Certificate, own *[32]byte) (*[32]byte, error) {
	if cfg.TLS.Certificate == "" {
		return own, nil
	}
	secret, err := x509.MarshalPKCS8PrivateKey(cert.Get().PrivateKey)
	if err != nil {
		return nil, fmt.Errorf("tls.key %s: %w", cfg.TLS.Key, err)
	}
	key, err := hkdf.Key(sha256.New, secret, nil, "holocast relay stateless reset", 32)
	if err != nil {
		return nil, fmt.Errorf("derive stateless reset key: %w", err)
	}
	return (*[32]byte)(key), nil
}
