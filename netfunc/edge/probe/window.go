//go:build linux

package probe

import "time"

// remembered is how many probes loss and least round-trip time are taken over.
const remembered = 128

// A window is the account of the newest probes of a path.
type window struct {
	timeout time.Duration
	next    uint32 // sequence number of the next probe
	probes  [remembered]sent
	stats   Stats
}

// recent is the greatest age of probes that count for the present state of a path. It is more than the
// time that a lost probe takes to be known as such.
const recent = 2 * time.Second

// sent is a probe.
type sent struct {
	at       time.Time
	rtt      time.Duration
	answered bool
}

// Stats is what the probes of a path found.
type Stats struct {
	RTT     time.Duration // of the last answer; 0: none yet
	MinRTT  time.Duration // least of the newest 128 probes
	BestRTT time.Duration // least ever
	Loss    float64       // part of the newest 128 probes that was not answered in time, 0 to 1
	// RecentRTT and RecentLoss are the mean and the part lost of the probes of the last
	// two seconds.
	RecentRTT  time.Duration
	RecentLoss float64

	Sent, Answered uint64        // probes
	Refused        uint64        // packets on the probe port that are no probes of the peer
	LastAnswer     time.Time     // zero: none yet
	Silent         time.Duration // since the first probe that no answer came after
}

// sending returns the sequence number of a probe sent at now.
func (w *window) sending(now time.Time) uint32 {
	n := w.next
	w.next++
	w.probes[n%remembered] = sent{at: now}
	w.stats.Sent++
	return n
}

// answered takes the answer to probe n, that came at now after the peer held it for dwell.
func (w *window) answered(n uint32, now time.Time, dwell time.Duration) bool {
	if uint64(w.next-n-1) >= min(remembered, w.stats.Sent) {
		return false // forgotten, or never sent
	}
	p := &w.probes[n%remembered]
	if p.answered {
		return false
	}
	// Clocks are set now and then; a round trip takes some time.
	p.answered, p.rtt = true, max(now.Sub(p.at)-dwell, time.Microsecond)
	w.stats.Answered++
	w.stats.RTT = p.rtt
	w.stats.LastAnswer = now
	if w.stats.BestRTT == 0 || p.rtt < w.stats.BestRTT {
		w.stats.BestRTT = p.rtt
	}
	return true
}

// at returns the account at a time. Probes younger than the timeout may still be answered
// and are not yet counted as lost.
func (w *window) at(now time.Time) Stats {
	s := w.stats
	var all, late tally
	for back := range uint32(min(remembered, w.stats.Sent)) {
		p := w.probes[(w.next-1-back)%remembered]
		if !p.answered && now.Sub(p.at) < w.timeout {
			continue
		}
		all.add(p)
		if now.Sub(p.at) < recent {
			late.add(p)
		}
	}
	s.MinRTT, s.Loss = all.least, all.loss()
	s.RecentRTT, s.RecentLoss = late.mean(), late.loss()
	for back := range uint32(min(remembered, w.stats.Sent)) {
		p := w.probes[(w.next-1-back)%remembered]
		if p.answered {
			break
		}
		s.Silent = now.Sub(p.at)
	}
	return s
}

// tally sums up probes that were answered or lost.
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
