package replayer

import (
	"time"

	"holocast/internal/connect"
	"holocast/internal/moqt"
	"holocast/internal/pointcloud"
)

// stamps gives a track's frames numbers and capture times as if they were captured
// when they are sent. The descriptions of a frame, which are a group, have the same.
type stamps struct {
	next   uint32
	groups map[uint64]stamp // the newest few
}

type stamp struct {
	sequence uint32
	time     uint64 // UNIX µs
}

// openGroups is how many groups may be open at a time.
const openGroups = 16

// renew stamps an object, in place. What is no frame stays as it is.
func (s *stamps) renew(group uint64, payload []byte, now func() time.Time) {
	if _, err := pointcloud.ParseHeader(payload); err != nil {
		return
	}
	x, ok := s.groups[group]
	if !ok {
		if s.groups == nil {
			s.groups = map[uint64]stamp{}
		}
		for g := range s.groups {
			if g+openGroups <= group {
				delete(s.groups, g)
			}
		}
		x = stamp{s.next, uint64(now().UnixMicro())}
		s.groups[group] = x
		s.next++
	}
	_ = pointcloud.Restamp(payload, x.sequence, x.time) // its header was just read
}

// followClock listens to the relay's clock until the session ends.
func (r *Replayer) followClock(s *moqt.Session) {
	if err := connect.FollowClock(s.Context(), s, &r.clock, nil); err != nil && s.Context().Err() == nil {
		r.log.Warn("the relay has no clock track; capture times are on the local clock", "err", err)
	}
}
