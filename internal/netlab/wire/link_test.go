//go:build linux

package wire

import (
	"math"
	"testing"
	"time"
)

const frame = 1514 // bytes of a full Ethernet frame

func newLink(t *testing.T, timeline ...Change) *Link {
	t.Helper()
	l, err := NewLink(timeline, 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

// drain pops all packets, at the times that Next returns.
func drain(t *testing.T, l *Link) []Packet {
	t.Helper()
	var packets []Packet
	for now := time.Duration(0); ; {
		next, ok := l.Next()
		if !ok {
			return packets
		}
		if next < now {
			next = now
		}
		now = next
		p, ok := l.Pop(now)
		if !ok {
			now++ // Next was early
			continue
		}
		if p.Due > now {
			t.Fatalf("packet %d left at %v, due %v", p.ID, now, p.Due)
		}
		packets = append(packets, p)
	}
}

func within(t *testing.T, what string, got, want, tolerance float64) {
	t.Helper()
	if math.Abs(got-want) > tolerance {
		t.Errorf("%s is %v, not %v ± %v", what, got, want, tolerance)
	}
}

func TestLinkPerfectWire(t *testing.T) {
	l := newLink(t, Change{})
	for i := range 10000 {
		l.Push(time.Duration(i), frame, uint32(i))
	}
	for i := range 10000 {
		p, ok := l.Pop(time.Duration(10000))
		if !ok || p.ID != uint32(i) || p.Due != time.Duration(i) || p.Length != frame {
			t.Fatalf("packet %d: %+v, %v", i, p, ok)
		}
	}
}

func TestLinkRateAndDelay(t *testing.T) {
	for _, c := range []struct {
		name     string
		rate     float64
		overhead int
		delay    time.Duration
	}{
		{"path 1", 400e6, 0, 20 * time.Millisecond},
		{"path 4", 50e6, 0, 100 * time.Millisecond},
		{"with preamble and gap", 1e9, 24, 100 * time.Microsecond},
		{"slow", 64e3, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLink(t, Change{Conditions: Conditions{Rate: c.rate, Overhead: c.overhead, Delay: c.delay}})
			const n = 10000
			for i := range n {
				l.Push(time.Second, frame, uint32(i))
			}
			packets := drain(t, l)
			if len(packets) != n {
				t.Fatalf("%d packets of %d left", len(packets), n)
			}
			sending := 8 * float64(frame+c.overhead) / c.rate * float64(time.Second)
			within(t, "the first packet's delay in ns", float64(packets[0].Due-time.Second), sending+float64(c.delay),
				1)
			took := float64(packets[n-1].Due - packets[0].Due)
			within(t, "the time of all in units of sending one", took/sending, n-1, 0.001*n)
			for i := 1; i < n; i++ {
				if packets[i].ID != uint32(i) {
					t.Fatalf("packet %d left in place %d", packets[i].ID, i)
				}
			}
		})
	}
}

func TestLinkChangesOfRate(t *testing.T) {
	// The rate is 1 kbit/s in the first second, 10 kbit/s in the second, then 100 bit/s.
	l := newLink(t,
		Change{Conditions: Conditions{Rate: 1000}},
		Change{At: time.Second, Conditions: Conditions{Rate: 10000}},
		Change{At: 2 * time.Second, Conditions: Conditions{Rate: 100}})
	for i := range 12 {
		l.Push(0, 125, uint32(i)) // 1000 bits each
	}
	packets := drain(t, l)
	want := []float64{1, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 1.8, 1.9, 2, 12}
	for i, p := range packets {
		within(t, "departure in s", p.Due.Seconds(), want[i], 1e-6)
	}

	// The rate changes after half of the packet is sent.
	l = newLink(t,
		Change{Conditions: Conditions{Rate: 1000}},
		Change{At: time.Second, Conditions: Conditions{Rate: 4000}})
	l.Push(500*time.Millisecond, 125, 0)
	within(t, "departure in s", drain(t, l)[0].Due.Seconds(), 1+0.5/4, 1e-6)
}

func TestLinkChangesOfDelay(t *testing.T) {
	f := newLink(t,
		Change{Conditions: Conditions{Delay: time.Second}},
		Change{At: 10 * time.Second, Conditions: Conditions{Delay: 2 * time.Second}},
	)
	f.Push(11*time.Second, frame, 0)
	if p := drain(t, f)[0]; p.Due != 13*time.Second {
		t.Errorf("due %v", p.Due)
	}
}

func TestLinkQueue(t *testing.T) {
	for _, c := range []struct {
		name       string
		conditions Conditions
		want       int // 1000-byte packets accepted from a burst
	}{
		{"bytes", Conditions{Rate: 1e6, QueueBytes: 10500}, 10},
		{"packets", Conditions{Rate: 1e6, QueuePackets: 7}, 7},
		{"the smaller of both", Conditions{Rate: 1e6, QueueBytes: 3000, QueuePackets: 7}, 3},
		{"no limit", Conditions{Rate: 1e6}, 20000},
		{"no rate, no queue", Conditions{QueuePackets: 1}, 20000},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLink(t, Change{Conditions: c.conditions})
			taken, full := 0, 0
			for range 20000 {
				switch v := l.Push(time.Second, 1000, 0); v {
				case Queued:
					taken++
				case QueueFull:
					full++
				default:
					t.Fatalf("verdict %d", v)
				}
			}
			if taken != c.want || full != 20000-c.want {
				t.Errorf("%d packets accepted, %d dropped, want %d accepted", taken, full, c.want)
			}
			if c.conditions.Rate > 0 && l.QueuedBytes() != 1000*c.want {
				t.Errorf("%d bytes queued", l.QueuedBytes())
			}
			// 8 ms later one packet has left, so another fits.
			if c.conditions.Rate > 0 && l.Push(time.Second+8*time.Millisecond, 1000, 0) != Queued {
				t.Error("no room after a packet left")
			}
			if got := len(drain(t, l)); c.conditions.Rate > 0 && got != c.want+1 {
				t.Errorf("%d packets left", got)
			}
		})
	}
}

func TestLinkOverload(t *testing.T) {
	// Packets arrive at twice the path's rate for ten seconds: half of them get through, delayed by
	// a full queue.
	l := newLink(t, Change{Conditions: Conditions{Rate: 12.112e6, QueueBytes: 100 * frame}}) // 1000 packets/s
	out := 0
	for i := range 20000 {
		now := time.Duration(i) * 500 * time.Microsecond
		l.Push(now, frame, uint32(i))
		for {
			p, ok := l.Pop(now)
			if !ok {
				break
			}
			out++
			if i > 1000 {
				within(t, "delay in ms", float64(p.Due-p.Arrival)/1e6, 99.5, 1.1)
			}
		}
	}
	within(t, "packets out", float64(out), 10000, 2)
}

func TestLinkLoss(t *testing.T) {
	const n = 1_000_000
	for _, c := range []struct {
		name       string
		conditions Conditions
		burst      float64 // mean length of a run of lost packets; 0 = not checked
	}{
		{"none", Conditions{}, 0},
		{"Table I", Conditions{Loss: 0.0005}, 1.0005},
		{"2 %", Conditions{Loss: 0.02}, 1 / 0.98},
		{"all", Conditions{Loss: 1}, 0},
		{"5 % in bursts of 10", Conditions{Burst: &BurstLoss{Average: 0.05, Length: 10, InBad: 1}}, 10},
		{"bursts that spare half", Conditions{Burst: &BurstLoss{Average: 0.01, Length: 20, InBad: 0.5}}, 0},
		{"both", Conditions{Loss: 0.01, Burst: &BurstLoss{Average: 0.05, Length: 5, InBad: 1}}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLink(t, Change{Conditions: c.conditions})
			lost, runs, before := 0, 0, false
			for range n {
				now := l.Push(0, frame, 0) != Queued
				if now {
					lost++
					if !before {
						runs++
					}
				}
				before = now
			}
			p := c.conditions.LossRate()
			// Five standard deviations; bursts multiply the variance by twice their length.
			correlated := 1.0
			if c.conditions.Burst != nil {
				correlated = 2 * c.conditions.Burst.Length
			}
			within(t, "the share lost", float64(lost)/n, p, 5*math.Sqrt(correlated*p*(1-p)/n))
			if c.burst > 0 {
				mean := float64(lost) / float64(runs)
				within(t, "the mean length of a run", mean, c.burst, 0.05*c.burst)
			}
		})
	}
}

func TestLinkVariation(t *testing.T) {
	ms := time.Millisecond
	varied := Conditions{Rate: 400e6, Variation: &Variation{20 * ms, 70 * ms, 50 * ms, 200 * ms}}
	timeline := []Change{
		{Conditions: Conditions{Rate: 400e6, Delay: 20 * ms}},
		{At: 10 * time.Second, Conditions: varied},
		{At: 50 * time.Second, Conditions: Conditions{Rate: 400e6, Delay: 20 * ms}},
	}
	for _, reorder := range []bool{false, true} {
		timeline[1].Reorder = reorder
		l := newLink(t, timeline...)
		var packets []Packet
		for i := range 60000 { // one every millisecond
			l.Push(time.Duration(i)*ms, 100, uint32(i))
			for p, ok := l.Pop(time.Duration(i) * ms); ok; p, ok = l.Pop(time.Duration(i) * ms) {
				packets = append(packets, p)
			}
		}
		packets = append(packets, drain(t, l)...)
		if len(packets) != 60000 {
			t.Fatalf("%d packets", len(packets))
		}
		draws, overtaken, sum, n := 0, 0, 0.0, 0
		last, lastDue := time.Duration(0), time.Duration(0)
		for i, p := range packets {
			delay := p.Due - p.Arrival - 2*time.Microsecond
			calm := p.Arrival < 10*time.Second || p.Arrival > 50*time.Second+70*ms
			if calm && delay != 20*ms {
				t.Fatalf("packet %d had %v in the calm", p.ID, delay)
			}
			if delay < 20*ms || delay > 70*ms+550*time.Microsecond { // up to 50 packets, 10 µs apart
				t.Fatalf("packet %d had %v", p.ID, delay)
			}
			if p.Due < lastDue {
				t.Fatalf("packet %d left before the one ahead", p.ID)
			}
			if i > 0 && p.ID < packets[i-1].ID {
				overtaken++
			}
			if !calm {
				sum, n = sum+float64(delay), n+1
			}
			if delay != last && !calm && p.Due > lastDue+12*time.Microsecond {
				draws++
			}
			last, lastDue = delay, p.Due
		}
		if reorder {
			within(t, "the mean delay in ms", sum/float64(n)/1e6, 45, 3)
		}
		if reorder != (overtaken > 0) {
			t.Errorf("reorder %v: %d packets came after a later one", reorder, overtaken)
		}
		if !reorder {
			within(t, "draws in 40 s", float64(draws), 320, 60)
		}
	}
}

// TestLinkCatchesUp lowers the delay of a full path from 70 to 20 ms. The path then delivers at 1.5
// times its rate until it has made up the 50 ms, which takes 100 ms.
func TestLinkCatchesUp(t *testing.T) {
	ms := time.Millisecond
	l := newLink(t,
		Change{Conditions: Conditions{Rate: 12.112e6, Delay: 70 * ms}}, // 1000 packets/s
		Change{At: time.Second, Conditions: Conditions{Rate: 12.112e6, Delay: 20 * ms}})
	for i := range 2000 {
		l.Push(time.Duration(i)*ms, frame, uint32(i))
	}
	for i, p := range drain(t, l) {
		want := 71.0 // 1 ms to be sent
		if sent := i + 1; sent >= 1150 {
			want = 21
		} else if sent >= 1000 {
			want = 71 - float64(sent-999)/3
		}
		within(t, "the delay in ms", float64(p.Due-p.Arrival)/1e6, want, 0.34)
	}
}

func TestLinkIsDeterministic(t *testing.T) {
	run := func(seed uint64) (verdicts []Verdict, dues []time.Duration) {
		l, err := NewLink([]Change{{Conditions: Conditions{
			Rate: 1e8, Loss: 0.1, Variation: &Variation{0, time.Second, time.Millisecond, 5 * time.Millisecond},
		}}}, seed)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		for i := range 1000 {
			verdicts = append(verdicts, l.Push(time.Duration(i)*time.Millisecond, frame, 0))
		}
		for _, p := range drain(t, l) {
			dues = append(dues, p.Due)
		}
		return verdicts, dues
	}
	equal := func(a, b []Verdict) bool {
		for i := range a {
			if a[i] != b[i] {
				return false
			}
		}
		return true
	}
	a, dueA := run(7)
	b, dueB := run(7)
	c, _ := run(8)
	if !equal(a, b) || len(dueA) != len(dueB) {
		t.Error("equal seeds gave different runs")
	}
	if equal(a, c) {
		t.Error("different seeds gave the same run")
	}
}

func TestNextAfterLongSilence(t *testing.T) {
	l := newLink(t, Change{Conditions: Conditions{Variation: &Variation{time.Millisecond, 2 * time.Millisecond, 1, 1}}})
	l.Push(0, frame, 0)
	drain(t, l)
	l.Push(1000*time.Hour, frame, 1)
	if p := drain(t, l)[0]; p.Due < 1000*time.Hour+time.Millisecond {
		t.Errorf("due %v", p.Due)
	}
}

func BenchmarkLink(b *testing.B) {
	l, err := NewLink([]Change{{Conditions: Conditions{
		Rate: 400e6, Delay: 20 * time.Millisecond, Loss: 0.0005,
		QueuePackets: 1000,
	}}}, 1)
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	i := 0
	for b.Loop() {
		now := time.Duration(i) * 30280
		l.Push(now, frame, 0)
		l.Pop(now)
		i++
	}
}

// TestLinkStrays delays a tenth of the packets by 5 ms. The others keep their order.
func TestLinkStrays(t *testing.T) {
	l := newLink(t, Change{Conditions: Conditions{
		Rate: 400e6, Delay: 20 * time.Millisecond, StrayShare: 0.1, StrayDelay: 5 * time.Millisecond,
	}})
	const n = 20000
	for i := range n {
		l.Push(time.Duration(i)*50*time.Microsecond, frame, uint32(i))
	}
	strays, next := 0, uint32(0)
	for _, p := range drain(t, l) {
		switch delay := p.Due - p.Arrival; {
		case delay > 25*time.Millisecond:
			strays++
		case p.ID < next:
			t.Fatalf("packet %d after %d", p.ID, next-1)
		default:
			next = p.ID + 1
		}
	}
	within(t, "share of strays", float64(strays)/n, 0.1, 0.01)
}
