package congestion

import (
	"math"
	"slices"
	"time"
)

// updateRound and startRound implement §5.5.1.
func (b *BBR) updateRound() {
	b.roundStart = b.rs.PriorDelivered >= b.nextRound
	if b.roundStart {
		b.startRound()
		b.roundCount++
		b.roundsSinceProbeUp++
	}
}

func (b *BBR) startRound() { b.nextRound = b.c.Delivered }

// updateMaxBw implements UpdateMaxBw (§5.5.5): application-limited samples count only if they are
// higher than the estimate.
func (b *BBR) updateMaxBw() {
	b.updateRound()
	if b.rs.Rate > 0 && (b.rs.Rate >= b.maxBw || !b.rs.AppLimited) {
		b.maxBwFilter[1] = max(b.maxBwFilter[1], b.rs.Rate)
		b.maxBw = max(b.maxBwFilter[0], b.maxBwFilter[1])
	}
}

// advanceMaxBwFilter implements AdvanceMaxBwFilter (§5.5.6). A cycle without a sample keeps the
// previous cycle's maximum.
func (b *BBR) advanceMaxBwFilter() {
	if b.maxBwFilter[1] == 0 {
		return
	}
	b.maxBwFilter[0], b.maxBwFilter[1] = b.maxBwFilter[1], 0
}

// updateACKAggregation implements UpdateACKAggregation (§5.5.9).
func (b *BBR) updateACKAggregation() {
	expected := b.bw * (b.now - b.extraAckedStart).Seconds()
	if float64(b.extraAckedDelivered) <= expected {
		b.extraAckedDelivered = 0
		b.extraAckedStart = b.now
		expected = 0
	}
	b.extraAckedDelivered += b.rs.NewlyAcked
	extra := min(float64(b.extraAckedDelivered)-expected, float64(b.cwnd))
	rounds := int64(1)
	if b.fullBwReached {
		rounds = bbrExtraAckedRounds
	}
	b.extraAcked = int64(b.extraAckedFilter.update(extra, b.roundCount, rounds))
}

// resetFullBW and checkFullBWReached implement §5.3.1.2.
func (b *BBR) resetFullBW() {
	b.fullBw, b.fullBwCount, b.fullBwNow = 0, 0, false
}

func (b *BBR) checkFullBWReached() {
	if b.fullBwNow || !b.roundStart || b.rs.AppLimited || b.rs.Rate == 0 {
		return
	}
	if b.rs.Rate >= b.fullBw*1.25 {
		b.resetFullBW()
		b.fullBw = b.rs.Rate
		return
	}
	b.fullBwCount++
	b.fullBwNow = b.fullBwCount >= 3
	b.fullBwReached = b.fullBwReached || b.fullBwNow
}

// updateMinRTT implements UpdateMinRTT (§5.3.4.3). An RTT near min_rtt indicates an empty queue as
// much as a lower one does.
func (b *BBR) updateMinRTT() {
	rtt := b.rs.RTT
	b.probeRTTExpired = b.now > b.probeRTTMinStamp+b.probeRTTInterval && b.probeRTTMinDelay > 0
	if rtt > 0 && (b.lowestRTT == 0 || rtt < b.lowestRTT) {
		b.lowestRTT = rtt
	}
	if !b.probeRTTExpired && rtt > 0 && rtt <= b.similarRTT() {
		b.probeRTTMinStamp, b.minRTTStamp = b.now, b.now
	}
	if rtt > 0 && (b.probeRTTMinDelay == 0 || rtt < b.probeRTTMinDelay || b.probeRTTExpired) {
		b.probeRTTMinDelay, b.probeRTTMinStamp = rtt, b.now
	}
	if b.probeRTTMinDelay > 0 && (b.minRTT == 0 || b.probeRTTMinDelay < b.minRTT ||
		b.now > b.minRTTStamp+bbrMinRTTFilterLen) {
		b.minRTT, b.minRTTStamp = b.probeRTTMinDelay, b.probeRTTMinStamp
	}
}

// noteLoss implements NoteLoss (§5.5.10.2).
func (b *BBR) noteLoss() {
	if !b.lossInRound {
		b.lossRoundDelivered = b.c.Delivered
		b.saveStateUponLoss()
	}
	b.lossInRound = true
}

// saveStateUponLoss implements SaveStateUponLoss (§5.5.11.1).
func (b *BBR) saveStateUponLoss() {
	b.saveCwnd()
	b.undoState = bbrNone
	b.undoBwShortterm = b.bwShortterm
	b.undoInflightShortterm = b.inflightShortterm
	b.undoInflightLongterm = b.inflightLongterm
}

// inflightAtLoss implements InflightAtLoss (§5.5.10.2): the volume in flight at which losses
// crossed LossThresh.
func (b *BBR) inflightAtLoss(l *Loss) int64 {
	inflightPrev := float64(l.TxInFlight - l.Size)
	lostPrev := float64(l.Lost - l.Size)
	lostPrefix := (bbrLossThresh*inflightPrev - lostPrev) / (1 - bbrLossThresh)
	return clampVolume(inflightPrev + lostPrefix)
}

// handleInflightTooHigh implements HandleInflightTooHigh (§5.5.10.2).
func (b *BBR) handleInflightTooHigh(txInFlight int64, appLimited bool) {
	b.prevProbeTooHigh = true
	b.isBwProbeSample = false
	if !appLimited {
		b.inflightLongterm = max(txInFlight, int64(bbrBeta*float64(b.targetInflight())), b.minPipeCwnd())
	}
	if b.state == bbrProbeUp {
		b.undoState = bbrProbeUp
		b.startProbeDown()
	}
}

// The short-term model: §5.5.10.3.

func (b *BBR) updateLatestDeliverySignals() {
	b.lossRoundStart = false
	b.bwLatest = max(b.bwLatest, b.rs.Rate)
	b.inflightLatest = max(b.inflightLatest, b.rs.Delivered)
	if b.rs.RTT > 0 && (b.rttLatest == 0 || b.rs.RTT < b.rttLatest) {
		b.rttLatest = b.rs.RTT
	}
	if b.rs.PriorDelivered >= b.lossRoundDelivered {
		b.lossRoundDelivered = b.c.Delivered
		b.lossRoundStart = true
	}
}

func (b *BBR) advanceLatestDeliverySignals() {
	if b.lossRoundStart {
		b.bwBefore, b.inflightBefore = b.bwLatest, b.inflightLatest
		b.bwLatest = b.rs.Rate
		b.inflightLatest = b.rs.Delivered
		b.rttLatest = max(b.rs.RTT, 0)
		b.lossRanges, b.lostInRound, b.ceInRound = 0, 0, false
	}
}

func (b *BBR) resetCongestionSignals() {
	b.lossInRound = false
	b.bwLatest, b.inflightLatest = 0, 0
}

func (b *BBR) updateCongestionSignals() {
	b.updateMaxBw()
	if !b.lossRoundStart {
		return
	}
	b.adaptLowerBoundsFromCongestion()
	b.adaptToQueue()
	b.lossInRound = false
}

func (b *BBR) adaptLowerBoundsFromCongestion() {
	if b.isProbingBW() || !b.lossInRound || !b.lossAboveNoise() {
		return
	}
	if math.IsInf(b.bwShortterm, 1) {
		b.bwShortterm = b.maxBw
	}
	if b.inflightShortterm == unlimited {
		b.inflightShortterm = b.cwnd
	}
	b.bwShortterm = max(b.bwLatest, b.bwBefore, bbrBeta*b.bwShortterm)
	b.inflightShortterm = max(b.inflightLatest, b.inflightBefore, int64(bbrBeta*float64(b.inflightShortterm)))
}

// adaptToQueue bounds the volume in flight in ProbeBW_CRUISE after it detects a standing queue. The
// bound is (1 - Headroom) bandwidth-delay products while the queue persists, then one product.
func (b *BBR) adaptToQueue() {
	copy(b.rttRounds[1:], b.rttRounds[:])
	b.rttRounds[0] = b.rttLatest
	switch {
	case b.state != bbrProbeCruise:
	case b.queueStands():
		b.queueStanding = true
		b.inflightQueue = b.inflight(b.maxBw, 1-bbrHeadroom)
	case b.queueStanding && b.rttLatest <= b.similarRTT():
		b.queueStanding = false
		b.inflightQueue = b.inflight(b.maxBw, 1)
	}
}

// queueStands reports whether packets queued in each of the latest rounds for longer than delay
// variation explains: the range of those rounds' RTTs plus the time to send twice extra_acked. It
// returns false if the application limits the flow.
func (b *BBR) queueStands() bool {
	low, high := slices.Min(b.rttRounds[:]), slices.Max(b.rttRounds[:])
	if low == 0 || b.rs.AppLimited || b.maxBw == 0 {
		return false
	}
	aggregation := float64(2*b.extraAcked) / b.maxBw // seconds
	return (low - b.similarRTT()).Seconds() > (high-low).Seconds()+aggregation
}

// similarRTT returns the highest RTT that still indicates an empty queue.
func (b *BBR) similarRTT() time.Duration {
	return b.minRTT + time.Duration(bbrSimilarRTT*float64(b.minRTT))
}

// lossAboveNoise reports whether the ending round had CE marks or lost more than LossThresh of its
// data.
func (b *BBR) lossAboveNoise() bool {
	carried := float64(b.rs.Delivered + b.lostInRound)
	return b.ceInRound || float64(b.lostInRound) > bbrLossThresh*carried
}

func (b *BBR) resetShortTermModel() {
	b.bwShortterm = math.Inf(1)
	b.inflightShortterm, b.inflightQueue = unlimited, unlimited
	b.queueStanding = false
}

func (b *BBR) boundBWForModel() { b.bw = min(b.maxBw, b.bwShortterm) }

// ProbeRTT: §5.3.4.3.

func (b *BBR) probeRTTCwnd() int64 {
	return max(b.bdpMultiple(b.bw, bbrProbeRTTCwndGain), b.minPipeCwnd())
}

func (b *BBR) checkProbeRTT() {
	if b.state != bbrProbeRTT && b.probeRTTExpired && !b.idleRestart && !b.leavesQueueEmpty() {
		b.saveCwnd()
		b.state = bbrProbeRTT
		b.pacingGain, b.cwndGain = 1, bbrProbeRTTCwndGain
		b.probeRTTDoneStamp = never
		b.rttBeforeProbe, b.lowestRTT = b.lowestRTT, 0
		b.ackPhase = acksProbeStopping
		b.startRound()
	}
	if b.state == bbrProbeRTT {
		b.handleProbeRTT()
	}
	if b.rs.Delivered > 0 {
		b.idleRestart = false
	}
}

// leavesQueueEmpty reports whether the application sends too little to build a queue.
func (b *BBR) leavesQueueEmpty() bool {
	return b.rs.AppLimited && !b.c.CwndLimited
}

func (b *BBR) handleProbeRTT() {
	b.c.MarkAppLimited() // ProbeRTT itself causes low rate samples
	switch {
	case b.probeRTTDoneStamp == never && b.c.InFlight <= b.probeRTTCwnd():
		b.probeRTTDoneStamp = b.now + bbrProbeRTTDuration
		b.probeRTTRoundDone = false
		b.startRound()
	case b.probeRTTDoneStamp != never:
		if b.roundStart {
			b.probeRTTRoundDone = true
		}
		if b.probeRTTRoundDone {
			b.checkProbeRTTDone()
		}
	}
}

func (b *BBR) checkProbeRTTDone() {
	if b.probeRTTDoneStamp == never || b.now <= b.probeRTTDoneStamp {
		return
	}
	b.probeRTTMinStamp = b.now
	b.probeRTTInterval = bbrProbeRTTInterval
	if b.lowestRTT >= b.rttBeforeProbe {
		b.probeRTTInterval = bbrMinRTTFilterLen
	}
	b.lowestRTT = 0
	b.restoreCwnd()
	// ExitProbeRTT (§5.3.4.4).
	b.resetShortTermModel()
	if b.fullBwReached {
		b.startProbeDown()
		b.startProbeCruise()
	} else {
		b.enterStartup()
	}
}
