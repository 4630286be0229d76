package cluster

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// revoke sets the revocations of a relay's configuration.
func (w *world) revoke(id string, list ...string) { w.send(id, w.tables[id].SetRevoked(w.now, list)) }

func (w *world) expectRevoked(at string, want ...string) {
	w.t.Helper()
	w.tables[at].revoked.changed = true
	if got, _ := w.tables[at].Revoked(); !slices.Equal(got, want) {
		w.t.Errorf("revoked at %s: %q, want %q", at, got, want)
	}
}

// TestRevoked checks when relays learn of each other's revocations, and how long they keep them.
func TestRevoked(t *testing.T) {
	for name, run := range map[string]func(w *world){
		"announced at once": func(w *world) {
			w.revoke("a", "one", "two")
			w.expectRevoked("b", "one", "two")
			w.expectRevoked("c", "one", "two")
			w.expectRevoked("a")
			w.revoke("b", "two", "three")
			w.expectRevoked("c", "one", "three", "two")
			w.revoke("a", "two")
			w.expectRevoked("c", "three", "two")
			w.revoke("a")
			w.revoke("b")
			w.expectRevoked("c")
		},
		"reported once": func(w *world) {
			w.revoke("a", "one")
			if _, changed := w.tables["b"].Revoked(); !changed {
				w.t.Error("no change reported")
			}
			w.pass(time.Minute)
			if _, changed := w.tables["b"].Revoked(); changed {
				w.t.Error("the same revocations reported again")
			}
		},
		"repeated after a loss": func(w *world) {
			w.cut["b"] = true
			w.revoke("a", "one")
			w.expectRevoked("b")
			w.cut["b"] = false
			w.pass(repeatRevoked + Heartbeat)
			w.expectRevoked("b", "one")
		},
		"learned by a relay that starts later": func(w *world) {
			w.revoke("a", "one")
			w.start("d", Info{Name: "d", URL: "moqt://d"})
			w.pass(2 * Heartbeat)
			w.expectRevoked("d", "one")
		},
		"kept when the relay is gone, until it returns": func(w *world) {
			w.revoke("a", "one", "two")
			delete(w.tables, "a")
			w.pass(time.Minute)
			w.expectRevoked("b", "one", "two")
			w.start("e", Info{Name: "e", URL: "moqt://a"}) // at the same address, with a new ID
			w.pass(2 * Heartbeat)
			w.expectRevoked("b", "one", "two")
			w.revoke("e", "two")
			w.expectRevoked("b", "two")
		},
		"many": func(w *world) {
			var list []string
			for i := range MaxRevoked + 10 {
				list = append(list, fmt.Sprintf("%05d%s", i, strings.Repeat("x", 60)))
			}
			before := w.sent
			w.revoke("a", slices.Insert(slices.Clone(list), 0, "", strings.Repeat("y", maxText+1))...)
			if w.sent-before < 2 {
				w.t.Errorf("%d messages for %d revocations", w.sent-before, len(list))
			}
			w.expectRevoked("b", list[:MaxRevoked]...)
		},
		"no more than the limit of all": func(w *world) {
			a := w.tables["a"]
			for i := range maxAllRevoked/MaxRevoked + 1 {
				id := fmt.Sprint(i)
				list := make([]string, MaxRevoked)
				for j := range list {
					list[j] = fmt.Sprintf("%d %d", i, j)
				}
				a.Receive(w.now, &Message{Kind: Hello, From: id, Info: Info{URL: "moqt://" + id}})
				a.Receive(w.now, &Message{Kind: Revoke, From: id, Version: 1, Parts: 1, Revoked: list})
			}
			if list, _ := a.Revoked(); len(list) != maxAllRevoked {
				w.t.Errorf("%d revocations, want %d", len(list), maxAllRevoked)
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
