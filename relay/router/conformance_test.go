package router

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/origin"
)

// entries reads a response. In the result, "3/0 text" is an object, "?3/7" ends an unknown range,
// "!3/7" one that was not available in time, and "-3/7" one without objects.
func (r *relay) entries(f *moqt.FetchReader) (list []string) {
	r.t.Helper()
	defer f.Cancel()
	for {
		o, err := f.Next()
		if err == io.EOF {
			return list
		}
		if err != nil {
			r.t.Fatalf("after %q: %v", list, err)
		}
		at := fmt.Sprintf("%d/%d", o.Group, o.Object)
		if o.Object >= 1<<62 {
			at = fmt.Sprintf("%d/end", o.Group)
		}
		switch o.Range {
		case wire.RangeUnknown:
			list = append(list, "?"+at)
			continue
		case wire.RangeTimedOut:
			list = append(list, "!"+at)
			continue
		case wire.RangeNonExistent:
			list = append(list, "-"+at)
			continue
		}
		b, err := f.ReadPayload(nil, 1<<20)
		if err != nil {
			r.t.Fatal(err)
		}
		list = append(list, at+" "+string(b))
		r.entriesRead.Add(1)
	}
}

// fetched is a publisher that counts FETCHes, except for joining ones, and answers them with answer.
type fetched struct {
	*publisher
	fetches atomic.Int32
}

func (r *relay) publishFetched(tr *origin.Track, answer func(*moqt.FetchRequest)) *fetched {
	r.t.Helper()
	var set origin.Set
	set.Add(tr)
	p := &fetched{}
	h := set.Handler()
	h.Fetch = func(req *moqt.FetchRequest) {
		if req.Joining != nil || answer == nil {
			if req.Joining == nil {
				p.fetches.Add(1)
			}
			_ = tr.ServeFetch(req, nil)
			return
		}
		p.fetches.Add(1)
		answer(req)
	}
	s := r.dial(h)
	ns, err := s.PublishNamespace(r.ctx, session)
	if err != nil {
		r.t.Fatal(err)
	}
	p.publisher = &publisher{s, ns}
	return p
}

func refuse(req *moqt.FetchRequest) { _ = req.Reject(wire.RequestNotSupported, "no FETCH here") }

// hang leaves a request unanswered until it is cancelled.
func hang(req *moqt.FetchRequest) { <-req.Context().Done() }

func lasting(props ...wire.KeyValue) *origin.Track {
	return origin.NewTrack(points, wire.AppendKeyValues(nil, props...), origin.Limits{MaxAge: time.Hour})
}

// TestPartiallyCachedFetch checks that a range that is partly cached is served from the cache and from
// the publisher within FILL_TIMEOUT. Missing objects are reported as unknown or timed out (§10.2.5,
// draft-22 §3.2.2).
func TestPartiallyCachedFetch(t *testing.T) {
	all := []string{"1/0 old 1", "2/0 old 2", "3/0 old 3", "4/0 old 4", "5/0 new 5", "6/0 new 6"}
	rest := append([]string{"?3/end"}, all[3:]...)
	late := append([]string{"!3/end"}, all[3:]...)
	ms := func(n int) *time.Duration { d := time.Duration(n) * time.Millisecond; return &d }
	for name, tt := range map[string]struct {
		answer  func(*moqt.FetchRequest)
		cut     bool // the publisher resets its response once the viewer has the first object
		fill    *time.Duration
		order   moqt.GroupOrder
		want    []string
		fetches int32
	}{
		"from both":                {want: all, fetches: 1},
		"from both, descending":    {order: wire.Descending, want: reversed(all), fetches: 1},
		"in time":                  {fill: ms(60_000), want: all, fetches: 1},
		"only what is here":        {fill: ms(0), want: late},
		"refused by the publisher": {answer: refuse, want: rest, fetches: 1},
		"not answered in time":     {answer: hang, fill: ms(1000), want: late, fetches: 1},
		"not in time, descending": {
			answer: hang, fill: ms(1000), order: wire.Descending,
			want: append(reversed(all[3:]), "!1/end"), fetches: 1,
		},
		"only here, descending":    {fill: ms(0), order: wire.Descending, want: append(reversed(all[3:]), "!1/end")},
		"cut off by the publisher": {cut: true, want: append([]string{"1/0 old 1", "?3/end"}, all[3:]...), fetches: 1},
		"answered in part by it": {
			answer: inPart, want: append([]string{"1/0 old 1", "?3/end"}, all[3:]...),
			fetches: 1,
		},
		"answered with other ones": {answer: others, want: rest, fetches: 1},
		"stuck inside the response": {
			answer: stuck, fill: ms(5000),
			want: append([]string{"1/0 old 1", "!3/end"}, all[3:]...), fetches: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := start(t, Config{Linger: 20 * time.Millisecond, Limits: origin.Limits{MaxAge: time.Hour}})
			tr := lasting()
			for i := range uint64(5) {
				r.write(tr, i, fmt.Sprint("old ", i))
			}
			answer := tt.answer
			if tt.cut {
				answer = func(req *moqt.FetchRequest) {
					w := begun(req, 1, 3)
					r.eventually("the viewer has the first object", func() bool { return r.entriesRead.Load() > 0 })
					w.Reset(wire.StreamInternalError)
				}
			}
			p := r.publishFetched(tr, answer)
			viewer := r.dial(moqt.Handler{})
			sub := r.subscribe(viewer)
			for i := uint64(5); i < 7; i++ {
				r.write(tr, i, fmt.Sprint("new ", i))
				r.expect(sub, i, fmt.Sprint("new ", i))
			}
			r.mu.Lock()
			shared := r.tracks[points.String()]
			r.mu.Unlock()
			shared.awaitFill(r.ctx) // group 4, published before the relay subscribed
			f, err := viewer.Fetch(r.ctx, points, moqt.Location{Group: 1}, moqt.Location{Group: 6},
				moqt.FetchOptions{FillTimeout: tt.fill, GroupOrder: tt.order})
			if err != nil {
				t.Fatal(err)
			}
			if got := r.entries(f); !slices.Equal(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			if n := p.fetches.Load(); n != tt.fetches {
				t.Errorf("the publisher got %d FETCHes, want %d", n, tt.fetches)
			}
		})
	}
}

// TestFetchAgain checks that groups that the publisher reported as unknown or timed out are requested from
// it again.
func TestFetchAgain(t *testing.T) {
	for kind, sign := range map[wire.RangeKind]string{wire.RangeUnknown: "?", wire.RangeTimedOut: "!"} {
		t.Run(sign, func(t *testing.T) {
			r := start(t, Config{Linger: 20 * time.Millisecond, Limits: origin.Limits{MaxAge: time.Hour}})
			tr := lasting()
			for i := range uint64(4) {
				r.write(tr, i, fmt.Sprint("old ", i))
			}
			var again atomic.Bool
			p := r.publishFetched(tr, func(req *moqt.FetchRequest) {
				if again.Swap(true) {
					_ = tr.ServeFetch(req, nil)
					return
				}
				if w, err := req.Accept(req.End, false, nil); err == nil {
					_ = w.WriteObject(wire.FetchObject{Range: kind, Group: 1}, nil)
					_ = w.Close()
				}
			})
			viewer := r.dial(moqt.Handler{})
			sub := r.subscribe(viewer)
			r.write(tr, 4, "new 4")
			r.expect(sub, 4, "new 4")
			r.mu.Lock()
			shared := r.tracks[points.String()]
			r.mu.Unlock()
			shared.awaitFill(r.ctx) // group 3, published before the relay subscribed
			fetch := func(first, last uint64, order moqt.GroupOrder) []string {
				f, err := viewer.Fetch(r.ctx, points, moqt.Location{Group: first}, moqt.Location{Group: last},
					moqt.FetchOptions{GroupOrder: order})
				if err != nil {
					t.Fatal(err)
				}
				return r.entries(f)
			}
			if got, want := fetch(1, 2, wire.Descending), []string{sign + "1/0"}; !slices.Equal(got, want) {
				t.Errorf("got %q, want %q", got, want)
			}
			if got, want := fetch(2, 3, wire.Ascending), []string{"2/0 old 2", "3/0 old 3"}; !slices.Equal(got, want) {
				t.Errorf("later: got %q, want %q", got, want)
			}
			if n := p.fetches.Load(); n != 2 {
				t.Errorf("the publisher got %d FETCHes, want 2", n)
			}
		})
	}
}

// TestFillTimeout checks that a FETCH waits for upstream objects or subscriptions no longer than
// FILL_TIMEOUT. With 0 it causes no upstream request (§10.2.5).
func TestFillTimeout(t *testing.T) {
	fetch := func(r *relay, order moqt.GroupOrder, fill time.Duration) []string {
		t.Helper()
		f, err := r.dial(moqt.Handler{}).Fetch(r.ctx, points, moqt.Location{Group: 1}, moqt.Location{Group: 3},
			moqt.FetchOptions{FillTimeout: &fill, GroupOrder: order})
		if err != nil {
			t.Fatal(err)
		}
		return r.entries(f)
	}
	t.Run("track without viewers", func(t *testing.T) {
		r := start(t, short())
		var asked atomic.Int32
		p := r.dial(moqt.Handler{Subscribe: func(req *moqt.SubscribeRequest) {
			asked.Add(1)
			<-req.Context().Done()
		}})
		if _, err := p.PublishNamespace(r.ctx, session); err != nil {
			t.Fatal(err)
		}
		if got, want := fetch(r, wire.Ascending, 0), []string{"!3/end"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		if got, want := fetch(r, wire.Descending, 0), []string{"!1/end"}; !slices.Equal(got, want) {
			t.Errorf("descending: %q, want %q", got, want)
		}
		if n := asked.Load(); n != 0 {
			t.Errorf("the publisher got %d SUBSCRIBEs", n)
		}
		if got, want := fetch(r, wire.Ascending, 100*time.Millisecond), []string{"!3/end"}; !slices.Equal(got, want) {
			t.Errorf("in 100 ms: %q, want %q", got, want)
		}
		p.Close(wire.NoError, "")
		r.eventually("the publisher is gone", func() bool { return len(r.Namespaces()) == 0 })
		_, err := r.dial(moqt.Handler{}).Fetch(r.ctx, points, moqt.Location{Group: 1}, moqt.Location{Group: 3},
			moqt.FetchOptions{FillTimeout: new(time.Duration)})
		if e := (*moqt.RequestError)(nil); !errors.As(err, &e) || e.Code != wire.RequestDoesNotExist {
			t.Errorf("unpublished track: %v", err)
		}
	})
	t.Run("a joining FETCH that is not answered", func(t *testing.T) {
		for _, fill := range []time.Duration{0, 100 * time.Millisecond} {
			early := false
			for range 5 { // if it stalls, the relay may time out first
				r := start(t, short())
				var ended atomic.Bool
				p := r.dial(moqt.Handler{
					Subscribe: func(req *moqt.SubscribeRequest) {
						_, _ = req.Accept(moqt.TrackInfo{Largest: func() (moqt.Location,
							bool,
						) {
							return moqt.Location{Group: 3}, true
						}})
					},
					Fetch: func(req *moqt.FetchRequest) {
						<-req.Context().Done()
						ended.Store(true)
					},
				})
				if _, err := p.PublishNamespace(r.ctx, session); err != nil {
					t.Fatal(err)
				}
				r.subscribe(r.dial(moqt.Handler{}))
				if got, want := fetch(r, wire.Ascending, fill), []string{"!3/0"}; !slices.Equal(got, want) {
					t.Errorf("in %v: %q, want %q", fill, got, want)
				}
				if early = !ended.Load(); early {
					break
				}
			}
			if !early {
				t.Errorf("in %v: answered when the joining FETCH had ended", fill)
			}
		}
	})
	t.Run("a FETCH that is not answered, of a track without objects so far", func(t *testing.T) {
		r := start(t, short())
		p := r.dial(moqt.Handler{
			Subscribe: func(req *moqt.SubscribeRequest) { _, _ = req.Accept(moqt.TrackInfo{}) },
			Fetch:     hang,
		})
		if _, err := p.PublishNamespace(r.ctx, session); err != nil {
			t.Fatal(err)
		}
		r.subscribe(r.dial(moqt.Handler{}))
		if got, want := fetch(r, wire.Ascending, 100*time.Millisecond), []string{"!3/end"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
	t.Run("a publisher that is away", func(t *testing.T) {
		r := start(t, short())
		tr := newPoints()
		p := r.publish(tr)
		sub := r.subscribe(r.dial(moqt.Handler{}))
		r.write(tr, 2, "cached")
		r.expect(sub, 2, "cached")
		p.Close(wire.NoError, "")
		r.eventually("the publisher is gone", func() bool { return r.upstreams() == 0 })
		if got, want := fetch(r, wire.Ascending, 0), []string{"!1/end", "2/0 cached"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

func reversed(list []string) []string {
	list = slices.Clone(list)
	slices.Reverse(list)
	return list
}

// begun answers a FETCH and writes the first requested object.
func begun(req *moqt.FetchRequest, group, end uint64) *moqt.FetchWriter {
	w, err := req.Accept(moqt.Location{Group: end}, false, nil)
	if err != nil {
		return nil
	}
	_ = w.WriteObject(wire.FetchObject{Group: group}, fmt.Append(nil, "old ", group))
	return w
}

func inPart(req *moqt.FetchRequest) { _ = begun(req, 1, 1).Close() }
func others(req *moqt.FetchRequest) { _ = begun(req, 7, 3).Close() }
func stuck(req *moqt.FetchRequest) {
	_ = begun(req, 1, 3)
	<-req.Context().Done()
}

// TestFetchOverResetSubgroup checks that the missing part of a reset subgroup is reported as unknown
// unless the publisher still has it (§10.12.3).
func TestFetchOverResetSubgroup(t *testing.T) {
	for name, tt := range map[string]struct {
		answer func(*moqt.FetchRequest)
		want   []string
	}{
		"the publisher has it":     {nil, []string{"1/0 a", "1/1 b", "1/2 c", "2/0 next"}},
		"the publisher has it not": {refuse, []string{"1/0 a", "?1/end", "2/0 next"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, Config{Linger: 20 * time.Millisecond, Limits: origin.Limits{MaxAge: time.Hour}})
			// The subscription is cut off, but the fetch is complete.
			whole, cut := lasting(), lasting()
			h := wire.SubgroupHeader{Group: 1, FirstObject: true}
			f, err := whole.OpenSubgroup(h)
			if err != nil {
				t.Fatal(err)
			}
			for i, text := range []string{"a", "b", "c"} {
				if err := f.WriteObject(moqt.Object{ID: uint64(i)}, []byte(text)); err != nil {
					t.Fatal(err)
				}
			}
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
			r.write(whole, 2, "next")
			answer := tt.answer
			if answer == nil {
				answer = func(req *moqt.FetchRequest) { _ = whole.ServeFetch(req, nil) }
			}
			r.publishFetched(cut, answer)
			viewer := r.dial(moqt.Handler{})
			sub := r.subscribe(viewer)
			if f, err = cut.OpenSubgroup(h); err != nil {
				t.Fatal(err)
			}
			if err := f.WriteObject(moqt.Object{}, []byte("a")); err != nil {
				t.Fatal(err)
			}
			sg, err := sub.AcceptSubgroup(r.ctx)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := sg.NextObject(); err != nil {
				t.Fatal(err)
			}
			f.Reset(wire.StreamDeliveryTimeout)
			if _, err := sg.NextObject(); err == nil {
				t.Fatal("the subgroup was not reset")
			}
			r.write(cut, 2, "next")
			r.expect(sub, 2, "next")
			fetch, err := viewer.Fetch(r.ctx, points, moqt.Location{Group: 1}, moqt.Location{Group: 2},
				moqt.FetchOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if got := r.entries(fetch); !slices.Equal(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// TestMaxCacheDuration checks that an expired object is fetched from the publisher again, even if it is
// the newest (§12.3).
func TestMaxCacheDuration(t *testing.T) {
	r := start(t, short())
	const keep = 50 * time.Millisecond
	tr := lasting(wire.KeyValue{Type: wire.PropertyMaxCacheDuration, Int: uint64(keep.Milliseconds())})
	p := r.publishFetched(tr, func(req *moqt.FetchRequest) {
		w, err := req.Accept(req.End, false, nil)
		if err != nil {
			return
		}
		_ = w.WriteObject(wire.FetchObject{Group: 1}, []byte("fresh"))
		_ = w.Close()
	})
	viewer := r.dial(moqt.Handler{})
	sub := r.subscribe(viewer)
	r.write(tr, 1, "cached")
	r.expect(sub, 1, "cached")
	time.Sleep(2 * keep)
	fetch := func(fill *time.Duration) []string {
		f, err := viewer.Fetch(r.ctx, points, moqt.Location{Group: 1}, moqt.Location{Group: 1},
			moqt.FetchOptions{FillTimeout: fill})
		if err != nil {
			t.Fatal(err)
		}
		return r.entries(f)
	}
	if got, want := fetch(nil), []string{"1/0 fresh"}; !slices.Equal(got, want) || p.fetches.Load() != 1 {
		t.Errorf("got %q after %d FETCHes, want %q after one", got, p.fetches.Load(), want)
	}
	if got, want := fetch(new(time.Duration)), []string{"!1/0"}; !slices.Equal(got, want) {
		t.Errorf("without asking the publisher: %q, want %q", got, want)
	}
}

// TestNewGroupWithFirstSubscribe checks that a new group requested by the first subscriber is requested
// upstream once, with the SUBSCRIBE (§10.2.13).
func TestNewGroupWithFirstSubscribe(t *testing.T) {
	r := start(t, short())
	props := moqt.Properties(wire.AppendKeyValues(nil, wire.KeyValue{Type: wire.PropertyDynamicGroups, Int: 1}))
	first, updates := make(chan *uint64, 1), make(chan uint64, 10)
	p := r.dial(moqt.Handler{Subscribe: func(req *moqt.SubscribeRequest) {
		first <- req.Parameters.NewGroupRequest
		_, _ = req.Accept(moqt.TrackInfo{Properties: props, NewGroup: func(g uint64) { updates <- g }})
	}})
	if _, err := p.PublishNamespace(r.ctx, session); err != nil {
		t.Fatal(err)
	}
	if _, err := r.dial(moqt.Handler{}).Subscribe(r.ctx, points,
		moqt.SubscribeOptions{NewGroupRequest: new(uint64(7))}); err != nil {
		t.Fatal(err)
	}
	if g := <-first; g == nil || *g != 7 {
		t.Errorf("the publisher was asked for group %v, want 7", g)
	}
	if g := <-updates; g != 7 { // by the SUBSCRIBE
		t.Errorf("the publisher was asked for %d, want 7", g)
	}
	select {
	case g := <-updates:
		t.Errorf("asked for %d, too", g)
	case <-time.After(2 * groupRequestInterval):
	}
}

// TestDifferentDuplicates checks that if two publishers send different content, subgroup, priority or
// forwarding preference for the same object, the later publisher's track is malformed, and the other's
// continues (§9.1).
func TestDifferentDuplicates(t *testing.T) {
	write := func(tr *origin.Track, h wire.SubgroupHeader, text string) {
		if err := tr.WriteObject(h, moqt.Object{}, []byte(text)); err != nil {
			t.Error(err)
		}
	}
	explicit := func(group uint64) wire.SubgroupHeader {
		return wire.SubgroupHeader{Group: group, FirstObject: true, Mode: wire.SubgroupIDExplicit, Priority: 100}
	}
	with := func(change func(*wire.SubgroupHeader)) func(*origin.Track, uint64) {
		return func(tr *origin.Track, g uint64) {
			h := explicit(g)
			change(&h)
			write(tr, h, "x")
		}
	}
	for name, tt := range map[string]struct {
		send, again func(*origin.Track, uint64)
		malformed   bool
	}{
		"the same": {
			send:  func(tr *origin.Track, g uint64) { write(tr, explicit(g), "x") },
			again: func(tr *origin.Track, g uint64) { write(tr, explicit(g), "x") },
		},
		"another payload": {
			send:      func(tr *origin.Track, g uint64) { write(tr, explicit(g), "x") },
			again:     func(tr *origin.Track, g uint64) { write(tr, explicit(g), "y") },
			malformed: true,
		},
		"another length": {
			send:      func(tr *origin.Track, g uint64) { write(tr, explicit(g), "x") },
			again:     func(tr *origin.Track, g uint64) { write(tr, explicit(g), "xx") },
			malformed: true,
		},
		"another payload, subgroups without IDs": {
			send: func(tr *origin.Track, g uint64) {
				write(tr, wire.SubgroupHeader{Group: g, FirstObject: true, Mode: wire.SubgroupIDFirstObject}, "x")
			},
			again: func(tr *origin.Track, g uint64) {
				write(tr, wire.SubgroupHeader{Group: g, FirstObject: true, Mode: wire.SubgroupIDFirstObject}, "y")
			},
			malformed: true,
		},
		"another priority": {
			send:      func(tr *origin.Track, g uint64) { write(tr, explicit(g), "x") },
			again:     with(func(h *wire.SubgroupHeader) { h.Priority = 1 }),
			malformed: true,
		},
		"another subgroup": {
			send:      func(tr *origin.Track, g uint64) { write(tr, explicit(g), "x") },
			again:     with(func(h *wire.SubgroupHeader) { h.Subgroup = 1 }),
			malformed: true,
		},
		"a datagram instead of a subgroup": {
			send: func(tr *origin.Track, g uint64) { write(tr, explicit(g), "x") },
			again: func(tr *origin.Track, g uint64) {
				tr.SendDatagram(moqt.Datagram{
					Group:   g,
					Payload: []byte("x"),
				})
			},
			malformed: true,
		},
		"a subgroup instead of a datagram": {
			send: func(tr *origin.Track, g uint64) {
				tr.SendDatagram(moqt.Datagram{
					Group:   g,
					Payload: []byte("x"),
				})
			},
			again:     func(tr *origin.Track, g uint64) { write(tr, explicit(g), "x") },
			malformed: true,
		},
		"the same datagram": {
			send:  func(tr *origin.Track, g uint64) { tr.SendDatagram(moqt.Datagram{Group: g, Payload: []byte("x")}) },
			again: func(tr *origin.Track, g uint64) { tr.SendDatagram(moqt.Datagram{Group: g, Payload: []byte("x")}) },
		},
		"another datagram": {
			send: func(tr *origin.Track, g uint64) {
				tr.SendDatagram(moqt.Datagram{
					Group:   g,
					Payload: []byte("x"),
				})
			},
			again: func(tr *origin.Track, g uint64) {
				tr.SendDatagram(moqt.Datagram{
					Group:   g,
					Payload: []byte("y"),
				})
			},
			malformed: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, backups())
			one, other := newPoints(), newPoints()
			r.publish(one)
			r.publish(other)
			sub := r.subscribe(r.dial(moqt.Handler{}))
			r.eventually("the relay is subscribed at both", func() bool { return r.upstreams() == 2 })
			tt.send(one, 1)
			r.eventually("the object is here", func() bool { return r.objects() == 1 })
			tt.again(other, 1)
			if tt.malformed {
				r.eventually("the relay leaves one of them", func() bool { return r.upstreams() == 1 })
			} else {
				r.eventually("the duplicate is counted", func() bool { return r.duplicates() == 1 })
				if n := r.upstreams(); n != 2 {
					t.Errorf("subscribed at %d publishers, want 2", n)
				}
			}
			r.write(one, 2, "on")
			for {
				if g, text := r.read(sub); g == 2 {
					if text != "on" {
						t.Errorf("group 2 is %q", text)
					}
					return
				}
			}
		})
	}
}

// stats returns the counters of the track points.
func (r *relay) stats() (s origin.Stats) {
	tracks, _ := r.Stats()
	for _, tr := range tracks {
		if tr.Name.Equal(points) {
			s = tr.Stats
		}
	}
	return s
}

func (r *relay) objects() uint64    { return r.stats().Objects }
func (r *relay) duplicates() uint64 { return r.stats().DuplicateSubgroup }

// TestEndOfTrack checks that the relay forwards the publisher's end of track and reports it in FETCH
// responses. An object after the end makes the track malformed (§2.4.2, §11.2.1.1).
func TestEndOfTrack(t *testing.T) {
	r := start(t, short())
	type sender struct{ *moqt.Publication }
	pubs := make(chan sender, 1)
	p := r.dial(moqt.Handler{Subscribe: func(req *moqt.SubscribeRequest) {
		pub, err := req.Accept(moqt.TrackInfo{})
		if err != nil {
			t.Error(err)
		}
		pubs <- sender{pub}
	}})
	if _, err := p.PublishNamespace(r.ctx, session); err != nil {
		t.Fatal(err)
	}
	viewer := r.dial(moqt.Handler{})
	sub := r.subscribe(viewer)
	pub := <-pubs
	send := func(group uint64, o moqt.Object, payload string) {
		w, err := pub.OpenSubgroup(wire.SubgroupHeader{
			Group: group, FirstObject: true,
			Mode: wire.SubgroupIDFirstObject,
		})
		if err == nil {
			err = w.WriteObject(o, []byte(payload))
		}
		if err == nil {
			err = w.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	send(1, moqt.Object{}, "last")
	r.expect(sub, 1, "last")
	send(2, moqt.Object{Status: wire.StatusEndOfTrack}, "")
	sg, err := sub.AcceptSubgroup(r.ctx)
	if err != nil {
		t.Fatal(err)
	}
	if o, err := sg.NextObject(); err != nil || o.Status != wire.StatusEndOfTrack {
		t.Errorf("got %+v, %v, want the end of the track", o, err)
	}
	f, err := viewer.Fetch(r.ctx, points, moqt.Location{Group: 1}, moqt.Location{Group: 9},
		moqt.FetchOptions{FillTimeout: new(time.Duration)})
	if err != nil {
		t.Fatal(err)
	}
	if !f.EndOfTrack || f.End != (moqt.Location{Group: 2, Object: 1}) {
		t.Errorf("FETCH_OK says end of track %v, end %v", f.EndOfTrack, f.End)
	}
	f.Cancel()
	send(2, moqt.Object{ID: 1}, "beyond")
	select {
	case <-sub.Done():
	case <-r.ctx.Done():
		t.Fatal("the subscription survives an object after the end")
	}
	if e, ok := sub.Err().(*moqt.DoneError); !ok || e.Code != wire.DoneMalformedTrack { //nolint:errorlint // unchanged
		t.Errorf("after an object beyond the end: %v", sub.Err())
	}
}

// TestPublishMeetsSubscribe checks that if a publisher's PUBLISH and the relay's SUBSCRIBE for a
// track cross, whichever is accepted serves the waiting subscriber (§5.1, §9.5).
func TestPublishMeetsSubscribe(t *testing.T) {
	r := start(t, short())
	p := r.dial(moqt.Handler{Subscribe: func(req *moqt.SubscribeRequest) {
		if req.Track.Name == "never" {
			_ = req.Reject(wire.RequestDuplicateSubscription, "a PUBLISH is under way")
			return
		}
		_, _ = req.Accept(moqt.TrackInfo{})
	}})
	if _, err := p.PublishNamespace(r.ctx, session); err != nil {
		t.Fatal(err)
	}
	viewer := r.dial(moqt.Handler{})
	met := 0
	for i := range 200 {
		name := moqt.TrackName{Namespace: session, Name: fmt.Sprint(i)}
		published := make(chan error, 1)
		go func() {
			_, err := p.Publish(r.ctx, name, moqt.TrackInfo{})
			published <- err
		}()
		_, err := viewer.Subscribe(r.ctx, name, moqt.SubscribeOptions{})
		if err := <-published; err == nil {
			met++
		}
		if err != nil {
			t.Errorf("track %d: %v", i, err)
		}
	}
	t.Logf("%d of 200 tracks were PUBLISHed", met)
	_, err := viewer.Subscribe(r.ctx, moqt.TrackName{Namespace: session, Name: "never"}, moqt.SubscribeOptions{})
	if e := (*moqt.RequestError)(nil); !errors.As(err, &e) || e.Code != wire.RequestDoesNotExist {
		t.Errorf("a PUBLISH that does not come: %v", err)
	}
}

// TestPriorGroupIDGap checks that a gap that reaches below group 0 makes the track malformed, for
// viewers too. Other gaps are forwarded (§12.8).
func TestPriorGroupIDGap(t *testing.T) {
	for gap, malformed := range map[uint64]bool{3: false, 4: true} {
		for _, datagram := range []bool{false, true} {
			t.Run(fmt.Sprint("gap ", gap, ", datagram ", datagram), func(t *testing.T) {
				t.Parallel()
				r := start(t, short())
				tr := newPoints()
				r.publish(tr)
				sub := r.subscribe(r.dial(moqt.Handler{}))
				props := moqt.Properties(wire.AppendKeyValues(nil,
					wire.KeyValue{Type: wire.PropertyPriorGroupIDGap, Int: gap}))
				if datagram {
					tr.SendDatagram(moqt.Datagram{Group: 3, Properties: props, Payload: []byte("x")})
				} else if err := tr.WriteObject(wire.SubgroupHeader{Group: 3, FirstObject: true, HasProperties: true},
					moqt.Object{Properties: props}, []byte("x")); err != nil {
					t.Fatal(err)
				}
				if malformed {
					select {
					case <-sub.Done():
					case <-r.ctx.Done():
						t.Fatal("the subscription stays open")
					}
					if e := (*moqt.DoneError)(nil); !errors.As(sub.Err(), &e) || e.Code != wire.DoneMalformedTrack {
						t.Errorf("the subscription ended with %v", sub.Err())
					}
					return
				}
				var got moqt.Properties
				if datagram {
					d, err := sub.AcceptDatagram(r.ctx)
					if err != nil {
						t.Fatal(err)
					}
					got = d.Properties
				} else {
					sg, err := sub.AcceptSubgroup(r.ctx)
					if err != nil {
						t.Fatal(err)
					}
					o, err := sg.NextObject()
					if err != nil {
						t.Fatal(err)
					}
					got = o.Properties
				}
				if v, _ := got.Int(wire.PropertyPriorGroupIDGap); v != gap {
					t.Errorf("gap %d arrived", v)
				}
			})
		}
	}
}

// TestTracksUnderAPrefix checks that tracks found by SUBSCRIBE_TRACKS are PUBLISHed with its forward
// state (§10.19).
func TestTracksUnderAPrefix(t *testing.T) {
	r := start(t, short())
	forward := make(chan *bool, 1)
	subs := make(chan *moqt.Subscription, 1)
	viewer := r.dial(moqt.Handler{Publish: func(req *moqt.PublishRequest) {
		forward <- req.Parameters.Forward
		sub, err := req.Accept(moqt.SubscribeOptions{Paused: true})
		if err != nil {
			t.Error(err)
		}
		subs <- sub
	}})
	if err := viewer.SubscribeTracksPaused(r.ctx, session); err != nil {
		t.Fatal(err)
	}
	tr := r.publishTrack()
	if f := <-forward; f == nil || *f {
		t.Errorf("PUBLISH said forward %v, want 0", f)
	}
	sub := <-subs
	r.write(tr, 1, "not wanted")
	r.eventually("the relay has it", func() bool { return r.objects() == 1 })
	if _, err := sub.Update(r.ctx, moqt.Parameters{Forward: new(true)}); err != nil {
		t.Fatal(err)
	}
	r.write(tr, 2, "wanted")
	r.expect(sub, 2, "wanted")
}

// lines forwards log lines to a channel. It drops a line if no reader is waiting.
type lines chan string

func (w lines) Write(b []byte) (int, error) {
	select {
	case w <- string(b):
	default:
	}
	return len(b), nil
}

// TestPublishBlocked checks that a SUBSCRIBE_TRACKS subscriber without a free stream receives
// PUBLISH_BLOCKED for the track. It receives no later PUBLISH for it, but may subscribe (§6.1).
func TestPublishBlocked(t *testing.T) {
	t.Parallel()
	r := start(t, short())
	var answer sync.Mutex // holds all answers
	answer.Lock()
	seen := make(chan string, 2000)
	told := make(lines, 100)
	cfg := quiet
	cfg.Log = slog.New(slog.NewTextHandler(told, nil))
	viewer, err := moqt.Dial(r.ctx, r.url, r.tls, moqt.Handler{Publish: func(req *moqt.PublishRequest) {
		seen <- req.Track.Namespace[1] + " " + req.Track.Name
		answer.Lock()
		answer.Unlock() //nolint:staticcheck // releases one answer
		_ = req.Reject(wire.RequestUninterested, "enough")
	}}, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { viewer.Close(wire.NoError, "") })
	if err := viewer.SubscribeTracks(r.ctx, moqt.Namespace{"many"}); err != nil {
		t.Fatal(err)
	}
	// Together the publishers exceed a session's stream limit; each publishes half of the tracks.
	const each = 600
	for _, who := range []string{"one", "other"} {
		p := r.dial(moqt.Handler{Subscribe: func(req *moqt.SubscribeRequest) { _, _ = req.Accept(moqt.TrackInfo{}) }})
		for i := range each {
			if _, err := p.Publish(r.ctx, moqt.TrackName{Namespace: moqt.Namespace{"many", who}, Name: fmt.Sprint(i)},
				moqt.TrackInfo{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	var line string
	select {
	case line = <-told:
	case <-r.ctx.Done():
		t.Fatal("the subscriber was not notified")
	}
	var name string
	_, rest, _ := strings.Cut(line, "track=many-")
	if _, err := fmt.Sscan(rest, &name); err != nil {
		t.Fatalf("it was notified of %q", line)
	}
	who, track, _ := strings.Cut(name, "--")
	answer.Unlock()
	if _, err := viewer.Subscribe(r.ctx, moqt.TrackName{Namespace: moqt.Namespace{"many", who}, Name: track},
		moqt.SubscribeOptions{}); err != nil {
		t.Error(err)
	}
	// All other tracks were published or reported as blocked.
	r.eventually("all tracks are reported", func() bool {
		return len(seen)+len(told)+1 >= 2*each ||
			len(told) == cap(told)
	})
	for len(seen) > 0 {
		if got := <-seen; got == who+" "+track {
			t.Errorf("%s was published after PUBLISH_BLOCKED", got)
		}
	}
}

// TestDiscoveryEnd checks that after cancelling SUBSCRIBE_TRACKS a session receives no further PUBLISH
// and keeps its accepted subscriptions (§6.1).
func TestDiscoveryEnd(t *testing.T) {
	r := start(t, short())
	viewer, subs := r.dialAccepting()
	ctx, withdraw := context.WithCancel(r.ctx)
	if err := viewer.SubscribeTracks(ctx, session); err != nil {
		t.Fatal(err)
	}
	tr := r.publishTrack()
	sub := <-subs
	withdraw()
	r.eventually("the discovery ends",
		func() bool { r.mu.Lock(); defer r.mu.Unlock(); return len(r.discoveries.all) == 0 })
	later := moqt.TrackName{Namespace: session, Name: "later"}
	if _, err := r.dial(moqt.Handler{}).Publish(r.ctx, later, moqt.TrackInfo{}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.dial(moqt.Handler{}).Subscribe(r.ctx, later, moqt.SubscribeOptions{}); err != nil {
		t.Fatal(err)
	}
	r.write(tr, 1, "goes on")
	r.expect(sub, 1, "goes on")
	if len(subs) > 0 {
		t.Error("a track was published after the discovery ended")
	}
}

// TestPrefixUpdate checks that a namespace subscriber that changes its prefix learns of the namespaces
// under the new prefix.
func TestPrefixUpdate(t *testing.T) {
	r := start(t, short())
	for _, ns := range []moqt.Namespace{{"a", "one"}, {"b", "two"}} {
		if _, err := r.dial(moqt.Handler{}).PublishNamespace(r.ctx, ns); err != nil {
			t.Fatal(err)
		}
	}
	n, err := r.dial(moqt.Handler{}).FollowNamespaces(r.ctx, moqt.Namespace{"a"})
	if err != nil {
		t.Fatal(err)
	}
	expect := func(added bool, ns ...string) {
		t.Helper()
		select {
		case e := <-n.Events:
			if e.Added != added || !e.Namespace.Equal(ns) {
				t.Errorf("got %+v, want %v %v", e, ns, added)
			}
		case <-r.ctx.Done():
			t.Fatalf("nothing of %v", ns)
		}
	}
	expect(true, "a", "one")
	moved := make(chan error, 1)
	go func() { moved <- n.Move(r.ctx, moqt.Namespace{"b"}) }()
	expect(false, "a", "one")
	if err := <-moved; err != nil {
		t.Fatal(err)
	}
	expect(true, "b", "two")
	if _, err := r.dial(moqt.Handler{}).PublishNamespace(r.ctx, moqt.Namespace{"b", "three"}); err != nil {
		t.Fatal(err)
	}
	expect(true, "b", "three")
}

// TestDraftsMeet checks that publisher and viewer may use different drafts.
func TestDraftsMeet(t *testing.T) {
	for _, publishing := range wire.Versions() {
		for _, watching := range wire.Versions() {
			t.Run(fmt.Sprint(publishing, " to ", watching), func(t *testing.T) {
				r := start(t, short())
				dial := func(v wire.Version, h moqt.Handler) *moqt.Session {
					cfg := quiet
					cfg.Versions = []wire.Version{v}
					s, err := moqt.Dial(r.ctx, r.url, r.tls, h, cfg)
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(func() { s.Close(wire.NoError, "") })
					return s
				}
				var set origin.Set
				tr := newPoints()
				set.Add(tr)
				if _, err := dial(publishing, set.Handler()).PublishNamespace(r.ctx, session); err != nil {
					t.Fatal(err)
				}
				r.write(tr, 1, "before")
				viewer := dial(watching, moqt.Handler{})
				sub, err := viewer.Subscribe(r.ctx, points, moqt.SubscribeOptions{Join: true})
				if err != nil {
					t.Fatal(err)
				}
				f, err := sub.Joined(r.ctx)
				if err != nil {
					t.Fatal(err)
				}
				if got := r.entries(f); !slices.Equal(got, []string{"1/0 before"}) {
					t.Errorf("fetched %q", got)
				}
				r.write(tr, 2, "after")
				r.expect(sub, 2, "after")
				if _, err := sub.Update(r.ctx, moqt.Parameters{SubscriberPriority: new(uint8(3))}); err != nil {
					t.Error(err)
				}
			})
		}
	}
}
