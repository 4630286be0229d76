package service

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"syscall"
	"time"
)

// ListenTCP listens on addr ("host:port"). Its errors name the setting.
func ListenTCP(setting, addr string) (net.Listener, error) {
	if err := CheckAddress(setting, addr); err != nil {
		return nil, err
	}
	ln, err := net.Listen("tcp", addr)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("%s: TCP address %s is in use by another program", setting, addr)
	}
	if err != nil {
		return nil, AddressError(setting, addr, err)
	}
	return ln, nil
}

// NewServer returns an HTTP server for short requests from untrusted clients. It limits time and
// size, and logs connection errors at debug level.
func NewServer(h http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler: h, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second,
		WriteTimeout: 10 * time.Second, IdleTimeout: time.Minute,
		MaxHeaderBytes: 16 << 10, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}

// HTTP is a listener and its routes. Without a listener all methods do nothing, so programs need
// not check whether HTTP is disabled.
type HTTP struct {
	ln      net.Listener // nil if disabled
	tls     *tls.Config  // nil for plain HTTP alone
	srv     *http.Server
	mux     *http.ServeMux
	serving sync.WaitGroup
}

// ListenHTTP listens on addr. "" disables HTTP. Requests wait until Start. Errors name the setting.
func ListenHTTP(setting, addr string, log *slog.Logger) (*HTTP, error) {
	if addr == "" {
		return NewHTTP(nil, log), nil
	}
	ln, err := ListenTCP(setting, addr)
	if err != nil {
		return nil, err
	}
	return NewHTTP(ln, log), nil
}

// NewHTTP returns an HTTP that serves on ln after Start and closes it in Close; nil disables it. It
// bounds the open connections; see [maxConns].
func NewHTTP(ln net.Listener, log *slog.Logger) *HTTP {
	mux := http.NewServeMux()
	h := &HTTP{ln: ln, mux: mux, srv: NewServer(mux, log)}
	h.srv.ConnState = newestConns(maxConns()).track
	return h
}

// Addr returns the listener's address, or "" without a listener.
func (h *HTTP) Addr() string {
	if h.ln == nil {
		return ""
	}
	return h.ln.Addr().String()
}

// File returns the listener's file for another process, or nil without a listener.
func (h *HTTP) File() (*os.File, error) {
	if l, ok := h.ln.(*net.TCPListener); ok {
		return l.File()
	}
	return nil, nil
}

// Handle adds a route as http.ServeMux.Handle does.
func (h *HTTP) Handle(pattern string, handler http.Handler) { h.mux.Handle(pattern, handler) }

// HandleFunc adds a route as http.ServeMux.HandleFunc does.
func (h *HTTP) HandleFunc(pattern string, f http.HandlerFunc) { h.mux.HandleFunc(pattern, f) }

// Secure also serves HTTPS on the same port. Call it before Start.
func (h *HTTP) Secure(conf *tls.Config) {
	h.tls = conf.Clone()
	h.tls.NextProtos = []string{"http/1.1"} // HTTP/2 has no WebSockets here
}

// Wrap replaces the handler of all requests with f of it. Call it before Start.
func (h *HTTP) Wrap(f func(http.Handler) http.Handler) { h.srv.Handler = f(h.srv.Handler) }

// Start begins to serve.
func (h *HTTP) Start() {
	if h.ln == nil {
		return
	}
	ln := h.ln
	if h.tls != nil {
		ln = newEither(h.ln, h.tls)
	}
	h.serving.Go(func() { _ = h.srv.Serve(ln) })
}

// Close closes the listener and all connections.
func (h *HTTP) Close() {
	if h.ln != nil {
		_ = h.srv.Close()
		_ = h.ln.Close() // if Start was not called
		h.serving.Wait()
	}
}

// ServeConn serves one HTTP request on a connection and closes it.
func ServeConn(conn net.Conn, h http.Handler, log *slog.Logger) {
	srv := NewServer(h, log)
	srv.SetKeepAlivesEnabled(false)
	closed := make(chan struct{})
	srv.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateClosed || state == http.StateHijacked {
			close(closed)
		}
	}
	_ = srv.Serve(&single{conn: conn, closed: closed})
}

// single is a listener with one connection.
type single struct {
	conn   net.Conn // nil once accepted
	closed <-chan struct{}
}

// Accept implements net.Listener. After the connection it waits for its end.
func (l *single) Accept() (net.Conn, error) {
	if conn := l.conn; conn != nil {
		l.conn = nil
		return conn, nil
	}
	<-l.closed
	return nil, net.ErrClosed
}

// Close implements net.Listener.
func (l *single) Close() error { return nil }

// Addr implements net.Listener.
func (l *single) Addr() net.Addr { return &net.UnixAddr{} }

// healthLimit bounds the wait for a health check, below a Kubernetes probe's usual timeout of a
// second.
const healthLimit = 800 * time.Millisecond

// errStalled is the health error of a program whose check does not return.
var errStalled = errors.New("stalled: the health check does not return")

// Bounded limits check to 0.8 s, after which the returned function returns an error. check should
// acquire the locks that the program's work needs.
func Bounded(check func() error) func() error {
	free := make(chan struct{}, 1) // at most one check runs, even if it never returns
	return func() error {
		limit := time.NewTimer(healthLimit)
		defer limit.Stop()
		result := make(chan error, 1)
		select {
		case free <- struct{}{}:
			go func() {
				err := check()
				<-free
				result <- err
			}()
		case <-limit.C:
			return errStalled
		}
		select {
		case err := <-result:
			return err
		case <-limit.C:
			return errStalled
		}
	}
}

// Health answers 200 "ok" while check returns nil, and 503 with its error otherwise. It limits the
// check's time; see [Bounded].
func Health(check func() error) http.HandlerFunc {
	check = Bounded(check)
	return func(w http.ResponseWriter, _ *http.Request) {
		if err := check(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	}
}
