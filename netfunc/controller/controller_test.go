//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holocast/netfunc/api"
	"holocast/netfunc/signal"
)

// After being killed and restarted, the controller resumes. The sender receives no other path set in
// between.
func TestRestart(t *testing.T) {
	t.Parallel()
	dir := workDir(t)
	p := start(t, dir, "")
	edges := newPair(t, p.client())
	edges.hello()
	edges.trouble()
	edges.until(0x1f)
	edges.report()
	f := edges.eliminate(3, 4)
	edges.until(0b10011)
	edges.report()
	eventually(t, "the state is saved",
		func() bool { return contains(filepath.Join(dir, "state.json"), `"state":"trimmed"`) })
	p.Kill()

	p = start(t, dir, "", "--http-listen", strings.TrimPrefix(p.url, "http://"))
	ctx, stop := context.WithCancel(t.Context())
	snapshot := make(chan api.Update, 100)
	watched := make(chan error, 1)
	go func() {
		watched <- edges.c.Watch(ctx, "b", func(u api.Update) error { snapshot <- u; return nil }, nil)
	}()
	u := <-snapshot
	if !u.Snapshot || len(u.Flows) != 1 || u.Flows[0].Paths != 0b10011 || u.Flows[0].Generation != f.Generation {
		t.Errorf("%+v, was %+v", u, f)
	}
	edges.report() // accepted without another hello
	edges.eliminate(1)
	edges.until(0b10010)
	stop()
	if err := <-watched; !errors.Is(err, context.Canceled) {
		t.Errorf("watch: %v", err)
	}
	decisions, err := edges.c.Decisions(t.Context(), 0)
	var kinds []string
	for _, d := range decisions {
		kinds = append(kinds, d.Kind)
	}
	if want := "edge edge start trim restart trim"; err != nil || strings.Join(kinds, " ") != want {
		t.Errorf("decisions %v, %v; want %s", kinds, err, want)
	}
	if strings.Contains(p.output(), `"level":"ERROR"`) {
		t.Error("errors in the log")
	}
}

// Without its state the controller adopts the path sets that edges report.
func TestDamagedState(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func([]byte) []byte{
		"truncated": func(b []byte) []byte { return b[:len(b)/2] },
		"empty":     func([]byte) []byte { return nil },
		"changed":   func(b []byte) []byte { return bytes.Replace(b, []byte(`"duplicating"`), []byte(`"redirected!"`), 1) },
		"zeroes":    func(b []byte) []byte { return make([]byte, len(b)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := workDir(t)
			state := filepath.Join(dir, "state.json")
			p := start(t, dir, "")
			edges := newPair(t, p.client())
			edges.hello()
			edges.trouble()
			edges.until(0x1f)
			edges.report()
			p.Stop()
			b, err := os.ReadFile(state)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(state, damage(b), 0o600); err != nil {
				t.Fatal(err)
			}
			p = start(t, dir, "")
			edges.c = p.client()
			edges.hello()
			edges.report()
			if f := edges.flow(); f.Paths != 0x1f || !f.Applied {
				t.Errorf("%+v", f)
			}
			if !strings.Contains(p.output(), "starting without earlier state") ||
				!strings.Contains(p.output(), "state.json.damaged-") {
				t.Error("the damaged state is not logged")
			}
			if kept, _ := filepath.Glob(state + ".damaged-*"); len(kept) != 1 {
				t.Errorf("set aside: %v", kept)
			}
		})
	}
}

// Each startup failure is explained in one line.
func TestDoesNotStart(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		yaml  string
		args  []string
		state string
		want  string
	}{
		"state of a later version": {state: `{"format":9,"sha256":"","state":{}}`, want: "later version"},
		"unknown setting":          {yaml: "trigger:\n  intervall: 1s\n", want: "intervall"},
		"bad setting":              {yaml: "trigger:\n  count: 0\n", want: "trigger.count"},
		"open to others": {
			args: []string{"--http-listen", "0.0.0.0:0", "--auth-token", ""},
			want: "auth.token",
		},
		"no key":     {args: []string{"--signal-key", "/nonexistent"}, want: "signal.key"},
		"no address": {yaml: "signal:\n  from: 192.0.2\n", want: "controller.yaml:2: signal.from: "},
		"no prefix": {
			yaml: "grants:\n  a:\n    prefixes: [10.9.0.0/33]\n",
			want: "controller.yaml:3: grants.a.prefixes[0]: ",
		},
		"another's address": {yaml: "signal: {from: 192.0.2.9}\n", want: "signal.from: "},
		"no token":          {args: []string{"--auth-token", "/nonexistent"}, want: "auth.token"},
		"mode":              {args: []string{"--mode", "best"}, want: `mode "best"`},
		"log":               {args: []string{"--log-level", "loud"}, want: "log.level"},
		"certificate": {
			args: []string{"--http-certificate", "/nonexistent", "--http-key", "/nonexistent"},
			want: "http.certificate",
		},
		"certificate alone":     {args: []string{"--http-certificate", "x"}, want: "http.key"},
		"state in no directory": {args: []string{"--state", "/proc/nowhere/state.json"}, want: "state file"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := workDir(t)
			if c.state != "" {
				if err := os.WriteFile(filepath.Join(dir, "state.json"), []byte(c.state), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			p := launch(t, dir, c.yaml, c.args...)
			err := p.Err()
			lines := strings.Split(strings.TrimSpace(p.output()), "\n")
			last := lines[len(lines)-1]
			if err == nil || !strings.HasPrefix(last, "controller: ") || !strings.Contains(last, c.want) {
				t.Errorf("%v\n%s\nwant %q", err, p.output(), c.want)
			}
		})
	}
	t.Run("in use", func(t *testing.T) {
		t.Parallel()
		p := start(t, workDir(t), "")
		for want, args := range map[string][]string{
			"in use by another process": nil,
			"in use by another program": {"--http-listen", strings.TrimPrefix(p.url, "http://")},
		} {
			q := launch(t, p.dir, "", args...)
			if err := q.Err(); err == nil || !strings.Contains(q.output(), want) {
				t.Errorf("%v\n%s", err, q.output())
			}
		}
	})
}

// Spoofed, replayed and malformed packets among the controller's own have no effect.
func TestSpoofedSignalling(t *testing.T) {
	t.Parallel()
	p := start(t, workDir(t), "")
	edges := newPair(t, p.client())
	edges.hello()
	attacker, err := net.Dial("udp4", edges.udp.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer attacker.Close()
	dst := netip.MustParseAddr(viewer)
	future := uint64(time.Now().Add(time.Hour).UnixNano())
	spoofed, _ := signal.Message{Destination: dst, Paths: 0, Nonce: future}.Append(nil, bytes.Repeat([]byte{1}, 32))
	old, _ := signal.Message{Destination: dst, Paths: 0, Nonce: 1}.Append(nil, signal.EdgeKey(key, "a"))
	attack := func() {
		for _, b := range [][]byte{spoofed, old, old[:40], append(bytes.Clone(old), 0), []byte("HCSG"), nil} {
			_, _ = attacker.Write(b)
		}
	}
	edges.trouble()
	edges.until(0x1f)
	attack()
	eventually(t, "the attack is over", func() bool {
		edges.mu.Lock()
		defer edges.mu.Unlock()
		return edges.refused[signal.ErrSpoofed] == 1 && edges.refused[signal.ErrReplayed] == 1 &&
			edges.refused[signal.ErrMalformed] == 4
	})
	edges.report()
	edges.mu.Lock()
	inForce := edges.policies[dst]
	edges.mu.Unlock()
	if f := edges.flow(); f.Paths != 0x1f || !f.Applied || inForce.Paths != 0x1f {
		t.Errorf("%+v, in force %+v", f, inForce)
	}
	edges.eliminate(1, 2, 3, 4)
	attack()
	edges.until(0b10000)
}

// Signals repeat until the sender reports the set in force, even if an earlier controller's clock
// was ahead.
func TestSignalsUntilApplied(t *testing.T) {
	t.Parallel()
	p := start(t, workDir(t), "signal:\n  resend: 5ms\n")
	edges := newPair(t, p.client())
	ahead, _ := signal.Message{
		Destination: netip.MustParseAddr("10.9.0.99"), Paths: 0,
		Nonce: uint64(time.Now().Add(time.Hour).UnixNano()),
	}.Append(nil, signal.EdgeKey(key, "a"))
	if _, err := edges.guard.Accept(ahead, signal.EdgeKey(key, "a")); err != nil {
		t.Fatal(err)
	}
	edges.hello()
	edges.trouble()
	eventually(t, "packets with old nonces are refused", func() bool {
		edges.mu.Lock()
		defer edges.mu.Unlock()
		return edges.refused[signal.ErrReplayed] > 3
	})
	edges.report() // with the nonce
	edges.until(0x1f)
	if edges.flow().Applied {
		t.Error("applied before it was reported")
	}
	edges.report()
	if !edges.flow().Applied {
		t.Error("not applied")
	}
	s, err := edges.c.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(50 * time.Millisecond)
	if again, err := edges.c.Status(t.Context()); err != nil || again.Signals != s.Signals {
		t.Errorf("%d packets after it was applied, %v", again.Signals-s.Signals, err)
	}
}

// The flow of a receiver that stops reporting continues on one path.
func TestLostEdge(t *testing.T) {
	t.Parallel()
	p := start(t, workDir(t), "reportInterval: 50ms\n")
	edges := newPair(t, p.client())
	edges.hello()
	edges.trouble()
	edges.until(0x1f)
	eventually(t, "b is lost, a is not", func() bool {
		if err := edges.c.Report(t.Context(), "a", api.Report{Paths: edges.paths}); err != nil {
			t.Fatal(err)
		}
		list, err := edges.c.Edges(t.Context())
		if err != nil || len(list) != 2 {
			t.Fatalf("%+v, %v", list, err)
		}
		return !list[0].Lost && list[1].Lost
	})
	edges.until(0b00001)
	if f := edges.flow(); f.State != api.Single {
		t.Errorf("%+v", f)
	}
}

// SIGTERM ends watch streams and saves the state immediately.
func TestStops(t *testing.T) {
	t.Parallel()
	p := start(t, workDir(t), "")
	edges := newPair(t, p.client())
	edges.hello()
	ctx, cancel := context.WithCancel(t.Context())
	watching, ended := make(chan struct{}, 1), make(chan error, 1)
	go func() {
		_ = edges.c.Watch(ctx, "a", func(api.Update) error { watching <- struct{}{}; return nil },
			func(err error) { ended <- err; cancel() })
	}()
	<-watching
	p.Stop()
	// A stream that blocks shutdown would be cut off after five seconds with another error.
	if err := <-ended; err.Error() != "watch stream ended" {
		t.Errorf("the watch stream was cut off: %v", err)
	}
	if !contains(filepath.Join(p.dir, "state.json"), `"name":"b"`) {
		t.Error("the state is not saved")
	}
}

// Slow callers are cut off without blocking others; a watch stream may stay open.
func TestSlowCallers(t *testing.T) {
	t.Parallel()
	p := start(t, workDir(t), "")
	edges := newPair(t, p.client())
	edges.hello()
	ctx, stop := context.WithCancel(t.Context())
	snapshots, watched := 0, make(chan struct{})
	go func() {
		defer close(watched)
		_ = edges.c.Watch(ctx, "a", func(u api.Update) error {
			if u.Snapshot {
				snapshots++
			}
			return nil
		}, func(err error) { t.Errorf("watch: %v", err) })
	}()
	addr := strings.TrimPrefix(p.url, "http://")
	slow := func(first string) net.Conn {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		if _, err := c.Write([]byte(first)); err != nil {
			t.Fatal(err)
		}
		return c
	}
	began := time.Now()
	head := slow("GET /v1/status HTTP/1.1\r\nHost: ")
	body := slow("POST /v1/edges HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAuthorization: " +
		"Bearer " + token + "\r\nContent-Length: 100\r\n\r\n{")
	long := slow("GET / HTTP/1.1\r\nX: " + strings.Repeat("x", 40<<10))
	if _, err := p.client().Status(t.Context()); err != nil {
		t.Error(err)
	}
	for _, c := range []struct { // fastest timeout first
		name string
		conn net.Conn
	}{{"long", long}, {"head", head}, {"body", body}} {
		_ = c.conn.SetReadDeadline(began.Add(patience))
		b := make([]byte, 4096)
		for {
			if _, err := c.conn.Read(b); err != nil {
				if errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("%s is not cut off", c.name)
				}
				break
			}
		}
	}
	stop()
	<-watched
	if d := time.Since(began); snapshots != 1 || d < 9*time.Second {
		t.Errorf("%d snapshots in %s, want 1 in about 10 s", snapshots, d)
	}
}

func TestOperator(t *testing.T) {
	t.Parallel()
	p := start(t, workDir(t), "")
	edges := newPair(t, p.client())
	edges.hello()
	edges.trouble()
	edges.until(0x1f)
	edges.report()
	command := func(args ...string) (string, error) {
		args = append(args, "--url", p.url, "--token", filepath.Join(p.dir, "token"))
		out, err := exec.Command(binary, args...).CombinedOutput()
		return string(out), err
	}
	out, err := command("status")
	for _, want := range []string{
		"2 edges, 1 flows", "a     sender    ok", "p5", "20.0 ms", viewer,
		"duplicating  1+2+3+4+5  yes", "start", "200 ms between uplink packets",
	} {
		if err != nil || !strings.Contains(out, want) {
			t.Errorf("status: %v, want %q in\n%s", err, want, out)
		}
	}
	out, err = command("status", "--json", "--decisions", "1")
	var got picture
	if err != nil || json.Unmarshal([]byte(out), &got) != nil || len(got.Edges) != 2 || len(got.Flows) != 1 ||
		len(got.Decisions) != 1 {
		t.Errorf("status --json: %v\n%s", err, out)
	}
	if out, err = command("set", viewer, "--mode", "redirect", "--paths", "2"); err != nil ||
		!strings.Contains(out, "state redirected, paths 2") {
		t.Errorf("set: %v %s", err, out)
	}
	edges.until(0b10)
	if out, err = command("set", viewer, "--default"); err != nil || edges.flow().Mode != api.Auto {
		t.Errorf("set --default: %v %s", err, out)
	}
	for want, args := range map[string][]string{
		"best":                   {"set", viewer, "--mode", "best"},
		"path 9":                 {"set", viewer, "--mode", "auto", "--paths", "9"},
		"is not an IPv4 or IPv6": {"set", "nowhere", "--mode", "auto"},
		"at least one of the":    {"set", viewer},
	} {
		if out, err := command(args...); err == nil || !strings.Contains(out, want) ||
			!strings.HasPrefix(out, "controller: ") {
			t.Errorf("%v: %v %s", args, err, out)
		}
	}
}

func TestKeyCommand(t *testing.T) {
	t.Parallel()
	out, err := exec.Command(binary, "key").Output()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(path, out, 0o600); err != nil {
		t.Fatal(err)
	}
	if k, err := signal.ReadKey(path); err != nil || len(k) != signal.KeySize {
		t.Errorf("%x, %v", k, err)
	}
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	p := start(t, workDir(t), "")
	edges := newPair(t, p.client())
	edges.hello()
	edges.trouble()
	edges.until(0x1f)
	edges.report()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	read := func() string {
		req, _ := http.NewRequestWithContext(t.Context(), "GET", p.url+"/metrics", nil)
		req.Header.Set("Authorization", "Bearer "+token)
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	for _, want := range []string{
		`holocast_controller_edge_up{edge="a",role="sender"} 1`,
		`holocast_controller_path_rtt_seconds{edge="a",interface="p1",path="1"} 0.02`,
		`holocast_controller_flows{state="duplicating"} 1`,
		`holocast_controller_flow_paths{destination="10.9.0.7"} 5`,
		`holocast_controller_flow_applied{destination="10.9.0.7"} 1`,
		`holocast_controller_decisions_total{kind="start"} 1`,
		`holocast_controller_uplink_observations_total{edge="b"} 4`,
		`holocast_controller_requests_total{route="/v1/edges",status="200"} 2`,
		`holocast_controller_reaction_seconds_count 1`,
	} {
		eventually(t, want, func() bool { return strings.Contains(read(), want) })
	}
}

// An operator's token is sent only to the controller, even if the environment names a proxy.
func TestOperatorAsksNoProxy(t *testing.T) {
	t.Parallel()
	dir := workDir(t)
	asked := make(chan string, 10)
	proxy := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter,
		r *http.Request,
	) {
		asked <- r.Method + " " + r.URL.String()
	}))
	defer proxy.Close()
	for _, args := range [][]string{{"status"}, {"set", viewer, "--mode", "off"}, {"set", viewer, "--default"}} {
		c := exec.Command(binary, append(args, "--url", "http://controller.invalid:4793", "--token",
			filepath.Join(dir, "token"))...)
		c.Env = append(os.Environ(), "HTTP_PROXY="+proxy.URL, "http_proxy="+proxy.URL)
		if out, err := c.CombinedOutput(); err == nil {
			t.Errorf("%v succeeded: %s", args, out)
		}
		select {
		case what := <-asked:
			t.Errorf("%v asked the proxy %s", args, what)
		default:
		}
	}
}
