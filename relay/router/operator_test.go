package router

import (
	"errors"
	"strings"
	"testing"
	"time"

	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/origin"
)

// TestBlock checks that a block ends a session for its publisher and its viewers, that new ones are
// refused, also at a prefix, and that all works again after its end.
func TestBlock(t *testing.T) {
	r := start(t, Config{})
	tr := origin.NewTrack(points, nil, origin.Limits{})
	pub, viewer := r.publish(tr), r.dial(moqt.Handler{})
	sub := r.subscribe(viewer)
	r.Block([]moqt.Namespace{{"holocast", "other"}})
	if err := pub.ns.Err(); err != nil {
		t.Fatalf("the block of another session: %v", err)
	}

	r.Block([]moqt.Namespace{session})
	<-pub.ns.Done()
	_, err := sub.AcceptSubgroup(r.ctx)
	var done *moqt.DoneError
	if !errors.As(err, &done) || done.Code != wire.DoneUnauthorized {
		t.Errorf("the viewer's subscription ends with %v", err)
	}
	refused := func(what string, err error) {
		t.Helper()
		var e *moqt.RequestError
		if !errors.As(err, &e) || e.Code != wire.RequestUninterested || !strings.Contains(e.Reason, "blocked") {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, err = pub.PublishNamespace(r.ctx, session)
	refused("the namespace", err)
	_, err = pub.PublishNamespace(r.ctx, append(session[:2:2], "below"))
	refused("a namespace below", err)
	r.eventually("the end of the relay's subscription", func() bool { // it prevents a PUBLISH of the track
		_, err = pub.Publish(r.ctx, points, moqt.TrackInfo{})
		e := (*moqt.RequestError)(nil)
		return !errors.As(err, &e) || e.Code != wire.RequestDuplicateSubscription
	})
	refused("a track", err)
	_, err = viewer.Subscribe(r.ctx, points, moqt.SubscribeOptions{})
	refused("a subscription", err)
	if _, err := pub.PublishNamespace(r.ctx, session[:1]); err != nil {
		t.Errorf("a prefix: %v", err)
	}
	_, err = viewer.Subscribe(r.ctx, points, moqt.SubscribeOptions{})
	refused("a subscription below a published prefix", err)

	r.Block(nil)
	if _, err := pub.PublishNamespace(r.ctx, session); err != nil {
		t.Fatal(err)
	}
	r.subscribe(viewer)
}

// TestKick checks that the client with a number is removed, and no other one.
func TestKick(t *testing.T) {
	r := start(t, Config{})
	stays := r.dial(moqt.Handler{})
	r.eventually("a session", func() bool { return len(r.View().Sessions) == 1 })
	goes := r.dial(moqt.Handler{})
	r.eventually("two sessions", func() bool { return len(r.View().Sessions) == 2 })
	n := r.View().Sessions[1].Number
	if err := r.Kick(n, "enough"); err != nil {
		t.Fatal(err)
	}
	<-goes.Context().Done()
	var e *moqt.SessionError
	if !errors.As(goes.Err(), &e) || e.Code != wire.Unauthorized || e.Reason != "enough" {
		t.Errorf("%v", goes.Err())
	}
	if stays.Err() != nil {
		t.Error("the other one is removed too")
	}
	r.eventually("one session", func() bool { return len(r.View().Sessions) == 1 })
	for _, unknown := range []uint64{n, 0, 1 << 63} {
		if err := r.Kick(unknown, ""); !errors.Is(err, ErrNoClient) {
			t.Errorf("client %d: %v", unknown, err)
		}
	}
}

// TestMove checks that a client is asked to move once, to the given relay.
func TestMove(t *testing.T) {
	r := start(t, Config{})
	to := make(chan string, 1)
	s := r.dial(moqt.Handler{Goaway: func(url string, _ time.Duration) { to <- url }})
	r.eventually("a session", func() bool { return len(r.View().Sessions) == 1 })
	n := r.View().Sessions[0].Number
	if err := r.Move(n, "moqt://other.example:4443", time.Minute); err != nil {
		t.Fatal(err)
	}
	if got := <-to; got != "moqt://other.example:4443" {
		t.Errorf("moved to %q", got)
	}
	if err := r.Move(n, "moqt://other.example:4443", time.Minute); !errors.Is(err, ErrMoving) {
		t.Errorf("a second time: %v", err)
	}
	if v := r.View().Sessions; len(v) != 1 || !v[0].Moving {
		t.Errorf("%+v", v)
	}
	s.Close(wire.NoError, "")
	r.eventually("no session", func() bool { return len(r.View().Sessions) == 0 })
	if err := r.Move(n, "moqt://other.example:4443", time.Minute); !errors.Is(err, ErrNoClient) {
		t.Errorf("after it has left: %v", err)
	}
}
