//go:build linux

package main

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"holocast/netfunc/api"
)

// TestReload checks that SIGHUP applies a new token, policy and request rate, and logs the settings
// that need a restart. An invalid file changes nothing.
func TestReload(t *testing.T) {
	dir := workDir(t)
	p := start(t, dir, "")
	ask := func(token string) int {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+"/v1/status", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		return resp.StatusCode
	}
	hup := func(yaml, says string) {
		t.Helper()
		file := filepath.Join(dir, "controller.yaml")
		if err := os.WriteFile(file, []byte(withReportInterval(yaml)), 0o600); err != nil {
			t.Fatal(err)
		}
		before := strings.Count(p.output(), says)
		p.Signal(syscall.SIGHUP)
		eventually(t, says+" in the log", func() bool { return strings.Count(p.output(), says) > before })
	}
	if status := ask(token); status != http.StatusOK {
		t.Fatalf("status %d", status)
	}
	const other = "another-token-of-the-process-tests"
	if err := os.WriteFile(filepath.Join(dir, "token"), []byte(other+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	hup("maxFlows: 7\n", `"settings":"maxFlows"`)
	if a, b := ask(token), ask(other); a != http.StatusUnauthorized || b != http.StatusOK {
		t.Errorf("the old token gets %d, the new one %d", a, b)
	}
	hup("http: {rate: -1}\n", "http.rate")
	hup("maxFlows: 7\nmode: redirect\ntrigger: {count: 5}\ngrants: {paris: {prefixes: [10.9.0.0/24]}}\n",
		`"msg":"configuration reloaded"`)
	operator, err := api.NewClient(api.Options{URL: p.url, Token: other, Timeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	defer operator.Close()
	if s, err := operator.Status(t.Context()); err != nil || s.Mode != api.Redirect || s.Trigger.Count != 5 {
		t.Fatalf("the new policy is not in force: %+v, %v", s, err)
	}
	if _, err := operator.Hello(t.Context(), api.Edge{Name: "london", Role: api.Receiver}); err == nil ||
		!strings.Contains(err.Error(), "no grant for edge london") {
		t.Errorf("an edge without a grant: %v", err)
	}
	hup("maxFlows: 7\nhttp: {rate: 0.001, burst: 1}\n", `"msg":"configuration reloaded"`)
	eventually(t, "the new rate", func() bool { return ask(other) == http.StatusTooManyRequests })
}
