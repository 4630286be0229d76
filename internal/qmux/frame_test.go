package qmux

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"reflect"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/quicvarint"
)

// vectors are shared with the web viewer (client-web/test/unit/qmux.test.ts).
type vectors struct {
	Records []struct {
		Name, Hex string
		Frames    []struct {
			Type                string
			ID, Value, Code, At uint64
			Data                string
			Fin                 bool
		}
	}
	Malformed  []struct{ Name, Hex string }
	Parameters []struct {
		Name, Hex string
		Value     struct {
			Idle, Data, BidiLocal, BidiRemote, Uni, StreamsBidi, StreamsUni, Datagram, Record uint64
			ResetAt                                                                           bool
		}
	}
	MalformedParameters []struct{ Name, Hex string }
}

func readVectors(t testing.TB) (v vectors) {
	t.Helper()
	b, err := os.ReadFile("testdata/vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

var typeNames = map[string]uint64{
	"stream": typeStream, "reset": typeReset, "resetAt": typeResetAt, "stopSending": typeStopSending,
	"maxData": typeMaxData, "maxStreamData": typeMaxStreamData, "maxStreamsBidi": typeMaxStreamsBidi,
	"maxStreamsUni": typeMaxStreamsUni, "dataBlocked": typeDataBlocked, "streamDataBlocked": typeStreamDataBlocked,
	"streamsBlocked": typeStreamsBlocked, "ping": typePing, "pong": typePong, "datagram": typeDatagram,
	"close": typeClose, "closeApplication": typeCloseApplication, "parameters": typeParameters,
}

func parseRecord(b []byte) (list []frame, err error) {
	for len(b) > 0 {
		var f frame
		if f, b, err = parseFrame(b); err != nil {
			return nil, err
		}
		if f.typ != typePadding {
			list = append(list, f)
		}
	}
	return list, nil
}

// same reports whether two frames mean the same.
func same(a, b frame) bool {
	a.length, b.length = 0, 0
	return bytes.Equal(a.data, b.data) && func() bool {
		a.data, b.data = nil, nil
		return reflect.DeepEqual(a, b)
	}()
}

func TestVectors(t *testing.T) {
	v := readVectors(t)
	for _, r := range v.Records {
		list, err := parseRecord(unhex(t, r.Hex))
		if err != nil || len(list) != len(r.Frames) {
			t.Errorf("%s: %d frames, %v", r.Name, len(list), err)
			continue
		}
		for i, w := range r.Frames {
			want := frame{
				typ: typeNames[w.Type], id: w.ID, value: w.Value, code: w.Code, at: w.At, fin: w.Fin,
				data: unhex(t, w.Data),
			}
			if !same(list[i], want) {
				t.Errorf("%s: %+v, want %+v", r.Name, list[i], want)
			}
			again, err := parseRecord(want.append(nil))
			if err != nil || len(again) != 1 || !same(again[0], want) {
				t.Errorf("%s: encoded as %x: %+v, %v", r.Name, want.append(nil), again, err)
			}
		}
	}
	for _, r := range v.Malformed {
		list, err := parseRecord(unhex(t, r.Hex))
		if te := (*quic.TransportError)(nil); !errors.As(err, &te) || te.ErrorCode != quic.FrameEncodingError {
			t.Errorf("%s: %+v, %v", r.Name, list, err)
		}
	}
	for _, p := range v.Parameters {
		w := p.Value
		want := parameters{
			idle: time.Duration(w.Idle) * time.Millisecond, data: w.Data, bidiLocal: w.BidiLocal, bidiRemote: w.BidiRemote,
			uni: w.Uni, streamsBidi: w.StreamsBidi, streamsUni: w.StreamsUni, datagram: w.Datagram, record: w.Record,
			resetAt: w.ResetAt,
		}
		if got, err := parseParameters(unhex(t, p.Hex)); err != nil || got != want {
			t.Errorf("%s: %+v, %v, want %+v", p.Name, got, err, want)
		}
		if got, err := parseParameters(want.encode()); err != nil || got != want {
			t.Errorf("%s: encoded %+v, %v", p.Name, got, err)
		}
	}
	for _, p := range v.MalformedParameters {
		got, err := parseParameters(unhex(t, p.Hex))
		if te := (*quic.TransportError)(nil); !errors.As(err, &te) || te.ErrorCode != quic.TransportParameterError {
			t.Errorf("%s: %+v, %v", p.Name, got, err)
		}
	}
}

func FuzzFrames(f *testing.F) {
	v := readVectors(f)
	for _, r := range v.Records {
		f.Add(unhex(f, r.Hex))
	}
	for _, r := range v.Malformed {
		f.Add(unhex(f, r.Hex))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		list, err := parseRecord(b)
		if err != nil {
			return
		}
		for _, want := range list {
			again, err := parseRecord(want.append(nil))
			if err != nil || len(again) != 1 || !same(again[0], want) {
				t.Errorf("%+v became %+v, %v", want, again, err)
			}
			if want.typ == typeParameters {
				if p, err := parseParameters(want.data); err == nil {
					if q, err := parseParameters(p.encode()); err != nil || q != p {
						t.Errorf("%+v became %+v, %v", p, q, err)
					}
				}
			}
		}
	})
}

// FuzzConn passes records of a peer to a connection, which must not panic or keep more than its windows.
func FuzzConn(f *testing.F) {
	hello := frame{typ: typeParameters, data: parameters{
		data: 1 << 20, uni: 1 << 16, bidiLocal: 1 << 16, bidiRemote: 1 << 16, streamsBidi: 10, streamsUni: 10,
		record: defaultRecord, datagram: 1000, resetAt: true,
	}.encode()}.append(nil)
	for _, r := range readVectors(f).Records {
		f.Add(append(bytes.Clone(hello), unhex(f, r.Hex)...))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		const window, streams = 4096, 8
		c := &Conn{
			server: true, local: parameters{
				data: window, bidiLocal: window, bidiRemote: window, uni: window, streamsBidi: streams, streamsUni: streams,
			},
			maxReceive: window, maxAccept: [2]uint64{streams, streams}, sends: map[uint64]*SendStream{},
			receives: map[uint64]*ReceiveStream{}, halves: map[uint64]int{}, waitsFirst: true,
		}
		for len(b) > 0 {
			n := min(len(b), 64+int(b[0]))
			if err := c.receive(b[:n]); err != nil {
				break
			}
			b = b[n:]
			var record [MaxRecord]byte
			if got := c.fill(record[:0]); len(got) > MaxRecord {
				t.Fatalf("record of %d bytes", len(got))
			}
		}
		kept := 0
		for _, s := range c.receives {
			kept += len(s.buf)
		}
		if kept > window || len(c.receives) > 2*streams || len(c.newUni)+len(c.newBidi) > 2*streams {
			t.Errorf("%d bytes in %d streams", kept, len(c.receives))
		}
	})
}

func TestVarint(t *testing.T) {
	if got := quicvarint.Append(nil, typeParameters); hex.EncodeToString(got) != "ff5153300d0a0d0a" {
		t.Errorf("the magic number is %x", got)
	}
}
