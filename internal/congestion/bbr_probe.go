package congestion

import "time"

// Startup and Drain: §5.3.1 and §5.3.2.

func (b *BBR) enterStartup() {
	b.state = bbrStartup
	b.pacingGain, b.cwndGain = bbrStartupPacingGain, bbrCwndGain
}

func (b *BBR) checkStartupDone() {
	if b.state != bbrStartup {
		return
	}
	b.checkStartupHighLoss()
	if b.fullBwReached {
		b.enterDrain()
	}
}

// checkStartupHighLoss implements §5.3.1.3. Startup also ends after two consecutive rounds that
// lost more than they delivered, or after the first if the application limits the flow.
func (b *BBR) checkStartupHighLoss() {
	if b.lossRoundStart && !b.fullBwReached {
		if b.lostInRound > b.inflightLatest {
			b.lossyRounds++
		} else {
			b.lossyRounds = 0
		}
		if b.lossyRounds >= bbrLossyRounds || b.lossyRounds > 0 && b.rs.AppLimited {
			b.exitStartupForCongestion()
			return
		}
	}
	if b.fullBwReached || !b.lossRoundStart || !b.c.InRecovery || b.roundCount <= b.recoveryRound {
		return
	}
	if b.lossRanges >= bbrStartupLossRanges && b.lossAboveNoise() {
		b.exitStartupForCongestion()
	}
}

func (b *BBR) exitStartupForCongestion() {
	b.undoState = bbrStartup
	b.fullBwReached = true
	b.inflightLongterm = max(b.bdpMultiple(b.bw, 1), b.inflightLatest, b.minPipeCwnd())
}

func (b *BBR) enterDrain() {
	b.state = bbrDrain
	b.pacingGain, b.cwndGain = bbrDrainPacingGain, bbrCwndGain
	b.drainStartRound = b.roundCount
	b.probeAtOnce = b.inflightLongterm == unlimited
}

func (b *BBR) checkDrainDone() {
	if b.state == bbrDrain &&
		(b.c.InFlight <= b.inflight(b.bw, 1) || b.roundCount > b.drainStartRound+bbrDrainRounds) {
		b.startProbeDown()
	}
}

// ProbeBW: §5.3.3.9.

func (b *BBR) inProbeBW() bool { return b.state >= bbrProbeDown && b.state <= bbrProbeUp }

func (b *BBR) isProbingBW() bool {
	return b.state == bbrStartup || b.state == bbrProbeRefill || b.state == bbrProbeUp
}

func (b *BBR) startProbeDown() {
	b.resetCongestionSignals()
	b.probeUpAckedPerInc = unlimited
	b.pickProbeWait()
	b.cycleStamp, b.downStartRound = b.now, b.roundCount
	b.ackPhase = acksProbeStopping
	b.startRound()
	b.state = bbrProbeDown
	b.pacingGain, b.cwndGain = bbrDownPacingGain, bbrCwndGain
}

func (b *BBR) startProbeCruise() {
	b.state = bbrProbeCruise
	b.pacingGain, b.cwndGain = 1, bbrCwndGain
}

func (b *BBR) startProbeRefill() {
	b.resetShortTermModel()
	b.bwProbeUpRounds, b.bwProbeUpAcked = 0, 0
	b.prevProbePrecautious = false
	b.ackPhase = acksRefilling
	b.startRound()
	b.state = bbrProbeRefill
	b.pacingGain, b.cwndGain = 1, bbrCwndGain
}

func (b *BBR) startProbeUp() {
	b.ackPhase = acksProbeStarting
	b.startRound()
	b.resetFullBW()
	b.fullBw = b.rs.Rate
	b.state = bbrProbeUp
	b.pacingGain, b.cwndGain = bbrUpPacingGain, bbrUpCwndGain
	b.raiseInflightLongtermSlope()
}

func (b *BBR) updateProbeBWCyclePhase() {
	if !b.fullBwReached || b.adaptLongTermModel() {
		return
	}
	switch b.state {
	case bbrProbeDown:
		if !b.probeIfDue() && b.isTimeToCruise() {
			b.startProbeCruise()
		}
	case bbrProbeCruise:
		b.probeIfDue()
	case bbrProbeRefill:
		if b.roundStart {
			b.isBwProbeSample = true
			b.startProbeUp()
		}
	case bbrProbeUp:
		if b.isTimeToGoDown() {
			b.prevProbeTooHigh = false
			b.startProbeDown()
		}
	}
}

// probeIfDue implements IsTimeToProbeBW (§5.3.3.8). The clock triggers probes for unused bandwidth.
// While a queue stands there is none.
func (b *BBR) probeIfDue() bool {
	due := !b.queueStanding && b.now > b.cycleStamp+b.bwProbeWait ||
		b.roundsSinceProbeUp >= min(b.targetInflight()/b.c.MaxDatagramSize, bbrMaxCoexistRounds)
	if due {
		b.startProbeRefill()
	}
	return due
}

func (b *BBR) pickProbeWait() {
	if b.probeAtOnce {
		b.probeAtOnce = false
		b.roundsSinceProbeUp, b.bwProbeWait = 0, 0
		return
	}
	b.roundsSinceProbeUp = b.rand.Int64N(2)
	b.bwProbeWait = 2*time.Second + time.Duration(b.rand.Int64N(int64(time.Second)))
}

func (b *BBR) targetInflight() int64 { return min(b.bdpMultiple(b.bw, 1), b.cwnd) }

func (b *BBR) isTimeToCruise() bool {
	return b.roundCount > b.downStartRound+bbrDrainRounds ||
		b.c.InFlight <= b.inflightWithHeadroom() && b.c.InFlight <= b.inflight(b.maxBw, 1)
}

func (b *BBR) isTimeToGoDown() bool {
	if b.prevProbeTooHigh && b.c.InFlight >= b.inflightLongterm {
		b.prevProbePrecautious = true
		return true
	}
	if b.c.CwndLimited && b.cwnd >= b.inflightLongterm {
		b.resetFullBW()
		b.fullBw = b.rs.Rate
		return false
	}
	return b.fullBwNow
}

func (b *BBR) inflightWithHeadroom() int64 {
	if b.inflightLongterm == unlimited {
		return unlimited
	}
	headroom := max(b.c.MaxDatagramSize, int64(bbrHeadroom*float64(b.inflightLongterm)))
	return max(b.inflightLongterm-headroom, b.minPipeCwnd())
}

func (b *BBR) raiseInflightLongtermSlope() {
	growth := int64(1) << b.bwProbeUpRounds
	b.bwProbeUpRounds = min(b.bwProbeUpRounds+1, 30)
	b.probeUpAckedPerInc = max(b.cwnd/growth, b.c.MaxDatagramSize)
}

func (b *BBR) probeInflightLongtermUpward() {
	if !b.c.CwndLimited || b.cwnd < b.inflightLongterm {
		return
	}
	b.bwProbeUpAcked += b.rs.NewlyAcked
	if b.bwProbeUpAcked >= b.probeUpAckedPerInc {
		delta := b.bwProbeUpAcked / b.probeUpAckedPerInc
		b.bwProbeUpAcked -= delta * b.probeUpAckedPerInc
		b.inflightLongterm = min(b.inflightLongterm+delta*b.c.MaxDatagramSize, unlimited)
	}
	if b.roundStart {
		b.raiseInflightLongtermSlope()
	}
}

// adaptLongTermModel implements AdaptLongTermModel. It returns true after a state transition.
func (b *BBR) adaptLongTermModel() bool {
	if b.ackPhase == acksProbeStarting && b.roundStart {
		b.ackPhase = acksProbeFeedback
	}
	if b.ackPhase == acksProbeStopping && b.roundStart {
		b.isBwProbeSample = false
		b.ackPhase = acksInit
		if b.inProbeBW() && !b.rs.AppLimited {
			b.advanceMaxBwFilter()
		}
		if b.inProbeBW() && b.prevProbePrecautious && !b.prevProbeTooHigh {
			b.startProbeRefill()
			return true
		}
	}
	if float64(b.rs.Lost) > float64(b.rs.TxInFlight)*bbrLossThresh || b.inflightLongterm == unlimited {
		return false
	}
	b.inflightLongterm = max(b.inflightLongterm, b.rs.TxInFlight)
	if b.state == bbrProbeUp {
		b.probeInflightLongtermUpward()
	}
	return false
}
