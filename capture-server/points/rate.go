package points

import (
	"sync"
	"time"

	"holocast/capture-server/publish"
	"holocast/internal/ratecontrol"
)

// rateInterval is the time between adaptations to the path.
const rateInterval = 100 * time.Millisecond

// rate keeps the watched video tracks of a session within a total bit rate and within the capacity
// of the path to the relay.
type rate struct {
	session *publish.Publisher
	began   time.Time

	mu      sync.Mutex
	control *ratecontrol.Controller
	target  *ratecontrol.Target
	updated time.Duration
}

// rateStreams holds the rate-control streams of a track's pictures. It is zero while the track is
// unwatched.
type rateStreams struct{ depth, color *ratecontrol.Stream }

// newRate returns a rate with a limit in bit/s, or nil if limit is 0.
func newRate(session *publish.Publisher, limit, fps float64) *rate {
	if limit == 0 {
		return nil
	}
	return &rate{
		session: session, began: time.Now(), target: ratecontrol.NewTarget(limit),
		control: ratecontrol.New(limit, fps, 1/keyInterval.Seconds()),
	}
}

// next returns the quantizers of a track's next frame. coarser is the offset from the quantizers of
// quality high.
func (r *rate) next(s *rateStreams, coarser int, now time.Time, key bool) (depth, color int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.depth == nil {
		s.depth, s.color = r.control.Add(float64(coarser)), r.control.Add(float64(coarser))
	}
	at := now.Sub(r.began)
	if at-r.updated >= rateInterval {
		r.updated = at
		r.control.SetTarget(r.target.Update(at, r.session.Path()))
	}
	return s.depth.QP(at, key), s.color.QP(at, key)
}

// current returns the bit rate that the tracks share, in bit/s.
func (r *rate) current() float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.target.Rate()
}

// sent reports the size of a track's frame. The map counts towards the depth picture.
func (r *rate) sent(s *rateStreams, now time.Time, key bool, qp [2]int, sizes [3]int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := now.Sub(r.began)
	s.depth.Sent(at, key, qp[0], 8*sizes[1], 8*sizes[0])
	s.color.Sent(at, key, qp[1], 8*sizes[2], 0)
}

// leave removes an unwatched track. Its share goes to the others.
func (r *rate) leave(s *rateStreams) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.depth != nil {
		r.control.Remove(s.depth)
		r.control.Remove(s.color)
		*s = rateStreams{}
	}
}
