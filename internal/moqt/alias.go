package moqt

// Aliases chosen here start at 0 in a client and at serverAliases in a server. A relay's upstream
// is usually a client, so the relay, a server, can reuse its aliases downstream. Aliases below
// 1<<14 take at most two bytes per datagram.
const (
	serverAliases       = 1 << 13
	maxPreferredAliases = 1024 // per session
)

// takeAlias returns the alias for a new publication: preferred if it is free or already the track's,
// otherwise a new one. An alias is never reused for another track, because objects of the first may
// still be in flight.
func (s *Session) takeAlias(track TrackName, preferred *uint64) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if preferred != nil && (*preferred < s.firstAlias || *preferred >= s.nextAlias) {
		switch of, taken := s.preferredAliases[*preferred]; {
		case taken && of == track.String():
			return *preferred
		case !taken && len(s.preferredAliases) < maxPreferredAliases:
			s.preferredAliases[*preferred] = track.String()
			return *preferred
		}
	}
	for {
		alias := s.nextAlias
		s.nextAlias++
		if _, taken := s.preferredAliases[alias]; !taken {
			return alias
		}
		delete(s.preferredAliases, alias) // now below nextAlias
	}
}
