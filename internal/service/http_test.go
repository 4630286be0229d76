package service

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

var quiet = slog.New(slog.DiscardHandler)

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	r, err := c.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Body.Close() }()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(b)
}

func TestHTTP(t *testing.T) {
	web, err := ListenHTTP("http", "127.0.0.1:0", quiet)
	if err != nil {
		t.Fatal(err)
	}
	defer web.Close()
	m := NewMetrics("holocast_test_")
	cameras, frames := m.Gauge("cameras", "Cameras."), m.Counter("frames_total", "Frames.", "camera")
	m.Read(func(put Put) {
		put(cameras, 2)
		put(frames, 7, "front")
		put(frames, 9, "back")
	})
	web.Handle("GET /metrics", MetricsHandler(NewRegistry(m)))
	var sick error
	web.Handle("GET /healthz", Health(func() error { return sick }))
	web.Start()
	url := "http://" + web.Addr()
	if status, body := get(t, url+"/healthz"); status != 200 || body != "ok\n" {
		t.Errorf("healthy: %d %q", status, body)
	}
	sick = errors.New("draining")
	if status, body := get(t, url+"/healthz"); status != 503 || body != "draining\n" {
		t.Errorf("unhealthy: %d %q", status, body)
	}
	_, body := get(t, url+"/metrics")
	for _, line := range []string{
		"# TYPE holocast_test_cameras gauge\nholocast_test_cameras 2\n",
		"# TYPE holocast_test_frames_total counter\nholocast_test_frames_total{camera=\"back\"} " +
			"9\nholocast_test_frames_total{camera=\"front\"} 7\n",
		"\ngo_goroutines ", "\nprocess_open_fds ",
	} {
		if !strings.Contains(body, line) {
			t.Errorf("metrics lack %q:\n%s", line, body)
		}
	}
}

// TestHealthStalled checks that a program whose check blocks is unhealthy, without accumulating
// goroutines, and healthy again once the check returns.
func TestHealthStalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running, most atomic.Int32
		release := make(chan struct{})
		h := Health(func() error {
			most.Store(max(most.Load(), running.Add(1)))
			defer running.Add(-1)
			<-release
			return nil
		})
		ask := func() (int, string) {
			w := httptest.NewRecorder()
			h(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/healthz", nil))
			return w.Code, w.Body.String()
		}
		for range 3 {
			if status, body := ask(); status != 503 || !strings.HasPrefix(body, "stalled") {
				t.Errorf("%d %q, want 503 and stalled", status, body)
			}
		}
		close(release)
		synctest.Wait()
		if status, body := ask(); status != 200 || most.Load() != 1 {
			t.Errorf("afterwards %d %q; %d checks at a time", status, body, most.Load())
		}
	})
}

// TestUnfinishedRequests checks that beyond the bound on connections the oldest are closed, so
// requests that never end do not keep others out.
func TestUnfinishedRequests(t *testing.T) {
	web, err := ListenHTTP("http", "127.0.0.1:0", quiet)
	if err != nil {
		t.Fatal(err)
	}
	defer web.Close()
	const most = 4
	open := newestConns(most)
	web.srv.ConnState = open.track
	web.Handle("GET /healthz", Health(func() error { return nil }))
	web.Start()
	for name, text := range map[string]string{
		"no byte": "", "half a header": "GET /healthz HT",
		"no body": "GET /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			for range 5 * most {
				c, err := net.Dial("tcp", web.Addr())
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = c.Close() })
				if _, err := io.WriteString(c, text); err != nil {
					t.Fatal(err)
				}
			}
			if status, _ := get(t, "http://"+web.Addr()+"/healthz"); status != 200 {
				t.Errorf("status %d", status)
			}
			open.mu.Lock()
			defer open.mu.Unlock()
			if n := len(open.open); n > most || n != open.age.Len() {
				t.Errorf("%d connections, %d in order; want %d at most", n, open.age.Len(), most)
			}
		})
	}
}

// pipeListener accepts one end of a pipe.
type pipeListener struct {
	conn chan net.Conn
	done chan struct{}
}

func (l pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conn:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}
func (l pipeListener) Close() error { close(l.done); return nil }
func (pipeListener) Addr() net.Addr { return &net.TCPAddr{} }

// TestBodyNeverArrives checks that a request whose body does not arrive ends.
func TestBodyNeverArrives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := pipeListener{make(chan net.Conn, 1), make(chan struct{})}
		srv := NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), quiet)
		go func() { _ = srv.Serve(l) }()
		ours, theirs := net.Pipe()
		l.conn <- theirs
		go func() { _, _ = io.WriteString(ours, "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n") }()
		began := time.Now()
		_, _ = io.Copy(io.Discard, ours) // until the server closes the connection
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("the connection stays open for %v", took)
		}
		_ = ours.Close()
		_ = srv.Close()
	})
}

func TestListenHTTPErrors(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	const form = "; want HOST:PORT with an address of this machine, or :PORT for all of them"
	for addr, want := range map[string]string{
		ln.Addr().String(): "http: TCP address " + ln.Addr().String() + " is in use by another program",
		"127.0.0.1":        `http: "127.0.0.1" is not an address to listen on` + form,
		"localhost:65536":  `http: "localhost:65536" is not an address to listen on` + form,
		"[::1:80":          `http: "[::1:80" is not an address to listen on` + form,
		"192.0.2.1:80":     `http: "192.0.2.1:80" is not an address of this machine` + form,
		"no..host:80":      `http: "no..host:80" is not an address of this machine` + form,
	} {
		if _, err := ListenHTTP("http", addr, quiet); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", addr, err, want)
		}
	}
}

func TestHTTPOff(t *testing.T) {
	web, err := ListenHTTP("http", "", quiet)
	if err != nil {
		t.Fatal(err)
	}
	web.HandleFunc("GET /", func(http.ResponseWriter, *http.Request) {})
	web.Start()
	if web.Addr() != "" {
		t.Errorf("listens on %s", web.Addr())
	}
	web.Close()
}

// TestCloseBeforeStart checks that Close releases the address even if nothing was served.
func TestCloseBeforeStart(t *testing.T) {
	web, err := ListenHTTP("http", "127.0.0.1:0", quiet)
	if err != nil {
		t.Fatal(err)
	}
	addr := web.Addr()
	web.Close()
	again, err := ListenHTTP("http", addr, quiet)
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
}

// TestMetricsAreConsistent checks that reported metrics match the declared metrics, which the
// registry verifies.
func TestMetricsAreConsistent(t *testing.T) {
	m := NewMetrics("holocast_test_")
	m.Gauge("unused", "A figure without a value.")
	one := m.Counter("one_total", "One.")
	m.Read(func(put Put) { put(one, 1) })
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(m)
	families, err := reg.Gather()
	if err != nil || len(families) != 1 || families[0].GetName() != "holocast_test_one_total" {
		t.Errorf("%v, %v", families, err)
	}
}
