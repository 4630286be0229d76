package recording

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/foxglove/mcap/go/mcap"

	"holocast/internal/moqt/wire"
)

var epoch = time.Unix(1790000000, 123456789)

// session returns n frames of two cameras in order of arrival, with every field of an object in
// use.
func session(n int) []Object {
	rng := rand.New(rand.NewPCG(1, 2))
	var objects []Object
	for i := range n {
		for cam := range 2 {
			payload := make([]byte, 200+rng.IntN(20000))
			for j := 0; j+8 <= len(payload); j += 8 {
				binary.LittleEndian.PutUint64(payload[j:], rng.Uint64())
			}
			objects = append(objects, Object{
				Track: wire.TrackName{Namespace: []string{"holocast", "demo"}, Name: fmt.Sprintf("points/%d/full", cam)},
				Group: uint64(i) + 1<<40, Subgroup: uint64(cam), ObjectID: 1<<64 - 1, Priority: 128,
				Properties: []byte{0x3c, 0x01}, Payload: payload, EndOfGroup: true, FirstObject: true, End: EndFIN,
				Arrival: epoch.Add(time.Duration(i)*33333333 + time.Duration(cam)*1234567),
			})
		}
		objects = append(objects,
			Object{
				Track: wire.TrackName{Namespace: []string{".relay"}, Name: "clock"}, Group: uint64(i), Forwarding: Datagram,
				Payload: []byte("now"), Arrival: epoch.Add(time.Duration(i)*33333333 + 2e6),
			},
			Object{
				Track: wire.TrackName{Namespace: []string{"holocast", "demo"}, Name: "pose"}, Group: uint64(i), ObjectID: 1,
				Status: 3, Arrival: epoch.Add(time.Duration(i)*33333333 + 3e6),
			},
			Object{
				Track: wire.TrackName{Namespace: []string{"holocast", "demo"}, Name: "pose"}, Group: uint64(i), ObjectID: 1,
				End: EndReset, EndOnly: true, Arrival: epoch.Add(time.Duration(i)*33333333 + 4e6),
			})
	}
	return objects
}

func record(t testing.TB, objects []Object) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "session.mcap")
	w, err := Create(path, map[string]string{"relay": "https://localhost:4443"})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		if err := w.Write(o); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

func closeAfter(t testing.TB, c io.Closer) {
	t.Helper()
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

func replay(t testing.TB, r *Reader) []Object {
	t.Helper()
	var objects []Object
	for {
		o, err := r.Next()
		if errors.Is(err, io.EOF) {
			return objects
		}
		if err != nil {
			t.Fatal(err)
		}
		objects = append(objects, o)
	}
}

func checkObjects(t testing.TB, got, want []Object) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d objects, want %d", len(got), len(want))
	}
	for i := range want {
		g, w := got[i], want[i]
		if !g.Arrival.Equal(w.Arrival) {
			t.Fatalf("object %d arrived %v, want %v", i, g.Arrival, w.Arrival)
		}
		if !bytes.Equal(g.Payload, w.Payload) || !bytes.Equal(g.Properties, w.Properties) {
			t.Fatalf("object %d: bytes differ", i)
		}
		g.Arrival, g.Payload, g.Properties = w.Arrival, w.Payload, w.Properties
		if !reflect.DeepEqual(g, w) {
			t.Fatalf("object %d is %+v, want %+v", i, g, w)
		}
	}
}

func TestRoundTrip(t *testing.T) {
	want := session(120)
	r, err := Open(record(t, want))
	if err != nil {
		t.Fatal(err)
	}
	if r.Info.Truncated != nil {
		t.Errorf("truncated: %v", r.Info.Truncated)
	}
	if r.Info.Records != uint64(len(want)) || len(r.Info.Tracks) != 4 {
		t.Errorf("info %+v", r.Info)
	}
	if want := want[len(want)-1].Arrival.Sub(want[0].Arrival); r.Info.Duration() != want {
		t.Errorf("duration %v, want %v", r.Info.Duration(), want)
	}
	checkObjects(t, replay(t, r), want)
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

func TestEmptyRecording(t *testing.T) {
	r, err := Open(record(t, nil))
	if err != nil {
		t.Fatal(err)
	}
	closeAfter(t, r)
	if got := replay(t, r); len(got) != 0 || r.Info.Records != 0 || r.Info.Duration() != 0 {
		t.Errorf("%d objects, info %+v", len(got), r.Info)
	}
}

func TestTrackInfoIsKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "session.mcap")
	w, err := Create(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := TrackInfo{
		Track:      wire.TrackName{Namespace: []string{"a-b", "\x00"}, Name: "é"},
		Alias:      7,
		Properties: []byte{1, 2},
	}
	if err := w.AddTrack(want); err != nil {
		t.Fatal(err)
	}
	if err := w.Write(Object{Track: want.Track, Arrival: epoch}); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	closeAfter(t, r)
	if len(r.Info.Tracks) != 1 || !reflect.DeepEqual(r.Info.Tracks[0], want) {
		t.Errorf("got %+v, want %+v", r.Info.Tracks, want)
	}
}

// Concurrent writers may deliver objects slightly out of order; the reader sorts them, even across
// chunks.
func TestOrderOfArrival(t *testing.T) {
	want := session(120)
	shuffled := append([]Object(nil), want...)
	for i := 0; i+7 < len(shuffled); i += 5 {
		shuffled[i], shuffled[i+7] = shuffled[i+7], shuffled[i]
	}
	r, err := Open(record(t, shuffled))
	if err != nil {
		t.Fatal(err)
	}
	closeAfter(t, r)
	checkObjects(t, replay(t, r), want)
}

// A recording is readable by any MCAP tool.
func TestReadableByMCAPLibrary(t *testing.T) {
	want := session(60)
	f, err := os.Open(record(t, want))
	if err != nil {
		t.Fatal(err)
	}
	closeAfter(t, f)
	r, err := mcap.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	it, err := r.Messages()
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	err = mcap.Range(it, func(s *mcap.Schema, c *mcap.Channel, m *mcap.Message) error {
		if s.Name != "moqt.Object" || !strings.Contains(c.Topic, "--") || m.LogTime != m.PublishTime {
			return fmt.Errorf("message %d: %q %q", n, s.Name, c.Topic)
		}
		n++
		return nil
	})
	if err != nil || n != len(want) {
		t.Errorf("%d messages, want %d: %v", n, len(want), err)
	}
}

// Any prefix of the file replays as a prefix of the session and lacks at most the last chunk.
func TestCutOff(t *testing.T) {
	want := session(90) // three seconds
	whole, err := os.ReadFile(record(t, want))
	if err != nil {
		t.Fatal(err)
	}
	for cut := 0; cut <= len(whole); cut += 1 + len(whole)/67 {
		r, err := NewReader("cut", bytes.NewReader(whole[:cut]))
		if cut < len(mcap.Magic) {
			if err == nil {
				t.Fatalf("cut at %d: opened", cut)
			}
			continue
		}
		if err != nil {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		got := replay(t, r)
		checkObjects(t, got, want[:len(got)])
		if cut < len(whole) {
			lost := r.Info.Truncated
			if lost == nil || lost.Offset+lost.Lost != int64(cut) {
				t.Fatalf("cut at %d: truncation %+v", cut, lost)
			}
		}
		if r.Info.Records != uint64(len(got)) {
			t.Fatalf("cut at %d: info says %d records, replayed %d", cut, r.Info.Records, len(got))
		}
		if r.Info.Duration() > 0 && r.Info.Duration() < 900*time.Millisecond {
			t.Fatalf("cut at %d: the first chunk has only %v", cut, r.Info.Duration())
		}
	}
}

func TestTruncationIsExplained(t *testing.T) {
	whole, err := os.ReadFile(record(t, session(90)))
	if err != nil {
		t.Fatal(err)
	}
	r, err := NewReader("cut", bytes.NewReader(whole[:len(whole)*3/4]))
	if err != nil {
		t.Fatal(err)
	}
	text := r.Info.Truncated.String()
	for _, part := range []string{"cut off: the last", "from byte", "a chunk record has", "remain"} {
		if !strings.Contains(text, part) {
			t.Errorf("%q lacks %q", text, part)
		}
	}
}

func TestSyncKeepsWhatWasWritten(t *testing.T) {
	want := session(3)
	path := filepath.Join(t.TempDir(), "session.mcap")
	w, err := Create(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	closeAfter(t, w)
	for _, o := range want {
		if err := w.Write(o); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // the second call does nothing
		if err := w.Sync(); err != nil {
			t.Fatal(err)
		}
	}
	r, err := Open(path) // while it is being written
	if err != nil {
		t.Fatal(err)
	}
	closeAfter(t, r)
	checkObjects(t, replay(t, r), want)
	if got := r.Info.Truncated; got == nil || got.Lost != 0 || !strings.Contains(got.String(), "was not closed") {
		t.Errorf("truncation %v", got)
	}
}

func TestWriterErrors(t *testing.T) {
	path := record(t, session(1))
	if _, err := Create(path, nil); !errors.Is(err, os.ErrExist) {
		t.Errorf("existing file: %v", err)
	}
	w, err := Create(path+"2", nil)
	if err != nil {
		t.Fatal(err)
	}
	track := wire.TrackName{Namespace: []string{"a"}, Name: "b"}
	tests := []struct {
		name    string
		object  Object
		wantErr string
	}{
		{"no arrival", Object{Track: track}, "has no arrival time"},
		{"too large", Object{Track: track, Arrival: epoch, Payload: make([]byte, MaxObject+1)}, "more than 33554432"},
		{"empty namespace field", Object{Track: wire.TrackName{Namespace: []string{""}}, Arrival: epoch}, "empty field"},
		{"long name", Object{Track: wire.TrackName{Name: strings.Repeat("x", 5000)}, Arrival: epoch}, "5000 bytes"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := w.Write(tt.object)
			if err == nil || !strings.Contains(err.Error(), tt.wantErr) || !strings.Contains(err.Error(), path+"2") {
				t.Errorf("error %v, want the file and %q", err, tt.wantErr)
			}
		})
	}
	if err := w.Write(Object{Track: track, Arrival: epoch}); err != nil {
		t.Errorf("after refused objects: %v", err)
	}
	if err := errors.Join(w.Close(), w.Close()); err != nil {
		t.Error(err)
	}
	if err := w.Write(Object{Track: track, Arrival: epoch}); !errors.Is(err, os.ErrClosed) {
		t.Errorf("write after close: %v", err)
	}
}

func TestDamage(t *testing.T) {
	objects := session(90)
	whole, err := os.ReadFile(record(t, objects))
	if err != nil {
		t.Fatal(err)
	}
	var chunks []int
	for pos := len(mcap.Magic); pos+9 < len(whole)-len(mcap.Magic); {
		if whole[pos] == byte(mcap.OpChunk) {
			chunks = append(chunks, pos)
		}
		pos += 9 + int(binary.LittleEndian.Uint64(whole[pos+1:]))
	}
	if len(chunks) < 3 {
		t.Fatalf("%d chunks", len(chunks))
	}
	second := chunks[1]
	put := binary.LittleEndian.PutUint64
	tests := []struct {
		name    string
		damage  func(b []byte)
		wantErr string
		after   bool // objects after the damage are still readable
	}{
		{
			"record beyond the file",
			func(b []byte) { put(b[second+1:], 1<<25) },
			"a chunk record has 33554432 bytes, but only",
			false,
		},
		{
			"record beyond reason",
			func(b []byte) { put(b[second+1:], 1<<63) },
			"a chunk record has 9223372036854775808 bytes, more than",
			false,
		},
		{"opcode 0", func(b []byte) { b[second] = 0 }, "reserved opcode 0", false},
		{"loose message", func(b []byte) { b[second] = byte(mcap.OpMessage) }, "damaged message record", true},
		{"huge uncompressed size", func(b []byte) { put(b[second+9+16:], 1<<62) }, "bytes uncompressed, more than", true},
		{"wrong uncompressed size", func(b []byte) { b[second+9+16]++ }, "bytes uncompressed, but it has", true},
		{
			"compression name too long",
			func(b []byte) { binary.LittleEndian.PutUint32(b[second+9+28:], 1<<31) },
			"compression name of 2147483648 bytes",
			true,
		},
		{"other compression", func(b []byte) { copy(b[second+9+32:], "zlib") }, `compressed with "zlib"`, true},
		{"stored size", func(b []byte) { put(b[second+9+36:], 1<<62) }, "bytes of records, but it has", true},
		{"checksum", func(b []byte) { b[second+9+24]++ }, "its checksum is wrong", true},
		{"bit flip", func(b []byte) { b[second+9+5000] ^= 4 }, "damaged chunk at byte", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := bytes.Clone(whole)
			tt.damage(b)
			r, err := NewReader("damaged", bytes.NewReader(b))
			if err != nil {
				t.Fatal(err)
			}
			var read int
			var failures []error
			var last time.Time
			for {
				o, err := r.Next()
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					failures = append(failures, err)
					continue
				}
				read++
				last = o.Arrival
			}
			if len(failures) != 1 || !strings.Contains(failures[0].Error(), tt.wantErr) ||
				!strings.Contains(failures[0].Error(), fmt.Sprintf("byte %d", second)) {
				t.Errorf("errors %v, want one with %q and the offset %d", failures, tt.wantErr, second)
			}
			if end := last.Equal(objects[len(objects)-1].Arrival); end != tt.after || read == 0 || read == len(objects) {
				t.Errorf("read %d of %d objects, to the end: %v", read, len(objects), end)
			}
		})
	}
	if _, err := NewReader("other", strings.NewReader("a text file")); err == nil ||
		!strings.Contains(err.Error(), "not an MCAP file") {
		t.Errorf("text file: %v", err)
	}
}

// foreign returns a file written by another tool, with one object and its state.
func foreign(t testing.TB, opts mcap.WriterOptions) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := mcap.NewWriter(&b, &opts)
	if err != nil {
		t.Fatal(err)
	}
	o := Object{Payload: []byte("{}")}
	data, err := o.appendTo(nil)
	const topic = "a--catalog"
	if err := errors.Join(
		err, w.WriteHeader(&mcap.Header{}), w.WriteMetadata(stateOf(topic, 1, nil, data)),
		w.WriteSchema(&mcap.Schema{ID: 1, Name: "moqt.Object"}),
		w.WriteChannel(&mcap.Channel{SchemaID: 1, Topic: topic, MessageEncoding: messageEncoding}),
		w.WriteMessage(&mcap.Message{LogTime: 2, Data: data}), w.Close(),
	); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// FuzzReader feeds the reader whole files and, through inner, hostile chunk contents in a valid
// frame with a valid checksum.
func FuzzReader(f *testing.F) {
	whole, err := os.ReadFile(record(f, session(2)))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole, []byte{})
	f.Add(whole[:len(whole)/2], []byte{})
	for _, opts := range []mcap.WriterOptions{{}, {Chunked: true, Compression: mcap.CompressionLZ4}} {
		f.Add(foreign(f, opts), []byte{})
	}
	f.Add(mcap.Magic, []byte{byte(mcap.OpMessage), 1, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, file, inner []byte) {
		if len(inner) > 0 {
			var buf bytes.Buffer
			buf.Write(mcap.Magic)
			head := make([]byte, 9+40)
			head[0] = byte(mcap.OpChunk)
			binary.LittleEndian.PutUint64(head[1:], uint64(40+len(inner)))
			binary.LittleEndian.PutUint64(head[9+16:], uint64(len(inner)))
			binary.LittleEndian.PutUint64(head[9+32:], uint64(len(inner)))
			buf.Write(head)
			buf.Write(inner)
			file = buf.Bytes()
		}
		r, err := NewReader("fuzz", bytes.NewReader(file))
		if err != nil {
			return
		}
		closeAfter(t, r)
		for {
			o, err := r.Next()
			if errors.Is(err, io.EOF) {
				return
			}
			if err == nil && len(o.Payload) > maxChunk {
				t.Fatalf("payload of %d bytes from a file of %d", len(o.Payload), len(file))
			}
		}
	})
}

// BenchmarkWrite records 400 kB frames, as one camera sends them.
func BenchmarkWrite(b *testing.B) {
	payload := make([]byte, 400e3)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range payload {
		payload[i] = byte(rng.Uint32())
	}
	w, err := Create(filepath.Join(b.TempDir(), "bench.mcap"), nil)
	if err != nil {
		b.Fatal(err)
	}
	closeAfter(b, w)
	o := Object{Track: wire.TrackName{Name: "points"}, Payload: payload, Arrival: epoch}
	b.SetBytes(int64(len(payload)))
	for b.Loop() {
		o.Group++
		o.Arrival = o.Arrival.Add(33333333)
		if err := w.Write(o); err != nil {
			b.Fatal(err)
		}
	}
}
