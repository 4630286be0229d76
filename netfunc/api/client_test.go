package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"holocast/internal/leaktest"
	"holocast/netfunc/pathset"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// serve runs a controller with handler h and returns a client for it.
func serve(t *testing.T, h http.HandlerFunc) *Client {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	c, err := NewClient(Options{URL: srv.URL + "/", Token: "secret", Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func TestCalls(t *testing.T) {
	dst := netip.MustParseAddr("2001:db8::7")
	for name, c := range map[string]struct {
		call func(context.Context, *Client) error
		want string // method, path and body
		back string
	}{
		"hello": {
			func(ctx context.Context, c *Client) error {
				w, err := c.Hello(ctx, Edge{
					Name: "a", Role: Sender, Signal: netip.MustParseAddrPort("192.0.2.1:4790"),
					Paths: []Path{{
						Index: 1, Interface: "eth1",
						Up: true,
					}}, Towards: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")},
				})
				if w.ReportInterval != 1000 || len(w.Flows) != 1 || w.Flows[0].Paths != pathset.Of(1, 3) {
					err = fmt.Errorf("%+v, %w", w, err)
				}
				return err
			}, `POST /v1/edges {"name":"a","role":"sender","signal":"192.0.2.1:4790","paths":[{"index":1,"interface":"eth1","up":true}],"towards":["10.0.0.0/8"]}`,
			`{"report_interval_ms":1000,"flows":[{"destination":"10.9.0.7","paths":[1,3]}],"of a later version":{}}`,
		},
		"report": {func(ctx context.Context, c *Client) error {
			return c.Report(ctx, "a", Report{
				Paths: []Path{}, Nonce: 1<<63 + 1,
				Policies: []Policy{{Destination: dst, Paths: pathset.Of(2), Nonce: 5}},
			})
		}, `POST /v1/edges/a/report {"paths":[],"nonce":"9223372036854775809","policies":[{"destination":"2001:db8::7","paths":[2],"nonce":"5"}]}`, ""},
		"uplink": {func(ctx context.Context, c *Client) error {
			return c.Uplink(ctx, "a", []Observation{{
				Time: 5, Source: netip.AddrPortFrom(dst, 9),
				Destination: netip.AddrPortFrom(dst, 10), Length: 240,
			}})
		}, `POST /v1/edges/a/uplink {"observations":[{"time_ns":5,"source":"[2001:db8::7]:9","destination":"[2001:db8::7]:10","length":240}]}`, ""},
		"eliminate": {
			func(ctx context.Context, c *Client) error {
				e := Elimination{Destination: dst, Generation: 7, Removed: pathset.Of(1), Remaining: pathset.Of(2, 3)}
				out, err := c.Eliminate(ctx, "a", e, e)
				if err != nil || out[0].Flow.State != Trimmed || out[0].Err() != nil ||
					!errors.Is(out[1].Err(), ErrStale) {
					err = fmt.Errorf("%+v, %w", out, err)
				}
				return err
			}, `POST /v1/edges/a/eliminations {"eliminations":[{"destination":"2001:db8::7","generation":7,"removed":[1],"remaining":[2,3]},{"destination":"2001:db8::7","generation":7,"removed":[1],"remaining":[2,3]}]}`,
			`{"outcomes":[{"destination":"2001:db8::7","flow":{"destination":"2001:db8::7","state":"trimmed"}},{"destination":"2001:db8::7","problem":{"type":"urn:holocast:stale-generation","title":"x","status":409}}]}`,
		},
		"leave": {func(ctx context.Context, c *Client) error { return c.Leave(ctx, "a") }, "DELETE /v1/edges/a ", ""},
		"set": {func(ctx context.Context, c *Client) error {
			_, err := c.SetFlow(ctx, dst, Setting{Mode: Redirect, Paths: pathset.Of(4)})
			return err
		}, `PUT /v1/flows/2001:db8::7 {"mode":"redirect","paths":[4]}`, "{}"},
		"unset": {
			func(ctx context.Context, c *Client) error { return c.UnsetFlow(ctx, dst) },
			"DELETE /v1/flows/2001:db8::7 ", "",
		},
		"edges": {
			func(ctx context.Context, c *Client) error { _, err := c.Edges(ctx); return err },
			"GET /v1/edges ", "{}",
		},
		"flows": {
			func(ctx context.Context, c *Client) error { _, err := c.Flows(ctx); return err },
			"GET /v1/flows ", "{}",
		},
		"status": {
			func(ctx context.Context, c *Client) error { _, err := c.Status(ctx); return err },
			"GET /v1/status ", "{}",
		},
		"decisions": {
			func(ctx context.Context, c *Client) error { _, err := c.Decisions(ctx, 9); return err },
			"GET /v1/decisions?since=9 ", "{}",
		},
	} {
		t.Run(name, func(t *testing.T) {
			client := serve(t, func(w http.ResponseWriter, r *http.Request) {
				var b strings.Builder
				buf := make([]byte, 4096)
				for {
					n, err := r.Body.Read(buf)
					b.Write(buf[:n])
					if err != nil {
						break
					}
				}
				if got := r.Method + " " + r.URL.RequestURI() + " " + b.String(); got != c.want {
					t.Errorf("%s\nwant %s", got, c.want)
				}
				if r.Header.Get("Authorization") != "Bearer secret" ||
					(b.Len() > 0) != (r.Header.Get("Content-Type") == "application/json") {
					t.Errorf("%v", r.Header)
				}
				if c.back == "" {
					w.WriteHeader(http.StatusNoContent)
				}
				_, _ = w.Write([]byte(c.back))
			})
			if err := c.call(t.Context(), client); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestProblems(t *testing.T) {
	all := []error{ErrStale, ErrUnknownEdge, ErrUnknownFlow, ErrUnauthorized}
	for name, c := range map[string]struct {
		status    int
		body      string
		is        error
		temporary bool
		text      string
	}{
		"stale": {409, `{"type":"urn:holocast:stale-generation","title":"Stale generation","status":409,"detail":"it is 8"}`, ErrStale, false, "it is 8"},
		"unknown edge": {
			404, `{"type":"urn:holocast:unknown-edge","title":"x","status":404}`, ErrUnknownEdge, false,
			"x (404)",
		},
		"unconfirmed": {
			409, `{"type":"urn:holocast:unconfirmed","title":"x","status":409}`, ErrUnconfirmed, false,
			"",
		},
		"unknown flow": {
			404, `{"type":"urn:holocast:unknown-flow","title":"x","status":404}`, ErrUnknownFlow, false,
			"",
		},
		"unauthorized":  {401, `{"title":"Unauthorized"}`, ErrUnauthorized, false, ""},
		"overloaded":    {429, `{"title":"Too Many Requests"}`, nil, true, ""},
		"of a proxy":    {502, `<html>Bad Gateway</html>`, nil, true, "502 Bad Gateway"},
		"no body":       {500, ``, nil, true, "500"},
		"a redirection": {302, ``, nil, false, "302"},
		"status lied":   {404, `{"title":"x","status":200}`, nil, false, "(404)"},
	} {
		t.Run(name, func(t *testing.T) {
			client := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Location", "/elsewhere")
				w.WriteHeader(c.status)
				_, _ = w.Write([]byte(c.body))
			})
			err := client.Report(t.Context(), "a", Report{})
			var p *Problem
			if !errors.As(err, &p) || p.Temporary() != c.temporary || !strings.Contains(err.Error(), c.text) {
				t.Fatalf("%v", err)
			}
			for _, target := range all {
				if errors.Is(err, target) != (target == c.is) {
					t.Errorf("%v is %v: %v", err, target, errors.Is(err, target))
				}
			}
		})
	}
	t.Run("an answer that is not JSON", func(t *testing.T) {
		client := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("hello")) })
		if _, err := client.Flows(t.Context()); err == nil || !strings.Contains(err.Error(), "GET /v1/flows") {
			t.Error(err)
		}
	})
	t.Run("no answer", func(t *testing.T) {
		client := serve(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		client.timeout = 20 * time.Millisecond
		if _, err := client.Flows(t.Context()); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
}

// After any failure the stream is reopened and begins with a snapshot.
func TestWatchReconnects(t *testing.T) {
	visits := 0
	client := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		visits++
		switch visits {
		case 1:
			w.WriteHeader(http.StatusBadGateway)
		case 2:
			_, _ = w.Write([]byte(`{"snapshot":true}` + "\n" + `{"flows":[{"destination":"10.9.0.7","paths":[1]}]}` +
				"\n" + `{"half`))
		case 3:
			_, _ = w.Write([]byte(`{"snapshot":true}` + "\n{}\n"))
		default:
			w.Header().Set("Content-Type", ProblemType)
			w.WriteHeader(http.StatusNotFound)
			_ = json.NewEncoder(w).Encode(Problem{Type: TypeUnknownEdge, Title: "x", Status: 404})
		}
	})
	var got []string
	lost := 0
	err := client.Watch(t.Context(), "a", func(u Update) error {
		b, _ := json.Marshal(u.Flows)
		got = append(got, fmt.Sprintf("%v %d", u.Snapshot, len(b)))
		return nil
	}, func(error) { lost++ })
	if !errors.Is(err, ErrUnknownEdge) || lost != 3 || len(got) != 4 || got[0] != got[2] || got[2] != "true 4" ||
		got[3] != "false 4" {
		t.Errorf("%v, lost %d times, %q", err, lost, got)
	}
}

func TestWatchStops(t *testing.T) {
	client := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte("{\"snapshot\":true}\n"))
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	t.Run("by the caller's function", func(t *testing.T) {
		enough := errors.New("enough")
		if err := client.Watch(t.Context(), "a", func(Update) error { return enough }, nil); !errors.Is(err, enough) {
			t.Error(err)
		}
	})
	t.Run("by the context", func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		if err := client.Watch(ctx, "a", func(Update) error { stop(); return nil }, nil); !errors.Is(err,
			context.Canceled) {
			t.Error(err)
		}
	})
}

func TestOptions(t *testing.T) {
	dir := t.TempDir()
	junk := filepath.Join(dir, "junk.pem")
	if err := os.WriteFile(junk, []byte("junk"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		o    Options
		want string
	}{
		"no URL":             {Options{}, "url: "},
		"no scheme":          {Options{URL: "localhost:4793"}, "url: "},
		"other scheme":       {Options{URL: "ftp://localhost"}, "url: "},
		"certificate, http":  {Options{URL: "http://x", Certificate: junk, Key: junk}, "url: http://x is not https://"},
		"CA, http":           {Options{URL: "http://x", CA: junk}, "url: http://x is not https://"},
		"CA is junk":         {Options{URL: "https://x", CA: junk}, "ca: " + junk},
		"CA is missing":      {Options{URL: "https://x", CA: junk + "x"}, "ca: open " + junk},
		"key is missing":     {Options{URL: "https://x", Certificate: junk}, "certificate and key"},
		"certificate's junk": {Options{URL: "https://x", Certificate: junk, Key: junk}, "certificate: " + junk},
		"token of two words": {Options{URL: "http://x", Token: "a b"}, "token: "},
		"good":               {Options{URL: "https://x/prefix", Token: "a"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := NewClient(c.o)
			if (err == nil) != (c.want == "") || (err != nil && !strings.HasPrefix(err.Error(), c.want)) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

func TestBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := Backoff{Min: 100 * time.Millisecond, Max: 400 * time.Millisecond}
		wait := func() time.Duration {
			began := time.Now()
			if err := b.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			return time.Since(began)
		}
		for _, milliseconds := range []int{100, 200, 400, 400} {
			most := time.Duration(milliseconds) * time.Millisecond
			if d := wait(); d > most || d < most/2 {
				t.Errorf("waited %s, want %s to %s", d, most/2, most)
			}
		}
		b.Reset()
		if d := wait(); d > 100*time.Millisecond {
			t.Errorf("waited %s after a success", d)
		}
		ctx, stop := context.WithCancel(t.Context())
		stop()
		if err := b.Wait(ctx); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

func FuzzUpdate(f *testing.F) {
	f.Add(
		[]byte(
			`{"snapshot":true,"flows":[{"destination":"10.9.0.7","paths":[1],"generation":1,"since":"2026-01-01T00:00:00Z"}],"removed":["::1"]}`,
		),
	)
	f.Fuzz(func(t *testing.T, b []byte) {
		var u, again Update
		if json.Unmarshal(b, &u) != nil {
			return
		}
		out, err := json.Marshal(u)
		if err != nil {
			return // JSON cannot represent this time
		}
		if err := json.Unmarshal(out, &again); err != nil {
			t.Errorf("%s: %v", out, err)
		}
	})
}

// The token is sent only to the configured controller.
func TestNobodyElse(t *testing.T) {
	asked := make(chan string, 10)
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter,
		r *http.Request,
	) {
		asked <- r.Method + " " + r.URL.String()
	}))
	defer other.Close()
	t.Setenv("HTTP_PROXY", other.URL)
	t.Setenv("http_proxy", other.URL)
	redirecting := serve(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
	})
	absent, err := NewClient(Options{URL: "http://controller.invalid:4793", Token: "secret", Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer absent.Close()
	dst := netip.MustParseAddr("10.9.0.7")
	for call, do := range map[string]func(context.Context, *Client) error{
		"hello":  func(ctx context.Context, c *Client) error { _, err := c.Hello(ctx, Edge{Name: "a"}); return err },
		"report": func(ctx context.Context, c *Client) error { return c.Report(ctx, "a", Report{}) },
		"uplink": func(ctx context.Context, c *Client) error { return c.Uplink(ctx, "a", []Observation{{}}) },
		"eliminate": func(ctx context.Context,
			c *Client,
		) error {
			_, err := c.Eliminate(ctx, "a", Elimination{})
			return err
		},
		"leave": func(ctx context.Context, c *Client) error { return c.Leave(ctx, "a") },
		"edges": func(ctx context.Context, c *Client) error { _, err := c.Edges(ctx); return err },
		"flows": func(ctx context.Context, c *Client) error { _, err := c.Flows(ctx); return err },
		"set": func(ctx context.Context, c *Client) error {
			_, err := c.SetFlow(ctx, dst, Setting{Mode: Off})
			return err
		},
		"unset":     func(ctx context.Context, c *Client) error { return c.UnsetFlow(ctx, dst) },
		"status":    func(ctx context.Context, c *Client) error { _, err := c.Status(ctx); return err },
		"decisions": func(ctx context.Context, c *Client) error { _, err := c.Decisions(ctx, 0); return err },
		"watch": func(ctx context.Context, c *Client) error {
			failed := make(chan error, 1)
			ctx, stop := context.WithCancel(ctx)
			defer stop()
			_ = c.Watch(ctx, "a", func(Update) error { return nil }, func(err error) { failed <- err; stop() })
			return <-failed
		},
	} {
		for name, c := range map[string]*Client{"proxy": absent, "redirection": redirecting} {
			if err := do(t.Context(), c); err == nil {
				t.Errorf("%s, %s: no error", call, name)
			}
			select {
			case what := <-asked:
				t.Errorf("%s, %s: another host was asked %s", call, name, what)
			default:
			}
		}
	}
}
