package video360

import "time"

// shedder sheds load on a slow machine. It drops one quality per GoP, and whole frames if that does
// not suffice.
type shedder struct {
	qualities int
	gopTime   time.Duration
	frameTime time.Duration

	active int // qualities being encoded
	busy   time.Duration
	frames int
	calm   int // consecutive GoPs in which another quality could have been encoded
	wait   int // number of such GoPs required before a quality returns
	late   bool
	shed   bool          // frames of the GoP were dropped
	lag    time.Duration // lag of the previous GoP
}

const (
	// lateQuality is the lag at the start of a GoP above which a quality is removed, unless the lag
	// is falling or encoding takes at most half the time.
	lateQuality = 150 * time.Millisecond
	// lateFrame is the lag above which frames are dropped if a single quality is left. With more
	// qualities the threshold is three times as high. Dropping ends when the lag falls below
	// lateQuality.
	lateFrame = 600 * time.Millisecond
	// minWait and maxWait bound the number of GoPs until a quality returns. Each return doubles the
	// wait.
	minWait = 5
	maxWait = 80
	// fullLoad is the fraction of the time that encoding may take without falling behind.
	fullLoad = 0.9
)

func newShedder(qualities int, gop, frame time.Duration) *shedder {
	return &shedder{qualities: qualities, gopTime: gop, frameTime: frame, active: qualities, wait: minWait}
}

// dropFrame reports whether to drop a frame with this lag behind capture.
func (s *shedder) dropFrame(lag time.Duration) bool {
	switch {
	case lag > lateFrame && s.active == 1:
		s.late = true
	case lag > 3*lateFrame: // removing a quality takes effect at the next GoP
		s.late = true
	case lag < lateQuality:
		s.late = false
	}
	s.shed = s.shed || s.late
	return s.late
}

// encoded records a frame's encoding time.
func (s *shedder) encoded(d time.Duration) {
	s.busy += d
	s.frames++
}

// gop is called at the start of a GoP with its lag behind capture. It reports whether the encoded
// qualities change.
func (s *shedder) gop(lag time.Duration) bool {
	if s.frames == 0 {
		return false
	}
	load := float64(s.busy) / float64(s.gopTime)
	// After drops, the lag is small again and load omits the dropped frames, so extrapolate to all
	// frames.
	whole := float64(s.busy) / float64(s.frames) / float64(s.frameTime)
	overloaded := s.shed && whole > fullLoad
	s.busy, s.frames, s.shed = 0, 0, false
	before := s.lag
	s.lag = lag
	if (overloaded || lag > lateQuality && lag >= before && load > 0.5) && s.active > 1 {
		s.active = max(1, min(s.active-1, int(float64(s.active)*fullLoad/whole)))
		s.calm = 0
		return true
	}
	if s.active == s.qualities || lag > lateQuality || load*float64(s.active+1)/float64(s.active) > 0.75 {
		s.calm = 0
		return false
	}
	if s.calm++; s.calm < s.wait {
		return false
	}
	s.active++
	s.calm, s.wait = 0, min(2*s.wait, maxWait)
	return true
}

// skip returns the qualities to leave out: the middle ones first, from better to worse, then the
// best.
func (s *shedder) skip() []bool {
	skip := make([]bool, s.qualities)
	gone := s.qualities - s.active
	for q := s.qualities - 2; q > 0 && gone > 0; q-- {
		skip[q] = true
		gone--
	}
	if gone > 0 {
		skip[s.qualities-1] = true
	}
	return skip
}

// dropReport limits the rate of reports of dropped frames. It reports the first immediately, then
// at most once per reportEvery.
type dropReport struct {
	unreported int
	reported   time.Time
}

const reportEvery = 10 * time.Second

// dropped counts a dropped frame. It returns the number of frames to report now, or 0.
func (d *dropReport) dropped(now time.Time) (n int) {
	d.unreported++
	if !d.reported.IsZero() && now.Sub(d.reported) < reportEvery {
		return 0
	}
	n, d.unreported, d.reported = d.unreported, 0, now
	return n
}
