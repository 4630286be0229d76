package wire

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"
)

// parameters lists the draft's parameters with encoded values and the messages in which §10.2
// allows them.
var parameters = []struct {
	name   string
	typ    uint64
	value  string
	params Parameters
	scope  []MessageType
}{
	{
		"OBJECT_DELIVERY_TIMEOUT", 0x02, "83e8",
		Parameters{ObjectDeliveryTimeout: new(uint64(1000))},
		[]MessageType{TypeRequestOK, TypeSubscribe, TypeRequestUpdate},
	},
	{
		"AUTHORIZATION_TOKEN", 0x03, "04 01050061",
		Parameters{AuthorizationTokens: []Token{{AliasType: TokenRegister, Alias: 5, Value: []byte("a")}}},
		[]MessageType{
			TypePublish, TypeSubscribe, TypeRequestUpdate, TypeSubscribeNamespace, TypeSubscribeTracks,
			TypePublishNamespace, TypeTrackStatus, TypeFetch,
		},
	},
	{
		"RENDEZVOUS_TIMEOUT", 0x04, "05",
		Parameters{RendezvousTimeout: new(uint64(5))},
		[]MessageType{TypeSubscribe},
	},
	{
		"SUBGROUP_DELIVERY_TIMEOUT", 0x06, "ffffffffffffffffff",
		Parameters{SubgroupDeliveryTimeout: new(uint64(1<<64 - 1))},
		[]MessageType{TypeRequestOK, TypeSubscribe, TypeRequestUpdate},
	},
	{
		"EXPIRES", 0x08, "00",
		Parameters{Expires: new(uint64(0))},
		[]MessageType{TypeSubscribeOK, TypePublish, TypeRequestOK},
	},
	{
		"LARGEST_OBJECT", 0x09, "07 8080",
		Parameters{LargestObject: &Location{7, 128}},
		[]MessageType{TypeSubscribeOK, TypePublish, TypeRequestOK},
	},
	{"FILL_TIMEOUT", 0x0a, "7f", Parameters{FillTimeout: new(uint64(127))}, []MessageType{TypeFetch}},
	{
		"FORWARD", 0x10, "01",
		Parameters{Forward: new(true)},
		[]MessageType{TypeSubscribe, TypeRequestUpdate, TypePublish, TypeRequestOK, TypeSubscribeTracks},
	},
	{
		"SUBSCRIBER_PRIORITY", 0x20, "80",
		Parameters{SubscriberPriority: new(uint8(128))},
		[]MessageType{TypeSubscribe, TypeFetch, TypeRequestUpdate, TypeRequestOK},
	},
	{
		"SUBSCRIPTION_FILTER", 0x21, "03 030102",
		Parameters{Filter: &Filter{Type: FilterAbsoluteStart, Start: Location{1, 2}}},
		[]MessageType{TypeSubscribe, TypeRequestOK, TypeRequestUpdate},
	},
	{
		"GROUP_ORDER", 0x22, "01",
		Parameters{GroupOrder: new(Ascending)},
		[]MessageType{TypeSubscribe, TypeRequestOK, TypeFetch},
	},
	{
		"NEW_GROUP_REQUEST", 0x32, "00",
		Parameters{NewGroupRequest: new(uint64(0))},
		[]MessageType{TypeRequestOK, TypeSubscribe, TypeRequestUpdate},
	},
	{
		"TRACK_NAMESPACE_PREFIX", 0x34, "02 0161 0162",
		Parameters{NamespacePrefix: &Namespace{"a", "b"}},
		[]MessageType{TypeRequestUpdate},
	},
}

// carriers lists the messages with parameters: before is the payload that precedes the parameters,
// in hex.
var carriers = []struct {
	before string
	make   func(Parameters) Message
}{
	{"00 00 00", func(p Parameters) Message { return &Subscribe{Parameters: p} }},
	{"00", func(p Parameters) Message { return &SubscribeOK{Parameters: p, Properties: Properties{}} }},
	{"00 00 00 00", func(p Parameters) Message { return &Publish{Parameters: p, Properties: Properties{}} }},
	{"", func(p Parameters) Message { return &RequestOK{Parameters: p, Properties: Properties{}} }},
	{"00", func(p Parameters) Message { return &RequestUpdate{Parameters: p} }},
	{"00 02 00 00", func(p Parameters) Message { return &Fetch{FetchType: FetchRelativeJoining, Parameters: p} }},
	{"00 00 00", func(p Parameters) Message { return &FetchOK{Parameters: p, Properties: Properties{}} }},
	{"00 00 00", func(p Parameters) Message { return &TrackStatus{Parameters: p} }},
	{"00 00", func(p Parameters) Message { return &PublishNamespace{Parameters: p} }},
	{"00 00", func(p Parameters) Message { return &SubscribeNamespace{Parameters: p} }},
	{"00 00", func(p Parameters) Message { return &SubscribeTracks{Parameters: p} }},
}

func TestParameterScope(t *testing.T) {
	for _, p := range parameters {
		for _, c := range carriers {
			want := c.make(p.params)
			t.Run(p.name+" in "+want.Type().String(), func(t *testing.T) {
				payload := unhex(t, c.before+"01")
				payload = append(AppendVarint(payload, p.typ), unhex(t, p.value)...)
				got, err := ParseMessage(want.Type(), payload)
				b, sendErr := AppendMessage(nil, want)
				allowed := false
				for _, m := range p.scope {
					allowed = allowed || m == want.Type()
				}
				if !allowed {
					wantError(t, err, ProtocolViolation, "is not allowed in "+want.Type().String())
					if sendErr == nil {
						t.Error("AppendMessage sends it")
					}
					return
				}
				if err != nil || !reflect.DeepEqual(got, want) {
					t.Errorf("ParseMessage = %+v, %v, want %+v", got, err, want)
				}
				if sendErr != nil || !bytes.HasSuffix(b, payload) {
					t.Errorf("AppendMessage = %x, %v, want …%x", b, sendErr, payload)
				}
			})
		}
	}
}

func TestParameterRepeated(t *testing.T) {
	for _, p := range parameters {
		t.Run(p.name, func(t *testing.T) {
			// Repeat the parameter in the first message that allows it.
			for _, c := range carriers {
				typ := c.make(Parameters{}).Type()
				if typ != p.scope[0] {
					continue
				}
				payload := AppendVarint(unhex(t, c.before+"02"), p.typ)
				payload = append(payload, unhex(t, p.value+"00"+p.value)...)
				_, err := ParseMessage(typ, payload)
				if p.typ == paramAuthorizationToken {
					if err != nil {
						t.Errorf("two tokens: %v", err)
					}
					return
				}
				wantError(t, err, ProtocolViolation, "is repeated in "+typ.String())
				return
			}
			t.Fatal("no message to test with")
		})
	}
}

func TestParameterErrors(t *testing.T) {
	for _, tt := range []struct {
		name   string
		params string // of a SUBSCRIBE, starting with their number
		code   SessionCode
		want   string
	}{
		{"unknown", "01 0500", ProtocolViolation, "unknown parameter 0x5"},
		{"type 0", "01 0000", ProtocolViolation, "unknown parameter 0x0"},
		{"grease", "01 809d00", ProtocolViolation, "unknown parameter 0x9d"},
		{"type overflow", "02 0200 ffffffffffffffffff00", ProtocolViolation, "type exceeds"},
		{"fewer than said", "02 0200", ProtocolViolation, "ends inside a field"},
		{"more than said", "01 0200 0400", ProtocolViolation, "2 bytes after"},
		{"forward 2", "01 1002", ProtocolViolation, "forward parameter 2"},
		{"group order 0", "01 2200", ProtocolViolation, "group order 0"},
		{"group order 3", "01 2203", ProtocolViolation, "group order 3"},
		{"filter 0", "01 210100", ProtocolViolation, "filter 0x0"},
		{"filter 5", "01 210105", ProtocolViolation, "filter 0x5"},
		{"filter empty", "01 2100", ProtocolViolation, "ends inside a field"},
		{"filter cut off", "01 21020301", ProtocolViolation, "ends inside a field"},
		{"filter too long", "01 21020200", ProtocolViolation, "1 bytes after the location filter"},
		{"filter end overflow", "01 210d04 ffffffffffffffffff 00 8001", ProtocolViolation, "end group exceeds"},
		{"token empty", "01 0300", KeyValueFormattingError, "cannot be decoded"},
		{"token of unknown type", "01 030104", KeyValueFormattingError, "alias type"},
		{"token without alias", "01 030102", KeyValueFormattingError, "cannot be decoded"},
		{"token with more than an alias", "01 03020205 00", ProtocolViolation, "1 bytes after"},
		{"token alias with a value", "01 0303020500", KeyValueFormattingError, "cannot be decoded"},
		{"token delete with a value", "01 0303000500", KeyValueFormattingError, "cannot be decoded"},
		{"token register without type", "01 03020105", KeyValueFormattingError, "cannot be decoded"},
		{"17 tokens", "11 03020300" + strings.Repeat("00020300", 16), ProtocolViolation, "more than 16"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := ParseMessage(TypeSubscribe, unhex(t, "00 00 00"+tt.params))
			wantError(t, err, tt.code, tt.want)
		})
	}
}

func TestNamespacePrefixParameterEmpty(t *testing.T) {
	m := &RequestUpdate{Parameters: Parameters{NamespacePrefix: new(Namespace)}}
	b, err := AppendMessage(nil, m)
	if err != nil || !bytes.Equal(b, unhex(t, "02 0004 00 01 3400")) {
		t.Fatalf("AppendMessage = %x, %v", b, err)
	}
	got, err := ReadMessage(bytes.NewReader(b))
	if err != nil || !reflect.DeepEqual(got, m) {
		t.Errorf("ReadMessage = %+v, %v", got, err)
	}
}

func TestTokenIsCopied(t *testing.T) {
	b := unhex(t, "03 00 616263")
	tok, err := ParseToken(b)
	if err != nil {
		t.Fatal(err)
	}
	clear(b)
	if string(tok.Value) != "abc" {
		t.Errorf("value %q changed with its buffer", tok.Value)
	}
}

func TestLocationOrder(t *testing.T) {
	ordered := []Location{{0, 0}, {0, 1}, {0, 1<<64 - 1}, {1, 0}, {1<<64 - 1, 0}, {1<<64 - 1, 1}}
	for i, a := range ordered {
		for j, b := range ordered {
			if got := a.Less(b); got != (i < j) {
				t.Errorf("%v.Less(%v) = %v", a, b, got)
			}
			if got := a.Compare(b) == 0; got != (i == j) {
				t.Errorf("%v.Compare(%v) = 0: %v", a, b, got)
			}
		}
	}
}

func FuzzToken(f *testing.F) {
	f.Add([]byte{3, 0, 'a'})
	f.Add([]byte{1, 5, 0, 'a'})
	f.Add([]byte{2, 5})
	f.Fuzz(func(t *testing.T, b []byte) {
		tok, err := ParseToken(b)
		if err != nil {
			if e := new(Error); !errors.As(err, &e) {
				t.Fatalf("error %v is not an *Error", err)
			}
			return
		}
		again, err := ParseToken(tok.append(nil))
		if err != nil || !reflect.DeepEqual(again, tok) {
			t.Errorf("ParseToken(%+v) = %+v, %v", tok, again, err)
		}
	})
}
