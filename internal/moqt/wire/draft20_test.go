package wire

import (
	"bytes"
	"errors"
	"reflect"
	"slices"
	"testing"
)

// messages20 holds messages that are new or encoded differently in draft-20 or -22.
var messages20 = []struct {
	name    string
	payload string // in draft-20 and -21
	in22    string // in draft-22; "" = the same
	msg     Message
}{
	{
		name:    "subscribe with fill",
		payload: "02 01 0161 01 62 02 21 02 0000 02 04 01 21 01 01",
		in22:    "02 01 0161 01 62 02 21 05 02 04 01 21 01 01",
		msg: &Subscribe{2, TrackName{Namespace{"a"}, "b"}, Parameters{
			Filter: &Filter{Type: FilterLargestObject},
			Fill:   &Parameters{Filter: &Filter{Type: FilterRecentGroups, Groups: 1}},
		}},
	},
	{
		name:    "fill with every parameter",
		payload: "04 01 23 0e 04 0a 87d0 16 07 01 04 8100 8080 01 02",
		in22:    "04 01 23 0e 04 0a 87d0 16 07 01 02 8100 8080 01 02",
		msg: &RequestUpdate{4, Parameters{Fill: &Parameters{
			FillTimeout: new(uint64(2000)), SubscriberPriority: new(uint8(7)), GroupOrder: new(Descending),
			Filter: &Filter{Type: FilterAbsoluteStart, Start: Location{256, 128}},
		}}},
	},
	{
		name:    "empty fill",
		payload: "04 01 23 01 00",
		msg:     &RequestUpdate{4, Parameters{Fill: &Parameters{}}},
	},
	{
		name:    "fetch of everything",
		payload: "00 01 0161 01 62 00",
		msg:     &Fetch{FetchType: FetchStandalone, Track: TrackName{Namespace{"a"}, "b"}},
	},
	{
		name:    "fetch of a range, without properties",
		payload: "80ff 01 0161 01 62 02 21 06 8100 02 01 8200 14 00",
		in22:    "80ff 01 0161 01 62 02 21 04 8100 02 01 8200 14 00",
		msg: &Fetch{
			RequestID: 255, FetchType: FetchStandalone, Track: TrackName{Namespace{"a"}, "b"},
			Parameters: Parameters{
				Filter:            &Filter{Type: FilterObjectRange, Start: Location{256, 2}, EndGroup: 257, EndObject: 512},
				IncludeProperties: new(false),
			},
		},
	},
	{
		name:    "publish state",
		payload: "02 09 8100 8200 07 00",
		msg:     &PublishStateNotify{Parameters{LargestObject: &Location{256, 512}, Forward: new(false)}},
	},
	{
		name:    "publish with parameters of a subscription",
		payload: "01 01 0161 01 62 05 03 02 64 1e 09 02 02",
		msg: &Publish{1, TrackName{Namespace{"a"}, "b"}, 5, Parameters{
			ObjectDeliveryTimeout: new(uint64(100)), SubscriberPriority: new(uint8(9)), GroupOrder: new(Descending),
		}, Properties{}},
	},
}

func TestMessages20(t *testing.T) {
	for _, tt := range messages20 {
		for _, v := range []Version{Draft20, Draft21, Draft22} {
			t.Run(tt.name+" "+v.String(), func(t *testing.T) {
				want := tt.payload
				if v == Draft22 && tt.in22 != "" {
					want = tt.in22
				}
				payload := unhex(t, want)
				b, err := v.AppendMessage(nil, tt.msg)
				if err != nil || !bytes.HasSuffix(b, payload) || len(b) != len(payload)+3 {
					t.Errorf("AppendMessage = %x, %v, want …%x", b, err, payload)
				}
				if got, err := v.ReadMessage(bytes.NewReader(b)); err != nil || !reflect.DeepEqual(got, tt.msg) {
					t.Errorf("ReadMessage = %+v, %v, want %+v", got, err, tt.msg)
				}
				for n := range payload {
					_, err := v.ParseMessage(tt.msg.Type(), payload[:n])
					if e := (*Error)(nil); !errors.As(err, &e) {
						t.Errorf("ParseMessage of %x: %v, want an *Error", payload[:n], err)
					}
				}
			})
		}
	}
}

// TestLocationFilters checks the three encodings of filters. Values above one byte tell a length
// from a number of fields.
func TestLocationFilters(t *testing.T) {
	for _, tt := range []struct {
		filter           Filter
		in18, in20, in22 string // "" = none
	}{
		{Filter{}, "", "00", "00"},
		{Filter{Type: FilterNextGroup}, "01 01", "01 00", "01 00"},
		{Filter{Type: FilterLargestObject}, "01 02", "02 0000", "05"},
		{Filter{Type: FilterRecentGroups, Groups: 1}, "", "01 01", "01 01"},
		{Filter{Type: FilterRecentGroups, Groups: 300}, "", "02 812c", "01 812c"},
		{Filter{Type: FilterAbsoluteStart, Start: Location{0, 1}}, "03 030001", "02 0001", "02 0001"},
		{Filter{Type: FilterAbsoluteStart, Start: Location{300, 0}}, "04 03812c00", "03 812c00", "02 812c00"},
		{
			Filter{Type: FilterAbsoluteRange, Start: Location{300, 0}, EndGroup: 600},
			"06 04812c00812c", "05 812c00812c", "03 812c00812c",
		},
		{
			Filter{Type: FilterObjectRange, Start: Location{1, 2}, EndGroup: 1, EndObject: 300},
			"", "05 010200812c", "04 010200812c",
		},
	} {
		for v, want := range map[Version]string{
			Draft18: tt.in18, Draft19: tt.in18, Draft20: tt.in20, Draft21: tt.in20, Draft22: tt.in22,
		} {
			m := &Subscribe{Parameters: Parameters{Filter: &tt.filter}}
			b, err := v.AppendMessage(nil, m)
			if want == "" {
				if err == nil {
					t.Errorf("%v encodes %+v as %x", v, tt.filter, b)
				}
				continue
			}
			suffix := append([]byte{1, 0x21}, unhex(t, want)...)
			if err != nil || !bytes.HasSuffix(b, suffix) {
				t.Errorf("%v: %+v is %x, %v, want …%x", v, tt.filter, b, err, suffix)
				continue
			}
			if got, err := v.ReadMessage(bytes.NewReader(b)); err != nil || !reflect.DeepEqual(got, m) {
				t.Errorf("%v: read %+v, %v, want %+v", v, got, err, m)
			}
		}
	}
	// The track's start differs from the next object only from draft-22 on.
	first := &Subscribe{Parameters: Parameters{Filter: &Filter{Type: FilterAbsoluteStart}}}
	for v, want := range map[Version]FilterType{Draft20: FilterNone, Draft22: FilterAbsoluteStart} {
		b, err := v.AppendMessage(nil, first)
		if err != nil {
			t.Fatal(err)
		}
		m, err := v.ReadMessage(bytes.NewReader(b))
		if s, ok := m.(*Subscribe); !ok || s.Parameters.Filter.Type != want {
			t.Errorf("%v: %+v, %v", v, m, err)
		}
	}
	for v, bad := range map[Version][]string{
		Draft20: {"05 0102030405", "01 81", "0b 01 00 ffffffffffffffffff", "02 01"},
		Draft22: {"06", "07 00", "01", "02 01", "03 01 00 ffffffffffffffffff", "ffffffffffffffffff"},
	} {
		for _, value := range bad {
			_, err := v.ParseMessage(TypeSubscribe, unhex(t, "00 00 00 01 21"+value))
			if e := (*Error)(nil); !errors.As(err, &e) || e.Code != ProtocolViolation {
				t.Errorf("%v: filter %s: %v", v, value, err)
			}
		}
	}
}

// carriers20 are all messages with parameters.
var carriers20 = map[MessageType]func(Parameters) Message{
	TypeSubscribe:          func(p Parameters) Message { return &Subscribe{Parameters: p} },
	TypeSubscribeOK:        func(p Parameters) Message { return &SubscribeOK{Parameters: p} },
	TypePublish:            func(p Parameters) Message { return &Publish{Parameters: p} },
	TypePublishStateNotify: func(p Parameters) Message { return &PublishStateNotify{p} },
	TypeRequestOK:          func(p Parameters) Message { return &RequestOK{Parameters: p} },
	TypeRequestUpdate:      func(p Parameters) Message { return &RequestUpdate{Parameters: p} },
	TypeFetch:              func(p Parameters) Message { return &Fetch{FetchType: FetchStandalone, Parameters: p} },
	TypeFetchOK:            func(p Parameters) Message { return &FetchOK{Parameters: p} },
	TypeTrackStatus:        func(p Parameters) Message { return &TrackStatus{Parameters: p} },
	TypePublishNamespace:   func(p Parameters) Message { return &PublishNamespace{Parameters: p} },
	TypeSubscribeNamespace: func(p Parameters) Message { return &SubscribeNamespace{Parameters: p} },
	TypeSubscribeTracks:    func(p Parameters) Message { return &SubscribeTracks{Parameters: p} },
	typeFill:               func(p Parameters) Message { return &Subscribe{Parameters: Parameters{Fill: &p}} },
}

// TestParameterScope20 checks which messages carry the parameters whose scope changed (draft-22
// §9.20).
func TestParameterScope20(t *testing.T) {
	for _, tt := range []struct {
		name   string
		params Parameters
		scope  []MessageType
	}{
		{
			"OBJECT_DELIVERY_TIMEOUT",
			Parameters{ObjectDeliveryTimeout: new(uint64(1))},
			[]MessageType{TypeSubscribe, TypePublish, TypeRequestUpdate, TypeSubscribeTracks},
		},
		{
			"LARGEST_OBJECT",
			Parameters{LargestObject: &Location{}},
			[]MessageType{TypeSubscribeOK, TypePublish, TypeRequestOK, TypePublishStateNotify},
		},
		{"FILL_TIMEOUT", Parameters{FillTimeout: new(uint64(1))}, []MessageType{TypeFetch, typeFill}},
		{
			"FORWARD",
			Parameters{Forward: new(true)},
			[]MessageType{TypeSubscribe, TypeRequestUpdate, TypePublish, TypeSubscribeTracks, TypePublishStateNotify},
		},
		{
			"SUBSCRIBER_PRIORITY",
			Parameters{SubscriberPriority: new(uint8(1))},
			[]MessageType{TypeSubscribe, TypePublish, TypeFetch, TypeRequestUpdate, TypeSubscribeTracks, typeFill},
		},
		{
			"LOCATION_FILTER",
			Parameters{Filter: &Filter{Type: FilterNextGroup}},
			[]MessageType{
				TypeFetch, TypeSubscribe, TypePublish, TypeRequestUpdate, TypePublishStateNotify,
				TypeSubscribeTracks, typeFill,
			},
		},
		{
			"GROUP_ORDER",
			Parameters{GroupOrder: new(Ascending)},
			[]MessageType{TypeSubscribe, TypePublish, TypeSubscribeTracks, TypeFetch, typeFill},
		},
		{
			"FILL_PARAMETERS",
			Parameters{Fill: &Parameters{}},
			[]MessageType{TypeSubscribe, TypeRequestUpdate, TypeSubscribeTracks},
		},
		{
			"NEW_GROUP_REQUEST",
			Parameters{NewGroupRequest: new(uint64(0))},
			[]MessageType{TypeSubscribe, TypeRequestUpdate, TypeSubscribeTracks},
		},
		{
			"INCLUDE_PROPERTIES",
			Parameters{IncludeProperties: new(true)},
			[]MessageType{TypeSubscribe, TypeTrackStatus, TypeFetch, TypeSubscribeTracks},
		},
		{
			"AUTHORIZATION_TOKEN",
			Parameters{AuthorizationTokens: []Token{{AliasType: TokenUseValue}}},
			[]MessageType{
				TypePublish, TypeSubscribe, TypeRequestUpdate, TypeSubscribeNamespace, TypeSubscribeTracks,
				TypePublishNamespace, TypeTrackStatus, TypeFetch,
			},
		},
	} {
		for typ, carrier := range carriers20 {
			for _, v := range []Version{Draft20, Draft22} {
				_, err := v.AppendMessage(nil, carrier(tt.params))
				if allowed := slices.Contains(tt.scope, typ); allowed != (err == nil) {
					t.Errorf("%v: %s in %s: %v", v, tt.name, typ, err)
				}
			}
		}
	}
}

// TestOnlySince20 checks that earlier drafts do not know what draft-20 added, and that draft-20
// does not know what it removed.
func TestOnlySince20(t *testing.T) {
	for _, v := range []Version{Draft18, Draft19} {
		for _, m := range []Message{
			&PublishStateNotify{},
			&Subscribe{Parameters: Parameters{Fill: &Parameters{}}},
			&Fetch{FetchType: FetchRelativeJoining, Parameters: Parameters{IncludeProperties: new(true)}},
			&Fetch{FetchType: FetchRelativeJoining, Parameters: Parameters{Filter: &Filter{Type: FilterNextGroup}}},
		} {
			if b, err := v.AppendMessage(nil, m); err == nil {
				t.Errorf("%v sends %+v as %x", v, m, b)
			}
		}
		_, err := v.ReadMessage(bytes.NewReader([]byte{byte(TypePublishStateNotify), 0, 1, 0}))
		wantError(t, err, ProtocolViolation, "unknown message type 0x22")
	}
	for _, v := range []Version{Draft20, Draft22} {
		if b, err := v.AppendMessage(nil, &Fetch{FetchType: FetchRelativeJoining}); err == nil {
			t.Errorf("%v sends a joining FETCH as %x", v, b)
		}
		_, err := v.ParseMessage(TypeTrackStatus, []byte{0, 0, 0, 1, 0x35, 2})
		wantError(t, err, ProtocolViolation, "invalid properties parameter 2")
	}
}

// TestPublishOK20 checks that PUBLISH_OK has no parameter but EXPIRES (draft-22 §9.3).
func TestPublishOK20(t *testing.T) {
	if err := Draft22.CheckResponse(TypePublish, &RequestOK{Parameters: Parameters{Expires: new(uint64(1))}}); err != nil {
		t.Error(err)
	}
	err := Draft22.CheckResponse(TypePublish, &RequestOK{Parameters: Parameters{LargestObject: &Location{}}})
	wantError(t, err, ProtocolViolation, "parameter 0x9 is not allowed in the response to PUBLISH")
}

// TestTimedOutRange checks the range of draft-20 for objects that were not available in time, which
// earlier drafts report as unknown.
func TestTimedOutRange(t *testing.T) {
	o := FetchObject{Range: RangeTimedOut, Group: 300, Object: 5}
	for v, want := range map[Version]RangeKind{
		Draft18: RangeUnknown, Draft19: RangeUnknown, Draft20: RangeTimedOut, Draft22: RangeTimedOut,
	} {
		b, err := v.NewFetchEncoder(Ascending).Append(nil, o)
		if err != nil {
			t.Fatal(err)
		}
		got, err := v.NewFetchDecoder(Ascending).Decode(bytes.NewReader(b))
		if err != nil || got.Range != want || got.Group != 300 || got.Object != 5 {
			t.Errorf("%v: %+v, %v", v, got, err)
		}
	}
	_, err := Draft19.NewFetchDecoder(Ascending).Decode(bytes.NewReader(unhex(t, "820c 812c 05")))
	wantError(t, err, ProtocolViolation, "invalid fetch serialization flags 0x20c")
}

func hasRangeFilters(m Message) bool {
	field := reflect.Indirect(reflect.ValueOf(m)).FieldByName("Parameters")
	if !field.IsValid() {
		return false
	}
	p := field.Interface().(Parameters)
	return p.RangeFilters || p.Fill != nil && p.Fill.RangeFilters
}

// FuzzMessageVersions reads messages as every draft.
func FuzzMessageVersions(f *testing.F) {
	for _, tt := range messages20 {
		for _, v := range []Version{Draft20, Draft22} {
			b, err := v.AppendMessage(nil, tt.msg)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(uint8(v), uint64(tt.msg.Type()), b[3:])
		}
	}
	f.Fuzz(func(t *testing.T, version uint8, typ uint64, payload []byte) {
		v := Version(version % uint8(len(alpns)))
		m, err := v.ParseMessage(MessageType(typ), payload)
		if err != nil {
			if e := new(Error); !errors.As(err, &e) {
				t.Fatalf("error %v is not an *Error", err)
			}
			return
		}
		if len(payload) > MaxMessageLength || hasRangeFilters(m) { // which are not sent
			return
		}
		b, err := v.AppendMessage(nil, m)
		if err != nil {
			t.Fatalf("AppendMessage(%+v): %v", m, err)
		}
		again, err := v.ReadMessage(bytes.NewReader(b))
		if err != nil || !reflect.DeepEqual(again, m) {
			t.Fatalf("ReadMessage(AppendMessage(%+v)) = %+v, %v", m, again, err)
		}
	})
}
