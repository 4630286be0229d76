package limits

import (
	"math"
	"slices"
	"time"
)

// window is how long a rate is measured for.
const window = 250 * time.Millisecond

// burst is how far ahead of its rate one may be.
func (k Kind) burst() time.Duration {
	if k == Handshakes || k == Requests {
		return time.Second // those of many viewers may come at once
	}
	return window
}

// rate is what a node spends of a kind each second.
type rate struct {
	due   time.Time // when all that was spent will be within a session's share, or an address's or everybody's limit
	began time.Time // the window
	spent float64   // in it
	last  float64   // in the one before
	share float64   // what each child may have a second; 0 = not known yet
}

// recent is the rate of late.
func (r *rate) recent(now time.Time) float64 {
	switch age := now.Sub(r.began); {
	case age < window:
		return r.last / window.Seconds()
	case age < 2*window:
		return r.spent / window.Seconds()
	}
	return 0
}

// latest is the rate of late, with what is about to be spent.
func (r *rate) latest(amount float64) float64 {
	return max(r.last, r.spent+amount) / window.Seconds()
}

// roll begins a new window if it is time to, and reports whether it did.
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

// share divides what may be spent a second so that those who want little have it and the
// others the same: what each of these may have.
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

// pay has a node spend amount of a kind. It returns how long to wait before spending more, and
// which limit is the reason. Unless always, it spends nothing where that is not 0.
// l.mu is held.
func (l *Limits) pay(n *node, k Kind, amount float64, always bool) (wait time.Duration, why *Refused) {
	now, i := l.now(), k-firstRate
	var path []*node // up to all
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
			wanted := make([]float64, 0, len(at.kids))
			for kid := range at.kids {
				wanted = append(wanted, kid.rates[i].recent(now))
			}
			r.share = share(may, wanted)
		}
		may = min(may, r.share)
	}
	took := seconds(amount / may)
	if n.scope == Session && n.rates[i].due.IsZero() {
		n.rates[i].due = l.start(n, k, now).Add(-took) // it need not wait for what it spends first
	}
	var due [scopes]time.Time
	due[n.scope] = later(n.rates[i].due, now).Add(took)
	wait = due[n.scope].Sub(now) - k.burst()
	// Shares are of those who were there a while ago: who comes again and again would have more.
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

// little reports whether the first node of path, or one that it is part of, has no more than its
// equal part of limit, which is the last node's.
func little(path []*node, k Kind, amount, limit float64) bool {
	for i := len(path) - 1; i > 0; i-- {
		limit /= float64(len(path[i].kids))
		if path[i-1].rates[k].latest(amount) <= limit {
			return true
		}
	}
	return false
}

// start is how far ahead of its rate a new session is: as far as its address is, or all are.
// l.mu is held.
func (l *Limits) start(n *node, k Kind, now time.Time) time.Time {
	due := now
	for at := n.parent; at != nil; at = at.parent {
		due = later(due, at.rates[k-firstRate].due)
	}
	return earlier(due, now.Add(k.burst()))
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// Take spends n of a rate, or fails with a *Refused and spends nothing.
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

// Spend spends n of a rate, and returns how long to wait before spending more.
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
