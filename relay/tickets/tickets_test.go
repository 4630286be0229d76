package tickets

import (
	"testing"
	"time"
)

func TestFirst(t *testing.T) {
	began := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	g := newGuard(began)
	g.capacity = 3
	after := func(d time.Duration) time.Time { return began.Add(d) }
	for _, c := range []struct {
		name, ticket string
		issued, now  time.Duration
		want         bool
	}{
		{"new", "a", 0, time.Second, true},
		{"replayed", "a", 0, 2 * time.Second, false},
		{"of an earlier process", "b", -time.Second, 2 * time.Second, false},
		{"new, used late", "c", time.Minute, time.Minute + Window, true},
		{"replayed in the next window", "c", time.Minute, time.Minute + Window, false},
		{"too old", "d", time.Minute, 2*time.Minute + Window, false},
		{"second of the window", "e", Window, Window + 2*time.Minute, true},
		{"third of the window", "f", Window, Window + 2*time.Minute, true},
		{"beyond the capacity", "g", Window, Window + 2*time.Minute, false},
		{"replayed two windows later", "e", Window, 2 * Window, false},
		{"after a long time", "h", 10 * Window, 10 * Window, true},
	} {
		if got := g.first([]byte(c.ticket), after(c.issued), after(c.now)); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}
