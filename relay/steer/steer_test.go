//go:build linux && (amd64 || arm64)

package steer

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"time"

	"holocast/internal/leaktest"
	"holocast/internal/udpio"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func listen(t *testing.T, addr string, n int) *Group {
	t.Helper()
	g, err := Listen(addr, n, &key)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	if g.Off() != nil {
		t.Skip(g.Off())
	}
	return g
}

// join returns a group of another process at the same address.
func join(t *testing.T, g *Group, n int) *Group {
	t.Helper()
	files, err := g.Files()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		for _, f := range files {
			_ = f.Close()
		}
	}()
	other, err := Join(g.Sockets()[0].Conn.LocalAddr().String(), n, &key, files)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(other.Close)
	return other
}

// client sends packets to the groups' address.
type client struct {
	t    *testing.T
	conn net.Conn
}

func dial(t *testing.T, g *Group) client {
	t.Helper()
	_, port, _ := net.SplitHostPort(g.Sockets()[0].Conn.LocalAddr().String())
	conn, err := net.Dial("udp", net.JoinHostPort("127.0.0.1", port))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return client{t, conn}
}

func (c client) send(packet []byte) {
	c.t.Helper()
	if _, err := c.conn.Write(packet); err != nil {
		c.t.Fatal(err)
	}
}

func long(id []byte) []byte {
	return append(append([]byte{0xc0, 0, 0, 0, 1, byte(len(id))}, id...), make([]byte, firstBytes)...)
}

// receiver returns the socket that receives the next packet, in the form group.socket.
func receiver(t *testing.T, groups ...*Group) string {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		for i, g := range groups {
			for k, s := range g.Sockets() {
				if took(s.Conn) {
					return fmt.Sprint(i, ".", k)
				}
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("no socket received the packet")
	return ""
}

// loopback returns the loopback address of from's family.
func loopback(from string) net.IP {
	if net.ParseIP(from).To4() == nil {
		return net.IPv6loopback
	}
	return net.IPv4(127, 0, 0, 1)
}

// took reads a waiting packet from a socket and reports whether there was one.
func took(c *net.UDPConn) (got bool) {
	raw, err := c.SyscallConn()
	if err != nil {
		return false // closed
	}
	_ = raw.Control(func(fd uintptr) {
		var b [100]byte
		n, _, _ := syscall.Recvfrom(int(fd), b[:], syscall.MSG_DONTWAIT)
		got = n > 0
	})
	return got
}

func (g *Group) id(t *testing.T, socket int) []byte {
	t.Helper()
	id, err := g.Sockets()[socket].IDs.GenerateConnectionID()
	if err != nil || id.Len() != IDLength {
		t.Fatalf("connection ID %v, %v", id, err)
	}
	return id.Bytes()
}

// TestSteering checks that packets from changing addresses reach the socket of their connection,
// and first packets the sockets that accept new ones, while one process takes over from another.
func TestSteering(t *testing.T) {
	for _, addr := range []string{"127.0.0.1:0", ":0"} {
		t.Run(addr, func(t *testing.T) {
			g := listen(t, addr, 3)
			owned := func(groups ...*Group) {
				t.Helper()
				for i, owner := range groups {
					for k := range owner.Sockets() {
						for name, packet := range map[string][]byte{
							"short": short(owner.id(t, k)),
							"long":  long(owner.id(t, k)),
						} {
							c := dial(t, groups[0]) // each from another address
							c.send(packet)
							if got, want := receiver(t, groups...), fmt.Sprint(i, ".", k); got != want {
								t.Errorf("a %s packet for socket %s arrived at %s", name, want, got)
							}
						}
					}
				}
			}
			// taken sends first packets of connections. Every socket of the group receives some,
			// and each client's packets reach the same socket.
			taken := func(by int, groups ...*Group) {
				t.Helper()
				seen := map[string]bool{}
				for range 200 {
					c, first := dial(t, groups[len(groups)-1]), ""
					for n := 8; n <= 20; n += 6 {
						id := make([]byte, n)
						id[0] = byte(groups[0].first) // resembles a slot
						c.send(long(id))
						got := receiver(t, groups...)
						if first == "" {
							first = got
						}
						if got != first {
							t.Fatalf("packets of one client arrived at %s and %s", first, got)
						}
					}
					if seen[first] = true; len(seen) == len(groups[by].Sockets()) {
						break
					}
				}
				for k := range groups[by].Sockets() {
					if !seen[fmt.Sprint(by, ".", k)] {
						t.Errorf("new connections arrived at %v, not at %d.%d", seen, by, k)
					}
				}
				if len(seen) != len(groups[by].Sockets()) {
					t.Errorf("new connections arrived at %v", seen)
				}
			}
			owned(g)
			taken(0, g)

			next := join(t, g, 2)
			owned(g, next)
			taken(0, g, next) // until Accept
			if err := next.Accept(); err != nil {
				t.Fatal(err)
			}
			owned(g, next)
			taken(1, g, next)

			third := join(t, next, 2)
			if err := third.Accept(); err != nil {
				t.Fatal(err)
			}
			owned(g, next, third)
			gone := g.id(t, 0)
			g.Close()
			owned(next, third)
			taken(1, next, third)
			c := dial(t, third)
			c.send(short(gone))
			if got := receiver(t, third, next); got[0] != '0' {
				t.Errorf("a packet of an ended connection arrived at %s, want a socket that accepts connections", got)
			}
			if err := next.Accept(); err != nil { // new connections go to next, since third is about to end
				t.Fatal(err)
			}
			third.Close()
			taken(0, next)

			again := join(t, next, 3) // the slots of third are free
			if err := again.Accept(); err != nil {
				t.Fatal(err)
			}
			owned(next, again)
			taken(1, next, again)
		})
	}
}

// TestJunkIsDropped checks that the kernel drops packets that neither belong to a connection nor start
// one.
func TestJunkIsDropped(t *testing.T) {
	g := listen(t, "127.0.0.1:0", 2)
	c := dial(t, g)
	wanted, junk := packets(t, g.tags)
	for name, p := range junk {
		if len(p) == 0 {
			continue
		}
		c.send(p)
		c.send(short(g.id(t, 1)))
		c.send(short(g.id(t, 0)))
		for range 2 {
			receiver(t, g)
		}
		for i, s := range g.Sockets() {
			if took(s.Conn) {
				t.Errorf("%s: socket %d received another packet", name, i)
			}
		}
	}
	for _, p := range wanted {
		c.send(p)
		receiver(t, g)
	}
}

// TestPass checks that the kernel drops first packets according to the share of their address, and
// nothing else, even on a socket without steering.
func TestPass(t *testing.T) {
	shared := listen(t, "127.0.0.1:0", 2)
	lone := func(addr string) *Group {
		g, err := alone(addr, newTagger(&key), ErrOff)
		if err != nil {
			t.Skip(err) // no IPv6
		}
		t.Cleanup(g.Close)
		return g
	}
	for name, g := range map[string]*Group{
		"steered": shared, "alone": lone("127.0.0.1:0"), "IPv6": lone("[::1]:0"), "both": lone("[::]:0"),
	} {
		t.Run(name, func(t *testing.T) {
			to := g.Sockets()[0].Conn.LocalAddr().(*net.UDPAddr)
			v6, v4 := to.IP.To4() == nil, !to.IP.IsLoopback() || to.IP.To4() != nil
			froms := map[string]netip.Prefix{}
			if v4 {
				froms["127.0.0.2"], froms["127.0.0.3"] = netip.MustParsePrefix(
					"127.0.0.2/32",
				), netip.MustParsePrefix(
					"127.0.0.3/32",
				)
			}
			if v6 {
				froms["::1"] = netip.MustParsePrefix("::/64")
			}
			id := g.id(t, 0)
			count := func(from string, least int) (first int) { // passing first packets of 50
				t.Helper()
				c, err := net.DialUDP(
					"udp",
					&net.UDPAddr{IP: net.ParseIP(from)},
					&net.UDPAddr{IP: loopback(from), Port: to.Port},
				)
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = c.Close() }()
				for i := range 50 {
					client{t, c}.send(long([]byte{byte(i), 7, byte(i), 5, 1, 2, 3, 4}))
				}
				client{t, c}.send(short(id)) // always passes
				for end := time.Now().Add(time.Minute); time.Now().Before(end); {
					for _, s := range g.Sockets() {
						for took(s.Conn) {
							first++
						}
					}
					if first > least {
						return first - 1
					}
					time.Sleep(10 * time.Millisecond)
				}
				return first - 1
			}
			other := netip.MustParsePrefix("2001:db8::/64")
			for from, prefix := range froms {
				for _, tt := range []struct {
					own         map[netip.Prefix]float64
					rest        float64
					least, most int
				}{
					{nil, 1, 50, 50},
					{nil, 0, 0, 0},
					{map[netip.Prefix]float64{prefix: 0}, 1, 0, 0},
					{map[netip.Prefix]float64{prefix: 1}, 0, 50, 50},
					{map[netip.Prefix]float64{prefix: 0.5}, 0, 5, 45},
					{map[netip.Prefix]float64{other: 0, netip.MustParsePrefix("127.0.0.9/32"): 0}, 1, 50, 50},
					{map[netip.Prefix]float64{
						other: 0, netip.MustParsePrefix("1.2.3.4/32"): 0,
						netip.MustParsePrefix("::/64"): 1, netip.MustParsePrefix("127.0.0.2/32"): 1,
						netip.MustParsePrefix("127.0.0.3/32"): 1,
					}, 0, 50, 50},
				} {
					if err := g.Pass(tt.own, tt.rest); err != nil {
						t.Fatal(err)
					}
					if n := count(from, tt.least); n < tt.least || n > tt.most {
						t.Errorf(
							"%s: with %v and %v of others %d of 50 pass, not %d to %d",
							from,
							tt.own,
							tt.rest,
							n,
							tt.least,
							tt.most,
						)
					}
				}
			}
			// Set the maximum number of shares, for both address families.
			many := map[netip.Prefix]float64{}
			for i := range 16 {
				many[netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), 32)] = 0.1
				many[netip.PrefixFrom(netip.AddrFrom16([16]byte{0x20, 1, byte(i)}), 64)] = 0.1
			}
			if err := g.Pass(many, 0.5); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestAddressInUse checks that two programs cannot use one address unless the first hands it over.
func TestAddressInUse(t *testing.T) {
	g := listen(t, "127.0.0.1:0", 2)
	addr := g.Sockets()[0].Conn.LocalAddr().String()
	for name, open := range map[string]func() error{
		"another group":  func() error { _, err := Listen(addr, 2, nil); return err },
		"another socket": func() error { _, err := udpio.Listen(addr, nil); return err },
	} {
		if err := open(); err == nil {
			t.Errorf("%s has the address as well", name)
		}
	}
	if _, err := Join(addr, 2, nil, []*os.File{os.Stdin, os.Stdin}); err == nil {
		t.Error("Join accepted files of no group")
	}
	if _, err := Join(addr, 2, nil, nil); err == nil {
		t.Error("Join succeeded without files")
	}
}

// TestSlotsRunOut checks that there are slots for one more process, but not for arbitrarily many.
func TestSlotsRunOut(t *testing.T) {
	g := listen(t, "127.0.0.1:0", MaxSockets+1)
	if n := len(g.Sockets()); n != MaxSockets {
		t.Fatalf("%d sockets", n)
	}
	groups := 1
	for ; groups < slots/MaxSockets; groups++ {
		join(t, g, MaxSockets)
	}
	files, err := g.Files()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		defer func() { _ = f.Close() }()
	}
	if _, err := Join(g.Sockets()[0].Conn.LocalAddr().String(), 1, nil, files); err == nil {
		t.Errorf("%d groups, and room for another one", groups)
	}
}
