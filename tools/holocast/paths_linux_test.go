package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"

	"holocast/internal/netlab/namespace"
	"holocast/internal/netlab/namespace/namespacetest"
	"holocast/internal/programtest"
)

// hosts are the hosts of a test's network.
type hosts struct {
	t     *testing.T
	group *namespace.Group
}

// newHosts returns no hosts yet. It skips the test if the process may not create any.
func newHosts(t *testing.T) hosts {
	t.Helper()
	if err := namespace.Supported(); err != nil {
		t.Skip("programs in network namespaces:", err)
	}
	return hosts{t, namespacetest.NewGroup(t)}
}

// twoLinks is a host and a server with two cables between them, each with a route to the server's
// address.
type twoLinks struct {
	hosts
	host, server *namespace.Namespace
	links        map[string]netlink.Link // at the server
}

const serverIP = "10.78.9.1"

func newTwoLinks(t *testing.T) *twoLinks {
	t.Helper()
	l := &twoLinks{hosts: newHosts(t), links: map[string]netlink.Link{}}
	for name, ns := range map[string]**namespace.Namespace{"host": &l.host, "server": &l.server} {
		var err error
		*ns, err = l.group.Add(name)
		l.must(err)
		l.must((*ns).Set("net/ipv4/conf/all/rp_filter", "0")) // the other cable's route may be better
		l.must((*ns).Set("net/ipv4/conf/default/rp_filter", "0"))
	}
	l.address(namespace.End{Namespace: l.server, Device: "lo"}, serverIP+"/32")
	for i, name := range []string{"wifi", "modem"} {
		near := namespace.End{Namespace: l.host, Device: name}
		far := namespace.End{Namespace: l.server, Device: name}
		l.must(namespace.Connect(near, far))
		l.links[name] = l.address(far, fmt.Sprintf("10.78.%d.1/24", i))
		_, server, err := net.ParseCIDR(serverIP + "/32")
		l.must(err)
		l.must(l.host.Handle.RouteAdd(&netlink.Route{
			LinkIndex: l.address(near, fmt.Sprintf("10.78.%d.2/24", i)).Attrs().Index, Dst: server,
			Gw: net.IPv4(10, 78, byte(i), 1), Priority: i + 1,
		}))
	}
	return l
}

func (h hosts) must(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
}

// address gives a device an address.
func (h hosts) address(e namespace.End, prefix string) netlink.Link {
	h.t.Helper()
	link, err := e.Link()
	h.must(err)
	address, err := netlink.ParseAddr(prefix)
	h.must(err)
	h.must(e.Namespace.Handle.AddrAdd(link, address))
	return link
}

// start starts a program in a namespace.
func (h hosts) start(ns *namespace.Namespace, name string, args ...string) *process {
	h.t.Helper()
	return h.startWith(ns, nil, name, args...)
}

// certificateHash returns the hash of a relay's certificate once it listens. The relay must log in JSON.
func (p *process) certificateHash() string {
	p.t.Helper()
	var line struct {
		Hash string `json:"certificate_sha256"`
	}
	if err := json.Unmarshal([]byte(p.Line(`"relay is listening"`)), &line); err != nil {
		p.t.Fatal(err)
	}
	return line.Hash
}

// startWith starts a program in a namespace with additional environment variables.
func (h hosts) startWith(ns *namespace.Namespace, env []string, name string, args ...string) *process {
	h.t.Helper()
	c := exec.Command(filepath.Join(programs, name), args...)
	c.Env = append(os.Environ(), env...)
	begin := func(c *exec.Cmd) error { return ns.Do(c.Start) }
	return &process{programtest.StartBy(h.t, c, begin), h.t}
}

// get fetches a page from a program in a namespace. It retries, since on a busy machine a request
// may time out.
func (h hosts) get(ns *namespace.Namespace, url string) (text string) {
	h.t.Helper()
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, address string) (c net.Conn, err error) {
			err = ns.Do(func() error {
				c, err = new(net.Dialer).DialContext(ctx, network, address)
				return err
			})
			return c, err
		},
	}}
	until(h.t, url, func() bool {
		resp, err := client.Get(url)
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		text = string(b)
		return err == nil && resp.StatusCode == http.StatusOK
	})
	return text
}

// relayReport lists the relay's viewers and tracks.
type relayReport struct {
	Viewers []struct {
		Publishes []string
		Paths     []struct {
			Name     string
			Down     bool
			Sent     uint64 `json:"sent_bytes"`
			Received uint64 `json:"received_bytes"`
		}
	}
	Tracks []struct {
		Name    string
		Objects uint64 `json:"received_objects"`
		Sent    uint64 `json:"sent_subgroups"`
	}
}

func (l *twoLinks) report() (r relayReport) {
	l.t.Helper()
	list := func(path string, items any) {
		page := struct{ Items any }{items}
		l.must(json.Unmarshal([]byte(l.get(l.server, "http://127.0.0.1:4443/api/v1/"+path)), &page))
	}
	list("viewers", &r.Viewers)
	list("tracks", &r.Tracks)
	return r
}

// up returns how many paths with a name are up, over all sessions.
func (r relayReport) up(name string) (n int) {
	for _, s := range r.Viewers {
		for _, p := range s.Paths {
			if p.Name == name && !p.Down {
				n++
			}
		}
	}
	return n
}

// frames counts the frames received and sent by the relay.
func (r relayReport) frames() (in, out uint64) {
	for _, t := range r.Tracks {
		if t.Name == "points/0/full" {
			in, out = t.Objects, t.Sent
		}
	}
	return in, out
}

// carried returns the bytes of frames over a path: from the publisher and to the viewer.
func (r relayReport) carried(name string) (in, out uint64) {
	for _, s := range r.Viewers {
		for _, p := range s.Paths {
			switch {
			case p.Name != name:
			case len(s.Publishes) > 0 && strings.Contains(strings.Join(s.Publishes, " "), "demo"):
				in += p.Received
			default:
				out += p.Sent
			}
		}
	}
	return in, out
}

// TestCutPaths cuts two links in turn while a capture server publishes and a viewer plays over
// both. No frame is lost, and a link carries frames again once it is back.
func TestCutPaths(t *testing.T) {
	t.Parallel()
	l := newTwoLinks(t)
	relay := l.start(l.server, "relay", "--listen", ":4443", "--http", "127.0.0.1:4443", "--insecure",
		"--log-format", "json", "--cache-max-age", "5m")
	target := []string{
		"moqt://" + serverIP + ":4443/demo", "--certificate-hash", relay.certificateHash(),
		"--path", "wifi", "--path", "modem",
	}
	capture := l.start(l.host, "capture-server", append(target, "--source", "synthetic", "--fps", "5",
		"--low=false", "--thin=false", "--delivery-timeout", "0", "--http", "127.0.0.1:9190")...)
	play := l.start(l.host, "holocast", append([]string{
		"play", "--wait", "--json", "--delivery-timeout", "5m",
	}, target...)...)
	// progress waits for some frames from the publisher and to the viewer.
	progress := func(what string) {
		t.Helper()
		in, out := l.report().frames()
		until(t, what, func() bool { i, o := l.report().frames(); return i >= in+5 && o >= out+5 })
	}
	until(t, "two sessions over two paths", func() bool { r := l.report(); return r.up("wifi") == 2 && r.up("modem") == 2 })
	progress("frames")
	for i := range 10 {
		cut, other := "wifi", "modem"
		if i%2 == 1 {
			cut, other = other, cut
		}
		in, out := l.report().carried(other)
		l.must(l.server.Handle.LinkSetDown(l.links[cut]))
		until(t, fmt.Sprintf("cut %d of %s", i, cut), func() bool { return l.report().up(cut) == 0 })
		progress("frames during cut " + strconv.Itoa(i))
		// The other path, which was cut before this one, carries the frames.
		until(t, "frames over "+other, func() bool {
			nowIn, nowOut := l.report().carried(other)
			return nowIn > in && nowOut > out
		})
		l.must(l.server.Handle.LinkSetUp(l.links[cut]))
		until(t, "the return of "+cut, func() bool { return l.report().up(cut) == 2 })
	}
	progress("frames after the cuts")

	metrics := l.get(l.host, "http://127.0.0.1:9190/metrics")
	for _, path := range []string{"wifi", "modem"} {
		if v := series(t, metrics, `holocast_capture_path_up{path="`+path+`"}`); v != 1 {
			t.Errorf("holocast_capture_path_up of %s is %v", path, v)
		}
	}
	play.Signal(syscall.SIGINT)
	play.mustSucceed()
	var r played
	play.lastLine(&r)
	metrics = l.get(l.host, "http://127.0.0.1:9190/metrics")
	dropped := series(t, metrics, `holocast_capture_frames_total{camera="synthetic-0",result="dropped"}`) +
		series(t, metrics, "holocast_capture_behind_subgroups_total")
	capture.Signal(syscall.SIGINT)
	capture.mustSucceed()
	relayMetrics := l.get(l.server, "http://127.0.0.1:4443/metrics")
	dropped += series(t, relayMetrics, `holocast_relay_dropped_subgroups_total{reason="behind"}`)
	// On a busy machine the programs drop frames in favour of newer ones, and count them.
	if lost := int64(r.FramesLost) - int64(r.FramesSkipped) - int64(dropped); lost > 0 || r.SubgroupsReset > 0 ||
		r.PublisherRestarts > 0 || r.Frames < 10 {
		in, out := l.report().frames()
		t.Errorf("%d frames lost: %+v; %v dropped; %d frames reached the relay, %d left it", lost, r.Report, dropped, in, out)
		for line := range strings.Lines(metrics + relayMetrics) {
			if strings.Contains(line, "subgroups_total") || strings.Contains(line, "frames_total") {
				t.Log(strings.TrimSpace(line))
			}
		}
	}
	if n := strings.Count(relay.Stderr.String(), `"session open"`); n != 2 {
		t.Errorf("%d sessions; the cuts ended some", n)
	}
	if len(r.Paths) != 2 || r.Paths[0].Name != "modem" || r.Paths[1].Name != "wifi" || r.Paths[0].ReceivedBytes == 0 ||
		r.Paths[1].ReceivedBytes == 0 {
		t.Errorf("paths %+v", r.Paths)
	}
	if !strings.Contains(play.Stderr.String(), "  wifi ") {
		t.Error("the live line names no paths")
	}
	t.Logf("%d frames, paths %s", r.Frames, r.Paths)
}

// series returns the sum of the series whose names, with labels, begin with name.
func series(t *testing.T, metrics, name string) (sum float64) {
	t.Helper()
	for line := range strings.Lines(metrics) {
		if strings.HasPrefix(line, name) {
			fields := strings.Fields(line)
			v, err := strconv.ParseFloat(fields[len(fields)-1], 64)
			if err != nil {
				t.Fatal(err)
			}
			sum += v
		}
	}
	return sum
}
