package api

import (
	"net/netip"
	"time"

	"holocast/netfunc/pathset"
)

// Role is what an edge does for a direction of traffic.
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

// Edge is what an edge says of itself in its hello.
type Edge struct {
	Name string `json:"name"` // 1 to 64 of a–z, A–Z, 0–9, '.', '_', '-'
	Role Role   `json:"role"`
	// Peer is the name of the edge at the other end of the paths; it may be left
	// out where there are two edges in all.
	Peer string `json:"peer,omitempty"`
	// Signal is the IPv4 address and UDP port that signalling packets go to. A
	// sender must have one.
	Signal netip.AddrPort `json:"signal,omitzero"`
	// SignalVersion is the version of signalling messages that a sender takes; 0 = 1.
	SignalVersion int    `json:"signal_version,omitempty"`
	Paths         []Path `json:"paths"`
	// Towards are the destinations that a sender may duplicate packets to.
	Towards []netip.Prefix `json:"towards,omitempty"`
	// Behind are the destinations that lie behind a receiver.
	Behind  []netip.Prefix `json:"behind,omitempty"`
	Version string         `json:"version,omitempty"` // of the edge's program
}

// Path is one path as an edge sees it.
type Path struct {
	Index     int    `json:"index"` // 1 to pathset.Max
	Interface string `json:"interface"`
	// Up is false when the path cannot carry packets: no carrier, taken down, no
	// neighbour.
	Up bool `json:"up"`
	// RTT of the probes between the edges, milliseconds: their mean since the last
	// report, and the smallest ever; 0 = none was answered yet.
	RTT    float64 `json:"rtt_ms,omitempty"`
	MinRTT float64 `json:"min_rtt_ms,omitempty"`
	// Loss is the part of the probes since the last report, 0 to 1, that was not
	// answered. 1 means that the path is dead or that the peer does not answer.
	Loss float64 `json:"loss,omitempty"`
	// Counters since the edge attached: packets and bytes sent on the path, and of
	// those received on it the first replicas, the later ones and those that came on
	// a path outside their flow's set.
	Sent      uint64 `json:"sent,omitempty"`
	SentBytes uint64 `json:"sent_bytes,omitempty"`
	First     uint64 `json:"first,omitempty"`
	Late      uint64 `json:"late,omitempty"`
	Rogue     uint64 `json:"rogue,omitempty"`
}

// Welcome answers a hello.
type Welcome struct {
	// ReportInterval is how often the controller wants a report, milliseconds; an
	// edge that is silent for three of them is lost.
	ReportInterval int `json:"report_interval_ms"`
	// Flows that the edge has a part in.
	Flows []Flow `json:"flows"`
}

// Report is an edge's heartbeat. An edge sends one at the report interval, and at
// once when a signalling packet was applied or a path went up or down.
type Report struct {
	Paths []Path `json:"paths"`
	// Nonce is the highest that the edge accepted in a signalling packet. It is
	// written as a string: it does not fit the numbers of JavaScript.
	Nonce uint64 `json:"nonce,string,omitempty"`
	// Policies are the path sets that are in force in the sender's policy map.
	Policies []Policy `json:"policies,omitempty"`
	// Ready are the destinations whose replicas the receiver eliminates. A sender duplicates
	// to no others.
	Ready []netip.Addr `json:"ready,omitempty"`
	// Routes are where plain routing takes packets to the destinations of flows that
	// are left to it.
	Routes []Route `json:"routes,omitempty"`
	// Counters are further counters of the edge by name.
	Counters map[string]uint64 `json:"counters,omitempty"`
}

// Policy is the path set that is in force for a destination at a sender.
type Policy struct {
	Destination netip.Addr  `json:"destination"`
	Paths       pathset.Set `json:"paths"`
	// Nonce of the signalling packet that set it; "0" = none since the edge attached.
	Nonce uint64 `json:"nonce,string"`
}

// MaxPolicies is the most policies that fit into a report of the controller's usual limit, 1 MiB, beside
// the flows of a receiver.
const MaxPolicies = 6144

// MaxFlows is the most destinations that the kernel of a receiver holds.
const MaxFlows = 1024

// Route is where plain routing takes the packets to a destination.
type Route struct {
	Destination netip.Addr `json:"destination"`
	// Path that the packets leave by; 0 = by none of the paths.
	Path int `json:"path,omitempty"`
	// Unreachable says that the routing table has no route to the destination.
	Unreachable bool `json:"unreachable,omitempty"`
}

// Uplink is what an edge's uplink monitor saw, oldest first.
type Uplink struct {
	Observations []Observation `json:"observations"`
}

// Observation is a packet from the viewer's side whose length is in the configured
// window: a frame request or a receipt.
type Observation struct {
	// Time on the edge's monotonic clock, nanoseconds. Only differences between
	// observations of one edge mean something.
	Time        int64          `json:"time_ns"`
	Source      netip.AddrPort `json:"source"` // the viewer: the destination of its flow
	Destination netip.AddrPort `json:"destination"`
	Length      int            `json:"length"` // of the IP packet, bytes
}

// Elimination is the outcome of Algorithm 1 at a receiver.
type Elimination struct {
	Destination netip.Addr `json:"destination"`
	// Generation of the path set that the outcome is about; an older one is refused
	// with ErrStale.
	Generation uint64 `json:"generation"`
	// Removed are the paths to trim, Remaining those that the receiver keeps.
	Removed   pathset.Set `json:"removed"`
	Remaining pathset.Set `json:"remaining"`
	// Lossy are those of Removed that did not deliver the flow: they are too narrow for it, or broken.
	Lossy pathset.Set `json:"lossy,omitempty"`
	// Single says that one path alone delivered a whole window in time.
	Single bool `json:"single,omitempty"`
	// Rewards are N_i of the paths at that moment, for the record.
	Rewards []Reward `json:"rewards,omitempty"`
	// Reason is a sentence for the record.
	Reason string `json:"reason,omitempty"`
}

// MaxEliminations is how many outcomes a call reports at most.
const MaxEliminations = 256

// Eliminations are outcomes of Algorithm 1 for several destinations, one of each.
type Eliminations struct {
	Eliminations []Elimination `json:"eliminations"`
}

// Outcome is what became of an elimination: the flow as it is then, or why it was refused.
type Outcome struct {
	Destination netip.Addr `json:"destination"`
	Flow        *Flow      `json:"flow,omitempty"`
	Problem     *Problem   `json:"problem,omitempty"`
}

// Err is why the elimination was refused; ErrStale when the path set changed in the meantime.
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

// Reward is the cumulative reward N_i of a path over the last W packets.
type Reward struct {
	Path   int `json:"path"`
	Reward int `json:"reward"`
	Window int `json:"window"`
}

// Mode is how the paths of a flow are chosen.
type Mode string

const (
	// Auto duplicates over all paths when the trigger fires, and trims.
	Auto Mode = "auto"
	// Duplicate duplicates always, over the paths given or all that are up.
	Duplicate Mode = "duplicate"
	// Redirect moves the flow to the path with the least RTT when the trigger
	// fires, or to the one path given.
	Redirect Mode = "redirect"
	// Off leaves the flow to plain routing.
	Off Mode = "off"
)

// Setting is what an operator wants of a flow.
type Setting struct {
	Mode Mode `json:"mode"`
	// Paths that may be used; the empty set stands for all.
	Paths pathset.Set `json:"paths,omitempty"`
}

// State is where a flow is in the course from trigger to single path.
type State string

const (
	// Armed waits for the trigger; packets take plain routing, or the one path that
	// was left last.
	Armed State = "armed"
	// Duplicating sends replicas over all paths that were up when it began.
	Duplicating State = "duplicating"
	// Trimmed duplicates over those of them that are left.
	Trimmed State = "trimmed"
	// Single sends over the one path left; the trigger is armed again in a moment.
	Single State = "single"
	// Redirected sends over the path with the least RTT.
	Redirected State = "redirected"
	// Disabled is a flow that an operator switched off.
	Disabled State = "off"
)

// Flow is the traffic to one destination, and the path set that it shall have.
type Flow struct {
	Destination netip.Addr  `json:"destination"`
	Mode        Mode        `json:"mode"`
	Allowed     pathset.Set `json:"allowed"` // the operator's paths; empty = all
	State       State       `json:"state"`
	// Paths that packets to the destination are sent on; empty = plain routing.
	Paths pathset.Set `json:"paths"`
	// Generation grows whenever a path is added. Within a generation paths are only
	// taken away.
	Generation uint64    `json:"generation"`
	Since      time.Time `json:"since"` // of State
	Sender     string    `json:"sender,omitempty"`
	Receiver   string    `json:"receiver,omitempty"`
	// Applied says that the sender reported Paths as in force.
	Applied bool `json:"applied"`
	// Live says that the viewer's uplink was seen lately; Interval is the last one
	// between two of its packets, milliseconds.
	Live     bool    `json:"live"`
	Interval float64 `json:"interval_ms,omitempty"`
}

// Update is one line of the watch stream: the first one is a snapshot of all flows
// that concern the edge, those that follow are changes. A line with
// nothing in it only shows that the controller is there.
type Update struct {
	Snapshot bool         `json:"snapshot,omitempty"`
	Flows    []Flow       `json:"flows,omitempty"`
	Removed  []netip.Addr `json:"removed,omitempty"`
}

// EdgeStatus is an edge as the controller sees it.
type EdgeStatus struct {
	Edge
	// Lost says that its reports stopped.
	Lost     bool              `json:"lost"`
	Since    time.Time         `json:"since"` // of the hello, or of the loss
	Reported time.Time         `json:"reported"`
	Policies []Policy          `json:"policies,omitempty"`
	Counters map[string]uint64 `json:"counters,omitempty"`
}

// Decision is an entry of the controller's log.
type Decision struct {
	Sequence uint64    `json:"sequence"` // from 1, without gaps
	Time     time.Time `json:"time"`
	// Kind: trigger, start, trim, single, rearm, redirect, stop, path, edge,
	// operator, stale, signal, adopt, restart.
	Kind        string     `json:"kind"`
	Destination netip.Addr `json:"destination,omitzero"`
	// Others are further destinations that the same was decided for at that moment, as when a path fails
	// that many flows take.
	Others     []netip.Addr `json:"others,omitempty"`
	Edge       string       `json:"edge,omitempty"`
	From       pathset.Set  `json:"from"`
	To         pathset.Set  `json:"to"`
	Generation uint64       `json:"generation,omitempty"`
	State      State        `json:"state,omitempty"`
	Reason     string       `json:"reason"` // one sentence
	Rewards    []Reward     `json:"rewards,omitempty"`
}

// Status is the controller's own.
type Status struct {
	Version  string    `json:"version"`
	Started  time.Time `json:"started"`
	Now      time.Time `json:"now"`
	Edges    int       `json:"edges"` // that are not lost
	Flows    int       `json:"flows"`
	Signals  uint64    `json:"signals"`   // signalling packets sent
	Sequence uint64    `json:"sequence"`  // of the last decision
	Trigger  Trigger   `json:"trigger"`   // in force
	Mode     Mode      `json:"mode"`      // of flows that no operator set
	StateErr string    `json:"state_err"` // why the state file was not written; "" = it was
}

// Trigger is when duplication starts.
type Trigger struct {
	Interval float64 `json:"interval_ms"` // longer ones count
	Count    int     `json:"count"`       // this many running
	Silence  float64 `json:"silence_ms"`  // or nothing at all for so long
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
