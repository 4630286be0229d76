package congestion

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

func TestNames(t *testing.T) {
	for _, name := range Names() {
		f, err := NewFlow(name, 1200)
		if err != nil {
			t.Fatal(err)
		}
		if e := f.Estimates(); e.Controller != name || e.Window != firstWindow(name)*1200 || e.Bandwidth != 0 ||
			e.PacingRate <= 0 {
			t.Errorf("%s at its start: %+v", name, e)
		}
	}
	if _, err := NewFlow("tahoe", 1200); err == nil {
		t.Error("no error for an unknown controller")
	}
}

// firstWindow is a controller's initial window in packets.
func firstWindow(name string) int64 {
	if name == "ledbat" {
		return ledbatMinPackets
	}
	return 32
}

// TestSampler checks the rate samples of a scripted exchange.
func TestSampler(t *testing.T) {
	c := &State{MaxDatagramSize: 1000}
	s := sampler{c: c}
	const ms = time.Millisecond
	send := func(at time.Duration, n int64) { c.InFlight += 1000; s.sent(at, n, 1000) }
	ack := func(at time.Duration, numbers ...int64) Sample {
		s.begin()
		for _, n := range numbers {
			s.acked(at, n)
			c.InFlight -= 1000
		}
		s.finish(at)
		return s.rs
	}
	for n := range int64(10) {
		send(time.Duration(n)*ms, n)
	}
	// Packets 0 and 1 arrive: 2000 bytes in the 21 ms since the flow was idle.
	rs := ack(21*ms, 0, 1)
	if rs.NewlyAcked != 2000 || rs.Delivered != 2000 || rs.Interval != 21*ms || rs.RTT != 20*ms ||
		rs.TxInFlight != 2000 {
		t.Errorf("first sample: %+v", rs)
	}
	// Packet 2 arrives a millisecond later. It was sent before the first ACK, so it is measured
	// over the whole time.
	rs = ack(22*ms, 2)
	if rs.PriorDelivered != 0 || rs.Delivered != 3000 || rs.Interval != 22*ms {
		t.Errorf("second sample: %+v", rs)
	}
	// A packet sent after an ACK is measured from that ACK.
	send(22*ms, 10)
	for n := int64(3); n < 10; n++ {
		ack(time.Duration(n+20)*ms, n)
	}
	rs = ack(42*ms, 10)
	if rs.PriorDelivered != 3000 || rs.Delivered != 8000 || rs.Interval != 20*ms || rs.Rate != 400_000 {
		t.Errorf("last sample: %+v", rs)
	}
	if again := ack(43*ms, 10); again.NewlyAcked != 0 {
		t.Errorf("a packet acknowledged twice: %+v", again)
	}
	// Application-limited until the data in flight at this point is delivered.
	c.InFlight = 0
	c.MarkAppLimited()
	send(50*ms, 11)
	if rs = ack(70*ms, 11); !rs.AppLimited || c.AppLimited() {
		t.Errorf("application-limited sample: %+v, still limited: %v", rs, c.AppLimited())
	}
}

// TestHistory checks a ring that grows to several times its initial size and has gaps between
// packet numbers.
func TestHistory(t *testing.T) {
	var h history
	for n := int64(5); n < 5000; n += 3 {
		h.add(n).state = packetOutstanding
		h.get(n).size = int32(n)
	}
	for n := int64(0); n < 5010; n++ {
		p := h.get(n)
		if held := n >= 5 && n < 5000 && (n-5)%3 == 0; held != (p != nil) || held && p.size != int32(n) {
			t.Fatalf("packet %d: %+v", n, p)
		}
	}
	h.dropBelow(4000)
	if h.get(3998) != nil || h.get(4001) == nil {
		t.Errorf("dropping below 4000 left 3998 %v, 4001 %v", h.get(3998), h.get(4001))
	}
	h.dropBelow(math.MaxInt64)
	if h.base != h.next {
		t.Errorf("%d to %d are left of an empty history", h.base, h.next)
	}
	h.add(9000).state = packetOutstanding
	if h.get(9000) == nil || h.get(4999) != nil {
		t.Error("a number after an empty history")
	}
}

func TestPacer(t *testing.T) {
	const rate = 50e6 // 400 Mbit/s: 50 kB a millisecond
	p := pacer{rate: rate, smss: 1400}
	p.credit = p.quantum()
	var now, last time.Duration
	var bursts, sent int64
	for now < time.Second {
		for p.hasBudget(now) {
			p.sent(now, 1400)
			sent += 1400
		}
		bursts++
		next := p.nextSend()
		if next <= now {
			t.Fatalf("at %v the next packet is due at %v", now, next)
		}
		if next-now > 1100*time.Microsecond {
			t.Fatalf("a pause of %v", next-now)
		}
		last, now = now, next
	}
	_ = last
	if got := float64(sent); got < 0.99*rate || got > 1.01*rate {
		t.Errorf("%.0f bytes in a second, want %.0f", got, rate)
	}
	if bursts < 950 || bursts > 1100 {
		t.Errorf("%d bursts in a second, want one a millisecond", bursts)
	}
	// The pacer keeps the rate even if woken a millisecond late each time.
	sent, now = 0, time.Second
	for now < 2*time.Second {
		for p.hasBudget(now) {
			p.sent(now, 1400)
			sent += 1400
		}
		now = p.nextSend() + time.Millisecond
	}
	if got := float64(sent); got < 0.98*rate {
		t.Errorf("woken late: %.0f bytes in a second, want %.0f", got, rate)
	}
	// The pacer keeps the rate even if woken 20 ms late each time, provided that half a round trip
	// is longer.
	p.catchUp = 25 * time.Millisecond
	sent, now = 0, 2*time.Second
	for now < 3*time.Second {
		for p.hasBudget(now) {
			p.sent(now, 1400)
			sent += 1400
		}
		now = p.nextSend() + 20*time.Millisecond
	}
	if got := float64(sent); got < 0.97*rate || got > 1.03*rate {
		t.Errorf("woken 20 ms late: %.0f bytes in a second, want %.0f", got, rate)
	}
	// An idle pacer accumulates at most a quantum.
	now += time.Hour
	sent = 0
	for p.waiting = false; p.hasBudget(now); sent += 1400 {
		p.sent(now, 1400)
	}
	if sent > maxQuantum+1400 {
		t.Errorf("a burst of %d bytes after an hour", sent)
	}
}

// exchange drives a flow through rounds of 100 packets. lost selects the packets that are lost.
type exchange struct {
	f    *Flow
	now  time.Duration
	next int64
}

func (x *exchange) round(lost func(i int) bool) {
	const n = 100
	first := x.next
	inFlight := int64(0)
	for range n {
		inFlight += 1200
		x.f.CanSend(math.MaxInt64) // make the window limit the flow
		x.f.Sent(x.now, x.next, 1200, inFlight)
		x.next++
		x.now += 100 * time.Microsecond
	}
	x.now += 40 * time.Millisecond
	for i := range n {
		if lost != nil && lost(i) {
			continue
		}
		x.f.Acked(first + int64(i))
	}
	for i := range n {
		if lost != nil && lost(i) {
			x.f.Lost(first + int64(i))
		}
	}
	x.f.Done(x.now, 0, math.MaxInt64)
}

func newExchange(t *testing.T, name string) *exchange {
	f, err := newFlow(name, 1200, rand.New(rand.NewPCG(1, 2)))
	if err != nil {
		t.Fatal(err)
	}
	return &exchange{f: f, now: time.Second}
}

// TestLossResponse checks the reduction after one loss episode, and that undo reverts it.
func TestLossResponse(t *testing.T) {
	for _, tt := range []struct {
		name   string
		factor float64 // minimum fraction of the window
		most   float64
	}{{"newreno", 0.49, 0.51}, {"cubic", 0.69, 0.71}, {"vegas", 0.49, 0.51}, {"yeah", 0.45, 0.9}} {
		t.Run(tt.name, func(t *testing.T) {
			x := newExchange(t, tt.name)
			for range 4 {
				x.round(nil)
			}
			before := float64(x.f.Window())
			x.round(func(i int) bool { return i == 10 || i == 50 })
			after := float64(x.f.Window())
			if r := after / before; r < tt.factor || r > tt.most {
				t.Errorf("the window went from %.0f to %.0f", before, after)
			}
			x.f.SpuriousLoss(410)
			x.f.Done(x.now, 0, math.MaxInt64)
			if w := float64(x.f.Window()); w != after {
				t.Errorf("one of two losses was spurious: window %.0f, want %.0f", w, after)
			}
			x.f.SpuriousLoss(450)
			x.f.Done(x.now, 0, math.MaxInt64)
			if w := float64(x.f.Window()); w != before {
				t.Errorf("both losses were spurious: window %.0f, want %.0f", w, before)
			}
		})
	}
}

func TestPersistentCongestion(t *testing.T) {
	for _, name := range Names() {
		x := newExchange(t, name)
		for range 4 {
			x.round(nil)
		}
		before := x.f.Window()
		// For one second, a packet is sent every 50 ms and lost.
		first := x.next
		for range 20 {
			x.f.Sent(x.now, x.next, 1200, 1200)
			x.next++
			x.now += 50 * time.Millisecond
		}
		for n := first; n < x.next; n++ {
			x.f.Lost(n)
		}
		x.f.Done(x.now, 0, math.MaxInt64)
		if w := x.f.Window(); w > 4*1200 {
			t.Errorf("%s: the window is %d bytes of %d after persistent congestion", name, w, before)
		}
	}
}

// TestSparseLosses loses single packets over more than three probe timeouts. The packets that
// arrive in between show that congestion does not persist.
func TestSparseLosses(t *testing.T) {
	for _, name := range []string{"cubic", "newreno", "vegas", "yeah"} { // BBR's window follows the data in flight
		x := newExchange(t, name)
		for range 4 {
			x.round(nil)
		}
		before := x.f.Window()
		first := x.next
		for n := first; n < first+60; n++ { // one packet every 20 ms, acknowledged immediately
			x.f.Sent(x.now, n, 1200, 1200)
			x.now += 20 * time.Millisecond
			if n%25 != 0 {
				x.f.Acked(n)
			}
			if n%25 == 3 {
				x.f.Lost(n - 3)
			}
			x.f.Done(x.now, 0, n-3)
		}
		if w := x.f.Window(); w < before/10 {
			t.Errorf("%s: the window is %d bytes of %d after sparse losses", name, w, before)
		}
	}
}

func TestMigration(t *testing.T) {
	for _, name := range Names() {
		x := newExchange(t, name)
		for range 4 {
			x.round(nil)
		}
		x.f.Migrated(1300)
		e := x.f.Estimates()
		if e.Window != firstWindow(name)*1300 || e.MinRTT != 0 || e.Bandwidth != 0 {
			t.Errorf("%s on a new path: %+v", name, e)
		}
		x.f.Lost(3) // sent on the old path
		x.f.Acked(399)
		x.f.Done(x.now, 0, math.MaxInt64)
		if w := x.f.Window(); w != firstWindow(name)*1300 {
			t.Errorf("%s: packets of the old path moved the window to %d", name, w)
		}
	}
}

// FuzzFlow feeds controllers arbitrary sequences of packets, ACKs, losses, CE marks and times.
// Windows and rates must stay finite, bounded and above the minimum.
func FuzzFlow(f *testing.F) {
	f.Add([]byte{0, 10, 20, 30, 1, 2, 3, 4, 5, 6, 7, 8, 9})
	f.Add([]byte("\x00\x00\x01\x01\x02\x02\x03\x03\x04\x04\x05\x05\x06\x06\x07\x07"))
	seed, rnd := make([]byte, 512), rand.New(rand.NewPCG(1, 1))
	for i := range seed {
		seed[i] = byte(rnd.IntN(256))
	}
	f.Add(seed)
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, name := range Names() {
			fuzzOne(t, name, data)
		}
	})
}

// boundedModel reports whether BBR's model of the path is within its bounds.
func boundedModel(b *BBR) bool {
	return b.bw <= b.maxBw && b.bwShortterm >= 0 && !math.IsNaN(b.bwShortterm) &&
		b.minRTT >= 0 && b.minRTTStamp <= b.now && b.probeRTTMinStamp <= b.now &&
		b.extraAcked >= 0 && b.inflightLongterm >= 0 && b.inflightShortterm >= 0 &&
		b.inflightLongterm <= unlimited && b.inflightShortterm <= unlimited &&
		b.inflightQueue > 0 && b.inflightQueue <= unlimited && b.rttLatest >= 0 &&
		(b.probeRTTInterval == bbrProbeRTTInterval || b.probeRTTInterval == bbrMinRTTFilterLen)
}

func fuzzOne(t *testing.T, name string, data []byte) {
	f, err := newFlow(name, 1200, rand.New(rand.NewPCG(1, 2)))
	if err != nil {
		t.Fatal(err)
	}
	var now time.Duration = 1
	var next, inFlight int64
	smss := int64(1200)
	outstanding := map[int64]int64{}
	settle := func(n int64) bool {
		size, ok := outstanding[n]
		inFlight -= size
		delete(outstanding, n)
		return ok
	}
	for len(data) >= 4 {
		op, arg := data[0], int64(binary.LittleEndian.Uint16(data[1:]))
		data = data[3:]
		switch op % 12 {
		case 0, 1, 2, 3: // send some
			for range arg%64 + 1 {
				if !f.CanSend(inFlight) || !f.HasBudget(now) {
					break
				}
				size := arg%smss + 1
				inFlight += size
				outstanding[next] = size
				f.Sent(now, next, size, inFlight)
				next++
			}
		case 4, 5, 6: // acknowledge some
			for n := max(next-arg%512, 0); n < next && n < next-arg%512+arg%32; n++ {
				if settle(n) {
					f.Acked(n)
				}
			}
			f.Done(now, inFlight, max(next-1024, 0))
		case 7: // lose some
			for n := max(next-arg%512, 0); n < next && n < next-arg%512+arg%32; n++ {
				if settle(n) {
					f.Lost(n)
				}
			}
			f.Done(now, inFlight, max(next-1024, 0))
		case 8:
			f.CongestionExperienced(arg)
			f.Acked(next - 1)
			settle(next - 1)
			f.Done(now, inFlight, 0)
		case 9:
			f.SpuriousLoss(max(next-arg%256, 0))
			f.Done(now, inFlight, 0)
		case 10:
			f.AppLimited(now)
			if arg%97 == 0 {
				f.Migrated(1200 + arg%300)
				smss = 1200 + arg%300
			} else if arg%31 == 0 {
				smss = 1200 + arg%300
				f.SetMaxDatagramSize(smss)
			}
		case 11:
			now -= time.Duration(arg % 3) // an ACK received before the last packet was sent
		}
		now += time.Duration(arg*arg) * time.Duration(op)
		e := f.Estimates()
		switch {
		case f.Window() < 2*1200 || f.Window() > 1<<41:
			t.Fatalf("%s: window %d", name, f.Window())
		case !(e.PacingRate > 0) || math.IsInf(e.PacingRate, 0):
			t.Fatalf("%s: pacing rate %v", name, e.PacingRate)
		case !(e.Bandwidth >= 0) || math.IsInf(e.Bandwidth, 0):
			t.Fatalf("%s: bandwidth %v", name, e.Bandwidth)
		case name == "bbr" && !boundedModel(f.ctl.(*BBR)):
			t.Fatalf("the model is out of bounds: %+v", f.ctl)
		case f.NextSend() < 0 || f.NextSend() > now+time.Hour*24*365:
			t.Fatalf("%s: next packet at %v, now %v", name, f.NextSend(), now)
		}
	}
}

// TestAnyOrderWithinAnAck checks that the acknowledged and lost packets of an ACK may be reported
// in any order. The losses here last long enough to be persistent congestion.
func TestAnyOrderWithinAnAck(t *testing.T) {
	for _, name := range Names() {
		t.Run(name, func(t *testing.T) {
			run := func(order []int64) Estimates {
				f, err := newFlow(name, 1200, rand.New(rand.NewPCG(1, 2)))
				if err != nil {
					t.Fatal(err)
				}
				now := time.Second
				f.Sent(now, 0, 1200, 1200)
				now += 10 * time.Millisecond
				f.Acked(0)
				f.Done(now, 0, 1)
				for n := int64(1); n <= 10; n++ {
					now += 100 * time.Millisecond
					f.Sent(now, n, 1200, 1200*n)
				}
				for _, n := range order {
					f.Lost(n)
					f.Acked(n + 5)
				}
				f.Done(now+10*time.Millisecond, 0, math.MaxInt64)
				return f.Estimates()
			}
			want := run([]int64{1, 2, 3, 4, 5})
			if got := run([]int64{5, 3, 4, 1, 2}); got != want {
				t.Errorf("%+v, in order %+v", got, want)
			}
			if want.Lost != 5*1200 || want.Delivered != 6*1200 || want.PacingRate <= 0 {
				t.Errorf("%+v", want)
			}
		})
	}
}
