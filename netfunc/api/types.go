package api

import (
	"fmt"
	"net/netip"
	"time"

	"holocast/netfunc/pathset"
)

// Role is an edge's part in one direction of traffic.
type Role string

// An edge duplicates (sender), removes duplicates (receiver), or does both.
const (
	Sender   Role = "sender"
	Receiver Role = "receiver"
	Both     Role = "both"
)

// Sends reports whether an edge of the role duplicates packets.
func (r Role) Sends() bool { return r == Sender || r == Both }

// Receives reports whether an edge of the role removes duplicates.
func (r Role) Receives() bool { return r == Receiver || r == Both }

// Edge describes an edge in its hello.
type Edge struct {
	Name string `json:"name"` // 1 to 64 of a–z, A–Z, 0–9, '.', '_', '-'
	Role Role   `json:"role"`
	// Peer names the edge at the other end of the paths. It is optional with only two edges.
	Peer string `json:"peer,omitempty"`
	// Signal is the IPv4 address and UDP port for signalling packets. Senders require it.
	Signal netip.AddrPort `json:"signal,omitzero"`
	// SignalVersion is the signalling version that a sender accepts. 0 means 1.
	SignalVersion int    `json:"signal_version,omitempty"`
	Paths         []Path `json:"paths"`
	// Towards lists the destinations to which a sender may duplicate packets.
	Towards []netip.Prefix `json:"towards,omitempty"`
	// Behind lists the destinations behind a receiver.
	Behind  []netip.Prefix `json:"behind,omitempty"`
	Version string         `json:"version,omitempty"` // of the edge's program
}

// Path is one path as seen by an edge.
type Path struct {
	Index     int    `json:"index"` // 1 to pathset.Max
	Interface string `json:"interface"`
	// Up is false if the path cannot carry packets because it has no carrier, is administratively
	// down or has no neighbour.
	Up bool `json:"up"`
	// RTT is the mean round-trip time of the last two seconds' probes between the edges, MinRTT the
	// minimum of the newest 128 probes. Both are in milliseconds, and 0 if no probe was answered.
	RTT    float64 `json:"rtt_ms,omitempty"`
	MinRTT float64 `json:"min_rtt_ms,omitempty"`
	// Loss is the fraction (0 to 1) of the probes of the last two seconds that were not answered.
	// At 1 the path is dead or the peer does not answer. Lost is the number of unanswered probes
	// among the newest 128.
	Loss float64 `json:"loss,omitempty"`
	Lost int     `json:"lost,omitempty"`
	// Silent means that the last three probes were not answered although their answers were due.
	Silent bool `json:"silent,omitempty"`
	// Sent and SentBytes count packets and bytes sent on the path since the edge attached. Of the
	// packets received, First counts first replicas and Late later ones. Both include Rogue
	// replicas, which were outside their flow's path set or repeated on the same path.
	Sent      uint64 `json:"sent,omitempty"`
	SentBytes uint64 `json:"sent_bytes,omitempty"`
	First     uint64 `json:"first,omitempty"`
	Late      uint64 `json:"late,omitempty"`
	Rogue     uint64 `json:"rogue,omitempty"`
}

// Welcome answers a hello.
type Welcome struct {
	// ReportInterval is the interval between reports in milliseconds. An edge that misses three
	// reports is lost.
	ReportInterval int `json:"report_interval_ms"`
	// Flows that involve the edge.
	Flows []Flow `json:"flows"`
}

// Report is an edge's heartbeat. An edge sends one every report interval, and immediately after it
// applies a signalling packet or a path changes state.
type Report struct {
	Paths []Path `json:"paths"`
	// Nonce is the highest nonce of an accepted signalling packet. It is a JSON string because
	// JavaScript numbers cannot represent every uint64.
	Nonce uint64 `json:"nonce,string,omitempty"`
	// Policies are the path sets in force in the sender's policy map.
	Policies []Policy `json:"policies,omitempty"`
	// Ready lists the destinations whose replicas the receiver eliminates. A sender duplicates only
	// to these.
	Ready []netip.Addr `json:"ready,omitempty"`
	// Routes are the plain routes of flows without a path set.
	Routes []Route `json:"routes,omitempty"`
	// Counters are the edge's other counters, by name.
	Counters map[string]uint64 `json:"counters,omitempty"`
}

// Policy is the path set in force for a destination at a sender.
type Policy struct {
	Destination netip.Addr  `json:"destination"`
	Paths       pathset.Set `json:"paths"`
	// Nonce of the signalling packet that set it, or "0" if none has set it since the edge
	// attached.
	Nonce uint64 `json:"nonce,string"`
}

// MaxPolicies limits the policies in a report. With the flows of a receiver, they fit into the
// controller's default limit of 1 MiB.
const MaxPolicies = 6144

// MaxFlows is the capacity of a receiver's kernel program, in destinations.
const MaxFlows = 1024

// Route is the plain route to a destination.
type Route struct {
	Destination netip.Addr `json:"destination"`
	// Path is the path that the route takes, or 0 if it takes none of the paths.
	Path int `json:"path,omitempty"`
	// Unreachable means that the routing table has no route to the destination.
	Unreachable bool `json:"unreachable,omitempty"`
}

// Uplink lists packets seen by an edge's uplink monitor, oldest first.
type Uplink struct {
	Observations []Observation `json:"observations"`
}

// Observation is a packet from a viewer whose length is in the configured range, which makes it a
// frame request or a receipt.
type Observation struct {
	// Time on the edge's monotonic clock in nanoseconds. Only differences between observations of
	// one edge are meaningful.
	Time        int64          `json:"time_ns"`
	Source      netip.AddrPort `json:"source"` // the viewer, which is the destination of its flow
	Destination netip.AddrPort `json:"destination"`
	Length      int            `json:"length"` // of the IP packet, bytes
}

// Elimination is the outcome of Algorithm 1 at a receiver.
type Elimination struct {
	Destination netip.Addr `json:"destination"`
	// Generation of the judged path set. Any but the current one is refused with ErrStale.
	Generation uint64 `json:"generation"`
	// Removed lists the paths to trim, Remaining the paths to keep.
	Removed   pathset.Set `json:"removed"`
	Remaining pathset.Set `json:"remaining"`
	// Lossy is the subset of Removed that lost many of the flow's replicas. These paths are
	// bottlenecks or broken.
	Lossy pathset.Set `json:"lossy,omitempty"`
	// Single means that only one path remains.
	Single bool `json:"single,omitempty"`
	// Rewards are the paths' N_i at that moment, for the log.
	Rewards []Reward `json:"rewards,omitempty"`
	// Reason is a sentence for the log.
	Reason string `json:"reason,omitempty"`
}

// MaxEliminations limits the outcomes per call.
const MaxEliminations = 256

// Eliminations are outcomes of Algorithm 1, one per destination.
type Eliminations struct {
	Eliminations []Elimination `json:"eliminations"`
}

// Outcome is the result of an elimination: the resulting flow, or the reason why it was refused.
type Outcome struct {
	Destination netip.Addr `json:"destination"`
	Flow        *Flow      `json:"flow,omitempty"`
	Problem     *Problem   `json:"problem,omitempty"`
}

// Err returns the reason for a refusal, such as ErrStale if the path set has changed.
func (o Outcome) Err() error {
	if o.Problem == nil {
		return nil
	}
	return o.Problem
}

// OutcomeList is a list of outcomes, in the order of the eliminations.
type OutcomeList struct {
	Outcomes []Outcome `json:"outcomes"`
}

// Reward is the cumulative reward N_i of a path over the last Window packets.
type Reward struct {
	Path   int `json:"path"`
	Reward int `json:"reward"`
	Window int `json:"window"`
}

// Mode is the strategy that chooses a flow's paths.
type Mode string

const (
	// Auto duplicates over all paths when the trigger fires, then trims.
	Auto Mode = "auto"
	// Duplicate always duplicates, over the allowed paths that are up.
	Duplicate Mode = "duplicate"
	// Redirect moves the flow to the path with the least RTT when the trigger fires, or to the
	// single allowed path.
	Redirect Mode = "redirect"
	// Off leaves the flow to plain routing.
	Off Mode = "off"
)

// Setting is an operator's setting for a flow.
type Setting struct {
	Mode Mode `json:"mode"`
	// Paths that may be used; empty means all.
	Paths pathset.Set `json:"paths,omitempty"`
}

// State is the stage of a flow's duplication.
type State string

const (
	// Armed waits for the trigger. Packets take plain routing or the last remaining path.
	Armed State = "armed"
	// Duplicating sends replicas over all paths that were up at the start.
	Duplicating State = "duplicating"
	// Trimmed sends replicas over the remaining paths.
	Trimmed State = "trimmed"
	// Single sends over the one remaining path. The trigger is re-armed after a while.
	Single State = "single"
	// Redirected sends over the path with the least RTT or, if an operator allows only one, that
	// path.
	Redirected State = "redirected"
	// Disabled is a flow in mode Off.
	Disabled State = "off"
)

// Flow is the traffic to one destination, with its desired path set.
type Flow struct {
	Destination netip.Addr  `json:"destination"`
	Mode        Mode        `json:"mode"`
	Allowed     pathset.Set `json:"allowed"` // the operator's paths; empty = all
	State       State       `json:"state"`
	// Paths to send packets on; empty means plain routing.
	Paths pathset.Set `json:"paths"`
	// Generation grows whenever a path is added. Within a generation paths are only removed.
	Generation uint64    `json:"generation"`
	Since      time.Time `json:"since"` // start of State
	Sender     string    `json:"sender,omitempty"`
	Receiver   string    `json:"receiver,omitempty"`
	// Applied means that the sender has reported Paths as in force.
	Applied bool `json:"applied"`
	// Live means that the viewer's uplink was seen recently; Interval is the last gap between two
	// of its packets in milliseconds.
	Live     bool    `json:"live"`
	Interval float64 `json:"interval_ms,omitempty"`
}

// Update is a line of the watch stream. The first is a snapshot of all flows that involve the edge;
// the following lines are changes. An empty line is a keep-alive.
type Update struct {
	Snapshot bool         `json:"snapshot,omitempty"`
	Flows    []Flow       `json:"flows,omitempty"`
	Removed  []netip.Addr `json:"removed,omitempty"`
}

// EdgeStatus is an edge as the controller sees it.
type EdgeStatus struct {
	Edge
	// Lost means that its reports have stopped.
	Lost     bool              `json:"lost"`
	Since    time.Time         `json:"since"` // of the hello or of the loss
	Reported time.Time         `json:"reported"`
	Policies []Policy          `json:"policies,omitempty"`
	Counters map[string]uint64 `json:"counters,omitempty"`
}

// Decision is an entry of the controller's log.
type Decision struct {
	Sequence uint64    `json:"sequence"` // from 1, without gaps
	Time     time.Time `json:"time"`
	// Kind is trigger, start, trim, single, rearm, redirect, stop, path, edge, operator, stale,
	// signal, adopt or restart.
	Kind        string     `json:"kind"`
	Destination netip.Addr `json:"destination,omitzero"`
	// Others are further destinations of the same decision, for example when a path used by many
	// flows fails.
	Others     []netip.Addr `json:"others,omitempty"`
	Edge       string       `json:"edge,omitempty"`
	From       pathset.Set  `json:"from"`
	To         pathset.Set  `json:"to"`
	Generation uint64       `json:"generation,omitempty"`
	State      State        `json:"state,omitempty"`
	Reason     string       `json:"reason"` // one sentence
	Rewards    []Reward     `json:"rewards,omitempty"`
}

// Status describes the controller itself.
type Status struct {
	Version  string    `json:"version"`
	Started  time.Time `json:"started"`
	Now      time.Time `json:"now"`
	Edges    int       `json:"edges"` // excluding lost edges
	Flows    int       `json:"flows"`
	Signals  uint64    `json:"signals"`   // signalling packets sent
	Sequence uint64    `json:"sequence"`  // of the last decision
	Trigger  Trigger   `json:"trigger"`   // in force
	Mode     Mode      `json:"mode"`      // of flows without an operator's setting
	StateErr string    `json:"state_err"` // error of the last write of the state file; "" = success
}

// Trigger holds the conditions that start duplication.
type Trigger struct {
	Rule        string  `json:"rule"`        // lateness or paper
	Sensitivity float64 `json:"sensitivity"` // lateness: the frame interval divided by the tolerated lateness
	Interval    float64 `json:"interval_ms"` // paper: longer intervals are late
	Count       int     `json:"count"`       // paper: consecutive late intervals
	Silence     float64 `json:"silence_ms"`  // duplication also starts after this time without packets
}

// String describes the rule and its setting.
func (t Trigger) String() string {
	if t.Rule == "paper" {
		return fmt.Sprintf("%d × above %.0f ms", t.Count, t.Interval)
	}
	return fmt.Sprintf("%s, sensitivity %g", t.Rule, t.Sensitivity)
}

// EdgeList answers GET /v1/edges.
type EdgeList struct {
	Edges []EdgeStatus `json:"edges"`
}

// FlowList answers GET /v1/flows.
type FlowList struct {
	Flows []Flow `json:"flows"`
}

// DecisionList answers GET /v1/decisions, oldest first.
type DecisionList struct {
	Decisions []Decision `json:"decisions"`
}
