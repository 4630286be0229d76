package wire

import (
	"slices"
	"testing"
	"time"
)

func TestCheckResponse(t *testing.T) {
	allowed := map[MessageType][]string{ // §10.2
		TypePublish: {
			"OBJECT_DELIVERY_TIMEOUT", "SUBGROUP_DELIVERY_TIMEOUT", "EXPIRES", "FORWARD", "SUBSCRIBER_PRIORITY",
			"SUBSCRIPTION_FILTER", "GROUP_ORDER", "NEW_GROUP_REQUEST",
		},
		TypeRequestUpdate:      {"EXPIRES", "LARGEST_OBJECT"},
		TypeTrackStatus:        {"EXPIRES", "LARGEST_OBJECT"}, // as in SUBSCRIBE_OK, §10.14
		TypePublishNamespace:   nil,
		TypeSubscribeNamespace: nil,
		TypeSubscribeTracks:    nil,
	}
	for request, names := range allowed {
		t.Run(request.String(), func(t *testing.T) {
			if err := CheckResponse(request, &RequestOK{}); err != nil {
				t.Errorf("empty REQUEST_OK: %v", err)
			}
			for _, p := range parameters {
				err := CheckResponse(request, &RequestOK{Parameters: p.params})
				if slices.Contains(names, p.name) {
					if err != nil {
						t.Errorf("%s: %v", p.name, err)
					}
				} else {
					wantError(t, err, ProtocolViolation, "is not allowed in the response to "+request.String())
				}
			}
			err := CheckResponse(request, &RequestOK{Properties: Properties{2, 5}})
			if request != TypeTrackStatus {
				wantError(t, err, ProtocolViolation, "track properties in the response to "+request.String())
			} else if err != nil {
				t.Errorf("properties: %v", err)
			}
		})
	}
	redirect := &RequestError{Code: RequestRedirect, Redirect: &Redirect{Track: TrackName{Namespace{"a"}, "t"}}}
	wantError(t, CheckResponse(TypePublishNamespace, redirect), ProtocolViolation, "has a track name")
	wantError(t, CheckResponse(TypeSubscribeNamespace, redirect), ProtocolViolation, "has a track name")
	for _, request := range []MessageType{TypeSubscribe, TypeFetch, TypeTrackStatus} {
		if err := CheckResponse(request, redirect); err != nil {
			t.Errorf("redirect of %s: %v", request, err)
		}
	}
	if err := CheckResponse(TypePublishNamespace, &RequestError{Code: RequestUninterested}); err != nil {
		t.Error(err)
	}
	if err := CheckResponse(TypeSubscribe, &SubscribeOK{}); err != nil {
		t.Error(err)
	}
}

func TestRetryAfter(t *testing.T) {
	for wait, want := range map[time.Duration]uint64{-time.Second: 1, 0: 1, time.Millisecond: 2, time.Second: 1001} {
		if got := RetryAfter(wait); got != want {
			t.Errorf("RetryAfter(%v) = %d, want %d", wait, got, want)
		}
	}
}
