package congestion

import "time"

// packetState is the state of a sent packet.
type packetState uint8

const (
	packetUntracked packetState = iota // not sent, ACK only, or no longer tracked
	packetOutstanding
	packetLost
)

// packet is P of draft-ietf-ccwg-bbr §4.1.2.1.2.
type packet struct {
	sent        time.Duration
	firstSent   time.Duration
	deliveredAt time.Duration
	delivered   int64
	lost        int64
	inFlight    int64
	size        int32
	state       packetState
	appLimited  bool
}

// history is a ring, by packet number, of the packets that may still be acknowledged or declared
// lost.
type history struct {
	ring []packet // length is a power of two
	base int64    // lowest number in the ring
	next int64    // highest number + 1
}

// minHistory suffices for an idle connection; the ring grows with the packets in flight.
const minHistory = 16

// add adds an entry for number, which must exceed all earlier ones.
func (h *history) add(number int64) *packet {
	if h.ring == nil {
		h.ring, h.base, h.next = make([]packet, minHistory), number, number
	}
	if h.base == h.next {
		h.base, h.next = number, number
	}
	for number-h.base >= int64(len(h.ring)) {
		grown := make([]packet, 2*len(h.ring))
		for n := h.base; n < h.next; n++ {
			grown[n&int64(len(grown)-1)] = h.ring[n&int64(len(h.ring)-1)]
		}
		h.ring = grown
	}
	for ; h.next < number; h.next++ { // skipped numbers
		h.ring[h.next&int64(len(h.ring)-1)] = packet{}
	}
	h.next = number + 1
	p := &h.ring[number&int64(len(h.ring)-1)]
	*p = packet{}
	return p
}

// get returns the packet with that number, or nil if it is not in the ring.
func (h *history) get(number int64) *packet {
	if number < h.base || number >= h.next {
		return nil
	}
	p := &h.ring[number&int64(len(h.ring)-1)]
	if p.state == packetUntracked {
		return nil
	}
	return p
}

// deliveredBetween reports whether a packet numbered between first and last, both excluded, was
// acknowledged. Packets no longer tracked count as acknowledged: had one been lost, it would have
// taken the place of first.
func (h *history) deliveredBetween(first, last int64) bool {
	if first+1 < last && first+1 < h.base {
		return true
	}
	for n := first + 1; n < last; n++ {
		if p := &h.ring[n&int64(len(h.ring)-1)]; p.state == packetUntracked && p.size > 0 {
			return true
		}
	}
	return false
}

// dropBelow drops the numbers below oldest and the untracked numbers that follow.
func (h *history) dropBelow(oldest int64) {
	h.base = max(h.base, min(oldest, h.next))
	for h.base < h.next && h.ring[h.base&int64(len(h.ring)-1)].state != packetOutstanding {
		h.base++
	}
}

// sampler computes delivery-rate samples from sent and acknowledged packets (draft-ietf-ccwg-bbr
// §4.1.2).
type sampler struct {
	c           *State
	hist        history
	deliveredAt time.Duration // C.delivered_time
	firstSent   time.Duration // C.first_send_time

	rs          Sample
	hasData     bool
	sendElapsed time.Duration
	ackElapsed  time.Duration
	newestSent  time.Duration
}

// sent records an ack-eliciting packet; c.InFlight includes it (§4.1.2.2).
func (s *sampler) sent(now time.Duration, number, size int64) {
	if s.c.InFlight <= size {
		s.firstSent, s.deliveredAt = now, now
	}
	p := s.hist.add(number)
	// Assign the fields one by one: a literal is built on the stack and then copied, which is
	// slower.
	p.sent, p.firstSent, p.deliveredAt = now, s.firstSent, s.deliveredAt
	p.delivered, p.lost, p.inFlight = s.c.Delivered, s.c.Lost, s.c.InFlight
	p.size, p.state, p.appLimited = int32(size), packetOutstanding, s.c.AppLimited()
}

// begin starts the sample of an ACK: InitRateSample (§4.1.2.3).
func (s *sampler) begin() {
	s.rs = Sample{RTT: -1, PriorInFlight: s.c.InFlight}
	s.hasData = false
}

// acked implements UpdateRateSample (§4.1.2.3). QUIC packet numbers follow send order, so the
// newest packet has the highest number.
func (s *sampler) acked(now time.Duration, number int64) {
	p := s.hist.get(number)
	if p == nil || p.state != packetOutstanding {
		return
	}
	s.c.Delivered += int64(p.size)
	s.rs.NewlyAcked += int64(p.size)
	s.deliveredAt = now
	if !s.hasData || number > s.rs.NewestSent {
		s.hasData = true
		s.rs.NewestSent = number
		s.rs.PriorDelivered = p.delivered
		s.rs.AppLimited = p.appLimited
		s.rs.TxInFlight = p.inFlight
		s.rs.Lost = -p.lost // completed in finish
		s.sendElapsed = p.sent - p.firstSent
		s.ackElapsed = now - p.deliveredAt
		s.newestSent = p.sent
		s.firstSent = p.sent
	}
	p.state = packetUntracked
}

// finish completes the sample: GenerateRateSample of §4.1.2.3.
func (s *sampler) finish(now time.Duration) {
	if s.c.appLimited != 0 && s.c.Delivered > s.c.appLimited {
		s.c.appLimited = 0
	}
	if !s.hasData {
		return
	}
	s.rs.Lost += s.c.Lost
	s.rs.RTT = max(now-s.newestSent, 0)
	s.rs.Delivered = s.c.Delivered - s.rs.PriorDelivered
	s.rs.Interval = max(s.sendElapsed, s.ackElapsed)
	if s.rs.Interval > 0 && s.rs.Interval >= s.c.MinRTT {
		s.rs.Rate = float64(s.rs.Delivered) / s.rs.Interval.Seconds()
	}
}
