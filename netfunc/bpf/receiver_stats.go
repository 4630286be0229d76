package bpf

import (
	"fmt"
	"net/netip"
)

// ReceiverPath counts arrivals on a path.
type ReceiverPath struct {
	First uint64 // passed
	Late  uint64 // dropped
	Rogue uint64 // on a path outside the flow's set, or repeated on the same path; also in First or Late
	Bytes uint64 // IP bytes, passed and dropped
	// Missing counts packets that arrived on another path but not, or not yet, on this one since
	// this path joined its flow's set. It covers only the current sets, so it decreases when a path
	// leaves a set.
	Missing uint64
}

// ReceiverStats holds counters since the maps were created.
type ReceiverStats struct {
	Paths [MaxPaths]ReceiverPath // of path i+1, all flows
	// Flows holds the same counters by destination, counted since the flow was set.
	Flows map[netip.Addr][MaxPaths]ReceiverPath

	Unknown uint64 // passed: a path's codepoint, but the destination has no flow
	// Misaddressed counts frames addressed to another host by a sender with a wrong next hop. They
	// pass to the stack, which drops them.
	Misaddressed uint64
	Short        uint64 // passed: truncated or malformed header
	Races        uint64 // passed: lost four races for a slot of the replica table
	Evicted      uint64 // packets forgotten before they were stale because TableSize is too small
	RingFull     uint64 // arrivals lost because the reader was too slow
}

// Stats reads the counters.
func (r *Receiver) Stats() (ReceiverStats, error) {
	stats := ReceiverStats{Flows: make(map[netip.Addr][MaxPaths]ReceiverPath)}
	var cpus []receiverReceiverCounters
	if err := r.maps[receiverMapReceived].Lookup(uint32(0), &cpus); err != nil {
		return stats, fmt.Errorf("read counters: %w", err)
	}
	for _, c := range cpus {
		stats.Unknown += c.Unknown
		stats.Misaddressed += c.Misaddressed
		stats.Short += c.Truncated
		stats.Races += c.Races
		stats.Evicted += c.Evicted
		stats.RingFull += c.RingFull
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	flows, err := r.flows()
	if err != nil {
		return stats, err
	}
	ledger, err := r.ledger()
	if err != nil {
		return stats, err
	}
	stats.Paths = flowCounts(ledger.Removed).paths(receiverFlow{})
	for dst, flow := range flows {
		counts, err := r.flowCounts(flow.Id)
		if err != nil {
			return stats, err
		}
		paths := counts.paths(flow)
		stats.Flows[dst] = paths
		for i, p := range paths {
			stats.Paths[i].add(p)
		}
	}
	return stats, nil
}

func (p *ReceiverPath) add(q ReceiverPath) {
	p.First += q.First
	p.Late += q.Late
	p.Rogue += q.Rogue
	p.Bytes += q.Bytes
	p.Missing += q.Missing
}

// flowCounts holds the counters of one flow, summed over CPUs.
type flowCounts receiverFlowCounters

// flowCounts reads the counters of the flow with the given ID.
func (r *Receiver) flowCounts(id uint32) (flowCounts, error) {
	var (
		sum  flowCounts
		cpus []receiverFlowCounters
	)
	if err := r.maps[receiverMapFlowCounts].Lookup(id%MaxFlows, &cpus); err != nil {
		return sum, fmt.Errorf("counters of flow %d: %w", id%MaxFlows, err)
	}
	for _, c := range cpus {
		sum.add(flowCounts(c))
	}
	return sum, nil
}

func (c *flowCounts) add(d flowCounts) {
	for i := range c.Path {
		p, q := &c.Path[i], d.Path[i]
		p.Passed += q.Passed
		p.Dropped += q.Dropped
		p.Outside += q.Outside
		p.Twice += q.Twice
		p.Bytes += q.Bytes
	}
}

// passed returns the number of packets of the flow.
func (c *flowCounts) passed() (n uint64) {
	for i := range c.Path {
		n += c.Path[i].Passed
	}
	return n
}

// delivered returns the number of packets that path i+1 delivered, without repetitions.
func (c *flowCounts) delivered(i int) uint64 {
	return c.Path[i].Passed + c.Path[i].Dropped - c.Path[i].Twice
}

// paths returns the counters in their public form.
func (c flowCounts) paths(flow receiverFlow) (paths [MaxPaths]ReceiverPath) {
	all := c.passed()
	for i, p := range c.Path {
		paths[i] = ReceiverPath{First: p.Passed, Late: p.Dropped, Rogue: p.Outside + p.Twice, Bytes: p.Bytes}
		// The counters of several CPUs are not read at the same instant, so the difference may be
		// too small.
		if behind := flow.Behind[i] + c.delivered(i); flow.Paths>>i&1 != 0 && all > behind {
			paths[i].Missing = all - behind
		}
	}
	return paths
}
