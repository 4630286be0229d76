package moqt

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"reflect"
	"testing"
	"time"

	"github.com/quic-go/quic-go"

	"holocast/internal/devcert"
	"holocast/internal/moqt/wire"
)

// rawPeer is a peer at the QUIC level that can write arbitrary bytes.
type rawPeer struct {
	*quic.Conn
	t       *testing.T
	ctx     context.Context
	control *quic.SendStream
}

// hasty returns a configuration with long timeouts. The function change sets some of them to soon.
func hasty(change func(w *waits, soon time.Duration)) Config {
	w := patient()
	change(w, 200*time.Millisecond)
	return Config{waits: w}
}

func testTLS(t *testing.T) (server, client *tls.Config) {
	t.Helper()
	cert, err := devcert.Generate(time.Now(), "localhost", "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{cert}}, devcert.Pinned(devcert.Hash(cert))
}

// rawClient connects to a server with the given handler and configuration, without sending SETUP.
// The server's session arrives on the channel after SETUP.
func rawClient(t *testing.T, h Handler, cfg Config) (*rawPeer, <-chan *Session) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	serverTLS, clientTLS := testTLS(t)
	cfg.Log = slog.New(slog.DiscardHandler)
	if cfg.waits == nil {
		cfg.waits = patient()
	}
	ln, err := Listen("127.0.0.1:0", ListenConfig{Config: cfg, TLS: serverTLS})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	sessions := make(chan *Session, 1)
	go func() {
		if s, err := ln.Accept(ctx); err == nil {
			s.Serve(h)
			sessions <- s
		}
	}()
	clientTLS.NextProtos = []string{wire.ALPN}
	c, err := quic.DialAddr(ctx, ln.Addr().String(), clientTLS, quicConfig())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.CloseWithError(0, "") })
	return &rawPeer{Conn: c, t: t, ctx: ctx}, sessions
}

func (p *rawPeer) setup(m *wire.Setup) {
	p.control = p.uni(message(p.t, m))
}

// uni opens a stream that starts with b.
func (p *rawPeer) uni(b []byte) *quic.SendStream {
	p.t.Helper()
	str, err := p.OpenUniStream()
	if err != nil {
		p.t.Fatal(err)
	}
	if _, err := str.Write(b); err != nil {
		p.t.Fatal(err)
	}
	return str
}

// bidi opens a request stream that starts with b.
func (p *rawPeer) bidi(b []byte) *quic.Stream {
	p.t.Helper()
	str, err := p.OpenStream()
	if err != nil {
		p.t.Fatal(err)
	}
	if _, err := str.Write(b); err != nil {
		p.t.Fatal(err)
	}
	return str
}

func (p *rawPeer) read(str *quic.Stream) wire.Message {
	p.t.Helper()
	_ = str.SetReadDeadline(time.Now().Add(time.Minute))
	m, err := wire.ReadMessage(bufio.NewReaderSize(str, 16))
	if err != nil {
		p.t.Fatalf("reading a response: %v", err)
	}
	return m
}

func (p *rawPeer) expectClose(code wire.SessionCode) {
	p.t.Helper()
	select {
	case <-p.Context().Done():
	case <-p.ctx.Done():
		p.t.Fatalf("the session was not closed; want %s", code)
	}
	var e *quic.ApplicationError
	if err := context.Cause(p.Context()); !errors.As(err, &e) || !e.Remote || wire.SessionCode(e.ErrorCode) != code {
		p.t.Fatalf("session closed with %v, want %s", err, code)
	}
}

func message(t *testing.T, m wire.Message) []byte {
	t.Helper()
	b, err := wire.AppendMessage(nil, m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func track(name string) TrackName { return TrackName{Namespace: Namespace{"raw"}, Name: name} }

// acceptAll returns the handler of a server that publishes nothing and accepts everything.
func acceptAll(subs chan<- *Subscription) Handler {
	return Handler{
		Subscribe: func(r *SubscribeRequest) { _, _ = r.Accept(TrackInfo{}) },
		Publish: func(r *PublishRequest) {
			if sub, err := r.Accept(SubscribeOptions{}); err == nil && subs != nil {
				subs <- sub
			}
		},
		PublishNamespace:   func(r *NamespaceRequest) { _ = r.Accept(nil) },
		SubscribeNamespace: func(r *DiscoveryRequest) { _ = r.Accept(func(*Announcer) {}) },
		Fetch: func(r *FetchRequest) {
			if w, err := r.Accept(r.End, false, nil); err == nil {
				_ = w.Close()
			}
		},
	}
}

func TestHostilePeerClosesSession(t *testing.T) {
	subscribe := func(id uint64, tokens ...wire.Token) *wire.Subscribe {
		return &wire.Subscribe{RequestID: id, Track: track("t"), Parameters: Parameters{AuthorizationTokens: tokens}}
	}
	tests := []struct {
		name  string
		setup *wire.Setup // for act nil
		act   func(p *rawPeer)
		want  wire.SessionCode
	}{
		{"second control stream", nil, func(p *rawPeer) { p.setup(&wire.Setup{}) }, wire.ProtocolViolation},
		{
			"SETUP twice on the control stream",
			nil,
			func(p *rawPeer) { _, _ = p.control.Write(message(p.t, &wire.Setup{})) },
			wire.ProtocolViolation,
		},
		{"control stream closed", nil, func(p *rawPeer) { _ = p.control.Close() }, wire.ProtocolViolation},
		{"control stream reset", nil, func(p *rawPeer) { p.control.CancelWrite(1) }, wire.ProtocolViolation},
		{
			"control stream cut inside a message",
			nil,
			func(p *rawPeer) { _, _ = p.control.Write([]byte{0x10, 0, 9}); _ = p.control.Close() },
			wire.ProtocolViolation,
		},
		{
			"unknown message on the control stream",
			nil,
			func(p *rawPeer) { _, _ = p.control.Write([]byte{0x3f, 0, 0}) },
			wire.ProtocolViolation,
		},
		{
			"request on the control stream",
			nil,
			func(p *rawPeer) { _, _ = p.control.Write(message(p.t, subscribe(0))) },
			wire.ProtocolViolation,
		},
		{"malformed path", &wire.Setup{Path: "relative", HasPath: true}, nil, wire.MalformedPath},
		{"path with a space", &wire.Setup{Path: "/a b\x7f", HasPath: true}, nil, wire.MalformedPath},
		{"malformed authority", &wire.Setup{Authority: "a/b", HasAuthority: true}, nil, wire.MalformedAuthority},
		{"unknown stream type", nil, func(p *rawPeer) { p.uni([]byte{0x3f, 1, 2, 3}) }, wire.ProtocolViolation},
		{"reserved subgroup mode", nil, func(p *rawPeer) { p.uni([]byte{0x16, 0, 0, 0}) }, wire.ProtocolViolation},
		{"unknown request", nil, func(p *rawPeer) { p.bidi([]byte{0x3f, 0, 0}) }, wire.ProtocolViolation},
		{
			"response as a request",
			nil,
			func(p *rawPeer) { p.bidi(message(p.t, &wire.SubscribeOK{})) },
			wire.ProtocolViolation,
		},
		{
			"GOAWAY as a request",
			nil,
			func(p *rawPeer) { p.bidi(message(p.t, &wire.Goaway{RequestID: new(uint64(1))})) },
			wire.ProtocolViolation,
		},
		{
			"length beyond the payload",
			nil,
			func(p *rawPeer) { p.bidi([]byte{0x3, 0, 5, 0, 1, 1, 'x', 1, 'y', 0}) },
			wire.ProtocolViolation,
		},
		{
			"request cut by FIN",
			nil,
			func(p *rawPeer) { _ = p.bidi([]byte{0x3, 0, 9, 0}).Close() },
			wire.ProtocolViolation,
		},
		{
			"request ID of the wrong parity",
			nil,
			func(p *rawPeer) { p.bidi(message(p.t, subscribe(1))) },
			wire.InvalidRequestID,
		},
		{"request ID twice", nil, func(p *rawPeer) {
			p.bidi(message(p.t, subscribe(0)))
			p.bidi(message(p.t, &wire.Subscribe{RequestID: 0, Track: track("other")}))
		}, wire.InvalidRequestID},
		{"request ID of an update twice", nil, func(p *rawPeer) {
			str := p.bidi(message(p.t, subscribe(0)))
			_, _ = str.Write(message(p.t, &wire.RequestUpdate{RequestID: 0}))
		}, wire.InvalidRequestID},
		{"SUBSCRIBE in place of an update", nil, func(p *rawPeer) {
			str := p.bidi(message(p.t, subscribe(0)))
			_, _ = str.Write(message(p.t, subscribe(2)))
		}, wire.ProtocolViolation},
		{"GOAWAY with a URI from a client", nil, func(p *rawPeer) {
			_, _ = p.control.Write(message(p.t, &wire.Goaway{NewSessionURI: "moqt://x", RequestID: new(uint64(1))}))
		}, wire.ProtocolViolation},
		{
			"GOAWAY without a request ID",
			nil,
			func(p *rawPeer) { _, _ = p.control.Write(message(p.t, &wire.Goaway{})) },
			wire.ProtocolViolation,
		},
		{
			"GOAWAY of the wrong parity",
			nil,
			func(p *rawPeer) { _, _ = p.control.Write(message(p.t, &wire.Goaway{RequestID: new(uint64(2))})) },
			wire.InvalidRequestID,
		},
		{"GOAWAY twice", nil, func(p *rawPeer) {
			b := message(p.t, &wire.Goaway{RequestID: new(uint64(1))})
			_, _ = p.control.Write(append(b, b...))
		}, wire.ProtocolViolation},
		{"request's GOAWAY with a request ID", nil, func(p *rawPeer) {
			str := p.bidi(message(p.t, subscribe(0)))
			_, _ = str.Write(message(p.t, &wire.Goaway{RequestID: new(uint64(1))}))
		}, wire.ProtocolViolation},
		{"request's GOAWAY with a URI from a client", nil, func(p *rawPeer) {
			str := p.bidi(message(p.t, subscribe(0)))
			_, _ = str.Write(message(p.t, &wire.Goaway{NewSessionURI: "moqt://x"}))
		}, wire.ProtocolViolation},
		{"unknown token alias", nil, func(p *rawPeer) {
			p.bidi(message(p.t, subscribe(0, wire.Token{AliasType: wire.TokenUseAlias, Alias: 7})))
		}, wire.UnknownAuthTokenAlias},
		{"token alias after its deletion", nil, func(p *rawPeer) {
			p.bidi(message(p.t, subscribe(0,
				wire.Token{AliasType: wire.TokenRegister, Alias: 7, Value: []byte("v")},
				wire.Token{AliasType: wire.TokenDelete, Alias: 7},
				wire.Token{AliasType: wire.TokenUseAlias, Alias: 7})))
		}, wire.UnknownAuthTokenAlias},
		{"token alias twice", nil, func(p *rawPeer) {
			reg := wire.Token{AliasType: wire.TokenRegister, Alias: 7, Value: []byte("v")}
			p.bidi(message(p.t, subscribe(0, reg, reg)))
		}, wire.DuplicateAuthTokenAlias},
		{"token cache overflow", nil, func(p *rawPeer) {
			p.bidi(
				message(
					p.t,
					subscribe(0, wire.Token{AliasType: wire.TokenRegister, Alias: 7, Value: make([]byte, 100)}),
				),
			)
		}, wire.AuthTokenCacheOverflow},
		{"track alias of another track", nil, func(p *rawPeer) {
			p.read(p.bidi(message(p.t, &wire.Publish{RequestID: 0, Track: track("a"), TrackAlias: 5})))
			p.bidi(message(p.t, &wire.Publish{RequestID: 2, Track: track("b"), TrackAlias: 5}))
		}, wire.DuplicateTrackAlias},
		{
			"unknown datagram type",
			nil,
			func(p *rawPeer) { _ = p.SendDatagram([]byte{0x3f, 0, 0, 0}) },
			wire.ProtocolViolation,
		},
		{"datagram cut off", nil, func(p *rawPeer) { _ = p.SendDatagram([]byte{0x00, 5}) }, wire.ProtocolViolation},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p, sessions := rawClient(t, acceptAll(nil), Config{MaxAuthTokenCacheSize: 64})
			if tt.act == nil {
				p.setup(tt.setup)
			} else {
				p.setup(&wire.Setup{})
				<-sessions
				tt.act(p)
			}
			p.expectClose(tt.want)
		})
	}
}

func TestPeerWithoutSetupTimesOut(t *testing.T) {
	cfg := hasty(func(w *waits, soon time.Duration) { w.setup = soon })
	t.Run("no stream", func(t *testing.T) {
		p, _ := rawClient(t, Handler{}, cfg)
		p.expectClose(wire.ControlMessageTimeout)
	})
	t.Run("half a SETUP", func(t *testing.T) {
		p, _ := rawClient(t, Handler{}, cfg)
		p.uni(message(t, &wire.Setup{Implementation: "slow"})[:4])
		p.expectClose(wire.ControlMessageTimeout)
	})
	t.Run("requests only", func(t *testing.T) {
		p, _ := rawClient(t, acceptAll(nil), cfg)
		p.bidi(message(t, &wire.Subscribe{Track: track("t")}))
		p.expectClose(wire.ControlMessageTimeout)
	})
}

// Streams before SETUP must wait (§3.3).
func TestRequestBeforeSetup(t *testing.T) {
	p, _ := rawClient(t, acceptAll(nil), Config{})
	str := p.bidi(message(t, &wire.Subscribe{Track: track("t")}))
	p.setup(&wire.Setup{})
	if m := p.read(str); m.Type() != wire.TypeSubscribeOK {
		t.Fatalf("answer %s", m.Type())
	}
}

func TestStreamsWithoutHeaderAreRefused(t *testing.T) {
	p, sessions := rawClient(t, acceptAll(nil), hasty(func(w *waits, soon time.Duration) { w.header = soon }))
	p.setup(&wire.Setup{})
	s := <-sessions
	data, request := p.uni([]byte{0x10}), p.bidi([]byte{0x03, 0})
	for _, ctx := range []context.Context{data.Context(), request.Context()} {
		select {
		case <-ctx.Done():
		case <-p.ctx.Done():
			t.Fatal("a stream without a header was not refused")
		}
	}
	if err := s.Err(); err != nil {
		t.Fatalf("session ended: %v", err)
	}
}

func TestUnknownAliasIsHeldThenRefused(t *testing.T) {
	p, sessions := rawClient(t, acceptAll(nil), hasty(func(w *waits, soon time.Duration) { w.orphan = soon }))
	p.setup(&wire.Setup{})
	s := <-sessions
	streams := make([]*quic.SendStream, 0, maxOrphanStreams+5)
	for g := range uint64(maxOrphanStreams + 5) {
		streams = append(streams, p.uni(wire.SubgroupHeader{TrackAlias: 99, Group: g}.Append(nil)))
	}
	for range maxOrphanDatagrams + 5 {
		d := Datagram{TrackAlias: 99, Object: 1}
		b, err := d.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.SendDatagram(b); err != nil {
			t.Fatal(err)
		}
	}
	for _, str := range streams {
		select {
		case <-str.Context().Done():
		case <-p.ctx.Done():
			t.Fatal("a stream of an unknown alias was not refused")
		}
	}
	if got := s.Stats().SubgroupsUnknown; got != uint64(len(streams)) {
		t.Errorf("%d unknown subgroups counted, want %d", got, len(streams))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.orphanStreams != 0 || len(s.orphans) > maxOrphanDatagrams {
		t.Errorf("%d orphan streams, %d orphan datagrams left", s.orphanStreams, len(s.orphans))
	}
}

// Objects may arrive before the message with their alias (§11.1).
func TestObjectsBeforePublish(t *testing.T) {
	subs := make(chan *Subscription, 1)
	p, _ := rawClient(t, acceptAll(subs), Config{})
	p.setup(&wire.Setup{})
	str := p.uni(wire.SubgroupHeader{TrackAlias: 5, Group: 3}.Append(nil))
	_, _ = str.Write([]byte{0, 2, 'h', 'i'})
	_ = str.Close()
	d := Datagram{TrackAlias: 5, Group: 3, Object: 9, Payload: []byte("ho")}
	b, _ := d.Append(nil)
	_ = p.SendDatagram(b)
	time.Sleep(20 * time.Millisecond) // usually lets both arrive first; the result does not depend on it
	req := p.bidi(message(t, &wire.Publish{Track: track("t"), TrackAlias: 5}))
	p.read(req)
	sub := <-subs
	if got, err := sub.AcceptDatagram(p.ctx); err != nil || string(got.Payload) != "ho" {
		t.Fatalf("datagram %v, %v", got, err)
	}
	r, err := sub.AcceptSubgroup(p.ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.NextObject(); err != nil {
		t.Fatal(err)
	}
	if got, err := r.ReadPayload(nil, 10); err != nil || string(got) != "hi" {
		t.Fatalf("payload %q, %v", got, err)
	}
}

// PUBLISH_DONE may arrive before the streams that it counts (§10.11).
func TestPublishDoneBeforeStreams(t *testing.T) {
	subs := make(chan *Subscription, 1)
	p, _ := rawClient(t, acceptAll(subs), Config{})
	p.setup(&wire.Setup{})
	req := p.bidi(message(t, &wire.Publish{Track: track("t"), TrackAlias: 5}))
	p.read(req)
	_, _ = req.Write(message(t, &wire.PublishDone{Code: wire.DoneTrackEnded, StreamCount: 2}))
	_ = req.Close()
	sub := <-subs
	for g := range uint64(2) {
		if err := sub.Err(); err != nil {
			t.Fatalf("subscription ended before its streams: %v", err)
		}
		_ = p.uni(wire.SubgroupHeader{TrackAlias: 5, Group: g}.Append(nil)).Close()
		if _, err := sub.AcceptSubgroup(p.ctx); err != nil {
			t.Fatal(err)
		}
	}
	var done *DoneError
	if _, err := sub.AcceptSubgroup(p.ctx); !errors.As(err, &done) || done.Code != wire.DoneTrackEnded {
		t.Fatalf("end: %v", err)
	}
}

// If the stream count is never reached, the wait ends after a timeout.
func TestPublishDoneWithWrongCount(t *testing.T) {
	subs := make(chan *Subscription, 1)
	p, _ := rawClient(t, acceptAll(subs), hasty(func(w *waits, soon time.Duration) { w.done = soon }))
	p.setup(&wire.Setup{})
	req := p.bidi(message(t, &wire.Publish{Track: track("t"), TrackAlias: 5}))
	p.read(req)
	_, _ = req.Write(message(t, &wire.PublishDone{Code: wire.DoneTrackEnded, StreamCount: wire.StreamCountUnknown}))
	select {
	case <-(<-subs).Done():
	case <-p.ctx.Done():
		t.Fatal("the subscription never ended")
	}
}

func TestMalformedTrackEndsSubscriptionOnly(t *testing.T) {
	tests := []struct {
		name string
		send func(p *rawPeer)
	}{
		{"object after end of group", func(p *rawPeer) {
			p.uni(append(wire.SubgroupHeader{TrackAlias: 5}.Append(nil), 0, 0, byte(wire.StatusEndOfGroup), 0, 1, 'x'))
		}},
		{"object ID gap beyond the object", func(p *rawPeer) {
			props := wire.AppendKeyValues(nil, wire.KeyValue{Type: wire.PropertyPriorObjectIDGap, Int: 9})
			b := wire.SubgroupHeader{TrackAlias: 5, HasProperties: true}.Append(nil)
			p.uni(append(append(append(b, 0, byte(len(props))), props...), 1, 'x'))
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			subs := make(chan *Subscription, 1)
			p, sessions := rawClient(t, acceptAll(subs), Config{})
			p.setup(&wire.Setup{})
			s := <-sessions
			req := p.bidi(message(t, &wire.Publish{Track: track("t"), TrackAlias: 5}))
			p.read(req)
			sub := <-subs
			tt.send(p)
			r, err := sub.AcceptSubgroup(p.ctx)
			if err != nil {
				t.Fatal(err)
			}
			for err == nil {
				_, err = r.NextObject()
			}
			<-sub.Done()
			if !errors.Is(err, wire.ErrMalformedTrack) || !errors.Is(sub.Err(), wire.ErrMalformedTrack) {
				t.Errorf("reader %v, subscription %v", err, sub.Err())
			}
			if s.Err() != nil {
				t.Errorf("session ended: %v", s.Err())
			}
			if _, err := wire.ReadMessage(bufio.NewReader(req)); err == nil {
				t.Error("the publisher was not notified")
			}
		})
	}
}

// A FIN inside an object is a violation (§11.4), even if the object is skipped.
func TestObjectCutByFIN(t *testing.T) {
	for _, tt := range []struct {
		name string
		body []byte
		read func(r *SubgroupReader) error
	}{
		{"read", []byte{0, 9, 'x'}, func(r *SubgroupReader) error { _, err := r.ReadPayload(nil, 100); return err }},
		{"skipped", []byte{0, 9, 'x'}, func(r *SubgroupReader) error { _, err := r.NextObject(); return err }},
		{
			"of 2^64-1 bytes, skipped",
			[]byte{0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 'x'},
			func(r *SubgroupReader) error { _, err := r.NextObject(); return err },
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			subs := make(chan *Subscription, 1)
			p, _ := rawClient(t, acceptAll(subs), Config{})
			p.setup(&wire.Setup{})
			p.read(p.bidi(message(t, &wire.Publish{Track: track("t"), TrackAlias: 5})))
			_ = p.uni(append(wire.SubgroupHeader{TrackAlias: 5}.Append(nil), tt.body...)).Close()
			r, err := (<-subs).AcceptSubgroup(p.ctx)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := r.NextObject(); err != nil {
				t.Fatal(err)
			}
			if err := tt.read(r); err == nil {
				t.Error("no error")
			}
			p.expectClose(wire.ProtocolViolation)
		})
	}
}

// A joining FETCH may arrive before its SUBSCRIBE (§10.12.2).
func TestJoiningFetchOvertakesSubscribe(t *testing.T) {
	largest := Location{Group: 9, Object: 4}
	fetched := make(chan *FetchRequest, 1)
	p, _ := rawClient(t, Handler{
		Subscribe: func(r *SubscribeRequest) {
			_, _ = r.Accept(TrackInfo{Largest: func() (Location, bool) { return largest, true }})
		},
		Fetch: func(r *FetchRequest) { fetched <- r },
	}, Config{})
	p.setup(&wire.Setup{})
	p.bidi(
		message(
			t,
			&wire.Fetch{RequestID: 2, FetchType: wire.FetchRelativeJoining, JoiningRequestID: 0, JoiningStart: 3},
		),
	)
	time.Sleep(20 * time.Millisecond)
	p.read(p.bidi(message(t, &wire.Subscribe{RequestID: 0, Track: track("t")})))
	select {
	case r := <-fetched:
		if r.Start != (Location{Group: 6}) || r.End != (Location{Group: 9, Object: 5}) || !r.Track.Equal(track("t")) ||
			*r.Joining != largest {
			t.Errorf("range %v to %v of %s, joining %v", r.Start, r.End, r.Track, r.Joining)
		}
	case <-p.ctx.Done():
		t.Fatal("the fetch was not served")
	}
}

// A joining FETCH waits as long as its SUBSCRIBE waits for a publisher.
func TestJoiningFetchWaitsForRendezvous(t *testing.T) {
	info := TrackInfo{Largest: func() (Location, bool) { return Location{Group: 9}, true }}
	for _, tt := range []struct {
		name   string
		answer func(r *SubscribeRequest)
		want   any
	}{
		{"a publisher came", func(r *SubscribeRequest) { _, _ = r.Accept(info) }, &wire.FetchOK{}},
		{"none came", func(r *SubscribeRequest) { _ = r.Reject(wire.RequestTimeout, "none") }, &wire.RequestError{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			pending, came := make(chan struct{}), make(chan struct{})
			h := acceptAll(nil)
			h.Subscribe = func(r *SubscribeRequest) {
				close(pending)
				<-came
				tt.answer(r)
			}
			h.Fetch = func(r *FetchRequest) { _, _ = r.Accept(r.End, false, nil) }
			p, _ := rawClient(t, h, hasty(func(w *waits, soon time.Duration) { w.join = soon }))
			p.setup(&wire.Setup{})
			subscribe := p.bidi(message(t, &wire.Subscribe{RequestID: 0, Track: track("t")}))
			<-pending
			fetch := p.bidi(message(t, &wire.Fetch{RequestID: 2, FetchType: wire.FetchRelativeJoining}))
			time.Sleep(500 * time.Millisecond) // longer than the wait for a late SUBSCRIBE
			close(came)
			p.read(subscribe)
			if got := p.read(fetch); reflect.TypeOf(got) != reflect.TypeOf(tt.want) {
				t.Errorf("%T %+v, want %T", got, got, tt.want)
			}
		})
	}
}

func TestJoiningFetchRefused(t *testing.T) {
	tests := []struct {
		name      string
		subscribe *wire.Subscribe // request 0; nil = none
		fetch     wire.Fetch      // request 2
		info      TrackInfo
		want      wire.RequestCode
	}{
		{
			"no such subscription",
			nil,
			wire.Fetch{FetchType: wire.FetchRelativeJoining, JoiningRequestID: 0},
			TrackInfo{},
			wire.RequestInvalidJoiningRequestID,
		},
		{
			"a request that we never sent",
			nil,
			wire.Fetch{FetchType: wire.FetchRelativeJoining, JoiningRequestID: 1},
			TrackInfo{},
			wire.RequestInvalidJoiningRequestID,
		},
		{
			"nothing published",
			&wire.Subscribe{},
			wire.Fetch{FetchType: wire.FetchRelativeJoining},
			TrackInfo{},
			wire.RequestInvalidRange,
		},
		{
			"paused",
			&wire.Subscribe{Parameters: Parameters{Forward: new(false)}},
			wire.Fetch{FetchType: wire.FetchRelativeJoining},
			TrackInfo{Largest: func() (Location, bool) { return Location{Group: 1, Object: 1}, true }},
			wire.RequestInvalidRange,
		},
		{
			"absolute start after the largest",
			&wire.Subscribe{},
			wire.Fetch{FetchType: wire.FetchAbsoluteJoining, JoiningStart: 2},
			TrackInfo{Largest: func() (Location, bool) { return Location{Group: 1, Object: 1}, true }},
			wire.RequestInvalidRange,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := acceptAll(nil)
			h.Subscribe = func(r *SubscribeRequest) { _, _ = r.Accept(tt.info) }
			p, _ := rawClient(t, h, hasty(func(w *waits, soon time.Duration) { w.join = soon }))
			p.setup(&wire.Setup{})
			if tt.subscribe != nil {
				tt.subscribe.Track = track("t")
				p.read(p.bidi(message(t, tt.subscribe)))
			}
			tt.fetch.RequestID = 2
			m, ok := p.read(p.bidi(message(t, &tt.fetch))).(*wire.RequestError)
			if !ok || m.Code != tt.want {
				t.Fatalf("answer %+v, want %s", m, tt.want)
			}
		})
	}
}

func TestTokenAliases(t *testing.T) {
	got := make(chan []wire.Token, 1)
	p, _ := rawClient(t, Handler{Subscribe: func(r *SubscribeRequest) {
		got <- r.Tokens
		_ = r.Reject(wire.RequestUnauthorized, "no") // the token is registered anyway (§10.2.2)
	}}, Config{MaxAuthTokenCacheSize: 2 * (tokenOverhead + 3)})
	reg := wire.Token{AliasType: wire.TokenRegister, Alias: 1, Type: 4, Value: []byte("abc")}
	use := wire.Token{AliasType: wire.TokenUseAlias, Alias: 1}
	p.setup(
		&wire.Setup{
			AuthorizationTokens: []wire.Token{
				{AliasType: wire.TokenRegister, Alias: 2, Value: []byte("set")},
				{AliasType: wire.TokenRegister, Alias: 3, Value: make([]byte, 100)},
			},
		},
	)
	tests := []struct {
		name   string
		tokens []wire.Token
		want   []string
	}{
		{"register", []wire.Token{reg}, []string{"abc"}},
		{"use", []wire.Token{use}, []string{"abc"}},
		{"of SETUP", []wire.Token{{AliasType: wire.TokenUseAlias, Alias: 2}}, []string{"set"}},
		{
			"delete, then register again",
			[]wire.Token{{AliasType: wire.TokenDelete, Alias: 1}, reg, use},
			[]string{"abc", "abc"},
		},
		{"by value", []wire.Token{{AliasType: wire.TokenUseValue, Value: []byte("v")}}, []string{"v"}},
	}
	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p.read(
				p.bidi(
					message(
						t,
						&wire.Subscribe{
							RequestID:  uint64(2 * i),
							Track:      track("t"),
							Parameters: Parameters{AuthorizationTokens: tt.tokens},
						},
					),
				),
			)
			tokens := <-got
			if len(tokens) != len(tt.want) {
				t.Fatalf("tokens %v", tokens)
			}
			for i, tok := range tokens {
				if string(tok.Value) != tt.want[i] {
					t.Errorf("token %d is %q, want %q", i, tok.Value, tt.want[i])
				}
			}
		})
	}
}
