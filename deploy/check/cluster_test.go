package check

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
)

// pods are network namespaces around a router. A file of hosts replaces DNS.
type pods struct {
	t      *testing.T
	prefix string // of the namespaces' names
	hosts  string // file
}

func (p *pods) ip(args ...string) {
	p.t.Helper()
	if out, err := exec.CommandContext(p.t.Context(), "ip", args...).CombinedOutput(); err != nil {
		p.t.Fatalf("ip %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

func (p *pods) add(name string) (namespace string) {
	p.t.Helper()
	namespace = p.prefix + name
	p.ip("netns", "add", namespace)
	p.t.Cleanup(func() { _ = exec.Command("ip", "netns", "delete", namespace).Run() })
	p.ip("-n", namespace, "link", "set", "lo", "up")
	return namespace
}

// start creates the pods' namespaces.
func (p *pods) start(names ...string) {
	p.t.Helper()
	router := p.add("router")
	p.ip("netns", "exec", router, "sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward")
	for i, name := range names {
		pod, link := p.add(name), fmt.Sprint("pod", i)
		p.ip("-n", router, "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", pod)
		p.ip("-n", router, "address", "add", fmt.Sprintf("10.78.%d.1/24", i), "dev", link)
		p.ip("-n", router, "link", "set", link, "up")
		p.ip("-n", pod, "address", "add", podAddress(i)+"/24", "dev", "eth0")
		p.ip("-n", pod, "link", "set", "eth0", "up")
		p.ip("-n", pod, "route", "add", "default", "via", fmt.Sprintf("10.78.%d.1", i))
	}
}

func podAddress(i int) string { return fmt.Sprintf("10.78.%d.2", i) }

// limit is a program's life, which ends at the end of the test at the latest.
const limit = 2 * time.Minute

// command prepares a program in a pod.
func (p *pods) command(pod string, args ...string) *exec.Cmd {
	p.t.Helper()
	all := append([]string{
		"--net=/run/netns/" + p.prefix + pod, "unshare", "--mount", "sh", "-c",
		`mount --bind "$0" /etc/hosts && exec "$@"`, p.hosts,
	}, args...)
	ctx, cancel := context.WithTimeout(p.t.Context(), limit)
	p.t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, "nsenter", all...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd
}

// run starts a program in a pod and returns the lines of its log.
func (p *pods) run(pod string, args ...string) (log <-chan string) {
	p.t.Helper()
	cmd := p.command(pod, args...)
	out, err := cmd.StderrPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	lines := make(chan string, 1000)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer close(lines)
		for scan := bufio.NewScanner(out); scan.Scan(); {
			select {
			case lines <- scan.Text():
			default: // nobody reads
			}
		}
	}()
	p.t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		<-done
		_ = cmd.Wait()
	})
	return lines
}

// TestClusterRuns runs the relays of values/cluster.yaml as the chart configures them, each in a
// network namespace with its pod's name: they join each other, and a session that is published at the
// first one is played at the last one.
func TestClusterRuns(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root")
	}
	if err := build("./capture-server", "./tools/holocast"); err != nil {
		t.Fatal(err)
	}
	all, err := template(t, values(t, "../helm/values/cluster.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	set := all["StatefulSet"].(*apps.StatefulSet)
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	program := func(name string) string { return filepath.Join(programs, name) }
	output := func(cmd *exec.Cmd) string {
		t.Helper()
		var stderr strings.Builder
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: %v: %s%s", cmd, err, out, stderr.String())
		}
		return strings.TrimSpace(string(out))
	}
	relay := func(args ...string) string {
		t.Helper()
		return output(exec.CommandContext(t.Context(), program("relay"), args...))
	}
	for _, name := range []string{"keys", "cluster", "web"} {
		if err := os.Mkdir(file(name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	relay("key", file("keys/relay.key"))
	relay("key", file("cluster/cluster.key"), "--algorithm", "HS256")
	mounted := strings.NewReplacer("/etc/holocast", dir, "/usr/share/holocast/web", file("web"))
	config := mounted.Replace(all["ConfigMap"].(*core.ConfigMap).Data["relay.yaml"])
	names, hosts := []string{}, "127.0.0.1 localhost\n"
	host := func(pod string) string { return fmt.Sprintf("%s.%s.media.svc", pod, set.Spec.ServiceName) }
	for i := range int(*set.Spec.Replicas) {
		names = append(names, fmt.Sprint(set.Name, "-", i))
		hosts += fmt.Sprintln(podAddress(i), host(names[i]))
	}
	for name, text := range map[string]string{"relay.yaml": config, "hosts": hosts, "web/index.html": ""} {
		if err := os.WriteFile(file(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p := &pods{t: t, prefix: fmt.Sprintf("holocast-%d-", os.Getpid()), hosts: file("hosts")}
	p.start(append(slices.Clone(names), "client")...)
	var logs []<-chan string
	for _, name := range names {
		args := []string{program("relay")}
		for _, a := range set.Spec.Template.Spec.Containers[0].Args {
			args = append(args, strings.ReplaceAll(mounted.Replace(a), "$(POD_NAME)", name))
		}
		logs = append(logs, p.run(name, args...))
	}
	var hashes []string
	for i, log := range logs {
		found, hash := map[string]bool{}, "" // found: URLs
		for text := range log {
			var line struct {
				Msg, URL string
				Hash     string `json:"certificate_sha256"`
			}
			if json.Unmarshal([]byte(text), &line) != nil {
				continue
			}
			switch line.Msg {
			case "relay is listening":
				hash = line.Hash
			case "cluster: relay found":
				found[line.URL] = true
			}
			if hash != "" && len(found) == len(names)-1 {
				break
			}
		}
		hashes = append(hashes, hash)
		for k, name := range names {
			if url := "moqt://" + host(name) + ":4443"; found[url] != (k != i) {
				t.Errorf("%s found %v", names[i], found)
			}
		}
	}
	if t.Failed() {
		return
	}

	token := func(flag string) string {
		t.Helper()
		return relay("token", "--auth-keys", file("keys/relay.key"), flag, "demo")
	}
	url := func(pod string) string { return "moqt://" + host(pod) + ":4443/demo" }
	p.run("client", program("capture-server"), "--source", "synthetic", "--fps", "5", url(names[0]),
		"--certificate-hash", hashes[0], "--token", token("--publish"))
	played := output(p.command("client", program("holocast"), "play", url(names[2]), "--wait",
		"--certificate-hash", hashes[2], "--duration", "2s", "--json", "--token", token("--subscribe")))
	var result struct{ FPS float64 }
	if err := json.Unmarshal([]byte(played[strings.LastIndexByte(played, '\n')+1:]), &result); err != nil ||
		result.FPS <= 0 {
		t.Errorf("played %s (%v)", played, err)
	}
}
