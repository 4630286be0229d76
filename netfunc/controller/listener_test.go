//go:build linux

package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"holocast/netfunc/api"
)

// flood opens connections that send one request and are then idle, and returns how each ended.
func flood(t *testing.T, p *process, from net.IP, n int, header string) <-chan error {
	t.Helper()
	addr := strings.TrimPrefix(p.url, "http://")
	ended := make(chan error, n)
	for range n {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: from}, Timeout: patience}
		c, err := d.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		_, err = c.Write([]byte("GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + header + "\r\n"))
		if err != nil && !errors.Is(err, syscall.EPIPE) && !errors.Is(err, syscall.ECONNRESET) {
			t.Fatal(err)
		}
		go func() {
			_ = c.SetReadDeadline(time.Now().Add(patience))
			_, err := io.Copy(io.Discard, c)
			ended <- err
		}()
	}
	return ended
}

// Idle connections do not lock anyone out, even at the same address, and are eventually closed.
func TestIdleConnections(t *testing.T) {
	t.Parallel()
	for name, from := range map[string]func(int) net.IP{
		"one address":         func(int) net.IP { return net.IPv4(127, 0, 0, 7) },
		"everybody's address": func(int) net.IP { return net.IPv4(127, 0, 0, 1) },
		"many addresses":      func(i int) net.IP { return net.IPv4(127, 0, 1, byte(1+i)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := start(t, workDir(t), "")
			var ended []<-chan error
			for i := range 22 {
				ended = append(ended, flood(t, p, from(i), 50, ""))
			}
			newPair(t, p.client()).hello()
			if _, err := p.client().Status(t.Context()); err != nil {
				t.Errorf("an operator is locked out: %v", err)
			}
			for _, c := range ended {
				for range 50 {
					if err := <-c; errors.Is(err, os.ErrDeadlineExceeded) {
						t.Fatal("an idle connection stays")
					}
				}
			}
		})
	}
}

// watchEdge opens a watch stream, which is never idle, with the given token and source address, and
// returns the response's status.
func watchEdge(t *testing.T, p *process, edge, token string, from byte) (status string) {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, from)}, Timeout: patience}
	c, err := d.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if _, err := fmt.Fprintf(c, "GET /v1/edges/%s/watch HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer "+
		"%s\r\n\r\n", edge, token); err != nil {
		t.Fatal(err)
	}
	_ = c.SetReadDeadline(time.Now().Add(patience))
	line, err := bufio.NewReader(c).ReadString('\n') // the stream is endless
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(strings.TrimPrefix(line, "HTTP/1.1 "))
}

// An edge that opens connections from many addresses is held to one edge's quota. Other edges are
// served, even at the same address. The edge's own oldest idle connections are closed first.
func TestConnectionsOfOneEdge(t *testing.T) {
	t.Parallel()
	dir := workDir(t)
	tokens := map[string]string{"a": "token-of-the-edge-a", "b": "token-of-the-edge-b"}
	settings := "http: {maxConnections: 12, perAddress: 9, perEdge: 5}\nauth:\n  edges:\n"
	for name, token := range tokens {
		file := filepath.Join(dir, name+".token")
		if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		settings += fmt.Sprintf("    %s: %s\n", name, file)
	}
	p := start(t, dir, settings)
	newPair(t, p.client()).hello()
	for i := range 5 {
		if got := watchEdge(t, p, "a", tokens["a"], byte(11+i%2)); got != "200 OK" {
			t.Fatalf("stream %d: %s", i, got)
		}
	}
	for i := range 20 {
		if got := watchEdge(t, p, "a", tokens["a"], byte(11+i)); !strings.HasPrefix(got, "503 ") {
			t.Fatalf("stream %d of a: %s", 5+i, got)
		}
	}
	for i := range 5 {
		if got := watchEdge(t, p, "b", tokens["b"], 11); got != "200 OK" {
			t.Errorf("b is locked out at stream %d: %s", i, got)
		}
	}
}

// Edges that use up their connections do not lock operators out, and vice versa.
func TestConnectionsOfRoles(t *testing.T) {
	t.Parallel()
	dir := workDir(t)
	const edgeToken = "token-of-all-the-edges"
	if err := os.WriteFile(filepath.Join(dir, "edge-token"), []byte(edgeToken+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := start(t, dir, "http: {maxConnections: 8, perAddress: 7}\n", "--auth-edge-token",
		filepath.Join(dir, "edge-token"))
	newPair(t, p.client()).hello()
	watch := func(token string, from byte) string { return watchEdge(t, p, "b", token, from) }
	for i := range 8 {
		if got := watch(edgeToken, byte(11+i/4)); got != "200 OK" {
			t.Fatalf("stream %d: %s", i, got)
		}
	}
	if got := watch(edgeToken, 13); !strings.HasPrefix(got, "503 ") {
		t.Errorf("the ninth stream of edges: %s", got)
	}
	for i := range 6 { // in addition to the idle connection of the hello
		if got := watch(token, 1); got != "200 OK" {
			t.Fatalf("operators' stream %d: %s", i, got)
		}
	}
	if _, err := p.client().Status(t.Context()); err != nil {
		t.Errorf("idle connections of operators do not make room: %v", err)
	}
	if got := watch(token, 1); got != "200 OK" {
		t.Errorf("operators' last stream: %s", got)
	}
	if got := watch(token, 1); !strings.HasPrefix(got, "503 ") {
		t.Errorf("beyond perAddress: %s", got)
	}
}

// With a separate operators' address, operators are not served at the edges' address.
func TestOperatorsAddress(t *testing.T) {
	t.Parallel()
	p := start(t, workDir(t), "", "--http-operators", "127.0.0.1:0")
	var operators string
	for _, word := range strings.Split(p.output(), `"`) {
		if strings.HasPrefix(word, "http://") && word != p.url {
			operators = word
		}
	}
	c, err := api.NewClient(api.Options{URL: operators, Token: token, Timeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	if _, err := c.Status(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := p.client().Status(t.Context()); err == nil || !strings.Contains(err.Error(), "http.operators") {
		t.Errorf("at the address of edges: %v", err)
	}
	newPair(t, p.client()).hello()
	for path, want := range map[string]int{"/": 404, "/metrics": 404, "/healthz": 200} {
		resp, err := http.Get(p.url + path)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s: %d, want %d", path, resp.StatusCode, want)
		}
	}
	resp, err := http.Get(operators + "/")
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("the status page: %d", resp.StatusCode)
	}
	p.Stop()
}

func TestOrigin(t *testing.T) {
	for address, want := range map[string]string{
		"192.0.2.1:5": "192.0.2.1/32", "[::ffff:192.0.2.1]:5": "192.0.2.1/32",
		"[2001:db8:1:2:3::4]:5": "2001:db8:1:2::/64", "[fe80::1%lo]:5": "fe80::/64",
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
