//go:build linux

package main

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// ended runs an edge that must exit by itself, and returns its output.
func (e *edge) ended(args ...string) string {
	e.t.Helper()
	out, err := e.command(append([]string{"run"}, args...)...)
	if err == nil {
		e.t.Errorf("%v succeeded", args)
	}
	if n := strings.Count(out, "\nedge: ") + strings.Count(out, "edge: "); n > 2 {
		e.t.Errorf("more than one sentence:\n%s", out)
	}
	return out
}

func TestMessages(t *testing.T) {
	s := newSite(t)
	for name, c := range map[string]struct {
		old, new string // in the sender's configuration
		receiver bool
		want     string
	}{
		"interface missing": {
			old: "lan0", new: "lan7",
			want: "edge.yml:9: sender.attach[0].interface: interface lan7 does not exist\n",
		},
		"no path's interface": {
			old: "interface: wan", new: "interface: nowan", receiver: true,
			want: "edge.yml:12: paths[0].interface: no interface for replicas exists: nowan1, nowan2, nowan3\n",
		},
		"no native XDP": {
			old: "role: receiver", new: "role: receiver\nreceiver: {interfaces: [lo]}",
			receiver: true, want: "edge.yml:9: receiver: ",
		},
		"map full": {old: "sender: {", new: "sender: {maxPolicies: 1, ", want: "map full"},
		"key missing": {
			old: "role: sender", new: "role: sender\nsignal: {key: /none}",
			want: "edge.yml:9: signal.key: signalling key: open /none: no such file or directory\n",
		},
		"pins elsewhere": {old: "pin: /sys/fs/bpf", new: "pin: /tmp", want: "edge.yml:2: pin: directory /tmp/"},
		"uplink missing": {
			old: "role: receiver", new: "role: receiver\nuplink: {interfaces: [lan7]}",
			receiver: true, want: "edge.yml:9: uplink.interfaces[0]: interface lan7 does not exist\n",
		},
		"controller's URL": {
			old: "role: receiver",
			new: "role: receiver\nreceiver: {behind: [10.9.0.0/24]}\ncontroller: {url: \"ftp://x\"}", receiver: true,
			want: "edge.yml:10: controller.url: \"ftp://x\" is not http",
		},
		"controller's CA": {
			old:      "role: receiver",
			new:      "role: receiver\nreceiver: {behind: [10.9.0.0/24]}\ncontroller: {url: \"https://x\", ca: /none}",
			receiver: true, want: "edge.yml:10: controller.ca: open /none: no such file",
		},
		"HTTP address wrong": {
			old: `http: ""`, new: `http: "10.77.0.1:1"`,
			want: `edge.yml:4: http: "10.77.0.1:1" is not an address of this machine; want HOST:PORT with an address of this machine, or :PORT for all of them` + "\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			ns, text := s.near, staticSender+"\n"
			if c.receiver {
				ns, text = s.far, staticReceiver+"\n"
			}
			if name == "map full" {
				text = strings.Replace(text, "flows: [", "flows: [{destination: 10.9.0.3, paths: [1]}, ", 1)
			}
			e := s.edge(ns, "messages", text)
			e.t = t
			b, err := os.ReadFile(e.config)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(b), c.old) {
				t.Fatalf("no %q in\n%s", c.old, b)
			}
			if err := os.WriteFile(e.config, bytes.ReplaceAll(b, []byte(c.old), []byte(c.new)), 0o600); err != nil {
				t.Fatal(err)
			}
			out := e.ended()
			if !strings.Contains(out, c.want) {
				t.Errorf("said\n%swant %q", out, c.want)
			}
			if name == "no native XDP" && (!strings.Contains(out, "no native XDP") ||
				!strings.Contains(out, "interface lo")) {
				t.Errorf("said\n%s", out)
			}
		})
	}
}

// TestUnprivileged checks that, without root, each command names the missing capabilities.
func TestUnprivileged(t *testing.T) {
	if os.Getuid() != 0 {
		t.Log("not root: run as it is")
	}
	cfg := t.TempDir() + "/edge.yml"
	if err := os.WriteFile(cfg, []byte(sends), 0o644); err != nil {
		t.Fatal(err)
	}
	for dir := cfg; dir != "/tmp" && dir != "/" && dir != "."; dir = dir[:strings.LastIndex(dir, "/")] {
		if err := os.Chmod(dir, 0o755); err != nil {
			break // not owned by the tests
		}
	}
	for _, args := range [][]string{{"run"}, {"detach"}} {
		c := exec.Command(edgeBinary, append(args, "--config", cfg)...)
		if os.Getuid() == 0 {
			c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		}
		out, err := c.CombinedOutput()
		want := "edge: an edge needs root, or CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON: this process has no CAP_BPF, " +
			"CAP_NET_ADMIN, CAP_PERFMON\n"
		if err == nil || string(out) != want {
			t.Errorf("%v: %v\n%swant\n%s", args, err, out, want)
		}
	}
}

// TestStatusWithoutRoot checks the message for a user who cannot see the edges.
func TestStatusWithoutRoot(t *testing.T) {
	c := exec.Command(edgeBinary, "status")
	if os.Getuid() == 0 {
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
	if out, err := c.CombinedOutput(); err == nil || !strings.Contains(string(out), "cannot see this machine's edges") {
		t.Errorf("%v: %s", err, out)
	}
}

// TestTwice checks that a running edge can be neither started again nor detached.
func TestTwice(t *testing.T) {
	s := newSite(t)
	e := s.edge(s.near, "near", staticSender)
	e.start()
	if out := e.ended(); !strings.Contains(out, "edge: edge near is already running as process ") {
		t.Errorf("said\n%s", out)
	}
	if out, err := e.command("detach"); err == nil || !strings.Contains(out, "stop it with SIGTERM") {
		t.Errorf("%v, said\n%s", err, out)
	}
	if st := e.status(); !st.Running || len(st.Attached) != 1 {
		t.Errorf("%+v", st)
	}
}

func TestHTTP(t *testing.T) {
	s := newSite(t)
	e := s.edge(s.far, "far", staticReceiver)
	e.start("--http", "127.0.0.1:4792")
	e.until("up", func(st *Status) bool { return st.Paths[0].Up })
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(_ context.Context, network, address string) (conn net.Conn, err error) {
			err = s.far.Do(func() error { conn, err = net.Dial(network, address); return err })
			return conn, err
		},
	}}
	get := func(path string) string {
		t.Helper()
		resp, err := client.Get("http://127.0.0.1:4792" + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatalf("%s: %s, %v\n%s", path, resp.Status, err, b)
		}
		return string(b)
	}
	for _, want := range []string{
		`holocast_edge_path_up{path="1"} 1`, `holocast_edge_path_first_packets_total{path="3"} 0`,
		`holocast_edge_flow_paths{destination="10.9.0.2",side="receiver"} 3`, "holocast_edge_status_failed 0",
		"go_goroutines",
	} {
		// A next hop that answers late takes its path down for a moment.
		eventually(t, want, func() bool { return strings.Contains(get("/metrics"), want) })
	}
	eventually(t, "healthy", func() bool { return get("/healthz") == "ok\n" })
	if got := get("/status"); !strings.Contains(got, `"role":"receiver"`) {
		t.Errorf("status %s", got)
	}
	out, err := e.command("status")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"edge far (receiver), running since", "eliminate on wan1: native XDP",
		"PATH  INTERFACE  STATE", "FLOW      PATHS", "10.9.0.2  1+2+3",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}
