package cluster

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"holocast/internal/moqt"
)

// world is a cluster of tables in fake time.
type world struct {
	t      *testing.T
	now    time.Time
	tables map[string]*Table
	cut    map[string]bool // relays whose messages are lost, both ways
	loss   func() bool
	sent   int
}

func newWorld(t *testing.T, ids ...string) *world {
	w := &world{
		t: t, now: time.Unix(1e9, 0), tables: map[string]*Table{}, cut: map[string]bool{},
		loss: func() bool { return false },
	}
	for _, id := range ids {
		w.start(id, Info{Name: id, URL: "moqt://" + id})
	}
	return w
}

func (w *world) start(id string, info Info) {
	w.tables[id] = NewTable(id, info, uint64(w.now.UnixMicro()), true)
	w.send(id, w.tables[id].Start(w.now))
}

// send delivers messages, encoded, to all other relays, and their answers.
func (w *world) send(from string, list []*Message) {
	for _, m := range list {
		w.sent++
		b := m.Append(nil)
		if w.cut[from] {
			continue
		}
		for _, id := range slices.Sorted(maps.Keys(w.tables)) {
			if id == from || w.cut[id] || w.loss() {
				continue
			}
			got, err := Parse(b)
			if err != nil {
				w.t.Fatalf("%+v: %v", m, err)
			}
			w.send(id, w.tables[id].Receive(w.now, got))
		}
	}
}

func (w *world) pass(d time.Duration) {
	for end := w.now.Add(d); w.now.Before(end); {
		w.now = w.now.Add(50 * time.Millisecond)
		for _, id := range slices.Sorted(maps.Keys(w.tables)) {
			w.send(id, w.tables[id].Tick(w.now))
		}
	}
	for _, table := range w.tables {
		checkIndex(w.t, table)
	}
}

// publish replaces the sessions published at a relay.
func (w *world) publish(id string, names ...string) {
	var list, gone []moqt.Namespace
	for _, name := range names {
		list = append(list, moqt.Namespace{"holocast", name})
	}
	for _, c := range w.tables[id].local {
		if !slices.Contains(names, c.Namespace[1]) {
			gone = append(gone, c.Namespace)
		}
	}
	w.send(id, w.tables[id].Publish(w.now, list, gone))
}

// route returns the relay that serves a session at another relay.
func (w *world) route(at, name string) string {
	w.tables[at].Changes()
	return w.tables[at].routes[moqt.Namespace{"holocast", name}.String()].ID
}

func (w *world) expect(at, name, want string) {
	w.t.Helper()
	if got := w.route(at, name); got != want {
		w.t.Errorf("%s at %s is served by %q, want %q", name, at, got, want)
	}
}

// TestTable checks when routes appear, move and end.
func TestTable(t *testing.T) {
	for name, run := range map[string]func(w *world){
		"announced at once": func(w *world) {
			w.publish("a", "one", "two")
			w.expect("b", "one", "a")
			w.expect("c", "two", "a")
			w.expect("a", "one", "")
			w.publish("a", "two")
			w.expect("b", "one", "")
			w.expect("b", "two", "a")
		},
		"kept while it answers on a session": func(w *world) {
			w.publish("a", "one")
			w.cut["a"] = true
			for range 100 {
				w.tables["b"].Answers(w.now, "a")
				w.pass(50 * time.Millisecond)
			}
			w.expect("b", "one", "a")
			w.expect("c", "one", "")
			w.pass(Silence + Heartbeat)
			w.expect("b", "one", "")
		},
		"learned by a relay that starts later": func(w *world) {
			w.publish("a", "one")
			w.pass(time.Second)
			w.start("d", Info{})
			w.pass(Heartbeat)
			w.expect("d", "one", "a")
		},
		"learned after lost messages": func(w *world) {
			w.loss = func() bool { return true }
			w.publish("a", "one")
			w.expect("b", "one", "")
			w.loss = func() bool { return false }
			w.pass(2 * Heartbeat)
			w.expect("b", "one", "a")
		},
		"ended by a killed relay": func(w *world) {
			w.publish("a", "one")
			delete(w.tables, "a")
			w.pass(Silence - Heartbeat)
			w.expect("b", "one", "a")
			w.pass(2 * Heartbeat)
			w.expect("b", "one", "")
		},
		"ended by a relay that leaves": func(w *world) {
			w.publish("a", "one")
			w.send("a", w.tables["a"].Leave())
			w.expect("b", "one", "")
		},
		"kept without NATS": func(w *world) {
			w.publish("a", "one")
			w.cut = map[string]bool{"a": true, "b": true, "c": true}
			w.pass(30 * time.Second)
			w.expect("b", "one", "a")
			w.cut = map[string]bool{}
			w.pass(3 * time.Second)
			w.expect("b", "one", "a")
			w.cut = map[string]bool{"b": true}
			w.pass(Keep + time.Second)
			w.expect("b", "one", "")
			w.expect("c", "one", "a")
		},
		"learned on both sides of a healed partition": func(w *world) {
			w.cut = map[string]bool{"a": true}
			w.publish("a", "one")
			w.publish("b", "two")
			w.pass(5 * time.Second)
			w.expect("c", "one", "")
			w.cut = map[string]bool{}
			w.pass(2 * Heartbeat)
			w.expect("c", "one", "a")
			w.expect("a", "two", "b")
		},
		"with a preferred region and hysteresis": func(w *world) {
			w.start("d", Info{Region: "far"})
			w.publish("d", "one")
			w.pass(Heartbeat)
			w.expect("b", "one", "d")
			w.publish("a", "one")
			w.pass(Heartbeat)
			w.expect("b", "one", "a")
			b := w.tables["b"]
			b.SetCost("a", 10)
			b.SetCost("d", 9)
			w.expect("b", "one", "a")
			b.SetCost("d", 5)
			w.expect("b", "one", "d")
			b.SetCost("d", 11)
			w.expect("b", "one", "d")
		},
		"never to itself": func(w *world) {
			w.publish("a", "one")
			w.publish("b", "one")
			w.expect("a", "one", "")
			w.expect("b", "one", "")
			if list := w.tables["a"].Members(); len(list) != 2 {
				w.t.Errorf("members %+v", list)
			}
			w.publish("a")
			w.expect("a", "one", "b")
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "a", "b", "c")
			w.pass(2 * Heartbeat)
			run(w)
		})
	}
}

// TestTableConverges checks that after random changes, losses, departures and partitions all relays
// have the same routes, and that an idle cluster sends heartbeats only.
func TestTableConverges(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 0))
		ids := []string{"a", "b", "c", "d", "e"}
		w := newWorld(t, ids...)
		w.loss = func() bool { return r.IntN(5) == 0 }
		owner := map[string]string{}
		for range 200 {
			id := ids[r.IntN(len(ids))]
			switch r.IntN(4) {
			case 0:
				w.cut[id] = !w.cut[id]
			case 1:
				w.pass(time.Duration(r.IntN(3000)) * time.Millisecond)
			default:
				name := fmt.Sprint(r.IntN(20))
				switch owner[name] {
				case "":
					owner[name] = id
				case id:
					delete(owner, name)
				}
				var own []string
				for name, o := range owner {
					if o == id {
						own = append(own, name)
					}
				}
				w.publish(id, own...)
			}
		}
		clear(w.cut)
		w.loss = func() bool { return false }
		w.pass(3 * time.Second)
		for _, at := range ids {
			for name, id := range owner {
				if at == id {
					id = ""
				}
				w.expect(at, name, id)
			}
			if n := w.tables[at].Routes(); n > len(owner) {
				t.Errorf("seed %d: %d routes at %s of %d sessions", seed, n, at, len(owner))
			}
		}
		w.sent = 0
		w.pass(10 * time.Second)
		if most := len(ids) * 41; w.sent > most {
			t.Errorf("seed %d: an idle cluster sends %d messages in 10 s, want at most %d", seed, w.sent, most)
		}
		if t.Failed() {
			return
		}
	}
}

// checkIndex compares a table's indexes with its members.
func checkIndex(t *testing.T, table *Table) {
	t.Helper()
	claims := 0
	for _, o := range table.members {
		claims += len(o.namespaces)
		for key := range o.namespaces {
			if !slices.Contains(table.holders[key], o) {
				t.Errorf("%s is not a holder of %s", o.id, key)
			}
		}
	}
	held := 0
	for _, list := range table.holders {
		held += len(list)
	}
	if held != claims {
		t.Errorf("%d holders of %d claims", held, claims)
	}
	if table.nearby == nil {
		return
	}
	nearby := 0
	for _, o := range table.members {
		if table.near(o) && o.settled && !o.Leaving {
			nearby++
			if !slices.Contains(table.nearby, o) {
				t.Errorf("%s is not nearby", o.id)
			}
		}
	}
	if len(table.nearby) != nearby {
		t.Errorf("%d relays nearby, want %d", len(table.nearby), nearby)
	}
}

// TestTableBounds checks the memory that hostile members can take, and the messages that they cause.
func TestTableBounds(t *testing.T) {
	w := newWorld(t, "a")
	a := w.tables["a"]
	hello := &Message{Kind: Hello, From: "million", Version: 7, Digest: Digest{1_000_000, 1}}
	if send := a.Receive(w.now, hello); len(send) != 1 || send[0].Kind != Request {
		t.Fatalf("%+v", send)
	}
	const parts = 1_000_000 / MaxNamespaces
	for part := range uint64(parts) {
		m := &Message{Kind: State, From: "million", Version: 7, Part: part, Parts: parts}
		for i := range uint64(MaxNamespaces) {
			m.Added = append(m.Added, Claim{Namespace: moqt.Namespace{fmt.Sprint(part, i)}})
		}
		a.Receive(w.now, m)
		if n := len(a.members["million"].parts); n > MaxNamespaces+1 {
			t.Fatalf("%d namespaces kept of an incomplete state", n)
		}
	}
	a.Changes()
	if list := a.Members(); a.Routes() != MaxNamespaces || !list[0].Excess {
		t.Errorf("%d routes, %+v", a.Routes(), list)
	}
	for range 100 {
		w.now = w.now.Add(Heartbeat)
		if send := a.Receive(w.now, hello); len(send) > 0 {
			t.Fatalf("asked again: %+v", send[0])
		}
	}
	a.Receive(w.now, &Message{Kind: Change, From: "million", Version: 8, Added: []Claim{{Namespace: moqt.Namespace{"more"}}}})
	a.Changes()
	if a.Routes() != MaxNamespaces {
		t.Errorf("%d routes", a.Routes())
	}
	for i := range 2 * MaxMembers {
		a.Receive(w.now, &Message{Kind: Hello, From: fmt.Sprint(i)})
	}
	if n := len(a.Members()); n != MaxMembers {
		t.Errorf("%d members", n)
	}
	answers := 0
	for i := range 1000 {
		answers += len(a.Receive(w.now, &Message{Kind: Request, From: fmt.Sprint(i), To: "a"}))
	}
	if answers > 2 {
		t.Errorf("%d answers to requests at one time", answers)
	}
	var list []moqt.Namespace
	for i := range 2 * MaxNamespaces {
		list = append(list, moqt.Namespace{fmt.Sprint(i)})
	}
	for _, m := range a.Publish(w.now, list, nil) {
		if _, err := Parse(m.Append(nil)); err != nil {
			t.Error(err)
		}
	}
	if len(a.local) != MaxNamespaces {
		t.Errorf("%d own namespaces", len(a.local))
	}
}

// TestTableOwner checks that of two relays that claim a namespace, the same one keeps it at all relays: the
// first, or the one with the smaller ID. The other gives it up, unless one of them leaves meanwhile.
func TestTableOwner(t *testing.T) {
	lost := func(w *world, id string) []Lost {
		w.tables[id].Changes()
		return w.tables[id].Lost()
	}
	for _, tt := range []struct {
		name string
		run  func(w *world)
		lost map[string]string // relay that gives up, and to whom
	}{
		{"claimed during a partition", func(w *world) {
			w.cut["b"] = true
			w.publish("b", "one")
			w.pass(time.Second)
			w.publish("a", "one")
			w.pass(30 * time.Second)
			w.cut = map[string]bool{}
			w.pass(contestAge + time.Second)
		}, map[string]string{"a": "b"}},
		{"claimed at the same time", func(w *world) {
			w.cut = map[string]bool{"a": true, "b": true, "c": true}
			for _, id := range []string{"c", "b"} {
				w.publish(id, "one")
			}
			w.cut = map[string]bool{}
			w.pass(contestAge + time.Second)
		}, map[string]string{"c": "b"}},
		{"claimed by three", func(w *world) {
			w.cut = map[string]bool{"a": true, "b": true, "c": true}
			for _, id := range []string{"c", "b", "a"} {
				w.publish(id, "one")
				w.pass(time.Second)
			}
			w.cut = map[string]bool{}
			w.pass(contestAge + time.Second)
		}, map[string]string{"a": "c", "b": "c"}},
		{"moved from a relay that is silent, not known to be gone", func(w *world) {
			w.publish("a", "one")
			w.pass(time.Second)
			w.cut = map[string]bool{"a": true, "b": true, "c": true}
			w.publish("b", "one")
			w.pass(Keep - time.Second)
		}, nil},
		{"moved, and withdrawn at the first relay in time", func(w *world) {
			w.publish("a", "one")
			w.pass(time.Second)
			w.publish("b", "one")
			w.pass(contestAge - time.Second)
			w.publish("a")
			w.pass(contestAge)
		}, nil},
		{"moved from a relay that leaves", func(w *world) {
			w.publish("a", "one")
			w.send("a", w.tables["a"].SetLoad(Load{Leaving: true}))
			w.publish("b", "one")
			w.pass(10 * contestAge)
		}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, "a", "b", "c")
			w.pass(2 * Heartbeat)
			tt.run(w)
			for id := range w.tables {
				var to string
				for _, l := range lost(w, id) {
					to = l.To
				}
				if to != tt.lost[id] {
					t.Errorf("%s gives the namespace up to %q, want %q", id, to, tt.lost[id])
				}
				if to != "" {
					w.publish(id)
				}
			}
			w.pass(time.Second)
			owners := 0
			for _, table := range w.tables {
				owners += len(table.local)
			}
			if tt.lost != nil && owners != 1 {
				t.Errorf("%d owners", owners)
			}
		})
	}
	w := newWorld(t, "a", "b")
	for id := range w.tables {
		w.tables[id].single = false
		w.publish(id, "one")
	}
	w.pass(10 * contestAge)
	for id := range w.tables {
		if list := lost(w, id); len(list) > 0 {
			t.Errorf("with backups, %s gives up %+v", id, list)
		}
	}
}

// TestTableRedirect checks which relays clients are sent to and told of.
func TestTableRedirect(t *testing.T) {
	w := newWorld(t, "a")
	a := w.tables["a"]
	if to := a.Redirect(); to != "" {
		t.Errorf("alone: %q", to)
	}
	for id, o := range map[string]struct {
		region, public string
		load           Load
	}{
		"b": {load: Load{Sessions: 2, Room: 10}},
		"c": {load: Load{Sessions: 1, Room: 10}, public: "moqt://c.example"},
		"d": {load: Load{Sessions: 0, Room: 0}},
		"e": {load: Load{Sessions: 0, Room: 10, Leaving: true}},
		"f": {load: Load{Sessions: 0, Room: 3}, region: "far"},
		"g": {load: Load{Sessions: 9, Room: 1}},
	} {
		a.Receive(w.now, &Message{
			Kind: Hello, From: id, Info: Info{URL: "moqt://" + id, Region: o.region, Public: o.public}, Load: o.load,
		})
	}
	var urls []string
	for _, r := range a.Roster(nil) {
		urls = append(urls, fmt.Sprint(r.URL, " ", r.Cost))
	}
	if want := []string{"moqt://c.example 0", "moqt://b 0", "moqt://g 0"}; !slices.Equal(urls, want) {
		t.Errorf("roster %q, want %q", urls, want)
	}
	count := map[string]int{}
	for range 24 {
		count[a.Redirect()]++
	}
	want := map[string]int{"moqt://c.example": 10, "moqt://b": 10, "moqt://g": 1, "moqt://f": 3}
	if !maps.Equal(count, want) {
		t.Errorf("redirected %v, want %v", count, want)
	}
	if to := a.Redirect(); to != "" {
		t.Errorf("without room: %q", to)
	}
	w.pass(Silence + Heartbeat) // all fall silent together
	if to := a.Redirect(); to != "" {
		t.Errorf("redirected to a silent relay: %q", to)
	}
	before := a.Roster(nil)
	a.Receive(w.now, &Message{Kind: Hello, From: "b", Info: Info{URL: "moqt://b"}, Load: Load{Sessions: 0, Room: 12}})
	if next := a.Roster(before); !slices.Equal(next, before) {
		t.Errorf("the roster follows the load: %+v, then %+v", before, next)
	}
	a.Receive(w.now, &Message{Kind: Bye, From: "c"})
	if next := a.Roster(before); len(next) != 3 || slices.Equal(next, before) {
		t.Errorf("the roster without a relay that left: %+v", next)
	}
}
