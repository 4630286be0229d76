package moqt

// priority orders the streams of a session: lower urgency first, then lower order (§7).
type priority struct {
	urgency int8 // RFC 9218
	order   uint64
}

// Urgencies of a session's streams (RFC 9218).
const (
	urgencyControl = 0
	urgencyFirst   = 1 // subscriber priority above the default
	urgencyLast    = 7 // subscriber priority below the default
)

// controlPriority is the priority of control and request streams.
var controlPriority = priority{urgency: urgencyControl}

// maxSlot bounds the order among streams of equal priorities.
const maxSlot = 1<<48 - 1

// objectPriority returns the priority of an object stream: subscriber priority first, then
// publisher priority (lower first), then slot. The patched quic-go sends in exactly that order. The
// published quic-go supports only eight urgencies: control streams get 0, subscriber priorities
// below the default value 128 get 1, the default gets 2 to 6 by publisher priority, and higher
// values get 7. Streams of one urgency are sent in the order they were opened.
func objectPriority(subscriber, publisher uint8, slot uint64) priority {
	return priority{urgency(subscriber, publisher), uint64(subscriber)<<56 | uint64(publisher)<<48 | min(slot, maxSlot)}
}

func urgency(subscriber, publisher uint8) int8 {
	switch {
	case subscriber < 128:
		return urgencyFirst
	case subscriber > 128:
		return urgencyLast
	case publisher < 64:
		return 2
	case publisher < 112:
		return 3
	case publisher <= 144:
		return 4
	case publisher < 192:
		return 5
	}
	return 6
}
