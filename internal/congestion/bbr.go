package congestion

import (
	"math"
	"math/rand/v2"
	"time"
)

// Constants of draft-ietf-ccwg-bbr §2.5 to §2.16.
const (
	bbrStartupPacingGain = 2.77
	bbrDrainPacingGain   = 0.5
	bbrUpPacingGain      = 1.25
	bbrDownPacingGain    = 0.90
	bbrPacingMargin      = 0.99 // PacingMarginPercent 1
	bbrCwndGain          = 2.0
	bbrUpCwndGain        = 2.25
	bbrProbeRTTCwndGain  = 0.5
	bbrLossThresh        = 0.02
	bbrBeta              = 0.7
	bbrHeadroom          = 0.15
	bbrMinPipePackets    = 4
	bbrExtraAckedRounds  = 10
	bbrStartupLossRanges = 6
	bbrLossyRounds       = 2
	bbrMinRTTFilterLen   = 10 * time.Second
	bbrProbeRTTInterval  = 5 * time.Second
	bbrProbeRTTDuration  = 200 * time.Millisecond
	bbrMaxCoexistRounds  = 63
	bbrDrainRounds       = 3
	bbrSimilarRTT        = 0.125 // RTT above min_rtt that still indicates an empty queue, relative to min_rtt
	bbrQueueRounds       = 6     // rounds after which a queue counts as standing
)

// never is earlier than any timestamp; unlimited is larger than any byte count.
const (
	never     = time.Duration(math.MinInt64 / 4)
	unlimited = int64(math.MaxInt64 / 4)
)

type bbrState uint8

const (
	bbrStartup bbrState = iota
	bbrDrain
	bbrProbeDown
	bbrProbeCruise
	bbrProbeRefill
	bbrProbeUp
	bbrProbeRTT
	bbrNone // no saved state to return to
)

var bbrPhases = [...]string{
	bbrStartup: "startup", bbrDrain: "drain", bbrProbeDown: "probe_bw_down", bbrProbeCruise: "probe_bw_cruise",
	bbrProbeRefill: "probe_bw_refill", bbrProbeUp: "probe_bw_up", bbrProbeRTT: "probe_rtt", bbrNone: "",
}

type bbrAckPhase uint8

const (
	acksInit bbrAckPhase = iota
	acksRefilling
	acksProbeStarting
	acksProbeFeedback
	acksProbeStopping
)

// BBR is BBRv3 as described by draft-ietf-ccwg-bbr; functions are named after the draft's and cite
// its sections. It paces at the measured delivery rate and keeps about one bandwidth-delay product
// in flight, so it neither fills queues nor treats every loss as congestion.
//
// It deviates from the draft for live streams of frames:
//
//   - Noise floor: a round whose losses stay below LossThresh (2 %) does not lower
//     the short-term model (§5.5.10.3). On a path of 400 Mbit/s and 40 ms with one
//     packet in 2000 lost, most rounds have a loss, and each would lower the rate to
//     PacingMarginPercent below its previous value. In simulation the floor raises the
//     rate from 380 to 396 Mbit/s. For a stream of frames the lowered rate would be the
//     application's, not the path's, and a frame paced at the stream's average rate
//     arrives an interval late.
//   - Delay variation that is not caused by the flow's own queue makes the volume in
//     flight and the rates of single rounds vary. extra_acked is therefore added to
//     the bounds inflight_longterm and inflight_shortterm (§5.6.4.7), as it is to
//     max_inflight, because aggregated data was not in flight when they were measured.
//     The short-term model falls to the better of the latest two rounds, not to the latest
//     (§5.5.10.3). ProbeBW_DOWN ends after three rounds if the volume in flight does
//     not fall earlier, as Drain does (§5.3.2). The first probe immediately follows
//     Startup, because rounds stretched by delay look like a full pipe. An RTT within
//     an eighth of min_rtt postpones ProbeRTT, as a lower one does (§5.3.4.3), because
//     the queue is empty. A ProbeRTT that found no lower RTT is repeated after
//     MinRTTFilterLen, not ProbeRTTInterval. With delays of 20 to 70 ms each way this
//     carries 391 of 400 Mbit/s in simulation, 384 if extra_acked is added only to
//     inflight_longterm. With constant delay the last change raises 392 to 397 Mbit/s.
//   - A flow limited by the application rather than by its window does not enter
//     ProbeRTT. It leaves the queue empty between its frames, so its samples refresh
//     min_rtt as an idle period does (§5.3.4.2).
//   - An idle period ends the interval of extra_acked and resets its count; the draft
//     resets only the interval's start (§5.4.1). Otherwise the count, and with it the
//     window, would grow with every frame of a stream that leaves the path idle in
//     between: to 20 MB within ten seconds for 100 kB every 50 ms.
//   - Startup ends after two consecutive rounds that lose more than they deliver
//     (§5.3.1.3). A stream of frames below the path's rate stays in Startup, paced
//     faster than the path's rate. Once that rate falls below the stream's, the end of
//     each burst is lost, which is only one of the six ranges of packets that the draft
//     requires, and its retransmission is lost the same way. When a path of 2 Mbit/s with a queue of
//     150 ms fell to 0.4 Mbit/s, frames of the highest priority were more than a
//     second late. If the application limits the flow, the first such round ends
//     Startup, because it could not find more bandwidth anyway.
//   - ECN: the draft requires that CE marks are treated as congestion (§3.7) but does
//     not say how. The first mark of a round trip counts as a loss above LossThresh.
//   - A standing queue counts as congestion even without loss. The estimates of BBR
//     flows that probe in turn add up to more than the path's rate; with a window of
//     twice that in ProbeBW_CRUISE they hold a queue and leave CUBIC flows little more
//     than Headroom. A queue is standing if the lowest RTT of each of six rounds exceeds
//     min_rtt by more than an eighth, the range of those rounds and twice extra_acked.
//     CRUISE then keeps (1 - Headroom) times the estimated bandwidth-delay product in
//     flight, and one product after the queue is gone, until ProbeBW_REFILL. While the
//     queue stands, the next probe waits for the limit in round trips (§5.3.3.8), not
//     for the clock. Delay variation as described above does not count as a queue.
//
// Fairness in simulation at 100 Mbit/s and 30 ms: with a queue of 0.5, 1, 2 and 4 bandwidth-delay
// products, a CUBIC flow sharing the path with one BBR flow gets 40, 32, 47 and 57 Mbit/s (28, 27,
// 33 and 49 without the standing-queue rule). Each of two CUBIC flows sharing with two BBR flows
// gets at least 17, 14 and 17 Mbit/s at 0.5, 1 and 4 products (10, 11 and 17 without). Two BBR
// flows keep 0.2, 0.2 and 0.5 products in the queue at 0.5, 1 and 4 (0.4, 0.9 and 1.3 without),
// with Jain's index 0.99 (0.94 to 1 without). If a busy host sends ACKs every 2 ms, extra_acked
// raises the windows, and each of two CUBIC flows gets 14 Mbit/s with a queue of one product (2
// Mbit/s without). At 30 Mbit/s and 100 ms, where the two or three seconds between probes are 25
// rounds, CUBIC gets 3 Mbit/s instead of its fair 15 with or without the rule, a limitation of the draft.
//
// A stream of frames that never fills the path stays in Startup or ProbeBW_UP (appendix A.7), paced
// at 2.77 or 1.25 times the highest measured rate. Each frame then leaves within its interval, and
// the estimate only grows: max_bw accepts application-limited samples only if they are higher, and
// its window does not advance on them.
type BBR struct {
	c    *State
	rand *rand.Rand
	rs   *Sample // of the ACK being processed
	now  time.Duration

	// Output (§2.4).
	cwnd       int64
	pacingRate float64
	quantum    int64
	pacingGain float64
	cwndGain   float64

	state           bbrState
	roundCount      int64
	roundStart      bool
	nextRound       int64
	idleRestart     bool
	drainStartRound int64
	hasSeenRTT      bool
	wasInRecovery   bool

	// The path's model (§2.9).
	maxBw             float64
	maxBwFilter       [2]float64 // previous and current ProbeBW cycle
	bw                float64
	bwShortterm       float64
	minRTT            time.Duration // 0 = none
	minRTTStamp       time.Duration
	extraAcked        int64
	inflightLongterm  int64
	inflightShortterm int64
	inflightQueue     int64 // see adaptToQueue
	queueStanding     bool
	maxInflight       int64

	// Congestion signals (§2.10).
	bwLatest           float64
	inflightLatest     int64
	rttLatest          time.Duration                 // lowest of the round; 0 = none
	rttRounds          [bbrQueueRounds]time.Duration // rttLatest of the latest rounds
	bwBefore           float64                       // bwLatest of the previous round
	inflightBefore     int64
	lossRoundDelivered int64
	lossRoundStart     bool
	lossInRound        bool
	ceInRound          bool
	lostInRound        int64
	lossRanges         int
	lossyRounds        int // consecutive Startup rounds that lost more than they delivered
	lastLost           int64
	recoveryRound      int64 // round in which recovery began

	extraAckedStart     time.Duration
	extraAckedDelivered int64
	extraAckedFilter    maxFilter

	// Full pipe (§2.13).
	fullBwReached bool
	fullBwNow     bool
	fullBw        float64
	fullBwCount   int

	// ProbeBW (§2.14).
	ackPhase             bbrAckPhase
	isBwProbeSample      bool
	bwProbeUpAcked       int64
	probeUpAckedPerInc   int64
	bwProbeUpRounds      uint
	roundsSinceProbeUp   int64
	bwProbeWait          time.Duration
	cycleStamp           time.Duration
	downStartRound       int64
	probeAtOnce          bool
	prevProbeTooHigh     bool
	prevProbePrecautious bool

	// Undo (§2.15).
	priorCwnd             int64
	undoState             bbrState
	undoBwShortterm       float64
	undoInflightShortterm int64
	undoInflightLongterm  int64

	// ProbeRTT (§2.16).
	probeRTTMinDelay  time.Duration // 0 = none
	probeRTTMinStamp  time.Duration
	probeRTTExpired   bool
	probeRTTDoneStamp time.Duration // never = window not reached yet
	probeRTTRoundDone bool
	probeRTTInterval  time.Duration
	lowestRTT         time.Duration // lowest RTT since ProbeRTT was last entered or left; 0 = none
	rttBeforeProbe    time.Duration // lowestRTT when ProbeRTT was entered
}

// NewBBR starts BBR (OnInit, draft-ietf-ccwg-bbr §5.2.1). rnd randomizes the probe times of flows
// that share a path.
func NewBBR(c *State, rnd *rand.Rand) *BBR {
	b := &BBR{
		c: c, rand: rnd,
		cwnd:               c.initialWindow(),
		inflightLongterm:   unlimited,
		probeUpAckedPerInc: unlimited,
		probeRTTDoneStamp:  never,
		cycleStamp:         never,
		undoState:          bbrNone,
		lastLost:           -2,
		minRTTStamp:        never,
		probeRTTMinStamp:   never,
		probeRTTInterval:   bbrProbeRTTInterval,
	}
	b.resetCongestionSignals()
	b.resetShortTermModel()
	b.enterStartup()
	b.initPacingRate()
	b.setSendQuantum()
	return b
}

// Window returns C.cwnd.
func (b *BBR) Window() int64 { return b.cwnd }

// PacingRate returns C.pacing_rate.
func (b *BBR) PacingRate() float64 { return b.pacingRate }

// Bandwidth returns BBR.bw, or BBR.max_bw in Startup.
func (b *BBR) Bandwidth() float64 { return b.bw }

// Phase returns BBR.state.
func (b *BBR) Phase() string { return bbrPhases[b.state] }

// OnSend implements HandleRestartFromIdle (§5.4.1).
func (b *BBR) OnSend(now time.Duration) {
	if b.c.InFlight > 0 || !b.c.AppLimited() {
		return
	}
	b.now = now
	b.idleRestart = true
	b.extraAckedStart, b.extraAckedDelivered = now, 0
	if b.inProbeBW() {
		b.setPacingRateWithGain(1)
	} else if b.state == bbrProbeRTT {
		b.checkProbeRTTDone()
	}
}

// OnLoss implements HandleLostPacket (§5.5.10.2).
func (b *BBR) OnLoss(now time.Duration, l *Loss) {
	b.now = now
	if l.Episode {
		b.recoveryRound = b.roundCount
	}
	b.noteLoss()
	b.lostInRound += l.Size
	if l.Number != b.lastLost+1 {
		b.lossRanges++
	}
	b.lastLost = l.Number
	if !b.isBwProbeSample {
		return
	}
	if float64(l.Lost) > float64(l.TxInFlight)*bbrLossThresh {
		b.handleInflightTooHigh(b.inflightAtLoss(l), l.AppLimited)
	}
}

// OnECN treats the first CE mark of a round trip as congestion.
func (b *BBR) OnECN(now time.Duration, s *Sample, episode bool) {
	b.now, b.rs = now, s
	if !episode {
		return
	}
	b.noteLoss()
	b.ceInRound = true
	switch {
	case b.state == bbrStartup:
		b.exitStartupForCongestion()
	case b.isBwProbeSample:
		b.handleInflightTooHigh(s.TxInFlight, s.AppLimited)
	}
}

// OnSpuriousLoss implements HandleSpuriousLossDetection (§5.5.11.2).
func (b *BBR) OnSpuriousLoss(now time.Duration) {
	b.now = now
	b.restoreCwnd()
	b.lossInRound = false
	b.resetFullBW()
	b.bwShortterm = max(b.bwShortterm, b.undoBwShortterm)
	b.inflightShortterm = max(b.inflightShortterm, b.undoInflightShortterm)
	b.inflightLongterm = max(b.inflightLongterm, b.undoInflightLongterm)
	switch {
	case b.undoState == bbrStartup && b.state != bbrStartup:
		b.fullBwReached = false
		if b.state != bbrProbeRTT {
			b.enterStartup()
		}
	case b.undoState == bbrProbeUp && b.state != bbrProbeUp && b.state != bbrProbeRTT:
		b.startProbeRefill()
	}
	b.undoState = bbrNone
}

// OnPersistentCongestion implements OnEnterRTO (§5.6.4.4). The window becomes one packet more than
// is in flight, but at least the pipelining minimum.
func (b *BBR) OnPersistentCongestion(now time.Duration) {
	b.now = now
	b.saveCwnd()
	b.saveStateUponLoss()
	b.cwnd = max(b.c.InFlight+b.c.MaxDatagramSize, b.minPipeCwnd())
}

// OnAck implements UpdateOnACK (§5.2.3).
func (b *BBR) OnAck(now time.Duration, s *Sample) {
	b.now, b.rs = now, s
	if !b.hasSeenRTT && b.c.SmoothedRTT > 0 {
		b.hasSeenRTT = true
		b.initPacingRate()
	}
	if b.wasInRecovery && !b.c.InRecovery {
		b.restoreCwnd()
	}
	b.wasInRecovery = b.c.InRecovery

	b.updateLatestDeliverySignals()
	b.updateCongestionSignals()
	b.updateACKAggregation()
	b.checkFullBWReached()
	b.checkStartupDone()
	b.checkDrainDone()
	b.updateProbeBWCyclePhase()
	b.updateMinRTT()
	b.checkProbeRTT()
	b.advanceLatestDeliverySignals()
	b.boundBWForModel()

	b.setPacingRate()
	b.setSendQuantum()
	b.setCwnd()
}

// initPacingRate implements InitPacingRate (§5.6.2).
func (b *BBR) initPacingRate() {
	rtt := b.c.SmoothedRTT
	if rtt <= 0 {
		rtt = time.Millisecond
	}
	b.pacingRate = bbrStartupPacingGain * float64(b.c.initialWindow()) / rtt.Seconds()
}

func (b *BBR) setPacingRateWithGain(gain float64) {
	rate := gain * b.bw * bbrPacingMargin
	if rate > 0 && (b.fullBwReached || rate > b.pacingRate) {
		b.pacingRate = rate
	}
}

func (b *BBR) setPacingRate() { b.setPacingRateWithGain(b.pacingGain) }

// setSendQuantum implements SetSendQuantum (§5.6.3).
func (b *BBR) setSendQuantum() {
	q := min(b.pacingRate*quantumTime.Seconds(), maxQuantum)
	b.quantum = max(int64(q), 2*b.c.MaxDatagramSize)
}

func (b *BBR) minPipeCwnd() int64 { return bbrMinPipePackets * b.c.MaxDatagramSize }

// bdpMultiple, quantizationBudget, inflight and updateMaxInflight implement §5.6.4.2.
func (b *BBR) bdpMultiple(bw, gain float64) int64 {
	if b.minRTT == 0 {
		return b.c.initialWindow()
	}
	return clampVolume(gain * bw * b.minRTT.Seconds())
}

func (b *BBR) quantizationBudget(inflight int64) int64 {
	inflight = max(inflight, b.quantum, b.minPipeCwnd())
	if b.state == bbrProbeUp {
		inflight += 2 * b.c.MaxDatagramSize
	}
	return inflight
}

func (b *BBR) inflight(bw, gain float64) int64 {
	return b.quantizationBudget(b.bdpMultiple(bw, gain))
}

func (b *BBR) updateMaxInflight() {
	b.maxInflight = b.quantizationBudget(b.bdpMultiple(b.bw, b.cwndGain) + b.extraAcked)
}

// setCwnd implements SetCwnd (§5.6.4.6).
func (b *BBR) setCwnd() {
	b.updateMaxInflight()
	switch {
	case b.fullBwReached:
		b.cwnd = min(b.cwnd+b.rs.NewlyAcked, b.maxInflight)
	case b.cwnd < b.maxInflight || b.c.Delivered < b.c.initialWindow():
		b.cwnd += b.rs.NewlyAcked
	}
	b.cwnd = max(b.cwnd, b.minPipeCwnd())
	if b.state == bbrProbeRTT {
		b.cwnd = min(b.cwnd, b.probeRTTCwnd())
	}
	b.boundCwndForModel()
}

// boundCwndForModel implements BoundCwndForModel (§5.6.4.7).
func (b *BBR) boundCwndForModel() {
	limit := unlimited
	switch {
	case b.state == bbrProbeRTT || b.state == bbrProbeCruise:
		limit = b.inflightWithHeadroom()
	case b.inProbeBW():
		limit = b.inflightLongterm
	}
	limit = min(limit, b.inflightShortterm, b.inflightQueue)
	if limit < unlimited {
		limit += b.extraAcked // a deviation, see BBR
	}
	b.cwnd = min(b.cwnd, max(limit, b.minPipeCwnd()))
}

// saveCwnd and restoreCwnd implement §5.6.4.4.
func (b *BBR) saveCwnd() {
	if !b.wasInRecovery && b.state != bbrProbeRTT {
		b.priorCwnd = b.cwnd
	} else {
		b.priorCwnd = max(b.priorCwnd, b.cwnd)
	}
}

func (b *BBR) restoreCwnd() { b.cwnd = max(b.cwnd, b.priorCwnd) }

// clampVolume converts a product that may be out of range to a volume.
func clampVolume(v float64) int64 {
	if !(v < float64(unlimited)) {
		return unlimited
	}
	return max(int64(v), 0)
}
