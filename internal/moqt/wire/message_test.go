package wire

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"
)

// messages are control messages and their encodings, written by hand.
var messages = []struct {
	name  string
	bytes string
	msg   Message
}{
	{"setup, empty", "af00 0000", &Setup{}},
	{
		"setup, every option", "af00 0010 01012f 0203030074 0110 010168 020178",
		&Setup{
			Path: "/", HasPath: true, Authority: "h", HasAuthority: true,
			AuthorizationTokens:   []Token{{AliasType: TokenUseValue, Value: []byte("t")}},
			MaxAuthTokenCacheSize: 16,
			Implementation:        "x",
		},
	},
	{"goaway, session", "10 0003 00 64 04", &Goaway{Timeout: 100, RequestID: new(uint64(4))}},
	{"goaway, request", "10 000a 08 6d6f71743a2f2f62 00", &Goaway{NewSessionURI: "moqt://b"}},
	{"request ok, empty", "07 0001 00", &RequestOK{Properties: Properties{}}},
	{
		"request ok, with properties", "07 0008 02 0800 010102 0205",
		&RequestOK{
			Parameters: Parameters{Expires: new(uint64(0)), LargestObject: &Location{1, 2}},
			Properties: Properties{0x02, 0x05},
		},
	},
	{
		"request error", "05 0005 10 01 02 6e6f",
		&RequestError{Code: RequestDoesNotExist, RetryInterval: 1, Reason: "no"},
	},
	{
		"request error, redirect", "05 0009 34 00 00 00 010161 0162",
		&RequestError{Code: RequestRedirect, Redirect: &Redirect{Track: TrackName{Namespace{"a"}, "b"}}},
	},
	{
		"request error, grease", "05 0004 809d 00 00",
		&RequestError{Code: 0x9d},
	},
	{
		"subscribe", "03 000a 00 02 0161 026263 0174 00",
		&Subscribe{Track: TrackName{Namespace{"a", "bc"}, "t"}},
	},
	{
		"subscribe, every parameter",
		"03 001f 02 010161 00 09 02812c 01020205 0100 0201 0a00 10ff 010404010203 0102 1007",
		&Subscribe{RequestID: 2, Track: TrackName{Namespace: Namespace{"a"}}, Parameters: Parameters{
			ObjectDeliveryTimeout:   new(uint64(300)),
			AuthorizationTokens:     []Token{{AliasType: TokenUseAlias, Alias: 5}},
			RendezvousTimeout:       new(uint64(0)),
			SubgroupDeliveryTimeout: new(uint64(1)),
			Forward:                 new(false),
			SubscriberPriority:      new(uint8(255)),
			Filter:                  &Filter{Type: FilterAbsoluteRange, Start: Location{1, 2}, EndGroup: 4},
			GroupOrder:              new(Descending),
			NewGroupRequest:         new(uint64(7)),
		}},
	},
	{
		"subscribe, tokens", "03 0015 02 00 00 03 03020005 00050101004161 000403004142",
		&Subscribe{RequestID: 2, Parameters: Parameters{AuthorizationTokens: []Token{
			{AliasType: TokenDelete, Alias: 5},
			{AliasType: TokenRegister, Alias: 1, Value: []byte("Aa")},
			{AliasType: TokenUseValue, Value: []byte("AB")},
		}}},
	},
	{
		"subscribe, from the next group", "03 0007 00 00 00 01 210101",
		&Subscribe{Parameters: Parameters{Filter: &Filter{Type: FilterNextGroup}}},
	},
	{
		"subscribe, from the largest object", "03 0007 00 00 00 01 210102",
		&Subscribe{Parameters: Parameters{Filter: &Filter{Type: FilterLargestObject}}},
	},
	{
		"subscribe, absolute start", "03 0009 00 00 00 01 2103030805",
		&Subscribe{Parameters: Parameters{Filter: &Filter{Type: FilterAbsoluteStart, Start: Location{8, 5}}}},
	},
	{
		"subscribe ok", "04 000c 03 02 0883e8 010500 0e0a 1401",
		&SubscribeOK{
			TrackAlias: 3,
			Parameters: Parameters{Expires: new(uint64(1000)), LargestObject: &Location{5, 0}},
			Properties: Properties{0x0e, 10, 0x14, 1},
		},
	},
	{
		"request update, prefix", "02 0006 04 01 34010178",
		&RequestUpdate{4, Parameters{NamespacePrefix: &Namespace{"x"}}},
	},
	{"request update, forward", "02 0004 06 01 1001", &RequestUpdate{6, Parameters{Forward: new(true)}}},
	{
		"publish", "1d 000a 01 01016e 0174 02 01 1000",
		&Publish{
			RequestID: 1, Track: TrackName{Namespace{"n"}, "t"}, TrackAlias: 2,
			Parameters: Parameters{Forward: new(false)}, Properties: Properties{},
		},
	},
	{
		"publish done", "0b 000b 02 ff3fffffffffffffff 00",
		&PublishDone{Code: DoneTrackEnded, StreamCount: StreamCountUnknown},
	},
	{"publish blocked", "0f 0005 010161 0162", &PublishBlocked{Namespace{"a"}, "b"}},
	{
		"fetch, standalone", "16 0012 00 01 010161 0162 0100 0200 03 0a00 1601 0202",
		&Fetch{
			FetchType: FetchStandalone, Track: TrackName{Namespace{"a"}, "b"},
			Start: Location{1, 0}, End: Location{2, 0},
			Parameters: Parameters{
				FillTimeout: new(uint64(0)), SubscriberPriority: new(uint8(1)), GroupOrder: new(Descending),
			},
		},
	},
	{
		"fetch, relative joining", "16 0005 02 02 00 03 00",
		&Fetch{RequestID: 2, FetchType: FetchRelativeJoining, JoiningStart: 3},
	},
	{
		"fetch, absolute joining", "16 0005 02 03 04 05 00",
		&Fetch{RequestID: 2, FetchType: FetchAbsoluteJoining, JoiningRequestID: 4, JoiningStart: 5},
	},
	{"fetch ok", "18 0004 01 09 01 00", &FetchOK{EndOfTrack: true, End: Location{9, 1}, Properties: Properties{}}},
	{"track status", "0d 0007 04 010161 0162 00", &TrackStatus{RequestID: 4, Track: TrackName{Namespace{"a"}, "b"}}},
	{"publish namespace", "06 0005 02 010161 00", &PublishNamespace{RequestID: 2, Namespace: Namespace{"a"}}},
	{"namespace", "08 0003 010161", &NamespaceAdded{Namespace{"a"}}},
	{"namespace, empty suffix", "08 0001 00", &NamespaceAdded{}},
	{"namespace done", "0e 0003 010161", &NamespaceDone{Namespace{"a"}}},
	{"subscribe namespace", "50 0005 02 010161 00", &SubscribeNamespace{RequestID: 2, Prefix: Namespace{"a"}}},
	{
		"subscribe tracks", "51 0005 02 00 01 1000",
		&SubscribeTracks{RequestID: 2, Parameters: Parameters{Forward: new(false)}},
	},
}

func TestMessageBytes(t *testing.T) {
	for _, tt := range messages {
		t.Run(tt.name, func(t *testing.T) {
			want := unhex(t, tt.bytes)
			got, err := AppendMessage(nil, tt.msg)
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("AppendMessage = %x, %v, want %x", got, err, want)
			}
			r := bytes.NewReader(append(want, 0xee))
			m, err := ReadMessage(r)
			if err != nil || !reflect.DeepEqual(m, tt.msg) {
				t.Errorf("ReadMessage = %+v, %v, want %+v", m, err, tt.msg)
			}
			if r.Len() != 1 {
				t.Errorf("%d bytes left, want the one that follows the message", r.Len())
			}
		})
	}
}

func TestMessageTruncated(t *testing.T) {
	for _, tt := range messages {
		t.Run(tt.name, func(t *testing.T) {
			b := unhex(t, tt.bytes)
			for n := range b {
				want := io.ErrUnexpectedEOF
				if n == 0 {
					want = io.EOF
				}
				if _, err := ReadMessage(bytes.NewReader(b[:n])); err != want {
					t.Errorf("ReadMessage of %d bytes: %v, want %v", n, err, want)
				}
			}
			// With a matching length, the truncated payload is a violation, unless only an optional
			// last field is missing.
			typ, typeLen, _ := ParseVarint(b)
			payload := b[typeLen+2:]
			for n := range payload {
				m, err := ParseMessage(MessageType(typ), payload[:n])
				var e *Error
				if err != nil && !errors.As(err, &e) {
					t.Errorf("ParseMessage of %x: %v, want an *Error", payload[:n], err)
				}
				if err == nil && !canEndAt(m, n) {
					t.Errorf("ParseMessage of %x: accepted as %+v", payload[:n], m)
				}
			}
		})
	}
}

// canEndAt reports whether a message parsed from n bytes lacks only an optional last field.
func canEndAt(m Message, n int) bool {
	switch m := m.(type) {
	case *Setup, *RequestOK, *SubscribeOK:
		return true
	case *Goaway:
		return m.RequestID == nil && n >= 2
	}
	return false
}

func TestMessageErrors(t *testing.T) {
	long := func(n int) string { return strings.Repeat("61", n) }
	for _, tt := range []struct {
		name    string
		typ     MessageType
		payload string
		code    SessionCode
		want    string
	}{
		{"unknown type", 0x01, "", ProtocolViolation, "unknown message type 0x1"},
		{"client setup of draft 16", 0x20, "", ProtocolViolation, "unknown message type 0x20"},
		{"trailing byte", TypeNamespace, "010161 00", ProtocolViolation, "1 bytes after the last field of NAMESPACE"},
		{"trailing byte after goaway", TypeGoaway, "00 00 00 00", ProtocolViolation, "after the last field"},

		{"setup option type overflow", TypeSetup, "010161 ffffffffffffffffff00", ProtocolViolation, "type exceeds"},
		{"setup option too long", TypeSetup, "01 c10000", ProtocolViolation, "65536 bytes exceeds"},
		{"setup option cut off", TypeSetup, "01 05 61", KeyValueFormattingError, "cut off"},
		{"setup option repeated", TypeSetup, "01012f 00012f", ProtocolViolation, "0x1 is repeated"},
		{"setup deletes a token", TypeSetup, "03020001", ProtocolViolation, "token alias type 0 in SETUP"},
		{"setup uses an alias", TypeSetup, "03020201", ProtocolViolation, "token alias type 2 in SETUP"},
		{"setup token of unknown type", TypeSetup, "030104", KeyValueFormattingError, "alias type"},
		{"setup token cut off", TypeSetup, "030101", KeyValueFormattingError, "token"},
		{"setup with 17 tokens", TypeSetup, "03020300" + strings.Repeat("00020300", 16), ProtocolViolation, "more than 16"},

		{"goaway URI too long", TypeGoaway, "a001" + long(8193) + "00", ProtocolViolation, "8193 bytes exceeds 8192"},
		{"reason too long", TypePublishDone, "00 00 8401" + long(1025), ProtocolViolation, "1025 bytes exceeds 1024"},
		{"33 namespace fields", TypeNamespace, "21" + strings.Repeat("0161", 33), ProtocolViolation, "33 fields"},
		{"empty namespace field", TypeNamespace, "01 00", ProtocolViolation, "empty namespace field"},
		{"namespace field too long", TypeNamespace, "01 9001" + long(4097), ProtocolViolation, "4097 bytes"},
		{"namespace too long", TypeNamespace, "02 9000" + long(4096) + "0161", ProtocolViolation, "namespace exceeds 4096"},
		{"full name too long", TypeSubscribe, "00 01 9000" + long(4096) + "0161 00", ProtocolViolation, "4097 bytes exceeds"},
		{
			"blocked name too long", TypePublishBlocked,
			"01 9000" + long(4096) + "0161", ProtocolViolation, "4097 bytes exceeds",
		},
		{
			"redirect name too long", TypeRequestError,
			"34 00 00 00 01 9000" + long(4096) + "0161", ProtocolViolation, "4097 bytes exceeds",
		},
		{"redirect missing", TypeRequestError, "34 00 00", ProtocolViolation, "ends inside a field"},
		{"redirect without its code", TypeRequestError, "10 00 00 00 00 00", ProtocolViolation, "3 bytes after"},

		{"fetch type 0", TypeFetch, "00 00 00 00 00", ProtocolViolation, "unknown fetch type 0x0"},
		{"fetch type 4", TypeFetch, "00 04 00 00 00", ProtocolViolation, "unknown fetch type 0x4"},
		{"end of track 2", TypeFetchOK, "02 00 00 00", ProtocolViolation, "end of track 2"},

		{"track priority 256", TypeSubscribeOK, "00 00 0e8100", ProtocolViolation, "priority 256"},
		{"track group order 0", TypePublish, "00 00 00 00 00 2200", ProtocolViolation, "group order 0"},
		{"track group order 3", TypeFetchOK, "00 00 00 00 2203", ProtocolViolation, "group order 3"},
		{"track dynamic groups 2", TypeRequestOK, "00 3002", ProtocolViolation, "dynamic groups 2"},
		{"the same, immutable", TypeSubscribeOK, "00 00 0b023002", ProtocolViolation, "dynamic groups 2"},
		{"immutable properties cut off", TypeSubscribeOK, "00 00 0b0130", KeyValueFormattingError, "cut off"},
		{"track properties cut off", TypeSubscribeOK, "00 00 0e", KeyValueFormattingError, "cut off"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m, err := ParseMessage(tt.typ, unhex(t, tt.payload))
			if m != nil {
				t.Errorf("ParseMessage = %+v with error %v", m, err)
			}
			wantError(t, err, tt.code, tt.want)
		})
	}
}

func TestUnknownMessageIsRefusedAtItsType(t *testing.T) {
	_, err := ReadMessage(bytes.NewReader([]byte{0x40}))
	wantError(t, err, ProtocolViolation, "unknown message type 0x40")
}

func TestMessageLimits(t *testing.T) {
	// Values at the limits are allowed.
	fields := make(Namespace, MaxNamespaceFields)
	for i := range fields {
		fields[i] = strings.Repeat("f", MaxFullTrackName/MaxNamespaceFields)
	}
	for _, m := range []Message{
		&Goaway{NewSessionURI: strings.Repeat("u", MaxSessionURILength)},
		&RequestError{Code: RequestTimeout, Reason: strings.Repeat("r", MaxReasonLength)},
		&PublishNamespace{Namespace: fields},
		&Subscribe{Track: TrackName{fields, ""}},
		&Subscribe{RequestID: 1<<64 - 1, Parameters: Parameters{
			Filter: &Filter{Type: FilterAbsoluteRange, Start: Location{1<<64 - 1, 1<<64 - 1}, EndGroup: 1<<64 - 1},
		}},
		&Setup{HasPath: true, Path: strings.Repeat("p", MaxMessageLength-4)},
		&SubscribeOK{Properties: append(Properties{0x01, 0xc0, 0xff, 0xf9}, make([]byte, 0xfff9)...)},
	} {
		b, err := AppendMessage(nil, m)
		if err != nil {
			t.Errorf("AppendMessage(%s): %v", m.Type(), err)
			continue
		}
		if got, err := ReadMessage(bytes.NewReader(b)); err != nil || !reflect.DeepEqual(got, m) {
			t.Errorf("ReadMessage(%s): %v", m.Type(), err)
		}
	}
}

func TestAppendMessageRefuses(t *testing.T) {
	for _, tt := range []struct {
		name string
		msg  Message
		want string
	}{
		{"payload too long", &Setup{HasPath: true, Path: strings.Repeat("p", 1<<16)}, "exceeds 65535"},
		{"parameter out of place", &Subscribe{Parameters: Parameters{FillTimeout: new(uint64(1))}}, "0xa is not allowed in SUBSCRIBE"},
		{"filter that ends before it starts", &Subscribe{Parameters: Parameters{
			Filter: &Filter{Type: FilterAbsoluteRange, Start: Location{5, 0}, EndGroup: 4},
		}}, "end group exceeds"},
		{"group order 0", &Fetch{FetchType: FetchRelativeJoining, Parameters: Parameters{GroupOrder: new(GroupOrder(0))}}, "group order 0"},
		{"fetch without a type", &Fetch{}, "unknown fetch type"},
		{"17 tokens", &Subscribe{Parameters: Parameters{AuthorizationTokens: make([]Token, 17)}}, "more than 16"},
		{"properties that are none", &Publish{Properties: Properties{0x01}}, "cut off"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b, err := AppendMessage(nil, tt.msg)
			if b != nil || err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("AppendMessage = %x, %v, want an error with %q", b, err, tt.want)
			}
			// The mistake is the caller's, not the peer's.
			if e := new(Error); errors.As(err, &e) {
				t.Errorf("error %v would close the session", err)
			}
		})
	}
}

func TestMessageKeepsWhatPrecedes(t *testing.T) {
	b, err := AppendMessage([]byte("before"), &NamespaceDone{Namespace{"a"}})
	if err != nil || string(b) != "before\x0e\x00\x03\x01\x01a" {
		t.Errorf("AppendMessage = %q, %v", b, err)
	}
}

func TestReasonCutBetweenRunes(t *testing.T) {
	b, err := AppendMessage(nil, &PublishDone{Reason: strings.Repeat("é", 600) + "x"})
	if err != nil {
		t.Fatal(err)
	}
	m, err := ReadMessage(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	if got := m.(*PublishDone).Reason; got != strings.Repeat("é", 512) {
		t.Errorf("reason of %d bytes", len(got))
	}
	b, err = AppendMessage(nil, &PublishDone{Reason: "x" + strings.Repeat("é", 600)})
	if err != nil {
		t.Fatal(err)
	}
	if m, err = ReadMessage(bytes.NewReader(b)); err != nil {
		t.Fatal(err)
	}
	if got := m.(*PublishDone).Reason; got != "x"+strings.Repeat("é", 511) {
		t.Errorf("reason of %d bytes", len(got))
	}
}

func TestPublishOKReadAsRequestOK(t *testing.T) {
	m, err := ReadMessage(bytes.NewReader(unhex(t, "1e 0003 01 1001")))
	want := &RequestOK{Parameters: Parameters{Forward: new(true)}, Properties: Properties{}}
	if err != nil || !reflect.DeepEqual(m, want) {
		t.Errorf("ReadMessage = %+v, %v, want %+v", m, err, want)
	}
}

func TestSetupIgnoresUnknownOptions(t *testing.T) {
	// Grease (§14) with an odd type twice, grease with an even type, an implementation that is not
	// UTF-8, and an empty path.
	m, err := ParseMessage(TypeSetup, unhex(t, "0100 0602fffe 809601aa 0000 7f05"))
	if err != nil {
		t.Fatal(err)
	}
	if want := (&Setup{HasPath: true}); !reflect.DeepEqual(m, want) {
		t.Errorf("ParseMessage = %+v, want %+v", m, want)
	}
}

func TestHostileMessagesAllocateLittle(t *testing.T) {
	const huge = "ffffffffffffffffff"
	for _, tt := range []struct {
		name    string
		typ     MessageType
		payload string
	}{
		{"namespace fields", TypeNamespace, huge},
		{"namespace field", TypeNamespace, "01" + huge},
		{"32 fields, none there", TypeNamespace, "20"},
		{"track name", TypeSubscribe, "00 00" + huge},
		{"parameters", TypeSubscribe, "00 00 00" + huge},
		{"token", TypeSubscribe, "00 00 00 01 03" + huge},
		{"filter", TypeSubscribe, "00 00 00 01 21" + huge},
		{"reason", TypePublishDone, "00 00" + huge},
		{"URI", TypeGoaway, huge},
		{"setup option", TypeSetup, "01" + huge},
		{"redirect", TypeRequestError, "34 00 00" + huge},
	} {
		t.Run(tt.name, func(t *testing.T) {
			payload := unhex(t, tt.payload)
			n := allocated(func() {
				if _, err := ParseMessage(tt.typ, payload); err == nil {
					t.Error("accepted")
				}
			})
			if n > 2048 {
				t.Errorf("%d bytes allocated", n)
			}
		})
	}
}

func TestCodeNames(t *testing.T) {
	for _, tt := range []struct {
		code fmt.Stringer
		want string
	}{
		{ProtocolViolation, "PROTOCOL_VIOLATION"},
		{MalformedAuthority, "MALFORMED_AUTHORITY"},
		{SessionCode(0x9d), "code 0x9d"},
		{RequestRedirect, "REDIRECT"},
		{RequestCode(0x11c), "code 0x11c"},
		{DoneTooFarBehind, "TOO_FAR_BEHIND"},
		{DoneCode(7), "code 0x7"},
		{StreamDeliveryTimeout, "DELIVERY_TIMEOUT"},
		{StreamCode(8), "code 0x8"},
		{TypeSetup, "SETUP"},
		{typePublishOK, "PUBLISH_OK"},
		{MessageType(1), "code 0x1"},
	} {
		if got := tt.code.String(); got != tt.want {
			t.Errorf("%T String() = %q, want %q", tt.code, got, tt.want)
		}
	}
	err := &Error{DuplicateTrackAlias, "alias 3"}
	if got := err.Error(); got != "moqt: DUPLICATE_TRACK_ALIAS: alias 3" {
		t.Errorf("Error() = %q", got)
	}
}

func FuzzMessage(f *testing.F) {
	for _, tt := range messages {
		b := unhex(f, tt.bytes)
		typ, n, _ := ParseVarint(b)
		f.Add(typ, b[n+2:])
	}
	f.Fuzz(func(t *testing.T, typ uint64, payload []byte) {
		m, err := ParseMessage(MessageType(typ), payload)
		if err != nil {
			if e := new(Error); !errors.As(err, &e) {
				t.Fatalf("error %v is not an *Error", err)
			}
			return
		}
		if len(payload) > MaxMessageLength {
			return
		}
		b, err := AppendMessage(nil, m)
		if err != nil {
			t.Fatalf("AppendMessage(%+v): %v", m, err)
		}
		again, err := ReadMessage(bytes.NewReader(b))
		if err != nil || !reflect.DeepEqual(again, m) {
			t.Fatalf("ReadMessage(AppendMessage(%+v)) = %+v, %v", m, again, err)
		}
	})
}

func BenchmarkMessage(b *testing.B) {
	for _, tt := range messages {
		if tt.name != "subscribe, every parameter" && tt.name != "subscribe ok" {
			continue
		}
		encoded := unhex(b, tt.bytes)
		b.Run("read "+tt.name, func(b *testing.B) {
			b.ReportAllocs()
			src := new(bytes.Reader)
			r := bufio.NewReader(src)
			for b.Loop() {
				src.Reset(encoded)
				r.Reset(src)
				if _, err := ReadMessage(r); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("append "+tt.name, func(b *testing.B) {
			b.ReportAllocs()
			var buf []byte
			var err error
			for b.Loop() {
				if buf, err = AppendMessage(buf[:0], tt.msg); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
