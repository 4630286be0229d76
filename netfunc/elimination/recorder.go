package elimination

import (
	"time"

	"holocast/netfunc/pathset"
)

// Sample is the state of the rewards when packet n was settled.
type Sample struct {
	At     time.Duration // T_min(n)
	Packet uint64        // n
	Paths  pathset.Set   // P
	// Rewards are N_i(n), path 1 first, of the last Window packets.
	Rewards [pathset.Max]uint32
	Window  uint32
	// Total are the rewards since New.
	Total [pathset.Max]uint64
}

// Recorder records rewards over time, as in Fig. 6b of the paper, in bounded memory: when
// it is full, every other sample goes and the interval doubles.
type Recorder struct {
	samples []Sample
	every   int64 // ns
	next    int64 // when the next sample is due
}

// NewRecorder returns a recorder of up to capacity samples, at least two, first as often
// as every.
func NewRecorder(capacity int, every time.Duration) *Recorder {
	return &Recorder{samples: make([]Sample, 0, max(2, capacity)), every: max(1, int64(every))}
}

// Record makes f record from now on; nil ends it. A recorder is for one flow.
func (f *Flow) Record(r *Recorder) { f.rec = r }

// Samples returns what was recorded, oldest first, until the next arrival.
func (r *Recorder) Samples() []Sample { return r.samples }

func (r *Recorder) add(s Sample) {
	if len(r.samples) == cap(r.samples) {
		kept := 0
		for i := 0; i < len(r.samples); i += 2 {
			r.samples[kept] = r.samples[i]
			kept++
		}
		r.samples = r.samples[:kept]
		r.every *= 2
	}
	r.samples = append(r.samples, s)
	r.next = int64(s.At) + r.every
}
