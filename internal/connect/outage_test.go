//go:build linux

package connect

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"holocast/internal/devcert"
	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/netlab/namespace"
	"holocast/internal/netlab/namespace/namespacetest"
	"holocast/internal/quiccc"
)

// hosts are the network hosts of a relay and of a program, connected by a link.
type hosts struct {
	relay, program namespace.End
	net            *net.IPNet
	relayIP        string
}

// newHosts creates hosts. n distinguishes their network from those of other tests.
func newHosts(t *testing.T, n byte) *hosts {
	t.Helper()
	g := namespacetest.NewGroup(t)
	h := &hosts{
		net:     &net.IPNet{IP: net.IPv4(10, 77, n, 0).To4(), Mask: net.CIDRMask(24, 32)},
		relayIP: fmt.Sprintf("10.77.%d.1", n),
	}
	for _, end := range []struct {
		name string
		into *namespace.End
	}{{"relay", &h.relay}, {"program", &h.program}} {
		node, err := g.Add(end.name)
		if err != nil {
			t.Fatal(err)
		}
		*end.into = namespace.End{Namespace: node, Device: "lan0"}
	}
	if err := namespace.Connect(h.relay, h.program); err != nil {
		t.Fatal(err)
	}
	for last, end := range map[byte]namespace.End{1: h.relay, 2: h.program} {
		ip := net.IPNet{IP: net.IPv4(10, 77, n, last).To4(), Mask: h.net.Mask}
		if err := end.Namespace.Handle.AddrAdd(device(t, end), &netlink.Addr{IPNet: &ip}); err != nil {
			t.Fatal(err)
		}
	}
	return h
}

func device(t *testing.T, e namespace.End) netlink.Link {
	t.Helper()
	l, err := e.Link()
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// route removes the program's route to the relay, or restores it.
func (h *hosts) route(t *testing.T, up bool) {
	t.Helper()
	r := &netlink.Route{LinkIndex: device(t, h.program).Attrs().Index, Dst: h.net, Scope: netlink.SCOPE_LINK}
	change := h.program.Namespace.Handle.RouteDel
	if up {
		change = h.program.Namespace.Handle.RouteAdd
	}
	if err := change(r); err != nil {
		t.Fatal(err)
	}
}

// link sets the program's network device down or up.
func (h *hosts) link(t *testing.T, up bool) {
	t.Helper()
	change := h.program.Namespace.Handle.LinkSetDown
	if up {
		change = h.program.Namespace.Handle.LinkSetUp
	}
	if err := change(device(t, h.program)); err != nil {
		t.Fatal(err)
	}
}

// frames is a track with a 4 kB frame every 20 ms. Each contains its capture time.
var frames = moqt.TrackName{Namespace: moqt.Namespace{"outage"}, Name: "frames"}

func sendFrames(r *moqt.SubscribeRequest) {
	pub, err := r.Accept(moqt.TrackInfo{})
	if err != nil {
		return
	}
	go func() {
		frame := make([]byte, 4000)
		for group := uint64(0); pub.Context().Err() == nil; group++ {
			binary.BigEndian.PutUint64(frame, uint64(time.Now().UnixNano()))
			w, err := pub.OpenSubgroup(wire.SubgroupHeader{Group: group, Mode: wire.SubgroupIDZero})
			if err == nil && w.WriteObject(moqt.Object{}, frame) == nil {
				_ = w.Close()
			}
			time.Sleep(20 * time.Millisecond)
		}
	}()
}

// newest is the capture time of the newest received frame, in UNIX nanoseconds.
type newest struct{ atomic.Int64 }

// follow receives frames until the session ends or ctx is done.
func (n *newest) follow(ctx context.Context, s *moqt.Session) error {
	sub, err := s.Subscribe(ctx, frames, moqt.SubscribeOptions{})
	if err != nil {
		return err
	}
	defer sub.Cancel()
	for {
		r, err := sub.AcceptSubgroup(ctx)
		if err != nil {
			return err
		}
		if _, err := r.NextObject(); err != nil {
			return err
		}
		frame, err := r.ReadPayload(nil, 1<<16)
		if err != nil {
			return err
		}
		n.Store(max(n.Load(), int64(binary.BigEndian.Uint64(frame))))
	}
}

// warnings holds the reasons in logged warnings, by relay.
type warnings struct {
	mu      sync.Mutex
	reasons map[string][]string
}

func (w *warnings) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }
func (w *warnings) WithAttrs([]slog.Attr) slog.Handler           { return w }
func (w *warnings) WithGroup(string) slog.Handler                { return w }

func (w *warnings) Handle(_ context.Context, r slog.Record) error {
	var relay, reason string
	r.Attrs(func(a slog.Attr) bool {
		switch a.Key {
		case "relay":
			relay = a.Value.String()
		case "reason":
			reason = a.Value.String()
		}
		return true
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reasons[relay] = append(w.reasons[relay], reason)
	return nil
}

func (w *warnings) of(relay string) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.reasons[relay])
}

// TestOutage interrupts a program's network during a session with frames in both directions.
func TestOutage(t *testing.T) {
	if !quiccc.Patched() {
		t.Skip("the published quic-go closes a connection at the first send error: make quic-go")
	}
	if err := namespace.Supported(); err != nil {
		t.Skip("an outage needs namespaces:", err)
	}
	warned := &warnings{reasons: map[string][]string{}}
	before := slog.Default()
	slog.SetDefault(slog.New(warned))
	t.Cleanup(func() { slog.SetDefault(before) })

	for i, c := range []struct {
		name   string
		change func(h *hosts, t *testing.T, up bool)
		beyond bool // longer than the idle timeout
	}{
		{"route away for 2 s", (*hosts).route, false},
		{"link down for 2 s", (*hosts).link, false},
		{"link down beyond the idle timeout", (*hosts).link, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := newHosts(t, byte(i))
			var up, down newest
			url, hash := h.serve(t, &up)
			var sessions atomic.Int64
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() {
				ended <- h.program.Namespace.Do(func() error {
					receive := func(ctx context.Context, s *moqt.Session) error {
						sessions.Add(1)
						return down.follow(ctx, s)
					}
					target := Target{URL: url, CertificateHash: hash}
					return target.Keep(ctx, moqt.Handler{Subscribe: sendFrames}, quiet, receive)
				})
			}()
			t.Cleanup(func() {
				stop()
				if err := <-ended; !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			})
			flow := func(since time.Time) func() bool {
				return func() bool { return min(up.Load(), down.Load()) > since.UnixNano() }
			}
			await(t, "frames in both directions", flow(time.Now()))

			c.change(h, t, false)
			gone := time.Now()
			time.Sleep(2 * time.Second)
			if late := time.Unix(0, up.Load()).Sub(gone); late > 500*time.Millisecond {
				t.Errorf("a frame captured %s after the interruption arrived", late)
			}
			wantSessions := int64(1)
			var reasons []string
			if c.beyond {
				wantSessions++
				reasons = []string{
					"timeout: no recent network activity",
					"connect to " + url + ": network is unreachable",
				}
				await(t, "warnings", func() bool { return len(warned.of(url)) >= len(reasons) })
				time.Sleep(time.Second) // further attempts, which must not be logged again
			}
			c.change(h, t, true)
			back := time.Now()
			await(t, "frames in both directions again", flow(back))
			t.Logf("frames in both directions %s after the interruption", time.Since(back).Round(time.Millisecond))

			if n := sessions.Load(); n != wantSessions {
				t.Errorf("%d sessions, want %d", n, wantSessions)
			}
			if got := warned.of(url); !slices.Equal(got, reasons) {
				t.Errorf("warnings:\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(reasons, "\n"))
			}
		})
	}
}

// serve listens on the relay's host. It receives frames from each session and sends it frames.
func (h *hosts) serve(t *testing.T, up *newest) (url, hash string) {
	t.Helper()
	cert, err := devcert.Generate(time.Now(), h.relayIP)
	if err != nil {
		t.Fatal(err)
	}
	sum := devcert.Hash(cert)
	var ln *moqt.Listener
	if err := h.relay.Namespace.Do(func() (err error) {
		ln, err = moqt.Listen(":0", moqt.ListenConfig{Config: quiet, TLS: &tls.Config{Certificates: []tls.Certificate{cert}}})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(func() { cancel(); _ = ln.Close() })
	go func() {
		for {
			s, err := ln.Accept(ctx)
			if err != nil {
				return
			}
			s.Serve(moqt.Handler{Subscribe: sendFrames})
			go func() { _ = up.follow(ctx, s) }()
		}
	}()
	return fmt.Sprintf("moqt://%s:%d/outage", h.relayIP, ln.Addr().(*net.UDPAddr).Port), hex.EncodeToString(sum[:])
}

// await waits for a condition, up to a minute.
func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("timeout: %s", what)
		}
	}
}
