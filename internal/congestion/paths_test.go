package congestion

import (
	"slices"
	"testing"
	"time"
)

const mbit = 1e6 / 8

// path1 is the default path of Table I of the packet-duplication paper.
func path1() simPath {
	return simPath{rate: 400 * mbit, delay: 20 * time.Millisecond, loss: 0.0005, queue: 1000 * simPacket}
}

// TestThroughput sends bulk data: a flow must use the path's rate without filling its queue.
func TestThroughput(t *testing.T) {
	with := func(change func(*simPath)) simPath {
		p := path1()
		change(&p)
		return p
	}
	tests := []struct {
		name       string
		controller string
		path       simPath
		mbps       float64       // minimum
		queue      time.Duration // maximum of the median; 0 = unchecked
	}{
		{"path 1", "bbr", path1(), 385, 2 * time.Millisecond},
		{"path 1", "newreno", path1(), 10, 0},
		{"path 1", "cubic", path1(), 10, 0},
		{"varying delay", "bbr", with(func(p *simPath) { p.vary = 50 * time.Millisecond }), 370, 25 * time.Millisecond},
		{"no loss", "bbr", with(func(p *simPath) { p.loss = 0 }), 370, 2 * time.Millisecond},
		{"no loss", "cubic", with(func(p *simPath) { p.loss = 0 }), 300, 0},
		{"no loss", "newreno", with(func(p *simPath) { p.loss = 0 }), 280, 0},
		{"no loss", "vegas", with(func(p *simPath) { p.loss = 0 }), 250, 5 * time.Millisecond},
		{"no loss", "yeah", with(func(p *simPath) { p.loss = 0 }), 330, 20 * time.Millisecond},
		{"1 % loss", "bbr", with(func(p *simPath) { p.loss = 0.01 }), 320, 2 * time.Millisecond},
		{"burst loss", "bbr", with(func(p *simPath) { p.loss = 0; p.burstLoss = 0.005 }), 250, 2 * time.Millisecond},
		{
			"shallow queue",
			"bbr",
			with(func(p *simPath) { p.loss = 0; p.queue = 70 * simPacket }),
			320,
			time.Millisecond,
		},
		{
			"CE marks",
			"bbr",
			with(func(p *simPath) { p.loss = 0; p.markAbove = 2 * time.Millisecond }),
			330,
			2 * time.Millisecond,
		},
		{
			"CE marks",
			"cubic",
			with(func(p *simPath) { p.loss = 0; p.markAbove = 2 * time.Millisecond }),
			280,
			3 * time.Millisecond,
		},
		{
			"aggregated ACKs",
			"bbr",
			with(func(p *simPath) { p.loss = 0; p.rate = 100 * mbit; p.aggregate = 10 * time.Millisecond }),
			95,
			0,
		},
		{
			"one building",
			"bbr",
			simPath{rate: 300 * mbit, delay: 100 * time.Microsecond, queue: 512 << 10},
			280,
			time.Millisecond,
		},
		{
			"slow and long",
			"bbr",
			simPath{rate: mbit, delay: 250 * time.Millisecond, queue: 64 << 10},
			0.8,
			350 * time.Millisecond,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name+"/"+tt.controller, func(t *testing.T) {
			t.Parallel()
			s := newSim(tt.path, 1)
			f := s.newSender(t, tt.controller)
			f.startBulk(0)
			const warmup, over = 4 * time.Second, 6 * time.Second
			s.run(warmup)
			f.mark()
			s.queueDelays = s.queueDelays[:0]
			s.run(warmup + over)
			mbps, p50, p99 := f.mbps(over), percentile(s.queueDelays, 0.5), percentile(s.queueDelays, 0.99)
			t.Logf("%.1f Mbit/s, queueing delay %v p50, %v p99, %d dropped", mbps, p50, p99, s.drops)
			if mbps < tt.mbps {
				t.Errorf("%.1f Mbit/s, want at least %.0f", mbps, tt.mbps)
			}
			if tt.queue > 0 && p50 > tt.queue {
				t.Errorf("median queueing delay %v, want at most %v", p50, tt.queue)
			}
		})
	}
}

// TestFrames sends a camera stream: a 375 kB frame every 33 ms, 90 Mbit/s. Each frame must be sent
// within its interval, the estimate must not fall to the camera's rate, and a frame must not be
// sent as one burst.
func TestFrames(t *testing.T) {
	const interval, size = 33333 * time.Microsecond, 375_000
	with := func(change func(*simPath)) simPath {
		p := path1()
		change(&p)
		return p
	}
	tests := []struct {
		name      string
		path      simPath
		delay     time.Duration // maximum of the frame delays' 99th percentile
		bandwidth float64       // minimum of the estimate, Mbit/s
	}{
		{"path 1", path1(), 80 * time.Millisecond, 150},
		{"no loss", with(func(p *simPath) { p.loss = 0 }), 40 * time.Millisecond, 150},
		{"varying delay", with(func(p *simPath) { p.vary = 50 * time.Millisecond }), 200 * time.Millisecond, 150},
		{"1 % loss", with(func(p *simPath) { p.loss = 0.01 }), 160 * time.Millisecond, 85},
		{"shallow queue", with(func(p *simPath) { p.queue = 70 * simPacket }), 120 * time.Millisecond, 110},
		{"little to spare", with(func(p *simPath) { p.rate = 110 * mbit }), 200 * time.Millisecond, 90},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newSim(tt.path, 1)
			f := s.newSender(t, "bbr")
			f.startFrames(0, interval, size)
			s.run(4 * time.Second)
			lowest := f.flow.Estimates().Bandwidth
			for s.now < 30*time.Second {
				s.run(s.now + 100*time.Millisecond)
				lowest = min(lowest, f.flow.Estimates().Bandwidth)
			}
			d := f.frameDelays(4*time.Second, 29*time.Second)
			t.Logf(
				"frame delay %v p50, %v p95, %v p99; lowest estimate %.0f Mbit/s; %s",
				percentile(d, 0.5),
				percentile(d, 0.95),
				percentile(d, 0.99),
				lowest/mbit,
				f.flow.Estimates().Phase,
			)
			if p := percentile(d, 0.99); p > tt.delay {
				t.Errorf("99th percentile of frame delay %v, want at most %v", p, tt.delay)
			}
			if lowest < tt.bandwidth*mbit {
				t.Errorf("the estimate fell to %.0f Mbit/s, want at least %.0f", lowest/mbit, tt.bandwidth)
			}
		})
	}
}

// TestWindowOfFrames sends frames that leave the path idle in between. The window must not grow with their number: the
// acknowledgements of earlier frames are not a burst.
func TestWindowOfFrames(t *testing.T) {
	const product = int64(120 * mbit * 0.02)
	for _, size := range []int{50_000, 100_000, 150_000, 250_000} {
		s := newSim(simPath{rate: 120 * mbit, delay: 10 * time.Millisecond, queue: 1_500_000}, 1)
		f := s.newSender(t, "bbr")
		f.startFrames(0, 50*time.Millisecond, size)
		s.run(10 * time.Second)
		if w := f.flow.Estimates().Window; w > 3*product+int64(size) {
			t.Errorf("frames of %d bytes: the window is %d bytes, want at most three bandwidth-delay products and a frame",
				size, w)
		}
	}
}

// TestFairness lets flows share a bottleneck; each starts two seconds after the previous one.
func TestFairness(t *testing.T) {
	flows := func(names ...string) []string { return names }
	const bbr, cubic = "bbr", "cubic"
	tests := []struct {
		name  string
		flows []string
		mbps  float64
		rtt   time.Duration
		queue float64       // bandwidth-delay products
		jain  float64       // minimum
		least float64       // minimum of the smallest rate, relative to a fair share
		wait  float64       // maximum of the median queue, bandwidth-delay products; 0 = unchecked
		slot  time.Duration // interval between ACKs, as on a busy host
	}{
		{"two BBR, shallow", flows(bbr, bbr), 100, 30 * time.Millisecond, 0.5, 0.95, 0.7, 0.35, 0},
		{"two BBR", flows(bbr, bbr), 100, 30 * time.Millisecond, 1, 0.95, 0.7, 0.5, 0},
		{"two BBR, deep", flows(bbr, bbr), 100, 30 * time.Millisecond, 4, 0.95, 0.7, 0.75, 0},
		{"two BBR, 10 Mbit/s", flows(bbr, bbr), 10, 30 * time.Millisecond, 2, 0.9, 0.6, 0, 0},
		{"two BBR, 100 ms", flows(bbr, bbr), 30, 100 * time.Millisecond, 1, 0.9, 0.6, 0, 0},
		{"four BBR", flows(bbr, bbr, bbr, bbr), 100, 30 * time.Millisecond, 1, 0.95, 0.6, 0.9, 0},
		{"BBR and CUBIC, shallow", flows(bbr, cubic), 100, 30 * time.Millisecond, 0.5, 0.8, 0.4, 0, 0},
		{"BBR and CUBIC", flows(bbr, cubic), 100, 30 * time.Millisecond, 1, 0.8, 0.4, 0, 0},
		{"BBR and CUBIC, two", flows(bbr, cubic), 100, 30 * time.Millisecond, 2, 0.7, 0.3, 0, 0},
		{"BBR and CUBIC, deep", flows(bbr, cubic), 100, 30 * time.Millisecond, 4, 0.7, 0.3, 0, 0},
		{"CUBIC and BBR", flows(cubic, bbr), 100, 30 * time.Millisecond, 1, 0.75, 0.35, 0, 0},
		{"CUBIC and BBR, deep", flows(cubic, bbr), 100, 30 * time.Millisecond, 4, 0.7, 0.3, 0, 0},
		{"BBR and CUBIC, 10 Mbit/s", flows(bbr, cubic), 10, 30 * time.Millisecond, 1, 0.7, 0.3, 0, 0},
		{
			"BBR and CUBIC, 100 ms",
			flows(bbr, cubic),
			30,
			100 * time.Millisecond,
			1,
			0.55,
			0.12,
			0,
			0,
		}, // a probe every 25 rounds
		{
			"two BBR and two CUBIC, shallow",
			flows(bbr, bbr, cubic, cubic),
			100,
			30 * time.Millisecond,
			0.5,
			0.75,
			0.35,
			0,
			0,
		},
		{"two BBR and two CUBIC", flows(bbr, bbr, cubic, cubic), 100, 30 * time.Millisecond, 1, 0.7, 0.3, 0, 0},
		{"two BBR and two CUBIC, deep", flows(bbr, bbr, cubic, cubic), 100, 30 * time.Millisecond, 4, 0.75, 0.35, 0, 0},
		{
			"two BBR and two CUBIC, ACKs in slots",
			flows(bbr, bbr, cubic, cubic),
			100,
			30 * time.Millisecond,
			1,
			0.65,
			0.2,
			0,
			2 * time.Millisecond,
		},
		{
			"BBR and CUBIC, ACKs in slots",
			flows(bbr, cubic),
			100,
			30 * time.Millisecond,
			1,
			0.65,
			0.3,
			0,
			2 * time.Millisecond,
		},
		{"three BBR and a CUBIC", flows(bbr, bbr, bbr, cubic), 100, 30 * time.Millisecond, 1, 0.8, 0.3, 0, 0},
		{"BBR and NewReno", flows(bbr, "newreno"), 100, 30 * time.Millisecond, 2, 0.7, 0.25, 0, 0},
		{"two CUBIC", flows(cubic, cubic), 100, 30 * time.Millisecond, 1, 0.75, 0.4, 0, 0},
		{"two NewReno", flows("newreno", "newreno"), 100, 30 * time.Millisecond, 1, 0.75, 0.4, 0, 0},
		{"two YeAH", flows("yeah", "yeah"), 100, 30 * time.Millisecond, 1, 0.7, 0.3, 0, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			product := tt.mbps * mbit * tt.rtt.Seconds()
			s := newSim(simPath{
				rate: tt.mbps * mbit, delay: tt.rtt / 2, queue: int(tt.queue * product), aggregate: tt.slot,
			}, 3)
			const stagger, settle, over = 2 * time.Second, 4 * time.Second, 30 * time.Second
			all := make([]*simSender, len(tt.flows))
			for i, name := range tt.flows {
				all[i] = s.newSender(t, name)
				all[i].startBulk(time.Duration(i) * stagger)
			}
			began := time.Duration(len(all))*stagger + settle
			s.run(began)
			for _, f := range all {
				f.mark()
			}
			s.queueDelays = s.queueDelays[:0]
			s.run(began + over)
			rates, share := make([]float64, len(all)), tt.mbps/float64(len(all))
			for i, f := range all {
				rates[i] = f.mbps(over)
				if rates[i] < tt.least*share {
					t.Errorf(
						"flow %d (%s) got %.1f Mbit/s, want at least %.1f",
						i,
						tt.flows[i],
						rates[i],
						tt.least*share,
					)
				}
			}
			wait := percentile(s.queueDelays, 0.5).Seconds() / tt.rtt.Seconds()
			t.Logf("%.1f Mbit/s, Jain's index %.3f, queue %.2f bandwidth-delay products", rates, jain(rates...), wait)
			if j := jain(rates...); j < tt.jain {
				t.Errorf("Jain's index %.3f, want at least %.2f", j, tt.jain)
			}
			if tt.wait > 0 && wait > tt.wait {
				t.Errorf("%.2f bandwidth-delay products in the queue, want at most %.2f", wait, tt.wait)
			}
		})
	}
}

// TestRateChanges changes the path's rate tenfold (draft-ietf-ccwg-bbr appendices A.17 and A.18).
func TestRateChanges(t *testing.T) {
	for _, tt := range []struct {
		name          string
		before, after float64 // Mbit/s
	}{{"up", 10, 100}, {"down", 100, 10}} {
		t.Run(tt.name, func(t *testing.T) {
			s := newSim(simPath{delay: 20 * time.Millisecond, queue: 256 << 10, rateAt: func(at time.Duration) float64 {
				if at < 10*time.Second {
					return tt.before * mbit
				}
				return tt.after * mbit
			}}, 1)
			f := s.newSender(t, "bbr")
			f.startBulk(0)
			s.run(20 * time.Second)
			f.mark()
			s.run(30 * time.Second)
			e := f.flow.Estimates()
			t.Logf("%.1f Mbit/s, estimate %.1f", f.mbps(10*time.Second), e.Bandwidth/mbit)
			if got := f.mbps(10 * time.Second); got < 0.85*tt.after {
				t.Errorf("%.1f of %.0f Mbit/s", got, tt.after)
			}
			if e.Bandwidth < 0.8*tt.after*mbit || e.Bandwidth > 1.5*tt.after*mbit {
				t.Errorf("estimate %.1f Mbit/s of a path of %.0f", e.Bandwidth/mbit, tt.after)
			}
		})
	}
}

// TestBlackout drops all packets for two seconds. The rate must recover afterwards.
func TestBlackout(t *testing.T) {
	for _, name := range Names() {
		t.Run(name, func(t *testing.T) {
			p := simPath{rate: 50 * mbit, delay: 20 * time.Millisecond, queue: 256 << 10}
			p.lossWindow = func(at time.Duration) bool { return at > 5*time.Second && at < 7*time.Second }
			s := newSim(p, 1)
			f := s.newSender(t, name)
			f.startBulk(0)
			s.run(7 * time.Second)
			f.mark()
			s.run(12 * time.Second)
			if got := f.mbps(5 * time.Second); got < 5 {
				t.Errorf("%.1f of 50 Mbit/s in the five seconds after the blackout", got)
			}
		})
	}
}

// phases records a flow's phases every millisecond until the given time.
func (s *simSender) phases(until time.Duration) (seen map[string]bool, order []string) {
	seen = map[string]bool{}
	for s.now < until {
		s.run(s.now + time.Millisecond)
		if p := s.flow.Phase(); len(order) == 0 || order[len(order)-1] != p {
			seen[p] = true
			order = append(order, p)
		}
	}
	return seen, order
}

// TestBBRPhases checks BBR's states (draft-ietf-ccwg-bbr §5.1 and appendix A).
func TestBBRPhases(t *testing.T) {
	path := simPath{rate: 50 * mbit, delay: 20 * time.Millisecond, queue: 512 << 10}
	start := func(change func(*simPath)) *simSender {
		p := path
		if change != nil {
			change(&p)
		}
		return newSim(p, 1).newSender(t, "bbr")
	}

	t.Run("bulk", func(t *testing.T) {
		f := start(nil)
		f.startBulk(0)
		_, order := f.phases(20 * time.Second)
		want := []string{
			"startup",
			"drain",
			"probe_bw_down",
			"probe_bw_cruise",
			"probe_bw_refill",
			"probe_bw_up",
			"probe_bw_down",
		}
		for i, p := range want { // down may last less than a millisecond after drain
			if i < len(order) && order[i] == p {
				continue
			}
			if i < len(order) && p == "probe_bw_down" {
				order = append(order[:i:i], append([]string{p}, order[i:]...)...)
				continue
			}
			t.Fatalf("phases %v", order)
		}
		if slices.Contains(order, "probe_rtt") {
			t.Error("ProbeRTT though the queue was empty")
		}
	})
	t.Run("the first probe immediately follows Startup", func(t *testing.T) {
		f := start(func(p *simPath) { p.queue = 4 << 20 }) // Startup ends without a loss
		f.startBulk(0)
		if seen, order := f.phases(1500 * time.Millisecond); !seen["probe_bw_up"] { // other probes wait for 2 s
			t.Errorf("phases %v", order)
		}
	})
	t.Run("a stream above the path's new rate", func(t *testing.T) {
		f := start(func(p *simPath) {
			p.queue = 30 << 10
			p.rateAt = func(at time.Duration) float64 {
				if at < 5*time.Second {
					return 8 * mbit
				}
				return 0.4 * mbit
			}
		})
		f.startFrames(0, 33*time.Millisecond, 7000)
		if _, order := f.phases(5 * time.Second); !slices.Equal(order, []string{"startup"}) {
			t.Fatalf("phases %v of a stream below the path's rate", order)
		}
		f.startFrames(5*time.Second, time.Second, 28000) // the first frame of a GoP
		if seen, order := f.phases(8 * time.Second); !seen["drain"] {
			t.Errorf("phases %v", order)
		}
	})
	t.Run("varying delay", func(t *testing.T) {
		f := start(func(p *simPath) { p.vary = 50 * time.Millisecond })
		f.startBulk(0)
		rtts, down, longest, last := 0, time.Duration(0), time.Duration(0), ""
		for f.now < 60*time.Second {
			f.run(f.now + time.Millisecond)
			phase := f.flow.Phase()
			switch {
			case phase == "probe_rtt" && last != phase:
				rtts++
			case phase == "probe_bw_down" && last == phase:
				down += time.Millisecond
				longest = max(longest, down)
			default:
				down = 0
			}
			last = phase
		}
		// Round trips take 40 to 140 ms plus the queueing delay.
		if longest > 1200*time.Millisecond {
			t.Errorf("ProbeBW_DOWN lasted %v", longest)
		}
		if rtts < 1 || rtts > 9 {
			t.Errorf("%d times in ProbeRTT within 60 s", rtts)
		}
	})
	t.Run("a queue triggers ProbeRTT", func(t *testing.T) {
		f := start(nil)
		f.startBulk(0)
		f.sim.newSender(t, "cubic").startBulk(0)
		_, order := f.phases(20 * time.Second)
		rtts := 0
		for _, p := range order {
			if p == "probe_rtt" {
				rtts++
			}
		}
		if rtts < 1 || rtts > 4 {
			t.Errorf("%d times in ProbeRTT within 20 s", rtts)
		}
	})
	t.Run("frames skip ProbeRTT", func(t *testing.T) {
		f := start(nil)
		f.startFrames(0, 33*time.Millisecond, 50_000)
		if seen, order := f.phases(20 * time.Second); seen["probe_rtt"] || seen["drain"] {
			t.Errorf("phases %v of an application that uses a quarter of the path", order)
		}
	})
	t.Run("loss ends Startup of frames", func(t *testing.T) {
		f := start(func(p *simPath) { p.loss = 0.2 })
		f.startFrames(0, 33*time.Millisecond, 50_000)
		if seen, order := f.phases(5 * time.Second); !seen["probe_bw_cruise"] {
			t.Errorf("phases %v with 20 %% loss", order)
		}
	})
	t.Run("low rate", func(t *testing.T) { // bandwidth-delay product below one packet
		f := start(func(p *simPath) { p.rate = 0.05 * mbit; p.queue = 16 << 10; p.delay = time.Millisecond })
		f.startBulk(0)
		f.run(30 * time.Second)
		f.mark()
		f.run(60 * time.Second)
		if w, got := f.flow.Window(), f.mbps(30*time.Second); w < 4*simPacket || got < 0.04 {
			t.Errorf("window %d, %.3f of 0.05 Mbit/s", w, got)
		}
	})
}
