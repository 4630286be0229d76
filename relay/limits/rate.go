package limits

import (
	"math"
	"slices"
	"time"
)

// window is the interval over which rates are measured.
const window = 250 * time.Millisecond

// burst returns how far a peer may be ahead of its rate.
func (k Kind) burst() time.Duration {
	if k == Handshakes || k == Requests {
		return time.Second // many viewers may arrive at the same time
	}
	return window
}

// rate tracks a node's spending of one kind.
type rate struct {
	due   time.Time // time at which the spending so far is within the limit or share
	began time.Time // start of the window
	spent float64   // in this window
	last  float64   // in the previous window
	share float64   // each child's share per second; 0 if unknown
}

// recent returns the rate of the last full window, per second.
func (r *rate) recent(now time.Time) float64 {
	switch age := now.Sub(r.began); {
	case age < window:
		return r.last / window.Seconds()
	case age < 2*window:
		return r.spent / window.Seconds()
	}
	return 0
}

// latest returns the rate per second, including an amount about to be spent.
func (r *rate) latest(amount float64) float64 {
	return max(r.last, r.spent+amount) / window.Seconds()
}

// roll starts a new window if the current one is over, and reports whether it did.
func (r *rate) roll(now time.Time) bool {
	age := now.Sub(r.began)
	if age < window {
		return false
	}
	r.last = r.spent
	if age >= 2*window {
		r.last = 0
	}
	r.began, r.spent = now, 0
	return true
}

// share returns the max-min fair share of limit. Demands below the share are met in full, and the
// others get the share.
func share(limit float64, wanted []float64) float64 {
	slices.Sort(wanted)
	for i, w := range wanted {
		each := limit / float64(len(wanted)-i)
		if w > each || i == len(wanted)-1 {
			return each
		}
		limit -= w
	}
	return limit
}

// pay charges amount to a node and its parents. It returns the wait before the next charge and the
// limit responsible. If always is false and the wait is not 0, it charges nothing. The caller holds
// l.mu.
func (l *Limits) pay(n *node, k Kind, amount float64, always bool) (wait time.Duration, why *Refused) {
	now, i := l.now(), k-firstRate
	var path []*node // from n to the relay
	for at := n; at != nil; at = at.parent {
		path = append(path, at)
	}
	may := math.Inf(1)
	for _, at := range slices.Backward(path) {
		r := &at.rates[i]
		if limit := *l.c.of(k).at(at.scope); limit > 0 && float64(limit) <= may {
			may = float64(limit)
			why = &Refused{k, at.scope, limit}
		}
		if rolled := r.roll(now); at == n {
			break
		} else if rolled || r.share == 0 {
			wanted := make([]float64, 0, len(at.children))
			for child := range at.children {
				wanted = append(wanted, child.rates[i].recent(now))
			}
			r.share = share(may, wanted)
		}
		may = min(may, r.share)
	}
	took := seconds(amount / may)
	if n.scope == Session && n.rates[i].due.IsZero() {
		n.rates[i].due = l.start(n, k, now).Add(-took) // the first charge need not wait
	}
	var due [scopes]time.Time
	due[n.scope] = later(n.rates[i].due, now).Add(took)
	wait = due[n.scope].Sub(now) - k.burst()
	// Shares reflect the peers of the previous window, so sessions that reconnect repeatedly could
	// exceed the limits of the address and the relay. Check these too.
	for above, at := range path {
		limit := float64(*l.c.of(k).at(at.scope))
		if at == n || limit == 0 {
			continue
		}
		due[at.scope] = later(at.rates[i].due, now).Add(seconds(amount / limit))
		w := due[at.scope].Sub(now) - k.burst()
		if w > max(0, wait) && (k == Handshakes || !little(path[:above+1], i, amount, limit)) {
			wait, why = w, &Refused{k, at.scope, int64(limit)}
		}
	}
	if wait > 0 {
		l.limited[k][why.Scope]++
		if !always {
			return wait, why
		}
	}
	for _, at := range path {
		at.rates[i].spent += amount
		at.rates[i].due = later(at.rates[i].due, due[at.scope])
	}
	return max(0, wait), why
}

// little reports whether the first node of path or one of its parents uses at most an equal share
// of limit, the limit of the last node of path.
func little(path []*node, k Kind, amount, limit float64) bool {
	for i := len(path) - 1; i > 0; i-- {
		limit /= float64(len(path[i].children))
		if path[i-1].rates[k].latest(amount) <= limit {
			return true
		}
	}
	return false
}

// start returns the initial due time of a new session: the later of its address's and the relay's
// due times, but at most a burst ahead. The caller holds l.mu.
func (l *Limits) start(n *node, k Kind, now time.Time) time.Time {
	due := now
	for at := n.parent; at != nil; at = at.parent {
		due = later(due, at.rates[k-firstRate].due)
	}
	return earlier(due, now.Add(k.burst()))
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// Take charges n to a rate, or charges nothing and returns a *Refused.
func (p *Peer) Take(k Kind, n int64) error {
	if p == nil {
		return nil
	}
	p.l.mu.Lock()
	defer p.l.mu.Unlock()
	if wait, why := p.l.pay(&p.node, k, float64(n), false); wait > 0 {
		return why
	}
	return nil
}

// Spend charges n to a rate and returns how long to wait before the next charge.
func (p *Peer) Spend(k Kind, n int64) (wait time.Duration) {
	if p == nil || n == 0 {
		return 0
	}
	p.l.mu.Lock()
	defer p.l.mu.Unlock()
	wait, _ = p.l.pay(&p.node, k, float64(n), true)
	return wait
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
