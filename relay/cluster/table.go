package cluster

import (
	"cmp"
	"slices"
	"time"

	"holocast/internal/moqt"
)

// Times of the protocol.
const (
	// Heartbeat is the interval between a relay's Hellos.
	Heartbeat = 250 * time.Millisecond
	// Silence is the time after which a silent relay is gone, if others are still heard.
	Silence = time.Second
	// heardLater is the time for which other relays must be heard after a silent one. Relays that fall
	// silent together are cut off, not gone.
	heardLater = 2 * Heartbeat
	// Keep is the lifetime of routes while no other relay is heard.
	Keep = 5 * time.Minute
)

// hysteresis is the ratio of costs below which another path replaces the current one.
const hysteresis = 0.8

// regionCost is the cost of a path to another region, in milliseconds of round-trip time, until it is
// measured.
const regionCost = 50

// Table holds the routes of a cluster as known to one relay. It does no I/O and reads no clock. Its
// methods return the messages to send, and record the routes that changed for Changes.
type Table struct {
	id   string
	info Info

	version uint64
	local   map[string]moqt.Namespace
	digest  Digest

	members map[string]*member
	heard   time.Time // last message of any member
	resumed time.Time // first message after none was heard for a while
	said    time.Time // last Hello
	stated  time.Time // last State
	asked   bool      // a State is due

	routes  map[string]Route
	changed map[string]moqt.Namespace // namespaces to choose again
	full    uint64                    // members refused because of MaxMembers
}

// member is another relay.
type member struct {
	Info
	seen, asked time.Time
	said        Digest // of its last Hello
	saidVersion uint64

	version    uint64
	digest     Digest
	namespaces map[string]moqt.Namespace
	parts      []moqt.Namespace // of an incomplete State
	part       uint64           // the next one
	partsOf    uint64           // version of the incomplete State
	excess     bool             // it announced more than MaxNamespaces; the rest is ignored
	cost       float64          // measured round-trip time in milliseconds; 0 = unknown
}

// Route is the relay that serves a namespace.
type Route struct {
	Namespace moqt.Namespace
	ID        string // relay that serves it; "" = none
}

// NewTable returns a table for a relay. version must exceed the versions of an earlier table with the
// same id.
func NewTable(id string, info Info, version uint64) *Table {
	return &Table{
		id: id, info: info, version: version,
		local: map[string]moqt.Namespace{}, members: map[string]*member{}, routes: map[string]Route{},
		changed: map[string]moqt.Namespace{},
	}
}

// SetHash changes the hash of the relay's certificate.
func (t *Table) SetHash(hash [32]byte) { t.info.Hash = hash }

// Publish changes the namespaces published at this relay. Namespaces beyond MaxNamespaces are not
// announced.
func (t *Table) Publish(published, withdrawn []moqt.Namespace) (send []*Message) {
	var added, removed []moqt.Namespace
	for _, ns := range withdrawn {
		if key := ns.String(); t.local[key] != nil {
			delete(t.local, key)
			removed = append(removed, ns)
		}
	}
	for _, ns := range published {
		if key := ns.String(); t.local[key] == nil && len(t.local) < MaxNamespaces {
			t.local[key] = ns
			added = append(added, ns)
		}
	}
	for i, list := range [][]moqt.Namespace{added, removed} {
		for _, part := range split(list) {
			if len(part) == 0 {
				continue
			}
			for _, ns := range part {
				t.digest.add(ns, 1-2*i)
				t.changed[ns.String()] = ns
			}
			t.version++
			m := &Message{Kind: Change, From: t.id, Version: t.version}
			if i == 0 {
				m.Added = part
			} else {
				m.Removed = part
			}
			send = append(send, m)
		}
	}
	return send
}

// Start returns the first messages.
func (t *Table) Start(now time.Time) []*Message {
	t.said = now
	return []*Message{t.hello(), {Kind: Request, From: t.id}}
}

// Leave returns the last message.
func (t *Table) Leave() []*Message { return []*Message{{Kind: Bye, From: t.id, Version: t.version}} }

func (t *Table) hello() *Message {
	return &Message{Kind: Hello, From: t.id, Version: t.version, Info: t.info, Digest: t.digest}
}

// Receive handles a message.
func (t *Table) Receive(now time.Time, m *Message) (send []*Message) {
	if m.From == t.id {
		return nil
	}
	if m.Kind == Request && (m.To == t.id || m.To == "") {
		t.asked = true
		send = t.state(now)
	}
	o := t.members[m.From]
	switch {
	case m.Kind == Bye:
		if o != nil {
			t.remove(m.From)
		}
		return send
	case o == nil && m.Kind != Hello:
		return send // its Hello follows
	case o == nil && len(t.members) >= MaxMembers:
		t.full++
		return send
	case o == nil:
		o = &member{namespaces: map[string]moqt.Namespace{}}
		t.members[m.From] = o
	}
	if now.Sub(t.heard) > heardLater {
		t.resumed = now
	}
	o.seen, t.heard = now, now
	switch m.Kind {
	case Hello:
		if o.Info != m.Info {
			for _, ns := range o.namespaces {
				t.changed[ns.String()] = ns
			}
		}
		o.Info, o.said, o.saidVersion = m.Info, m.Digest, m.Version
	case Change:
		if m.Version != o.version+1 {
			break // a State follows the next Hello
		}
		o.version = m.Version
		for _, ns := range m.Removed {
			t.drop(o, ns)
		}
		for _, ns := range m.Added {
			t.learn(o, ns)
		}
	case State:
		t.receiveState(o, m)
	}
	return append(send, t.ask(now, m.From, o)...)
}

// receiveState collects the parts of a State, which arrive in order, and applies them.
func (t *Table) receiveState(o *member, m *Message) {
	if m.Version < o.version {
		return
	}
	if m.Part == 0 {
		o.parts, o.part, o.partsOf = nil, 0, m.Version
	}
	if m.Part != o.part || m.Version != o.partsOf {
		return
	}
	o.parts = append(o.parts, m.Added[:min(len(m.Added), MaxNamespaces+1-len(o.parts))]...)
	if o.part++; o.part < m.Parts {
		return
	}
	kept := map[string]bool{}
	for _, ns := range o.parts {
		kept[ns.String()] = true
	}
	for key, ns := range o.namespaces {
		if !kept[key] {
			t.drop(o, ns)
		}
	}
	o.excess = false
	for _, ns := range o.parts {
		t.learn(o, ns)
	}
	o.version, o.parts, o.part = m.Version, nil, 0
}

func (t *Table) learn(o *member, ns moqt.Namespace) {
	key := ns.String()
	if _, known := o.namespaces[key]; known {
		return
	}
	if len(o.namespaces) >= MaxNamespaces {
		o.excess = true
		return
	}
	o.namespaces[key] = ns
	o.digest.add(ns, 1)
	t.changed[key] = ns
}

func (t *Table) drop(o *member, ns moqt.Namespace) {
	key := ns.String()
	if _, known := o.namespaces[key]; !known {
		return
	}
	delete(o.namespaces, key)
	o.digest.add(ns, -1)
	t.changed[key] = ns
}

// ask requests a member's State, at most once per Heartbeat, if its Hello differs from the table.
func (t *Table) ask(now time.Time, id string, o *member) []*Message {
	same := o.said == o.digest && o.saidVersion <= o.version
	if same || o.excess && o.saidVersion == o.version || now.Sub(o.asked) < Heartbeat || o.part > 0 {
		return nil
	}
	if o.saidVersion < o.version { // a Change has overtaken the Hello
		return nil
	}
	o.asked = now
	return []*Message{{Kind: Request, From: t.id, To: id}}
}

// state returns the State that is due, at most once per Heartbeat.
func (t *Table) state(now time.Time) (send []*Message) {
	if !t.asked || now.Sub(t.stated) < Heartbeat {
		return nil
	}
	t.asked, t.stated, t.said = false, now, now
	send = []*Message{t.hello()}
	list := make([]moqt.Namespace, 0, len(t.local))
	for _, ns := range t.local {
		list = append(list, ns)
	}
	parts := split(list)
	for i, part := range parts {
		send = append(send, &Message{
			Kind: State, From: t.id, Version: t.version, Part: uint64(i), Parts: uint64(len(parts)), Added: part,
		})
	}
	return send
}

// Tick sends due messages and removes relays that have left. Call it a few times per Heartbeat.
func (t *Table) Tick(now time.Time) (send []*Message) {
	for id, o := range t.members {
		seen := o.seen
		if t.resumed.After(seen) {
			seen = t.resumed
		}
		switch {
		case now.Sub(o.seen) > Keep, now.Sub(seen) > Silence && t.heard.Sub(seen) > heardLater:
			t.remove(id)
		case o.part > 0 && now.Sub(o.asked) > Silence: // the rest of its State was lost
			o.parts, o.part = nil, 0
		}
	}
	send = t.state(now)
	if now.Sub(t.said) >= Heartbeat {
		t.said = now
		send = append(send, t.hello())
	}
	return send
}

func (t *Table) remove(id string) {
	for key, ns := range t.members[id].namespaces {
		t.changed[key] = ns
	}
	delete(t.members, id)
}

// SetCost sets the measured round-trip time to a member, in milliseconds.
func (t *Table) SetCost(id string, cost float64) {
	o := t.members[id]
	if o == nil || o.cost == cost {
		return
	}
	o.cost = cost
	for key, ns := range o.namespaces {
		t.changed[key] = ns
	}
}

// costOf returns the cost of the path to a member.
func (t *Table) costOf(o *member) float64 {
	switch {
	case o.cost > 0:
		return o.cost
	case o.Region == t.info.Region:
		return 1
	}
	return regionCost
}

// Changes returns the routes that changed since its last call. A namespace published at this relay has
// no route.
func (t *Table) Changes() (list []Route) {
	for key, ns := range t.changed {
		before := t.routes[key].ID
		next := t.choose(key, before)
		if next == before {
			continue
		}
		if next == "" {
			delete(t.routes, key)
		} else {
			t.routes[key] = Route{ns, next}
		}
		list = append(list, Route{ns, next})
	}
	clear(t.changed)
	return list
}

// choose returns the ID of the relay with the cheapest path, or the current one unless that path is
// much cheaper.
func (t *Table) choose(key, current string) string {
	if _, own := t.local[key]; own {
		return ""
	}
	best, lowest, now := "", 0.0, -1.0
	for id, o := range t.members {
		if _, has := o.namespaces[key]; !has {
			continue
		}
		cost := t.costOf(o)
		if id == current {
			now = cost
		}
		if best == "" || cost < lowest || cost == lowest && id < best {
			best, lowest = id, cost
		}
	}
	if now >= 0 && lowest > now*hysteresis {
		return current
	}
	return best
}

// Member is a relay as seen by a Table.
type Member struct {
	Info
	ID         string
	Seen       time.Time
	Namespaces int
	Excess     bool    // it announced more than MaxNamespaces; the rest is ignored
	Cost       float64 // measured round-trip time in milliseconds; 0 = unknown
}

// Members lists the other relays by ID.
func (t *Table) Members() []Member {
	list := make([]Member, 0, len(t.members))
	for id, o := range t.members {
		list = append(list, Member{o.Info, id, o.seen, len(o.namespaces), o.excess, o.cost})
	}
	slices.SortFunc(list, func(a, b Member) int { return cmp.Compare(a.ID, b.ID) })
	return list
}

// Routes returns the number of namespaces that other relays serve.
func (t *Table) Routes() int { return len(t.routes) }

// RoutesBy lists the namespaces that each other relay serves, by the relay's ID, in order.
func (t *Table) RoutesBy() map[string][]moqt.Namespace {
	by := map[string][]moqt.Namespace{}
	for _, route := range t.routes {
		by[route.ID] = append(by[route.ID], route.Namespace)
	}
	for _, list := range by {
		slices.SortFunc(list, func(a, b moqt.Namespace) int { return slices.Compare(a, b) })
	}
	return by
}
