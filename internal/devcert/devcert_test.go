package devcert

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"strings"
	"testing"
	"time"
)

func TestGenerate(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	c, err := Generate(now, "localhost", "127.0.0.1", "::1")
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"localhost", "127.0.0.1", "::1"} {
		if err := c.Leaf.VerifyHostname(host); err != nil {
			t.Error(err)
		}
	}
	// Browsers accept at most 14 days (W3C WebTransport, §6.9).
	if d := c.Leaf.NotAfter.Sub(c.Leaf.NotBefore); d > 14*24*time.Hour {
		t.Errorf("valid for %v", d)
	}
	if now.Before(c.Leaf.NotBefore) || now.After(c.Leaf.NotAfter) {
		t.Errorf("not valid at %v", now)
	}
}

func TestParseHash(t *testing.T) {
	want := [32]byte{0xab, 31: 0xcd}
	plain := hex.EncodeToString(want[:])
	var colons []string
	for i := 0; i < len(plain); i += 2 {
		colons = append(colons, strings.ToUpper(plain[i:i+2]))
	}
	tests := []struct {
		name, in string
		ok       bool
	}{
		{"plain", plain, true},
		{"colons and capitals", strings.Join(colons, ":"), true},
		{"space around", " " + plain + "\n", true},
		{"short", plain[2:], false},
		{"long", plain + "00", false},
		{"not hex", "zz" + plain[2:], false},
		{"empty", "", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ParseHash(tt.in)
			if tt.ok != (err == nil) || tt.ok && got != want {
				t.Errorf("%x, %v", got, err)
			}
			if err != nil && !strings.Contains(err.Error(), "is not 64 hex digits (SHA-256 of the certificate)") {
				t.Errorf("error %q", err)
			}
		})
	}
}

func TestPinned(t *testing.T) {
	now := time.Now()
	cert := func(at time.Time) tls.Certificate {
		c, err := Generate(at, "localhost")
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	good, other, expired, future := cert(now), cert(now), cert(now.Add(-2*Lifetime)), cert(now.Add(2*Lifetime))
	tests := []struct {
		name           string
		pinned, served tls.Certificate
		want           string // "" = trusted
	}{
		{"the pinned one", good, good, ""},
		{"another", good, other, "the server's certificate has hash "},
		{"expired", expired, expired, "the server's certificate is valid from "},
		{"not yet valid", future, future, "the server's certificate is valid from "},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			state := tls.ConnectionState{PeerCertificates: []*x509.Certificate{tt.served.Leaf}}
			err := Pinned(Hash(tt.pinned)).VerifyConnection(state)
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.HasPrefix(err.Error(), tt.want)) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}
