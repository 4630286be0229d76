package parts

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"testing"
	"time"

	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
)

// vector is a case of testdata/assembler.json, which also tests the web viewer.
type vector struct {
	Name       string `json:"name"`
	MaxPayload int    `json:"max_payload"`
	TimeoutMs  int    `json:"timeout_ms"`
	RTTMs      int    `json:"rtt_ms"`
	Limit      int    `json:"limit"`
	Steps      []struct {
		AtMs int `json:"at_ms"`
		Part *struct {
			Group, Object uint64
			Length        *uint64
			End, Fetched  bool
			Bytes         string
		}
		Expect *struct{ Group, Last uint64 }
		Whole  []struct {
			Group, Object uint64
			Bytes         string
		}
		Ask []Request
	}
	Stats Stats
}

func vectors(t testing.TB) []vector {
	t.Helper()
	b, err := os.ReadFile("testdata/assembler.json")
	if err != nil {
		t.Fatal(err)
	}
	var doc struct{ Cases []vector }
	if err := json.Unmarshal(b, &doc); err != nil {
		t.Fatal(err)
	}
	return doc.Cases
}

func TestAssembler(t *testing.T) {
	for _, c := range vectors(t) {
		t.Run(c.Name, func(t *testing.T) {
			a := NewAssembler(Limits{MaxPayload: c.MaxPayload, Timeout: time.Duration(c.TimeoutMs) * time.Millisecond})
			began := time.Now()
			for i, s := range c.Steps {
				now := began.Add(time.Duration(s.AtMs) * time.Millisecond)
				if e := s.Expect; e != nil {
					a.Expect(e.Group, e.Last, now)
				}
				var whole []Payload
				if p := s.Part; p != nil {
					b, err := hex.DecodeString(p.Bytes)
					if err != nil {
						t.Fatal(err)
					}
					d := &moqt.Datagram{Group: p.Group, Object: p.Object, EndOfGroup: p.End, Payload: b}
					if p.Length != nil {
						d.Properties = wire.AppendKeyValues(nil, wire.KeyValue{Type: LengthProperty, Int: *p.Length})
					}
					whole = a.Add(d, p.Fetched, now)
				}
				if len(whole) != len(s.Whole) {
					t.Errorf("step %d: %d payloads are whole, want %d", i, len(whole), len(s.Whole))
				}
				for j, w := range whole {
					if j < len(s.Whole) && (w.Group != s.Whole[j].Group || w.Object != s.Whole[j].Object ||
						hex.EncodeToString(w.Bytes) != s.Whole[j].Bytes) {
						t.Errorf("step %d: %+v, want %+v", i, w, s.Whole[j])
					}
				}
				ask := a.Due(now, time.Duration(c.RTTMs)*time.Millisecond, c.Limit)
				if !slices.Equal(ask, s.Ask) {
					t.Errorf("step %d: asks for %v, want %v", i, ask, s.Ask)
				}
			}
			a.Close()
			if got := a.Stats(); got != c.Stats {
				t.Errorf("counted %+v, want %+v", got, c.Stats)
			}
			if a.bytes != 0 {
				t.Errorf("%d bytes are left", a.bytes)
			}
		})
	}
}

// TestCut reassembles the output of Cut, in any order, with lost and fetched parts.
func TestCut(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{0, 1, MaxPart - 1, MaxPart, MaxPart + 1, 3 * MaxPart, 300_000} {
		payload := make([]byte, n)
		for i := range payload {
			payload[i] = byte(random.Uint32())
		}
		var list []moqt.Datagram
		for d := range Cut(moqt.Datagram{Group: 4, Object: 7, Priority: 96, EndOfGroup: true}, payload) {
			if len(d.Payload) > MaxPart || d.Group != 4 || d.Priority != 96 || d.Object != 7+uint64(len(list)) ||
				(len(d.Properties) > 0) != (len(list) == 0) {
				t.Fatalf("part %d of %d bytes: %+v", len(list), n, d)
			}
			list = append(list, d)
		}
		if len(list) != Count(n) || !list[len(list)-1].EndOfGroup || len(list) > 1 && list[0].EndOfGroup {
			t.Fatalf("%d parts of %d bytes, want %d", len(list), n, Count(n))
		}
		random.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		a, now := NewAssembler(Limits{MaxPayload: 1 << 20}), time.Now()
		// Objects 0 to 6 belong to another payload.
		var got []Payload
		for i, d := range list {
			got = append(got, a.Add(&d, i%3 == 0, now)...)
		}
		if len(got) != 1 || !bytes.Equal(got[0].Bytes, payload) || !got[0].Last || got[0].Object != 7 ||
			got[0].Priority != 96 {
			t.Errorf("%d bytes are not put together again", n)
		}
	}
}

// FuzzAssembler checks that memory stays bounded, and that complete payloads have the announced
// length and the bytes that arrived first.
func FuzzAssembler(f *testing.F) {
	f.Add([]byte{0, 0, 3, 2, 0, 1, 0, 1, 0, 2, 1, 1})
	f.Add([]byte{1, 0, 200, 1, 1, 9, 0, 1, 2, 0, 3, 3})
	f.Add(bytes.Repeat([]byte{3, 7, 30, 4, 4, 2}, 50))
	f.Fuzz(func(t *testing.T, script []byte) {
		const most = 1 << 10
		a := NewAssembler(Limits{MaxPayload: most, Timeout: 100 * time.Millisecond})
		now := time.Now()
		type place struct{ group, object uint64 }
		first := map[place][]byte{}
		for n := 0; len(script) >= 6; n++ {
			// Group, object, length, payload, flags, time.
			s := script[:6]
			script = script[6:]
			d := &moqt.Datagram{Group: uint64(s[0] % 40), Object: uint64(s[1]), EndOfGroup: s[4]&1 != 0}
			if s[4]&8 != 0 {
				d.Object *= d.Object * d.Object * 1000
			}
			d.Payload = bytes.Repeat([]byte{byte(n)}, int(s[3]))
			if s[4]&2 != 0 {
				d.Properties = wire.AppendKeyValues(nil, wire.KeyValue{Type: LengthProperty, Int: uint64(s[2]) * uint64(s[2])})
			}
			now = now.Add(time.Duration(s[5]) * time.Millisecond / 8)
			late := slices.Contains(a.past, d.Group)
			fresh := a.frame(d.Group) == nil && !late
			if fresh {
				for k := range first {
					if k.group == d.Group {
						delete(first, k) // forgotten: it begins again
					}
				}
			}
			before := a.Stats()
			whole := a.Add(d, s[4]&4 != 0, now)
			after := a.Stats()
			if k := (place{d.Group, d.Object}); !late && after.Duplicate == before.Duplicate && d.Object < maxObjects &&
				first[k] == nil {
				first[k] = d.Payload
			}
			for _, p := range whole {
				var want []byte
				for id := p.Object; len(want) < len(p.Bytes); id++ {
					b := first[place{p.Group, id}]
					if len(b) == 0 {
						t.Fatalf("object %d of group %d is in a payload and never came", id, p.Group)
					}
					want = append(want, b...)
				}
				if !bytes.Equal(p.Bytes, want) || len(p.Bytes) > most {
					t.Fatalf("payload %d of group %d differs", p.Object, p.Group)
				}
			}
			asks := a.Due(now, 10*time.Millisecond, 4)
			if len(asks) > 4 {
				t.Fatalf("%d requests", len(asks))
			}
			for _, r := range asks {
				if r.First > r.Last || r.Last >= maxObjects {
					t.Fatalf("request %+v", r)
				}
			}
			held := 0
			for _, f := range a.frames {
				sum := 0
				for _, p := range f.parts {
					sum += len(p) + partCost
				}
				if sum != f.bytes || len(f.holes) > maxHoles || len(f.starts) > maxStarts {
					t.Fatalf("group %d: %d bytes counted of %d, %d holes", f.group, f.bytes, sum, len(f.holes))
				}
				held += sum
			}
			if held != a.bytes || held > a.limits.room() || len(a.frames) > maxFrames || len(a.past) > history {
				t.Fatalf("%d bytes counted of %d in %d groups", a.bytes, held, len(a.frames))
			}
		}
		a.Close()
		if a.bytes != 0 || len(a.frames) != 0 {
			t.Fatalf("%d bytes are left", a.bytes)
		}
		var none Stats
		none.Add(a.Stats())
		if !reflect.DeepEqual(none, a.Stats()) {
			t.Fatal("Add leaves out a counter")
		}
		if none.Since(a.Stats()) != (Stats{}) {
			t.Fatal("Since leaves out a counter")
		}
	})
}

// TestDeadline checks that fetched parts are used until the group is dropped.
func TestDeadline(t *testing.T) {
	a, began := NewAssembler(Limits{MaxPayload: 100, Timeout: time.Second}), time.Now()
	a.Add(&moqt.Datagram{Group: 3, Object: 0, Payload: []byte{1}}, false, began)
	a.Add(&moqt.Datagram{Group: 3, Object: 2, Payload: []byte{1}}, false, began.Add(300*time.Millisecond))
	if got := a.Deadline(3); !got.Equal(began.Add(time.Second)) {
		t.Errorf("%v after the group began, not a second", got.Sub(began))
	}
	a.Due(began.Add(time.Second), 0, 1)
	if got := a.Deadline(3); !got.IsZero() {
		t.Errorf("a group that was given up: %v", got)
	}
}
