package replay

import (
	"encoding/json"
	"time"

	"holocast/internal/catalog"
	"holocast/internal/connect"
	"holocast/internal/loc"
	"holocast/internal/moqt"
	"holocast/internal/pointcloud"
	"holocast/internal/recording"
)

// stamps assigns frames new numbers and capture times, as if captured when sent. The descriptions
// of a frame (a group) share them; in layout W each object is a frame.
type stamps struct {
	next   uint32
	groups map[uint64]stamp // the newest few
}

type stamp struct {
	sequence uint32
	time     uint64 // UNIX µs
}

// openGroups is the number of recent groups whose stamps are kept.
const openGroups = 16

// renew stamps a frame's object in place and leaves other objects unchanged.
func (s *stamps) renew(group uint64, payload []byte, now func() time.Time) {
	h, err := pointcloud.ParseHeader(payload)
	if err != nil {
		return
	}
	if h.Layout == pointcloud.LayoutVideo {
		_ = pointcloud.Restamp(payload, s.next, uint64(now().UnixMicro())) // its header was just parsed
		s.next++
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
	_ = pointcloud.Restamp(payload, x.sequence, x.time) // its header was just parsed
}

// shift moves the timestamps of media (draft-ietf-moq-loc) and rates by one offset per pass, so
// that the first timestamp equals its send time.
type shift struct {
	pass int
	by   time.Duration
	some bool
}

// renew shifts an object's timestamp. It replaces the object's properties or payload and does not
// write to the old ones.
func (s *shift) renew(o *recording.Object, pass int, now func() time.Time) {
	if o.EndOnly {
		return
	}
	begin := func(stamp time.Time) {
		if !s.some || s.pass != pass {
			*s = shift{pass, now().Sub(stamp), true}
		}
	}
	if p, err := loc.Parse(o.Properties); err == nil {
		begin(p.Timestamp)
		p.Timestamp = p.Timestamp.Add(s.by)
		o.Properties = p.Append(nil)
		return
	}
	var rates []catalog.Rates
	if o.Track.Name != catalog.RatesTrack || json.Unmarshal(o.Payload, &rates) != nil || len(rates) == 0 {
		return
	}
	begin(time.UnixMilli(rates[0].T))
	for i := range rates {
		rates[i].T += s.by.Milliseconds()
	}
	if b, err := json.Marshal(rates); err == nil {
		o.Payload = b
	}
}

// followClock follows the relay's clock until the session ends.
func (r *Replayer) followClock(s *moqt.Session) {
	if err := connect.FollowClock(s.Context(), s, &r.clock, nil); err != nil && s.Context().Err() == nil {
		r.log.Warn("the relay has no clock track; capture times are on the local clock", "err", err)
	}
}
