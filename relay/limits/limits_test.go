package limits

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"testing"
	"time"

	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/origin"
)

// clocked is a Limits with a clock that the test controls.
type clocked struct {
	*Limits
	t  *testing.T
	at time.Time
}

func newClocked(t *testing.T, c Config) *clocked {
	k := &clocked{New(c, origin.NewMemory(1<<20)), t, time.Unix(1e9, 0)}
	k.now = func() time.Time { return k.at }
	return k
}

func udp(ip string) *net.UDPAddr { return &net.UDPAddr{IP: net.ParseIP(ip), Port: 4443} }

func (k *clocked) connect(ip string) *Peer {
	k.t.Helper()
	p, err := k.Connect(udp(ip))
	if err != nil {
		k.t.Fatal(err)
	}
	return p
}

// refusedBy returns the limit that err reports, or "" if it reports none.
func refusedBy(err error) string {
	if r := (*Refused)(nil); errors.As(err, &r) {
		return fmt.Sprintf("%s.%s", r.Kind, r.Scope)
	}
	return ""
}

// most acquires units until one is refused. It returns the number acquired and the reason for the
// refusal.
func most(p *Peer, k Kind) (n int, why string) {
	for {
		if err := p.Acquire(k, 1); err != nil {
			return n, refusedBy(err)
		}
		n++
	}
}

func TestScopes(t *testing.T) {
	for name, c := range map[string]struct {
		bounds Bounds
		peers  []string // addresses that acquire in turn until refused
		got    []int
		why    []string
	}{
		"session": {
			Bounds{Session: 3},
			[]string{"10.0.0.1", "10.0.0.1"},
			[]int{3, 3},
			[]string{"x.session", "x.session"},
		},
		"many": {
			Bounds{Address: 80},
			[]string{"10.0.0.1", "10.0.0.1", "10.0.0.1", "10.0.0.1"},
			[]int{60, 5, 5, 5},
			[]string{"x.address", "x.address", "x.address", "x.address"},
		},
		"address": {
			Bounds{Session: 8, Address: 8},
			[]string{"10.0.0.1", "10.0.0.1", "10.0.0.2"},
			[]int{6, 1, 8},
			[]string{"x.address", "x.address", "x.session"},
		},
		"all": {Bounds{All: 16}, []string{"10.0.0.1", "10.0.0.2"}, []int{12, 2}, []string{"x.all", "x.all"}},
		"one /64": {
			Bounds{Address: 4},
			[]string{"2001:db8::1", "2001:db8::2", "2001:db8:0:1::1"},
			[]int{3, 1, 4},
			[]string{"x.address", "x.address", "x.address"},
		},
		"nobody else": {Bounds{All: 16}, []string{"10.0.0.1"}, []int{16}, []string{"x.all"}},
		"mapped address": {
			Bounds{Address: 4},
			[]string{"::ffff:10.0.0.1", "10.0.0.1"},
			[]int{3, 1},
			[]string{"x.address", "x.address"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := newClocked(t, Config{Fetches: c.bounds})
			var peers []*Peer
			for _, ip := range c.peers {
				peers = append(peers, k.connect(ip))
			}
			for i, p := range peers {
				n, why := most(p, Fetches)
				if n != c.got[i] || why != "fetches"+c.why[i][1:] {
					t.Errorf("peer %d got %d, then %s; want %d, %s", i, n, why, c.got[i], c.why[i])
				}
			}
			for _, p := range peers {
				p.Close()
				p.Close()
				p.Release(Fetches, 1) // after the peer's end
			}
			for _, u := range k.Usage() {
				if u.Used != 0 {
					t.Errorf("%s.%s: %d still used", u.Kind, u.Scope, u.Used)
				}
			}
		})
	}
}

// TestRefusal checks that a refusal names the limit and the retry interval.
func TestRefusal(t *testing.T) {
	k := newClocked(t, Config{Subscriptions: Bounds{Session: 1}})
	p := k.connect("10.0.0.1")
	release, err := p.Hold(Subscriptions)
	if err != nil {
		t.Fatal(err)
	}
	_, err = p.Hold(Waiting, Subscriptions)
	var refused *moqt.RequestError
	if !errors.As(err, &refused) || refused.Code != wire.RequestExcessiveLoad || refused.RetryInterval == 0 ||
		refused.Reason != "limit subscriptions.session reached: 1 of a session" {
		t.Errorf("refused with %v", err)
	}
	release()
	release()
	if _, err := p.Hold(Subscriptions); err != nil {
		t.Error(err)
	}
	if err := p.Acquire(Waiting, 1); err != nil {
		t.Error(err)
	}
	for _, u := range k.Usage() {
		if want := map[Kind]uint64{Subscriptions: 1}[u.Kind]; u.Scope == Session && u.Limited != want {
			t.Errorf("%s: counted %d times, want %d", u.Kind, u.Limited, want)
		}
	}
}

// TestHandshakes checks that an address that connects too often must first validate its address and is
// then refused. Other addresses are not affected.
func TestHandshakes(t *testing.T) {
	k := newClocked(t, Config{Handshakes: Bounds{Address: 10}, Connections: Bounds{Address: 100}})
	n := 0
	for ; !k.Suspect(udp("10.0.0.1")); n++ {
		k.connect("10.0.0.1").Close()
	}
	if n != 6 {
		t.Errorf("doubted after %d connections", n)
	}
	var err error
	for ; err == nil; n++ {
		_, err = k.Connect(udp("10.0.0.1"))
	}
	if refusedBy(err) != "handshakes.address" || n != 11 {
		t.Errorf("connection %d: %v", n, err)
	}
	if k.Suspect(udp("10.0.0.2")) {
		t.Error("another address is doubted")
	}
	k.connect("10.0.0.2")
	k.at = k.at.Add(time.Second)
	k.connect("10.0.0.1")
}

// TestHandshakesOfManyAddresses checks that the total limit applies to addresses that connect once
// each, and that meanwhile most of them must validate their address.
func TestHandshakesOfManyAddresses(t *testing.T) {
	const limit, seconds, attempts = 100, 5, 2000 // attempts per second
	k := newClocked(t, Config{Handshakes: Bounds{Address: 50, All: limit}})
	admitted, doubted := 0, 0
	for i := range seconds * attempts {
		addr := udp(fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255))
		if k.Suspect(addr) {
			doubted++
		}
		p, err := k.Connect(addr)
		switch by := refusedBy(err); {
		case err == nil:
			admitted++
			p.Close()
		case by != "handshakes.all":
			t.Fatalf("refused by %s", by)
		}
		k.at = k.at.Add(time.Second / attempts)
	}
	if most := limit * (seconds + 1); admitted > most || admitted < limit {
		t.Errorf("%d connections admitted, want %d to %d", admitted, limit, most)
	}
	if doubted < seconds*attempts/2 {
		t.Errorf("%d of %d were doubted", doubted, seconds*attempts)
	}
	k.at = k.at.Add(2 * time.Second)
	if addr := udp("10.200.0.1"); k.Suspect(addr) {
		t.Error("one that connects alone is doubted")
	} else {
		k.connect("10.200.0.1")
	}
	for _, u := range k.Usage() {
		if u.Kind == Handshakes && u.Scope == All && u.Limited != uint64(seconds*attempts-admitted) {
			t.Errorf("counted %d refusals of %d", u.Limited, seconds*attempts-admitted)
		}
	}
}

// TestUnusedAddressesRemoved checks that addresses are forgotten after their last session closes.
func TestUnusedAddressesRemoved(t *testing.T) {
	k := newClocked(t, Default())
	for i := range 1000 {
		k.connect(fmt.Sprintf("10.0.%d.%d", i/250, i%250)).Close()
	}
	k.at = k.at.Add(2 * time.Second)
	k.connect("10.1.0.1")
	if n := len(k.addresses); n != 1 || len(k.all.children) != 1 {
		t.Errorf("%d addresses are kept", n)
	}
}

// demand is a peer's demand in bytes per second.
type demand struct {
	*Peer
	rate float64
}

// run lets peers spend up to their demand for the duration wait. It returns the bytes spent per second
// by peer.
func (k *clocked) run(demands []demand, wait time.Duration) []float64 {
	const step = 5 * time.Millisecond
	random := rand.New(rand.NewPCG(1, 2)) // the order at each step
	total, owed, until := make([]float64, len(demands)), make([]float64, len(demands)), make([]time.Time, len(demands))
	began := k.at
	for ; k.at.Sub(began) < wait; k.at = k.at.Add(step) {
		for _, i := range random.Perm(len(demands)) {
			d := demands[i]
			owed[i] = min(owed[i]+d.rate*step.Seconds(), d.rate) // the excess is dropped
			for owed[i] >= 100 && !k.at.Before(until[i]) {
				owed[i] -= 100
				total[i] += 100 / wait.Seconds()
				until[i] = k.at.Add(d.Spend(Bytes, 100))
			}
		}
	}
	return total
}

// TestFairRates checks that small demands are met in full, whatever other peers demand.
func TestFairRates(t *testing.T) {
	k := newClocked(t, Config{Bytes: Bounds{Session: 80_000, Address: 100_000, All: 150_000}})
	greedy := demand{k.connect("10.0.0.1"), 1e6}
	demands := []demand{
		{k.connect("10.0.0.1"), 20_000}, {k.connect("10.0.0.2"), 10_000}, greedy, {k.connect("10.0.0.3"), 1e6},
	}
	sum := 0.0
	for i, v := range k.run(demands, 10*time.Second) {
		want := []struct {
			name     string
			min, max float64
		}{
			{"next to a greedy one of its address", 19_900, 20_010},
			{"next to greedy ones of other addresses", 9_900, 10_010},
			{"greedy", 40_000, 65_000},
			{"greedy, at a separate address", 55_000, 82_000},
		}[i]
		if v < want.min || v > want.max {
			t.Errorf("%s: %.0f bytes/s, want %.0f to %.0f", want.name, v, want.min, want.max)
		}
		sum += v
	}
	if sum > 165_000 {
		t.Errorf("all together have %.0f bytes/s", sum)
	}
	if got := k.run([]demand{greedy}, 10*time.Second)[0]; got < 78_000 || got > 84_000 {
		t.Errorf("alone it has %.0f bytes/s", got)
	}
}

// TestRatesOfReconnectingSessions checks that a sequence of short sessions gets no more than the limit
// of their address or of the relay. Another session that uses less than its equal share is not
// delayed.
func TestRatesOfReconnectingSessions(t *testing.T) {
	const step, lasts, limit = 5 * time.Millisecond, 10, 1000 // ms, s
	for name, c := range map[string]struct {
		bounds Bounds
		stay   time.Duration // lifetime of each session; 200 start per second
		apart  bool          // each has its own address
		waits  bool          // the other session waits too, as its share is less than a request per window
	}{
		"leave at once":              {Bounds{Session: 200, Address: limit, All: 4000}, step, false, false},
		"leave after a second":       {Bounds{Session: 200, Address: limit, All: 4000}, time.Second, false, false},
		"leave after five":           {Bounds{Session: 200, Address: limit, All: 4000}, 5 * time.Second, false, true},
		"have addresses":             {Bounds{Session: 200, All: limit}, time.Second, true, true},
		"have the limit of all each": {Bounds{Session: 2000, Address: limit, All: limit}, time.Second, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			k := newClocked(t, Config{Requests: c.bounds})
			type session struct {
				*Peer
				next, leaves time.Time
			}
			var sessions []*session
			honest := k.connect("10.0.0.1")
			spent, waited := 0, time.Duration(0)
			for i := range int(lasts * time.Second / step) {
				addr := "10.0.0.1"
				if c.apart {
					addr = fmt.Sprintf("10.1.%d.%d", i/250, i%250)
				}
				sessions = append(sessions, &session{Peer: k.connect(addr), leaves: k.at.Add(c.stay)})
				for _, s := range sessions {
					for !s.next.After(k.at) && spent < 1e6 {
						spent++
						s.next = k.at.Add(s.Spend(Requests, 1))
					}
				}
				if i%int(time.Second/step) == 0 {
					waited = max(waited, honest.Spend(Requests, 1))
				}
				k.at = k.at.Add(step)
				sessions = slices.DeleteFunc(sessions, func(s *session) bool {
					if k.at.Before(s.leaves) {
						return false
					}
					s.Close()
					return true
				})
			}
			// The limit, one second's limit as a burst, and one request per session.
			if most := limit*(lasts+1) + 200*lasts; spent > most {
				t.Errorf("%d requests in %d s, want at most %d", spent, lasts, most)
			}
			if waited > 0 && !c.waits {
				t.Errorf("another session waits for %s", waited)
			}
		})
	}
}

// TestGreedy checks that an address is greedy while a new session would have to wait.
func TestGreedy(t *testing.T) {
	k := newClocked(t, Config{Requests: Bounds{Session: 10, Address: 20}})
	if k.Greedy(udp("10.0.0.1")) {
		t.Error("an unknown address is greedy")
	}
	p := k.connect("10.0.0.1")
	k.connect("10.0.0.2")
	p.Spend(Requests, 10)
	if k.Greedy(udp("10.0.0.1")) {
		t.Error("greedy after half of a burst")
	}
	p.Spend(Requests, 1)
	p.Close()
	if !k.Greedy(udp("10.0.0.1")) || k.Greedy(udp("10.0.0.2")) {
		t.Error("wrong address is greedy")
	}
	k.at = k.at.Add(time.Second)
	if k.Greedy(udp("10.0.0.1")) {
		t.Error("greedy a second later")
	}
}

// TestTake checks that a refused Take charges nothing.
func TestTake(t *testing.T) {
	k := newClocked(t, Config{Requests: Bounds{Session: 10}})
	p := k.connect("10.0.0.1")
	taken := 0
	for range 300 {
		for range 5 {
			if p.Take(Requests, 1) == nil {
				taken++
			}
		}
		k.at = k.at.Add(10 * time.Millisecond)
	}
	if taken < 38 || taken > 41 { // one second's limit in a burst, then three seconds
		t.Errorf("%d requests in 3 s at 10 a second", taken)
	}
}

// TestPeer checks that the admission methods are subject to their limits.
func TestPeer(t *testing.T) {
	k := newClocked(t, Config{
		Streams: Bounds{Session: 2}, Window: Bounds{Session: 100}, Requests: Bounds{Session: 1},
		Groups: Bounds{Session: 4},
	})
	p := k.connect("10.0.0.1")
	opened := 0
	for p.OpenStream() {
		opened++
	}
	if opened != 2 {
		t.Errorf("%d streams", opened)
	}
	if p.CloseStream(); !p.OpenStream() {
		t.Error("no stream in the place of one that was closed")
	}
	if !p.GrowWindow(60) || p.GrowWindow(60) || !p.GrowWindow(40) {
		t.Error("the window does not grow by 100 bytes")
	}
	if p.Opened(true) > 0 || p.Opened(true) == 0 {
		t.Error("a second request within a second need not wait")
	}
	if p.Opened(false) > 0 || p.Opened(false) == 0 {
		t.Error("a second stream within a quarter of a second need not wait")
	}
	p.Close()
	if other := k.connect("10.0.0.1"); !other.GrowWindow(100) {
		t.Error("another session's window does not grow")
	}
}

// TestReplace checks that new limits apply immediately, and that peers above them keep their
// resources.
func TestReplace(t *testing.T) {
	k := newClocked(t, Config{Tracks: Bounds{Session: 5}, Cached: Bounds{Session: 5}})
	p := k.connect("10.0.0.1")
	m := p.Memory()
	if n, _ := most(p, Tracks); n != 5 {
		t.Fatalf("%d tracks", n)
	}
	k.Replace(Config{Tracks: Bounds{Session: 7}})
	if n, _ := most(p, Tracks); n != 2 {
		t.Errorf("%d more tracks", n)
	}
	if m != p.Memory() {
		t.Error("the session's memory is another one")
	}
}

func TestConfig(t *testing.T) {
	for text, want := range map[string]string{
		"subscriptions.session=100": "",
		"cached.address=0":          "",
		"subscriptions=100":         `"subscriptions=100": want KIND.SCOPE=N, such as subscriptions.session=100`,
		"fetches.session=many":      `"many" is not a whole number`,
		"viewers.all=5":             `unknown limit "viewers.all"; kinds are`,
	} {
		c := Default()
		err := c.Set(text)
		if (err == nil) != (want == "") || err != nil && err.Error()[:min(len(want), len(err.Error()))] != want {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	for text, want := range map[string]string{
		"fetches.all=-1":        "limits.fetches.all must not be negative; 0 means no limit",
		"connections.session=3": "limits.connections.session: this limit does not exist per session",
		"cached.all=3":          "limits.cached.all: use cache.totalBytes instead",
		"cached.session=3":      "",
	} {
		c := Default()
		if err := c.Set(text); err != nil {
			t.Fatal(err)
		}
		if err := c.Validate(); (err == nil) != (want == "") || err != nil && err.Error() != want {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}
