package elimination

import (
	"flag"
	"iter"
	"math/rand/v2"
	"testing"
	"time"

	"holocast/netfunc/pathset"
)

var seeds = flag.Int("table1.seeds", 1, "runs of each simulation of Table I")

// emulated is a path of Table I whose delay varies with background traffic.
type emulated struct {
	rate     float64 // bit/s
	loss     float64
	min, max time.Duration // delay
}

var table1 = []emulated{
	{400e6, 0.0005, 20 * time.Millisecond, 70 * time.Millisecond},
	{400e6, 0.0005, 30 * time.Millisecond, 35 * time.Millisecond},
	{150e6, 0.0005, 100 * time.Millisecond, 110 * time.Millisecond},
	{50e6, 0.0005, 100 * time.Millisecond, 110 * time.Millisecond},
	{50e6, 0, 30 * time.Millisecond, 35 * time.Millisecond},
}

// The stream of the NFOV level.
const (
	nfovRate = 7500 // packets/s
	nfovSize = 1300 // bytes
	queue    = 1000 // packets that can queue on a path
)

// variation is the range of times for which a drawn delay persists. With 0, each packet has its own
// delay and may overtake others. Otherwise packets are not reordered; after a longer delay they follow
// at 1.5 times the path's rate, as in the network lab.
type variation struct{ min, max time.Duration }

var (
	perPacket = variation{}
	held      = variation{50 * time.Millisecond, 200 * time.Millisecond}
)

// sending is a path in use.
type sending struct {
	emulated
	variation
	r                        *rand.Rand
	free, drawn, delay, last time.Duration
}

// send returns the arrival time of a packet sent at a time, or false if it is lost.
func (p *sending) send(sent time.Duration) (time.Duration, bool) {
	airtime := time.Duration(nfovSize * 8 / p.rate * float64(time.Second))
	switch {
	case sent >= calm:
		p.delay = p.emulated.min
	case p.variation == perPacket || sent >= p.drawn:
		p.delay = p.emulated.min + time.Duration(p.r.Int64N(int64(p.emulated.max-p.emulated.min)))
		p.drawn = sent + p.variation.min + time.Duration(p.r.Int64N(int64(p.variation.max-p.variation.min+1)))
	}
	if p.free-sent > queue*airtime {
		return 0, false
	}
	p.free = max(p.free, sent) + airtime
	if p.r.Float64() < p.loss {
		return 0, false
	}
	at := p.free + p.delay
	if p.variation != perPacket {
		at = max(at, p.last+airtime*2/3)
		p.last = at
	}
	return at, true
}

// outcome is what happened to the paths in a run.
type outcome struct {
	removed [pathset.Max]time.Duration // time after the start; 0 = kept
	kept    pathset.Set                // paths kept at the end of the background traffic
	stopped time.Duration              // removal, after the end of the background traffic; 0 = none
	left    pathset.Set                // at the end
}

// Packets are duplicated over all paths for 55 s, with background traffic in the first 40 s.
const begin, calm, end = time.Second, 41 * time.Second, 56 * time.Second

// stream returns the arrivals of one run in order.
func stream(v variation, seed uint64) iter.Seq[arrival] {
	return func(yield func(arrival) bool) {
		r := rand.New(rand.NewPCG(seed, 7))
		var paths []*sending
		for _, e := range table1 {
			paths = append(paths, &sending{emulated: e, variation: v, r: r})
		}
		var underway []arrival
		for n := 0; ; n++ {
			sent := begin + time.Duration(n)*time.Second/nfovRate
			for i, p := range paths {
				if at, ok := p.send(sent); ok && sent < end {
					underway = append(underway, arrival{uint64(n), i + 1, at})
				}
			}
			if n%1000 < 999 && sent < end {
				continue
			}
			sortArrivals(underway)
			arrived := 0
			for _, a := range underway {
				if a.at > sent && sent < end {
					break
				}
				if !yield(a) {
					return
				}
				arrived++
			}
			underway = append(underway[:0], underway[arrived:]...)
			if sent >= end {
				return
			}
		}
	}
}

// run feeds the arrivals to the algorithm.
func run(tb testing.TB, c Config, arrivals iter.Seq[arrival]) outcome {
	f, err := New(c)
	if err != nil {
		tb.Fatal(err)
	}
	f.SetPaths(1, pathset.Of(1, 2, 3, 4, 5), begin)
	o := outcome{kept: pathset.Of(1, 2, 3, 4, 5)}
	for a := range arrivals {
		d, ok := f.Observe(a.key, a.path, a.at)
		if !ok {
			continue
		}
		if d.At < calm {
			o.kept = d.Remaining
		} else if d.Single {
			o.stopped = d.At - calm
		}
		for i := range table1 {
			if d.Removed.Has(i + 1) {
				o.removed[i] = d.At - begin
			}
		}
		if d.Single {
			break
		}
	}
	o.left, _ = f.Paths()
	return o
}

// TestTable1 duplicates the stream over the paths of Table I, as in section IV.
func TestTable1(t *testing.T) {
	const soon = 100 * ms
	for _, test := range []struct {
		name  string
		conf  Config
		v     variation
		check func(o outcome) bool
	}{
		// As in the paper, paths 1 and 2 are kept, and only 1 once the traffic has ended.
		{"as printed, delays of packets vary", Printed(), perPacket, func(o outcome) bool {
			return o.kept == pathset.Of(1, 2) && max(o.removed[2], o.removed[3], o.removed[4]) < soon &&
				o.left == pathset.Of(1) && o.stopped < soon
		}},
		// A window of 13 ms sees only one delay.
		{"as printed, delays hold", Printed(), held, func(o outcome) bool {
			return o.kept.Len() == 1 && max(o.removed[0], o.removed[1]) < soon
		}},
		{"default, delays of packets vary", Default(), perPacket, keepsAsPaper},
		{"default, delays hold", Default(), held, keepsAsPaper},
	} {
		t.Run(test.name, func(t *testing.T) {
			good := 0
			for seed := range *seeds {
				o := run(t, test.conf, stream(test.v, uint64(seed)))
				t.Logf(
					"kept %v, left %v after another %v; removed after %v",
					o.kept,
					o.left,
					o.stopped,
					o.removed[:len(table1)],
				)
				if test.check(o) {
					good++
				}
			}
			if good < *seeds {
				t.Errorf("%d of %d runs are as expected", good, *seeds)
			}
		})
	}
}

func keepsAsPaper(o outcome) bool {
	return o.kept == pathset.Of(1, 2) && max(o.removed[2], o.removed[3], o.removed[4]) < 2500*ms &&
		o.left == pathset.Of(1) && o.stopped < 4500*ms
}
