package moqt

import (
	"bufio"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"holocast/internal/moqt/wire"
)

// TestVersions checks that both ends use the draft preferred by the server, or by the client over
// WebTransport, and that a client without a common draft gets an error.
func TestVersions(t *testing.T) {
	d18, d19 := wire.Draft18, wire.Draft19
	for _, tt := range []struct {
		client, server []wire.Version
		want           wire.Version
		fails          bool
	}{
		{nil, nil, wire.Versions()[0], false},
		{[]wire.Version{d18}, nil, d18, false},
		{[]wire.Version{d19}, nil, d19, false},
		{nil, []wire.Version{d18}, d18, false},
		{nil, []wire.Version{d19}, d19, false},
		{[]wire.Version{d19, d18}, []wire.Version{d18, d19}, d18, false},
		{[]wire.Version{d18}, []wire.Version{d19}, 0, true},
	} {
		for _, scheme := range transports {
			t.Run(fmt.Sprintf("%s %v %v", scheme, tt.client, tt.server), func(t *testing.T) {
				p, err := connectVersions(t, scheme, Handler{}, Handler{}, tt.client, tt.server)
				if tt.fails {
					if err == nil {
						t.Error("connected")
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				want := tt.want
				if scheme == "https" && tt.client != nil && slices.Contains(tt.server, tt.client[0]) {
					want = tt.client[0]
				}
				if c, s := p.client.Version(), p.server.Version(); c != want || s != want {
					t.Errorf("client speaks %v, server %v, want %v", c, s, want)
				}
			})
		}
	}
}

// connect19 connects a client and a server that support only draft-19.
func connect19(t *testing.T, client, server Handler) *pair {
	t.Helper()
	p, err := connectVersions(t, "moqt", client, server, []wire.Version{wire.Draft19}, []wire.Version{wire.Draft19})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

var track19 = TrackName{Namespace: Namespace{"holocast"}, Name: "points"}

// TestGoaway19 checks that a draft-19 GOAWAY has no request ID.
func TestGoaway19(t *testing.T) {
	told := make(chan string, 1)
	p := connect19(t, Handler{Goaway: func(uri string, _ time.Duration) { told <- uri }}, Handler{})
	go func() { _ = p.server.Goaway(p.ctx, "moqt://elsewhere.example/", time.Minute) }()
	select {
	case uri := <-told:
		if uri != "moqt://elsewhere.example/" {
			t.Errorf("moved to %q", uri)
		}
	case <-p.client.Context().Done():
		t.Fatal(p.client.Err())
	}
}

// TestSubscriptionsOfOneTrack19 checks that draft-19 allows several subscriptions to a track in a
// session, each with its own alias, and that draft-18 refuses the second.
func TestSubscriptionsOfOneTrack19(t *testing.T) {
	pubs := make(chan *Publication, 2)
	p := connect19(t, Handler{}, Handler{Subscribe: func(r *SubscribeRequest) {
		pub, err := r.Accept(TrackInfo{Alias: new(uint64(70))})
		if err != nil {
			t.Error(err)
		}
		pubs <- pub
	}})
	aliases := map[uint64]bool{}
	for range 2 {
		sub, err := p.client.Subscribe(p.ctx, track19, SubscribeOptions{})
		if err != nil {
			t.Fatal(err)
		}
		aliases[sub.Alias()] = true
		// Our own client subscribes to a track only once, so make it forget its role.
		p.client.mu.Lock()
		clear(p.client.receiving)
		p.client.mu.Unlock()
	}
	if len(aliases) != 2 || p.server.Publishing() != 2 {
		t.Errorf("aliases %v, %d publications", aliases, p.server.Publishing())
	}
}

// TestFinIsNoCancellation19 checks that a FIN from the peer does not cancel a request in draft-19
// (§3.3.2).
func TestFinIsNoCancellation19(t *testing.T) {
	gone := make(chan error, 1)
	p := connect19(t, Handler{}, Handler{PublishNamespace: func(r *NamespaceRequest) { gone <- r.Accept(nil) }})
	ns, err := p.client.PublishNamespace(p.ctx, Namespace{"holocast"})
	if err != nil {
		t.Fatal(err)
	}
	ns.r.finish()
	select {
	case err := <-gone:
		t.Fatalf("withdrawn by a FIN: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	ns.Withdraw()
	if err := <-gone; err == nil {
		t.Error("withdrawn without a reset")
	}
}

// TestUpdateByThePublisher19 checks that a draft-19 publisher may not update a SUBSCRIBE (§10.9).
func TestUpdateByThePublisher19(t *testing.T) {
	p := connect19(t, Handler{}, Handler{Subscribe: func(r *SubscribeRequest) {
		if _, err := r.Accept(TrackInfo{}); err == nil {
			_ = r.stream.send(&wire.RequestUpdate{RequestID: r.Session().takeRequestID()})
		}
	}})
	if _, err := p.client.Subscribe(p.ctx, track19, SubscribeOptions{}); err != nil {
		t.Fatal(err)
	}
	<-p.client.Context().Done()
	if e := (*SessionError)(nil); !errors.As(p.client.Err(), &e) || e.Code != wire.ProtocolViolation {
		t.Errorf("the session ended with %v", p.client.Err())
	}
}

// TestSubgroupTimeouts19 checks that the properties of the first object override the track's
// timeouts, but not the subscriber's (§8).
func TestSubgroupTimeouts19(t *testing.T) {
	track := Properties(
		wire.AppendKeyValues(
			nil,
			wire.KeyValue{Type: wire.PropertyObjectDeliveryTimeout, Int: 100},
			wire.KeyValue{Type: wire.PropertySubgroupDeliveryTimeout, Int: 200},
		),
	)
	first := Properties(wire.AppendKeyValues(nil, wire.KeyValue{Type: wire.PropertyObjectDeliveryTimeout, Int: 900}))
	for v, want := range map[wire.Version]time.Duration{
		wire.Draft18: 100 * time.Millisecond, wire.Draft19: 500 * time.Millisecond,
	} {
		s := &Session{version: v, conn: orderedConn{}, ctx: t.Context(), preferredAliases: map[uint64]string{}}
		p := s.newPublication(track19, nil, TrackInfo{Properties: track})
		if err := p.begin(Parameters{ObjectDeliveryTimeout: new(uint64(500))}, nil); err != nil {
			t.Fatal(err)
		}
		object, subgroup := p.SubgroupTimeouts(first)
		if object != want || subgroup != 200*time.Millisecond {
			t.Errorf("%v: %v and %v", v, object, subgroup)
		}
	}
}

// TestParametersOfTracks19 checks that subscriptions start with the parameters of their
// SUBSCRIBE_TRACKS, and that PUBLISH includes the group order (§10.19.1).
func TestParametersOfTracks19(t *testing.T) {
	orders := make(chan *GroupOrder, 1)
	p := connect19(t, Handler{Publish: func(r *PublishRequest) {
		orders <- r.Parameters.GroupOrder
		_, _ = r.Accept(SubscribeOptions{})
	}}, Handler{})
	pub, err := p.server.Publish(p.ctx, track19, TrackInfo{Defaults: Parameters{
		GroupOrder: new(
			wire.Descending,
		), SubscriberPriority: new(uint8(9)), Filter: &Filter{Type: wire.FilterAbsoluteStart, Start: Location{Group: 7}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if o := <-orders; o == nil || *o != wire.Descending {
		t.Errorf("PUBLISH said %v", o)
	}
	if pub.Priority() != 9 || pub.Start() != (Location{Group: 7}) {
		t.Errorf("priority %d from %v", pub.Priority(), pub.Start())
	}
}

// TestRangeFilters19 checks that range filters, which we do not offer, are refused.
func TestRangeFilters19(t *testing.T) {
	p := connect19(t, Handler{}, Handler{Subscribe: func(r *SubscribeRequest) { _, _ = r.Accept(TrackInfo{}) }})
	str, err := p.client.conn.openStream(p.ctx)
	if err != nil {
		t.Fatal(err)
	}
	body := wire.AppendVarint(nil, p.client.takeRequestID())
	body = append(body, 1, 1, 'a', 1, 'b')               // a namespace of one field, a name
	body = append(body, 2, 0x25, 3, 0, 1, 2, 0, 2, 1, 9) // two SUBGROUP_FILTERs: sets 0 and 1
	message := append([]byte{byte(wire.TypeSubscribe), 0, byte(len(body))}, body...)
	if _, err := str.Write(message); err != nil {
		t.Fatal(err)
	}
	r := &requestStream{s: p.client, str: str, br: bufio.NewReader(str)}
	m, err := r.read()
	if e, ok := m.(*wire.RequestError); !ok || e.Code != wire.RequestInvalidFilter {
		t.Errorf("answered %+v, %v", m, err)
	}
}
