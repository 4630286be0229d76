package wire

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"
)

func TestKeyValues(t *testing.T) {
	for _, tt := range []struct {
		name  string
		bytes string
		kvs   []KeyValue
	}{
		{"none", "", nil},
		{"integer", "02 05", []KeyValue{{Type: 2, Int: 5}}},
		{"bytes", "0b 02 6162", []KeyValue{{Type: 11, Bytes: []byte("ab")}}},
		{"empty bytes", "01 00", []KeyValue{{Type: 1, Bytes: []byte{}}}},
		{"repeated", "01 0161 00 0162", []KeyValue{{Type: 1, Bytes: []byte("a")}, {Type: 1, Bytes: []byte("b")}}},
		// The properties of §11.6's second example; its types are 4 and 77.
		{
			"draft example", "04 f08257dcd3 49 0e 747261636549443a313233343536",
			[]KeyValue{{Type: 4, Int: 2186796243}, {Type: 77, Bytes: []byte("traceID:123456")}},
		},
		{
			"largest type", "01 00 fffffffffffffffffe 00",
			[]KeyValue{{Type: 1, Bytes: []byte{}}, {Type: 1<<64 - 1, Bytes: []byte{}}},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := unhex(t, tt.bytes)
			if got := AppendKeyValues(nil, tt.kvs...); !bytes.Equal(got, b) {
				t.Errorf("AppendKeyValues = %x, want %x", got, b)
			}
			if got, err := ParseKeyValues(b); err != nil || !reflect.DeepEqual(got, tt.kvs) {
				t.Errorf("ParseKeyValues = %+v, %v, want %+v", got, err, tt.kvs)
			}
			for n := range b {
				_, err := ParseKeyValues(b[:n])
				if e := new(Error); err != nil && (!errors.As(err, &e) || e.Code != KeyValueFormattingError) {
					t.Errorf("ParseKeyValues(%x): %v", b[:n], err)
				}
			}
		})
	}
}

func TestAppendKeyValuesSorts(t *testing.T) {
	kvs := []KeyValue{{Type: 4, Int: 1}, {Type: 1, Bytes: []byte("b")}, {Type: 1, Bytes: []byte("a")}}
	if got, want := AppendKeyValues(nil, kvs...), unhex(t, "01 0162 00 0161 03 01"); !bytes.Equal(got, want) {
		t.Errorf("AppendKeyValues = %x, want %x", got, want)
	}
	if kvs[0].Type != 4 {
		t.Error("AppendKeyValues sorted its argument")
	}
}

func TestKeyValueErrors(t *testing.T) {
	for _, tt := range []struct {
		name, bytes string
		code        SessionCode
		want        string
	}{
		{"type overflow", "02 00 ffffffffffffffffff 00", ProtocolViolation, "type exceeds 2^64-1"},
		{"length 65536", "01 c10000", ProtocolViolation, "65536 bytes exceeds 65535"},
		{"length 2^64-1", "01 ffffffffffffffffff", ProtocolViolation, "exceeds 65535"},
		{"no value", "02", KeyValueFormattingError, "cut off"},
		{"no length", "01", KeyValueFormattingError, "cut off"},
		{"value cut off", "01 02 61", KeyValueFormattingError, "cut off"},
		{"integer cut off", "02 80", KeyValueFormattingError, "cut off"},
		{"type cut off", "80", KeyValueFormattingError, "cut off"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := ParseKeyValues(unhex(t, tt.bytes))
			wantError(t, err, tt.code, tt.want)
		})
	}
}

func TestProperties(t *testing.T) {
	// Priority 7; Immutable Properties contain an order and another priority.
	inner := AppendKeyValues(nil,
		KeyValue{Type: PropertyPublisherPriority, Int: 9},
		KeyValue{Type: PropertyPublisherGroupOrder, Int: 2},
		KeyValue{Type: 0x4002, Int: 1})
	p := Properties(AppendKeyValues(nil,
		KeyValue{Type: PropertyImmutable, Bytes: inner},
		KeyValue{Type: PropertyObjectDeliveryTimeout, Int: 250}))
	var types []uint64
	for kv := range p.All() {
		types = append(types, kv.Type)
	}
	if want := []uint64{0x02, 0x0b, 0x0e, 0x22, 0x4002}; !reflect.DeepEqual(types, want) {
		t.Errorf("All() has types %#x, want %#x", types, want)
	}
	for range p.All() {
		break // must stop the iteration
	}
	if v, ok := p.Int(PropertyPublisherGroupOrder); v != 2 || !ok {
		t.Errorf("Int(group order) = %d, %v, want 2", v, ok)
	}
	if v, ok := p.Int(PropertyDynamicGroups); v != 0 || ok {
		t.Errorf("Int(dynamic groups) = %d, %v, want none", v, ok)
	}
	if typ, found := p.UnknownMandatory(); typ != 0x4002 || !found {
		t.Errorf("UnknownMandatory() = %#x, %v, want 0x4002", typ, found)
	}
	for _, typ := range []uint64{0x3ffe, 0x8000} {
		p := Properties(AppendKeyValues(nil, KeyValue{Type: typ}))
		if got, found := p.UnknownMandatory(); found {
			t.Errorf("UnknownMandatory() = %#x of %#x", got, typ)
		}
	}
	if n := testing.AllocsPerRun(100, func() { p.Int(PropertyPublisherGroupOrder) }); n != 0 {
		t.Errorf("Int allocates %v times", n)
	}
}

func TestObjectProperties(t *testing.T) {
	at := Location{Group: 10, Object: 3}
	for _, tt := range []struct {
		name, bytes string
		want        string // "" = well-formed
	}{
		{"none", "", ""},
		{"unknown", "38 01 01 00", ""},
		{"gaps", "3c 0a 02 03", ""},
		{"group gap larger than the group", "3c 0b", "group ID gap 11"},
		{"object gap larger than the object", "3e 04", "object ID gap 4"},
		{"group gap twice", "3c 01 00 01", "group ID gap"},
		{"object gap twice, once immutable", "0b 02 3e01 33 01", "object ID gap"},
		{"immutable twice", "0b 00 00 00", "immutable"},
		{"immutable nested", "0b 02 0b00", "immutable"},
		{"type 0x40 in two bytes", "8040 00", ""},
		{"first mandatory track property", "c04000 00", "0x4000"},
		{"last mandatory track property", "c07fff 00", "0x7fff"},
		{"mandatory, immutable", "0b 04 c0400000", "0x4000"},
		{"beyond mandatory", "c08000 00", ""},
		{"cut off", "02", "cut off"},
		{"immutable cut off", "0b 01 02", "cut off"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := Properties(unhex(t, tt.bytes)).validateObject(at)
			switch {
			case tt.want == "" && err != nil:
				t.Errorf("error %v", err)
			case tt.want != "" && (!errors.Is(err, ErrMalformedTrack) || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("error %v, want a malformed track: …%s…", err, tt.want)
			}
		})
	}
	// Violations of the limits in §1.4.3 close the session.
	wantError(t, Properties(unhex(t, "01 c10000")).validateObject(at), ProtocolViolation, "65536 bytes")
	wantError(t, Properties(unhex(t, "0b 04 01c10000")).validateObject(at), ProtocolViolation, "65536 bytes")
}

func FuzzKeyValues(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{0x04, 0xf0, 0x82, 0x57, 0xdc, 0xd3, 0x49, 0x01, 't'})
	f.Add([]byte{0x0b, 0x04, 0x0e, 0x07, 0x14, 0x01, 0x31, 0x05, 0x02, 0x03})
	f.Fuzz(func(t *testing.T, b []byte) {
		p := Properties(b)
		var walked int
		for range p.All() {
			walked++
		}
		// Neither may panic.
		_, _ = p.validateTrack(), p.validateObject(Location{1, 1})
		kvs, err := ParseKeyValues(b)
		if err != nil {
			if e := new(Error); !errors.As(err, &e) {
				t.Fatalf("error %v is not an *Error", err)
			}
			return
		}
		if walked < len(kvs) && p.validateTrack() == nil {
			t.Errorf("All() stops after %d of %d pairs", walked, len(kvs))
		}
		again, err := ParseKeyValues(AppendKeyValues(nil, kvs...))
		if err != nil || !reflect.DeepEqual(again, kvs) {
			t.Errorf("ParseKeyValues(AppendKeyValues(%+v)) = %+v, %v", kvs, again, err)
		}
	})
}
