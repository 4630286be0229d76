package wire

import (
	"maps"
	"slices"
)

// Version is a draft of the protocol, draft-ietf-moq-transport-18 or later. Messages, the scope of
// parameters and the ranges of fetch streams depend on it; the rest of the package is common to all
// versions. The zero value is
// Draft18.
type Version uint8

// Supported drafts.
const (
	Draft18 Version = iota
	Draft19
	Draft20
	Draft21
	Draft22
)

// Versions returns the supported versions in order of preference.
func Versions() []Version { return []Version{Draft22, Draft21, Draft20, Draft19, Draft18} }

var alpns = map[Version]string{
	Draft18: ALPN, Draft19: "moqt-19", Draft20: "moqt-20", Draft21: "moqt-21", Draft22: "moqt-22",
}

// ALPN returns the version's protocol identifier (§3.1).
func (v Version) ALPN() string { return alpns[v] }

func (v Version) String() string { return v.ALPN() }

// VersionOf returns the version with a protocol identifier, or false if the identifier is unknown.
func VersionOf(alpn string) (Version, bool) {
	for v, a := range alpns {
		if a == alpn {
			return v, true
		}
	}
	return 0, false
}

// ALPNs returns the protocol identifiers of versions, in the same order.
func ALPNs(versions []Version) []string {
	var list []string
	for _, v := range versions {
		list = append(list, v.ALPN())
	}
	return list
}

// scope19 overrides paramScope for draft-19: GROUP_ORDER moved from PUBLISH_OK to SUBSCRIBE_TRACKS
// and the PUBLISHes it triggers, SUBSCRIBE_TRACKS allows all parameters of SUBSCRIBE (§10.19.1),
// and range filters are new (§5.1.3).
var scope19 = map[uint64][]MessageType{
	paramObjectDeliveryTimeout:   append(paramScope[paramObjectDeliveryTimeout], TypeSubscribeTracks),
	paramRendezvousTimeout:       append(paramScope[paramRendezvousTimeout], TypeSubscribeTracks),
	paramSubgroupDeliveryTimeout: append(paramScope[paramSubgroupDeliveryTimeout], TypeSubscribeTracks),
	paramSubscriberPriority:      append(paramScope[paramSubscriberPriority], TypeSubscribeTracks),
	paramFilter:                  append(paramScope[paramFilter], TypeSubscribeTracks),
	paramGroupOrder:              {TypeSubscribe, TypeSubscribeTracks, TypePublish, TypeFetch},
	paramNewGroupRequest:         append(paramScope[paramNewGroupRequest], TypeSubscribeTracks),
	paramSubgroupFilter:          rangeFilterScope,
	paramObjectIDFilter:          rangeFilterScope,
	paramPriorityFilter:          rangeFilterScope,
	paramObjectPropertyFilter:    rangeFilterScope,
	paramTrackPropertyFilter:     {TypeSubscribeTracks, TypeRequestUpdate},
}

var rangeFilterScope = []MessageType{TypeSubscribe, TypeFetch, TypeSubscribeTracks, TypeRequestOK, TypeRequestUpdate}

// Range filter parameters, draft-19 §15.7.
const (
	paramSubgroupFilter       = 0x25
	paramObjectIDFilter       = 0x26
	paramPriorityFilter       = 0x27
	paramObjectPropertyFilter = 0x28
	paramTrackPropertyFilter  = 0x29
)

// scope20 overrides scope19 for draft-20 and later: the parameters of a subscription moved from
// PUBLISH_OK to PUBLISH, and the range of a FETCH became a parameter. SUBSCRIBE_TRACKS still takes
// all parameters of SUBSCRIBE (draft-22 §3.6.2), although its definition lists fewer (§9.18).
var scope20 = map[uint64][]MessageType{
	paramObjectDeliveryTimeout:   {TypeSubscribe, TypePublish, TypeRequestUpdate, TypeSubscribeTracks},
	paramSubgroupDeliveryTimeout: {TypeSubscribe, TypePublish, TypeRequestUpdate, TypeSubscribeTracks},
	paramLargestObject:           {TypeSubscribeOK, TypePublish, TypeRequestOK, TypePublishStateNotify},
	paramFillTimeout:             {TypeFetch, typeFill},
	paramForward: {
		TypeSubscribe, TypeRequestUpdate, TypePublish, TypeSubscribeTracks, TypePublishStateNotify,
	},
	paramSubscriberPriority: {
		TypeSubscribe, TypePublish, TypeFetch, TypeRequestUpdate, TypeSubscribeTracks, typeFill,
	},
	paramFilter: {
		TypeFetch, TypeSubscribe, TypePublish, TypeRequestUpdate, TypePublishStateNotify, TypeSubscribeTracks, typeFill,
	},
	paramGroupOrder:           {TypeSubscribe, TypePublish, TypeSubscribeTracks, TypeFetch, typeFill},
	paramFill:                 {TypeSubscribe, TypeRequestUpdate, TypeSubscribeTracks},
	paramSubgroupFilter:       rangeFilterScope20,
	paramObjectIDFilter:       rangeFilterScope20,
	paramPriorityFilter:       rangeFilterScope20,
	paramObjectPropertyFilter: rangeFilterScope20,
	paramNewGroupRequest:      {TypeSubscribe, TypeRequestUpdate, TypeSubscribeTracks},
	paramIncludeProperties:    {TypeSubscribe, TypeTrackStatus, TypeFetch, TypeSubscribeTracks},
}

var rangeFilterScope20 = []MessageType{TypeFetch, TypeSubscribe, TypeSubscribeTracks, TypeRequestUpdate, typeFill}

// maxParam is above all parameter types.
const maxParam = 0x40

// scopes lists the messages that allow a parameter, by version and parameter; nil if it is unknown.
var scopes = func() (table [Draft22 + 1][maxParam][]MessageType) {
	for v := range table {
		scope := maps.Clone(paramScope)
		if Version(v) >= Draft19 {
			maps.Copy(scope, scope19)
		}
		if Version(v) >= Draft20 {
			maps.Copy(scope, scope20)
		}
		for param, messages := range scope {
			table[v][param] = messages
		}
	}
	return table
}()

func (v Version) allows(param uint64, m MessageType) (known, allowed bool) {
	if param >= maxParam {
		return false, false
	}
	scope := scopes[v][param]
	return scope != nil, slices.Contains(scope, m)
}

// repeats reports whether a message may repeat a parameter.
func (v Version) repeats(param uint64) bool {
	return param == paramAuthorizationToken ||
		v >= Draft19 && param >= paramSubgroupFilter && param <= paramTrackPropertyFilter
}

// knows reports whether the version has a message type.
func (v Version) knows(t MessageType) bool {
	switch t {
	case typePublishOK:
		return v < Draft19
	case TypePublishStateNotify:
		return v >= Draft20
	case TypeRequestUpdate, TypeSubscribe, TypeSubscribeOK, TypeRequestError, TypePublishNamespace, TypeRequestOK,
		TypeNamespace, TypePublishDone, TypeTrackStatus, TypeNamespaceDone, TypePublishBlocked, TypeGoaway, TypeFetch,
		TypeFetchOK, TypePublish, TypeSubscribeNamespace, TypeSubscribeTracks, TypeSetup:
		return true
	}
	return false
}
