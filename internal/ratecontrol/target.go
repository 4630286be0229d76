package ratecontrol

import "time"

// Path is the state of a path as estimated by its congestion control.
type Path struct {
	RTT, MinRTT time.Duration // smoothed, and the least one
	Bandwidth   float64       // estimate in bit/s; 0 if unknown
	Delivered   float64       // bits acknowledged in all; 0 if unknown
	// Limited means that congestion control sends less than the sender has. Frames then wait at the sender.
	Limited bool
}

const (
	// A path counts as full once its queueing delay exceeds queueing, or once congestion control has limited the
	// sender for waiting, which is longer than a key frame takes.
	queueing = 25 * time.Millisecond
	waiting  = 200 * time.Millisecond
	// share is the part of a full path's bandwidth to use while its queue drains.
	share = 0.8
	// plateau is the part of a full path's bandwidth to use for the time caution afterwards. That time is
	// limitedCaution if congestion control limited the sender, as its estimate varies with the loss.
	plateau        = 0.9
	caution        = time.Second
	limitedCaution = 4 * time.Second
	// least is the lowest target in bit/s.
	least = 300_000
	// recovery is the time in which the target grows by a factor of e once the path has no queue.
	recovery = time.Second
	// headroom bounds that growth, as a multiple of the estimate: the next estimate shows whether the path
	// carries more.
	headroom = 1.25
	// recent is the time over which the rate of delivery is measured. The estimates of congestion
	// controls keep the largest rate of many round trips.
	recent = 200 * time.Millisecond
)

// Target follows a path's capacity: it falls as soon as a queue builds up, on the path or at the sender, and
// rises while there is none. A path that is not full shows no bandwidth above the rate sent, so its estimate
// alone does not lower the target.
type Target struct {
	limit, rate float64
	at          time.Duration

	capacity float64       // when the path was last full; 0 = never
	cautious time.Duration // until when it bounds the rate
	cut      time.Duration // when the rate last fell
	past     []delivery    // of the time recent
	free     time.Duration // when congestion control last did not limit the sender
}

// delivery is the bits delivered until a time.
type delivery struct {
	at   time.Duration
	bits float64
}

// NewTarget returns a Target of at most limit bit/s.
func NewTarget(limit float64) *Target { return &Target{limit: limit, rate: limit} }

// Rate returns the newest bit rate.
func (t *Target) Rate() float64 { return t.rate }

// Update returns the bit rate to use from time now on.
func (t *Target) Update(now time.Duration, p Path) float64 {
	bandwidth := t.bandwidth(now, p)
	limit := t.limit
	if !p.Limited {
		t.free = now
	}
	limited := now-t.free >= waiting
	if (p.RTT-p.MinRTT > queueing || limited) && bandwidth > 0 {
		// A stalled machine looks like a full path of little bandwidth, so the rate halves at most.
		if t.capacity == 0 || now-t.cut >= recent {
			t.cut, t.rate = now, max(min(t.rate, share*bandwidth), t.rate/2)
		}
		t.capacity, t.cautious = max(bandwidth, t.rate), now+caution
		if limited {
			t.cautious = now + limitedCaution
		}
	} else {
		grown := t.rate * (1 + (now-t.at).Seconds()/recovery.Seconds())
		if p.Bandwidth > 0 {
			grown = max(t.rate, min(grown, headroom*p.Bandwidth))
		}
		t.rate = grown
		if now < t.cautious {
			limit = min(limit, plateau*t.capacity)
		}
	}
	t.at = now
	t.rate = min(max(t.rate, least), limit)
	return t.rate
}

// bandwidth returns the path's bandwidth if it is full.
func (t *Target) bandwidth(now time.Duration, p Path) float64 {
	if p.Delivered == 0 || len(t.past) > 0 && p.Delivered < t.past[len(t.past)-1].bits { // another connection
		t.past = t.past[:0]
	}
	if n := len(t.past); n > 0 && now-t.past[n-1].at > recent { // the machine stalled, not the path
		t.past = t.past[:0]
	}
	for len(t.past) > 1 && now-t.past[1].at >= recent {
		t.past = t.past[1:]
	}
	bandwidth := p.Bandwidth
	if len(t.past) > 0 && now-t.past[0].at >= recent {
		rate := (p.Delivered - t.past[0].bits) / (now - t.past[0].at).Seconds()
		bandwidth = min(bandwidth, rate)
	}
	if p.Delivered > 0 {
		t.past = append(t.past, delivery{now, p.Delivered})
	}
	return bandwidth
}
