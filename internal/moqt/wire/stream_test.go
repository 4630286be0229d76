package wire

import (
	"bytes"
	"io"
	"reflect"
	"testing"
)

func TestStreamHeaderBytes(t *testing.T) {
	for _, tt := range []struct {
		name   string
		bytes  string
		header interface{ Append([]byte) []byte }
	}{
		{"fetch", "05 8080", FetchHeader{128}},
		{"padding", "f0132b3e28", Padding{}},
		// §11.6: both examples.
		{"subgroup with priority", "14 02 00 00 00", SubgroupHeader{TrackAlias: 2, Mode: SubgroupIDExplicit}},
		{"subgroup with properties", "35 02 00 00", SubgroupHeader{
			TrackAlias: 2, Mode: SubgroupIDExplicit, DefaultPriority: true, HasProperties: true,
		}},
		{"subgroup 0", "50 01 8100 ff", SubgroupHeader{TrackAlias: 1, Group: 256, Priority: 255, FirstObject: true}},
		{"subgroup of its first object", "3a 01 02", SubgroupHeader{
			TrackAlias: 1, Group: 2, Mode: SubgroupIDFirstObject, DefaultPriority: true, EndOfGroup: true,
		}},
		{"everything", "5d 01 02 03 04", SubgroupHeader{
			TrackAlias: 1, Group: 2, Subgroup: 3, Mode: SubgroupIDExplicit, Priority: 4,
			HasProperties: true, EndOfGroup: true, FirstObject: true,
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := unhex(t, tt.bytes)
			if got := tt.header.Append(nil); !bytes.Equal(got, b) {
				t.Errorf("Append = %x, want %x", got, b)
			}
			r := bytes.NewReader(append(b, 0xee))
			if got, err := ReadStreamHeader(r); err != nil || !reflect.DeepEqual(got, tt.header) || r.Len() != 1 {
				t.Errorf("ReadStreamHeader = %+v, %v and %d bytes left, want %+v", got, err, r.Len(), tt.header)
			}
			for n := range b {
				want := io.ErrUnexpectedEOF
				if n == 0 {
					want = io.EOF
				}
				if _, err := ReadStreamHeader(bytes.NewReader(b[:n])); err != want {
					t.Errorf("ReadStreamHeader(%x): %v, want %v", b[:n], err, want)
				}
			}
		})
	}
}

func TestStreamTypes(t *testing.T) {
	// §3.4 and §11.4.2: the types below 0x200 that start a subgroup stream.
	for typ := range uint64(0x200) {
		form := typ < 0x80 && typ&0x10 != 0
		valid := form && typ&0x06 != 0x06
		b := AppendVarint(nil, typ)
		b = append(b, 1, 2, 3, 4)
		got, err := ReadStreamHeader(bytes.NewReader(b))
		switch {
		case typ == streamFetch:
			if got != any(FetchHeader{1}) || err != nil {
				t.Errorf("type %#x: %+v, %v", typ, got, err)
			}
		case !valid:
			want := "unknown stream type"
			if form {
				want = "reserved subgroup header type"
			}
			wantError(t, err, ProtocolViolation, want)
		default:
			h, ok := got.(SubgroupHeader)
			if err != nil || !ok {
				t.Errorf("type %#x: %+v, %v", typ, got, err)
				continue
			}
			if again := h.Append(nil); !bytes.HasPrefix(b, again) {
				t.Errorf("type %#x: %+v appends %x", typ, h, again)
			}
		}
	}
}

func TestControlStreamHeader(t *testing.T) {
	want := &Setup{Implementation: "x"}
	b, err := AppendMessage(nil, want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := ReadStreamHeader(bytes.NewReader(b))
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("ReadStreamHeader = %+v, %v, want %+v", got, err, want)
	}
	for n := 2; n < len(b); n++ {
		if _, err := ReadStreamHeader(bytes.NewReader(b[:n])); err != io.ErrUnexpectedEOF {
			t.Errorf("ReadStreamHeader(%x): %v", b[:n], err)
		}
	}
	_, err = ReadStreamHeader(bytes.NewReader(unhex(t, "af00 0001 01")))
	wantError(t, err, KeyValueFormattingError, "cut off")
}
