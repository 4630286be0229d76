package replay

import (
	"context"
	"errors"
	"io"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"holocast/internal/catalog"
	"holocast/internal/loc"
	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/recording"
	"holocast/internal/recording/recordingtest"
	"holocast/internal/sessiontest"
)

// onDemandSession replays a recording of six objects to a session. From the second object on, they
// are 4 ms apart.
func onDemandSession(t *testing.T, cfg Config) *moqt.Session {
	t.Helper()
	data := wire.TrackName{Namespace: session, Name: "data"}
	objects := []recording.Object{
		recordingtest.Catalog(t, "data", "never"), // arrives at 0 ms
		{Track: data, Group: 100, Payload: []byte("a"), FirstObject: true},
		{
			Track:       data,
			Group:       100,
			Subgroup:    1,
			ObjectID:    1,
			Priority:    9,
			Payload:     []byte("b"),
			Properties:  wire.AppendKeyValues(nil, wire.KeyValue{Type: 0x1000, Int: 9}),
			FirstObject: true,
			End:         recording.EndFIN,
		},
		{Track: data, Group: 107, Payload: []byte("c"), FirstObject: true}, // arrives at 12 ms
		{Track: data, Group: 107, EndOnly: true, End: recording.EndFIN},
		{Track: data, Group: 108, ObjectID: 3, Forwarding: recording.Datagram, Payload: []byte("d")}, // at 20 ms
	}
	cfg.Namespace, cfg.Log = moqt.Namespace{"a", "b"}, quiet
	r, err := Open(recordingtest.Write(t, objects), cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = r.Run(ctx)
	}()
	t.Cleanup(func() {
		stop()
		<-done
	})
	c, _ := sessiontest.Connect(t, moqt.Handler{}, r.Handler())
	return c
}

var pastData = moqt.TrackName{Namespace: moqt.Namespace{"a", "b", OnDemandField}, Name: "data"}

// fetchAll reads a FETCH to its end and returns its objects without properties and payloads.
func fetchAll(t *testing.T, f *moqt.FetchReader) []wire.FetchObject {
	t.Helper()
	defer f.Cancel()
	var list []wire.FetchObject
	for {
		o, err := f.Next()
		if err == io.EOF {
			return list
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.ReadPayload(nil, 1<<20); err != nil {
			t.Fatal(err)
		}
		o.Properties = nil
		list = append(list, o)
	}
}

func TestOnDemandRanges(t *testing.T) {
	c := onDemandSession(t, Config{Loop: true})
	a := wire.FetchObject{Group: 4, PayloadLength: 1}
	b := wire.FetchObject{Group: 4, Object: 1, Subgroup: 1, Priority: 9, PayloadLength: 1}
	g := wire.FetchObject{Group: 12, PayloadLength: 1}
	d := wire.FetchObject{Group: 20, Object: 3, Datagram: true, PayloadLength: 1}
	for _, tt := range []struct {
		name       string
		start, end moqt.Location
		order      moqt.GroupOrder
		want       []wire.FetchObject
		last       moqt.Location
		over       bool
	}{
		{
			"all",
			moqt.Location{},
			moqt.Location{Group: 1 << 40},
			0,
			[]wire.FetchObject{a, b, g, d},
			moqt.Location{Group: 20, Object: 4},
			true,
		},
		{
			"backwards",
			moqt.Location{},
			moqt.Location{Group: 19},
			wire.Descending,
			[]wire.FetchObject{g, a, b},
			moqt.Location{Group: 19},
			false,
		},
		{"nothing between", moqt.Location{Group: 5}, moqt.Location{Group: 11}, 0, nil, moqt.Location{Group: 11}, false},
		{
			"part of a group",
			moqt.Location{Group: 4, Object: 1},
			moqt.Location{Group: 12, Object: 1},
			0,
			[]wire.FetchObject{b, g},
			moqt.Location{Group: 12, Object: 1},
			false,
		},
		{
			"the end",
			moqt.Location{Group: 13},
			moqt.Location{Group: 20},
			0,
			[]wire.FetchObject{d},
			moqt.Location{Group: 20, Object: 4},
			true,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f, err := c.Fetch(t.Context(), pastData, tt.start, tt.end, moqt.FetchOptions{GroupOrder: tt.order})
			if err != nil {
				t.Fatal(err)
			}
			if f.End != tt.last || f.EndOfTrack != tt.over {
				t.Errorf("FETCH_OK says %v, end of track %v", f.End, f.EndOfTrack)
			}
			got := fetchAll(t, f)
			for i := range got {
				if got[i].Datagram {
					got[i].Subgroup = 0
				}
			}
			if len(got) != len(tt.want) || !slices.EqualFunc(got, tt.want, func(a, b wire.FetchObject) bool {
				return a.Group == b.Group && a.Object == b.Object && a.Subgroup == b.Subgroup && a.Datagram == b.Datagram &&
					a.Priority == b.Priority
			}) {
				t.Errorf("got %+v\nwant %+v", got, tt.want)
			}
		})
	}
	_, err := c.Fetch(t.Context(), pastData, moqt.Location{Group: 21}, moqt.Location{Group: math.MaxUint32},
		moqt.FetchOptions{})
	if e := (*moqt.RequestError)(nil); !errors.As(err, &e) || e.Code != wire.RequestInvalidRange {
		t.Errorf("behind the end: %v", err)
	}
}

// A relay subscribes before it fetches. The subscription's largest object is the recording's last,
// and a joining FETCH returns it.
func TestOnDemandSubscription(t *testing.T) {
	c := onDemandSession(t, Config{Loop: true})
	sub, err := c.Subscribe(t.Context(), pastData, moqt.SubscribeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Cancel()
	if sub.Largest == nil || *sub.Largest != (moqt.Location{Group: 20, Object: 3}) {
		t.Errorf("largest %v", sub.Largest)
	}
	f, err := c.FetchJoining(t.Context(), sub, 0, moqt.FetchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := fetchAll(t, f); len(got) != 1 || got[0].Group != 20 {
		t.Errorf("joined %+v", got)
	}
}

func TestOnDemandCatalog(t *testing.T) {
	c := onDemandSession(t, Config{Loop: true})
	name := moqt.TrackName{Namespace: pastData.Namespace, Name: catalog.TrackName}
	sub, err := c.Subscribe(t.Context(), name, moqt.SubscribeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Cancel()
	f, err := c.FetchJoining(t.Context(), sub, 0, moqt.FetchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Cancel()
	if _, err := f.Next(); err != nil {
		t.Fatal(err)
	}
	b, err := f.ReadPayload(nil, catalog.MaxSize)
	if err != nil {
		t.Fatal(err)
	}
	got, err := catalog.Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Tracks) != 1 {
		t.Fatalf("tracks %+v, want the one that has objects", got.Tracks)
	}
	want := catalog.Template{MediaStep: 1, Step: [2]uint64{1, 0}, Wallclock: 1790000000000, WallclockStep: 1}
	if x := got.Tracks[0]; x.Name != "data" || x.IsLive || x.TrackDuration != 20 || x.Template != want {
		t.Errorf("%+v", x)
	}
}

func TestOnDemandNotOffered(t *testing.T) {
	for _, tt := range []struct {
		name string
		cfg  Config
	}{
		{"live", Config{Loop: true, Live: true}},
		{"the replay is over", Config{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := onDemandSession(t, tt.cfg)
			sessiontest.Until(t, "a refusal", func() bool {
				f, err := c.Fetch(t.Context(), pastData, moqt.Location{}, moqt.Location{Group: 4}, moqt.FetchOptions{})
				if err == nil {
					if _, err = f.Next(); err == nil {
						f.Cancel()
					}
				}
				return err != nil && (strings.Contains(err.Error(), "no track") || strings.Contains(err.Error(), "reset"))
			})
		})
	}
}

// Tracks are in step despite different delays, unless the capture clock was set.
func TestOnDemandMediaTimes(t *testing.T) {
	start := time.Unix(1790000000, 0)
	list := []recording.Object{recordingtest.Catalog(t, "data", "other")}
	add := func(track string, group uint64, captured, arrived int) {
		at := start.Add(time.Duration(captured) * time.Millisecond)
		list = append(list, recording.Object{
			Track: wire.TrackName{Namespace: session, Name: track}, Group: group, Payload: []byte("x"),
			Properties: loc.Properties{Timestamp: at}.Append(nil), FirstObject: true,
			Arrival: start.Add(time.Duration(arrived) * time.Millisecond), End: recording.EndFIN,
		})
	}
	add("data", 1, -30, 90) // late
	add("data", 2, 20, 60)
	add("data", 3, 70, 185) // late
	add("data", 4, 120, 160)
	add("data", 5, 5_000_120, 210) // the clock was set
	add("data", 6, 220, 260)
	for g := range 20 {
		add("other", uint64(7+g), 10*g, 10*g+40)
	}
	slices.SortStableFunc(list[1:], func(a, b recording.Object) int { return a.Arrival.Compare(b.Arrival) })
	r, err := Open(recordingtest.Write(t, list), Config{Namespace: moqt.Namespace{"a"}, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	defer r.past.close()
	if err := r.past.index(); err != nil {
		t.Fatal(err)
	}
	ids := func(name string) (list []uint64) {
		for _, g := range r.past.tracks[moqt.TrackName{Namespace: r.past.ns, Name: name}.String()].groups {
			list = append(list, g.id)
		}
		return list
	}
	// Media time 0 is 40 ms, the usual delay, before the recording's start.
	if got, want := ids("data"), []uint64{10, 60, 110, 160, 210, 260}; !slices.Equal(got, want) {
		t.Errorf("groups at %d ms, want %d", got, want)
	}
	if got := ids("other"); got[0] != 40 || got[19] != 230 {
		t.Errorf("the other track's groups at %d ms", got)
	}
}
