package ratecontrol

import "time"

// Path is the state of a path as estimated by its congestion control.
type Path struct {
	RTT, MinRTT time.Duration // smoothed, and the least one
	Bandwidth   float64       // estimate in bit/s; 0 if unknown
}

const (
	// queueing is the queueing delay from which a path counts as full.
	queueing = 25 * time.Millisecond
	// share is the part of a full path's bandwidth to use while its queue drains.
	share = 0.8
	// least is the lowest target in bit/s.
	least = 300_000
	// recovery is the time in which the target doubles once the path has no queue.
	recovery = 1500 * time.Millisecond
)

// Target follows a path's capacity: it falls as soon as a queue builds up, and rises while there is
// none. A path that is not full shows no bandwidth above the rate sent, so its estimate alone does
// not lower the target.
type Target struct {
	limit, rate float64
	at          time.Duration
}

// NewTarget returns a Target of at most limit bit/s.
func NewTarget(limit float64) *Target { return &Target{limit: limit, rate: limit} }

// Update returns the bit rate to use from time now on.
func (t *Target) Update(now time.Duration, p Path) float64 {
	if p.RTT-p.MinRTT > queueing && p.Bandwidth > 0 {
		t.rate = min(t.rate, share*p.Bandwidth)
	} else {
		t.rate *= 1 + (now-t.at).Seconds()/recovery.Seconds()
	}
	t.at = now
	t.rate = min(max(t.rate, least), t.limit)
	return t.rate
}
