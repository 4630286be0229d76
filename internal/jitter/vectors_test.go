package jitter

import (
	"bytes"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
)

var update = flag.Bool("update", false, "rewrite testdata/vectors.json")

// vector is a case of testdata/vectors.json.
type vector struct {
	Name   string `json:"name"`
	Packet int64  `json:"packet"` // arguments of NewBuffer
	Lead   int64  `json:"lead"`
	Steps  []step `json:"steps"`
	Own    int64  `json:"own"`
	Stats  Stats  `json:"stats"`
}

// step is an arrival or a decision.
type step struct {
	// Add holds the arguments of Add: now, timestamp, and 1 if the packet carries its predecessor,
	// else 0.
	Add []int64 `json:"add,omitempty"`
	// Next holds the argument of Next, the pictures' delay (or none), and the decision: index of
	// its kind in kinds, timestamp, samples, 1 for a jump, stretch.
	Next []int64 `json:"next,omitempty"`
}

// none stands for the pictures' delay if there are no pictures.
const none = -1

var kinds = []Kind{Play, Correct, Conceal, Silence}

const about = "Arrivals and playout decisions of internal/jitter (Go). Times are in µs. add: now, timestamp, and 1 " +
	"with a repeated predecessor. next: the time, the pictures' delay for the target (-1: no pictures), and the " +
	"decision: index of its kind in kinds, timestamp of its packet or 0, samples, 1 for a jump, stretch. A decision " +
	"with a stretch is followed by Stretched(splice). own and stats are the values at the end."

// splice is the length of each splice in the vectors, in samples.
const splice = 200

// replay takes the steps and returns the decisions.
func (v *vector) replay() (got [][]int64, b *Buffer) {
	b = NewBuffer(v.Packet, v.Lead)
	for _, s := range v.Steps {
		if s.Add != nil {
			add(b, s.Add)
		} else {
			got = append(got, next(b, s.Next[0], s.Next[1]))
		}
	}
	return got, b
}

func add(b *Buffer, a []int64) {
	var previous []byte
	if a[2] != 0 {
		previous = []byte{0}
	}
	b.Add(a[0], Packet{Timestamp: a[1]}, previous)
}

func next(b *Buffer, at, pictures int64) []int64 {
	d := b.Next(at, b.Target(pictures, pictures != none))
	if d.Stretch != 0 {
		b.Stretched(splice)
	}
	jump := int64(0)
	if d.Jump {
		jump = 1
	}
	return []int64{
		at, pictures, int64(slices.Index(kinds, d.Kind)), d.Packet.Timestamp, int64(d.Samples), jump, int64(d.Stretch),
	}
}

func TestVectors(t *testing.T) {
	if *update {
		write(t)
	}
	b, err := os.ReadFile("testdata/vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var doc struct{ Cases []vector }
	if err := json.Unmarshal(b, &doc); err != nil {
		t.Fatal(err)
	}
	for _, v := range doc.Cases {
		t.Run(v.Name, func(t *testing.T) {
			got, buffer := v.replay()
			i := 0
			for n, s := range v.Steps {
				if s.Next == nil {
					continue
				}
				if !slices.Equal(got[i], s.Next) {
					t.Fatalf("step %d: %v, want %v", n, got[i], s.Next)
				}
				i++
			}
			if buffer.Own() != v.Own || buffer.Stats() != v.Stats {
				t.Errorf("own delay %d, %+v, want %d, %+v", buffer.Own(), buffer.Stats(), v.Own, v.Stats)
			}
		})
	}
}

// scenario describes a vector. Its packets are sent at intervals of their duration.
type scenario struct {
	name     string
	packet   int64 // default 10 ms
	packets  int
	repeat   bool                             // each packet carries its predecessor
	delay    func(i int) int64                // µs; negative: lost
	stamp    func(i int, at int64) int64      // timestamp; nil: at
	pictures func(now int64) int64            // nil: none
	extra    func(add func(now, stamp int64)) // further packets
}

const second = 1_000_000

// vector plays the scenario on a device with a latency of 10 ms.
func (s scenario) vector() vector {
	v := vector{Name: s.name, Packet: s.packet, Lead: 20_000}
	if v.Packet == 0 {
		v.Packet = 10_000
	}
	var arrivals [][]int64
	for i := range s.packets {
		at := second + int64(i)*v.Packet
		stamp, repeated := at, int64(0)
		if s.stamp != nil {
			stamp = s.stamp(i, at)
		}
		if s.repeat && i > 0 {
			repeated = 1
		}
		if d := s.delay(i); d >= 0 {
			arrivals = append(arrivals, []int64{at + d, stamp, repeated})
		}
	}
	if s.extra != nil {
		s.extra(func(now, stamp int64) { arrivals = append(arrivals, []int64{now, stamp, 0}) })
	}
	slices.SortStableFunc(arrivals, func(a, b []int64) int { return cmp.Compare(a[0], b[0]) })
	b := NewBuffer(v.Packet, v.Lead)
	fifo := int64(0)
	end := second + int64(s.packets)*v.Packet + 150_000
	for now := int64(second); now < end; now += 10_000 {
		for ; len(arrivals) > 0 && arrivals[0][0] <= now; arrivals = arrivals[1:] {
			v.Steps = append(v.Steps, step{Add: arrivals[0]})
			add(b, arrivals[0])
		}
		for fifo < 480 {
			pictures := int64(none)
			if s.pictures != nil {
				pictures = s.pictures(now)
			}
			d := next(b, now+10_000+fifo*second/sampleRate, pictures)
			v.Steps = append(v.Steps, step{Next: d})
			fifo += d[4] + d[6]*splice
		}
		fifo -= 480
	}
	v.Own, v.Stats = b.Own(), b.Stats()
	return v
}

func steady(int) int64 { return 12_000 }

// stalled returns the delay of packet i on a steady network that stalls for n packets from packet from on.
func stalled(i, from, n int) int64 {
	if i >= from && i < from+n {
		return 12_000 + int64(from+n-i)*10_000
	}
	return 12_000
}

// without returns steady delays, except that some packets are lost.
func without(lost ...int) func(int) int64 {
	return func(i int) int64 {
		if slices.Contains(lost, i) {
			return -1
		}
		return steady(i)
	}
}

func scenarios() []scenario {
	random := rand.New(rand.NewPCG(1, 2))
	return []scenario{
		{name: "steady", packets: 60, delay: steady},
		{name: "in step with pictures", packets: 60, delay: steady, pictures: func(int64) int64 {
			return 95_000
		}},
		{name: "pictures appear", packets: 150, delay: steady, pictures: func(now int64) int64 {
			if now > 1_400_000 {
				return 90_000
			}
			return none
		}},
		{name: "the delay of pictures falls", packets: 200, delay: steady, pictures: func(now int64) int64 {
			if now > 1_500_000 {
				return 70_000
			}
			return 150_000
		}},
		{name: "the delay of pictures jumps", packets: 150, delay: steady, pictures: func(now int64) int64 {
			if now > 1_500_000 {
				return 500_000
			}
			return 80_000
		}},
		{name: "lost packets repeated", packets: 50, repeat: true, delay: without(20, 30, 31)},
		{name: "lost packets corrected", packets: 50, delay: without(20, 30, 31)},
		{name: "an outage", packets: 200, repeat: true, delay: func(i int) int64 {
			if i >= 30 && i < 150 {
				return -1
			}
			return 12_000
		}},
		{name: "a burst", packets: 120, delay: func(i int) int64 { return stalled(i, 50, 10) }},
		{name: "a stall", packets: 200, delay: func(i int) int64 { return stalled(i, 60, 27) }},
		{name: "stalls recur", packets: 600, delay: func(i int) int64 { return stalled(i%200, 60, 27) }},
		{name: "jitter", packets: 200, repeat: true, delay: func(int) int64 {
			if random.IntN(20) == 0 {
				return -1
			}
			return 5_000 + random.Int64N(30_000)
		}},
		{name: "packets of 20 ms", packet: 20_000, packets: 60, repeat: true, delay: without(20, 30, 31)},
		{
			name: "the capture clock drifts", packets: 300, delay: steady,
			stamp:    func(i int, at int64) int64 { return at - int64(i)*60 },
			pictures: func(int64) int64 { return 80_000 },
		},
		{name: "duplicates and reordering", packets: 50, delay: func(i int) int64 {
			if i%7 == 0 {
				return 31_000
			}
			return 12_000
		}, extra: func(add func(now, stamp int64)) {
			for i := range 20 {
				add(1_050_000+int64(i)*10_000, second+int64(i)*10_000+900)
			}
		}},
		{name: "far timestamps", packets: 40, delay: steady, extra: func(add func(now, stamp int64)) {
			for _, stamp := range []int64{0, 1, 1 << 53, 11_200_001, 1_100_000 - 10_000_001} {
				add(1_100_000, stamp)
			}
		}},
		{name: "a flood", packets: 40, delay: steady, extra: func(add func(now, stamp int64)) {
			for i := range int64(200) {
				add(1_100_000, 1_500_000+i*6_000)
			}
		}},
		{name: "the publisher's clock is set back", packets: 120, delay: steady, stamp: func(i int, at int64) int64 {
			if i >= 40 {
				return at - 700_000
			}
			return at
		}},
	}
}

// write writes the vectors, one step per line.
func write(t *testing.T) {
	names, err := json.Marshal(kinds)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "{\"about\": %q,\n\"kinds\": %s,\n\"splice\": %d,\n\"cases\": [", about, names, splice)
	for i, s := range scenarios() {
		v := s.vector()
		steps := v.Steps
		v.Steps = nil
		head, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		before, after, _ := bytes.Cut(head, []byte(`"steps":null`))
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "\n%s\"steps\":[", before)
		for j, st := range steps {
			line, err := json.Marshal(st)
			if err != nil {
				t.Fatal(err)
			}
			if j > 0 {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, "\n%s", line)
		}
		fmt.Fprintf(&b, "]%s", after)
	}
	b.WriteString("\n]}\n")
	if err := os.WriteFile("testdata/vectors.json", b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}
