//go:build linux

package duplication

import (
	"fmt"
	"time"

	"holocast/internal/netlab"
	"holocast/internal/netlab/topology"
	"holocast/internal/netlab/wire"
	"holocast/netfunc/pathset"
)

// Nodes of Table I's network, and the controller's host on a separate network.
const (
	source     = "a" // capture server and relay
	viewer     = "b"
	near       = "ea" // the edge on the source's side
	far        = "eb" // the edge on the viewer's side
	management = "c"  // the controller
)

// uplinkPaths are the paths over which Uplink duplicates: the two that can carry every level.
const uplinkPaths pathset.Set = 0b11

func pathName(index int) string { return fmt.Sprintf("path%d", index) }

// network returns the topology of Table I, with a host for the controller that is connected to both
// edges by links that are not paths. If varies is set, delays vary between the times s.from and
// s.to; if reorders is set too, for almost each packet.
func network(s schedule, varies, reorders bool) (*topology.Topology, error) {
	t, err := topology.Builtin("table1-varying")
	if err != nil {
		return nil, err
	}
	if !varies {
		t = t.WithoutVariation()
	}
	for _, p := range t.Paths {
		for _, timeline := range [][]wire.Change{p.Forward, p.Backward} {
			if varies && len(timeline) != 3 {
				return nil, fmt.Errorf("%s of Table I has %d changes, not three", p.Name, len(timeline))
			}
			for i := range timeline {
				timeline[i].At = []time.Duration{0, s.from, s.to}[i]
				if v := timeline[i].Variation; v != nil && reorders {
					each := *v
					each.EveryMin, each.EveryMax = eachPacket, eachPacket
					timeline[i].Variation, timeline[i].Reorder = &each, true
				}
			}
		}
	}
	t.Hosts = append(t.Hosts, management)
	t.Links = append(t.Links, topology.Link{Between: [2]string{management, near}},
		topology.Link{Between: [2]string{management, far}})
	t.Duration = s.length
	return t, nil
}

// counters reads the interfaces' counters.
func counters(lab *netlab.Lab) (t traffic, err error) {
	read := func(node, device string, received bool) (n uint64) {
		if err != nil {
			return 0
		}
		link, e := lab.Node(node).Namespace.Handle.LinkByName(device)
		if e != nil {
			err = fmt.Errorf("read counters of %s in %s: %w", device, node, e)
			return 0
		}
		s := link.Attrs().Statistics
		if s == nil {
			err = fmt.Errorf("%s in %s has no counters", device, node)
			return 0
		}
		if received {
			return s.RxBytes
		}
		return s.TxBytes
	}
	for i := range t.paths {
		t.paths[i] = read(near, pathName(i+1), false) + read(far, pathName(i+1), false)
	}
	t.entered, t.delivered = read(near, source, true)+read(far, viewer, true), read(far, viewer, false)
	return t, err
}
