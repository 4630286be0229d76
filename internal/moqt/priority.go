package moqt

// priority is a stream's place in its session: streams of a lower urgency are sent
// first, and within one urgency those of a lower order (§7).
type priority struct {
	urgency int8 // of RFC 9218
	order   uint64
}

// Urgencies of RFC 9218 that a session's streams are sent with.
const (
	urgencyControl = 0
	urgencyFirst   = 1 // subscriber priority above the default
	urgencyLast    = 7 // subscriber priority below the default
)

// controlPriority is that of control and request streams.
var controlPriority = priority{urgency: urgencyControl}

// maxSlot bounds the slots that streams of equal priorities take in turn.
const maxSlot = 1<<48 - 1

// objectPriority is that of a stream of objects: by subscriber priority, then by
// publisher priority, lower first, then by slot. The patched quic-go sends in exactly
// that order. The published one knows the urgency alone, eight levels: control 0;
// subscriptions requested more urgently than by default 1; those at the default 2 to 6
// by publisher priority; the rest 7. It sends streams of one level in the order they
// were opened.
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
