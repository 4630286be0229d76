package wire

import "time"

// Conditions describe one direction of a path. The zero value is a perfect wire.
type Conditions struct {
	Rate      float64       // bit/s; 0 = unlimited: no serialization delay, no queue
	Overhead  int           // bytes per packet on the wire beyond its Ethernet frame
	Delay     time.Duration // from the end of serialization to departure; ignored with Variation
	Variation *Variation
	Reorder   bool // a packet may overtake one with a longer delay
	// StrayShare of the packets take a detour of StrayDelay, on which later ones overtake them.
	StrayShare float64
	StrayDelay time.Duration
	Loss       float64
	Burst      *BurstLoss // in addition to Loss
	// Drop-tail limits, including the packet in transmission; 0 = unlimited.
	QueueBytes   int
	QueuePackets int
}

// Variation draws a new delay from [Min, Max] after each interval drawn from [EveryMin, EveryMax].
// Both distributions are uniform.
type Variation struct {
	Min, Max           time.Duration
	EveryMin, EveryMax time.Duration
}

// BurstLoss is the Gilbert–Elliott model: each packet advances a two-state chain and is lost with
// the probability of the current state.
type BurstLoss struct {
	Average float64 // share of all packets lost in the bad state
	Length  float64 // mean number of packets in the bad state, ≥ 1
	InBad   float64 // probability of loss in the bad state
}

// transitions returns the probabilities of entering and leaving the bad state.
func (b BurstLoss) transitions() (toBad, toGood float64) {
	toGood = 1 / b.Length
	share := b.Average / b.InBad // of packets in the bad state
	return toGood * share / (1 - share), toGood
}

// LossRate returns the long-run loss probability.
func (c Conditions) LossRate() float64 {
	if c.Burst == nil {
		return c.Loss
	}
	bad := c.Burst.Average / c.Burst.InBad
	return (1-bad)*c.Loss + c.Burst.Average
}

// A Change sets the conditions from a given time on.
type Change struct {
	At time.Duration
	Conditions
}

// Wifi describes a Wi-Fi channel on which stations contend. Package topology reads it from a file.
type Wifi struct {
	Slot, SIFS, AIFS     time.Duration
	WindowMin, WindowMax int // contention window in slots: a backoff is drawn from [0, window]
	Attempts             int // transmissions of a frame
	Preamble             time.Duration
	Symbol               float64       // ns
	Ack, BlockAck        time.Duration // with preamble
	Header               int           // bytes that a frame has in place of its Ethernet header

	// Limits of an aggregate.
	MaxFrames   int // 1 = no aggregation
	MaxBytes    int
	MaxDuration time.Duration

	Rates      []WifiRate // ascending
	Adaptation WifiAdaptation
	Fixed      int // index of the rate of WifiFixed

	SNR       float64 // mean signal-to-noise ratio, dB
	Fading    float64 // its standard deviation, dB
	Coherence time.Duration
	Slope     float64 // growth of errors below a rate's threshold, decades per dB

	BurstShare  float64 // share of the time
	BurstLength time.Duration
	BurstLoss   float64 // of frames during a burst

	Loads []WifiLoad // further stations
}

// WifiRate is a modulation and coding scheme.
type WifiRate struct {
	Bits float64 // per symbol
	SNR  float64 // dB at which 10 % of frames with 4096 bytes fail
}

// WifiLoad is a station whose frames have no receiver.
type WifiLoad struct {
	Rate   float64 // bit/s of Ethernet frames, in Poisson arrivals; 0 = without pause
	Length int     // bytes of an Ethernet frame
}

// A WifiAdaptation selects rates.
type WifiAdaptation int

// The adaptations. Minstrel uses statistics of past frames, SNR the known signal-to-noise ratio.
const (
	WifiFixed WifiAdaptation = iota
	WifiMinstrel
	WifiSNR
)
