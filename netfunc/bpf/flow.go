package bpf

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"
)

// MaxFlows is the maximum number of destinations of a receiver.
const MaxFlows = 1024

// Flow is the traffic to one destination.
type Flow struct {
	DSCP  uint8 // DSCP restored in packets, 0 to 63
	Paths uint8 // bit i = replicas are expected on path i+1
}

// SetFlow enables or updates the elimination of replicas to dst. Replicas on paths outside f.Paths
// are also eliminated, but counted as rogue. The error matches ErrMapFull if there are already
// MaxFlows flows.
func (r *Receiver) SetFlow(dst netip.Addr, f Flow) error {
	if !dst.IsValid() || dst.IsUnspecified() || dst.Zone() != "" {
		return fmt.Errorf("flow to %q: want an IP address without a zone", dst)
	}
	if f.DSCP > 63 {
		return fmt.Errorf("flow to %s: DSCP %d is more than 63", dst, f.DSCP)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var value receiverFlow
	err := r.maps[receiverMapFlows].Lookup(addressKey(dst), &value)
	switch {
	case errors.Is(err, ebpf.ErrKeyNotExist):
		if value.Id, err = r.newFlow(); err != nil {
			return fmt.Errorf("set flow to %s: %w", dst, err)
		}
	case err != nil:
		return fmt.Errorf("set flow to %s: %w", dst, err)
	}
	counts, err := r.flowCounts(value.Id)
	if err != nil {
		return err
	}
	all := counts.passed()
	for i := range MaxPaths {
		if bit := uint8(1) << i; f.Paths&bit != 0 && value.Paths&bit == 0 {
			value.Behind[i] = all - counts.delivered(i)
		}
	}
	value.Dscp, value.Paths = f.DSCP, f.Paths
	if err := full("flow to "+dst.String(), r.maps[receiverMapFlows],
		r.maps[receiverMapFlows].Put(addressKey(dst), value)); err != nil {
		return err
	}
	r.names.Store(value.Id, dst.Unmap())
	return nil
}

// RemoveFlow stops elimination for dst. It has no effect if there is no such flow.
func (r *Receiver) RemoveFlow(dst netip.Addr) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var value receiverFlow
	err := r.maps[receiverMapFlows].Lookup(addressKey(dst), &value)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return nil
	}
	if err == nil {
		err = r.maps[receiverMapFlows].Delete(addressKey(dst))
	}
	if err != nil {
		return fmt.Errorf("remove flow to %s: %w", dst, err)
	}
	r.names.Delete(value.Id)
	counts, err := r.flowCounts(value.Id)
	if err != nil {
		return err
	}
	ledger, err := r.ledger()
	if err != nil {
		return err
	}
	(*flowCounts)(&ledger.Removed).add(counts)
	return r.setLedger(ledger)
}

// Flows returns the flows set.
func (r *Receiver) Flows() (map[netip.Addr]Flow, error) {
	values, err := r.flows()
	if err != nil {
		return nil, err
	}
	flows := make(map[netip.Addr]Flow, len(values))
	for dst, v := range values {
		flows[dst] = Flow{DSCP: v.Dscp, Paths: v.Paths}
	}
	return flows, nil
}

func (r *Receiver) flows() (map[netip.Addr]receiverFlow, error) {
	var (
		key   [16]byte
		value receiverFlow
	)
	flows := make(map[netip.Addr]receiverFlow)
	entries := r.maps[receiverMapFlows].Iterate()
	for entries.Next(&key, &value) {
		flows[addressOf(key)] = value
	}
	if err := entries.Err(); err != nil {
		return nil, fmt.Errorf("read flows: %w", err)
	}
	return flows, nil
}

// nameFlows restores the destination names of flows set by an earlier run.
func (r *Receiver) nameFlows() error {
	flows, err := r.flows()
	for dst, v := range flows {
		r.names.Store(v.Id, dst)
	}
	return err
}

// newFlow returns an ID for a new flow: a free index, and an upper part that was never used before.
// It clears the index's counters.
func (r *Receiver) newFlow() (uint32, error) {
	flows, err := r.flows()
	if err != nil {
		return 0, err
	}
	var taken [MaxFlows]bool
	for _, v := range flows {
		taken[v.Id%MaxFlows] = true
	}
	for i := range taken {
		if taken[i] {
			continue
		}
		ledger, err := r.ledger()
		if err != nil {
			return 0, err
		}
		ledger.Flows++
		if err := r.setLedger(ledger); err != nil {
			return 0, err
		}
		zero := make([]receiverFlowCounters, ebpf.MustPossibleCPU())
		if err := r.maps[receiverMapFlowCounts].Put(uint32(i), zero); err != nil {
			return 0, err
		}
		return uint32(ledger.Flows)*MaxFlows + uint32(i), nil
	}
	return 0, fmt.Errorf("%w: it holds at most %d flows", ErrMapFull, MaxFlows)
}

func (r *Receiver) ledger() (receiverLedger, error) {
	var l receiverLedger
	if err := r.maps[receiverMapLedgers].Lookup(uint32(0), &l); err != nil {
		return l, fmt.Errorf("read ledger: %w", err)
	}
	return l, nil
}

func (r *Receiver) setLedger(l receiverLedger) error {
	if err := r.maps[receiverMapLedgers].Put(uint32(0), l); err != nil {
		return fmt.Errorf("set ledger: %w", err)
	}
	return nil
}
