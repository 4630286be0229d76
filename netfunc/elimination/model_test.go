package elimination

import (
	"math/rand/v2"
	"testing"
	"time"

	"holocast/netfunc/pathset"
)

// model is a literal version of Algorithm 1, with maps and without regard to cost. Beyond the paper it
// only defines when packets are settled and forgotten.
type model struct {
	W                      int
	alpha, timeout, memory time.Duration

	P       map[int]bool
	n       int
	R       map[int]map[int]int // packet number → path → reward
	N       map[int]int
	packets []*modelPacket // remembered packets, in the order of their first arrivals
	stopped bool
}

type modelPacket struct {
	key     uint64
	told    time.Duration
	T       map[int]time.Duration
	settled bool
}

func newModel(c Config, P pathset.Set) *model {
	m := &model{
		W: c.W, alpha: c.Alpha, timeout: c.Timeout, memory: c.Memory,
		P: map[int]bool{}, R: map[int]map[int]int{}, N: map[int]int{},
	}
	for i := 1; i <= pathset.Max; i++ {
		if P.Has(i) {
			m.P[i] = true
		}
	}
	m.stopped = len(m.P) < 2
	return m
}

func (m *model) observe(key uint64, path int, at time.Duration) {
	m.settleAll(at)
	for len(m.packets) > 0 && at-m.packets[0].told > m.memory {
		m.packets = m.packets[1:]
	}
	if !m.P[path] || m.stopped {
		return
	}
	var packet *modelPacket
	for _, p := range m.packets {
		if p.key == key {
			packet = p
		}
	}
	if packet == nil {
		packet = &modelPacket{key: key, told: at, T: map[int]time.Duration{}}
		m.packets = append(m.packets, packet)
	}
	if _, ok := packet.T[path]; !ok {
		packet.T[path] = at
	}
	m.settleAll(at)
}

// settleAll settles packets in the order of their first arrivals.
func (m *model) settleAll(now time.Duration) {
	for _, p := range m.packets {
		if p.settled {
			continue
		}
		all := true
		for i := range m.P {
			if _, ok := p.T[i]; !ok {
				all = false
			}
		}
		if !all && now-p.told < m.timeout && !m.stopped {
			break
		}
		p.settled = true
		m.settle(p)
	}
}

// settle follows the lines of the paper.
func (m *model) settle(p *modelPacket) {
	var Tmin time.Duration = -1
	for i, t := range p.T {
		if m.P[i] && (Tmin < 0 || t < Tmin) {
			Tmin = t
		}
	}
	if Tmin < 0 || m.stopped {
		return
	}
	m.n++
	n := m.n
	m.R[n] = map[int]int{}
	for i := 1; i <= pathset.Max; i++ {
		if !m.P[i] {
			continue
		}
		if t, ok := p.T[i]; ok && t-Tmin < m.alpha {
			m.R[n][i] = 1
			m.N[i]++
		}
		if n > m.W {
			m.N[i] -= m.R[n-m.W][i]
			if m.N[i] == 0 {
				delete(m.P, i)
			}
		}
	}
	if n > m.W {
		for i := 1; i <= pathset.Max; i++ {
			if m.P[i] && m.N[i] == m.W {
				m.P = map[int]bool{i: true}
				break
			}
		}
	}
	m.stopped = len(m.P) < 2
}

func (m *model) paths() pathset.Set {
	var s pathset.Set
	for i := range m.P {
		s |= pathset.Of(i)
	}
	return s
}

// arrival is one call of Observe.
type arrival struct {
	key  uint64
	path int
	at   time.Duration
}

// compare runs the arrivals through both versions and fails where they differ.
func compare(t *testing.T, c Config, P pathset.Set, arrivals []arrival) {
	t.Helper()
	f, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	f.SetPaths(1, P, 0)
	m := newModel(c, P)
	before := P
	for n, a := range arrivals {
		m.observe(a.key, a.path, a.at)
		d, ok := f.Observe(a.key, a.path, a.at)
		want := m.paths()
		if got, _ := f.Paths(); got != want || ok != (want != before) {
			t.Fatalf("arrival %d %+v: P = %v, decision %v, want P = %v from %v", n, a, got, ok, want, before)
		}
		if ok && (d.Remaining != want || d.Removed != before&^want || d.Single != m.stopped || d.Generation != 1) {
			t.Fatalf("arrival %d %+v: decision %+v, want P = %v from %v", n, a, d, want, before)
		}
		if s := f.Stats(); int(f.n) != m.n || s.Remembered != len(m.packets) {
			t.Fatalf(
				"arrival %d %+v: %d settled, %d remembered, want %d and %d",
				n,
				a,
				f.n,
				s.Remembered,
				m.n,
				len(m.packets),
			)
		}
		rewards := f.Stats().PerPath
		for i := range pathset.Max {
			if want.Has(i+1) && int(rewards[i].Reward) != m.N[i+1] {
				t.Fatalf("arrival %d %+v: N_%d = %d, want %d", n, a, i+1, rewards[i].Reward, m.N[i+1])
			}
		}
		before = want
	}
}

// TestModel compares Flow with the literal algorithm on random paths. Some are dead, lossy, slow or only
// temporarily good.
func TestModel(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		c := Printed()
		c.W = 1 + r.IntN(40)
		c.Alpha = time.Duration(1+r.IntN(20)) * time.Millisecond
		c.Timeout = c.Alpha + time.Duration(r.IntN(20))*time.Millisecond
		c.Memory = c.Timeout + time.Duration(r.IntN(100))*time.Millisecond
		compare(t, c, pathset.Set(r.Uint32()), randomArrivals(r))
	}
}

func randomArrivals(r *rand.Rand) []arrival {
	type path struct{ delay, spread, loss, odd float64 }
	var paths [pathset.Max]path
	for i := range paths {
		paths[i] = path{r.Float64() * 20, r.Float64() * r.Float64() * 30, 0, 0}
		switch r.IntN(4) {
		case 0:
			paths[i].loss = r.Float64()
		case 1:
			paths[i].loss = float64(r.IntN(2))
		case 2:
			paths[i].odd = r.Float64() / 20
		}
	}
	var arrivals []arrival
	sent := 0.0
	for key := range uint64(200) {
		sent += r.Float64() * 5
		for i, p := range paths {
			if r.Float64() < p.odd {
				paths[i].delay = r.Float64() * 40
			}
			if r.Float64() >= p.loss {
				at := sent + paths[i].delay + r.Float64()*p.spread
				arrivals = append(arrivals, arrival{key % 150, i + 1, time.Duration(at * float64(time.Millisecond))})
			}
		}
	}
	sortArrivals(arrivals)
	return arrivals
}
