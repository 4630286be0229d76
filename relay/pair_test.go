package main

import (
	"net/http"
	"strings"
	"testing"

	"holocast/internal/pairing"
)

// TestPairing checks that codes can be created on the relay's machine and at the admin address, but
// not by pages of other sites, and that anyone who has a code can read the address deposited under
// it.
func TestPairing(t *testing.T) {
	p := start(t, "--http", ":0", "--admin", "127.0.0.1:0")
	_, port, _ := strings.Cut(p.http, "]:")
	web := "http://127.0.0.1:" + port
	for _, base := range []string{web, "http://" + p.admin} {
		path, err := pairing.Deposit(t.Context(), base, "moqt://relay/demo")
		if err != nil {
			t.Fatal(base, err)
		}
		if got, err := pairing.Resolve(t.Context(), web+path); got != "moqt://relay/demo" || err != nil {
			t.Errorf("%s: %q %v", base, got, err)
		}
		// The admin address creates codes but does not resolve them.
		if _, err := pairing.Resolve(t.Context(), "http://"+p.admin+path); err == nil {
			t.Error("the admin address serves codes")
		}
	}
	for _, c := range []struct{ header, value string }{
		{"Origin", "https://evil.example"}, {"Host", "evil.example"}, {"X-Forwarded-For", "192.0.2.1"},
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, web+pairing.Path, strings.NewReader("sealed"))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set(c.header, c.value)
		if c.header == "Host" {
			req.Host = c.value
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode/100 != 4 {
			t.Errorf("%s %s: %s", c.header, c.value, resp.Status)
		}
	}
}
