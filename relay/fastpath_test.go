//go:build linux && (amd64 || arm64)

package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/quic-go/quic-go"
	"github.com/vishvananda/netlink"

	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/netlab"
	"holocast/internal/netlab/namespace"
	"holocast/internal/netlab/topology"
	"holocast/internal/origin"
	"holocast/internal/parts"
	"holocast/internal/quicext"
)

// fastLab is a publisher, a relay with the kernel fast path and a viewer, each in its own network
// namespace.
type fastLab struct {
	t                        *testing.T
	publisher, relay, viewer *namespace.Namespace
	p                        *process
}

func newFastLab(t *testing.T, args ...string) *fastLab {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("not root: the kernel fast path needs CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON")
	}
	g, err := namespace.NewGroup()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	l := &fastLab{t: t}
	for name, ns := range map[string]**namespace.Namespace{
		"publisher": &l.publisher, "relay": &l.relay,
		"viewer": &l.viewer,
	} {
		if *ns, err = g.Add(name); err != nil {
			t.Fatal(err)
		}
	}
	l.cable(l.publisher, "10.77.1.1", "fd77:1::1", l.relay, "10.77.1.2", "fd77:1::2", "publisher")
	l.cable(l.viewer, "10.77.2.1", "fd77:2::1", l.relay, "10.77.2.2", "fd77:2::2", "viewer")
	l.start(args...)
	return l
}

// newLossyLab adds conditions (network lab YAML) to the path between relay and viewer.
func newLossyLab(t *testing.T, conditions string) *fastLab {
	t.Helper()
	if err := netlab.Supported(); err != nil {
		t.Skip(err)
	}
	top, err := topology.Parse([]byte(`{name: lossy, seed: 7, hosts: [publisher, viewer], edges: [relay],
links: [{between: [publisher, relay]}], paths: [{name: last, between: [viewer, relay], ` + conditions + `}]}`))
	if err != nil {
		t.Fatal(err)
	}
	lab, err := netlab.Start(top, netlab.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := lab.Close(); err != nil {
			t.Error(err)
		}
	})
	l := &fastLab{
		t: t, publisher: lab.Node("publisher").Namespace, relay: lab.Node("relay").Namespace,
		viewer: lab.Node("viewer").Namespace,
	}
	if err := lab.Begin(); err != nil {
		t.Fatal(err)
	}
	l.start()
	return l
}

// start starts the relay.
func (l *fastLab) start(args ...string) {
	l.t.Helper()
	l.p = startBy(l.t, func(cmd *exec.Cmd) error { return l.relay.Do(cmd.Start) },
		append([]string{
			"--listen", ":4443", "--insecure", "--http", "10.77.1.2:8080", "--admin", "10.77.1.2:8081",
			"--fastpath", "chacha20",
		}, args...)...)
}

func (l *fastLab) cable(a *namespace.Namespace, a4, a6 string, b *namespace.Namespace, b4, b6, device string) {
	l.t.Helper()
	ends := [2]namespace.End{{Namespace: a, Device: "relay"}, {Namespace: b, Device: device}}
	if err := namespace.Connect(ends[0], ends[1]); err != nil {
		l.t.Fatal(err)
	}
	for i, addresses := range [][]string{{a4 + "/24", a6 + "/64"}, {b4 + "/24", b6 + "/64"}} {
		link, err := ends[i].Link()
		if err != nil {
			l.t.Fatal(err)
		}
		for _, prefix := range addresses {
			address, err := netlink.ParseAddr(prefix)
			if err != nil {
				l.t.Fatal(err)
			}
			address.Flags = 2 // IFA_F_NODAD
			if err := ends[i].Namespace.Handle.AddrAdd(link, address); err != nil {
				l.t.Fatal(err)
			}
		}
	}
}

// dial opens a session to the relay from a namespace.
func (l *fastLab) dial(from *namespace.Namespace, url string, h moqt.Handler) *moqt.Session {
	l.t.Helper()
	var s *moqt.Session
	err := from.Do(func() (err error) {
		s, err = moqt.Dial(l.t.Context(), url, pinned(l.t, l.p.hash), h, quiet)
		return err
	})
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { s.Close(wire.NoError, "") })
	return s
}

// metric returns the value of one of the relay's metrics series.
func (l *fastLab) metric(series string) float64 {
	l.t.Helper()
	transport := &http.Transport{DialContext: func(ctx context.Context, network, address string) (c net.Conn,
		err error,
	) {
		err = l.relay.Do(func() error {
			c, err = new(net.Dialer).DialContext(ctx, network, address)
			return err
		})
		return c, err
	}}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Get("http://10.77.1.2:8081/metrics")
	if err != nil {
		l.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		l.t.Fatal(err)
	}
	return metricIn(l.t, string(body), series)
}

// datagrams publishes 1000 datagrams a second until the test ends or end is called.
func (l *fastLab) datagrams(tr *origin.Track) (end func()) {
	stop := make(chan struct{})
	done := make(chan struct{})
	end = sync.OnceFunc(func() { close(stop); <-done })
	l.t.Cleanup(end)
	go func() {
		defer close(done)
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for group := uint64(1); ; group++ {
			select {
			case <-tick.C:
				payload := bytes.Repeat([]byte{byte(group)}, parts.MaxPart)
				tr.SendDatagram(moqt.Datagram{Group: group, Priority: 7, Payload: payload})
			case <-stop:
				return
			}
		}
	}()
	return end
}

// TestFastPath checks that viewers of every kind receive each forwarded object exactly once, even
// across quic-go's first key update.
func TestFastPath(t *testing.T) {
	for name, c := range map[string]struct {
		publisher, viewer string
		mtu               int
	}{
		"QUIC, IPv4":                 {"moqt://10.77.1.2:4443", "moqt://10.77.2.2:4443", 1500},
		"WebTransport to QUIC, IPv6": {"https://[fd77:1::2]:4443/test", "moqt://[fd77:2::2]:4443", 1500},
		"QUIC to WebTransport":       {"moqt://10.77.1.2:4443", "https://[fd77:2::2]:4443/test", 1500},
		"smallest MTU of IPv6":       {"moqt://[fd77:1::2]:4443", "https://[fd77:2::2]:4443/test", 1280},
	} {
		t.Run(name, func(t *testing.T) {
			l := newFastLab(t)
			for _, device := range []string{"publisher", "viewer"} {
				link, err := l.relay.Handle.LinkByName(device)
				if err == nil {
					err = l.relay.Handle.LinkSetMTU(link, c.mtu)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			tr := origin.NewTrack(points, nil, origin.Limits{})
			var set origin.Set
			set.Add(tr)
			s := l.dial(l.publisher, c.publisher, set.Handler())
			if _, err := s.PublishNamespace(t.Context(), session); err != nil {
				t.Fatal(err)
			}
			viewer := l.dial(l.viewer, c.viewer, moqt.Handler{})
			sub := subscribe(t, viewer, points)
			end := l.datagrams(tr)
			seen := map[uint64]bool{}
			for len(seen) < 3000 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				d, err := sub.AcceptDatagram(ctx)
				cancel()
				if err != nil {
					t.Fatalf("after %d objects: %v", len(seen), err)
				}
				if seen[d.Group] {
					t.Fatalf("group %d arrived twice", d.Group)
				}
				seen[d.Group] = true
				if len(d.Payload) != parts.MaxPart || d.Payload[0] != byte(d.Group) || d.Priority != 7 {
					t.Fatalf("group %d: wrong object", d.Group)
				}
			}
			forwarded := l.metric("holocast_relay_fastpath_forwarded_packets_total")
			if forwarded < 2000 {
				t.Errorf("the kernel forwarded %v of 3000 objects", forwarded)
			}
			if err := errors.Join(viewer.Err(), s.Err()); err != nil {
				t.Error(err)
			}
			// Congestion control eventually accounts for everything the kernel sent.
			end()
			eventually(t, "all bytes are registered",
				func() bool { return l.metric("holocast_relay_fastpath_unregistered_bytes") == 0 })
			t.Logf("the kernel forwarded %v", forwarded)
		})
	}
}

// TestFastPathUnderLoss forwards over a path with loss and reordering, and over a bottleneck, with
// streams on the same connection. Sessions stay open, streams complete, and the kernel respects the
// congestion window.
func TestFastPathUnderLoss(t *testing.T) {
	for name, conditions := range map[string]string{
		"loss and reordering": "rate: 100Mbit, loss: 1%, reorder: true, variation: {delay: 10ms-14ms, every: 1ms-5ms}",
		"bottleneck":          "rate: 6Mbit, delay: 10ms, queue: 50ms",
	} {
		t.Run(name, func(t *testing.T) {
			l := newLossyLab(t, conditions)
			tr := origin.NewTrack(points, nil, origin.Limits{})
			frames := moqt.TrackName{Namespace: session, Name: "frames"}
			streams := origin.NewTrack(frames, nil, origin.Limits{})
			var set origin.Set
			set.Add(tr)
			set.Add(streams)
			s := l.dial(l.publisher, "moqt://10.77.1.2:4443", set.Handler())
			if _, err := s.PublishNamespace(t.Context(), session); err != nil {
				t.Fatal(err)
			}
			viewer := l.dial(l.viewer, "moqt://10.77.2.2:4443", moqt.Handler{})
			sub, framesSub := subscribe(t, viewer, points), subscribe(t, viewer, frames)
			l.datagrams(tr)
			var wg sync.WaitGroup
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			var received, whole atomic.Int64
			wg.Go(func() {
				seen := map[uint64]bool{}
				for {
					d, err := sub.AcceptDatagram(ctx)
					if err != nil {
						return
					}
					if seen[d.Group] {
						t.Errorf("group %d arrived twice", d.Group)
					}
					seen[d.Group] = true
					received.Add(1)
				}
			})
			wg.Go(func() {
				for {
					r, err := framesSub.AcceptSubgroup(ctx)
					if err != nil {
						return
					}
					if _, err := r.NextObject(); err == nil {
						if _, err := io.Copy(io.Discard, r); err == nil {
							whole.Add(1)
						}
					}
				}
			})
			wg.Go(func() {
				tick := time.NewTicker(100 * time.Millisecond)
				defer tick.Stop()
				for group := uint64(0); ; group++ {
					select {
					case <-tick.C:
						write(t, streams, group, make([]byte, 5000))
					case <-ctx.Done():
						return
					}
				}
			})
			var forwarded, budget float64
			enough := func() bool {
				forwarded = l.metric("holocast_relay_fastpath_forwarded_packets_total")
				budget = l.metric(`holocast_relay_fastpath_fallback_packets_total{reason="budget"}`)
				return whole.Load() >= 30 && received.Load() >= 1000 && forwarded >= 1000 &&
					(name != "bottleneck" || budget > 0)
			}
			// Run for eight seconds, or longer on a busy machine.
			for began := time.Now(); ctx.Err() == nil && (time.Since(began) < 8*time.Second || !enough()); {
				time.Sleep(100 * time.Millisecond)
			}
			cancel()
			wg.Wait()
			if err := errors.Join(viewer.Err(), s.Err()); err != nil {
				t.Error(err)
			}
			lost := l.metric("holocast_relay_fastpath_lost_packets_total")
			numbers := l.metric(`holocast_relay_fastpath_fallback_packets_total{reason="numbers"}`)
			t.Logf("%d datagrams and %d frames arrived; the kernel forwarded %v, of which %v were lost, and left "+
				"%v for the window and %v for numbers",
				received.Load(), whole.Load(), forwarded, lost, budget, numbers)
			if whole.Load() < 30 || received.Load() < 1000 || forwarded < 1000 {
				t.Error("too few")
			}
			if name == "bottleneck" && budget == 0 {
				t.Error("the kernel did not keep to the window")
			}
		})
	}
}

// publish announces an empty track in a new session.
func (l *fastLab) publish(name string) (*origin.Track, *moqt.Session) {
	l.t.Helper()
	tr := origin.NewTrack(moqt.TrackName{Namespace: moqt.Namespace{"holocast", name}, Name: name}, nil, origin.Limits{})
	var set origin.Set
	set.Add(tr)
	s := l.dial(l.publisher, "moqt://10.77.1.2:4443", set.Handler())
	if _, err := s.PublishNamespace(l.t.Context(), tr.Name().Namespace); err != nil {
		l.t.Fatal(err)
	}
	return tr, s
}

// receive receives n different objects.
func receive(t *testing.T, sub *moqt.Subscription, n int) {
	t.Helper()
	seen := map[moqt.Location]bool{}
	for len(seen) < n {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		d, err := sub.AcceptDatagram(ctx)
		cancel()
		if err != nil {
			t.Fatalf("after %d objects: %v", len(seen), err)
		}
		at := moqt.Location{Group: d.Group, Object: d.Object}
		if seen[at] {
			t.Fatalf("%v arrived twice", at)
		}
		seen[at] = true
	}
}

// TestFastPathAuto checks that in mode auto, clients that prefer AES keep it and use user space, and
// that the programs are attached only while the kernel forwards a track of clients that prefer
// ChaCha20.
func TestFastPathAuto(t *testing.T) {
	l := newFastLab(t, "--fastpath", "auto")
	interfaces := func() float64 { return l.metric("holocast_relay_fastpath_interfaces") }
	aes, aesSession := l.publish("aes")
	aesViewer := l.dial(l.viewer, "moqt://10.77.2.2:4443", moqt.Handler{})
	ofAES := subscribe(t, aesViewer, aes.Name())
	l.datagrams(aes)
	receive(t, ofAES, 500)
	if n := l.metric(`holocast_relay_fastpath_refused_connections{reason="cipher"}`); n != 2 {
		t.Errorf("%v connections refused for their cipher", n)
	}
	if n := interfaces(); n != 0 {
		t.Errorf("programs attached to %v interfaces before the kernel can forward a track", n)
	}

	restore := quicext.PreferChaCha20()
	poses, posesSession := l.publish("poses")
	posesViewer := l.dial(l.viewer, "moqt://10.77.2.2:4443", moqt.Handler{})
	restore()
	ofPoses := subscribe(t, posesViewer, poses.Name())
	l.datagrams(poses)
	l.forwardedMore(ofPoses, "of the poses")
	if n := interfaces(); n == 0 {
		t.Error("no interface has the programs")
	}
	receive(t, ofAES, 500)
	if err := errors.Join(aesSession.Err(), aesViewer.Err(), posesSession.Err(), posesViewer.Err()); err != nil {
		t.Error(err)
	}
	posesViewer.Close(wire.NoError, "")
	eventually(t, "the programs are detached", func() bool { return interfaces() == 0 })
}

// TestFastPathSelects checks that in mode single the kernel forwards single objects and leaves frames
// of several to user space, together with the connections that carry them.
func TestFastPathSelects(t *testing.T) {
	l := newFastLab(t, "--fastpath", "single")
	forwarded := func() float64 { return l.metric("holocast_relay_fastpath_forwarded_packets_total") }
	poses, posesSession := l.publish("poses")
	camera, cameraSession := l.publish("camera")
	cameraViewer := l.dial(l.viewer, "moqt://10.77.2.2:4443", moqt.Handler{})
	ofCamera := subscribe(t, cameraViewer, camera.Name())
	stop, done := make(chan struct{}), make(chan struct{})
	end := sync.OnceFunc(func() { close(stop); <-done })
	t.Cleanup(end)
	go func() {
		defer close(done)
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for group := uint64(1); ; group++ {
			select {
			case <-tick.C:
				for d := range parts.Cut(moqt.Datagram{Group: group, EndOfGroup: true}, make([]byte, 20*parts.MaxPart)) {
					camera.SendDatagram(d)
				}
			case <-stop:
				return
			}
		}
	}()
	receive(t, ofCamera, 2000)
	if n := forwarded(); n != 0 {
		t.Errorf("the kernel forwarded %v of a camera's packets", n)
	}
	if n := l.metric("holocast_relay_fastpath_received_packets_total"); n != 0 {
		t.Errorf("the kernel opened %v of a camera's packets", n)
	}

	// Single objects of another connection, to another viewer.
	posesViewer := l.dial(l.viewer, "moqt://10.77.2.2:4443", moqt.Handler{})
	ofPoses := subscribe(t, posesViewer, poses.Name())
	l.datagrams(poses)
	l.forwardedMore(ofPoses, "of the poses")

	// The camera's viewer receives the poses, too, through user space.
	both := subscribe(t, cameraViewer, poses.Name())
	receive(t, both, 1000)
	receive(t, ofCamera, 1000)
	if n := l.metric("holocast_relay_fastpath_frame_tracks"); n != 1 {
		t.Errorf("%v tracks of frames", n)
	}
	if n := l.metric("holocast_relay_fastpath_tracks"); n != 1 {
		t.Errorf("%v tracks in the kernel", n)
	}
	if err := errors.Join(cameraViewer.Err(), posesViewer.Err(), posesSession.Err(), cameraSession.Err()); err != nil {
		t.Error(err)
	}
	end()
	eventually(t, "all bytes are registered",
		func() bool { return l.metric("holocast_relay_fastpath_unregistered_bytes") == 0 })
}

// forwardedMore waits until the kernel has forwarded more objects.
func (l *fastLab) forwardedMore(sub *moqt.Subscription, what string) {
	l.t.Helper()
	const series = "holocast_relay_fastpath_forwarded_packets_total"
	before := l.metric(series)
	ctx, cancel := context.WithTimeout(l.t.Context(), time.Minute)
	defer cancel()
	for n := 1; ; n++ {
		if _, err := sub.AcceptDatagram(ctx); err != nil {
			l.t.Fatalf("%s: %v objects forwarded, then: %v", what, l.metric(series)-before, err)
		}
		if n%200 == 0 && l.metric(series) > before+200 {
			return
		}
	}
}

// TestFastPathMoves checks that forwarding in the kernel continues after a viewer changes its address
// and after a publisher reconnects.
func TestFastPathMoves(t *testing.T) {
	l := newFastLab(t)
	tr := origin.NewTrack(points, nil, origin.Limits{})
	var set origin.Set
	set.Add(tr)
	publish := func() *moqt.Session {
		s := l.dial(l.publisher, "moqt://10.77.1.2:4443", set.Handler())
		if _, err := s.PublishNamespace(t.Context(), session); err != nil {
			t.Fatal(err)
		}
		return s
	}
	publisher := publish()
	viewer := l.dial(l.viewer, "moqt://10.77.2.2:4443", moqt.Handler{})
	sub := subscribe(t, viewer, points)
	l.datagrams(tr)
	l.forwardedMore(sub, "at first")

	var socket *net.UDPConn
	if err := l.viewer.Do(func() (err error) {
		socket, err = net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(10, 77, 2, 1)})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	transport := &quic.Transport{Conn: socket}
	t.Cleanup(func() {
		viewer.Close(wire.NoError, "")
		_ = transport.Close()
		_ = socket.Close()
	})
	path, err := viewer.Conn().AddPath(transport)
	if err != nil {
		t.Fatal(err)
	}
	if err := path.Probe(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := path.Switch(); err != nil {
		t.Fatal(err)
	}
	l.forwardedMore(sub, "after the viewer moved")

	publisher.Close(wire.NoError, "")
	publish()
	l.forwardedMore(sub, "after the publisher came back")
	if err := viewer.Err(); err != nil {
		t.Error(err)
	}
}

// TestFastPathPeersDie checks that when a viewer and then the publisher disappear, the kernel forgets
// them and other sessions continue.
func TestFastPathPeersDie(t *testing.T) {
	l := newFastLab(t)
	tr := origin.NewTrack(points, nil, origin.Limits{})
	var set origin.Set
	set.Add(tr)
	publish := func(from *namespace.Namespace, url string) {
		t.Helper()
		if _, err := l.dial(from, url, set.Handler()).PublishNamespace(t.Context(), session); err != nil {
			t.Fatal(err)
		}
	}
	cut := func(device string) {
		t.Helper()
		link, err := namespace.End{Namespace: l.relay, Device: device}.Link()
		if err == nil {
			err = l.relay.Handle.LinkSetDown(link)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	count := func(series string) float64 { return l.metric("holocast_relay_fastpath_" + series) }

	publish(l.viewer, "moqt://10.77.2.2:4443")
	dying := subscribe(t, l.dial(l.publisher, "moqt://10.77.1.2:4443", moqt.Handler{}), points)
	sub := subscribe(t, l.dial(l.viewer, "moqt://10.77.2.2:4443", moqt.Handler{}), points)
	l.datagrams(tr)
	l.forwardedMore(dying, "to the viewer that dies")
	l.forwardedMore(sub, "to the other")
	if n := count("viewers"); n != 2 {
		t.Fatalf("%v viewers in the kernel", n)
	}
	cut("publisher")
	l.forwardedMore(sub, "after a viewer died")
	eventually(t, "the viewer to be forgotten",
		func() bool { return count("viewers") == 1 && count("unregistered_bytes") == 0 })

	cut("viewer")
	eventually(t, "all to be forgotten", func() bool { return count("viewers") == 0 && count("publishers") == 0 })
}

func TestListenPort(t *testing.T) {
	for listen, want := range map[string]uint16{
		":4443": 4443, "[::1]:1": 1, "127.0.0.1:0": 0, ":https": 0, "4443": 0,
		":65536": 0,
	} {
		if got, err := listenPort(listen); got != want || (err == nil) != (want != 0) {
			t.Errorf("%q: %d, %v", listen, got, err)
		}
	}
}

// attached returns the number of programs on the relay's interfaces.
func (l *fastLab) attached() (n int) {
	l.t.Helper()
	l.programs(func(link.ID) error { n++; return nil })
	return n
}

// detach removes all programs from the relay's interfaces.
func (l *fastLab) detach() {
	l.t.Helper()
	l.programs(func(id link.ID) error {
		attached, err := link.NewFromID(id)
		if errors.Is(err, os.ErrNotExist) {
			return nil // the relay attached another one meanwhile
		}
		if err != nil {
			return err
		}
		return errors.Join(attached.Detach(), attached.Close())
	})
}

// programs calls each for every link that attaches a program to the relay's interfaces.
func (l *fastLab) programs(each func(link.ID) error) {
	l.t.Helper()
	err := l.relay.Do(func() error {
		links, err := net.Interfaces()
		if err != nil {
			return err
		}
		for _, i := range links {
			for _, at := range []ebpf.AttachType{ebpf.AttachTCXIngress, ebpf.AttachTCXEgress} {
				q, err := link.QueryPrograms(link.QueryOptions{Target: i.Index, Attach: at})
				for errors.Is(err, syscall.ENOSPC) { // the relay attached a program after the query's count
					q, err = link.QueryPrograms(link.QueryOptions{Target: i.Index, Attach: at})
				}
				if err != nil {
					return err
				}
				for _, p := range q.Programs {
					id, _ := p.LinkID()
					if err := each(id); err != nil {
						return err
					}
				}
			}
		}
		return nil
	})
	if err != nil {
		l.t.Fatal(err)
	}
}

// TestFastPathInterrupted checks that sessions survive losing the resources of the fast path, and that
// kernel forwarding resumes once they are back.
func TestFastPathInterrupted(t *testing.T) {
	l := newFastLab(t)
	tr := origin.NewTrack(points, nil, origin.Limits{})
	var set origin.Set
	set.Add(tr)
	publisher := l.dial(l.publisher, "moqt://10.77.1.2:4443", set.Handler())
	if _, err := publisher.PublishNamespace(t.Context(), session); err != nil {
		t.Fatal(err)
	}
	viewer := l.dial(l.viewer, "moqt://10.77.2.2:4443", moqt.Handler{})
	sub := subscribe(t, viewer, points)
	l.datagrams(tr)
	l.forwardedMore(sub, "at first")
	cable := namespace.End{Namespace: l.relay, Device: "viewer"}
	link := func() netlink.Link {
		t.Helper()
		device, err := cable.Link()
		if err != nil {
			t.Fatal(err)
		}
		return device
	}
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}

	do(l.relay.Handle.LinkSetMTU(link(), 1300)) // the objects still fit
	l.forwardedMore(sub, "with a smaller MTU")
	do(l.relay.Handle.LinkSetMTU(link(), 1500))
	l.forwardedMore(sub, "with the MTU of before")

	do(l.relay.Handle.LinkSetDown(link()))
	time.Sleep(300 * time.Millisecond)
	do(l.relay.Handle.LinkSetUp(link()))
	l.forwardedMore(sub, "after the interface was down")

	l.detach()
	eventually(t, "the programs to be attached again", func() bool { return l.attached() == 9 })
	l.forwardedMore(sub, "after the programs were taken off")
	if !strings.Contains(l.p.output(), "reattached programs that had been detached") {
		t.Error("the log does not report the reattachment")
	}
	if err := errors.Join(viewer.Err(), publisher.Err()); err != nil {
		t.Error(err)
	}
}

// TestFastPathLeavesNothing checks that no program stays attached when a forwarding relay ends.
func TestFastPathLeavesNothing(t *testing.T) {
	for name, signal := range map[string]os.Signal{"SIGTERM": syscall.SIGTERM, "SIGKILL": syscall.SIGKILL} {
		t.Run(name, func(t *testing.T) {
			l := newFastLab(t, "--drain", "1s")
			tr := origin.NewTrack(points, nil, origin.Limits{})
			var set origin.Set
			set.Add(tr)
			if _, err := l.dial(l.publisher, "moqt://10.77.1.2:4443", set.Handler()).PublishNamespace(t.Context(),
				session); err != nil {
				t.Fatal(err)
			}
			sub := subscribe(t, l.dial(l.viewer, "moqt://10.77.2.2:4443", moqt.Handler{}), points)
			l.datagrams(tr)
			for range 500 {
				if _, err := sub.AcceptDatagram(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if n := l.attached(); n < 9 {
				t.Fatalf("%d programs are attached, want 3 to each of 3 interfaces", n)
			}
			l.p.Signal(signal)
			<-l.p.Done()
			// The kernel closes the links of a killed process.
			eventually(t, "no program is attached", func() bool { return l.attached() == 0 })
		})
	}
}
