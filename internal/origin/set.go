package origin

import (
	"context"
	"sync"

	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
)

// Set holds a publisher's tracks. Its Handler answers requests for them.
type Set struct {
	// MaxOpen limits the subgroups in flight per session; 0 means DefaultMaxOpen. Set it before
	// using a handler.
	MaxOpen int
	// OnDone becomes the OnDone of each session's Queue. Set it before using a handler.
	OnDone func(Delivery)

	mu     sync.Mutex
	tracks map[string]*Track
	queues map[*moqt.Session]*Queue
}

// queue returns the session's queue, which is removed when the session ends.
func (s *Set) queue(session *moqt.Session) *Queue {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.queues[session]
	if q == nil {
		q = NewQueue(s.MaxOpen)
		q.OnDone = s.OnDone
		if s.queues == nil {
			s.queues = map[*moqt.Session]*Queue{}
		}
		s.queues[session] = q
		context.AfterFunc(session.Context(), func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.queues, session)
		})
	}
	return q
}

// Add adds a track. It replaces any track of the same name.
func (s *Set) Add(t *Track) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tracks == nil {
		s.tracks = map[string]*Track{}
	}
	s.tracks[t.Name().String()] = t
}

// Track returns the track with that name, or nil.
func (s *Set) Track(name moqt.TrackName) *Track {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tracks[name.String()]
}

// End ends all tracks.
func (s *Set) End(code wire.DoneCode, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.tracks {
		t.End(code, reason)
	}
}

// Viewers returns the number of subscriptions to the tracks.
func (s *Set) Viewers() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.tracks {
		n += t.Viewers()
	}
	return n
}

// Discard frees the tracks' caches and disables them.
func (s *Set) Discard() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.tracks {
		t.Discard()
	}
}

// Handler answers SUBSCRIBE, FETCH and TRACK_STATUS for the set's tracks.
func (s *Set) Handler() moqt.Handler {
	return moqt.Handler{
		Subscribe: func(r *moqt.SubscribeRequest) {
			t := s.Track(r.Track)
			if t == nil {
				_ = r.Reject(wire.RequestDoesNotExist, "no track "+r.Track.String())
				return
			}
			v := s.queue(r.Session()).Attach(t)
			if pub, err := r.Accept(v.Info()); err == nil {
				go v.Serve(Publication{pub}) //nolint:errcheck // the session handles its own errors
			}
		},
		Fetch: func(r *moqt.FetchRequest) {
			t := s.Track(r.Track)
			if t == nil {
				_ = r.Reject(wire.RequestDoesNotExist, "no track "+r.Track.String())
				return
			}
			_ = t.ServeFetch(r, nil)
		},
		TrackStatus: func(r *moqt.TrackStatusRequest) {
			t := s.Track(r.Track)
			if t == nil {
				_ = r.Reject(wire.RequestDoesNotExist, "no track "+r.Track.String())
				return
			}
			_ = r.Accept(t.Info())
		},
	}
}
