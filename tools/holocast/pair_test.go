package main

import (
	"bytes"
	"context"
	"net"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"rsc.io/qr"

	"holocast/internal/connect"
	"holocast/internal/pairing"
)

var pairLink = regexp.MustCompile(`http://\S+/pair/[A-Z2-7]{8}#\S+`)

// TestPair checks that the printed link contains the address, the token and the certificate hash,
// even for a long token.
func TestPair(t *testing.T) {
	port := freePort(t)
	startRelay(t, port, "--http", ":"+strconv.Itoa(port))
	own, err := ownAddress()
	if err != nil {
		t.Skip("needs an address other than loopback: ", err)
	}
	token := strings.Repeat("t", 300)
	for _, host := range []string{own, "localhost", "127.0.0.1"} {
		var out bytes.Buffer
		url := "moqt://" + net.JoinHostPort(host, strconv.Itoa(port)) + "/demo"
		if err := pair(t.Context(), &out, connect.Target{URL: url, Token: token}, ""); err != nil {
			t.Fatal(err)
		}
		link := pairLink.FindString(out.String())
		address, err := pairing.Resolve(t.Context(), link)
		want := "moqt://" + net.JoinHostPort(own, strconv.Itoa(port)) + "/demo?token=" + token + "#"
		if err != nil || !strings.HasPrefix(address, want) || len(address) != len(want)+64 {
			t.Errorf("%s: %q gives %q, %v", host, link, address, err)
		}
		// HoloLens 2 reads versions 1 to 10.
		code, err := qr.Encode(link, qr.M)
		if err != nil || (code.Size-17)/4 > 10 {
			t.Errorf("%q needs a QR code of %d modules, %v", link, code.Size, err)
		}
		if lines := strings.Count(out.String(), "\n"); lines != (code.Size+2*quiet+1)/2+2 {
			t.Errorf("%d lines for %d modules", lines, code.Size)
		}
	}
}

// TestPairRefused checks the errors for a relay without HTTP and for one whose HTTP server headsets
// cannot reach.
func TestPairRefused(t *testing.T) {
	closed := freePort(t)
	hash := strings.Repeat("00", 32)
	target := connect.Target{URL: "moqt://192.0.2.1:" + strconv.Itoa(closed) + "/demo", CertificateHash: hash}
	if err := pair(t.Context(), &bytes.Buffer{}, target, ""); err == nil {
		t.Error("a relay without HTTP")
	}
	for _, url := range []string{"moqt://192.0.2.1:4443", "ftp://192.0.2.1/demo", "moqt://%zz/demo"} {
		if err := pair(t.Context(), &bytes.Buffer{}, connect.Target{URL: url, CertificateHash: hash}, ""); err == nil {
			t.Errorf("%s is accepted", url)
		}
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if err := pair(canceled, &bytes.Buffer{}, connect.Target{URL: "moqt://localhost/demo"}, ""); err == nil {
		t.Error("canceled")
	}
}
