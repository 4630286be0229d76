package cluster

import (
	"encoding/binary"
	"fmt"
	"maps"
	"testing"
	"time"

	"holocast/relay/auth"
)

// count sets the sessions of tokens at a relay.
func (w *world) count(id string, sessions map[auth.TokenID]uint64) {
	w.send(id, w.tables[id].SetTokens(sessions))
}

// expectTokens checks how many sessions tokens have at other relays.
func (w *world) expectTokens(at string, want map[auth.TokenID]uint64) {
	w.t.Helper()
	if got := w.tables[at].tokens.others; !maps.Equal(got, want) {
		w.t.Errorf("sessions of tokens beyond %s: %v, want %v", at, got, want)
	}
}

// manyTokens returns n tokens. Calls with different seeds share none.
func manyTokens(seed byte, n int) map[auth.TokenID]uint64 {
	all := map[auth.TokenID]uint64{}
	for i := range n {
		id := auth.TokenID{15: seed}
		binary.BigEndian.PutUint64(id[:], uint64(i))
		all[id] = 1
	}
	return all
}

// TestTokenSessions checks when relays learn how many sessions tokens have at others, and how long they remember it.
func TestTokenSessions(t *testing.T) {
	type counts = map[auth.TokenID]uint64
	one, two := auth.TokenID{1}, auth.TokenID{2}
	for name, run := range map[string]func(w *world){
		"announced at once, and summed": func(w *world) {
			w.count("a", counts{one: 2})
			w.count("b", counts{one: 3, two: 1})
			w.expectTokens("c", counts{one: 5, two: 1})
			w.expectTokens("a", counts{one: 3, two: 1})
			w.count("b", counts{one: 1})
			w.expectTokens("c", counts{one: 3})
			w.count("a", nil)
			w.count("b", nil)
			w.expectTokens("c", nil)
		},
		"reported once": func(w *world) {
			w.count("a", counts{one: 2})
			if got := w.tables["b"].ChangedTokens(); !maps.Equal(got, counts{one: 2}) {
				w.t.Errorf("changed: %v", got)
			}
			w.pass(time.Minute)
			w.tables["b"].ChangedTokens() // repetitions
			w.count("a", nil)
			if got := w.tables["b"].ChangedTokens(); !maps.Equal(got, counts{one: 0}) {
				w.t.Errorf("changed: %v", got)
			}
		},
		"repeated after a loss": func(w *world) {
			w.cut["b"] = true
			w.count("a", counts{one: 2})
			w.expectTokens("b", nil)
			w.cut["b"] = false
			w.pass(repeatTokens + Heartbeat)
			w.expectTokens("b", counts{one: 2})
		},
		"void after the loss of their end": func(w *world) {
			w.count("a", counts{one: 2})
			w.pass(time.Minute)
			w.expectTokens("b", counts{one: 2})
			w.cut["b"] = true
			w.count("a", nil)
			w.cut["b"] = false
			w.expectTokens("b", counts{one: 2})
			w.pass(forgetTokens + 2*repeatTokens)
			w.expectTokens("b", nil)
		},
		"learned by a relay that starts later": func(w *world) {
			w.count("a", counts{one: 2})
			w.start("d", Info{Name: "d", URL: "moqt://d"})
			w.pass(2 * Heartbeat)
			w.expectTokens("d", counts{one: 2})
		},
		"forgotten with a relay that is gone": func(w *world) {
			w.count("a", counts{one: 2})
			delete(w.tables, "a")
			w.pass(Silence + 3*Heartbeat)
			w.expectTokens("b", nil)
		},
		"void at a relay that hears no other": func(w *world) {
			w.count("a", counts{one: 2})
			w.cut["b"] = true
			w.pass(forgetTokens + 2*repeatTokens)
			if len(w.tables["b"].members) == 0 {
				w.t.Error("the members are forgotten")
			}
			w.expectTokens("b", nil)
		},
		"no more than the limit of a relay": func(w *world) {
			w.count("a", manyTokens(1, MaxTokens+10))
			w.pass(time.Minute)
			if n := len(w.tables["b"].tokens.others); n != MaxTokens {
				w.t.Errorf("%d tokens, want %d", n, MaxTokens)
			}
		},
		"hostile members: no more than the limits, and gone with them": func(w *world) {
			a := w.tables["a"]
			w.count("b", counts{one: 2})
			for i := range byte(maxAllTokens/MaxTokens + 2) {
				id := fmt.Sprint("rogue ", i)
				a.Receive(w.now, &Message{Kind: Hello, From: id, Info: Info{URL: "moqt://" + id}})
				huge := []TokenSessions{{one, 1 << 63}}
				for token := range manyTokens(100+i, 2*MaxTokens) {
					huge = append(huge, TokenSessions{token, 1<<64 - 1})
				}
				a.Receive(w.now, &Message{Kind: Tokens, From: id, Tokens: huge})
			}
			if k := &a.tokens; k.total > maxAllTokens || len(k.others) > maxAllTokens {
				w.t.Errorf("%d announcements of %d tokens, more than %d", k.total, len(k.others), maxAllTokens)
			}
			for id, n := range a.tokens.others {
				if n > MaxMembers*maxTokenSessions || n == 0 {
					w.t.Fatalf("token %x has %d sessions", id, n)
				}
			}
			w.pass(Silence + 3*Heartbeat)
			w.expectTokens("a", counts{one: 2})
			if a.tokens.total != 1 {
				w.t.Errorf("%d announcements remain", a.tokens.total)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "a", "b", "c")
			w.pass(2 * Heartbeat)
			run(w)
		})
	}
}
