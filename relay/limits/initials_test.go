package limits

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"math/rand/v2"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"holocast/internal/origin"
)

// kernel stands in for the kernel's filter: it drops Initial packets according to its shares.
type kernel struct {
	*Limits
	random *rand.Rand

	mu     sync.Mutex
	shares shares
	calls  int // of pass

	passed map[netip.Addr]int
}

func (k *kernel) pass(own map[netip.Prefix]float64, rest float64) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.shares = shares{maps.Clone(own), rest}
	k.calls++
	return nil
}

// told returns the latest shares and the number of calls to pass.
func (k *kernel) told() (shares, int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.shares, k.calls
}

// tracked returns the number of addresses that are counted, and the number that have a backlog.
func (k *kernel) tracked() (counted, backlogged int) {
	k.initials.mu.Lock()
	defer k.initials.mu.Unlock()
	return len(k.initials.passed), len(k.initials.flows)
}

func (k *kernel) send(from netip.Addr, n int) {
	now, _ := k.told()
	share := now.of(prefixOf(from))
	for range n {
		if k.random.Float64() < share {
			k.passed[from]++
			k.CountInitials(from, 1)
		}
	}
}

// during calls send for each 100 ms window within d.
func (k *kernel) during(d time.Duration, send func(window int)) {
	for window := range int(d / measureEvery) {
		send(window)
		time.Sleep(measureEvery)
	}
}

func inBubble(t *testing.T, bounds Bounds, f func(k *kernel)) {
	synctest.Test(t, func(t *testing.T) {
		k := &kernel{
			Limits: New(Config{Initials: bounds}, origin.NewMemory(1<<20)), random: rand.New(rand.NewPCG(1, 2)),
			shares: shares{rest: 1}, passed: map[netip.Addr]int{},
		}
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan struct{})
		go func() {
			k.FitInitials(ctx, k.pass, slog.New(slog.DiscardHandler))
			close(ended)
		}()
		k.CountInitials(addr(1<<20), 1)
		time.Sleep(measureEvery / 2) // between two measurements
		f(k)
		cancel()
		<-ended
	})
}

func addr(i int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
}

// TestInitials checks that a flood is reduced to the limits, that one address's flood costs other
// addresses nothing, and that all packets pass again afterwards.
func TestInitials(t *testing.T) {
	const clients = 50
	calm := func(k *kernel) { // 500 packets a second from many clients
		for i := range clients {
			k.send(addr(1<<16+i), 1)
		}
	}
	for name, tt := range map[string]struct {
		bounds      Bounds
		attackers   int
		each        int // packets of each address per window
		most, least int // passed per second once settled
		spared      bool
	}{
		"one address":                {Bounds{0, 1000, 10_000}, 1, 10_000, 1300, 700, true},
		"sixteen addresses":          {Bounds{0, 1000, 10_000}, 16, 2000, 6500, 3500, true},
		"more than have own shares":  {Bounds{0, 1000, 10_000}, 40, 1000, 13_000, 7000, false},
		"forged addresses":           {Bounds{0, 1000, 10_000}, 10_000, 1, 13_000, 7000, false},
		"no limit of an address":     {Bounds{0, 0, 10_000}, 1, 10_000, 13_000, 7000, false},
		"no limit of all":            {Bounds{0, 1000, 0}, 1, 10_000, 1300, 700, true},
		"no limit":                   {Bounds{}, 1, 10_000, 100_000, 100_000, true},
		"within the limit":           {Bounds{0, 1000, 10_000}, 1, 90, 900, 900, true},
		"below the limit, many more": {Bounds{0, 1000, 10_000}, 90, 10, 9000, 9000, true},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, tt.bounds, func(k *kernel) {
				flood := func(int) {
					calm(k)
					for i := range tt.attackers {
						k.send(addr(i), tt.each)
					}
				}
				k.during(3*time.Second, flood)
				clear(k.passed)
				k.during(5*time.Second, flood)
				ours, theirs := 0, 0
				for a, n := range k.passed {
					if a.As4()[1] == 1 {
						ours += n
					} else {
						theirs += n
					}
				}
				if theirs/5 > tt.most || theirs/5 < tt.least {
					t.Errorf("%d packets a second of the flood pass, not %d to %d", theirs/5, tt.least, tt.most)
				}
				if lost := clients*50 - ours; tt.spared && lost > 0 {
					t.Errorf("%d packets of others were dropped", lost)
				}
				for _, u := range k.Usage() {
					sent := tt.attackers * tt.each * 10
					if u.Kind == Initials && u.Scope == All && math.Abs(float64(u.Used)/float64(sent+500)-1) > 0.3 {
						t.Errorf("estimated %d packets a second, want %d", u.Used, sent+500)
					}
				}
				if now, _ := k.told(); len(now.own) > maxOwnShares {
					t.Errorf("%d addresses have shares", len(now.own))
				}
				k.during(3*time.Second, func(int) { calm(k) })
				now, calls := k.told()
				if !now.all() {
					t.Errorf("after the flood %v pass", now)
				}
				k.during(time.Second, func(int) {})
				k.during(time.Minute, func(int) {})
				if _, later := k.told(); later != calls {
					t.Error("pass was called without traffic")
				}
				for _, u := range k.Usage() {
					if u.Kind == Initials && u.Used != 0 {
						t.Errorf("%v: %d a second when nothing comes", u.Scope, u.Used)
					}
				}
			})
		})
	}
}

// TestInitialsBurst checks that up to one second's limit may arrive in a burst.
func TestInitialsBurst(t *testing.T) {
	inBubble(t, Bounds{0, 1000, 10_000}, func(k *kernel) {
		for range 5 {
			k.send(addr(1), 1000)
			time.Sleep(2 * time.Second)
		}
		if _, calls := k.told(); k.passed[addr(1)] != 5000 || calls != 0 {
			t.Errorf("%d of 5000 packets passed", k.passed[addr(1)])
		}
	})
}

// TestInitialsOfManyAddresses checks that the number of tracked addresses is bounded.
func TestInitialsOfManyAddresses(t *testing.T) {
	inBubble(t, Bounds{0, 1000, 10_000}, func(k *kernel) {
		k.during(2*time.Second, func(window int) {
			for i := range 20_000 {
				k.send(addr(window*20_000+i), 1)
			}
			if n, _ := k.tracked(); n > maxSources+1 {
				t.Errorf("%d addresses are remembered", n)
			}
		})
		if _, n := k.tracked(); n > maxSources {
			t.Errorf("%d flows are remembered", n)
		}
	})
}

// TestInitialsReplaced checks that all packets pass again when the limits are removed.
func TestInitialsReplaced(t *testing.T) {
	inBubble(t, Bounds{0, 1000, 10_000}, func(k *kernel) {
		k.during(time.Second, func(int) { k.send(addr(1), 10_000) })
		if now, _ := k.told(); now.of(prefixOf(addr(1))) > 0.1 {
			t.Errorf("%v pass", now)
		}
		k.Replace(Config{})
		k.during(time.Second, func(int) { k.send(addr(1), 10_000) })
		if now, _ := k.told(); !now.all() {
			t.Errorf("without limits %v pass", now)
		}
	})
}

// TestInitialsFail checks that FitInitials returns if the kernel refuses the shares.
func TestInitialsFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(Config{Initials: Bounds{0, 10, 10}}, origin.NewMemory(1<<20))
		said := &logLines{}
		l.CountInitials(addr(1), 1000)
		l.FitInitials(t.Context(), func(map[netip.Prefix]float64,
			float64,
		) error {
			return errors.New("no such filter")
		}, slog.New(slog.NewTextHandler(said, nil)))
		if len(*said) != 1 {
			t.Errorf("it says %q", *said)
		}
	})
}

type logLines []string

func (l *logLines) Write(b []byte) (int, error) {
	*l = append(*l, string(b))
	return len(b), nil
}

func BenchmarkCountInitials(b *testing.B) {
	for _, sources := range []int{1, 100_000} {
		b.Run(fmt.Sprint("sources=", sources), func(b *testing.B) {
			l := New(Config{}, origin.NewMemory(1<<20))
			for i := 0; b.Loop(); i++ {
				l.CountInitials(addr(i%sources), 1)
				if i%1000 == 0 { // every tenth of a second
					l.fitOnce()
				}
			}
		})
	}
}
