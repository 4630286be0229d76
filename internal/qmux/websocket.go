package qmux

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"

	"github.com/coder/websocket"
)

// versions are the prefixes of the subprotocols of the QMux drafts that a Conn speaks, which differ
// only in the checks of a Conn. The protocol on top follows.
var versions = []string{"qmux-02.", "qmux-01."}

// Subprotocols returns the WebSocket subprotocols for protocols on top, in order of preference.
func Subprotocols(protocols []string) (list []string) {
	for _, p := range protocols {
		for _, v := range versions {
			list = append(list, v+p)
		}
	}
	return list
}

// protocolOf returns the protocol on top of a subprotocol.
func protocolOf(subprotocol string) string {
	for _, v := range versions {
		if p, ok := strings.CutPrefix(subprotocol, v); ok {
			return p
		}
	}
	return ""
}

// IsUpgrade reports whether a request asks for a WebSocket.
func IsUpgrade(r *http.Request) bool {
	return r.Method == http.MethodGet && strings.EqualFold(r.Header.Get("Upgrade"), "websocket")
}

// Offers reports whether a request offers one of the protocols.
func Offers(r *http.Request, protocols []string) bool {
	ours := Subprotocols(protocols)
	for _, header := range r.Header.Values("Sec-WebSocket-Protocol") {
		for offer := range strings.SplitSeq(header, ",") {
			for _, p := range ours {
				if strings.EqualFold(strings.TrimSpace(offer), p) {
					return true
				}
			}
		}
	}
	return false
}

// Upgrade answers a request for a WebSocket, and returns the link and the protocol on top. The caller
// must have checked the request's origin. On an error the request was answered.
func Upgrade(w http.ResponseWriter, r *http.Request, protocols []string) (Link, string, error) {
	taken := &hijacked{ResponseWriter: w}
	ws, err := websocket.Accept(taken, r, &websocket.AcceptOptions{
		Subprotocols: Subprotocols(protocols), InsecureSkipVerify: true,
	})
	if err != nil {
		return nil, "", err
	}
	return newLink(ws, taken.conn), protocolOf(ws.Subprotocol()), nil
}

// hijacked remembers the connection under a WebSocket.
type hijacked struct {
	http.ResponseWriter
	conn net.Conn
}

// Hijack implements http.Hijacker.
func (h *hijacked) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(h.ResponseWriter).Hijack()
	h.conn = conn
	return conn, rw, err
}

// Dialer opens links.
type Dialer struct {
	TLS       *tls.Config
	Protocols []string // on top, in order of preference
	// Dial opens TCP connections; nil means net.Dialer's. Connections go through the proxy that the
	// environment names (HTTPS_PROXY), if any.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Open opens a link to a ws or wss URL. It returns the link and the protocol on top.
func (d Dialer) Open(ctx context.Context, url string) (Link, string, error) {
	var mu sync.Mutex
	var conn net.Conn
	dial := d.Dial
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	conf := d.TLS.Clone()
	if conf == nil {
		conf = &tls.Config{MinVersion: tls.VersionTLS13}
	}
	conf.NextProtos = []string{"http/1.1"}
	client := &http.Client{
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, TLSClientConfig: conf, DisableKeepAlives: true,
			DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
				c, err := dial(ctx, network, address)
				mu.Lock()
				defer mu.Unlock()
				conn = c
				return c, err
			},
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	options := &websocket.DialOptions{HTTPClient: client, Subprotocols: Subprotocols(d.Protocols)}
	ws, resp, err := websocket.Dial(ctx, url, options) //nolint:bodyclose // the library closes it
	if err != nil {
		if resp != nil && resp.StatusCode != http.StatusSwitchingProtocols {
			text, _ := io.ReadAll(io.LimitReader(resp.Body, 256))
			return nil, "", &RefusedError{resp.Status, strings.TrimSpace(string(text))}
		}
		return nil, "", unwrapped(err)
	}
	protocol := protocolOf(ws.Subprotocol())
	if protocol == "" {
		_ = ws.CloseNow()
		return nil, "", errors.New("the server's WebSocket does not speak QMux")
	}
	mu.Lock()
	defer mu.Unlock()
	return newLink(ws, conn), protocol, nil
}

// RefusedError is an HTTP answer other than a WebSocket.
type RefusedError struct{ Status, Text string }

func (e *RefusedError) Error() string {
	return fmt.Sprintf("the server answered the WebSocket request with %s: %s", e.Status, e.Text)
}

// unwrapped returns the cause of the WebSocket library's error, whose text is long.
func unwrapped(err error) error {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err
		}
		err = inner
		if _, ok := err.(*net.OpError); ok { //nolint:errorlint // the loop unwraps
			return err
		}
	}
}

// link is a WebSocket whose binary messages are records.
type link struct {
	ws      *websocket.Conn
	conn    net.Conn // under it, without TLS
	receive *[MaxRecord + 1]byte
}

// buffers holds receive buffers. Links hold one only while a record arrives.
var buffers = sync.Pool{New: func() any { return new([MaxRecord + 1]byte) }}

func newLink(ws *websocket.Conn, conn net.Conn) *link {
	for {
		under, ok := conn.(interface{ NetConn() net.Conn })
		if !ok {
			break
		}
		conn = under.NetConn()
	}
	limitUnsent(conn)
	ws.SetReadLimit(-1) // Receive limits it
	return &link{ws: ws, conn: conn}
}

// Send implements Link.
func (l *link) Send(record []byte) error {
	return cut(l.ws.Write(context.Background(), websocket.MessageBinary, record))
}

// Receive implements Link.
func (l *link) Receive() ([]byte, error) {
	if l.receive != nil {
		buffers.Put(l.receive)
		l.receive = nil
	}
	kind, r, err := l.ws.Reader(context.Background())
	if err != nil {
		return nil, cut(err)
	}
	if kind != websocket.MessageBinary {
		return nil, errors.New("qmux: a text message on the WebSocket")
	}
	l.receive = buffers.Get().(*[MaxRecord + 1]byte)
	n := 0
	for n < len(l.receive) {
		k, err := r.Read(l.receive[n:])
		n += k
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, cut(err)
		}
	}
	return l.receive[:n], nil
}

// cut names the end of a WebSocket without CONNECTION_CLOSE.
func cut(err error) error {
	if err == nil {
		return nil
	}
	var status websocket.CloseError
	if errors.As(err, &status) || errors.Is(err, net.ErrClosed) || errors.Is(err, io.EOF) {
		return errClosed
	}
	return fmt.Errorf("qmux: %w", unwrapped(err))
}

// Close implements Link.
func (l *link) Close() { _ = l.ws.Close(websocket.StatusNormalClosure, "") }

// Abort implements Link.
func (l *link) Abort() {
	_ = l.conn.Close()
	_ = l.ws.CloseNow()
}

// LocalAddr implements Link.
func (l *link) LocalAddr() net.Addr { return l.conn.LocalAddr() }

// RemoteAddr implements Link.
func (l *link) RemoteAddr() net.Addr { return l.conn.RemoteAddr() }
