package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/origin"
)

// TestSIGHUP checks that SIGHUP loads the certificates that the configuration file names, reports
// settings that need a restart, and changes nothing if the file is invalid.
func TestSIGHUP(t *testing.T) {
	dir, soon := t.TempDir(), time.Now().Add(24*time.Hour)
	config := filepath.Join(dir, "relay.yaml")
	write := func(sub, more string) (hash string) {
		d := filepath.Join(dir, sub)
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
		cert, key, sum := pair(t, d, soon)
		yaml := fmt.Sprintf("tls: {certificate: %s, key: %s}\n%s", cert, key, more)
		if err := os.WriteFile(config, []byte(yaml), 0o600); err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("%x\n", sum)
	}
	first := write("first", "")
	p := start(t, "--config", config)
	if _, hash := p.get("/certificate.sha256"); hash != first {
		t.Fatalf("certificate %s, want the file's, %s", hash, first)
	}
	hup := func(says string) {
		t.Helper()
		p.Signal(syscall.SIGHUP)
		eventually(t, says, func() bool { return strings.Contains(p.output(), says) })
	}
	second := write("second", "maxConnects: 9\nmaxSessions: 9\n")
	hup(`"settings":"maxConnects"`)
	if _, hash := p.get("/certificate.sha256"); hash != second {
		t.Errorf("after SIGHUP certificate %s, want %s", hash, second)
	}
	write("third", "maxSessions: 0\n")
	hup("maxSessions must be above 0")
	if _, hash := p.get("/certificate.sha256"); hash != second {
		t.Errorf("after a wrong file certificate %s, want %s", hash, second)
	}
}

// TestReloadFails checks that SIGHUP changes neither keys nor certificate if one of them cannot be
// loaded.
func TestReloadFails(t *testing.T) {
	dir := t.TempDir()
	config := filepath.Join(dir, "relay.yaml")
	cert, key, _ := pair(t, dir, time.Now().Add(24*time.Hour))
	old, next := newIssuer(t, "EdDSA"), newIssuer(t, "EdDSA")
	set := func(keys, cert string) {
		t.Helper()
		yaml := fmt.Sprintf("auth: {keys: [%s]}\ntls: {certificate: %s, key: %s}\n", keys, cert, key)
		if err := os.WriteFile(config, []byte(yaml), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	set(old.file, cert)
	p := start(t, "--config", config)
	_, hash := p.get("/certificate.sha256")
	reload := func(says string) {
		t.Helper()
		p.Signal(syscall.SIGHUP)
		eventually(t, says, func() bool { return strings.Contains(p.output(), says) })
		if _, now := p.get("/certificate.sha256"); now != hash {
			t.Errorf("certificate %s, want %s", now, hash)
		}
		publishing(t, p, old.publisher(), origin.NewTrack(points, nil, origin.Limits{})).Close(wire.NoError, "")
	}
	set(next.file, cert+".none")
	reload("tls.certificate " + cert + ".none")
	other, otherKey, _ := pair(t, t.TempDir(), time.Now().Add(24*time.Hour))
	key = otherKey
	set(next.file+".none", other)
	reload("auth.keys: open " + next.file + ".none")
}

// TestReloadOfLimits checks that reloaded limits apply to existing sessions and tracks. Connected
// sessions stay, and tracks evict the excess.
func TestReloadOfLimits(t *testing.T) {
	config := filepath.Join(t.TempDir(), "relay.yaml")
	set := func(yaml string) {
		t.Helper()
		if err := os.WriteFile(config, []byte(yaml), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	set("cache: {maxAge: 1h}\n")
	p := start(t, "--config", config)
	tr := origin.NewTrack(points, nil, origin.Limits{})
	p.publish(tr)
	sub := subscribe(t, p.dial(moqt.Handler{}), points)
	payload := make([]byte, 100<<10)
	for group := range uint64(20) {
		write(t, tr, group, payload)
		expect(t, sub, group, payload)
	}
	eventually(t, "20 groups in the cache", func() bool {
		return p.metric(`holocast_relay_cached_bytes{track="holocast-test--points"}`) > 20*100<<10
	})
	pageMay := func() bool {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+p.http+"/certificate.sha256", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Origin", "https://viewer.example")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		return resp.Header.Get("Access-Control-Allow-Origin") != ""
	}
	if pageMay() {
		t.Error("a page of others may read the certificate's hash")
	}
	set("cache: {maxAge: 1h, maxBytes: 1000000, totalBytes: 1000000}\nmaxSessions: 2\norigins: " +
		"[https://viewer.example]\npublisher: {grace: 100ms}\ndrain: 1s\n")
	p.Signal(syscall.SIGHUP)
	eventually(t, "the reload", func() bool { return strings.Contains(p.output(), "configuration reloaded") })
	if strings.Contains(p.output(), "after a restart") {
		t.Error("a limit needs a restart")
	}
	eventually(t, "a smaller cache", func() bool {
		return p.metric(`holocast_relay_cached_bytes{track="holocast-test--points"}`) <= 1000000
	})
	c, err := moqt.Dial(t.Context(), "moqt://"+p.udp, pinned(t, p.hash), moqt.Handler{}, quiet)
	if err == nil {
		<-c.Context().Done()
		err = c.Err()
	}
	if err == nil || !strings.Contains(err.Error(), "session limit") {
		t.Errorf("a third session: %v", err)
	}
	if !pageMay() {
		t.Error("a page of an origin that the file names may not read the certificate's hash")
	}
	write(t, tr, 20, payload) // the open session continues
	expect(t, sub, 20, payload)
}
