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
	due   time.Time // when all that was spent will be within the node's share; of all, within the limit of handshakes
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
	due := later(n.rates[i].due, now).Add(time.Duration(amount / may * float64(time.Second)))
	wait = due.Sub(now) - k.burst()
	all := &l.all.rates[i]
	dueOfAll := all.due
	if limit := l.c.of(k).All; k == Handshakes && limit > 0 {
		// Shares bound those who come again. Thousands of addresses may connect once each.
		dueOfAll = later(all.due, now).Add(time.Duration(amount / float64(limit) * float64(time.Second)))
		if w := dueOfAll.Sub(now) - k.burst(); w > max(0, wait) {
			wait, why = w, &Refused{k, All, limit}
		}
	}
	if wait > 0 {
		l.limited[k][why.Scope]++
		if !always {
			return wait, why
		}
	}
	n.rates[i].due, all.due = due, dueOfAll
	for _, at := range path {
		at.rates[i].spent += amount
	}
	return max(0, wait), why
}

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

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
