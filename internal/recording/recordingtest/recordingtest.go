// Package recordingtest makes recordings for tests.
package recordingtest

import (
	"path/filepath"
	"testing"
	"time"

	"holocast/internal/catalog"
	"holocast/internal/moqt/wire"
	"holocast/internal/recording"
)

// Session is the recordings' namespace.
var Session = []string{"holocast", "first"}

// Write makes a recording and returns its path. Objects without an arrival time arrive 4 ms apart.
// Its track "data" has publisher priority 7 and a track property.
func Write(t *testing.T, objects []recording.Object) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "first.mcap")
	w, err := recording.Create(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.AddTrack(recording.TrackInfo{
		Track: wire.TrackName{Namespace: Session, Name: "data"},
		Properties: wire.AppendKeyValues(
			nil,
			wire.KeyValue{Type: wire.PropertyPublisherPriority, Int: 7},
			wire.KeyValue{Type: 0x6863_7271, Bytes: []byte("x")},
		),
	}); err != nil {
		t.Fatal(err)
	}
	for i, o := range objects {
		if o.Arrival.IsZero() {
			o.Arrival = time.Unix(1790000000, 0).Add(time.Duration(i) * 4 * time.Millisecond)
		}
		if err := w.Write(o); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// Catalog returns a catalog object with live tracks of these names.
func Catalog(t *testing.T, names ...string) recording.Object {
	t.Helper()
	c := catalog.Catalog{Version: catalog.Version}
	for _, n := range names {
		c.Tracks = append(c.Tracks, catalog.Track{Name: n, Packaging: catalog.PackagingLOC, IsLive: true})
	}
	doc, err := c.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return recording.Object{
		Track:       wire.TrackName{Namespace: Session, Name: catalog.TrackName},
		Group:       3,
		Priority:    5,
		Payload:     doc,
		FirstObject: true,
	}
}
