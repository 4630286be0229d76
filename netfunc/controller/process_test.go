//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"holocast/internal/programtest"
	"holocast/netfunc/api"
	"holocast/netfunc/pathset"
	"holocast/netfunc/signal"
)

// binary is the controller under test.
var binary string

func TestMain(m *testing.M) {
	programtest.Main(m, func(dir string) { binary = filepath.Join(dir, "controller") }, ".")
}

var key = bytes.Repeat([]byte{42}, signal.KeySize)

const (
	// patience only guards against hangs.
	patience = 2 * time.Minute

	token  = "token-of-the-process-tests"
	viewer = "10.9.0.7"
)

// process is a running controller.
type process struct {
	*programtest.Process
	t   testing.TB
	url string
	dir string // holds signal.key, token and state.json
}

// workDir returns a directory with a signalling key and a token.
func workDir(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string]string{"signal.key": hex.EncodeToString(key) + "\n", "token": token + "\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// start runs a controller in dir with the settings of yaml and args.
func start(t testing.TB, dir, yaml string, args ...string) *process {
	t.Helper()
	p := launch(t, dir, yaml, args...)
	var line struct{ URL string }
	if err := json.Unmarshal([]byte(p.Line(`"controller is listening"`)), &line); err != nil {
		t.Fatal(err)
	}
	p.url = line.URL
	return p
}

func launch(t testing.TB, dir, yaml string, args ...string) *process {
	t.Helper()
	config := filepath.Join(dir, "controller.yaml")
	if err := os.WriteFile(config, []byte(withReportInterval(yaml)), 0o600); err != nil {
		t.Fatal(err)
	}
	args = append([]string{
		"run", "--config", config, "--http-listen", "127.0.0.1:0", "--signal-key", filepath.Join(dir, "signal.key"),
		"--auth-token", filepath.Join(dir, "token"), "--state", filepath.Join(dir,
			"state.json"), "--log-format", "json", "--log-level", "debug",
	}, args...)
	return &process{Process: programtest.Start(t, exec.Command(binary, args...)), t: t, dir: dir}
}

// withReportInterval adds a report interval to a configuration that sets none. It is so long that no
// edge is lost even on a slow machine.
func withReportInterval(yaml string) string {
	if strings.Contains(yaml, "reportInterval:") {
		return yaml
	}
	return yaml + "reportInterval: 1h\n"
}

func (p *process) output() string { return p.Stderr.String() }

func (p *process) client() *api.Client {
	p.t.Helper()
	c, err := api.NewClient(api.Options{URL: p.url, Token: token, Timeout: patience})
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(c.Close)
	return c
}

// pair plays the two edges of a flow. It makes their calls to the controller, and its sender accepts
// signalling packets as the kernel program does.
type pair struct {
	t     testing.TB
	c     *api.Client
	udp   *net.UDPConn
	paths []api.Path

	mu       sync.Mutex
	guard    signal.Guard
	policies map[netip.Addr]api.Policy
	refused  map[error]int
	deaf     bool
	applied  chan api.Policy
}

func newPair(t testing.TB, c *api.Client) *pair {
	t.Helper()
	udp, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	p := &pair{
		t: t, c: c, udp: udp, policies: map[netip.Addr]api.Policy{}, refused: map[error]int{},
		applied: make(chan api.Policy, 10_000),
	}
	for i := range 5 {
		p.paths = append(p.paths, api.Path{
			Index: i + 1, Interface: fmt.Sprintf("p%d", i+1), Up: true,
			RTT: float64(20 + 10*i),
		})
	}
	done := make(chan struct{})
	go func() { defer close(done); p.receive() }()
	t.Cleanup(func() { _ = udp.Close(); <-done })
	return p
}

func (p *pair) receive() {
	b := make([]byte, 2048)
	for {
		n, err := p.udp.Read(b)
		if err != nil {
			return
		}
		p.mu.Lock()
		if p.deaf {
			p.mu.Unlock()
			continue
		}
		m, err := p.guard.Accept(b[:n], signal.EdgeKey(key, "a"))
		if err != nil {
			p.refused[err]++
			p.mu.Unlock()
			continue
		}
		policy := api.Policy{Destination: m.Destination, Paths: m.Paths, Nonce: m.Nonce}
		p.policies[m.Destination] = policy
		p.mu.Unlock()
		p.applied <- policy
	}
}

func (p *pair) hello() {
	p.t.Helper()
	prefix := []netip.Prefix{netip.MustParsePrefix("10.9.0.0/16")}
	for _, e := range []api.Edge{
		{
			Name: "a", Role: api.Sender, Signal: p.udp.LocalAddr().(*net.UDPAddr).AddrPort(),
			SignalVersion: signal.Version, Paths: p.paths, Towards: prefix,
		},
		{Name: "b", Role: api.Receiver, Paths: p.paths, Behind: prefix},
	} {
		if _, err := p.c.Hello(context.Background(), e); err != nil {
			p.t.Fatal(err)
		}
	}
	p.confirm()
}

// confirm reports that the receiver is ready for the viewer's replicas.
func (p *pair) confirm() {
	p.t.Helper()
	if err := p.c.Report(context.Background(), "b", api.Report{
		Paths: p.paths,
		Ready: []netip.Addr{netip.MustParseAddr(viewer)},
	}); err != nil {
		p.t.Fatal(err)
	}
}

func (p *pair) report() {
	p.t.Helper()
	p.mu.Lock()
	r := api.Report{Paths: p.paths, Nonce: p.guard.Last()}
	for _, policy := range p.policies {
		r.Policies = append(r.Policies, policy)
	}
	p.mu.Unlock()
	if err := p.c.Report(context.Background(), "a", r); err != nil {
		p.t.Fatal(err)
	}
	p.confirm()
}

// trouble reports uplink packets of a flow in trouble.
func (p *pair) trouble() {
	p.t.Helper()
	var seen []api.Observation
	for i := range 4 {
		seen = append(seen, api.Observation{
			Time: int64(i) * int64(200*time.Millisecond), Source: netip.MustParseAddrPort(viewer + ":40000"),
			Destination: netip.MustParseAddrPort("10.1.0.2:4443"), Length: 240,
		})
	}
	if err := p.c.Uplink(context.Background(), "b", seen); err != nil {
		p.t.Fatal(err)
	}
}

// until waits until the sender has put paths in force.
func (p *pair) until(paths pathset.Set) {
	p.t.Helper()
	limit := time.After(patience)
	for {
		select {
		case policy := <-p.applied:
			if policy.Paths == paths {
				return
			}
		case <-limit:
			p.t.Fatalf("paths %s are not signalled", paths)
		}
	}
}

// flow returns the pair's only flow.
func (p *pair) flow() api.Flow {
	p.t.Helper()
	flows, err := p.c.Flows(context.Background())
	if err != nil || len(flows) != 1 {
		p.t.Fatalf("%+v, %v", flows, err)
	}
	return flows[0]
}

func (p *pair) eliminate(removed ...int) api.Flow {
	p.t.Helper()
	f := p.flow()
	r := pathset.Of(removed...)
	out, err := p.c.Eliminate(context.Background(), "b", api.Elimination{
		Destination: f.Destination,
		Generation:  f.Generation, Removed: r, Remaining: f.Paths &^ r,
	})
	if err != nil || out[0].Err() != nil {
		p.t.Fatal(err, out)
	}
	return *out[0].Flow
}

// eventually waits for is() to become true.
func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if is() {
			return
		}
	}
	t.Fatal("not reached: " + what)
}

func contains(path, what string) bool {
	b, err := os.ReadFile(path)
	return err == nil && strings.Contains(string(b), what)
}
