//go:build linux

package main

import (
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/net/dns/dnsmessage"

	"holocast/internal/netlab/namespace"
	"holocast/internal/netlab/namespace/namespacetest"
	"holocast/internal/programtest"
	"holocast/internal/quiccc"
)

// pathLab is a host with publishers and viewers, a router, and the relay's host. Programs run as
// processes.
type pathLab struct {
	t                    *testing.T
	host, router, server *namespace.Namespace
	ends                 [4]namespace.End // two of the host's cable, then two of the server's
	relay                *process
}

const (
	hostIP, hostIP6   = "10.77.1.2", "fd77:1::2"
	relayIP, relayIP6 = "10.77.2.2", "fd77:2::2"
)

func newPathLab(t *testing.T) *pathLab {
	t.Helper()
	if err := namespace.Supported(); err != nil {
		t.Skip("paths between network namespaces:", err)
	}
	g := namespacetest.NewGroup(t)
	l := &pathLab{t: t}
	for name, ns := range map[string]**namespace.Namespace{"host": &l.host, "router": &l.router, "server": &l.server} {
		var err error
		if *ns, err = g.Add(name); err != nil {
			t.Fatal(err)
		}
		// A router sends no neighbour solicitation until its link-local address has passed DAD, which takes
		// up to 2 s.
		l.must((*ns).Set("net/ipv6/conf/default/accept_dad", "0"))
	}
	l.ends = [4]namespace.End{
		{Namespace: l.host, Device: "lan0"},
		{Namespace: l.router, Device: "host"},
		{Namespace: l.router, Device: "server"},
		{Namespace: l.server, Device: "lan0"},
	}
	for i, addresses := range [][]string{
		{hostIP + "/24", hostIP6 + "/64"},
		{"10.77.1.1/24", "fd77:1::1/64"},
		{"10.77.2.1/24", "fd77:2::1/64"},
		{relayIP + "/24", relayIP6 + "/64"},
	} {
		if i%2 == 0 {
			l.must(namespace.Connect(l.ends[i], l.ends[i+1]))
		}
		for _, prefix := range addresses {
			address, err := netlink.ParseAddr(prefix)
			l.must(err)
			l.must(l.ends[i].Namespace.Handle.AddrAdd(l.link(i), address))
		}
	}
	for _, setting := range []string{"net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"} {
		l.must(l.router.Set(setting, "1"))
	}
	for i, gateways := range map[int][]string{0: {"10.77.1.1", "fd77:1::1"}, 3: {"10.77.2.1", "fd77:2::1"}} {
		for _, gateway := range gateways {
			route := &netlink.Route{LinkIndex: l.link(i).Attrs().Index, Gw: net.ParseIP(gateway)}
			l.must(l.ends[i].Namespace.Handle.RouteAdd(route))
		}
	}
	l.relay = startBy(t, func(c *exec.Cmd) error { return l.server.Do(c.Start) }, "--listen", ":4443",
		"--insecure", "--origins", "*")
	return l
}

func (l *pathLab) must(err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatal(err)
	}
}

func (l *pathLab) link(end int) netlink.Link {
	l.t.Helper()
	link, err := l.ends[end].Link()
	l.must(err)
	return link
}

// deviceMTU sets the MTU of a device, and thereby of its cable.
func (l *pathLab) deviceMTU(end, mtu int) {
	l.t.Helper()
	l.must(l.ends[end].Namespace.Handle.LinkSetMTU(l.link(end), mtu))
}

// routeMTU sets the MTU at which the router forwards packets to a network.
func (l *pathLab) routeMTU(end, mtu int) {
	l.t.Helper()
	networks := map[int][]string{1: {"10.77.1.0/24", "fd77:1::/64"}, 2: {"10.77.2.0/24", "fd77:2::/64"}}[end]
	for _, network := range networks {
		_, to, err := net.ParseCIDR(network)
		l.must(err)
		route := &netlink.Route{
			LinkIndex: l.link(end).Attrs().Index, Dst: to, MTU: mtu, MTULock: true, Scope: netlink.SCOPE_LINK,
		}
		if to.IP.To4() == nil {
			route.Scope, route.Priority = netlink.SCOPE_UNIVERSE, 1 // precedes the kernel's route
		}
		l.must(l.router.Handle.RouteReplace(route))
	}
}

// run runs the test binary as a publisher or viewer on the host.
func (l *pathLab) run(env, url string, more ...string) *programtest.Process {
	l.t.Helper()
	c := exec.Command(os.Args[0])
	return l.runAs(c, env, url, more...)
}

func (l *pathLab) runAs(c *exec.Cmd, env, url string, more ...string) *programtest.Process {
	l.t.Helper()
	c.Env = slices.Concat(os.Environ(), []string{env + "=" + url, envHash + "=" + l.relay.hash}, more)
	return programtest.StartBy(l.t, c, func(c *exec.Cmd) error { return l.host.Do(c.Start) })
}

// publish starts a publisher of 40 kB frames and waits until the relay knows its namespace.
func (l *pathLab) publish(url string) *programtest.Process {
	l.t.Helper()
	p := l.run(envPublish, url, envSize+"=40000")
	known := func() bool { return strings.Contains(l.relay.output(), "namespace published") }
	eventually(l.t, "the publisher connects", func() bool { return known() || ended(p) })
	if !known() {
		l.t.Fatal("the publisher ended")
	}
	return p
}

func ended(p *programtest.Process) bool {
	select {
	case <-p.Done():
		return true
	default:
		return false
	}
}

// picture waits until a viewer shows a frame captured after since, and returns the time it waited.
func (l *pathLab) picture(viewer *programtest.Process, since time.Time) time.Duration {
	l.t.Helper()
	shown := func() bool {
		lines := strings.Fields(viewer.Stdout.String())
		if len(lines) == 0 {
			return false
		}
		newest, _ := strconv.ParseInt(lines[len(lines)-1], 10, 64)
		return newest > since.UnixMilli()
	}
	eventually(l.t, "a new picture", func() bool { return shown() || ended(viewer) })
	if !shown() {
		l.t.Fatal("the viewer ended")
	}
	return time.Since(since).Round(time.Millisecond)
}

// TestSmallPaths checks that publishers and viewers can use paths with an MTU of 1280 bytes.
func TestSmallPaths(t *testing.T) {
	for name, narrow := range map[string]func(*pathLab){
		"both directions": func(l *pathLab) { l.deviceMTU(2, 1280) },
		"to the relay":    func(l *pathLab) { l.routeMTU(2, 1280) },
		"from the relay":  func(l *pathLab) { l.routeMTU(1, 1280) },
		"own device":      func(l *pathLab) { l.deviceMTU(0, 1280) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newPathLab(t)
			narrow(l)
			l.publish("moqt://" + relayIP + ":4443")
			for _, url := range []string{
				"moqt://" + relayIP + ":4443", "moqt://[" + relayIP6 + "]:4443",
				"https://" + relayIP + ":4443/test", "https://[" + relayIP6 + "]:4443/test",
			} {
				began := time.Now()
				t.Logf("%s: a picture after %s", url, l.picture(l.run(envView, url), began))
			}
		})
	}
	for _, url := range []string{"moqt://[" + relayIP6 + "]:4443", "https://[" + relayIP6 + "]:4443/test"} {
		t.Run("publisher "+url, func(t *testing.T) {
			t.Parallel()
			l := newPathLab(t)
			l.deviceMTU(2, 1280)
			l.publish(url)
			l.picture(l.run(envView, "moqt://"+relayIP+":4443"), time.Now())
		})
	}
}

// TestShrinkingPath checks that a session continues when the MTU of its path shrinks.
func TestShrinkingPath(t *testing.T) {
	if !quiccc.Patched() {
		t.Skip("the published quic-go never lowers the packet size: make quic-go")
	}
	for name, c := range map[string]struct {
		ip     string
		shrink func(*pathLab)
	}{
		"both directions, 1400":  {relayIP, func(l *pathLab) { l.deviceMTU(2, 1400) }},
		"both directions, 1280":  {relayIP6, func(l *pathLab) { l.deviceMTU(2, 1280) }},
		"to the relay, 1400":     {relayIP6, func(l *pathLab) { l.routeMTU(2, 1400) }},
		"from the relay, 1300":   {relayIP, func(l *pathLab) { l.routeMTU(1, 1300) }},
		"publisher's own device": {relayIP, func(l *pathLab) { l.deviceMTU(0, 1400) }},
		"relay's own device":     {relayIP6, func(l *pathLab) { l.deviceMTU(3, 1400) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newPathLab(t)
			host := net.JoinHostPort(c.ip, "4443")
			publisher := l.publish("moqt://" + host)
			viewers := []*programtest.Process{l.run(envView, "moqt://"+host), l.run(envView, "https://"+host+"/test")}
			// Path MTU discovery sends a probe every five round trips, so a few seconds of pictures
			// suffice.
			for range 20 {
				for _, v := range viewers {
					l.picture(v, time.Now())
				}
			}
			c.shrink(l)
			for range 5 {
				since := time.Now()
				for _, v := range viewers {
					t.Logf("a picture after %s", l.picture(v, since))
				}
			}
			if ended(publisher) {
				t.Error("the publisher's session ended")
			}
		})
	}
}

// answers are the addresses of a host; a nil list makes the name server ignore the query.
type answers struct{ a, aaaa []string }

// serveNames answers queries on the host's loopback device.
func (l *pathLab) serveNames(names map[string]answers) {
	l.t.Helper()
	var conn net.PacketConn
	l.must(l.host.Do(func() (err error) {
		conn, err = net.ListenPacket("udp", "127.0.0.1:53")
		return err
	}))
	done := make(chan struct{})
	l.t.Cleanup(func() { _ = conn.Close(); <-done })
	go func() {
		defer close(done)
		for packet := make([]byte, 1500); ; {
			n, from, err := conn.ReadFrom(packet)
			if err != nil {
				return
			}
			if reply := reply(packet[:n], names); reply != nil {
				_, _ = conn.WriteTo(reply, from)
			}
		}
	}()
}

// reply returns the answer to a DNS query, or nil to ignore it.
func reply(packet []byte, names map[string]answers) []byte {
	var query dnsmessage.Message
	if query.Unpack(packet) != nil || len(query.Questions) != 1 {
		return nil
	}
	q := query.Questions[0]
	known, ok := names[strings.TrimSuffix(q.Name.String(), ".")]
	query.Response, query.Additionals = true, nil
	if !ok {
		query.RCode = dnsmessage.RCodeNameError
	}
	list := known.a
	if q.Type == dnsmessage.TypeAAAA {
		list = known.aaaa
	}
	if ok && list == nil {
		return nil
	}
	for _, text := range list {
		ip := netip.MustParseAddr(text)
		header := dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class, TTL: 1}
		var body dnsmessage.ResourceBody
		if q.Type == dnsmessage.TypeAAAA {
			body = &dnsmessage.AAAAResource{AAAA: ip.As16()}
		} else {
			body = &dnsmessage.AResource{A: ip.As4()}
		}
		query.Answers = append(query.Answers, dnsmessage.Resource{Header: header, Body: body})
	}
	out, _ := query.Pack()
	return out
}

// TestNames checks that viewers can connect to names with several addresses, some of them dead.
func TestNames(t *testing.T) {
	none := []string{}
	dead, dead6 := []string{"10.77.2.99"}, []string{"fd77:2::99"}
	both := answers{[]string{relayIP}, []string{relayIP6}}
	for name, c := range map[string]struct {
		answers
		prepare func(*pathLab)
	}{
		"both families":           {both, nil},
		"IPv4 alone":              {answers{[]string{relayIP}, none}, nil},
		"IPv6 alone":              {answers{none, []string{relayIP6}}, nil},
		"dead IPv6":               {answers{[]string{relayIP}, dead6}, nil},
		"dead IPv4":               {answers{dead, []string{relayIP6}}, nil},
		"first of two dead":       {answers{append(dead, relayIP), none}, nil},
		"AAAA query unanswered":   {answers{[]string{relayIP}, nil}, nil},
		"A query unanswered":      {answers{nil, []string{relayIP6}}, nil},
		"host with IPv6 alone":    {both, func(l *pathLab) { l.withdraw(hostIP + "/24") }},
		"host with IPv4 alone":    {both, func(l *pathLab) { l.withdraw(hostIP6 + "/64") }},
		"IPv6 packets disappear":  {both, func(l *pathLab) { l.must(l.router.Set("net/ipv6/conf/all/forwarding", "0")) }},
		"IPv4 packets disappear":  {both, func(l *pathLab) { l.must(l.router.Set("net/ipv4/ip_forward", "0")) }},
		"dead IPv6, small packet": {answers{[]string{relayIP}, dead6}, func(l *pathLab) { l.deviceMTU(2, 1280) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newPathLab(t)
			if c.prepare != nil {
				c.prepare(l)
			}
			l.serveNames(map[string]answers{"relay.test": c.answers})
			resolver := filepath.Join(t.TempDir(), "resolv.conf")
			l.must(os.WriteFile(resolver, []byte("nameserver 127.0.0.1\noptions timeout:60 attempts:1\n"), 0o644))
			for i, url := range []string{"moqt://relay.test:4443", "https://relay.test:4443/test"} {
				c := exec.Command("unshare", "--mount", "sh", "-c",
					`mount --bind "$0" /etc/resolv.conf && exec "$1"`, resolver, os.Args[0])
				viewer := l.runAs(c, envView, url, "GODEBUG=netdns=go")
				open := func() bool { return strings.Count(l.relay.output(), `"session open"`) > i }
				eventually(t, "a session", func() bool { return open() || ended(viewer) })
				if !open() {
					t.Fatalf("%s: no session", url)
				}
				viewer.Kill()
			}
		})
	}
}

// withdraw removes an address of the host.
func (l *pathLab) withdraw(prefix string) {
	l.t.Helper()
	address, err := netlink.ParseAddr(prefix)
	l.must(err)
	l.must(l.host.Handle.AddrDel(l.link(0), address))
}
