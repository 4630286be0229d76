package wire

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"reflect"
	"testing"
)

func TestSubgroupObjects(t *testing.T) {
	props := Properties(
		AppendKeyValues(nil, KeyValue{Type: 4, Int: 2186796243}, KeyValue{Type: 77, Bytes: []byte("traceID:123456")}),
	)
	for _, tt := range []struct {
		name          string
		hasProperties bool
		bytes         string // headers without payloads
		objects       []Object
	}{
		{"draft example", false, "00 04  00 04", []Object{{ID: 0, PayloadLength: 4}, {ID: 1, PayloadLength: 4}}},
		{
			"draft example with properties", true,
			"00 16 04f08257dcd3 490e747261636549443a313233343536 04  00 00 04",
			[]Object{{ID: 0, Properties: props, PayloadLength: 4}, {ID: 1, PayloadLength: 4}},
		},
		{"gaps", false, "05 01  04 8080", []Object{{ID: 5, PayloadLength: 1}, {ID: 10, PayloadLength: 128}}},
		{"empty object", false, "00 00 00  00 01", []Object{{ID: 0}, {ID: 1, PayloadLength: 1}}},
		{"end of group", false, "00 01  00 00 03", []Object{{ID: 0, PayloadLength: 1}, {ID: 1, Status: StatusEndOfGroup}}},
		{"end of track", true, "00 00 00 04", []Object{{ID: 0, Status: StatusEndOfTrack}}},
		{
			"largest ID and length", false, "fffffffffffffffffe 01  00 ffffffffffffffffff",
			[]Object{{ID: 1<<64 - 2, PayloadLength: 1}, {ID: 1<<64 - 1, PayloadLength: 1<<64 - 1}},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			want := unhex(t, tt.bytes)
			enc := ObjectEncoder{HasProperties: tt.hasProperties}
			var got []byte
			var err error
			for _, o := range tt.objects {
				if got, err = enc.Append(got, o); err != nil {
					t.Fatal(err)
				}
			}
			if !bytes.Equal(got, want) {
				t.Errorf("Append = %x, want %x", got, want)
			}
			dec := ObjectDecoder{HasProperties: tt.hasProperties}
			r := bytes.NewReader(want)
			for _, o := range tt.objects {
				if got, err := dec.Decode(r); err != nil || !reflect.DeepEqual(got, o) {
					t.Errorf("Decode = %+v, %v, want %+v", got, err, o)
				}
			}
			if _, err := dec.Decode(r); err != io.EOF {
				t.Errorf("Decode at the end: %v, want io.EOF", err)
			}
			for n := range want {
				dec := ObjectDecoder{HasProperties: tt.hasProperties}
				r := bytes.NewReader(want[:n])
				for err = nil; err == nil; {
					_, err = dec.Decode(r)
				}
				if err != io.EOF && err != io.ErrUnexpectedEOF {
					t.Errorf("Decode of %d bytes: %v", n, err)
				}
			}
		})
	}
}

func TestSubgroupObjectErrors(t *testing.T) {
	for _, tt := range []struct {
		name          string
		hasProperties bool
		bytes         string
		want          string
	}{
		{"ID overflow by one", false, "ffffffffffffffffff 00 00  00 00 00", "object ID exceeds"},
		{"ID overflow by the largest delta", false, "00 00 00  ffffffffffffffffff 00 00", "object ID exceeds"},
		{"status 1", false, "00 00 01", "unknown object status 0x1"},
		{"status 5", false, "00 00 05", "unknown object status 0x5"},
		{"properties on an end of group", true, "00 02 0205 00 03", "properties on an object of status 0x3"},
		{"properties too long", true, "00 c10000", "65536 bytes exceed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dec := ObjectDecoder{HasProperties: tt.hasProperties}
			r := bytes.NewReader(unhex(t, tt.bytes))
			var err error
			for err == nil {
				_, err = dec.Decode(r)
			}
			wantError(t, err, ProtocolViolation, tt.want)
		})
	}
	for _, tt := range []struct {
		name          string
		hasProperties bool
		bytes         string
	}{
		{"object after the end of group", false, "00 00 03  00 01"},
		{"object after the end of track", false, "00 00 04  00 00 04"},
		{"gap beyond object 0", true, "00 02 3e01 01"},
		{"mandatory track property", true, "00 04 c0400000 01"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dec := ObjectDecoder{HasProperties: tt.hasProperties}
			r := bytes.NewReader(unhex(t, tt.bytes))
			var err error
			for err == nil {
				_, err = dec.Decode(r)
			}
			if !errors.Is(err, ErrMalformedTrack) {
				t.Errorf("Decode: %v, want a malformed track", err)
			}
		})
	}
}

func TestObjectEncoderRefuses(t *testing.T) {
	for _, tt := range []struct {
		name    string
		objects []Object // all but the last are valid
	}{
		{"same ID", []Object{{ID: 3}, {ID: 3}}},
		{"lower ID", []Object{{ID: 3}, {ID: 2}}},
		{"properties without the header's bit", []Object{{Properties: Properties{2, 5}}}},
		{"status with payload", []Object{{Status: StatusEndOfGroup, PayloadLength: 1}}},
		{"status with properties", []Object{{Status: StatusEndOfGroup, Properties: Properties{2, 5}}}},
		{"unknown status", []Object{{Status: 1}}},
		{"after the end", []Object{{Status: StatusEndOfGroup}, {ID: 1}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var enc ObjectEncoder
			for i, o := range tt.objects {
				_, err := enc.Append(nil, o)
				if last := i == len(tt.objects)-1; (err != nil) != last {
					t.Errorf("Append(%+v): %v", o, err)
				}
			}
		})
	}
}

// randomSubgroup returns the bytes of a random subgroup stream, without its header.
func randomSubgroup(t *testing.T, rnd *rand.Rand, hasProperties bool) []byte {
	enc := ObjectEncoder{HasProperties: hasProperties}
	var b []byte
	var o Object
	for i := range rnd.IntN(8) {
		if i > 0 {
			o.ID++
		}
		o.ID += rnd.Uint64() >> (32 + rnd.UintN(32))
		o.PayloadLength = uint64(rnd.IntN(300)) * rnd.Uint64N(2)
		o.Properties = nil
		if hasProperties && rnd.IntN(2) == 0 {
			o.Properties = AppendKeyValues(nil,
				KeyValue{Type: PropertyPriorObjectIDGap, Int: rnd.Uint64N(o.ID + 1)},
				KeyValue{Type: 77, Bytes: make([]byte, rnd.IntN(200))})
		}
		var err error
		if b, err = enc.Append(b, o); err != nil {
			t.Fatal(err)
		}
		for range o.PayloadLength {
			b = append(b, byte(rnd.UintN(256)))
		}
	}
	if rnd.IntN(3) == 0 {
		var err error
		if b, err = enc.Append(b, Object{ID: o.ID + 1, Status: StatusEndOfGroup}); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

// scan feeds stream to a scanner in pieces of the sizes that next returns. It returns the objects,
// the number of consumed bytes, and whether it stopped at a boundary.
func scan(
	hasProperties bool,
	stream []byte,
	next func() int,
) (objects []Object, consumed int, boundary bool, err error) {
	s := ObjectScanner{Decoder: ObjectDecoder{HasProperties: hasProperties}}
	for end := 0; end < len(stream); {
		end = min(len(stream), end+next())
		for consumed < end {
			n, o, header, err := s.Next(stream[consumed:end])
			if err != nil {
				return objects, consumed, false, err
			}
			if n == 0 {
				break
			}
			if header {
				objects = append(objects, o)
			}
			consumed += n
		}
	}
	return objects, consumed, s.Boundary() && consumed == len(stream), nil
}

func TestScannerPieces(t *testing.T) {
	rnd := newRand(3)
	for i := range 400 {
		hasProperties := i%2 == 0
		b := randomSubgroup(t, rnd, hasProperties)
		b = b[:len(b)-rnd.IntN(2)*rnd.IntN(len(b)+1)] // cut half of them anywhere
		whole, n, boundary, err := scan(hasProperties, b, func() int { return len(b) })
		if err != nil {
			t.Fatal(err)
		}
		for name, next := range map[string]func() int{
			"bytes":  func() int { return 1 },
			"pieces": func() int { return 1 + rnd.IntN(100) },
		} {
			got, gotN, gotBoundary, err := scan(hasProperties, b, next)
			if err != nil || gotN != n || gotBoundary != boundary || !reflect.DeepEqual(got, whole) {
				t.Fatalf("in %s: %+v, %d bytes, boundary %v, %v\nwhole: %+v, %d bytes, boundary %v",
					name, got, gotN, gotBoundary, err, whole, n, boundary)
			}
		}
	}
}

func TestScannerErrors(t *testing.T) {
	for _, tt := range []struct {
		name          string
		hasProperties bool
		bytes         string
		consumed      int
	}{
		{"unknown status", false, "00 02 6161  00 00 01", 4},
		{"ID overflow", false, "ffffffffffffffffff 00 00  00", 11},
		{"properties too long", true, "00 00 02 6161  00 c10000", 5},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := unhex(t, tt.bytes)
			for _, size := range []int{1, 3, len(b)} {
				_, n, _, err := scan(tt.hasProperties, b, func() int { return size })
				if e := new(Error); !errors.As(err, &e) || n != tt.consumed {
					t.Errorf("in pieces of %d: %v after %d bytes, want an *Error after %d", size, err, n, tt.consumed)
				}
			}
		})
	}
}

func TestPartialPropertiesAllocateNothing(t *testing.T) {
	// The object announces 65535 bytes of properties, of which ten have arrived.
	b := unhex(t, "00 c0ffff 01020304050607080910")
	s := ObjectScanner{Decoder: ObjectDecoder{HasProperties: true}}
	if n := testing.AllocsPerRun(100, func() {
		if n, _, _, err := s.Next(b); n != 0 || err != nil {
			t.Errorf("Next = %d, %v", n, err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// decodeSubgroup reads a subgroup stream after its header like a subscriber, and returns the
// objects with complete payloads.
func decodeSubgroup(hasProperties bool, b []byte) (objects []Object, err error) {
	dec := ObjectDecoder{HasProperties: hasProperties}
	r := bufio.NewReader(bytes.NewReader(b))
	for {
		o, err := dec.Decode(r)
		if err != nil {
			return objects, err
		}
		objects = append(objects, o)
		if n, _ := io.Copy(io.Discard, io.LimitReader(r, int64(min(o.PayloadLength, 1<<62)))); uint64(
			n,
		) < o.PayloadLength {
			return objects, io.ErrUnexpectedEOF
		}
	}
}

func FuzzSubgroupStream(f *testing.F) {
	f.Add([]byte("\x14\x02\x00\x00\x00\x00\x04abcd\x00\x04efgh"), uint8(1))
	f.Add([]byte("\x35\x02\x00\x00\x00\x02\x02\x05\x04abcd\x00\x00\x04efgh"), uint8(3))
	f.Add([]byte("\x38\x02\x00\x00\x01a\x00\x00\x03"), uint8(200))
	f.Add([]byte("\x05\x02"), uint8(1))
	f.Fuzz(func(t *testing.T, b []byte, piece uint8) {
		r := bytes.NewReader(b)
		header, err := ReadStreamHeader(r)
		if err != nil {
			if e := new(Error); err != io.EOF && err != io.ErrUnexpectedEOF && !errors.As(err, &e) {
				t.Fatalf("ReadStreamHeader: %v", err)
			}
			return
		}
		h, ok := header.(SubgroupHeader)
		if !ok {
			return
		}
		again, err := ReadStreamHeader(bytes.NewReader(h.Append(nil)))
		if err != nil || again != any(h) {
			t.Fatalf("header %+v read again: %+v, %v", h, again, err)
		}
		b = b[len(b)-r.Len():]
		objects, err := decodeSubgroup(h.HasProperties, b)
		scanned, _, boundary, scanErr := scan(h.HasProperties, b, func() int { return int(piece)%64 + 1 })
		if !reflect.DeepEqual(objects, scanned) {
			t.Fatalf("decoder: %+v\nscanner: %+v", objects, scanned)
		}
		switch {
		case err == io.EOF:
			if !boundary || scanErr != nil {
				t.Fatalf("decoder ends well, scanner: boundary %v, %v", boundary, scanErr)
			}
		case err == io.ErrUnexpectedEOF:
			if boundary || scanErr != nil {
				t.Fatalf("decoder ends early, scanner: boundary %v, %v", boundary, scanErr)
			}
		case scanErr == nil || err.Error() != scanErr.Error():
			t.Fatalf("decoder: %v, scanner: %v", err, scanErr)
		}
		// Decoded objects can be encoded again.
		enc := ObjectEncoder{HasProperties: h.HasProperties}
		for _, o := range objects {
			if _, err := enc.Append(nil, o); err != nil {
				t.Fatalf("Append(%+v): %v", o, err)
			}
		}
	})
}

func BenchmarkScanner(b *testing.B) {
	// One object of 1 MB, as it arrives in packets.
	const size, packet = 1 << 20, 1200
	for _, bb := range []struct {
		name       string
		properties Properties
	}{
		{"plain", nil},
		{"properties", AppendKeyValues(nil, KeyValue{Type: PropertyPriorObjectIDGap}, KeyValue{Type: 0x78, Int: 1 << 50})},
	} {
		b.Run(bb.name, func(b *testing.B) {
			stream, err := (&ObjectEncoder{HasProperties: bb.properties != nil}).
				Append(nil, Object{PayloadLength: size, Properties: bb.properties})
			if err != nil {
				b.Fatal(err)
			}
			stream = append(stream, make([]byte, size)...)
			b.SetBytes(int64(len(stream)))
			b.ReportAllocs()
			s := new(ObjectScanner)
			for b.Loop() {
				*s = ObjectScanner{Decoder: ObjectDecoder{HasProperties: bb.properties != nil}}
				for rest := stream; len(rest) > 0; {
					n, _, _, err := s.Next(rest[:min(packet, len(rest))])
					if err != nil {
						b.Fatal(err)
					}
					rest = rest[n:]
				}
				if !s.Boundary() {
					b.Fatal("stream does not end at a boundary")
				}
			}
		})
	}
}

// TestPriorGroupIDGap checks that the subgroup decoder reports a malformed track when the gap
// exceeds the number of earlier groups (§12.8).
func TestPriorGroupIDGap(t *testing.T) {
	for gap, ok := range map[uint64]bool{0: true, 3: true, 4: false} {
		o := Object{
			Properties:    AppendKeyValues(nil, KeyValue{Type: PropertyPriorGroupIDGap, Int: gap}),
			PayloadLength: 1,
		}
		b, err := (&ObjectEncoder{HasProperties: true}).Append(nil, o)
		if err != nil {
			t.Fatal(err)
		}
		dec := ObjectDecoder{Group: 3, HasProperties: true}
		if _, err = dec.Decode(bytes.NewReader(b)); ok && err != nil || !ok && !errors.Is(err, ErrMalformedTrack) {
			t.Errorf("gap %d of group 3: %v", gap, err)
		}
	}
}
