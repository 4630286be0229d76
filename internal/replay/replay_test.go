package replay

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"holocast/internal/leaktest"
	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/recording"
	"holocast/internal/recording/recordingtest"
	"holocast/internal/sessiontest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

var (
	quiet   = slog.New(slog.DiscardHandler)
	session = recordingtest.Session
)

func TestOpenRefuses(t *testing.T) {
	data := recording.Object{Track: wire.TrackName{Namespace: session, Name: "data"}, Payload: []byte("x")}
	bad := recordingtest.Catalog(t)
	bad.EndOnly, bad.Payload = true, nil
	for _, tt := range []struct {
		name    string
		objects []recording.Object
		cfg     Config
		want    string
	}{
		{"no catalog", []recording.Object{data}, Config{}, "its start was cut off"},
		{"no catalog object", []recording.Object{bad, data}, Config{}, "its start was cut off"},
		{"speed", []recording.Object{recordingtest.Catalog(t)}, Config{Speed: -1}, "speed -1 is below 0"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.cfg.Log = quiet
			r, err := Open(recordingtest.Write(t, tt.objects), tt.cfg)
			if err == nil {
				err = r.Run(t.Context())
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}

// A loop raises each track's groups by that track's own span.
func TestLoopRaisesGroups(t *testing.T) {
	data := wire.TrackName{Namespace: session, Name: "data"}
	objects := append(make([]recording.Object, 0, 4), recordingtest.Catalog(t, "data"))
	for g := range uint64(3) {
		objects = append(
			objects,
			recording.Object{Track: data, Group: 100 + g, FirstObject: true, Payload: []byte{byte(g)}, End: recording.EndFIN},
		)
	}
	r, err := Open(
		recordingtest.Write(t, objects),
		Config{Namespace: moqt.Namespace{"a", "b"}, Loop: true, Speed: 4, Log: quiet},
	)
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

// A clock that was set during the recording does not delay the replay.
func TestClockJump(t *testing.T) {
	data := wire.TrackName{Namespace: session, Name: "data"}
	objects := []recording.Object{recordingtest.Catalog(t, "data")}
	for g := range uint64(4) {
		o := recording.Object{Track: data, Group: g, FirstObject: true, Payload: []byte{byte(g)}, End: recording.EndFIN}
		o.Arrival = time.Unix(1790000000, 0).Add(time.Duration(g+1) * 4 * time.Millisecond)
		if g >= 2 {
			o.Arrival = o.Arrival.Add(10 * 365 * 24 * time.Hour)
		}
		objects = append(objects, o)
	}
	path := recordingtest.Write(t, objects)
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		r, err := Open(path, Config{Live: true, Log: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if err := r.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took != 12*time.Millisecond || !strings.Contains(log.String(), "clock jumped") {
			t.Errorf("the replay takes %v, want 12ms; log %s", took, &log)
		}
	})
}
