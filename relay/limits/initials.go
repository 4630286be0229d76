package limits

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"
)

const (
	// measureEvery is the interval between rate measurements while there is traffic.
	measureEvery = 100 * time.Millisecond
	// maxSources bounds the addresses counted separately, since a flood may forge any number of them.
	maxSources = 4096
	// maxOwnShares bounds the addresses with a share of their own.
	maxOwnShares = 16
)

// shares are the fractions of Initial packets that the kernel passes, from 0 to 1.
type shares struct {
	own  map[netip.Prefix]float64 // of addresses (IPv6: /64s) over their limit
	rest float64                  // of all other addresses
}

func (s shares) of(p netip.Prefix) float64 {
	if own, ok := s.own[p]; ok {
		return own
	}
	return s.rest
}

// all reports whether all packets pass.
func (s shares) all() bool { return len(s.own) == 0 && s.rest == 1 }

// initials limits Initial packets of new connections (RFC 9000 §17.2.2). Answering a flood of them is
// expensive, and they resemble packets of genuine clients. If they exceed a limit by more than one
// second's worth of packets, the kernel drops a fraction of them. Rates are estimated from the packets
// that pass.
type initials struct {
	began chan struct{} // signalled by the first packet after an idle time

	mu sync.Mutex
	// packets passed since the last measurement; the zero prefix counts addresses beyond maxSources
	passed   map[netip.Prefix]float64
	flows    map[netip.Prefix]*flow // addresses with a backlog
	rest     flow                   // all addresses without a share of their own
	shares   shares
	measured time.Time
	used     [scopes]float64 // packets per second
	dropped  [scopes]float64 // estimated
}

func (i *initials) init() {
	i.began = make(chan struct{}, 1)
	i.passed, i.flows, i.shares.rest = map[netip.Prefix]float64{}, map[netip.Prefix]*flow{}, 1
}

// flow measures the packets from one or several addresses.
type flow struct {
	rate    float64 // packets per second
	backlog float64 // packets over the limit
}

// measure adds the packets that arrived in elapsed seconds and reports whether the backlog exceeds one
// second of limit.
func (f *flow) measure(arrived, limit, elapsed float64) (over bool) {
	f.rate = max(arrived/elapsed, f.rate/2)
	if limit == 0 {
		f.backlog = 0
		return false
	}
	f.backlog = min(max(0, f.backlog+arrived-limit*elapsed), 2*limit)
	return f.backlog > limit
}

// CountInitials counts n Initial packets that the kernel passed from an address.
func (l *Limits) CountInitials(from netip.Addr, n int) {
	i, key := &l.initials, prefixOf(from)
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(i.passed) == 0 {
		select {
		case i.began <- struct{}{}:
		default:
		}
	}
	if _, ok := i.passed[key]; !ok && len(i.passed) >= maxSources {
		key = netip.Prefix{}
	}
	i.passed[key] += float64(n)
}

// FitInitials limits Initial packets until ctx is done. It calls pass with the fraction of packets
// to let through: own for individual addresses, rest for all others. While packets are being
// dropped, it repeats the call so that the filter can vary which it drops.
func (l *Limits) FitInitials(ctx context.Context, pass func(own map[netip.Prefix]float64, rest float64) error,
	log *slog.Logger,
) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.initials.began:
		}
		if err := l.fitUntilIdle(ctx, pass, log); err != nil {
			if !errors.Is(err, net.ErrClosed) { // the relay is stopping
				log.Error("Initial packets cannot be limited", "err", err)
			}
			return
		}
	}
}

func (l *Limits) fitUntilIdle(ctx context.Context, pass func(own map[netip.Prefix]float64, rest float64) error,
	log *slog.Logger,
) error {
	i := &l.initials
	i.start(l.now())
	tick := time.NewTicker(measureEvery)
	defer tick.Stop()
	for calm := false; !calm; {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		before := i.shares.all() // only fitOnce writes shares
		calm = l.fitOnce()
		after := i.shares.all()
		if before && after {
			continue
		}
		if err := pass(i.shares.own, i.shares.rest); err != nil {
			return err
		}
		switch {
		case before:
			log.Warn("Initial packets exceed the limit, dropping some", "limits", "initials",
				"addresses", slices.Collect(maps.Keys(i.shares.own)), "of_others", 1-i.shares.rest)
		case after:
			log.Info("Initial packets are within the limit again")
		}
	}
	return nil
}

func (i *initials) start(now time.Time) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.measured = now
}

// fitOnce estimates rates and sets the shares. It returns true if no packets arrived and there is no
// backlog.
func (l *Limits) fitOnce() (calm bool) {
	l.mu.Lock()
	limit, now := l.c.Initials, l.now()
	l.mu.Unlock()
	ofAddress, ofAll := float64(limit.Address), float64(limit.All)
	i := &l.initials
	i.mu.Lock()
	defer i.mu.Unlock()
	elapsed := max(now.Sub(i.measured), measureEvery/2).Seconds()
	i.measured = now
	arrived := map[netip.Prefix]float64{} // including the estimated drops
	for key, n := range i.passed {
		arrived[key] = n / i.shares.of(key)
		scope := All
		if _, own := i.shares.own[key]; own {
			scope = Address
		}
		i.dropped[scope] += arrived[key] - n
		if key.IsValid() && i.flows[key] == nil {
			i.flows[key] = &flow{}
		}
	}
	clear(i.passed)
	i.used = [scopes]float64{}
	var over []netip.Prefix
	for key, f := range i.flows {
		if f.measure(arrived[key], ofAddress, elapsed) {
			over = append(over, key)
		}
		i.used[Address] = max(i.used[Address], f.rate)
		if f.backlog == 0 {
			delete(i.flows, key)
		}
	}
	slices.SortFunc(over, func(a, b netip.Prefix) int {
		if i.flows[a].rate > i.flows[b].rate {
			return -1
		}
		return 1
	})
	over = over[:min(len(over), maxOwnShares)]
	// Addresses over their limit share at most half of the total limit, which leaves the other half
	// to all others.
	each, others := ofAddress, ofAll
	if ofAll > 0 {
		each = min(each, ofAll/2/float64(max(1, len(over))))
		others -= each * float64(len(over))
	}
	i.shares = shares{rest: 1}
	for _, key := range over {
		if i.shares.own == nil {
			i.shares.own = map[netip.Prefix]float64{}
		}
		i.shares.own[key] = min(1, each/i.flows[key].rate)
		i.used[All] += i.flows[key].rate
		delete(arrived, key)
	}
	var rest float64
	for _, n := range arrived {
		rest += n
	}
	if i.rest.measure(rest, others, elapsed) {
		i.shares.rest = min(1, others/i.rest.rate)
	}
	i.used[All] += i.rest.rate
	if calm = len(arrived) == 0 && len(i.flows) == 0 && i.rest.backlog == 0; calm {
		i.rest, i.used = flow{}, [scopes]float64{}
	}
	return calm
}

// usage returns the rate per second and the number of dropped packets.
func (i *initials) usage(s Scope) (used int64, dropped uint64) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return int64(i.used[s]), uint64(i.dropped[s])
}
