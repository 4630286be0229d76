package cluster

import (
	"cmp"
	"encoding/hex"
	"hash/fnv"
	"maps"
	"slices"
	"time"

	"holocast/internal/moqt"
	"holocast/internal/roster"
	"holocast/relay/auth"
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

// leavingCost is the cost of a path to a relay that leaves or does not answer. Any other path replaces it.
const leavingCost = 1e6

// gatewayAfter is the time before a new relay may become a gateway. It has learned the routes by then.
const gatewayAfter = 2 * time.Second

// contestAge is how long two relays must claim a namespace until the later one gives it up. It exceeds the
// idle timeout of sessions.
const contestAge = 6 * time.Second

// Table holds the routes of a cluster as known to one relay. It does no I/O and reads no clock. Its
// methods return the messages to send, and record the routes that changed for Changes.
type Table struct {
	id   string
	info Info

	version uint64
	local   map[string]Claim
	digest  Digest
	load    Load

	// single means that a namespace has one owner. contested holds the namespaces that another relay
	// claims too, with the time at which this was noticed, and lost those that this relay must give up.
	single    bool
	contested map[string]time.Time
	lost      []Lost

	revoked revocations
	tokens  tokens

	members map[string]*member
	holders map[string][]*member // members that claim a namespace, by its key
	nearby  []*member            // that may be gateways of this region; nil if unknown
	heard   time.Time            // last message of any member
	resumed time.Time            // first message after none was heard for a while
	said    time.Time            // last Hello
	now     time.Time            // last Tick
	swept   time.Time            // last sweep
	stated  time.Time            // last State
	asked   bool                 // a State is due

	routes  map[string]Route
	changed map[string]moqt.Namespace // namespaces to choose again
	full    uint64                    // members refused because of MaxMembers
}

// member is another relay.
type member struct {
	id string
	Info
	Load
	redirected  uint64 // clients sent to it since its last Hello
	first, seen time.Time
	answered    time.Time // last answer on a session
	settled     bool      // known for gatewayAfter
	suspect     bool      // does not answer
	asked       time.Time
	said        Digest // of its last Hello
	saidVersion uint64

	version    uint64
	digest     Digest
	namespaces map[string]Claim
	tokens     map[auth.TokenID]announced
	parts      []Claim // of an incomplete State
	part       uint64  // the next one
	partsOf    uint64  // version of the incomplete State
	excess     bool    // it announced more than MaxNamespaces; the rest is ignored
	cost       float64 // measured round-trip time in milliseconds; 0 = unknown
}

// Route is the relay that serves a namespace.
type Route struct {
	Namespace moqt.Namespace
	ID        string // relay of the publisher; "" = none
	// Via is the gateway through which this relay reaches that relay in another region, or "". Onward means
	// that this relay is the gateway for its region.
	Via    string
	Onward bool
}

// next returns the ID of the relay to subscribe at.
func (r *Route) next() string { return cmp.Or(r.Via, r.ID) }

// Lost is a namespace whose first publisher is at another relay.
type Lost struct {
	Namespace moqt.Namespace
	To        string // name of that relay
}

// NewTable returns a table for a relay. version must exceed the versions of an earlier table with the
// same id. single means that a namespace has one owner, the first.
func NewTable(id string, info Info, version uint64, single bool) *Table {
	return &Table{
		id: id, info: info, version: version, single: single,
		local: map[string]Claim{}, contested: map[string]time.Time{},
		members: map[string]*member{}, holders: map[string][]*member{}, routes: map[string]Route{},
		changed: map[string]moqt.Namespace{},
	}
}

// SetHash changes the hash of the relay's certificate.
func (t *Table) SetHash(hash [32]byte) { t.info.Hash = hash }

// SetLoad changes the load that the next Hello reports. It returns a Hello if the relay begins to leave.
func (t *Table) SetLoad(l Load) (send []*Message) {
	began := l.Leaving && !t.load.Leaving
	if t.load = l; began {
		send = append(send, t.hello())
	}
	return send
}

// Publish changes the namespaces published at this relay. Namespaces beyond MaxNamespaces are not
// announced.
func (t *Table) Publish(now time.Time, published, withdrawn []moqt.Namespace) []*Message {
	var claims []Claim
	for _, ns := range published {
		claims = append(claims, Claim{ns, uint64(now.UnixMicro())})
	}
	return t.claim(now, claims, withdrawn)
}

func (t *Table) claim(now time.Time, claims []Claim, withdrawn []moqt.Namespace) (send []*Message) {
	var added []Claim
	var removed []moqt.Namespace
	for _, ns := range withdrawn {
		key := ns.String()
		if c, own := t.local[key]; own {
			delete(t.local, key)
			t.digest.add(c, -1)
			t.changed[key] = ns
			removed = append(removed, ns)
		}
	}
	for _, c := range claims {
		key := c.String()
		if _, own := t.local[key]; !own && len(t.local) < MaxNamespaces {
			t.local[key] = c
			t.digest.add(c, 1)
			t.changed[key] = c.Namespace
			t.contest(now, key)
			added = append(added, c)
		}
	}
	for _, part := range split(added, claimed) {
		if len(part) > 0 {
			t.version++
			send = append(send, &Message{Kind: Change, From: t.id, Version: t.version, Added: part})
		}
	}
	for _, part := range split(removed, func(ns moqt.Namespace) moqt.Namespace { return ns }) {
		if len(part) > 0 {
			t.version++
			send = append(send, &Message{Kind: Change, From: t.id, Version: t.version, Removed: part})
		}
	}
	return send
}

func claimed(c Claim) moqt.Namespace { return c.Namespace }

// Start returns the first messages.
func (t *Table) Start(now time.Time) []*Message {
	t.said = now
	return []*Message{t.hello(), {Kind: Request, From: t.id}}
}

// Leave returns the last message.
func (t *Table) Leave() []*Message { return []*Message{{Kind: Bye, From: t.id, Version: t.version}} }

func (t *Table) hello() *Message {
	return &Message{Kind: Hello, From: t.id, Version: t.version, Info: t.info, Load: t.load, Digest: t.digest}
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
		o = &member{id: m.From, namespaces: map[string]Claim{}, first: now}
		t.members[m.From] = o
	}
	if now.Sub(t.heard) > heardLater {
		t.resumed = now
	}
	o.seen, t.heard = now, now
	switch m.Kind {
	case Hello:
		if o.Info != m.Info || o.Leaving != m.Leaving {
			t.choosePaths(o)
			if o.settled && t.near(o) || m.Region == t.info.Region {
				t.chooseGateways()
			}
		}
		o.Info, o.Load, o.redirected, o.said, o.saidVersion = m.Info, m.Load, 0, m.Digest, m.Version
	case Change:
		if m.Version != o.version+1 {
			break // a State follows the next Hello
		}
		o.version = m.Version
		for _, ns := range m.Removed {
			t.drop(o, ns)
		}
		for _, c := range m.Added {
			t.learn(now, o, c)
		}
	case State:
		t.receiveState(now, o, m)
	case Revoke:
		t.receiveRevoked(o, m)
	case Tokens:
		t.receiveTokens(now, o, m.Tokens)
	}
	return append(send, t.ask(now, m.From, o)...)
}

// receiveState collects the parts of a State, which arrive in order, and applies them.
func (t *Table) receiveState(now time.Time, o *member, m *Message) {
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
	for _, c := range o.parts {
		kept[c.String()] = true
	}
	for key, c := range o.namespaces {
		if !kept[key] {
			t.drop(o, c.Namespace)
		}
	}
	o.excess = false
	for _, c := range o.parts {
		t.learn(now, o, c)
	}
	o.version, o.parts, o.part = m.Version, nil, 0
}

func (t *Table) learn(now time.Time, o *member, c Claim) {
	key := c.String()
	if known, ok := o.namespaces[key]; ok {
		if known.Time == c.Time {
			return
		}
		t.drop(o, c.Namespace)
	}
	if len(o.namespaces) >= MaxNamespaces {
		o.excess = true
		return
	}
	o.namespaces[key] = c
	t.holders[key] = append(t.holders[key], o)
	o.digest.add(c, 1)
	t.changed[key] = c.Namespace
	t.contest(now, key)
}

func (t *Table) drop(o *member, ns moqt.Namespace) {
	key := ns.String()
	c, known := o.namespaces[key]
	if !known {
		return
	}
	delete(o.namespaces, key)
	t.release(key, o)
	o.digest.add(c, -1)
	t.changed[key] = ns
}

// release removes a member from the holders of a namespace.
func (t *Table) release(key string, o *member) {
	left := slices.DeleteFunc(t.holders[key], func(holder *member) bool { return holder == o })
	if len(left) > 0 {
		t.holders[key] = left
	} else {
		delete(t.holders, key)
	}
}

// choosePaths chooses the paths to all namespaces of a member again.
func (t *Table) choosePaths(o *member) {
	for key, c := range o.namespaces {
		t.changed[key] = c.Namespace
	}
}

// contest notes a namespace if this relay and another one claim it.
func (t *Table) contest(now time.Time, key string) {
	if _, own := t.local[key]; !own || !t.single {
		return
	}
	if _, noted := t.contested[key]; !noted && len(t.holders[key]) > 0 {
		t.contested[key] = now
	}
}

// settle gives up the namespaces that another relay claimed first. It waits for contestAge, during which
// all relays that claim it are heard, since a publisher that moves or reconnects has two claims until its
// old session ends.
func (t *Table) settle(now time.Time) {
	for key, since := range t.contested {
		own, has := t.local[key]
		first, to, others, cut := own.Time, t.id, false, false
		var name string
		for _, o := range t.holders[key] {
			c := o.namespaces[key]
			if o.Leaving {
				continue
			}
			if now.Sub(o.seen) > Silence { // it may have no publisher any more
				cut = true
				continue
			}
			others = true
			if c.Time < first || c.Time == first && o.id < to {
				first, to, name = c.Time, o.id, o.Name
			}
		}
		switch {
		case cut && has:
			t.contested[key] = now
		case !has || !others:
			delete(t.contested, key)
		case to != t.id && now.Sub(since) >= contestAge:
			delete(t.contested, key)
			t.lost = append(t.lost, Lost{own.Namespace, name})
		}
	}
}

// Lost returns the namespaces that this relay lost since the last call.
func (t *Table) Lost() []Lost {
	lost := t.lost
	t.lost = nil
	return lost
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
	t.revoked.sent, t.tokens.repeated = time.Time{}, time.Time{} // a relay that starts needs those too
	send = []*Message{t.hello()}
	parts := split(slices.Collect(maps.Values(t.local)), claimed)
	for i, part := range parts {
		send = append(send, &Message{
			Kind: State, From: t.id, Version: t.version, Part: uint64(i), Parts: uint64(len(parts)), Added: part,
		})
	}
	return send
}

// Tick sends due messages and removes relays that have left. Call it a few times per Heartbeat.
func (t *Table) Tick(now time.Time) (send []*Message) {
	t.now = now
	if now.Sub(t.swept) >= Heartbeat/2 {
		t.swept = now
		t.sweep(now)
	}
	t.settle(now)
	send = t.state(now)
	if now.Sub(t.revoked.sent) >= repeatRevoked {
		send = append(send, t.announceRevoked(now)...)
	}
	send = append(send, t.tickTokens(now)...)
	if now.Sub(t.said) >= Heartbeat {
		t.said = now
		send = append(send, t.hello())
	}
	return send
}

// sweep removes members that have left.
func (t *Table) sweep(now time.Time) {
	for id, o := range t.members {
		seen := o.seen
		for _, later := range []time.Time{t.resumed, o.answered} {
			if later.After(seen) {
				seen = later
			}
		}
		switch {
		case now.Sub(o.seen) > Keep, now.Sub(seen) > Silence && t.heard.Sub(seen) > heardLater:
			t.remove(id)
		case o.part > 0 && now.Sub(o.asked) > Silence: // the rest of its State was lost
			o.parts, o.part = nil, 0
		}
		if !o.settled && now.Sub(o.first) >= gatewayAfter {
			o.settled = true
			if t.near(o) {
				t.chooseGateways()
			}
		}
	}
}

func (t *Table) remove(id string) {
	o := t.members[id]
	delete(t.members, id)
	for token, a := range o.tokens {
		t.tokens.forget(token, a)
	}
	t.choosePaths(o)
	for key := range o.namespaces {
		t.release(key, o)
	}
	if t.near(o) {
		t.chooseGateways()
	}
}

// SetCost sets the measured round-trip time to a member, in milliseconds.
func (t *Table) SetCost(id string, cost float64) {
	o := t.members[id]
	if o == nil || o.cost == cost {
		return
	}
	o.cost = cost
	t.choosePaths(o)
}

// Answers records that a member answers on its session with this relay. It is then not gone, though it may
// be unheard for a while, as during an upgrade.
func (t *Table) Answers(now time.Time, id string) {
	if o := t.members[id]; o != nil {
		o.answered = now
	}
}

// Suspect records whether a member does not answer. Until it does or is gone, other relays replace it
// where they can: this relay passes by a gateway, and prefers other relays that serve a namespace.
func (t *Table) Suspect(id string, yes bool) {
	o := t.members[id]
	if o == nil || o.suspect == yes {
		return
	}
	o.suspect = yes
	t.choosePaths(o)
	if t.near(o) {
		t.chooseGateways()
	}
}

// costOf returns the cost of the path to a member.
func (t *Table) costOf(o *member) float64 {
	switch {
	case o.Leaving, o.suspect:
		return leavingCost
	case o.cost > 0:
		return o.cost
	case o.Region == t.info.Region:
		return 1
	}
	return regionCost
}

// near reports whether a member is in this relay's region.
func (t *Table) near(o *member) bool { return o.Region != "" && o.Region == t.info.Region }

// chooseGateways chooses the gateways of all namespaces again, after a change of the members near this relay.
func (t *Table) chooseGateways() {
	t.nearby = nil
	for key, route := range t.routes {
		t.changed[key] = route.Namespace
	}
}

// gateway returns the ID of the relay of this region that passes a namespace of another region on to the
// others. All relays of the region choose the same one once they know each other; a relay that joins or
// leaves moves its own share of the namespaces only (rendezvous hashing).
func (t *Table) gateway(key string) string {
	if t.nearby == nil {
		t.nearby = []*member{}
		for _, o := range t.members {
			if t.near(o) && o.settled && !o.Leaving {
				t.nearby = append(t.nearby, o)
			}
		}
	}
	best, most := t.id, weight(t.id, key)
	for _, o := range t.nearby {
		if w := weight(o.id, key); w > most || w == most && o.id < best {
			best, most = o.id, w
		}
	}
	return best
}

func weight(id, key string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(id))
	_, _ = h.Write([]byte(key))
	x := h.Sum64() // whose high bits depend little on the last bytes
	x ^= x >> 32
	x *= 0x9e3779b97f4a7c15
	return x ^ x>>32
}

// Changes returns the routes that changed since its last call. A namespace published at this relay has
// no route.
func (t *Table) Changes() (list []Route) {
	for key, ns := range t.changed {
		before := t.routes[key]
		route := Route{Namespace: ns, ID: t.choose(key, before.ID)}
		if o := t.members[route.ID]; o != nil && t.info.Region != "" && !t.near(o) {
			switch id := t.gateway(key); {
			case id == t.id:
				route.Onward = true
			case !t.members[id].suspect:
				route.Via = id
			}
		}
		if route.ID == before.ID && route.Via == before.Via && route.Onward == before.Onward {
			continue
		}
		if route.ID == "" {
			delete(t.routes, key)
		} else {
			t.routes[key] = route
		}
		list = append(list, route)
	}
	clear(t.changed)
	return list
}

// choose returns the ID of the relay with the cheapest path, or the current one unless that path is
// much cheaper.
func (t *Table) choose(key, current string) string {
	if _, own := t.local[key]; own || t.load.Leaving && current == "" {
		return "" // the publisher of a relay that leaves serves it until its clients have moved
	}
	best, lowest, now := "", 0.0, -1.0
	for _, o := range t.holders[key] {
		cost := t.costOf(o)
		if o.id == current {
			now = cost
		}
		if best == "" || cost < lowest || cost == lowest && o.id < best {
			best, lowest = o.id, cost
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
	Load
	ID         string
	Seen       time.Time
	Namespaces int
	Excess     bool    // it announced more than MaxNamespaces; the rest is ignored
	Cost       float64 // measured round-trip time in milliseconds; 0 = unknown
	Suspect    bool    // its sessions do not answer or cannot be opened
}

// Members lists the other relays by ID.
func (t *Table) Members() []Member {
	list := make([]Member, 0, len(t.members))
	for id, o := range t.members {
		list = append(list, Member{o.Info, o.Load, id, o.seen, len(o.namespaces), o.excess, o.cost, o.suspect})
	}
	slices.SortFunc(list, func(a, b Member) int { return cmp.Compare(a.ID, b.ID) })
	return list
}

// Redirect returns the URL of the relay that a client should use instead of this one, or "" if none has
// room: of those in the region, or else of all, the one with the fewest sessions. See forClients.
func (t *Table) Redirect() string {
	var best *member
	for _, o := range t.members {
		if o.Leaving || o.redirected >= o.Room || t.now.Sub(o.seen) > Silence {
			continue
		}
		if best == nil || t.before(o, best) {
			best = o
		}
	}
	if best == nil {
		return ""
	}
	best.redirected++
	return best.forClients()
}

// forClients returns the relay's URL for clients. Its fragment is the hash of the relay's certificate if clients
// need it.
func (i *Info) forClients() string {
	if i.SelfSigned {
		return i.public() + "#" + hex.EncodeToString(i.Hash[:])
	}
	return i.public()
}

// before reports whether clients of this relay should prefer a to b.
func (t *Table) before(a, b *member) bool {
	if near := a.Region == t.info.Region; near != (b.Region == t.info.Region) {
		return near
	}
	x, y := a.Sessions+a.redirected, b.Sessions+b.redirected
	return x < y || x == y && a.URL < b.URL
}

// Reference returns the ID of the relay whose clock the others follow, or "" if it is this one: the relay
// that joined first.
func (t *Table) Reference() (id string) {
	since, first := t.info.Since, t.id
	for other, o := range t.members {
		if o.Since < since || o.Since == since && other < first {
			since, first, id = o.Since, other, other
		}
	}
	return id
}

// maxRoster is the number of relays in a roster.
const maxRoster = 3

// Roster returns the relays that clients may use instead of this one. It keeps those in before as long as
// they are there, and otherwise chooses as Redirect does.
func (t *Table) Roster(before []roster.Relay) (list []roster.Relay) {
	var fit []*member
	for _, o := range t.members {
		if !o.Leaving && o.Room > 0 {
			fit = append(fit, o)
		}
	}
	slices.SortFunc(fit, func(a, b *member) int {
		switch {
		case t.before(a, b):
			return -1
		case t.before(b, a):
			return 1
		}
		return 0
	})
	kept := 0
	var all []roster.Relay
	for _, o := range fit {
		r := roster.Relay{URL: o.public(), SHA256: hex.EncodeToString(o.Hash[:])}
		if o.Region != t.info.Region {
			r.Cost = 1
		}
		if slices.Contains(before, r) {
			kept++
		}
		all = append(all, r)
	}
	if kept == len(before) && kept >= min(len(all), maxRoster) {
		return before
	}
	return all[:min(len(all), maxRoster)]
}

// Near reports whether another relay, by its name, is known to be in this relay's region.
func (t *Table) Near(name string) bool {
	for _, o := range t.members {
		if o.Name == name {
			return t.near(o)
		}
	}
	return false
}

// Routes returns the number of namespaces that other relays serve.
func (t *Table) Routes() int { return len(t.routes) }

// RoutesBy lists the namespaces that each other relay serves, by the relay's ID, in order.
func (t *Table) RoutesBy() map[string][]moqt.Namespace {
	by := map[string][]moqt.Namespace{}
	for _, route := range t.routes {
		by[route.next()] = append(by[route.next()], route.Namespace)
	}
	for _, list := range by {
		slices.SortFunc(list, func(a, b moqt.Namespace) int { return slices.Compare(a, b) })
	}
	return by
}
