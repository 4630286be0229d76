package moqt

import (
	"errors"
	"testing"

	"holocast/internal/moqt/wire"
)

// TestPublishDuringSubscribe checks that a PUBLISH of a track replaces our unanswered SUBSCRIBE,
// which ends before PUBLISH_OK is sent (§5.1).
func TestPublishDuringSubscribe(t *testing.T) {
	track := TrackName{Namespace: Namespace{"holocast"}, Name: "points"}
	asked, withdrawn := make(chan struct{}), make(chan struct{})
	taken := make(chan *Subscription, 1)
	p := connect(t, "moqt", Handler{Publish: func(r *PublishRequest) {
		sub, err := r.Accept(SubscribeOptions{})
		if err != nil {
			t.Error(err)
		}
		taken <- sub
	}}, Handler{Subscribe: func(r *SubscribeRequest) {
		close(asked)
		<-r.Context().Done() // never answered
		close(withdrawn)
	}})
	refused := make(chan error, 1)
	go func() {
		_, err := p.client.Subscribe(p.ctx, track, SubscribeOptions{})
		refused <- err
	}()
	<-asked
	// The publisher has received our SUBSCRIBE, so its role is taken. Free the role, as if its
	// PUBLISH had crossed the SUBSCRIBE.
	p.server.mu.Lock()
	clear(p.server.sending)
	p.server.mu.Unlock()
	pub, err := p.server.Publish(p.ctx, track, TrackInfo{})
	if err != nil {
		t.Fatal(err)
	}
	if e := (*RequestError)(nil); !errors.As(<-refused, &e) || e.Code != wire.RequestDuplicateSubscription {
		t.Errorf("our SUBSCRIBE ended with %v", e)
	}
	<-withdrawn
	sub := <-taken
	w, err := pub.OpenSubgroup(wire.SubgroupHeader{Group: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.WriteObject(Object{}, []byte("x")), w.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := sub.AcceptSubgroup(p.ctx); err != nil {
		t.Error(err)
	}
}

// TestPublishPaused checks that a track published with forward state 0 is not sent until the
// subscriber requests it (§5.1), which a PUBLISH_OK without FORWARD does (§10.2.12).
func TestPublishPaused(t *testing.T) {
	track := TrackName{Namespace: Namespace{"holocast"}, Name: "points"}
	requests := make(chan *bool, 1)
	taken := make(chan *Subscription, 1)
	p := connect(t, "moqt", Handler{Publish: func(r *PublishRequest) {
		requests <- r.Parameters.Forward
		sub, _ := r.Accept(SubscribeOptions{Paused: len(taken) == 0})
		taken <- sub
	}}, Handler{})
	pub, err := p.server.Publish(p.ctx, track, TrackInfo{Paused: true})
	if err != nil {
		t.Fatal(err)
	}
	if f := <-requests; f == nil || *f {
		t.Errorf("PUBLISH said forward %v", f)
	}
	if pub.Forwarding() {
		t.Error("object sent to a subscriber that accepted the track paused")
	}
	if _, err := (<-taken).Update(p.ctx, Parameters{Forward: new(true)}); err != nil {
		t.Fatal(err)
	}
	if !pub.Forwarding() {
		t.Error("object not sent after the subscriber resumed")
	}
	if p := (&Session{}).accepted(Parameters{}); p.Forward == nil || !*p.Forward {
		t.Error("PUBLISH_OK without FORWARD does not resume")
	}
}

// TestPrefixMoves checks that a SUBSCRIBE_NAMESPACE may change its prefix to one that does not
// overlap another request of the session (§10.9.2).
func TestPrefixMoves(t *testing.T) {
	announcers := make(chan *Announcer, 2)
	moved := make(chan Namespace, 1)
	p := connect(t, "moqt", Handler{}, Handler{SubscribeNamespace: func(r *DiscoveryRequest) {
		r.Move = func(prefix Namespace) (func(), error) {
			if prefix.Equal(Namespace{"secret"}) {
				return nil, &RequestError{Code: wire.RequestUnauthorized, Reason: "no"}
			}
			return func() { moved <- prefix }, nil
		}
		_ = r.Accept(func(a *Announcer) { announcers <- a })
	}})
	follow := func(prefix ...string) (*Namespaces, *Announcer) {
		n, err := p.client.FollowNamespaces(p.ctx, prefix)
		if err != nil {
			t.Fatal(err)
		}
		return n, <-announcers
	}
	n, a := follow("a", "b")
	expect := func(added bool, ns ...string) {
		t.Helper()
		if e := <-n.Events; e.Added != added || !e.Namespace.Equal(ns) {
			t.Errorf("got %+v, want %v %v", e, ns, added)
		}
	}
	for _, ns := range []Namespace{{"a", "b", "one"}, {"a", "b", "c", "two"}} {
		go func() { _ = a.Added(ns) }()
		expect(true, ns...)
	}
	done := make(chan error, 1)
	go func() { done <- n.Move(p.ctx, Namespace{"a", "b", "c"}) }()
	expect(false, "a", "b", "one")
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if to := <-moved; !to.Equal(Namespace{"a", "b", "c"}) {
		t.Errorf("moved to %v", to)
	}
	// The first namespace is already announced; the second is outside the prefix.
	if err := errors.Join(a.Added(Namespace{"a", "b", "c", "two"}), a.Added(Namespace{"a", "x"})); err != nil {
		t.Fatal(err)
	}
	go func() { _ = a.Added(Namespace{"a", "b", "c", "three"}) }()
	expect(true, "a", "b", "c", "three")

	other, _ := follow("z")
	code := func(err error) wire.RequestCode {
		var e *RequestError
		if !errors.As(err, &e) {
			t.Errorf("not refused: %v", err)
			return 0
		}
		return e.Code
	}
	if c := code(other.Move(p.ctx, Namespace{"a"})); c != wire.RequestPrefixOverlap {
		t.Errorf("overlapping prefix: %v", c)
	}
	if _, more := <-other.Events; more {
		t.Error("the refused update did not end the request")
	}
	if c := code(n.Move(p.ctx, Namespace{"secret"})); c != wire.RequestUnauthorized {
		t.Errorf("forbidden prefix: %v", c)
	}
}

// TestPrefixesOfTracks checks that SUBSCRIBE_TRACKS prefixes must not overlap each other but may
// overlap those of SUBSCRIBE_NAMESPACE (§10.19), and that they can change (§10.9.2).
func TestPrefixesOfTracks(t *testing.T) {
	moved := make(chan Namespace, 1)
	discover := func(r *DiscoveryRequest) {
		r.Move = func(prefix Namespace) (func(), error) { return func() { moved <- prefix }, nil }
		_ = r.Accept(func(*Announcer) {})
	}
	p := connect(t, "moqt", Handler{}, Handler{SubscribeNamespace: discover, SubscribeTracks: discover})
	if _, err := p.client.FollowNamespaces(p.ctx, Namespace{"a", "b"}); err != nil {
		t.Fatal(err)
	}
	subscribe := func(prefix ...string) (*requestStream, error) {
		return p.client.openAccepted(
			p.ctx,
			func(id uint64) wire.Message { return &wire.SubscribeTracks{RequestID: id, Prefix: prefix} },
		)
	}
	refused := func(what string, err error) {
		t.Helper()
		if e := (*RequestError)(nil); !errors.As(err, &e) || e.Code != wire.RequestPrefixOverlap {
			t.Errorf("%s: %v", what, err)
		}
	}
	tracks, err := subscribe("a", "b")
	if err != nil {
		t.Fatal(err)
	}
	_, err = subscribe("a")
	refused("a prefix of another one's", err)
	update := func(prefix ...string) error {
		to := Namespace(prefix)
		m := &wire.RequestUpdate{RequestID: p.client.takeRequestID(), Parameters: Parameters{NamespacePrefix: &to}}
		if err := tracks.send(m); err != nil {
			t.Fatal(err)
		}
		_, err := tracks.awaitResponse(p.ctx, 0)
		return err
	}
	if err := update("c"); err != nil {
		t.Fatal(err)
	}
	if to := <-moved; !to.Equal(Namespace{"c"}) {
		t.Errorf("moved to %v", to)
	}
	if _, err := subscribe("a"); err != nil { // no longer in use
		t.Fatal(err)
	}
	refused("an update to a prefix below another one's", update("a", "b"))
}
