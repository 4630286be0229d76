package congestion

import (
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// Flow is the congestion control of one connection: a [Controller], its delivery-rate sampler and
// its pacer. All methods except Estimates must be called on the connection's goroutine.
//
// All parameters have predeclared types or time.Duration, so a QUIC implementation can declare an
// interface for Flow without importing this package.
type Flow struct {
	name  string
	rand  *rand.Rand
	c     State
	s     sampler
	ctl   Controller
	pacer pacer

	acked, lost []int64 // by the current ACK or timer
	ce          int64
	spurious    []int64

	largestSent    int64
	largestAcked   int64
	recoveryUntil  int64 // largest packet sent before the latest response to loss
	prevRecovery   int64 // previous recoveryUntil
	episodeLosses  int   // packets of the latest episode not known to be spuriously lost
	episodeUndo    bool  // false if the episode includes CE marks
	roundEnd       int64 // value of Delivered at the end of the round that CwndLimited covers
	limitedInRound bool
	idle           bool // the application has nothing to send
	idleSince      time.Duration
	firstRTTAt     time.Duration
	lossRun        lossRun

	mu  sync.Mutex
	est Estimates
}

// Estimates holds a flow's estimates of its path.
type Estimates struct {
	Controller  string        // configuration name
	Phase       string        // "startup", "probe_bw_cruise", "recovery", …
	Bandwidth   float64       // estimated rate of the path for this flow, bytes/s; 0 = unknown
	PacingRate  float64       // bytes/s
	MinRTT      time.Duration // 0 = unknown
	SmoothedRTT time.Duration
	Window      int64 // bytes
	InFlight    int64 // bytes
	Delivered   int64 // bytes acknowledged
	Lost        int64 // bytes declared lost
	// AppLimited means that the application sends less than the estimated rate, so Bandwidth may be
	// too low.
	AppLimited bool
}

// NewFlow creates a flow with the named controller (see [Names]). maxDatagramSize is in bytes.
func NewFlow(name string, maxDatagramSize int64) (*Flow, error) {
	return newFlow(name, maxDatagramSize, rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())))
}

func newFlow(name string, maxDatagramSize int64, rnd *rand.Rand) (*Flow, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	f := &Flow{name: name, rand: rnd, largestSent: -1, largestAcked: -1}
	f.reset(maxDatagramSize)
	return f, nil
}

func (f *Flow) reset(maxDatagramSize int64) {
	f.c = State{MaxDatagramSize: max(maxDatagramSize, 1)}
	f.s = sampler{c: &f.c}
	f.ctl = constructors[f.name](&f.c, f.rand)
	f.pacer = pacer{smss: f.c.MaxDatagramSize, rate: f.ctl.PacingRate()}
	f.pacer.credit = f.pacer.quantum()
	f.acked, f.lost, f.spurious, f.ce = f.acked[:0], f.lost[:0], f.spurious[:0], 0
	f.recoveryUntil, f.prevRecovery = f.largestSent, f.largestSent
	f.episodeLosses = 0
	f.lossRun = lossRun{}
	f.roundEnd, f.limitedInRound, f.idle, f.firstRTTAt = 0, false, false, 0
	f.publish()
}

// Migrated resets the estimates after a change of path (RFC 9000 §9.4).
func (f *Flow) Migrated(maxDatagramSize int64) { f.reset(maxDatagramSize) }

// Sent records a packet that counts towards the bytes in flight; inFlight includes it. Packet
// numbers must ascend.
func (f *Flow) Sent(now time.Duration, number, size, inFlight int64) {
	f.c.InFlight = inFlight - size
	f.checkAppLimited(now)
	f.idle = false
	f.ctl.OnSend(now)
	f.pacer.rate = f.ctl.PacingRate()
	f.c.InFlight = inFlight
	f.s.sent(now, number, size)
	f.pacer.sent(now, size)
	f.largestSent = number
}

// Acked records an acknowledged packet. Acked, Lost, SpuriousLoss and CongestionExperienced collect
// the events of one ACK or loss timer, which take effect in Done.
func (f *Flow) Acked(number int64) { f.acked = append(f.acked, number) }

// Lost records a packet declared lost. MTU probes are excluded.
func (f *Flow) Lost(number int64) { f.lost = append(f.lost, number) }

// SpuriousLoss records that a packet declared lost has arrived.
func (f *Flow) SpuriousLoss(number int64) { f.spurious = append(f.spurious, number) }

// CongestionExperienced records newly reported ECN-CE marks.
func (f *Flow) CongestionExperienced(marks int64) { f.ce += marks }

// Done ends the processing of an ACK or a loss timer. inFlight is the volume now in flight. oldest
// is the lowest outstanding packet number, or any number above all sent if there is none.
func (f *Flow) Done(now time.Duration, inFlight, oldest int64) {
	f.checkAppLimited(now)
	slices.Sort(f.acked) // unsorted only if two senders send packets
	slices.Sort(f.lost)
	f.s.begin()
	for _, n := range f.acked {
		f.s.acked(now, n)
		f.largestAcked = max(f.largestAcked, n)
	}
	f.c.InFlight = inFlight
	if f.s.hasData {
		f.updateRTT(now, now-f.s.newestSent)
	}
	f.processLosses(now)
	f.s.finish(now)
	f.s.rs.CE = f.ce
	if f.s.hasData && f.s.rs.PriorDelivered >= f.roundEnd {
		f.roundEnd = f.c.Delivered
		f.c.CwndLimited, f.limitedInRound = f.limitedInRound, false
	}
	f.c.CwndLimited = f.c.CwndLimited || f.limitedInRound
	if f.ce > 0 && f.s.hasData {
		// Respond once per round trip, as to loss (RFC 9002 §7.1).
		episode := f.s.rs.NewestSent > f.recoveryUntil
		if episode {
			f.startRecovery()
			f.episodeUndo = false
		}
		f.ctl.OnECN(now, &f.s.rs, episode)
	}
	f.c.InRecovery = f.c.InRecovery && f.largestAcked <= f.recoveryUntil
	if f.s.hasData {
		f.ctl.OnAck(now, &f.s.rs)
	}
	f.processSpurious(now)
	f.s.hist.dropBelow(oldest)
	f.acked, f.lost, f.spurious, f.ce = f.acked[:0], f.lost[:0], f.spurious[:0], 0
	f.pacer.advance(now)
	f.pacer.rate = f.ctl.PacingRate()
	f.pacer.catchUp = min(f.c.MinRTT/2, catchUpMost)
	f.publish()
}

func (f *Flow) startRecovery() {
	f.prevRecovery, f.recoveryUntil = f.recoveryUntil, f.largestSent
	f.episodeLosses, f.episodeUndo = 0, true
	f.c.InRecovery = true
}

func (f *Flow) processLosses(now time.Duration) {
	if len(f.lost) == 0 {
		return
	}
	for _, n := range f.lost {
		p := f.s.hist.get(n)
		if p == nil || p.state != packetOutstanding {
			continue
		}
		p.state = packetLost
		size := int64(p.size)
		f.c.Lost += size
		f.s.rs.NewlyLost += size
		l := Loss{
			Number: n, Size: size, TxInFlight: p.inFlight,
			Lost: f.c.Lost - p.lost, AppLimited: p.appLimited,
			Episode: n > f.recoveryUntil,
		}
		if l.Episode {
			f.startRecovery()
		}
		if n > f.prevRecovery {
			f.episodeLosses++
		}
		f.lossRun.add(&f.s.hist, n)
		f.ctl.OnLoss(now, &l)
	}
	if f.isPersistent() {
		f.lossRun = lossRun{}
		f.ctl.OnPersistentCongestion(now)
	}
}

func (f *Flow) processSpurious(now time.Duration) {
	for _, n := range f.spurious {
		if n <= f.prevRecovery || n > f.recoveryUntil || f.episodeLosses == 0 {
			continue
		}
		f.episodeLosses--
		if f.episodeLosses == 0 && f.episodeUndo {
			f.ctl.OnSpuriousLoss(now)
			f.recoveryUntil = f.prevRecovery
		}
	}
}

// updateRTT implements RFC 9002 §5.3 without the acknowledgement delay, which is small for steady
// streams.
func (f *Flow) updateRTT(now, rtt time.Duration) {
	if rtt <= 0 {
		return
	}
	c := &f.c
	c.LatestRTT = rtt
	if c.SmoothedRTT == 0 {
		c.SmoothedRTT, c.RTTVar, c.MinRTT = rtt, rtt/2, rtt
		f.firstRTTAt = now
		return
	}
	c.MinRTT = min(c.MinRTT, rtt)
	c.RTTVar += ((c.SmoothedRTT - rtt).Abs() - c.RTTVar) / 4
	c.SmoothedRTT += (rtt - c.SmoothedRTT) / 8
}

// lossRun is the latest run of lost packets with none acknowledged between them.
type lossRun struct {
	notEmpty            bool
	last                int64
	firstSent, lastSent time.Duration
}

// add extends the run by a packet in h, or starts a new run.
func (r *lossRun) add(h *history, number int64) {
	sent := h.get(number).sent
	if !r.notEmpty || number < r.last || h.deliveredBetween(r.last, number) {
		*r = lossRun{notEmpty: true, firstSent: sent}
	}
	r.last, r.lastSent = number, sent
}

// isPersistent implements RFC 9002 §7.6.1 and §7.6.2: all ack-eliciting packets sent over at least
// three probe timeouts were lost.
func (f *Flow) isPersistent() bool {
	r := &f.lossRun
	if !r.notEmpty || f.c.SmoothedRTT == 0 || r.firstSent < f.firstRTTAt {
		return false
	}
	const (
		granularity = time.Millisecond
		maxAckDelay = 25 * time.Millisecond
	)
	pto := f.c.SmoothedRTT + max(4*f.c.RTTVar, granularity) + maxAckDelay
	return r.lastSent-r.firstSent >= 3*pto
}

// AppLimited records that the application has no data to send although the window and the pacer
// would allow it. It takes effect after appLimitedAfter: an application that waits for each write
// writes again sooner, and the pacer compensates for the gap.
func (f *Flow) AppLimited(now time.Duration) {
	if !f.idle {
		f.idle, f.idleSince = true, now
	}
	f.checkAppLimited(now)
}

const appLimitedAfter = quantumTime

// checkAppLimited marks the data in flight while the application leaves the path idle:
// CheckIfApplicationLimited of draft-ietf-ccwg-bbr §4.1.2.4.
func (f *Flow) checkAppLimited(now time.Duration) {
	if f.idle && now-f.idleSince > appLimitedAfter {
		f.c.MarkAppLimited()
	}
}

// CanSend reports whether the window allows another packet.
func (f *Flow) CanSend(inFlight int64) bool {
	if inFlight < f.ctl.Window() {
		return true
	}
	f.limitedInRound = true
	return false
}

// HasBudget reports whether the pacer allows another packet now.
func (f *Flow) HasBudget(now time.Duration) bool { return f.pacer.hasBudget(now) }

// NextSend returns the time at which the pacer allows another packet.
func (f *Flow) NextSend() time.Duration { return f.pacer.nextSend() }

// PacingRate returns the pacing rate in bytes/s.
func (f *Flow) PacingRate() float64 { return f.pacer.rate }

// Window returns the congestion window in bytes.
func (f *Flow) Window() int64 { return f.ctl.Window() }

// Phase returns the controller's state.
func (f *Flow) Phase() string { return f.ctl.Phase() }

// InRecovery reports whether no packet sent after the latest loss has been acknowledged.
func (f *Flow) InRecovery() bool { return f.c.InRecovery }

// SetMaxDatagramSize sets the size found by path MTU discovery.
func (f *Flow) SetMaxDatagramSize(size int64) {
	f.c.MaxDatagramSize = max(size, 1)
	f.pacer.smss = f.c.MaxDatagramSize
}

// Estimates returns the estimates of the path. It may be called from any goroutine.
func (f *Flow) Estimates() Estimates {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.est
}

func (f *Flow) publish() {
	e := Estimates{
		Controller: f.name, Phase: f.ctl.Phase(),
		Bandwidth: f.ctl.Bandwidth(), PacingRate: f.ctl.PacingRate(),
		MinRTT: f.c.MinRTT, SmoothedRTT: f.c.SmoothedRTT,
		Window: f.ctl.Window(), InFlight: f.c.InFlight,
		Delivered: f.c.Delivered, Lost: f.c.Lost, AppLimited: f.c.AppLimited(),
	}
	f.mu.Lock()
	f.est = e
	f.mu.Unlock()
}
