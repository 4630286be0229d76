// Package congestion holds congestion controllers for QUIC and what they need to
// know of a connection: delivery-rate samples, packet-timed rounds, pacing. It
// knows no QUIC implementation; [Flow] is what one calls.
//
// Controllers are BBRv3 (draft-ietf-ccwg-bbr, the default for media), CUBIC (RFC
// 9438) with HyStart++ (RFC 9406), NewReno (RFC 9002 §7), Vegas (Brakmo and
// Peterson, 1995) and YeAH (Baiocchi, Castellani and Vacirca, 2007).
//
// Times are durations since any fixed instant of a monotonic clock. Volumes are
// bytes of UDP payload, rates bytes per second.
package congestion

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// Controller decides how much of a connection's data may be in flight and how
// fast it is sent. Its calls come from one goroutine. [State] is up to date, for
// the whole of an ACK or of a loss timer, before any of them.
type Controller interface {
	// OnSend precedes the sending of an ack-eliciting packet.
	OnSend(now time.Duration)
	// OnLoss follows the declaration of one packet as lost, before the OnAck of
	// the same ACK.
	OnLoss(now time.Duration, l *Loss)
	// OnAck follows an ACK that newly acknowledges ack-eliciting packets.
	OnAck(now time.Duration, s *Sample)
	// OnECN follows an ACK that reports more CE marks (RFC 9002 §7.1), before its
	// OnAck; episode is true once for what was sent before the first response.
	OnECN(now time.Duration, s *Sample, episode bool)
	// OnSpuriousLoss says that all packets of the latest loss episode arrived.
	OnSpuriousLoss(now time.Duration)
	// OnPersistentCongestion says that nothing arrived for a long time (RFC 9002
	// §7.6).
	OnPersistentCongestion(now time.Duration)

	// Window is the congestion window in bytes.
	Window() int64
	// PacingRate is the rate to send at in bytes per second.
	PacingRate() float64
	// Bandwidth is the estimate of the path's rate in bytes per second, 0 before
	// there is one.
	Bandwidth() float64
	// Phase names what the controller is doing: "startup", "recovery", ….
	Phase() string
}

// State is what a controller may know of its connection: C in draft-ietf-ccwg-bbr
// §2.2 and §4.1.2.1.1.
type State struct {
	MaxDatagramSize int64 // C.SMSS
	Delivered       int64 // acknowledged since the connection began
	Lost            int64 // declared lost since the connection began
	InFlight        int64

	SmoothedRTT time.Duration // RFC 9002 §5.3; 0 before a sample
	RTTVar      time.Duration
	LatestRTT   time.Duration
	MinRTT      time.Duration // of the connection's whole life

	// CwndLimited: the window was used up at some point of the last round.
	CwndLimited bool
	// InRecovery: no packet sent after the latest loss was acknowledged yet.
	InRecovery bool

	appLimited int64 // C.app_limited: Delivered at which the bubble is gone, 0 none
}

// MarkAppLimited marks what is in flight as limited by the application
// (draft-ietf-ccwg-bbr §4.1.2.4).
func (c *State) MarkAppLimited() { c.appLimited = max(c.Delivered+c.InFlight, 1) }

// AppLimited tells whether the connection's samples are limited by the
// application.
func (c *State) AppLimited() bool { return c.appLimited != 0 }

// initialWindow is RFC 9002 §7.2's ten packets, of which BBR's pacing sends no
// burst; larger, as most deployments have it (quic-go: 32).
func (c *State) initialWindow() int64 { return 32 * c.MaxDatagramSize }

// Sample is what one ACK tells: RS in draft-ietf-ccwg-bbr §4.1.2.1.3.
type Sample struct {
	Rate           float64       // bytes/s; 0 = no reliable sample
	Interval       time.Duration // of Rate
	Delivered      int64         // in Interval
	PriorDelivered int64         // State.Delivered when the newest packet acknowledged was sent
	RTT            time.Duration // of the newest packet acknowledged
	NewlyAcked     int64
	NewlyLost      int64
	PriorInFlight  int64 // before this ACK
	TxInFlight     int64 // when the newest packet acknowledged had just been sent
	Lost           int64 // declared lost since then
	AppLimited     bool  // the newest packet acknowledged was sent in an application-limited phase
	CE             int64 // newly reported ECN-CE marks
	NewestSent     int64 // its packet number
}

// Loss is one packet declared lost.
type Loss struct {
	Number     int64
	Size       int64
	TxInFlight int64 // when it had just been sent
	Lost       int64 // declared lost since then, with this packet
	AppLimited bool
	// Episode is true for the first loss of a packet that was sent after the
	// response to the previous one (RFC 9002 §7.3.2).
	Episode bool
}

// constructors by the name a configuration uses.
var constructors = map[string]func(*State, *rand.Rand) Controller{
	"bbr":     func(c *State, r *rand.Rand) Controller { return NewBBR(c, r) },
	"cubic":   func(c *State, _ *rand.Rand) Controller { return NewCubic(c) },
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

// CheckName tells what is wrong with a configured controller name.
func CheckName(name string) error {
	if _, ok := constructors[name]; !ok {
		return fmt.Errorf("congestion controller %q is unknown; there are %s", name, strings.Join(Names(), ", "))
	}
	return nil
}
