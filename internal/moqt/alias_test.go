package moqt

import "testing"

// TestAliases checks that a preferred alias is used if it is free, and that no two tracks share an
// alias.
func TestAliases(t *testing.T) {
	track := func(name string) TrackName { return TrackName{Namespace: Namespace{"a"}, Name: name} }
	for _, c := range []struct {
		name  string
		first uint64
		asks  []struct {
			track     string
			preferred int // -1 = none
			want      uint64
		}
	}{
		{"a server's", serverAliases, []struct {
			track     string
			preferred int
			want      uint64
		}{
			{"clock", -1, serverAliases},
			{"a", 0, 0},
			{"b", 1, 1},
			{"of another publisher", 0, serverAliases + 1},
			{"a", 0, 0}, // subscribed to again
			{"c", serverAliases, serverAliases + 2},
			{"d", serverAliases + 3, serverAliases + 3},
			{"e", -1, serverAliases + 4},
			{"f", serverAliases + 3, serverAliases + 5},
		}},
		{"a client's", 0, []struct {
			track     string
			preferred int
			want      uint64
		}{{"a", -1, 0}, {"b", 0, 1}, {"c", 7, 7}, {"d", 3, 3}, {"e", -1, 2}, {"f", -1, 4}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &Session{firstAlias: c.first, nextAlias: c.first, preferredAliases: map[uint64]string{}}
			for _, a := range c.asks {
				var preferred *uint64
				if a.preferred >= 0 {
					preferred = new(uint64(a.preferred))
				}
				if got := s.takeAlias(track(a.track), preferred); got != a.want {
					t.Errorf("track %s, with preferred alias %d, has %d, want %d", a.track, a.preferred, got, a.want)
				}
			}
			for i := range uint64(2 * maxPreferredAliases) {
				s.takeAlias(track("x"), new(1<<20+7*i))
			}
			if len(s.preferredAliases) > maxPreferredAliases {
				t.Errorf("%d aliases are remembered", len(s.preferredAliases))
			}
		})
	}
}
