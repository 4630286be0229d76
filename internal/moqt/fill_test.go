package moqt

import (
	"errors"
	"fmt"
	"io"
	"math"
	"testing"

	"holocast/internal/moqt/wire"
)

// drafts20 are the drafts that fill subscriptions.
var drafts20 = []wire.Version{wire.Draft20, wire.Draft21, wire.Draft22}

// forDrafts20 runs f with a connection of each of drafts20.
func forDrafts20(t *testing.T, f func(t *testing.T, connect func(client, server Handler) *pair)) {
	for _, v := range drafts20 {
		t.Run(v.String(), func(t *testing.T) {
			f(t, func(client, server Handler) *pair {
				p, err := connectVersions(t, "moqt", client, server, []wire.Version{v}, []wire.Version{v})
				if err != nil {
					t.Fatal(err)
				}
				return p
			})
		})
	}
}

// filledUpTo returns a handler of a track whose largest location is largest. It accepts
// subscriptions and passes their fills to fill.
func filledUpTo(largest Location, pubs chan<- *Publication, fill func(*FetchRequest)) Handler {
	h := source(pubs, TrackInfo{Largest: func() (Location, bool) { return largest, true }})
	h.Fetch = fill
	return h
}

// expectFetch makes the client return the stream with a request ID on the channel.
func (p *pair) expectFetch(id uint64) <-chan *FetchReader {
	streams := make(chan *FetchReader, 1)
	p.client.mu.Lock()
	p.client.fetches[id] = func(f *FetchReader) { streams <- f }
	p.client.mu.Unlock()
	return streams
}

// TestFillRange checks the range that the parameters of a fill request, and that an empty one opens
// no stream (draft-22 §3.4).
func TestFillRange(t *testing.T) {
	at := func(g, o uint64) Location { return Location{Group: g, Object: o} }
	type filter = Filter
	current := &filter{Type: wire.FilterRecentGroups, Groups: 1}
	next := &filter{Type: wire.FilterLargestObject}
	to := func(start Location, group, object uint64) *filter {
		return &filter{Type: wire.FilterObjectRange, Start: start, EndGroup: group, EndObject: object}
	}
	groups := func(start Location, end uint64) *filter {
		return &filter{Type: wire.FilterAbsoluteRange, Start: start, EndGroup: end}
	}
	for _, tt := range []struct {
		name       string
		of, fill   *filter
		start, end Location // end is exclusive; equal = none
	}{
		{"current group", next, current, at(5, 0), at(5, 4)},
		{"three groups", nil, &filter{Type: wire.FilterRecentGroups, Groups: 3}, at(3, 0), at(5, 4)},
		{"more groups than there are", nil, &filter{Type: wire.FilterRecentGroups, Groups: 300}, at(0, 0), at(5, 4)},
		{"whole track", next, &filter{}, at(0, 0), at(5, 4)},
		{"of an unfiltered subscription", nil, nil, at(0, 0), at(5, 4)},
		{"the subscription's range", &filter{Type: wire.FilterAbsoluteStart, Start: at(2, 1)}, nil, at(2, 1), at(5, 4)},
		{"absolute range", nil, to(at(2, 1), 3, 7), at(2, 1), at(3, 8)},
		{"past the largest", nil, groups(at(5, 1), 900), at(5, 1), at(5, 4)},
		{"group end", nil, groups(at(1, 0), 4), at(1, 0), at(4, 0)},
		{"next group", nil, &filter{Type: wire.FilterNextGroup}, Location{}, Location{}},
		{"next object", next, nil, Location{}, Location{}},
		{"after the largest", nil, &filter{Type: wire.FilterAbsoluteStart, Start: at(5, 4)}, Location{}, Location{}},
		{"end before start", nil, to(at(2, 5), 2, 3), Location{}, Location{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			forDrafts20(t, func(t *testing.T, connect func(client, server Handler) *pair) {
				requests := make(chan *FetchRequest, 1)
				pubs := make(chan *Publication, 1)
				p := connect(Handler{}, filledUpTo(at(5, 3), pubs, func(r *FetchRequest) {
					requests <- r
					if w, err := r.Accept(r.End, false, nil); err == nil {
						_ = w.Close()
					}
				}))
				streams := p.expectFetch(0)
				r, err := p.client.openRequest(p.ctx, func(id uint64) wire.Message {
					return &wire.Subscribe{RequestID: id, Track: testTrack, Parameters: Parameters{
						Filter: tt.of, Fill: &Parameters{Filter: tt.fill, FillTimeout: new(uint64(7))},
					}}
				})
				if err != nil {
					t.Fatal(err)
				}
				if _, err := r.awaitResponse(p.ctx, 0); err != nil {
					t.Fatal(err)
				}
				if tt.start == tt.end {
					pub := <-pubs
					pub.mu.Lock()
					defer pub.mu.Unlock()
					if len(pub.fills) > 0 || pub.streams > 0 || len(requests) > 0 {
						t.Errorf("%d fills, %d streams", len(pub.fills), pub.streams)
					}
					return
				}
				f, q := <-streams, <-requests
				if q.Start != tt.start || q.End != tt.end || *q.Joining != at(5, 3) || *q.Parameters.FillTimeout != 7 {
					t.Errorf("%v to %v, joining %v, %+v", q.Start, q.End, q.Joining, q.Parameters)
				}
				f.dec = p.client.version.NewFetchDecoder(wire.Ascending)
				if _, err := f.Next(); err != io.EOF {
					t.Errorf("end of fill: %v", err)
				}
			})
		})
	}
}

// TestFillOfUpdate checks that a REQUEST_UPDATE opens a fill with its own ID unless the subscription
// is paused, and that a resumed one is not filled by itself (draft-22 §3.4.1).
func TestFillOfUpdate(t *testing.T) {
	forDrafts20(t, func(t *testing.T, connect func(client, server Handler) *pair) {
		requests := make(chan *FetchRequest, 4)
		p := connect(Handler{}, filledUpTo(Location{Group: 5}, nil, func(r *FetchRequest) {
			requests <- r
			_ = r.Reject(wire.RequestInternalError, "no")
		}))
		sub, err := p.client.Subscribe(p.ctx, testTrack, SubscribeOptions{Paused: true, Join: true})
		if err != nil {
			t.Fatal(err)
		}
		current := &Parameters{Filter: &Filter{Type: wire.FilterRecentGroups, Groups: 1}}
		update := func(p0 Parameters) {
			t.Helper()
			if _, err := sub.Update(p.ctx, p0); err != nil {
				t.Fatal(err)
			}
		}
		update(Parameters{Fill: current}) // paused
		update(Parameters{Forward: new(true)})
		if len(requests) > 0 {
			t.Errorf("filled while paused: %+v", <-requests)
		}
		streams := p.expectFetch(6)
		update(Parameters{Fill: current})
		if r := <-requests; r.Start != (Location{Group: 5}) {
			t.Errorf("from %v", r.Start)
		}
		f := <-streams // the header of a refused fill arrives
		f.dec = p.client.version.NewFetchDecoder(wire.Ascending)
		var reset *StreamError
		if _, err := f.Next(); !errors.As(err, &reset) || reset.Code != wire.StreamInternalError || !reset.Remote {
			t.Errorf("refused fill: %v", err)
		}
		if sub.Err() != nil {
			t.Errorf("the subscription ended: %v", sub.Err())
		}
	})
}

// TestFillsAreBounded checks that a subscriber cannot have too many fills at a time.
func TestFillsAreBounded(t *testing.T) {
	forDrafts20(t, func(t *testing.T, connect func(client, server Handler) *pair) {
		p := connect(Handler{}, filledUpTo(Location{Group: 5}, nil, func(r *FetchRequest) { <-r.Context().Done() }))
		sub, err := p.client.Subscribe(p.ctx, testTrack, SubscribeOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; ; i++ {
			_, err := sub.Update(p.ctx, Parameters{Fill: &Parameters{}})
			if err == nil && i < maxFills {
				continue
			}
			if e := (*RequestError)(nil); !errors.As(err, &e) || e.Code != wire.RequestExcessiveLoad || i != maxFills {
				t.Errorf("fill %d: %v", i, err)
			}
			break
		}
		until(t, p.ctx, "fills end with their subscription", p.server.idle)
	})
}

// TestDoneAfterFill checks that PUBLISH_DONE waits for a fill and counts its stream (draft-22 §9.9).
func TestDoneAfterFill(t *testing.T) {
	forDrafts20(t, func(t *testing.T, connect func(client, server Handler) *pair) {
		pubs, writers := make(chan *Publication, 1), make(chan *FetchWriter, 1)
		p := connect(Handler{}, filledUpTo(Location{Group: 5}, pubs, func(r *FetchRequest) {
			w, err := r.Accept(r.End, false, nil)
			if err != nil {
				t.Error(err)
			}
			writers <- w
		}))
		sub, err := p.client.Subscribe(p.ctx, testTrack, SubscribeOptions{Join: true})
		if err != nil {
			t.Fatal(err)
		}
		f, err := sub.Joined(p.ctx)
		if err != nil {
			t.Fatal(err)
		}
		if want := (Location{Group: 5, Object: 1}); f.End != want {
			t.Errorf("fill up to %v, want %v", f.End, want)
		}
		pub, w := <-pubs, <-writers
		if err := pub.Done(wire.DoneTrackEnded, ""); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(w.WriteObject(wire.FetchObject{Group: 5}, []byte("last")), w.Close()); err != nil {
			t.Fatal(err)
		}
		o, err := f.Next()
		if err != nil || o.Group != 5 {
			t.Errorf("%+v, %v", o, err)
		}
		<-sub.Done()
		var done *DoneError
		if !errors.As(sub.Err(), &done) || done.Code != wire.DoneTrackEnded || done.StreamCount != 1 {
			t.Errorf("ended with %v", sub.Err())
		}
	})
}

// TestFillEndsWithSubscription checks that a cancelled subscription resets its fill.
func TestFillEndsWithSubscription(t *testing.T) {
	forDrafts20(t, func(t *testing.T, connect func(client, server Handler) *pair) {
		writers := make(chan *FetchWriter, 1)
		p := connect(Handler{}, filledUpTo(Location{Group: 5}, nil, func(r *FetchRequest) {
			w, err := r.Accept(r.End, false, nil)
			if err != nil {
				t.Error(err)
			}
			writers <- w
		}))
		sub, err := p.client.Subscribe(p.ctx, testTrack, SubscribeOptions{Join: true})
		if err != nil {
			t.Fatal(err)
		}
		f, err := sub.Joined(p.ctx)
		if err != nil {
			t.Fatal(err)
		}
		w := <-writers
		sub.Cancel()
		var reset *StreamError
		if _, err := f.Next(); !errors.As(err, &reset) || reset.Code != wire.StreamCancelled {
			t.Errorf("fill of a cancelled subscription: %v", err)
		}
		until(t, p.ctx, "writes fail", func() bool { return w.WriteObject(wire.FetchObject{Group: 5}, nil) != nil })
	})
}

// inverted is an Opener of objects whose bytes are inverted.
type inverted struct{}

func (inverted) OpenTrack(TrackName, Properties) ObjectOpener { return inverted{} }

func (inverted) Open(_ Location, _ uint8, p Properties, sealed []byte) (Properties, []byte, bool) {
	for i := range sealed {
		sealed[i] ^= 0xff
	}
	return p, sealed, true
}

// TestFillIsDecrypted checks that the objects of a fill pass the session's Opener.
func TestFillIsDecrypted(t *testing.T) {
	for _, v := range drafts20 {
		t.Run(v.String(), func(t *testing.T) {
			config := Config{waits: patient(), Versions: []wire.Version{v}}
			viewer := config
			viewer.Opener = inverted{}
			p, err := connectConfigs(t, "moqt", Handler{}, filledUpTo(Location{Group: 5}, nil, func(r *FetchRequest) {
				if r.fill == nil {
					t.Error("fetched, not filled")
				}
				w, err := r.Accept(r.End, false, nil)
				if err == nil {
					err = errors.Join(w.WriteObject(wire.FetchObject{Group: 5}, []byte{^byte('h'), ^byte('i')}), w.Close())
				}
				if err != nil {
					t.Error(err)
				}
			}), viewer, config)
			if err != nil {
				t.Fatal(err)
			}
			sub, err := p.client.Subscribe(p.ctx, testTrack, SubscribeOptions{Join: true})
			if err != nil {
				t.Fatal(err)
			}
			f, err := sub.Joined(p.ctx)
			if err != nil {
				t.Fatal(err)
			}
			n := 0
			err = f.Each(p.ctx, 100, func(o wire.FetchObject, b []byte) error {
				n++
				if string(b) != "hi" {
					t.Errorf("object %d: %q", o.Object, b)
				}
				return nil
			})
			if err != nil || n != 1 {
				t.Errorf("%d objects, %v", n, err)
			}
		})
	}
}

// TestFetchRange20 checks that the range of a FETCH arrives in all forms, and its inclusive end
// (draft-22 §9.11).
func TestFetchRange20(t *testing.T) {
	largest := Location{Group: 300, Object: 9}
	for _, tt := range []struct{ start, end Location }{
		{Location{}, Location{Group: math.MaxUint64}},
		{Location{Group: 256, Object: 5}, Location{Group: math.MaxUint64}},
		{Location{Group: 256, Object: 5}, Location{Group: 257}},
		{Location{}, Location{Group: 0, Object: 1}},
		{Location{Group: 256}, Location{Group: 256, Object: 300}},
	} {
		t.Run(fmt.Sprintf("%v to %v", tt.start, tt.end), func(t *testing.T) {
			forDrafts20(t, func(t *testing.T, connect func(client, server Handler) *pair) {
				p := connect(Handler{}, Handler{Fetch: func(r *FetchRequest) {
					if r.Start != tt.start || r.End != tt.end {
						t.Errorf("asked for %v to %v", r.Start, r.End)
					}
					if w, err := r.Accept(r.End, true, nil); err == nil {
						_ = w.Close()
					}
				}})
				f, err := p.client.Fetch(p.ctx, testTrack, tt.start, tt.end, FetchOptions{})
				if err != nil {
					t.Fatal(err)
				}
				defer f.Cancel()
				if f.End != tt.end || !f.EndOfTrack {
					t.Errorf("answered up to %v", f.End)
				}
			})
		})
	}
	r := &FetchRequest{Request: &Request{Parameters: Parameters{
		Filter: &Filter{Type: wire.FilterRecentGroups, Groups: 3},
	}}}
	r.Start, r.End = filterRange(r.Parameters.Filter, nil)
	if !largest.Less(r.Start) {
		t.Errorf("unresolved from %v", r.Start)
	}
	if r.Resolve(largest); r.Start != (Location{Group: 298}) {
		t.Errorf("three groups from %v", r.Start)
	}
}

// TestPublishOf20 checks that the parameters of an accepted PUBLISH follow in a REQUEST_UPDATE, and
// that PUBLISH_OK alone does not resume a paused track.
func TestPublishOf20(t *testing.T) {
	forDrafts20(t, func(t *testing.T, connect func(client, server Handler) *pair) {
		options := make(chan SubscribeOptions, 1)
		subs := make(chan *Subscription, 1)
		p := connect(Handler{Publish: func(r *PublishRequest) {
			sub, err := r.Accept(<-options)
			if err != nil {
				t.Error(err)
			}
			subs <- sub
		}}, Handler{})
		options <- SubscribeOptions{
			Priority: new(uint8(9)), Filter: &Filter{Type: wire.FilterAbsoluteStart, Start: Location{Group: 300}},
		}
		pub, err := p.server.Publish(p.ctx, testTrack, TrackInfo{})
		if err != nil {
			t.Fatal(err)
		}
		until(t, p.ctx, "the parameters apply", func() bool {
			return pub.Priority() == 9 && pub.Start() == Location{Group: 300}
		})
		(<-subs).Cancel()
		<-pub.Context().Done()

		options <- SubscribeOptions{Paused: true}
		if pub, err = p.server.Publish(p.ctx, track("paused"), TrackInfo{Paused: true}); err != nil {
			t.Fatal(err)
		}
		if _, err := (<-subs).Update(p.ctx, Parameters{}); err != nil {
			t.Fatal(err)
		}
		if pub.Forwarding() {
			t.Error("resumed by PUBLISH_OK")
		}
	})
}

// TestPublishState checks that only the publisher of a subscription may send PUBLISH_STATE_NOTIFY
// (draft-22 §9.10).
func TestPublishState(t *testing.T) {
	forDrafts20(t, func(t *testing.T, connect func(client, server Handler) *pair) {
		pubs := make(chan *Publication, 1)
		p := connect(Handler{}, source(pubs, TrackInfo{}))
		sub, err := p.client.Subscribe(p.ctx, testTrack, SubscribeOptions{})
		if err != nil {
			t.Fatal(err)
		}
		state := &wire.PublishStateNotify{Parameters: Parameters{LargestObject: &Location{Group: 300}, Forward: new(false)}}
		pub := <-pubs
		if err := pub.r.send(state); err != nil {
			t.Fatal(err)
		}
		if _, err := sub.Update(p.ctx, Parameters{}); err != nil { // has no response, so this is the first
			t.Fatal(err)
		}
		if err := sub.r.send(state); err != nil {
			t.Fatal(err)
		}
		<-p.server.Context().Done()
		if e := (*SessionError)(nil); !errors.As(p.server.Err(), &e) || e.Code != wire.ProtocolViolation {
			t.Errorf("from the subscriber: %v", p.server.Err())
		}
	})
}

// TestPropertiesNotIncluded checks that INCLUDE_PROPERTIES 0 leaves out the track properties (draft-22
// §9.20.21).
func TestPropertiesNotIncluded(t *testing.T) {
	props := Properties(wire.AppendKeyValues(nil, wire.KeyValue{Type: wire.PropertyPublisherPriority, Int: 3}))
	forDrafts20(t, func(t *testing.T, connect func(client, server Handler) *pair) {
		server := source(nil, TrackInfo{Properties: props})
		server.TrackStatus = func(r *TrackStatusRequest) { _ = r.Accept(TrackInfo{Properties: props}) }
		server.Fetch = func(r *FetchRequest) {
			if w, err := r.Accept(r.End, false, props); err == nil {
				_ = w.Close()
			}
		}
		p := connect(Handler{}, server)
		for _, include := range []*bool{nil, new(true), new(false)} {
			want := include == nil || *include
			params := Parameters{IncludeProperties: include}
			for _, build := range []func(id uint64) wire.Message{
				func(id uint64) wire.Message {
					return &wire.Subscribe{RequestID: id, Track: testTrack, Parameters: params}
				},
				func(id uint64) wire.Message {
					return &wire.TrackStatus{RequestID: id, Track: testTrack, Parameters: params}
				},
				func(id uint64) wire.Message {
					return &wire.Fetch{
						RequestID: id, FetchType: wire.FetchStandalone, Track: testTrack, Parameters: params,
					}
				},
			} {
				r, err := p.client.openRequest(p.ctx, build)
				if err != nil {
					t.Fatal(err)
				}
				m, err := r.awaitResponse(p.ctx, 0)
				var got Properties
				switch m := m.(type) {
				case *wire.SubscribeOK:
					got = m.Properties
				case *wire.RequestOK:
					got = m.Properties
				case *wire.FetchOK:
					got = m.Properties
				}
				if err != nil || want != (len(got) > 0) {
					t.Errorf("%T with %v: %x, %v", m, include, got, err)
				}
			}
		}
	})
}

// TestRangesArePastOrFuture20 checks that a subscription's range is valid even if it was published, and
// that passing its end does not end the subscription (draft-22 §3.3.1).
func TestRangesArePastOrFuture20(t *testing.T) {
	forDrafts20(t, func(t *testing.T, connect func(client, server Handler) *pair) {
		past := &Filter{Type: wire.FilterObjectRange, Start: Location{Group: 1}, EndGroup: 3, EndObject: 300}
		_, sub, pub := subscribed(t, connect, TrackInfo{
			Largest: func() (Location, bool) { return Location{Group: 9}, true },
		}, SubscribeOptions{Filter: past})
		for l, want := range map[Location]bool{
			{Group: 0, Object: 5}: false, {Group: 1}: true, {Group: 2, Object: 900}: true,
			{Group: 3, Object: 300}: true, {Group: 3, Object: 301}: false, {Group: 4}: false,
		} {
			if pub.Passes(l) != want {
				t.Errorf("%v passes: %v", l, !want)
			}
		}
		if pub.Ended(4) || sub.Err() != nil {
			t.Errorf("ended: %v", sub.Err())
		}
	})
}
