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
	// lookEvery is how often the rates of first packets are estimated, while there are any.
	lookEvery = 100 * time.Millisecond
	// maxSources is how many addresses are told apart at a time: a flood may forge any number.
	maxSources = 4096
	// maxOwnShares is how many addresses have a share of their own.
	maxOwnShares = 16
)

// shares are those of the first packets of connections that may pass: 1 is all of them.
type shares struct {
	own  map[netip.Prefix]float64 // of addresses (of /64s of IPv6) that send more than they may
	rest float64                  // of all others
}

func (s shares) of(p netip.Prefix) float64 {
	if own, ok := s.own[p]; ok {
		return own
	}
	return s.rest
}

// all reports whether all pass.
func (s shares) all() bool { return len(s.own) == 0 && s.rest == 1 }

// initials are the first packets of connections (Initial packets, RFC 9000 §17.2.2). A flood of them
// costs an answer each, and cannot be told from those of clients before. So whoever sends more than a
// limit for a second has the kernel drop the rest; from what it passes the rates are estimated.
type initials struct {
	began chan struct{} // some have come, and none before

	mu      sync.Mutex
	came    map[netip.Prefix]float64 // since the last look; those of too many addresses are of the zero one
	flows   map[netip.Prefix]*flow   // that are ahead of their limit
	rest    flow                     // all that have no share of their own
	shares  shares
	looked  time.Time
	used    [scopes]float64 // a second
	dropped [scopes]float64 // as is estimated
}

func (i *initials) init() {
	i.began = make(chan struct{}, 1)
	i.came, i.flows, i.shares.rest = map[netip.Prefix]float64{}, map[netip.Prefix]*flow{}, 1
}

// flow is packets of one address or of many.
type flow struct {
	rate  float64 // a second
	ahead float64 // packets that came too early for the limit
}

// look counts what came since the last look, and reports whether that is more than a second ahead
// of limit.
func (f *flow) look(came, limit, elapsed float64) (over bool) {
	f.rate = max(came/elapsed, f.rate/2)
	if limit == 0 {
		f.ahead = 0
		return false
	}
	f.ahead = min(max(0, f.ahead+came-limit*elapsed), 2*limit)
	return f.ahead > limit
}

// CountInitials counts first packets of connections that have come from an address.
func (l *Limits) CountInitials(from netip.Addr, n int) {
	i, key := &l.initials, prefixOf(from)
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(i.came) == 0 {
		select {
		case i.began <- struct{}{}:
		default:
		}
	}
	if _, ok := i.came[key]; !ok && len(i.came) >= maxSources {
		key = netip.Prefix{}
	}
	i.came[key] += float64(n)
}

// FitInitials has pass let through the shares of the first packets of connections that the limits
// allow, those of some addresses and of all others, until ctx ends. It calls it again and again while
// that is not all of them, so that it may choose others.
func (l *Limits) FitInitials(ctx context.Context, pass func(own map[netip.Prefix]float64, rest float64) error, log *slog.Logger) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.initials.began:
		}
		if err := l.fitUntilCalm(ctx, pass, log); err != nil {
			if !errors.Is(err, net.ErrClosed) { // the relay ends
				log.Error("first packets of connections cannot be bounded", "err", err)
			}
			return
		}
	}
}

func (l *Limits) fitUntilCalm(ctx context.Context, pass func(own map[netip.Prefix]float64, rest float64) error, log *slog.Logger) error {
	i := &l.initials
	i.start(l.now())
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for calm := false; !calm; {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		before := i.shares.all() // which lookAtInitials alone changes
		calm = l.lookAtInitials()
		after := i.shares.all()
		if before && after {
			continue
		}
		if err := pass(i.shares.own, i.shares.rest); err != nil {
			return err
		}
		switch {
		case before:
			log.Warn("first packets of connections come too fast: some are dropped", "limits", "initials",
				"addresses", slices.Collect(maps.Keys(i.shares.own)), "of_others", 1-i.shares.rest)
		case after:
			log.Info("first packets of connections are all let through again")
		}
	}
	return nil
}

func (i *initials) start(now time.Time) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.looked = now
}

// lookAtInitials estimates what came and sets the shares. calm: nothing did, and nobody is ahead of a
// limit.
func (l *Limits) lookAtInitials() (calm bool) {
	l.mu.Lock()
	limit, now := l.c.Initials, l.now()
	l.mu.Unlock()
	ofAddress, ofAll := float64(limit.Address), float64(limit.All)
	i := &l.initials
	i.mu.Lock()
	defer i.mu.Unlock()
	elapsed := max(now.Sub(i.looked), lookEvery/2).Seconds()
	i.looked = now
	arrived := map[netip.Prefix]float64{} // with what was dropped
	for key, n := range i.came {
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
	clear(i.came)
	i.used = [scopes]float64{}
	var over []netip.Prefix
	for key, f := range i.flows {
		if f.look(arrived[key], ofAddress, elapsed) {
			over = append(over, key)
		}
		i.used[Address] = max(i.used[Address], f.rate)
		if f.ahead == 0 {
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
	// They have half of what all may have at most, so that others have the other half.
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
	if i.rest.look(rest, others, elapsed) {
		i.shares.rest = min(1, others/i.rest.rate)
	}
	i.used[All] += i.rest.rate
	if calm = len(arrived) == 0 && len(i.flows) == 0 && i.rest.ahead == 0; calm {
		i.rest, i.used = flow{}, [scopes]float64{}
	}
	return calm
}

// usage is what there is a second, and how many were dropped.
func (i *initials) usage(s Scope) (used int64, dropped uint64) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return int64(i.used[s]), uint64(i.dropped[s])
}
