package congestion

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// This file simulates a path in virtual time. Senders with any controller share one bottleneck with
// a drop-tail queue, random or burst loss, CE marking, and varying delay. Packets stay in order.
// The simulation is deterministic for a seed.

const simPacket = 1400 // bytes

type simEvent struct {
	at  time.Duration
	seq int
	do  func()
}

// simHeap is a binary heap. container/heap allocates for each event.
type simHeap []simEvent

func (h simHeap) less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].seq < h[j].seq
}

func (h *simHeap) push(e simEvent) {
	*h = append(*h, e)
	s := *h
	for i := len(s) - 1; i > 0 && s.less(i, (i-1)/2); i = (i - 1) / 2 {
		s[i], s[(i-1)/2] = s[(i-1)/2], s[i]
	}
}

func (h *simHeap) pop() simEvent {
	s := *h
	e, n := s[0], len(s)-1
	s[0], s[n] = s[n], simEvent{}
	s = s[:n]
	for i := 0; ; {
		child := 2*i + 1
		if child+1 < n && s.less(child+1, child) {
			child++
		}
		if child >= n || !s.less(child, i) {
			break
		}
		s[i], s[child] = s[child], s[i]
		i = child
	}
	*h = s
	return e
}

type sim struct {
	now    time.Duration
	events simHeap
	seq    int
	rand   *rand.Rand
	path   simPath

	busyUntil   time.Duration
	lastArrival time.Duration
	extraDelay  time.Duration
	extraUntil  time.Duration
	backDelay   time.Duration
	backUntil   time.Duration
	backArrival time.Duration
	burstLeft   int
	queueDelays []time.Duration
	drops       int
}

type simPath struct {
	rate       float64                          // bytes/s
	rateAt     func(time.Duration) float64      // instead of rate
	delay      time.Duration                    // each way
	vary       time.Duration                    // maximum random extra delay each way, redrawn every 50 to 200 ms
	queue      int                              // bytes
	loss       float64                          // fraction of packets
	burstLoss  float64                          // fraction of packets, in bursts of 20
	markAbove  time.Duration                    // CE-mark packets that queue longer; 0 = never
	aggregate  time.Duration                    // ACKs are sent at multiples of this; 0 = immediately
	lossWindow func(at time.Duration) (on bool) // reports whether all packets are lost
}

func newSim(path simPath, seed uint64) *sim {
	return &sim{path: path, rand: rand.New(rand.NewPCG(seed, 1))}
}

func (s *sim) after(d time.Duration, do func()) { s.at(s.now+d, do) }

func (s *sim) at(t time.Duration, do func()) {
	s.seq++
	s.events.push(simEvent{max(t, s.now), s.seq, do})
}

func (s *sim) run(until time.Duration) {
	for len(s.events) > 0 && s.events[0].at <= until {
		e := s.events.pop()
		s.now = e.at
		e.do()
	}
	s.now = until
}

// transmit sends a packet of size bytes through the bottleneck.
func (s *sim) transmit(size int, deliver func(ce bool)) {
	rate := s.path.rate
	if s.path.rateAt != nil {
		rate = s.path.rateAt(s.now)
	}
	wait := max(s.busyUntil-s.now, 0)
	if wait.Seconds()*rate+float64(size) > float64(s.path.queue) {
		s.drops++
		return
	}
	s.busyUntil = s.now + wait + time.Duration(float64(size)/rate*1e9)
	s.queueDelays = append(s.queueDelays, wait)
	switch {
	case s.burstLeft > 0:
		s.burstLeft--
		return
	case s.path.burstLoss > 0 && s.rand.Float64() < s.path.burstLoss/20:
		s.burstLeft = 19
		return
	case s.rand.Float64() < s.path.loss:
		return
	case s.path.lossWindow != nil && s.path.lossWindow(s.now):
		return
	}
	if s.path.vary > 0 && s.now >= s.extraUntil {
		s.extraDelay = time.Duration(s.rand.Float64() * float64(s.path.vary))
		s.extraUntil = s.now + 50*time.Millisecond + time.Duration(s.rand.Float64()*150)*time.Millisecond
	}
	// After a drop in delay, packets catch up at 1.5 times the rate, in order.
	apart := time.Duration(float64(size) / rate / 1.5 * 1e9)
	s.lastArrival = max(s.busyUntil+s.path.delay+s.extraDelay, s.lastArrival+apart)
	ce := s.path.markAbove > 0 && wait > s.path.markAbove
	s.at(s.lastArrival, func() { deliver(ce) })
}

type simSent struct {
	at    time.Duration
	frame int
	state byte // 0 in flight, 1 acknowledged, 2 lost
}

type simFrame struct {
	captured time.Duration
	left     int // packets not yet received
	done     time.Duration
}

// simSender is a QUIC sender and its receiver.
type simSender struct {
	*sim
	flow     *Flow
	sent     []simSent
	inFlight int64
	oldest   int
	largest  int // acknowledged
	pacing   bool
	ptoSeq   int
	lossSeq  int
	slack    time.Duration // maximum lateness of a pacing timer

	bulk   bool
	queue  []int // frame number of each packet to send
	frames []simFrame

	// the receiver
	pending      []int
	pendingCE    int64
	ackSeq       int
	highest      int
	received     int64
	receivedMark int64
}

func (s *sim) newSender(t testing.TB, name string) *simSender {
	t.Helper()
	f, err := newFlow(name, simPacket, rand.New(rand.NewPCG(s.rand.Uint64(), 2)))
	if err != nil {
		t.Fatal(err)
	}
	return &simSender{sim: s, flow: f, largest: -1, highest: -1, slack: time.Millisecond}
}

// startBulk starts an endless transfer at the given time.
func (s *simSender) startBulk(at time.Duration) {
	s.at(at, func() { s.bulk = true; s.send() })
}

// startFrames captures a frame of size bytes every interval, starting at the given time.
func (s *simSender) startFrames(at, interval time.Duration, size int) {
	var capture func()
	capture = func() {
		n := (size + simPacket - 1) / simPacket
		s.frames = append(s.frames, simFrame{captured: s.now, left: n})
		for range n {
			s.queue = append(s.queue, len(s.frames)-1)
		}
		s.after(interval, capture)
		s.send()
	}
	s.at(at, capture)
}

func (s *simSender) hasData() bool { return s.bulk || len(s.queue) > 0 }

func (s *simSender) send() {
	for {
		if !s.flow.CanSend(s.inFlight) {
			return
		}
		if !s.flow.HasBudget(s.now) {
			if !s.pacing {
				s.pacing = true
				late := time.Duration(s.rand.Float64() * float64(s.slack))
				s.at(s.flow.NextSend()+late, func() { s.pacing = false; s.send() })
			}
			return
		}
		if !s.hasData() {
			s.flow.AppLimited(s.now)
			return
		}
		s.sendPacket()
	}
}

func (s *simSender) sendPacket() {
	frame := -1
	if len(s.queue) > 0 {
		frame, s.queue = s.queue[0], s.queue[1:]
	}
	n := len(s.sent)
	s.sent = append(s.sent, simSent{at: s.now, frame: frame})
	s.inFlight += simPacket
	s.flow.Sent(s.now, int64(n), simPacket, s.inFlight)
	s.transmit(simPacket, func(ce bool) { s.receive(n, ce) })
	s.armPTO()
}

func (s *simSender) rtt() time.Duration {
	if e := s.flow.Estimates(); e.SmoothedRTT > 0 {
		return max(e.SmoothedRTT, s.flow.c.LatestRTT)
	}
	return 100 * time.Millisecond
}

func (s *simSender) armPTO() {
	s.ptoSeq++
	seq := s.ptoSeq
	s.after(s.rtt()+max(4*s.flow.c.RTTVar, time.Millisecond)+25*time.Millisecond, func() {
		if seq == s.ptoSeq && s.inFlight > 0 {
			s.sendPacket()
		}
	})
}

func (s *simSender) receive(n int, ce bool) {
	s.received += simPacket
	if f := s.sent[n].frame; f >= 0 && s.sent[n].state != 2 {
		s.frames[f].left--
		if s.frames[f].left == 0 {
			s.frames[f].done = s.now
		}
	}
	gap := n != s.highest+1
	s.highest = max(s.highest, n)
	s.pending = append(s.pending, n)
	if ce {
		s.pendingCE++
	}
	if len(s.pending) >= 2 || gap || ce {
		s.acknowledge()
		return
	}
	seq := s.ackSeq
	s.after(25*time.Millisecond, func() {
		if seq == s.ackSeq {
			s.acknowledge()
		}
	})
}

func (s *simSender) acknowledge() {
	s.ackSeq++
	numbers, ce := s.pending, s.pendingCE
	s.pending, s.pendingCE = nil, 0
	if s.path.vary > 0 && s.now >= s.backUntil {
		s.backDelay = time.Duration(s.rand.Float64() * float64(s.path.vary))
		s.backUntil = s.now + 50*time.Millisecond + time.Duration(s.rand.Float64()*150)*time.Millisecond
	}
	s.backArrival = max(s.now+s.path.delay+s.backDelay, s.backArrival)
	at := s.backArrival
	if a := s.path.aggregate; a > 0 {
		at += a - at%a
	}
	s.at(at, func() { s.onAck(numbers, ce) })
}

func (s *simSender) onAck(numbers []int, ce int64) {
	slices.Sort(numbers)
	for _, n := range numbers {
		s.largest = max(s.largest, n)
		switch s.sent[n].state {
		case 0:
			s.sent[n].state = 1
			s.inFlight -= simPacket
			s.flow.Acked(int64(n))
		case 2:
			s.flow.SpuriousLoss(int64(n))
		}
	}
	s.flow.CongestionExperienced(ce)
	s.detectLosses()
	s.finish()
	s.armPTO()
	s.send()
}

func (s *simSender) finish() {
	for s.oldest < len(s.sent) && s.sent[s.oldest].state != 0 {
		s.oldest++
	}
	s.flow.Done(s.now, s.inFlight, int64(s.oldest))
}

func (s *simSender) detectLosses() {
	delay := max(s.rtt()*9/8, time.Millisecond)
	next := time.Duration(0)
	for n := s.oldest; n < s.largest; n++ {
		p := &s.sent[n]
		if p.state != 0 {
			continue
		}
		if n > s.largest-3 && s.now-p.at < delay {
			if next == 0 {
				next = p.at + delay
			}
			continue
		}
		p.state = 2
		s.inFlight -= simPacket
		s.flow.Lost(int64(n))
		if p.frame >= 0 {
			s.queue = slices.Insert(s.queue, 0, p.frame)
		}
	}
	if next > 0 {
		s.lossSeq++
		seq := s.lossSeq
		s.at(next, func() {
			if seq == s.lossSeq {
				s.detectLosses()
				s.finish()
				s.send()
			}
		})
	}
}

// mark starts a measurement; mbps ends it.
func (s *simSender) mark() { s.receivedMark = s.received }

func (s *simSender) mbps(over time.Duration) float64 {
	return float64(s.received-s.receivedMark) * 8 / over.Seconds() / 1e6
}

func percentile(d []time.Duration, p float64) time.Duration {
	if len(d) == 0 {
		return 0
	}
	d = slices.Clone(d)
	slices.Sort(d)
	return d[min(int(p*float64(len(d))), len(d)-1)]
}

// frameDelays returns the delays of the frames captured between from and to. For an incomplete
// frame, the delay is the time since its capture.
func (s *simSender) frameDelays(from, to time.Duration) []time.Duration {
	var d []time.Duration
	for _, f := range s.frames {
		if f.captured < from || f.captured >= to {
			continue
		}
		done := f.done
		if done == 0 {
			done = s.now
		}
		d = append(d, done-f.captured)
	}
	return d
}

// jain returns Jain's fairness index: 1 for equal shares, 1/n if one flow gets everything.
func jain(rates ...float64) float64 {
	var sum, squares float64
	for _, r := range rates {
		sum += r
		squares += r * r
	}
	return sum * sum / (float64(len(rates)) * squares)
}
