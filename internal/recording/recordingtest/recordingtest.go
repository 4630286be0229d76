// Package recordingtest makes recordings for tests.
package recordingtest

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/foxglove/mcap/go/mcap"

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

// Rewriting describes how another MCAP tool copies a recording.
type Rewriting struct {
	mcap.WriterOptions
	After        time.Time              // copy messages from then on
	Topic        func(name string) bool // copy these topics; nil = all
	DropMetadata bool
	Merge        bool // add another program's channel
}

// Rewrite copies a recording as another MCAP tool would and returns the copy's path.
func Rewrite(t *testing.T, path string, how Rewriting) string {
	t.Helper()
	in, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = in.Close() }()
	r, err := mcap.NewReader(in)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	out := filepath.Join(t.TempDir(), "rewritten.mcap")
	f, err := os.Create(out)
	if err != nil {
		t.Fatal(err)
	}
	w, err := mcap.NewWriter(f, &how.WriterOptions)
	if err != nil {
		t.Fatal(err)
	}
	err = w.WriteHeader(&mcap.Header{})
	check := func(e error) {
		if err == nil {
			err = e
		}
	}
	// Foreign tools number channels as they like.
	channels := map[string]*mcap.Channel{}
	if how.Merge {
		check(w.WriteSchema(&mcap.Schema{ID: 7, Name: "foreign", Encoding: "jsonschema", Data: []byte("{}")}))
		check(w.WriteChannel(&mcap.Channel{ID: 900, SchemaID: 7, Topic: "/foreign", MessageEncoding: "json"}))
		check(w.WriteMessage(&mcap.Message{ChannelID: 900, LogTime: 1, Data: []byte("{}")}))
	}
	metadata := func(m *mcap.Metadata) error {
		if !how.DropMetadata {
			check(w.WriteMetadata(m))
		}
		return nil
	}
	it, e := r.Messages(mcap.UsingIndex(true), mcap.InOrder(mcap.FileOrder), mcap.WithMetadataCallback(metadata))
	check(e)
	if err != nil {
		t.Fatal(err)
	}
	check(mcap.Range(it, func(s *mcap.Schema, c *mcap.Channel, m *mcap.Message) error {
		if how.Topic != nil && !how.Topic(c.Topic) || m.LogTime < uint64(max(0, how.After.UnixNano())) {
			return nil
		}
		to := channels[c.Topic]
		if to == nil {
			to = &mcap.Channel{
				ID: uint16(500 + len(channels)), SchemaID: 3, Topic: c.Topic, MessageEncoding: c.MessageEncoding,
				Metadata: c.Metadata,
			}
			if len(channels) == 0 {
				check(w.WriteSchema(&mcap.Schema{ID: 3, Name: s.Name, Encoding: s.Encoding, Data: s.Data}))
			}
			channels[c.Topic] = to
			check(w.WriteChannel(to))
		}
		copied := *m
		copied.ChannelID = to.ID
		return w.WriteMessage(&copied)
	}))
	check(w.Close())
	check(f.Close())
	if err != nil {
		t.Fatal(err)
	}
	return out
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
