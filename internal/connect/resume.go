package connect

import (
	"sync"

	"holocast/internal/moqt"
)

// resumptions remembers the last session with each relay.
var resumptions = resumptionStore{known: map[resumptionKey]*moqt.Resumption{}}

// resumptionKey distinguishes relays. A session with another trust setting or client certificate must not
// be resumed, because the relay would not be verified again.
type resumptionKey struct {
	host   string
	pin    [32]byte // hash of the trusted certificate; zero if authorities are trusted
	client [32]byte // hash of the client certificate; zero for none
}

// maxResumptions bounds the store. A full store is cleared, and later sessions do not resume.
const maxResumptions = 64

type resumptionStore struct {
	mu    sync.Mutex
	known map[resumptionKey]*moqt.Resumption
}

func (s *resumptionStore) of(k resumptionKey) *moqt.Resumption {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.known[k]
	if r == nil {
		if len(s.known) >= maxResumptions {
			clear(s.known)
		}
		r = new(moqt.Resumption)
		s.known[k] = r
	}
	return r
}
