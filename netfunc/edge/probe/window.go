//go:build linux

package probe

import "time"

// Limits of a Prober.
const (
	MinEvery = 5 * time.Millisecond
	// MaxEvery and MaxTimeout ensure that some of the recent probes are answered or lost.
	MaxEvery   = recent / 2
	MaxTimeout = recent / 2
)

const (
	// recent is the maximum age of probes that count for the current state of a path.
	recent = 2 * time.Second
	// counted is the number of probes from which loss and minimum round-trip time are computed.
	counted = 128
	// remembered is the number of probes kept: at any interval, all recent ones.
	remembered = 512
)

// A window holds the newest probes of a path.
type window struct {
	timeout time.Duration
	next    uint32 // sequence number of the next probe
	newest  uint32 // sequence number of the newest answered probe
	probes  [remembered]sent
	silent  time.Time // since the first probe sent after newest; zero = none sent
	stats   Stats
}

// sent is a probe.
type sent struct {
	at       time.Time
	rtt      time.Duration
	answered bool
}

// Stats are the statistics of a path's probes.
type Stats struct {
	RTT    time.Duration // of the last answer; 0 = none yet
	MinRTT time.Duration // minimum of the newest 128 probes answered or lost
	Lost   int           // probes of these 128 not answered in time
	Loss   float64       // fraction of these 128 not answered in time, 0 to 1
	// RecentRTT is the mean round-trip time of the last two seconds' probes, RecentLoss the
	// fraction of them that was lost.
	RecentRTT  time.Duration
	RecentLoss float64

	Sent, Answered uint64        // probes
	Refused        uint64        // packets on the probe port that are not the peer's probes
	LastAnswer     time.Time     // zero = none yet
	Silent         time.Duration // since the first probe sent after the last one answered
}

// sending returns the sequence number of a probe sent at now.
func (w *window) sending(now time.Time) uint32 {
	n := w.next
	w.next++
	w.probes[n%remembered] = sent{at: now}
	w.stats.Sent++
	if w.silent.IsZero() {
		w.silent = now
	}
	return n
}

// answered processes the answer to probe n, received at now, which the peer held for dwell. It
// reports whether the probe was among the newest and still unanswered.
func (w *window) answered(n uint32, now time.Time, dwell time.Duration) bool {
	if uint64(w.next-n-1) >= min(remembered, w.stats.Sent) {
		return false // forgotten, or never sent
	}
	p := &w.probes[n%remembered]
	if p.answered {
		return false
	}
	if w.stats.Answered == 0 || int32(n-w.newest) > 0 {
		w.newest, w.silent = n, time.Time{}
		if n+1 != w.next {
			w.silent = w.probes[(n+1)%remembered].at
		}
	}
	// A clock adjustment must not yield a negative round-trip time.
	p.answered, p.rtt = true, max(now.Sub(p.at)-dwell, time.Microsecond)
	w.stats.Answered++
	w.stats.RTT = p.rtt
	w.stats.LastAnswer = now
	return true
}

// at returns the statistics as of now. Probes younger than the timeout do not count as lost yet.
func (w *window) at(now time.Time) Stats {
	s := w.stats
	var all, late tally
	for back := range uint32(min(remembered, w.stats.Sent)) {
		p := w.probes[(w.next-1-back)%remembered]
		if !p.answered && now.Sub(p.at) < w.timeout {
			continue
		}
		if all.answered+all.lost < counted {
			all.add(p)
		}
		if now.Sub(p.at) < recent {
			late.add(p)
		}
	}
	s.MinRTT, s.Lost, s.Loss = all.least, all.lost, all.loss()
	s.RecentRTT, s.RecentLoss = late.mean(), late.loss()
	if !w.silent.IsZero() {
		s.Silent = now.Sub(w.silent)
	}
	return s
}

// tally summarizes probes that were answered or lost.
type tally struct {
	answered, lost int
	sum, least     time.Duration
}

func (t *tally) add(p sent) {
	if !p.answered {
		t.lost++
		return
	}
	t.answered++
	t.sum += p.rtt
	if t.least == 0 || p.rtt < t.least {
		t.least = p.rtt
	}
}

func (t *tally) loss() float64 {
	if t.lost == 0 {
		return 0
	}
	return float64(t.lost) / float64(t.lost+t.answered)
}

func (t *tally) mean() time.Duration {
	if t.answered == 0 {
		return 0
	}
	return t.sum / time.Duration(t.answered)
}
