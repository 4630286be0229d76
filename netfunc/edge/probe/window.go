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

type sent struct {
	at       time.Time
	rtt      time.Duration
	answered bool
}

// Stats is what the probes of a path found.
type Stats struct {
	RTT        time.Duration `json:"rtt"`         // of the last answer; 0: none yet
	MinRTT     time.Duration `json:"min_rtt"`     // least of the newest 128 probes
	BestRTT    time.Duration `json:"best_rtt"`    // least ever
	Loss       float64       `json:"loss"`        // part of the newest 128 probes that was not answered in time, 0 to 1
	Sent       uint64        `json:"sent"`        // probes
	Answered   uint64        `json:"answered"`    // probes
	Summed     time.Duration `json:"summed"`      // RTT of all answers together
	Refused    uint64        `json:"refused"`     // packets on the probe port that are no probes of the peer
	LastAnswer time.Time     `json:"last_answer"` // zero: none yet
	Silent     time.Duration `json:"silent"`      // since the first probe that nothing came after
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
	w.stats.Summed += p.rtt
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
	s.MinRTT, s.Loss, s.Silent = 0, 0, 0
	var lost, known int
	for back := range uint32(min(remembered, w.stats.Sent)) {
		p := w.probes[(w.next-1-back)%remembered]
		switch {
		case p.answered:
			known++
			if s.MinRTT == 0 || p.rtt < s.MinRTT {
				s.MinRTT = p.rtt
			}
		case now.Sub(p.at) >= w.timeout:
			known++
			lost++
		}
	}
	if known > 0 {
		s.Loss = float64(lost) / float64(known)
	}
	for back := range uint32(min(remembered, w.stats.Sent)) {
		p := w.probes[(w.next-1-back)%remembered]
		if p.answered {
			break
		}
		s.Silent = now.Sub(p.at)
	}
	return s
}
