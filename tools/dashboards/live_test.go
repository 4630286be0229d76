//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"holocast/internal/netlab/namespace"
	"holocast/internal/netlab/namespace/namespacetest"
)

// patience is how long the system may take; a machine with two processors takes 20 s.
const patience = 2 * time.Minute

// TestDashboardsOnARunningSystem: a relay, two capture servers (points, 360° video), a viewer, a
// monitor, and between relay and viewer a pair that duplicates; Prometheus with our alerts
// scrapes them all. Every query of every panel has an answer.
func TestDashboardsOnARunningSystem(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a whole system")
	}
	if err := namespace.Supported(); err != nil {
		t.Skip(err)
	}
	prometheus, err := exec.LookPath("prometheus")
	if err != nil {
		t.Skip("Prometheus is not installed: tools/setup.sh --test")
	}
	s := newSystem(t)
	s.start()
	s.prometheus(prometheus)

	waiting := queries()
	for _, name := range metricNames(t) {
		waiting = append(waiting, "count("+name+")")
	}
	all := len(waiting)
	for deadline := time.Now().Add(patience); len(waiting) > 0 && time.Now().Before(deadline); time.Sleep(time.Second) {
		waiting = slices.DeleteFunc(waiting, s.answered)
	}
	for _, q := range waiting {
		t.Errorf("no answer to %s", q)
	}
	t.Logf("%d of %d queries have an answer", all-len(waiting), all)
	s.rules()
}

// system is what runs, in four hosts: relay — london ═ paris — viewer.
type system struct {
	t                            *testing.T
	dir                          string
	relay, london, paris, viewer *namespace.Namespace
	http                         *http.Client // of the relay's host
}

func newSystem(t *testing.T) *system {
	t.Helper()
	s := &system{t: t, dir: t.TempDir()}
	build := exec.Command("go", "build", "-o", s.dir+"/", "./relay", "./capture-server", "./tools/holocast", "./netfunc/edge", "./netfunc/controller")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	g := namespacetest.NewGroup(t)
	for name, into := range map[string]**namespace.Namespace{"relay": &s.relay, "london": &s.london, "paris": &s.paris, "viewer": &s.viewer} {
		n, err := g.Add(name)
		if err != nil {
			t.Fatal(err)
		}
		*into = n
		for _, key := range []string{"net/ipv4/ip_forward=1", "net/ipv4/conf/all/rp_filter=0", "net/ipv4/conf/default/rp_filter=0"} {
			key, value, _ := strings.Cut(key, "=")
			if err := n.Set(key, value); err != nil {
				t.Fatal(err)
			}
		}
	}
	s.cable(s.relay, "10.8.0.2", s.london, "10.8.0.1", "lan0")
	s.cable(s.paris, "10.9.0.1", s.viewer, "10.9.0.2", "lan0")
	s.cable(s.london, "10.1.1.1", s.paris, "10.1.1.2", "wan1")
	s.cable(s.london, "10.1.2.1", s.paris, "10.1.2.2", "wan2")
	s.route(s.relay, "10.0.0.0/8", "10.8.0.1")
	s.route(s.viewer, "10.0.0.0/8", "10.9.0.1")
	s.route(s.london, "10.9.0.0/24", "10.1.1.2")
	s.route(s.paris, "10.8.0.0/24", "10.1.1.1")
	s.http = &http.Client{Transport: &http.Transport{DialContext: func(_ context.Context, network, address string) (c net.Conn, err error) {
		err = s.relay.Do(func() error {
			c, err = net.Dial(network, address)
			return err
		})
		return c, err
	}}}
	t.Cleanup(s.http.CloseIdleConnections)
	return s
}

func (s *system) cable(a *namespace.Namespace, addressA string, b *namespace.Namespace, addressB, device string) {
	s.t.Helper()
	if err := namespace.Connect(namespace.End{Namespace: a, Device: device}, namespace.End{Namespace: b, Device: device}); err != nil {
		s.t.Fatal(err)
	}
	for n, address := range map[*namespace.Namespace]string{a: addressA, b: addressB} {
		link, err := n.Handle.LinkByName(device)
		if err != nil {
			s.t.Fatal(err)
		}
		parsed, err := netlink.ParseAddr(address + "/24")
		if err != nil {
			s.t.Fatal(err)
		}
		if err := n.Handle.AddrAdd(link, parsed); err != nil {
			s.t.Fatal(err)
		}
	}
}

func (s *system) route(n *namespace.Namespace, to, via string) {
	s.t.Helper()
	_, dst, err := net.ParseCIDR(to)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := n.Handle.RouteReplace(&netlink.Route{Dst: dst, Gw: net.ParseIP(via)}); err != nil {
		s.t.Fatal(err)
	}
}

func (s *system) file(name, text string) string {
	s.t.Helper()
	path := filepath.Join(s.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	return path
}

// run starts a program on a host. It is asked to end with the test.
func (s *system) run(n *namespace.Namespace, program string, args ...string) {
	s.t.Helper()
	if !filepath.IsAbs(program) {
		program = filepath.Join(s.dir, program)
	}
	log, err := os.CreateTemp(s.dir, filepath.Base(program)+"-*.log")
	if err != nil {
		s.t.Fatal(err)
	}
	c := exec.Command(program, args...)
	c.Stdout, c.Stderr = log, log
	if err := n.Do(c.Start); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		_ = c.Process.Signal(syscall.SIGTERM)
		end := time.AfterFunc(20*time.Second, func() { _ = c.Process.Kill() })
		_ = c.Wait()
		end.Stop()
		if s.t.Failed() {
			text, _ := os.ReadFile(log.Name())
			s.t.Logf("%s %s\n%s", filepath.Base(program), strings.Join(args, " "), text[:min(len(text), 3000)])
		}
		_ = log.Close()
	})
}

func (s *system) start() {
	s.t.Helper()
	token := s.file("token", "a-token-of-the-test\n")
	key, err := exec.Command(filepath.Join(s.dir, "controller"), "key").Output()
	if err != nil {
		s.t.Fatal(err)
	}
	signal := s.file("signal.key", string(key))
	edge := func(name, own, other, role, more string) string {
		pin := fmt.Sprintf("/sys/fs/bpf/dashboards-%d-%s", os.Getpid(), name)
		return s.file(name+".yaml", fmt.Sprintf(`
name: %s
role: %s
paths:
  - {index: 1, interface: wan1, peer: 10.1.1.%s}
  - {index: 2, interface: wan2, peer: 10.1.2.%s}
signal: {key: %s, interfaces: [%s]}
controller: {url: "http://10.8.0.1:4793", token: %s}
http: "%s:4792"
pin: %s
socket: %s.sock
drain: 100ms
%s`, name, role, other, other, signal, map[string]string{"london": "lo, lan0", "paris": "wan1, wan2"}[name], token, own, pin, filepath.Join(s.dir, name), more))
	}
	s.run(s.london, "controller", "run", "--config", s.file("controller.yaml", fmt.Sprintf(`
http: {listen: "10.8.0.1:4793"}
auth: {token: %s, edgeToken: %s}
signal: {key: %s}
state: %s
mode: duplicate
`, token, s.file("edge.token", "a-token-of-edges-in-the-test\n"), signal, filepath.Join(s.dir, "state.json"))))
	s.run(s.paris, "edge", "run", "--config", edge("paris", "10.9.0.1", "1", "receiver", `
receiver: {behind: [10.9.0.0/24]}
elimination: {completeSpan: 2s}
uplink: {interfaces: [lan0]}
`))
	s.run(s.london, "edge", "run", "--config", edge("london", "10.8.0.1", "2", "sender", `
sender: {attach: [{interface: lan0}], towards: [10.9.0.0/24]}
`))
	s.run(s.relay, "relay", "--listen", "10.8.0.2:4443", "--http", "10.8.0.2:4443")
	film := filepath.Join(s.dir, "film.mp4")
	if out, err := exec.Command("ffmpeg", "-v", "error", "-f", "lavfi", "-i", "testsrc2=size=512x256:rate=10", "-t", "2", film).CombinedOutput(); err != nil {
		s.t.Fatalf("%v\n%s", err, out)
	}
	s.run(s.relay, "capture-server", "--source", "synthetic", "--fps", "5", "--http", "10.8.0.2:9090", "--insecure", "moqt://10.8.0.2:4443/demo")
	s.run(s.relay, "capture-server", "--source", "equirect:"+film, "--grid", "4x2", "--qualities", "2", "--http", "10.8.0.2:9091", "--insecure", "moqt://10.8.0.2:4443/tour")
	s.run(s.viewer, "holocast", "monitor", "--insecure", "moqt://10.8.0.2:4443/demo", "--http", "10.9.0.2:9191")
	s.run(s.viewer, "holocast", "play", "--insecure", "moqt://10.8.0.2:4443/demo", "--wait", "--json")
}

// prometheus starts Prometheus with our alerts; its configuration is the one that we ship, with
// the system's addresses.
func (s *system) prometheus(program string) {
	s.t.Helper()
	text, err := os.ReadFile(root + "/deploy/prometheus/prometheus.yml")
	if err != nil {
		s.t.Fatal(err)
	}
	rules, err := filepath.Abs(root + "/deploy/prometheus/holocast.rules.yml")
	if err != nil {
		s.t.Fatal(err)
	}
	config := string(text)
	for _, change := range [][2]string{
		{"scrape_interval: 5s", "scrape_interval: 1s\n  scrape_timeout: 1s"},
		{"rule_files: [holocast.rules.yml]", "rule_files: [" + rules + "]"},
		{`"localhost:4443"`, `"10.8.0.2:4443"`},
		{`"localhost:9090"`, `"10.8.0.2:9090", "10.8.0.2:9091"`},
		{`"localhost:9191"`, `"10.9.0.2:9191"`},
		{`"localhost:4792"`, `"10.8.0.1:4792", "10.9.0.1:4792"`},
		{`"localhost:4793"`, `"10.8.0.1:4793"`},
		{"# authorization: {credentials_file: /etc/holocast/operator.token}", "authorization: {credentials_file: " + filepath.Join(s.dir, "token") + "}"},
	} {
		if !strings.Contains(config, change[0]) {
			s.t.Fatalf("prometheus.yml has no %s", change[0])
		}
		config = strings.Replace(config, change[0], change[1], 1)
	}
	s.run(s.relay, program, "--config.file="+s.file("prometheus.yml", config), "--storage.tsdb.path="+filepath.Join(s.dir, "tsdb"),
		"--web.listen-address=127.0.0.1:9099", "--log.level=warn")
}

// answered asks Prometheus a query.
func (s *system) answered(query string) bool {
	var a struct {
		Status, Error string
		Data          struct{ Result []json.RawMessage }
	}
	if !s.get("query?query="+url.QueryEscape(query), &a) {
		return false
	}
	if a.Status != "success" {
		s.t.Fatalf("%s: %s", query, a.Error)
	}
	return len(a.Data.Result) > 0
}

// rules fails for each alert that Prometheus could not evaluate.
func (s *system) rules() {
	s.t.Helper()
	var a struct {
		Data struct {
			Groups []struct {
				Rules []struct{ Name, Health, LastError string }
			}
		}
	}
	n := 0
	if s.get("rules", &a) {
		for _, g := range a.Data.Groups {
			for _, r := range g.Rules {
				n++
				if r.Health == "err" {
					s.t.Errorf("alert %s: %s", r.Name, r.LastError)
				}
			}
		}
	}
	if n == 0 {
		s.t.Error("Prometheus has no alerts")
	}
}

// get asks Prometheus' interface; false as long as it does not answer.
func (s *system) get(path string, into any) bool {
	r, err := s.http.Get("http://127.0.0.1:9099/api/v1/" + path)
	if err != nil {
		return false
	}
	defer func() { _ = r.Body.Close() }()
	b, err := io.ReadAll(r.Body)
	return err == nil && json.Unmarshal(b, into) == nil
}
