package main

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4/jwt"

	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/origin"
	"holocast/relay/auth"
)

// TestSecondPublisher checks that a namespace belongs to its first publisher until that publisher
// leaves. Another publisher of the namespace, of one above or below it, or of a track in it is refused.
// Viewers are not affected.
func TestSecondPublisher(t *testing.T) {
	p := start(t)
	tr := origin.NewTrack(points, nil, origin.Limits{})
	var set origin.Set
	set.Add(tr)
	owner := p.dial(set.Handler())
	ns, err := owner.PublishNamespace(t.Context(), session)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := owner.PublishNamespace(t.Context(),
		append(session[:len(session):len(session)], "recording")); err != nil {
		t.Errorf("the owner's own namespace below: %v", err)
	}
	viewer := p.dial(moqt.Handler{})
	sub := subscribe(t, viewer, points)
	other := p.dial(moqt.Handler{})
	for name, ns := range map[string]moqt.Namespace{
		"the same": session, "below": append(session[:len(session):len(session)], "x"), "above": session[:1],
		"empty": {}, "the relay's": {".relay"}, "below the relay's": {".relay", "x"},
	} {
		_, err := other.PublishNamespace(within(t), ns)
		var refused *moqt.RequestError
		if !errors.As(err, &refused) {
			t.Errorf("%s: %v, want a refusal", name, err)
		}
	}
	for name, taken := range map[string]bool{"points": true, "catalog": true, "receipts/viewer": false} {
		_, err := other.Publish(within(t), moqt.TrackName{Namespace: session, Name: name}, moqt.TrackInfo{})
		if (err != nil) != taken {
			t.Errorf("track %s: %v", name, err)
		}
	}
	if _, err := viewer.Publish(within(t), moqt.TrackName{Namespace: session, Name: "receipts/viewer"},
		moqt.TrackInfo{}); err == nil {
		t.Error("another viewer's receipts were accepted")
	}
	write(t, tr, 1, []byte("undisturbed"))
	expect(t, sub, 1, []byte("undisturbed"))

	ns.Withdraw()
	eventually(t, "the namespace is free", func() bool {
		_, err := other.PublishNamespace(within(t), moqt.Namespace{"holocast-test", "x"})
		return err == nil
	})
}

// TestSharedSubject checks that sessions of one identity share a namespace. Another identity is
// refused, even if its token allows publishing there.
func TestSharedSubject(t *testing.T) {
	x := newIssuer(t, "EdDSA")
	p := start(t, "--auth-keys", x.file)
	token := func(subject string) string {
		return x.mint(auth.Claims{Claims: jwt.Claims{Subject: subject}, Publish: auth.Prefixes{points.Namespace}})
	}
	a, b := origin.NewTrack(points, nil, origin.Limits{}), origin.NewTrack(points, nil, origin.Limits{})
	first := publishing(t, p, token("alice"), a)
	sub := subscribe(t, p.with(moqt.Handler{}, x.viewer()), points)
	publishing(t, p, token("alice"), b)
	bob := p.with(moqt.Handler{}, token("bob"))
	if _, err := bob.PublishNamespace(within(t), points.Namespace); err == nil {
		t.Error("another identity was accepted")
	}
	eventually(t, "the second is subscribed to", func() bool { return b.Viewers() == 1 })
	first.Close(wire.NoError, "")
	write(t, b, 2, []byte("of the second"))
	expect(t, sub, 2, []byte("of the second"))
}

// TestOtherIdentityTakesOver checks that when another identity replaces a publisher that left,
// viewers' subscriptions end. After subscribing again, they receive the new publisher's frames.
func TestOtherIdentityTakesOver(t *testing.T) {
	x := newIssuer(t, "EdDSA")
	p := start(t, "--auth-keys", x.file)
	first := publishing(t, p, x.publisher(), origin.NewTrack(points, nil, origin.Limits{}))
	viewer := p.with(moqt.Handler{}, x.viewer())
	sub := subscribe(t, viewer, points)
	first.Close(wire.NoError, "")
	tr := origin.NewTrack(points, nil, origin.Limits{})
	publishing(t, p, x.publisher(), tr)
	<-sub.Done()
	again := subscribe(t, viewer, points)
	eventually(t, "the second is subscribed to", func() bool { return tr.Viewers() == 1 })
	write(t, tr, 1, []byte("of the second"))
	expect(t, again, 1, []byte("of the second"))
}

// silentLine forwards datagrams to addr and back until it is cut.
func silentLine(t *testing.T, addr string) (via string, cut func()) {
	t.Helper()
	in, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	out, err := net.Dial("udp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = in.Close(), out.Close() })
	var client atomic.Pointer[net.UDPAddr]
	var gone atomic.Bool
	go func() {
		b := make([]byte, 2048)
		for {
			n, from, err := in.ReadFromUDP(b)
			if err != nil {
				return
			}
			client.Store(from)
			if !gone.Load() {
				_, _ = out.Write(b[:n])
			}
		}
	}()
	go func() {
		b := make([]byte, 2048)
		for {
			n, err := out.Read(b)
			if err != nil {
				return
			}
			if !gone.Load() {
				_, _ = in.WriteToUDP(b[:n], client.Load())
			}
		}
	}()
	return in.LocalAddr().String(), func() { gone.Store(true) }
}

// TestSilentPublisherIsReplaced checks that a publisher whose connection died unnoticed regains its
// namespace when it reconnects. An idle publisher keeps its namespace.
func TestSilentPublisherIsReplaced(t *testing.T) {
	p := start(t)
	addr, cut := silentLine(t, p.udp)
	before, after := origin.NewTrack(points, nil, origin.Limits{}), origin.NewTrack(points, nil, origin.Limits{})
	var set origin.Set
	set.Add(before)
	first := p.dialTo(addr, set.Handler())
	if _, err := first.PublishNamespace(t.Context(), session); err != nil {
		t.Fatal(err)
	}
	sub := subscribe(t, p.dial(moqt.Handler{}), points)
	write(t, before, 1, []byte("before"))
	expect(t, sub, 1, []byte("before"))
	if _, err := p.dial(moqt.Handler{}).PublishNamespace(within(t), session); err == nil {
		t.Fatal("an idle publisher lost its namespace")
	}
	cut()
	p.publish(after)
	eventually(t, "the second is subscribed to", func() bool { return after.Viewers() == 1 })
	write(t, after, 2, []byte("after"))
	expect(t, sub, 2, []byte("after"))
}

// TestPublisherStateRemoved runs a publisher that announces groups it never sends, sends groups far
// ahead, leaves subgroups open and sets a delivery timeout of a millisecond. After it has left,
// viewers receive the next publisher's frames, if necessary after subscribing again.
func TestPublisherStateRemoved(t *testing.T) {
	number := func(kind, n uint64) moqt.Properties {
		return wire.AppendKeyValues(nil, wire.KeyValue{Type: kind, Int: n})
	}
	for _, c := range []struct {
		name    string
		props   moqt.Properties
		largest uint64
		send    func(*origin.Track)
	}{
		{"largest", nil, 1 << 61, func(*origin.Track) {}},
		{"largest that leaves no room", nil, 1<<62 - 2, func(*origin.Track) {}},
		{"delivery timeout", number(wire.PropertyObjectDeliveryTimeout, 1), 0, func(*origin.Track) {}},
		{"junk far ahead", nil, 0, func(tr *origin.Track) {
			for i := range uint64(10) {
				write(t, tr, 1<<50+i, []byte("junk"))
			}
		}},
		{"open subgroups", nil, 0, func(tr *origin.Track) {
			for i := range uint64(100) {
				f, err := tr.OpenSubgroup(wire.SubgroupHeader{
					Group: 1 + i, FirstObject: true,
					Mode: wire.SubgroupIDExplicit, Subgroup: i,
				})
				if err != nil {
					t.Fatal(err)
				}
				_ = f.WriteObject(moqt.Object{}, []byte("and more to come"))
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := start(t)
			evil := origin.NewTrack(points, c.props, origin.Limits{})
			if c.largest > 0 {
				evil.RaiseLargest(moqt.Location{Group: c.largest})
			}
			var set origin.Set
			set.Add(evil)
			attacker := p.dial(set.Handler())
			if _, err := attacker.PublishNamespace(t.Context(), session); err != nil {
				t.Fatal(err)
			}
			viewer := p.dial(moqt.Handler{})
			// Subscribe from the largest object on, and again when the subscription ends, as a player
			// does.
			frames := make(chan frame, 100)
			ctx, cancel := context.WithCancel(t.Context())
			watched := make(chan struct{})
			go func() {
				defer close(watched)
				for ctx.Err() == nil {
					sub, err := viewer.Subscribe(ctx, points,
						moqt.SubscribeOptions{Filter: &moqt.Filter{Type: wire.FilterLargestObject}})
					for err == nil && sub.Err() == nil && ctx.Err() == nil {
						if f, err := next(ctx, sub); err == nil { // otherwise it was reset
							frames <- f
						}
					}
					time.Sleep(50 * time.Millisecond)
				}
			}()
			t.Cleanup(func() { cancel(); <-watched })
			if c.largest < maxGroup {
				eventually(t, "the viewer watches the attacker", func() bool { return evil.Viewers() == 1 })
			}
			c.send(evil)
			time.Sleep(100 * time.Millisecond)
			attacker.Close(wire.NoError, "")

			honest := origin.NewTrack(points, nil, origin.Limits{})
			p.publish(honest)
			group := uint64(1000)
			deadline := time.After(2 * time.Minute)
			for got := 0; got < 10; {
				group++
				write(t, honest, group, make([]byte, 100_000))
				select {
				case f := <-frames:
					if f.group >= 1000 && f.group < 1<<20 && len(f.payload) == 100_000 {
						got++
					}
				case <-time.After(100 * time.Millisecond):
				case <-deadline:
					t.Fatalf("%d frames of the honest publisher", got)
				}
			}
		})
	}
}

const maxGroup = 1<<62 - 1<<32 // as in the router

// TestLogLinesAreShort checks that peers cannot make the relay log long lines.
func TestLogLinesAreShort(t *testing.T) {
	p := start(t)
	long := strings.Repeat("x", 3000)
	tr := origin.NewTrack(moqt.TrackName{Namespace: moqt.Namespace{"holocast", long}, Name: "points"}, nil,
		origin.Limits{})
	var set origin.Set
	set.Add(tr)
	s, err := moqt.Dial(t.Context(), "moqt://"+p.udp+"/"+long+"?token="+long, pinned(t, p.hash), set.Handler(), quiet)
	if err != nil {
		t.Fatal(err)
	}
	ns, err := s.PublishNamespace(within(t), tr.Name().Namespace)
	if err != nil {
		t.Fatal(err)
	}
	viewer := p.dial(moqt.Handler{})
	sub := subscribe(t, viewer, tr.Name())
	if _, err := viewer.Subscribe(within(t), moqt.TrackName{Namespace: tr.Name().Namespace, Name: "absent"},
		moqt.SubscribeOptions{}); err == nil {
		t.Error("subscribed to an unknown track")
	}
	if _, err := viewer.PublishNamespace(within(t), tr.Name().Namespace); err == nil {
		t.Error("published another publisher's namespace")
	}
	if _, err := viewer.Publish(within(t), moqt.TrackName{Namespace: tr.Name().Namespace, Name: long[:1000]},
		moqt.TrackInfo{}); err == nil {
		t.Error("published in another's namespace")
	}
	sub.Cancel()
	ns.Withdraw()
	s.Close(wire.NoError, strings.Repeat("y", 200))
	eventually(t, "the session is closed", func() bool { return strings.Contains(p.output(), "session closed") })
	for line := range strings.Lines(p.output()) {
		if len(line) > 1000 {
			t.Errorf("a line of %d bytes: %s…", len(line), line[:300])
		}
	}
}
