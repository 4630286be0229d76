package origin

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"holocast/internal/devcert"
	"holocast/internal/leaktest"
	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/sessiontest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

var testName = moqt.TrackName{Namespace: moqt.Namespace{"holocast", "test"}, Name: "points/0/full"}

func header(group, subgroup uint64) wire.SubgroupHeader {
	return wire.SubgroupHeader{
		Group:       group,
		Subgroup:    subgroup,
		Mode:        wire.SubgroupIDExplicit,
		FirstObject: true,
		Priority:    128,
	}
}

// checkAccount compares a track's memory counters with the memory it holds.
func checkAccount(t *testing.T, tr *Track) {
	t.Helper()
	tr.mu.Lock()
	defer tr.mu.Unlock()
	var sum int64
	for _, g := range tr.groups {
		held := int64(groupCost)
		for _, sg := range g.subgroups {
			held += subgroupCost
			for _, c := range sg.chunks {
				held += int64(cap(c))
			}
			for i := range sg.objects {
				held += sg.objects[i].cost()
			}
		}
		for i := range g.datagrams {
			held += g.datagrams[i].cost()
		}
		if len(g.hashes) != len(g.datagrams) {
			t.Errorf("group %d holds %d datagrams and %d hashes", g.id, len(g.datagrams), len(g.hashes))
		}
		if held != g.bytes {
			t.Errorf("group %d holds %d bytes but counts %d", g.id, held, g.bytes)
		}
		sum += g.bytes
	}
	if got := tr.bytes.Load(); got != sum {
		t.Errorf("track counts %d bytes, its groups %d", got, sum)
	}
}

// TestHostilePublishers checks that no publisher input makes a track exceed its memory limit.
func TestHostilePublishers(t *testing.T) {
	const maxBytes = 1 << 20
	payload := make([]byte, 40_000)
	properties := wire.AppendKeyValues(nil, wire.KeyValue{Type: 1001, Bytes: make([]byte, 2000)})
	// chunked appends an object with Space and Commit, as a relay does.
	chunked := func(f *Feed, o moqt.Object, payload []byte) error {
		enc := wire.ObjectEncoder{}
		o.PayloadLength = uint64(len(payload))
		b, err := enc.Append(nil, o)
		if err != nil {
			return err
		}
		b = append(b, payload...)
		for len(b) > 0 {
			n := copy(f.Space(), b)
			b = b[n:]
			if err := f.Commit(n); err != nil {
				return err
			}
		}
		return nil
	}
	for name, send := range map[string]func(tr *Track, i uint64) error{
		"empty groups": func(tr *Track, i uint64) error {
			_, err := tr.OpenSubgroup(header(i, 0))
			return err
		},
		"empty groups, descending": func(tr *Track, i uint64) error {
			_, err := tr.OpenSubgroup(header(1<<40-i, 0))
			return err
		},
		"empty subgroups": func(tr *Track, i uint64) error {
			return tr.WriteObject(header(1, i), moqt.Object{ID: i}, nil)
		},
		"groups after a huge one": func(tr *Track, i uint64) error {
			return tr.WriteObject(header(i%2*math.MaxUint64+i/2*(1-i%2), i), moqt.Object{ID: i}, payload)
		},
		"small datagrams, one group": func(tr *Track, i uint64) error {
			tr.SendDatagram(moqt.Datagram{Group: 1, Object: i})
			return nil
		},
		"small datagrams, many groups": func(tr *Track, i uint64) error {
			tr.SendDatagram(moqt.Datagram{Group: i})
			return nil
		},
		"objects with properties": func(tr *Track, i uint64) error {
			h := header(1, i)
			h.HasProperties = true
			return tr.WriteObject(h, moqt.Object{ID: i, Properties: slices.Clone(properties)}, nil)
		},
		"subgroups of one group": func(tr *Track, i uint64) error {
			return tr.WriteObject(header(1, i), moqt.Object{ID: i}, payload)
		},
		"unfinished subgroups": func(tr *Track, i uint64) error {
			f, err := tr.OpenSubgroup(header(i%100, i))
			if err != nil {
				return err
			}
			return chunked(f, moqt.Object{ID: i}, payload)
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := NewMemory(1 << 40)
			tr := NewTrack(testName, nil, Limits{MaxBytes: maxBytes, MaxAge: time.Hour, Memory: m})
			for i := range uint64(20_000) {
				if err := send(tr, i); err != nil && !errors.Is(err, ErrEvicted) && !errors.Is(err, ErrDuplicate) {
					t.Fatal(err)
				}
				if got := tr.Stats().CachedBytes; got > maxBytes {
					t.Fatalf("%d bytes cached after %d objects, limit %d", got, i, maxBytes)
				}
			}
			checkAccount(t, tr)
			if used, kept := m.Used(), tr.Stats().CachedBytes; used != kept {
				t.Errorf("Memory counts %d bytes, the track %d", used, kept)
			}
			tr.Discard()
			if used := m.Used(); used != 0 {
				t.Errorf("%d bytes still counted after the track was discarded", used)
			}
		})
	}
	t.Run("endless subgroup", func(t *testing.T) {
		tr := NewTrack(testName, nil, Limits{MaxBytes: maxBytes})
		f, err := tr.OpenSubgroup(header(1, 0))
		if err != nil {
			t.Fatal(err)
		}
		enc := wire.ObjectEncoder{}
		for i := range uint64(1000) {
			b, err := enc.Append(nil, wire.Object{ID: i, PayloadLength: uint64(len(payload))})
			if err != nil {
				t.Fatal(err)
			}
			for b = append(b, payload...); len(b) > 0; {
				n := copy(f.Space(), b)
				b = b[n:]
				if err := f.Commit(n); err != nil {
					t.Fatal(err)
				}
			}
			if got := tr.Stats().CachedBytes; got > maxBytes {
				t.Fatalf("%d bytes cached, limit %d", got, maxBytes)
			}
		}
		checkAccount(t, tr)
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		checkAccount(t, tr)
	})
	t.Run("endless object", func(t *testing.T) {
		tr := NewTrack(testName, nil, Limits{MaxBytes: maxBytes})
		f, err := tr.OpenSubgroup(header(1, 0))
		if err != nil {
			t.Fatal(err)
		}
		b, _ := (&wire.ObjectEncoder{}).Append(nil, wire.Object{PayloadLength: 1 << 40})
		if err := f.Commit(copy(f.Space(), b)); err != nil {
			t.Fatal(err)
		}
		for range 3000 {
			if err := f.Commit(len(f.Space())); err != nil {
				t.Fatal(err)
			}
			if got := tr.Stats().CachedBytes; got > maxBytes {
				t.Fatalf("%d bytes cached, limit %d", got, maxBytes)
			}
		}
		checkAccount(t, tr)
		if err := f.Close(); err == nil {
			t.Error("no error from Close inside an object")
		}
		checkAccount(t, tr)
	})
}

// TestObjectTooLong checks that an object whose end overflows int64 is rejected.
func TestObjectTooLong(t *testing.T) {
	for length, ok := range map[uint64]bool{
		1 << 62: true, math.MaxInt64 - 1: false, 1 << 63: false,
		math.MaxUint64: false,
	} {
		tr := NewTrack(testName, nil, Limits{})
		f, err := tr.OpenSubgroup(header(1, 0))
		if err != nil {
			t.Fatal(err)
		}
		b, err := (&wire.ObjectEncoder{}).Append(nil, wire.Object{PayloadLength: length})
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Commit(copy(f.Space(), b)); errors.Is(err, wire.ErrMalformedTrack) == ok {
			t.Errorf("object of %d bytes: %v", length, err)
		}
		for _, o := range f.sg.objects {
			if o.end() < o.offset {
				t.Errorf("object of %d bytes ends at %d", length, o.end())
			}
		}
	}
}

func TestTotalMemory(t *testing.T) {
	const total = 1 << 20
	m := NewMemory(total)
	random := rand.New(rand.NewPCG(1, 2))
	tracks := make([]*Track, 0, 50)
	for i := range cap(tracks) {
		tracks = append(
			tracks,
			NewTrack(
				moqt.TrackName{Namespace: testName.Namespace, Name: fmt.Sprint(i)},
				nil,
				Limits{MaxAge: time.Hour, Memory: m},
			),
		)
	}
	small := tracks[0]
	if err := small.WriteObject(header(1, 0), moqt.Object{}, []byte("catalog")); err != nil {
		t.Fatal(err)
	}
	for i := range uint64(5000) {
		tr := tracks[1+random.IntN(len(tracks)-1)]
		if err := tr.WriteObject(header(i, 0), moqt.Object{}, make([]byte, random.IntN(10_000))); err != nil &&
			!errors.Is(err, ErrEvicted) {
			t.Fatal(err)
		}
		if used := m.Used(); used > total {
			t.Fatalf("%d bytes used, limit %d", used, total)
		}
	}
	if got := small.Stats().CachedGroups; got != 1 {
		t.Errorf("the small track has %d groups, want 1: a large track should have been evicted", got)
	}
	for _, tr := range tracks {
		checkAccount(t, tr)
		tr.Discard()
	}
	if used := m.Used(); used != 0 {
		t.Errorf("%d bytes counted after all tracks were discarded", used)
	}
}

func TestAgeEvicts(t *testing.T) {
	props := moqt.Properties(wire.AppendKeyValues(nil, wire.KeyValue{Type: wire.PropertyMaxCacheDuration, Int: 20}))
	tr := NewTrack(testName, props, Limits{MaxAge: time.Hour})
	for i := range uint64(3) {
		if err := tr.WriteObject(header(i, 0), moqt.Object{}, []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(30 * time.Millisecond) // exceed MAX_CACHE_DURATION
	if err := tr.WriteObject(header(3, 0), moqt.Object{}, []byte("x")); err != nil {
		t.Fatal(err)
	}
	if oldest, _ := tr.OldestGroup(); oldest != 3 {
		t.Errorf("oldest group is %d, want 3", oldest)
	}
}

func TestDuplicates(t *testing.T) {
	tr := NewTrack(testName, nil, Limits{})
	f, err := tr.OpenSubgroup(header(1, 0))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tr.OpenSubgroup(header(1, 0)); !errors.Is(err, ErrDuplicate) {
		t.Errorf("second publisher's subgroup: %v, want ErrDuplicate", err)
	}
	f.Reset(wire.StreamInternalError)
	if _, err := tr.OpenSubgroup(header(1, 0)); err != nil {
		t.Errorf("after a reset: %v", err)
	}
	// Subgroups in this mode take the ID of their first object.
	byFirst := wire.SubgroupHeader{Group: 2, Mode: wire.SubgroupIDFirstObject, FirstObject: true}
	for i, want := range []error{nil, ErrDuplicate} {
		if err := tr.WriteObject(byFirst, moqt.Object{ID: 5}, []byte("x")); !errors.Is(err, want) {
			t.Errorf("publisher %d: %v, want %v", i, err, want)
		}
	}
	tr.SendDatagram(moqt.Datagram{Group: 3, Object: 1})
	tr.SendDatagram(moqt.Datagram{Group: 3, Object: 1})
	if s := tr.Stats(); s.DuplicateSubgroup != 3 {
		t.Errorf("%d duplicates counted, want 3", s.DuplicateSubgroup)
	}
}

// TestMissing checks that Missing lists the gaps in groups sent as datagrams, and nothing for other
// groups.
func TestMissing(t *testing.T) {
	tr := NewTrack(testName, nil, Limits{})
	send := func(group, object uint64, end bool) {
		tr.SendDatagram(moqt.Datagram{Group: group, Object: object, EndOfGroup: end, Payload: make([]byte, 1150)})
	}
	for _, id := range []uint64{0, 2, 3, 7} {
		send(1, id, false)
	}
	for _, id := range []uint64{1, 4} {
		send(2, id, id == 4)
	}
	send(3, math.MaxUint64, false)
	if err := tr.WriteObject(header(4, 0), moqt.Object{ID: 5}, []byte("x")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name               string
		group, first, last uint64
		want               []Span
	}{
		{"gaps and open end", 1, 0, 9, []Span{{1, 1}, {4, 6}, {8, 9}}},
		{"part of a gap", 1, 5, 5, []Span{{5, 5}}},
		{"present objects", 1, 2, 3, nil},
		{"open end", 1, 7, math.MaxUint64, []Span{{8, math.MaxUint64}}},
		{"ended group", 2, 0, math.MaxUint64, []Span{{0, 0}, {2, 3}}},
		{"after the end", 2, 5, 9, nil},
		{"largest ID", 3, math.MaxUint64 - 1, math.MaxUint64, []Span{{math.MaxUint64 - 1, math.MaxUint64 - 1}}},
		{"group in subgroups", 4, 0, 9, nil},
		{"unknown group", 9, 0, 9, nil},
	} {
		if got := tr.Missing(c.group, c.first, c.last); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	// A backfilled object closes its gap and is counted once.
	before := tr.Stats()
	for range 2 {
		tr.BackfillDatagram(moqt.Datagram{Group: 1, Object: 1, Payload: make([]byte, 1150)})
	}
	send(1, 1, false)
	if got := tr.Missing(1, 0, 3); got != nil {
		t.Errorf("after backfill: %v is missing", got)
	}
	after := tr.Stats()
	if grown := after.CachedBytes - before.CachedBytes; grown != 1150+datagramCost || after.Objects != before.Objects ||
		after.DuplicateSubgroup != before.DuplicateSubgroup+1 {
		t.Errorf("cache grew by %d bytes, counters changed from %+v to %+v", grown, before, after)
	}
	checkAccount(t, tr)
}

// testServer serves tracks over real sessions.
type testServer struct {
	t   *testing.T
	ctx context.Context
	url string
	tls *tls.Config
	set Set
}

func newTestServer(t *testing.T, tracks ...*Track) *testServer {
	t.Helper()
	return newTestServerAt(t, netip.MustParseAddr("127.0.0.1"), currentNamespace, tracks...)
}

// currentNamespace runs f in the test's own network namespace.
func currentNamespace(f func() error) error { return f() }

// newTestServerAt starts a server; do runs the call that opens its socket.
func newTestServerAt(t *testing.T, addr netip.Addr, do func(func() error) error, tracks ...*Track) *testServer {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	cert, err := devcert.Generate(time.Now(), addr.String())
	if err != nil {
		t.Fatal(err)
	}
	quiet := moqt.Config{Log: slog.New(slog.DiscardHandler)}
	var ln *moqt.Listener
	if err := do(func() (err error) {
		ln, err = moqt.Listen(netip.AddrPortFrom(addr, 0).String(),
			moqt.ListenConfig{Config: quiet, TLS: &tls.Config{Certificates: []tls.Certificate{cert}}})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cancel(); _ = ln.Close() })
	r := &testServer{t: t, ctx: ctx, url: "moqt://" + ln.Addr().String(), tls: devcert.Pinned(devcert.Hash(cert))}
	for _, tr := range tracks {
		r.set.Add(tr)
	}
	go func() {
		for {
			s, err := ln.Accept(ctx)
			if err != nil {
				return
			}
			s.Serve(r.set.Handler())
		}
	}()
	return r
}

func (r *testServer) dial() *moqt.Session {
	r.t.Helper()
	return r.dialFrom(currentNamespace)
}

// dialFrom opens a session; do runs the call that opens its socket.
func (r *testServer) dialFrom(do func(func() error) error) *moqt.Session {
	r.t.Helper()
	var s *moqt.Session
	if err := do(func() (err error) {
		s, err = moqt.Dial(r.ctx, r.url, r.tls, moqt.Handler{}, moqt.Config{Log: slog.New(slog.DiscardHandler)})
		return err
	}); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { s.Close(wire.NoError, "") })
	return s
}

func (r *testServer) subscribe(s *moqt.Session, o moqt.SubscribeOptions) *moqt.Subscription {
	r.t.Helper()
	sub, err := s.Subscribe(r.ctx, testName, o)
	if err != nil {
		r.t.Fatal(err)
	}
	return sub
}

// read reads one subgroup to its end.
func (r *testServer) read(sub *moqt.Subscription) (group uint64, objects [][]byte, err error) {
	r.t.Helper()
	sg, err := sub.AcceptSubgroup(r.ctx)
	if err != nil {
		return 0, nil, err
	}
	for {
		o, err := sg.NextObject()
		if err == io.EOF {
			return sg.Group, objects, nil
		}
		if err != nil {
			return sg.Group, objects, err
		}
		if o.Status != wire.StatusNormal {
			continue
		}
		b, err := sg.ReadPayload(nil, 64<<20)
		if err != nil {
			return sg.Group, objects, err
		}
		objects = append(objects, b)
	}
}

// TestCutThrough checks that an object's first bytes reach the viewer before its last bytes have
// arrived.
func TestCutThrough(t *testing.T) {
	tr := NewTrack(testName, nil, Limits{})
	r := newTestServer(t, tr)
	sub := r.subscribe(r.dial(), moqt.SubscribeOptions{})
	f, err := tr.OpenSubgroup(header(1, 0))
	if err != nil {
		t.Fatal(err)
	}
	b, _ := (&wire.ObjectEncoder{}).Append(nil, wire.Object{PayloadLength: 200_000})
	b = append(b, make([]byte, 100_000)...)
	write := func(b []byte) {
		for len(b) > 0 {
			n := copy(f.Space(), b)
			b = b[n:]
			if err := f.Commit(n); err != nil {
				t.Fatal(err)
			}
		}
	}
	write(b)
	sg, err := sub.AcceptSubgroup(r.ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sg.NextObject(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(sg, make([]byte, 100_000)); err != nil {
		t.Fatal(err)
	}
	write(make([]byte, 100_000))
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if n, err := io.Copy(io.Discard, sg); n != 100_000 || err != nil {
		t.Errorf("%d more bytes, %v", n, err)
	}
}

// TestLateJoiner checks that the joining fetch delivers the part of the open subgroup that arrived
// before the subscription, and the subscription the rest.
func TestLateJoiner(t *testing.T) {
	for _, mode := range []wire.SubgroupIDMode{wire.SubgroupIDExplicit, wire.SubgroupIDFirstObject} {
		tr := NewTrack(testName, nil, Limits{})
		r := newTestServer(t, tr)
		h := header(4, 0)
		h.Mode = mode
		f, err := tr.OpenSubgroup(h)
		if err != nil {
			t.Fatal(err)
		}
		for i := range uint64(3) {
			if err := f.WriteObject(moqt.Object{ID: i}, []byte{byte(i)}); err != nil {
				t.Fatal(err)
			}
		}
		s := r.dial()
		sub := r.subscribe(s, moqt.SubscribeOptions{})
		fetch, err := s.FetchJoining(r.ctx, sub, 0, moqt.FetchOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var got []byte
		for {
			o, err := fetch.Next()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			b, err := fetch.ReadPayload(nil, 10)
			if err != nil {
				t.Fatal(err)
			}
			if o.Subgroup != 0 {
				t.Errorf("object %d is of subgroup %d", o.Object, o.Subgroup)
			}
			got = append(got, b...)
		}
		for i := uint64(3); i < 6; i++ {
			if err := f.WriteObject(moqt.Object{ID: i}, []byte{byte(i)}); err != nil {
				t.Fatal(err)
			}
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		_, objects, err := r.read(sub)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, bytes.Join(objects, nil)...)
		if want := []byte{0, 1, 2, 3, 4, 5}; !bytes.Equal(got, want) {
			t.Errorf("mode %d: fetch and subscription gave %v, want %v", mode, got, want)
		}
		s.Close(wire.NoError, "")
	}
}

// TestAttach checks that objects that arrive between Attach, Accept and Serve are delivered once,
// through the subscription and not through the joining fetch.
func TestAttach(t *testing.T) {
	tr := NewTrack(testName, nil, Limits{})
	f, err := tr.OpenSubgroup(header(4, 0))
	if err != nil {
		t.Fatal(err)
	}
	next := uint64(0)
	write := func() { // an object in the open subgroup, an object in its own subgroup and a datagram
		if err := f.WriteObject(moqt.Object{ID: next}, []byte{byte(next)}); err != nil {
			t.Error(err)
		}
		payload := []byte{byte(next + 1)}
		if err := tr.WriteObject(header(4, next+1), moqt.Object{ID: next + 1}, payload); err != nil {
			t.Error(err)
		}
		tr.SendDatagram(moqt.Datagram{Group: 4, Object: next + 2, Payload: []byte{byte(next + 2)}})
		next += 3
	}
	write()
	c, _ := sessiontest.Connect(t, moqt.Handler{}, moqt.Handler{
		Subscribe: func(req *moqt.SubscribeRequest) {
			v := NewQueue(0).Attach(tr)
			write()
			pub, err := req.Accept(v.Info())
			if err != nil {
				t.Error(err)
				return
			}
			write()
			go v.Serve(Publication{pub}) //nolint:errcheck // ends with the session
			write()
			if err := f.Close(); err != nil {
				t.Error(err)
			}
			for tr.Viewers() == 0 { // Serve has not sent the earlier datagrams yet
				time.Sleep(time.Millisecond)
			}
			tr.SendDatagram(moqt.Datagram{Group: 5, Payload: []byte{byte(next)}})
		},
		Fetch: func(req *moqt.FetchRequest) { _ = tr.ServeFetch(req, nil) },
	})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	sub, err := c.Subscribe(ctx, testName, moqt.SubscribeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var fetched, streamed, datagrams []byte
	fetch, err := c.FetchJoining(ctx, sub, 0, moqt.FetchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := fetch.Next(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		b, err := fetch.ReadPayload(nil, 100)
		if err != nil {
			t.Fatal(err)
		}
		fetched = append(fetched, b...)
	}
	for range 4 { // subgroups
		sg, err := sub.AcceptSubgroup(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for {
			if _, err := sg.NextObject(); err == io.EOF {
				break
			} else if err != nil {
				t.Fatal(err)
			}
			b, err := sg.ReadPayload(nil, 100)
			if err != nil {
				t.Fatal(err)
			}
			streamed = append(streamed, b...)
		}
	}
	for len(datagrams) < 4 {
		d, err := sub.AcceptDatagram(ctx)
		if err != nil {
			t.Fatal(err)
		}
		datagrams = append(datagrams, d.Payload...)
	}
	slices.Sort(streamed)
	slices.Sort(datagrams)
	if want := []byte{0, 1, 2}; !bytes.Equal(fetched, want) {
		t.Errorf("fetched %v, want %v", fetched, want)
	}
	if want := []byte{3, 4, 6, 7, 9, 10}; !bytes.Equal(streamed, want) {
		t.Errorf("subgroups delivered %v, want %v", streamed, want)
	}
	if want := []byte{5, 8, 11, 12}; !bytes.Equal(datagrams, want) {
		t.Errorf("datagrams delivered %v, want %v", datagrams, want)
	}
}

// TestLargestBeforeServe checks that the largest location in SUBSCRIBE_OK includes what upstream
// published before it accepted the subscription, but not what arrived later, nor locations from
// before a restart.
func TestLargestBeforeServe(t *testing.T) {
	tr := NewTrack(testName, nil, Limits{})
	tr.SendDatagram(moqt.Datagram{Group: 4})
	v := NewQueue(0).Attach(tr)
	check := func(when string, want *moqt.Location) {
		t.Helper()
		if l, ok := v.Largest(); ok != (want != nil) || ok && l != *want {
			t.Errorf("%s: %v, %t", when, l, ok)
		}
	}
	tr.SendDatagram(moqt.Datagram{Group: 9})
	check("an object arrived", &moqt.Location{Group: 4})
	tr.RaiseLargest(moqt.Location{Group: 3})
	check("upstream is behind", &moqt.Location{Group: 4})
	tr.RaiseLargest(moqt.Location{Group: 8})
	check("upstream is ahead", &moqt.Location{Group: 8})
	tr.Restart(nil)
	tr.SendDatagram(moqt.Datagram{Group: 1})
	check("the publisher restarted", nil)
	tr.RaiseLargest(moqt.Location{Group: 2})
	check("upstream is ahead again", &moqt.Location{Group: 2})
}

// TestFetchAfterTrim checks that a fetch reports the evicted part of a group as unknown.
func TestFetchAfterTrim(t *testing.T) {
	tr := NewTrack(testName, nil, Limits{MaxBytes: 100_000})
	r := newTestServer(t, tr)
	f, err := tr.OpenSubgroup(header(0, 0))
	if err != nil {
		t.Fatal(err)
	}
	for i := range uint64(50) {
		if err := f.WriteObject(moqt.Object{ID: i}, bytes.Repeat([]byte{byte(i)}, 10_000)); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	fetch, err := r.dial().Fetch(r.ctx, testName, moqt.Location{}, moqt.Location{Group: 0}, moqt.FetchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	next := uint64(0)
	for {
		o, err := fetch.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if o.Range == wire.RangeUnknown {
			next = o.Object + 1
			continue
		}
		b, err := fetch.ReadPayload(nil, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		if o.Object != next || len(b) != 10_000 || b[0] != byte(o.Object) {
			t.Fatalf("object %d of %d bytes, want %d", o.Object, len(b), next)
		}
		next++
	}
	if next != 50 {
		t.Errorf("response ends before object %d, want 50", next)
	}
}

// TestViewerThatReadsNothing checks that a stalled viewer does not make the track exceed its limit,
// and that other viewers get everything.
func TestViewerThatReadsNothing(t *testing.T) {
	const size, frames = 400_000, 180 // 72 MB: more than a session's receive window
	const maxOpen = 8
	limits := Limits{MaxBytes: 8 << 20, MaxAge: time.Hour}
	tr := NewTrack(testName, nil, limits)
	r := newTestServer(t, tr)
	r.set.MaxOpen = maxOpen
	stuck := r.subscribe(r.dial(), moqt.SubscribeOptions{})
	// Accept the subgroups, so that the session cannot refuse them, but read none.
	go func() {
		for {
			if _, err := stuck.AcceptSubgroup(r.ctx); err != nil {
				return
			}
		}
	}()
	good := r.subscribe(r.dial(), moqt.SubscribeOptions{})
	for i := range uint64(frames) {
		payload := bytes.Repeat([]byte{byte(i)}, size)
		if err := tr.WriteObject(header(i, 0), moqt.Object{}, payload); err != nil {
			t.Fatal(err)
		}
		group, objects, err := r.read(good)
		if err != nil || group != i || len(objects) != 1 || !bytes.Equal(objects[0], payload) {
			t.Fatalf("frame %d: group %d, %d objects, %v", i, group, len(objects), err)
		}
		if kept := tr.Stats().CachedBytes; kept > limits.MaxBytes {
			t.Fatalf("%d bytes kept", kept)
		}
	}
	if s := tr.Stats(); s.Behind == 0 {
		t.Error("nothing was dropped for the stalled viewer")
	}
	tr.mu.Lock()
	for v := range tr.viewers {
		if n := len(v.q.deliveriesTo(v)); n > maxOpen {
			t.Errorf("%d subgroups in flight to a viewer, limit %d", n, maxOpen)
		}
	}
	tr.mu.Unlock()
}

// TestEndWithUnreadViewer checks that a viewer that reads nothing does not prevent the end of a
// track.
func TestEndWithUnreadViewer(t *testing.T) {
	tr := NewTrack(testName, nil, Limits{MaxAge: 50 * time.Millisecond})
	r := newTestServer(t, tr)
	sub := r.subscribe(r.dial(), moqt.SubscribeOptions{})
	if err := tr.WriteObject(header(0, 0), moqt.Object{}, make([]byte, 60<<20)); err != nil {
		t.Fatal(err)
	}
	if _, err := sub.AcceptSubgroup(r.ctx); err != nil {
		t.Fatal(err)
	}
	tr.End(wire.DoneTrackEnded, "over")
	select {
	case <-sub.Done():
	case <-r.ctx.Done():
		t.Fatal("no PUBLISH_DONE")
	}
	var done *moqt.DoneError
	if !errors.As(sub.Err(), &done) || done.Code != wire.DoneTrackEnded {
		t.Errorf("subscription ended with %v", sub.Err())
	}
}

// TestForwardToggle checks that a paused viewer receives nothing, and new subgroups once it
// resumes.
func TestForwardToggle(t *testing.T) {
	tr := NewTrack(testName, nil, Limits{})
	r := newTestServer(t, tr)
	sub := r.subscribe(r.dial(), moqt.SubscribeOptions{Paused: true})
	write := func(group uint64) {
		t.Helper()
		if err := tr.WriteObject(header(group, 0), moqt.Object{}, []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	write(1)
	forward := func(on bool) {
		t.Helper()
		if _, err := sub.Update(r.ctx, moqt.Parameters{Forward: &on}); err != nil {
			t.Fatal(err)
		}
	}
	forward(true)
	write(2)
	// A subgroup published just before the viewer resumes may be sent just after.
	upTo := func(want uint64, not ...uint64) {
		t.Helper()
		for group := uint64(0); group != want; {
			var err error
			if group, _, err = r.read(sub); err != nil || slices.Contains(not, group) {
				t.Fatalf("group %d, %v, want %d", group, err, want)
			}
		}
	}
	upTo(2)
	forward(false)
	write(3)
	forward(true)
	write(4)
	upTo(4, 2) // group 1 may still arrive: streams are independent
}

// TestMaxCacheDurationOfSubscriptions checks that a relay sends a late subscriber no subgroup or
// datagram older than MAX_CACHE_DURATION (§12.3).
func TestMaxCacheDurationOfSubscriptions(t *testing.T) {
	const keep = 200 * time.Millisecond
	tr := NewTrack(
		testName,
		wire.AppendKeyValues(nil, wire.KeyValue{Type: wire.PropertyMaxCacheDuration, Int: uint64(keep.Milliseconds())}),
		Limits{MaxAge: time.Hour},
	)
	tr.Relayed = true
	v := NewQueue(0).Attach(tr)
	write := func(group uint64) {
		t.Helper()
		if err := tr.WriteObject(header(group, 0), moqt.Object{}, []byte("x")); err != nil {
			t.Fatal(err)
		}
		tr.SendDatagram(moqt.Datagram{Group: group + 1000, Payload: []byte("x")})
	}
	write(1)
	time.Sleep(2 * keep)
	c, _ := sessiontest.Connect(t, moqt.Handler{}, moqt.Handler{Subscribe: func(req *moqt.SubscribeRequest) {
		pub, err := req.Accept(v.Info())
		if err != nil {
			t.Error(err)
			return
		}
		go v.Serve(Publication{pub}) //nolint:errcheck // ends with the session
	}})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	sub, err := c.Subscribe(ctx, testName, moqt.SubscribeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan uint64, 1000)
	go func() {
		for {
			d, err := sub.AcceptDatagram(ctx)
			if err != nil {
				return
			}
			got <- d.Group
		}
	}()
	go func() {
		for {
			sg, err := sub.AcceptSubgroup(ctx)
			if err != nil {
				return
			}
			if _, err := sg.NextObject(); err == nil {
				got <- sg.Group
			}
		}
	}()
	// On a slow machine new objects expire too, so write until one of each kind arrives.
	streams, datagrams := false, false
	for group := uint64(2); !streams || !datagrams; group++ {
		write(group)
		for wait := time.After(50 * time.Millisecond); wait != nil; {
			select {
			case g := <-got:
				if g == 1 || g == 1001 {
					t.Fatalf("group %d was sent after twice MAX_CACHE_DURATION", g)
				}
				streams, datagrams = streams || g < 1000, datagrams || g > 1000
			case <-wait:
				wait = nil
			case <-ctx.Done():
				t.Fatal("no new object arrived")
			}
		}
	}
}

// BenchmarkFanOut measures the path from Commit to the viewers' streams, with one packet per Commit
// as in a relay.
func BenchmarkFanOut(b *testing.B) {
	for _, viewers := range []int{1, 50} {
		b.Run(fmt.Sprint(viewers), func(b *testing.B) {
			tr := NewTrack(testName, nil, Limits{})
			f, err := tr.OpenSubgroup(header(0, 0))
			if err != nil {
				b.Fatal(err)
			}
			head, _ := (&wire.ObjectEncoder{}).Append(nil, wire.Object{PayloadLength: 1 << 50})
			if err := f.Commit(copy(f.Space(), head)); err != nil {
				b.Fatal(err)
			}
			done := make(chan int64)
			const packet = 1200
			total := int64(len(head)) + int64(b.N)*packet
			for range viewers {
				go func() {
					at, writes := int64(0), int64(0)
					for at < total {
						p, changed, _ := f.sg.bytes(at, maxPiece)
						if len(p) == 0 {
							if changed == nil {
								break
							}
							<-changed
							continue
						}
						at += int64(len(p))
						writes++
					}
					done <- writes
				}()
			}
			b.SetBytes(packet)
			b.ResetTimer()
			for range b.N {
				for n := packet; n > 0; {
					k := min(n, len(f.Space()))
					if err := f.Commit(k); err != nil {
						b.Fatal(err)
					}
					n -= k
				}
			}
			var writes int64
			for range viewers {
				writes += <-done
			}
			b.ReportMetric(float64(writes)/float64(viewers)/float64(b.N), "writes/packet")
			f.Reset(wire.StreamCancelled)
		})
	}
}
