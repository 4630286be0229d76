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

func TestFetchStreamBytes(t *testing.T) {
	for _, tt := range []struct {
		name    string
		order   GroupOrder
		bytes   string // headers without payloads
		objects []FetchObject
	}{
		{
			"ascending", Ascending,
			"1f 05 02 03 07 04" + // every ID absolute
				"01 00" + // next object, subgroup and priority as before
				"04 05 01" + // object 4 + 5, subgroup 0
				"7c 01 01 08 02 0205 02" + // datagram with properties, two groups on
				"810c 07 14" + // unknown up to {7, 20}, in the same group
				"03 03 00" + // no subgroup to refer to after the datagram
				"808c 09 00" + // nothing up to {9, 0}
				"01 01", // subgroup and priority of the last object
			[]FetchObject{
				{Group: 5, Object: 3, Subgroup: 2, Priority: 7, PayloadLength: 4},
				{Group: 5, Object: 4, Subgroup: 2, Priority: 7},
				{Group: 5, Object: 9, Priority: 7, PayloadLength: 1},
				{Group: 7, Object: 1, Datagram: true, Priority: 8, Properties: Properties{2, 5}, PayloadLength: 2},
				{Range: RangeUnknown, Group: 7, Object: 20},
				{Group: 7, Object: 21, Subgroup: 3, Priority: 8},
				{Range: RangeNonExistent, Group: 9, Object: 0},
				{Group: 9, Object: 1, Subgroup: 3, Priority: 8, PayloadLength: 1},
			},
		},
		{
			"descending", Descending,
			"1c 09 00 01 01" + "0c 00 05 01" + "00 00" + "0c 04 00 01" + "810c 02 07" + "0c 01 00 00",
			[]FetchObject{
				{Group: 9, Object: 0, Priority: 1, PayloadLength: 1},
				{Group: 8, Object: 5, Priority: 1, PayloadLength: 1},
				{Group: 8, Object: 6, Priority: 1},
				{Group: 3, Object: 0, Priority: 1, PayloadLength: 1},
				{Range: RangeUnknown, Group: 2, Object: 7},
				{Group: 0, Object: 0, Priority: 1},
			},
		},
		{
			"largest IDs", Ascending,
			"1c 00 ffffffffffffffffff 00 00" + "0c fffffffffffffffffe fffffffffffffffffe 00" + "00 ffffffffffffffffff",
			[]FetchObject{
				{Object: 1<<64 - 1},
				{Group: 1<<64 - 1, Object: 1<<64 - 2},
				{Group: 1<<64 - 1, Object: 1<<64 - 1, PayloadLength: 1<<64 - 1},
			},
		},
		{
			"range first", Ascending, "810c 00 05" + "10 00 01",
			[]FetchObject{{Range: RangeUnknown, Object: 5}, {Object: 6, PayloadLength: 1}},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			want := unhex(t, tt.bytes)
			enc := NewFetchEncoder(tt.order)
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
			dec := NewFetchDecoder(tt.order)
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
				dec := NewFetchDecoder(tt.order)
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

func TestFetchDecoderForms(t *testing.T) {
	// Encodings that the draft allows but the encoder does not use, after object {5, 3} of subgroup
	// 2 and priority 7.
	for _, tt := range []struct {
		name, bytes string
		want        FetchObject
	}{
		{"prior subgroup plus one", "02 00", FetchObject{Group: 5, Object: 4, Subgroup: 3, Priority: 7}},
		{"next group, object plus one", "08 00 00", FetchObject{Group: 6, Object: 4, Priority: 7}},
		{"datagram ignores subgroup bits", "43 00", FetchObject{Group: 5, Object: 4, Datagram: true, Priority: 7}},
		{"properties of no length", "20 00 00", FetchObject{Group: 5, Object: 4, Priority: 7}},
		{"object delta of one", "04 01 00", FetchObject{Group: 5, Object: 4, Priority: 7}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dec := NewFetchDecoder(Ascending)
			r := bytes.NewReader(unhex(t, "1f 05 02 03 07 00"+tt.bytes))
			if _, err := dec.Decode(r); err != nil {
				t.Fatal(err)
			}
			if got, err := dec.Decode(r); err != nil || !reflect.DeepEqual(got, tt.want) || r.Len() != 0 {
				t.Errorf("Decode = %+v, %v, want %+v", got, err, tt.want)
			}
		})
	}
}

func TestFetchDecoderErrors(t *testing.T) {
	const first = "1f 05 02 03 07 00" // {5, 3}, subgroup 2, priority 7
	for _, tt := range []struct {
		name  string
		order GroupOrder
		bytes string
		want  string
	}{
		{"flags 128", Ascending, first + "8080", "flags 0x80"},
		{"flags 0x20c", Ascending, first + "820c", "flags 0x20c"},
		{"first without group", Ascending, "14 03 07 00", "first fetch object"},
		{"first without object", Ascending, "18 05 07 00", "first fetch object"},
		{"first without priority", Ascending, "0c 05 03 00", "prior priority"},
		{"first with prior subgroup", Ascending, "1d 05 03 07 00", "prior subgroup"},
		{"first with prior subgroup plus one", Ascending, "1e 05 03 07 00", "prior subgroup"},
		{"prior priority after a range only", Ascending, "808c 05 03 00 00", "prior priority"},
		{"prior subgroup after a range only", Ascending, "808c 05 03 11 07 00", "prior subgroup"},
		{"prior subgroup of a datagram", Ascending, first + "40 00" + "01 00", "prior subgroup"},
		{"subgroup overflow", Ascending, "1f 05 ffffffffffffffffff 03 07 00" + "02 00", "subgroup ID exceeds"},
		{"group overflow by one", Ascending, "1c ffffffffffffffffff 00 07 00" + "0c 00 00 00", "group ID exceeds"},
		{"group overflow by the largest delta", Ascending, first + "0c ffffffffffffffffff 00 00", "group ID exceeds"},
		{"group below 0 by one", Descending, "1c 00 00 07 00" + "0c 00 00 00", "group ID below 0"},
		{"group below 0 by the largest delta", Descending, first + "0c ffffffffffffffffff 00 00", "group ID below 0"},
		{"next object overflow", Ascending, "1c 00 ffffffffffffffffff 07 00" + "00 00", "object ID exceeds"},
		{"object overflow", Ascending, first + "04 ffffffffffffffffff 00", "object ID exceeds"},
		{"object repeated", Ascending, first + "04 00 00", "repeats 3"},
		{"range back to the same object", Ascending, first + "808c 05 03", "not after {5, 3}"},
		{"range back a group", Ascending, first + "810c 04 09", "not after {5, 3}"},
		{"range on a group", Descending, first + "810c 06 00", "not after {5, 3}"},
		{"properties too long", Ascending, first + "20 c10000", "65536 bytes exceed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dec := NewFetchDecoder(tt.order)
			r := bytes.NewReader(unhex(t, tt.bytes))
			var err error
			for err == nil {
				_, err = dec.Decode(r)
			}
			wantError(t, err, ProtocolViolation, tt.want)
		})
	}
	t.Run("malformed track", func(t *testing.T) {
		// A prior group ID gap of 6 is impossible in group 5.
		_, err := NewFetchDecoder(Ascending).Decode(bytes.NewReader(unhex(t, "3c 05 03 07 02 3c06 00")))
		if !errors.Is(err, ErrMalformedTrack) {
			t.Errorf("Decode: %v, want a malformed track", err)
		}
	})
}

func TestFetchEncoderRefuses(t *testing.T) {
	prior := FetchObject{Group: 5, Object: 3}
	for _, tt := range []struct {
		name  string
		order GroupOrder
		o     FetchObject
	}{
		{"same object", Ascending, prior},
		{"lower object", Ascending, FetchObject{Group: 5, Object: 2}},
		{"lower group", Ascending, FetchObject{Group: 4, Object: 9}},
		{"higher group descending", Descending, FetchObject{Group: 6}},
		{"range that ends before", Ascending, FetchObject{Range: RangeUnknown, Group: 5, Object: 3}},
		{"unknown range", Ascending, FetchObject{Range: 0x30c, Group: 6}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			enc := NewFetchEncoder(tt.order)
			if _, err := enc.Append(nil, prior); err != nil {
				t.Fatal(err)
			}
			if b, err := enc.Append(nil, tt.o); b != nil || err == nil {
				t.Errorf("Append = %x, %v", b, err)
			}
		})
	}
}

// randomFetch returns a random fetch response: objects of subgroups and datagrams, with gaps and
// range ends.
func randomFetch(rnd *rand.Rand, order GroupOrder) (objects []FetchObject) {
	at := Location{rnd.Uint64() >> rnd.UintN(64), rnd.Uint64() >> (1 + rnd.UintN(63))}
	for range rnd.IntN(30) {
		o := FetchObject{Group: at.Group, Object: at.Object}
		switch rnd.IntN(6) {
		case 0:
			o.Range = RangeNonExistent
		case 1:
			o.Range = RangeUnknown
		default:
			o.Datagram = rnd.IntN(4) == 0
			if !o.Datagram {
				o.Subgroup = uint64(rnd.IntN(3))
			}
			o.Priority = uint8(rnd.IntN(2))
			o.PayloadLength = uint64(rnd.IntN(40))
			if rnd.IntN(3) == 0 {
				o.Properties = AppendKeyValues(nil, KeyValue{Type: 0x78, Int: rnd.Uint64()})
			}
		}
		objects = append(objects, o)
		if rnd.IntN(3) > 0 {
			if at.Object == 1<<64-1 {
				return objects
			}
			at.Object += 1 + min(uint64(rnd.IntN(2)*rnd.IntN(300)), 1<<64-2-at.Object)
			continue
		}
		step := 1 + rnd.Uint64N(2)*rnd.Uint64N(1000)
		if order == Descending {
			step = -step
		}
		if next := at.Group + step; next > at.Group == (order == Ascending) {
			at = Location{next, rnd.Uint64() >> (1 + rnd.UintN(63))}
		} else {
			return objects
		}
	}
	return objects
}

// decodeFetch reads a fetch stream after its header and skips the payloads.
func decodeFetch(order GroupOrder, b []byte) (objects []FetchObject, err error) {
	dec := NewFetchDecoder(order)
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

func TestFetchRoundTrip(t *testing.T) {
	rnd := newRand(4)
	for i := range 2000 {
		order := Ascending
		if i%2 == 1 {
			order = Descending
		}
		want := randomFetch(rnd, order)
		enc := NewFetchEncoder(order)
		var b []byte
		var err error
		for _, o := range want {
			if b, err = enc.Append(b, o); err != nil {
				t.Fatalf("Append(%+v): %v", o, err)
			}
			b = append(b, make([]byte, o.PayloadLength)...)
		}
		got, err := decodeFetch(order, b)
		if err != io.EOF || !reflect.DeepEqual(got, want) {
			t.Fatalf("order %d: %+v, %v\nwant %+v", order, got, err, want)
		}
	}
}

func FuzzFetchStream(f *testing.F) {
	f.Add([]byte("\x1f\x05\x02\x03\x07\x01a\x01\x00\x04\x05\x01b\x81\x0c\x07\x14\x03\x03\x00"), false)
	f.Add([]byte("\x1c\x09\x00\x01\x01a\x0c\x00\x05\x01b\x80\x8c\x02\x07"), true)
	f.Add([]byte("\x7c\x01\x01\x08\x02\x02\x05\x01a\x41\x00"), false)
	f.Fuzz(func(t *testing.T, b []byte, descending bool) {
		order := Ascending
		if descending {
			order = Descending
		}
		objects, err := decodeFetch(order, b)
		if e := new(Error); err != io.EOF && err != io.ErrUnexpectedEOF &&
			!errors.As(err, &e) && !errors.Is(err, ErrMalformedTrack) {
			t.Fatalf("error %v", err)
		}
		enc, dec := NewFetchEncoder(order), NewFetchDecoder(order)
		for _, o := range objects {
			header, err := enc.Append(nil, o)
			if err != nil {
				t.Fatalf("Append(%+v): %v", o, err)
			}
			if got, err := dec.Decode(bytes.NewReader(header)); err != nil || !reflect.DeepEqual(got, o) {
				t.Fatalf("Decode(%x) = %+v, %v, want %+v", header, got, err, o)
			}
		}
	})
}
