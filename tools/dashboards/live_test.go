//go:build linux

package main

import (
	"bytes"
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
	"go.yaml.in/yaml/v3"

	"holocast/internal/netlab/namespace"
	"holocast/internal/netlab/namespace/namespacetest"
	"holocast/internal/programtest"
)

// startTimeout limits the wait for all queries to return data, which takes 20 s on two cores.
const startTimeout = 5 * time.Minute

// TestDashboardsOnARunningSystem runs the services of deploy/compose in network namespaces, with
// their configurations and commands: a relay, a capture server and a second one for 360° video, a
// monitor, a viewer behind three paths, the edge pair that duplicates over them, and Prometheus
// with the project's alerts; in addition a second relay, which forms a cluster with the first. It checks
// that every query of every panel returns data.
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
	deadline := time.Now().Add(startTimeout)
	for ; len(waiting) > 0 && time.Now().Before(deadline); time.Sleep(time.Second) {
		waiting = slices.DeleteFunc(waiting, s.answered)
	}
	for _, q := range waiting {
		t.Errorf("no data for %s", q)
	}
	t.Logf("%d of %d queries return data", all-len(waiting), all)
	s.rules()
}

// service is a service in the compose file.
type service struct {
	Entrypoint, Command []string
}

// system is the running system: the hosts of the relay and the viewer, joined by three paths, and a
// host for everything else.
type system struct {
	t                    *testing.T
	dir                  string
	services             map[string]service
	relay, viewer, front *namespace.Namespace
	http                 *http.Client // network of the compose file
}

// Addresses in the compose file's network "front", here two veth pairs.
const (
	frontOfRelay  = "10.7.1.1"
	relayInFront  = "10.7.1.2"
	frontOfViewer = "10.7.2.1"
	viewerInFront = "10.7.2.2"
)

func newSystem(t *testing.T) *system {
	t.Helper()
	dir, err := programtest.Build(
		"holocast/relay", "holocast/capture-server", "holocast/tools/holocast", "holocast/netfunc/edge",
		"holocast/netfunc/controller",
	)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	s := &system{t: t, dir: dir}
	text, err := os.ReadFile(root + "/deploy/compose/compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Services map[string]service }
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	s.services = file.Services
	if err := os.MkdirAll(filepath.Join(s.dir, "keys"), 0o755); err != nil {
		t.Fatal(err)
	}
	g := namespacetest.NewGroup(t)
	for name, into := range map[string]**namespace.Namespace{"relay": &s.relay, "viewer": &s.viewer, "front": &s.front} {
		n, err := g.Add(name)
		if err != nil {
			t.Fatal(err)
		}
		*into = n
		for _, key := range []string{"net/ipv4/conf/all/rp_filter", "net/ipv4/conf/default/rp_filter"} {
			if err := n.Set(key, "0"); err != nil {
				t.Fatal(err)
			}
		}
	}
	s.cable(s.front, frontOfRelay, s.relay, relayInFront, "front0")
	s.cable(s.front, frontOfViewer, s.viewer, viewerInFront, "front1")
	for path := 1; path <= 3; path++ {
		s.cable(
			s.relay, fmt.Sprintf("10.1.%d.2", path), s.viewer, fmt.Sprintf("10.1.%d.3", path),
			fmt.Sprintf("path%d", path),
		)
	}
	s.http = &http.Client{
		Transport: &http.Transport{DialContext: func(_ context.Context, network, address string) (c net.Conn, err error) {
			err = s.front.Do(func() error {
				c, err = net.Dial(network, address)
				return err
			})
			return c, err
		}},
	}
	t.Cleanup(s.http.CloseIdleConnections)
	return s
}

func (s *system) cable(a *namespace.Namespace, addressA string, b *namespace.Namespace, addressB, device string) {
	s.t.Helper()
	err := namespace.Connect(namespace.End{Namespace: a, Device: device}, namespace.End{Namespace: b, Device: device})
	if err != nil {
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

// fill replaces the compose file's addresses and folders in text with this system's.
func (s *system) fill(text string, changes ...string) string {
	return strings.NewReplacer(append(
		changes, "/keys", filepath.Join(s.dir, "keys"), "$$", "$", "controller:4793", frontOfRelay+":4793",
		"relay:4443", relayInFront+":4443", "relay:9192", relayInFront+":9192", "capture-server:9190",
		"127.0.0.1:9190", "monitor:9191", "127.0.0.1:9191",
	)...).Replace(text)
}

// config writes a configuration of deploy/compose with this system's addresses and the given
// additional settings.
func (s *system) config(name, more string, changes ...string) string {
	s.t.Helper()
	text, err := os.ReadFile(root + "/deploy/compose/" + name)
	if err != nil {
		s.t.Fatal(err)
	}
	path := filepath.Join(s.dir, name)
	if err := os.WriteFile(path, []byte(s.fill(string(text), changes...)+more), 0o600); err != nil {
		s.t.Fatal(err)
	}
	return path
}

// args returns the arguments of a service.
func (s *system) args(name string) (args []string) {
	s.t.Helper()
	c, ok := s.services[name]
	if !ok {
		s.t.Fatalf("the compose file has no service %s", name)
	}
	for _, a := range append(c.Entrypoint, c.Command...) {
		args = append(args, s.fill(a))
	}
	return args
}

func (s *system) command(program string, args ...string) *exec.Cmd {
	if _, err := os.Stat(filepath.Join(s.dir, program)); err == nil {
		program = filepath.Join(s.dir, program)
	}
	c := exec.Command(program, args...)
	c.Env = append(os.Environ(), "PATH="+s.dir+":"+os.Getenv("PATH"))
	return c
}

// once runs a program on a host and waits for its exit.
func (s *system) once(n *namespace.Namespace, program string, args ...string) {
	s.t.Helper()
	c := s.command(program, args...)
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	if err := n.Do(c.Run); err != nil {
		s.t.Fatalf("%s %s: %v\n%s", program, strings.Join(args, " "), err, &out)
	}
}

// run starts a program on a host and terminates it at the end of the test.
func (s *system) run(n *namespace.Namespace, program string, args ...string) {
	s.t.Helper()
	log, err := os.CreateTemp(s.dir, filepath.Base(program)+"-*.log")
	if err != nil {
		s.t.Fatal(err)
	}
	c := s.command(program, args...)
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
	keys := s.args("keys")
	s.once(s.front, keys[0], keys[1:]...)
	route := s.args("relay-route")
	s.once(s.relay, route[0], route[1:]...)
	web := filepath.Join(s.dir, "web")
	if err := os.Mkdir(web, 0o755); err != nil {
		s.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(web, "index.html"), nil, 0o600); err != nil {
		s.t.Fatal(err)
	}

	s.run(
		s.front, "controller", "run", "--config",
		s.config("controller.yaml", "state: "+filepath.Join(s.dir, "state.json")+"\nmode: duplicate\n"),
	)
	edge := func(n *namespace.Namespace, name, more string, changes ...string) {
		own := fmt.Sprintf(
			"pin: /sys/fs/bpf/dashboards-%d-%s\nsocket: %s.sock\ndrain: 100ms\n", os.Getpid(), name,
			filepath.Join(s.dir, name),
		)
		s.run(n, "edge", "run", "--config", s.config(name+".yaml", own+more, changes...))
	}
	edge(s.viewer, "paris", "elimination: {completeSpan: 2s}\n", "controller:4793", frontOfViewer+":4793")
	edge(s.relay, "london", "")
	secret := filepath.Join(s.dir, "cluster.key")
	s.once(s.front, "relay", "key", secret, "--algorithm", "HS256")
	member := "cluster: {name: test, region: %s, secret: " + secret + ", advertise: 'moqt://%s', join: ['" + relayInFront +
		":6222']}\n"
	s.run(s.relay, "relay", "--config", s.config(
		"relay.yaml", fmt.Sprintf(member, "one", relayInFront+":4443"), "/usr/share/holocast/web", web,
	))
	second := filepath.Join(s.dir, "second.yaml")
	text := "listen: ':4453'\ninsecure: true\nhttp: ''\nadmin: 127.0.0.1:9194\n" +
		fmt.Sprintf(member, "two", frontOfRelay+":4453")
	if err := os.WriteFile(second, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	s.run(s.front, "relay", "--config", second)
	s.run(s.front, "capture-server", append(s.args("capture-server"), "--fps", "5", "--audio", "synthetic")...)
	film := filepath.Join(s.dir, "film.mp4")
	render := exec.Command("ffmpeg", "-v", "error", "-f", "lavfi", "-i", "testsrc2=size=512x256:rate=10", "-t", "2", film)
	if out, err := render.CombinedOutput(); err != nil {
		s.t.Fatalf("%v\n%s", err, out)
	}
	s.run(
		s.front, "capture-server", "--source", "equirect:"+film, "--grid", "4x2", "--qualities", "2", "--http",
		"127.0.0.1:9193", "--insecure", "moqt://"+relayInFront+":4443/tour",
	)
	s.run(s.front, "holocast", s.args("monitor")...)
	viewer := s.args("viewer")
	s.run(s.viewer, viewer[0], viewer[1:]...)
}

// prometheus starts Prometheus with the compose file's configuration and this system's addresses.
func (s *system) prometheus(program string) {
	s.t.Helper()
	rules, err := filepath.Abs(root + "/deploy/prometheus/holocast.rules.yml")
	if err != nil {
		s.t.Fatal(err)
	}
	s.run(s.front, program, "--config.file="+s.config(
		"prometheus.yaml", "", "scrape_interval: 5s", "scrape_interval: 1s\n  scrape_timeout: 1s",
		"[holocast.rules.yml]", "["+rules+"]", `"capture-server:9190"`, `"127.0.0.1:9190", "127.0.0.1:9193"`,
		`"relay:9192"`, `"`+relayInFront+`:9192", "127.0.0.1:9194"`,
		"dns_sd_configs: [{names: [london, paris], type: A, port: 4792}]",
		`static_configs: [{targets: ["`+relayInFront+`:4792", "`+viewerInFront+`:4792"]}]`,
		"dns_sd_configs: [{names: [controller], type: A, port: 4793}]",
		`static_configs: [{targets: ["`+frontOfRelay+`:4793"]}]`,
	), "--storage.tsdb.path="+filepath.Join(s.dir, "tsdb"), "--web.listen-address=127.0.0.1:9099", "--log.level=warn")
}

// answered reports whether a query returns data. It fails the test if the query is rejected.
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

// rules fails the test if Prometheus has no alerts or could not evaluate one.
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

// get sends a request to Prometheus' API, decodes the JSON response, and reports success.
func (s *system) get(path string, into any) bool {
	r, err := s.http.Get("http://127.0.0.1:9099/api/v1/" + path)
	if err != nil {
		return false
	}
	defer func() { _ = r.Body.Close() }()
	b, err := io.ReadAll(r.Body)
	return err == nil && json.Unmarshal(b, into) == nil
}
