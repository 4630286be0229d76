package bpf

import (
	"fmt"
	"net/netip"
)

// ReceiverPath counts arrivals on a path.
type ReceiverPath struct {
	First uint64 // passed
	Late  uint64 // dropped
	Rogue uint64 // of both: on a path outside the flow's set, or a second time on the path
	Bytes uint64 // of the IP packets, both
	// Missing are packets that came on another path but did not come on this one
	// since it is in its flow's set; those under way are among them. It is about
	// the sets as they are now, and falls when a path leaves one.
	Missing uint64
}

// ReceiverStats are counters since the maps were made.
type ReceiverStats struct {
	Paths [MaxPaths]ReceiverPath // of path i+1, all flows
	// Flows are the same by destination, since the flow was set.
	Flows map[netip.Addr][MaxPaths]ReceiverPath

	Unknown uint64 // passed: a path's codepoint but no flow
	// Misaddressed passed to the stack, which drops them: frames to another host, of
	// a sender that has a next hop wrong.
	Misaddressed uint64
	Short        uint64 // passed: truncated or malformed header
	Races        uint64 // passed: the place in the replica table was lost to another processor four times
	Evicted      uint64 // packets forgotten before they were stale: the table is too small
	RingFull     uint64 // arrivals lost because the reader was too slow
}

// Stats reads the counters.
func (r *Receiver) Stats() (ReceiverStats, error) {
	stats := ReceiverStats{Flows: make(map[netip.Addr][MaxPaths]ReceiverPath)}
	var cpus []receiverReceiverCounters
	if err := r.maps[receiverMapReceived].Lookup(uint32(0), &cpus); err != nil {
		return stats, fmt.Errorf("counters: %w", err)
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

// flowCounts are the counts of one flow, of all processors.
type flowCounts receiverFlowCounters

// flowCounts reads the counts of the flow with an id.
func (r *Receiver) flowCounts(id uint32) (flowCounts, error) {
	var (
		sum  flowCounts
		cpus []receiverFlowCounters
	)
	if err := r.maps[receiverMapFlowCounts].Lookup(id%MaxFlows, &cpus); err != nil {
		return sum, fmt.Errorf("counts of flow %d: %w", id%MaxFlows, err)
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

// passed is the number of packets of the flow.
func (c *flowCounts) passed() (n uint64) {
	for i := range c.Path {
		n += c.Path[i].Passed
	}
	return n
}

// delivered is the number of them that path i+1 delivered.
func (c *flowCounts) delivered(i int) uint64 {
	return c.Path[i].Passed + c.Path[i].Dropped - c.Path[i].Twice
}

// paths are the counts as callers see them.
func (c flowCounts) paths(flow receiverFlow) (paths [MaxPaths]ReceiverPath) {
	all := c.passed()
	for i, p := range c.Path {
		paths[i] = ReceiverPath{First: p.Passed, Late: p.Dropped, Rogue: p.Outside + p.Twice, Bytes: p.Bytes}
		// Counts of several processors are not of one moment: the difference may
		// be below what it was.
		if behind := flow.Behind[i] + c.delivered(i); flow.Paths>>i&1 != 0 && all > behind {
			paths[i].Missing = all - behind
		}
	}
	return paths
}
