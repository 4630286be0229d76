package wire

import (
	"bytes"
	"errors"
	"reflect"
	"testing"
)

func TestDatagramBytes(t *testing.T) {
	for _, tt := range []struct {
		name  string
		bytes string
		want  Datagram
	}{
		{"object", "00 01 02 03 04 6162", Datagram{TrackAlias: 1, Group: 2, Object: 3, Priority: 4, Payload: []byte("ab")}},
		{"object 0", "04 01 02 04 61", Datagram{TrackAlias: 1, Group: 2, Priority: 4, Payload: []byte("a")}},
		{
			"empty, default priority", "0c 8080 02",
			Datagram{TrackAlias: 128, Group: 2, DefaultPriority: true, Payload: []byte{}},
		},
		{"end of group", "0e 01 02 61", Datagram{TrackAlias: 1, Group: 2, DefaultPriority: true, EndOfGroup: true, Payload: []byte("a")}},
		{
			"properties", "0d 01 02 02 0205 61",
			Datagram{TrackAlias: 1, Group: 2, DefaultPriority: true, Properties: Properties{2, 5}, Payload: []byte("a")},
		},
		{
			"every field", "03 01 02 03 04 02 0205 61",
			Datagram{
				TrackAlias: 1, Group: 2, Object: 3, Priority: 4, EndOfGroup: true,
				Properties: Properties{2, 5}, Payload: []byte("a"),
			},
		},
		{"end of group status", "28 01 02 03 03", Datagram{
			TrackAlias: 1, Group: 2, Object: 3, DefaultPriority: true, Status: StatusEndOfGroup, Payload: []byte{},
		}},
		{"end of track status", "24 01 02 04 04", Datagram{
			TrackAlias: 1, Group: 2, Priority: 4, Status: StatusEndOfTrack, Payload: []byte{},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := unhex(t, tt.bytes)
			if got, err := tt.want.Append(nil); err != nil || !bytes.Equal(got, b) {
				t.Errorf("Append = %x, %v, want %x", got, err, b)
			}
			if got, err := ParseDatagram(b); err != nil || !reflect.DeepEqual(got, &tt.want) {
				t.Errorf("ParseDatagram = %+v, %v, want %+v", got, err, tt.want)
			}
			for n := range len(b) - len(tt.want.Payload) {
				_, err := ParseDatagram(b[:n])
				wantError(t, err, ProtocolViolation, "datagram")
			}
		})
	}
}

func TestDatagramTypes(t *testing.T) {
	valid := map[uint64]bool{}
	for _, r := range [][2]uint64{{0x00, 0x0f}, {0x20, 0x21}, {0x24, 0x25}, {0x28, 0x29}, {0x2c, 0x2d}} { // §11.3.1
		for typ := r[0]; typ <= r[1]; typ++ {
			valid[typ] = true
		}
	}
	for typ := range uint64(0x200) {
		b := AppendVarint(nil, typ)
		b = append(b, 1, 2) // alias, group
		if typ&0x04 == 0 {
			b = append(b, 3) // object
		}
		if typ&0x08 == 0 {
			b = append(b, 4) // priority
		}
		if typ&0x01 != 0 {
			b = append(b, 2, 2, 5) // properties
		}
		if typ&0x20 != 0 {
			b = append(b, 0) // status normal, which may have properties
		}
		d, err := ParseDatagram(b)
		if !valid[typ] {
			wantError(t, err, ProtocolViolation, "unknown datagram type")
			continue
		}
		if err != nil || d.TrackAlias != 1 || d.Group != 2 || len(d.Payload) != 0 || d.Status != StatusNormal {
			t.Errorf("type %#x: %+v, %v", typ, d, err)
		}
	}
}

func TestDatagramErrors(t *testing.T) {
	for _, tt := range []struct{ name, bytes, want string }{
		{"empty", "", "empty datagram"},
		{"properties of no length", "0d 01 02 00 61", "empty properties"},
		{"properties too long", "0d 01 02 c10000", "65536 bytes exceeds 65535"},
		{"unknown status", "2c 01 02 02", "unknown object status 0x2"},
		{"bytes after the status", "2c 01 02 03 00", "1 bytes after the status"},
		{"status with properties", "2d 01 02 020205 03", "properties on an object of status 0x3"},
		{"property type overflow", "0d 01 02 0b 0200 ffffffffffffffffff", "type exceeds"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d, err := ParseDatagram(unhex(t, tt.bytes))
			wantError(t, err, ProtocolViolation, tt.want)
			if d != nil && tt.name != "property type overflow" {
				t.Errorf("ParseDatagram = %+v with error %v", d, err)
			}
		})
	}
}

func TestDatagramMalformedTrack(t *testing.T) {
	d, err := ParseDatagram(unhex(t, "0d 07 02 02 3c03 61"))
	if !errors.Is(err, ErrMalformedTrack) {
		t.Fatalf("error %v, want a malformed track", err)
	}
	if d == nil || d.TrackAlias != 7 {
		t.Errorf("datagram %+v does not say whose track it is", d)
	}
}

func TestDatagramAppendRefuses(t *testing.T) {
	for _, tt := range []struct {
		name string
		d    Datagram
	}{
		{"status with payload", Datagram{Status: StatusEndOfGroup, Payload: []byte("a")}},
		{"status with properties", Datagram{Status: StatusEndOfGroup, Properties: Properties{2, 5}}},
		{"status with end of group", Datagram{Status: StatusEndOfTrack, EndOfGroup: true}},
		{"unknown status", Datagram{Status: 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b, err := tt.d.Append(nil)
			if b != nil || err == nil {
				t.Errorf("Append = %x, %v", b, err)
			}
		})
	}
}

func TestPaddingDatagram(t *testing.T) {
	for _, n := range []int{0, 1, 1200} {
		if d, err := ParseDatagram(append(unhex(t, "f0132b3e29"), make([]byte, n)...)); d != nil || err != nil {
			t.Errorf("ParseDatagram(padding of %d bytes) = %+v, %v", n, d, err)
		}
	}
}

func FuzzDatagram(f *testing.F) {
	f.Add([]byte("\x00\x01\x02\x03\x04ab"))
	f.Add([]byte("\x0d\x01\x02\x02\x02\x05a"))
	f.Add([]byte("\x28\x01\x02\x03\x03"))
	f.Add([]byte("\xf0\x13\x2b\x3e\x29\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		d, err := ParseDatagram(b)
		if err != nil {
			if e := new(Error); !errors.As(err, &e) && !errors.Is(err, ErrMalformedTrack) {
				t.Fatalf("error %v", err)
			}
			return
		}
		if d == nil {
			return
		}
		again, err := d.Append(nil)
		if err != nil || len(again) > len(b) {
			t.Fatalf("Append(%+v) = %x, %v of %x", d, again, err, b)
		}
		if d2, err := ParseDatagram(again); err != nil || !reflect.DeepEqual(d2, d) {
			t.Fatalf("ParseDatagram(%x) = %+v, %v, want %+v", again, d2, err, d)
		}
	})
}

func BenchmarkDatagram(b *testing.B) {
	d := Datagram{
		TrackAlias: 3, Group: 1 << 20, Object: 5, Priority: 7,
		Properties: AppendKeyValues(nil, KeyValue{Type: 0x78, Int: 1 << 50}), Payload: make([]byte, 220),
	}
	encoded, err := d.Append(nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("parse", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := ParseDatagram(encoded); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("append", func(b *testing.B) {
		b.ReportAllocs()
		var buf []byte
		for b.Loop() {
			if buf, err = d.Append(buf[:0]); err != nil {
				b.Fatal(err)
			}
		}
	})
}
