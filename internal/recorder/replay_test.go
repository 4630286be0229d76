package recorder

import (
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"holocast/internal/catalog"
	"holocast/internal/connect"
	"holocast/internal/leaktest"
	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/recording"
	"holocast/internal/recording/recordingtest"
	"holocast/internal/replay"
	"holocast/internal/sessiontest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

var (
	quiet   = slog.New(slog.DiscardHandler)
	session = recordingtest.Session
)

func read(t *testing.T, path string) (objects []recording.Object, info recording.Info) {
	t.Helper()
	r, err := recording.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	for {
		o, err := r.Next()
		if err == io.EOF {
			return objects, r.Info
		}
		if err != nil {
			t.Fatal(err)
		}
		objects = append(objects, o)
	}
}

// describe formats the fields that a replay preserves.
func describe(o recording.Object) string {
	return fmt.Sprintf(
		"%s %d/%d/%d priority %d status %d forwarding %d properties %x payload %.20q last %v", o.Track.Name, o.Group,
		o.Subgroup, o.ObjectID, o.Priority, o.Status, o.Forwarding, o.Properties, o.Payload, o.EndOfGroup,
	)
}

// Every kind of object survives a replay and a second recording unchanged.
func TestEveryKindOfObject(t *testing.T) {
	props := wire.AppendKeyValues(
		nil, wire.KeyValue{Type: 0x1000, Int: 9}, wire.KeyValue{Type: 0x1001, Bytes: []byte("why")},
	)
	data := wire.TrackName{Namespace: session, Name: "data"}
	nested := wire.TrackName{Namespace: append(slices.Clone(session), "sub"), Name: "more"}
	foreign := wire.TrackName{Namespace: []string{"other"}, Name: "data"}
	cat := recordingtest.Catalog(t, "data")
	path := recordingtest.Write(t, []recording.Object{
		cat,
		{Track: data, Group: 10, ObjectID: 0, Priority: 1, FirstObject: true, Payload: []byte("a")},
		{Track: data, Group: 10, ObjectID: 2, Priority: 1, Properties: props, Payload: []byte("b")},
		{
			Track:       data,
			Group:       10,
			Subgroup:    5,
			ObjectID:    1,
			Priority:    2,
			FirstObject: true,
			Payload:     []byte("c"),
			End:         recording.EndFIN,
		},
		{Track: data, Group: 10, ObjectID: 3, Priority: 1, Payload: nil},
		{Track: data, Group: 10, ObjectID: 4, Priority: 1, Status: uint8(wire.StatusEndOfGroup)},
		{Track: data, Group: 10, EndOnly: true, End: recording.EndFIN},
		{
			Track:      data,
			Group:      11,
			ObjectID:   0,
			Priority:   9,
			Forwarding: recording.Datagram,
			Properties: props,
			Payload:    []byte("d"),
			EndOfGroup: true,
		},
		{Track: data, Group: 12, ObjectID: 0, Priority: 9, Forwarding: recording.Datagram, Payload: []byte("e")},
		{
			Track:       data,
			Group:       13,
			Subgroup:    1,
			ObjectID:    0,
			Priority:    3,
			EndOfGroup:  true,
			FirstObject: true,
			Payload:     []byte("f"),
		},
		{Track: data, Group: 13, Subgroup: 1, EndOnly: true, End: recording.EndReset, EndOfGroup: true, Priority: 3},
		{Track: nested, Group: 1, Payload: []byte("of a deeper namespace"), Priority: 4},
		{Track: foreign, Group: 1, Payload: []byte("of another session"), Priority: 4},
		{Track: data, Group: 14, Subgroup: 0, ObjectID: 7, Priority: 3, Payload: make([]byte, 1<<20)},
	})

	second := filepath.Join(t.TempDir(), "second.mcap")
	w, err := recording.Create(second, nil)
	if err != nil {
		t.Fatal(err)
	}
	ns := moqt.Namespace{"holocast", "second"}
	rec := New(w, Config{Namespace: ns, Wait: true, Log: quiet})
	rep, err := replay.Open(path, replay.Config{Namespace: ns, WaitViewer: true, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	server := rec.Handler()
	server.PublishNamespace = func(r *moqt.NamespaceRequest) { _ = r.Accept(func() {}) }
	client, peer := sessiontest.Connect(t, rep.Handler(), server)
	over, served := make(chan struct{}), make(chan error, 1)
	go func() { served <- rep.Serve(t.Context(), client, over) }()
	go func() {
		defer close(over)
		if err := rep.Run(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	if err := rec.Record(t.Context(), peer); err != nil {
		t.Fatal(err)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if n := rep.Unsent(); n != 0 {
		t.Errorf("%d unsent", n)
	}

	first, _ := read(t, path)
	got, info := read(t, second)
	var want, have []string
	reset := false
	for _, o := range first {
		if !o.EndOnly && o.Track.Name == "data" && o.Track.String() != foreign.String() {
			want = append(want, describe(o))
		}
	}
	for _, o := range got {
		reset = reset || o.End == recording.EndReset && o.Group == 13 && o.Subgroup == 1
		if !slices.Equal(o.Track.Namespace, ns) {
			t.Errorf("%v belongs to another session", o.Track)
		}
		if !o.EndOnly && o.Track.Name == "data" {
			have = append(have, describe(o))
		}
	}
	slices.Sort(want)
	slices.Sort(have)
	if !slices.Equal(have, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(have, "\n"), strings.Join(want, "\n"))
	}
	if !reset {
		t.Error("the reset subgroup was not reset in the replay")
	}
	// The catalog is unchanged, and tracks keep their properties.
	if i := slices.IndexFunc(got, func(o recording.Object) bool { return o.Track.Name == catalog.TrackName }); i < 0 ||
		string(got[i].Payload) != string(cat.Payload) ||
		got[i].Group != cat.Group {
		t.Error("missing or different catalog")
	}
	i := slices.IndexFunc(info.Tracks, func(t recording.TrackInfo) bool { return t.Track.Name == "data" })
	if i < 0 {
		t.Fatal("no track data")
	}
	p := moqt.Properties(info.Tracks[i].Properties)
	if v, _ := p.Int(wire.PropertyPublisherPriority); v != 7 {
		t.Errorf("properties %x", p)
	}
	if v, _ := p.Int(connect.ReplayProperty); v != 1 {
		t.Errorf("properties %x do not mark a replay", p)
	}
}
