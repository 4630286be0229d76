// Package connect is how Holocast's programs reach a relay: what a session's URL
// means, whose certificate is trusted, and trying again when the relay is away.
package connect

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"holocast/internal/devcert"
	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
)

// Target is a session at a relay.
type Target struct {
	// URL is moqt://host:port/session over raw QUIC, or https://… over
	// WebTransport. The port defaults to 443.
	URL string
	// CertificateHash pins the relay's certificate: SHA-256, hex.
	CertificateHash string
	// Insecure takes the certificate's hash from the relay itself, over plain HTTP.
	// For relays on this machine that is done without asking.
	Insecure bool
	// Congestion names the controller of what is sent to the relay; "" is the default.
	Congestion string
}

// AddFlags adds the flags that say whom to trust and how to send.
func (t *Target) AddFlags(f *pflag.FlagSet) {
	f.StringVar(&t.CertificateHash, "certificate-hash", "", "SHA-256 of the relay's certificate, hex (the relay logs it at its start)")
	f.BoolVar(&t.Insecure, "insecure", false, "trust the development certificate that the relay names over plain HTTP")
	f.StringVar(&t.Congestion, "congestion", "", CongestionUsage)
}

// CongestionUsage explains the setting that names a congestion controller.
const CongestionUsage = "congestion controller: bbr (the default), cubic, newreno, vegas or yeah"

// Session is the session the URL names: its path.
func (t Target) Session() (string, error) {
	u, err := url.Parse(t.URL)
	if err != nil {
		return "", fmt.Errorf("URL %q: %w", t.URL, err)
	}
	s := strings.Trim(u.Path, "/")
	if s == "" {
		return "", fmt.Errorf("URL %q names no session: it ends in /SESSION, as in moqt://localhost:4443/demo", t.URL)
	}
	return s, nil
}

// Namespace is the namespace of the session the URL names.
func (t Target) Namespace() (moqt.Namespace, error) {
	s, err := t.Session()
	if err != nil {
		return nil, err
	}
	return moqt.Namespace{Root, s}, nil
}

// Dial connects once.
func (t Target) Dial(ctx context.Context, h moqt.Handler, cfg moqt.Config) (*moqt.Session, error) {
	conf, err := t.tls(ctx)
	if err != nil {
		return nil, err
	}
	cfg.Congestion = t.Congestion
	return moqt.Dial(ctx, t.URL, conf, h, cfg)
}

func (t Target) tls(ctx context.Context) (*tls.Config, error) {
	if t.CertificateHash != "" {
		hash, err := devcert.ParseHash(t.CertificateHash)
		if err != nil {
			return nil, err
		}
		return devcert.Pinned(hash), nil
	}
	u, err := url.Parse(t.URL)
	if err != nil {
		return nil, fmt.Errorf("URL %q: %w", t.URL, err)
	}
	local := loopback(u.Hostname())
	if !local && !t.Insecure {
		return &tls.Config{MinVersion: tls.VersionTLS13}, nil
	}
	hash, err := askHash(ctx, u)
	switch {
	case err == nil:
		return devcert.Pinned(hash), nil
	case t.Insecure:
		return nil, fmt.Errorf("ask %s for its certificate's hash: %w", u.Host, err)
	}
	return &tls.Config{MinVersion: tls.VersionTLS13}, nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// askHash reads /certificate.sha256 of the relay's HTTP server, which has the
// number of its UDP port.
func askHash(ctx context.Context, u *url.URL) (hash [32]byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	host := u.Host
	if u.Port() == "" {
		host = net.JoinHostPort(u.Hostname(), "443")
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+host+"/certificate.sha256", nil)
	if err != nil {
		return hash, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return hash, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return hash, fmt.Errorf("it answered %s", resp.Status)
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, 256))
	if err != nil {
		return hash, err
	}
	return devcert.ParseHash(string(b))
}

// Back-off between attempts.
const (
	firstRetry = 200 * time.Millisecond
	lastRetry  = 5 * time.Second
)

// Keep connects, calls use with the session, and connects again when the session
// is lost, until ctx ends or use returns nil or an error made by Final. use
// returns when it is done with the session, at the latest when that ends. The log
// warns of each reason once, until another comes or a session lasts.
func (t Target) Keep(ctx context.Context, h moqt.Handler, cfg moqt.Config, use func(context.Context, *moqt.Session) error) error {
	wait := firstRetry
	var reported string
	for {
		s, err := t.Dial(ctx, h, cfg)
		if err == nil {
			began := time.Now()
			err = use(ctx, s)
			s.Close(wire.NoError, "")
			if time.Since(began) > lastRetry {
				wait, reported = firstRetry, ""
			}
		}
		var final finalError
		switch {
		case err == nil, ctx.Err() != nil:
			return err
		case errors.As(err, &final):
			return final.error
		}
		level := slog.LevelWarn
		if err.Error() == reported {
			level = slog.LevelDebug
		}
		reported = err.Error()
		slog.Log(ctx, level, "trying again until the relay answers", "relay", t.URL, "in", wait.Round(time.Millisecond), "reason", err)
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return err
		}
		wait = min(2*wait, lastRetry)
		wait += rand.N(wait / 4) // so that many clients do not return together
	}
}

type finalError struct{ error }

func (e finalError) Unwrap() error { return e.error }

// Final marks an error that connecting again would not mend.
func Final(err error) error { return finalError{err} }

// IsFinal reports whether err was marked by Final.
func IsFinal(err error) bool {
	var final finalError
	return errors.As(err, &final)
}
