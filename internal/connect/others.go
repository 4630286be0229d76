package connect

import (
	"cmp"
	"context"
	"log/slog"
	"math/rand/v2"
	"net/url"
	"slices"
	"sync"
	"time"

	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/roster"
)

// Times of the change to another relay. The round-trip time adds to suspectAfter and deadAfter.
const (
	// look is the interval between measurements of a relay's silence.
	look = 50 * time.Millisecond
	// stalled is the time between two measurements from which this process counts as stalled.
	stalled = 4 * look
	// probeAfter is the silence after which the relay is probed.
	probeAfter = 150 * time.Millisecond
	// suspectAfter is the silence after which other relays are dialed.
	suspectAfter = 300 * time.Millisecond
	// deadAfter is the silence after which a relay is left for one that answers.
	deadAfter = 500 * time.Millisecond
	// stagger is the interval between dials to several relays.
	stagger = 200 * time.Millisecond
)

// host returns the URL's host and port.
func (t Target) host() string {
	u, err := url.Parse(t.URL)
	if err != nil {
		return ""
	}
	return u.Host
}

// others are the known relays of a cluster.
type others struct {
	mu    sync.Mutex
	known []roster.Relay
}

// of lists the relays other than at, best first. Those with equal costs are in random order.
func (o *others) of(home, at Target) (list []Target) {
	o.mu.Lock()
	known := slices.Clone(o.known)
	o.mu.Unlock()
	rand.Shuffle(len(known), func(i, j int) { known[i], known[j] = known[j], known[i] })
	slices.SortStableFunc(known, func(a, b roster.Relay) int { return cmp.Compare(a.Cost, b.Cost) })
	add := func(t Target) {
		same := func(other Target) bool { return other.host() == t.host() }
		if !same(at) && !slices.ContainsFunc(list, same) {
			list = append(list, t)
		}
	}
	base, err := url.Parse(home.URL)
	if err != nil {
		return nil
	}
	for _, r := range known {
		u, err := url.Parse(r.URL)
		if err != nil {
			continue
		}
		u.Scheme = base.Scheme
		t := home.moveTo(u.String())
		t.pin = r.SHA256
		add(t)
	}
	for _, text := range home.Relays {
		add(home.moveTo(text))
	}
	add(home)
	return list
}

// hash returns the hash of a relay's certificate, or "" if it is unknown.
func (o *others) hash(host string) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, r := range o.known {
		if u, err := url.Parse(r.URL); err == nil && u.Host == host {
			return r.SHA256
		}
	}
	return ""
}

// learn reads the relay's roster until the session ends or ctx is done.
func (o *others) learn(ctx context.Context, s *moqt.Session) {
	sub, err := Subscribe(ctx, s, roster.TrackName(), 0, false)
	if err != nil { // the relay is in no cluster
		return
	}
	defer sub.Cancel()
	if sub.Largest != nil {
		if f, err := sub.Joined(ctx); err == nil {
			_ = f.Each(ctx, roster.MaxSize, func(_ wire.FetchObject, b []byte) error {
				o.set(b)
				return nil
			})
		}
	}
	for {
		r, err := sub.AcceptSubgroup(ctx)
		if err != nil {
			return
		}
		if _, err := r.NextObject(); err == nil {
			if b, err := r.ReadPayload(nil, roster.MaxSize); err == nil {
				o.set(b)
			}
		}
		r.Cancel(wire.StreamCancelled)
	}
}

func (o *others) set(b []byte) {
	relays, err := roster.Parse(b)
	if err != nil {
		slog.Debug("ignored a list of relays", "err", err)
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.known = relays
}

// Silence measures how long a peer has been silent.
type Silence struct {
	// ProbeAfter is the silence after which the peer is probed.
	ProbeAfter time.Duration

	bytes         uint64 // received
	heard, looked time.Time
	probed        bool
}

// Observe returns the time since received, a number of bytes, increased, and whether to probe the peer.
// Time during which this process was stalled does not count. Call it every 50 ms.
func (s *Silence) Observe(now time.Time, received uint64) (silent time.Duration, probe bool) {
	if s.looked.IsZero() || received != s.bytes || now.Sub(s.looked) >= stalled {
		s.bytes, s.heard, s.probed = received, now, false
	}
	s.looked = now
	silent = now.Sub(s.heard)
	if silent >= s.ProbeAfter && !s.probed {
		s.probed, probe = true, true
	}
	return silent, probe
}

// watch measures the relay's silence while another relay is known, and signals quiet.
func (l *link) watch(ctx context.Context, o *others) {
	tick := time.NewTicker(look)
	defer tick.Stop()
	s := Silence{ProbeAfter: probeAfter}
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		case <-l.s.Context().Done():
			return
		}
		if o.none(l.t) {
			s = Silence{ProbeAfter: probeAfter}
			continue
		}
		silent, probe := s.Observe(time.Now(), l.s.Received())
		l.silent.Store(int64(silent))
		if probe {
			go l.s.Probe(deadAfter)
		}
		if silent >= suspectAfter+l.s.RTT() {
			select {
			case l.quiet <- struct{}{}:
			default:
			}
		}
	}
}

// none reports whether no relay other than at is known.
func (o *others) none(at Target) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.known) == 0 && len(at.Relays) == 0
}

// outlive connects to another relay while old is silent. It returns the session, which is not in use yet,
// once it is open and old has been silent for deadAfter. It returns nil if old is heard again, ends, or no
// other relay answers.
func (k *keeper) outlive(ctx context.Context, old *link) *link {
	silentFor := func(d time.Duration) bool { return time.Duration(old.silent.Load()) >= d+old.s.RTT() }
	targets := k.others.of(k.home, old.t)
	if len(targets) == 0 || !silentFor(suspectAfter) {
		return nil
	}
	dialing, cancel := context.WithCancel(ctx)
	defer cancel()
	dialed := make(chan *link, 1)
	k.late.Go(func() {
		l, err := k.dialAny(dialing, targets)
		if err != nil {
			slog.Debug("no other relay answers", "reason", err)
			l = nil
		}
		dialed <- l
	})
	var next *link
	tick := time.NewTicker(look / 2)
	defer tick.Stop()
	for {
		select {
		case next = <-dialed:
			if next == nil {
				wait := firstRetry
				backOff(ctx, old.done, &wait)
				return nil
			}
		case <-tick.C:
		case <-old.done:
		case <-ctx.Done():
		}
		over := ctx.Err() != nil || !silentFor(suspectAfter)
		select {
		case <-old.done:
			over = true
		default:
		}
		switch {
		case next != nil && !over && silentFor(deadAfter):
			return next
		case over && next != nil:
			next.s.Close(wire.NoError, "")
			return nil
		case over:
			cancel()
			if late := <-dialed; late != nil {
				late.s.Close(wire.NoError, "")
			}
			return nil
		}
	}
}
