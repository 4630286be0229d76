package policy

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"holocast/netfunc/api"
)

// Config holds the settings of an engine.
type Config struct {
	Mode     api.Mode // of flows without an operator's setting
	Trigger  Trigger
	Redirect Redirect
	Signal   Resend

	ReportInterval time.Duration    // an edge that misses three is lost
	Rearm          time.Duration    // minimum time from a start, or from single path, to the next trigger
	End            time.Duration    // a flow without uplink for this long has ended
	Forget         time.Duration    // a flow without uplink for this long is forgotten
	Grants         map[string]Grant // by edge name; nil = unrestricted
	MaxFlows       int
	MaxEdges       int
	KeepDecisions  int
}

// Grant limits the claims in an edge's hello.
type Grant struct {
	Prefixes []netip.Prefix // must contain towards and behind
	Signal   []netip.Prefix // must contain the signalling address
}

// allows returns an error that names the first claim not granted.
func (g Grant) allows(h api.Edge) error {
	for _, p := range slices.Concat(h.Towards, h.Behind) {
		if p.Addr().Is4In6() {
			p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
		}
		if !slices.ContainsFunc(g.Prefixes,
			func(q netip.Prefix) bool { return q.Bits() <= p.Bits() && q.Contains(p.Addr()) }) {
			return fmt.Errorf("prefix %s is not granted to edge %s", p, h.Name)
		}
	}
	if a := h.Signal.Addr().Unmap(); h.Role.Sends() && !slices.ContainsFunc(g.Signal,
		func(q netip.Prefix) bool { return q.Contains(a) }) {
		return fmt.Errorf("signalling address %s is not granted to edge %s", a, h.Name)
	}
	return nil
}

// Rule judges a viewer's uplink packets.
type Rule string

// The rules. A flow over paths without probes falls back to Paper.
const (
	Lateness Rule = "lateness" // packets are late while the path's RTT is above its minimum or probes are lost
	Paper    Rule = "paper"    // long intervals in a row (Qian et al., section III.A, steps 1 and 2)
)

// Trigger defines when a flow is in trouble.
type Trigger struct {
	Rule Rule
	// Lateness: packets are late if delayed by more than the frame interval divided by Sensitivity.
	Sensitivity float64
	Interval    time.Duration // Paper: longest normal interval between two uplink packets of a viewer
	Count       int           // Paper: number of longer intervals in a row
	// Silence is the time without packets after which a live flow fires the trigger on its own; 0
	// means never.
	Silence time.Duration
	// Merge is the time within which several packets count as one, since delayed frames are
	// acknowledged in bursts.
	Merge time.Duration
	// Live is the number of packets that make a flow live. Before that, silence does not count.
	Live int
}

// Redirect holds the conditions for moving a flow to the path with the least RTT.
type Redirect struct {
	Margin float64       // minimum gain as a fraction of the current RTT
	Gain   time.Duration // minimum absolute gain
	Hold   time.Duration // minimum time between two moves, unless the path is lost
	Follow bool          // move on any report, not only when the trigger fires
}

// Resend defines how a signalling packet is repeated until the sender reports its path set in force:
// at intervals of First until Slow has passed, then ten times First (at most Slow) until five times
// Slow has passed, then Slow.
type Resend struct {
	First, Slow time.Duration
}

// DefaultConfig returns the default settings. The paper's values are used where it gives them.
func DefaultConfig() Config {
	return Config{
		Mode: api.Auto,
		Trigger: Trigger{
			Rule: Lateness, Sensitivity: 2,
			Interval: 150 * time.Millisecond, Count: 3, Silence: 450 * time.Millisecond,
			Merge: 10 * time.Millisecond, Live: 5,
		},
		Redirect:       Redirect{Margin: 0.1, Gain: 2 * time.Millisecond, Hold: time.Second},
		Signal:         Resend{First: 20 * time.Millisecond, Slow: time.Second},
		ReportInterval: time.Second,
		Rearm:          time.Second,
		End:            10 * time.Second,
		Forget:         5 * time.Minute,
		MaxFlows:       1024,
		MaxEdges:       256,
		KeepDecisions:  4096,
	}
}

// maxSensitivity bounds Trigger.Sensitivity.
const maxSensitivity = 10

// Validate returns an error that names the invalid setting.
func (c Config) Validate() error {
	switch {
	case !knownMode(c.Mode):
		return fmt.Errorf("mode %q is not auto, duplicate, redirect or off", c.Mode)
	case c.Trigger.Rule != Lateness && c.Trigger.Rule != Paper:
		return fmt.Errorf("trigger.rule %q is not lateness or paper", c.Trigger.Rule)
	case !(c.Trigger.Sensitivity > 0 && c.Trigger.Sensitivity <= maxSensitivity):
		return fmt.Errorf("trigger.sensitivity must be above 0 and at most %d", maxSensitivity)
	case c.Trigger.Interval <= 0:
		return errors.New("trigger.interval must be above 0")
	case c.Trigger.Count < 1:
		return errors.New("trigger.count must be at least 1")
	case c.Trigger.Silence != 0 && c.Trigger.Silence < c.Trigger.Interval:
		return errors.New("trigger.silence must be 0 (never) or at least trigger.interval")
	case c.Trigger.Merge < 0 || c.Trigger.Merge >= c.Trigger.Interval:
		return errors.New("trigger.merge must be at least 0 and below trigger.interval")
	case c.Trigger.Live < 1:
		return errors.New("trigger.live must be at least 1")
	case c.Redirect.Margin < 0 || c.Redirect.Margin >= 1:
		return errors.New("redirect.margin must be at least 0 and below 1")
	case c.Redirect.Gain < 0:
		return errors.New("redirect.gain must not be negative")
	case c.Redirect.Hold < 0:
		return errors.New("redirect.hold must not be negative")
	case c.Signal.First < time.Millisecond:
		return errors.New("signal.resend must be at least 1ms")
	case c.Signal.Slow < c.Signal.First:
		return fmt.Errorf("signal.slow must be at least signal.resend, %v", c.Signal.First)
	case c.ReportInterval < 10*time.Millisecond:
		return errors.New("reportInterval must be at least 10ms")
	case c.Rearm < 0:
		return errors.New("rearm must not be negative")
	case c.End <= max(c.Trigger.Silence, c.Trigger.Interval):
		return errors.New("end must be above trigger.interval and trigger.silence")
	case c.Forget < c.End:
		return errors.New("forget must be at least end")
	case c.Grants != nil && c.grantsWrong() != "":
		return errors.New(c.grantsWrong())
	case c.MaxFlows < 1:
		return errors.New("maxFlows must be at least 1")
	case c.MaxEdges < 1:
		return errors.New("maxEdges must be at least 1")
	case c.KeepDecisions < 1:
		return errors.New("keepDecisions must be at least 1")
	}
	return nil
}

// grantsWrong describes an error in the grants, or returns "" if there is none.
func (c Config) grantsWrong() string {
	for _, name := range slices.Sorted(maps.Keys(c.Grants)) {
		g := c.Grants[name]
		if !EdgeName(name) {
			return fmt.Sprintf("grants: %.80q is not an edge name: want 1 to 64 letters, digits, '.', '_' or '-'", name)
		}
		for _, p := range slices.Concat(g.Prefixes, g.Signal) {
			if p != p.Masked() || !p.IsValid() || p.Addr().Is4In6() {
				return fmt.Sprintf("grants.%s: %s is not a prefix such as 10.9.0.0/24", name, p)
			}
		}
	}
	return ""
}

func knownMode(m api.Mode) bool {
	return m == api.Auto || m == api.Duplicate || m == api.Redirect || m == api.Off
}
