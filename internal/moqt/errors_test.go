package moqt

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"

	"holocast/internal/devcert"
	"holocast/internal/eyeballs"
	"holocast/internal/moqt/wire"
)

// TestDialErrors checks the messages for sessions that cannot be opened.
func TestDialErrors(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	now := time.Now()
	cert := func(at time.Time) tls.Certificate {
		c, err := devcert.Generate(at, "localhost", "127.0.0.1")
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	good, expired := cert(now), cert(now.Add(-2*devcert.Lifetime))
	moqtServer := func(c tls.Certificate) string {
		ln, err := Listen("127.0.0.1:0", ListenConfig{
			Config: Config{Log: slog.New(slog.DiscardHandler)}, TLS: &tls.Config{Certificates: []tls.Certificate{c}},
			CheckOrigin: func(*http.Request) bool { return false },
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = ln.Close() })
		return ln.Addr().String()
	}
	// otherServer speaks another protocol and closes connections.
	otherServer := func(alpn string) string {
		udp, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			t.Fatal(err)
		}
		tr := &quic.Transport{Conn: udp} // closing it ends its connections, unlike closing a listener
		t.Cleanup(func() { _, _ = tr.Close(), udp.Close() })
		ln, err := tr.Listen(
			&tls.Config{
				Certificates: []tls.Certificate{good},
				NextProtos:   []string{alpn},
				MinVersion:   tls.VersionTLS13,
			},
			quicConfig(),
		)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			for {
				c, err := ln.Accept(ctx)
				if err != nil {
					return
				}
				if alpn == http3.NextProtoH3 {
					_ = (&http3.Server{Handler: http.NotFoundHandler()}).ServeQUICConn(c)
				} else {
					_ = c.CloseWithError(quic.ApplicationErrorCode(wire.Unauthorized), "members only")
				}
			}
		}()
		return ln.Addr().String()
	}
	silent, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	trust := func(c tls.Certificate) *x509.CertPool {
		pool := x509.NewCertPool()
		pool.AddCert(c.Leaf)
		return pool
	}
	cancelled, cancelNow := context.WithCancel(ctx)
	cancelNow()

	pinned := devcert.Pinned(devcert.Hash(good))
	goodAddr, expiredAddr, otherALPN, ours, h3 := moqtServer(
		good,
	), moqtServer(
		expired,
	), otherServer(
		"moqt-11",
	), otherServer(
		wire.ALPN,
	), otherServer(
		http3.NextProtoH3,
	)
	tests := []struct {
		name string
		ctx  context.Context
		url  string
		tls  *tls.Config
		want string // % = host:port of the URL
	}{
		{
			"scheme",
			ctx,
			"http://localhost:1",
			nil,
			`URL "http://localhost:1": the scheme must be moqt (raw QUIC), https (WebTransport) or wss (WebSocket)`,
		},
		{"no host", ctx, "moqt:///room", nil, `URL "moqt:///room" names no host`},
		{
			"not a URL",
			ctx,
			"moqt://a b",
			nil,
			`URL "moqt://a b": parse "moqt://a b": invalid character " " in host name`,
		},
		{
			"wrong ALPN", ctx, "moqt://" + otherALPN, pinned,
			"connect to moqt://%: the server does not speak " + strings.Join(wire.ALPNs(wire.Versions()), " or "),
		},
		{
			"wrong ALPN for WebTransport",
			ctx,
			"https://" + otherALPN,
			pinned,
			"connect to https://%: the server does not speak WebTransport (h3)",
		},
		{
			"untrusted certificate",
			ctx,
			"moqt://" + goodAddr,
			nil,
			"connect to moqt://%: the relay's certificate is not trusted: x509: certificate signed by unknown authority",
		},
		{
			"certificate other than pinned",
			ctx,
			"https://" + goodAddr,
			devcert.Pinned(devcert.Hash(expired)),
			"connect to https://%: the server's certificate has hash ",
		},
		{
			"expired certificate",
			ctx,
			"moqt://" + expiredAddr,
			devcert.Pinned(devcert.Hash(expired)),
			"connect to moqt://%: the server's certificate is valid from ",
		},
		{
			"expired certificate of a trusted issuer",
			ctx,
			"moqt://" + expiredAddr,
			&tls.Config{RootCAs: trust(expired)},
			"connect to moqt://%: the relay's certificate is not trusted: x509: certificate has expired or is not yet valid: ",
		},
		{
			"no server",
			ctx,
			"moqt://" + silent.LocalAddr().String(),
			pinned,
			"connect to moqt://%: no answer (is the relay running, and does UDP reach it?)",
		},
		{"host cannot send", ctx, "moqt://127.0.0.1:0", pinned, "connect to moqt://%: invalid argument"},
		{"cancelled", cancelled, "moqt://" + goodAddr, pinned, "connect to moqt://%: context canceled"},
		{
			"refused by the server",
			ctx,
			"moqt://" + ours,
			pinned,
			"connect to moqt://%: moqt: session closed by peer: UNAUTHORIZED: members only",
		},
		{
			"no WebTransport",
			ctx,
			"https://" + h3,
			pinned,
			"connect to https://%: the server does not offer WebTransport: server didn't enable ",
		},
		{
			"origin refused",
			ctx,
			"https://" + goodAddr,
			pinned,
			"connect to https://%: the server answered the WebTransport request with 400 Bad Request",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := defaultWaits()
			if tt.name == "nobody there" {
				w.setup = 100 * time.Millisecond
			}
			s, err := Dial(tt.ctx, tt.url, tt.tls, Handler{}, Config{waits: &w})
			if err == nil {
				s.Close(wire.NoError, "")
				t.Fatal("no error")
			}
			_, addr, _ := strings.Cut(tt.url, "//")
			if want := strings.Replace(tt.want, "%", addr, 1); !strings.HasPrefix(err.Error(), want) {
				t.Errorf("error\n  %s\nwant\n  %s", err, want)
			}
		})
	}
}

func TestDialCancelledDuringSetup(t *testing.T) {
	serverTLS, clientTLS := testTLS(t)
	serverTLS.NextProtos = []string{wire.ALPN}
	udp, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	tr := &quic.Transport{Conn: udp} // closing it ends its connections, unlike closing a listener
	t.Cleanup(func() { _, _ = tr.Close(), udp.Close() })
	ln, err := tr.Listen(serverTLS, quicConfig())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		if c, err := ln.Accept(ctx); err == nil { // without a SETUP
			cancel()
			<-c.Context().Done()
		}
	}()
	_, err = Dial(ctx, "moqt://"+ln.Addr().String(), clientTLS, Handler{}, Config{})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

func TestListenErrors(t *testing.T) {
	serverTLS, _ := testTLS(t)
	taken, err := Listen("127.0.0.1:0", ListenConfig{TLS: serverTLS})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = taken.Close() })
	_, port, _ := net.SplitHostPort(taken.Addr().String())
	tests := []struct {
		name, addr string
		tls        *tls.Config
		want       string
	}{
		{"port in use", taken.Addr().String(), serverTLS, "UDP port " + port + " is in use by another program"},
		{"no port", "127.0.0.1", serverTLS, `listen address "127.0.0.1": address 127.0.0.1: missing port in address`},
		{"no certificate", "127.0.0.1:0", nil, "listen: a TLS configuration with a certificate is needed"},
		{
			"foreign address",
			"192.0.2.1:0",
			serverTLS,
			"listen on UDP 192.0.2.1:0: listen udp 192.0.2.1:0: bind: cannot assign requested address",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ln, err := Listen(tt.addr, ListenConfig{TLS: tt.tls})
			if err == nil {
				_ = ln.Close()
				t.Fatal("no error")
			}
			if err.Error() != tt.want {
				t.Errorf("error\n  %s\nwant\n  %s", err, tt.want)
			}
		})
	}
}

// PATH and AUTHORITY are not allowed over WebTransport, which has a URL (§10.3.1).
func TestPathOverWebTransport(t *testing.T) {
	for _, tt := range []struct {
		name  string
		setup *wire.Setup
		want  wire.SessionCode
	}{
		{"path", &wire.Setup{Path: "/x", HasPath: true}, wire.InvalidPath},
		{"authority", &wire.Setup{Authority: "x", HasAuthority: true}, wire.InvalidAuthority},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := &Session{conn: wtConn{}}
			var e *wire.Error
			if err := s.checkSetup(tt.setup); !errors.As(err, &e) || e.Code != tt.want {
				t.Errorf("error %v, want %s", err, tt.want)
			}
		})
	}
}

// TestMostTelling checks which error is reported if dialing several addresses of a host fails.
func TestMostTelling(t *testing.T) {
	unreachable := error(&quic.TransportError{ErrorCode: quic.InternalError, ErrorMessage: "network is unreachable"})
	refused := error(&quic.TransportError{ErrorCode: quic.ConnectionRefused, Remote: true})
	for name, c := range map[string]struct {
		err, want error
	}{
		"one address":                   {unreachable, unreachable},
		"no route to IPv6, silent IPv4": {eyeballs.Errors{unreachable, context.DeadlineExceeded}, context.DeadlineExceeded},
		"silent, then refused":          {eyeballs.Errors{context.DeadlineExceeded, refused}, refused},
		"refused, then silent":          {eyeballs.Errors{refused, context.DeadlineExceeded}, refused},
		"no route at all":               {eyeballs.Errors{unreachable, unreachable}, unreachable},
	} {
		if got := mostTelling(c.err); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	silent := &net.DNSError{Err: "no answer", Name: "relay.example", IsTimeout: true}
	want := "connect to moqt://relay.example/x: the name server does not answer for relay.example"
	if got := dialError("moqt://relay.example/x", silent).Error(); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
