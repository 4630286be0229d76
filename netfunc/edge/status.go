//go:build linux

package main

import (
	"net/netip"
	"time"

	"holocast/netfunc/api"
	"holocast/netfunc/bpf"
	"holocast/netfunc/edge/report"
	"holocast/netfunc/pathset"
)

// Status is the output of "edge status --json". Counters start when the edge attaches and outlive its
// process.
type Status struct {
	Name       string            `json:"name"`
	Role       api.Role          `json:"role,omitempty"`
	Version    string            `json:"version,omitempty"`
	Running    bool              `json:"running"` // false if only the kernel programs are left
	PID        int               `json:"pid,omitempty"`
	Started    time.Time         `json:"started,omitzero"`
	Pin        string            `json:"pin"`
	Attached   []Attached        `json:"attached"`
	Paths      []PathStatus      `json:"paths"`
	Sender     *SenderStatus     `json:"sender,omitempty"`
	Receiver   *ReceiverStatus   `json:"receiver,omitempty"`
	Controller *ControllerStatus `json:"controller,omitempty"`
}

// PathStatus is one path.
type PathStatus struct {
	Index     int    `json:"index"`
	Interface string `json:"interface"`
	Peer      string `json:"peer,omitempty"`
	Up        bool   `json:"up"`
	// Unknown means that the edge is not running and the kernel programs do not hold the path's
	// state.
	Unknown  bool    `json:"unknown,omitempty"`
	Problem  string  `json:"problem,omitempty"` // why it is not up
	NextHop  string  `json:"next_hop,omitempty"`
	Ethernet string  `json:"ethernet,omitempty"` // of the next hop
	RTT      float64 `json:"rtt_ms,omitempty"`   // of the last two seconds' probes
	MinRTT   float64 `json:"min_rtt_ms,omitempty"`
	Loss     float64 `json:"loss"` // of the newest 128 probes, 0 to 1
	Probed   bool    `json:"probed"`
	Refused  uint64  `json:"probes_refused"` // packets on the probe port that are not the peer's probes

	Sent      uint64 `json:"sent"`
	SentBytes uint64 `json:"sent_bytes"`
	Errors    uint64 `json:"send_errors"`
	TooBig    uint64 `json:"too_big"`
	First     uint64 `json:"first"`
	Late      uint64 `json:"late"`
	Rogue     uint64 `json:"rogue"`
	Bytes     uint64 `json:"received_bytes"`
	// Lost counts packets that arrived on other paths of their flow's set but not on this one.
	Lost uint64 `json:"lost"`
}

// SenderStatus is the sender's half.
type SenderStatus struct {
	Duplicated uint64         `json:"duplicated"`
	Passed     PassedBySender `json:"passed"`
	Signals    Signals        `json:"signals"`
	Policies   []PolicyStatus `json:"policies"`
	Uplink     uint64         `json:"uplink"`
	RingFull   uint64         `json:"ring_full"`
}

// PassedBySender counts packets with a policy that passed unchanged, by reason.
type PassedBySender struct {
	Unusable uint64 `json:"no_usable_path"`
	Expiring uint64 `json:"expiring"`
	Tagged   uint64 `json:"tagged"`
	Short    uint64 `json:"truncated"`
	Failed   uint64 `json:"failed"`
}

// Signals counts signalling packets.
type Signals struct {
	Applied      uint64 `json:"applied"`
	Malformed    uint64 `json:"malformed"`
	Spoofed      uint64 `json:"spoofed"`
	OtherVersion uint64 `json:"other_version"`
	Replayed     uint64 `json:"replayed"`
	Full         uint64 `json:"map_full"`
	Foreign      uint64 `json:"foreign"`
	Nonce        uint64 `json:"nonce,string"` // highest accepted
}

// PolicyStatus is the path set of a destination.
type PolicyStatus struct {
	Destination netip.Addr  `json:"destination"`
	Paths       pathset.Set `json:"paths"`
	Signalled   bool        `json:"signalled"` // set by the controller rather than the configuration
	Nonce       uint64      `json:"nonce,string"`
}

// ReceiverStatus is the receiver's half.
type ReceiverStatus struct {
	Flows   []FlowStatus `json:"flows"`
	Unknown uint64       `json:"unknown"`
	// Misaddressed counts frames to another Ethernet address.
	Misaddressed uint64 `json:"misaddressed"`
	Short        uint64 `json:"truncated"`
	Races        uint64 `json:"races"`
	Evicted      uint64 `json:"evicted"`
	RingFull     uint64 `json:"ring_full"`
}

// FlowStatus is the traffic to one destination behind the edge.
type FlowStatus struct {
	Destination netip.Addr  `json:"destination"`
	DSCP        uint8       `json:"dscp"`
	Paths       pathset.Set `json:"paths"`
	PerPath     []FlowPath  `json:"per_path,omitempty"`
	Elimination *Algorithm  `json:"elimination,omitempty"` // nil if the edge is not running
}

// FlowPath is a flow on one path.
type FlowPath struct {
	Path  int    `json:"path"`
	First uint64 `json:"first"`
	Late  uint64 `json:"late"`
	Rogue uint64 `json:"rogue"`
	Lost  uint64 `json:"lost"`
}

// Algorithm is the state of path elimination.
type Algorithm struct {
	State      api.State        `json:"state,omitempty"` // of the controller; "" without one
	Generation uint64           `json:"generation"`
	Paths      pathset.Set      `json:"paths"`   // P
	Packets    uint64           `json:"packets"` // seen
	Window     uint32           `json:"window"`  // packets in it
	Rewards    []api.Reward     `json:"rewards"` // N_i
	Latent     pathset.Set      `json:"latent"`  // paths that lose packets that others deliver
	Alarms     uint64           `json:"alarms"`  // latent errors found
	Decisions  uint64           `json:"decisions"`
	Last       *api.Elimination `json:"last,omitempty"`
	LastAt     time.Time        `json:"last_at,omitzero"`
}

// ControllerStatus is the connection to the controller.
type ControllerStatus struct {
	URL string `json:"url"`
	report.Status
}

// path returns the status of path index, adding it if missing.
func (s *Status) path(index int) *PathStatus {
	for i := range s.Paths {
		if s.Paths[i].Index == index {
			return &s.Paths[i]
		}
	}
	s.Paths = append(s.Paths, PathStatus{Index: index})
	return &s.Paths[len(s.Paths)-1]
}

// addSender adds the contents of the sender's maps.
func (s *Status) addSender(k *bpf.Sender) error {
	stats, err := k.Stats()
	if err != nil {
		return err
	}
	policies, err := k.Policies()
	if err != nil {
		return err
	}
	nonce, err := k.Nonce()
	if err != nil {
		return err
	}
	for i, p := range stats.Paths {
		if p != (bpf.SenderPath{}) {
			to := s.path(i + 1)
			to.Sent, to.SentBytes, to.Errors, to.TooBig = p.Packets, p.Bytes, p.Errors, p.TooBig
		}
	}
	out := &SenderStatus{
		Duplicated: stats.Duplicated, Uplink: stats.Uplink, RingFull: stats.RingFull,
		Passed: PassedBySender{stats.Unusable, stats.Expiring, stats.Tagged, stats.Short, stats.Failed},
		Signals: Signals{
			Applied: stats.Applied, Malformed: stats.Malformed, Spoofed: stats.Spoofed,
			OtherVersion: stats.OtherVersion, Replayed: stats.Replayed,
			Full: stats.PolicyFull, Foreign: stats.Foreign, Nonce: nonce,
		},
		Policies: []PolicyStatus{},
	}
	for _, p := range policies {
		out.Policies = append(out.Policies, PolicyStatus{p.Destination, pathset.Set(p.Bits), p.Nonce != 0, p.Nonce})
	}
	s.Sender = out
	return nil
}

// addReceiver adds the contents of the receiver's maps.
func (s *Status) addReceiver(k *bpf.Receiver) error {
	stats, err := k.Stats()
	if err != nil {
		return err
	}
	flows, err := k.Flows()
	if err != nil {
		return err
	}
	for i, p := range stats.Paths {
		if p != (bpf.ReceiverPath{}) {
			to := s.path(i + 1)
			to.First, to.Late, to.Rogue, to.Bytes, to.Lost = p.First, p.Late, p.Rogue, p.Bytes, p.Missing
		}
	}
	out := &ReceiverStatus{
		Flows: []FlowStatus{}, Unknown: stats.Unknown, Misaddressed: stats.Misaddressed, Short: stats.Short,
		Races:   stats.Races,
		Evicted: stats.Evicted, RingFull: stats.RingFull,
	}
	for destination, f := range flows {
		flow := FlowStatus{Destination: destination, DSCP: f.DSCP, Paths: pathset.Set(f.Paths)}
		for i, p := range stats.Flows[destination] {
			if p != (bpf.ReceiverPath{}) {
				flow.PerPath = append(flow.PerPath, FlowPath{i + 1, p.First, p.Late, p.Rogue, p.Missing})
			}
		}
		out.Flows = append(out.Flows, flow)
	}
	s.Receiver = out
	return nil
}
