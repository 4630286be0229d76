// Package devcert makes short-lived self-signed certificates for development relays, and the TLS
// configuration of clients that pin one by its hash, as browsers do with WebTransport's
// serverCertificateHashes (W3C WebTransport, §6.9: ECDSA P-256, at most 14 days).
package devcert

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"errors"
	"fmt"
	"math/big"
	"net"
	"strings"
	"time"
)

// Lifetime is the validity of a certificate, a day less than browsers allow.
const Lifetime = 13 * 24 * time.Hour

// Generate makes a certificate for hosts (names or IP addresses), valid from an hour before now.
func Generate(now time.Time, hosts ...string) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return tls.Certificate{}, err
	}
	t := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: "Holocast development"},
		NotBefore:    now.Add(-time.Hour),
		NotAfter:     now.Add(Lifetime - time.Hour),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			t.IPAddresses = append(t.IPAddresses, ip)
		} else {
			t.DNSNames = append(t.DNSNames, h)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, t, t, &key.PublicKey, key)
	if err != nil {
		return tls.Certificate{}, err
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, nil
}

// Hash returns the SHA-256 of a certificate's DER, for pinning.
func Hash(c tls.Certificate) [sha256.Size]byte { return sha256.Sum256(c.Certificate[0]) }

// ParseHash reads a hash as 64 hex digits, colons allowed.
func ParseHash(s string) (h [sha256.Size]byte, err error) {
	b, err := hex.DecodeString(strings.ReplaceAll(strings.TrimSpace(s), ":", ""))
	if err != nil || len(b) != len(h) {
		return h, fmt.Errorf("certificate hash %q is not %d hex digits (SHA-256 of the certificate)", s, 2*len(h))
	}
	return [sha256.Size]byte(b), nil
}

// Pinned returns a client configuration that accepts only the certificate with the given hash, and
// only while it is valid.
func Pinned(hash [sha256.Size]byte) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		// The hash check below replaces the usual verification.
		InsecureSkipVerify: true, //nolint:gosec
		// Unlike VerifyPeerCertificate, this also runs when a session is resumed.
		VerifyConnection: func(s tls.ConnectionState) error {
			if len(s.PeerCertificates) == 0 {
				return errors.New("the server sent no certificate")
			}
			c := s.PeerCertificates[0]
			got := sha256.Sum256(c.Raw)
			if !bytes.Equal(got[:], hash[:]) {
				return fmt.Errorf("the server's certificate has hash %x, not the expected %x", got, hash)
			}
			if now := time.Now(); now.After(c.NotAfter) || now.Before(c.NotBefore) {
				return fmt.Errorf("the server's certificate is valid from %s to %s only",
					c.NotBefore.Format(time.DateTime), c.NotAfter.Format(time.DateTime))
			}
			return nil
		},
	}
}
