package main

import (
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"holocast/internal/netlab/namespace"
)

// hotel is a guest behind a hotel's router, and a server on the internet.
type hotel struct {
	hosts
	guest, router, server *namespace.Namespace
}

const (
	routerIP   = "10.79.0.1"
	internetIP = "10.79.1.2" // of the server
)

func newHotel(t *testing.T) *hotel {
	t.Helper()
	h := &hotel{hosts: newHosts(t)}
	for name, ns := range map[string]**namespace.Namespace{"guest": &h.guest, "router": &h.router, "server": &h.server} {
		var err error
		*ns, err = h.group.Add(name)
		h.must(err)
	}
	room := namespace.End{Namespace: h.guest, Device: "lan0"}
	lan := namespace.End{Namespace: h.router, Device: "lan0"}
	wan := namespace.End{Namespace: h.router, Device: "wan0"}
	internet := namespace.End{Namespace: h.server, Device: "wan0"}
	h.must(namespace.Connect(room, lan))
	h.must(namespace.Connect(wan, internet))
	h.must(h.router.Set("net/ipv4/ip_forward", "1"))
	h.address(lan, routerIP+"/24")
	h.address(wan, "10.79.1.1/24")
	h.gateway(h.guest, h.address(room, "10.79.0.2/24"), routerIP)
	h.gateway(h.server, h.address(internet, internetIP+"/24"), "10.79.1.1")
	return h
}

// gateway sets a host's default route.
func (h *hotel) gateway(ns *namespace.Namespace, link netlink.Link, ip string) {
	h.t.Helper()
	h.must(ns.Handle.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Gw: net.ParseIP(ip)}))
}

// rule makes the router forward guests' packets that match r, or drop them silently.
func (h *hotel) rule(r netlink.Rule, forward bool) {
	h.t.Helper()
	rule := netlink.NewRule()
	rule.Family, rule.IifName, rule.Priority = unix.AF_INET, "lan0", r.Priority
	rule.IPProto, rule.Dport, rule.Type = r.IPProto, r.Dport, unix.RTN_BLACKHOLE
	if forward {
		rule.Table, rule.Type = unix.RT_TABLE_MAIN, unix.RTN_UNICAST
	}
	h.must(h.router.Handle.RuleAdd(rule))
}

// passes reports whether the server answers that nothing listens at a port.
func (h *hotel) passes(network string) bool {
	const port = ":9"
	err := h.guest.Do(func() error {
		c, err := net.DialTimeout(network, internetIP+port, 300*time.Millisecond)
		if err != nil {
			return err
		}
		defer func() { _ = c.Close() }()
		_ = c.SetDeadline(time.Now().Add(300 * time.Millisecond))
		if _, err := c.Write([]byte("hello")); err != nil {
			return err
		}
		_, err = c.Read(make([]byte, 1))
		return err
	})
	return errors.Is(err, syscall.ECONNREFUSED)
}

// proxy starts an HTTP proxy on the router, and returns its URL and its number of open tunnels.
func (h *hotel) proxy() (url string, tunnels *atomic.Int64) {
	h.t.Helper()
	tunnels = new(atomic.Int64)
	const user, password = "room", "101"
	authorized := func(r *http.Request) bool {
		basic := http.Request{Header: http.Header{"Authorization": r.Header["Proxy-Authorization"]}}
		u, p, ok := basic.BasicAuth()
		return ok && u == user && p == password
	}
	server := http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			switch {
			case r.Method != http.MethodConnect:
				w.WriteHeader(http.StatusMethodNotAllowed)
				return
			case !authorized(r):
				w.Header().Set("Proxy-Authenticate", "Basic")
				w.WriteHeader(http.StatusProxyAuthRequired)
				return
			}
			var onward net.Conn
			err := h.router.Do(func() (err error) {
				onward, err = net.Dial("tcp", r.Host)
				return err
			})
			if err != nil {
				w.WriteHeader(http.StatusBadGateway)
				return
			}
			w.WriteHeader(http.StatusOK)
			client, rw, err := http.NewResponseController(w).Hijack()
			if err != nil {
				_ = onward.Close()
				return
			}
			tunnels.Add(1)
			go func() {
				_, _ = io.Copy(onward, rw)
				_ = onward.Close()
			}()
			_, _ = io.Copy(client, onward)
			_ = client.Close()
			tunnels.Add(-1)
		})}
	var listener net.Listener
	h.must(h.router.Do(func() (err error) {
		listener, err = net.Listen("tcp", routerIP+":3128")
		return err
	}))
	done := make(chan struct{})
	go func() {
		_ = server.Serve(listener)
		close(done)
	}()
	h.t.Cleanup(func() {
		_ = server.Close()
		<-done
		// Hijacked connections end too, since the programs have been killed.
		until(h.t, "the end of all tunnels", func() bool { return tunnels.Load() == 0 })
	})
	return "http://" + user + ":" + password + "@" + listener.Addr().String(), tunnels
}

// TestHotel publishes and plays in networks that UDP does not leave.
func TestHotel(t *testing.T) {
	t.Parallel()
	for _, network := range []struct {
		name         string
		restrict     func(h *hotel)
		udp, tcp     bool // a port pass
		throughProxy bool
	}{
		{name: "UDP dropped", tcp: true, restrict: func(h *hotel) {
			h.rule(netlink.Rule{Priority: 1, IPProto: unix.IPPROTO_UDP}, false)
		}},
		{name: "only TCP 443", restrict: func(h *hotel) {
			h.rule(netlink.Rule{Priority: 1, IPProto: unix.IPPROTO_TCP, Dport: netlink.NewRulePortRange(443, 443)}, true)
			h.rule(netlink.Rule{Priority: 2}, false)
		}},
		{name: "only an HTTP proxy", throughProxy: true, restrict: func(h *hotel) {
			h.rule(netlink.Rule{Priority: 1}, false)
		}},
	} {
		t.Run(network.name, func(t *testing.T) {
			t.Parallel()
			h := newHotel(t)
			relay := h.start(h.server, "relay", "--listen", ":443", "--http", ":443", "--admin",
				"127.0.0.1:4443", "--insecure", "--log-format", "json")
			hash := relay.certificateHash()
			until(t, "an answer without restrictions", func() bool { return h.passes("udp") && h.passes("tcp") })
			network.restrict(h)
			if h.passes("udp") || h.passes("tcp") != network.tcp {
				t.Fatal("the router forwards what it should drop, or the reverse")
			}
			target := []string{"moqt://" + internetIP + ":443/demo", "--certificate-hash", hash}
			var env []string
			tunnels := new(atomic.Int64)
			if network.throughProxy {
				var url string
				url, tunnels = h.proxy()
				env = []string{"HTTPS_PROXY=" + url}
				wrong := []string{"HTTPS_PROXY=" + strings.Replace(url, "@", "0@", 1)}
				p := h.startWith(h.guest, wrong, "holocast", append([]string{"play", "--transport", "tcp"}, target...)...)
				if text := p.mustFail(); !strings.Contains(text, "Proxy Authentication Required") {
					t.Errorf("with a wrong password: %s", text)
				}
			}

			capture := h.startWith(h.guest, env, "capture-server", append(target, "--source", "synthetic", "--fps", "10",
				"--depth-mode", "NFOV_2X2BINNED", "--low=false", "--thin=false", "--delivery-timeout", "0")...)
			play := h.startWith(h.guest, env, "holocast", append([]string{
				"play", "--wait", "--json", "--delivery-timeout", "5m",
			}, target...)...)
			metric := func(name string) float64 {
				return series(t, h.get(h.server, "http://127.0.0.1:4443/metrics"), name)
			}
			until(t, "20 frames", func() bool { return metric("holocast_relay_sent_subgroups_total") >= 20 })
			if n := metric(`holocast_relay_sessions{transport="websocket"}`); n != 2 {
				t.Errorf("%v sessions over TCP", n)
			}
			if n := tunnels.Load(); network.throughProxy && n != 2 {
				t.Errorf("%d tunnels", n)
			}
			var r played
			play.interrupted(&r)
			if r.Frames == 0 || r.SubgroupsReset > 0 || r.PublisherRestarts > 0 {
				t.Errorf("%+v", r.Report)
			}
			capture.Signal(syscall.SIGINT)
			capture.mustSucceed()
			for _, p := range []*process{capture, play} {
				if !strings.Contains(p.Stderr.String(), "connected over TCP") {
					t.Errorf("%s does not mention TCP", p.Cmd.Path)
				}
			}
			t.Logf("%d frames", r.Frames)
		})
	}
}
