//go:build linux

package main

import (
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// One address does not lock out the others, and its connections do not stay for doing nothing.
func TestConnectionsOfOneAddress(t *testing.T) {
	t.Parallel()
	p := start(t, workDir(t), "")
	addr := strings.TrimPrefix(p.url, "http://")
	ended := make(chan error, 2000)
	for range 1100 {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 7)}, Timeout: 30 * time.Second}
		c, err := d.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Write([]byte("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")); err != nil && !errors.Is(err, syscall.EPIPE) && !errors.Is(err, syscall.ECONNRESET) {
			t.Fatal(err)
		}
		go func() {
			_ = c.SetReadDeadline(time.Now().Add(60 * time.Second))
			_, err := io.Copy(io.Discard, c)
			ended <- err
		}()
	}
	if _, err := p.client().Status(t.Context()); err != nil { // from 127.0.0.1
		t.Errorf("an operator is locked out: %v", err)
	}
	for range 1100 {
		if err := <-ended; errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal("an idle connection stays")
		}
	}
}

func TestOrigin(t *testing.T) {
	for address, want := range map[string]string{
		"192.0.2.1:5": "192.0.2.1/32", "[::ffff:192.0.2.1]:5": "192.0.2.1/32", "[2001:db8:1:2:3::4]:5": "2001:db8:1:2::/64", "[fe80::1%lo]:5": "fe80::/64",
	} {
		a, err := net.ResolveTCPAddr("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		if got := origin(a).String(); got != want {
			t.Errorf("%s: %s, want %s", address, got, want)
		}
	}
}
