package recording_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/foxglove/mcap/go/mcap"

	"holocast/internal/catalog"
	"holocast/internal/moqt/wire"
	"holocast/internal/recording"
	"holocast/internal/recording/recordingtest"
)

// take returns a session of 600 groups of two objects, with catalogs before groups 0, 200 and 599, a
// delta before group 300, and poses before groups 0 and 200.
func take(t *testing.T) []recording.Object {
	t.Helper()
	object := func(track string, group, id uint64, payload string) recording.Object {
		return recording.Object{
			Track: wire.TrackName{Namespace: recordingtest.Session, Name: track}, Group: group, ObjectID: id,
			Payload: []byte(payload), FirstObject: id == 0,
		}
	}
	var objects []recording.Object
	for g := range uint64(600) {
		switch g {
		case 0, 200, 599:
			objects = append(objects, object(catalog.TrackName, g, 0, fmt.Sprint("catalog ", g)))
		case 300:
			objects = append(objects, object(catalog.TrackName, 200, 1, "delta"))
		}
		if g == 0 || g == 200 {
			objects = append(objects, object(catalog.PoseTrack, g, 0, fmt.Sprint("poses ", g)))
		}
		for id := range uint64(2) {
			objects = append(objects, object("data", g, id, fmt.Sprint(g, id)))
		}
	}
	return objects
}

func read(t *testing.T, r *recording.Reader) (list []recording.Object) {
	t.Helper()
	for {
		o, err := r.Next()
		if errors.Is(err, io.EOF) {
			return list
		}
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, o)
	}
}

func texts(objects []recording.Object) (list []string) {
	for _, o := range objects {
		list = append(list, string(o.Payload))
	}
	return list
}

func open(t *testing.T, path string) *recording.Reader {
	t.Helper()
	r, err := recording.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r
}

// TestRewritten reads recordings copied by other MCAP tools.
func TestRewritten(t *testing.T) {
	written := take(t)
	path := recordingtest.Write(t, written)
	want := texts(written)
	compressed := func(how mcap.CompressionFormat) recordingtest.Rewriting {
		return recordingtest.Rewriting{WriterOptions: mcap.WriterOptions{Chunked: true, Compression: how}}
	}
	for _, tt := range []struct {
		name string
		how  recordingtest.Rewriting
	}{
		{"lz4", compressed(mcap.CompressionLZ4)},
		{"zstd", compressed(mcap.CompressionZSTD)},
		{"uncompressed", recordingtest.Rewriting{WriterOptions: mcap.WriterOptions{Chunked: true}}},
		{"small chunks", recordingtest.Rewriting{WriterOptions: mcap.WriterOptions{Chunked: true, ChunkSize: 100}}},
		{"unchunked", recordingtest.Rewriting{}},
		{"unchunked without statistics", recordingtest.Rewriting{WriterOptions: mcap.WriterOptions{SkipStatistics: true}}},
		{"no channels in the summary", recordingtest.Rewriting{
			WriterOptions: mcap.WriterOptions{Chunked: true, SkipRepeatedChannelInfos: true},
		}},
		{"no metadata", recordingtest.Rewriting{WriterOptions: mcap.WriterOptions{Chunked: true}, DropMetadata: true}},
		{"merged", recordingtest.Rewriting{WriterOptions: mcap.WriterOptions{Chunked: true}, Merge: true}},
		{"merged and unchunked", recordingtest.Rewriting{Merge: true}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := open(t, recordingtest.Rewrite(t, path, tt.how))
			if got := texts(read(t, r)); !slices.Equal(got, want) {
				t.Errorf("%d objects, want %d", len(got), len(want))
			}
			if r.Info.Truncated != nil || r.Info.Records != uint64(len(want)) || len(r.Info.Tracks) != 3 ||
				r.Info.Duration() != time.Duration(len(want)-1)*4*time.Millisecond {
				t.Errorf("info %+v, truncated: %v", r.Info, r.Info.Truncated)
			}
			checkChunks(t, r, want)
		})
	}
}

// checkChunks reads a recording's chunks in file order and in reverse.
func checkChunks(t *testing.T, r *recording.Reader, want []string) {
	t.Helper()
	var got []string
	var offsets []int64
	if err := r.Chunks(func(offset int64, objects []recording.Object) error {
		offsets, got = append(offsets, offset), append(got, texts(objects)...)
		return nil
	}); err != nil || !slices.Equal(got, want) {
		t.Errorf("chunks: %d objects, %v, want %d", len(got), err, len(want))
	}
	n := 0
	for _, offset := range slices.Backward(offsets) {
		objects, err := r.ReadChunk(offset)
		if err != nil {
			t.Fatal(err)
		}
		n += len(objects)
	}
	if n != len(want) {
		t.Errorf("chunks in reverse: %d objects, want %d", n, len(want))
	}
}

// TestTrimmed reads recordings without their start.
func TestTrimmed(t *testing.T) {
	written := take(t)
	path := recordingtest.Write(t, written)
	began := open(t, path).Info.Start
	at := func(payload string) time.Time {
		i := slices.Index(texts(written), payload)
		return began.Add(time.Duration(i) * 4 * time.Millisecond)
	}
	data := func(from int, drop ...string) (list []string) {
		i := slices.Index(texts(written), fmt.Sprint(from, 0))
		return slices.DeleteFunc(texts(written)[i:], func(s string) bool { return slices.Contains(drop, s) })
	}
	for _, tt := range []struct {
		name string
		how  recordingtest.Rewriting
		want []string
	}{
		{
			"at a group",
			recordingtest.Rewriting{After: at("100 0")},
			append([]string{"catalog 0", "poses 0"}, data(100)...),
		},
		{
			"within a group",
			recordingtest.Rewriting{After: at("100 1")},
			append([]string{"catalog 0", "poses 0"}, data(101)...),
		},
		{
			"after the second catalog",
			recordingtest.Rewriting{After: at("250 0")},
			append([]string{"catalog 200", "poses 200"}, data(250)...),
		},
		{
			"after a delta",
			recordingtest.Rewriting{After: at("400 1")},
			append([]string{"catalog 200", "poses 200", "delta"}, data(401)...),
		},
		{
			"without the catalog track",
			recordingtest.Rewriting{Topic: func(s string) bool { return !strings.HasSuffix(s, "catalog") }},
			append([]string{"catalog 0"}, data(0, "catalog 200", "catalog 599", "delta")...),
		},
	} {
		for _, chunked := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, chunks: %v", tt.name, chunked), func(t *testing.T) {
				tt.how.Chunked = chunked
				r := open(t, recordingtest.Rewrite(t, path, tt.how))
				want := slices.Clone(tt.want)
				if strings.HasPrefix(tt.name, "without") {
					want = append([]string{want[0], "poses 0"}, want[1:]...) // its own message
				}
				if got := texts(read(t, r)); !slices.Equal(got, want) {
					t.Errorf("objects %.8q…, want %.8q…", got, want)
				}
				if len(r.Info.Tracks) != 3 {
					t.Errorf("tracks %v", r.Info.Tracks)
				}
				for _, track := range r.Info.Tracks {
					if track.Track.Name == "data" && len(track.Properties) == 0 {
						t.Error("the track has lost its properties")
					}
				}
				checkChunks(t, r, want)
				o, err := recording.FirstCatalog("x", open(t, path), nil)
				if err != nil || !bytes.HasPrefix(o.Payload, []byte("catalog")) {
					t.Errorf("catalog %v, %v", o, err)
				}
			})
		}
	}
}

// TestNoCatalog checks that the error for a recording without a catalog gives the cause.
func TestNoCatalog(t *testing.T) {
	path := recordingtest.Write(t, take(t))
	began := open(t, path).Info.Start
	unknown := recordingtest.Rewrite(t, path, recordingtest.Rewriting{WriterOptions: mcap.WriterOptions{
		Chunked: true, Compression: mcap.CompressionLZ4,
	}})
	b, err := os.ReadFile(unknown)
	if err == nil {
		err = os.WriteFile(unknown, bytes.ReplaceAll(b, []byte("\x03\x00\x00\x00lz4"), []byte("\x03\x00\x00\x00xyz")), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct{ path, want string }{
		"unknown compression": {unknown, `compressed with "xyz"; only lz4 and zstd are supported`},
		"trimmed without metadata": {
			recordingtest.Rewrite(t, path, recordingtest.Rewriting{
				After: began.Add(4 * time.Second), DropMetadata: true,
				Topic: func(s string) bool { return !strings.HasSuffix(s, "catalog") },
			}),
			"its start was cut off",
		},
		"another program's": {
			recordingtest.Rewrite(t, path, recordingtest.Rewriting{
				Merge: true, DropMetadata: true, Topic: func(string) bool { return false },
			}),
			"it is not a recording of a session",
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := recording.FirstCatalog(tt.path, open(t, tt.path), nil)
			if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), tt.path) {
				t.Errorf("error %v, want the file and %q", err, tt.want)
			}
		})
	}
}
