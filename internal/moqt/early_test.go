package moqt_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"holocast/internal/devcert"
	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/sessiontest/fakepath"
)

// TestEarlyData checks how many round trips pass until a viewer has its first frame: in a new session,
// in one resumed with early data, and in one whose early data the server rejects or cannot decrypt. It
// runs in fake time.
func TestEarlyData(t *testing.T) {
	for _, c := range []struct {
		name    string
		allowed bool // when the session is resumed
		restart bool // with other ticket keys
		trips   int
	}{
		{"accepted", true, false, 1},
		{"rejected", false, false, 2},
		{"restarted", true, true, 2},
	} {
		for _, rtt := range []time.Duration{40 * time.Millisecond, 160 * time.Millisecond} {
			t.Run(fmt.Sprint(c.name, " ", rtt), func(t *testing.T) {
				fakepath.Test(t, func(t *testing.T) {
					n := newEarlyNet(t, rtt)
					n.listen(true)
					cold := n.firstFrame()
					if roundTrips(cold, rtt) != 3 {
						t.Errorf("first session: first frame after %v", cold)
					}
					if c.restart {
						n.restart()
					} else if !c.allowed {
						n.listen(false)
					}
					again := n.firstFrame()
					if roundTrips(again, rtt) != c.trips {
						t.Errorf("resumed session: first frame after %v", again)
					}
					t.Logf("first frame after %v, resumed %v", cold.Round(time.Millisecond), again.Round(time.Millisecond))
				})
			})
		}
	}
}

// TestEarlyPublish checks that PUBLISH_NAMESPACE waits for the handshake.
func TestEarlyPublish(t *testing.T) {
	fakepath.Test(t, func(t *testing.T) {
		rtt := 40 * time.Millisecond
		n := newEarlyNet(t, rtt)
		n.listen(true)
		n.firstFrame()
		began := time.Now()
		s := n.dial()
		defer s.Close(wire.NoError, "")
		if took := time.Since(began); took != 0 {
			t.Errorf("Dial took %v", took)
		}
		if _, err := s.PublishNamespace(t.Context(), moqt.Namespace{"a"}); err != nil {
			t.Fatal(err)
		}
		if trips := roundTrips(time.Since(began), rtt); trips != 2 {
			t.Errorf("accepted after %d round trips", trips)
		}
	})
}

// TestEarlyUnanswered checks that a session with early data ends if the server is gone.
func TestEarlyUnanswered(t *testing.T) {
	fakepath.Test(t, func(t *testing.T) {
		n := newEarlyNet(t, 40*time.Millisecond)
		n.listen(true)
		n.firstFrame()
		n.close()
		s := n.dial()
		_, err := s.Subscribe(t.Context(), earlyTrack, moqt.SubscribeOptions{})
		if !moqt.Unanswered(err) || !moqt.Unanswered(s.Err()) {
			t.Errorf("%v, %v", err, s.Err())
		}
	})
}

// TestReplay checks that a server that receives a client's first packets again opens a session and
// answers its SUBSCRIBE, and that this session ends without the handshake.
func TestReplay(t *testing.T) {
	fakepath.Test(t, func(t *testing.T) {
		n := newEarlyNet(t, 40*time.Millisecond)
		n.listen(true)
		n.firstFrame()
		n.captured = &capture{End: n.path.B}
		s := n.dial()
		if _, err := s.Subscribe(t.Context(), earlyTrack, moqt.SubscribeOptions{}); err != nil {
			t.Fatal(err)
		}
		<-n.accepted
		go func() { _, _ = s.PublishNamespace(context.Background(), moqt.Namespace{"a"}) }()
		time.Sleep(time.Second)
		s.Close(wire.NoError, "")
		time.Sleep(time.Second)
		n.announced.Store(0)
		for _, b := range n.captured.packets {
			_, _ = n.path.B.WriteTo(b, nil)
		}
		n.captured = nil
		replayed := <-n.accepted
		<-replayed.Context().Done()
		if subscribed, announced := n.subscribed.Load(), n.announced.Load(); subscribed != 3 || announced != 0 {
			t.Errorf("%d SUBSCRIBE and %d PUBLISH_NAMESPACE answered", subscribed, announced)
		}
	})
}

// roundTrips rounds d down to round trips; the rest is computing, which takes no fake time, and pacing.
func roundTrips(d, rtt time.Duration) int { return int(d / rtt) }

var earlyTrack = moqt.TrackName{Namespace: moqt.Namespace{"early"}, Name: "frames"}

// earlyNet is a path with a server at its end A and clients at B.
type earlyNet struct {
	t        *testing.T
	rtt      time.Duration
	path     *fakepath.Path
	cert     tls.Certificate
	tickets  [32]byte
	ln       *moqt.Listener
	resume   moqt.Resumption
	accepted chan *moqt.Session
	captured *capture // packets of the client, if set

	subscribed, announced atomic.Int32 // requests answered
}

func newEarlyNet(t *testing.T, rtt time.Duration) *earlyNet {
	t.Helper()
	cert, err := devcert.Generate(time.Now(), "192.0.2.1")
	if err != nil {
		t.Fatal(err)
	}
	way := fakepath.Direction{Delay: rtt / 2}
	n := &earlyNet{t: t, rtt: rtt, path: fakepath.New(way, way), cert: cert, accepted: make(chan *moqt.Session, 9)}
	t.Cleanup(n.path.Close)
	t.Cleanup(n.close)
	return n
}

func (n *earlyNet) close() {
	if n.ln != nil {
		_ = n.ln.Close()
		n.ln = nil
	}
}

// restart starts a server with other keys for tickets.
func (n *earlyNet) restart() {
	n.tickets[0]++
	n.listen(true)
}

// listen replaces the server.
func (n *earlyNet) listen(early bool) {
	n.close()
	conf := &tls.Config{Certificates: []tls.Certificate{n.cert}}
	conf.SetSessionTicketKeys([][32]byte{n.tickets})
	ln, err := moqt.Listen("", moqt.ListenConfig{
		Config: moqt.Config{Log: slog.New(slog.DiscardHandler), Packets: n.path.A}, TLS: conf, EarlyData: early,
	})
	if err != nil {
		n.t.Fatal(err)
	}
	n.ln = ln
	go func() {
		for {
			s, err := ln.Accept(context.Background())
			if err != nil {
				return
			}
			s.Serve(moqt.Handler{Subscribe: n.serve, PublishNamespace: func(r *moqt.NamespaceRequest) {
				n.announced.Add(1)
				_ = r.Accept(nil)
			}})
			n.accepted <- s
		}
	}()
}

func (n *earlyNet) serve(r *moqt.SubscribeRequest) {
	n.subscribed.Add(1)
	pub, err := r.Accept(moqt.TrackInfo{})
	if err != nil {
		return
	}
	w, err := pub.OpenSubgroup(wire.SubgroupHeader{Mode: wire.SubgroupIDZero})
	if err == nil && w.WriteObject(moqt.Object{}, make([]byte, 500)) == nil {
		_ = w.Close()
	}
}

func (n *earlyNet) dial() *moqt.Session {
	cfg := moqt.Config{
		Log: slog.New(slog.DiscardHandler), Packets: n.path.B, Resume: &n.resume, Early: true,
	}
	if n.captured != nil {
		cfg.Packets = n.captured
	}
	s, err := moqt.Dial(n.t.Context(), "moqt://192.0.2.1:4443/x", devcert.Pinned(devcert.Hash(n.cert)),
		moqt.Handler{}, cfg)
	if err != nil {
		n.t.Fatal(err)
	}
	return s
}

// firstFrame opens a session, closes it, and returns how long it took until the first frame.
func (n *earlyNet) firstFrame() time.Duration {
	began := time.Now()
	s := n.dial()
	sub, err := s.Subscribe(n.t.Context(), earlyTrack, moqt.SubscribeOptions{})
	if err != nil {
		n.t.Fatal(err)
	}
	g, err := sub.AcceptSubgroup(n.t.Context())
	if err == nil {
		_, err = g.NextObject()
	}
	if err == nil {
		_, err = io.Copy(io.Discard, g)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		n.t.Fatal(err)
	}
	took := time.Since(began)
	time.Sleep(n.rtt) // for the ticket
	s.Close(wire.NoError, "")
	(<-n.accepted).Close(wire.NoError, "")
	time.Sleep(time.Second)
	return took
}

// capture keeps the packets that it sends.
type capture struct {
	*fakepath.End
	packets [][]byte
}

// WriteTo implements net.PacketConn.
func (c *capture) WriteTo(b []byte, to net.Addr) (int, error) {
	c.packets = append(c.packets, bytes.Clone(b))
	return c.End.WriteTo(b, to)
}
