package wire

import "slices"

// Version is a draft of the protocol, draft-ietf-moq-transport-18 or a later one. What its
// messages are, and which parameters belong where, is decided by it; everything else of this
// package is common to all. The zero value is Draft18.
type Version uint8

// The drafts that are spoken.
const (
	Draft18 Version = iota
	Draft19
)

// Versions returns those that are spoken, the preferred one first.
func Versions() []Version { return []Version{Draft18, Draft19} }

var alpns = map[Version]string{Draft18: ALPN, Draft19: "moqt-19"}

// ALPN is the version's protocol identifier (§3.1).
func (v Version) ALPN() string { return alpns[v] }

func (v Version) String() string { return v.ALPN() }

// VersionOf returns the version with a protocol identifier, false where there is none.
func VersionOf(alpn string) (Version, bool) {
	for v, a := range alpns {
		if a == alpn {
			return v, true
		}
	}
	return 0, false
}

// ALPNs are the identifiers of versions, in their order.
func ALPNs(versions []Version) []string {
	var list []string
	for _, v := range versions {
		list = append(list, v.ALPN())
	}
	return list
}

// scope19 is what draft-19 changes in paramScope: GROUP_ORDER moved from PUBLISH_OK to
// SUBSCRIBE_TRACKS and the PUBLISHes that it brings; whatever SUBSCRIBE may have,
// SUBSCRIBE_TRACKS may (§10.19.1); and there are range filters (§5.1.3).
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

// scope lists the messages that a parameter may appear in.
func (v Version) scope(param uint64) (messages []MessageType, known bool) {
	if v >= Draft19 {
		if m, ok := scope19[param]; ok {
			return m, true
		}
	}
	m, ok := paramScope[param]
	return m, ok
}

func (v Version) allows(param uint64, m MessageType) (known, allowed bool) {
	scope, known := v.scope(param)
	return known, slices.Contains(scope, m)
}

// repeats reports whether a parameter may come more than once in a message.
func (v Version) repeats(param uint64) bool {
	return param == paramAuthorizationToken || v >= Draft19 && param >= paramSubgroupFilter && param <= paramTrackPropertyFilter
}

// knows reports whether a message type exists.
func (v Version) knows(t MessageType) bool {
	_, known := messageTypeNames[t]
	return known && (v < Draft19 || t != typePublishOK)
}
