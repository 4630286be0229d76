package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/origin"
	"holocast/internal/parts"
)

// TestFramesInDatagrams sends frames in datagrams through the relay, to viewers over both
// transports. Parts are lost on either hop; the viewers have them by FETCH, from the relay's
// cache or, through it, from the publisher's.
func TestFramesInDatagrams(t *testing.T) {
	for _, scheme := range []string{"moqt", "https"} {
		t.Run(scheme, func(t *testing.T) {
			const frames, size = 20, 300_000
			relay := start(t)
			name := moqt.TrackName{Namespace: moqt.Namespace{"holocast", "datagrams"}, Name: "points/0/full"}
			track := origin.NewTrack(name, nil, origin.Limits{MaxAge: time.Minute})
			var set origin.Set
			set.Add(track)
			publisher := relay.dial(set.Handler())
			if _, err := publisher.PublishNamespace(t.Context(), name.Namespace); err != nil {
				t.Fatal(err)
			}
			viewer, err := moqt.Dial(t.Context(), scheme+"://"+relay.udp, pinned(t, relay.hash), moqt.Handler{}, quiet)
			if err != nil {
				t.Fatal(err)
			}
			defer viewer.Close(wire.NoError, "")
			sub, err := viewer.Subscribe(t.Context(), name, moqt.SubscribeOptions{})
			if err != nil {
				t.Fatal(err)
			}
			whole := make(chan parts.Payload, frames)
			ctx, stop := context.WithCancel(t.Context())
			r := parts.NewReceiver(ctx, sub, parts.Limits{MaxPayload: size, Timeout: time.Minute}, func(p parts.Payload) { whole <- p })
			ended := make(chan struct{})
			go func() { // the second hop loses every hundredth
				defer close(ended)
				for n := 1; ; n++ {
					d, err := sub.AcceptDatagram(ctx)
					if err != nil {
						stop()
						_ = r.Run()
						return
					}
					if n%100 != 0 {
						r.Add(d, false)
					}
				}
			}()
			defer func() { stop(); <-ended }()

			random := rand.New(rand.NewPCG(3, 4))
			sent := map[uint64][]byte{}
			for group := uint64(1000); group < 1000+frames; group++ {
				b := make([]byte, size)
				for i := range b {
					b[i] = byte(random.Uint32())
				}
				sent[group] = b
				lost := uint64(random.IntN(parts.Count(size)))
				for d := range parts.Cut(moqt.Datagram{Group: group, Priority: 96, EndOfGroup: true}, b) {
					if d.Object == lost || group == 1005 && d.Object > 200 { // the first hop loses it
						track.BackfillDatagram(d)
					} else {
						track.SendDatagram(d)
					}
				}
				select {
				case p := <-whole:
					if !bytes.Equal(p.Bytes, sent[p.Group]) {
						t.Fatalf("frame %d differs", p.Group)
					}
					delete(sent, p.Group)
				case <-time.After(20 * time.Second):
					t.Fatalf("frame %d is not whole: %+v, relay %+v", group, r.Stats(), viewer.Stats())
				}
			}
			s := r.Stats()
			if s.Frames != frames || s.Repaired != frames || s.PartsLost != 0 || s.Refused != 0 {
				t.Errorf("counted %+v", s)
			}
			// The relay keeps what it repaired: a viewer who comes late has the newest
			// frame whole from its cache.
			sub2, err := relay.dial(moqt.Handler{}).Subscribe(t.Context(), name, moqt.SubscribeOptions{Join: true})
			if err != nil {
				t.Fatal(err)
			}
			if got := fetchParts(t, sub2); len(got) < parts.Count(size)-1 { // but for one that the second hop lost and nobody asked the publisher for
				t.Errorf("a late viewer has %d parts of %d", len(got), parts.Count(size))
			}
			if sub.Alias() != sub2.Alias() {
				t.Errorf("track aliases %d and %d: not the publisher's", sub.Alias(), sub2.Alias())
			}
			if n := relay.metric(fmt.Sprintf(`holocast_relay_cached_bytes{track=%q}`, name.String())); n < size {
				t.Errorf("the relay caches %g bytes", n)
			}
		})
	}
}

// fetchParts is the group that a subscription began in.
func fetchParts(t *testing.T, sub *moqt.Subscription) (ids []uint64) {
	t.Helper()
	f, err := sub.Joined(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer f.Cancel()
	for {
		o, err := f.Next()
		if err != nil {
			return ids
		}
		if o.Range == wire.RangeNone && o.Datagram {
			ids = append(ids, o.Object)
		}
	}
}
