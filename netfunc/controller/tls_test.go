//go:build linux

package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holocast/netfunc/api"
)

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string // PEM
}

func newAuthority(t *testing.T, dir, name string) *authority {
	t.Helper()
	a := &authority{file: filepath.Join(dir, name+".ca.pem")}
	a.key, _ = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &a.key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	a.cert, _ = x509.ParseCertificate(der)
	writePEM(t, a.file, "CERTIFICATE", der)
	return a
}

// issue writes a certificate for name and its key, and returns the file names.
func (a *authority) issue(t *testing.T, dir, name string, serial int64) (cert, key string) {
	t.Helper()
	k, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, a.cert, &k.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	b, err := x509.MarshalECPrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(dir, name+".pem"), filepath.Join(dir, name+".key")
	writePEM(t, cert, "CERTIFICATE", der)
	writePEM(t, key, "EC PRIVATE KEY", b)
	return cert, key
}

func writePEM(t *testing.T, path, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestTLS(t *testing.T) {
	t.Parallel()
	dir := workDir(t)
	ours, theirs := newAuthority(t, dir, "ours"), newAuthority(t, dir, "theirs")
	cert, key := ours.issue(t, dir, "controller", 2)
	edge, edgeKey := ours.issue(t, dir, "edge", 3)
	stranger, strangerKey := theirs.issue(t, dir, "stranger", 4)
	args := []string{"--http-certificate", cert, "--http-key", key, "--http-client-ca", ours.file}
	const operators = "auth: {operators: [operator]}\n"
	operator, operatorKey := ours.issue(t, dir, "operator", 7)
	for name, c := range map[string]struct {
		args []string
		o    api.Options
		want string // expected in the error
	}{
		"token":       {args, api.Options{CA: ours.file, Token: token}, ""},
		"certificate": {args, api.Options{CA: ours.file, Certificate: operator, Key: operatorKey}, ""},
		"certificate alone": {
			append([]string{"--auth-token", ""}, args...),
			api.Options{CA: ours.file, Certificate: operator, Key: operatorKey},
			"",
		},
		"certificate of an edge": {args, api.Options{CA: ours.file, Certificate: edge, Key: edgeKey}, "operator"},
		"neither":                {args, api.Options{CA: ours.file}, "401"},
		"neither, certificates alone": {
			append([]string{"--auth-token", ""}, args...), api.Options{CA: ours.file}, "401",
		},
		"wrong token": {args, api.Options{CA: ours.file, Token: "nobody"}, "401"},
		"certificate of others": {
			args,
			api.Options{CA: ours.file, Certificate: stranger, Key: strangerKey},
			"certificate",
		},
		"controller of others": {args, api.Options{CA: theirs.file, Token: token}, "certificate"},
		"no TLS":               {args, api.Options{Token: token, URL: "http"}, "400"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			own := workDir(t)
			p := start(t, own, operators, append([]string{"--auth-token", filepath.Join(own, "token")}, c.args...)...)
			if c.o.URL == "" {
				c.o.URL = p.url
			} else {
				c.o.URL = strings.Replace(p.url, "https", "http", 1)
			}
			c.o.Timeout = patience
			client, err := api.NewClient(c.o)
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			_, err = client.Status(t.Context())
			if (err == nil) != (c.want == "") || (err != nil && !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%v, want %q", err, c.want)
			}
			if c.want == "401" && !errors.Is(err, api.ErrUnauthorized) {
				t.Errorf("%v is not ErrUnauthorized", err)
			}
		})
	}
	t.Run("authorization by certificate", func(t *testing.T) {
		t.Parallel()
		p := start(t, workDir(t), operators, append(args, "--auth-token", "")...)
		client := func(cert, key string) *api.Client {
			c, err := api.NewClient(api.Options{
				URL: p.url, CA: ours.file, Certificate: cert, Key: key,
				Timeout: patience,
			})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(c.Close)
			return c
		}
		asEdge, asOperator, ctx := client(edge, edgeKey), client(operator, operatorKey), t.Context()
		for name, c := range map[string]struct {
			err error
			ok  bool
		}{
			"its own hello":       {func() error { _, err := asEdge.Hello(ctx, api.Edge{Name: "edge", Role: api.Receiver}); return err }(), true},
			"its own report":      {asEdge.Report(ctx, "edge", api.Report{}), true},
			"another's hello":     {func() error { _, err := asEdge.Hello(ctx, api.Edge{Name: "other", Role: api.Receiver}); return err }(), false},
			"another's report":    {asEdge.Report(ctx, "other", api.Report{}), false},
			"another's departure": {asEdge.Leave(ctx, "other"), false},
			"reading":             {func() error { _, err := asEdge.Flows(ctx); return err }(), false},
			"operator reads":      {func() error { _, err := asOperator.Flows(ctx); return err }(), true},
			"operator for edges":  {func() error { _, err := asOperator.Hello(ctx, api.Edge{Name: "other", Role: api.Receiver}); return err }(), true},
		} {
			var p *api.Problem
			if (c.err == nil) != c.ok || (!c.ok && (!errors.As(c.err, &p) || p.Status != 403)) {
				t.Errorf("%s: %v", name, c.err)
			}
		}
	})
	t.Run("renewed", func(t *testing.T) {
		t.Parallel()
		own := workDir(t)
		cert, key := ours.issue(t, own, "controller", 5)
		p := start(t, own, "", "--http-certificate", cert, "--http-key", key)
		first, err := api.NewClient(api.Options{URL: p.url, CA: theirs.file, Token: token, Timeout: patience})
		if err != nil {
			t.Fatal(err)
		}
		defer first.Close()
		if _, err := first.Status(t.Context()); err == nil {
			t.Fatal("trusted")
		}
		theirs.issue(t, own, "controller", 6)
		eventually(t, "the new certificate is in use", func() bool {
			_, err := first.Status(t.Context())
			return err == nil
		})
	})
}
