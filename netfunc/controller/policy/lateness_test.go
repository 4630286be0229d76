package policy

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"holocast/netfunc/api"
	"holocast/netfunc/pathset"
)

// A stream consists of a viewer's frames over path 1 and the receipts for them.
type stream struct {
	fps     float64
	packets int                                           // per frame
	loss    float64                                       // of packets and probes
	floor   time.Duration                                 // one-way delay
	noise   time.Duration                                 // mean of extra delay, per packet
	varies  [2]time.Duration                              // range of extra delay, held for 50 to 200 ms
	step    time.Duration                                 // delay added permanently at begins
	dead    bool                                          // once it varies
	decode  func(*rand.Rand, time.Duration) time.Duration // time to show a frame
	conf    func(*Config)
}

// begins is the time at which a stream's path begins to vary.
const begins = 10 * time.Second

// delays returns a direction's extra delay as a function of time.
func (s stream) delays(r *rand.Rand) func(time.Duration) time.Duration {
	var held, until time.Duration
	return func(at time.Duration) time.Duration {
		if at < begins {
			return 0
		}
		if at >= until && s.varies[1] > 0 {
			held = s.varies[0] + time.Duration(r.Int64N(int64(s.varies[1]-s.varies[0])))
			until = at + time.Duration(50+r.IntN(150))*time.Millisecond
		}
		return s.step + held
	}
}

// starts plays a stream through an engine. It returns the time at which duplication starts, or 0 if
// it does not, and the reason.
func (s stream) starts(t *testing.T, seed uint64, length time.Duration) (time.Duration, string) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 1))
	exp := func(mean time.Duration) time.Duration { return time.Duration(r.ExpFloat64() * float64(mean)) }
	w := pair(t, s.conf)
	w.plain["a"] = api.Route{Path: 1}
	begun := w.now
	forward, back := s.delays(r), s.delays(r)

	// There is a probe every 100 ms, and a report every second and when the path gets worse.
	var rtts []time.Duration // 0 = lost
	var told time.Duration
	var toldMute bool
	probe := func(at time.Duration) {
		rtt := 2*s.floor + forward(at) + back(at) + exp(s.noise) + exp(s.noise)
		if r.Float64() < 2*s.loss || s.dead && at >= begins {
			rtt = 0
		}
		rtts = append(rtts, rtt)
		rtts = rtts[max(0, len(rtts)-128):]
		var sum, least time.Duration
		var lost, recent int
		for i, x := range rtts {
			if x == 0 {
				lost++
				continue
			}
			if least == 0 || x < least {
				least = x
			}
			if i >= len(rtts)-20 {
				sum, recent = sum+x, recent+1
			}
		}
		mean := sum / time.Duration(max(1, recent))
		mute := len(rtts) > 3 && !slices.ContainsFunc(rtts[len(rtts)-3:], func(x time.Duration) bool { return x != 0 })
		if at%time.Second != 0 && mean-least <= told+5*time.Millisecond && mute == toldMute {
			return
		}
		told, toldMute = mean-least, mute
		w.set("a", 1, func(p *api.Path) {
			p.RTT, p.MinRTT = float64(mean)/1e6, float64(least)/1e6
			p.Lost, p.Silent = lost, mute
		})
		w.report("a")
		w.report("b")
	}

	var free, probed time.Duration
	for n := 0; ; n++ {
		sent := time.Duration(float64(n) / s.fps * float64(time.Second))
		if sent >= length {
			return 0, ""
		}
		arrives := sent + s.floor + forward(sent) + exp(s.noise)
		for lost := s.packets; lost > 0; { // each round trip retransmits the packets lost in the previous one
			again := 0
			for range lost {
				if r.Float64() < s.loss {
					again++
				}
			}
			if lost = again; lost > 0 {
				arrives += 2*s.floor + forward(sent) + back(sent)
			}
		}
		shown := max(arrives, free)
		if shown > arrives+time.Duration(2/s.fps*float64(time.Second)) || s.dead && sent >= begins {
			shown = 0 // the decoder skips the frame, or it is lost
		} else {
			shown += s.decode(r, sent)
			free = shown
		}
		for probed <= max(shown, sent) {
			w.pass(max(0, begun.Add(probed).Sub(w.now)))
			probe(probed)
			probed += 100 * time.Millisecond
		}
		if shown > 0 {
			w.pass(max(0, begun.Add(shown).Sub(w.now)))
			w.see("b")
		}
		for _, d := range w.log {
			if d.Kind == "start" {
				return d.Time.Sub(begun), d.Reason
			}
		}
		w.log, w.sent = w.log[:0], w.sent[:0]
	}
}

// decoding returns random decoding times between least and most. Once every pauses, unless it is 0,
// decoding takes 100 to 900 ms longer.
func decoding(least, most, pauses time.Duration) func(*rand.Rand, time.Duration) time.Duration {
	next := pauses
	return func(r *rand.Rand, at time.Duration) time.Duration {
		d := least + time.Duration(r.Int64N(int64(most-least)))
		if pauses > 0 && at >= next {
			next = at + pauses
			d += time.Duration(100+r.IntN(800)) * time.Millisecond
		}
		return d
	}
}

// levels holds the frame sizes of Table I's streams, in 1400-byte packets.
var levels = map[string]int{"NFOV": 210, "HD": 340, "FHD": 645}

// table1 returns a stream over path 1 of Table I.
func table1(packets int) stream {
	const ms = time.Millisecond
	return stream{
		fps: 30, packets: packets, loss: 0.0005, floor: 20 * ms, noise: ms / 2, varies: [2]time.Duration{0, 50 * ms},
		decode: decoding(4*ms, 10*ms, 0),
	}
}

func TestLatenessStarts(t *testing.T) {
	const ms = time.Millisecond
	with := func(change func(*stream)) stream { s := table1(levels["NFOV"]); change(&s); return s }
	cases := map[string]struct {
		stream
		within time.Duration
	}{
		"15 fps":             {with(func(s *stream) { s.fps, s.varies[1] = 15, 100*ms }), 4 * time.Second},
		"60 fps":             {with(func(s *stream) { s.fps = 60 }), 2 * time.Second},
		"no packet is lost":  {with(func(s *stream) { s.loss = 0 }), 4 * time.Second},
		"long path":          {with(func(s *stream) { s.floor = 150 * ms }), 2 * time.Second},
		"slow decoder":       {with(func(s *stream) { s.decode = decoding(40*ms, 70*ms, 0) }), 5 * time.Second},
		"the path dies":      {with(func(s *stream) { s.varies, s.dead = [2]time.Duration{}, true }), 700 * ms},
		"a queue builds up":  {with(func(s *stream) { s.varies = [2]time.Duration{30 * ms, 250 * ms} }), 2 * time.Second},
		"packets are lost":   {with(func(s *stream) { s.varies, s.loss = [2]time.Duration{}, 0.05 }), 10 * time.Second},
		"sensitivity of 5":   {with(func(s *stream) { s.varies[1], s.conf = 20*ms, sensitivity(5) }), 3 * time.Second},
		"paper, long delays": {with(func(s *stream) { s.fps, s.conf = 5, paper }), time.Second},
	}
	for name, packets := range levels {
		cases["Table I, "+name] = struct {
			stream
			within time.Duration
		}{table1(packets), 2 * time.Second}
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(8) {
				at, why := c.starts(t, seed, begins+time.Minute)
				if early := c.loss < 0.01 && at < begins && name != "paper, long delays"; at == 0 || early || at > begins+c.within {
					t.Errorf("seed %d: starts at %v (%s), want within %v of %v", seed, at, why, c.within, begins)
				}
			}
		})
	}
}

func paper(c *Config) { c.Trigger.Rule = Paper }

func sensitivity(s float64) func(*Config) { return func(c *Config) { c.Trigger.Sensitivity = s } }

func TestLatenessRests(t *testing.T) {
	const ms = time.Millisecond
	clean := stream{fps: 30, packets: 210, floor: 20 * ms, noise: ms / 2, decode: decoding(4*ms, 10*ms, 0)}
	with := func(change func(*stream)) stream { s := clean; change(&s); return s }
	for name, s := range map[string]stream{
		"clean path":                   clean,
		"long path":                    with(func(s *stream) { s.floor = 200 * ms }),
		"slow decoder":                 with(func(s *stream) { s.decode = decoding(60*ms, 200*ms, 0) }),
		"decoder that pauses":          with(func(s *stream) { s.decode = decoding(10*ms, 80*ms, 7*time.Second) }),
		"slow decoder, long path":      with(func(s *stream) { s.floor, s.decode = 200*ms, decoding(60*ms, 200*ms, 0) }),
		"2 fps":                        with(func(s *stream) { s.fps = 2 }),
		"60 fps":                       with(func(s *stream) { s.fps = 60 }),
		"longer route, once":           with(func(s *stream) { s.step = 60 * ms }),
		"Table I's loss, delay steady": with(func(s *stream) { s.loss, s.packets = 0.0005, 645 }),
		"paper's rule, Table I":        with(func(s *stream) { *s = table1(645); s.conf = paper }),
		"insensitive, Table I":         with(func(s *stream) { *s = table1(210); s.conf = sensitivity(0.1) }),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			length := 10 * time.Minute
			if s.conf == nil && s.fps <= 30 && s.step == 0 {
				length = time.Hour
			}
			if at, why := s.starts(t, 1, length); at != 0 {
				t.Errorf("starts at %v: %s", at, why)
			}
		})
	}
}

// TestStrain checks that the strain of the path in use counts, or of the best path if there are
// several.
func TestStrain(t *testing.T) {
	w := pair(t, nil)
	w.live(time.Second, 33*time.Millisecond)
	f := w.e.flows[viewer]
	if s := w.e.strain(f); s.known {
		t.Errorf("%+v of a flow over an unknown path", s)
	}
	w.plain["a"] = api.Route{Path: 2}
	w.set("a", 1, func(p *api.Path) { p.RTT, p.MinRTT = 20, 20 })
	w.set("a", 2, func(p *api.Path) { p.RTT, p.MinRTT = 60, 30 })
	w.set("a", 3, func(p *api.Path) { p.Loss = 1 })
	w.report("a")
	for _, c := range []struct {
		paths  pathset.Set
		excess time.Duration
		mute   bool
	}{
		{0, 30 * time.Millisecond, false},
		{pathset.Of(1), 0, false},
		{pathset.Of(2, 3), 30 * time.Millisecond, false},
		{pathset.Of(1, 2, 3), 0, false},
		{pathset.Of(3), 0, true},
	} {
		f.Paths = c.paths
		if s := w.e.strain(f); !s.known || s.excess != c.excess || s.mute != c.mute {
			t.Errorf("paths %s: %+v", c.paths, s)
		}
	}
	f.Paths = pathset.Of(4) // without probes
	if s := w.e.strain(f); s.known {
		t.Errorf("%+v", s)
	}
}

// TestLatenessSilence checks that the silence of a viewer counts only while its path is also silent,
// whichever falls silent first.
func TestLatenessSilence(t *testing.T) {
	w := pair(t, nil)
	w.plain["a"] = api.Route{Path: 1}
	silent := func(is bool) {
		w.set("a", 1, func(p *api.Path) { p.RTT, p.MinRTT, p.Silent = 20, 20, is })
		w.report("a")
		w.report("b")
	}
	silent(false)
	w.live(2*time.Second, 33*time.Millisecond)
	w.pass(time.Second)
	if kinds, _ := w.look(); len(kinds) > 0 {
		t.Fatalf("%v for a viewer that pauses", kinds)
	}
	silent(true)
	if kinds, _ := w.look(); len(kinds) != 1 || kinds[0] != "start" {
		t.Fatalf("%v for a viewer whose path falls silent later", kinds)
	}
}
