package moqt

// Aliases that nobody wishes for count from 0 at a client and from serverAliases at a
// server, so that those of a relay's upstream, mostly a client, are free downstream.
// Larger ones than these two bytes hold would be a byte more in each datagram.
const (
	serverAliases    = 1 << 13
	maxWishedAliases = 1024 // of a session
)

// takeAlias returns the alias of a new publication. An alias is never another track's
// later: objects of the first may still be in flight.
func (s *Session) takeAlias(track TrackName, wish *uint64) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if wish != nil && (*wish < s.firstAlias || *wish >= s.nextAlias) {
		switch of, taken := s.wished[*wish]; {
		case taken && of == track.String():
			return *wish
		case !taken && len(s.wished) < maxWishedAliases:
			s.wished[*wish] = track.String()
			return *wish
		}
	}
	for {
		alias := s.nextAlias
		s.nextAlias++
		if _, taken := s.wished[alias]; !taken {
			return alias
		}
		delete(s.wished, alias) // it is below the next one now
	}
}
