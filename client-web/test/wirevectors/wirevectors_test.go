// Package wirevectors generates the test vectors of the MOQT libraries of the web viewer and the Unity
// client from internal/moqt/wire. ../unit/wire.test.ts and the library's tests read them.
package wirevectors

import (
	"encoding/hex"
	"encoding/json"
	"flag"
	"os"
	"strings"
	"testing"

	"holocast/internal/moqt/wire"
)

var update = flag.Bool("update", false, "rewrite ../unit/wire.json")

const file = "../unit/wire.json"

// TestVectors compares the vectors with the output of the wire package. After changes to that
// package, run go test -update.
func TestVectors(t *testing.T) {
	got, err := json.MarshalIndent(vectors(t), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	got = append(got, '\n')
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Errorf("%s is out of date: go test ./client-web/test/wirevectors -update", file)
	}
}

func ptr[T any](v T) *T { return &v }

var track = wire.TrackName{Namespace: wire.Namespace{"holocast", "bühne"}, Name: "points/0/full"}

// encoder returns a function that encodes messages of a draft.
func encoder(t *testing.T, v wire.Version) func(wire.Message) string {
	return func(m wire.Message) string {
		b, err := v.AppendMessage(nil, m)
		if err != nil {
			t.Fatalf("%s: %v", m.Type(), err)
		}
		return hex.EncodeToString(b)
	}
}

func vectors(t *testing.T) map[string]any {
	message := encoder(t, wire.Draft18)
	props := wire.Properties(wire.AppendKeyValues(
		nil,
		wire.KeyValue{Type: wire.PropertyPublisherPriority, Int: 7},
		wire.KeyValue{Type: 0x78, Int: 1},
		wire.KeyValue{
			Type:  wire.PropertyImmutable,
			Bytes: wire.AppendKeyValues(nil, wire.KeyValue{Type: 0x101, Bytes: []byte("x")}),
		},
	))
	values := []uint64{
		0, 1, 127, 128, 16383, 16384, 1<<21 - 1, 1 << 21, 1<<28 - 1, 1 << 28, 1 << 35, 1<<42 - 1, 1 << 49,
		1<<53 + 1, 1<<56 - 1, 1 << 56, 1<<64 - 1,
	}
	varints := make([]map[string]string, 0, len(values))
	for _, v := range values {
		varints = append(
			varints, map[string]string{"value": jsonNumber(v), "hex": hex.EncodeToString(wire.AppendVarint(nil, v))},
		)
	}
	return map[string]any{
		"varints": varints,
		// Sent by a viewer.
		"sent": map[string]string{
			"setup": message(&wire.Setup{Implementation: "holocast-web"}),
			"setupWithToken": message(
				&wire.Setup{
					Implementation:      "holocast-web",
					AuthorizationTokens: []wire.Token{{AliasType: wire.TokenUseValue, Value: []byte("a.b.c")}},
				},
			),
			"subscribe": message(&wire.Subscribe{RequestID: 4, Track: track}),
			"subscribeAll": message(
				&wire.Subscribe{
					RequestID: 300,
					Track:     track,
					Parameters: wire.Parameters{
						ObjectDeliveryTimeout:   ptr(uint64(400)),
						RendezvousTimeout:       ptr(uint64(10000)),
						SubgroupDeliveryTimeout: ptr(uint64(500)),
						SubscriberPriority:      ptr(uint8(128)),
						Filter:                  &wire.Filter{Type: wire.FilterLargestObject},
						GroupOrder:              ptr(wire.Descending),
					},
				},
			),
			"joiningFetch": message(
				&wire.Fetch{
					RequestID:        6,
					FetchType:        wire.FetchRelativeJoining,
					JoiningRequestID: 4,
					Parameters:       wire.Parameters{SubscriberPriority: ptr(uint8(16))},
				},
			),
			"subscribeNamespace": message(&wire.SubscribeNamespace{RequestID: 8, Prefix: wire.Namespace{"holocast"}}),
			"startUpdate": message(
				&wire.RequestUpdate{
					RequestID: 12,
					Parameters: wire.Parameters{
						Filter: &wire.Filter{Type: wire.FilterAbsoluteStart, Start: wire.Location{Group: 1763665200123}},
					},
				},
			),
			"groupUpdate": message(
				&wire.RequestUpdate{
					RequestID: 14, Parameters: wire.Parameters{NewGroupRequest: ptr(uint64(1763665200124))},
				},
			),
			"publish":      message(&wire.Publish{RequestID: 10, Track: track, TrackAlias: 3}),
			"requestError": message(&wire.RequestError{Code: wire.RequestNotSupported, Reason: "no"}),
			"requestOk":    message(&wire.RequestOK{}),
			"publishDone":  message(&wire.PublishDone{Code: wire.DoneTrackEnded, Reason: ""}),
			"datagram": datagram(
				t, &wire.Datagram{TrackAlias: 3, Group: 70000, Priority: 128, Payload: []byte("receipt")},
			),
		},
		// Received by a viewer.
		"received": map[string]string{
			"setup": message(&wire.Setup{Implementation: "holocast"}),
			"goaway": message(
				&wire.Goaway{NewSessionURI: "https://other.example:4443/", Timeout: 5000, RequestID: ptr(uint64(12))},
			),
			"subscribeOk": message(
				&wire.SubscribeOK{
					TrackAlias: 1 << 60,
					Parameters: wire.Parameters{
						LargestObject: &wire.Location{Group: 1763665200123, Object: 2},
						Expires:       ptr(uint64(0)),
					},
					Properties: props,
				},
			),
			"fetchOk":   message(&wire.FetchOK{EndOfTrack: true, End: wire.Location{Group: 9, Object: 1}}),
			"requestOk": message(&wire.RequestOK{Parameters: wire.Parameters{Forward: ptr(false)}}),
			"requestError": message(
				&wire.RequestError{Code: wire.RequestDoesNotExist, RetryInterval: 1001, Reason: "nobody publishes it"},
			),
			"redirect": message(
				&wire.RequestError{
					Code:     wire.RequestRedirect,
					Reason:   "there",
					Redirect: &wire.Redirect{ConnectURI: "https://x/", Track: track},
				},
			),
			"publishDone": message(
				&wire.PublishDone{Code: wire.DoneTooFarBehind, StreamCount: wire.StreamCountUnknown, Reason: "slow"},
			),
			"update": message(
				&wire.RequestUpdate{
					RequestID:  1,
					Parameters: wire.Parameters{Forward: ptr(true), SubscriberPriority: ptr(uint8(3))},
				},
			),
			"namespace":     message(&wire.NamespaceAdded{Suffix: wire.Namespace{"bühne"}}),
			"namespaceDone": message(&wire.NamespaceDone{Suffix: wire.Namespace{"bühne"}}),
			"mandatory": message(
				&wire.SubscribeOK{TrackAlias: 1, Properties: wire.AppendKeyValues(nil, wire.KeyValue{Type: 0x4002, Int: 1})},
			),
			"subscribe": message(&wire.Subscribe{RequestID: 1, Track: track}),
		},
		"streams": map[string]string{
			"explicit": subgroup(
				t,
				wire.SubgroupHeader{
					TrackAlias:    5,
					Group:         1 << 40,
					Subgroup:      3,
					Mode:          wire.SubgroupIDExplicit,
					Priority:      9,
					HasProperties: true,
				},
			),
			"firstObject": subgroup(
				t,
				wire.SubgroupHeader{
					TrackAlias:      5,
					Group:           7,
					Mode:            wire.SubgroupIDFirstObject,
					DefaultPriority: true,
					EndOfGroup:      true,
					FirstObject:     true,
				},
			),
			"zero":    subgroup(t, wire.SubgroupHeader{TrackAlias: 5, Group: 8}),
			"fetch":   fetch(t),
			"padding": hex.EncodeToString(append(wire.Padding{}.Append(nil), 0, 0, 0)),
		},
		"datagrams": map[string]string{
			"normal": datagram(
				t,
				&wire.Datagram{
					TrackAlias:      5,
					Group:           9,
					Object:          2,
					DefaultPriority: true,
					Properties:      wire.AppendKeyValues(nil, wire.KeyValue{Type: 0x0e, Int: 7}),
					Payload:         []byte("stamp"),
				},
			),
			"status": datagram(
				t, &wire.Datagram{TrackAlias: 5, Group: 9, Object: 3, Priority: 1, Status: wire.StatusEndOfTrack},
			),
			"padding": "f0132b3e29" + strings.Repeat("00", 15),
		},
		"drafts": map[string]any{"20": since20(t, wire.Draft20), "22": since20(t, wire.Draft22)},
	}
}

// since20 returns messages and a fetch stream that draft-20 or -22 changed.
func since20(t *testing.T, v wire.Version) map[string]any {
	message := encoder(t, v)
	filtered := func(f wire.Filter) wire.Parameters { return wire.Parameters{Filter: &f} }
	fetch := func(f wire.Filter) string {
		p := filtered(f)
		p.SubscriberPriority = ptr(uint8(16))
		return message(&wire.Fetch{RequestID: 6, FetchType: wire.FetchStandalone, Track: track, Parameters: p})
	}
	e := v.NewFetchEncoder(wire.Ascending)
	stream := wire.FetchHeader{RequestID: 6}.Append(nil)
	for _, o := range []wire.FetchObject{
		{Group: 5, Object: 0, Priority: 9, PayloadLength: 1},
		{Range: wire.RangeTimedOut, Group: 7, Object: 300},
		{Group: 8, Object: 0, Priority: 9, PayloadLength: 1},
	} {
		var err error
		if stream, err = e.Append(stream, o); err != nil {
			t.Fatal(err)
		}
		stream = append(stream, make([]byte, o.PayloadLength)...)
	}
	return map[string]any{
		"sent": map[string]string{
			"subscribeAndFill": message(&wire.Subscribe{RequestID: 4, Track: track, Parameters: wire.Parameters{
				Filter: &wire.Filter{Type: wire.FilterLargestObject},
				Fill:   &wire.Parameters{Filter: &wire.Filter{Type: wire.FilterRecentGroups, Groups: 1}},
			}}),
			"subscribeNextGroup": message(&wire.Subscribe{
				RequestID: 4, Track: track, Parameters: filtered(wire.Filter{Type: wire.FilterNextGroup}),
			}),
			"subscribeFromStart": message(&wire.Subscribe{
				RequestID: 4, Track: track, Parameters: filtered(wire.Filter{Type: wire.FilterAbsoluteStart}),
			}),
			"startUpdate": message(&wire.RequestUpdate{
				RequestID: 12, Parameters: filtered(
					wire.Filter{Type: wire.FilterAbsoluteStart, Start: wire.Location{Group: 1763665200123}},
				),
			}),
			"endUpdate": message(&wire.RequestUpdate{
				RequestID: 12, Parameters: filtered(
					wire.Filter{Type: wire.FilterAbsoluteRange, Start: wire.Location{Group: 300}, EndGroup: 600},
				),
			}),
			"fetchGroups": fetch(wire.Filter{
				Type: wire.FilterAbsoluteRange, Start: wire.Location{Group: 300}, EndGroup: 301,
			}),
			"fetchObjects": fetch(wire.Filter{
				Type: wire.FilterObjectRange, Start: wire.Location{Group: 300, Object: 2}, EndGroup: 300, EndObject: 200,
			}),
		},
		"received": map[string]string{
			"state": message(&wire.PublishStateNotify{Parameters: wire.Parameters{
				LargestObject: &wire.Location{Group: 300, Object: 2}, Forward: ptr(false),
				Filter: &wire.Filter{Type: wire.FilterAbsoluteStart, Start: wire.Location{Group: 300}},
			}}),
			"requestOk": message(&wire.RequestOK{Parameters: wire.Parameters{Expires: ptr(uint64(7))}}),
			"update": message(&wire.RequestUpdate{RequestID: 1, Parameters: wire.Parameters{
				Forward: ptr(true),
				Filter:  &wire.Filter{Type: wire.FilterObjectRange, Start: wire.Location{Group: 300}, EndGroup: 301, EndObject: 5},
				Fill:    &wire.Parameters{Filter: &wire.Filter{Type: wire.FilterRecentGroups, Groups: 1}},
			}}),
		},
		"fetch": hex.EncodeToString(stream),
	}
}

func jsonNumber(v uint64) string { b, _ := json.Marshal(v); return string(b) }

// subgroup is a complete stream with objects 2, 3 and 7, whose payloads have 3, 0 and 300
// bytes, and the end of the group.
func subgroup(t *testing.T, h wire.SubgroupHeader) string {
	b := h.Append(nil)
	e := wire.ObjectEncoder{HasProperties: h.HasProperties}
	for _, o := range []struct {
		id     uint64
		length int
		status wire.ObjectStatus
	}{{2, 3, 0}, {3, 0, 0}, {7, 300, 0}, {8, 0, wire.StatusEndOfGroup}} {
		obj := wire.Object{ID: o.id, PayloadLength: uint64(o.length), Status: o.status}
		if h.HasProperties && o.length == 3 {
			obj.Properties = wire.AppendKeyValues(nil, wire.KeyValue{Type: 0x78, Int: 1})
		}
		var err error
		if b, err = e.Append(b, obj); err != nil {
			t.Fatal(err)
		}
		for i := range o.length {
			b = append(b, byte(i))
		}
	}
	return hex.EncodeToString(b)
}

// fetch is a complete stream with two subgroups of group 5, an unknown range, a datagram
// and an object of group 9.
func fetch(t *testing.T) string {
	b := wire.FetchHeader{RequestID: 6}.Append(nil)
	e := wire.NewFetchEncoder(wire.Ascending)
	for _, o := range []wire.FetchObject{
		{Group: 5, Object: 0, Subgroup: 0, Priority: 9, PayloadLength: 4},
		{
			Group: 5, Object: 1, Subgroup: 1, Priority: 10, PayloadLength: 4,
			Properties: wire.AppendKeyValues(nil, wire.KeyValue{Type: 0x78, Int: 0}),
		},
		{Group: 5, Object: 2, Subgroup: 1, Priority: 10, PayloadLength: 0},
		{Range: wire.RangeUnknown, Group: 7, Object: 100},
		{Group: 8, Object: 0, Datagram: true, Priority: 10, PayloadLength: 2},
		{Group: 9, Object: 4, Subgroup: 70, Priority: 1, PayloadLength: 200},
	} {
		var err error
		if b, err = e.Append(b, o); err != nil {
			t.Fatal(err)
		}
		for i := range o.PayloadLength {
			b = append(b, byte(i))
		}
	}
	return hex.EncodeToString(b)
}

func datagram(t *testing.T, d *wire.Datagram) string {
	b, err := d.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(b)
}
