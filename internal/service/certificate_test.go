package service

import (
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holocast/internal/clock/clocktest"
	"holocast/internal/devcert"
)

// write writes the files of a certificate generated at a given time.
func write(t *testing.T, at time.Time, cert, key string) {
	t.Helper()
	c, err := devcert.Generate(at, "localhost")
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	for path, block := range map[string]*pem.Block{
		cert: {Type: "CERTIFICATE", Bytes: c.Certificate[0]}, key: {Type: "PRIVATE KEY", Bytes: der},
	} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestCertificateErrors(t *testing.T) {
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for name, c := range map[string]struct {
		at   time.Time // of the certificate
		key  string
		want string
	}{
		"no key":         {time.Now(), key + ".none", "tls.certificate " + cert + ", tls.key " + key + ".none: open "},
		"not that key's": {time.Now(), cert, "tls.certificate " + cert + ", tls.key " + cert + ": tls: "},
	} {
		t.Run(name, func(t *testing.T) {
			write(t, c.at, cert, key)
			_, err := NewCertificate(CertificateFiles{Certificate: cert, Key: c.key, Section: "tls"}, quiet)
			if err == nil || !strings.HasPrefix(err.Error(), c.want) {
				t.Errorf("%v, want %s", err, c.want)
			}
		})
	}
}

// TestCertificateOutsideValidity checks that a server starts with an expired certificate, or one
// not valid yet, logs that once, and uses its replacement.
func TestCertificateOutsideValidity(t *testing.T) {
	for name, c := range map[string]struct {
		at   time.Duration // of the certificate, from now
		says string
	}{
		"expired": {-2 * devcert.Lifetime, " expired on "},
		"not yet": {devcert.Lifetime, " is not valid before "},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
			write(t, time.Now().Add(c.at), cert, key)
			var log strings.Builder
			one, err := NewCertificate(CertificateFiles{Certificate: cert, Key: key, Section: "tls"},
				slog.New(slog.NewTextHandler(&log, nil)))
			if err != nil {
				t.Fatal(err)
			}
			again := func() string {
				one.checked = time.Time{}
				return one.Hash()
			}
			first := one.Hash()
			if again() != first || strings.Count(log.String(), cert+c.says) != 1 {
				t.Errorf("logged %q", &log)
			}
			write(t, time.Now(), cert, key)
			if again() == first {
				t.Error("the replacement is not used")
			}
		})
	}
}

// TestCertificateWithoutDescriptors checks that a certificate that cannot be read for lack of
// descriptors is read once descriptors are free, even if its files have not changed again.
func TestCertificateWithoutDescriptors(t *testing.T) {
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	write(t, time.Now(), cert, key)
	c, err := NewCertificate(CertificateFiles{Certificate: cert, Key: key, Section: "tls"}, quiet)
	if err != nil {
		t.Fatal(err)
	}
	first := c.Hash()
	write(t, time.Now(), cert, key)
	again := func() string {
		c.checked = time.Time{}
		return c.Hash()
	}
	func() {
		var limit unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
			t.Fatal(err)
		}
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Max: limit.Max}); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = unix.Setrlimit(unix.RLIMIT_NOFILE, &limit) }()
		if again() != first || c.failed == "" {
			t.Error("files are read without descriptors")
		}
	}()
	if again() == first {
		t.Error("the new certificate is not used")
	}
}

// TestCertificateReplaced checks that a replaced certificate is used. An unusable replacement is
// reported once, and the old certificate stays in use.
func TestCertificateReplaced(t *testing.T) {
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	write(t, time.Now(), cert, key)
	var log strings.Builder
	c, err := NewCertificate(CertificateFiles{Certificate: cert, Key: key, Section: "tls"},
		slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	again := func() string {
		c.checked = time.Time{}
		return c.Hash()
	}
	first := c.Hash()
	if again() != first || log.Len() > 0 {
		t.Errorf("the same files make another certificate: %s", &log)
	}
	write(t, time.Now().Add(time.Second), cert, key)
	if c.Hash() != first {
		t.Error("the files are read at every handshake")
	}
	second := again()
	if second == first || !strings.Contains(log.String(), "certificate replaced") {
		t.Errorf("the new certificate is not used: %s", &log)
	}
	log.Reset()
	if err := os.WriteFile(cert, []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	if kept, still := again(), again(); kept != second || still != second ||
		strings.Count(log.String(), "keeping the old certificate") != 1 {
		t.Errorf("of a damaged certificate it says %q", &log)
	}
}

func TestDevelopmentCertificate(t *testing.T) {
	c, err := NewCertificate(CertificateFiles{Hosts: []string{"localhost", "::1"}}, quiet)
	if err != nil {
		t.Fatal(err)
	}
	first := c.Hash()
	leaf := c.Get().Leaf
	if err := leaf.VerifyHostname("::1"); err != nil || c.Hash() != first {
		t.Errorf("%v, hash %s then %s", err, first, c.Hash())
	}
	leaf.NotAfter = time.Now().Add(renewBefore / 2)
	if c.Hash() == first {
		t.Error("it is not renewed in time")
	}
}

// TestCertificateClockStep checks that steps of the wall clock do not affect checks and replacement
// of files. A certificate rejected as not yet valid because the clock is slow is used once the
// clock is corrected.
func TestCertificateClockStep(t *testing.T) {
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	began := time.Now()
	write(t, began, cert, key)
	c, err := NewCertificate(CertificateFiles{Certificate: cert, Key: key, Section: "tls"}, quiet)
	if err != nil {
		t.Fatal(err)
	}
	elapsed := time.Duration(0)
	at := func(step time.Duration) string { // once the files may be checked again
		elapsed += 2 * checkEvery
		c.clock = func() time.Time { return clocktest.Step(began, step).Add(elapsed) }
		return c.Hash()
	}
	last := at(0)
	for i, s := range []struct {
		step time.Duration
		from time.Duration // when the next certificate becomes valid
		used bool
	}{
		{time.Hour, -time.Hour, true},
		{-time.Hour, -2 * time.Hour, true},
		{-time.Hour, -30 * time.Minute, false},
	} {
		write(t, began.Add(s.from+time.Hour+time.Duration(i)*time.Second), cert, key)
		got := at(s.step)
		if used := got != last; used != s.used {
			t.Errorf("clock stepped by %v, a certificate valid from %v: used %v, want %v", s.step, s.from, used, s.used)
		}
		if again := at(s.step); again != got {
			t.Errorf("clock stepped by %v: %s, then %s", s.step, got, again)
		}
		last = got
	}
	if at(0) == last {
		t.Error("a certificate that is valid by now is not used")
	}
}
