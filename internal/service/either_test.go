package service

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"holocast/internal/devcert"
)

// TestEither serves HTTP and HTTPS on one port, while other connections send nothing or junk.
func TestEither(t *testing.T) {
	cert, err := devcert.Generate(time.Now(), "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	web, err := ListenHTTP("http", "127.0.0.1:0", quiet)
	if err != nil {
		t.Fatal(err)
	}
	web.Secure(&tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS13})
	web.HandleFunc("GET /", func(w http.ResponseWriter, r *http.Request) {
		if r.TLS != nil {
			_, _ = io.WriteString(w, "secure")
		}
	})
	web.Start()
	var silent []net.Conn
	for i := range 2 * maxConns() {
		c, err := net.Dial("tcp", web.Addr())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if i%2 == 1 {
			_, _ = c.Write([]byte{22, 3}) // the beginning of a TLS record
		}
		silent = append(silent, c)
	}
	if status, body := get(t, "http://"+web.Addr()); status != 200 || body != "" {
		t.Errorf("HTTP: %d %q", status, body)
	}
	client := http.Client{Transport: &http.Transport{
		TLSClientConfig: devcert.Pinned(devcert.Hash(cert)), DisableKeepAlives: true,
	}}
	r, err := client.Get("https://" + web.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if b, _ := io.ReadAll(r.Body); string(b) != "secure" {
		t.Errorf("HTTPS: %q", b)
	}
	web.Close()
	if _, err := silent[len(silent)-2].Read(make([]byte, 1)); err == nil || errors.Is(err, net.ErrClosed) {
		t.Errorf("a silent connection: %v", err)
	}
}
