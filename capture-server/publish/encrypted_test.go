package publish_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"holocast/capture-server/publish"
	"holocast/internal/catalog"
	"holocast/internal/connect"
	"holocast/internal/devcert"
	"holocast/internal/loc"
	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/origin"
	"holocast/internal/parts"
	"holocast/internal/secureobjects"
	"holocast/internal/sessiontest"
	"holocast/relay/router"
)

// marker is in everything that the marked session publishes.
var marker = []byte("MARKED-FRAME-IN-THE-CLEAR")

var marked = moqt.Namespace{connect.Root, "marked"}

// sealedMedium publishes marked objects of every kind.
type sealedMedium struct {
	points, video, sound, datagrams *origin.Track
	pose                            *publish.Document
}

const frameParts = 5

func newSealedMedium(t *testing.T, p *publish.Publisher) *sealedMedium {
	t.Helper()
	track := func(name string) *origin.Track {
		return p.NewTrack(publish.Track{Name: name, Priority: 96, CacheAge: time.Hour})
	}
	m := &sealedMedium{
		points: track("points/0/full"), video: track("points/0/high"), sound: track("audio/0"),
		datagrams: track("points/1/full"), pose: p.NewDocument(catalog.PoseTrack),
	}
	if err := p.Add(m); err != nil {
		t.Fatal(err)
	}
	return m
}

func (m *sealedMedium) Name() string              { return "marked" }
func (m *sealedMedium) Run(context.Context) error { return nil }
func (m *sealedMedium) Close()                    {}

func (m *sealedMedium) Describe(c *catalog.Catalog) error {
	c.Tracks = append(c.Tracks, catalog.Track{
		Name: "audio/0", Packaging: catalog.PackagingLOC, Role: catalog.RoleAudio, IsLive: true, Label: string(marker),
		InitRef: "init",
	})
	c.InitDataList = append(c.InitDataList, catalog.InitData{ID: "init", Type: "inline", Data: string(marker)})
	return nil
}

// publish publishes one object of each kind in a group, and a video of three.
func (m *sealedMedium) publish(t *testing.T, group uint64) {
	t.Helper()
	props := loc.Properties{Timestamp: time.UnixMilli(1_700_000_000_000), Previous: marker}
	frame := bytes.Repeat(marker, 100)
	h := wire.SubgroupHeader{Group: group, Priority: 96, FirstObject: true, EndOfGroup: true}
	err := m.points.WriteObject(h, moqt.Object{}, frame)
	f, ferr := m.video.OpenSubgroup(h)
	for id := uint64(0); id < 3 && ferr == nil; id++ {
		ferr = f.WriteObject(moqt.Object{ID: id}, append(bytes.Clone(marker), byte(id)))
	}
	if ferr == nil {
		ferr = f.Close()
	}
	m.sound.SendDatagram(moqt.Datagram{
		Group: group, Priority: 8, EndOfGroup: true, Properties: props.Append(nil), Payload: marker,
	})
	publish.SendParts(m.datagrams, h, 0, make([]byte, frameParts*parts.MaxPart-200))
	if err := errors.Join(err, ferr, m.pose.Publish(marker)); err != nil {
		t.Fatal(err)
	}
}

func sessionKeys(t *testing.T) *secureobjects.Keys {
	t.Helper()
	var k secureobjects.Keys
	if err := k.Rotate(); err != nil {
		t.Fatal(err)
	}
	return &k
}

var quietLog = slog.New(slog.DiscardHandler)

// serve accepts sessions with a handler until the test ends, and returns a function that connects.
func serve(t *testing.T, accept func(*moqt.Session)) func(moqt.Handler, moqt.Opener) *moqt.Session {
	t.Helper()
	cert, err := devcert.Generate(time.Now(), "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	ln, err := moqt.Listen("127.0.0.1:0", moqt.ListenConfig{
		Config: moqt.Config{Log: quietLog}, TLS: &tls.Config{Certificates: []tls.Certificate{cert}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			s, err := ln.Accept(t.Context())
			if err != nil {
				return
			}
			accept(s)
		}
	}()
	return func(h moqt.Handler, opener moqt.Opener) *moqt.Session {
		s, err := moqt.Dial(t.Context(), "moqt://"+ln.Addr().String()+"/marked", devcert.Pinned(devcert.Hash(cert)), h,
			moqt.Config{Log: quietLog, Opener: opener})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close(wire.NoError, "") })
		return s
	}
}

// received is an object as a session received it.
type received struct {
	wire.FetchObject
	payload []byte
}

func (r received) String() string { return fmt.Sprintf("{%d, %d}", r.Group, r.Object) }

// fetchAll fetches the cached objects of a track.
func fetchAll(t *testing.T, s *moqt.Session, name string) (list []received) {
	t.Helper()
	f, err := s.Fetch(t.Context(), moqt.TrackName{Namespace: marked, Name: name}, moqt.Location{},
		moqt.Location{Group: 1 << 60}, moqt.FetchOptions{})
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	err = f.Each(t.Context(), 1<<20, func(o wire.FetchObject, b []byte) error {
		list = append(list, received{o, b})
		return nil
	})
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return list
}

var sealedTracks = []string{
	catalog.TrackName, catalog.PoseTrack, "points/0/full", "points/0/high", "points/1/full", "audio/0",
}

// TestEncryptedAtRelay publishes a marked session through a relay: nothing that the relay receives
// contains the mark, and a viewer with the key receives everything.
func TestEncryptedAtRelay(t *testing.T) {
	keys := sessionKeys(t)
	p := publish.New(publish.Config{Namespace: marked, Log: quietLog, Encrypt: secureobjects.NewPublisher(keys)})
	m := newSealedMedium(t, p)
	r := router.New(router.Config{Log: quietLog, Limits: origin.Limits{MaxAge: time.Hour}})
	var serving sync.WaitGroup
	t.Cleanup(serving.Wait)
	dial := serve(t, func(s *moqt.Session) { serving.Go(func() { r.Serve(s, func() {}) }) })
	if _, err := dial(p.Handler(), nil).PublishNamespace(t.Context(), marked); err != nil {
		t.Fatal(err)
	}
	v := secureobjects.NewViewer(marked, secureobjects.FixedKeys(keys))
	stranger, viewer := dial(moqt.Handler{}, nil), dial(moqt.Handler{}, v)
	subs := map[string]*moqt.Subscription{}
	for _, s := range []*moqt.Session{stranger, viewer} {
		for _, name := range []string{"points/0/full", "audio/0"} {
			sub, err := s.Subscribe(t.Context(), moqt.TrackName{Namespace: marked, Name: name}, moqt.SubscribeOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if s == viewer {
				subs[name] = sub
			}
		}
	}
	m.publish(t, publish.FirstGroup())
	for _, name := range sealedTracks {
		list := fetchAll(t, stranger, name)
		if len(list) == 0 {
			t.Errorf("the relay has no object of %s", name)
		}
		for _, o := range list {
			if bytes.Contains(o.payload, marker[:8]) || bytes.Contains(o.Properties, marker[:8]) {
				t.Errorf("%s %v: the relay has the mark", name, o)
			}
		}
		plain := fetchAll(t, viewer, name)
		if len(plain) != len(list) {
			t.Errorf("%s: the viewer has %d objects of %d", name, len(plain), len(list))
		}
		for _, o := range plain {
			if name != "points/1/full" && !bytes.Contains(o.payload, marker) {
				t.Errorf("%s %v: %.40q at the viewer", name, o, o.payload)
			}
		}
		if name == "audio/0" && len(plain) > 0 {
			if got, err := loc.Parse(plain[0].Properties); err != nil || !bytes.Equal(got.Previous, marker) {
				t.Errorf("properties %+v, %v", got, err)
			}
		}
	}
	sg, err := subs["points/0/full"].AcceptSubgroup(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	o, err := sg.NextObject()
	if err != nil || o.PayloadLength != uint64(100*len(marker)) {
		t.Fatalf("%+v, %v", o, err)
	}
	if b, err := sg.ReadPayload(nil, 1<<20); err != nil || !bytes.HasPrefix(b, marker) {
		t.Errorf("%.40q, %v", b, err)
	}
	if d, err := subs["audio/0"].AcceptDatagram(t.Context()); err != nil || !bytes.Equal(d.Payload, marker) {
		t.Errorf("%+v, %v", d, err)
	}
	if s := v.Stats(); s.Total() > 0 {
		t.Errorf("the viewer refused %v", s.Map())
	}
	for _, d := range fetchAll(t, stranger, "points/1/full") {
		if len(d.payload)+len(d.Properties) > parts.MaxPart {
			t.Errorf("an encrypted part has %d bytes, more than %d", len(d.payload)+len(d.Properties), parts.MaxPart)
		}
	}
}

// TestHostileRelay passes objects through a relay that changes, swaps and repeats them.
func TestHostileRelay(t *testing.T) {
	keys := sessionKeys(t)
	p := publish.New(publish.Config{Namespace: marked, Log: quietLog, Encrypt: secureobjects.NewPublisher(keys)})
	m := newSealedMedium(t, p)
	group := publish.FirstGroup()
	m.publish(t, group)
	m.publish(t, group+1)
	publisher := serve(t, func(s *moqt.Session) { s.Serve(p.Handler()) })(moqt.Handler{}, nil)
	points, video := fetchAll(t, publisher, "points/0/full"), fetchAll(t, publisher, "points/0/high")
	if len(points) != 2 || len(video) != 6 {
		t.Fatalf("%d and %d objects", len(points), len(video))
	}
	type change func(list []received)
	for name, x := range map[string]struct {
		objects []received
		change  change
		opened  int
		refused map[string]uint64
	}{
		"none":     {points, func([]received) {}, 2, map[string]uint64{}},
		"payload":  {points, func(l []received) { l[0].payload[40] ^= 1 }, 1, map[string]uint64{"forged": 1}},
		"priority": {points, func(l []received) { l[1].Priority++ }, 1, map[string]uint64{"forged": 1}},
		"key":      {points, func(l []received) { l[1].Properties = nil }, 1, map[string]uint64{"unencrypted": 1}},
		"swapped groups": {
			points, func(l []received) { l[0].payload, l[1].payload = l[1].payload, l[0].payload }, 0,
			map[string]uint64{"forged": 2},
		},
		"swapped in a group": {
			video, func(l []received) { l[0].payload, l[2].payload = l[2].payload, l[0].payload }, 4,
			map[string]uint64{"forged": 2},
		},
		"another track's": {
			points, func(l []received) { l[0].payload = bytes.Clone(video[0].payload) }, 1, map[string]uint64{"forged": 1},
		},
		"replayed later": {
			points, func(l []received) { l[1].payload, l[1].Properties = l[0].payload, l[0].Properties }, 1,
			map[string]uint64{"forged": 1},
		},
		"replaced by a clear one": {
			points, func(l []received) { l[0].payload, l[0].Properties = []byte("clear"), nil }, 1,
			map[string]uint64{"unencrypted": 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			list := make([]received, len(x.objects))
			for i, o := range x.objects {
				list[i] = received{o.FetchObject, bytes.Clone(o.payload)}
			}
			x.change(list)
			track := origin.NewTrack(moqt.TrackName{Namespace: marked, Name: x.objects[0].track(t, points)}, nil,
				origin.Limits{MaxAge: time.Hour})
			feeds := map[uint64]*origin.Feed{}
			var set origin.Set
			set.Add(track)
			for _, o := range list {
				f := feeds[o.Group]
				if f == nil {
					var err error
					if f, err = track.OpenSubgroup(wire.SubgroupHeader{
						Group: o.Group, Priority: o.Priority, HasProperties: true, FirstObject: true,
					}); err != nil {
						t.Fatal(err)
					}
					feeds[o.Group] = f
				}
				if err := f.WriteObject(moqt.Object{ID: o.Object, Properties: o.Properties}, o.payload); err != nil {
					t.Fatal(err)
				}
			}
			for _, f := range feeds {
				if err := f.Close(); err != nil {
					t.Fatal(err)
				}
			}
			v := secureobjects.NewViewer(marked, secureobjects.FixedKeys(keys))
			s := serve(t, func(s *moqt.Session) { s.Serve(set.Handler()) })(moqt.Handler{}, v)
			got := fetchAll(t, s, track.Name().Name)
			for _, o := range got {
				if !bytes.Contains(o.payload, marker) {
					t.Errorf("%v: %.40q", o, o.payload)
				}
			}
			if stats := v.Stats(); len(got) != x.opened || !maps.Equal(stats.Map(), x.refused) {
				t.Errorf("%d opened, %v refused, want %d and %v", len(got), stats.Map(), x.opened, x.refused)
			}
		})
	}
	t.Run("repeated datagrams", func(t *testing.T) {
		o := fetchAll(t, publisher, "audio/0")[0]
		name := moqt.TrackName{Namespace: marked, Name: "audio/0"}
		v := secureobjects.NewViewer(marked, secureobjects.FixedKeys(keys))
		s := serve(t, func(s *moqt.Session) {
			s.Serve(moqt.Handler{Subscribe: func(r *moqt.SubscribeRequest) {
				pub, err := r.Accept(moqt.TrackInfo{})
				for range 3 {
					if err == nil {
						err = pub.SendDatagram(moqt.Datagram{
							Group: o.Group, Object: o.Object, Priority: o.Priority, Properties: slices.Clone(o.Properties),
							Payload: bytes.Clone(o.payload),
						})
					}
				}
				if err != nil {
					t.Error(err)
				}
			}})
		})(moqt.Handler{}, v)
		sub, err := s.Subscribe(t.Context(), name, moqt.SubscribeOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := sub.AcceptDatagram(t.Context()); err != nil {
			t.Fatal(err)
		}
		go func() {
			if d, err := sub.AcceptDatagram(t.Context()); err == nil {
				t.Errorf("received again: %+v", d)
			}
		}()
		sessiontest.Until(t, "two refusals", func() bool { return v.Stats().Refused[secureobjects.Replayed] == 2 })
		sub.Cancel()
	})
}

// track returns the name of the track that the object is from.
func (r received) track(t *testing.T, points []received) string {
	t.Helper()
	if bytes.Equal(r.payload, points[0].payload) {
		return "points/0/full"
	}
	return "points/0/high"
}
