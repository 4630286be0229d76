package replay

import (
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"holocast/internal/catalog"
	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/recording"
	"holocast/internal/sessiontest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	quiet   = slog.New(slog.DiscardHandler)
	session = []string{"holocast", "first"}
)

// write makes a recording of objects whose times are a few milliseconds apart.
func write(t *testing.T, objects []recording.Object) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "first.mcap")
	w, err := recording.Create(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.AddTrack(recording.TrackInfo{
		Track:      wire.TrackName{Namespace: session, Name: "data"},
		Properties: wire.AppendKeyValues(nil, wire.KeyValue{Type: wire.PropertyPublisherPriority, Int: 7}, wire.KeyValue{Type: 0x6863_7271, Bytes: []byte("x")}),
	}); err != nil {
		t.Fatal(err)
	}
	for i, o := range objects {
		o.Arrival = time.Unix(1790000000, 0).Add(time.Duration(i) * 4 * time.Millisecond)
		if err := w.Write(o); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

func catalogObject(t *testing.T, names ...string) recording.Object {
	t.Helper()
	c := catalog.Catalog{Version: catalog.Version}
	for _, n := range names {
		c.Tracks = append(c.Tracks, catalog.Track{Name: n, Packaging: catalog.PackagingLOC, IsLive: true})
	}
	doc, err := c.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return recording.Object{Track: wire.TrackName{Namespace: session, Name: catalog.TrackName}, Group: 3, Priority: 5, Payload: doc, FirstObject: true}
}

func TestOpenRefuses(t *testing.T) {
	data := recording.Object{Track: wire.TrackName{Namespace: session, Name: "data"}, Payload: []byte("x")}
	bad := catalogObject(t)
	bad.EndOnly, bad.Payload = true, nil
	for _, tt := range []struct {
		name    string
		objects []recording.Object
		cfg     Config
		want    string
	}{
		{"no catalog", []recording.Object{data}, Config{}, "has no catalog track"},
		{"no catalog object", []recording.Object{bad, data}, Config{}, "has no catalog object"},
		{"speed", []recording.Object{catalogObject(t)}, Config{Speed: -1}, "speed -1 is below 0"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.cfg.Log = quiet
			r, err := Open(write(t, tt.objects), tt.cfg)
			if err == nil {
				err = r.Run(t.Context())
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}

// A loop raises every track's groups by its own span.
func TestLoopRaisesGroups(t *testing.T) {
	data := wire.TrackName{Namespace: session, Name: "data"}
	objects := append(make([]recording.Object, 0, 4), catalogObject(t, "data"))
	for g := range uint64(3) {
		objects = append(objects, recording.Object{Track: data, Group: 100 + g, FirstObject: true, Payload: []byte{byte(g)}, End: recording.EndFIN})
	}
	r, err := Open(write(t, objects), Config{Namespace: moqt.Namespace{"a", "b"}, Loop: true, Speed: 4, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = r.Run(ctx)
	}()
	track := r.set.Track(moqt.TrackName{Namespace: moqt.Namespace{"a", "b"}, Name: "data"})
	sessiontest.Until(t, "a third pass", func() bool { l, ok := track.Largest(); return ok && l.Group >= 106 })
	stop()
	<-done
	if _, _, pass := r.Progress(); pass < 2 {
		t.Errorf("pass %d", pass)
	}
	if s := track.Stats(); s.DuplicateSubgroup != 0 {
		t.Errorf("%+v", s)
	}
}
