package moqt

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"holocast/internal/devcert"
	"holocast/internal/moqt/wire"
	"holocast/internal/quiccc"
)

// source returns a handler that accepts all subscriptions and sends their publications to pubs.
func source(pubs chan<- *Publication, info TrackInfo) Handler {
	return Handler{Subscribe: func(r *SubscribeRequest) {
		if p, err := r.Accept(info); err == nil && pubs != nil {
			pubs <- p
		}
	}}
}

// subscribed returns a subscription of testTrack and its publication.
func subscribed(
	t *testing.T, connect func(client, server Handler) *pair, info TrackInfo, o SubscribeOptions,
) (*pair, *Subscription, *Publication) {
	t.Helper()
	pubs := make(chan *Publication, 1)
	p := connect(Handler{}, source(pubs, info))
	sub, err := p.client.Subscribe(p.ctx, testTrack, o)
	if err != nil {
		t.Fatal(err)
	}
	return p, sub, <-pubs
}

func until(t *testing.T, ctx context.Context, what string, ok func() bool) {
	t.Helper()
	for !ok() {
		select {
		case <-ctx.Done():
			t.Fatalf("%s: never", what)
		case <-time.After(time.Millisecond):
		}
	}
}

func (s *Session) idle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.openRequests == 0 && len(s.subscriptions) == 0 && len(s.receiving) == 0 && len(s.sending) == 0 &&
		len(s.joinable) == 0 &&
		len(s.fetches) == 0 &&
		len(s.discoveries) == 0
}

func TestCloseSendsReason(t *testing.T) {
	forTransports(t, func(t *testing.T, connect func(client, server Handler) *pair) {
		for _, by := range []string{"client", "server"} {
			t.Run(by, func(t *testing.T) {
				p := connect(Handler{}, Handler{})
				from, to := p.client, p.server
				if by == "server" {
					from, to = to, from
				}
				from.Close(wire.Unauthorized, "go away")
				<-to.Context().Done()
				var e *SessionError
				if err := to.Err(); !errors.As(err, &e) || e.Code != wire.Unauthorized || e.Reason != "go away" ||
					!e.Remote {
					t.Errorf("peer's error: %v", err)
				}
				if err := from.Err(); !errors.As(err, &e) || e.Code != wire.Unauthorized || e.Remote {
					t.Errorf("own error: %v", err)
				}
			})
		}
	})
}

// TestIdleSessionGoroutines bounds the goroutines of an idle session, because their stacks take
// memory.
func TestIdleSessionGoroutines(t *testing.T) {
	if !quiccc.Patched() {
		t.Skip("the published quic-go and webtransport-go have goroutines that wait")
	}
	const sessions = 20
	cert, err := devcert.Generate(time.Now(), "localhost", "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	// The server has one goroutine per connection, and over WebTransport two more that accept
	// streams. The client has two more for its socket, and over WebTransport another three. Over a
	// WebSocket each end has two.
	for scheme, most := range map[string]int{"moqt": 1 + 3, "https": 3 + 8, "wss": 2 + 2} {
		t.Run(scheme, func(t *testing.T) {
			cfg := Config{waits: patient(), Log: slog.New(slog.DiscardHandler)}
			ln, err := Listen(
				"127.0.0.1:0",
				ListenConfig{Config: cfg, TLS: &tls.Config{Certificates: []tls.Certificate{cert}}},
			)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = ln.Close() }()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			at := address(t, ln, scheme, &tls.Config{Certificates: []tls.Certificate{cert}})
			before := runtime.NumGoroutine()
			for range sessions {
				c, err := Dial(ctx, scheme+"://"+at, devcert.Pinned(devcert.Hash(cert)), Handler{}, cfg)
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close(wire.NoError, "")
				s, err := ln.Accept(ctx)
				if err != nil {
					t.Fatal(err)
				}
				s.Serve(Handler{})
			}
			// Allow half a goroutine more per session: goroutines of the listener may start after
			// the first count.
			until(
				t,
				ctx,
				"few goroutines",
				func() bool { return runtime.NumGoroutine()-before <= sessions*most+sessions/2 },
			)
		})
	}
}

func TestListenerCloseEndsSessions(t *testing.T) {
	forTransports(t, func(t *testing.T, connect func(client, server Handler) *pair) {
		p := connect(Handler{}, Handler{})
		_ = p.ln.Close()
		<-p.client.Context().Done()
		var e *SessionError
		if err := p.client.Err(); !errors.As(err, &e) || e.Code != wire.NoError || !e.Remote {
			t.Errorf("client's error: %v", err)
		}
		<-p.server.Context().Done()
		if _, err := p.ln.Accept(p.ctx); err == nil {
			t.Error("Accept after Close")
		}
	})
}

func TestSubscribeCancelledMidway(t *testing.T) {
	forTransports(t, func(t *testing.T, connect func(client, server Handler) *pair) {
		requests := make(chan *SubscribeRequest, 1)
		p := connect(Handler{}, Handler{Subscribe: func(r *SubscribeRequest) {
			requests <- r
			<-r.Context().Done()
		}})
		ctx, cancel := context.WithCancel(p.ctx)
		failed := make(chan error, 1)
		go func() {
			_, err := p.client.Subscribe(ctx, testTrack, SubscribeOptions{})
			failed <- err
		}()
		r := <-requests
		cancel()
		if err := <-failed; !errors.Is(err, context.Canceled) {
			t.Errorf("Subscribe: %v", err)
		}
		<-r.Context().Done() // cancelled on the wire
		until(t, p.ctx, "both sides idle", func() bool { return p.client.idle() && p.server.idle() })
	})
}

func TestSubscribeAgainAfterCancel(t *testing.T) {
	forTransports(t, func(t *testing.T, connect func(client, server Handler) *pair) {
		p := connect(Handler{}, source(nil, TrackInfo{}))
		for i := range 100 {
			sub, err := p.client.Subscribe(p.ctx, testTrack, SubscribeOptions{})
			if err != nil {
				t.Fatalf("round %d: %v", i, err)
			}
			sub.Cancel()
			sub.Cancel()
		}
		until(t, p.ctx, "both sides idle", func() bool { return p.client.idle() && p.server.idle() })
	})
}

func TestDuplicateSubscription(t *testing.T) {
	forDraft18(t, func(t *testing.T, connect func(client, server Handler) *pair) {
		p := connect(Handler{Publish: acceptAll(nil).Publish}, source(nil, TrackInfo{}))
		if _, err := p.client.Subscribe(p.ctx, testTrack, SubscribeOptions{}); err != nil {
			t.Fatal(err)
		}
		var e *RequestError
		if _, err := p.client.Subscribe(p.ctx, testTrack, SubscribeOptions{}); !errors.As(err, &e) ||
			e.Code != wire.RequestDuplicateSubscription {
			t.Errorf("second SUBSCRIBE: %v", err)
		}
		if _, err := p.server.Publish(p.ctx, testTrack, TrackInfo{}); !errors.As(err, &e) ||
			e.Code != wire.RequestDuplicateSubscription {
			t.Errorf("PUBLISH by the publisher of a SUBSCRIBE: %v", err)
		}
		// Publishing in the other direction is a different role.
		if _, err := p.client.Publish(p.ctx, testTrack, TrackInfo{}); !errors.As(err, &e) ||
			e.Code != wire.RequestNotSupported {
			t.Errorf("PUBLISH by the subscriber: %v", err)
		}
		// Bypass our own check: the peer must refuse it.
		p.client.mu.Lock()
		clear(p.client.receiving)
		p.client.mu.Unlock()
		if _, err := p.client.Subscribe(p.ctx, testTrack, SubscribeOptions{}); !errors.As(err, &e) ||
			e.Code != wire.RequestDuplicateSubscription {
			t.Errorf("second SUBSCRIBE at the peer: %v", err)
		}
	})
}

// A stream whose end is never read stays open and counts against the peer's limit.
func TestRequestsLeakNoStreams(t *testing.T) {
	// A low limit exposes leaks quickly. It leaves some slack, as a cancellation may arrive after the
	// next request.
	const streams = 64
	w := patient()
	w.cancel = time.Minute
	cfg := Config{waits: w, streams: streams}
	server := Handler{
		TrackStatus:        func(r *TrackStatusRequest) { _ = r.Accept(TrackInfo{}) },
		Publish:            func(r *PublishRequest) { _ = r.Reject(wire.RequestUninterested, "") },
		Subscribe:          func(r *SubscribeRequest) { p, _ := r.Accept(TrackInfo{}); _ = p.Done(wire.DoneTrackEnded, "") },
		PublishNamespace:   func(r *NamespaceRequest) { _ = r.Accept(nil) },
		SubscribeNamespace: func(r *DiscoveryRequest) { _ = r.Accept(func(*Announcer) {}) },
		Fetch: func(r *FetchRequest) {
			if w, err := r.Accept(r.End, false, nil); err == nil {
				_ = w.Close()
			}
		},
	}
	requests := map[string]func(p *pair) error{
		"TRACK_STATUS": func(p *pair) error { _, _, err := p.client.TrackStatus(p.ctx, testTrack); return err },
		"refused PUBLISH": func(p *pair) error {
			var e *RequestError
			if _, err := p.client.Publish(p.ctx, testTrack, TrackInfo{}); !errors.As(err, &e) ||
				e.Code != wire.RequestUninterested {
				return fmt.Errorf("not refused: %w", err)
			}
			return nil
		},
		"SUBSCRIBE to its end": func(p *pair) error {
			sub, err := p.client.Subscribe(p.ctx, testTrack, SubscribeOptions{})
			if err != nil {
				return err
			}
			<-sub.Done()
			return nil
		},
		"FETCH": func(p *pair) error {
			f, err := p.client.Fetch(p.ctx, testTrack, Location{}, Location{Group: 1}, FetchOptions{})
			if err != nil {
				return err
			}
			if _, err := f.Next(); err != io.EOF {
				return err
			}
			return nil
		},
		"PUBLISH_NAMESPACE": func(p *pair) error {
			n, err := p.client.PublishNamespace(p.ctx, testTrack.Namespace)
			if err == nil {
				n.Withdraw()
			}
			return err
		},
		"SUBSCRIBE_NAMESPACE": func(p *pair) error {
			ctx, cancel := context.WithCancel(p.ctx)
			events, err := p.client.SubscribeNamespace(ctx, testTrack.Namespace)
			cancel()
			if err == nil {
				for range events {
				}
			}
			return err
		},
	}
	for _, scheme := range transports {
		for name, request := range requests {
			t.Run(scheme+"/"+name, func(t *testing.T) {
				p, err := connectConfigs(t, scheme, Handler{}, server, cfg, cfg)
				if err != nil {
					t.Fatal(err)
				}
				for i := range 2 * streams {
					if err := request(p); err != nil {
						t.Fatalf("round %d: %v", i, err)
					}
				}
				until(t, p.ctx, "both sides idle", func() bool { return p.client.idle() && p.server.idle() })
			})
		}
	}
}

func TestGoaway(t *testing.T) {
	forTransports(t, func(t *testing.T, connect func(client, server Handler) *pair) {
		for _, by := range []string{"client", "server"} {
			t.Run(by, func(t *testing.T) {
				told := make(chan string, 1)
				h := acceptAll(nil)
				h.Goaway = func(uri string, timeout time.Duration) { told <- fmt.Sprint(uri, " ", timeout) }
				p := connect(h, h)
				from, to, uri := p.client, p.server, ""
				if by == "server" {
					from, to, uri = p.server, p.client, "moqt://elsewhere"
				}
				sub, err := to.Subscribe(p.ctx, testTrack, SubscribeOptions{})
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(p.ctx)
				over := make(chan error, 1)
				go func() { over <- from.Goaway(ctx, uri, time.Minute) }()
				if got, want := <-told, uri+" 1m0s"; got != want {
					t.Errorf("told %q, want %q", got, want)
				}
				var e *RequestError
				if _, err := to.Subscribe(p.ctx, track("late"), SubscribeOptions{}); !errors.As(err, &e) ||
					e.Code != wire.RequestGoingAway {
					t.Errorf("request after GOAWAY: %v", err)
				}
				if err := sub.Err(); err != nil {
					t.Errorf("subscription ended by GOAWAY: %v", err)
				}
				cancel()
				if err := <-over; err != nil {
					t.Error(err)
				}
				<-to.Context().Done()
				var se *SessionError
				if !errors.As(to.Err(), &se) || se.Code != wire.GoawayTimeout {
					t.Errorf("session ended with %v", to.Err())
				}
			})
		}
	})
}

func TestGoawayOfOneRequest(t *testing.T) {
	subs := make(chan *Subscription, 1)
	p, sessions := rawClient(t, acceptAll(subs), Config{})
	p.setup(&wire.Setup{})
	s := <-sessions
	req := p.bidi(message(t, &wire.Publish{Track: track("t"), TrackAlias: 5}))
	p.read(req)
	_, _ = req.Write(message(t, &wire.Goaway{}))
	sub := <-subs
	<-sub.Done()
	var done *DoneError
	if !errors.As(sub.Err(), &done) || done.Code != wire.DoneGoingAway {
		t.Errorf("subscription ended with %v", sub.Err())
	}
	if s.Err() != nil {
		t.Errorf("session ended: %v", s.Err())
	}
}

func TestUpdatesArePipelined(t *testing.T) {
	forTransports(t, func(t *testing.T, connect func(client, server Handler) *pair) {
		p, sub, pub := subscribed(
			t,
			connect,
			TrackInfo{},
			SubscribeOptions{ObjectDeliveryTimeout: 100 * time.Millisecond},
		)
		if object, _ := pub.DeliveryTimeouts(); object != 100*time.Millisecond {
			t.Errorf("object delivery timeout %v", object)
		}
		var wg sync.WaitGroup
		for range maxUpdates {
			wg.Go(func() {
				if _, err := sub.Update(p.ctx, Parameters{ObjectDeliveryTimeout: new(uint64(700))}); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if object, _ := pub.DeliveryTimeouts(); object != 700*time.Millisecond {
			t.Errorf("object delivery timeout %v after the update", object)
		}
		sub.Cancel()
		if _, err := sub.Update(p.ctx, Parameters{}); err == nil {
			t.Error("update of a cancelled subscription")
		}
	})
}

func TestRefusedUpdateEndsSubscription(t *testing.T) {
	forDraft18(t, func(t *testing.T, connect func(client, server Handler) *pair) {
		p := connect(
			Handler{},
			source(nil, TrackInfo{Largest: func() (Location, bool) { return Location{Group: 9}, true }}),
		)
		sub, err := p.client.Subscribe(p.ctx, testTrack, SubscribeOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var e *RequestError
		past := Filter{Type: wire.FilterAbsoluteRange, EndGroup: 8}
		if _, err := sub.Update(p.ctx, Parameters{Filter: &past}); !errors.As(err, &e) ||
			e.Code != wire.RequestInvalidRange {
			t.Errorf("update: %v", err)
		}
		<-sub.Done()
		var done *DoneError
		if !errors.As(sub.Err(), &done) || done.Code != wire.DoneUpdateFailed {
			t.Errorf("subscription ended with %v", sub.Err())
		}
		if _, err := p.client.Subscribe(p.ctx, testTrack, SubscribeOptions{Filter: &past}); !errors.As(err, &e) ||
			e.Code != wire.RequestInvalidRange {
			t.Errorf("subscribe: %v", err)
		}
	})
}

func TestForwardState(t *testing.T) {
	forTransports(t, func(t *testing.T, connect func(client, server Handler) *pair) {
		largest := Location{Group: 3, Object: 2}
		p, sub, pub := subscribed(
			t,
			connect,
			TrackInfo{Largest: func() (Location, bool) { return largest, true }},
			SubscribeOptions{Paused: true},
		)
		header := wire.SubgroupHeader{Group: 4}
		if _, err := pub.OpenSubgroup(header); !errors.Is(err, ErrNotForwarding) {
			t.Errorf("subgroup of a paused subscription: %v", err)
		}
		if err := pub.SendDatagram(Datagram{}); !errors.Is(err, ErrNotForwarding) {
			t.Errorf("datagram of a paused subscription: %v", err)
		}
		got, err := sub.Update(p.ctx, Parameters{Forward: new(true)})
		if err != nil || got.LargestObject == nil || *got.LargestObject != largest {
			t.Fatalf("update: %+v, %v", got, err)
		}
		if !pub.Passes(Location{Group: 4}) {
			t.Error("a resumed subscription passes nothing")
		}
		w, err := pub.OpenSubgroup(header)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.BeginObject(Object{PayloadLength: 10}); err != nil {
			t.Fatal(err)
		}
		r, err := sub.AcceptSubgroup(p.ctx)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := sub.Update(p.ctx, Parameters{Forward: new(false)}); err != nil {
			t.Fatal(err)
		}
		_, err = r.NextObject()
		if err == nil {
			_, err = r.ReadPayload(nil, 10)
		}
		if e := (*StreamError)(nil); !errors.As(err, &e) || !e.Remote {
			t.Errorf("the rest of a subgroup of a paused subscription: %v", err)
		}
		if _, err := w.Write(make([]byte, 10)); err == nil {
			t.Error("written to a subgroup of a paused subscription")
		}
	})
}

func TestFilters(t *testing.T) {
	at := func(g, o uint64) Location { return Location{Group: g, Object: o} }
	largest := at(5, 3)
	tests := []struct {
		name    string
		filter  *Filter
		largest *Location
		in, out []Location
	}{
		{"none", nil, &largest, []Location{at(0, 0), at(9, 9)}, nil},
		{
			"largest object",
			&Filter{Type: wire.FilterLargestObject},
			&largest,
			[]Location{at(5, 4), at(6, 0)},
			[]Location{at(5, 3), at(4, 9)},
		},
		{"largest object of nothing", &Filter{Type: wire.FilterLargestObject}, nil, []Location{at(0, 0)}, nil},
		{"next group", &Filter{Type: wire.FilterNextGroup}, &largest, []Location{at(6, 0)}, []Location{at(5, 4)}},
		{"next group of nothing", &Filter{Type: wire.FilterNextGroup}, nil, []Location{at(0, 0)}, nil},
		{
			"absolute start",
			&Filter{Type: wire.FilterAbsoluteStart, Start: at(2, 2)},
			&largest,
			[]Location{at(2, 2), at(9, 0)},
			[]Location{at(2, 1)},
		},
		{
			"absolute range",
			&Filter{Type: wire.FilterAbsoluteRange, Start: at(2, 2), EndGroup: 7},
			&largest,
			[]Location{at(7, 99)},
			[]Location{at(8, 0), at(2, 0)},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := &Publication{forward: true}
			if err := p.begin(Parameters{Filter: tt.filter}, tt.largest); err != nil {
				t.Fatal(err)
			}
			for _, l := range tt.in {
				if !p.Passes(l) {
					t.Errorf("%v does not pass", l)
				}
			}
			for _, l := range tt.out {
				if p.Passes(l) {
					t.Errorf("%v passes", l)
				}
			}
		})
	}
}

// The peer accepts one window of data and the transport buffers the rest, so the stream has ended
// at the sender but has not arrived (§8).
func TestSubgroupDeliveryTimeoutAfterFIN(t *testing.T) {
	forTransports(t, func(t *testing.T, connect func(client, server Handler) *pair) {
		p, sub, pub := subscribed(t, connect, TrackInfo{}, SubscribeOptions{SubgroupDeliveryTimeout: time.Second})
		write := func(group uint64, size int) *SubgroupWriter {
			w, err := pub.OpenSubgroup(wire.SubgroupHeader{Group: group})
			if err != nil {
				t.Fatal(err)
			}
			if err := w.WriteObject(Object{}, make([]byte, size)); err != nil {
				t.Fatal(err)
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			return w
		}
		arrives := write(0, 1000)
		write(1, int(quicConfig().InitialStreamReceiveWindow)+500)
		until(t, p.ctx, "the timeout", func() bool { return p.server.Stats().DeliveryTimeouts == 1 })
		until(
			t,
			p.ctx,
			"the timers",
			func() bool { p.server.mu.Lock(); defer p.server.mu.Unlock(); return len(p.server.unacked) == 0 },
		)
		if !arrives.str.delivered() {
			t.Error("quic-go moved the fields that delivered reads")
		}
		for range 2 {
			r, err := sub.AcceptSubgroup(p.ctx)
			if err != nil {
				t.Fatal(err)
			}
			_, err = r.NextObject()
			if err == nil {
				_, err = r.ReadPayload(nil, 1<<24)
			}
			var e *StreamError
			if r.Group == 0 && err != nil {
				t.Errorf("subgroup in time: %v", err)
			}
			if r.Group == 1 && (!errors.As(err, &e) || e.Code != wire.StreamDeliveryTimeout || !e.Remote) {
				t.Errorf("late subgroup: %v", err)
			}
		}
		// The session's end must also stop the timers of subgroups that have not timed out yet.
		if _, err := sub.Update(p.ctx, Parameters{SubgroupDeliveryTimeout: new(uint64(3_600_000))}); err != nil {
			t.Fatal(err)
		}
		write(2, 10)
		p.server.Close(wire.NoError, "")
		p.server.mu.Lock()
		defer p.server.mu.Unlock()
		if n := len(p.server.unacked); n != 0 {
			t.Errorf("%d timers left", n)
		}
	})
}

// TestDeliveredSubgroupsAreForgotten checks that acknowledged subgroups are forgotten before their
// delivery timeout.
func TestDeliveredSubgroupsAreForgotten(t *testing.T) {
	forTransports(t, func(t *testing.T, connect func(client, server Handler) *pair) {
		p, sub, pub := subscribed(t, connect, TrackInfo{}, SubscribeOptions{SubgroupDeliveryTimeout: 20 * time.Hour})
		for group := range uint64(20) {
			w, err := pub.OpenSubgroup(wire.SubgroupHeader{Group: group})
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(w.WriteObject(Object{}, make([]byte, 1000)), w.Close()); err != nil {
				t.Fatal(err)
			}
			if _, err := sub.AcceptSubgroup(p.ctx); err != nil {
				t.Fatal(err)
			}
		}
		until(
			t,
			p.ctx,
			"all subgroups are forgotten",
			func() bool { p.server.mu.Lock(); defer p.server.mu.Unlock(); return len(p.server.unacked) == 0 },
		)
		if n := p.server.Stats().DeliveryTimeouts; n != 0 {
			t.Errorf("%d subgroups were late", n)
		}
	})
}

// TestPublishBlocked checks that a subscriber at its stream limit is informed of the tracks under
// its prefix that cannot be published.
func TestPublishBlocked(t *testing.T) {
	prefix := Namespace{"holocast"}
	announcer := make(chan *Announcer, 1)
	p := connect(t, "moqt", Handler{Publish: func(r *PublishRequest) { _, _ = r.Accept(SubscribeOptions{}) }},
		Handler{SubscribeTracks: func(r *DiscoveryRequest) { _ = r.Accept(func(a *Announcer) { announcer <- a }) }})
	logged := make(chan string, 1)
	p.client.log = slog.New(slog.NewTextHandler(lineWriter(logged), nil))
	if err := p.client.SubscribeTracks(p.ctx, prefix); err != nil {
		t.Fatal(err)
	}
	a := <-announcer
	for i := range quicConfig().MaxIncomingStreams {
		if _, err := p.server.Publish(p.ctx, TrackName{Namespace: prefix, Name: fmt.Sprint(i)}, TrackInfo{}); err != nil {
			t.Fatalf("track %d: %v", i, err)
		}
	}
	last := TrackName{Namespace: append(prefix, "room"), Name: "last"}
	ctx, cancel := context.WithTimeout(p.ctx, 10*time.Millisecond)
	defer cancel()
	if _, err := p.server.Publish(ctx, last, TrackInfo{}); !errors.Is(err, ErrRequestsBlocked) {
		t.Fatalf("beyond the limit: %v", err)
	}
	if err := a.Blocked(last); err != nil {
		t.Fatal(err)
	}
	select {
	case line := <-logged:
		if !strings.Contains(line, last.String()) {
			t.Errorf("logged %q", line)
		}
	case <-p.ctx.Done():
		t.Fatal("the subscriber was not notified")
	}
}

// lineWriter sends log lines to a channel.
type lineWriter chan string

func (w lineWriter) Write(b []byte) (int, error) {
	select {
	case w <- string(b):
	default:
	}
	return len(b), nil
}

func TestObjectDeadline(t *testing.T) {
	forTransports(t, func(t *testing.T, connect func(client, server Handler) *pair) {
		p, sub, pub := subscribed(t, connect, TrackInfo{}, SubscribeOptions{})
		w, err := pub.OpenSubgroup(wire.SubgroupHeader{})
		if err != nil {
			t.Fatal(err)
		}
		w.SetDeadline(time.Now().Add(50 * time.Millisecond))
		if err := w.WriteObject(Object{}, make([]byte, 3*quicConfig().InitialStreamReceiveWindow)); !errors.Is(
			err,
			ErrDeliveryTimeout,
		) {
			t.Fatalf("write beyond the deadline: %v", err)
		}
		if n := p.server.Stats().DeliveryTimeouts; n != 1 {
			t.Errorf("%d delivery timeouts counted", n)
		}
		r, err := sub.AcceptSubgroup(p.ctx)
		if err != nil {
			t.Fatal(err)
		}
		_, err = r.NextObject()
		if err == nil {
			_, err = r.ReadPayload(nil, 1<<26)
		}
		if e := (*StreamError)(nil); !errors.As(err, &e) || e.Code != wire.StreamDeliveryTimeout {
			t.Errorf("read: %v", err)
		}
	})
}

// A subgroup reset before its first object must still be identified.
func TestHeaderSurvivesReset(t *testing.T) {
	forTransports(t, func(t *testing.T, connect func(client, server Handler) *pair) {
		ends := map[string]func(pub *Publication, w *SubgroupWriter){
			"Reset": func(_ *Publication, w *SubgroupWriter) { w.Reset(wire.StreamTooFarBehind) },
			"Abort": func(_ *Publication, w *SubgroupWriter) { w.Abort(wire.StreamTooFarBehind) },
			"Done":  func(pub *Publication, _ *SubgroupWriter) { _ = pub.Done(wire.DoneTrackEnded, "") },
		}
		for name, end := range ends {
			t.Run(name, func(t *testing.T) {
				p, sub, pub := subscribed(t, connect, TrackInfo{}, SubscribeOptions{})
				w, err := pub.OpenSubgroup(wire.SubgroupHeader{Group: 77})
				if err != nil {
					t.Fatal(err)
				}
				end(pub, w)
				r, err := sub.AcceptSubgroup(p.ctx)
				if err != nil || r.Group != 77 {
					t.Fatalf("subgroup %+v, %v", r, err)
				}
				if _, err := r.NextObject(); err == nil {
					t.Error("received an object of a reset subgroup")
				}
			})
		}
	})
}

// A subscriber that does not read exhausts flow control. Dropped subgroups must neither end its
// session nor lose their headers.
func TestResetWithoutCredit(t *testing.T) {
	if !quiccc.Patched() {
		t.Skip("the published quic-go ends such a session (docs/adr/0002-patched-quic-go.md)")
	}
	forTransports(t, func(t *testing.T, connect func(client, server Handler) *pair) {
		p, sub, pub := subscribed(t, connect, TrackInfo{}, SubscribeOptions{})
		open := func(group uint64) *SubgroupWriter {
			w, err := pub.OpenSubgroup(wire.SubgroupHeader{Group: group})
			if err != nil {
				t.Fatal(err)
			}
			return w
		}
		filler := make([]byte, quicConfig().InitialStreamReceiveWindow-1000)
		var last uint64
		var err error
		for ; err == nil; last++ {
			w := open(last)
			w.SetDeadline(time.Now().Add(300 * time.Millisecond))
			if err = w.WriteObject(Object{}, filler); err == nil {
				err = w.Close()
			}
		}
		if !errors.Is(err, ErrDeliveryTimeout) {
			t.Fatalf("group %d: %v", last, err)
		}
		for range 10 {
			open(last).Reset(wire.StreamTooFarBehind)
			last++
		}
		reset := 0
		for seen := uint64(0); seen < last; seen++ {
			r, err := sub.AcceptSubgroup(p.ctx)
			if err != nil {
				t.Fatalf("after %d of %d subgroups: %v", seen, last, err)
			}
			if _, err = r.NextObject(); err == nil {
				_, err = r.ReadPayload(nil, 1<<26)
			}
			if e := (*StreamError)(nil); errors.As(err, &e) && e.Code == wire.StreamTooFarBehind {
				reset++
			}
		}
		if reset != 10 {
			t.Errorf("%d subgroups were reset, want 10", reset)
		}
	})
}

// An unread subscription must not block another or grow without bound.
func TestUnreadSubscriptionDoesNotBlock(t *testing.T) {
	forTransports(t, func(t *testing.T, connect func(client, server Handler) *pair) {
		pubs := make(chan *Publication, 1)
		p := connect(Handler{}, source(pubs, TrackInfo{}))
		subscribe := func(name string) (*Subscription, *Publication) {
			sub, err := p.client.Subscribe(p.ctx, track(name), SubscribeOptions{})
			if err != nil {
				t.Fatal(err)
			}
			return sub, <-pubs
		}
		unread, unreadPub := subscribe("unread")
		read, readPub := subscribe("read")
		frame := make([]byte, 400_000)
		send := func(pub *Publication, group uint64) {
			w, err := pub.OpenSubgroup(wire.SubgroupHeader{Group: group})
			if err == nil {
				err = w.WriteObject(Object{}, frame)
			}
			if err == nil {
				err = w.Close()
			}
			// The peer refuses subgroups that are too far behind.
			if e := (*StreamError)(nil); err != nil && (!errors.As(err, &e) || e.Code != wire.StreamTooFarBehind) {
				t.Errorf("group %d of %s: %v", group, pub.Track(), err)
			}
		}
		const groups = maxSubgroupQueue + 40
		var wg sync.WaitGroup
		wg.Go(func() {
			for g := range uint64(groups) {
				send(unreadPub, g)
				send(readPub, g)
			}
		})
		for range groups {
			r, err := read.AcceptSubgroup(p.ctx)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := r.NextObject(); err != nil {
				t.Fatal(err)
			}
			if _, err := r.ReadPayload(nil, len(frame)); err != nil {
				t.Fatal(err)
			}
		}
		wg.Wait()
		until(
			t,
			p.ctx,
			"overflow counted",
			func() bool { return p.client.Stats().SubgroupsRefused >= groups-maxSubgroupQueue },
		)
		unread.mu.Lock()
		n := len(unread.queue)
		unread.mu.Unlock()
		if n > maxSubgroupQueue {
			t.Errorf("%d subgroups queued", n)
		}
		r, err := unread.AcceptSubgroup(p.ctx)
		if err != nil {
			t.Fatal(err)
		}
		if r.Group < 40-8 { // streams may be slightly reordered
			t.Errorf("group %d is kept before newer ones", r.Group)
		}
	})
}

func TestUnacceptedSubgroupIsRefused(t *testing.T) {
	subs := make(chan *Subscription, 1)
	p, sessions := rawClient(t, acceptAll(subs), hasty(func(w *waits, soon time.Duration) { w.accept = soon }))
	p.setup(&wire.Setup{})
	s := <-sessions
	p.read(p.bidi(message(t, &wire.Publish{Track: track("t"), TrackAlias: 5})))
	sub := <-subs
	str := p.uni(wire.SubgroupHeader{TrackAlias: 5}.Append(nil))
	select {
	case <-str.Context().Done():
	case <-p.ctx.Done():
		t.Fatal("not refused")
	}
	until(t, p.ctx, "counted", func() bool { return s.Stats().SubgroupsRefused == 1 })
	sub.mu.Lock()
	defer sub.mu.Unlock()
	if len(sub.queue) != 0 || len(sub.open) != 0 || sub.expiry != nil {
		t.Errorf("left: %d queued, %d open, timer %v", len(sub.queue), len(sub.open), sub.expiry)
	}
}

// A publisher that closes its direction has not revoked the namespace.
func TestPublishedNamespaceOutlivesFIN(t *testing.T) {
	forTransports(t, func(t *testing.T, connect func(client, server Handler) *pair) {
		requests := make(chan *NamespaceRequest, 1)
		p := connect(Handler{}, Handler{PublishNamespace: func(r *NamespaceRequest) {
			if r.startResponse() == nil {
				defer r.running.Done()
				_ = r.stream.send(&wire.RequestOK{})
				r.stream.finish()
				requests <- r
			}
		}})
		n, err := p.client.PublishNamespace(p.ctx, testTrack.Namespace)
		if err != nil {
			t.Fatal(err)
		}
		r := <-requests
		select {
		case <-n.Done():
			t.Fatalf("ended by FIN: %v", n.Err())
		case <-time.After(50 * time.Millisecond):
		}
		r.stream.str.stop(wire.StreamCancelled) // revoked
		select {
		case <-n.Done():
		case <-p.ctx.Done():
			t.Fatal("not revoked by STOP_SENDING")
		}
	})
}

func TestNamespaceDiscovery(t *testing.T) {
	forTransports(t, func(t *testing.T, connect func(client, server Handler) *pair) {
		announcers := make(chan *Announcer, 8)
		discover := func(r *DiscoveryRequest) { _ = r.Accept(func(a *Announcer) { announcers <- a }) }
		p := connect(Handler{}, Handler{SubscribeNamespace: discover, SubscribeTracks: discover})
		ctx, cancel := context.WithCancel(p.ctx)
		defer cancel()
		prefix := Namespace{"holocast"}
		events, err := p.client.SubscribeNamespace(ctx, prefix)
		if err != nil {
			t.Fatal(err)
		}
		a := <-announcers
		var e *RequestError
		for _, overlapping := range []Namespace{nil, prefix, {"holocast", "room"}} {
			if _, err := p.client.SubscribeNamespace(ctx, overlapping); !errors.As(err, &e) ||
				e.Code != wire.RequestPrefixOverlap {
				t.Errorf("prefix %v: %v", overlapping, err)
			}
		}
		if err := p.client.SubscribeTracks(ctx, prefix); err != nil {
			t.Errorf("overlap with a SUBSCRIBE_NAMESPACE prefix: %v", err)
		}
		ns := Namespace{"holocast", "room"}
		_ = a.Added(ns)
		_ = a.Done(ns)
		for _, added := range []bool{true, false} {
			if ev := <-events; ev.Added != added || !ev.Namespace.Equal(ns) {
				t.Errorf("event %+v", ev)
			}
		}
		cancel()
		if _, open := <-events; open {
			t.Error("an event after the end")
		}
		if _, err := p.client.SubscribeNamespace(p.ctx, prefix); err != nil {
			t.Errorf("again after the end: %v", err)
		}
		_ = a.Done(ns)
	})
}

// Blocked calls return when the session ends.
func TestCloseUnblocksEverything(t *testing.T) {
	forTransports(t, func(t *testing.T, connect func(client, server Handler) *pair) {
		pubs := make(chan *Publication, 1)
		p := connect(Handler{}, Handler{
			Subscribe: func(r *SubscribeRequest) {
				if r.Track.Name == "pending" {
					<-r.Context().Done()
					return
				}
				pub, _ := r.Accept(TrackInfo{})
				pubs <- pub
			},
			Fetch: func(r *FetchRequest) {
				if w, err := r.Accept(r.End, false, nil); err == nil {
					_ = w.WriteObject(wire.FetchObject{}, make([]byte, 1<<25))
				}
			},
			PublishNamespace:   func(r *NamespaceRequest) { _ = r.Accept(nil) },
			SubscribeNamespace: func(r *DiscoveryRequest) { _ = r.Accept(func(a *Announcer) { _ = a.Added(Namespace{"a"}) }) },
			Publish:            func(r *PublishRequest) { <-r.Context().Done() },
		})
		sub, err := p.client.Subscribe(p.ctx, testTrack, SubscribeOptions{})
		if err != nil {
			t.Fatal(err)
		}
		pub := <-pubs
		ns, err := p.client.PublishNamespace(p.ctx, Namespace{"x"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.client.SubscribeNamespace(p.ctx, nil); err != nil { // its event is never read
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		blocks := func(what string, f func() error) {
			wg.Go(func() {
				if f() == nil {
					t.Errorf("%s: no error", what)
				}
			})
		}
		w, err := pub.OpenSubgroup(wire.SubgroupHeader{})
		if err != nil {
			t.Fatal(err)
		}
		blocks("write", func() error { return w.WriteObject(Object{}, make([]byte, 1<<25)) })
		quiet, err := pub.OpenSubgroup(wire.SubgroupHeader{Group: 1})
		if err == nil {
			err = quiet.BeginObject(Object{PayloadLength: 1})
		}
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			r, err := sub.AcceptSubgroup(p.ctx)
			if err != nil {
				t.Fatal(err)
			}
			if r.Group == 1 {
				blocks("read", func() error {
					_, err := r.NextObject()
					if err == nil {
						_, err = r.ReadPayload(nil, 10)
					}
					return err
				})
			}
		}
		blocks("AcceptSubgroup", func() error { _, err := sub.AcceptSubgroup(context.Background()); return err })
		blocks("AcceptDatagram", func() error { _, err := sub.AcceptDatagram(context.Background()); return err })
		blocks("Subscribe", func() error {
			_, err := p.client.Subscribe(context.Background(), track("pending"), SubscribeOptions{})
			return err
		})
		blocks(
			"Publish",
			func() error { _, err := p.client.Publish(context.Background(), track("pub"), TrackInfo{}); return err },
		)
		blocks("Fetch", func() error {
			f, err := p.client.Fetch(context.Background(), testTrack, Location{}, Location{Group: 1}, FetchOptions{})
			for err == nil {
				time.Sleep(time.Millisecond)
				err = p.client.Err()
			}
			if f != nil {
				f.Cancel()
			}
			return err
		})
		blocks("PublishedNamespace", func() error { <-ns.Done(); return ns.Err() })
		blocks("Subscription", func() error { <-sub.Done(); return sub.Err() })
		blocks("Publication", func() error { <-pub.Context().Done(); return context.Cause(pub.Context()) })
		time.Sleep(50 * time.Millisecond) // usually lets them block; the result does not depend on it
		p.server.Close(wire.InternalError, "unplugged")
		wg.Wait()
	})
}

// While a publication ends, OpenSubgroup must return an error or a subgroup that is reset.
func TestOpenSubgroupWhileDone(t *testing.T) {
	forTransports(t, func(t *testing.T, connect func(client, server Handler) *pair) {
		pubs := make(chan *Publication, 1)
		p := connect(Handler{}, source(pubs, TrackInfo{}))
		for i := range 50 {
			if _, err := p.client.Subscribe(p.ctx, track(fmt.Sprint(i)), SubscribeOptions{}); err != nil {
				t.Fatal(err)
			}
			pub := <-pubs
			var opening sync.WaitGroup
			opening.Go(func() {
				for {
					w, err := pub.OpenSubgroup(wire.SubgroupHeader{})
					var done *DoneError
					switch {
					case errors.Is(err, ErrStreamsBlocked):
					case errors.As(err, &done):
						return
					case err != nil:
						t.Errorf("OpenSubgroup: %v", err)
						return
					case w == nil:
						t.Error("OpenSubgroup: neither a subgroup nor an error")
						return
					default:
						_ = w.Close()
					}
				}
			})
			if err := pub.Done(wire.DoneTrackEnded, ""); err != nil {
				t.Error(err)
			}
			opening.Wait()
		}
	})
}

// Random interleavings of the operations of both sides must leave no state behind.
func TestRandomInterleavings(t *testing.T) {
	forTransports(t, func(t *testing.T, connect func(client, server Handler) *pair) {
		p := connect(Handler{}, Handler{Subscribe: func(r *SubscribeRequest) {
			rng := rand.New(rand.NewPCG(r.stream.id, 1))
			if rng.IntN(10) == 0 {
				_ = r.Reject(wire.RequestDoesNotExist, "")
				return
			}
			pub, err := r.Accept(TrackInfo{})
			if err != nil {
				return
			}
			for g := range uint64(rng.IntN(6)) {
				w, err := pub.OpenSubgroup(wire.SubgroupHeader{Group: g})
				if err != nil {
					break
				}
				_ = w.WriteObject(Object{}, make([]byte, rng.IntN(3000)))
				switch rng.IntN(4) {
				case 0:
					w.Reset(wire.StreamTooFarBehind)
				case 1: // ends with the subscription
				default:
					_ = w.Close()
				}
				_ = pub.SendDatagram(Datagram{Group: g})
			}
			if rng.IntN(2) == 0 {
				_ = pub.Done(wire.DoneTrackEnded, "")
			}
		}})
		var wg sync.WaitGroup
		for worker := range 8 {
			wg.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(worker), 2))
				for range 40 {
					ctx, cancel := context.WithTimeout(p.ctx, time.Duration(1+rng.IntN(20))*time.Millisecond)
					sub, err := p.client.Subscribe(
						ctx,
						track(fmt.Sprint("t", worker)),
						SubscribeOptions{Paused: rng.IntN(4) == 0},
					)
					if err == nil {
						for range rng.IntN(5) {
							switch rng.IntN(3) {
							case 0:
								_, _ = sub.Update(ctx, Parameters{Forward: new(rng.IntN(2) == 0)})
							case 1:
								if r, err := sub.AcceptSubgroup(ctx); err == nil && rng.IntN(2) == 0 {
									_, _ = r.NextObject()
									r.Cancel(wire.StreamCancelled)
								}
							case 2:
								_, _ = sub.AcceptDatagram(ctx)
							}
						}
						sub.Cancel()
					}
					cancel()
				}
			})
		}
		wg.Wait()
		if err := p.client.Err(); err != nil {
			t.Fatalf("session ended: %v", err)
		}
		until(t, p.ctx, "both sides idle", func() bool { return p.client.idle() && p.server.idle() })
	})
}
