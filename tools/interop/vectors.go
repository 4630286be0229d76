package main

import (
	"fmt"
	"io"
	"strings"

	"holocast/internal/moqt/wire"
)

// writeVectors writes every control message of drafts 18, 20 and 22 for holocast-moqtap: a line has
// the draft, the message's name and its bytes in hex. Values above one byte show how filters differ.
func writeVectors(out io.Writer) error {
	for _, v := range []wire.Version{wire.Draft18, wire.Draft20, wire.Draft22} {
		for _, m := range vectors(v) {
			b, err := v.AppendMessage(nil, m)
			if err != nil {
				return err
			}
			draft := strings.TrimPrefix(v.String(), "moqt-")
			if _, err := fmt.Fprintf(out, "%s %s %x\n", draft, m.Type(), b); err != nil {
				return err
			}
		}
	}
	return nil
}

func vectors(v wire.Version) []wire.Message {
	const id, large = 300, 1 << 40
	track := wire.TrackName{Namespace: wire.Namespace{"holocast", "bühne"}, Name: "points/0/full"}
	props := wire.Properties(wire.AppendKeyValues(nil, wire.KeyValue{Type: wire.PropertyPublisherPriority, Int: 7}))
	at := wire.Location{Group: large, Object: id}
	token := wire.Token{AliasType: wire.TokenUseValue, Type: 1, Value: []byte("a.b.c")}
	delivery := wire.Parameters{
		ObjectDeliveryTimeout: new(uint64(400)), SubgroupDeliveryTimeout: new(uint64(500)),
		SubscriberPriority: new(uint8(200)), AuthorizationTokens: []wire.Token{token}, Forward: new(true),
	}
	with := func(change func(*wire.Parameters)) wire.Parameters {
		p := delivery
		change(&p)
		return p
	}
	filters := []wire.Filter{
		{Type: wire.FilterNextGroup},
		{Type: wire.FilterLargestObject},
		{Type: wire.FilterAbsoluteStart, Start: at},
		{Type: wire.FilterAbsoluteRange, Start: at, EndGroup: large + id},
	}
	updated := wire.Parameters{LargestObject: &at}
	var list []wire.Message
	fetch := wire.Fetch{RequestID: id, FetchType: wire.FetchStandalone, Track: track}
	if v < wire.Draft20 {
		end := wire.Location{Group: large + 1, Object: 7}
		list = append(
			list,
			&wire.Fetch{RequestID: id, FetchType: wire.FetchStandalone, Track: track, Start: at, End: end},
			&wire.Fetch{RequestID: id, FetchType: wire.FetchRelativeJoining, JoiningRequestID: 298, JoiningStart: id},
			&wire.Fetch{RequestID: id, FetchType: wire.FetchAbsoluteJoining, JoiningRequestID: 298, JoiningStart: large},
		)
	} else {
		filters = append(
			filters,
			wire.Filter{Type: wire.FilterRecentGroups, Groups: 1},
			wire.Filter{Type: wire.FilterRecentGroups, Groups: id},
			wire.Filter{Type: wire.FilterObjectRange, Start: at, EndGroup: large + 1, EndObject: id},
			wire.Filter{},
		)
		for _, f := range filters {
			m := fetch
			m.Parameters = wire.Parameters{
				FillTimeout: new(uint64(2000)), SubscriberPriority: new(uint8(9)), Filter: &f,
				GroupOrder: new(wire.Descending), IncludeProperties: new(false),
			}
			list = append(list, &m)
			list = append(list, &wire.RequestUpdate{RequestID: id, Parameters: wire.Parameters{Fill: &wire.Parameters{
				FillTimeout: new(uint64(2000)), SubscriberPriority: new(uint8(9)), Filter: &f,
				GroupOrder: new(wire.Ascending),
			}}})
		}
		list = append(
			list, &fetch,
			&wire.TrackStatus{RequestID: id, Track: track, Parameters: wire.Parameters{IncludeProperties: new(true)}},
			&wire.PublishStateNotify{Parameters: wire.Parameters{
				LargestObject: &at, Forward: new(false), Filter: &filters[2],
			}},
			&wire.Publish{RequestID: id, Track: track, TrackAlias: large, Parameters: with(func(p *wire.Parameters) {
				p.LargestObject, p.Filter, p.GroupOrder = &at, &filters[2], new(wire.Descending)
			}), Properties: props},
		)
	}
	for _, f := range filters {
		list = append(
			list,
			&wire.Subscribe{RequestID: id, Track: track, Parameters: with(func(p *wire.Parameters) {
				p.RendezvousTimeout, p.GroupOrder, p.Filter = new(uint64(10_000)), new(wire.Descending), &f
				if v >= wire.Draft20 {
					p.Fill = &wire.Parameters{Filter: &wire.Filter{Type: wire.FilterRecentGroups, Groups: 1}}
				}
			})},
			&wire.RequestUpdate{RequestID: id, Parameters: with(func(p *wire.Parameters) {
				p.Filter, p.NewGroupRequest = &f, new(uint64(large))
			})},
		)
	}
	goaway := &wire.Goaway{NewSessionURI: "https://other.example:4443/", Timeout: 5000}
	if v < wire.Draft19 {
		goaway.RequestID = new(uint64(id))
	}
	return append(
		list, goaway,
		&wire.SubscribeOK{
			TrackAlias: large, Parameters: wire.Parameters{LargestObject: &at, Expires: new(uint64(id))}, Properties: props,
		},
		&wire.FetchOK{EndOfTrack: true, End: at, Properties: props},
		&wire.RequestOK{Parameters: updated},
		&wire.RequestOK{Parameters: updated, Properties: props},
		&wire.RequestError{Code: wire.RequestDoesNotExist, RetryInterval: 1001, Reason: "nobody publishes it"},
		&wire.RequestError{
			Code: wire.RequestRedirect, Reason: "there",
			Redirect: &wire.Redirect{ConnectURI: "https://x/", Track: track},
		},
		&wire.Publish{RequestID: id, Track: track, TrackAlias: large, Parameters: updated, Properties: props},
		&wire.PublishDone{Code: wire.DoneTooFarBehind, StreamCount: large, Reason: "slow"},
		&wire.PublishBlocked{NamespaceSuffix: wire.Namespace{"bühne"}, Name: "video"},
		&wire.PublishNamespace{RequestID: id, Namespace: track.Namespace},
		&wire.SubscribeNamespace{RequestID: id, Prefix: wire.Namespace{"holocast"}},
		&wire.SubscribeTracks{
			RequestID: id, Prefix: wire.Namespace{"holocast"}, Parameters: wire.Parameters{Forward: new(false)},
		},
		&wire.NamespaceAdded{Suffix: wire.Namespace{"bühne"}},
		&wire.NamespaceDone{Suffix: wire.Namespace{"bühne"}},
		&wire.TrackStatus{RequestID: id, Track: track},
		&wire.RequestUpdate{RequestID: id, Parameters: wire.Parameters{NamespacePrefix: &wire.Namespace{"a", "b"}}},
	)
}
