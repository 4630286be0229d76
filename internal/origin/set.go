package origin

import (
	"context"
	"sync"
	"time"

	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
)

// Set is the tracks of a publisher. Its Handler answers subscriptions to them.
type Set struct {
	// MaxOpen bounds the subgroups in delivery to one session at a time; 0 means
	// DefaultMaxOpen. It is not changed once a handler is in use.
	MaxOpen int
	// Sent is that of every session's queue. It is not changed once a handler is in use.
	OnDone func(Delivery)

	mu     sync.Mutex
	tracks map[string]*Track
	queues map[*moqt.Session]*Queue
}

// queue is the session's, as long as that lasts.
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

// Add makes a track known. A track of the same name is replaced.
func (s *Set) Add(t *Track) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tracks == nil {
		s.tracks = map[string]*Track{}
	}
	s.tracks[t.Name().String()] = t
}

// Track finds a track by name, nil when there is none.
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

// Handler answers SUBSCRIBE, FETCH and TRACK_STATUS for the set's tracks.
func (s *Set) Handler() moqt.Handler {
	return moqt.Handler{
		Subscribe: func(r *moqt.SubscribeRequest) {
			t := s.Track(r.Track)
			if t == nil {
				_ = r.Reject(wire.RequestDoesNotExist, "no track "+r.Track.String())
				return
			}
			since := time.Now()
			if pub, err := r.Accept(t.Info()); err == nil {
				go s.queue(r.Session()).Serve(t, Publication{pub}, since) //nolint:errcheck // why a viewer left concerns nobody here
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
