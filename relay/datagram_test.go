package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/origin"
	"holocast/internal/parts"
)

// TestFramesInDatagrams sends frames as datagrams through the relay to viewers on both transports.
// Both hops lose parts; viewers FETCH them from the relay, which answers from its cache or asks the
// publisher.
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
			r := parts.NewReceiver(ctx, sub, parts.Limits{MaxPayload: size, Timeout: time.Minute},
				func(p parts.Payload) { whole <- p })
			ended := make(chan struct{})
			go func() { // the second hop loses every hundredth part
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
					if d.Object == lost || group == 1005 && d.Object > 200 { // lost on the first hop
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
				case <-time.After(time.Minute):
					t.Fatalf("frame %d is not whole: %+v, relay %+v", group, r.Stats(), viewer.Stats())
				}
			}
			s := r.Stats()
			if s.Frames != frames || s.Repaired != frames || s.PartsLost != 0 || s.Refused != 0 {
				t.Errorf("counted %+v", s)
			}
			// The relay caches repaired parts, so a late joiner receives the newest frame from the cache.
			sub2, err := relay.dial(moqt.Handler{}).Subscribe(t.Context(), name, moqt.SubscribeOptions{Join: true})
			if err != nil {
				t.Fatal(err)
			}
			// One part may be missing because it was lost on the second hop and never fetched.
			if got := fetchParts(t, sub2); len(got) < parts.Count(size)-1 {
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

// fetchParts fetches the parts of the group in which a subscription started.
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

// TestRepairsAreMerged makes viewers fetch overlapping ranges of parts lost on the first hop while
// the publisher does not answer. The relay requests each part once.
func TestRepairsAreMerged(t *testing.T) {
	const last = 15
	relay := start(t)
	name := moqt.TrackName{Namespace: moqt.Namespace{"holocast", "repairs"}, Name: "points/0/full"}
	track := origin.NewTrack(name, nil, origin.Limits{MaxAge: time.Hour})
	var set origin.Set
	set.Add(track)
	h := set.Handler()
	serve, asked, answer := h.Fetch, make(chan [2]uint64, 8), make(chan struct{})
	h.Fetch = func(r *moqt.FetchRequest) {
		asked <- [2]uint64{r.Start.Object, r.End.Object}
		<-answer
		serve(r)
	}
	publisher := relay.dial(h)
	if _, err := publisher.PublishNamespace(t.Context(), name.Namespace); err != nil {
		t.Fatal(err)
	}
	viewer := relay.dial(moqt.Handler{})
	sub, err := viewer.Subscribe(t.Context(), name, moqt.SubscribeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	part := func(id uint64) moqt.Datagram {
		return moqt.Datagram{Group: 1, Object: id, EndOfGroup: id == last, Payload: []byte{byte(id)}}
	}
	for id := uint64(1); id < last; id++ {
		track.BackfillDatagram(part(id)) // lost
	}
	for _, id := range []uint64{0, last} {
		track.SendDatagram(part(id))
		if d, err := sub.AcceptDatagram(t.Context()); err != nil || d.Object != id {
			t.Fatalf("%+v instead of object %d: %v", d, id, err)
		}
	}
	var fetches sync.WaitGroup
	fetch := func(first, end uint64) {
		s := relay.dial(moqt.Handler{})
		fetches.Go(func() {
			f, err := s.Fetch(t.Context(), name, moqt.Location{Group: 1, Object: first},
				moqt.Location{Group: 1, Object: end}, moqt.FetchOptions{})
			if err != nil {
				t.Error(err)
				return
			}
			defer f.Cancel()
			for {
				// If the machine stalls, the relay's fetch may have timed out; it then reports an
				// unknown range.
				o, err := f.Next()
				if err == io.EOF {
					return
				}
				if err != nil || o.Object >= end {
					t.Errorf("objects %d to %d: %+v: %v", first, end-1, o, err)
					return
				}
				if o.Range == wire.RangeNone {
					if _, err := f.ReadPayload(nil, 1); err != nil {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	upstream := func(first, end uint64) {
		t.Helper()
		select {
		case got := <-asked:
			if got != [2]uint64{first, end} {
				t.Errorf("the relay asks for objects %d to %d, want %d to %d", got[0], got[1]-1, first, end-1)
			}
		case <-time.After(time.Minute):
			t.Fatalf("the relay does not ask for objects %d to %d", first, end-1)
		}
	}
	fetch(1, 10)
	upstream(1, 10)
	fetch(1, 10)
	fetch(5, 15)
	upstream(10, 15)
	fetch(3, 12)
	close(answer)
	fetches.Wait()
	if n := len(asked); n != 0 {
		t.Errorf("the relay asked %d more times", n)
	}
}
