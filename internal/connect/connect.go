// Package connect connects Holocast's programs to a relay: it interprets session URLs, selects the
// trusted certificate and retries while the relay is unreachable.
package connect

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"holocast/internal/devcert"
	"holocast/internal/eyeballs"
	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/secretfile"
)

// Target identifies a session at a relay and how to connect to it.
type Target struct {
	// URL is moqt://host:port/session for raw QUIC, or https://… for WebTransport. The port
	// defaults to 443.
	URL string
	// CertificateHash pins the relay's certificate by its SHA-256 hash, in hex.
	CertificateHash string
	// Insecure fetches the certificate's hash from the relay over plain HTTP. This is the default
	// for relays on this host.
	Insecure bool
	// Congestion names the congestion controller for sending to the relay. "" means the default.
	Congestion string
	// Token authorizes the session: a token, or @FILE to read the token from a file at each
	// attempt. "" uses the environment variable HOLOCAST_TOKEN. A token in the URL (#token=…) takes
	// precedence. It cannot name a file, because links come from third parties.
	Token string
	// Client is a client certificate that authorizes the session instead of a token.
	Client ClientCertificate
	// Paths are the network paths to the relay, in the form that ParsePath accepts. Several paths
	// share one session.
	Paths []string
	// Transport is TransportAuto, TransportQUIC or TransportTCP; "" means TransportAuto.
	Transport string
	// Relays are URLs of other relays that serve the session, used when the first one fails. A URL
	// without a path means the same session. A relay in a cluster also announces the others itself.
	Relays []string
	// Impatient makes Keep return if the first connection fails.
	Impatient bool
	// Renew, if set, returns the Token, Client, CertificateHash and Insecure for the next attempt
	// of Keep.
	Renew func() Target

	pin   string // hash of the certificate as announced by another relay; takes precedence
	early bool   // Dial may return before the relay answers, see moqt.Config.Early
}

// ClientCertificate names the PEM files of a client certificate.
type ClientCertificate struct {
	Certificate string `yaml:"certificate"`
	Key         string `yaml:"key"`
}

// AddFlags adds the certificate's flags.
func (c *ClientCertificate) AddFlags(f *pflag.FlagSet) {
	f.StringVar(
		&c.Certificate,
		"client-certificate",
		c.Certificate,
		"PEM certificate that authorizes the session, if the relay requires one",
	)
	f.StringVar(&c.Key, "client-key", c.Key, "PEM key of the client certificate")
}

// TokenVariable is the environment variable that holds a session's token.
const TokenVariable = "HOLOCAST_TOKEN"

// RelaysUsage is the help text of flags for Relays.
const RelaysUsage = "another relay of the session, used when the first fails; repeatable (a relay in a " +
	"cluster announces the others itself)"

// TokenUsage is the help text of token flags.
const TokenUsage = "token that authorizes the session, or @FILE to read it from a file (default $" + TokenVariable + ")"

// tokenParameter is the name of the token in a URL's fragment or query.
const tokenParameter = "token"

// maxTokenFile bounds the size of a token file in bytes.
const maxTokenFile = 64 << 10

// AddFlags adds the flags for trust and congestion control.
func (t *Target) AddFlags(f *pflag.FlagSet) {
	f.StringVar(
		&t.CertificateHash,
		"certificate-hash",
		"",
		"SHA-256 of the relay's certificate in hex (the relay logs it at startup)",
	)
	f.BoolVar(
		&t.Insecure,
		"insecure",
		false,
		"trust the development certificate that the relay announces over plain HTTP",
	)
	f.StringVar(&t.Congestion, "congestion", "", CongestionUsage)
	f.StringVar(&t.Token, "token", "", TokenUsage)
	f.StringArrayVar(&t.Paths, "path", nil, PathUsage)
	f.StringVar(&t.Transport, "transport", TransportAuto, TransportUsage)
	f.StringArrayVar(&t.Relays, "other-relay", nil, RelaysUsage)
	t.Client.AddFlags(f)
}

// Address returns the URL without the token, for logs.
func (t Target) Address() string {
	address, _ := t.split()
	return address
}

// split separates the URL from the token in it.
func (t Target) split() (address, token string) {
	u, err := url.Parse(t.URL)
	if err != nil {
		return t.URL, ""
	}
	if fragment, err := url.ParseQuery(u.EscapedFragment()); err == nil {
		token = fragment.Get(tokenParameter)
	}
	u.Fragment, u.RawFragment = "", ""
	if query := u.Query(); query.Has(tokenParameter) {
		token = cmp.Or(token, query.Get(tokenParameter))
		query.Del(tokenParameter)
		u.RawQuery = query.Encode()
	}
	return u.String(), token
}

// tokenSource returns the token or, if file is set, the name of the file that holds it. "" means no
// token.
func (t Target) tokenSource() (text string, file bool) {
	if _, text = t.split(); text != "" {
		return text, false
	}
	return strings.CutPrefix(cmp.Or(t.Token, os.Getenv(TokenVariable)), "@")
}

// token returns the token to connect with, or "" for none.
func (t Target) token() (string, error) {
	text, file := t.tokenSource()
	if !file {
		return strings.TrimSpace(text), nil
	}
	f, err := os.Open(text)
	if err != nil {
		return "", fmt.Errorf("token: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxTokenFile))
	if err != nil {
		return "", fmt.Errorf("token: %w", err)
	}
	token := strings.TrimSpace(string(b))
	if token == "" {
		return "", fmt.Errorf("token: %s is empty", text)
	}
	return token, nil
}

// CongestionUsage is the help text of congestion-controller flags.
const CongestionUsage = "congestion controller: bbr (the default), cubic, ledbat, newreno, vegas or yeah"

// URLError adds the expected form to an error from parsing a session URL.
func URLError(text string, err error) error {
	if e := (*url.Error)(nil); errors.As(err, &e) {
		err = e.Err
	}
	return fmt.Errorf("%q: %w; want moqt://HOST:PORT/SESSION", text, err)
}

// Session returns the path of the URL, which names the session.
func (t Target) Session() (string, error) {
	u, err := url.Parse(t.URL)
	if err != nil {
		return "", fmt.Errorf("URL %w", URLError(t.URL, err))
	}
	if u.Scheme != "moqt" && u.Scheme != "https" {
		return "", fmt.Errorf("URL %q must begin with moqt:// (raw QUIC) or https:// (WebTransport)", t.URL)
	}
	s := strings.Trim(u.Path, "/")
	if s == "" {
		return "", fmt.Errorf("URL %q names no session; want a URL like moqt://localhost:4443/demo", t.URL)
	}
	return s, nil
}

// Namespace returns the namespace of the URL's session.
func (t Target) Namespace() (moqt.Namespace, error) {
	s, err := t.Session()
	if err != nil {
		return nil, err
	}
	return moqt.Namespace{Root, s}, nil
}

// ViewerAddress returns the address that headsets parse, moqt://host/session?token=…#hash. host, if
// not empty, replaces the URL's host.
func (t Target) ViewerAddress(host string) (string, error) {
	session, err := t.Session()
	if err != nil {
		return "", err
	}
	token, err := t.token()
	if err != nil {
		return "", err
	}
	u, err := url.Parse(t.Address())
	if err != nil {
		return "", fmt.Errorf("URL %w", URLError(t.URL, err))
	}
	u = &url.URL{Scheme: "moqt", Host: cmp.Or(host, u.Host), Path: "/" + session}
	if token != "" {
		u.RawQuery = url.Values{tokenParameter: {token}}.Encode()
	}
	if t.CertificateHash != "" {
		hash, err := devcert.ParseHash(t.CertificateHash)
		if err != nil {
			return "", err
		}
		u.Fragment = hex.EncodeToString(hash[:])
	}
	return u.String(), nil
}

// Dial connects once.
func (t Target) Dial(ctx context.Context, h moqt.Handler, cfg moqt.Config) (*moqt.Session, error) {
	conf, pin, err := t.tls(ctx)
	if err != nil {
		return nil, err
	}
	key := resumptionKey{host: t.host(), pin: pin}
	if len(conf.Certificates) > 0 {
		key.client = devcert.Hash(conf.Certificates[0])
	}
	cfg.Resume, cfg.Early = resumptions.of(key), t.early
	token, err := t.token()
	if err != nil {
		return nil, err
	}
	if token != "" {
		cfg.Tokens = append(slices.Clone(cfg.Tokens), wire.Token{AliasType: wire.TokenUseValue, Value: []byte(token)})
	}
	cfg.Congestion = t.Congestion
	for _, text := range t.Paths {
		p, err := ParsePath(text)
		if err != nil {
			return nil, Final(err)
		}
		cfg.Paths = append(cfg.Paths, p)
	}
	s, err := t.open(ctx, conf, h, cfg)
	if err != nil {
		return nil, t.explain(err)
	}
	return s, nil
}

// tls returns the TLS configuration, and the hash of the only certificate that it trusts, if any.
func (t Target) tls(ctx context.Context) (conf *tls.Config, pin [32]byte, err error) {
	conf, pin, err = t.trust(ctx)
	if err != nil || t.Client == (ClientCertificate{}) {
		return conf, pin, err
	}
	cert, err := secretfile.KeyPair(t.Client.Certificate, t.Client.Key)
	if err != nil {
		return nil, pin, fmt.Errorf("client certificate: %w", err)
	}
	conf.Certificates = []tls.Certificate{cert}
	return conf, pin, nil
}

// trust returns the TLS configuration that verifies the relay, and the hash that it pins, if any.
func (t Target) trust(ctx context.Context) (conf *tls.Config, pin [32]byte, err error) {
	if text := cmp.Or(t.pin, t.CertificateHash); text != "" {
		if pin, err = devcert.ParseHash(text); err != nil {
			return nil, pin, err
		}
		return devcert.Pinned(pin), pin, nil
	}
	u, err := url.Parse(t.URL)
	if err != nil {
		return nil, pin, fmt.Errorf("URL %w", URLError(t.URL, err))
	}
	if local := loopback(u.Hostname()); local || t.Insecure {
		hash, err := AskHash(ctx, u)
		switch {
		case err == nil:
			return devcert.Pinned(hash), hash, nil
		case t.Insecure:
			return nil, pin, fmt.Errorf("ask %s for its certificate's hash: %w", u.Host, err)
		}
	}
	return &tls.Config{MinVersion: tls.VersionTLS13}, pin, nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// AskHash reads /certificate.sha256 from the relay's HTTP server, whose TCP port has the same
// number as the UDP port.
func AskHash(ctx context.Context, u *url.URL) (hash [32]byte, err error) {
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
	client := http.Client{Transport: &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: eyeballs.DialTCP, DisableKeepAlives: true,
	}}
	resp, err := client.Do(req)
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

// refused reports whether the relay denied access permanently. It returns false if the token comes
// from a file, which may change, or if Renew now returns another token or client certificate.
func (t Target) refused(err error) bool {
	if t.Renew != nil {
		if next := t.Renew(); next.Token != t.Token || next.Client != t.Client {
			return false
		}
	}
	if _, file := t.tokenSource(); file {
		return false
	}
	var closed *moqt.SessionError
	if errors.As(err, &closed) {
		switch closed.Code {
		case wire.Unauthorized, wire.MalformedAuthToken, wire.ExpiredAuthToken:
			return closed.Remote
		}
	}
	var refused *moqt.RequestError
	if errors.As(err, &refused) {
		switch refused.Code {
		case wire.RequestUnauthorized, wire.RequestMalformedAuthToken, wire.RequestExpiredAuthToken:
			return true
		}
	}
	return false
}

// explain adds advice to an authorization error.
func (t Target) explain(err error) error {
	if !t.refused(err) || errors.As(err, new(unauthorizedError)) {
		return err
	}
	return unauthorizedError{err}
}

// unauthorizedError adds advice to an authorization error.
type unauthorizedError struct{ error }

func (e unauthorizedError) Unwrap() error { return e.error }
func (e unauthorizedError) Error() string {
	return fmt.Sprintf("%v (a token is given with --token or $%s)", e.error, TokenVariable)
}

type finalError struct{ error }

func (e finalError) Unwrap() error { return e.error }

// Final marks an error that a new attempt would not fix.
func Final(err error) error { return finalError{err} }

// IsFinal reports whether err was marked by Final.
func IsFinal(err error) bool {
	var final finalError
	return errors.As(err, &final)
}
