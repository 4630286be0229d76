package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"holocast/internal/devcert"
	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/origin"
	"holocast/internal/qmux"
	"holocast/relay/auth"
)

// dialTCP opens a session to the relay over a WebSocket.
func (p *process) dialTCP() *moqt.Session {
	p.t.Helper()
	s, err := moqt.Dial(p.t.Context(), "wss://"+p.http+"/studio", pinned(p.t, p.hash), moqt.Handler{}, quiet)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { s.Close(wire.NoError, "") })
	return s
}

// TestWebSocket publishes and subscribes over WebSockets and QUIC.
func TestWebSocket(t *testing.T) {
	p := start(t)
	tr := origin.NewTrack(points, nil, origin.Limits{})
	p.publish(tr)
	overTCP, overQUIC := subscribe(t, p.dialTCP(), points), subscribe(t, p.dial(moqt.Handler{}), points)
	for i := range uint64(5) {
		payload := bytes.Repeat([]byte{byte(i)}, 300_000)
		write(t, tr, i, payload)
		expect(t, overTCP, i, payload)
		expect(t, overQUIC, i, payload)
	}
	if n := p.metric(`holocast_relay_sessions{transport="websocket"}`); n != 1 {
		t.Errorf("%v sessions over WebSockets", n)
	}
	if _, body := p.get("/live/"); body == "" {
		t.Error("no live page")
	}
	// HTTPS and HTTP share the port.
	web := http.Client{Transport: &http.Transport{TLSClientConfig: pinned(t, p.hash)}}
	r, err := web.Get("https://" + p.http + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	_ = r.Body.Close()
	if r.StatusCode != http.StatusOK {
		t.Errorf("healthz over TLS: %s", r.Status)
	}
}

// TestWebSocketOrigins checks that the rules of TestForeignOrigins apply to WebSockets.
func TestWebSocketOrigins(t *testing.T) {
	p := start(t, "--origins", "https://viewer.example")
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: pinned(t, p.hash)}}
	for origin, allowed := range map[string]bool{
		"": true, "https://viewer.example": true, "http://localhost:8080": true, "https://127.0.0.1": true,
		"https://evil.example": false, "https://viewer.example:444": false, "null": false,
	} {
		header := http.Header{}
		if origin != "" {
			header.Set("Origin", origin)
		}
		options := &websocket.DialOptions{
			HTTPClient: client, HTTPHeader: header, Subprotocols: qmux.Subprotocols([]string{wire.ALPN}),
		}
		ws, resp, err := websocket.Dial(within(t), "wss://"+p.http+"/studio", options) //nolint:bodyclose // by the library
		if (err == nil) != allowed || !allowed && resp.StatusCode != http.StatusForbidden {
			t.Errorf("origin %q: %v", origin, err)
		}
		if err == nil {
			_ = ws.CloseNow()
		}
	}
}

// TestWebSocketTokens checks tokens in SETUP and in the URL, and the refusal of sessions without.
func TestWebSocketTokens(t *testing.T) {
	x := newIssuer(t, "HS256")
	p := start(t, "--auth-keys", x.file)
	tr := origin.NewTrack(points, nil, origin.Limits{})
	write(t, tr, 1, []byte("a frame"))
	publishing(t, p, x.publisher(), tr)
	url := "wss://" + p.http + "/studio"
	for name, c := range map[string]struct {
		url    string
		tokens []string
		want   string
	}{
		"in SETUP":   {url, []string{x.viewer()}, ""},
		"in the URL": {url + "?token=" + x.viewer(), nil, ""},
		"none":       {url, nil, "request: UNAUTHORIZED"},
		"cut off":    {url, []string{x.viewer()[:100]}, "session: MALFORMED_AUTH_TOKEN"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := quiet
			for _, token := range c.tokens {
				cfg.Tokens = append(cfg.Tokens, wire.Token{AliasType: wire.TokenUseValue, Value: []byte(token)})
			}
			s, err := moqt.Dial(t.Context(), c.url, pinned(t, p.hash), moqt.Handler{}, cfg)
			if err == nil {
				defer s.Close(wire.NoError, "")
				_, err = s.Subscribe(within(t), points, moqt.SubscribeOptions{})
			}
			if got := refusal(err, s); got != c.want {
				t.Errorf("refused with %q, want %q", got, c.want)
			}
		})
	}
	if strings.Contains(p.output(), "token=") {
		t.Error("the token is in the log")
	}
}

// TestPlainWebSocket checks who may open a session without TLS.
func TestPlainWebSocket(t *testing.T) {
	for _, c := range []struct {
		from     string
		auth     bool
		tls      bool
		accepted bool
	}{
		{"127.0.0.1:1000", true, false, true},
		{"[::1]:1000", true, false, true},
		{"192.0.2.1:1000", true, false, false},
		{"192.0.2.1:1000", true, true, true},
		{"192.0.2.1:1000", false, false, true},
	} {
		s := &server{}
		if c.auth {
			s.authority = &auth.Authority{}
		}
		cert, err := devcert.Generate(time.Now(), "127.0.0.1")
		if err != nil {
			t.Fatal(err)
		}
		ln, err := moqt.Listen("127.0.0.1:0", moqt.ListenConfig{
			Config: quiet, TLS: &tls.Config{Certificates: []tls.Certificate{cert}},
		})
		if err != nil {
			t.Fatal(err)
		}
		s.ln = ln
		r := httptest.NewRequest(http.MethodGet, "/studio", nil)
		r.Header.Set("Upgrade", "websocket")
		r.RemoteAddr = c.from
		if c.tls {
			r.TLS = &tls.ConnectionState{}
		}
		w := httptest.NewRecorder()
		s.webSockets(http.NotFoundHandler()).ServeHTTP(w, r)
		// An accepted request lacks its other headers.
		if accepted := w.Code == http.StatusBadRequest; accepted != c.accepted ||
			!accepted && w.Code != http.StatusForbidden {
			t.Errorf("%+v: %d %s", c, w.Code, w.Body)
		}
		_ = ln.Close()
	}
}

// TestWebSocketLimits checks that connections over WebSockets count towards the limits, and are
// released.
func TestWebSocketLimits(t *testing.T) {
	p := start(t, "--limits", "connections.address=2")
	first := p.dialTCP()
	p.dialTCP()
	_, err := moqt.Dial(t.Context(), "wss://"+p.http, pinned(t, p.hash), moqt.Handler{}, quiet)
	var refused *qmux.RefusedError
	if !errors.As(err, &refused) || !strings.Contains(refused.Text, "limit connections.address reached") {
		t.Errorf("third connection: %v", err)
	}
	if _, err := moqt.Dial(within(t), "moqt://"+p.udp, pinned(t, p.hash), moqt.Handler{}, quiet); err == nil {
		t.Error("a third connection over QUIC was accepted")
	}
	first.Close(wire.NoError, "")
	p.awaitMetric(`holocast_relay_limit_used{kind="connections",scope="address"}`, 1)
	p.dialTCP()
}

// TestHostileWebSocket sends garbage at each level, and checks that the relay goes on.
func TestHostileWebSocket(t *testing.T) {
	p := start(t)
	tr := origin.NewTrack(points, nil, origin.Limits{})
	p.publish(tr)
	sub := subscribe(t, p.dialTCP(), points)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: pinned(t, p.hash)}}
	open := func(protocols ...string) (*websocket.Conn, error) {
		options := &websocket.DialOptions{HTTPClient: client, Subprotocols: protocols}
		ws, _, err := websocket.Dial(within(t), "wss://"+p.http+"/", options) //nolint:bodyclose // the library closes it
		return ws, err
	}
	if _, err := open("moqt-18"); err == nil {
		t.Error("a WebSocket without QMux was accepted")
	}
	for name, send := range map[string]func(ws *websocket.Conn) error{
		"text":   func(ws *websocket.Conn) error { return ws.Write(within(t), websocket.MessageText, []byte("hello")) },
		"random": func(ws *websocket.Conn) error { return ws.Write(within(t), websocket.MessageBinary, []byte("hello")) },
		"large record": func(ws *websocket.Conn) error {
			return ws.Write(within(t), websocket.MessageBinary, make([]byte, 1<<20))
		},
		"endless record": func(ws *websocket.Conn) error {
			w, err := ws.Writer(within(t), websocket.MessageBinary)
			for err == nil {
				_, err = w.Write(make([]byte, 1<<16))
			}
			return nil
		},
	} {
		ws, err := open(qmux.Subprotocols([]string{wire.ALPN})...)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := send(ws); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for err == nil { // until the relay closes it
			_, _, err = ws.Read(within(t))
		}
		if errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: the connection is open", name)
		}
	}
	// Connections that send nothing, or half of a TLS or HTTP request.
	for i := range 50 {
		c, err := net.Dial("tcp", p.http)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_, _ = fmt.Fprint(c, []string{"", "\x16", "\x16\x03\x01", "GET /", "\x00"}[i%5])
	}
	payload := []byte("still here")
	write(t, tr, 0, payload)
	expect(t, sub, 0, payload)
	p.awaitMetric(`holocast_relay_sessions{transport="websocket"}`, 1)
}
