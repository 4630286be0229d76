package video360

import "time"

// sparer decides what a machine that is too slow leaves out: qualities first, one a GoP,
// and frames only once a quality less did not help.
type sparer struct {
	qualities int
	gopTime   time.Duration

	left     int // qualities being encoded
	busy     time.Duration
	frames   int
	calm     int // GoPs in a row with time to spare for a quality more
	patience int // of them until one is tried
	late     bool
	lag      time.Duration // of the GoP before
}

const (
	// lateQuality is how far behind capture a GoP begins for a quality to go.
	lateQuality = 150 * time.Millisecond
	// lateFrame is how far behind a frame is dropped, until they are behind no more than lateQuality.
	lateFrame = 600 * time.Millisecond
	// minPatience and maxPatience bound the GoPs until a quality comes back; each time it
	// had to go again doubles them.
	minPatience = 5
	maxPatience = 80
)

func newSparer(qualities int, gop time.Duration) *sparer {
	return &sparer{qualities: qualities, gopTime: gop, left: qualities, patience: minPatience}
}

// dropFrame reports whether a frame that is behind is to be dropped.
func (s *sparer) dropFrame(lag time.Duration) bool {
	switch {
	case lag > lateFrame && s.left == 1:
		s.late = true
	case lag > 3*lateFrame: // a quality less takes effect at the next GoP only
		s.late = true
	case lag < lateQuality:
		s.late = false
	}
	return s.late
}

// encoded notes what a frame took.
func (s *sparer) encoded(d time.Duration) {
	s.busy += d
	s.frames++
}

// gop is called where a GoP begins, with how far behind that is. It reports whether the
// qualities left out changed.
func (s *sparer) gop(lag time.Duration) bool {
	if s.frames == 0 {
		return false
	}
	load := float64(s.busy) / float64(s.gopTime)
	s.busy, s.frames = 0, 0
	before := s.lag
	s.lag = lag
	if lag > lateQuality && lag >= before && load > 0.5 && s.left > 1 {
		s.left--
		s.calm = 0
		return true
	}
	if s.left == s.qualities || lag > lateQuality || load*float64(s.left+1)/float64(s.left) > 0.75 {
		s.calm = 0
		return false
	}
	if s.calm++; s.calm < s.patience {
		return false
	}
	s.left++
	s.calm, s.patience = 0, min(2*s.patience, maxPatience)
	return true
}

// skip says which qualities are left out: the middle ones first, from the better to the
// worse, then the best.
func (s *sparer) skip() []bool {
	skip := make([]bool, s.qualities)
	gone := s.qualities - s.left
	for q := s.qualities - 2; q > 0 && gone > 0; q-- {
		skip[q] = true
		gone--
	}
	if gone > 0 {
		skip[s.qualities-1] = true
	}
	return skip
}

// dropReport says when to tell of dropped frames: at the first, and then at most once in reportEvery.
type dropReport struct {
	untold int
	told   time.Time
}

const reportEvery = 10 * time.Second

// dropped notes a dropped frame. It returns how many to tell of, 0 = none now.
func (d *dropReport) dropped(now time.Time) (n int) {
	d.untold++
	if !d.told.IsZero() && now.Sub(d.told) < reportEvery {
		return 0
	}
	n, d.untold, d.told = d.untold, 0, now
	return n
}
