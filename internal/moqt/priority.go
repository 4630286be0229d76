package moqt

// Urgencies of RFC 9218 that a session's streams are sent with.
const (
	urgencyControl = 0
	urgencyFirst   = 1 // subscriber priority above the default
	urgencyLast    = 7 // subscriber priority below the default
)

// urgency maps the two MOQT priorities of a stream (§7, lower first) to the eight
// levels QUIC offers: control 0; subscriptions that were asked for more urgently
// than by default 1; those at the default 2 to 6 by publisher priority; the rest
// 7. Streams of one level are sent in the order they were opened, which is
// ascending group order.
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
