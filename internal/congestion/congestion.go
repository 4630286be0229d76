// Package congestion implements congestion controllers for QUIC, and the delivery-rate samples,
// packet-timed rounds and pacing that they need. It does not depend on a QUIC implementation; a
// QUIC implementation calls [Flow].
//
// Controllers are BBRv3 (draft-ietf-ccwg-bbr, the default for media), CUBIC (RFC 9438) with
// HyStart++ (RFC 9406), NewReno (RFC 9002 §7), Vegas (Brakmo and Peterson, 1995), YeAH (Baiocchi,
// Castellani and Vacirca, 2007) and, for background transfers, LEDBAT++
// (draft-irtf-iccrg-ledbat-plus-plus).
//
// Times are durations since a fixed instant of a monotonic clock. Volumes are bytes of UDP payload,
// rates bytes per second.
package congestion

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// Controller decides how much data of a connection may be in flight and how fast it is sent. It is
// called from one goroutine. Before the calls for an ACK or a loss timer, [State] is updated for
// the whole event.
type Controller interface {
	// OnSend is called before an ack-eliciting packet is sent.
	OnSend(now time.Duration)
	// OnLoss is called after a packet was declared lost, before the OnAck of the same ACK.
	OnLoss(now time.Duration, l *Loss)
	// OnAck is called after an ACK that newly acknowledges ack-eliciting packets.
	OnAck(now time.Duration, s *Sample)
	// OnECN is called after an ACK with new CE marks (RFC 9002 §7.1), before its OnAck. episode is
	// true if a packet sent after the previous response has been acknowledged: at most once per
	// round trip.
	OnECN(now time.Duration, s *Sample, episode bool)
	// OnSpuriousLoss is called once all packets of the latest loss episode have arrived.
	OnSpuriousLoss(now time.Duration)
	// OnPersistentCongestion is called if all packets sent over a long period were lost (RFC 9002
	// §7.6).
	OnPersistentCongestion(now time.Duration)

	// Window returns the congestion window in bytes.
	Window() int64
	// PacingRate returns the sending rate in bytes per second.
	PacingRate() float64
	// Bandwidth returns the estimated rate of the path in bytes per second, or 0 if unknown.
	Bandwidth() float64
	// Phase returns the controller's state: "startup", "recovery", ….
	Phase() string
}

// State is the connection state visible to a controller: C in draft-ietf-ccwg-bbr §2.2 and
// §4.1.2.1.1.
type State struct {
	MaxDatagramSize int64 // C.SMSS
	Delivered       int64 // acknowledged since the connection began
	Lost            int64 // declared lost since the connection began
	InFlight        int64

	SmoothedRTT time.Duration // RFC 9002 §5.3; 0 before a sample
	RTTVar      time.Duration
	LatestRTT   time.Duration
	MinRTT      time.Duration // over the life of the connection

	// CwndLimited means that the window was full at some point in the last round.
	CwndLimited bool
	// InRecovery means that no packet sent after the latest loss has been acknowledged.
	InRecovery bool

	appLimited int64 // C.app_limited: value of Delivered at which the limited phase ends; 0 = none
}

// MarkAppLimited marks the data in flight as limited by the application (draft-ietf-ccwg-bbr
// §4.1.2.4).
func (c *State) MarkAppLimited() { c.appLimited = max(c.Delivered+c.InFlight, 1) }

// AppLimited reports whether new samples are limited by the application.
func (c *State) AppLimited() bool { return c.appLimited != 0 }

// initialWindow is larger than RFC 9002 §7.2's ten packets, as in most deployments (quic-go: 32).
func (c *State) initialWindow() int64 { return 32 * c.MaxDatagramSize }

// Sample is the rate sample of one ACK: RS in draft-ietf-ccwg-bbr §4.1.2.1.3.
type Sample struct {
	Rate           float64       // bytes/s; 0 = no reliable sample
	Interval       time.Duration // of Rate
	Delivered      int64         // in Interval
	PriorDelivered int64         // State.Delivered when the newest packet acknowledged was sent
	RTT            time.Duration // of the newest packet acknowledged
	NewlyAcked     int64
	NewlyLost      int64
	PriorInFlight  int64 // before this ACK
	TxInFlight     int64 // just after the newest acknowledged packet was sent
	Lost           int64 // declared lost since then
	AppLimited     bool  // the newest acknowledged packet was sent in an application-limited phase
	CE             int64 // newly reported ECN-CE marks
	NewestSent     int64 // number of the newest acknowledged packet
}

// Loss is one packet declared lost.
type Loss struct {
	Number     int64
	Size       int64
	TxInFlight int64 // just after it was sent
	Lost       int64 // declared lost since then, including this packet
	AppLimited bool
	// Episode is true for the first loss of a packet sent after the previous response to loss (RFC
	// 9002 §7.3.2).
	Episode bool
}

// constructors by configuration name.
var constructors = map[string]func(*State, *rand.Rand) Controller{
	"bbr":     func(c *State, r *rand.Rand) Controller { return NewBBR(c, r) },
	"cubic":   func(c *State, _ *rand.Rand) Controller { return NewCubic(c) },
	"ledbat":  func(c *State, _ *rand.Rand) Controller { return NewLEDBAT(c) },
	"newreno": func(c *State, _ *rand.Rand) Controller { return NewReno(c) },
	"vegas":   func(c *State, _ *rand.Rand) Controller { return NewVegas(c) },
	"yeah":    func(c *State, _ *rand.Rand) Controller { return NewYeAH(c) },
}

// Names lists the controllers, sorted.
func Names() []string {
	names := make([]string, 0, len(constructors))
	for n := range constructors {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// CheckName returns an error for an unknown controller name.
func CheckName(name string) error {
	if _, ok := constructors[name]; !ok {
		return fmt.Errorf("congestion controller %q is unknown; want one of %s", name, strings.Join(Names(), ", "))
	}
	return nil
}
