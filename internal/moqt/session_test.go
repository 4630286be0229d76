package moqt

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"holocast/internal/devcert"
	"holocast/internal/leaktest"
	"holocast/internal/moqt/wire"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// pair is a listener and a connected client.
type pair struct {
	ctx            context.Context
	client, server *Session
	ln             *Listener
}

// overPaths is the transport of sessions over two QUIC paths.
const overPaths = "paths"

var transports = []string{"moqt", "https", overPaths, "wss"}

func forTransports(t *testing.T, f func(t *testing.T, connect func(client, server Handler) *pair)) {
	for _, scheme := range transports {
		t.Run(scheme, func(t *testing.T) {
			f(t, func(client, server Handler) *pair { return connect(t, scheme, client, server) })
		})
	}
}

// forDraft18 is forTransports for behavior that later drafts changed.
func forDraft18(t *testing.T, f func(t *testing.T, connect func(client, server Handler) *pair)) {
	forDrafts(t, []wire.Version{wire.Draft18}, f)
}

func forDrafts(
	t *testing.T, drafts []wire.Version, f func(t *testing.T, connect func(client, server Handler) *pair),
) {
	for _, v := range drafts {
		for _, scheme := range transports {
			t.Run(v.String()+" "+scheme, func(t *testing.T) {
				f(t, func(client, server Handler) *pair {
					p, err := connectVersions(t, scheme, client, server, []wire.Version{v}, []wire.Version{v})
					if err != nil {
						t.Fatal(err)
					}
					return p
				})
			})
		}
	}
}

// joins are drafts that differ in how subscribers join late: by a joining FETCH or by a fill.
var joins = []wire.Version{wire.Draft18, wire.Draft20, wire.Draft22}

// patient returns timeouts that do not expire on a busy machine.
func patient() *waits {
	w := defaultWaits()
	w.setup, w.header, w.request, w.send = time.Minute, time.Minute, time.Minute, time.Minute
	w.orphan, w.done, w.join, w.accept = time.Minute, time.Minute, time.Minute, time.Minute
	return &w
}

func connect(t testing.TB, scheme string, client, server Handler) *pair {
	t.Helper()
	p, err := connectVersions(t, scheme, client, server, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// connectVersions connects a client and a server with these versions in order of preference. No
// versions means all of them.
func connectVersions(t testing.TB, scheme string, client, server Handler, cv, sv []wire.Version) (*pair, error) {
	t.Helper()
	return connectConfigs(
		t,
		scheme,
		client,
		server,
		Config{waits: patient(), Versions: cv},
		Config{waits: patient(), Versions: sv},
	)
}

// connectConfigs connects a client and a server with these configurations.
func connectConfigs(t testing.TB, scheme string, client, server Handler, cc, sc Config) (*pair, error) {
	t.Helper()
	return connectListener(t, scheme, client, server, cc, ListenConfig{Config: sc})
}

// connectListener connects a client with the first configuration to a server with the second.
func connectListener(
	t testing.TB, scheme string, client, server Handler, cc Config, sc ListenConfig,
) (*pair, error) {
	t.Helper()
	if scheme == overPaths {
		scheme, cc.Paths = "moqt", []Path{{Name: "one"}, {Name: "two"}}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	t.Cleanup(cancel)
	cert, err := devcert.Generate(time.Now(), "localhost", "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	sc.Log = slog.New(slog.DiscardHandler)
	cc.Log = cmp.Or(cc.Log, sc.Log)
	sc.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
	ln, err := Listen("127.0.0.1:0", sc)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	accepted := make(chan *Session, 1)
	go func() {
		s, err := ln.Accept(ctx)
		if err == nil {
			s.Serve(server)
		}
		accepted <- s
	}()
	url := scheme + "://" + address(t, ln, scheme, sc.TLS) + "/room?x=1"
	c, err := Dial(ctx, url, devcert.Pinned(devcert.Hash(cert)), client, cc)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { c.Close(wire.NoError, "") })
	s := <-accepted
	if s == nil {
		t.Fatal("no session accepted")
	}
	return &pair{ctx, c, s, ln}, nil
}

// address returns the address of a listener for a URL's scheme. WebSockets need an HTTP server.
func address(t testing.TB, ln *Listener, scheme string, conf *tls.Config) string {
	t.Helper()
	if scheme != "wss" {
		return ln.Addr().String()
	}
	web := httptest.NewUnstartedServer(http.HandlerFunc(ln.ServeWebSocket))
	web.TLS = conf
	web.StartTLS()
	t.Cleanup(web.Close)
	return web.Listener.Addr().String()
}

var testTrack = TrackName{Namespace: Namespace{"holocast", "test"}, Name: "points/0/full"}

func TestSubscribeReceivesSubgroup(t *testing.T) {
	forTransports(t, func(t *testing.T, connect func(client, server Handler) *pair) {
		payload := bytes.Repeat([]byte("0123456789"), 100_000)
		done := make(chan error, 1)
		p := connect(Handler{}, Handler{Subscribe: func(r *SubscribeRequest) {
			pub, err := r.Accept(TrackInfo{Largest: func() (Location, bool) { return Location{Group: 6}, true }})
			if err != nil {
				done <- err
				return
			}
			go func() {
				done <- func() error {
					w, err := pub.OpenSubgroup(wire.SubgroupHeader{
						Group: 7, Mode: wire.SubgroupIDZero, Priority: 64, FirstObject: true,
					})
					if err != nil {
						return err
					}
					if err := w.WriteObject(Object{ID: 0}, payload); err != nil {
						return err
					}
					if err := w.Close(); err != nil {
						return err
					}
					return pub.Done(wire.DoneTrackEnded, "over")
				}()
			}()
		}})
		if p.server.Path() != "/room?x=1" {
			t.Errorf("path %q", p.server.Path())
		}
		sub, err := p.client.Subscribe(p.ctx, testTrack, SubscribeOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if sub.Largest == nil || *sub.Largest != (Location{Group: 6}) {
			t.Errorf("largest %v", sub.Largest)
		}
		r, err := sub.AcceptSubgroup(p.ctx)
		if err != nil {
			t.Fatal(err)
		}
		if r.Group != 7 || r.Priority != 64 || !r.FirstObject {
			t.Errorf("header %+v", r.SubgroupHeader)
		}
		o, err := r.NextObject()
		if err != nil {
			t.Fatal(err)
		}
		got, err := r.ReadPayload(nil, 1<<24)
		if err != nil || o.ID != 0 || !bytes.Equal(got, payload) {
			t.Fatalf("object %+v of %d bytes, %v", o, len(got), err)
		}
		if _, err := r.NextObject(); err != io.EOF {
			t.Fatalf("after the last object: %v", err)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		_, err = sub.AcceptSubgroup(p.ctx)
		var end *DoneError
		if !errors.As(err, &end) || end.Code != wire.DoneTrackEnded || end.StreamCount != 1 {
			t.Fatalf("end of subscription: %v", err)
		}
	})
}

func TestUnansweredAndUnsupportedRequests(t *testing.T) {
	forTransports(t, func(t *testing.T, connect func(client, server Handler) *pair) {
		p := connect(Handler{}, Handler{Subscribe: func(*SubscribeRequest) {}})
		var e *RequestError
		if _, err := p.client.Subscribe(p.ctx, testTrack, SubscribeOptions{}); !errors.As(err, &e) ||
			e.Code != wire.RequestInternalError {
			t.Errorf("unanswered: %v", err)
		}
		if _, err := p.client.Fetch(p.ctx, testTrack, Location{}, Location{Group: 1}, FetchOptions{}); !errors.As(
			err,
			&e,
		) ||
			e.Code != wire.RequestNotSupported {
			t.Errorf("unsupported: %v", err)
		}
		reserved := TrackName{Namespace: Namespace{".session"}, Name: "x"}
		if _, err := p.client.Subscribe(p.ctx, reserved, SubscribeOptions{}); !errors.As(err, &e) ||
			e.Code != wire.RequestDoesNotExist {
			t.Errorf("reserved: %v", err)
		}
	})
}

func TestPublishAndJoiningFetch(t *testing.T) {
	forDrafts(t, joins, func(t *testing.T, connect func(client, server Handler) *pair) {
		subs := make(chan *Subscription, 1)
		p := connect(Handler{Fetch: func(r *FetchRequest) {
			w, err := r.Accept(r.End, false, nil)
			if err != nil {
				t.Error(err)
				return
			}
			for g := r.Start.Group; g <= r.End.Group; g++ {
				if err := w.WriteObject(wire.FetchObject{Group: g, Priority: 128}, []byte{byte(g)}); err != nil {
					t.Error(err)
				}
			}
			if err := w.Close(); err != nil {
				t.Error(err)
			}
		}}, Handler{Publish: func(r *PublishRequest) {
			sub, err := r.Accept(SubscribeOptions{})
			if err != nil {
				t.Error(err)
				return
			}
			subs <- sub
		}})
		pub, err := p.client.Publish(
			p.ctx,
			testTrack,
			TrackInfo{Largest: func() (Location, bool) { return Location{Group: 9}, true }},
		)
		if err != nil {
			t.Fatal(err)
		}
		sub := <-subs
		f, err := p.server.FetchJoining(p.ctx, sub, 2, FetchOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for g := uint64(7); g <= 9; g++ {
			o, err := f.Next()
			if err != nil || o.Group != g {
				t.Fatalf("group %d: %+v, %v", g, o, err)
			}
			b, err := f.ReadPayload(nil, 10)
			if err != nil || len(b) != 1 || b[0] != byte(g) {
				t.Fatalf("payload %v, %v", b, err)
			}
		}
		if _, err := f.Next(); err != io.EOF {
			t.Fatalf("end of fetch: %v", err)
		}
		if err := pub.SendDatagram(Datagram{Group: 10, Object: 1, Payload: []byte("hi")}); err != nil {
			t.Fatal(err)
		}
		d, err := sub.AcceptDatagram(p.ctx)
		if err != nil || d.Group != 10 || d.Object != 1 || string(d.Payload) != "hi" {
			t.Fatalf("datagram %+v, %v", d, err)
		}
		sub.Cancel()
		select {
		case <-pub.Context().Done():
		case <-p.ctx.Done():
			t.Fatal("the publisher did not notice the cancelled subscription")
		}
	})
}

func TestWebTransportStreamsTakePriorities(t *testing.T) {
	p := connect(t, "https", Handler{}, Handler{})
	str, err := p.client.conn.openUni()
	if err != nil {
		t.Fatal(err)
	}
	s := str.(wtSend).SendStream
	if belowWebTransport(s) == nil {
		t.Error("webtransport-go moved the field that belowWebTransport reads")
	}
	str.reset(wire.StreamCancelled)
	request, err := p.client.conn.openStream(p.ctx)
	if err != nil {
		t.Fatal(err)
	}
	if belowWebTransport(sendSide(request.(wtStream).Stream)) == nil {
		t.Error("webtransport-go moved the field that sendSide reads")
	}
	request.reset(wire.StreamCancelled)
}

// TestJoinOfRefused checks that the joining FETCH of a refused SUBSCRIBE is answered, not reset.
func TestJoinOfRefused(t *testing.T) {
	forDraft18(t, func(t *testing.T, connect func(client, server Handler) *pair) {
		fetched := make(chan error, 1)
		p := connect(Handler{}, Handler{
			Subscribe: func(r *SubscribeRequest) { _ = r.Reject(wire.RequestDoesNotExist, "no such track") },
			// The session refuses the joining FETCH of a refused SUBSCRIBE. A standalone FETCH
			// shows that the session continues.
			Fetch: func(r *FetchRequest) { fetched <- r.Reject(wire.RequestDoesNotExist, "no such track") },
		})
		if _, err := p.client.Subscribe(p.ctx, testTrack, SubscribeOptions{Join: true}); err == nil {
			t.Fatal("subscribed")
		}
		until(t, p.ctx, "the fetch is answered", func() bool {
			p.client.mu.Lock()
			defer p.client.mu.Unlock()
			return p.client.openRequests == 0 && len(p.client.fetches) == 0
		})
		until(t, p.ctx, "no request ID is missing", func() bool {
			p.server.mu.Lock()
			defer p.server.mu.Unlock()
			return len(p.server.requests.gaps) == 0 && p.server.requests.next == 4
		})
		_, _ = p.client.Fetch(p.ctx, testTrack, Location{}, Location{Group: 1}, FetchOptions{})
		if err := <-fetched; err != nil {
			t.Error(err)
		}
	})
}

// TestJoin checks that the FETCH sent with SUBSCRIBE returns the current group, and that another is
// sent if the peer refused it.
func TestJoin(t *testing.T) {
	for name, refusals := range map[string]int32{"at once": 0, "refused once": 1} {
		t.Run(name, func(t *testing.T) {
			drafts := joins
			if refusals > 0 {
				drafts = drafts[:1] // a fill cannot arrive before its SUBSCRIBE
			}
			forDrafts(t, drafts, func(t *testing.T, connect func(client, server Handler) *pair) {
				pubs := make(chan *Publication, 1)
				server := source(pubs, TrackInfo{Largest: func() (Location, bool) { return Location{Group: 3}, true }})
				var asked atomic.Int32
				server.Fetch = func(r *FetchRequest) {
					if asked.Add(1) <= refusals {
						_ = r.Reject(wire.RequestInvalidJoiningRequestID, "too early")
						return
					}
					w, err := r.Accept(r.End, false, nil)
					if err != nil {
						t.Error(err)
						return
					}
					if err := w.WriteObject(wire.FetchObject{Group: 3}, []byte("now")); err != nil {
						t.Error(err)
					}
					_ = w.Close()
				}
				p := connect(Handler{}, server)
				sub, err := p.client.Subscribe(p.ctx, track("t"), SubscribeOptions{Join: true})
				if err != nil {
					t.Fatal(err)
				}
				f, err := sub.Joined(p.ctx)
				if err != nil {
					t.Fatal(err)
				}
				o, err := f.Next()
				if err != nil {
					t.Fatal(err)
				}
				if b, err := f.ReadPayload(nil, 10); err != nil || string(b) != "now" || o.Group != 3 {
					t.Errorf("group %d, %q, %v", o.Group, b, err)
				}
				f.Cancel()
			})
		})
	}
}

// TestUnreadJoinIsCancelled checks that an unread joining FETCH ends with its subscription.
func TestUnreadJoinIsCancelled(t *testing.T) {
	forDrafts(t, joins, func(t *testing.T, connect func(client, server Handler) *pair) {
		pubs := make(chan *Publication, 1)
		server := source(pubs, TrackInfo{Largest: func() (Location, bool) { return Location{Group: 3}, true }})
		began, over := make(chan struct{}), make(chan struct{})
		server.Fetch = func(r *FetchRequest) {
			defer close(over)
			w, err := r.Accept(r.End, false, nil)
			close(began)
			for err == nil { // until the reader is gone
				err = w.WriteObject(wire.FetchObject{Group: 3}, make([]byte, 1<<20))
			}
		}
		p := connect(Handler{}, server)
		sub, err := p.client.Subscribe(p.ctx, track("t"), SubscribeOptions{Join: true})
		if err != nil {
			t.Fatal(err)
		}
		select {
		case <-began: // if cancelled early, it may never begin
		case <-p.ctx.Done():
			t.Fatal("no fetch")
		}
		sub.Cancel()
		select {
		case <-over:
		case <-p.ctx.Done():
			t.Error("the fetch continues")
		}
	})
}
